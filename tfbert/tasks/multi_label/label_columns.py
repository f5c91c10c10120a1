"""Which columns hold the texts and the labels, by the user's word, the names of known labels, or usual names."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.columns import RENAME, UNLABELLED, WORDS_NAMES, find_columns, in_data
from tfbert.data.given_table import GivenTable
from tfbert.data.open_file import LISTS, VALUES, OpenFile
from tfbert.data.rows import open_source
from tfbert.errors import UsageError
from tfbert.tasks.classes import hold_tags
from tfbert.tasks.multi_label.label_cells import holds_lists, is_indicator
from tfbert.tasks.prediction_files import usual_id_column

WORDS = {name for names in WORDS_NAMES for name in names}
"""Usual names of lists of words, which are nobody's labels unless the user says so."""


_LOOKED_AT = 20
"""Rows by which a table is recognised."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns of a table.

    Attributes:
        texts: One, or two for pairs.
        labels: The column of the labels, or one for each label.
        has_one_each: Whether there is one for each label. None: those of `labels` whose values are all 0 or 1 are
            labels.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    has_one_each: bool | None


def label_columns(file: OpenFile, text_column: Sequence[str], label_column: str, known: Sequence[str] = ()) -> Columns:
    """Decides which columns hold the texts and the labels. In a data set, the only text, and the only list or truth
    values alone beside texts, are meant whatever they are called.

    Args:
        file: Just opened.
        text_column: As the user named it. Empty: found by name.
        label_column: As the user named it: a column, or several separated by commas. Empty: the labels that are known,
            where they are columns, or else a column with a usual name, or else whatever columns hold 0 and 1.
        known: The labels, where they are known.

    Raises:
        UsageError: when a named column is absent, or when no column or more than one looks right.
    """
    columns = file.of_kinds(*VALUES, *LISTS)
    label_column = "".join(in_data([label_column], columns))
    if file.kinds:
        text_column, label_column = _by_kinds(file, columns, in_data(text_column, columns), label_column)
    asked = named_columns(label_column, columns)
    known = known if known and all(columns.count(label) == 1 for label in known) else ()
    if len(asked) > 1 or (known and not asked):
        labels = asked or tuple(known)
        for column in labels:
            if columns.count(column) != 1 or labels.count(column) != 1:
                problem = "is there twice" if column in columns else "is not in the data"
                way_out = RENAME if columns.count(column) > 1 else f"Pass --label_column with the right ones{file.hint}"
                way_out += "" if {*labels} & {*columns} else UNLABELLED
                raise UsageError(
                    f"Each label has a column of its own. Received: label_column={label_column!r}, of which {column!r} "
                    f"{problem}, for {file.name} with columns {', '.join(map(repr, columns[:20]))}. {way_out}."
                )
        others = [column for column in columns if column not in labels]
        texts, _ = find_columns(file.name, others, text_column=text_column, find_label=False, hint=file.hint)
        return Columns(texts=texts, labels=labels, has_one_each=True)
    texts, label = find_columns(
        file.name, columns, text_column=text_column, label_column=label_column, require_label=False, hint=file.hint
    )
    if label:
        return Columns(texts=texts, labels=(label,), has_one_each=False)
    rest = [column for column in columns if column not in texts and column.strip()]  # Without a name, it is no label.
    if twice := next((column for column in rest if rest.count(column) > 1), None):
        raise UsageError(
            f"Each label has a column of its own. Received: {file.name}, where {twice!r} is there twice. "
            "Rename one, or pass --label_column with the right ones."
        )
    ids = usual_id_column(rest)
    labels = tuple(column for column in rest if column != ids)
    if not labels:
        raise UsageError(
            "No column looks like the labels. "
            f"Received: {file.name} with columns {', '.join(map(repr, columns[:20]))}. "
            f"Pass --label_column{file.hint}{UNLABELLED}."
        )
    if file.kinds:
        raise UsageError(
            "Labels are a list, or a feature of 0 and 1 for each. "
            f"Received: {file.name} with features {', '.join(map(repr, columns[:20]))}. "
            "Pass --label_column with one feature, or several separated by commas."
        )
    return Columns(texts=texts, labels=labels, has_one_each=None)


def _by_kinds(
    file: OpenFile, columns: Sequence[str], text_column: Sequence[str], label_column: str
) -> tuple[Sequence[str], str]:
    """What a data set's user means, who names no columns."""
    texts, lists, truths = (file.of_kinds(*kinds) for kinds in (("text",), LISTS, ("truth",)))
    if not label_column and len(lists) == 1:
        (label_column,) = lists
    elif not label_column and len(truths) > 1 and {*truths, *texts} == {*columns}:
        label_column = ",".join(truths)
    texts = [column for column in texts if column not in named_columns(label_column, columns)]
    return text_column or (texts if len(texts) == 1 else ()), label_column


def named_columns(label_column: str, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that `label_column` names: one, also where its name has a comma, or several."""
    if not label_column or label_column in columns:
        return (label_column,) if label_column else ()
    return tuple(column.strip() if column.strip() in columns else column for column in label_column.split(","))


def indicator_columns(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    """Of columns that may be labels, those that hold 0 or 1 in most rows: what another row of one holds is a fault.

    Args:
        name: What messages call the data.
        columns: Their names.
        rows: Their values in each row.

    Raises:
        UsageError: where there are fewer than two.
    """
    counts = [sum(is_indicator(row[place]) for row in rows) for place in range(len(columns))]
    found = tuple(column for column, count in zip(columns, counts, strict=True) if 2 * count > len(rows))
    if len(found) < 2:
        raise UsageError(
            "Labels are in a column with a usual name such as labels, or in a column of 0 and 1 for each. "
            f"Received: {name}, whose columns {', '.join(map(repr, columns[:20])) or '(none)'} are neither. "
            f"Pass --label_column with one column, or several separated by commas{UNLABELLED}."
        )
    return found


def holds_label_sets(source: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a file, or a table in memory, certainly has several labels a text: the user names several columns that
    are there, or its first rows have lists of labels beside texts, and no other lists. False also for a file that
    cannot be read: reading it later says why."""
    try:
        file = open_source(source, config)
        asked = named_columns(config.label_column, file.columns)
        if len(asked) > 1:
            return {*asked} <= {*file.columns}
        found = label_columns(file, config.text_column, config.label_column)
        return _shows_label_sets(file, found, is_asked=bool(config.label_column))
    except (UsageError, OSError):
        return False


def _shows_label_sets(file: OpenFile, found: Columns, *, is_asked: bool) -> bool:
    if file.kinds and not {*found.texts} <= {*file.of_kinds("text")}:
        return False
    if found.has_one_each is not False:
        return bool(file.kinds)
    (label,) = found.labels
    if not is_asked and label.lower() in WORDS:
        return False
    if file.kinds:
        return file.kinds[label] in LISTS
    columns = [column for column in file.columns if file.columns.count(column) == 1]
    rows = [row for _, row in itertools.islice(file.read(columns), _LOOKED_AT)]
    rows = [dict(zip(columns, row, strict=True)) for row in rows if not isinstance(row, UsageError)]
    lists = {column for column in columns if any(isinstance(row[column], list) for row in rows)}
    # One that is missing is a bad row, which reading the file as such names.
    texts_are_texts = all(isinstance(row[column], str | None) for row in rows for column in found.texts)
    labels = [row[label] for row in rows]
    if len(found.texts) == 1 and hold_tags([row[found.texts[0]] for row in rows], labels):
        return False  # Of words.
    return lists == {label} and texts_are_texts and holds_lists(labels)
