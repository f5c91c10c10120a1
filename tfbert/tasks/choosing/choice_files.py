"""Files of questions with their choices, in any of the `forms`: opened, and read question by question."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.data.bad_rows import BadRows
from tfbert.data.columns import UNLABELLED, are_of_texts, named_by_user
from tfbert.data.given_table import GivenTable
from tfbert.data.json_rows import Articles, Lists, open_json
from tfbert.data.open_file import OpenFile, Unlabelled
from tfbert.data.rows import Source, open_source
from tfbert.errors import UsageError
from tfbert.tasks.choosing.answer_keys import find_indexes
from tfbert.tasks.choosing.columns import Columns, find_columns, no_choices
from tfbert.tasks.choosing.forms import (
    CHECKS,
    COPA,
    RACE,
    Checks,
    Read,
    copa_rows,
    dream_rows,
    race_rows,
    table_rows,
)
from tfbert.tasks.choosing.questions import Asked, ChoiceExamples, Place, place_text

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
        file: The table that they come from; None for lists of questions.
        read: The columns that are read, by the options that name them; empty where nobody can choose them.
    """

    name: str
    rows: Iterator[AskedRow]
    place_names: tuple[str, ...]
    has_labels: bool = True
    file: OpenFile | None = None
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
    opened = open_source(source, config, functools.partial(open_json, takes_lists=True))
    name = opened.name
    if isinstance(opened, Articles):
        raise UsageError(
            "Multiple choice needs questions with their choices. "
            f"Received: {name}, SQuAD's articles of questions. Pass --task=question_answering, or another file."
        )
    if isinstance(opened, Lists):
        if has_columns or (id_column and id_column(())):
            raise _no_columns(name)
        read = dream_rows(checks)
        rows = _rows(enumerate(opened.entries, 1), read, name, "dialogue", levels=2)
        return OpenQuestions(name=name, rows=rows, place_names=("dialogue", "question"))
    file: OpenFile = opened.without_rejected() if checks.labelled else opened
    if not has_columns and {*RACE[:3]} <= {*file.columns}:
        rows = _rows(_as_dicts(file, [*RACE, "id"]), race_rows(checks), name, file.unit, levels=2)
        has_labels, names = RACE[3] in file.columns, (file.unit, "question")
        return OpenQuestions(name=name, rows=rows, place_names=names, has_labels=has_labels, file=file)
    if not has_columns and {*COPA} <= {*file.columns}:
        label = "label" if "label" in file.columns else ""
        columns, named = Columns(context="premise", question="question", choices=COPA[1:3], label=label), {}
        read: Read = copa_rows(checks)
    else:
        columns = find_columns(
            name,
            file.columns,
            text_column=config.text_column,
            choice_columns=choice_columns,
            label_column=config.label_column,
            find_label=checks.labelled,
        )
        read, named = table_rows(columns, checks), columns.by_option
    named_by = id_column([column for column in file.columns if column not in columns.all]) if id_column else ""
    found = _as_dicts(file, [*dict.fromkeys([*columns.all, *filter(None, [named_by])])], columns.label)
    if not columns.choices:  # They can only be inside of the questions.
        found, first = _with_first(found)
        if not isinstance(first, UsageError) and not isinstance(first.get(columns.question), Mapping):
            raise no_choices(name, file.columns)
    rows = _rows(found, read, name, file.unit, levels=1, named_by=named_by)
    names, has_labels = (file.unit,), bool(columns.label)
    return OpenQuestions(name=name, rows=rows, place_names=names, has_labels=has_labels, file=file, read=named)


def read_questions(opened: OpenQuestions, *, skip_bad_rows: bool = False) -> ChoiceExamples:
    """Reads labelled questions.

    Args:
        opened: The file, just opened.
        skip_bad_rows: Leave out questions that cannot be used, rather than stop at the first; a note counts them.

    Raises:
        UsageError: for a bad question, one without a label, or no question at all.
    """
    name, is_data_set = opened.name, opened.file is not None and bool(opened.file.kinds)
    bad_rows = BadRows(skip_bad_rows, is_data_set=is_data_set)

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
        if opened.file is not None and opened.file.kinds:
            return opened.has_labels
        firsts = [asked for _, asked in itertools.islice(opened.rows, _LOOKED_AT)]
    except UsageError:
        return False
    # The first of them may be bad rows. A column of choices alone is not enough: another task may read the others.
    if any(isinstance(one, Asked) and (one.label is not None or one.index is not None) for one in firsts):
        return True
    # Where all are, reading them as questions says what is wrong, unless the columns are also those of texts.
    are_bad = bool(firsts) and all(isinstance(one, UsageError) for one in firsts)
    return are_bad and opened.file is not None and opened.has_labels and not are_of_texts(opened.file.columns)


def _rows(
    values: Iterable[tuple[int, Any]], read: Any, name: str, unit: str, *, levels: int, named_by: str = ""
) -> Iterator[AskedRow]:
    for line, value in values:
        if isinstance(value, UsageError):
            yield (line, *[0] * (levels - 1)), value
            continue
        for number, asked in enumerate(read(value, f"{name}, {unit} {line}"), 1):
            if named_by and isinstance(asked, Asked):
                asked = dataclasses.replace(asked, name=value.get(named_by))
            yield ((line, number) if levels == 2 else (line,)), asked


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


def _no_columns(name: str) -> UsageError:
    return UsageError(f"DREAM's dialogues have no columns to choose. Received: {name}, and columns to read. Drop them.")
