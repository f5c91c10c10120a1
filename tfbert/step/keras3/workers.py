"""Several workers that train together: which of them writes, and whether they begin alike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfbert.step.keras3.private import without_writing

_OF_THE_CHIEF = (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.CSVLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.RemoteMonitor,
)
"""Callbacks that only write; their files would be the same on all workers."""


def num_workers_of(strategy: tf.distribute.Strategy) -> int:
    """Processes that a strategy spans."""
    resolver = strategy.cluster_resolver
    jobs = resolver.cluster_spec().as_dict() if resolver is not None else {}
    return max(1, sum(len(jobs.get(job, ())) for job in ("chief", "worker")))


def callbacks_of(callbacks: Any, strategy: tf.distribute.Strategy, check: Callable[[], None]) -> Any:
    """The callbacks for `fit` on this worker: all on the chief; on the others those that do not only write, and
    `BackupAndRestore` for reading. One that compares the workers before the first step comes last.

    Args:
        callbacks: As given to `fit`.
        strategy: Of several workers.
        check: Compares them.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    given = [] if callbacks is None else keras.tree.flatten(callbacks)
    if not _is_chief(strategy):
        given = [each for each in map(_on_others, given) if each is not None]
    return [*given, BeginAlike(check)]


def _is_chief(strategy: tf.distribute.Strategy) -> bool:
    resolver = strategy.cluster_resolver
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_type == "chief" or (resolver.task_id == 0 and not has_chief)


def _on_others(callback: Any) -> Any:
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        return without_writing(copy.copy(callback))
    return None if isinstance(callback, _OF_THE_CHIEF) else callback


class BeginAlike(keras.callbacks.Callback):
    """Compares the workers before the first step, after the callbacks that restore.

    Args:
        check: Does so.
    """

    def __init__(self, check: Callable[[], None]):
        super().__init__()
        self._check = check

    def on_train_begin(self, logs: Any = None) -> None:
        self._check()
