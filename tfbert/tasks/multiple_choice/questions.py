"""Questions with their choices: the columns of a table, labels, and the questions of a file as examples.

A row has a context, a question, choices and a label, found by `find_columns`: so SWAG, HellaSwag and COPA, and the
tables that Hugging Face has of ARC, CommonsenseQA and RACE.

A label is a number from 0, a letter, or the text of a choice: one reading for a whole file.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.data.files import UNLABELLED, Finder, are_of_texts, check_different, check_text, literal
from tfbert.data.labels import HELD_BACK, NAMES_OR_MISSING, is_missing
from tfbert.data.reading import OTHER_FORMATS, BadRows, GivenTable, OpenFile, Unlabelled, plain
from tfbert.data.rows import Source, open_source
from tfbert.errors import UsageError
from tfbert.tasks.base import InMemory


@dataclasses.dataclass(kw_only=True)
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
        labels: int32 `[n]`: the right choice of each, from 0.
        notes: What the user should know, one line each.
        columns: Those that were read, by the options that name them; empty where nobody can choose them.
    """

    name: str
    asked: list[Asked]
    labels: np.ndarray
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
            self, asked=[self.asked[i] for i in indices], labels=self.labels[indices], lines=self.lines[indices]
        )

    def texts(self) -> list[str]:
        contexts = dict.fromkeys(asked.context for asked in self.asked)  # Many questions may be about one.
        return [*contexts, *(text for asked in self.asked for text in (asked.question, *asked.choices))]

    def checksum(self, name: str, start: int) -> int:
        # How many choices each question has is part of what is held: the texts alone do not say.
        parts = [name, *(f"{len(asked.choices)}\0{asked.context}" for asked in self.asked)]
        return super().checksum("\0".join(parts), start)

    def contents(self) -> Iterator[tuple[str, ...]]:
        return (tuple(map(str.strip, (a.context, a.question, *a.choices))) for a in self.asked)


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
        choices: One whose cells hold all choices of a question, or one for each choice.
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
    if not choices:
        raise given.none("the choices", "choice_columns")
    found = Columns(context=context, question=question, choices=choices, label=label)
    check_different(*found.all)
    return found


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
_RULE = "A label is the number of the right choice from 0, its letter, or a text that it alone has"


def find_indexes(asked: Sequence[Asked], where: Sequence[str]) -> list[int | UsageError]:
    """The right choice of each labelled question, from 0; or the error that says why it is not known.

    The reading that fits most labels is that of the whole file.

    Args:
        asked: The questions; `label` of each is what was written. Those whose `index` is known keep it.
        where: What messages call each question.

    Raises:
        UsageError: for labels that can be read in two ways that differ, or numbers that count from 1.
    """
    readings = {
        kind: [read(one) if one.index is None else one.index for one in asked] for kind, read in _READINGS.items()
    }
    fits = {kind: sum(index is not None for index in found) for kind, found in readings.items()}
    best = [kind for kind, count in fits.items() if count == max(fits.values())]
    values = {row: _whole(one.label) for row, one in enumerate(asked) if one.index is None}
    past = [row for row, value in values.items() if value == len(asked[row].choices)]
    if _NUMBER in best and past and 0 not in values.values():
        raise UsageError(
            f"{_RULE}. Received: {asked[past[0]].label!r} for {len(asked[past[0]].choices)} choices in "
            f"{where[past[0]]}, and no 0: these seem to count from 1. Subtract 1, or write letters: A, B, ..."
        )
    for row, found in enumerate(zip(*(readings[kind] for kind in best), strict=True)):
        if len(set(found)) > 1:
            raise UsageError(
                f"{_RULE}, the same in a whole file. Received: labels that could be read as {' and '.join(best)}, "
                f"such as {asked[row].label!r:.60} in {where[row]}, where these differ. Write letters: A, B, ..."
            )
    like = f", and most here are {best[0]}" if len(best) == 1 else ""
    return [
        UsageError(
            f"{_RULE}{like}. Received: {one.label!r:.60} for {len(one.choices)} choices in {at}. "
            "Correct it or drop the question."
        )
        if index is None
        else index
        for one, at, index in zip(asked, where, readings[best[0]], strict=True)
    ]


def _number(one: Asked) -> int | None:
    value = _whole(one.label)
    return value if value is not None and 0 <= value < len(one.choices) else None


def _whole(label: int | str | None) -> int | None:
    if isinstance(label, int):
        return label
    return int(float(label)) if isinstance(label, str) and _WHOLE.fullmatch(label.strip()) else None


def _letter(one: Asked) -> int | None:
    match = _LETTER.fullmatch(one.label.strip()) if isinstance(one.label, str) else None
    index = ord(match[1].upper()) - ord("A") if match else len(one.choices)
    return index if index < len(one.choices) else None


def _text(one: Asked) -> int | None:
    if not isinstance(one.label, str):
        return None
    same = [index for index, choice in enumerate(one.choices) if choice.strip() == one.label.strip()]
    return same[0] if len(same) == 1 else None


_NUMBER = "numbers"
_READINGS = {_NUMBER: _number, "letters": _letter, "texts": _text}


_REPAIR = "Repair or drop the question."


def asked_of(row: Mapping[str, Any], columns: Columns, where: str, *, labelled: bool = True) -> Asked:
    """The question of a row.

    Args:
        row: Its values, by column.
        columns: Which of them hold what.
        where: What messages call it.
        labelled: Whether its label is read, and texts that are not valid Unicode are refused.

    Raises:
        UsageError: for one that cannot be read.
    """

    def text(value: Any, what: str) -> str:
        return "" if value is None else check_text(value, what, where, strict=labelled)

    context, question = row.get(columns.context), text(row.get(columns.question), "question")
    if isinstance(context, list | tuple):  # A dialogue's turns.
        context = " ".join(text(turn, "turn") for turn in context)
    context = text(context, "context")
    if not context.strip() and not question.strip():
        raise UsageError(f"A question needs a context or a question. Received: neither in {where}. {_REPAIR}")
    own: Any = [row.get(column) for column in columns.choices]
    found, names = _choices(own[0], where) if len(own) == 1 else (_without_missing(own, where), [])
    if len(found) < 2:
        raise UsageError(f"A question needs at least two choices. Received: {found!r:.60} in {where}. {_REPAIR}")
    choices = tuple(check_text(choice, "choice", where, strict=labelled) for choice in found)
    if not all(map(str.strip, choices)):
        raise UsageError(f"A choice must not be empty. Received: {found!r:.60} in {where}. {_REPAIR}")
    label = label_of(row.get(columns.label), where) if columns.label and labelled else None
    index = None
    if names and label is not None:
        if names.count(str(label)) != 1:
            raise UsageError(
                "A label must be the name of one choice. "
                f"Received: {label!r:.60} for choices named {names!r:.60} in {where}. {_REPAIR}"
            )
        index = names.index(str(label))
    return Asked(context=context, question=question, choices=choices, label=label, index=index)


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
        raise UsageError(f"{_RULE}. Received: {value!r:.60} in {where}. {_REPAIR}")
    return None if isinstance(value, str) and is_missing(value.strip(), NAMES_OR_MISSING) else value


def _choices(value: Any, where: str) -> tuple[list[Any], list[str]]:
    """The choices of a question, and the names that labels call them by; no names where the data gives none."""
    value = plain(value)
    if isinstance(value, str) and isinstance(found := literal(value), list | dict):
        value = found
    if isinstance(value, Mapping) and {"text", "label"} <= value.keys():
        texts, names = value["text"], value["label"]
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        texts, names = [one.get("text") for one in value], [one.get("label") for one in value]
    else:
        texts, names = value, []
    is_list = isinstance(texts, list) and isinstance(names, list)
    is_list = is_list and not any(isinstance(text, list) for text in texts)  # Of several questions.
    if not is_list or (names and (len(names) != len(texts) or not all(isinstance(n, int | str) for n in names))):
        raise UsageError(
            'Choices are a list of texts, or of objects with "label" and "text". '
            f"Received: {value!r:.80} in {where}. {_REPAIR[:-1]}; for another form, {OTHER_FORMATS}."
        )
    return texts, [str(name) for name in names]


def _without_missing(values: Sequence[Any], where: str) -> list[Any]:
    """The choices of columns, of which the last may be empty."""
    is_filled = [value is not None and (not isinstance(value, str) or bool(value.strip())) for value in values]
    count = sum(is_filled)
    if not all(is_filled[:count]):
        raise UsageError(f"Only the last choices may be empty. Received: {list(values)!r:.80} in {where}. {_REPAIR}")
    return [*values[:count]]


_LOOKED_AT = 20
"""Questions by which a file is recognised."""


def open_choices(
    source: Source, config: DataConfig, choice_columns: Sequence[str] = (), *, labelled: bool = True
) -> tuple[OpenFile, Columns]:
    """Opens a file of questions, and finds its columns.

    Args:
        source: As for `open_rows`.
        config: Says the format, and which columns hold what.
        choice_columns: The columns of choices; empty: found by name.
        labelled: As for `asked_of`.

    Raises:
        UsageError: for a file that cannot be read, or that holds no questions with choices.
    """
    opened = open_source(source, config)
    file = opened.without_rejected() if labelled else opened
    columns = find_columns(
        file.name,
        file.columns,
        text_column=config.text_column,
        choice_columns=choice_columns,
        label_column=config.label_column,
        find_label=labelled,
    )
    return file, columns


def _rows(file: OpenFile, columns: Columns) -> Iterator[tuple[int, Asked | UsageError]]:
    """The line of each question of a table, and the question, or why it cannot be read. Ids of labels get the names
    that the data has for them."""
    names = file.label_names.get(columns.label, ())
    for line, row in file.read(columns.all):
        try:
            if isinstance(row, UsageError):
                raise row
            values = dict(zip(columns.all, row, strict=True))
            if type(label := values.get(columns.label)) is int and 0 <= label < len(names):
                values[columns.label] = names[label]
            yield line, asked_of(values, columns, f"{file.name}, {file.unit} {line}")
        except UsageError as error:
            yield line, error


def read_choices(source: Source, config: DataConfig, choice_columns: Sequence[str] = ()) -> ChoiceExamples:
    """Reads labelled questions.

    Args:
        source: As for `open_choices`.
        config: As for `open_choices`; and whether questions that cannot be used are left out, and counted.
        choice_columns: As for `open_choices`.

    Raises:
        UsageError: for a bad question, one without a label, or no question at all.
    """
    file, columns = open_choices(source, config, choice_columns)
    bad_rows = BadRows(config.skip_bad_rows, is_data_set=bool(file.kinds))

    def checked(line: int, asked: Asked) -> tuple[int, Asked]:
        if asked.label is None:
            raise Unlabelled(
                f"Every question needs a label, the right choice. Received: none in {file.name}, {file.unit} {line}. "
                f"Add it or drop the question{'' if columns.label else f', or pass --label_column{UNLABELLED}'}."
            )
        return line, asked

    found = list(bad_rows.usable(_rows(file, columns), checked))
    places = [f"{file.name}, {file.unit} {line}" for line, _ in found]
    indexes = find_indexes([asked for _, asked in found], places)
    kept = list(bad_rows.usable(zip(found, indexes, strict=True), lambda one, index: (*one, index)))
    return ChoiceExamples(
        name=file.name,
        asked=[dataclasses.replace(asked, index=index) for _, asked, index in kept],
        labels=np.array([index for *_, index in kept], np.int32),
        lines=np.array([line for line, *_ in kept], np.int64),
        unit=file.unit,
        notes=bad_rows.skipped(file.name, len(kept), "question", "questions"),
        columns=columns.by_option,
    )


def holds_choices(path: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a file certainly holds questions with choices; False where the user chooses columns, or it cannot be
    read."""
    if config.text_column or config.label_column:
        return False
    try:
        file, columns = open_choices(path, config)
        if file.kinds:
            return bool(columns.label)
        firsts = [asked for _, asked in itertools.islice(_rows(file, columns), _LOOKED_AT)]
    except UsageError:
        return False
    # The first of them may be bad rows. A column of choices alone is not enough: another task may read the others.
    if any(isinstance(one, Asked) and one.label is not None for one in firsts):
        return True
    # Where all are, reading them as questions says what is wrong, unless the columns are also those of texts.
    are_bad = bool(firsts) and all(isinstance(one, UsageError) for one in firsts)
    return are_bad and bool(columns.label) and not are_of_texts(file)
