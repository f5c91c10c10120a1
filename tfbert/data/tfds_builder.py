"""Any data set of TensorFlow Datasets: opened by its name, and its splits and rows.

Data prepared on disk is read without a network; anything else is downloaded and prepared by TensorFlow Datasets first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow_datasets as tfds

from tfbert.data.files import find_columns
from tfbert.data.reading import LISTS, VALUES, GivenTable, Row, Unlabelled, plain
from tfbert.errors import UsageError, first_line

Noted = TypeVar("Noted", bound=Any)
"""A dataclass with `notes`."""

_READ_BATCH = 4096


def open_builder(dataset: str, data_dir: str = "") -> tfds.core.DatasetBuilder:
    """Opens a data set; downloads and prepares it first if it is not on disk.

    Args:
        dataset: `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        data_dir: Directory of prepared data. Empty: TensorFlow Datasets' default.

    Raises:
        UsageError: for an unknown name, or data that is neither on disk nor can be downloaded.
    """
    builder = find_builder(dataset, data_dir)
    try:
        if not builder.is_prepared():
            _refuse_offline(builder)
            builder.download_and_prepare()
        return builder
    except Exception as error:  # whatever this data set's own code raises
        rule = "A data set must be on disk, or it must be possible to download it"
        received = f"dataset={dataset!r}, data_dir={data_dir!r} ({_first_line(error)})"
        todo = "Prepare it on a connected machine and pass its directory with --data_dir, or pass --train_file."
        raise UsageError(f"{rule}. Received: {received}. {todo}") from error


def read_splits(
    dataset: str, data_dir: str, read: Callable[[GivenTable], Noted], *, with_train: bool
) -> dict[str, Noted]:
    """Reads the training split and the split or splits to evaluate on.

    Splits to evaluate on are all that begin with `validation` (MNLI has two). If none of them has labels, it is `dev`,
    or else `test`.

    Args:
        dataset: As for `open_builder`.
        data_dir: As for `open_builder`.
        read: Takes a split; returns its labelled examples, or raises an `Unlabelled`.
        with_train: Whether to read the training split.

    Returns:
        What `read` returned, by the names of the splits, `train` first, `dev` as `validation`. The first table's notes
        begin with those about the whole data set.

    Raises:
        UsageError: for an unknown name, data that is not available, and data without a labelled training split, or
            without other labelled splits if only those are read.
    """
    builder = open_builder(dataset, data_dir)
    splits, notes = list(builder.info.splits), [f"{dataset} is {builder.info.full_name} of TensorFlow Datasets"]

    def labelled(*names: str) -> dict[str, Noted]:
        found = {}
        for name in names:
            if name in splits and builder.info.splits[name].num_examples:
                with contextlib.suppress(Unlabelled):
                    found["validation" if name == "dev" else name] = read(table_of(builder, dataset, name))
        return found

    train = labelled("train") if with_train else {}
    if with_train and not train:
        has = f"with splits {', '.join(splits) or 'none'}"
        rule = "Training needs a train split with labels"
        raise UsageError(f"{rule}. Received: dataset={dataset!r} {has}. Pass another --dataset.")
    others = labelled(*(name for name in splits if name.startswith("validation"))) or labelled("dev")
    if not others and (others := labelled("test")):
        notes.append(f"{dataset} has no validation split: evaluating on 'test'")
    if not others:
        notes.append(f"{dataset} has no labelled split besides 'train': nothing is evaluated during training")
        if not with_train:
            rule = "Evaluation needs labels"
            raise UsageError(f"{rule}. Received: dataset={dataset!r}, {notes[-1]}. Pass another --dataset.")
    tables = train | others
    first, table = next(iter(tables.items()))
    return tables | {first: dataclasses.replace(table, notes=(*notes, *table.notes))}


def open_tests(dataset: str, data_dir: str = "", text_column: Sequence[str] = ()) -> dict[str, GivenTable]:
    """The splits called `test` (MNLI has two), labelled or not.

    Args:
        dataset: As for `open_builder`.
        data_dir: As for `open_builder`.
        text_column: As for `find_columns`.

    Returns:
        By the split's name. The columns are the text or texts, then `idx`, GLUE's own number of an example.

    Raises:
        UsageError: for an unknown name, data that is not available, or unsuitable features or splits.
    """
    builder = open_builder(dataset, data_dir)
    tables = {split: table_of(builder, dataset, split) for split in builder.info.splits if split.startswith("test")}
    if not tables or "idx" not in builder.info.features:
        rule = "Prediction for a data set needs a test split and the feature idx"
        received = f"dataset={dataset!r} without one of them"
        raise UsageError(f"{rule}. Received: {received}. Pass a GLUE task, or --input_file.")
    texts, _ = find_columns(next(iter(tables.values())), text_column)
    return {split: dataclasses.replace(table, columns=[*texts, "idx"]) for split, table in tables.items()}


def table_of(builder: tfds.core.DatasetBuilder, dataset: str, split: str) -> GivenTable:
    """A split as a table. Classes are names, and None where they are held back; those of lists are ids, as other
    tables have them.

    Args:
        builder: Just opened; or just found, for a table whose rows are not read.
        dataset: What messages call it.
        split: Its name.
    """
    features = dict(sorted(builder.info.features.items()))
    classes = {column: _inner(feature) for column, feature in features.items()}
    kinds = {column: _kind(feature) for column, feature in features.items()}

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        for number, row in enumerate(rows_of(builder, split, wanted), start=1):
            yield number, [_plain(value, features[column]) for column, value in zip(wanted, row, strict=True)]

    return GivenTable(
        name=f"{dataset} {split!r}",
        columns=[*features],
        read=read,
        unit="example",
        label_names={column: tuple(found.names) for column, found in classes.items() if _is_class(found)},
        kinds=kinds,
    )


_KINDS = {"O": "text", "b": "truth", "i": "whole", "u": "whole", "f": "float"}


def _inner(feature: Any) -> Any:
    """What a list holds; of anything else, itself."""
    return getattr(feature, "feature", feature)


def _is_class(feature: Any) -> bool:
    return isinstance(feature, tfds.features.ClassLabel) and bool(feature.names)


def _is_value(feature: Any) -> bool:
    return isinstance(feature, tfds.features.Tensor) and feature.shape == ()


def _kind(feature: Any) -> str:
    """As `OpenFile.kinds` has it."""
    inner = _inner(feature)
    if isinstance(inner, tfds.features.FeaturesDict):
        return ",".join(inner)
    if not _is_value(inner):
        return "other"
    is_class, letter = isinstance(inner, tfds.features.ClassLabel), np.dtype(inner.np_dtype).kind
    kind = "class" if is_class else _KINDS.get(letter, "other")
    return dict(zip(VALUES, LISTS, strict=True)).get(kind, "other") if inner is not feature else kind


def _plain(value: Any, feature: Any) -> Any:
    """A feature's value as a table in memory has it."""
    value, inner = value.to_list() if hasattr(value, "to_list") else value, _inner(feature)  # Lists of lists.
    if _is_class(inner) and inner is not feature:
        return [None if one < 0 else int(one) for one in value]
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else None
    if isinstance(feature, tfds.features.FeaturesDict):
        return {key: _plain(value[key], feature[key]) for key in feature}
    if isinstance(inner, tfds.features.FeaturesDict):  # A list of objects is an object of lists.
        return {key: [_plain(one, inner[key]) for one in value[key]] for key in inner}
    if inner is not feature:
        return [_plain(one, inner) for one in value]
    return float(str(value)) if isinstance(value, np.floating) else plain(value)  # 0.1, rather than 0.10000000149.


def rows_of(builder: tfds.core.DatasetBuilder, split: str, wanted: Sequence[str]) -> Iterator[tuple]:
    """The rows of a split in order; of each row, the values of the wanted features.

    Args:
        builder: The data set's.
        split: Its name.
        wanted: The features.
    """
    try:
        data = builder.as_dataset(split=split, read_config=tfds.ReadConfig(try_autocache=False))
    except NotImplementedError:  # prepared as ArrayRecord or Parquet files
        for row in builder.as_data_source(split=split):
            yield tuple(row[column] for column in wanted)
        return
    data = data.map(lambda row: {column: row[column] for column in wanted})
    if not all(_is_value(builder.info.features[column]) for column in wanted):
        for row in tfds.as_numpy(data):
            yield tuple(row[column] for column in wanted)
        return
    for batch in tfds.as_numpy(data.batch(_READ_BATCH)):  # Many values at a time.
        yield from zip(*(batch[column] for column in wanted), strict=True)


def find_builder(dataset: str, data_dir: str = "") -> tfds.core.DatasetBuilder:
    """Finds a data set, which has its features, but perhaps not its rows yet. Nothing is downloaded.

    Args:
        dataset: As for `open_builder`.
        data_dir: As for `open_builder`.

    Raises:
        UsageError: for an unknown name.
    """
    try:
        return tfds.builder(dataset, data_dir=data_dir or None)
    except Exception as error:  # of many classes, AssertionError and RuntimeError among them
        rule = "A data set is demo or a TensorFlow Datasets name"
        todo = "Check the name, or pass your own files with --train_file."
        raise UsageError(f"{rule}. Received: dataset={dataset!r} ({_first_line(error)}). {todo}") from None


def _refuse_offline(builder: tfds.core.DatasetBuilder) -> None:
    """Raises at once if no download host can be resolved: the downloader would try each file for three minutes."""
    hosts = sorted({host for url in builder.url_infos if (host := urllib.parse.urlsplit(url).hostname)})[:3]
    if not hosts or urllib.request.getproxies():
        return
    for host in hosts:
        try:
            socket.getaddrinfo(host, 443)
            return
        except OSError as error:
            reason = error
    raise OSError(f"no network: {hosts[0]} has no address: {reason.strerror}")


def _first_line(error: Exception) -> str:
    # Drops what TensorFlow Datasets puts in front: Failed to construct dataset "glue", builder_kwargs ...
    return first_line(str(error).split('}": ')[-1].strip().rstrip(":") or type(error).__name__).rstrip(":")
