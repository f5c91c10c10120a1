"""JSON of questions: SQuAD's nested articles, or one question per line; the content decides which of the two it is.

Articles are read one after another, as lines are: memory does not grow with their number.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from tfbert.data.json_text import JsonText, NotJson
from tfbert.data.questions import Place
from tfbert.data.rows import OpenFile, Row, open_json_lines, pieces_of
from tfbert.errors import UsageError

QUESTION_COLUMNS = ("question", "context")
"""The columns of tables, unless the user names others."""
_NESTED_PLACES = ("article", "paragraph", "question")


@dataclasses.dataclass(frozen=True)
class NestedQuestions:
    """One JSON text whose entries have yet to be read, once.

    Attributes:
        name: What messages call it.
        entries: Articles, or questions as the rows of a table have them.
        is_flat: Whether the entries are questions, as in the files of Hugging Face's run_qa.
    """

    name: str
    entries: Iterator[Any]
    is_flat: bool

    @property
    def place_names(self) -> tuple[str, ...]:
        """What the numbers of a place count."""
        return ("question",) if self.is_flat else _NESTED_PLACES

    def rows(self) -> Iterator[tuple[Place, dict[str, Any] | UsageError]]:
        """Each question as a row.

        Raises:
            UsageError: during iteration, where the text is not JSON.
        """
        for number, entry in enumerate(self.entries, start=1):
            if not self.is_flat:
                yield from _article_rows(entry, number, self.name)
            elif isinstance(entry, dict):
                yield (number,), entry
            else:
                yield (number,), _not_an_object("question", entry, f"{self.name}, question {number}")

    def as_table(self) -> OpenFile:
        """The questions as a file of rows, numbered from 1, without the answers."""

        def read(wanted: Sequence[str]) -> Iterator[Row]:
            for number, (_, row) in enumerate(self.rows(), start=1):
                yield number, row if isinstance(row, UsageError) else [row.get(column) for column in wanted]

        return OpenFile(name=self.name, columns=["id", "title", *QUESTION_COLUMNS], read=read, unit="question")


def open_json(source: pathlib.Path | BinaryIO, name: str) -> OpenFile | NestedQuestions:
    """Opens JSON of either kind: JSON lines, or one JSON text.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream.
        name: What messages call it.

    Raises:
        UsageError: for a file that cannot be read, or that is neither of the two.
    """
    text = JsonText(pieces_of(source, name))
    if text.enter_list("data"):
        entries = _entries(text, name)
        first = list(itertools.islice(entries, 1))
        keys = first[0].keys() if first and isinstance(first[0], dict) else set()
        is_flat = "paragraphs" not in keys and set(QUESTION_COLUMNS) <= keys
        return NestedQuestions(name, itertools.chain(first, entries), is_flat)
    lines = text.lines()
    filled = ((number, line) for number, line in lines if line.strip())
    head = list(itertools.islice(filled, 1))
    value = _parsed(head[0][1]) if head else {}
    is_lines = isinstance(value, dict)
    if isinstance(value, ValueError) and head[0][1].strip() not in ("{", "["):
        # Either a bad line of JSON lines, or the first line of one JSON text: the next line tells.
        head += itertools.islice(filled, 1)
        is_lines = len(head) == 2 and isinstance(_parsed(head[1][1]), dict)
    if is_lines:
        return open_json_lines(name, itertools.chain(head, lines))
    rest = [line for _, line in filled]
    if rest or isinstance(value, ValueError):
        value = _parsed("".join([line for _, line in head] + rest))
    if isinstance(value, ValueError):
        raise _not_json(name, value)
    keys = f", an object with {', '.join(map(repr, list(value)[:5]))}" if isinstance(value, dict) else ""
    raise UsageError(
        "SQuAD's JSON must be an object whose 'data' is a list of articles. "
        f"Received: {name}{keys}. Repair it, or convert it to JSON lines."
    )


def _parsed(text: str) -> Any:
    """The value of a JSON text, or the ValueError that says why it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        return error
    except RecursionError:
        return ValueError("nested too deeply")


def _entries(text: JsonText, name: str) -> Iterator[Any]:
    try:
        yield from text.items()
    except NotJson as error:
        raise _not_json(name, error) from None


def _not_json(name: str, error: ValueError) -> UsageError:
    return UsageError(
        f"A file of questions must be SQuAD's JSON or JSON lines. Received: {name}, which is not JSON ({error}). "
        "Repair it, or copy or download it again."
    )


def _article_rows(article: Any, number: int, name: str) -> Iterator[tuple[Place, dict[str, Any] | UsageError]]:
    where = f"{name}, article {number}"
    paragraphs = _list_of(article, "article", "paragraphs", where)
    if isinstance(paragraphs, UsageError):
        yield (number, 0, 0), paragraphs
        return
    for second, paragraph in enumerate(paragraphs, start=1):
        where = f"{name}, article {number}, paragraph {second}"
        questions = _list_of(paragraph, "paragraph", "qas", where)
        if isinstance(questions, UsageError):
            yield (number, second, 0), questions
            continue
        shared = {"title": article.get("title"), "context": paragraph.get("context")}
        for third, question in enumerate(questions, start=1):
            is_object = isinstance(question, dict)
            row = question | shared if is_object else _not_an_object("question", question, f"{where}, question {third}")
            yield (number, second, third), row


def _list_of(value: Any, what: str, key: str, where: str) -> list[Any] | UsageError:
    if not isinstance(value, dict):
        return _not_an_object(what, value, where)
    if not isinstance(value.get(key), list):
        received = f"{key}={value[key]!r:.60}" if key in value else f"no {key!r}"
        return UsageError(
            f"In SQuAD's JSON, every {what} has a list {key!r}. Received: {received} in {where}. Repair or drop it."
        )
    return value[key]


def _not_an_object(what: str, value: Any, where: str) -> UsageError:
    return UsageError(
        f"In SQuAD's JSON, every {what} is an object. Received: {value!r:.60} in {where}. Repair or drop it."
    )
