"""A TensorFlow Datasets name (`glue/sst2`, `imdb_reviews`) -> tables of texts and labels.

Data prepared on disk is read without a network; anything else is downloaded and prepared by TensorFlow Datasets first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from tfbert.config.counted import counted
from tfbert.config.data import DataConfig
from tfbert.data.columns import find_columns, in_data
from tfbert.data.files import RawTable
from tfbert.data.labels import NAMES_OR_MISSING, is_missing, stand_for_none
from tfbert.data.rows import OpenFile, Row
from tfbert.data.tfds_builder import decoded, open_builder, read_splits, rows_of
from tfbert.errors import UsageError


def read_tfds(
    dataset: str,
    data_dir: str = "",
    text_column: Sequence[str] = (),
    label_column: str = "",
    *,
    with_train: bool = True,
) -> tuple[dict[str, RawTable], tuple[str, ...]]:
    """Reads a data set's training split and the split or splits to evaluate on.

    `read_splits` chooses the splits to evaluate on. A row labelled -1 is unlabelled, as in GLUE and SNLI, and is left
    out.

    Args:
        dataset: `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        data_dir: Directory of prepared data. Empty: TensorFlow Datasets' default.
        text_column: One text feature, or two for pairs. Empty: found by name.
        label_column: The feature of the label. Empty: found by name.
        with_train: Whether to read the training split.

    Returns:
        Tables by the splits' names, and what the user should know, one line each.

    Raises:
        UsageError: for an unknown name, data that is not available, or unsuitable features or splits.
    """
    builder = open_builder(dataset, data_dir)
    texts, label = text_features(builder, dataset, text_column, label_column)
    notes = []

    def read(split: str) -> RawTable | None:
        table, num_unlabelled = _read_split(builder, dataset, split, texts, label)
        if num_unlabelled and len(table):
            notes.append(f"{table.name}: {counted(num_unlabelled, 'unlabelled example')} left out")
        return table if len(table) else None

    train, validation, more = read_splits(builder, dataset, read, with_train=with_train)
    tables = ({"train": train} if with_train else {}) | validation
    return tables, (f"{dataset} is {builder.info.full_name} of TensorFlow Datasets", *notes, *more)


def open_tests(dataset: str, data_dir: str = "", text_column: Sequence[str] = ()) -> dict[str, OpenFile]:
    """The splits called `test` (MNLI has two), labelled or not, to be read row by row.

    Args:
        dataset: As for `read_tfds`.
        data_dir: As for `read_tfds`.
        text_column: As for `read_tfds`.

    Returns:
        By the split's name. The columns are the text or texts, then `idx`, GLUE's own number of an example.

    Raises:
        UsageError: for an unknown name, data that is not available, or unsuitable features or splits.
    """
    builder = open_builder(dataset, data_dir)
    splits = [split for split in builder.info.splits if split.startswith("test")]
    if not splits or "idx" not in builder.info.features:
        raise UsageError(
            "Prediction for a data set needs a test split and the feature idx. "
            f"Received: dataset={dataset!r} without one of them. Pass a GLUE task, or --input_file."
        )
    texts, _ = text_features(builder, dataset, text_column, "")

    def opened(split: str) -> OpenFile:
        def read(wanted: Sequence[str]) -> Iterator[Row]:
            for number, row in enumerate(rows_of(builder, split, list(wanted)), start=1):
                yield number, [value.decode() if isinstance(value, bytes) else int(value) for value in row]

        return OpenFile(name=f"{dataset} {split!r}", columns=[*texts, "idx"], read=read, unit="example")

    return {split: opened(split) for split in splits}


def holds_texts(builder: tfds.core.DatasetBuilder, config: DataConfig) -> bool:
    """Whether a data set has texts and a label, by names given or usual."""
    try:
        text_features(builder, config.dataset, config.text_column, config.label_column)
    except UsageError:
        return False
    return True


def text_features(
    builder: tfds.core.DatasetBuilder, dataset: str, text_column: Sequence[str], label_column: str
) -> tuple[tuple[str, ...], str]:
    """Chooses text and label features by name; if there is only one string or one class feature, chooses that one.

    Raises:
        UsageError: where there are no such features, or several that could be meant.
    """
    scalars = {
        name: feature
        for name, feature in builder.info.features.items()
        if isinstance(feature, tfds.features.Tensor) and feature.shape == ()
    }
    strings = [name for name, feature in sorted(scalars.items()) if _kind(feature) == "O"]
    classes = [name for name, feature in scalars.items() if isinstance(feature, tfds.features.ClassLabel)]
    text_column, label_column = in_data(text_column, [*scalars]), "".join(in_data([label_column], [*scalars]))
    texts, label = find_columns(
        f"dataset={dataset!r}",
        sorted(scalars),
        text_column=text_column or (strings if len(strings) == 1 else ()),
        label_column=label_column or (classes[0] if len(classes) == 1 else ""),
    )
    for column in texts:
        if column not in strings:
            raise UsageError(
                f"A text column must hold strings. Received: {column!r} of dataset={dataset!r}. "
                f"Pass --text_column with one of {', '.join(strings) or 'another data set'}."
            )
    return texts, label


def _read_split(
    builder: tfds.core.DatasetBuilder, dataset: str, split: str, texts: Sequence[str], label: str
) -> tuple[RawTable, int]:
    """The labelled rows of a split, and the number of unlabelled rows."""
    feature = builder.info.features[label]
    name = f"{dataset} {split!r}"
    columns: list[list[str]] = [[] for _ in texts]
    labels: list[str] = []
    lines: list[int] = []
    num_rows = 0
    for row in rows_of(builder, split, [*texts, label]):
        num_rows += 1
        raw_label = _label_text(feature, row[-1], f"{name}, example {num_rows}")
        if raw_label is None:
            continue
        for column, value, out in zip(texts, row, columns, strict=False):
            out.append(decoded(value, f"{column!r} of {name}, example {num_rows}"))
        labels.append(raw_label)
        lines.append(num_rows)
    if {*labels} and stand_for_none({*labels}) == {*labels}:
        columns, labels, lines = [[] for _ in texts], [], []
    names = tuple(feature.names) if isinstance(feature, tfds.features.ClassLabel) else None
    table = RawTable(
        name=name,
        text_columns=tuple(texts),
        text=columns[0],
        text_pair=columns[1] if len(texts) == 2 else None,
        labels=labels,
        lines=lines,
        unit="example",
        label_names=names,
        is_regression=names is None and _kind(feature) == "f",
        columns={"text_column": tuple(texts), "label_column": (label,)},
    )
    return table, num_rows - len(lines)


def _label_text(feature: tfds.features.FeatureConnector, value: Any, where: str) -> str | None:
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else None
    kind = _kind(feature)
    if kind == "O":
        text = decoded(value, where).strip()
        return None if is_missing(text, NAMES_OR_MISSING) else text
    return str(bool(value)).lower() if kind == "b" else str(value)


def _kind(feature: tfds.features.FeatureConnector) -> str:
    """NumPy's letter: O string, b boolean, i and u integer, f float."""
    return np.dtype(feature.np_dtype).kind
