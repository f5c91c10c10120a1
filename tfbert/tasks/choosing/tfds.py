"""A TensorFlow Datasets name (`race/high`, `ai2_arc/ARC-Challenge`, `super_glue/copa`) -> questions with choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from tfbert.config.data import DataConfig
from tfbert.config.tasks import ChoosingConfig
from tfbert.data.open_file import OpenFile, Row
from tfbert.data.tfds_builder import decoded, open_builder, rows_of, tables_of
from tfbert.errors import UsageError
from tfbert.tasks.choosing.choice_files import OpenQuestions, opened_table, read_questions
from tfbert.tasks.choosing.questions import ChoiceExamples


def read_tfds_choices(
    config: DataConfig, options: ChoosingConfig, *, with_train: bool = True
) -> dict[str, ChoiceExamples]:
    """Reads a data set's training split and the split or splits to evaluate on, as `read_splits` chooses them.

    Its features are the columns of a table, in any of the `forms`; classes stand for their names.

    Args:
        config: Names the data set, and the columns.
        options: Names the columns of choices.
        with_train: Whether to read the training split.

    Returns:
        By the name of the split, `train` first; `validation` for one called `dev`.

    Raises:
        UsageError: for an unknown name, data that is not available, or unsuitable features, splits or questions.
    """
    builder = open_builder(config.dataset, config.data_dir)

    def read(split: str) -> ChoiceExamples | None:
        if not builder.info.splits[split].num_examples:
            return None
        labelled = _with_labels(_opened(builder, split, config, options))
        return None if labelled is None else read_questions(labelled, skip_bad_rows=None)

    return tables_of(builder, config.dataset, read, with_train=with_train)


def holds_choices(builder: tfds.core.DatasetBuilder, config: DataConfig) -> bool:
    """Whether the features of a data set are a question's, its choices and their label."""
    if config.text_column or config.label_column:
        return False
    file = OpenFile(name="", columns=list(builder.info.features), read=lambda wanted: iter(()))
    try:
        return opened_table(file, config).has_labels
    except UsageError:
        return False


def _opened(
    builder: tfds.core.DatasetBuilder, split: str, config: DataConfig, options: ChoosingConfig
) -> OpenQuestions:
    features = dict(builder.info.features.items())
    name = f"{config.dataset} {split!r}"

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        known = [column for column in wanted if column in features]
        for number, values in enumerate(rows_of(builder, split, known, are_scalars=False), start=1):
            where = f"{name}, example {number}"
            try:
                found = {
                    column: _plain(value, features[column], where) for column, value in zip(known, values, strict=True)
                }
            except UsageError as error:
                yield number, error
            else:
                yield number, [found.get(column) for column in wanted]

    file = OpenFile(name=name, columns=list(features), read=read, unit="example")
    return opened_table(file, config, choice_columns=options.choice_columns)


def _with_labels(opened: OpenQuestions) -> OpenQuestions | None:
    """The same; None where no question has a label, as where they are held back."""
    rows = list(opened.rows)
    is_labelled = any(isinstance(one, UsageError) or one.label is not None or one.index is not None for _, one in rows)
    return dataclasses.replace(opened, rows=iter(rows)) if is_labelled else None


def _plain(value: Any, feature: Any, where: str) -> Any:
    """A feature's value as JSON would hold it: text, numbers, lists and objects."""
    value = value.to_list() if hasattr(value, "to_list") else value  # Lists of lists.
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if int(value) >= 0 else None
    if isinstance(feature, tfds.features.FeaturesDict):
        return {key: _plain(value[key], feature[key], where) for key in feature}
    inner = getattr(feature, "feature", None)
    if isinstance(inner, tfds.features.FeaturesDict):  # A sequence of objects is an object of sequences.
        return {key: [_plain(one, inner[key], where) for one in value[key]] for key in inner}
    if inner is not None:
        return [_plain(one, inner, where) for one in value]
    if isinstance(value, bytes):
        return decoded(value, where)
    if isinstance(value, np.ndarray) and value.ndim:
        return [_plain(one, None, where) for one in value]
    return value.item() if isinstance(value, np.generic | np.ndarray) else value
