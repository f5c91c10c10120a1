"""Files of rows, read one by one in constant memory: .tsv, .csv, .jsonl, JSON, .parquet, and plain lines of text; and
directories: a folder of texts for each class, such as aclImdb's `train`.

JSON is an object a line, or one text, read whole, that is a list of objects or has one under `data`.

In place of the values of a row that cannot be read, a `UsageError` is yielded: the caller decides whether to stop. An
error after which reading cannot continue, such as half a .gz file, is raised.

A blank line is not a row, as in pandas, so that both count the same rows. It is a row only where an empty text has no
other form: in plain text, and in a .tsv of one column. A CSV writes an empty text as `""`.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import json
import logging
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from tfbert.config.data import DataConfig
from tfbert.config.types import STANDARD_STREAM, Given, counted, is_pipe
from tfbert.data import reading
from tfbert.data.labels import names_in_schema
from tfbert.errors import UsageError, first_line

log = logging.getLogger("tfbert")

_LINES_TO_AN_OBJECT = 1000  # A file without an object in its first 1000 lines is not JSON lines.
_MOST_CHARACTERS = 1 << 30  # Of one JSON text, which is in memory as a whole.
_ROWS_OF_KEYS, _CHARACTERS_OF_KEYS = 1000, 1 << 22
"""Rows, of so many characters at most, that say which keys there are: one that the first row lacks is a column, too."""
_LIST_OF = "a list of objects, one for each row, as pandas writes with orient='records'"
_FORMATS = f"JSON data is an object a line, or {_LIST_OF} (questions also SQuAD's: its 'data' is a list of articles)"


@dataclasses.dataclass(frozen=True)
class Entries:
    """SQuAD's articles, which a JSON text lists in place of rows.

    Attributes:
        name: What messages call the file.
        entries: The articles.
    """

    name: str
    entries: list[Any]


def open_json(
    source: pathlib.Path | BinaryIO, name: str, *, takes_articles: bool = False
) -> reading.OpenFile | Entries:
    """A file of JSON as `open_rows` opens it.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream.
        name: What messages call it.
        takes_articles: Whether it may be SQuAD's articles: `Entries`.

    Raises:
        UsageError: for a file that cannot be read, or that holds no rows.
    """
    lines = reading.lines_of(source, name)
    head = list(itertools.islice((place for place in _at_most(lines, name) if place[1].strip()), 2))
    first, last = (head[place][1].strip() if head else "" for place in (0, -1))
    value = _parsed(first)
    are_lines = isinstance(value, dict) and not isinstance(value.get("data"), list)
    are_lines = are_lines and (len(head) > 1 or not _is_of_columns(value))
    if isinstance(value, ValueError) and first[:1] != "[" and first[-1:] not in "[{":
        # Either a bad line of JSON lines, or the first line of one JSON text: the next line tells.
        are_lines = isinstance(_parsed(last), dict)
    if are_lines or not head:
        return open_json_lines(name, itertools.chain(head, lines))
    if isinstance(value, ValueError) or len(head) > 1:
        head += _at_most(lines, name)
        value = _parsed("".join([line for _, line in head]))
    entries = value.get("data") if isinstance(value, dict) else value
    if isinstance(entries, list):
        return _open_list(name, entries, takes_articles)
    if isinstance(value, ValueError):
        # No object begins on the first two lines, and it is not one text either.
        if any(isinstance(_parsed(line), dict) for _, line in head[:_LINES_TO_AN_OBJECT]):
            return open_json_lines(name, iter(head))
        todo = "Repair it, or copy or download it again."
        raise UsageError(f"A .json file must be JSON, and whole. Received: {name}, which is not JSON ({value}). {todo}")
    what = f"an object with {', '.join(map(repr, list(value)[:5]))}" if isinstance(value, dict) else f"{value!r:.40}"
    raise UsageError(f"{_FORMATS}. Received: {name}, {what}. Convert it; {reading.OTHER_FORMATS}.")


def _is_of_columns(value: dict[str, Any]) -> bool:
    """Whether the only object of a file is a table by columns, as pandas writes it. Its lists may be a sentence's words
    and their tags, but no word has a blank within."""
    parts = list(value.values())
    are_lists = all(isinstance(part, list) and len(part) == len(parts[0]) for part in parts)
    return are_lists and any(isinstance(item, str) and " " in item.strip() for part in parts for item in part)


def _at_most(lines: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, str]]:
    """The lines of one JSON text, which must not be too many to be in memory."""
    size = 0
    for number, line in lines:
        size += len(line)
        if size > _MOST_CHARACTERS:
            rule = f"JSON that is one text has at most {_MOST_CHARACTERS >> 20:,} MiB: it is read whole"
            raise UsageError(f"{rule}. Received: {name} with more. Write an object a line; {reading.OTHER_FORMATS}.")
        yield number, line


def open_json_lines(name: str, lines: Iterator[tuple[int, str]]) -> reading.OpenFile:
    """JSON lines, as `open_rows` opens them.

    Args:
        name: What messages call the file.
        lines: As `lines_of` gives them.

    Raises:
        UsageError: for a file without an object.
    """

    def objects() -> Iterator[tuple[int, dict | UsageError]]:
        for number, line in lines:
            if not line.strip():
                continue
            value = _parsed(line)
            if not isinstance(value, dict):
                received = f" ({value})" if isinstance(value, Exception) else ""
                value = UsageError(
                    f"JSON data files hold one object per line. Received: something else in {name}, line {number}"
                    f"{received}. Convert it to JSON lines."
                )
            yield number, value

    return _of_objects(name, objects(), "line", _ROWS_OF_KEYS)


def _of_objects(name: str, rows: Iterator[Any], unit: str, most: int | None = None) -> reading.OpenFile:
    """Objects as rows, whose columns are the keys of the first so many, or of all. Of other keys there is a warning,
    each once; five times at most, as keys may be ids."""
    seen, size = [], 0
    for number, value in itertools.islice(rows, most):
        seen.append((number, value))
        parts = value.values() if isinstance(value, dict) else ()
        size += sum(len(part) for part in parts if isinstance(part, str))
        if most and size > _CHARACTERS_OF_KEYS:
            break
    if not seen:
        raise UsageError(f"A data file needs at least one example. Received: {name!r}, empty. Check the path.")
    if not any(isinstance(value, dict) for _, value in seen):
        raise seen[0][1]
    columns = list(dict.fromkeys(key for _, value in seen if isinstance(value, dict) for key in value))

    def read(wanted: Sequence[str]) -> Iterator[reading.Row]:
        known, warnings_left = {*columns}, 5
        for number, value in itertools.chain(seen, rows):
            if isinstance(value, UsageError):
                yield number, value
                continue
            late = [key for key in value if key not in known]
            if late and warnings_left:
                known.update(late)
                warnings_left -= 1
                log.warning(
                    "%s has %s, which no row before it has. Columns are the keys of the first rows, at most %d: this "
                    "is not read. If it matters, put such a row first.",
                    f"{name}, {unit} {number}",
                    ", ".join(map(repr, late[:5])),
                    _ROWS_OF_KEYS,
                )
            yield number, [value.get(key) for key in wanted]

    return reading.OpenFile(name=name, columns=columns, read=read, unit=unit)


def _open_list(name: str, entries: list[Any], takes_articles: bool) -> reading.OpenFile | Entries:
    first = entries[0] if entries else {}
    if not isinstance(first, dict):
        what = f"a list that begins with {first!r:.60}"
        raise UsageError(f"{_FORMATS}. Received: {name}, {what}. Convert it; {reading.OTHER_FORMATS}.")
    if isinstance(first.get("paragraphs"), list):
        if takes_articles:
            return Entries(name, entries)
        todo = "Pass --task=question_answering, or a model for it, or convert the file."
        raise UsageError(f"{_FORMATS}. Received: {name}, SQuAD's articles of questions. {todo}")
    unit = "question" if {"question", "context"} <= first.keys() else "record"

    def objects() -> Iterator[tuple[int, dict | UsageError]]:
        for number, entry in enumerate(entries, start=1):
            if not isinstance(entry, dict):
                received = f"{entry!r:.60} in {name}, {unit} {number}"
                entry = UsageError(f"{_FORMATS}. Received: {received}. Repair or drop it.")
            yield number, entry

    return _of_objects(name, objects(), unit)


def _parsed(text: str) -> Any:
    """The value of a JSON text, or the ValueError that says why it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        return error
    except RecursionError:
        return ValueError("nested too deeply")


_SAVED = {"state.json", "dataset_dict.json"}  # Of what `save_to_disk` of Hugging Face's `datasets` wrote.
_UNLABELLED = "unsup"  # In aclImdb's train, texts of which nobody says whether they are positive.
_TEXTS = (".txt", ".text", "")
_RULE = "A directory of examples has a folder of .txt files for each class"


def open_tree(path: pathlib.Path) -> reading.OpenFile:
    """Opens a directory with a folder of texts for each class, or with texts alone, as `open_rows` opens a file.

    The columns are `id`, a file's path in it, `text`, and in folders `label`, the name of a file's folder.

    Raises:
        UsageError: for a directory that holds anything else.
    """
    found = _visible(path)
    if _SAVED & {entry.name for entry in found}:
        raise UsageError(
            f"{_RULE}. Received: {str(path)!r}, which datasets' save_to_disk wrote. Pass data.parquet, made by "
            f"datasets.load_from_disk({str(path)!r}).to_parquet('data.parquet'), of one of its sets if it has several."
        )
    folders = [entry for entry in found if entry.is_dir()]
    left_out = [_texts_in(folder) for folder in folders if folder.name == _UNLABELLED]
    folders = [folder for folder in folders if folder.name != _UNLABELLED]
    files = [file for folder in folders or [path] for file in _texts_in(folder)]

    def read(wanted: Sequence[str]) -> Iterator[reading.Row]:
        for number, file in enumerate(files, start=1):
            try:
                text = file.read_bytes().decode("utf-8-sig", "surrogateescape")
            except OSError as error:
                rule = "A text must be readable"
                raise UsageError(f"{rule}. Received: {str(file)!r} ({error.strerror}). Check the directory.") from None
            row = {"id": file.relative_to(path).as_posix(), "text": text, "label": file.parent.name}
            # One may be a text's, and some of a long one.
            byte, are_zeros = reading.not_utf8(text), max(1, len(text) // 20) < text.count("\0")
            error = reading.not_utf8_error(byte, str(file)) if byte else reading.utf16_error(str(file), 1)
            yield number, error if byte or are_zeros else [row[column] for column in wanted]
        for texts in left_out:
            log.info("%s: %s in 'unsup' left out: aclImdb has no labels for them", path, counted(len(texts), "text"))

    return reading.OpenFile(
        name=str(path), columns=["id", "text", *(["label"] if folders else [])], read=read, unit="row"
    )


def _visible(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "__MACOSX")))  # Of macOS's zips.


def _texts_in(folder: pathlib.Path) -> list[pathlib.Path]:
    found = _visible(folder)
    others = [entry for entry in found if not entry.is_file() or entry.suffix.lower() not in _TEXTS]
    if others or not found:
        what = f"with {others[0].name!r}" if others else "which is empty"
        inside = any(entry.is_dir() for entry in others)
        todo = f"Pass {str(folder)!r} if its folders are the classes" if inside else "Pass the files themselves"
        raise UsageError(f"{_RULE}. Received: {str(folder)!r}, {what}. {todo}.")
    return found


Source = str | pathlib.Path | BinaryIO | reading.GivenTable
DEMOS = pathlib.Path(__file__).parent.parent / "demos"
"""The built-in data, a folder for each task."""

_DELIMITERS = {"tab": "\t", "';'": ";", ",": ",", "'|'": "|"}
"""Names that need no quotes in a shell. Of two equally frequent characters, the first is the more likely delimiter."""
_SEPARATOR_LINE = re.compile(r'"?sep="?', re.IGNORECASE)
_QUOTED = re.compile(r'"(?:[^"]+|"")*+"')
_AS_CSV = "--input_format=csv --delimiter=tab"
_NO_HEADER_HINT = ", or indexes with --noheader where the file has no header"
_PARQUET_BATCH = 4096
_LONG_ROW = 100  # Lines. A text may have some; a quote that nothing closes has those up to the next one.
_FIELD_CHARACTERS = 1 << 24  # Of a field of CSV, at most. War and Peace has 3 million.


def file_format(path: pathlib.Path | reading.GivenTable, formats: reading.Formats = reading.ROWS) -> str:
    """`tsv`, `csv`, `jsonl`, `parquet` or `text`, by a file's ending; for a table in memory, what it is read as.

    Args:
        path: All formats but .parquet may also end in .gz.
        formats: Those that are accepted: `ROWS` or `TEXTS`.

    Raises:
        UsageError: for another ending.
    """
    if isinstance(path, reading.GivenTable) or path.is_dir():
        return reading.FORMAT
    format = reading.format_of(path, formats)
    if not format:
        is_text = reading.ending_of(path) in reading.TEXTS["text"]
        tagged = "; words with a tag each need --task=token_classification" if is_text else ""
        known = ", ".join(itertools.chain(*formats.values()))
        raise UsageError(
            f"A data file ends in {known}, all but the last also with .gz. Received: {str(path)!r}. Save a "
            f"sheet as CSV (UTF-8), unpack an archive, rename or convert other files; {reading.OTHER_FORMATS}{tagged}."
        )
    return format


def input_source(name: str, option: str = "input_file") -> pathlib.Path | BinaryIO | reading.GivenTable:
    """What an option for a file names: a file as its path, standard input or a pipe as an open stream, or a table in
    memory.

    Args:
        name: What was passed.
        option: Its name, for messages.

    Raises:
        UsageError: for standard input that is closed, or a pipe that cannot be opened.
    """
    if isinstance(name, Given):
        return name.source
    if name == STANDARD_STREAM and sys.stdin is None:
        rule = "Standard input must be open to be read"
        received = f"{option}='-' with standard input closed"
        raise UsageError(f"{rule}. Received: {received}. Pipe the rows in, or pass a file's path.")
    if name == STANDARD_STREAM:
        return sys.stdin.buffer
    path = pathlib.Path(name)
    try:
        return path.open("rb") if is_pipe(name) else path
    except OSError as error:
        rule = f"{option} must be readable"
        raise UsageError(f"{rule}. Received: {option}={name!r} ({error.strerror}). Check the path.") from None


def demo_table(task: str, split: str) -> reading.GivenTable:
    """The rows of a task's `train` or `validation`."""
    path = DEMOS / task / f"{split}.jsonl.gz"
    columns = open_rows(path, "jsonl").columns
    return reading.GivenTable(
        name=f"demo {split}", columns=columns, read=lambda wanted: open_rows(path, "jsonl").read(wanted), unit="example"
    )


def source_format(
    source: Source, config: DataConfig, formats: reading.Formats = reading.ROWS, of_stream: str = "jsonl"
) -> str:
    """The format of what an option names, as the options say, or else its ending.

    Args:
        source: As for `open_rows`.
        config: Its `input_format`; `squad` is JSON.
        formats: As for `file_format`.
        of_stream: The format of standard input where nobody says it.

    Raises:
        UsageError: for another ending.
    """
    source = pathlib.Path(source) if isinstance(source, str) else source
    if config.input_format != "auto" and not isinstance(source, reading.GivenTable):
        return config.input_format
    if isinstance(source, pathlib.Path | reading.GivenTable):
        return file_format(source, formats)
    name = reading.source_name(source)
    return of_stream if name == reading.STANDARD_INPUT else file_format(pathlib.Path(name), formats)


def open_source(source: Source, config: DataConfig) -> Any:
    """As `open_rows`, with the format, `header` and `delimiter` of the options."""
    format = source_format(source, config)
    return open_rows(source, format, header=config.header, delimiter=config.separator)


def open_rows(
    source: Source, format: str, *, header: bool = True, delimiter: str = "", takes_articles: bool = False
) -> Any:
    """Opens a file and finds its columns.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream such as standard input. A table in
            memory has its columns already, and no use for the other arguments.
        format: As `file_format` returns it.
        header: Whether a .tsv or .csv file starts with its columns' names.
        delimiter: What separates the columns of a .tsv or .csv file; empty: a tab or a comma.
        takes_articles: As for `open_json`.

    Returns:
        An `OpenFile`, or `Entries`.

    Raises:
        UsageError: for a file that cannot be read or holds nothing.
    """
    if isinstance(source, reading.GivenTable):
        return source
    source = pathlib.Path(source) if isinstance(source, str) else source
    name = reading.source_name(source)
    if format not in reading.TEXTS:
        rule = "A table is read from tsv, csv, jsonl or parquet"
        received = f"input_format={format!r} for {name!r}"
        raise UsageError(f"{rule}. Received: {received}. Pass one of them, or the --task that reads this format.")
    if not header and format not in ("tsv", "csv"):
        raise UsageError(f"Only .tsv and .csv files can lack a header. Received: {name!r}. Drop --noheader.")
    if delimiter and format not in ("tsv", "csv"):
        raise UsageError(f"Only .tsv and .csv files have a delimiter. Received: {name!r}. Drop --delimiter.")
    if format == "parquet":
        if not isinstance(source, pathlib.Path):
            raise UsageError(f"Parquet is read from a file. Received: {name}, a stream. Pass the file's path.")
        return open_tree(source) if source.is_dir() else open_parquet(source)
    if format == "jsonl":
        return open_json(source, name, takes_articles=takes_articles)
    lines = reading.lines_of(source, name)
    if format == "text":
        return reading.OpenFile(
            name=name,
            columns=["text"],
            read=lambda wanted: ((number, [reading.without_end(line)]) for number, line in lines),
        )
    delimiter = delimiter or ("\t" if format == "tsv" else ",")
    records = _tsv_records(lines, delimiter, header) if format == "tsv" else _csv_records(name, lines, delimiter)
    return _open_delimited(name, records, header, format)


def _is_blank(line: str) -> bool:
    return not reading.without_end(line).strip(" ")


def _tsv_records(lines: Iterator[tuple[int, str]], delimiter: str, header: bool) -> Iterator[reading.Row]:
    leading: list[reading.Row] = []  # Blank lines that come before the number of columns is known.
    is_single = None
    for number, line in lines:
        record = reading.without_end(line).split(delimiter)
        if is_single is None:
            if _is_blank(line):
                leading.append((number, record))
                continue
            is_single = len(record) == 1
            yield from leading if is_single and not header else ()
        if is_single or not _is_blank(line):
            yield number, record


def _csv_records(name: str, lines: Iterator[tuple[int, str]], delimiter: str) -> Iterator[reading.Row]:
    # The default limit is 128 KiB; a review may be longer. Behind a stray quote, all of a file would be one field.
    csv.field_size_limit(_FIELD_CHARACTERS)
    taken: list[tuple[int, str]] = []  # The lines of the current record.
    is_told = False

    def feed() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line[1]

    try:
        for record in csv.reader(feed(), delimiter=delimiter, strict=True):
            if len(taken) > 1 or not _is_blank(taken[0][1]):
                yield taken[0][0], record
            if len(taken) > _LONG_ROW and not is_told:
                is_told = True
                log.warning(
                    "%s: the row in line %d takes %d lines: a field in quotes goes on up to the next quote. If these "
                    "are several rows, repair that quote, or save as .tsv",
                    *(name, taken[0][0], len(taken)),
                )
            taken.clear()
    except csv.Error as error:
        rule = "CSV must follow RFC 4180: a field with delimiters, quotes or line ends must be in double quotes"
        received = f"{error} in the row of {name}, line {taken[0][0]}"
        raise UsageError(f"{rule}. Received: {received}. Repair the row, or save as .tsv.") from None


def _open_delimited(name: str, records: Iterator[reading.Row], header: bool, format: str) -> reading.OpenFile:
    line, first = next(records, (0, None))
    if first is None:
        raise UsageError(f"A data file needs at least one example. Received: {name!r}, empty. Check the path.")
    if _SEPARATOR_LINE.match(first[0]):
        rule = "A .tsv or .csv file begins with its columns' names"
        received = f"{name}, line {line}: {first[0]!r}, by which Excel knows the delimiter"
        raise UsageError(f"{rule}. Received: {received}. Drop the line, and pass the character as --delimiter.")
    if byte := reading.not_utf8("".join(first)) if header else None:
        raise reading.not_utf8_error(byte, f"{name}, line {line}")
    columns = first if header else [str(index) for index in range(len(first))]
    rest = records if header else itertools.chain([(line, first)], records)
    names = [*map(_as_name, columns)] if header and len(columns) > 1 else None

    def read(wanted: Sequence[str]) -> Iterator[reading.Row]:
        indexes = [columns.index(column) for column in wanted]
        for line, record in rest:
            row: Any = None
            if len(record) != len(columns):
                is_open = format == "tsv" and any(c.startswith('"') and c.count('"') % 2 for c in record)
                todo = f", or pass {_AS_CSV} if quotes enclose what has tabs or line ends" if is_open else ""
                row = UsageError(
                    f"Every row must have {len(columns)} columns, like the first. "
                    f"Received: {len(record)} in {name}, line {line}. Repair or drop the row{todo}."
                )
            elif [*map(_as_name, record)] == names:  # Files that were joined, each with its header.
                row = UsageError(
                    "The columns' names are the first row alone. "
                    f"Received: the same names again in {name}, line {line}. Drop the row."
                )
            yield line, row or [record[index] for index in indexes]

    of_tsv = functools.partial(_about_quotes, name, read)
    return reading.OpenFile(
        name=name, columns=columns, read=of_tsv if format == "tsv" else read, hint=_hint(first, format)
    )


def _about_quotes(name: str, read: Callable[[Sequence[str]], Iterator[reading.Row]], wanted: Sequence[str]) -> Any:
    """What is read of a .tsv; at its end a warning if fields are quoted as in CSV, as of pandas: they keep quotes."""
    count, are_all_whole, first = 0, True, ""
    for line, row in read(wanted):
        quoted = [] if isinstance(row, UsageError) else [cell for cell in row if cell.startswith('"')]
        count += len(quoted)
        are_all_whole = are_all_whole and all(map(_QUOTED.fullmatch, quoted))  # In CSV, all are.
        first = first or next((cell for cell in quoted if '""' in cell[1:-1]), "")
        yield line, row
    if first and are_all_whole:
        fields = counted(count, "field is", "fields are")
        about = f"{fields} quoted as in CSV, such as {first!r:.60}, and read with the quotes"
        log.warning("%s: %s; %s reads them without", name, about, _AS_CSV)


def _as_name(cell: str) -> str:
    return cell.strip("\ufeff ").casefold()


def _hint(record: list[str], format: str) -> str:
    """What to try if no column is the right one, judging by the file's first record."""
    if format == "tsv" and all(map(_QUOTED.fullmatch, record)):
        return f", or {_AS_CSV} as quotes enclose the names"
    # A record of one column does not hold the delimiter in use, except in quotes in CSV.
    option, character = max(_DELIMITERS.items(), key=lambda item: record[0].count(item[1]))
    if len(record) > 1 or character not in record[0]:
        return _NO_HEADER_HINT
    is_tab = option == "tab" and format == "csv"
    plain = " (--input_format=tsv where quotes are plain characters)" if is_tab else ""
    return f", or --delimiter={option}{plain} as its only column looks like several{_NO_HEADER_HINT}"


def open_parquet(path: pathlib.Path, row_groups: Sequence[int] | None = None) -> reading.OpenFile:
    """A Parquet file, as `open_rows` opens it.

    Args:
        path: The file.
        row_groups: Read only these, counted from 0, and count rows from the first of them. None: all.

    Raises:
        UsageError: for a file that does not exist or is not whole.
    """
    import pyarrow
    from pyarrow import parquet

    def broken(error: Exception) -> UsageError:
        return UsageError(f"A .parquet file must be whole. Received: {path} ({first_line(error)}). Write it again.")

    try:
        schema = parquet.read_schema(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise broken(error) from None
    columns = schema.names
    if b"tfbert_json_columns" in (schema.metadata or {}):
        rule = "A table that a sweep of version 2.0 wrote for its runs is no file of rows"
        raise UsageError(f"{rule}. Received: {path}. Write the table to a file of its own.")

    def read(wanted: Sequence[str]) -> Iterator[reading.Row]:
        options = {"batch_size": _PARQUET_BATCH, "row_groups": row_groups, "columns": list(wanted)}
        number = 0
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(**options):
                    for row in zip(*(batch.column(column).to_pylist() for column in wanted), strict=True):
                        number += 1
                        yield number, list(row)
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            # The last two: bytes that are not UTF-8, and times that Python cannot represent.
            raise broken(error) from None

    names = names_in_schema(schema.metadata)
    return reading.OpenFile(name=str(path), columns=columns, read=read, unit="row", label_names=names)
