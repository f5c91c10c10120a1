"""Where a run's numbers go: the screen, `log.jsonl`, and TensorBoard on request. Only the chief has any of them."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import pathlib
from typing import Any, TextIO

from tqdm.contrib.logging import logging_redirect_tqdm

from tfbert.devices.waiting import is_watched, terminal_width
from tfbert.errors import RunError
from tfbert.output.bars import bar
from tfbert.output.output_dir import write_text

log = logging.getLogger("tfbert")

_BAR = "{percentage:3.0f}%|"
_WAY_OUT = "Free space there and start again."


class RunLog:
    """Takes records of numbers, each at a step.

    Args:
        directory: The run's output directory; with None, writes and shows nothing (workers other than the chief).
        total_steps: Updates of the whole run.
        first_step: Updates made by earlier starts of the run.
        tensorboard: Also write TensorBoard event files to `directory/tensorboard`.
    """

    def __init__(
        self, directory: pathlib.Path | None, *, total_steps: int, first_step: int = 0, tensorboard: bool = False
    ):
        self._is_silent = directory is None
        self._path = None if directory is None else directory / "log.jsonl"
        self._file = None if directory is None else _open_at(self._path, first_step)
        self._summary = None
        if directory is not None and tensorboard:
            import tensorflow as tf

            self._summary = tf.summary.create_file_writer(str(directory / "tensorboard"))
        self._first_step, self._total_steps = first_step, total_steps
        self._bar = None
        self._above_bar = contextlib.ExitStack()

    def record(self, step: int, kind: str, numbers: dict[str, float]) -> None:
        """Writes one record.

        Args:
            step: Updates made so far.
            kind: `train`, `eval` or `test`.
            numbers: By name; evaluation metrics carry their prefix.
        """
        if self._is_silent:
            return
        entry = {"step": step, "kind": kind, "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds")}
        try:
            self._file.write(json.dumps(entry | numbers) + "\n")
            self._file.flush()
            self._path.stat()  # Writing to a deleted file raises no error.
        except OSError as error:
            raise RunError(f"The log must be writable. Received: {self._path} ({error.strerror}). {_WAY_OUT}") from None
        if self._summary is not None:
            self._write_summary(step, kind, numbers)

    def advance(self, step: int, text: str) -> None:
        """Moves the progress bar to `step`; where nobody watches, logs a line instead.

        The bar appears with the first call: earlier lines would run into an empty bar. Later lines, whoever logs them,
        are printed above it.
        """
        if self._is_silent:
            return
        if not is_watched():
            log.info("%s", text)
            return
        if not log.isEnabledFor(logging.INFO):
            return
        if self._bar is None:
            self._bar = bar(total=self._total_steps, initial=self._first_step, bar_format=_BAR + "{bar}| {desc}")
            self._above_bar.enter_context(logging_redirect_tqdm())
        self._bar.set_description_str(_fitted(text, terminal_width()), refresh=False)
        self._bar.update(step - self._bar.n)

    def close(self) -> None:
        """Ends the bar and the files."""
        self._above_bar.close()
        for part in (self._bar, self._file, self._summary):
            if part is not None:
                # `record` has reported a full disk; a second error would replace the first.
                with contextlib.suppress(OSError):
                    part.close()

    def _write_summary(self, step: int, kind: str, numbers: dict[str, Any]) -> None:
        import tensorflow as tf

        with self._summary.as_default(step=step):
            for name, value in numbers.items():
                tf.summary.scalar(f"{kind}/{name.removeprefix(kind + '_')}", value)
            self._summary.flush()


def _open_at(path: pathlib.Path, step: int) -> TextIO:
    """Opens a log to continue after `step`, without the steps that an earlier start logged beyond its checkpoint.

    Raises:
        RunError: if it cannot be written; its content stays.
    """
    kept, damaged = [], 0
    if step and path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:  # A kill leaves a last line without its end.
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line.decode() + "\n")
            except (ValueError, KeyError, TypeError):
                damaged += 1
    if damaged:
        log.warning("%d damaged lines left out of %s", damaged, path)
    write_text(path, "".join(kept))
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise RunError(f"The log must be writable. Received: {path} ({error.strerror}). {_WAY_OUT}") from None


def _fitted(text: str, width: int) -> str:
    """The fields of a text, which two spaces part, without those that a terminal would cut off: the last one, the time
    that is left, stays."""
    fields = text.split("  ")
    while len(fields) > 2 and 0 < width < len(_BAR.format(percentage=0) + "| ") + len("  ".join(fields)):
        del fields[-2]
    return "  ".join(fields)


def clock_text(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
