"""The peer of tagging words: transformers' AutoModelForTokenClassification in PyTorch, in its own environment.

    python -m venv peer && peer/bin/pip install torch "transformers>=5" accelerate scipy
    peer/bin/python benchmarks/peers/token_classification.py train --model=DIR --train_file=train.txt --output_dir=RUN
    peer/bin/python benchmarks/peers/token_classification.py evaluate --model=RUN --validation_file=dev.txt
    peer/bin/python benchmarks/peers/token_classification.py predict --model=RUN --input_file=tokens.jsonl

tfbert's own code, for which the environment needs TensorFlow too, reads the files and computes the scores. So only the
tokenizer, the model and the training differ. A word's label is that of its first piece. Sentences that are longer than
a row are split as tfbert splits them. Prints a JSON line.
"""

import argparse
import itertools
import pathlib
import sys
from collections.abc import Sequence

import numpy as np
from common import chosen
from fine_tuning import fine_tune, run_job, timed_predictions, token_logits
from transformers import AutoModelForTokenClassification, DataCollatorForTokenClassification

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.tasks.token_classification.tagged import read_sentences  # noqa: E402
from tfbert.tasks.token_classification.tags import TagMeanings, TagSequences, class_names, entity_metrics, find_entities  # noqa: E402  # noqa: E402

_UNLABELLED = -100


def main() -> None:
    """Does one of the three jobs."""
    run_job(__doc__, (train, evaluate, predict), max_seq_length=128)


def train(args: argparse.Namespace, tokenizer) -> dict:
    """Fine-tunes, and saves the model."""
    sentences, tags = read(args.train_file, args.max_train_examples)
    names = class_names(tags)
    ids = {name: index for index, name in enumerate(names)}
    rows, places = encode(tokenizer, sentences, args.max_seq_length)
    labels = [ids[tag] for of_sentence in tags for tag in of_sentence]
    for row in rows:
        row["labels"] = np.full(len(row["input_ids"]), _UNLABELLED).tolist()
    for (row, piece), label in zip(places, labels, strict=True):
        rows[row]["labels"][piece] = label
    model = AutoModelForTokenClassification.from_pretrained(args.model, id2label=dict(enumerate(names)), label2id=ids)
    return fine_tune(args, model, rows, DataCollatorForTokenClassification(tokenizer))


def evaluate(args: argparse.Namespace, tokenizer) -> dict:
    """Finds the entities of the validation and test files, and scores them as tfbert does."""
    model = AutoModelForTokenClassification.from_pretrained(args.model)
    names = [model.config.id2label[index] for index in range(model.config.num_labels)]
    meanings, ids, found = TagMeanings(names), {name: index for index, name in enumerate(names)}, {}
    for prefix, path in {"eval": args.validation_file, "test": args.test_file}.items():
        if not path:
            continue
        sentences, tags = read(path, args.max_eval_examples)
        gold = np.array([ids[tag] for of_sentence in tags for tag in of_sentence])
        predicted = predicted_tags(model, tokenizer, sentences, args)
        number = np.repeat(np.arange(len(sentences)), list(map(len, sentences)))
        entities = (find_entities(each, number, meanings) for each in (gold, predicted))
        scores = entity_metrics(*entities) | {"accuracy": float(np.mean(gold == predicted))}
        found |= {f"{prefix}_{name}": value for name, value in scores.items()}
    return found


def predict(args: argparse.Namespace, tokenizer) -> dict:
    """Measures how fast sentences are tagged, tokenizing included."""
    model = AutoModelForTokenClassification.from_pretrained(args.model)
    return timed_predictions(args, lambda rows: predicted_tags(model, tokenizer, [row["tokens"] for row in rows], args))


def read(path: str, limit: int) -> tuple[list[list[str]], list[list[str]]]:
    """Words and tags of a file's sentences, the tags in IOB2."""
    table = read_sentences(path)
    tags = TagSequences(table.tags).written_in("IOB2")
    rows = chosen(len(table), limit)
    return [table.words[row] for row in rows], [tags[row] for row in rows]


def predicted_tags(model, tokenizer, sentences: list[list[str]], args: argparse.Namespace) -> np.ndarray:
    """The index of each word's tag, for all sentences in order: int64 `[words]`."""
    rows, places = encode(tokenizer, sentences, args.max_seq_length)
    logits = token_logits(model, rows, args, tokenizer)
    return np.array([logits[row][piece].argmax() for row, piece in places])


def encode(tokenizer, sentences: Sequence[list[str]], max_seq_length: int) -> tuple[list[dict], list[tuple[int, int]]]:
    """Rows `[CLS] words [SEP]`, and for each word, its row and the place of its first piece in it."""
    found = tokenizer(list(sentences), is_split_into_words=True, add_special_tokens=False)
    rows: list[dict] = []
    places: list[tuple[int, int]] = []
    for sentence, ids in enumerate(found["input_ids"]):
        first = np.flatnonzero(np.diff(found.word_ids(sentence), prepend=-1))
        assert len(first) == len(sentences[sentence]), f"a word of no piece in {sentences[sentence]}"
        starts = row_starts(first, len(ids), max_seq_length - 2)
        for start, end in itertools.pairwise([*starts, len(ids)]):
            places += [(len(rows), place - start + 1) for place in first[(first >= start) & (first < end)].tolist()]
            own = [tokenizer.cls_token_id, *ids[start:end], tokenizer.sep_token_id]
            rows.append({"input_ids": own, "attention_mask": [1] * len(own), "token_type_ids": [0] * len(own)})
    return rows, places


def row_starts(first: np.ndarray, total: int, room: int) -> list[int]:
    """The pieces that start a row: the fewest equal parts that fit, cut between words.

    Args:
        first: The first piece of each word.
        total: The number of pieces of the sentence.
        room: Most pieces in a row.
    """
    for parts in range(-(-total // room), total + 1):
        starts = first[np.flatnonzero(np.diff(first * parts // total, prepend=-1))]
        if np.diff(starts, append=total).max() <= room:
            return starts.tolist()
    raise ValueError(f"A word has more than {room} pieces.")


if __name__ == "__main__":
    main()
