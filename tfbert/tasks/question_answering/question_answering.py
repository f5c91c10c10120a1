"""Extractive question answering: finds the part of a context that answers a question, or says that there is none. Exact
match and F1 are as SQuAD's own scripts compute them, to every digit: evaluate-v1.1.py and evaluate-v2.0.py.

The scripts differ in more than their names. If an answer holds nothing but articles and punctuation, version 1.1 gives
it an F1 of 0; version 2.0 drops such a gold answer, and treats such a prediction as no answer.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
import re
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.config import tasks
from tfbert.config.data import DataConfig
from tfbert.data.rows import Source
from tfbert.errors import UsageError
from tfbert.model.files import OWN_FIELD
from tfbert.model.head import Head, span_head
from tfbert.output.output_dir import EVAL_RESULTS, FACTS
from tfbert.tasks.base import ErrorAnalysis, Task, TaskData
from tfbert.tasks.losses import SpanCrossEntropy
from tfbert.tasks.question_answering import squad
from tfbert.tasks.question_answering.windows import (
    Answers,
    Candidates,
    decode,
    make_windows,
    select_answers,
    window_labels,
    write_answers,
)
from tfbert.tasks.tables import data_of, equal, hold_out, read_labelled_tables, read_training_tables

if TYPE_CHECKING:
    from tfbert.config.run import Config
    from tfbert.config.training import TrainingConfig
    from tfbert.model.files import BertConfig
    from tfbert.tokens.tokenizer import Tokenizer


_SHOWN_CONTEXT = 400
"""Characters of context that a report shows on each side of what it marks."""
_TIE = 1e-6
"""Orders answers that miss equally much; too small to show in a report."""


@dataclasses.dataclass(frozen=True)
class QuestionAnswering(Task[squad.QuestionExamples, Candidates]):
    """See `Task`. Outputs are logits of tokens, float32 `[tokens, 2]`: of an answer that starts there, and of one that
    ends there. Predictions are the best `Candidates` of each question.

    Metrics, as SQuAD's scripts compute and name them, 0 to 100: `f1` and `exact_match`; with questions that have no
    answer, `f1`, `exact`, `HasAns_*`, `NoAns_*`, `best_*` and their thresholds.

    Args:
        doc_stride: Tokens from one window to the next; None for what suits the length of rows.
        max_query_length: Longest question in tokens; None likewise.
        version_2_with_negative: Whether some questions have no answer.
        null_score_diff_threshold: No answer is given if "no answer" scores higher than the best one by more than this.
        n_best_size: The most starts and ends that are combined, and the most answers that are kept.
        max_answer_length: Longest answer in tokens.
    """

    doc_stride: int | None = None
    max_query_length: int | None = None
    version_2_with_negative: bool = False
    null_score_diff_threshold: float = 0.0
    n_best_size: int = tasks.N_BEST_SIZE
    max_answer_length: int = tasks.MAX_ANSWER_LENGTH

    name = "question_answering"
    length_rule = "Longer texts are split into rows of"
    pipeline_tag = "question-answering"
    default_metric = "f1"
    reads_tokens = True

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: tasks.TaskOptions) -> QuestionAnswering:
        """The task of a saved model."""
        return cls.of_options(options.answering, getattr(saved, OWN_FIELD, None))

    @classmethod
    def of_options(cls, options: tasks.AnsweringConfig, noted: dict[str, Any] | None = None) -> QuestionAnswering:
        """The task with these options; what they leave open is taken from a saved model's notes.

        Args:
            options: The command's options.
            noted: What `notes` returned when the model was saved.

        Raises:
            UsageError: for `null_score_diff_threshold` if every question has an answer.
        """
        noted = noted or {}
        version_2 = options.version_2_with_negative or noted.get("version_2_with_negative") is True
        if options.null_score_diff_threshold and not version_2:
            raise UsageError(
                "null_score_diff_threshold is for questions that may have no answer. Received: "
                f"null_score_diff_threshold={options.null_score_diff_threshold} without version_2_with_negative. "
                "Add --version_2_with_negative, or drop it."
            )

        def whole(name: str) -> int | None:
            value = noted.get(name)
            return getattr(options, name) or (value if type(value) is int and value > 0 else None)

        return cls(
            doc_stride=whole("doc_stride"),
            max_query_length=whole("max_query_length"),
            version_2_with_negative=version_2,
            null_score_diff_threshold=options.null_score_diff_threshold,
            n_best_size=options.n_best_size,
            max_answer_length=options.max_answer_length,
        )

    @property
    def kind(self) -> str:
        return f"question answering{', some questions without an answer' if self.version_2_with_negative else ''}"

    def notes(self) -> dict[str, Any]:
        names = ("doc_stride", "max_query_length", "version_2_with_negative")
        return {name: getattr(self, name) for name in names}

    def at_length(self, max_seq_length: int, options: tasks.TaskOptions, notes: list[str]) -> QuestionAnswering:
        options.answering.check_length(max_seq_length)
        resolved, most = self.resolved(max_seq_length), tasks.most_room(max_seq_length)
        if self.doc_stride not in (None, resolved.doc_stride):
            notes.append(
                f"Windows are {resolved.doc_stride} tokens apart: the {self.doc_stride} that the model was trained "
                f"with are more than a row of {max_seq_length} holds."
            )
        stride, longest = resolved.doc_stride, resolved.max_query_length
        if longest > most:
            notes.append(
                f"Questions of more than {most} tokens leave no room for a context in {max_seq_length}, and have no "
                f"answer. --max_query_length={max_seq_length // 2} cuts them."
            )
        elif stride > max_seq_length - 3 - longest:
            notes.append(
                f"Windows {stride} tokens apart do not overlap for questions of more than "
                f"{max_seq_length - 3 - stride} tokens: answers across their borders are not found. A smaller "
                "--doc_stride avoids it."
            )
        return resolved

    def resolved(self, max_seq_length: int) -> QuestionAnswering:
        """The same task with its windows' sizes resolved for rows of this length; a stride that a row cannot hold is
        replaced by one that suits it."""
        stride = self.doc_stride if (self.doc_stride or 0) <= tasks.most_room(max_seq_length) else None
        stride, longest = tasks.window_sizes(max_seq_length, stride, self.max_query_length)
        return dataclasses.replace(self, doc_stride=stride, max_query_length=longest)

    def read(self, source: Source, config: DataConfig) -> squad.QuestionTable:
        """The questions that an option names."""
        return squad.read_questions(source, config, version_2_with_negative=self.version_2_with_negative)

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: Callable[[Sequence[str], str], None]
    ) -> dict[str, squad.QuestionExamples]:
        tables = read_labelled_tables(config, self.name, lambda source: self.read(source, config))
        tables = {prefix: squad.note_misaligned(table, EVAL_RESULTS) for prefix, table in tables.items()}
        for table in tables.values():
            notes += table.notes
        return {prefix: squad.QuestionExamples(table=table) for prefix, table in tables.items()}

    def check_options(self, config: Config) -> None:
        super().check_options(config)
        if config.data.batching == "packed":
            raise UsageError(
                "Windows over contexts fill their rows: there is nothing to pack. "
                "Received: batching='packed' for question answering. Drop --batching."
            )

    def head(self) -> Head:
        return span_head()

    def encode(
        self,
        examples: squad.QuestionExamples,
        tokenizer: Tokenizer,
        max_seq_length: int,
        training: TrainingConfig | None = None,
    ) -> squad.EncodedQuestions:
        table, sizes = examples.table, self.resolved(max_seq_length)
        windows = make_windows(
            tokenizer,
            table.questions,
            table.contexts,
            table.context_of,
            max_seq_length=max_seq_length,
            doc_stride=sizes.doc_stride,
            max_query_length=sizes.max_query_length,
        )
        count = len(windows.example)
        labels = np.zeros([count, 2], np.int32) if training is None else window_labels(windows, examples.labels)
        return squad.EncodedQuestions(
            tokens=windows.tokens,
            labels=labels,
            weights=np.ones(count, np.float32),
            windows=windows,
            num_questions=len(table),
        )

    def loss(self, training: TrainingConfig) -> SpanCrossEntropy:
        return SpanCrossEntropy()

    def predictions(self, outputs: np.ndarray, encoded: squad.EncodedQuestions) -> Candidates:
        best = {"n_best_size": self.n_best_size, "max_answer_length": self.max_answer_length}
        return decode(encoded.windows, outputs, encoded.num_questions, **best)

    def scores(self, predictions: Candidates) -> np.ndarray:
        return predictions.null_score

    @property
    def undefined_metrics(self) -> tuple[str, ...]:
        return ("exact_match",) if self.version_2_with_negative else ("exact", "best_f1", "best_exact")

    def answers(self, predictions: Candidates) -> Answers:
        """The answer given to each question."""
        return select_answers(
            predictions,
            version_2_with_negative=self.version_2_with_negative,
            null_score_diff_threshold=self.null_score_diff_threshold,
        )

    def _metrics(self, predictions: Candidates, examples: squad.QuestionExamples) -> dict[str, float]:
        table, answers = examples.table, self.answers(predictions)
        found = squad_metrics(
            _golds(table),
            answers.texts(table.contexts, table.context_of),
            version_2_with_negative=self.version_2_with_negative,
            null_odds=answers.null_odds,
        )
        return {"f1": found.pop("f1")} | found

    def details(self, predictions: Candidates, examples: squad.QuestionExamples) -> tuple[dict[str, Any], list[str]]:
        misaligned = list(examples.table.misaligned_ids)
        return {"misaligned_answers": misaligned} if misaligned else {}, []

    def write_evaluation(
        self, directory: pathlib.Path, predictions: Candidates, examples: squad.QuestionExamples, prefix: str
    ) -> None:
        """`predictions.json`, `nbest_predictions.json` and `null_odds.json` in SQuAD's form."""
        table = examples.table
        write_answers(
            directory,
            table.ids,
            predictions,
            table.contexts,
            table.context_of,
            prefix=f"{prefix}_",
            version_2_with_negative=self.version_2_with_negative,
            null_score_diff_threshold=self.null_score_diff_threshold,
        )

    def error_analysis(self, predictions: Candidates, examples: squad.QuestionExamples) -> ErrorAnalysis:
        """The error is 1 minus F1; of two equally wrong answers, the more probable one is the worse."""
        table, answers = examples.table, self.answers(predictions)
        texts = answers.texts(table.contexts, table.context_of)
        missing = 1 - score_predictions(_golds(table), texts, version_2_with_negative=self.version_2_with_negative).f1

        def shown(row: int) -> dict[str, Any]:
            context, gold = table.context(row), table.answers[row]
            given = int(answers.char_start[row]), int(answers.char_end[row])
            # Some answers of published data sets are not at their answer_start: they would mark the wrong words.
            placed = [(start, start + len(t)) for t, start in gold if start >= 0 and context.startswith(t, start)]
            right = placed[0] if placed else (0, 0)
            return {
                "question": table.questions[row],
                "answers": sorted({text for text, _ in gold}),
                "prediction": context[given[0] : given[1]],
                "context": _marked(context, right, given),
            }

        errors = np.where(missing > 0, missing + _TIE * answers.probability, 0.0)
        return ErrorAnalysis(errors=errors, measure="missing F1", shown=shown, facts={})

    def card(self, num_texts: int) -> str:
        none = " or says that there is none" if self.version_2_with_negative else ""
        return f"finds the answer to a question in a text{none}"

    def example(self, num_texts: int) -> str:
        return '{"question": "...", "context": "..."}'


def _golds(table: squad.QuestionTable) -> list[list[str]]:
    return [[text for text, _ in answers] for answers in table.answers]


def _marked(context: str, right: tuple[int, int], given: tuple[int, int]) -> list[dict[str, str]]:
    """A context in parts; those in the right answer are marked `answer`, those in the given one `wrong`, or both."""
    spans = [span for span in (right, given) if span[0] < span[1]]
    first = max(min((start for start, _ in spans), default=0) - _SHOWN_CONTEXT, 0)
    last = min(max((end for _, end in spans), default=0) + _SHOWN_CONTEXT, len(context))
    edges = sorted({first, last, *(edge for span in spans for edge in span)})
    parts = [{"text": "… ", "mark": ""}] if first else []
    for start, end in zip(edges, edges[1:], strict=False):
        marks = {"answer": right[0] <= start < right[1], "wrong": given[0] <= start < given[1]}
        parts.append({"text": context[start:end], "mark": " ".join(name for name, holds in marks.items() if holds)})
    return parts + ([{"text": " …", "mark": ""}] if last < len(context) else [])


def load_questions(config: DataConfig, options: tasks.TaskOptions) -> TaskData:
    """Reads questions about contexts, with their answers."""
    own_notes: list[str] = []
    task = QuestionAnswering.of_options(options.answering)
    task = task.at_length(config.max_seq_length or task.default_max_seq_length, options, own_notes)
    tables, notes = read_training_tables(config, task.name, lambda source: task.read(source, config))
    if config.validation_split is not None:
        train = tables["train"]
        groups = equal(train.context(row).strip() for row in range(len(train)))
        tables = hold_out(tables, config, own_notes, groups=groups)
        tables["validation"] = dataclasses.replace(tables["validation"], notes=())
    notes = (*notes, *own_notes)
    tables = {name: squad.note_misaligned(table, FACTS) for name, table in tables.items()}
    misaligned = {name: list(table.misaligned_ids) for name, table in tables.items() if table.misaligned_ids}
    keep = options.answering.keep_misaligned_answers
    tables["train"] = squad.training_questions(tables["train"], keep_misaligned_answers=keep)
    sets = {name: squad.QuestionExamples(table=table) for name, table in tables.items()}
    notes = (*notes, *(line for table in tables.values() for line in table.notes))
    data = data_of(task, sets, notes, config, tables["train"].columns)
    return dataclasses.replace(data, facts={"misaligned_answers": misaligned}) if misaligned else data


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """How each prediction compares with the best of its gold answers.

    Attributes:
        exact: float64 `[questions]`, 0 or 1: whether both are equal except for case, punctuation, articles and spaces.
        f1: float64 `[questions]`, 0 to 1: the F1 of the words of both.
    """

    exact: np.ndarray
    f1: np.ndarray


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous spaces, in this order."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score_predictions(
    golds: Sequence[Sequence[str]], predictions: Sequence[str | None], *, version_2_with_negative: bool = False
) -> Scores:
    """Compares each prediction with its gold answers.

    Args:
        golds: The texts of all gold answers of each question; an empty list for a question without an answer.
        predictions: One per question; empty for no answer; None for a question that was left out, which scores 0.
        version_2_with_negative: Whether version 2.0's rules hold.
    """
    normalized = functools.cache(_words)
    exact, f1 = np.zeros((2, len(golds)))
    for row, (given, prediction) in enumerate(zip(golds, predictions, strict=True)):
        if prediction is None:
            continue
        answers = [normalized(gold) for gold in given]
        if version_2_with_negative:
            answers = [words for words in answers if words] or [()]
        words = normalized(prediction)
        exact[row] = words in answers
        f1[row] = max((_f1(gold, words, empty_agrees=version_2_with_negative) for gold in answers), default=0)
    return Scores(exact=exact, f1=f1)


def squad_metrics(
    golds: Sequence[Sequence[str]],
    predictions: Sequence[str | None],
    *,
    version_2_with_negative: bool = False,
    null_odds: Sequence[float] | np.ndarray | None = None,
) -> dict[str, float]:
    """The metrics of SQuAD's scripts, on their scale of 0 to 100.

    Args:
        golds: As for `score_predictions`.
        predictions: As for `score_predictions`.
        version_2_with_negative: Whether to follow version 2.0's script rather than 1.1's.
        null_odds: With version 2.0, `[questions]`: how much more likely no answer is than any answer, by any measure;
            needed for `best_*`, which are left out without it.

    Returns:
        `exact_match` and `f1`. Or version 2.0's `exact`, `f1` and `total`; the same three as `HasAns_*` and `NoAns_*`
        for the questions with and without an answer, if there are any; and `best_exact`, `best_exact_thresh`, `best_f1`
        and `best_f1_thresh`: the best scores if answers whose odds are above a threshold are withdrawn, and the
        thresholds.
    """
    scores = score_predictions(golds, predictions, version_2_with_negative=version_2_with_negative)
    exact, f1 = scores.exact.tolist(), scores.f1.tolist()
    if not version_2_with_negative:
        return {"exact_match": _percent_in_order(exact), "f1": _percent_in_order(f1)}
    has_answer = [bool(given) for given in golds]
    odds = None if null_odds is None else [float(value) for value in null_odds]
    out: dict[str, float] = {}
    with_answer, without = ([row for row, has in enumerate(has_answer) if has is kind] for kind in (True, False))
    for prefix, rows in (("", range(len(golds))), ("HasAns_", with_answer), ("NoAns_", without)):
        if rows:
            for name, values in zip(("exact", "f1"), (exact, f1), strict=True):
                out[f"{prefix}{name}"] = _percent_in_order([values[row] for row in rows])
            out[f"{prefix}total"] = len(rows)
    if odds is not None:
        gives_answer = [bool(prediction) for prediction in predictions]
        for name, values in (("exact", exact), ("f1", f1)):
            best = _best_threshold(values, odds, has_answer, gives_answer)
            out[f"best_{name}"], out[f"best_{name}_thresh"] = best
    return out


def _words(text: str) -> tuple[str, ...]:
    return tuple(normalize_answer(text).split())


def _f1(gold: tuple[str, ...], predicted: tuple[str, ...], *, empty_agrees: bool) -> float:
    if gold == predicted and gold:
        return 1.0
    if not gold or not predicted:
        return float(empty_agrees and gold == predicted)
    num_same = sum((collections.Counter(gold) & collections.Counter(predicted)).values())
    if num_same == 0:
        return 0.0
    precision, recall = num_same / len(predicted), num_same / len(gold)
    return (2 * precision * recall) / (precision + recall)


def _percent_in_order(values: Sequence[float]) -> float:
    """Adds the values one by one, as evaluate-v1.1.py does, and version 2 did until Python 3.11: since 3.12, `sum`
    compensates for rounding, and scores would depend on the version."""
    total = 0.0
    for value in values:
        total += value
    return 100.0 * total / len(values)


def _best_threshold(
    values: Sequence[float], odds: Sequence[float], has_answer: Sequence[bool], gives_answer: Sequence[bool]
) -> tuple[float, float]:
    """The best score, in percent, if only questions up to some odds of no answer are answered, and these odds; 0.0 if
    it is best to answer none."""
    score = best = float(len(values) - sum(has_answer))
    threshold = 0.0
    for row in sorted(range(len(values)), key=odds.__getitem__):
        score += values[row] if has_answer[row] else -gives_answer[row]
        if score > best:
            best, threshold = score, odds[row]
    return 100.0 * best / len(values), threshold
