"""A data set by name or by files -> examples with class ids or scores.

    data = load_data(DataConfig(train_file="train.tsv", validation_file="dev.tsv"))
    data.label_names, len(data.train), data.validation["validation"].labels

Parsing files is in `files`, TensorFlow Datasets in `tfds_source`, the built-in corpus in `demo`; here labels get their
meaning, the same way for all three.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Literal

import numpy as np

from tfbert.data.demo import demo_data
from tfbert.data.doubts import doubts
from tfbert.data.files import RawData, RawTable, read_file
from tfbert.data.labels import MISSING, NAMES_OR_MISSING
from tfbert.data.streams import standard_input
from tfbert.data_config import STANDARD_STREAM, DataConfig
from tfbert.errors import UsageError

MAX_CLASSES = 1000
"""More distinct labels than this are taken for a mistake unless the task is given."""

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_INTEGRAL = re.compile(r"([+-]?\d+)\.0*", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Texts with their labels.

    Attributes:
        name: Where they came from, for messages.
        text: The texts, or the first of each pair.
        text_pair: The second of each pair; None for single texts.
        labels: int32 class ids `[n]`, or float32 scores `[n]` for regression; None when unlabelled.
    """

    name: str
    text: list[str]
    text_pair: list[str] | None
    labels: np.ndarray | None

    def __len__(self) -> int:
        return len(self.text)

    def take(self, indices: Iterable[int]) -> Examples:
        """The examples at `indices`, in that order."""
        indices = np.asarray(list(indices), np.int64)
        return dataclasses.replace(
            self,
            text=[self.text[i] for i in indices],
            text_pair=None if self.text_pair is None else [self.text_pair[i] for i in indices],
            labels=None if self.labels is None else self.labels[indices],
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """What a run trains and evaluates on.

    Attributes:
        task: What the labels are.
        label_names: Name of each class id; empty for regression.
        train: To train on.
        validation: Name -> to evaluate on during training; usually one, `validation`; may be empty.
        test: Labelled, to evaluate on once, at the end; None without one.
        notes: What the user should know, one line each.
    """

    task: Literal["classification", "regression"]
    label_names: tuple[str, ...]
    train: Examples | None
    validation: dict[str, Examples]
    test: Examples | None
    notes: tuple[str, ...]


def load_data(config: DataConfig) -> TaskData:
    """Reads everything a run trains and evaluates on.

    Reading a TensorFlow Datasets name starts TensorFlow's devices: set them up first.

    Class names are the labels of the whole training set, integers in numerical order and words in alphabetical order,
    or those the data set defines. `max_train_examples` and `max_eval_examples` keep a random subset, always the same
    one, so that files sorted by class (as IMDB's) still give all classes.

    Raises:
        UsageError: for data that is not there, cannot be read, or does not fit together.
    """
    return _assemble(_from_files(config) if config.uses_files else _from_name(config, with_train=True), config)


def load_labelled(config: DataConfig, label_names: Sequence[str] = ()) -> RawData:
    """Reads what a saved model is evaluated on, and no training data: validation and test examples, as written.

    Args:
        config: Its `test_file` may be `-`, standard input.
        label_names: The model's classes, in any case: no label that is one of them counts as missing.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no labels.
    """
    if not config.uses_files:
        return _from_name(config, with_train=False)
    known = {name.casefold() for name in label_names}
    read = _reader(config, class_words={word for word in (*MISSING, "NaN", "nan") if word.casefold() in known})
    test = read(config.test_file) if config.test_file else None
    return RawData(train=None, validation=_read_validation(config, read), test=test)


def label_examples(table: RawTable, task: str, label_names: Sequence[str]) -> Examples:
    """Turns a table into examples: labels into class ids or scores.

    Args:
        table: Unlabelled is fine.
        task: `classification` or `regression`.
        label_names: Name of each class id; not used for regression.

    Raises:
        UsageError: for a label that is no class, or no finite number.
    """
    labels = None
    if table.labels is not None and task == "regression":
        labels = map_scores(table.labels, table.where)
    elif table.labels is not None:
        labels = map_labels(table.labels, label_names, table.where)
    return Examples(name=table.name, text=table.text, text_pair=table.text_pair, labels=labels)


def subset(examples: Examples, limit: int, notes: list[str]) -> Examples:
    """At most `limit` examples (0: all), drawn at random but always the same ones; adds a line to `notes` if fewer."""
    if not 0 < limit < len(examples):
        return examples
    notes.append(f"{examples.name}: {limit:,} of {len(examples):,} examples, a random subset that is always the same")
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(examples))
    return examples.take(np.sort(order[:limit]))


def map_labels(raw_labels: Sequence[str], label_names: Sequence[str], where: Callable[[int], str]) -> np.ndarray:
    """Class ids of labels as written; `2.0` also counts as `2`.

    Args:
        raw_labels: As in `RawTable.labels`.
        label_names: Name of each class id.
        where: What to call a row in messages, as `RawTable.where`.

    Returns:
        int32 `[n]`.

    Raises:
        UsageError: for a label that is not in `label_names`.
    """
    ids = {name: index for index, name in enumerate(label_names)}
    out = np.empty(len(raw_labels), np.int32)
    for row, label in enumerate(raw_labels):
        known = ids.get(label, ids.get(_canonical(label)))
        if known is None:
            raise UsageError(
                f"A label must be one of the training data's {len(ids)}: {_shorten(label_names)}. "
                f"Received: {_quoted(label)} in {where(row)}. Correct it, or add it to the training data."
            )
        out[row] = known
    return out


def map_scores(raw_labels: Sequence[str], where: Callable[[int], str]) -> np.ndarray:
    """Regression targets, float32 `[n]`, of labels as written.

    Raises:
        UsageError: for a label that is not a finite number.
    """
    out = np.empty(len(raw_labels), np.float32)
    for row, label in enumerate(raw_labels):
        value = float(label) if _is_number(label) else np.nan
        if not abs(value) <= float(np.finfo(np.float32).max):
            raise UsageError(
                "A regression label must be a finite number. "
                f"Received: {_quoted(label)} in {where(row)}. Repair or drop the row, or pass --task=classification."
            )
        out[row] = value
    return out


def _from_name(config: DataConfig, *, with_train: bool) -> RawData:
    if not config.header:
        raise UsageError("Only .tsv and .csv files can lack a header. Received: header=False. Drop --noheader.")
    if config.dataset in ("", "demo"):
        return _from_demo(config)
    from tfbert.data.tfds_source import read_tfds  # imports TensorFlow Datasets

    columns = (config.text_column, config.label_column)
    return read_tfds(config.dataset, config.data_dir, *columns, with_train=with_train)


def _reader(config: DataConfig, class_words: Container[str]) -> Callable[..., RawTable]:
    """Reads a file of the configuration: its path, and whether it must have labels."""

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


def _from_files(config: DataConfig) -> RawData:
    read = _reader(config, class_words=NAMES_OR_MISSING if config.task == "classification" else ())
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
    """`validation`, or where there are several files `validation_NAME` for each."""
    paths = config.validation_files
    if len(paths) == 1:
        return {"validation": read(paths[0])}
    names = [f"validation_{pathlib.Path(path).name.partition('.')[0]}" for path in paths]
    if len(set(names)) != len(names):
        raise UsageError(
            "Validation files need different names, for their metrics to be told apart. "
            f"Received: validation_file={config.validation_file!r}. Rename one."
        )
    return {name: read(path) for name, path in zip(names, paths, strict=True)}


def _from_demo(config: DataConfig) -> RawData:
    if config.text_column or config.label_column:
        raise UsageError(
            "The demo corpus has no columns to choose. Received: "
            f"text_column={','.join(config.text_column)!r}, label_column={config.label_column!r}. Drop them."
        )
    train, validation = demo_data()
    return RawData(train=train, validation={"validation": validation})


def _assemble(raw: RawData, config: DataConfig) -> TaskData:
    others = [*raw.validation.values(), *([raw.test] if raw.test else [])]
    for other in others:
        if len(other.text_columns) != len(raw.train.text_columns):
            raise UsageError(
                "All data must be single texts, or all must be pairs. "
                f"Received: {raw.train.name} with {' and '.join(raw.train.text_columns)}, "
                f"{other.name} with {' and '.join(other.text_columns)}. Pass --text_column."
            )
    notes = list(raw.notes)
    task, label_names = config.task, ()
    if task == "auto":
        is_scores = raw.is_regression or (raw.label_names is None and _has_fractions(raw.train.labels))
        task = "regression" if is_scores else "classification"
        if is_scores:
            notes.append(
                "the labels are numbers with fractions: regression; --task=classification takes them as classes"
            )
    if task == "classification":
        label_names = raw.label_names or _class_names(raw.train, config.task)
        _refuse_single_class(raw.train, label_names)
    for table in (raw.train, *others):
        notes += table.notes
        empty = sum(not text.strip() for texts in (table.text, table.text_pair or []) for text in texts)
        if empty:
            notes.append(f"{table.name}: {empty:,} empty text{'s' if empty > 1 else ''}")

    def examples(table: RawTable, limit: int) -> Examples:
        return subset(label_examples(table, task, label_names), limit, notes)

    data = TaskData(
        task=task,
        label_names=tuple(label_names),
        train=examples(raw.train, config.max_train_examples),
        validation={name: examples(table, config.max_eval_examples) for name, table in raw.validation.items()},
        test=examples(raw.test, config.max_eval_examples) if raw.test else None,
        notes=(),
    )
    return dataclasses.replace(data, notes=(*notes, *doubts(data)))


def _class_names(train: RawTable, asked_task: str) -> tuple[str, ...]:
    """The distinct training labels in order: numbers by value, words by alphabet."""
    distinct = set(train.labels)
    is_numeric = all(map(_is_number, distinct))
    if is_numeric:
        endless = next((row for row, label in enumerate(train.labels) if not np.isfinite(float(label))), None)
        if endless is not None:
            raise UsageError(
                "A label among numbers must be a finite number. "
                f"Received: {train.labels[endless]!r} in {train.where(endless)}. Repair or drop the row."
            )
        names = sorted(set(map(_canonical, distinct)), key=lambda name: (float(name), name))
    else:
        names = sorted(distinct)
    is_mostly_distinct = len(train) > 100 and len(names) > len(train) / 2
    if is_mostly_distinct or (asked_task == "auto" and len(names) > MAX_CLASSES):
        way_out = ", or --task=regression if they are measurements" if is_numeric else ""
        if not is_mostly_distinct:
            way_out += ", or --task=classification if there are so many classes"
        raise UsageError(
            "Classes must be few compared with examples. "
            f"Received: {len(names):,} distinct labels in the {len(train):,} rows of {train.name}, such as "
            f"{_shorten(names, 3)}. Check --label_column{way_out}."
        )
    return tuple(names)


def _refuse_single_class(train: RawTable, label_names: Sequence[str]) -> None:
    present = set(train.labels)
    if len(label_names) < 2 or len(present) < 2:
        raise UsageError(
            "Classification needs at least two classes. "
            f"Received: only {_shorten(sorted(present))} in {train.name}. Check the file and --label_column."
        )


def _has_fractions(labels: Sequence[str]) -> bool:
    return all(map(_is_number, labels)) and any(float(label) % 1 for label in labels if np.isfinite(float(label)))


def _is_number(label: str) -> bool:
    return _NUMBER.fullmatch(label) is not None


def _canonical(label: str) -> str:
    match = _INTEGRAL.fullmatch(label)
    return match[1] if match else label


def _shorten(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(map(_quoted, names[:most])) + (", ..." if len(names) > most else "")


def _quoted(label: str) -> str:
    return repr(label if len(label) <= 60 else f"{label[:57]}...")
