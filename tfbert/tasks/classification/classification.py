"""Classification, one of several classes for each text or pair of texts; and regression, a score for each."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Collection, Container, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import EncodedExamples
from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.config.training import TrainingConfig
from tfbert.config.types import counted
from tfbert.data.files import RawTable, find_columns, read_file
from tfbert.data.labels import MARKS, MISSING, NAMES_OR_MISSING, given_names, stand_for_none
from tfbert.data.reading import BadRows, GivenTable, Unlabelled
from tfbert.data.rows import Source
from tfbert.errors import UsageError
from tfbert.model.files import BertConfig
from tfbert.model.head import Head
from tfbert.tasks import classes, metrics, text_task
from tfbert.tasks.base import ErrorAnalysis, TaskData, rounded
from tfbert.tasks.losses import HeadStart, SmoothedCrossEntropy, base_rate, class_start, class_weights
from tfbert.tasks.tables import read_labelled_tables

TEXTS = "classification"
"""Whose built-in data are those of all tasks of texts with a label."""


class TextReader:
    """What reads texts, their labels as the `label_names` of the options name them: all are read as those of the first.

    Args:
        config: Says the format and the columns, and whether rows whose label stands for none are left out, as those of
            data sets are, or refused. Its task says in training whether labels are certainly measurements, or classes.
        known: The classes of a saved model, none for measurements: a label that is one of them, in any case, never
            counts as missing. None: those of the first table that is read, the training data.
    """

    def __init__(self, config: DataConfig, known: Sequence[str] | None = None):
        self._config, self._names = config, given_names(config)
        self._known: Collection[str] | None = known
        if known is None:
            self._is_regression, has_names = config.task == Regression.name, True
            words = {*self._names, *(NAMES_OR_MISSING if config.task == Classification.name else ())}
        else:
            self._is_regression, has_names = not known, not classes.are_numbered(known)
            named = {name.casefold() for name in (*known, *self._names)}
            words = {word for word in (*MISSING, "NaN", "nan") if word.casefold() in named}
        self._names_ids = has_names and not self._is_regression and not self._names
        self._class_words: Container[str] = NAMES_OR_MISSING if config.dataset else words
        self._written: dict[str, str] = {}

    def __call__(self, source: Source, config: DataConfig) -> RawTable:
        """The table that an option names, by the columns of these options, without rows whose label stands for none.

        Raises:
            UsageError: for data that cannot be read, such a row, unless they are left out, and a label without a name.
        """
        table = read_file(source, config, class_words=self._class_words, names_ids=self._names_ids)
        table = self._without_missing(table)
        if self._known is None:
            self._known = {*table.labels}
            self._is_regression = self._is_regression or table.is_regression or classes.have_fractions(table.labels)
        return classes.with_names(table, self._names, self._written)

    def _without_missing(self, table: RawTable) -> RawTable:
        labels, named = {*table.labels}, self._names or table.label_names or self._known
        none = stand_for_none(labels, None if self._is_regression else named)
        if self._is_regression and none != labels:  # -1 is a number, unless no label is another.
            none &= MARKS
        if not none:
            return self._with_doubt(table)
        others = sorted(labels - none)

        def checked(row: int, label: str) -> tuple[int, str]:
            if label not in none:
                return row, label
            beside = f"beside {classes.shortened(others, 4)}" if others else "as all labels do,"
            way_out = "; if it is a class, name all classes with --label_names" if others and not named else ""
            raise Unlabelled(
                f"Every row needs a label. Received: {classes.quoted(label)}, which stands for a missing one {beside} "
                f"in {table.where(row)}. Add it or drop the row{way_out}."
            )

        bad_rows = BadRows(self._config.skip_bad_rows, is_data_set=bool(self._config.dataset))
        return table.labelled(list(bad_rows.usable(enumerate(table.labels), checked)), bad_rows)

    def _with_doubt(self, table: RawTable) -> RawTable:
        """The same table, with a warning where -1 may well stand for a missing label, but is taken as it is."""
        try:
            numbers = {float(label) for label in table.labels}
        except ValueError:
            return table
        others, is_score = numbers - {-1.0}, self._is_regression or classes.have_fractions(table.labels)
        is_doubtful = others < numbers and min(others, default=-1) >= 0 and (is_score or others != {1.0})
        if not is_doubtful or self._names or table.label_names or self._known is not None:
            return table
        count = counted(sum(float(label) == -1 for label in table.labels), "example")
        doubt = (
            f"warning: {table.name}: -1, the only label below 0, is taken as {'a number' if is_score else 'a class'} "
            f"({count}); drop these rows if it stands for a missing label"
        )
        return dataclasses.replace(table, notes=(*table.notes, doubt))


def read_labelled(
    config: DataConfig, label_names: Sequence[str], notes: list[str] | None = None
) -> dict[str, RawTable]:
    """Reads the validation and test examples that a saved model is evaluated on, as written; no training data.

    Args:
        config: Its `test_file` may be `-`, standard input.
        label_names: The model's classes.
        notes: Receives what the user should know.

    Returns:
        As `read_labelled_tables` does.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no labels.
    """
    return read_labelled_tables(config, TEXTS, TextReader(config, label_names), [] if notes is None else notes)


def holds_texts(source: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a data set has texts and a label, by names given or usual; never of files, which others may claim."""
    if not isinstance(source, GivenTable) or not source.kinds:
        return False
    try:
        texts, _ = find_columns(source, config.text_column, config.label_column)
    except UsageError:
        return False
    return {*texts} <= {*source.of_kinds("text")}


class OneLabelTask(text_task.TextTask):
    """A task of texts with one label each, as they are written in files and data sets."""

    def tables(self, config: DataConfig, notes: list[str]) -> dict[str, RawTable]:
        return read_labelled(config, self.label_names, notes)


_LABEL = "LABEL_0"


@dataclasses.dataclass(frozen=True)
class Regression(OneLabelTask):
    """See `Task`. Labels are float32 scores, outputs `[n, 1]`.

    Metrics: `pearson` and `spearmanr`, which are 0 if predictions or labels are constant and they are undefined; `mse`;
    and `loss`, which equals `mse`.
    """

    name = kind = "regression"
    pipeline_tag = "text-classification"

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Regression:
        """The task of a saved model."""
        return cls()

    def labels(self, table: RawTable) -> np.ndarray:
        out = np.empty(len(table.labels), np.float32)
        for row, label in enumerate(table.labels):
            value = float(label) if classes.is_number(label) else np.nan
            if not abs(value) <= float(np.finfo(np.float32).max):
                rule = "A regression label must be a finite number"
                todo = "Repair or drop the row, or pass --task=classification."
                raise UsageError(f"{rule}. Received: {classes.quoted(label)} in {table.where(row)}. {todo}")
            out[row] = value
        return out

    def with_model_labels(self, table: RawTable, notes: list[str], *, are_given: bool) -> RawTable:
        if table.label_names:
            received = f"{table.name} with the classes {', '.join(table.label_names[:5])}"
            raise UsageError(f"A regression model is evaluated on scores. Received: {received}. Pass other data.")
        return table

    def head(self) -> Head:
        return Head(labels=(_LABEL,), problem_type="regression")

    def head_start(self, encoded: EncodedExamples, training: TrainingConfig) -> HeadStart:
        """The mean of the targets; and new weights as large as their spread, which updates of a fixed size would take
        too long to reach."""
        mean, spread = base_rate(encoded.labels, "regression"), float(np.std(encoded.labels, dtype=np.float64))
        words = f"the mean of the targets, {mean[0]:.4g}, and their standard deviation, {spread:.4g}"
        return HeadStart(bias=mean, scale=spread or 1.0, words=words)

    def loss(self, training: TrainingConfig) -> keras.losses.Loss:
        """The squared error."""
        return keras.losses.MeanSquaredError()

    def _metrics(self, predictions: np.ndarray, examples: text_task.TextExamples) -> dict[str, float]:
        scores = predictions.astype(np.float64).reshape(len(examples))
        return metrics.regression_metrics(scores, examples.labels.astype(np.float64))

    def error_analysis(self, predictions: np.ndarray, examples: text_task.TextExamples) -> ErrorAnalysis:
        """The absolute errors."""
        labels = examples.labels
        scores = np.asarray(predictions, np.float64).reshape(len(labels))
        written = ([f"{value:.4g}" for value in column] for column in (labels, scores))
        shown = functools.partial(text_task.shown_text, examples, *written)
        return ErrorAnalysis(errors=np.abs(scores - labels), measure="error", shown=shown, facts={})

    def columns(self) -> list[str]:
        return ["score"]

    def records(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        return ({"score": score} for score in outputs[:, 0])

    def entries(self, outputs: np.ndarray, most: int | None) -> Iterator[list[dict[str, Any]]]:
        """The score under the name of the only output, as in transformers."""
        return ([{"label": _LABEL, "score": rounded(score)}] for score in outputs[:, 0])

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": outputs, "score": outputs[:, 0]}

    def card(self, num_texts: int) -> str:
        return f"scores {text_task.takes(num_texts)}"


MAX_CLASSES = 1000
"""More distinct labels than this are taken for a mistake unless the task is given."""


@dataclasses.dataclass(frozen=True)
class Classification(OneLabelTask):
    """See `Task`. Labels are int32 class ids, outputs logits.

    Metrics: `accuracy`; `macro_f1`, the mean F1 of the classes that occur in the labels or the predictions; for two
    classes also `f1` (of class 1) and `matthews_correlation`, which is 0 where all predictions or all labels are one
    class; `loss`, the mean cross-entropy in nats, without label smoothing or class weights. Ties go to the lower class.
    """

    label_names: tuple[str, ...]

    name = "classification"
    pipeline_tag = "text-classification"

    def __post_init__(self):
        if len(self.label_names) < 2:
            received = f"labels={list(self.label_names)}"
            raise UsageError(f"A classifier needs two classes or more. Received: {received}. Check the label column.")

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Classification:
        """The task of a saved model."""
        return cls(classes.names_of_model(saved, directory))

    @classmethod
    def of_rows(cls, train: RawTable, defined: Sequence[str] | None, *, is_asked_for: bool) -> Classification:
        """The classes of a training set: those the data set defines, or else its distinct labels, numbers ordered by
        value and words by alphabet.

        Args:
            train: The training rows.
            defined: The classes as the data set itself defines them; None where it does not.
            is_asked_for: Whether the user asked for classification; then any number of classes is accepted.

        Raises:
            UsageError: for labels that do not look like classes, or fewer than two classes.
        """
        names = tuple(defined or _class_names(train, is_asked_for=is_asked_for))
        present = set(train.labels)
        if min(len(names), len(present)) < 2:
            left_out = "".join(f" ({note})" for note in train.notes if "left out" in note or "skipped" in note)
            rule = "Classification needs at least two classes"
            received = f"only {classes.shortened(sorted(present))} in {train.name}{left_out}"
            raise UsageError(f"{rule}. Received: {received}. Check the file and --label_column.")
        return cls(names)

    @property
    def kind(self) -> str:
        return f"classification into {len(self.label_names)} classes"

    def labels(self, table: RawTable) -> np.ndarray:
        return classes.class_ids(table.labels, self.label_names, table.where)

    def strata(self, examples: text_task.TextExamples) -> np.ndarray:
        return examples.labels

    def doubts(self, examples: text_task.TextExamples) -> list[str]:
        """Classes whose names are almost the same, or that hardly occur."""
        counts = np.bincount(examples.labels, minlength=len(self.label_names)).tolist()
        out = classes.doubts_of(self.label_names, counts, "classes")
        if (label := classes.several_in_one(self.label_names)) is not None:
            out.append(
                f"{classes.quoted(label)} looks like several labels in one, but each label is taken as a class of its "
                f"own: {classes.shortened(self.label_names, 3)}; give each text one label, or pass "
                "--task=multi_label_classification"
            )
        return out

    def head(self) -> Head:
        return Head(labels=self.label_names, has_names=True, problem_type="single_label_classification")

    def head_start(self, encoded: EncodedExamples, training: TrainingConfig) -> HeadStart:
        return class_start(encoded, training, len(self.label_names), "classes")

    def loss(self, training: TrainingConfig) -> SmoothedCrossEntropy:
        return SmoothedCrossEntropy(training.label_smoothing)

    def example_weights(self, labels: np.ndarray, training: TrainingConfig) -> np.ndarray:
        return class_weights(training, labels, len(self.label_names))[labels]

    @property
    def undefined_metrics(self) -> tuple[str, ...]:
        return () if len(self.label_names) == 2 else ("f1", "matthews_correlation")

    def _metrics(self, predictions: np.ndarray, examples: text_task.TextExamples) -> dict[str, float]:
        labels = examples.labels.astype(np.int64)
        shape = predictions.shape
        assert shape[0] == len(labels) and labels.min() >= 0 and labels.max() < shape[1], shape
        return metrics.classification_metrics(predictions, labels)

    def remarks(self, predictions: np.ndarray, examples: text_task.TextExamples) -> list[str]:
        return classes.all_alike(examples.name, predictions, examples.labels, self.label_names, "texts", "class")

    def details(self, predictions: np.ndarray, examples: text_task.TextExamples) -> tuple[dict[str, Any], list[str]]:
        confusion = metrics.confusion_matrix(predictions, examples.labels, len(self.label_names))
        table = metrics.per_class(confusion, self.label_names)
        matrix = {"labels": list(self.label_names), "rows": confusion.tolist()}
        return {"per_class": table, "confusion_matrix": matrix}, metrics.class_table("label", table, confusion)

    def error_analysis(self, predictions: np.ndarray, examples: text_task.TextExamples) -> ErrorAnalysis:
        """The error is the cross-entropy of a wrong prediction."""
        logits, labels, names = np.asarray(predictions), examples.labels, self.label_names
        predicted = logits.argmax(axis=1)
        errors = np.where(predicted != labels, metrics.cross_entropy(logits, labels), 0.0)
        written = ([names[label] for label in column] for column in (labels, predicted))
        shown = functools.partial(text_task.shown_text, examples, *written)
        facts = {"confusion": metrics.confusion_matrix(logits, labels, len(names)).tolist()}
        return ErrorAnalysis(errors=errors, measure="loss", shown=shown, facts=facts)

    def columns(self) -> list[str]:
        return ["label", *(f"probability_{name}" for name in self.label_names)]

    def cells(self, record: dict[str, Any]) -> list[Any]:
        return [record["label"], *record["probabilities"].values()]

    def records(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        for best, shares, logits in zip(self.best(outputs), self.shares(outputs), outputs, strict=True):
            yield best | {"probabilities": dict(zip(self.label_names, shares, strict=True)), "logits": [*logits]}

    def shares(self, outputs: np.ndarray) -> np.ndarray:
        from scipy.special import softmax

        return softmax(outputs, axis=1)

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        label = tf.gather(tf.constant(self.label_names), tf.argmax(outputs, axis=1))
        return {"logits": outputs, "probabilities": tf.nn.softmax(outputs), "label": label}

    def card(self, num_texts: int) -> str:
        return f"gives {text_task.takes(num_texts)} one of {len(self.label_names)} classes"


def _class_names(train: RawTable, *, is_asked_for: bool) -> tuple[str, ...]:
    """The distinct training labels in order: numbers by value, words by alphabet."""
    are_numbers = all(map(classes.is_number, train.labels))
    endless = (row for row, label in enumerate(train.labels) if are_numbers and not np.isfinite(float(label)))
    for row in endless:
        rule = "Where labels are numbers, each must be finite"
        raise UsageError(f"{rule}. Received: {train.labels[row]!r} in {train.where(row)}. Repair or drop the row.")
    names = classes.in_order(train.labels)
    way_out = ", or --task=regression if they are measurements" if are_numbers else ""
    classes.check_few(train, names, way_out, most=None if is_asked_for else MAX_CLASSES)
    return names


def load_texts(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads texts with one label each."""
    read = TextReader(config)
    return text_task.load_texts(config, TEXTS, read, lambda train, notes: choose_task(train, config.task, notes))


def choose_task(train: RawTable, asked: str, notes: list[str]) -> OneLabelTask:
    """The task of training data.

    Args:
        train: As it was written.
        asked: `--task`.
        notes: Receives a line if the labels lead to a task that the user may not expect, or are numbers that may be
            meant otherwise.

    Raises:
        UsageError: for labels that do not fit the task.
    """
    is_scores = train.is_regression or (train.label_names is None and classes.have_fractions(train.labels))
    if asked == "auto" and is_scores:
        notes.append("the labels have fractions, so this is regression; --task=classification takes them as classes")
    if asked == Regression.name or (asked == "auto" and is_scores):
        return Regression()
    spoilt = classes.not_numbers(train.labels) if asked == "auto" and train.label_names is None else []
    if spoilt:
        several = classes.several_in_one([*dict.fromkeys(train.labels)])
        sets = ", or --task=multi_label_classification if they are several labels in one" if several else ""
        raise UsageError(
            "Labels that are numbers with fractions must all be numbers, with a point before the fraction. Received: "
            f"{len(spoilt):,} of {len(train):,} that are not, first {classes.quoted(train.labels[spoilt[0]])} in "
            f"{train.where(spoilt[0])}. Repair or drop these rows for --task=regression, or pass --task=classification "
            f"if each is a class{sets}."
        )
    notes += classes.about_tags(train, is_asked_for=asked == Classification.name)
    return Classification.of_rows(train, train.label_names, is_asked_for=asked == Classification.name)
