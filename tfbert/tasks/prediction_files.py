"""The files of `--mode=predict`: rows that are read as items of a model, and the answers to them, as tables, JSON lines
and other forms. A file of answers appears under its name only when it is whole."""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import datetime
import decimal
import functools
import gzip
import io
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from tfbert.config.data import STANDARD_STREAM, TYPED_TEXTS
from tfbert.config.parts import PredictConfig
from tfbert.config.run import Config
from tfbert.data.endings import TEXTS, Formats
from tfbert.data.files import find_columns
from tfbert.data.open_file import BadRows, OpenFile, Row
from tfbert.data.rows import input_source, open_rows, source_format
from tfbert.errors import ReaderGone, RunError, UsageError
from tfbert.output import output_dir
from tfbert.tasks.base import rounded
from tfbert.tasks.items import Items

Line = Callable[[Iterable[Any]], str]
"""The values of a row -> a line of a table."""
Answered = Iterable[tuple[Any, dict[str, Any]]]
"""Items, each with its record."""
Lines = Callable[[Answered], Iterator[str]]
"""All items with their records, as they are predicted -> the lines of a file."""

_ID_NAMES = ("id", "idx", "index", "guid")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """An input of `--mode=predict`, just opened, and where the answers go.

    Attributes:
        name: What messages call the input.
        columns: Those that are read, by the options that name them; empty where there is no choice.
        rows: The place of each row in words, and the row, or the error that says why it has none.
        read: Makes an item of the model's items, a row, its number from 0 and its place.
        texts: The columns of texts; empty where the input is no table of texts.
        path: The file of answers; None for standard output.
        format: Of the answers, one of `FORMATS`.
        lines: Another way to write them; for a model whose labels do not fit, it raises a UsageError.
        doubts: What looks like a mistake in the first items, one line each.
        notes: What the user should know at the end, one line each.
    """

    name: str
    columns: Mapping[str, tuple[str, ...]]
    rows: Iterable[tuple[str, Any]]
    read: Callable[[Items, Any, int, str], Any]
    texts: Sequence[str] = ()
    path: pathlib.Path | None
    format: str
    lines: Callable[[Items], Lines] | None = None
    doubts: Callable[[list[Any]], list[str]] = lambda items: []
    notes: Callable[[], list[str]] = list

    def writer(self, items: Items) -> Lines:
        """How answers are written.

        Raises:
            UsageError: for a model that does not fit the input, or its form of answers.
        """
        if self.texts:
            items.check_columns(self.texts, self.name)
        return self.lines(items) if self.lines else functools.partial(FORMATS[self.format], items)

    def items(self, items: Items, bad_rows: BadRows) -> Iterator[Any]:
        """The rows as items of a model.

        Raises:
            UsageError: for a row that cannot be read and may not be skipped.
        """

        def checked(place: tuple[int, str], row: Any) -> Any:
            number, where = place
            item = self.read(items, row, number, where)
            bad_rows.note_bytes(item.texts, where)
            return item

        numbered = (((number, where), row) for number, (where, row) in enumerate(self.rows))
        return bad_rows.usable(numbered, checked)


def table_job(
    config: Config,
    file: OpenFile,
    texts: Sequence[str] = (),
    *,
    check: Callable[[Any, str], None] = lambda name, where: None,
    **options: Any,
) -> Job:
    """The job of a table of texts.

    Args:
        config: Names the columns, and the output.
        file: Just opened.
        texts: Its text column, or the two of pairs; if empty, they are found by their names.
        check: Raises a UsageError for an id that cannot be used; takes it and its place.
        options: Fields of `Job`; `path` is by default the one asked for.

    Raises:
        UsageError: for a column that does not exist, if no column or several could be meant, or if standard output is
            closed.
    """
    asked, id_column = config.predict, config.predict.id_column
    check_id_column(id_column, file.name, file.columns)
    others = [column for column in file.columns if column != id_column]
    if not texts:  # Several columns may look like labels: predict has no --label_column.
        texts, _ = find_columns(
            file.name, others, text_column=config.data.text_column, find_label=False, hint=file.hint
        )
    id_column = id_column or usual_id_column([column for column in others if column not in texts])

    def rows() -> Iterator[tuple[str, Any]]:
        for line, row in file.read([*texts, *([id_column] if id_column else [])]):
            yield f"{file.name}, {file.unit} {line}", row

    def read(items: Items, row: list[Any], number: int, where: str) -> Any:
        item = items.row(dict(zip(texts, row, strict=False)), where)
        item.name = row_id(row[-1], id_column, where) if id_column else number
        check(item.name, where)
        return item

    if "path" not in options:
        options["path"] = output_path(asked)
    chosen = {"text_column": tuple(texts)} if len(file.columns) > len(texts) else {}
    return Job(name=file.name, columns=chosen, rows=rows(), read=read, texts=texts, **options)


def typed_texts(asked: PredictConfig, names: Sequence[str] = ("text", "text_pair")) -> OpenFile:
    """The texts of `--text`, and of `--text_pair` if there are any, as a file of rows.

    Args:
        asked: Holds them.
        names: What to call the two columns.
    """
    given = (asked.text, asked.text_pair) if asked.text_pair else (asked.text,)
    columns = dict(zip(names, given, strict=False))

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        rows = zip(*(columns[name] for name in wanted), strict=True)
        return ((number, list(row)) for number, row in enumerate(rows, 1))

    return OpenFile(name=TYPED_TEXTS, columns=[*columns], read=read, unit="text")


def open_text_file(config: Config) -> OpenFile:
    """Opens the file or stream of texts to predict, or takes those of the command line.

    Raises:
        UsageError: for input that cannot be opened.
    """
    if config.predict.text:
        return typed_texts(config.predict)
    source, data = input_source(config.predict.input_file), config.data
    return open_rows(source, source_format(source, data, TEXTS, "text"), header=data.header, delimiter=data.separator)


def check_id_column(id_column: str, name: str, columns: Sequence[str]) -> None:
    """Refuses a column of ids that the input does not have; an empty name, for no column, is fine.

    Raises:
        UsageError: naming the input's columns.
    """
    if id_column and columns.count(id_column) != 1:
        raise UsageError(
            f"id_column must be a column of the input. Received: id_column={id_column!r} for {name} with columns "
            f"{', '.join(map(repr, columns[:20]))}. Pass one of them, or none."
        )


def usual_id_column(columns: Sequence[str]) -> str:
    """The one column with a usual name for ids; empty if there is none, or several."""
    usual = [column for column in columns if column.strip().lower() in _ID_NAMES]
    return usual[0] if len(usual) == 1 else ""


def row_id(value: Any, column: str, where: str) -> str | int | float:
    """The id in a form that both .tsv and JSON can hold."""
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):  # From .parquet.
        return str(value)
    if isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UsageError(
        f"An id must be a word, a number or a date. Received: {column}={value!r:.60} in {where}. "
        "Repair or drop the row, or pass another --id_column."
    )


def output_path(asked: PredictConfig) -> pathlib.Path | None:
    """Where predictions go; None for standard output.

    Raises:
        UsageError: if standard output is closed; found now, not after the model has been loaded.
    """
    if asked.output_file != STANDARD_STREAM:
        return pathlib.Path(asked.output_file)
    standard_output()
    return None


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


def write_predictions(path: pathlib.Path | None, lines: Iterable[str], *, is_writer: bool = True) -> None:
    """Writes lines as they are made. A file appears under its name when it is whole.

    Args:
        path: The file to write; None: standard output.
        lines: Without their ends.
        is_writer: Whether to write at all; the lines are made in any case.

    Raises:
        RunError: if they cannot be written.
    """
    if not is_writer:
        collections.deque(lines, maxlen=0)
        return
    file, partial = None, None if path is None else path.with_name(f".{path.name}.partial")
    try:
        with _as_run_error(path):
            file = _opened(path, partial)
        for line in lines:  # An error in making one is no error of writing.
            with _as_run_error(path):
                file.write(f"{line}\n")
        with _as_run_error(path):
            if path is None:
                file.flush()
                return
            file.close()  # Writes the rest: the disk may turn out to be full only now.
            with partial.open("rb") as written:
                os.fsync(written.fileno())
            partial.replace(path)
    except BaseException:
        if file is not None and path is None:  # What was written stays written.
            with contextlib.suppress(RunError), _as_run_error(path):
                file.flush()
        elif file is not None:  # An unfinished file takes no space.
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        raise


def _opened(path: pathlib.Path | None, partial: pathlib.Path | None) -> TextIO:
    # JSON can bring a lone surrogate into an id: it is written as \udc80 rather than ending the run.
    if path is None:
        file = standard_output()
        if hasattr(file, "reconfigure"):
            file.reconfigure(encoding="utf-8", errors="backslashreplace")
        return file
    output_dir.make(path.parent)
    partial.unlink(missing_ok=True)  # Left by a killed run, or a link: nothing must be written through it.
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(partial, "xt", encoding="utf-8", errors="backslashreplace", newline="\n")


@contextlib.contextmanager
def _as_run_error(path: pathlib.Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if path is None:
            _drop_standard_output()
        if isinstance(error, BrokenPipeError):
            raise ReaderGone from None
        name = "standard output" if path is None else repr(str(path))
        raise RunError(
            f"Predictions must be writable. Received: {name} ({error.strerror}). "
            "Check free space and permissions there."
        ) from None


def _drop_standard_output() -> None:
    """Discards what is left in its buffer; else the interpreter would fail again when it flushes the buffer at exit."""
    if sys.stdout is not sys.__stdout__:  # It belongs to a notebook or a test.
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _json_lines(items: Items, answers: Answered) -> Iterator[str]:
    """One object per line: `id`, and the record."""
    for item, record in answers:
        yield json.dumps({"id": item.name} | record, ensure_ascii=False, default=rounded)


def _table(line: Line, items: Items, answers: Answered) -> Iterator[str]:
    """`id` and the task's columns."""
    yield line(["id", *items.columns()])
    for item, record in answers:
        for cells in items.cells(item, record):
            yield line([item.name, *map(_cell, cells)])


def _tsv_line(values: Iterable[Any]) -> str:
    """Tabs and line ends, which only CSV and JSON input can contain, are written as `\\t`, `\\n` and `\\r`;
    backslashes, as of paths, stay as they are. A .csv holds them in quotes."""
    cells = (str(value).replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r") for value in values)
    return "\t".join(cells)


def _csv_line(values: Iterable[Any]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\r\n").writerow(values)  # These ends decide what is quoted.
    return file.getvalue().removesuffix("\r\n")


def _cell(value: Any) -> Any:
    return f"{value:.7g}" if isinstance(value, np.float32) else value


def _conll(items: Items, answers: Answered) -> Iterator[str]:
    """The lines of the input, each with its predicted tag."""
    return (item.written.with_column(record["tags"]).removesuffix("\n") for item, record in answers)


def _squad(items: Items, answers: Answered) -> Iterator[str]:
    """One object, id -> answer, as in SQuAD's `predictions.json`; one question per line."""
    before = "{"
    for item, record in answers:
        yield before
        before = json.dumps({str(item.name): record["answer"]}, ensure_ascii=False)[1:-1] + ","
    yield before.removesuffix(",")
    yield "}"


FORMATS = {
    "jsonl": _json_lines,
    "conll": _conll,
    "squad": _squad,
    "tsv": functools.partial(_table, _tsv_line),
    "csv": functools.partial(_table, _csv_line),
}
"""Items of a model, and these with their records -> the lines of a file."""
