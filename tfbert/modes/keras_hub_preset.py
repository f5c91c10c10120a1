"""`--export_format=keras_hub`: a saved model -> a preset that KerasHub loads."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfbert.config.run import Config
from tfbert.errors import UsageError
from tfbert.model.head import LabelHead, sequence_head
from tfbert.model.keras_hub_writer import check_arithmetic, preset_logits, text_logits, write_preset
from tfbert.model.load import complete_encoder, holds_weights, load_tokenizer, read_encoder, resolve_model
from tfbert.model.weights import get_weights_dict
from tfbert.modes.probe import random_pairs
from tfbert.modes.saved_model import load_trained_model, saved_task
from tfbert.tasks.base import Task
from tfbert.tasks.registry import entry_of
from tfbert.tasks.sets import Examples
from tfbert.tasks.text_task import TextExamples
from tfbert.tasks.trained import TrainedModel
from tfbert.tokens.tokenizer import BertTokenizer

if TYPE_CHECKING:
    from transformers import BertConfig

log = logging.getLogger("tfbert")

_ARCHITECTURE = sequence_head((), has_names=False, problem_type="").architecture


@dataclasses.dataclass(frozen=True, kw_only=True)
class PresetSource:
    """What goes into a preset.

    Attributes:
        tensors: Weights by PyTorch name.
        config: The model's configuration.
        tokenizer: Its tokenizer.
        max_seq_length: Longest input in tokens.
        model: The model with its head; None for an encoder alone.
    """

    tensors: Mapping[str, np.ndarray]
    config: BertConfig
    tokenizer: BertTokenizer
    max_seq_length: int
    model: TrainedModel | None

    def write(self, directory: pathlib.Path) -> None:
        """Writes the preset into a new or empty directory.

        Raises:
            UsageError: as `write_preset`.
        """
        directory.mkdir(parents=True, exist_ok=True)
        write_preset(
            directory,
            self.tensors,
            self.config,
            self.tokenizer,
            max_seq_length=self.max_seq_length,
            has_head=self.model is not None,
        )

    def results(self, directory: pathlib.Path) -> dict[str, Any]:
        """The content of `export_results.json`, for a preset that was written."""
        results: dict[str, Any] = {"format": "keras_hub", "max_seq_length": self.max_seq_length, "weights": "float32"}
        if self.model is not None:
            own = {"num_texts": self.model.num_texts, "label_names": list(self.model.task.label_names)}
            results |= own | {"largest_logit_error": self._logit_error(directory)}
        if other := check_arithmetic(self.config):
            error = f", up to {results['largest_logit_error']:.1g} here" if self.model is not None else ""
            log.warning("KerasHub's BERT computes %s: its numbers differ a little%s.", other, error)
        return results

    def _logit_error(self, directory: pathlib.Path) -> float:
        """The largest difference between KerasHub's logits and the model's, over random pairs of several lengths."""
        assert self.model is not None
        inputs = random_pairs(self.config, self.tokenizer)
        own = self.model.logits({name: tf.constant(value) for name, value in inputs.items()})
        return float(np.abs(preset_logits(directory, inputs) - np.reshape(own, [len(own), -1])).max())


def preset_predictions(directory: pathlib.Path, examples: Examples, *, batch_size: int) -> np.ndarray:
    """What KerasHub predicts from texts: float32 logits `[n, num_classes]`.

    Args:
        directory: A preset with a head.
        examples: The texts or pairs.
        batch_size: Rows that are computed at a time.
    """
    assert isinstance(examples, TextExamples)  # Those of a task with a sequence head.
    columns = [examples.text] if examples.text_pair is None else [examples.text, examples.text_pair]
    return text_logits(directory, columns, batch_size=batch_size)


def source_of(model: TrainedModel) -> PresetSource:
    """What to write for a model.

    Raises:
        UsageError: for a model that KerasHub has no class for.
    """
    _check(model.task)
    has_head = model.task.head().architecture == _ARCHITECTURE
    tensors, config = get_weights_dict(model.classifier), model.classifier.config
    return PresetSource(
        tensors=tensors if has_head else complete_encoder(tensors, config),
        config=config,
        tokenizer=model.tokenizer,
        max_seq_length=model.max_seq_length,
        model=model if has_head else None,
    )


def source_in(config: Config) -> PresetSource:
    """What to write for the model that a configuration names: with its head, or for one that has none, the encoder.

    Raises:
        UsageError: for a directory that holds no model that KerasHub has a class for.
    """
    task, directory = saved_task(config), resolve_model(config.model)
    assert directory is not None  # Config refuses scratch models in this mode.
    _check(task)
    if isinstance(head := task.head(), LabelHead) and holds_weights(directory, head.weight_names):
        return source_of(load_trained_model(config, directory))
    bert_config, tensors = read_encoder(directory)
    log.info("The model has no classifier: a backbone and a tokenizer are written.")
    length = config.data.max_seq_length or bert_config.max_position_embeddings
    tokenizer = load_tokenizer(config.model, directory, training_texts=())
    return PresetSource(tensors=tensors, config=bert_config, tokenizer=tokenizer, max_seq_length=length, model=None)


def _check(task: Task) -> None:
    if task.head().architecture != _ARCHITECTURE and entry_of(task.name).served_class:
        raise UsageError(
            "KerasHub's BERT has a class for labels of texts alone. "
            f"Received: a model for {task.kind}. Export it as a SavedModel."
        )
