"""JSON of questions: SQuAD's nested articles, MRQA's lines of contexts and their questions, or a row for each question.
The content decides which of them it is.

Articles are read one after another, as lines are: memory does not grow with their number.
"""

from __future__ import annotations

import dataclasses
import pathlib
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from tfbert.data.json_rows import Articles, Lists, open_json
from tfbert.data.open_file import OpenFile, Row
from tfbert.errors import UsageError
from tfbert.tasks.answering.question_rows import OTHER_ANSWERS
from tfbert.tasks.answering.questions import Place

QUESTION_COLUMNS = ("question", "context")
"""The columns of tables, unless the user names others."""
_NESTED_PLACES = ("article", "paragraph", "question")
_MRQA_COLUMNS = ("header", "context", "qas")


@dataclasses.dataclass(frozen=True)
class NestedQuestions:
    """Questions that are grouped by their contexts, and have yet to be read, once.

    Attributes:
        name: What messages call the file.
        rows: The place of each question, and the question as the rows of a table have it; or an error in its stead.
        place_names: What the numbers of a place count.
    """

    name: str
    rows: Iterator[tuple[Place, dict[str, Any] | UsageError]]
    place_names: tuple[str, ...]

    def as_table(self) -> OpenFile:
        """The questions as a file of rows, numbered from 1, without the answers."""

        def read(wanted: Sequence[str]) -> Iterator[Row]:
            for number, (_, row) in enumerate(self.rows, start=1):
                yield number, row if isinstance(row, UsageError) else [row.get(column) for column in wanted]

        return OpenFile(name=self.name, columns=["id", "title", *QUESTION_COLUMNS], read=read, unit="question")


def open_question_json(source: pathlib.Path | BinaryIO, name: str) -> OpenFile | NestedQuestions:
    """Opens JSON of any kind: rows as `json_rows.open_json_rows` does, or questions grouped by their contexts.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream.
        name: What messages call it.

    Raises:
        UsageError: for a file that cannot be read, or that holds no rows.
    """
    file = open_json(source, name)
    assert not isinstance(file, Lists)
    if isinstance(file, Articles):
        rows = (row for number, entry in enumerate(file.entries, 1) for row in _article_rows(entry, number, name))
        return NestedQuestions(name, rows, _NESTED_PLACES)
    is_mrqa = file.columns == ["header"] or {"context", "qas"} <= set(file.columns)
    return NestedQuestions(name, _mrqa_rows(file), (file.unit, "question")) if is_mrqa else file


def _mrqa_rows(file: OpenFile) -> Iterator[tuple[Place, dict[str, Any] | UsageError]]:
    """The questions of MRQA's lines. A header may come first."""
    for number, values in file.read(_MRQA_COLUMNS):
        if isinstance(values, UsageError):
            yield (number, 0), values
            continue
        header, context, questions = values
        if header is not None and context is None:
            continue
        where = f"{file.name}, {file.unit} {number}"
        questions = _list_of({"qas": questions} if questions is not None else {}, "context", "qas", where, "MRQA's")
        if isinstance(questions, UsageError):
            yield (number, 0), questions
            continue
        for second, question in enumerate(questions, start=1):
            at = f"{where}, question {second}"
            if isinstance(question, dict):
                yield (number, second), _mrqa_question(question, context, at)
            else:
                yield (number, second), _not_an_object("question", question, at, "MRQA's")


def _mrqa_question(question: dict[str, Any], context: Any, where: str) -> dict[str, Any] | UsageError:
    """A question as the rows of a table have it: first the answers that were detected in the context, then those that
    were not, which have no place in it."""
    row = {"id": question.get("qid", question.get("id")), "question": question.get("question"), "context": context}
    written, detected = question.get("answers"), question.get("detected_answers")
    if written is None and detected is None:
        return row
    if detected is None and isinstance(written, list) and all(isinstance(answer, dict) for answer in written):
        return row | {"answers": written, "is_impossible": question.get("is_impossible")}  # SQuAD's, without articles.
    is_right = False
    try:
        spans = [(*span, answer.get("text")) for answer in detected or [] for span in answer["char_spans"]]
        found = {
            (_detected(context, start, end, text), start): None
            for start, end, text in spans
            if 0 <= start <= end < len(context) + (context[start:end] == text)
        }
        texts = {text for text, _ in found}
        others = [text for text in dict.fromkeys(written or []) if text not in texts]
        is_right = len(found) == len({span[:2] for span in spans}) and all(isinstance(text, str) for text in others)
        is_right = is_right and isinstance(written, list | None) and isinstance(detected, list | None)
    except (TypeError, ValueError, KeyError):
        pass
    if not is_right:
        return UsageError(
            "In MRQA's JSON, 'answers' is a list of texts, and 'detected_answers' a list of objects with 'char_spans', "
            f"pairs of the first and the last character. Received: answers={written!r:.40}, "
            f"detected_answers={detected!r:.80} in {where}. Repair or drop the question."
        )
    answers = [{"text": text, "answer_start": start} for text, start in found]
    return row | {"answers": answers, OTHER_ANSWERS: [text for text in others if text.strip()]}


def _detected(context: str, start: int, end: int, text: str | None) -> str:
    """The answer at a span of a context: as the context has it, where it is the text that was detected. If it is not,
    that text, which is then not at its place."""
    found = context[start : end + 1]  # The last character of a span belongs to it.
    if text is None or _plain(found) == _plain(text):
        return text if context[start:end] == text else found
    return text


def _plain(text: str) -> str:
    """Its letters and digits: what is detected may differ in the rest."""
    letters = "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))
    return letters or text.strip()


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


def _list_of(value: Any, what: str, key: str, where: str, whose: str = "SQuAD's") -> list[Any] | UsageError:
    if not isinstance(value, dict):
        return _not_an_object(what, value, where, whose)
    if not isinstance(value.get(key), list):
        received = f"{key}={value[key]!r:.60}" if key in value else f"no {key!r}"
        return UsageError(
            f"In {whose} JSON, every {what} has a list {key!r}. Received: {received} in {where}. Repair or drop it."
        )
    return value[key]


def _not_an_object(what: str, value: Any, where: str, whose: str = "SQuAD's") -> UsageError:
    return UsageError(
        f"In {whose} JSON, every {what} is an object. Received: {value!r:.60} in {where}. Repair or drop it."
    )
