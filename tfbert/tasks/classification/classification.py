"""Classification, one of several classes for each text or pair of texts; and regression, a score for each."""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.config.types import counted
from tfbert.data.files import RawTable, read_file, text_columns
from tfbert.data.labels import MARKS, MISSING, NAMES_OR_MISSING, canonical, given_names, named_labels, stand_for_none
from tfbert.data.reading import BadRows, GivenTable, Unlabelled
from tfbert.data.rows import Source
from tfbert.errors import UsageError
from tfbert.model.head import Head
from tfbert.tasks import classes, metrics, text_task
from tfbert.tasks.base import ErrorAnalysis, Task, TaskData, rounded
from tfbert.tasks.losses import HeadStart, SmoothedCrossEntropy, base_rate, class_start, class_weights
from tfbert.tasks.tables import data_of, hold_out, read_labelled_tables, read_training_tables, that_share_texts

if TYPE_CHECKING:
    from tfbert.batches.pipeline import EncodedExamples
    from tfbert.config.training import TrainingConfig
    from tfbert.model.files import BertConfig


TEXTS = "classification"
"""Whose built-in data are those of all tasks of texts with a label."""


class TextReader:
    """What reads texts, their labels as the `label_names` of the options name them: all are read as those of the first.

    Args:
        config: Says the format and the columns, and whether rows whose label stands for none are left out, as those of
            data sets are, or refused.
        class_words: Words that usually stand for a missing label in files, but are classes here.
        known: The classes of a saved model; None: those of the first table that is read, the training data.
        is_regression: Whether labels are certainly measurements.
        names_ids: Whether labels get the names that the data itself has for their ids, where the user gives none.
    """

    def __init__(
        self,
        config: DataConfig,
        class_words: Container[str],
        *,
        known: Collection[str] | None = None,
        is_regression: bool = False,
        names_ids: bool = True,
    ):
        self._config, self._class_words, self._known = config, class_words, known
        self._names, self._is_regression = given_names(config), is_regression
        self._names_ids = names_ids and not self._names
        self._written: dict[str, str] = {}

    def __call__(self, source: Source) -> RawTable:
        """The table that an option names, without rows whose label stands for none.

        Raises:
            UsageError: for data that cannot be read, such a row, unless they are left out, and a label without a name.
        """
        class_words = NAMES_OR_MISSING if self._config.dataset else self._class_words
        table = read_file(source, self._config, class_words=class_words, names_ids=self._names_ids)
        table = self._without_missing(table)
        if self._known is None:
            self._known = {*table.labels}
            self._is_regression = self._is_regression or table.is_regression or classes.have_fractions(table.labels)
        if not self._names:
            return table
        labels, names = dict.fromkeys(table.labels), self._names
        written = named_labels(labels, names, lambda label: table.where(table.labels.index(label)), self._written)
        self._written = self._written or written
        notes = table.notes
        if list(written.values()) != list(written):
            notes += (f"{table.name}: the labels 0, 1, ... are {', '.join(names)}, as label_names says",)
        labels = [written[label] for label in table.labels]
        return dataclasses.replace(table, labels=labels, notes=notes, label_names=names, is_regression=False)

    def _without_missing(self, table: RawTable) -> RawTable:
        labels, named = {*table.labels}, self._names or table.label_names or self._known
        none = stand_for_none(labels, None if self._is_regression else named)
        if self._is_regression and none != labels:  # -1 is a number, unless no label is another.
            none &= MARKS
        if not none:
            return self._with_doubt(table)
        bad_rows = BadRows(self._config.skip_bad_rows, is_data_set=bool(self._config.dataset))
        others = sorted(labels - none)

        def checked(row: int, label: str) -> int:
            if label not in none:
                return row
            beside = f"beside {classes.shortened(others, 4)}" if others else "as all labels do,"
            way_out = "; if it is a class, name all classes with --label_names" if others and not named else ""
            raise Unlabelled(
                f"Every row needs a label. Received: {classes.quoted(label)}, which stands for a missing one {beside} "
                f"in {table.where(row)}. Add it or drop the row{way_out}."
            )

        kept = list(bad_rows.usable(enumerate(table.labels), checked))
        return dataclasses.replace(
            table,
            text=[table.text[row] for row in kept],
            text_pair=[table.text_pair[row] for row in kept] if table.text_pair else table.text_pair,
            labels=[table.labels[row] for row in kept],
            lines=[table.lines[row] for row in kept],
            notes=(*table.notes, *bad_rows.skipped(table.name, len(kept), "example", "rows")),
        )

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
        label_names: The model's classes, in any case: a label that is one of them never counts as missing.
        notes: Receives what the user should know.

    Returns:
        As `read_labelled_tables` does.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no labels.
    """
    known = {name.casefold() for name in (*label_names, *given_names(config))}
    class_words = {word for word in (*MISSING, "NaN", "nan") if word.casefold() in known}
    read = TextReader(
        config,
        class_words,
        known=label_names,
        is_regression=not label_names,
        names_ids=bool(label_names) and not classes.are_numbered(label_names),
    )
    return read_labelled_tables(config, TEXTS, read, [] if notes is None else notes)


def holds_texts(source: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a data set has texts and a label, by names given or usual; never of files, which others may claim."""
    if not isinstance(source, GivenTable) or not source.kinds:
        return False
    try:
        texts, _ = text_columns(source, config.text_column, config.label_column)
    except UsageError:
        return False
    return {*texts} <= {*source.of_kinds("text")}


class OneLabelTask(text_task.TextTask):
    """A task of texts with one label each, as they are written in files and data sets."""

    @abc.abstractmethod
    def labels(self, table: RawTable) -> np.ndarray:
        """The labels of a labelled table, `[n]`.

        Raises:
            UsageError: for a label that is not one of this task's.
        """

    @abc.abstractmethod
    def with_model_labels(self, table: RawTable, notes: list[str], *, are_given: bool) -> RawTable:
        """A table to evaluate a saved model of this task on, with its labels rewritten as the model's.

        Args:
            table: As it was written.
            notes: Receives a line if labels were not matched by name.
            are_given: Whether the user gave the table's classes, with `label_names`.

        Raises:
            UsageError: for labels that are not the model's.
        """

    def examples(self, table: RawTable) -> text_task.TextExamples:
        """Turns a table into examples.

        Raises:
            UsageError: for a label that is not one of the task's.
        """
        return text_task.TextExamples.of_table(table, self.labels(table))

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: Callable[[Sequence[str], str], None]
    ) -> dict[str, text_task.TextExamples]:
        sets, are_given = {}, bool(given_names(config))
        for prefix, table in read_labelled(config, self.label_names, notes).items():
            check_texts(table.text_columns, table.name)
            sets[prefix] = self.examples(self.with_model_labels(table, notes, are_given=are_given))
        return sets


_LABEL = "LABEL_0"


@dataclasses.dataclass(frozen=True)
class Regression(OneLabelTask):
    """See `Task`. Labels are float32 scores, outputs `[n, 1]`.

    Metrics: `pearson` and `spearmanr`, which are 0 if predictions or labels are constant and they are undefined; `mse`;
    and `loss`, which equals `mse`.
    """

    name = "regression"
    pipeline_tag = "text-classification"
    default_metric = "pearson"

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Regression:
        """The task of a saved model."""
        return cls()

    @property
    def kind(self) -> str:
        return "regression"

    def labels(self, table: RawTable) -> np.ndarray:
        out = np.empty(len(table.labels), np.float32)
        for row, label in enumerate(table.labels):
            value = float(label) if classes.is_number(label) else np.nan
            if not abs(value) <= float(np.finfo(np.float32).max):
                raise UsageError(
                    "A regression label must be a finite number. Received: "
                    f"{classes.quoted(label)} in {table.where(row)}. Repair or drop the row, or pass "
                    "--task=classification."
                )
            out[row] = value
        return out

    def with_model_labels(self, table: RawTable, notes: list[str], *, are_given: bool) -> RawTable:
        if table.label_names:
            raise UsageError(
                "A regression model is evaluated on scores. "
                f"Received: {table.name} with the classes {', '.join(table.label_names[:5])}. Pass other data."
            )
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
        return text_task.error_analysis_of_texts(examples, np.abs(scores - labels), "error", *written, {})

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
    default_metric = "accuracy"

    def __post_init__(self):
        if len(self.label_names) < 2:
            raise UsageError(
                f"A classifier needs two classes or more. Received: labels={list(self.label_names)}. "
                "Check the label column."
            )

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
            raise UsageError(
                "Classification needs at least two classes. "
                f"Received: only {classes.shortened(sorted(present))} in {train.name}{left_out}. "
                "Check the file and --label_column."
            )
        return cls(names)

    @property
    def kind(self) -> str:
        return f"classification into {len(self.label_names)} classes"

    def labels(self, table: RawTable) -> np.ndarray:
        return class_ids(table.labels, self.label_names, table.where)

    def with_model_labels(self, table: RawTable, notes: list[str], *, are_given: bool) -> RawTable:
        rows = [(label,) for label in table.labels]
        written = classes.as_in_model(table, rows, self.label_names, notes, are_given=are_given)
        return dataclasses.replace(table, labels=[written[label] for label in table.labels])

    def doubts(self, examples: text_task.TextExamples) -> list[str]:
        """Classes whose names are almost the same, or that hardly occur."""
        counts = np.bincount(examples.labels, minlength=len(self.label_names)).tolist()
        out = classes.look_alikes(self.label_names, counts, "classes")
        if (label := classes.several_in_one(self.label_names)) is not None:
            out.append(
                f"{classes.quoted(label)} looks like several labels in one, but each label is taken as a class of its "
                f"own: {classes.shortened(self.label_names, 3)}; give each text one label, or pass "
                "--task=multi_label_classification"
            )
        return out + classes.rare_ones(self.label_names, counts, "classes")

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
        entropy = metrics.cross_entropy(logits, labels)
        return text_task.error_analysis_of_texts(
            examples,
            np.where(predicted != labels, entropy, 0.0),
            "loss",
            [names[label] for label in labels],
            [names[label] for label in predicted],
            {"confusion": metrics.confusion_matrix(logits, labels, len(names)).tolist()},
        )

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


def class_ids(labels: Sequence[str], label_names: Sequence[str], where: Callable[[int], str]) -> np.ndarray:
    """Class ids of labels as written; `2.0` also counts as `2`.

    Args:
        labels: As in `RawTable.labels`.
        label_names: Name of each class id.
        where: What messages call a row, as `RawTable.where`.

    Returns:
        int32 `[n]`.

    Raises:
        UsageError: for a label that is not in `label_names`.
    """
    ids = {name: index for index, name in enumerate(label_names)}
    out = np.empty(len(labels), np.int32)
    for row, label in enumerate(labels):
        known = ids.get(label, ids.get(canonical(label)))
        if known is None:
            raise UsageError(
                f"A label must be one of the training data's {len(ids)}: {classes.shortened(label_names)}. "
                f"Received: {classes.quoted(label)} in {where(row)}. "
                f"Correct it, or add it to the training data{classes.or_name_ids(label, label_names)}."
            )
        out[row] = known
    return out


def _class_names(train: RawTable, *, is_asked_for: bool) -> list[str]:
    """The distinct training labels in order: numbers by value, words by alphabet."""
    distinct = set(train.labels)
    is_numeric = all(map(classes.is_number, distinct))
    if is_numeric:
        endless = next((row for row, label in enumerate(train.labels) if not np.isfinite(float(label))), None)
        if endless is not None:
            raise UsageError(
                "Where labels are numbers, each must be finite. "
                f"Received: {train.labels[endless]!r} in {train.where(endless)}. Repair or drop the row."
            )
        names = sorted(set(map(canonical, distinct)), key=lambda name: (float(name), name))
    else:
        names = sorted(distinct)
    is_mostly_distinct = len(train) > 100 and len(names) > len(train) / 2
    if is_mostly_distinct or (not is_asked_for and len(names) > MAX_CLASSES):
        way_out = ", or --task=regression if they are measurements" if is_numeric else ""
        if not is_mostly_distinct:
            way_out += ", or --task=classification if there are so many classes"
        raise UsageError(
            "Classes must be few compared with examples. "
            f"Received: {len(names):,} distinct labels in the {len(train):,} rows of {train.name}, such as "
            f"{classes.shortened(names, 3)}. Check --label_column{way_out}."
        )
    return names


def load_texts(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads texts with one label each."""
    notes: list[str] = []
    words = NAMES_OR_MISSING if config.task == Classification.name else ()  # Classes, if the user says so.
    class_words = {*words, *given_names(config)}
    is_regression = config.task == Regression.name
    read = TextReader(config, class_words, is_regression=is_regression, names_ids=not is_regression)
    tables, more = read_training_tables(config, TEXTS, read)
    text_task.check_same_columns(tables["train"], tables.values())
    notes += more
    task = choose_task(tables["train"], config.task, notes)
    for table in tables.values():
        notes += [*table.notes, *text_task.about_empty(table.name, table.text, table.text_pair)]
    sets = {name: task.examples(table) for name, table in tables.items()}
    sets = hold_out(
        sets,
        config,
        notes,
        lambda train: that_share_texts(list(train.contents()), config.validation_split, notes),
        lambda train: train.labels if task.label_names else None,
    )
    return data_of(task, sets, notes, config, tables["train"].columns)


def choose_task(train: RawTable, asked: str, notes: list[str]) -> Task:
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
