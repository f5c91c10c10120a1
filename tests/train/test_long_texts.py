"""`--long_texts`: what is kept of long texts or read in windows, alike in training, prediction, Python and exports."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.host_tokenizers import roberta
from tests.support.runs import TOKENS, WORDS, assert_same_bits, make_config, run_to, undrawn, weights
from tests.support.splits import assert_as_nearly
from tests.support.task_runs import arguments_of, command, write_tasks
from tfbert import TrainingConfig, UsageError
from tfbert.measure import Work
from tfbert.tasks.classification.classification import Classification
from tfbert.tasks.text_task import TextExamples
from tfbert.tokens.host import read_tokenizer
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.train.run import finetune


def kept(ids, room):
    """The tokens that stay, in plain Python."""
    head = -(-room // 4)
    return ids if len(ids) <= room else ids[:head] + ids[len(ids) - (room - head) :]


def shares(first, second, room):
    """How many tokens of each of two texts stay, as Hugging Face's `longest_first` has it."""
    was_longer = first > second
    while first + second > room:
        cuts_first = first > second or (first == second and not was_longer)
        first, second = (first - 1, second) if cuts_first else (first, second - 1)
    return first, second


EVERY = (1 << 16, 4096, 32, 31, 9, 8, 4)
LENGTHS = pytest.mark.parametrize(
    "kind, lengths", [("wordpiece", (8,)), ("roberta", EVERY), pytest.param("wordpiece", EVERY, marks=pytest.mark.slow)]
)
"""WordPiece is a graph, which is traced for each length."""


@LENGTHS
def test_the_ends_of_long_texts_stay(kind, lengths, tmp_path):
    cuts = BertTokenizer(TOKENS) if kind == "wordpiece" else read_tokenizer(roberta(tmp_path))
    tokenizer = cuts.cutting("first_last")
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, rng.integers(0, 40))) for _ in range(60)]
    others = texts[::-1]
    pieces = cuts.encode_with_offsets(texts)
    whole = [row.tolist() for row in np.split(pieces.ids, pieces.row_splits[1:-1])]
    for length in lengths:
        found, pairs = (tokenizer.encode(*columns, max_seq_length=length) for columns in ((texts,), (texts, others)))
        for i, ids in enumerate(whole):
            row = found.flat[found.row_splits[i] : found.row_splits[i + 1]].tolist()
            assert row == [cuts.cls_id, *kept(ids, length - 2), cuts.sep_id]
            other = whole[len(whole) - 1 - i]
            room = min(length, 1 << 10) - cuts.num_special(2)
            sizes = shares(len(ids), len(other), room)
            row = pairs.flat[pairs.row_splits[i] : pairs.row_splits[i + 1]].tolist()
            parts = [kept(part, size) for part, size in zip((ids, other), sizes, strict=True)]
            assert row == [cuts.cls_id, *parts[0], *[cuts.sep_id] * cuts.separators, *parts[1], cuts.sep_id]
    again = cuts.encode(texts, max_seq_length=9)  # What was traced for one is not called for the other.
    assert again.flat.tolist() != tokenizer.encode(texts, max_seq_length=9).flat.tolist()
    assert tokenizer != cuts and tokenizer == cuts.cutting("first_last")


def windows_of(texts, room):
    """The parts of one or two texts that stand in each window, in plain Python."""
    sizes = shares(*map(len, texts), room) if len(texts) == 2 else [min(len(texts[0]), room)]
    count = max(1, *(-(-len(text) // max(size, 1)) for text, size in zip(texts, sizes, strict=True)))
    starts = [[i * (len(t) - n) // max(count - 1, 1) for i in range(count)] for t, n in zip(texts, sizes, strict=True)]
    return [[t[at[i] : at[i] + n] for t, n, at in zip(texts, sizes, starts, strict=True)] for i in range(count)]


@LENGTHS
def test_windows_hold_every_token(kind, lengths, tmp_path):
    cuts = BertTokenizer(TOKENS) if kind == "wordpiece" else read_tokenizer(roberta(tmp_path))
    tokenizer = cuts.cutting("windows")
    rng = np.random.default_rng(3)
    sizes = [*rng.integers(0, 40, 40), 0, 1, 300, 0, 300, 1]  # Also an empty one beside a long one, and the reverse.
    texts = [" ".join(rng.choice(WORDS, size)) for size in sizes]
    pieces = cuts.encode_with_offsets(texts)
    # Tokens with their places in their text, which tell equal ones apart.
    whole = [[*enumerate(ids.tolist())] for ids in np.split(pieces.ids, pieces.row_splits[1:-1])]
    for length, columns in itertools.product([n for n in lengths if n > 4], ([texts], [texts, texts[::-1]])):
        found, cut = (one.encode(*columns, max_seq_length=length) for one in (tokenizer, cuts))
        own = zip(whole, whole[::-1], strict=True) if len(columns) == 2 else zip(whole, strict=True)
        rows = [row.tolist() for row in np.split(found.flat, found.row_splits[1:-1])]
        counts, row = [], 0
        for parts in own:
            windows = windows_of(parts, length - cuts.num_special(len(parts)))
            for window in windows:
                first, *second = ([id for _, id in part] for part in window)
                between = [cuts.sep_id] * cuts.separators
                ids = [cuts.cls_id, *first, *(between + second[0] if second else []), cuts.sep_id]
                assert rows[row] == ids and (len(ids) == length or len(windows) == 1)
                is_split = second and cuts.has_token_types
                assert found.second_start[row] == (len(first) + 1 + len(between) if is_split else len(ids))
                row += 1
            for part, shown in zip(parts, zip(*windows, strict=True), strict=True):
                assert {*part} == {*itertools.chain(*shown)}, "each token is in one"
            counts.append(len(windows))
        assert len(rows) == row
        if max(counts) > 1:
            assert np.diff(found.splits).tolist() == counts
        else:
            assert found.splits is None
            for name, value in vars(cut).items():
                assert np.array_equal(value, getattr(found, name)), "texts that are not too long are as they are cut"
    with pytest.raises(UsageError, match="and a token of each text. Received: max_seq_length=[45]. Pass"):
        tokenizer.encode(texts, texts, max_seq_length=cuts.num_special(2) + 1)


def test_training_reads_so_many_windows_and_says_so(monkeypatch, caplog):
    tokenizer = BertTokenizer(TOKENS).cutting("windows")
    texts = [" ".join(WORDS[:n]) for n in (3, 14, 9, 14)]
    examples = TextExamples(name="few", text=texts, text_pair=None, labels=np.zeros(4, np.int32))
    task = Classification(("0", "1"))
    every = task.encode(examples, tokenizer, 5)
    assert np.diff(every.splits).tolist() == [1, 5, 3, 5] and len(every) == 4
    monkeypatch.setattr("tfbert.tasks.text_task.MOST_WINDOWS", 3)
    trained = task.encode(examples, tokenizer, 5, TrainingConfig())
    assert np.diff(trained.splits).tolist() == [1, 3, 3, 3]
    rows = [row.tolist() for row in np.split(every.tokens.flat, every.tokens.row_splits[1:-1])]
    kept = [row.tolist() for row in np.split(trained.tokens.flat, trained.tokens.row_splits[1:-1])]
    assert kept == [rows[i] for i in (0, 1, 3, 5, 6, 7, 8, 9, 11, 13)]
    assert "few: texts of more than 3 windows of 5 tokens: 2 of 4; training reads 3 windows of each" in caplog.text
    assert trained.lengths.tolist() == [5, 15, 15, 15] and every.crc32 != trained.crc32
    work = Work.of(every.lengths, 5)
    assert work == dataclasses.replace(Work.of(every.tokens.lengths), examples=4, further_sequences=10)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("num_texts", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_model_of_windows_reads_them_again(shared, tmp_path, num_texts, logged):
    rng, names = np.random.default_rng(4), ("text", "text_pair")[:num_texts]
    texts = [[rng.choice(WORDS, n).tolist() for n in rng.integers(0, 25, num_texts)] for _ in range(21)]
    texts += [[list(WORDS)] * num_texts, [WORDS[:2]] * num_texts, [[]] * num_texts]

    def rows(columns):
        return [dict(zip(names, map(" ".join, row), strict=True)) for row in columns]

    labelled = [row | {"label": "ab"[i % 2]} for i, row in enumerate(rows(texts))]
    file = lines(tmp_path / "train.jsonl", labelled)
    files = {"model": shared / "model", "train_file": file, "validation_file": file, "output_dir": tmp_path / "run"}
    options = {"max_seq_length": 8, "long_texts": "windows", "global_batch_size": 8, "max_steps": 2}
    with undrawn():
        found = tfbert.finetune(**files, **options, learning_rate=1e-2)
    log = "\n".join(logged())
    assert json.loads((tmp_path / "run" / "config.json").read_text())["tfbert"]["long_texts"] == "windows"
    assert "in windows of 8 tokens" in (tmp_path / "run" / "README.md").read_text()

    def predicted(name, columns, *options):
        given = lines(tmp_path / f"{name}-in.jsonl", rows(columns))
        out = tmp_path / f"{name}.jsonl"
        files = (f"--input_file={given}", f"--output_file={out}")
        command("--mode=predict", f"--model={tmp_path / 'run'}", *files, *options)
        return np.array([json.loads(line)["logits"] for line in out.open()])

    # Each word is a token: the windows as texts of their own give the logits whose mean is the text's.
    windows = [windows_of(row, 8 - 1 - num_texts) for row in texts]
    assert f"in up to {max(map(len, windows))} windows" in log and "may be cut" not in log
    each = predicted("each", [window for own in windows for window in own], "--long_texts=cut")
    line = "Of long texts is kept what long_texts=cut says, as asked; the model was trained with windows."
    assert logged().count(line) == 1
    splits = np.cumsum([len(own) for own in windows])[:-1]
    expected = np.array([part.mean(axis=0) for part in np.split(each, splits)])
    np.testing.assert_allclose(predicted("own", texts), expected, atol=1e-6)
    if num_texts == 2:  # By default tests/modes/test_evaluate.py has predictions on two replicas.
        split = predicted("split", texts, "--strategy=mirrored", "--num_replicas=2", "--per_device_eval_batch_size=1")
        np.testing.assert_allclose(split, expected, atol=1e-6)
    shares = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(len(texts)), np.arange(len(texts)) % 2]).mean()
    written = f"--validation_file={file}", f"--output_dir={tmp_path / 'evaluated'}"
    evaluated = command("--mode=evaluate", f"--model={tmp_path / 'run'}", *written)
    assert evaluated["eval_loss"] == pytest.approx(loss, abs=1e-6) == pytest.approx(found["eval_loss"], abs=1e-6)
    loaded, inputs = tfbert.load(tmp_path / "run"), rows(texts) if num_texts == 2 else [r["text"] for r in rows(texts)]
    for answers, own in zip(loaded(inputs, top_k=None, batch_size=3), shares, strict=True):
        assert {a["label"]: a["score"] for a in answers} == pytest.approx(dict(zip("ab", own, strict=True)), abs=1e-6)
    command("--mode=export", f"--model={tmp_path / 'run'}", f"--output_dir={tmp_path / 'export'}")
    assert json.loads((tmp_path / "export" / "export_results.json").read_text())["long_texts"] == "windows"
    serve = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    columns = {name: tf.constant([row[name] for row in rows(texts)]) for name in names}
    np.testing.assert_allclose(serve(**columns)["logits"], expected, atol=1e-6)
    assert serve(**{name: tf.constant([], tf.string) for name in names})["logits"].shape[0] == 0
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace('"windows"', '"middle"'))
    with pytest.raises(UsageError, match="one of cut, first_last, windows. Received: 'middle' in"):
        tfbert.load(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_on_windows_splits_and_resumes(shared, monkeypatch):
    """Dropout on; low-rank updates and recomputed layers in one of the splits."""
    for own in ({}, {"lora_rank": 2, "gradient_checkpointing": True}):
        name = f"windows{len(own)}"
        config = make_config(shared, name).changed({"long_texts": "windows", "max_seq_length": 8} | own)
        finetune(config)
        again = config.changed({"output_dir": str(shared / f"{name}-again")})
        run_to(5, again, monkeypatch)
        finetune(again)
        assert_same_bits(weights(shared / name), weights(shared / f"{name}-again"))
        split = {"output_dir": str(shared / f"{name}-split"), "strategy": "mirrored", "num_replicas": 2}
        finetune(config.accumulating(4).changed(split))
        assert_as_nearly(shared / f"{name}-split", shared / name)


def test_other_tasks_refuse_it(tmp_path):
    write_tasks(tmp_path)
    own = arguments_of(tmp_path, "question_answering", "qa")
    with pytest.raises(UsageError, match="long_texts is for classification, .*Drop --long_texts"):
        command(*own, "--long_texts=first_last")
