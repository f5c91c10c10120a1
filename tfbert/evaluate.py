"""Predictions for a whole set of examples, in their order, under any strategy; and the metrics over all of them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras as keras

from tfbert.data.pipeline import EncodedExamples, distribute_batches
from tfbert.data.plan import FILL, exact_widths, plan_in_order_of_length
from tfbert.metrics import compute_metrics

ROWS_PER_REPLICA = 32
"""Rows that a replica predicts at a time."""


class Predictor:
    """Runs a model's forward pass over whole data sets.

    Args:
        model: Returns float32 `[rows, num_labels]` for a batch's inputs; created under `strategy`.
        strategy: Where it runs. Every worker must take part, and every worker gets all predictions.
        pad_id: Token id of the padding.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy, *, pad_id: int):
        self._strategy = strategy
        self._pad_id = pad_id

        # Takes the iterator, whose shapes are unknown, and not a batch: each width would be traced anew.
        @tf.function
        def predict(batches):
            logits = strategy.run(lambda inputs, *_: model(inputs, training=False), args=next(batches))
            return strategy.gather(logits, axis=0)

        self._predict = predict

    def logits(self, examples: EncodedExamples) -> np.ndarray:
        """float32 `[num_examples, num_labels]`, in the order of the examples, whatever order they ran in."""
        rows = ROWS_PER_REPLICA * self._strategy.num_replicas_in_sync
        lengths = examples.tokens.lengths
        plan = plan_in_order_of_length(lengths, global_batch_size=rows, allowed_widths=exact_widths(lengths))
        batches = iter(distribute_batches(self._strategy, examples, lambda: iter([plan]), pad_id=self._pad_id))
        parts = [self._predict(batches).numpy() for _ in range(len(plan))]
        predicted = np.concatenate(parts)
        order = plan.rows.reshape(-1)
        out = np.empty((len(examples), predicted.shape[1]), np.float32)
        out[order[order != FILL]] = predicted[order != FILL]
        return out


def evaluate(predictor: Predictor, examples: EncodedExamples, task: str, prefix: str = "eval") -> dict[str, float]:
    """The task's metrics over all predictions, named `prefix_metric`."""
    return measure(task, predictor.logits(examples), examples.labels, prefix)


def measure(task: str, logits: np.ndarray, labels: np.ndarray, prefix: str) -> dict[str, float]:
    """The task's metrics over predictions that are there already, named likewise."""
    return {f"{prefix}_{name}": value for name, value in compute_metrics(task, logits, labels).items()}
