"""The peer of multiple choice: transformers' AutoModelForMultipleChoice in PyTorch, in its own environment.

    python -m venv peer && peer/bin/pip install torch "transformers>=5" accelerate
    peer/bin/python benchmarks/peers/multiple_choice.py train --model=DIR --train_file=train.json.gz --output_dir=RUN
    peer/bin/python benchmarks/peers/multiple_choice.py evaluate --model=RUN --validation_file=dev.json.gz
    peer/bin/python benchmarks/peers/multiple_choice.py predict --model=RUN --input_file=questions.jsonl

tfbert's own code, for which the environment needs TensorFlow too, reads the files and computes the scores. So only the
tokenizer, the model and the training differ. All questions need as many choices: transformers' model has no place for
missing ones. Prints a JSON line.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from common import chosen
from fine_tuning import INPUTS, fine_tune, run_job, timed_predictions
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForMultipleChoice, Trainer, TrainingArguments

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.config.data import DataConfig  # noqa: E402
from tfbert.tasks.multiple_choice import ChoiceExamples, Choices, choice_metrics, read_choices  # noqa: E402


def main() -> None:
    """Does one of the three jobs."""
    run_job(__doc__, (train, evaluate, predict), max_seq_length=256)


def train(args: argparse.Namespace, tokenizer) -> dict:
    """Fine-tunes, and saves the model."""
    examples = examples_of(args.train_file, args.max_train_examples)
    rows = encode(tokenizer, questions_of(examples), args.max_seq_length)
    for row, label in zip(rows, examples.labels.tolist(), strict=True):
        row["labels"] = label
    model = AutoModelForMultipleChoice.from_pretrained(args.model)
    return fine_tune(args, model, rows, collator(tokenizer))


def evaluate(args: argparse.Namespace, tokenizer) -> dict:
    """Scores the choices for the validation and test files as tfbert does."""
    model, found = AutoModelForMultipleChoice.from_pretrained(args.model), {}
    for prefix, path in {"eval": args.validation_file, "test": args.test_file}.items():
        if path:
            examples = examples_of(path, args.max_eval_examples)
            logits = predicted_logits(model, tokenizer, questions_of(examples), args)
            splits = np.arange(len(examples) + 1) * logits.shape[1]
            scores = choice_metrics(Choices.of(logits.reshape(-1), splits), examples.labels)
            found |= {f"{prefix}_{name}": value for name, value in scores.items()}
    return found


def predict(args: argparse.Namespace, tokenizer) -> dict:
    """Measures how fast choices are made, tokenizing included."""
    model = AutoModelForMultipleChoice.from_pretrained(args.model)
    return timed_predictions(args, lambda rows: predicted_logits(model, tokenizer, rows, args).argmax(-1))


def examples_of(path: str, limit: int) -> ChoiceExamples:
    """The questions of a file that tfbert takes."""
    examples = read_choices(path, DataConfig())
    return examples.take(chosen(len(examples), limit))


def questions_of(examples: ChoiceExamples) -> list[dict]:
    """Questions as `--input_file` has them."""
    return [
        {"context": asked.context, "question": asked.question, "choices": list(asked.choices)}
        for asked in examples.asked
    ]


def encode(tokenizer, questions: Sequence[dict], max_seq_length: int) -> list[dict]:
    """The model's inputs for each question: all its choices one after the other, each from its `[CLS]` on, so that a
    row is as long as what is computed for it, by which the Trainer groups rows."""
    firsts = [question["context"] for question in questions for _ in question["choices"]]
    seconds = [f"{question['question']} {choice}" for question in questions for choice in question["choices"]]
    found = tokenizer(firsts, seconds, truncation="only_first", max_length=max_seq_length)
    most = len(questions[0]["choices"])
    assert all(len(question["choices"]) == most for question in questions), "the numbers of choices differ"
    return [
        {name: [token for part in found[name][first : first + most] for token in part] for name in INPUTS}
        for first in range(0, len(firsts), most)
    ]


def collator(tokenizer) -> Callable[[list[dict]], dict[str, torch.Tensor]]:
    """Makes a batch `[questions, choices, width]`, padded to its longest choice."""
    fill = {"input_ids": tokenizer.pad_token_id}

    def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
        parts = {name: [] for name in INPUTS}
        for row in rows:
            starts = [place for place, token in enumerate(row["input_ids"]) if token == tokenizer.cls_token_id]
            for start, end in zip(starts, [*starts[1:], None], strict=True):
                for name in INPUTS:
                    parts[name].append(torch.tensor(row[name][start:end]))
        batch = {name: pad_sequence(each, True, fill.get(name, 0)) for name, each in parts.items()}
        batch = {name: each.view(len(rows), -1, each.shape[1]) for name, each in batch.items()}
        return batch | ({"labels": torch.tensor([row["labels"] for row in rows])} if "labels" in rows[0] else {})

    return collate


def predicted_logits(model, tokenizer, questions: Sequence[dict], args: argparse.Namespace) -> np.ndarray:
    """The logits of all choices: float32 `[questions, choices]`."""
    rows, collate = encode(tokenizer, questions, args.max_seq_length), collator(tokenizer)
    if args.trainer:
        settings = TrainingArguments(
            output_dir="/tmp/tfbert-peer",
            per_device_eval_batch_size=args.batch_size,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            disable_tqdm=True,
        )
        return Trainer(model=model, args=settings, data_collator=collate).predict(rows).predictions
    out: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for batch, logits in _outputs(model, rows, collate, args.batch_size):
        for row, values in zip(batch, logits, strict=True):
            out[row] = values
    return np.stack(out)


@torch.inference_mode()
def _outputs(model, rows: Sequence[dict], collate: Callable, size: int) -> Iterator[tuple[list[int], np.ndarray]]:
    """Indices of rows, sorted by length, and their logits."""
    model.eval()
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row]["input_ids"]))
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        yield batch, model(**collate([rows[row] for row in batch])).logits.float().numpy()


if __name__ == "__main__":
    main()
