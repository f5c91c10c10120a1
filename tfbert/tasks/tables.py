"""Reads the tables of a run or of an evaluation: from files, from a named data set, or the built-in corpus."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from tfbert.config.data import DataConfig
from tfbert.config.given import Given
from tfbert.data.columns import about_columns
from tfbert.data.given_table import GivenTable
from tfbert.data.sets import demo_table
from tfbert.errors import UsageError
from tfbert.tasks.base import Task, TaskData
from tfbert.tasks.sets import Examples, eval_prefix

Table = TypeVar("Table")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source(Generic[Table]):
    """Where a task's tables come from.

    Attributes:
        read_file: Reads the file at a path.
        demo: The folder of the built-in files.
        read_test: Reads the test file of a run; None: as any other.
    """

    read_file: Callable[[str], Table]
    demo: str
    read_test: Callable[[str], Table] | None = None


def read_training_tables(config: DataConfig, source: Source[Table]) -> tuple[dict[str, Table], tuple[str, ...]]:
    """Reads what a run trains and is evaluated on.

    Returns:
        Tables by name, `train` first, then `validation...`, then `test`; and what the user should know, one line each.

    Raises:
        UsageError: for data that does not exist or cannot be read.
    """
    if not config.uses_files:
        return _by_name(config, source, with_train=True), ()
    tables = {"train": source.read_file(config.train_file)} | _validation(config, source)
    has_validation = config.has_validation_data
    notes = () if has_validation else ("no validation_file: nothing is evaluated during training",)
    if config.test_file:
        tables["test"] = (source.read_test or source.read_file)(config.test_file)
    return tables, notes


def read_labelled_tables(
    config: DataConfig, source: Source[Table], choice_columns: Sequence[str] = ()
) -> dict[str, Table]:
    """Reads what a saved model is evaluated on.

    Returns:
        Tables by the prefix of their metrics: `eval`, `test`, ... Their notes say which columns were read.

    Raises:
        UsageError: for data that does not exist or cannot be read.
    """
    tables = _validation(config, source) if config.uses_files else _by_name(config, source, with_train=False)
    found = {eval_prefix(name): table for name, table in tables.items()}
    if config.uses_files and config.test_file:
        found["test"] = source.read_file(config.test_file)
    asked = {"text_column": config.text_column, "label_column": (config.label_column,)}
    asked["choice_columns"] = choice_columns
    for name, table in found.items():
        notes = (*table.notes, *about_columns(table.name, table.columns, asked))
        found[name] = dataclasses.replace(table, notes=notes)
    return found


def _validation(config: DataConfig, source: Source[Table]) -> dict[str, Table]:
    paths = config.validation_files
    return {name: source.read_file(path) for name, path in zip(validation_names(paths), paths, strict=True)}


def _by_name(config: DataConfig, source: Source[Table], *, with_train: bool) -> dict[str, Table]:
    if not config.header:
        raise UsageError("Only .tsv and .csv files can lack a header. Received: header=False. Drop --noheader.")
    if config.dataset not in ("", "demo"):
        from tfbert.data.tfds_builder import read_splits  # imports TensorFlow Datasets

        def read(table: GivenTable) -> Table:
            return source.read_file(Given(table.name, table))

        return read_splits(config.dataset, config.data_dir, read, with_train=with_train)
    check_demo(config)
    tables = {}
    for split in ("train", "validation") if with_train else ("validation",):
        table = source.read_file(Given(f"demo {split}", demo_table(source.demo, split)))
        tables[split] = dataclasses.replace(table, columns={})  # Nobody can choose them.
    return tables


def validation_names(paths: Sequence[str]) -> list[str]:
    """The names of validation files: `validation` for one, `validation_NAME` for each of several; of data in memory,
    their own.

    Raises:
        UsageError: for files with the same name.
    """
    if given := [path.argument for path in paths if isinstance(path, Given)]:
        return given
    if len(paths) <= 1:
        return ["validation"] * len(paths)
    names = [f"validation_{pathlib.Path(path).name.partition('.')[0]}" for path in paths]
    if len(set(names)) != len(names):
        raise UsageError(
            "Validation files need different names, so that their metrics can be told apart. "
            f"Received: validation_file={','.join(paths)!r}. Rename one."
        )
    return names


def check_demo(config: DataConfig) -> None:
    """Refuses column options for the built-in corpus, which has no columns to choose.

    Raises:
        UsageError: naming them.
    """
    if config.text_column or config.label_column:
        raise UsageError(
            "The demo corpus has no columns to choose. Received: "
            f"text_column={','.join(config.text_column)!r}, label_column={config.label_column!r}. Drop them."
        )


def data_of(
    task: Task,
    sets: dict[str, Examples],
    notes: Sequence[str],
    config: DataConfig,
    columns: Mapping[str, tuple[str, ...]],
) -> TaskData:
    """The sets by their names. Without a test file, a split `test` counts as validation if the data set has no other
    examples to evaluate on, as a part of the training examples that is held out."""
    is_last = config.test_file or config.validation_split is not None
    train, test = sets.pop("train"), sets.pop("test", None) if is_last else None
    return TaskData(task=task, train=train, validation=sets, test=test, notes=tuple(notes), columns=columns)
