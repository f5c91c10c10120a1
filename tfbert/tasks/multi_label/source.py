"""The source of texts and their labels as written: files, and data sets of TensorFlow Datasets."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from tfbert.config.data import DataConfig
from tfbert.data.given_table import GivenTable
from tfbert.data.label_names import given_names
from tfbert.data.rows import file_format, open_rows
from tfbert.data.streams import labelled_source
from tfbert.errors import UsageError
from tfbert.tasks.multi_label.label_columns import label_columns, shows_label_sets
from tfbert.tasks.multi_label.table import LabelSets, distinct_labels, read_label_sets, with_names
from tfbert.tasks.tables import Source, read_labelled_tables


def label_source(config: DataConfig, separator: str, model_labels: Sequence[str] = ()) -> Source[LabelSets]:
    """The source of texts with labels that the configuration names, the labels as its `label_names` name them.

    Reading from TensorFlow Datasets starts TensorFlow's devices: set them up first.

    Args:
        config: Names a data set, or files.
        separator: `label_separator`.
        model_labels: Those of a saved model, to be evaluated.
    """
    names = given_names(config)
    known, seen = (*names, *model_labels), set()

    def read(path: str) -> LabelSets:
        source = labelled_source(path)
        format = file_format(source) if config.input_format == "auto" else config.input_format
        file = open_rows(source, format, header=config.header, delimiter=config.separator)
        columns = label_columns(file, config.text_column, config.label_column, names or model_labels)
        own = file.label_names.get(columns.labels[0], ()) if columns.has_one_each is False and not names else ()
        options = {"separator": separator, "known": known, "names": own, "classes": seen}
        table = read_label_sets(file, columns, **options, skip_bad_rows=config.skip_bad_rows)
        seen.update(distinct_labels(table.labels))
        return with_names(table, names, are_given=True)

    return Source(read_file=read, demo="multi_label_classification")


def read_labelled(config: DataConfig, separator: str, model_labels: Sequence[str]) -> dict[str, LabelSets]:
    """Reads the validation and test examples that a saved model is evaluated on, as written; no training data.

    Args:
        config: Its `test_file` may be `-`, standard input.
        separator: `label_separator`.
        model_labels: The model's.

    Returns:
        As `read_labelled_tables` does.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no labels.
    """
    return read_labelled_tables(config, label_source(config, separator, model_labels))


def holds_label_sets(source: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a file, or a table in memory, certainly has several labels a text: see `shows_label_sets`. False also for
    a file that cannot be read: reading it later says why."""
    try:
        format = file_format(source) if config.input_format == "auto" else config.input_format
        file = open_rows(source, format, header=config.header, delimiter=config.separator)
        return shows_label_sets(file, config.text_column, config.label_column)
    except (UsageError, OSError):
        return False
