"""A part of the training examples as validation: exact shares of classes, no text on both sides, by the seed alone."""

import collections
import json

import numpy as np
import pytest

from tests.support.data_sets import prepare
from tests.support.refusals import refused
from tests.support.runs import changed, make_config, run_to, undrawn, write_corpus
from tfbert import AnsweringConfig, DataConfig, UsageError
from tfbert.config.tasks import TaskOptions
from tfbert.tasks.tables import equal, held_out_rows, load_data, that_share_texts
from tfbert.train.run import finetune


@pytest.fixture
def load(write):
    """A function: rows, of which a share is held out."""

    def load(rows, columns=("text", "label"), share=0.1, options=None, **data):
        path = write("train.jsonl", [dict(zip(columns, row, strict=True)) for row in rows])
        return load_data(DataConfig(train_file=path, validation_split=share, **data), options or TaskOptions())

    return load


@pytest.mark.parametrize("share", [0.1, 0.25, 1 / 3, 0.5, 0.9])
def test_each_class_keeps_its_share_to_a_row(share):
    sizes = [500, 37, 12, 3, 1]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(5), sizes))
    held = held_out_rows(np.arange(len(labels)), labels, share, seed=3)
    assert abs(held.sum() - share * len(labels)) < 2
    for size, count in zip(sizes, np.bincount(labels[held], minlength=5), strict=True):
        assert abs(count - share * size) <= 1 and count < size


def test_no_text_is_on_both_sides_and_classes_keep_their_share_where_texts_repeat(load):
    rng = np.random.default_rng(1)
    texts = [f"text {int(number)}" + " " * int(rng.integers(2)) for number in rng.integers(0, 150, 400)]
    labels = rng.choice(["no", "yes"], 400, p=[0.8, 0.2])
    data = load(zip(texts, labels, strict=True), share=0.2)
    held, kept = (set(part.contents()) for part in (data.validation["validation"], data.train))
    assert not held & kept
    assert len(data.train) + len(data.validation["validation"]) == 400
    shares = [np.bincount(part.labels, minlength=2) / 400 for part in (data.validation["validation"], data.train)]
    expected = np.array([np.mean(labels == "no"), np.mean(labels == "yes")])
    np.testing.assert_allclose(shares[0], 0.2 * expected, atol=0.02)
    assert not [note for note in data.notes if "warning" in note]  # None of them is in the training data too.
    assert sum(note.startswith("validation_split=0.2: 80 of 400 examples") for note in data.notes) == 1


def test_the_seed_of_the_split_and_the_examples_alone_decide(load):
    def rows(seed, **data):
        return load([(f"text {i}", i % 3) for i in range(90)], split_seed=seed, **data).validation["validation"].text

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)
    # Several seeds are compared on the same examples.
    assert rows(1, options=TaskOptions(seed=3)) == rows(1, options=TaskOptions(seed=4))
    assert rows(1, max_train_examples=20) == rows(1)  # A learning curve is measured on the same examples.
    assert set(rows(1, max_eval_examples=4)) < set(rows(1))


def test_pairs_that_share_a_text_stay_together_as_far_as_possible(load):
    notes = []
    pairs = [(f"premise {i // 3}", f"hypothesis {i}") for i in range(300)]
    groups = that_share_texts(pairs, 0.1, notes)
    assert not notes and len(set(groups)) == 100
    # Few second texts hold all pairs together: then the first ones do not.
    aspects = [(f"sentence {i // 2}", ["food", "service"][i % 2]) for i in range(300)]
    assert that_share_texts(aspects, 0.1, notes).tolist() == equal(first for first, _ in aspects).tolist()
    (note,) = notes
    assert note.startswith("warning: validation_split keeps pairs with the same first text together, no others")
    assert len(set(that_share_texts([("ab"[i % 2], "cd"[i // 2 % 2]) for i in range(100)], 0.1, notes))) == 4
    # A text counts wherever in the pair it is.
    assert len(set(that_share_texts([("a", "b"), ("c", "a"), ("d", "e")], 0.5, notes))) == 2
    data = load([(*pair, i % 2) for i, pair in enumerate(pairs)], ("sentence1", "sentence2", "label"))
    parts = (*data.validation.values(), data.train)
    held, kept = ({text for pair in part.contents() for text in pair} for part in parts)
    assert not held & kept


def test_regression_holds_out_any_rows(load):
    data = load([(f"text {i}", i / 7) for i in range(50)])
    assert (data.task.name, len(data.train), len(data.validation["validation"])) == ("regression", 45, 5)
    assert data.validation["validation"].where(0).startswith("line ")


def test_sentences_with_a_rare_tag_keep_their_share_and_equal_ones_stay_together(write):
    first = [("it", "O") if i % 20 else ("Rome", "B-LOC") for i in range(200)]
    path = write("train.conll", "\n".join(f"{w} {tag}\nnumber{i % 150} O\n" for i, (w, tag) in enumerate(first)))
    data = load_data(DataConfig(train_file=path, task="token_classification", validation_split=0.1))
    held = data.validation["validation"]
    assert len(held) == 20 and [words[0] for words in held.words].count("Rome") == 1
    assert not set(held.contents()) & set(data.train.contents())
    assert held.labels.tolist().count(data.task.label_names.index("B-LOC")) == 1


def test_questions_about_a_context_stay_together_and_those_held_out_keep_all_their_answers(load):
    rows = []
    for i in range(60):
        context = f"In {1900 + i // 3} it rained."
        start = 3 if i % 5 else 4  # Training leaves out answers that are not at their place; an evaluation does not.
        rows.append((f"q{i}", "When?", context, [{"text": str(1900 + i // 3), "answer_start": start}]))
    columns, options = ("id", "question", "context", "answers"), TaskOptions(seed=4, answering=AnsweringConfig())
    data = load(rows, columns, share=0.2, options=options, task="question_answering", max_seq_length=32)
    held, kept = data.validation["validation"], data.train
    assert len(held) == 12 and len(held.contexts) == 4
    assert not set(held.contexts) & set(kept.contexts)
    assert all(held.answers) and len(kept) < 48
    assert set(collections.Counter(held.context_of.tolist()).values()) == {3}


def test_a_data_set_without_validation_split_keeps_its_test_split_for_the_end(tmp_path):
    import tensorflow_datasets as tfds

    features = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(names=["no", "yes"])}
    rows = [(f"text {i}", i % 2) for i in range(40)]
    splits = {"train": rows, "test": rows[:4]}
    prepare(tmp_path, "two_parts", features, splits)
    prepare(tmp_path, "three_parts", features, splits | {"validation": rows[4:8]})
    data = load_data(DataConfig(dataset="two_parts", data_dir=str(tmp_path), validation_split=0.1))
    assert (len(data.train), list(data.validation), len(data.test)) == (36, ["validation"], 4)
    with pytest.raises(UsageError, match="for data without examples to evaluate on. Received: validation_split=0.1"):
        load_data(DataConfig(dataset="three_parts", data_dir=str(tmp_path), validation_split=0.1))


def test_too_few_examples_and_groups_that_are_too_large_are_refused_or_said(load):
    for count, of_a_group, share, said in (
        (4, 1, 0.1, "Received: validation_split=0.1 of 4 in "),
        (2, 1, 0.5, "Received: validation_split=0.5 of 2 in "),
        (80, 20, 0.1, "of 80 in .*, in groups of up to 20 that share their texts. Pass a larger"),
    ):
        with refused(said):
            load([(f"text {i // of_a_group}", i // of_a_group % 2) for i in range(count)], share=share)
    rows = [(f"text {i // 20}", i // 20 % 2) for i in range(160)] + [(f"rare {i}", i % 2) for i in range(4)]
    data = load(rows)
    assert any("4 of 164 examples" in note and "rather than 16, as they come in groups" in note for note in data.notes)


@pytest.mark.slow
def test_a_run_evaluates_what_was_held_out_and_resumes_only_with_the_same_share(tmp_path, monkeypatch):
    write_corpus(tmp_path)
    config = changed(make_config(tmp_path, "run"), data={"validation_file": "", "validation_split": 0.25})
    with undrawn():
        run_to(3, config, monkeypatch)
        with pytest.raises(UsageError, match="validation_split=0.25 before and 0.5 now"):
            finetune(changed(config, data={"validation_split": 0.5}))
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["eval_accuracy"] * 11 % 1 for line in lines if line["kind"] == "eval"] == [pytest.approx(0, abs=1e-6)]
    assert json.loads((tmp_path / "run" / "run_config.json").read_text())["data"]["validation_split"] == 0.25
