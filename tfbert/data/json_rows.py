"""Files of JSON -> rows: an object a line, or one JSON text that is a list of objects or has one under `data`.

What is read as one text is read item by item, as lines are: memory for the longest item, however long the file is.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from tfbert.data.lines import pieces_of
from tfbert.data.open_file import OpenFile, Row
from tfbert.errors import UsageError

_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\n\r]*")
_PART_OF_NUMBER = re.compile(r"[-+.eE0-9]*")
_LONGEST_WORD = 16
"""More characters than in `-Infinity`, or in the escapes of a surrogate pair. Python's decoder says of a text that ends
too early that a string is not terminated, or that it is wrong at its end or where such a word begins."""


class NotJson(ValueError):
    """What is wrong with a text, and where; in the words of Python's `json`."""


class JsonText:
    """Reads a JSON text as far as it must, and forgets the items that it has returned.

    Args:
        pieces: The text, cut anywhere.
    """

    def __init__(self, pieces: Iterator[str]):
        self._pieces = pieces
        self._text, self._at = "", 0  # What was read and not forgotten, and the place in it.
        self._forgets = False
        self._characters, self._lines, self._column = 0, 0, 0  # Of what was forgotten; the column is from 0.

    def enter_list(self, key: str) -> bool:
        """Goes to the first item of the list that the text is, or that its object has under a key.

        Returns:
            Whether there is such a list, with JSON before it. If not, `lines` still gives the whole text.
        """
        before = "{"
        try:
            if self._pass("["):
                return True
            while self._pass(before):
                name = self._value()
                if not isinstance(name, str) or not self._pass(":"):
                    break
                if name == key and self._pass("["):
                    return True
                self._value()
                before = ","
        except NotJson:
            pass  # Whoever takes the lines finds out what they are.
        return False

    def items(self) -> Iterator[Any]:
        """The items of the list that was entered.

        Raises:
            NotJson: during iteration.
        """
        head = self._text[: self._at]
        self._forgets = True
        if self._next() != "]":
            yield self._value()
            while self._pass(","):
                yield self._value()
        if self._next() != "]":
            raise self._not_json(json.JSONDecodeError("Expecting ',' delimiter", self._text, self._at))
        # There is little more. Without the items, it must be JSON.
        self._text += "".join(self._pieces)
        try:
            json.loads(head + self._text[self._at :])
        except (ValueError, RecursionError) as error:
            raise self._not_json(error, shift=self._at - len(head)) from None

    def lines(self) -> Iterator[tuple[int, str]]:
        """Each line's number from 1, and the line with its end. Call it only where no list was entered."""
        number, parts = 1, []
        for piece in itertools.chain([self._text], self._pieces):
            for index, part in enumerate(piece.split("\n")):
                if index:
                    yield number, "".join(parts) + "\n"
                    number, parts = number + 1, []
                parts.append(part)
        if any(parts):
            yield number, "".join(parts)

    def _value(self) -> Any:
        """Passes the value that follows."""
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if not (self._may_go_on(error) and self._read_on()):
                    raise self._not_json(error) from None
            else:
                # `1.` is the number 1 and a dot, until a digit follows.
                if not _PART_OF_NUMBER.fullmatch(self._text, end) or not self._read_on():
                    self._at = end
                    return value

    def _may_go_on(self, error: ValueError | RecursionError) -> bool:
        """Whether more text might put this right."""
        is_at_end = isinstance(error, json.JSONDecodeError) and error.pos > len(self._text) - _LONGEST_WORD
        return is_at_end or str(error).startswith("Unterminated")

    def _pass(self, character: str) -> bool:
        """Passes this character, with blanks before it; False if another follows."""
        follows = self._next() == character
        self._at += follows
        return follows

    def _next(self) -> str:
        """Passes blanks. Returns the character that follows, empty at the end of the text."""
        while True:
            self._at = _BLANKS.match(self._text, self._at).end()
            if self._at < len(self._text) or not self._read_on():
                return self._text[self._at : self._at + 1]

    def _read_on(self) -> bool:
        """Reads as much again as has not been passed, so that a long item is tried few times; False at the end."""
        read, missing = [], len(self._text) - self._at
        for piece in self._pieces:
            read.append(piece)
            missing -= len(piece)
            if missing <= 0:
                break
        if read and self._forgets:
            passed, self._text = self._text[: self._at], self._text[self._at :]
            self._characters += len(passed)
            self._lines += passed.count("\n")
            self._column = len(passed) - passed.rfind("\n") - 1 + ("\n" not in passed) * self._column
            self._at = 0
        self._text = "".join([self._text, *read])
        return bool(read)

    def _not_json(self, error: ValueError | RecursionError, shift: int = 0) -> NotJson:
        """What Python's decoder says, with the place in the whole text; `shift` leads from its text to `_text`."""
        if isinstance(error, RecursionError):
            return NotJson("nested too deeply")
        if not isinstance(error, json.JSONDecodeError):
            return NotJson(str(error))
        at = error.pos + shift
        passed = self._text[:at]
        line = self._lines + passed.count("\n") + 1
        column = at - passed.rfind("\n") + ("\n" not in passed) * self._column
        return NotJson(f"{error.msg}: line {line} column {column} (char {self._characters + at})")


log = logging.getLogger("tfbert")

_OF_LABEL_STUDIO = ("annotations", "completions", "predictions")
_LINES_TO_AN_OBJECT = 1000  # A file without an object in its first 1000 lines is not JSON lines.
_ROWS_OF_KEYS, _CHARACTERS_OF_KEYS = 1000, 1 << 22
"""Rows, of so many characters at most, that say which keys there are: one that the first row lacks is a column, too."""
_LIST_OF = "a list of objects, one for each row, as pandas writes with orient='records'"
_FORMATS = f"JSON data is an object a line, or {_LIST_OF} (questions also SQuAD's: its 'data' is a list of articles)"


@dataclasses.dataclass(frozen=True)
class Entries:
    """What a JSON text lists in place of rows: SQuAD's articles, or lists; they have yet to be read, once.

    Attributes:
        name: What messages call the file.
        entries: The articles or the lists.
        are_lists: Which of them.
    """

    name: str
    entries: Iterator[Any]
    are_lists: bool = False


def open_json_rows(source: pathlib.Path | BinaryIO, name: str) -> OpenFile:
    """A file of JSON as `rows.open_rows` opens it.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream.
        name: What messages call it.

    Raises:
        UsageError: for a file that cannot be read, or that holds no rows.
    """
    file = open_json(source, name)
    if isinstance(file, Entries):
        raise UsageError(
            f"{_FORMATS}. Received: {name}, SQuAD's articles of questions. "
            "Pass --task=question_answering, or a model for it, or convert the file."
        )
    return file


def open_json(source: pathlib.Path | BinaryIO, name: str, *, takes_lists: bool = False) -> OpenFile | Entries:
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


def _open_list(name: str, entries: Iterator[Any], takes_lists: bool) -> OpenFile | Entries:
    first = next(entries, None)
    if first is None:
        raise UsageError(f"A data file needs at least one example. Received: {name!r}, an empty list. Check the path.")
    rest = itertools.chain([first], entries)
    if isinstance(first, list) and takes_lists:
        return Entries(name, rest, are_lists=True)
    if not isinstance(first, dict):
        what = "a list of lists, as pandas writes with orient='split' or 'values'" if isinstance(first, list) else ""
        what = what or f"a list that begins with {first!r:.40}"
        raise UsageError(f"{_FORMATS}. Received: {name}, {what}. Convert it.")
    if isinstance(first.get("paragraphs"), list):
        return Entries(name, rest)
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
    pandas = ", as pandas writes with orient='columns', 'index' or 'list'" if _is_of_columns(value) else ""
    return f"an object with {keys}{pandas}"
