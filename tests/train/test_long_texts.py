"""`--long_texts=first_last`: what is kept of long texts, the same in training, prediction, Python and an export."""

import json

import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.host_tokenizers import roberta
from tests.support.runs import TOKENS, WORDS, undrawn, write_corpus
from tests.support.task_runs import arguments_of, command, write_tasks
from tfbert.errors import UsageError
from tfbert.tokens.host import read_tokenizer
from tfbert.tokens.tokenizer import BertTokenizer


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


@pytest.mark.parametrize("kind", ["wordpiece", "roberta"])
def test_the_ends_of_long_texts_stay(kind, tmp_path):
    cuts = BertTokenizer(TOKENS) if kind == "wordpiece" else read_tokenizer(roberta(tmp_path))
    tokenizer = cuts.cutting("first_last")
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, rng.integers(0, 40))) for _ in range(60)]
    others = texts[::-1]
    pieces = cuts.encode_with_offsets(texts)
    whole = [row.tolist() for row in np.split(pieces.ids, pieces.row_splits[1:-1])]
    for length in (1 << 16, 32, 31, 9, 4):
        found, pairs = (tokenizer.encode(*columns, max_seq_length=length) for columns in ((texts,), (texts, others)))
        for i, ids in enumerate(whole):
            row = found.flat[found.row_splits[i] : found.row_splits[i + 1]].tolist()
            assert row == [cuts.cls_id, *kept(ids, length - 2), cuts.sep_id]
            other = whole[len(whole) - 1 - i]
            room = min(length, 1 << 10) - cuts.num_special(2)
            lengths = shares(len(ids), len(other), room)
            row = pairs.flat[pairs.row_splits[i] : pairs.row_splits[i + 1]].tolist()
            parts = [kept(part, size) for part, size in zip((ids, other), lengths, strict=True)]
            assert row == [cuts.cls_id, *parts[0], *[cuts.sep_id] * cuts.separators, *parts[1], cuts.sep_id]
    again = cuts.encode(texts, max_seq_length=9)  # What was traced for one is not called for the other.
    assert again.flat.tolist() != tokenizer.encode(texts, max_seq_length=9).flat.tolist()
    assert tokenizer != cuts and tokenizer == cuts.cutting("first_last")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("long")
    write_corpus(directory)
    write_tasks(directory)
    return directory


def test_a_model_keeps_to_what_it_was_trained_with(corpus, tmp_path, logged):
    out = corpus / "run"
    with undrawn():
        tfbert.finetune(
            model=corpus / "model",
            train_file=corpus / "train.tsv",
            validation_file=corpus / "dev.tsv",
            max_seq_length=8,
            long_texts="first_last",
            output_dir=out,
            global_batch_size=8,
            max_steps=2,
            learning_rate=1e-3,
        )
    assert json.loads((out / "config.json").read_text())["tfbert"]["long_texts"] == "first_last"
    text = " ".join([*WORDS[:2], *["bad"] * 9, *WORDS[2:6]])
    shortened = " ".join([*WORDS[:2], *WORDS[2:6]])  # Two of six, and four.
    (answer, same), cut = tfbert.load(out)([text, shortened], top_k=None), " ".join(text.split()[:6])
    assert answer == same
    logits = {"text": tf.constant([text, shortened, cut])}
    command("--mode=export", f"--model={out}", f"--output_dir={tmp_path / 'export'}")
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"](**logits)["logits"].numpy()
    assert np.array_equal(served[0], served[1]) and not np.allclose(served[0], served[2], atol=1e-6)
    logged()
    (tmp_path / "x.txt").write_text(f"{text}\n{cut}\n")
    arguments = ("--mode=predict", f"--model={out}", f"--input_file={tmp_path / 'x.txt'}", "--output_format=jsonl")
    command(*arguments, f"--output_file={tmp_path / 'own.jsonl'}")
    command(*arguments, f"--output_file={tmp_path / 'cut.jsonl'}", "--long_texts=cut")
    line = "Of long texts is kept what long_texts=cut says, as asked; the model was trained with first_last."
    assert logged().count(line) == 1
    own, asked = ([json.loads(row) for row in (tmp_path / f"{name}.jsonl").open()] for name in ("own", "cut"))
    best = max(answer, key=lambda each: each["score"])
    assert own[0]["probabilities"][best["label"]] == pytest.approx(best["score"], abs=1e-5)
    assert asked[0]["probabilities"] == pytest.approx(asked[1]["probabilities"], abs=1e-6)
    path = out / "config.json"
    path.write_text(path.read_text().replace('"first_last"', '"windows"'))
    with pytest.raises(UsageError, match="one of cut, first_last. Received: 'windows' in"):
        tfbert.load(out)


def test_other_tasks_refuse_it(corpus):
    own = arguments_of(corpus, "question_answering", "qa")
    with pytest.raises(UsageError, match="long_texts is for classification, .*Drop --long_texts"):
        command(*own, "--long_texts=first_last")
