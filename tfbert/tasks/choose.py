"""Decides the task: the one the user names, the one that fits the labels, or the one of a saved model."""

from __future__ import annotations

import pathlib
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from tfbert.config.data import DataConfig, is_pipe
from tfbert.data.certain_task import HOLDS
from tfbert.data.files import RawData
from tfbert.data.labels import NAMES_OR_MISSING
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

    from tfbert.config.tasks import TaskOptions


def class_words(asked: str) -> Container[str]:
    """The words that usually stand for a missing label in files, but are classes with the given `--task`."""
    return NAMES_OR_MISSING if asked == Classification.name else ()


def check_files(task: Task, data: DataConfig, paths: Iterable[str]) -> None:
    """Refuses files that are certainly not for a saved model's task.

    Raises:
        UsageError: naming the first such file.
    """
    others = {name: holds for name, holds in HOLDS.items() if name != task.name}
    # If the user chooses columns, the file may well fit another task.
    for path in paths if not data.text_column else ():
        for name, holds in others.items():
            if not is_pipe(path) and holds(pathlib.Path(path), data):
                raise UsageError(
                    f"A file must fit the model's task. Received: {path!r}, which is for "
                    f"{name.replace('_', ' ')}, and a model for {task.kind}. "
                    "Pass a model for that task, or another file, or the columns to read with --text_column."
                )


def choose_task(raw: RawData, asked: str, notes: list[str]) -> Task:
    """The task of training data.

    Args:
        raw: As it was written.
        asked: `--task`.
        notes: Receives a line if the labels lead to a task that the user may not expect.

    Raises:
        UsageError: for labels that do not fit the task.
    """
    is_scores = raw.is_regression or (raw.label_names is None and have_fractions(raw.train.labels))
    if asked == "auto" and is_scores:
        notes.append("the labels have fractions, so this is regression; --task=classification takes them as classes")
        return Regression()
    if asked == Regression.name:
        return Regression()
    return Classification.of_rows(raw.train, raw.label_names, is_asked_for=asked == Classification.name)


def task_of_model(saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Task:
    """The task of a saved model: the one of its architecture, or else what transformers concludes from `problem_type`
    and the number of labels.

    Args:
        saved: Its configuration.
        directory: Where it is, for messages.
        options: They decide how its predictions are scored.

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
        masked = options.pretraining.with_masking(getattr(saved, OWN_FIELD, None))
        return Pretraining(next_sentence=architecture.endswith("ForPreTraining"), options=masked)
    is_tagger = architecture.endswith("ForTokenClassification")
    if not is_tagger and (saved.problem_type == "regression" or saved.num_labels == 1):
        return Regression()
    names = tuple(saved.id2label.get(i, f"LABEL_{i}") for i in range(saved.num_labels))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            "Every label of a model must have a different name. "
            f"Received: {twice!r} more than once in id2label of {directory / 'config.json'}. Repair it."
        )
    if is_tagger:
        return TokenClassification(names, strict_entities=options.tagging.strict_entities)
    return Classification(names)
