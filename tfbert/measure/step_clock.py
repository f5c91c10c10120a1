"""When each update of a run ended and what it held; every speed that a run reports comes from here. Pure NumPy."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

import numpy as np

from tfbert.measure.flops import Work


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """What the plan says about an update.

    Attributes:
        work: Its examples over all replicas and micro-batches.
        width: The padded length of its batch, in tokens.
    """

    work: Work
    width: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch:
    """Some updates.

    Attributes:
        seconds: Their time, without pauses.
        steps: How many.
        work: What they held.
    """

    seconds: float = 0.0
    steps: int = 0
    work: Work = Work()

    def __add__(self, other: Stretch) -> Stretch:
        return Stretch(
            seconds=self.seconds + other.seconds, steps=self.steps + other.steps, work=self.work + other.work
        )

    @property
    def examples_per_second(self) -> float:
        """Real examples; NaN for no steps."""
        return self.work.examples / self.seconds if self.seconds else float("nan")

    @property
    def tokens_per_second(self) -> float:
        """Real tokens; NaN for no steps."""
        return self.work.tokens / self.seconds if self.seconds else float("nan")


class StepClock:
    """Reads the clock after each update.

    On a CPU an update is done when its call returns. On a GPU, `callbacks.Progress` waits for the previous update
    before each reading: a reading is early by one update, and the time between two readings is that of one update.

    Args:
        planned: What each update holds, from the first one made here; read as far as updates are made.
        warm_up: Updates at the beginning that say nothing about the later speed.
        compiles_widths: Whether a new width is compiled when it first occurs (XLA); else only the first update is.
        clock: Returns seconds; tests replace it.

    Attributes:
        paused: Seconds since the last update that were not training (evaluation, checkpoints); callers add to it.
        total: All updates so far.
        usual: Those that compiled nothing.
        steady: Those of them after the warm-up.
    """

    def __init__(
        self,
        planned: Iterator[PlannedStep],
        *,
        warm_up: int,
        compiles_widths: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._planned, self._warm_up, self._compiles_widths, self._clock = planned, warm_up, compiles_widths, clock
        self._steady_seconds: list[float] = []
        self._compiling_seconds: list[float] = []
        self._widths: set[int] = set()
        self._since = 0.0
        self.paused = 0.0
        self.total = self.usual = self.steady = self._recent = Stretch()

    def start(self) -> None:
        """Call when the first update begins."""
        self._since = self._clock()

    def tick(self) -> None:
        """Call when an update is done."""
        now = self._clock()
        step = next(self._planned)
        compiles = not self._widths or (self._compiles_widths and step.width not in self._widths)
        self._widths.add(step.width)
        this = Stretch(seconds=now - self._since - self.paused, steps=1, work=step.work)
        self._since, self.paused = now, 0.0
        if compiles:
            self._compiling_seconds.append(this.seconds)
        else:
            self.usual += this
            if self.total.steps >= self._warm_up:
                self._steady_seconds.append(this.seconds)
                self.steady += this
        self.total += this
        self._recent += this

    def take_recent(self) -> Stretch:
        """The updates since the last call."""
        recent, self._recent = self._recent, Stretch()
        return recent

    def percentile(self, percent: float) -> float:
        """Seconds that this share of the steady updates stayed below; NaN for none."""
        return float(np.percentile(self._steady_seconds, percent)) if self._steady_seconds else float("nan")

    def compile_seconds(self) -> float:
        """How much longer the updates that traced and compiled took than a usual one; NaN if there is no usual one."""
        usual = self.percentile(50)
        return sum(seconds - usual for seconds in self._compiling_seconds)
