"""The source of texts and their labels as written.

`files` parses files, `tfds` reads TensorFlow Datasets, `demo` has the built-in corpus. The task decides what the labels
mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence

from tfbert.config.data import DataConfig
from tfbert.data.files import RawTable, read_file
from tfbert.data.label_names import given_names, named_labels
from tfbert.data.labels import MISSING
from tfbert.data.streams import labelled_source
from tfbert.errors import UsageError
from tfbert.tasks.model_labels import are_numbered
from tfbert.tasks.tables import Source, read_labelled_tables
from tfbert.tasks.texts.demo import demo_data


def text_source(
    config: DataConfig, class_words: Container[str], notes: list[str], *, names_ids: bool = True
) -> Source[RawTable]:
    """The source of texts that the configuration names, their labels as its `label_names` name them.

    Reading from TensorFlow Datasets starts TensorFlow's devices: set them up first.

    Args:
        config: Names a data set, or files.
        class_words: Words that usually stand for a missing label in files, but are classes here.
        notes: Receives what the user should know of a named data set.
        names_ids: Whether labels get the names that a Parquet file itself has for their ids, where the user gives none.

    Raises:
        UsageError: for a data set without a header.
    """
    if not config.uses_files and not config.header:
        raise UsageError("Only .tsv and .csv files can lack a header. Received: header=False. Drop --noheader.")
    names = given_names(config)

    def read(path: str, require_label: bool = True) -> RawTable:
        table = read_file(
            labelled_source(path),
            format=config.input_format,
            text_column=config.text_column,
            label_column=config.label_column,
            header=config.header,
            delimiter=config.separator,
            require_label=require_label,
            skip_bad_rows=config.skip_bad_rows,
            class_words=class_words,
            names_ids=names_ids and not names,
        )
        if table.labels is None:
            raise UsageError(
                f"A test file needs labels to be scored. Received: {table.name} without a label column. "
                "Pass --label_column, or drop --test_file and use --mode=predict later."
            )
        return _named(table, names)

    def read_name(with_train: bool) -> dict[str, RawTable]:
        from tfbert.tasks.texts.tfds import read_tfds  # imports TensorFlow Datasets

        columns = (config.text_column, config.label_column)
        tables, found = read_tfds(config.dataset, config.data_dir, *columns, with_train=with_train)
        notes.extend(found)
        return {name: _named(table, names) for name, table in tables.items()}

    def demo() -> tuple[RawTable, RawTable]:
        train, validation = demo_data()
        return _named(train, names), _named(validation, names)

    return Source(read_file=read, read_name=read_name, demo=demo, read_test=lambda path: read(path, False))


def read_labelled(config: DataConfig, label_names: Sequence[str], notes: list[str]) -> dict[str, RawTable]:
    """Reads the validation and test examples that a saved model is evaluated on, as written; no training data.

    Args:
        config: Its `test_file` may be `-`, standard input.
        label_names: The model's classes, in any case: a label that is one of them never counts as missing.
        notes: As for `text_source`.

    Returns:
        As `read_labelled_tables` does.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no labels.
    """
    known = {name.casefold() for name in (*label_names, *given_names(config))}
    class_words = {word for word in (*MISSING, "NaN", "nan") if word.casefold() in known}
    names_ids = bool(label_names) and not are_numbered(label_names)
    return read_labelled_tables(config, text_source(config, class_words, notes, names_ids=names_ids))


def _named(table: RawTable, names: tuple[str, ...]) -> RawTable:
    """The same table with the names that the user gives to its labels, if any."""
    if not names:
        return table
    labels = dict.fromkeys(table.labels)
    written = named_labels(labels, names, lambda label: table.where(table.labels.index(label)))
    ids = ("0, 1, ... are " + ", ".join(names)) * (list(written.values()) != list(written))
    notes = (f"{table.name}: the labels {ids}, as label_names says",) if ids else ()
    labels = [written[label] for label in table.labels]
    notes = (*table.notes, *notes)
    return dataclasses.replace(table, labels=labels, notes=notes, label_names=names, is_regression=False)
