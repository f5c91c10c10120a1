"""A JSON text that holds a long list, read item by item: memory for the longest item, however long the text is."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

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
