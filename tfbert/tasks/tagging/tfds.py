"""A TensorFlow Datasets name (`conll2003`, `wikiann/en`) -> tables of tagged sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow_datasets as tfds

from tfbert.config.counted import counted
from tfbert.config.data import DataConfig
from tfbert.data.columns import find_tag_columns, in_data
from tfbert.data.open_file import OpenFile, Row
from tfbert.data.tfds_builder import decoded, open_builder, rows_of, tables_of
from tfbert.errors import UsageError
from tfbert.tasks.tagging.list_rows import sentences_of_rows
from tfbert.tasks.tagging.tagged import TaggedTable


def read_tfds_tagged(
    dataset: str,
    data_dir: str = "",
    text_column: Sequence[str] = (),
    label_column: str = "",
    *,
    with_train: bool = True,
) -> dict[str, TaggedTable]:
    """Reads a data set's training split and the split or splits to evaluate on, as `read_splits` chooses them.

    A sentence with a negative tag is unlabelled. Unlabelled sentences and sentences without words are left out; notes
    count both.

    Args:
        dataset: `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        data_dir: Directory of prepared data. Empty: TensorFlow Datasets' default.
        text_column: The feature of the words, a list of strings. Empty: found by name.
        label_column: The feature of the tags, a list of classes, strings or integers. Empty: found by name.
        with_train: Whether to read the training split.

    Returns:
        By the name of the split, `train` first; `validation` for one called `dev`.

    Raises:
        UsageError: for an unknown name, data that is not available, or unsuitable features, splits or rows.
    """
    builder = open_builder(dataset, data_dir)
    words, tags = tag_features(builder, dataset, text_column, label_column)

    def read(split: str) -> TaggedTable | None:
        return _read_split(builder, dataset, split, words, tags)

    return tables_of(builder, dataset, read, with_train=with_train)


def holds_tags(builder: tfds.core.DatasetBuilder, config: DataConfig) -> bool:
    """Whether a data set has lists of words and of their tags, by names given or usual."""
    try:
        tag_features(builder, config.dataset, config.text_column, config.label_column)
    except UsageError:
        return False
    return True


def tag_features(
    builder: tfds.core.DatasetBuilder, dataset: str, text_column: Sequence[str], label_column: str
) -> tuple[str, str]:
    """Chooses the features of words and tags by name, or because no other feature is possible.

    Raises:
        UsageError: where there are no such features, or several that could be meant.
    """
    lists = {
        name: feature.feature
        for name, feature in builder.info.features.items()
        if isinstance(feature, tfds.features.Sequence) and isinstance(feature.feature, tfds.features.Tensor)
    }
    lists = {name: feature for name, feature in lists.items() if feature.shape == () and _kind(feature) in "Oiu"}
    strings = [name for name, feature in lists.items() if _kind(feature) == "O"]
    classes = [name for name, feature in lists.items() if isinstance(feature, tfds.features.ClassLabel)]
    text_column, label_column = in_data(text_column, [*lists]), "".join(in_data([label_column], [*lists]))
    words, tags = find_tag_columns(
        f"dataset={dataset!r}",
        sorted(lists),
        text_column=text_column or (strings if len(strings) == 1 else ()),
        label_column=label_column or (classes[0] if len(classes) == 1 else ""),
    )
    if words not in strings:
        raise UsageError(
            f"Words must be strings. Received: {words!r} of dataset={dataset!r}. "
            f"Pass --text_column with one of {', '.join(strings) or 'another data set'}."
        )
    return words, tags


def _read_split(
    builder: tfds.core.DatasetBuilder, dataset: str, split: str, words: str, tags: str
) -> TaggedTable | None:
    """The labelled sentences of a split; None if there are none."""
    feature = builder.info.features[tags].feature
    names = tuple(feature.names) if isinstance(feature, tfds.features.ClassLabel) and feature.names else None
    name = f"{dataset} {split!r}"
    left_out = {"unlabelled": 0, "empty": 0}

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        for number, row in enumerate(rows_of(builder, split, wanted, are_scalars=False), start=1):
            own_words, own_tags = (list(map(_plain, value)) for value in row)
            if not own_words:
                left_out["empty"] += 1
            elif any(type(tag) is int and tag < 0 for tag in own_tags):
                left_out["unlabelled"] += 1
            else:
                where = f"{name}, example {number}"
                texts = ([decoded(v, where) if isinstance(v, bytes) else v for v in c] for c in (own_words, own_tags))
                yield number, list(texts)

    file = OpenFile(name=name, columns=[words, tags], read=read, unit="example")
    sentences = []
    for sentence in sentences_of_rows(file, words, tags, names, ()):
        if isinstance(sentence, UsageError):
            raise sentence
        sentences.append(sentence)
    if not sentences:
        return None
    return TaggedTable(
        name=name,
        words=[sentence.words for sentence in sentences],
        tags=[sentence.tags for sentence in sentences],
        lines=[sentence.line for sentence in sentences],
        unit="example",
        columns={"text_column": (words,), "label_column": (tags,)},
        notes=tuple(
            f"{name}: {counted(count, f'{what} sentence')} left out" for what, count in left_out.items() if count
        ),
    )


def _plain(value: bytes | str | np.generic) -> bytes | str | int:
    """NumPy's integers as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _kind(feature: tfds.features.FeatureConnector) -> str:
    return np.dtype(feature.np_dtype).kind
