"""Questions with their choices: the columns of a table, the forms in which such data are published, labels, and the
questions of a file as examples.

The forms are told apart by their columns:

| form | what it holds |
| --- | --- |
| RACE | `article`, and lists: `questions`, `options` (a list each), `answers` (letters) |
| ARC | `question` with `stem` and `choices` (`label`, `text`), or `question` and `choices`; `answerKey` |
| a table | a context, a question, choices and a label, found by `find_columns` (so SWAG, HellaSwag, CommonsenseQA) |

A label is a number from 0, a letter, or the text of a choice: one reading for a whole file.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.data.files import UNLABELLED, Finder, are_of_texts, check_different, check_text, literal, named_by_user
from tfbert.data.labels import HELD_BACK, NAMES_OR_MISSING, is_missing
from tfbert.data.reading import OTHER_FORMATS, BadRows, GivenTable, OpenFile, Unlabelled, plain
from tfbert.data.rows import Source, open_source
from tfbert.errors import UsageError
from tfbert.tasks.base import InMemory

Place = tuple[int, ...]
"""Where a question stands: numbers from 1, one for each level; 0 for a level that it does not have."""
NO_LABEL = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """A question with its choices.

    Attributes:
        name: What names it in a file of predictions; None for a number.
        context: What it is about; may be empty if there is a question.
        question: The question, or the beginning of what each choice ends; may be empty if there is a context.
        choices: At least two, none of them empty.
        label: The right one as it was written; None if the data does not say.
        index: The right one, counted from 0, where the data leaves no doubt about it; else None.
    """

    name: Any = None
    context: str
    question: str
    choices: tuple[str, ...]
    label: int | str | None = None
    index: int | None = None

    def __repr__(self) -> str:
        return repr(self.name)  # As messages show the id of an example.

    @property
    def texts(self) -> list[str]:
        return [self.context, self.question, *self.choices]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceExamples(InMemory):
    """Questions with their choices, see `Examples`.

    Attributes:
        name: Where they came from, for messages.
        asked: The questions.
        labels: int32 `[n]`: the right choice of each, from 0; `NO_LABEL` where it is not known.
        places: int32 `[n, levels]`: a `Place` of each.
        place_names: What the numbers of a place count, such as `line`.
        notes: What the user should know, one line each.
        columns: Those that were read, by the options that name them; empty where nobody can choose them.
    """

    name: str
    asked: list[Asked]
    labels: np.ndarray
    places: np.ndarray
    place_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    num_texts = 2

    def __len__(self) -> int:
        return len(self.asked)

    @property
    def counts(self) -> np.ndarray:
        """int32 `[n]`: how many choices each question has."""
        return np.array([len(asked.choices) for asked in self.asked], np.int32)

    def take(self, indices: Iterable[int]) -> ChoiceExamples:
        indices = np.asarray(list(indices), np.int64)
        return dataclasses.replace(
            self, asked=[self.asked[i] for i in indices], labels=self.labels[indices], places=self.places[indices]
        )

    def where(self, row: int) -> str:
        return place_text(self.place_names, self.places[row])

    def texts(self) -> list[str]:
        contexts = dict.fromkeys(asked.context for asked in self.asked)  # Many questions may be about one.
        return [*contexts, *(text for asked in self.asked for text in (asked.question, *asked.choices))]

    def checksum(self, name: str, start: int) -> int:
        # How many choices each question has is part of what is held: the texts alone do not say.
        parts = [name, *(f"{len(asked.choices)}\0{asked.context}" for asked in self.asked)]
        return super().checksum("\0".join(parts), start)

    def contents(self) -> Iterator[tuple[str, ...]]:
        return (tuple(map(str.strip, (a.context, a.question, *a.choices))) for a in self.asked)


def place_text(names: Sequence[str], place: Sequence[int]) -> str:
    """A place in a file, such as `line 3, question 2`."""
    return ", ".join(f"{what} {number}" for what, number in zip(names, place, strict=True) if number)


CONTEXT_NAMES = ("context", "article", "passage", "premise", "paragraph", "dialogue", "story", "ctx", "sent1", "para")
QUESTION_NAMES = ("question", "question_stem", "query", "goal", "sent2", "stem")
LIST_NAMES = ("choices", "options", "endings", "choice")
"""Usual names of a column that holds all choices of a question."""
LABEL_NAMES = (("label",), ("answerkey", "answer", "gold_label", "correct_option", "labels", "target", "gold", "cop"))
"""Usual names of the label's column; a plain `label` wins over all others."""
_ENDS = re.compile(r"(choice|option|ending|answer|sol|op)?[_ ]?(\d{1,3}|[a-z])", re.ASCII)
_HINT = (
    "Name them with --choice_columns (one column of lists, or one for each choice), "
    "--text_column=CONTEXT,QUESTION and --label_column"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table.

    Attributes:
        context: That of the contexts; empty where there is none.
        question: That of the questions; empty where there is none.
        choices: One whose cells hold all choices of a question, or one for each choice; empty where they are inside of
            the question, as in ARC's own files.
        label: That of the labels; empty where there is none.
    """

    context: str
    question: str
    choices: tuple[str, ...]
    label: str

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.context, self.question, *self.choices, self.label)))

    @property
    def by_option(self) -> dict[str, tuple[str, ...]]:
        """All of them, by the options that name them. A context alone cannot be named, only a question."""
        texts = (self.context, self.question) if self.context and self.question else (self.question,)
        named = {"text_column": texts, "choice_columns": self.choices, "label_column": (self.label,)}
        return {option: columns for option, columns in named.items() if columns and all(columns)}


def find_columns(
    name: str,
    columns: Sequence[str],
    *,
    text_column: Sequence[str] = (),
    choice_columns: Sequence[str] = (),
    label_column: str = "",
    find_label: bool = True,
) -> Columns:
    """Decides which columns hold what.

    Args:
        name: What messages call the data.
        columns: All columns there are.
        text_column: As the user named them: context and question, or the only one of these. Empty: found by name.
        choice_columns: As the user named them. Empty: found by name.
        label_column: As the user named it. Empty: found by name.
        find_label: Whether to look for a label column by name. If not, only `label_column` counts.

    Raises:
        UsageError: for a column that is not there, or if none, or several, could be meant.
    """
    asked = {"text_column": text_column, "choice_columns": choice_columns, "label_column": [label_column]}
    given = Finder(name, columns, todo=_HINT, **asked)
    texts = given.asked["text_column"]
    context, question = texts if len(texts) == 2 else ("", *texts) if texts else ("", "")
    if not texts:
        context = given.one_of("context", "text_column", [CONTEXT_NAMES])
        question = given.one_of("question", "text_column", [QUESTION_NAMES])
    choices = given.asked["choice_columns"]
    if not choices and (name_of_list := given.one_of("choices", "choice_columns", [LIST_NAMES])):
        choices = (name_of_list,)
    choices = choices or _numbered(given.usual)
    label = "".join(given.asked["label_column"])
    if find_label and not label:
        label = given.one_of("label", "label_column", LABEL_NAMES, choices)
    if not choices and (label or not find_label):
        choices = tuple(given.usual.get("answers", ()))
    if not context and not question:
        raise given.none("a context or a question", "text_column")
    if not choices and not question:
        raise given.none("the choices", "choice_columns")
    found = Columns(context=context, question=question, choices=choices, label=label)
    check_different(*found.all)
    return found


def no_choices(name: str, columns: Sequence[str]) -> UsageError:
    """The error for a table in which nothing looks like choices."""
    return Finder(name, columns, todo=_HINT).none("the choices", "choice_columns")


def _numbered(usual: dict[str, list[str]]) -> tuple[str, ...]:
    """Columns such as `ending0`, `ending1`, ..., or `A`, `B`, ...: those of the stem with most of them, at least two,
    without a gap from 0, 1 or A on."""
    stems: dict[tuple[str, bool], dict[int, str]] = {}
    for key, names in usual.items():
        if (match := _ENDS.fullmatch(key)) and len(names) == 1 and (match[1] or not match[2].isdigit()):
            number = int(match[2]) if match[2].isdigit() else string.ascii_lowercase.index(match[2])
            stems.setdefault((match[1] or "", match[2].isdigit()), {})[number] = names[0]
    best: tuple[str, ...] = ()
    for (_, has_digits), found in stems.items():
        first = 1 if has_digits and 0 not in found else 0
        numbers = range(first, first + len(found))
        if len(found) >= 2 and set(numbers) == set(found) and len(found) > len(best):
            best = tuple(found[number] for number in numbers)
    return best


_WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
_LETTER = re.compile(r"\(?([A-Za-z])[).]?", re.ASCII)
_RULE = "A label is the number of the right choice from 0, its letter, or its text"
_MOST = 26


def find_indexes(asked: Sequence[Asked], where: Sequence[str]) -> list[int | UsageError]:
    """The right choice of each labelled question, from 0; or the error that says why it is not known.

    The reading that fits most labels is that of the whole file.

    Args:
        asked: The questions; `label` of each is what was written. Those whose `index` is known keep it.
        where: What messages call each question.

    Raises:
        UsageError: for labels that can be read in two ways that differ, or numbers that count from 1.
    """
    open_ones = [row for row, one in enumerate(asked) if one.index is None]
    if not open_ones:
        return [one.index for one in asked]
    readings = {kind: [read(asked[row]) for row in open_ones] for kind, read in _READINGS.items()}
    fits = {kind: sum(index is not None for index in found) for kind, found in readings.items()}
    best = [kind for kind, count in fits.items() if count == max(fits.values())]
    if _NUMBER in best:
        _refuse_from_one([asked[row] for row in open_ones], readings[_NUMBER], [where[row] for row in open_ones])
    for row, *found in zip(open_ones, *(readings[kind] for kind in best), strict=True):
        if len(set(found)) > 1:
            ways = " and ".join(best)
            raise UsageError(
                f"{_RULE}, the same in a whole file. Received: labels that could be read as {ways}, "
                f"such as {asked[row].label!r:.60} in {where[row]}, where these differ. Write letters: A, B, ..."
            )
    chosen = dict(zip(open_ones, readings[best[0]], strict=True))
    kind = best[0] if max(fits.values()) else ""
    return [
        one.index if row not in chosen else chosen[row] if chosen[row] is not None else _error(one, where[row], kind)
        for row, one in enumerate(asked)
    ]


def index_of_letter(label: object, count: int) -> int | None:
    """The choice that a letter means, from 0; None for anything else, or a letter that no choice has."""
    match = _LETTER.fullmatch(label.strip()) if isinstance(label, str) else None
    index = ord(match[1].upper()) - ord("A") if match else _MOST
    return index if index < count else None


def _number(one: Asked) -> int | None:
    value = _whole(one.label)
    return value if value is not None and 0 <= value < len(one.choices) else None


def _whole(label: int | str | None) -> int | None:
    if isinstance(label, int):
        return label
    return int(float(label)) if isinstance(label, str) and _WHOLE.fullmatch(label.strip()) else None


def _letter(one: Asked) -> int | None:
    return index_of_letter(one.label, len(one.choices))


def _text(one: Asked) -> int | None:
    if not isinstance(one.label, str):
        return None
    same = [index for index, choice in enumerate(one.choices) if choice.strip() == one.label.strip()]
    return same[0] if len(same) == 1 else None


_NUMBER = "numbers"
_READINGS = {_NUMBER: _number, "letters": _letter, "texts": _text}


def _refuse_from_one(asked: Sequence[Asked], found: Sequence[int | None], where: Sequence[str]) -> None:
    """Refuses a file whose numbers count from 1: none is 0, and some are the number of choices."""
    values = [_whole(one.label) for one in asked]
    past = [row for row, (one, value) in enumerate(zip(asked, values, strict=True)) if value == len(one.choices)]
    if past and 0 not in values:
        raise UsageError(
            f"{_RULE}. Received: {asked[past[0]].label!r} for {len(asked[past[0]].choices)} choices in "
            f"{where[past[0]]}, and no 0: these seem to count from 1. Subtract 1, or write letters: A, B, ..."
        )


def _error(one: Asked, where: str, kind: str) -> UsageError:
    like = f" as most labels here are ({kind})" if kind else ""
    twice = isinstance(one.label, str) and sum(choice.strip() == one.label.strip() for choice in one.choices) > 1
    what = ", the text of several choices" if twice else ""
    return UsageError(
        f"{_RULE}{like}. Received: {one.label!r:.60}{what}, for {len(one.choices)} choices in {where}. "
        "Correct it or drop the question."
    )


RACE = ("article", "questions", "options", "answers")
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
            context = " ".join(self.maybe(turn, "turn", where) for turn in context)
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


def table_rows(columns: Columns, checks: Checks) -> Read:
    """Reads rows of a question each."""

    def read(row: Values, where: str) -> Iterator[Asked | UsageError]:
        try:
            question, context = row.get(columns.question), row.get(columns.context)
            own: Any = [row.get(column) for column in columns.choices]
            own = own[0] if len(columns.choices) == 1 else _without_missing(own, where)
            if isinstance(question, Mapping):  # ARC's own form.
                own, context = question.get("choices"), question.get("para", context)
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
            f"Received: {value!r:.80} in {where}. {_REPAIR[:-1]}; for another form, {OTHER_FORMATS}."
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


AskedRow = tuple[Place, "Asked | UsageError"]
IdColumn = Callable[[Sequence[str]], str]
_LOOKED_AT = 20
"""Questions by which a file is recognised."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenQuestions:
    """Questions whose form is known and that have yet to be read, once.

    Attributes:
        name: What messages call the file.
        rows: The place of each question, and the question, or why it cannot be read.
        place_names: What the numbers of a place count.
        has_labels: Whether the file says which choices are right.
        file: The table that they come from.
        read: The columns that are read, by the options that name them; empty where nobody can choose them.
    """

    name: str
    rows: Iterator[AskedRow]
    place_names: tuple[str, ...]
    has_labels: bool
    file: OpenFile
    read: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


def open_questions(
    source: Source,
    config: DataConfig,
    *,
    choice_columns: Sequence[str] = (),
    id_column: IdColumn | None = None,
    checks: Checks = CHECKS,
) -> OpenQuestions:
    """Opens a file of questions.

    Args:
        source: As for `open_rows`.
        config: Says the format, and which columns hold what.
        choice_columns: The columns of choices; empty: found by name.
        id_column: Takes the columns of a table that are nothing else; returns the one that names its questions, empty
            for none. None: names are not wanted.
        checks: How rows are checked.

    Raises:
        UsageError: for a file that cannot be read, or that holds no questions with choices.
    """
    has_columns = named_by_user(*config.text_column, *choice_columns, config.label_column)
    opened = open_source(source, config)
    name, file = opened.name, opened.without_rejected() if checks.labelled else opened
    if not has_columns and {*RACE[:3]} <= {*file.columns}:
        rows = _rows(_as_dicts(file, [*RACE, "id"]), race_rows(checks), name, file.unit, is_list=True)
        has_labels, names = RACE[3] in file.columns, (file.unit, "question")
        return OpenQuestions(name=name, rows=rows, place_names=names, has_labels=has_labels, file=file)
    columns = find_columns(
        name,
        file.columns,
        text_column=config.text_column,
        choice_columns=choice_columns,
        label_column=config.label_column,
        find_label=checks.labelled,
    )
    named_by = id_column([column for column in file.columns if column not in columns.all]) if id_column else ""
    found = _as_dicts(file, [*dict.fromkeys([*columns.all, *filter(None, [named_by])])], columns.label)
    if not columns.choices:  # They can only be inside of the questions.
        found, first = _with_first(found)
        if not isinstance(first, UsageError) and not isinstance(first.get(columns.question), Mapping):
            raise no_choices(name, file.columns)
    rows = _rows(found, table_rows(columns, checks), name, file.unit, named_by=named_by)
    names, has_labels, named = (file.unit,), bool(columns.label), columns.by_option
    return OpenQuestions(name=name, rows=rows, place_names=names, has_labels=has_labels, file=file, read=named)


def read_questions(opened: OpenQuestions, *, skip_bad_rows: bool = False) -> ChoiceExamples:
    """Reads labelled questions.

    Args:
        opened: The file, just opened.
        skip_bad_rows: Leave out questions that cannot be used, rather than stop at the first; a note counts them.

    Raises:
        UsageError: for a bad question, one without a label, or no question at all.
    """
    name, bad_rows = opened.name, BadRows(skip_bad_rows, is_data_set=bool(opened.file.kinds))

    def at(place: Place) -> str:
        return ", ".join([name, place_text(opened.place_names, place)])

    def checked(place: Place, asked: Asked) -> tuple[Place, Asked]:
        if asked.label is None and asked.index is None:
            raise Unlabelled(
                f"Every question needs a label, the right choice. Received: none in {at(place)}. "
                f"Add it or drop the question{'' if opened.has_labels else f', or pass --label_column{UNLABELLED}'}."
            )
        return place, asked

    found = list(bad_rows.usable(opened.rows, checked))
    indexes = find_indexes([asked for _, asked in found], [at(place) for place, _ in found])
    good = bad_rows.usable(zip(found, indexes, strict=True), lambda one, index: (*one, index))
    kept = [(place, dataclasses.replace(asked, index=index), index) for place, asked, index in good]
    return ChoiceExamples(
        name=name,
        asked=[asked for _, asked, _ in kept],
        labels=np.array([index for *_, index in kept], np.int32).reshape(-1),
        places=np.array([place for place, *_ in kept], np.int32).reshape(len(kept), len(opened.place_names)),
        place_names=opened.place_names,
        notes=bad_rows.skipped(name, len(kept), "question", "questions"),
        columns=opened.read,
    )


def holds_choices(path: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a file certainly holds questions with choices; False where the user chooses columns, or it cannot be
    read."""
    if config.text_column or config.label_column:
        return False
    try:
        opened = open_questions(path, config)
        if opened.file.kinds:
            return opened.has_labels
        firsts = [asked for _, asked in itertools.islice(opened.rows, _LOOKED_AT)]
    except UsageError:
        return False
    # The first of them may be bad rows. A column of choices alone is not enough: another task may read the others.
    if any(isinstance(one, Asked) and (one.label is not None or one.index is not None) for one in firsts):
        return True
    # Where all are, reading them as questions says what is wrong, unless the columns are also those of texts.
    are_bad = bool(firsts) and all(isinstance(one, UsageError) for one in firsts)
    return are_bad and opened.has_labels and not are_of_texts(opened.file.columns)


def _rows(
    values: Iterable[tuple[int, Any]], read: Read, name: str, unit: str, *, is_list: bool = False, named_by: str = ""
) -> Iterator[AskedRow]:
    """The questions of rows, each with its place; `is_list`: a row has several."""
    for line, value in values:
        found = [value] if isinstance(value, UsageError) else read(value, f"{name}, {unit} {line}")
        for number, asked in enumerate(found, 1):
            if named_by and isinstance(asked, Asked):
                asked = dataclasses.replace(asked, name=value.get(named_by))
            yield ((line, number) if is_list else (line,)), asked


def _as_dicts(
    file: OpenFile, wanted: Sequence[str], label: str = ""
) -> Iterator[tuple[int, dict[str, Any] | UsageError]]:
    """Rows by column; those that the file does not have are left out. A line of JSON may have keys that the first line
    lacks, but what a question is made of must be in the first. Ids of labels get the names that the data has for them.
    """
    known, names = [column for column in wanted if column in file.columns], file.label_names.get(label, ())
    for line, row in file.read(known):
        if not isinstance(row, UsageError):
            row = dict(zip(known, row, strict=True))
            if type(row.get(label)) is int and 0 <= row[label] < len(names):
                row[label] = names[row[label]]
        yield line, row


def _with_first(rows: Iterator[tuple[int, Any]]) -> tuple[Iterator[tuple[int, Any]], Any]:
    first = next(rows, None)
    return itertools.chain([first] if first else [], rows), first[1] if first else {}
