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
import json
import pathlib
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tensorflow as tf

from tfbert.config import tasks
from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.data.reading import PREDICTED_ANSWERS
from tfbert.data.rows import Source, input_source
from tfbert.errors import UsageError
from tfbert.model.files import OWN_FIELD
from tfbert.model.head import Head
from tfbert.output.output_dir import write_text
from tfbert.tasks import prediction
from tfbert.tasks.base import ErrorAnalysis, Task, TaskData, rounded
from tfbert.tasks.losses import SpanCrossEntropy
from tfbert.tasks.question_answering import squad
from tfbert.tasks.question_answering.windows import (
    Answers,
    Candidates,
    candidates_in_graph,
    decode,
    make_windows,
    n_best,
    select_answers,
    window_labels,
    windows_in_graph,
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
        options: Windows' sizes, whether some questions have no answer, and which answer is given.
    """

    options: tasks.AnsweringConfig = dataclasses.field(default_factory=tasks.AnsweringConfig)

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
        sizes = {}
        for name in ("doc_stride", "max_query_length"):
            value = noted.get(name)
            sizes[name] = getattr(options, name) or (value if type(value) is int and value > 0 else None)
        return cls(dataclasses.replace(options, version_2_with_negative=version_2, **sizes))

    @property
    def kind(self) -> str:
        some = ", some questions without an answer" if self.options.version_2_with_negative else ""
        return f"question answering{some}"

    def notes(self) -> dict[str, Any]:
        names = ("doc_stride", "max_query_length", "version_2_with_negative")
        return {name: getattr(self.options, name) for name in names}

    def at_length(self, max_seq_length: int, options: tasks.TaskOptions, notes: list[str]) -> QuestionAnswering:
        options.answering.check_length(max_seq_length)
        resolved = self.resolved(max_seq_length)
        stride, longest = resolved.options.doc_stride, resolved.options.max_query_length
        said = {"doc_stride": "Windows are {} tokens apart", "max_query_length": "Questions are cut to {} tokens"}
        for name, line in said.items():
            trained, own = getattr(self.options, name), getattr(resolved.options, name)
            if trained not in (None, own):
                notes.append(
                    f"{line.format(own)}: the {trained} that the model was trained with are more than a row of "
                    f"{max_seq_length} holds."
                )
        if stride > max_seq_length - 3 - longest:
            notes.append(
                f"Windows {stride} tokens apart do not overlap for questions of more than "
                f"{max_seq_length - 3 - stride} tokens: answers across their borders are not found. A smaller "
                "--doc_stride avoids it."
            )
        return resolved

    def resolved(self, max_seq_length: int) -> QuestionAnswering:
        """The same task with its windows' sizes resolved for rows of this length; those that a row cannot hold are
        replaced by what suits it."""
        most, options = tasks.most_room(max_seq_length), self.options
        sizes = (size if size and size <= most else None for size in (options.doc_stride, options.max_query_length))
        stride, longest = tasks.window_sizes(max_seq_length, *sizes)
        return QuestionAnswering(dataclasses.replace(options, doc_stride=stride, max_query_length=longest))

    def read(self, source: Source, config: DataConfig) -> squad.QuestionExamples:
        """The questions that an option names."""
        return squad.read_questions(source, config, version_2_with_negative=self.options.version_2_with_negative)

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: Callable[[Sequence[str], str], None]
    ) -> dict[str, squad.QuestionExamples]:
        return read_labelled_tables(config, self.name, lambda source: self.read(source, config), notes)

    def check_options(self, config: Config) -> None:
        super().check_options(config)
        if config.data.batching == "packed":
            raise UsageError(
                "Windows over contexts fill their rows: there is nothing to pack. "
                "Received: batching='packed' for question answering. Drop --batching."
            )

    def head(self) -> Head:
        return Head(kind="QuestionAnswering")

    def encode(
        self,
        examples: squad.QuestionExamples,
        tokenizer: Tokenizer,
        max_seq_length: int,
        training: TrainingConfig | None = None,
    ) -> squad.EncodedQuestions:
        sizes = self.resolved(max_seq_length).options
        windows = make_windows(
            tokenizer,
            examples.questions,
            examples.contexts,
            examples.context_of,
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
        )

    def loss(self, training: TrainingConfig) -> SpanCrossEntropy:
        return SpanCrossEntropy()

    def predictions(self, outputs: np.ndarray, encoded: squad.EncodedQuestions) -> Candidates:
        options = self.options
        most, longest = options.n_best_size, options.max_answer_length
        return decode(encoded.windows, outputs, n_best_size=most, max_answer_length=longest)

    def scores(self, predictions: Candidates) -> np.ndarray:
        return predictions.null_score

    @property
    def undefined_metrics(self) -> tuple[str, ...]:
        return ("exact_match",) if self.options.version_2_with_negative else ("exact", "best_f1", "best_exact")

    def answers(self, predictions: Candidates) -> Answers:
        """The answer given to each question, as arrays."""
        return Answers(*(part.numpy() for part in select_answers(predictions, self.options)))

    def _metrics(self, predictions: Candidates, examples: squad.QuestionExamples) -> dict[str, float]:
        answers = self.answers(predictions)
        texts = answers.texts(examples.contexts, examples.context_of)
        version_2 = self.options.version_2_with_negative
        return squad_metrics(_golds(examples), texts, answers.null_odds if version_2 else None)

    def write_evaluation(
        self, directory: pathlib.Path, predictions: Candidates, examples: squad.QuestionExamples, prefix: str
    ) -> None:
        """`predictions.json`, `nbest_predictions.json` and `null_odds.json` in SQuAD's form."""
        answers, version_2 = self.answers(predictions), self.options.version_2_with_negative
        places = examples.contexts, examples.context_of
        files = {"predictions": answers.texts(*places), "nbest_predictions": n_best(predictions, *places, version_2)}
        files |= {"null_odds": answers.null_odds.tolist()} if version_2 else {}
        for name, values in files.items():  # A line each: the indentation of `json` would take ten times as long.
            entries = zip(examples.ids, values, strict=True)
            lines = ",\n".join(f"{json.dumps(own_id)}: {json.dumps(value)}" for own_id, value in entries)
            write_text(directory / f"{prefix}_{name}.json", f"{{\n{lines}\n}}\n")

    def error_analysis(self, predictions: Candidates, examples: squad.QuestionExamples) -> ErrorAnalysis:
        """The error is 1 minus F1; of two equally wrong answers, the more probable one is the worse."""
        answers = self.answers(predictions)
        texts = answers.texts(examples.contexts, examples.context_of)
        version_2 = self.options.version_2_with_negative
        _, f1 = score_predictions(_golds(examples), texts, version_2_with_negative=version_2)

        def shown(row: int) -> dict[str, Any]:
            context, gold = examples.context(row), examples.answers[row]
            given = int(answers.char_start[row]), int(answers.char_end[row])
            # Some answers of published data sets are not at their answer_start: they would mark the wrong words.
            placed = [(start, start + len(text)) for text, start in gold if squad.is_there(context, text, start)]
            right = placed[0] if placed else (0, 0)
            return {
                "question": examples.questions[row],
                "answers": sorted({text for text, _ in gold}),
                "prediction": context[given[0] : given[1]],
                "context": _marked(context, right, given),
            }

        errors = np.where(f1 < 1, 1 - f1 + _TIE * answers.probability, 0.0)
        return ErrorAnalysis(errors=errors, measure="missing F1", shown=shown, facts={})

    def card(self, num_texts: int) -> str:
        none = " or says that there is none" if self.options.version_2_with_negative else ""
        return f"finds the answer to a question in a text{none}"

    def example(self, num_texts: int) -> str:
        return '{"question": "...", "context": "..."}'


def _golds(examples: squad.QuestionExamples) -> list[list[str]]:
    return [[text for text, _ in answers] for answers in examples.answers]


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
    sets, notes = read_training_tables(config, task.name, lambda source: task.read(source, config))
    sets = hold_out(
        sets, config, own_notes, lambda train: equal(train.contexts[place].strip() for place in train.context_of)
    )
    if config.validation_split is not None:
        sets["validation"] = dataclasses.replace(sets["validation"], notes=())
    sets["train"] = squad.training_questions(sets["train"])
    notes = (*notes, *own_notes, *(line for part in sets.values() for line in part.notes))
    return data_of(task, sets, notes, config, sets["train"].columns)


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_words(text: str) -> tuple[str, ...]:
    """What counts of an answer: its words in lower case, without punctuation and articles."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score_predictions(
    golds: Sequence[Sequence[str]], predictions: Sequence[str], *, version_2_with_negative: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Compares each prediction with the best of its gold answers.

    Args:
        golds: The texts of all gold answers of each question; an empty list for a question without an answer.
        predictions: One per question; empty for no answer.
        version_2_with_negative: Whether version 2.0's rules hold.

    Returns:
        float64 `[questions]`, 0 or 1: whether both are equal except for case, punctuation, articles and spaces; and
        float64 `[questions]`, 0 to 1: the F1 of the words of both.
    """
    counted = functools.cache(answer_words)
    exact, f1 = np.zeros((2, len(golds)))
    for row, (given, predicted) in enumerate(zip(golds, predictions, strict=True)):
        answers, words = [counted(gold) for gold in given], counted(predicted)
        if version_2_with_negative:
            answers = [gold for gold in answers if gold] or [()]
        exact[row] = words in answers
        f1[row] = max((_f1(gold, words, empty_agrees=version_2_with_negative) for gold in answers), default=0)
    return exact, f1


def squad_metrics(
    golds: Sequence[Sequence[str]], predictions: Sequence[str], null_odds: np.ndarray | None = None
) -> dict[str, float]:
    """The metrics of SQuAD's scripts, on their scale of 0 to 100.

    Args:
        golds: As for `score_predictions`.
        predictions: As for `score_predictions`.
        null_odds: For version 2.0's script, `[questions]`: how much more likely no answer is than any answer, by any
            measure. None: as version 1.1's.

    Returns:
        `f1` and `exact_match`. Or version 2.0's `f1`, `exact` and `total`; the same three as `HasAns_*` and `NoAns_*`
        for the questions with and without an answer, if there are any; and `best_exact`, `best_exact_thresh`, `best_f1`
        and `best_f1_thresh`: the best scores if answers whose odds are above a threshold are withdrawn, and the
        thresholds.
    """
    exact, f1 = score_predictions(golds, predictions, version_2_with_negative=null_odds is not None)
    if null_odds is None:
        return {"f1": _percent(f1), "exact_match": _percent(exact)}
    has_answer, gives_answer = (np.array([bool(given) for given in column]) for column in (golds, predictions))
    out: dict[str, float] = {}
    for prefix, rows in (("", np.ones_like(has_answer)), ("HasAns_", has_answer), ("NoAns_", ~has_answer)):
        if rows.any():
            own = {"exact": _percent(exact[rows]), "f1": _percent(f1[rows]), "total": int(rows.sum())}
            out |= {f"{prefix}{name}": value for name, value in own.items()}
    for name, values in (("exact", exact), ("f1", f1)):
        # What answering one question more gains, in the order of the odds; the first score is that of answering none.
        order = np.argsort(null_odds, kind="stable")
        gains = np.where(has_answer, values, -1.0 * gives_answer)[order]
        scores = np.cumsum([(~has_answer).sum(), *gains])
        best = int(scores.argmax())
        out[f"best_{name}"] = 100.0 * scores[best] / len(golds)
        out[f"best_{name}_thresh"] = null_odds[order[best - 1]] if best else 0.0
    return {"f1": out["f1"]} | out


def _f1(gold: tuple[str, ...], predicted: tuple[str, ...], *, empty_agrees: bool) -> float:
    if not gold or not predicted:
        return float(empty_agrees and gold == predicted)
    num_same = (collections.Counter(gold) & collections.Counter(predicted)).total()
    precision, recall = num_same / len(predicted), num_same / len(gold)
    return (2 * precision * recall) / (precision + recall) if num_same else 0.0


def _percent(values: np.ndarray) -> float:
    """Adds the values one by one, as evaluate-v1.1.py does, and version 2 did until Python 3.11: since 3.12, `sum`
    compensates for rounding, as `np.sum` does in another way."""
    return float(100.0 * np.cumsum(values)[-1] / len(values))


class QuestionItems(prediction.Items[prediction.Item]):
    """Questions about contexts: the two texts of each item."""

    most = 512  # Each has a row for every window over its context.

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
        columns = zip(squad.QUESTION_COLUMNS, texts.values(), strict=True)
        found = [squad.filled_text(text, what, where, strict=False) for what, text in columns]
        return prediction.Item(texts=found)

    def encode(self, items: Sequence[prediction.Item]) -> squad.EncodedQuestions:
        index: dict[str, int] = {}  # Each context is tokenised once.
        context_of = [index.setdefault(item.texts[1], len(index)) for item in items]
        return self._model.encode(
            squad.QuestionExamples(
                name=prediction.NAME,
                ids=[],
                questions=[item.texts[0] for item in items],
                contexts=[*index],
                context_of=np.array(context_of, np.int32),
                answers=[],
            )
        )

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


class QuestionAnswerer(prediction.ServedModel):
    """Takes `question` and `context`; gives the answers of `--mode=predict`.

    Returns `answer`, string `[n]`, cut from the context; `start` and `end`, int32 `[n]`, its first character and the
    one after its last, as Python counts characters; `score`, float32 `[n]`, its probability among the `n_best_size`
    best candidates; `error`, see `ServedModel`. No answer is an empty text from 0 to 0; so is that of a row with an
    error, with a score of 0: an empty question or context, which `--mode=predict` refuses.

    For rows of token ids, returns `start_logits` and `end_logits`, float32 `[n, length]`, and `error`.
    """

    num_texts: ClassVar[int | None] = 2
    text_inputs = ("question", "context")

    @staticmethod
    def settings(task: Any) -> dict[str, Any]:
        return dataclasses.asdict(task.options)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        length, tokenizer = self._model.max_seq_length, self._model.tokenizer
        options = self._model.task.resolved(length).options
        with tf.device("CPU:0"):
            is_blank = [tf.strings.regex_full_match(text, prediction.BLANK) for text in (question, context)]
            error = tf.where(is_blank[0] | is_blank[1], "A question and its context must not be empty.", "")
            question, context = (tf.where(error == "", text, "") for text in (question, context))
            windows = windows_in_graph(
                tokenizer,
                tokenizer.tokenize(question),
                tokenizer.tokenize_with_offsets(context),
                tf.range(tf.size(context, tf.int64)),
                max_seq_length=length,
                doc_stride=options.doc_stride,
                max_query_length=options.max_query_length,
            )
        logits = self.token_logits(windows.tokens)
        with tf.device("CPU:0"):
            error, logits = prediction.without_endless(error, logits, windows.tokens, windows.example)
            most, longest = (min(size, tf.int32.max) for size in (options.n_best_size, options.max_answer_length))
            found = select_answers(candidates_in_graph(windows, logits, most, longest), options)
            rows, is_answered = tf.range(tf.size(context, tf.int64)), error == ""
            start, end = (tf.where(is_answered, place, 0) for place in (found.char_start, found.char_end))
            return {
                "answer": prediction.substrings(context, rows, start, end),
                "start": start,
                "end": end,
                "score": tf.where(is_answered, tf.cast(found.probability, tf.float32), 0.0),
                "error": error,
            }

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        start, end = tf.unstack(logits, axis=2)
        return {"start_logits": start, "end_logits": end}
