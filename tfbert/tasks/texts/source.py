"""Texts with a label each: their source as written, and what classification and regression share. `files` parses files.
The task decides what the labels mean.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Callable, Collection, Container, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.config.types import counted
from tfbert.data.files import RawTable, read_file, text_columns
from tfbert.data.labels import MARKS, MISSING, NAMES_OR_MISSING, given_names, named_labels, stand_for_none
from tfbert.data.open_file import BadRows, GivenTable, Unlabelled
from tfbert.data.rows import Source
from tfbert.errors import UsageError
from tfbert.tasks.classes import are_numbered, have_fractions, quoted, shortened
from tfbert.tasks.tables import read_labelled_tables
from tfbert.tasks.text_task import TextExamples, TextTask

if TYPE_CHECKING:
    from tfbert.config.data import DataConfig

TEXTS = "classification"
"""Whose built-in data are those of all tasks of texts with a label."""


def text_reader(
    config: DataConfig,
    class_words: Container[str],
    *,
    classes: Collection[str] | None = None,
    is_regression: bool = False,
    names_ids: bool = True,
) -> Callable[..., RawTable]:
    """What reads texts, their labels as the `label_names` of the options name them: takes what an option names, and
    whether it needs labels, in any case to be scored.

    Args:
        config: Says the format and the columns.
        class_words: Words that usually stand for a missing label in files, but are classes here.
        classes: Those of a saved model; None: those of the first table that is read, the training data.
        is_regression: Whether labels are certainly measurements.
        names_ids: Whether labels get the names that the data itself has for their ids, where the user gives none.
    """
    names = given_names(config)
    labelled = _Labels(names, classes, is_regression=is_regression, config=config)

    def read(source: Source, require_label: bool = True) -> RawTable:
        table = read_file(
            source,
            config,
            require_label=require_label,
            class_words=NAMES_OR_MISSING if config.dataset else class_words,
            names_ids=names_ids and not names,
        )
        if table.labels is None:
            raise UsageError(
                f"A test file needs labels to be scored. Received: {table.name} without a label column. "
                "Pass --label_column, or drop --test_file and use --mode=predict later."
            )
        return labelled(table)

    return read


def read_labelled(config: DataConfig, label_names: Sequence[str]) -> dict[str, RawTable]:
    """Reads the validation and test examples that a saved model is evaluated on, as written; no training data.

    Args:
        config: Its `test_file` may be `-`, standard input.
        label_names: The model's classes, in any case: a label that is one of them never counts as missing.

    Returns:
        As `read_labelled_tables` does.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no labels.
    """
    known = {name.casefold() for name in (*label_names, *given_names(config))}
    class_words = {word for word in (*MISSING, "NaN", "nan") if word.casefold() in known}
    read = text_reader(
        config,
        class_words,
        classes=label_names,
        is_regression=not label_names,
        names_ids=bool(label_names) and not are_numbered(label_names),
    )
    return read_labelled_tables(config, TEXTS, read)


def holds_texts(source: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a data set has texts and a label, by names given or usual; never of files, which others may claim."""
    if not isinstance(source, GivenTable) or not source.kinds:
        return False
    try:
        texts, _ = text_columns(source, config.text_column, config.label_column)
    except UsageError:
        return False
    return {*texts} <= {*source.of_kinds("text")}


class _Labels:
    """What the labels of tables mean: all are read as those of the first.

    Args:
        names: Those that the user gives to labels, in their order; empty for none.
        classes: As for `text_source`.
        is_regression: As for `text_source`.
        config: Whether rows whose label stands for none are left out, as those of data sets are, or refused.
    """

    def __init__(
        self, names: tuple[str, ...], classes: Collection[str] | None, *, is_regression: bool, config: DataConfig
    ):
        self._names, self._classes, self._is_regression, self._config = names, classes, is_regression, config
        self._written: dict[str, str] = {}

    def __call__(self, table: RawTable) -> RawTable:
        """The same table, with the names that the user gives to its labels, without rows whose label stands for none.

        Raises:
            UsageError: for such a row, unless they are left out, and for a label that has no name.
        """
        table = self._without_missing(table)
        if self._classes is None:
            self._classes = {*table.labels}
            self._is_regression = self._is_regression or table.is_regression or have_fractions(table.labels)
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
        labels, known = {*table.labels}, self._names or table.label_names or self._classes
        none = stand_for_none(labels, None if self._is_regression else known)
        if self._is_regression and none != labels:  # -1 is a number, unless no label is another.
            none &= MARKS
        if not none:
            return self._with_doubt(table)
        bad_rows = BadRows(self._config.skip_bad_rows, is_data_set=bool(self._config.dataset))
        others = sorted(labels - none)

        def checked(row: int, label: str) -> int:
            if label not in none:
                return row
            beside = f"beside {shortened(others, 4)}" if others else "as all labels do,"
            way_out = "; if it is a class, name all classes with --label_names" if others and not known else ""
            raise Unlabelled(
                f"Every row needs a label. Received: {quoted(label)}, which stands for a missing one {beside} "
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
        others, is_score = numbers - {-1.0}, self._is_regression or have_fractions(table.labels)
        is_doubtful = others < numbers and min(others, default=-1) >= 0 and (is_score or others != {1.0})
        if not is_doubtful or self._names or table.label_names or self._classes is not None:
            return table
        count = counted(sum(float(label) == -1 for label in table.labels), "example")
        doubt = (
            f"warning: {table.name}: -1, the only label below 0, is taken as {'a number' if is_score else 'a class'} "
            f"({count}); drop these rows if it stands for a missing label"
        )
        return dataclasses.replace(table, notes=(*table.notes, doubt))


class OneLabelTask(TextTask):
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

    def examples(self, table: RawTable) -> TextExamples:
        """Turns a table, unlabelled or labelled, into examples.

        Raises:
            UsageError: for a label that is not one of the task's.
        """
        return TextExamples.of_table(table, None if table.labels is None else self.labels(table))

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: Callable[[Sequence[str], str], None]
    ) -> dict[str, TextExamples]:
        sets, are_given = {}, bool(given_names(config))
        for prefix, table in read_labelled(config, self.label_names).items():
            notes += table.notes
            check_texts(table.text_columns, table.name)
            sets[prefix] = self.examples(self.with_model_labels(table, notes, are_given=are_given))
        return sets
