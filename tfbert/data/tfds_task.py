"""The task that a data set of TensorFlow Datasets is beyond doubt for, by its features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfbert.data.tfds_builder import find_builder
from tfbert.data.tfds_questions import holds_questions
from tfbert.data.tfds_source import text_features
from tfbert.data.tfds_tagged import tag_features
from tfbert.errors import UsageError


def task_of_dataset(
    dataset: str, data_dir: str = "", text_column: Sequence[str] = (), label_column: str = ""
) -> str | None:
    """The only task whose examples a data set can hold: `question_answering` or `token_classification`.

    Args:
        dataset: As for `find_builder`.
        data_dir: As for `find_builder`.
        text_column: The features of texts, or of words, as the user named them.
        label_column: The feature of labels, or of tags, as the user named it.

    Returns:
        None where the features fit texts with a label, or no task, and for an unknown name: reading it says why.
    """
    try:
        builder = find_builder(dataset, data_dir)
    except UsageError:
        return None

    def has(features_of: Callable[..., object]) -> bool:
        try:
            features_of(builder, dataset, text_column, label_column)
        except UsageError:
            return False
        return True

    if has(text_features):
        return None
    if holds_questions(builder):
        return "question_answering"
    return "token_classification" if has(tag_features) else None
