"""A TensorFlow Datasets name (`glue/sst2`, `imdb_reviews`) -> tables of texts and labels.

Data prepared on disk is read without a network; anything else is downloaded and prepared by TensorFlow Datasets first.
"""

from __future__ import annotations

import difflib
import pathlib
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from tfbert.data.columns import find_columns
from tfbert.data.files import RawData, RawTable
from tfbert.data.labels import NAMES_OR_MISSING, is_missing
from tfbert.data.rows import OpenFile, Row
from tfbert.errors import UsageError, first_line

_READ_BATCH = 4096


def read_tfds(
    dataset: str,
    data_dir: str = "",
    text_column: Sequence[str] = (),
    label_column: str = "",
    *,
    with_train: bool = True,
) -> RawData:
    """Reads a data set's training split and the split or splits to evaluate on.

    These are all that begin with `validation` (MNLI has two) or, where there is none, `test`. A row labelled -1 is
    unlabelled, as in GLUE and SNLI, and is left out.

    Args:
        dataset: `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        data_dir: Where prepared data is or goes. Empty: TensorFlow Datasets' default.
        text_column: One text feature, or two for pairs. Empty: found by name.
        label_column: Empty: found by name.
        with_train: Whether to read the training split.

    Raises:
        UsageError: for an unknown name, data that cannot be had, or features or splits that do not serve.
    """
    builder = _builder(dataset, data_dir)
    _prepare(builder, dataset, data_dir)
    splits = list(builder.info.splits)
    if with_train and "train" not in splits:
        raise UsageError(
            "A data set needs a train split. "
            f"Received: dataset={dataset!r} with splits {', '.join(splits) or 'none'}. Pass another --dataset."
        )
    texts, label = _columns(builder, dataset, text_column, label_column)
    notes = []

    def read(split: str) -> RawTable | None:
        table, num_unlabelled = _read_split(builder, dataset, split, texts, label)
        if num_unlabelled and len(table):
            notes.append(f"{table.name}: {num_unlabelled:,} unlabelled examples left out")
        return table if len(table) else None

    train = read("train") if with_train else None
    if with_train and train is None:
        raise UsageError(
            f"Training needs labels. Received: dataset={dataset!r}, whose train split has none. Pass another --dataset."
        )
    candidates = [split for split in splits if split.startswith("validation")]
    validation = {split: table for split in candidates if (table := read(split)) is not None}
    if not validation and "test" in splits and (table := read("test")) is not None:
        validation = {"test": table}
        notes.append(f"{dataset} has no validation split: evaluating on 'test'")
    if not validation:
        notes.append(f"{dataset} has no labelled split besides 'train': nothing is evaluated during training")
    if not validation and not with_train:
        raise UsageError(
            f"Evaluation needs labels. Received: dataset={dataset!r}, {notes[-1]}. Pass another --dataset."
        )
    feature = builder.info.features[label]
    names = tuple(feature.names) if isinstance(feature, tfds.features.ClassLabel) else None
    return RawData(
        train=train,
        validation=validation,
        label_names=names,
        is_regression=names is None and _kind(feature) == "f",
        notes=(f"{dataset} is {builder.info.full_name} of TensorFlow Datasets", *notes),
    )


def open_tests(dataset: str, data_dir: str = "", text_column: Sequence[str] = ()) -> dict[str, OpenFile]:
    """The splits called `test` (MNLI has two), labelled or not, to be read row by row.

    Args:
        dataset: As for `read_tfds`.
        data_dir: Likewise.
        text_column: Likewise.

    Returns:
        By the split's name. The columns are the text or texts, then `idx`, GLUE's own number of an example.

    Raises:
        UsageError: for an unknown name, data that cannot be had, or features or splits that do not serve.
    """
    builder = _builder(dataset, data_dir)
    _prepare(builder, dataset, data_dir)
    splits = [split for split in builder.info.splits if split.startswith("test")]
    if not splits or "idx" not in builder.info.features:
        raise UsageError(
            "Prediction for a data set needs a test split and the feature idx. "
            f"Received: dataset={dataset!r} without. Pass a GLUE task, or --input_file."
        )
    texts, _ = _columns(builder, dataset, text_column, "")

    def opened(split: str) -> OpenFile:
        def read(wanted: Sequence[str]) -> Iterator[Row]:
            for number, row in enumerate(_rows(builder, split, list(wanted)), start=1):
                yield number, [value.decode() if isinstance(value, bytes) else int(value) for value in row]

        return OpenFile(name=f"{dataset} {split!r}", columns=[*texts, "idx"], read=read, unit="example")

    return {split: opened(split) for split in splits}


def _builder(dataset: str, data_dir: str) -> tfds.core.DatasetBuilder:
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
    if builder.is_prepared():
        return
    try:
        _refuse_offline(builder)
        builder.download_and_prepare()
    except Exception as error:  # whatever this data set's own code raises
        raise UsageError(
            "A data set must be on disk or to be downloaded. "
            f"Received: dataset={dataset!r}, data_dir={data_dir!r} ({_first_line(error)}). "
            "Prepare it on a connected machine and pass its directory with --data_dir, or pass --train_file."
        ) from error


def _refuse_offline(builder: tfds.core.DatasetBuilder) -> None:
    """Asks for the hosts' addresses first: the downloader tries each file for three minutes before it gives up."""
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


def _columns(
    builder: tfds.core.DatasetBuilder, dataset: str, text_column: Sequence[str], label_column: str
) -> tuple[tuple[str, ...], str]:
    """Chooses text and label features by name, or where there is only one string or one class feature, that one."""
    scalars = {
        name: feature
        for name, feature in builder.info.features.items()
        if isinstance(feature, tfds.features.Tensor) and feature.shape == ()
    }
    strings = [name for name, feature in sorted(scalars.items()) if _kind(feature) == "O"]
    classes = [name for name, feature in scalars.items() if isinstance(feature, tfds.features.ClassLabel)]
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
    """The labelled rows of a split, and how many others there were."""
    feature = builder.info.features[label]
    name = f"{dataset} {split!r}"
    columns: list[list[str]] = [[] for _ in texts]
    labels: list[str] = []
    lines: list[int] = []
    num_rows = 0
    for row in _rows(builder, split, [*texts, label]):
        num_rows += 1
        raw_label = _label_text(feature, row[-1], f"{name}, example {num_rows}")
        if raw_label is None:
            continue
        for column, value, out in zip(texts, row, columns, strict=False):
            out.append(_decode(value, f"{column!r} of {name}, example {num_rows}"))
        labels.append(raw_label)
        lines.append(num_rows)
    if set(labels) in ({"-1"}, {"-1.0"}):  # numbers without class names: -1 is a value unless there is no other
        columns, labels, lines = [[] for _ in texts], [], []
    table = RawTable(
        name=name,
        text_columns=tuple(texts),
        text=columns[0],
        text_pair=columns[1] if len(texts) == 2 else None,
        labels=labels,
        lines=lines,
        unit="example",
    )
    return table, num_rows - len(lines)


def _rows(builder: tfds.core.DatasetBuilder, split: str, wanted: Sequence[str]) -> Iterator[tuple]:
    try:
        data = builder.as_dataset(split=split, read_config=tfds.ReadConfig(try_autocache=False))
    except NotImplementedError:  # prepared as ArrayRecord or Parquet files
        for row in builder.as_data_source(split=split):
            yield tuple(row[column] for column in wanted)
        return
    data = data.map(lambda row: {column: row[column] for column in wanted}).batch(_READ_BATCH)
    for batch in tfds.as_numpy(data):
        yield from zip(*(batch[column] for column in wanted), strict=True)


def _label_text(feature: tfds.features.FeatureConnector, value: Any, where: str) -> str | None:
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else None
    kind = _kind(feature)
    if kind == "O":
        text = _decode(value, where).strip()
        return None if is_missing(text, NAMES_OR_MISSING) else text
    return str(bool(value)).lower() if kind == "b" else str(value)


def _decode(value: bytes, where: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UsageError(f"Text must be UTF-8. Received: other bytes in {where}. Pass another --text_column.") from None


def _kind(feature: tfds.features.FeatureConnector) -> str:
    """NumPy's letter: O string, b boolean, i and u integer, f float."""
    return np.dtype(feature.np_dtype).kind


def _first_line(error: Exception) -> str:
    # Without what TensorFlow Datasets puts before it: Failed to construct dataset "glue", builder_kwargs ...
    return first_line(str(error).split('}": ')[-1].strip().rstrip(":") or type(error).__name__).rstrip(":")
