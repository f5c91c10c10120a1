"""When a run writes checkpoints, and how it ends where a signal or a callback asks for that."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfbert.errors import Preempted
from tfbert.output.callback import Reports
from tfbert.train.callbacks import Evaluate, Progress, StepCallback
from tfbert.train.checkpoint import RunState
from tfbert.train.resume import how_to_resume

if TYPE_CHECKING:
    from tfbert.train.build import Run

_UPDATES_BETWEEN_QUESTIONS = 5


class Save(StepCallback):
    """Writes checkpoints, on schedule and when the run is asked to stop. Comes after `Evaluate`, whose state it saves.

    Args:
        run: Its identity, how often it is saved, and how it is resumed.
        progress: Told how long saving took.
        evaluation: Whose state is saved; None without evaluation.
        is_stopped: Whether a signal asked this worker to stop. Several workers check together, and only every few
            updates, because each check waits for all of them.
        reports: Told of each checkpoint; a user's callbacks, too, may end the run.
    """

    def __init__(
        self,
        run: Run,
        progress: Progress,
        evaluation: Evaluate | None,
        is_stopped: Callable[[], bool],
        reports: Reports,
    ):
        super().__init__(run.schedule)
        self._run, self._progress, self._evaluation, self._is_stopped = run, progress, evaluation, is_stopped
        self._reports = reports
        self._ask_every = _UPDATES_BETWEEN_QUESTIONS if run.consensus.has_peers else 1
        self._seconds: list[float] = []
        self._bytes = 0

    def costs(self) -> dict[str, float]:
        """How many checkpoints this start wrote, their mean seconds and the bytes of the last; empty if none."""
        if not self._seconds:
            return {}
        mean = round(statistics.fmean(self._seconds), 3)
        return {"checkpoints": len(self._seconds), "checkpoint_seconds": mean, "checkpoint_bytes": self._bytes}

    def on_step(self, step: int) -> None:
        if step == self.schedule.total_steps or self.model.stop_training:
            return
        any_of_us, reports = self._run.consensus.any, self._reports
        is_stopping = step % self._ask_every == 0 and any_of_us(self._is_stopped() or reports.asks_to_end)
        has_failed = is_stopping and any_of_us(reports.failed is not None)
        every = self._run.config.output.save_steps
        if is_stopping or (every and step % every == 0):
            self._save(step)
        if not is_stopping:
            return
        who = f" by {reports.who_asks}" if reports.who_asks else ""
        how = f"checkpoint saved; {how_to_resume(self._run.config, self._run.directory)}"
        if has_failed:
            raise reports.error(f"The run ended after step {step} of {self.schedule.total_steps}; {how}")
        raise Preempted(f"stopped after step {step} of {self.schedule.total_steps}{who}; {how}")

    def save_last(self) -> None:
        """Writes the state after the last update, from which a longer run goes on."""
        step = int(self.model.optimizer.iterations.numpy())
        self._run.checkpoints.save_last(self.model, self._state(step, of_longer_run=True))

    def _state(self, step: int, **options: bool) -> RunState:
        evaluated = self._evaluation.state(**options) if self._evaluation else {}
        identity = dataclasses.asdict(self._run.identity)
        return RunState(step=step, identity=identity, logged=self._progress.logged, **evaluated)

    def _save(self, step: int) -> None:
        self.model.counters.finite_steps.numpy()  # As in `Evaluate`.
        start = time.perf_counter()
        self._bytes = self._run.checkpoints.save(self.model, self._state(step))
        self._seconds.append(time.perf_counter() - start)
        self._reports.saved(step, {"checkpoint_seconds": self._seconds[-1], "checkpoint_bytes": float(self._bytes)})
        self._progress.steps.paused += time.perf_counter() - start
