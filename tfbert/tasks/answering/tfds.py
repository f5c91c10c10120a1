"""A TensorFlow Datasets name (`squad`, `squad/v2.0`) -> tables of questions with their answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from tfbert.config.data import DataConfig
from tfbert.data.tfds_builder import decoded, open_builder, rows_of, tables_of
from tfbert.errors import UsageError
from tfbert.tasks.answering.question_rows import question_table
from tfbert.tasks.answering.questions import Place, QuestionTable

_TEXTS = ("id", "question", "context")
_WANTED = (*_TEXTS, "answers")


def read_tfds_questions(
    dataset: str, data_dir: str = "", *, version_2_with_negative: bool = False, with_train: bool = True
) -> dict[str, QuestionTable]:
    """Reads a data set's training split and the split or splits to evaluate on, as `read_splits` chooses them.

    Its features are those of `squad`: `id`, `question`, `context`, `answers` (a sequence of `text` and `answer_start`),
    and perhaps `is_impossible`, as in 2.0.

    Args:
        dataset: `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        data_dir: Directory of prepared data. Empty: TensorFlow Datasets' default.
        version_2_with_negative: Whether a question may have no answer.
        with_train: Whether to read the training split.

    Returns:
        By the name of the split, `train` first; `validation` for one called `dev`.

    Raises:
        UsageError: for an unknown name, data that is not available, or unsuitable features, splits or questions.
    """
    builder = open_builder(dataset, data_dir)
    features = list(builder.info.features)
    if not holds_questions(builder):
        raise UsageError(
            "Question answering needs a data set with the features of squad: id, question, context and answers. "
            f"Received: dataset={dataset!r} with {', '.join(sorted(features))}. Pass --dataset=squad, or --train_file."
        )
    wanted = [*_WANTED, *(["is_impossible"] if "is_impossible" in features else [])]

    def read(split: str) -> QuestionTable | None:
        if not builder.info.splits[split].num_examples:
            return None
        return question_table(
            f"{dataset} {split!r}",
            _read_split(builder, dataset, split, wanted),
            place_names=("example",),
            version_2_with_negative=version_2_with_negative,
            skip_bad_rows=None,
        )

    return tables_of(builder, dataset, read, with_train=with_train)


def holds_questions(builder: tfds.core.DatasetBuilder, config: DataConfig | None = None) -> bool:
    """Whether a data set has the features of `squad`."""
    features = dict(builder.info.features.items())
    answers = features.get("answers")
    is_list = isinstance(answers, tfds.features.Sequence) and isinstance(answers.feature, tfds.features.FeaturesDict)
    return is_list and set(_TEXTS) <= set(features) and {"text", "answer_start"} <= set(answers.feature.keys())


def _read_split(
    builder: tfds.core.DatasetBuilder, dataset: str, split: str, wanted: list[str]
) -> Iterator[tuple[Place, dict[str, Any] | UsageError]]:
    for number, values in enumerate(rows_of(builder, split, wanted, are_scalars=False), start=1):
        row = dict(zip(wanted, values, strict=True))
        where = f"{dataset} {split!r}, example {number}"
        try:
            found = {name: _text(row[name], where) for name in _TEXTS}
            texts = [_text(text, where) for text in row["answers"]["text"]]
        except UsageError as error:
            yield (number,), error
            continue
        found["answers"] = {"text": texts, "answer_start": [int(start) for start in row["answers"]["answer_start"]]}
        if "is_impossible" in row:
            found["is_impossible"] = bool(row["is_impossible"])
        yield (number,), found


def _text(value: bytes | str, where: str) -> str:
    return decoded(value, where) if isinstance(value, bytes) else value
