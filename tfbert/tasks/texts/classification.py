"""Classification: one of several classes for each text or pair of texts."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.data.files import RawTable
from tfbert.data.labels import NAMES_OR_MISSING, canonical, given_names
from tfbert.errors import UsageError
from tfbert.model.head import Head, sequence_head
from tfbert.tasks import classes
from tfbert.tasks.base import ErrorAnalysis, Task, TaskData
from tfbert.tasks.losses import HeadStart, SmoothedCrossEntropy, class_start, class_weights
from tfbert.tasks.metrics import class_table, classification_metrics, confusion_matrix, cross_entropy, per_class
from tfbert.tasks.registry import warnings_of_others
from tfbert.tasks.tables import data_of, hold_out, read_training_tables, that_share_texts
from tfbert.tasks.text_task import TextExamples, about_empty, check_same_columns, error_analysis_of_texts, takes
from tfbert.tasks.texts.regression import Regression
from tfbert.tasks.texts.source import TEXTS, OneLabelTask, text_reader

if TYPE_CHECKING:
    from tfbert.batches.pipeline import EncodedExamples
    from tfbert.config.tasks import TaskOptions
    from tfbert.config.training import TrainingConfig
    from tfbert.model.configuration import BertConfig

MAX_CLASSES = 1000
"""More distinct labels than this are taken for a mistake unless the task is given."""
_ANY_CLASSES = ("accuracy", "macro_f1", "loss")
_TWO_CLASSES = ("accuracy", "macro_f1", "f1", "matthews_correlation", "loss")


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

    def doubts(self, examples: TextExamples) -> list[str]:
        """Classes whose names are almost the same, or that hardly occur."""
        counts = np.bincount(examples.labels, minlength=len(self.label_names)).tolist()
        out = classes.look_alikes(self.label_names, counts, "classes")
        if (label := classes.several_in_one(self.label_names)) is not None:
            out.append(
                f"{classes.quoted(label)} looks like several labels in one, but each label is taken as a class of its "
                f"own: {classes.shortened(self.label_names, 3)}; give each text one label, or pass "
                "--task=multi_label_classification"
            )
        out += classes.nearly_numbers(self.label_names, counts)
        return out + classes.rare_ones(self.label_names, counts, "classes")

    def head(self) -> Head:
        return sequence_head(self.label_names, has_names=True, problem_type="single_label_classification")

    def head_start(self, encoded: EncodedExamples, training: TrainingConfig) -> HeadStart:
        return class_start(encoded, training, len(self.label_names), "classes")

    def loss(self, training: TrainingConfig) -> SmoothedCrossEntropy:
        return SmoothedCrossEntropy(training.label_smoothing)

    def example_weights(self, labels: np.ndarray, training: TrainingConfig) -> np.ndarray:
        return class_weights(training, labels, len(self.label_names))[labels]

    @property
    def metric_names(self) -> tuple[str, ...]:
        return _TWO_CLASSES if len(self.label_names) == 2 else _ANY_CLASSES

    def _metrics(self, predictions: np.ndarray, examples: TextExamples) -> dict[str, float]:
        labels = examples.labels.astype(np.int64)
        shape = predictions.shape
        assert shape[0] == len(labels) and labels.min() >= 0 and labels.max() < shape[1], shape
        return classification_metrics(predictions, labels)

    def remarks(self, predictions: np.ndarray, examples: TextExamples) -> list[str]:
        predicted = np.unique(predictions.argmax(axis=1))
        if len(predicted) > 1 or len(np.unique(examples.labels)) < 2:
            return []
        name = classes.quoted(self.label_names[predicted[0]])
        return [
            f"{examples.name}: all {len(examples):,} texts get the class {name}: the model tells no class from another "
            "so far; train longer, or try --class_weights=balanced"
        ]

    def details(self, predictions: np.ndarray, examples: TextExamples) -> tuple[dict[str, Any], list[str]]:
        confusion = confusion_matrix(predictions, examples.labels, len(self.label_names))
        table = per_class(confusion, self.label_names)
        matrix = {"labels": list(self.label_names), "rows": confusion.tolist()}
        return {"per_class": table, "confusion_matrix": matrix}, class_table(table, confusion)

    def error_analysis(self, predictions: np.ndarray, examples: TextExamples) -> ErrorAnalysis:
        """The error is the cross-entropy of a wrong prediction."""
        logits, labels, names = np.asarray(predictions), examples.labels, self.label_names
        predicted = logits.argmax(axis=1)
        entropy = cross_entropy(logits, labels)
        return error_analysis_of_texts(
            examples,
            np.where(predicted != labels, entropy, 0.0),
            "loss",
            [names[label] for label in labels],
            [names[label] for label in predicted],
            {"confusion": confusion_matrix(logits, labels, len(names)).tolist()},
        )

    def columns(self) -> list[str]:
        return ["label", *(f"probability_{name}" for name in self.label_names)]

    def cells(self, record: dict[str, Any]) -> list[Any]:
        return [record["label"], *record["probabilities"].values()]

    def records(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        for best, shares, logits in zip(self.best(outputs), self.shares(outputs), outputs, strict=True):
            yield best | {
                "probabilities": dict(zip(self.label_names, shares, strict=True)),
                "logits": [*logits],
            }

    def shares(self, outputs: np.ndarray) -> np.ndarray:
        from scipy.special import softmax

        return softmax(outputs, axis=1)

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        label = tf.gather(tf.constant(self.label_names), tf.argmax(outputs, axis=1))
        return {"logits": outputs, "probabilities": tf.nn.softmax(outputs), "label": label}

    def card(self, num_texts: int) -> str:
        return f"gives {takes(num_texts)} one of {len(self.label_names)} classes"


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
    read = text_reader(config, class_words, is_regression=is_regression, names_ids=not is_regression)
    tables, more = read_training_tables(config, TEXTS, read, lambda source: read(source, False))
    check_same_columns(tables["train"], tables.values())
    notes += [*more, *warnings_of_others(Classification.name, tables["train"])]
    task = choose_task(tables["train"], config.task, notes)
    for table in tables.values():
        notes += [*table.notes, *about_empty(table.name, table.text, table.text_pair)]
    sets = {name: task.examples(table) for name, table in tables.items()}
    if config.validation_split is not None:
        groups = that_share_texts(list(sets["train"].contents()), config.validation_split, notes)
        strata = sets["train"].labels if task.label_names else None
        sets = hold_out(sets, config, notes, groups=groups, strata=strata)
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
        notes += classes.maybe_thousands(train.labels)
        return Regression()
    return Classification.of_rows(train, train.label_names, is_asked_for=asked == Classification.name)
