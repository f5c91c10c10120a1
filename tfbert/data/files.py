"""Files of examples -> texts and labels as written: .tsv, .csv, .jsonl and .parquet, read row by row.

Parsing stops here; what a label means is for `sources`. Every complaint names the file and the line.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import math
import pathlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfbert.data.columns import find_columns
from tfbert.errors import UsageError

SUFFIXES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
Rows = Callable[[Sequence[str]], Iterator[tuple[int, list[Any]]]]
"""Given the wanted columns: each row's line number and its values in those columns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawTable:
    """Texts and labels as they were written.

    Attributes:
        name: Where they came from, for messages.
        text_columns: One name, or two for pairs.
        text: The texts, or the first of each pair.
        text_pair: The second of each pair; None for single texts.
        labels: As text (`1`, `true`, `entailment`), one a row, None where a row has none; None without a label column.
        lines: Each row's position from 1: the line it starts on, or its number.
        unit: What `lines` counts: `line` or `row`.
    """

    name: str
    text_columns: tuple[str, ...]
    text: list[str]
    text_pair: list[str] | None
    labels: list[str | None] | None
    lines: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.text)

    def where(self, row: int) -> str:
        """What messages call row `row`, counted from 0."""
        return f"{self.name}, {self.unit} {self.lines[row]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawData:
    """All tables of one data set, before the meaning of the labels is settled.

    Attributes:
        train: To train on.
        validation: Name -> to evaluate on during training.
        test: To evaluate on once, at the end.
        label_names: As the data set itself defines them; None: to be found from the training labels.
        is_regression: Whether the data set itself says that its labels are measurements.
        notes: What the user should know, one line each.
    """

    train: RawTable
    validation: dict[str, RawTable]
    test: RawTable | None = None
    label_names: tuple[str, ...] | None = None
    is_regression: bool = False
    notes: tuple[str, ...] = ()


def read_file(
    path: str | pathlib.Path,
    *,
    text_column: Sequence[str] = (),
    label_column: str = "",
    header: bool = True,
    require_label: bool = True,
) -> RawTable:
    """Reads a file of examples.

    TSV fields are separated by tabs, and quotes in them are plain characters, as in GLUE. CSV follows RFC 4180. JSON
    has one object a line. Blank lines are skipped; blanks around labels are dropped.

    Args:
        path: Names the format by its ending: .tsv, .csv, .jsonl, .json or .parquet, all but the last also with .gz.
        text_column: One column, or two for pairs; empty: found by name. Without a header, indexes from 0.
        label_column: Likewise.
        header: Whether a .tsv or .csv file starts with its columns' names.
        require_label: Whether every row must have a label. If not, a file without a label column is fine.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there or cannot be found, or a bad row.
    """
    path = pathlib.Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_gzip = suffixes[-1:] == [".gz"]
    suffix = "".join(suffixes[-2:-1] if is_gzip else suffixes[-1:])
    if suffix not in SUFFIXES or (is_gzip and suffix == ".parquet"):
        raise UsageError(
            f"A data file ends in {', '.join(SUFFIXES)}, all but the last also with .gz. "
            f"Received: {str(path)!r}. Convert or rename it."
        )
    if not header and suffix not in (".tsv", ".csv"):
        raise UsageError(f"Only .tsv and .csv files can lack a header. Received: {str(path)!r}. Drop --noheader.")
    if suffix in (".tsv", ".csv"):
        columns, rows = _open_delimited(path, header, _tsv_records if suffix == ".tsv" else _csv_records)
    elif suffix == ".parquet":
        columns, rows = _open_parquet(path)
    else:
        columns, rows = _open_json_lines(path)
    texts, label = find_columns(
        str(path),
        columns,
        text_column=text_column,
        label_column=label_column,
        require_label=require_label,
        hint=", or indexes with --noheader where the file has no header" if suffix in (".tsv", ".csv") else "",
    )
    unit = "row" if suffix == ".parquet" else "line"
    wanted = [*texts, label] if label else list(texts)
    values: list[list] = [[] for _ in wanted]
    lines = []
    for line, row in rows(wanted):
        where = f"{path}, {unit} {line}"
        for column, value, out in zip(wanted, row, values, strict=True):
            out.append(
                _label_text(value, column, where, require_label) if column == label else _text(value, column, where)
            )
        lines.append(line)
    if not lines:
        raise UsageError(f"A data file needs at least one example. Received: {str(path)!r} with none. Check the path.")
    return RawTable(
        name=str(path),
        text_columns=texts,
        text=values[0],
        text_pair=values[1] if len(texts) == 2 else None,
        labels=values[-1] if label else None,
        lines=lines,
        unit=unit,
    )


def _text(value: Any, column: str, where: str) -> str:
    if not isinstance(value, str):
        received = "none" if value is None else f"{value!r:.60}"
        raise UsageError(
            f"Every row needs a text, as a string. Received: {received} for {column!r} in {where}. Repair or drop it."
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"Text must be valid Unicode. Received: half a surrogate pair in {where}. Repair or drop the row."
            ) from None
    return value


def _label_text(value: Any, column: str, where: str, is_required: bool) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isnan(value):
        value = None  # as pandas writes a missing label
    if value is not None and not isinstance(value, str | int | float):
        raise UsageError(
            "A label must be a word, a number, true or false. "
            f"Received: {column}={value!r:.60} in {where}. Pass another --label_column."
        )
    text = "" if value is None else str(value).strip()
    if not text and is_required:
        raise UsageError(f"Every row needs a label. Received: none for {column!r} in {where}. Add it or drop the row.")
    return text or None


def _lines(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Each line with its number from 1. Only a line feed ends a line: text may hold other Unicode separators."""
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"Data files must be UTF-8. Received: byte {error.object[error.start]:#04x} in {path}, line {number}. "
            "Convert it, for example with iconv."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(
            f"A .gz file must be whole. Received: {path}, broken after line {number} ({error}). Copy it again."
        ) from None
    except OSError as error:
        raise UsageError(
            f"A data file must be readable. Received: {str(path)!r} ({error.strerror}). Check the path."
        ) from None


def _tsv_records(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in _lines(path):
        line = line.removesuffix("\n").removesuffix("\r")
        if line.strip(" "):
            yield number, line.split("\t")


def _csv_records(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    # The limit is 128 KiB unless raised; a review may be longer.
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    start = 1
    try:
        for record in reader:
            if record and (len(record) > 1 or record[0].strip(" ")):
                yield start, record
            start = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(
            "CSV must follow RFC 4180: a field with commas, quotes or line ends stands in double quotes. "
            f"Received: {error} in the row of {path}, line {start}. Repair the row, or save as .tsv."
        ) from None


def _open_delimited(path: pathlib.Path, header: bool, read: Callable) -> tuple[list[str], Rows]:
    _, first = next(read(path), (0, None))
    if first is None:
        raise UsageError(f"A data file needs at least one example. Received: {str(path)!r}, empty. Check the path.")
    columns = first if header else [str(index) for index in range(len(first))]

    def rows(wanted: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        indexes = [columns.index(column) for column in wanted]
        records = read(path)
        if header:
            next(records)
        for line, record in records:
            if len(record) != len(columns):
                raise UsageError(
                    f"Every row must have {len(columns)} columns, as the first one. "
                    f"Received: {len(record)} in {path}, line {line}. Repair or drop the row."
                )
            yield line, [record[index] for index in indexes]

    return columns, rows


def _open_json_lines(path: pathlib.Path) -> tuple[list[str], Rows]:
    def objects() -> Iterator[tuple[int, dict]]:
        for number, line in _lines(path):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                value = error
            if not isinstance(value, dict):
                received = f" ({value})" if isinstance(value, Exception) else ""
                raise UsageError(
                    f"JSON data files hold one object a line. Received: something else in {path}, line {number}"
                    f"{received}. Convert it to JSON lines."
                )
            yield number, value

    _, first = next(objects(), (0, None))
    if first is None:
        raise UsageError(f"A data file needs at least one example. Received: {str(path)!r}, empty. Check the path.")

    def rows(wanted: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        for number, value in objects():
            yield number, [value.get(key) for key in wanted]

    return list(first), rows


def _open_parquet(path: pathlib.Path) -> tuple[list[str], Rows]:
    import pyarrow
    from pyarrow import parquet

    def broken(error: Exception) -> UsageError:
        first = (str(error).splitlines() or [""])[0]
        return UsageError(f"A .parquet file must be whole. Received: {path} ({first}). Write it again.")

    try:
        columns = parquet.read_schema(path).names
    except (pyarrow.ArrowException, OSError) as error:
        raise broken(error) from None

    def rows(wanted: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        number = 0
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=list(wanted)):
                    for row in zip(*(batch.column(column).to_pylist() for column in wanted), strict=True):
                        number += 1
                        yield number, list(row)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise broken(error) from None

    return columns, rows
