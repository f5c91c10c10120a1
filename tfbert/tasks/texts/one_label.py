"""Tasks that give each text, or each pair of texts, one label: what classification and regression share."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbert.data.files import RawTable
from tfbert.data.label_names import given_names
from tfbert.tasks.text_task import TextExamples, TextTask
from tfbert.tasks.texts.source import read_labelled

if TYPE_CHECKING:
    from tfbert.config.data import DataConfig


class OneLabelTask(TextTask):
    """A task of texts with one label each, as they are written in files and data sets."""

    @abc.abstractmethod
    def labels(self, table: RawTable) -> np.ndarray:
        """The labels of a labelled table, `[n]`.

        Raises:
            UsageError: for a label that is not one of this task's.
        """

    @abc.abstractmethod
    def with_model_labels(
        self, table: RawTable, defined: Sequence[str] | None, notes: list[str], *, are_given: bool = False
    ) -> RawTable:
        """A table to evaluate a saved model of this task on, with its labels rewritten as the model's.

        Args:
            table: As it was written.
            defined: The classes as the data set itself defines them; None where it does not.
            notes: Receives a line if labels were not matched by name.
            are_given: Whether the user gave these classes, with `label_names`.

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
            table = self.with_model_labels(table, table.label_names, notes, are_given=are_given)
            sets[prefix] = self.examples(table)
        return sets
