"""Which task it is: as asked for, as the labels say, or as a saved model says."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from tfbert.config.data import STANDARD_STREAM, DataConfig
from tfbert.data.files import RawData
from tfbert.data.labels import NAMES_OR_MISSING
from tfbert.data.squad import looks_like_squad
from tfbert.data.tagged import looks_tagged
from tfbert.errors import UsageError
from tfbert.model.bert_config import OWN_FIELD
from tfbert.tasks.base import Task
from tfbert.tasks.classes import have_fractions
from tfbert.tasks.classification import Classification
from tfbert.tasks.pretraining import Pretraining
from tfbert.tasks.question_answering import QuestionAnswering
from tfbert.tasks.regression import Regression
from tfbert.tasks.token_classification import TokenClassification

if TYPE_CHECKING:
    from transformers import BertConfig

    from tfbert.config.run import Config
    from tfbert.config.tasks import TaskOptions


def class_words(asked: str) -> Container[str]:
    """The words that stand for a missing label in files and are classes all the same where `--task` says so."""
    return NAMES_OR_MISSING if asked == Classification.name else ()


def settle_task(config: Config) -> Config:
    """The same run with the task named where its training file shows beyond doubt that it is not one of texts."""
    data = config.data
    if data.task != "auto" or not data.train_file:
        return config
    path = pathlib.Path(data.train_file)
    if _holds_questions(path, data):
        task = QuestionAnswering.name
    elif _holds_tags(path, data):
        task = TokenClassification.name
    else:
        return config
    return dataclasses.replace(config, data=dataclasses.replace(data, task=task))


def check_files(task: Task, data: DataConfig, paths: Iterable[str]) -> None:
    """Refuses files that show beyond doubt that they are not for a saved model's task.

    Raises:
        UsageError: naming the first.
    """
    known = {QuestionAnswering.name: _holds_questions, TokenClassification.name: _holds_tags}
    others = {name: holds for name, holds in known.items() if name != task.name}
    # Columns that are chosen may make something else of a file.
    for path in paths if not data.text_column else ():
        for name, holds in others.items():
            if path != STANDARD_STREAM and holds(pathlib.Path(path), data):
                raise UsageError(
                    f"A file must be one for the model's task. Received: {path!r}, which is for "
                    f"{name.replace('_', ' ')}, and a model for {task.kind}. "
                    "Pass a model for it, or another file, or say with --text_column what to read."
                )


def _holds_questions(path: pathlib.Path, data: DataConfig) -> bool:
    return data.input_format == "squad" or (data.input_format == "auto" and looks_like_squad(path))


def _holds_tags(path: pathlib.Path, data: DataConfig) -> bool:
    columns = {"text_column": data.text_column, "label_column": data.label_column}
    return looks_tagged(path, format=data.input_format, **columns)


def choose_task(raw: RawData, asked: str, notes: list[str]) -> Task:
    """The task of training data.

    Args:
        raw: As it was written.
        asked: `--task`.
        notes: Receives a line where the labels decide against what most would expect.

    Raises:
        UsageError: for labels that are none of the task's.
    """
    is_scores = raw.is_regression or (raw.label_names is None and have_fractions(raw.train.labels))
    if asked == "auto" and is_scores:
        notes.append("the labels are numbers with fractions: regression; --task=classification takes them as classes")
        return Regression()
    if asked == Regression.name:
        return Regression()
    return Classification.of_rows(raw.train, raw.label_names, is_asked_for=asked == Classification.name)


def task_of_model(saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Task:
    """The task of a saved model: as its architecture says, else what transformers makes of `problem_type` and the
    number of labels.

    Args:
        saved: Its configuration.
        directory: Where it is, for messages.
        options: Say how its predictions are counted.

    Raises:
        UsageError: for a model of another task, or labels that cannot be told apart.
    """
    architecture = (saved.architectures or [""])[0]
    if saved.problem_type == "multi_label_classification":
        raise UsageError(
            "tfbert's models give one label to each text. "
            f"Received: problem_type={saved.problem_type!r} in {directory / 'config.json'}. Pass another model."
        )
    if architecture.endswith("ForQuestionAnswering"):
        return QuestionAnswering.of_options(options.answering, getattr(saved, OWN_FIELD, None))
    if architecture.endswith(("ForPreTraining", "ForMaskedLM")):
        return Pretraining(next_sentence=architecture.endswith("ForPreTraining"), options=options.pretraining)
    is_tagger = architecture.endswith("ForTokenClassification")
    if not is_tagger and (saved.problem_type == "regression" or saved.num_labels == 1):
        return Regression()
    names = tuple(saved.id2label.get(i, f"LABEL_{i}") for i in range(saved.num_labels))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            "Every label of a model must have a name of its own. "
            f"Received: {twice!r} more than once in id2label of {directory / 'config.json'}. Repair it."
        )
    if is_tagger:
        return TokenClassification(names, strict_entities=options.tagging.strict_entities)
    return Classification(names)
