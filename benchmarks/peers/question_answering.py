"""The peer of question answering: transformers' AutoModelForQuestionAnswering in PyTorch, in its own environment.

    python -m venv peer && peer/bin/pip install torch "transformers>=5" accelerate scipy
    peer/bin/python benchmarks/peers/question_answering.py train --model=DIR --train_file=train.json --output_dir=RUN
    peer/bin/python benchmarks/peers/question_answering.py evaluate --model=RUN --validation_file=dev.json
    peer/bin/python benchmarks/peers/question_answering.py predict --model=RUN --input_file=questions.jsonl

tfbert's own code, for which the environment needs TensorFlow too, reads the questions, chooses the answers and scores
them. So only the tokenizer, the windows (made by transformers' fast tokenizer), the model and the training differ.
Prints one JSON line.
"""

import argparse
import pathlib
import sys

import numpy as np
from common import chosen
from fine_tuning import INPUTS, fine_tune, run_job, timed_predictions, token_logits
from transformers import AutoModelForQuestionAnswering, DataCollatorWithPadding

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.config.tasks import AnsweringConfig  # noqa: E402
from tfbert.tasks.question_answering.question_answering import (  # noqa: E402
    Answers,
    QuestionAnswering,
    Windows,
    decode,
    squad_metrics,
)
from tfbert.tasks.question_answering.squad import read_questions, training_questions  # noqa: E402


def main() -> None:
    """Does one of the three jobs."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--doc_stride", type=int, default=128, help="tokens from window to window, as in tfbert")
        parser.add_argument("--max_query_length", type=int, default=64)
        parser.add_argument("--version_2_with_negative", action="store_true")

    run_job(__doc__, (train, evaluate, predict), max_seq_length=256, add_arguments=add_arguments)


def train(args: argparse.Namespace, tokenizer) -> dict:
    """Fine-tunes, and saves the model."""
    table = read_questions(args.train_file, version_2_with_negative=args.version_2_with_negative)
    table = training_questions(table, [])
    table = table.take(chosen(len(table), args.max_train_examples))
    windows = make_windows(tokenizer, table.questions, [table.context(row) for row in range(len(table))], args)
    rows = []
    for window in windows:
        answers = table.answers[window["example"]]
        start, end = positions(window, answers[0][1], answers[0][1] + len(answers[0][0])) if answers else (0, 0)
        rows.append({name: window[name] for name in INPUTS} | {"start_positions": start, "end_positions": end})
    model = AutoModelForQuestionAnswering.from_pretrained(args.model)
    return fine_tune(args, model, rows, DataCollatorWithPadding(tokenizer))


def evaluate(args: argparse.Namespace, tokenizer) -> dict:
    """Answers the questions of the validation and test files, and scores the answers as tfbert does."""
    model, found = AutoModelForQuestionAnswering.from_pretrained(args.model), {}
    for prefix, path in {"eval": args.validation_file, "test": args.test_file}.items():
        if not path:
            continue
        table = read_questions(path, version_2_with_negative=args.version_2_with_negative)
        table = table.take(chosen(len(table), args.max_eval_examples))
        contexts = [table.context(row) for row in range(len(table))]
        answers = answer(model, tokenizer, table.questions, contexts, args)
        texts = answers.texts(contexts, np.arange(len(contexts)))
        golds = [[text for text, _ in given] for given in table.answers]
        scores = squad_metrics(golds, texts, answers.null_odds if args.version_2_with_negative else None)
        found |= {f"{prefix}_{name}": value for name, value in scores.items()}
    return found


def predict(args: argparse.Namespace, tokenizer) -> dict:
    """Measures how fast questions are answered, tokenizing and decoding included."""
    model = AutoModelForQuestionAnswering.from_pretrained(args.model)

    def answers(rows: list[dict]) -> Answers:
        questions, contexts = ([row[name] for row in rows] for name in ("question", "context"))
        return answer(model, tokenizer, questions, contexts, args)

    return timed_predictions(args, answers)


def answer(model, tokenizer, questions: list[str], contexts: list[str], args: argparse.Namespace) -> Answers:
    """The answer to each question."""
    windows = make_windows(tokenizer, questions, contexts, args)
    logits = token_logits(model, windows, args, tokenizer)
    flat, lengths = np.concatenate(logits), list(map(len, logits))
    offsets = np.concatenate([window["offsets"] for window in windows]).astype(np.int32)
    decoded = decode(
        Windows(
            tokens=None,
            first_token=None,
            row_splits=np.cumsum([0, *lengths]),
            example=np.array([window["example"] for window in windows], np.int32),
            context_start=np.array([window["context_start"] for window in windows], np.int32),
            context_end=np.array(lengths, np.int32) - 1,
            max_context=has_most_context(windows),
            char_start=offsets[:, 0],
            char_end=offsets[:, 1],
        ),
        flat,
    )
    options = AnsweringConfig(version_2_with_negative=args.version_2_with_negative)
    return QuestionAnswering(options).answers(decoded)


def make_windows(tokenizer, questions: list[str], contexts: list[str], args: argparse.Namespace) -> list[dict]:
    """The model's inputs for every window over the context of each question, in the order of the questions.

    The tokenizer's `stride` is the number of tokens that two windows share. For a given step, that number depends on
    the question's length, so there is one call for each length.

    Returns:
        The inputs, and `example`, the question's number; `context_start`, the place of the first token of context;
        `first_token`, the number of that token in the context; `offsets`, int32 `[length, 2]`, the characters of the
        context's tokens, 0 elsewhere.
    """
    asked = tokenizer(questions, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    sizes = np.array([min(len(offsets), args.max_query_length) for offsets in asked])
    texts = [text[: offsets[size - 1][1]] for text, offsets, size in zip(questions, asked, sizes, strict=True)]
    windows: list[list[dict]] = [[] for _ in questions]
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size).tolist()
        found = tokenizer(
            [texts[row] for row in rows],
            [contexts[row] for row in rows],
            truncation="only_second",
            max_length=args.max_seq_length,
            stride=args.max_seq_length - 3 - size - args.doc_stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for number, sample in enumerate(found["overflow_to_sample_mapping"]):
            own = windows[rows[sample]]
            offsets = np.array(found["offset_mapping"][number], np.int32)
            offsets[: size + 2] = 0
            inputs = {name: found[name][number] for name in INPUTS}
            assert inputs["input_ids"][size + 1] == tokenizer.sep_token_id, "a question cut inside a word"
            place = {"context_start": size + 2, "first_token": args.doc_stride * len(own), "offsets": offsets}
            own.append({"example": rows[sample], **place, **inputs})
    return [window for own in windows for window in own]


def positions(window: dict, start: int, end: int) -> tuple[int, int]:
    """The first and the last token of an answer; 0, 0, which is `[CLS]`, if the window does not hold all of it.

    Args:
        window: One of `make_windows`.
        start: The answer's first character.
        end: One past its last character.
    """
    offsets, first, last = window["offsets"], window["context_start"], len(window["offsets"]) - 2
    if last < first or offsets[first, 0] > start or offsets[last, 1] < end:
        return 0, 0
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if len(inside) else (0, 0)


def has_most_context(windows: list[dict]) -> np.ndarray:
    """bool `[tokens]`: whether a token has most context in this window (the first one wins ties), as in BERT's own
    `run_squad.py`; False outside contexts."""
    counts = np.bincount([window["example"] for window in windows])
    most = np.zeros(sum(len(window["input_ids"]) for window in windows), bool)
    best: dict[tuple[int, int], tuple[float, int]] = {}
    place = 0
    for window in windows:
        start, end = place + window["context_start"], place + len(window["input_ids"]) - 1
        place = end + 1
        if counts[window["example"]] == 1:
            most[start:end] = True
            continue
        for where in range(start, end):
            token = window["example"], window["first_token"] + where - start
            mine = min(where - start, end - 1 - where) + 0.01 * (end - start), -where
            best[token] = max(best.get(token, mine), mine)
    most[[-where for _, where in best.values()]] = True
    return most


if __name__ == "__main__":
    main()
