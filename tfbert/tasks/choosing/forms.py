"""The forms in which questions with choices are published, told apart by what they hold: a row of a file -> questions.

| form | what it holds |
| --- | --- |
| RACE | `article`, and lists: `questions`, `options` (a list each), `answers` (letters) |
| DREAM | lists: turns; questions with `question`, `choice`, `answer` (a text); an id |
| COPA | `premise`, `choice1`, `choice2`, `question` (cause or effect), `label` |
| ARC | `question` with `stem` and `choices` (`label`, `text`), or `question` and `choices`; `answerKey` |
| a table | a context, a question, choices and a label, found by `columns` (so SWAG, HellaSwag, CommonsenseQA) |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfbert.data.files import check_text, literal
from tfbert.data.given_table import plain
from tfbert.data.labels import HELD_BACK, NAMES_OR_MISSING, is_missing
from tfbert.errors import UsageError
from tfbert.tasks.choosing.answer_keys import index_of_letter
from tfbert.tasks.choosing.columns import Columns
from tfbert.tasks.choosing.questions import Asked

RACE = ("article", "questions", "options", "answers")
COPA = ("premise", "choice1", "choice2", "question")
_CAUSE_OR_EFFECT = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
"""COPA's questions, as Roemmele et al. 2011 put them."""
_REPAIR = "Repair or drop the question."

Values = Mapping[str, Any]
Read = Callable[[Values, str], Iterator["Asked | UsageError"]]
"""Takes the values of a row by column, and what messages call the row; gives its questions."""


@dataclasses.dataclass(frozen=True)
class Checks:
    """How rows are checked.

    Attributes:
        strict: Whether texts that are not valid Unicode are refused.
        labelled: Whether labels are read.
    """

    strict: bool = True
    labelled: bool = True

    def filled(self, value: Any, what: str, where: str) -> str:
        """A text that must not be empty."""
        text = check_text(value, what, where, strict=self.strict)
        if not text.strip():
            raise UsageError(f"A {what} must not be empty. Received: an empty one in {where}. {_REPAIR}")
        return text

    def maybe(self, value: Any, what: str, where: str) -> str:
        """A text that may be missing."""
        return "" if value is None else check_text(value, what, where, strict=self.strict)

    def asked(self, context: Any, question: Any, choices: Sequence[Any], where: str, **others: Any) -> Asked:
        """A question with its choices, each of them checked."""
        if isinstance(context, list | tuple):  # A dialogue's turns.
            context = joined(context, self, where)
        context, question = self.maybe(context, "context", where), self.maybe(question, "question", where)
        if not context.strip() and not question.strip():
            raise UsageError(f"A question needs a context or a question. Received: neither in {where}. {_REPAIR}")
        if len(choices) < 2:
            raise UsageError(
                f"A question needs at least two choices. Received: {list(choices)!r:.60} in {where}. {_REPAIR}"
            )
        texts = tuple(self.filled(choice, "choice", where) for choice in choices)
        if (others.get("index") or 0) >= len(texts):  # A label may name the column of a choice that is not there.
            raise UsageError(
                f"The right answer must be one of the choices. Received: {others['label']!r:.60}, and {len(texts)} "
                f"choices, in {where}. {_REPAIR}"
            )
        return Asked(context=context, question=question, choices=texts, **others)


CHECKS = Checks()
"""How labelled rows are checked."""


def joined(turns: Any, checks: Checks, where: str) -> str:
    """A dialogue's turns as one text."""
    if not isinstance(turns, list | tuple):
        raise UsageError(f"A dialogue is a list of turns. Received: {turns!r:.60} in {where}. {_REPAIR}")
    return " ".join(checks.maybe(turn, "turn", where) for turn in turns)


def race_rows(checks: Checks) -> Read:
    """Reads RACE's articles."""

    def read(row: Values, where: str) -> Iterator[Asked | UsageError]:
        questions, options, answers = (row.get(name) for name in RACE[1:])
        answers = answers if checks.labelled else None
        lists = (questions, options) if answers is None else (questions, options, answers)
        if not all(isinstance(part, list) for part in lists) or len({len(part) for part in lists}) != 1:
            yield UsageError(
                "In RACE's JSON, 'questions', 'options' and 'answers' are lists of one length. Received: "
                f"questions={questions!r:.40}, options={options!r:.40}, answers={answers!r:.40} in {where}. {_REPAIR}"
            )
            return
        for number, (question, choices) in enumerate(zip(questions, options, strict=True)):
            at = f"{where}, question {number + 1}"
            try:
                if not isinstance(choices, list):
                    raise UsageError(f"In RACE's JSON, options are lists. Received: {choices!r:.60} in {at}. {_REPAIR}")
                own = {} if answers is None else _by_letter(answers[number], len(choices), at)
                name = None if row.get("id") is None else f"{row['id']}-{number}"
                yield checks.asked(row.get("article"), question, choices, at, name=name, **own)
            except UsageError as error:
                yield error

    return read


def dream_rows(checks: Checks) -> Callable[[Any, str], Iterator[Asked | UsageError]]:
    """Reads DREAM's dialogues, each a list."""

    def read(entry: Any, where: str) -> Iterator[Asked | UsageError]:
        is_right = isinstance(entry, list) and len(entry) == 3 and isinstance(entry[1], list)
        if not is_right or not all(isinstance(question, dict) for question in entry[1]):
            yield UsageError(
                "In DREAM's JSON, a dialogue is a list of its turns, its questions and its id. "
                f"Received: {entry!r:.60} in {where}. {_REPAIR}"
            )
            return
        turns, questions, name = entry
        for number, question in enumerate(questions):
            at = f"{where}, question {number + 1}"
            try:
                choices = question.get("choice")
                if not isinstance(choices, list):
                    raise UsageError(
                        f"In DREAM's JSON, 'choice' is a list. Received: choice={choices!r:.60} in {at}. {_REPAIR}"
                    )
                answer, own = question.get("answer") if checks.labelled else None, {}
                if answer is not None:
                    own = {"label": answer, "index": _only_index(choices, answer, at)}
                context = joined(turns, checks, at)
                yield checks.asked(context, question.get("question"), choices, at, name=f"{name}-{number}", **own)
            except UsageError as error:
                yield error

    return read


def copa_rows(checks: Checks) -> Read:
    """Reads COPA's rows, in which a question is the word `cause` or `effect`."""

    def read(row: Values, where: str) -> Iterator[Asked | UsageError]:
        try:
            kind = row.get("question")
            if kind not in _CAUSE_OR_EFFECT:
                raise UsageError(
                    "In COPA's form, with premise, choice1 and choice2, a question is cause or effect. "
                    f"Received: question={kind!r:.60} in {where}. Repair it, or name the columns: "
                    "--text_column=premise,question --choice_columns=choice1,choice2."
                )
            label = label_of(row.get("label"), where) if checks.labelled else None
            own = {"label": label, "index": _of_column(COPA[1:3], label)}
            choices = [row.get("choice1"), row.get("choice2")]
            yield checks.asked(row.get("premise"), _CAUSE_OR_EFFECT[kind], choices, where, **own)
        except UsageError as error:
            yield error

    return read


def table_rows(columns: Columns, checks: Checks) -> Read:
    """Reads rows of a question each."""

    def read(row: Values, where: str) -> Iterator[Asked | UsageError]:
        try:
            question, context = row.get(columns.question), row.get(columns.context)
            own: Any = [row.get(column) for column in columns.choices]
            own = own[0] if len(columns.choices) == 1 else _without_missing(own, where)
            if isinstance(question, Mapping):  # ARC's own form.
                keys = sorted(key for key in question if key.startswith("choice_"))  # OpenBookQA's.
                own = question.get("choices") or [question[key] for key in keys]
                context = question.get("para", context)
                question = question.get("stem")
            choices, letters = _choices(own, where)
            label = label_of(row.get(columns.label), where) if columns.label and checks.labelled else None
            index = _of_column(columns.choices, label)
            if letters and label is not None:
                index = _only_index(letters, str(label), where)
            yield checks.asked(context, question, choices, where, label=label, index=index)
        except UsageError as error:
            yield error

    return read


def label_of(value: Any, where: str) -> int | str | None:
    """A label as it was written; None where it is missing or held back.

    Raises:
        UsageError: for what cannot be a label.
    """
    value = plain(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or str(value) == HELD_BACK or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UsageError(
            "A label is the number of the right choice from 0, its letter, or its text. "
            f"Received: {value!r:.60} in {where}. {_REPAIR}"
        )
    return None if isinstance(value, str) and is_missing(value.strip(), NAMES_OR_MISSING) else value


def _choices(value: Any, where: str) -> tuple[list[Any], list[str]]:
    """The choices of a question, and the names that labels call them by; no names where the data gives none."""
    if isinstance(value, str) and isinstance(found := literal(value), list | dict):
        value = found
    if isinstance(value, Mapping) and {"text", "label"} <= value.keys():
        texts, names = value["text"], value["label"]
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        texts, names = [one.get("text") for one in value], [one.get("label") for one in value]
    else:
        texts, names = value, []
    is_list = isinstance(texts, list | tuple) and isinstance(names, list | tuple)
    if not is_list or (names and (len(names) != len(texts) or not all(isinstance(n, int | str) for n in names))):
        raise UsageError(
            'Choices are a list of texts, or of objects with "label" and "text". '
            f"Received: {value!r:.80} in {where}. {_REPAIR}"
        )
    return list(texts), [str(name) for name in names]


def _without_missing(values: Sequence[Any], where: str) -> list[Any]:
    """The choices of columns, of which the last may be empty."""
    is_filled = [value is not None and (not isinstance(value, str) or bool(value.strip())) for value in values]
    count = sum(is_filled)
    if not all(is_filled[:count]):
        raise UsageError(f"Only the last choices may be empty. Received: {list(values)!r:.80} in {where}. {_REPAIR}")
    return list(values[:count])


def _by_letter(answer: Any, count: int, where: str) -> dict[str, Any]:
    index = index_of_letter(answer, count)
    if index is None:
        raise UsageError(
            f"In RACE's JSON, an answer is the letter of a choice. Received: {answer!r:.60}, for {count} choices in "
            f"{where}. {_REPAIR}"
        )
    return {"label": answer, "index": index}


def _of_column(columns: Sequence[str], label: int | str | None) -> int | None:
    """The choice whose column a label names, as in `choice2`; None for other labels. Columns without a header have
    numbers, which labels do not mean."""
    is_name = isinstance(label, str) and not label.strip().isdigit() and len(columns) > 1
    return columns.index(label.strip()) if is_name and label.strip() in columns else None


def _only_index(values: Sequence[Any], wanted: Any, where: str) -> int:
    same = [index for index, value in enumerate(values) if value == wanted]
    if len(same) != 1:
        raise UsageError(
            f"The right answer must be one of the choices. Received: {wanted!r:.60}, which {len(same)} of "
            f"{len(values)} are, in {where}. {_REPAIR}"
        )
    return same[0]
