"""The peer of multi-label classification: transformers' AutoModelForSequenceClassification with
`problem_type="multi_label_classification"` in PyTorch, in its own environment (see classification.py).

    peer/bin/python benchmarks/peers/multi_label_classification.py train --model=DIR --train_file=train.tsv \
        --label_names=labels.txt --max_seq_length=64 --output_dir=RUN
    peer/bin/python benchmarks/peers/multi_label_classification.py evaluate --model=RUN --label_names=labels.txt \
        --validation_file=dev.tsv --test_file=test.tsv --max_seq_length=64
    peer/bin/python benchmarks/peers/multi_label_classification.py predict --model=RUN --input_file=texts.jsonl

and beside it

    python run_finetune.py --task=multi_label_classification --noheader --text_column=0 --label_column=1 \
        --label_names=labels.txt --train_file=train.tsv --validation_file=dev.tsv --test_file=test.tsv --model=DIR \
        --max_seq_length=64 --output_dir=MINE

Files are GoEmotions' own: no header, text, ids of labels, the comment's id. tfbert's own code, for which the
environment needs TensorFlow too, reads the labels and computes the scores, at a threshold of 0.5 and at the one that is
best on the validation file. So only the tokenizer, the model and the training differ. Prints a JSON line.
"""

import argparse
import pathlib
import sys

import numpy as np
from common import chosen
from fine_tuning import INPUTS, fine_tune, run_job, text_logits, timed_predictions
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.data.rows import file_format, open_rows  # noqa: E402
from tfbert.tasks.multi_label.multi_label_classification import (  # noqa: E402
    choose_threshold,
    given_labels,
    multi_label_metrics,  # noqa: E402
)
from tfbert.tasks.multi_label.table import cell_of, labels_of  # noqa: E402

_TEXT, _LABELS = "0", "1"
"""The columns."""


def main() -> None:
    """Does one of the three jobs."""
    run_job(__doc__, (train, evaluate, predict), max_seq_length=64, add_arguments=add_arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file of the labels' names, one a line."""
    parser.add_argument("--label_names", type=pathlib.Path)


def train(args: argparse.Namespace, tokenizer) -> dict:
    """Fine-tunes, and saves the model."""
    names = args.label_names.read_text(encoding="utf-8").split()
    texts, labels = read(args.train_file, len(names))
    kept = chosen(len(texts), args.max_train_examples)
    rows = encode(tokenizer, [texts[i] for i in kept], args.max_seq_length)
    for row, index in zip(rows, kept, strict=True):
        row["labels"] = labels[index].astype(np.float32).tolist()
    model = AutoModelForSequenceClassification.from_pretrained(
        args.model,
        problem_type="multi_label_classification",
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
    )
    return fine_tune(args, model, rows, DataCollatorWithPadding(tokenizer))


def evaluate(args: argparse.Namespace, tokenizer) -> dict:
    """Scores the labels of the validation and test files as tfbert does."""
    model, found, threshold = AutoModelForSequenceClassification.from_pretrained(args.model), {}, None
    for prefix, path in {"eval": args.validation_file, "test": args.test_file}.items():
        if not path:
            continue
        texts, labels = read(path, model.config.num_labels)
        kept = chosen(len(texts), args.max_eval_examples)
        logits = text_logits(model, encode(tokenizer, [texts[i] for i in kept], args.max_seq_length), args, tokenizer)
        threshold = threshold or choose_threshold(logits, labels[kept], "micro_f1")
        for suffix, value in (("", 0.5), ("_at_best", threshold)):
            scores = multi_label_metrics(logits, labels[kept], given_labels(logits, [value]))
            found |= {f"{prefix}_{name}{suffix}": score for name, score in scores.items()}
        found[f"{prefix}_threshold"] = threshold
    return found


def predict(args: argparse.Namespace, tokenizer) -> dict:
    """Measures how fast texts are labelled, tokenizing included."""
    model = AutoModelForSequenceClassification.from_pretrained(args.model)

    def labels(rows: list[dict]) -> np.ndarray:
        encoded = encode(tokenizer, [row["text"] for row in rows], args.max_seq_length)
        return text_logits(model, encoded, args, tokenizer) > 0

    return timed_predictions(args, labels)


def read(path: str, num_labels: int) -> tuple[list[str], np.ndarray]:
    """Texts, and their labels as 0 and 1, int8 `[texts, num_labels]`."""
    file = open_rows(pathlib.Path(path), file_format(pathlib.Path(path)), header=False)
    rows = [(line, text, cell_of(labels, _LABELS, path)) for line, (text, labels) in file.read([_TEXT, _LABELS])]
    found = np.zeros((len(rows), num_labels), np.int8)
    for row, (line, _, cell) in enumerate(rows):
        found[row, list(map(int, labels_of(cell, ",", (), f"{path}, line {line}")))] = 1
    return [text for _, text, _ in rows], found


def encode(tokenizer, texts: list[str], max_seq_length: int) -> list[dict]:
    """Rows `[CLS] text [SEP]`."""
    found = tokenizer(texts, truncation=True, max_length=max_seq_length)
    return [{name: found[name][row] for name in INPUTS} for row in range(len(texts))]


if __name__ == "__main__":
    main()
