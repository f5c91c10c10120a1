"""Progress of a long pass over a corpus: sentences per second, and the time that is left."""

from __future__ import annotations

import logging
import time

import tqdm

from tfbert.output.logs import clock_text, is_terminal

log = logging.getLogger("tfbert")

_SECONDS_BETWEEN_LINES = 10.0


class PassProgress:
    """A bar on a terminal, else a log line now and then.

    Args:
        what: What is being done.
        total: The total work, in any unit.
    """

    def __init__(self, what: str, total: int):
        self._what, self._total = what, max(1, total)
        self._done = self.sentences = 0
        self._start = self._reported = time.perf_counter()
        self._bar = (
            tqdm.tqdm(total=self._total, desc=what, dynamic_ncols=True, bar_format=_BAR) if is_terminal() else None
        )

    @property
    def seconds(self) -> float:
        """Seconds since the pass began."""
        return time.perf_counter() - self._start

    def advance(self, units: int, sentences: int) -> None:
        """Adds work that is done."""
        self._done += units
        self.sentences += sentences
        rate = f"{self.sentences / max(self.seconds, 1e-9):,.0f} sentences/s"
        now = time.perf_counter()
        if self._bar is not None:
            self._bar.set_postfix_str(rate, refresh=False)
            self._bar.update(units)
        elif now - self._reported >= _SECONDS_BETWEEN_LINES:
            self._reported = now
            left = self.seconds * (self._total / max(1, self._done) - 1)
            log.info("%s: %.0f%%, %s, %s left", self._what, 100 * self._done / self._total, rate, clock_text(left))

    def close(self) -> None:
        """Ends the bar, and says how long it took."""
        if self._bar is not None:
            self._bar.close()
        rate = self.sentences / max(self.seconds, 1e-9)
        log.info(
            "%s: %s sentences in %s, %s a second",
            self._what,
            f"{self.sentences:,}",
            clock_text(self.seconds),
            f"{rate:,.0f}",
        )


_BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}"
