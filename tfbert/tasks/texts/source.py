"""A data set by name or by files -> its rows as written.

`files` parses files, `tfds_source` reads TensorFlow Datasets, `demo` has the built-in corpus. The task decides what the
labels mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence

from tfbert.config.data import STANDARD_STREAM, DataConfig
from tfbert.data.files import RawData, RawTable, read_file
from tfbert.data.label_names import given_names, named_labels
from tfbert.data.labels import MISSING
from tfbert.data.streams import standard_input
from tfbert.errors import UsageError
from tfbert.tasks.tables import check_demo, validation_names
from tfbert.tasks.texts.demo import demo_data


def read_all(config: DataConfig, *, class_words: Container[str] = ()) -> RawData:
    """Reads everything a run trains and evaluates on.

    Reading from TensorFlow Datasets starts TensorFlow's devices: set them up first.

    Args:
        config: Names a data set, or files.
        class_words: Words that usually stand for a missing label in files, but are classes here.

    Raises:
        UsageError: for data that is not there, or cannot be read.
    """
    names = given_names(config)
    if not config.uses_files:
        return _named(_from_name(config, with_train=True), names)
    return _named(_from_files(config, {*class_words, *names}), names)


def read_labelled(config: DataConfig, label_names: Sequence[str] = ()) -> RawData:
    """Reads the validation and test examples that a saved model is evaluated on, as written; no training data.

    Args:
        config: Its `test_file` may be `-`, standard input.
        label_names: The model's classes, in any case: a label that is one of them never counts as missing.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no labels.
    """
    names = given_names(config)
    if not config.uses_files:
        return _named(_from_name(config, with_train=False), names)
    known = {name.casefold() for name in (*label_names, *names)}
    read = _reader(config, class_words={word for word in (*MISSING, "NaN", "nan") if word.casefold() in known})
    test = read(config.test_file) if config.test_file else None
    return _named(RawData(train=None, validation=_read_validation(config, read), test=test), names)


def _named(raw: RawData, names: tuple[str, ...]) -> RawData:
    """The same data with the names that the user gives to its labels, if any."""
    if not names:
        return raw

    def named(table: RawTable | None) -> RawTable | None:
        if table is None:
            return None
        labels = dict.fromkeys(table.labels)
        written = named_labels(labels, names, lambda label: table.where(table.labels.index(label)))
        ids = ("0, 1, ... are " + ", ".join(names)) * (list(written.values()) != list(written))
        notes = (f"{table.name}: the labels {ids}, as label_names says",) if ids else ()
        labels = [written[label] for label in table.labels]
        return dataclasses.replace(table, labels=labels, notes=(*table.notes, *notes))

    validation = {name: named(table) for name, table in raw.validation.items()}
    parts = {"train": named(raw.train), "validation": validation, "test": named(raw.test)}
    return dataclasses.replace(raw, **parts, label_names=names, are_names_given=True, is_regression=False)


def _from_name(config: DataConfig, *, with_train: bool) -> RawData:
    if not config.header:
        raise UsageError("Only .tsv and .csv files can lack a header. Received: header=False. Drop --noheader.")
    if config.dataset in ("", "demo"):
        return _from_demo(config)
    from tfbert.tasks.texts.tfds import read_tfds  # imports TensorFlow Datasets

    columns = (config.text_column, config.label_column)
    return read_tfds(config.dataset, config.data_dir, *columns, with_train=with_train)


def _reader(config: DataConfig, class_words: Container[str]) -> Callable[..., RawTable]:
    """Returns a function that reads a file as configured, given its path and whether it must have labels."""

    def read(path: str, require_label: bool = True) -> RawTable:
        return read_file(
            standard_input("test_file") if path == STANDARD_STREAM else path,
            format=config.input_format,
            text_column=config.text_column,
            label_column=config.label_column,
            header=config.header,
            delimiter=config.separator,
            require_label=require_label,
            skip_bad_rows=config.skip_bad_rows,
            class_words=class_words,
        )

    return read


def _from_files(config: DataConfig, class_words: Container[str]) -> RawData:
    read = _reader(config, class_words)
    train = read(config.train_file)
    validation = _read_validation(config, read)
    test = read(config.test_file, require_label=False) if config.test_file else None
    if test is not None and test.labels is None:
        raise UsageError(
            f"A test file needs labels to be scored. Received: {test.name} without a label column. "
            "Pass --label_column, or drop --test_file and use --mode=predict later."
        )
    notes = () if validation else ("no validation_file: nothing is evaluated during training",)
    return RawData(train=train, validation=validation, test=test, notes=notes)


def _read_validation(config: DataConfig, read: Callable[[str], RawTable]) -> dict[str, RawTable]:
    paths = config.validation_files
    return {name: read(path) for name, path in zip(validation_names(paths), paths, strict=True)}


def _from_demo(config: DataConfig) -> RawData:
    check_demo(config)
    train, validation = demo_data()
    return RawData(train=train, validation={"validation": validation})
