"""A fine-tuned model as its directory describes it: task, labels, single texts or pairs, and longest input.

Training writes what transformers has no name for into `config.json` under `tfbert`, so it stays with the model.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import EncodedExamples
from tfbert.config.run import Config
from tfbert.data.foreign_files import read_json_object
from tfbert.devices.waiting import said_if_slow
from tfbert.errors import RunError, UsageError
from tfbert.model.bert_config import OWN_FIELD, check_token_types, record_inputs
from tfbert.model.load import build_model, load_config, load_tokenizer, resolve_model
from tfbert.model.predictor import Predictor
from tfbert.output.output_dir import RUN_CONFIG
from tfbert.tasks.base import SAVED_MODEL_WAY_OUT, Examples, Task
from tfbert.tasks.choose import task_of_model

if TYPE_CHECKING:
    from transformers import BertConfig, TFBertPreTrainedModel

    from tfbert.tokens.tokenizer import BertTokenizer

log = logging.getLogger("tfbert")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A saved model, ready for use.

    Attributes:
        name: The directory or hub name, for messages.
        classifier: The model.
        tokenizer: Its tokenizer.
        task: The model's task, with its classes.
        num_texts: 1 for single texts, 2 for pairs; None if the directory does not say.
        max_seq_length: Longest input in tokens.
    """

    name: str
    classifier: TFBertPreTrainedModel
    tokenizer: BertTokenizer
    task: Task
    num_texts: int | None
    max_seq_length: int

    def logits(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """The logits of a batch's inputs, for a `Predictor`: float32 `[rows, num_labels]`, or
        `[rows, width, num_labels]`; or whatever the task keeps of the model's outputs."""
        outputs = self.task.head().forward(self.classifier, inputs, training)
        return self.task.kept(tf.nest.map_structure(lambda output: tf.cast(output, tf.float32), outputs), inputs)

    def predictor(self, strategy: tf.distribute.Strategy, rows_per_replica: int) -> Predictor:
        """A predictor with this model, which must have been loaded in the strategy's scope."""
        of_tokens = self.task.reads_tokens
        return Predictor(self.logits, strategy, rows_per_replica=rows_per_replica, of_tokens=of_tokens)

    def encode(self, examples: Examples) -> EncodedExamples:
        """Examples as token ids, cut or split as in training."""
        return self.task.encode(examples, self.tokenizer, self.max_seq_length)

    def predict(self, predictor: Predictor, examples: Examples) -> Any:
        """The task's predictions for examples, in their order."""
        return self.task.predict(predictor, self.encode(examples))

    def check_finite(self, predictions: Any, ids: Sequence[Any], name: str) -> None:
        """Refuses predictions that are not finite: their labels would look like any others.

        Args:
            predictions: The task's predictions.
            ids: The names of the examples.
            name: What messages call all examples together.

        Raises:
            RunError: for the first prediction that is not finite.
        """
        check_finite(self.task.scores(predictions), ids, name)

    def check_texts(self, columns: Sequence[str], source: str) -> None:
        """Checks that data holds as many texts in each row as the model was trained on.

        Raises:
            UsageError: for pairs if the model takes single texts, and the reverse.
        """
        if self.num_texts is None:
            check_token_types(self.classifier.config, len(columns))
        if self.num_texts in (None, len(columns)):
            return
        takes, todo = ("pairs of texts", "FIRST,SECOND") if self.num_texts == 2 else ("single texts", "COLUMN")
        raise UsageError(
            f"The model was trained on {takes}. Received: {source} with {' and '.join(columns)}. "
            f"Pass --text_column={todo}, or a model for {'single texts' if len(columns) == 1 else 'pairs'}."
        )


def check_finite(scores: np.ndarray, ids: Sequence[Any], name: str) -> None:
    """As `TrainedModel.check_finite`, for the numbers behind predictions, `[n, ...]`.

    Raises:
        RunError: for the first that is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=tuple(range(1, scores.ndim))))
    if len(bad):
        which = f"id {ids[bad[0]]!r}" if len(scores) == len(ids) else "a row"
        raise RunError(
            f"Predictions must be finite. Received: {str(scores[bad[0]]):.60} for {which} of {name}. "
            f"{SAVED_MODEL_WAY_OUT}."
        )


def check_can(task: Task, known: Container[str], mode: str) -> None:
    """Refuses a mode that does not exist for the model's task.

    Args:
        task: The model's task.
        known: The names of the tasks that have the mode.
        mode: The mode.

    Raises:
        UsageError: for a model that was only pre-trained.
    """
    if task.name not in known:
        raise UsageError(
            f"--mode={mode} is for models that were fine-tuned. Received: a model for {task.kind}. "
            "Fine-tune it first, or fill in words with tfbert.load(DIRECTORY)."
        )


def saved_task(config: Config) -> Task:
    """The task of the model that a configuration names, without its weights.

    Raises:
        UsageError: for a directory that holds no fine-tuned model.
    """
    directory = resolve_model(config.model)
    assert directory is not None  # Config refuses scratch models in these modes.
    return task_of_model(load_config(directory), directory, config.task_options)


def load_trained_model(config: Config, directory: pathlib.Path | None = None) -> TrainedModel:
    """Loads the model that a configuration names; call it in the strategy's scope.

    The longest input is the one asked for, else the one the model was trained with, else the task's default.

    Args:
        config: In a mode that uses a saved model.
        directory: What `resolve_model` returned for it; None to call it.

    Raises:
        UsageError: for a directory that holds no fine-tuned model.
    """
    directory = directory or resolve_model(config.model)
    assert directory is not None  # Config refuses scratch models in these modes.
    saved = load_config(directory)
    task = task_of_model(saved, directory, config.task_options)
    task.check_options(config)
    trained = _trained_on(saved, directory)
    length, notes = _max_seq_length(config, trained, saved, task), []
    task = task.at_length(length, config.task_options, notes)
    for note in notes:
        log.info("%s", note)
    tokenizer = load_tokenizer(config.model, directory, training_texts=())
    with said_if_slow("loading the weights"):
        classifier = build_model(
            config.model,
            directory,
            tokenizer=tokenizer,
            head=task.head(),
            max_seq_length=length,
            seed=config.runtime.seed,
            require_head=True,
        )
    num_texts = trained.get("num_texts")
    record_inputs(classifier.config, num_texts=num_texts, max_seq_length=length, **task.notes())
    return TrainedModel(
        name=config.model.model_name_or_path,
        classifier=classifier,
        tokenizer=tokenizer,
        task=task,
        num_texts=num_texts,
        max_seq_length=length,
    )


def _trained_on(saved: BertConfig, directory: pathlib.Path) -> dict[str, Any]:
    """`num_texts` and `max_seq_length`, if the directory gives them."""
    noted = getattr(saved, OWN_FIELD, None) or {}
    found = {name: noted[name] for name in ("num_texts", "max_seq_length") if noted.get(name) is not None}
    try:
        data = read_json_object(directory / RUN_CONFIG, "").get("data")
    except UsageError:  # It does not exist, or is another program's.
        return found
    if isinstance(data, dict):
        length, columns = data.get("max_seq_length"), data.get("text_column")
        if type(length) is int and length > 1:
            found.setdefault("max_seq_length", length)
        if isinstance(columns, list) and len(columns) in (1, 2):
            found.setdefault("num_texts", len(columns))
    return found


def _max_seq_length(config: Config, trained: dict[str, Any], saved: BertConfig, task: Task) -> int:
    asked, own = config.data.max_seq_length, trained.get("max_seq_length")
    if asked is not None:
        beside = f", as asked; the model was trained with {own}" if own not in (None, asked) else ""
        log.info("Inputs are at most %d tokens long%s.", asked, beside)
        return asked
    if own is not None:
        log.info("Inputs are at most %d tokens long, as in training.", own)
        return own
    length = min(task.default_max_seq_length, saved.max_position_embeddings)
    log.info("Inputs are at most %d tokens long; the model does not say what it was trained with.", length)
    return length
