"""The peer of classification: transformers' AutoModelForSequenceClassification in PyTorch, in its own environment.

    python -m venv peer && peer/bin/pip install torch "transformers>=5" accelerate scikit-learn
    peer/bin/python benchmarks/peers/classification.py train --model=DIR --train_file=train.tsv --output_dir=RUN
    peer/bin/python benchmarks/peers/classification.py evaluate --model=RUN --validation_file=dev.tsv
    peer/bin/python benchmarks/peers/classification.py predict --model=RUN --input_file=texts.jsonl

With `--lora_rank=8` it trains by PEFT's LoRA (`pip install peft`), and saves the merged model: `evaluate` and `predict`
take it like any other. tfbert's own code, which needs no TensorFlow here, reads the files and computes the scores. So
only the tokenizer, the model and the training differ. Takes single texts and pairs. Prints a JSON line.
"""

import argparse
import pathlib
import sys

import numpy as np
from common import chosen, label_meanings
from fine_tuning import INPUTS, fine_tune, run_job, text_logits, timed_predictions
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.data.files import (  # noqa: E402
    RawTable,
    find_columns,  # noqa: E402
    read_file,
)
from tfbert.data.labels import canonical  # noqa: E402
from tfbert.tasks.metrics import classification_metrics  # noqa: E402

ALL_TARGETS = "query,key,value,output.dense,intermediate.dense"
"""Every dense layer of an encoder layer, for PEFT; the pooler's name ends otherwise."""


def main() -> None:
    """Does one of the three jobs."""
    run_job(__doc__, (train, evaluate, predict), max_seq_length=128, add_arguments=add_arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """LoRA's, as tfbert has them, for `train`."""
    parser.add_argument("--lora_rank", type=int, default=0)
    parser.add_argument("--lora_alpha", type=float, help="as the rank, unless it is given")
    parser.add_argument("--lora_targets", default="query,value")


def train(args: argparse.Namespace, tokenizer) -> dict:
    """Fine-tunes, and saves the model."""
    table = read_file(args.train_file)
    meanings = label_meanings(table)
    ids = meanings["label2id"]
    kept = chosen(len(table), args.max_train_examples)
    rows = encode(tokenizer, *texts_of(table, kept), args.max_seq_length)
    for row, index in zip(rows, kept, strict=True):
        row["labels"] = ids[canonical(table.labels[index])]
    model = AutoModelForSequenceClassification.from_pretrained(args.model, **meanings)
    if args.lora_rank:
        import peft

        targets = ALL_TARGETS if args.lora_targets == "all" else args.lora_targets
        config = peft.LoraConfig(
            task_type="SEQ_CLS",
            r=args.lora_rank,
            lora_alpha=args.lora_alpha or args.lora_rank,
            target_modules=targets.split(","),
        )
        model = peft.get_peft_model(model, config)
    return fine_tune(args, model, rows, DataCollatorWithPadding(tokenizer))


def evaluate(args: argparse.Namespace, tokenizer) -> dict:
    """Scores the classes of the validation and test files as tfbert does."""
    model, found = AutoModelForSequenceClassification.from_pretrained(args.model), {}
    ids = model.config.label2id
    for prefix, path in {"eval": args.validation_file, "test": args.test_file}.items():
        if not path:
            continue
        table = read_file(path)
        kept = chosen(len(table), args.max_eval_examples)
        gold = np.array([ids[canonical(table.labels[index])] for index in kept])
        logits = predicted_logits(model, tokenizer, *texts_of(table, kept), args)
        found |= {f"{prefix}_{name}": value for name, value in classification_metrics(logits, gold).items()}
    return found


def predict(args: argparse.Namespace, tokenizer) -> dict:
    """Measures how fast texts are classified, tokenizing included."""
    model = AutoModelForSequenceClassification.from_pretrained(args.model)

    def classes(rows: list[dict]) -> np.ndarray:
        columns, _ = find_columns(args.input_file, list(rows[0]), require_label=False)
        texts = [[row[column] for row in rows] for column in columns]
        return predicted_logits(model, tokenizer, *texts, *[None] * (2 - len(texts)), args).argmax(-1)

    return timed_predictions(args, classes)


def texts_of(table: RawTable, kept: np.ndarray) -> tuple[list[str], list[str] | None]:
    """The texts of some rows, and the second texts of pairs."""
    both = table.text, table.text_pair
    first, second = ([texts[index] for index in kept] if texts else None for texts in both)
    return first, second


def predicted_logits(
    model, tokenizer, text: list[str], text_pair: list[str] | None, args: argparse.Namespace
) -> np.ndarray:
    """The logits of all texts in order: float64 `[texts, classes]`."""
    rows = encode(tokenizer, text, text_pair, args.max_seq_length)
    return text_logits(model, rows, args, tokenizer)


def encode(tokenizer, text: list[str], text_pair: list[str] | None, max_seq_length: int) -> list[dict]:
    """Rows `[CLS] text [SEP]`, or `[CLS] text [SEP] second text [SEP]`."""
    found = tokenizer(text, text_pair, truncation=True, max_length=max_seq_length)
    return [{name: found[name][row] for name in INPUTS if name in found} for row in range(len(text))]


if __name__ == "__main__":
    main()
