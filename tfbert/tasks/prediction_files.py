"""Writes predictions: tables, JSON lines or a GLUE submission. A file appears under its name only when it is whole."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

import numpy as np

from tfbert.config.parts import PredictConfig
from tfbert.data.endings import PREDICTED_TEXTS, TABLES, Formats
from tfbert.errors import ReaderGone, RunError, UsageError
from tfbert.output import output_dir
from tfbert.tasks.base import Task

Line = Callable[[Iterable[Any]], str]
"""The values of a row -> a line of a table."""


def output_format(asked: PredictConfig) -> str:
    """`tsv`, `csv` or `jsonl`: the user's choice, or by the file's ending.

    Raises:
        UsageError: for another ending.
    """
    return chosen_format(asked, PREDICTED_TEXTS, default="tsv")


def chosen_format(asked: PredictConfig, formats: Formats, *, default: str) -> str:
    """The format of predictions: the user's choice, or by the file's ending.

    Args:
        asked: Names the file, and perhaps the format.
        formats: The possible ones.
        default: The format on standard output, but for texts that were given one by one: they are answered in JSON.

    Raises:
        UsageError: for another ending or another format.
    """
    if asked.output_format in formats:
        return asked.output_format
    name = pathlib.Path(asked.output_file).name.lower().removesuffix(".gz")
    found = [format for format, known in formats.items() if name.endswith(known)]
    if asked.output_format == "auto" and (found or asked.output_file == "-"):
        on_screen = "jsonl" if asked.text else default
        return found[0] if asked.output_file != "-" else on_screen
    if asked.output_format != "auto":
        raise UsageError(
            f"Predictions of this model are written as {_either(formats)}. "
            f"Received: output_format={asked.output_format!r}. Pass one of them."
        )
    endings = _either(known[0] for known in formats.values())
    raise UsageError(
        f"An output file ends in {endings}, also with .gz. Received: output_file={asked.output_file!r}. "
        "Rename it, or pass --output_format."
    )


def _either(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def standard_output() -> TextIO:
    """Standard output, to write predictions to.

    Raises:
        UsageError: if it is closed: Python would silently drop what is written.
    """
    if sys.stdout is None:
        raise UsageError(
            "Standard output must be open to write predictions to it. Received: output_file='-' with it closed. "
            "Pass --output_file=FILE, or run the command without >&-."
        )
    return sys.stdout


class PredictionFile:
    """Writes one line per example. Use it in a `with` block: the file appears when the block ends without an error.

    Args:
        path: The file to write; None: standard output, or nothing.
        is_writer: Whether to write at all.
    """

    def __init__(self, path: pathlib.Path | None, *, is_writer: bool = True):
        self._path, self._is_writer = path, is_writer
        self._partial = None if path is None else path.with_name(f".{path.name}.partial")
        self._file: TextIO | None = None

    def __enter__(self) -> PredictionFile:
        try:
            with self._as_run_error():
                self._open()
            self._write_lines(self._header())
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        try:
            if error is None:
                self._write_lines(self._last_lines())
                with self._as_run_error():
                    self._complete()
        finally:
            self._give_up()

    def write(self, ids: Sequence[Any], outputs: np.ndarray) -> None:
        """Writes one line for each example.

        Args:
            ids: The name of each.
            outputs: The model's, `[n, num_labels]`.

        Raises:
            RunError: if it cannot be written.
        """
        self._write_lines(self._lines(ids, outputs))

    def _header(self) -> Iterable[str]:
        return ()

    def _last_lines(self) -> Iterable[str]:
        return ()

    def _lines(self, ids: Sequence[Any], outputs: np.ndarray) -> Iterable[str]:
        raise NotImplementedError

    def _write_lines(self, lines: Iterable[str]) -> None:
        if self._file is not None:
            with self._as_run_error():
                self._file.writelines(f"{line}\n" for line in lines)

    def _open(self) -> None:
        if not self._is_writer:
            return
        if self._path is None:
            self._file = standard_output()
            if hasattr(self._file, "reconfigure"):
                self._file.reconfigure(encoding="utf-8", errors="backslashreplace")
            return
        output_dir.make(self._path.parent)
        opener = gzip.open if self._path.suffix.lower() == ".gz" else open
        self._partial.unlink(missing_ok=True)  # Left by a killed run, or a link: nothing must be written through it.
        # JSON can bring a lone surrogate into an id: it is written as \udc80 rather than ending the run.
        self._file = opener(self._partial, "xt", encoding="utf-8", errors="backslashreplace", newline="\n")

    def _complete(self) -> None:
        """Flushes the file to the disk and gives it its name."""
        if self._file is None:
            return
        if self._path is None:
            self._file.flush()
        else:
            self._file.close()  # Writes the rest: the disk may turn out to be full only now.
            with self._partial.open("rb") as file:
                os.fsync(file.fileno())
            self._partial.replace(self._path)
        self._file = None

    def _give_up(self) -> None:
        """Removes an unfinished file, so that it takes no space; does nothing after `_complete`."""
        file, self._file = self._file, None
        if file is None:
            return
        if self._path is None:  # What was written stays written.
            with contextlib.suppress(RunError), self._as_run_error():
                file.flush()
            return
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _as_run_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._path is None:
                _drop_standard_output()
            if isinstance(error, BrokenPipeError):
                raise ReaderGone from None
            name = "standard output" if self._path is None else repr(str(self._path))
            raise RunError(
                f"Predictions must be writable. Received: {name} ({error.strerror}). "
                "Check free space and permissions there."
            ) from None


class _TaskFile(PredictionFile):
    """A file in one of our own formats."""

    def __init__(self, path: pathlib.Path | None, task: Task, *, is_writer: bool):
        super().__init__(path, is_writer=is_writer)
        self._task = task


class _TableFile(_TaskFile):
    """`id` and the task's columns."""

    def __init__(self, path: pathlib.Path | None, task: Task, *, is_writer: bool, line: Line):
        super().__init__(path, task, is_writer=is_writer)
        self._line = line

    def _header(self) -> Iterable[str]:
        return [self._line(["id", *self._task.columns()])]

    def _lines(self, ids: Sequence[Any], outputs: np.ndarray) -> Iterable[str]:
        rows = zip(ids, self._task.rows(outputs), strict=True)
        return (self._line([i, *map(_value, row)]) for i, row in rows)


class _JsonFile(_TaskFile):
    """One object per line: `id` and the task's fields of a prediction."""

    def _lines(self, ids: Sequence[Any], outputs: np.ndarray) -> Iterable[str]:
        objects = zip(ids, self._task.objects(outputs), strict=True)
        return (json.dumps({"id": i} | value, ensure_ascii=False) for i, value in objects)


def open_predictions(path: pathlib.Path | None, format: str, task: Task, *, is_writer: bool) -> PredictionFile:
    """Opens a file of predictions.

    Args:
        path: The file to write; None: standard output.
        format: `tsv`, `csv` or `jsonl`.
        task: The task that makes the predictions.
        is_writer: Whether to write at all.
    """
    if format in TABLES:
        return _TableFile(path, task, is_writer=is_writer, line=line_of(format))
    return _JsonFile(path, task, is_writer=is_writer)


def _drop_standard_output() -> None:
    """Discards what is left in its buffer; else the interpreter would fail again when it flushes the buffer at exit."""
    if sys.stdout is not sys.__stdout__:  # It belongs to a notebook or a test.
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def line_of(format: str) -> Line:
    """How a row of a table is written, `tsv` or `csv`, without the end of the line.

    In a .tsv, tabs and line ends, which only CSV and JSON input can contain, are written as `\\t`, `\\n` and `\\r`;
    backslashes, as of paths, stay as they are. A .csv holds them in quotes.
    """
    return _csv_line if format == "csv" else _tsv_line


def _tsv_line(values: Iterable[Any]) -> str:
    cells = (str(value).replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r") for value in values)
    return "\t".join(cells)


def _csv_line(values: Iterable[Any]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\r\n").writerow(values)  # These ends decide what is quoted.
    return file.getvalue().removesuffix("\r\n")


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.7g}"
