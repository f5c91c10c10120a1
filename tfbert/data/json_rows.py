"""Files of JSON -> rows: an object a line, or one JSON text that is a list of objects or has one under `data`.

What is read as one text is read item by item, as lines are: memory does not grow with the file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from tfbert.data.json_text import JsonText, NotJson
from tfbert.data.lines import pieces_of
from tfbert.data.open_file import OpenFile, Row
from tfbert.errors import UsageError

log = logging.getLogger("tfbert")

_OF_LABEL_STUDIO = ("annotations", "completions", "predictions")
_LINES_TO_AN_OBJECT = 1000  # A file without an object in its first 1000 lines is not JSON lines.
_ROWS_OF_KEYS, _CHARACTERS_OF_KEYS = 1000, 1 << 22
"""Rows, of so many characters at most, that say which keys there are: one that the first row lacks is a column, too."""
_LIST_OF = "a list of objects, one for each row, as pandas writes with orient='records'"
_FORMATS = f"JSON data is an object a line, or {_LIST_OF} (questions also SQuAD's: its 'data' is a list of articles)"


@dataclasses.dataclass(frozen=True)
class Articles:
    """SQuAD's articles, which have yet to be read, once.

    Attributes:
        name: What messages call the file.
        entries: The articles.
    """

    name: str
    entries: Iterator[Any]


@dataclasses.dataclass(frozen=True)
class Lists:
    """A list of lists, which have yet to be read, once.

    Attributes:
        name: What messages call the file.
        entries: The lists.
    """

    name: str
    entries: Iterator[Any]


def open_json_rows(source: pathlib.Path | BinaryIO, name: str) -> OpenFile:
    """A file of JSON as `rows.open_rows` opens it.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream.
        name: What messages call it.

    Raises:
        UsageError: for a file that cannot be read, or that holds no rows.
    """
    file = open_json(source, name)
    assert not isinstance(file, Lists)
    if isinstance(file, Articles):
        raise UsageError(
            f"{_FORMATS}. Received: {name}, SQuAD's articles of questions. "
            "Pass --task=question_answering, or a model for it, or convert the file."
        )
    return file


def open_json(source: pathlib.Path | BinaryIO, name: str, *, takes_lists: bool = False) -> OpenFile | Articles | Lists:
    """As `open_json_rows`, for whoever reads SQuAD's articles as well, and with `takes_lists` a list of lists."""
    text = JsonText(pieces_of(source, name))
    if text.enter_list("data"):
        return _open_list(name, _entries(text, name), takes_lists)
    lines = text.lines()
    filled = ((number, line) for number, line in lines if line.strip())
    head = list(itertools.islice(filled, 1))
    if not head:
        raise UsageError(f"A data file needs at least one example. Received: {name!r}, empty. Check the path.")
    value = _parsed(head[0][1])
    if isinstance(value, ValueError) and head[0][1].strip() not in ("{", "["):
        # Either a bad line of JSON lines, or the first line of one JSON text: the next line tells.
        head += itertools.islice(filled, 1)
        if len(head) == 2 and isinstance(_parsed(head[1][1]), dict):
            return open_json_lines(name, itertools.chain(head, lines))
    elif isinstance(value, dict):
        head += itertools.islice(filled, 1)
        if len(head) == 2 or not _is_of_columns(value):
            return open_json_lines(name, itertools.chain(head, lines))
    if isinstance(value, ValueError):
        head += filled
        value = _parsed("".join([line for _, line in head]))
    if isinstance(value, ValueError):
        # No object begins on the first two lines, and it is not one text either.
        if any(isinstance(_parsed(line), dict) for _, line in head[:_LINES_TO_AN_OBJECT]):
            return open_json_lines(name, iter(head))
        raise not_json(name, value)
    raise UsageError(f"{_FORMATS}. Received: {name}, {_what(value)}. Convert it.")


def open_json_lines(name: str, lines: Iterator[tuple[int, str]]) -> OpenFile:
    """JSON lines, as `rows.open_rows` opens them.

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
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                value = error
            if not isinstance(value, dict):
                received = f" ({value})" if isinstance(value, Exception) else ""
                value = UsageError(
                    f"JSON data files hold one object per line. Received: something else in {name}, line {number}"
                    f"{received}. Convert it to JSON lines."
                )
            yield number, value

    rows = objects()
    seen = _first_rows(rows, lambda row: row[1])
    if not seen:
        raise UsageError(f"A data file needs at least one example. Received: {name!r}, empty. Check the path.")
    columns = _keys(value for _, value in seen)
    if not any(isinstance(value, dict) for _, value in seen):
        raise seen[0][1]

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        late = _LateKeys(columns)
        for number, value in itertools.chain(seen, rows):
            if isinstance(value, UsageError):
                yield number, value
            else:
                late.look(value, f"{name}, line {number}")
                yield number, [value.get(key) for key in wanted]

    return OpenFile(name=name, columns=columns, read=read)


def not_json(name: str, error: ValueError) -> UsageError:
    """The error for a file that is not JSON."""
    return UsageError(
        f"A .json file must be JSON, and whole. Received: {name}, which is not JSON ({error}). "
        "Repair it, or copy or download it again."
    )


def _open_list(name: str, entries: Iterator[Any], takes_lists: bool) -> OpenFile | Articles | Lists:
    first = next(entries, None)
    if first is None:
        raise UsageError(f"A data file needs at least one example. Received: {name!r}, an empty list. Check the path.")
    rest = itertools.chain([first], entries)
    if isinstance(first, list) and takes_lists:
        return Lists(name, rest)
    if not isinstance(first, dict):
        what = "a list of lists, as pandas writes with orient='split' or 'values'" if isinstance(first, list) else ""
        what = what or f"a list that begins with {first!r:.40}"
        raise UsageError(f"{_FORMATS}. Received: {name}, {what}. Convert it.")
    if isinstance(first.get("paragraphs"), list):
        return Articles(name, rest)
    if isinstance(first.get("data"), dict) and any(isinstance(first.get(key), list) for key in _OF_LABEL_STUDIO):
        raise UsageError(
            f"{_FORMATS}. Received: {name}, tasks of Label Studio with their annotations. "
            "Export them as JSON-MIN or CSV; spans of words as CoNLL."
        )
    unit = "question" if {"question", "context"} <= first.keys() else "record"
    head = _first_rows(rest, lambda row: row)
    columns = _keys(head)

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        late = _LateKeys(columns)
        for number, entry in enumerate(itertools.chain(head, rest), start=1):
            if isinstance(entry, dict):
                late.look(entry, f"{name}, {unit} {number}")
                yield number, [entry.get(key) for key in wanted]
            else:
                yield (
                    number,
                    UsageError(f"{_FORMATS}. Received: {entry!r:.60} in {name}, {unit} {number}. Repair or drop it."),
                )

    return OpenFile(name=name, columns=columns, read=read, unit=unit)


def _first_rows(rows: Iterator[Any], value_of: Callable[[Any], Any]) -> list[Any]:
    """Takes as many rows as say which keys there are."""
    found, characters = [], 0
    for row in itertools.islice(rows, _ROWS_OF_KEYS):
        found.append(row)
        value = value_of(row)
        parts = value.values() if isinstance(value, dict) else ()
        characters += sum(len(part) for part in parts if isinstance(part, str))
        if characters > _CHARACTERS_OF_KEYS:
            break
    return found


def _keys(rows: Iterable[Any]) -> list[str]:
    """The keys of all objects among some rows, as they first occur."""
    return list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))


class _LateKeys:
    """Warns of keys that come too late to be columns, each once; five times at most, as keys may be ids."""

    def __init__(self, columns: Sequence[str]):
        self._known, self._warnings_left = {*columns}, 5

    def look(self, row: dict[str, Any], place: str) -> None:
        late = [key for key in row if key not in self._known]
        if late and self._warnings_left:
            self._known.update(late)
            self._warnings_left -= 1
            log.warning(
                "%s has %s, which no row before it has. Columns are the keys of the first rows, at most %d: this is "
                "not read. If it matters, put such a row first.",
                place,
                ", ".join(map(repr, late[:5])),
                _ROWS_OF_KEYS,
            )


def _entries(text: JsonText, name: str) -> Iterator[Any]:
    try:
        yield from text.items()
    except NotJson as error:
        raise not_json(name, error) from None


def _parsed(text: str) -> Any:
    """The value of a JSON text, or the ValueError that says why it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        return error
    except RecursionError:
        return ValueError("nested too deeply")


def _is_of_columns(value: dict[str, Any]) -> bool:
    """Whether an object is a table by columns or by rows, as pandas writes it, rather than a single row.

    Lists of one length may be a sentence's words and their tags. But no word has a blank within.
    """
    parts = list(value.values())
    if parts and all(isinstance(part, list) for part in parts) and len({len(part) for part in parts}) == 1:
        return any(isinstance(item, str) and " " in item.strip() for part in parts for item in part)
    return len(parts) > 0 and all(isinstance(part, dict) for part in parts)


def _what(value: Any) -> str:
    """What a JSON text that holds no rows is, in words."""
    if not isinstance(value, dict):
        return f"{value!r:.40}"
    keys = ", ".join(map(repr, list(value)[:5]))
    pandas = ", as pandas writes with orient='columns', 'index' or 'list'" * _is_of_columns(value)
    return f"an object with {keys}{pandas}"
