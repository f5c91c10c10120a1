"""`--profile_steps`: a TensorBoard profile of a few updates."""

from __future__ import annotations

import logging
import pathlib
import time

import tensorflow as tf

from tfbert.batches.schedule import Schedule
from tfbert.measure.step_clock import StepClock
from tfbert.train.callbacks import StepCallback

log = logging.getLogger("tfbert")


class Profile(StepCallback):
    """Profiles updates `first` to `last`, both included, and nothing beside them.

    Comes after callbacks that evaluate or save: what they do between the profiled updates counts as `other`, and what
    they do before the first one is not in the profile.

    Args:
        schedule: The run in updates.
        steps: First and last update, counted from 1.
        directory: Where the profile goes; made if needed.
        clock: Told how long starting the profiler and writing its files took.
    """

    def __init__(self, schedule: Schedule, steps: tuple[int, int], directory: pathlib.Path, clock: StepClock):
        super().__init__(schedule)
        self._clock = clock
        self._first, self._last = steps
        self._directory, self._is_running = directory, False
        if self._first <= schedule.first_step:
            log.info("steps %s to %s lie before the checkpoint and are not profiled again", *steps)

    def before(self, step: int) -> None:
        if self._is_running and step > self._last:
            self._stop()
        if step == self._first:
            self._wait()
            start = time.perf_counter()
            tf.profiler.experimental.start(str(self._directory))
            self._clock.paused += time.perf_counter() - start
            self._is_running = True

    def end(self) -> None:
        if self._is_running:
            self._stop()

    def close(self) -> None:
        """Stops the profiler where a run was ended inside the profiled steps: a process has only one."""
        if self._is_running:
            self._is_running = False
            tf.profiler.experimental.stop()

    def _stop(self) -> None:
        self._wait()
        start = time.perf_counter()
        self._is_running = False  # Also where its files cannot be written.
        tf.profiler.experimental.stop()
        self._clock.paused += time.perf_counter() - start

    def _wait(self) -> None:
        """Waits until the device has done all its work."""
        self.model.counters.finite_steps.numpy()
