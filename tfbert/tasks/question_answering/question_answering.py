"""Extractive question answering: finds the part of a context that answers a question, or says that there is none. Exact
match and F1 are as SQuAD's own scripts compute them, to every digit: evaluate-v1.1.py and evaluate-v2.0.py.

The scripts differ in more than their names. If an answer holds nothing but articles and punctuation, version 1.1 gives
it an F1 of 0; version 2.0 drops such a gold answer, and treats such a prediction as no answer.

Prediction of answers: questions and contexts in Python, in tables, or in SQuAD's JSON -> an answer for each. As a
SavedModel: questions and contexts -> answers, with their characters.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from tfbert.config import tasks
from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.config.tasks import most_room
from tfbert.data.files import check_text
from tfbert.data.reading import PREDICTED_ANSWERS
from tfbert.data.rows import Source, input_source
from tfbert.errors import UsageError
from tfbert.model.files import OWN_FIELD
from tfbert.model.head import Head, LabelHead
from tfbert.output.output_dir import EVAL_RESULTS, FACTS
from tfbert.tasks import prediction
from tfbert.tasks.base import ErrorAnalysis, Task, TaskData, rounded
from tfbert.tasks.losses import SpanCrossEntropy
from tfbert.tasks.question_answering import squad
from tfbert.tasks.question_answering.windows import (
    Answers,
    Candidates,
    answers_in_graph,
    decode,
    make_windows,
    no_room_error,
    select_answers,
    window_labels,
    windows_in_graph,
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
        def read(source: Source) -> squad.QuestionTable:
            return squad.note_misaligned(self.read(source, config), EVAL_RESULTS)

        tables = read_labelled_tables(config, self.name, read, notes)
        return {prefix: squad.QuestionExamples(table=table) for prefix, table in tables.items()}

    def check_options(self, config: Config) -> None:
        super().check_options(config)
        if config.data.batching == "packed":
            raise UsageError(
                "Windows over contexts fill their rows: there is nothing to pack. "
                "Received: batching='packed' for question answering. Drop --batching."
            )

    def head(self) -> Head:
        return LabelHead(kind="QuestionAnswering", labels=("LABEL_0", "LABEL_1"))

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
    tables = hold_out(
        tables, config, own_notes, lambda train: equal(train.contexts[place].strip() for place in train.context_of)
    )
    if config.validation_split is not None:
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
    for row, (given, predicted) in enumerate(zip(golds, predictions, strict=True)):
        if predicted is None:
            continue
        answers = [normalized(gold) for gold in given]
        if version_2_with_negative:
            answers = [words for words in answers if words] or [()]
        words = normalized(predicted)
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
        gives_answer = [bool(given) for given in predictions]
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


class QuestionItems(prediction.Items[prediction.Item]):
    """Questions about contexts: the two texts of each item."""

    most = 512  # Each has a row for every window over its context.

    def __init__(self, model: prediction.TrainedModel, top_k: Literal["best"] = prediction.BEST):
        super().__init__(model, top_k)
        self._longest = self.task.resolved(model.max_seq_length).max_query_length

    def item(self, value: Any, where: str) -> prediction.Item:
        if isinstance(value, Mapping):
            value = dict(zip(squad.QUESTION_COLUMNS, self.as_trained(value, "text_column"), strict=False)) or value
        if not isinstance(value, Mapping) or not value.keys() >= {*squad.QUESTION_COLUMNS}:
            received = f"the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else f"{value!r:.60}"
            raise UsageError(
                'A question comes with its context, as {"question": ..., "context": ...}. '
                f"Received: {received} in {where}. Pass both."
            )
        return self.row({name: value[name] for name in squad.QUESTION_COLUMNS}, where)

    def row(self, texts: Mapping[str, Any], where: str) -> prediction.Item:
        found = [check_text(text, name, where, strict=False) for name, text in texts.items()]
        for what, text in zip(squad.QUESTION_COLUMNS, found, strict=True):
            if not text.strip():
                raise squad.blank_error(what, where)
        model, num_special = self._model, self._model.tokenizer.num_special(2)
        most = model.max_seq_length - num_special - 1
        # Only those are tokenised that may be too long.
        if self._longest > most and model.tokenizer.most_per_character * len(found[0]) > most:
            (tokens,) = np.diff(model.tokenizer.encode_with_offsets(found[:1]).row_splits)
            if tokens > most:
                raise no_room_error(model.max_seq_length, min(tokens, self._longest), f"in {where}", num_special)
        return prediction.Item(texts=found)

    def encode(self, items: Sequence[prediction.Item]) -> squad.EncodedQuestions:
        return self._model.encode(squad.QuestionExamples(table=unanswered(items)))

    def answers(self, items: Sequence[prediction.Item], predictions: Candidates) -> Iterator[dict[str, Any]]:
        """For no answer, the text is empty, and `start` and `end` are 0."""
        found = self.task.answers(predictions)
        columns = (found.char_start.tolist(), found.char_end.tolist(), found.probability.tolist())
        for item, start, end, score in zip(items, *columns, strict=True):
            yield {"score": rounded(score), "start": start, "end": end, "answer": item.texts[1][start:end]}

    def records(self, items: Sequence[prediction.Item], predictions: Candidates) -> Iterator[dict[str, Any]]:
        return ({name: answer[name] for name in self.columns()} for answer in self.answers(items, predictions))

    def columns(self) -> Sequence[str]:
        return ("answer", "start", "end", "score")


def open_question_files(config: Config) -> list[prediction.Job]:
    """The questions to answer, and where the answers go.

    Raises:
        UsageError: for input that cannot be opened, or output without a known ending.
    """
    asked, data = config.predict, config.data
    if asked.text and not asked.text_pair:
        raise UsageError(
            f"A question is answered from a context. Received: text={asked.text[0]!r:.60} alone. "
            "Pass --text=QUESTION --text_pair=CONTEXT."
        )
    if asked.text:
        file = prediction.typed_texts(asked, squad.QUESTION_COLUMNS)
    else:
        file = squad.open_questions(input_source(asked.input_file), data)
    columns = squad.question_columns(file, data.text_column)
    format, seen = prediction.chosen_format(asked, PREDICTED_ANSWERS, default="jsonl"), set()

    def check(name: Any, where: str) -> None:
        if format == "squad" and str(name) in seen:
            raise UsageError(
                "In SQuAD's form, every question needs a unique id. "
                f"Received: {str(name)!r:.60} a second time in {where}. Rename one, or pass --output_format=jsonl."
            )
        seen.add(str(name))

    return [prediction.table_job(config, file, columns, check=check, format=format)]


def unanswered(items: Sequence[prediction.Item]) -> squad.QuestionTable:
    """Questions without answers as a table of distinct contexts, so that each context is tokenised once."""
    index: dict[str, int] = {}
    context_of = [index.setdefault(item.texts[1], len(index)) for item in items]
    return squad.QuestionTable(
        name=prediction.NAME,
        ids=[str(number) for number in range(len(items))],
        questions=[item.texts[0] for item in items],
        contexts=list(index),
        context_of=np.array(context_of, np.int32),
        answers=[()] * len(items),
        places=np.zeros([len(items), 1], np.int32),
        place_names=("row",),
    )


class QuestionAnswerer(prediction.ServedModel):
    """Takes `question` and `context`; gives the answers of `--mode=predict`.

    Returns `answer`, string `[n]`, cut from the context; `start` and `end`, int32 `[n]`, its first character and the
    one after its last, as Python counts characters; `score`, float32 `[n]`, its probability among the `n_best_size`
    best candidates; `error`, see `ServedModel`. No answer is an empty text from 0 to 0; so is that of a row with an
    error, with a score of 0: an empty question or context, which `--mode=predict` refuses, or no room for a context.

    For rows of token ids, returns `start_logits` and `end_logits`, float32 `[n, length]`, and `error`.
    """

    num_texts: ClassVar[int | None] = 2
    text_inputs = ("question", "context")

    def __init__(self, model: prediction.TrainedModel):
        super().__init__(dataclasses.replace(model, task=model.task.resolved(model.max_seq_length)))

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        return dataclasses.asdict(task)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        task, tokenizer = self._model.task, self._model.tokenizer
        with tf.device("CPU:0"):
            error = self._errors(question, context)
            question, context = (tf.where(error == "", text, "") for text in (question, context))
            windows = windows_in_graph(
                tokenizer,
                tokenizer.tokenize(question),
                tokenizer.tokenize_with_offsets(context),
                tf.range(tf.size(context, tf.int64)),
                max_seq_length=self._model.max_seq_length,
                doc_stride=task.doc_stride,
                max_query_length=task.max_query_length,
            )
        logits = self.token_logits(windows.tokens)
        with tf.device("CPU:0"):
            error, logits = prediction.without_endless(error, logits, windows.tokens, windows.example)
            found = answers_in_graph(
                windows,
                logits,
                tf.size(question),
                n_best_size=task.n_best_size,
                max_answer_length=task.max_answer_length,
                version_2_with_negative=task.version_2_with_negative,
                null_score_diff_threshold=task.null_score_diff_threshold,
            )
            rows, is_answered = tf.range(tf.size(context, tf.int64)), error == ""
            start, end = (tf.where(is_answered, place, 0) for place in (found.char_start, found.char_end))
            return {
                "answer": prediction.substrings(context, rows, start, end),
                "start": start,
                "end": end,
                "score": tf.where(is_answered, tf.cast(found.probability, tf.float32), 0.0),
                "error": error,
            }

    def _errors(self, question: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """string `[n]`: why a row cannot be answered; empty if it can."""
        is_blank = tf.strings.regex_full_match(question, prediction.BLANK) | tf.strings.regex_full_match(
            context, prediction.BLANK
        )
        error = tf.where(is_blank, "A question and its context must not be empty.", "")
        length = self._model.max_seq_length
        if self._model.task.max_query_length > most_room(length):  # Else every question is cut to what fits.
            is_long = self._model.tokenizer.tokenize(question).row_lengths() > most_room(length)
            rule = "A row must hold a question, 3 special tokens and some of the context: the question is too long."
            error = tf.where(is_long & ~is_blank, rule, error)
        return error

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        start, end = tf.unstack(logits, axis=2)
        return {"start_logits": start, "end_logits": end}
