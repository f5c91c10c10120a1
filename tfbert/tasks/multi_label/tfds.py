"""A TensorFlow Datasets name (`goemotions`) -> tables of texts with several labels each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from tfbert.config.data import DataConfig
from tfbert.data.columns import in_data
from tfbert.data.open_file import OpenFile, Row
from tfbert.data.tfds_builder import decoded, open_builder, read_splits, rows_of
from tfbert.errors import UsageError
from tfbert.tasks.multi_label.label_columns import WORDS, Columns, find_label_columns, named_columns
from tfbert.tasks.multi_label.table import LabelSets, read_label_sets


def read_tfds_label_sets(
    config: DataConfig, separator: str, known: Sequence[str], *, with_train: bool
) -> tuple[dict[str, LabelSets], tuple[str, ...]]:
    """Reads a data set's training split and the split or splits to evaluate on, as `read_splits` chooses them.

    Args:
        config: Names the data set.
        separator: `label_separator`, for a feature of texts in which a character separates labels.
        known: Labels that are known beforehand.
        with_train: Whether to read the training split.

    Returns:
        Tables by the splits' names, and what the user should know, one line each. Where the data set names ids, they
        are `label_names`, and rows have ids.

    Raises:
        UsageError: for an unknown name, data that is not available, or unsuitable features or splits.
    """
    builder = open_builder(config.dataset, config.data_dir)
    columns = label_features(builder, config, known)
    names = _class_names(builder, columns)

    def read(split: str) -> LabelSets | None:
        if not builder.info.splits[split].num_examples:
            return None
        file = _open_split(builder, config.dataset, split)
        table = read_label_sets(file, columns, separator=separator, known=(*known, *names))
        return table if table.has_all or not names else dataclasses.replace(table, label_names=names)

    train, validation, more = read_splits(builder, config.dataset, read, with_train=with_train)
    tables = ({"train": train} if train else {}) | validation
    return tables, (f"{config.dataset} is {builder.info.full_name} of TensorFlow Datasets", *more)


def holds_label_sets(builder: tfds.core.DatasetBuilder, config: DataConfig) -> bool:
    """Whether the features of a data set are texts and lists of labels, or the several label features that the user
    names, or nothing but truth values beside the texts."""
    try:
        columns = label_features(builder, config, ())
    except UsageError:
        return False
    if columns.has_one_each:
        return True
    (label,) = columns.labels
    if not config.label_column and label.lower() in WORDS:
        return False
    return isinstance(builder.info.features[label], tfds.features.Sequence)


def label_features(builder: tfds.core.DatasetBuilder, config: DataConfig, known: Sequence[str]) -> Columns:
    """Chooses the features of texts and labels by name, or because no other feature is possible.

    Raises:
        UsageError: where there are no such features, or several that could be meant.
    """
    features = {name: feature for name, feature in sorted(builder.info.features.items()) if _depth(feature) is not None}
    strings = [name for name, feature in features.items() if _depth(feature) == 0 and _kind(feature) == "O"]
    lists = [name for name, feature in features.items() if _depth(feature) == 1]
    flags = [name for name, feature in features.items() if _depth(feature) == 0 and _kind(feature) == "b"]
    text_column = in_data(config.text_column, list(features))
    label_column = "".join(in_data([config.label_column], list(features)))
    if not label_column and len(lists) == 1:
        (label_column,) = lists
    elif not label_column and len(flags) > 1 and {*flags, *strings} == {*features}:
        label_column = ",".join(flags)
    asked = named_columns(label_column, list(features))
    if len(strings := [name for name in strings if name not in asked]) != 1:
        strings = []
    columns = find_label_columns(
        f"dataset={config.dataset!r}",
        list(features),
        text_column=text_column or strings,
        label_column=label_column,
        known=known,
    )
    for column in columns.texts:
        if _depth(features[column]) != 0 or _kind(features[column]) != "O":
            raise UsageError(
                f"A text column must hold strings. Received: {column!r} of dataset={config.dataset!r}. "
                "Pass another --text_column."
            )
    if columns.has_one_each is None:
        raise UsageError(
            "Labels are a list, or a feature of 0 and 1 for each. "
            f"Received: dataset={config.dataset!r} with features {', '.join(map(repr, list(features)[:20]))}. "
            "Pass --label_column with one feature, or several separated by commas."
        )
    return columns


def _class_names(builder: tfds.core.DatasetBuilder, columns: Columns) -> tuple[str, ...]:
    feature = builder.info.features[columns.labels[0]]
    feature = getattr(feature, "feature", feature)
    is_of_classes = not columns.has_one_each and isinstance(feature, tfds.features.ClassLabel)
    return tuple(feature.names or ()) if is_of_classes else ()


def _open_split(builder: tfds.core.DatasetBuilder, dataset: str, split: str) -> OpenFile:
    name, features = f"{dataset} {split!r}", builder.info.features

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        are_scalars = all(_depth(features[column]) == 0 for column in wanted)
        for number, row in enumerate(rows_of(builder, split, list(wanted), are_scalars=are_scalars), start=1):
            yield number, [_plain(value, f"{name}, example {number}") for value in row]

    return OpenFile(name=name, columns=list(features), read=read, unit="example")


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, bytes):
        return decoded(value, where)
    if isinstance(value, np.ndarray):
        return [_plain(item, where) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _depth(feature: tfds.features.FeatureConnector) -> int | None:
    """0 for a value, 1 for a list of values, None for anything else."""
    if isinstance(feature, tfds.features.Sequence) and isinstance(feature.feature, tfds.features.Tensor):
        return 1 if feature.feature.shape == () else None
    return 0 if isinstance(feature, tfds.features.Tensor) and feature.shape == () else None


def _kind(feature: tfds.features.FeatureConnector) -> str:
    """NumPy's letter: O string, b boolean, i and u integer, f float."""
    return np.dtype(feature.np_dtype).kind
