"""Any data set of TensorFlow Datasets: opened by its name, and its splits and rows.

Data prepared on disk is read without a network; anything else is downloaded and prepared by TensorFlow Datasets first.
"""

from __future__ import annotations

import dataclasses
import difflib
import pathlib
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow_datasets as tfds

from tfbert.errors import UsageError, first_line

Table = TypeVar("Table")
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
    _prepare(builder, dataset, data_dir)
    return builder


def read_splits(
    builder: tfds.core.DatasetBuilder,
    dataset: str,
    read: Callable[[str], Table | None],
    *,
    with_train: bool = True,
) -> tuple[Table | None, dict[str, Table], list[str]]:
    """Reads the training split and the split or splits to evaluate on.

    Splits to evaluate on are all that begin with `validation` (MNLI has two). If none of them has labels, it is `dev`,
    or else `test`.

    Args:
        builder: Just opened.
        dataset: What messages call it.
        read: Takes a split's name; returns its labelled examples, or None if it has none.
        with_train: Whether to read the training split.

    Returns:
        What `read` returned for `train`; what it returned for the other splits, by name, `dev` as `validation`; and
        what the user should know, one line each.

    Raises:
        UsageError: for a data set without a labelled training split, or without labelled splits if only those are read.
    """
    splits = list(builder.info.splits)
    if with_train and "train" not in splits:
        raise UsageError(
            "A data set needs a train split. "
            f"Received: dataset={dataset!r} with splits {', '.join(splits) or 'none'}. Pass another --dataset."
        )
    notes = []
    train = read("train") if with_train else None
    if with_train and train is None:
        raise UsageError(
            f"Training needs labels. Received: dataset={dataset!r}, whose train split has none. Pass another --dataset."
        )
    candidates = [split for split in splits if split.startswith("validation")]
    validation = {split: table for split in candidates if (table := read(split)) is not None}
    if not validation and "dev" in splits and (table := read("dev")) is not None:
        validation = {"validation": table}
    if not validation and "test" in splits and (table := read("test")) is not None:
        validation = {"test": table}
        notes.append(f"{dataset} has no validation split: evaluating on 'test'")
    if not validation:
        notes.append(f"{dataset} has no labelled split besides 'train': nothing is evaluated during training")
    if not validation and not with_train:
        raise UsageError(
            f"Evaluation needs labels. Received: dataset={dataset!r}, {notes[-1]}. Pass another --dataset."
        )
    return train, validation, notes


def tables_of(
    builder: tfds.core.DatasetBuilder, dataset: str, read: Callable[[str], Noted | None], *, with_train: bool
) -> dict[str, Noted]:
    """What `read_splits` reads, as tables by the names of their splits, `train` first. The first table's notes begin
    with those about the whole data set."""
    train, validation, notes = read_splits(builder, dataset, read, with_train=with_train)
    tables = ({"train": train} if train else {}) | validation
    notes = (f"{dataset} is {builder.info.full_name} of TensorFlow Datasets", *notes)
    first, table = next(iter(tables.items()))
    return tables | {first: dataclasses.replace(table, notes=(*notes, *table.notes))}


def rows_of(
    builder: tfds.core.DatasetBuilder, split: str, wanted: Sequence[str], *, are_scalars: bool = True
) -> Iterator[tuple]:
    """The rows of a split in order; of each row, the values of the wanted features.

    Args:
        builder: The data set's.
        split: Its name.
        wanted: The features.
        are_scalars: Whether each of these has one value per row, so that many rows can be read at a time.
    """
    try:
        data = builder.as_dataset(split=split, read_config=tfds.ReadConfig(try_autocache=False))
    except NotImplementedError:  # prepared as ArrayRecord or Parquet files
        for row in builder.as_data_source(split=split):
            yield tuple(row[column] for column in wanted)
        return
    data = data.map(lambda row: {column: row[column] for column in wanted})
    if not are_scalars:
        for row in tfds.as_numpy(data):
            yield tuple(row[column] for column in wanted)
        return
    for batch in tfds.as_numpy(data.batch(_READ_BATCH)):
        yield from zip(*(batch[column] for column in wanted), strict=True)


def decoded(value: bytes, where: str) -> str:
    """Decodes the text of a row.

    Raises:
        UsageError: for bytes that are not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UsageError(f"Text must be UTF-8. Received: other bytes in {where}. Pass another --text_column.") from None


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
        raise UsageError(
            "A data set is demo or a TensorFlow Datasets name. "
            f"Received: dataset={dataset!r} ({_first_line(error)}). {_suggestion(dataset, data_dir)}"
        ) from None


def _suggestion(dataset: str, data_dir: str) -> str:
    name, _, config = dataset.partition(":")[0].partition("/")
    known = tfds.list_builders(with_community_datasets=False)
    if name in known:
        configs = list(tfds.builder_cls(name).builder_configs)
        near = [f"{name}/{other}" for other in difflib.get_close_matches(config, configs) or configs[:10]]
    else:
        if data_dir:
            known += [path.name for path in pathlib.Path(data_dir).iterdir() if path.is_dir()]
        near = difflib.get_close_matches(name, known)
    names = f"Pass for example {', '.join(near)}" if near else "Check the name"
    return f"{names}, or your own files with --train_file."


def _prepare(builder: tfds.core.DatasetBuilder, dataset: str, data_dir: str) -> None:
    try:
        if builder.is_prepared():
            return
        _refuse_offline(builder)
        builder.download_and_prepare()
    except Exception as error:  # whatever this data set's own code raises
        raise UsageError(
            "A data set must be on disk, or it must be possible to download it. "
            f"Received: dataset={dataset!r}, data_dir={data_dir!r} ({_first_line(error)}). "
            "Prepare it on a connected machine and pass its directory with --data_dir, or pass --train_file."
        ) from error


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
