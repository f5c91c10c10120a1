"""A fine-tuned model ready for use: what predictions, exported models and calls from Python share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfbert.batches.masked_records import MaskedRecords
from tfbert.batches.pipeline import EncodedExamples
from tfbert.config.data import TYPED_TEXTS
from tfbert.errors import RunError, UsageError
from tfbert.model.bert_config import check_token_types
from tfbert.model.predictor import Predictor
from tfbert.tasks.base import SAVED_MODEL_WAY_OUT, Task
from tfbert.tasks.sets import Examples

if TYPE_CHECKING:
    from tfbert.bert.pretrained import PreTrainedModel
    from tfbert.tokens.tokenizer import Tokenizer


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
        columns: Those of the data that it was trained on, by the options that name them.
    """

    name: str
    classifier: PreTrainedModel
    tokenizer: Tokenizer
    task: Task
    num_texts: int | None
    max_seq_length: int
    columns: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def logits(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """The logits of a batch's inputs, for a `Predictor`: float32 `[rows, num_labels]`, or
        `[rows, width, num_labels]`; or whatever the task keeps of the model's outputs."""
        outputs = self.task.head().forward(self.classifier, inputs, training)
        return self.task.select_outputs(
            tf.nest.map_structure(lambda output: tf.cast(output, tf.float32), outputs), inputs
        )

    def predictor(self, strategy: tf.distribute.Strategy, rows_per_replica: int) -> Predictor:
        """A predictor with this model, which must have been loaded in the strategy's scope."""
        of_tokens = self.task.reads_tokens
        return Predictor(self.logits, strategy, rows_per_replica=rows_per_replica, of_tokens=of_tokens)

    def encode(self, examples: Examples) -> EncodedExamples | MaskedRecords:
        """Examples as token ids, cut or split as in training."""
        return self.task.encode(examples, self.tokenizer, self.max_seq_length)

    def predict(self, predictor: Predictor, examples: Examples) -> Any:
        """The task's predictions for examples, in their order."""
        return self.task.predict(predictor, self.encode(examples))

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
        todo = f"--text_column={todo}"
        if source == TYPED_TEXTS:
            todo = "a --text_pair for each --text" if self.num_texts == 2 else "--text without --text_pair"
        raise UsageError(
            f"The model was trained on {takes}. Received: {source} with {' and '.join(columns)}. "
            f"Pass {todo}, or a model for {'single texts' if len(columns) == 1 else 'pairs'}."
        )


def check_finite(scores: np.ndarray, ids: Sequence[Any], name: str) -> None:
    """Refuses predictions that are not finite: their labels would look like any others.

    Args:
        scores: The numbers behind predictions, `[n, ...]`.
        ids: What names each example, by its `repr`.
        name: What messages call all examples together.

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
