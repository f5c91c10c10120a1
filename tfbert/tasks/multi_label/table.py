"""Texts with several labels each: which columns hold them, how labels are written, and rows as a table.

A table has its labels in one of these forms, which all its rows share: a column of 0 and 1 for each label; a list of
names, of ids, or of a 0 or 1 for each label; a text in which a character separates names or ids. The user names the
columns, or known labels do, or the one column has a usual name.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Collection, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data import reading
from tfbert.data.files import (
    UNLABELLED,
    WORDS_NAMES,
    Finder,
    RawTable,
    check_different,
    find_columns,
    in_data,
    literal,
    read_table,
)
from tfbert.data.labels import NAMES_OR_MISSING, canonical, given_names, is_missing, named_id, stand_for_none, stripped
from tfbert.data.reading import LISTS, OTHER_FORMATS, VALUES, Unlabelled
from tfbert.data.rows import Source, open_source
from tfbert.errors import UsageError
from tfbert.tasks.classes import distinct_labels, with_names
from tfbert.tasks.prediction import usual_id_column

SEPARATORS = ("|", ";", ",")
"""What is taken for a separator unless the user names one."""
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")
_COLLECTION = re.compile(r"(set|frozenset|array|list|tuple|Index)\(\s*[\[({)]|\{['\"]")
"""As Python writes what is not a list."""
_NUMBERS = re.compile(r"[0-9]+(\s+[0-9]+)*")
Cell = str | list
WORDS = {name for names in WORDS_NAMES for name in names}
"""Usual names of lists of words, which are nobody's labels unless the user says so."""
_LOOKED_AT = 20
"""Rows by which a table is recognised."""


def indicated_labels(values: Sequence[Any], columns: Sequence[str], where: str) -> tuple[str, ...]:
    """The labels of a row that has a column for each.

    Args:
        values: Of these columns.
        columns: Their names, which are the labels'.
        where: What messages call the row.

    Raises:
        UsageError: for a value that is not 0 or 1, true or false, as a number or as text.
    """
    found = []
    for value, column in zip(values, columns, strict=True):
        text = str(reading.plain(value)).strip().lower()
        if text not in (*_YES, *_NO):
            received = "none" if text in ("none", "") else f"{value!r:.60}"
            rule = "The column of a label holds 0 or 1 in each row, or true or false"
            received = f"{received} for {column!r} in {where}"
            raise UsageError(f"{rule}. Received: {received}. Repair or drop the row, or pass another --label_column.")
        found += [column] if text in _YES else []
    return tuple(found)


def cell_of(value: Any, column: str, where: str, names: Sequence[str] = ()) -> Cell:
    """The labels of a row that has them in one column: a text, or the items of a list.

    A text that is a list for JSON or for Python, as pandas writes lists into .csv files, is that list.

    Args:
        value: As it was read.
        column: The column it is from.
        where: What messages call the row.
        names: Those that the data itself has for ids; empty for none.

    Raises:
        UsageError: for what is neither, for a missing value, and an id without a name.
    """
    value = reading.plain(value)
    if value is None:
        raise Unlabelled(
            "Every row needs its labels, if only an empty list or text. "
            f"Received: none for {column!r} in {where}. Write [] or '' where a text has no label, or drop the row."
        )
    if not isinstance(value, str | int | float | list) or isinstance(value, bool):
        rule = "The labels of a row are a list, or a text in which a character separates them"
        received = f"{column}={value!r:.60} in {where}"
        raise UsageError(f"{rule}. Received: {received}. Convert them, or pass another --label_column.")
    if names and type(value) is int:
        return [value]
    if not isinstance(value, list):
        text = stripped(str(value), where)
        is_bracketed = text[:1] == "[" and text[-1:] == "]"
        value = literal(text) if is_bracketed or text[:1] in ("{", "(") else None
        if value is None and not is_bracketed and not _COLLECTION.match(text):
            return text
        if not isinstance(value, list):
            raise UsageError(
                "A text in brackets must be a list that JSON or Python reads. "
                f'Received: {column}={text!r:.60} in {where}. Write it as ["a", "b"] or as a|b; {OTHER_FORMATS}.'
            )
    return [named_id(item, names, column, where) for item in value] if names else value


def form_of(cells: Sequence[Cell], separator: str, known: Collection[str], table: RawTable) -> tuple[str, int, str]:
    """How a table writes the labels of its rows, found from all of them.

    Args:
        cells: Those of its rows.
        separator: As the user named it; empty: found.
        known: Labels that are known beforehand: a text that is one of them holds no separator.
        table: Says where a row is.

    Returns:
        What separates labels in a text, if anything does; the number of labels where lists have a 0 or 1 for each, else
        0; and a note about what was found that the user did not say.

    Raises:
        UsageError: for cells of several forms, or several possible separators.
    """
    lists = [isinstance(cell, list) for cell in cells]

    def shown(row: int) -> str:
        return f"the {'list' if lists[row] else 'text'} {cells[row]!r:.60} in {table.where(row)}"

    if any(lists):
        if not all(lists):
            rule = "All rows must have their labels in one form"
            raise UsageError(f"{rule}. Received: {shown(lists.index(not lists[0]))}, {shown(0)}. Convert one of them.")
        if separator:
            rule = "A list needs no separator"
            raise UsageError(f"{rule}. Received: label_separator={separator!r} for {shown(0)}. Drop --label_separator.")
        sizes, items = {len(cell) for cell in cells}, [item for cell in cells for item in cell]
        # Ids occur once in a row, and there are others than 0 and 1 or rows of other lengths.
        are_vectors = len(sizes) == 1 and all(isinstance(item, int | float) and item in (0, 1) for item in items)
        return "", max(sizes) if are_vectors and max(sizes) > 1 else 0, ""
    if separator:
        return separator, 0, ""
    whole = [cell for cell in cells if cell and cell not in known]
    found = {mark: cell for mark in SEPARATORS if (cell := next((cell for cell in whole if mark in cell), None))}
    if len(found) > 1:
        seen = " and ".join(f"{mark!r} in {table.where(cells.index(cell))}" for mark, cell in found.items())
        rule = "One character separates labels"
        raise UsageError(f"{rule}. Received: {seen}. Pass --label_separator with the right one.")
    for mark in found:
        return mark, 0, f"labels are separated by {mark!r}; --label_separator takes another character"
    if any(" " in cell for cell in whole) and all(map(_NUMBERS.fullmatch, whole)):
        return " ", 0, "labels are numbers separated by blanks"
    return "", 0, ""


def labels_of(cell: Cell, separator: str, known: Collection[str], where: str) -> tuple[str, ...]:
    """The labels of a row: names, or ids as text.

    Args:
        cell: As it was read.
        separator: What separates labels in a text, if anything does.
        known: As for `form_of`; neither is one of them a missing value.
        where: What messages call the row.

    Raises:
        UsageError: for a label that occurs twice, is empty, or stands for a missing one.
    """
    if isinstance(cell, list):
        for item in cell:
            if item is None:
                raise Unlabelled(
                    f"A list of labels holds names or ids. Received: the list {cell!r:.60} in {where}. Repair it."
                )
            is_id = type(item) is int and item >= 0
            if not is_id and not (isinstance(item, str) and item.strip()):
                rule = "A list of labels holds names, or ids from 0, or a 0 or 1 for each label, as many in all rows"
                received = f"{item!r:.60} of the list {cell!r:.60} in {where}"
                raise UsageError(f"{rule}. Received: {received}. Repair or drop the row.")
        parts = [stripped(str(item), where) for item in cell]
    else:
        if cell and is_missing(cell, known):
            raise missing_error(cell, where)
        parts = [cell] if cell in known or not separator else cell.split(separator)
        parts = parts[:-1] if not parts[-1].strip() else parts  # As in `a|b|`; and of an empty text.
        if not all(map(str.strip, parts)):
            rule = "Labels must not be empty"
            received = f"{cell!r:.60} in {where}, separated by {separator!r}"
            raise UsageError(f"{rule}. Received: {received}. Repair the row, or pass another --label_separator.")
    found = tuple(canonical(part.strip()) for part in parts)
    if missing := next((label for label in found if is_missing(label, {*known, *NAMES_OR_MISSING})), None):
        raise missing_error(missing, where)
    if len(set(found)) < len(found):
        twice = next(label for label in found if found.count(label) > 1)
        vector = ", or write a 0 or 1 for each label, as many in all rows" if twice in ("0", "1") else ""
        todo = f"Repair the row{vector}; for tags of words, {OTHER_FORMATS}."
        raise UsageError(f"A row has each label once. Received: {twice!r:.60} twice in {where}. {todo}")
    return found


def missing_error(label: str, where: str) -> UsageError:
    """The error for what stands for a missing label."""
    return Unlabelled(
        "It must be clear whether a row has labels. "
        f"Received: {label!r}, which stands for a missing value, in {where}. Leave the column empty where a "
        "text has no label, drop the row, or name this label with --label_names."
    )


def label_columns(
    file: reading.OpenFile, text_column: Sequence[str], label_column: str, known: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Decides which columns hold the texts, one or two, and which the labels; and whether there is one for each label.
    In a data set, the only text, and the only list or truth values alone beside texts, are meant whatever they are
    called.

    Args:
        file: Just opened.
        text_column: As the user named it. Empty: found by name.
        label_column: As the user named it: a column, or several separated by commas. Empty: the labels that are known,
            where they are columns, or else a column with a usual name.
        known: The labels, where they are known.

    Raises:
        UsageError: when a named column is absent, or when no column or more than one looks right.
    """
    columns = file.of_kinds(*VALUES, *LISTS)
    label_column = "".join(in_data([label_column], columns))
    if file.kinds:
        texts, lists, truths = (file.of_kinds(*kinds) for kinds in (("text",), LISTS, ("truth",)))
        if not label_column and len(lists) == 1:
            (label_column,) = lists
        elif not label_column and len(truths) > 1 and {*truths, *texts} == {*columns}:
            label_column = ",".join(truths)
        texts = [column for column in texts if column not in named_columns(label_column, columns)]
        text_column = in_data(text_column, columns) or (texts if len(texts) == 1 else ())
    labels = named_columns(label_column, columns)
    if not labels and all(columns.count(label) == 1 for label in known):
        labels = tuple(known)
    if len(labels) > 1:
        Finder(file.name, columns, hint=file.hint, label_column=labels)  # Each is there, once.
        check_different(*labels)
        others = [column for column in columns if column not in labels]
        texts, _ = find_columns(file, text_column, columns=others, find_label=False)
        return texts, labels, True
    texts, label = find_columns(file, text_column, label_column, columns=columns, require_label=False)
    if not label:
        rest = [column for column in columns if column not in texts and column.strip()]
        rest = [column for column in rest if column != usual_id_column(rest)]
        such_as = f", such as --label_column={','.join(rest)}" if rest else ""
        todo = f"Pass --label_column with the one that holds them, or all that hold 0 and 1{such_as}{file.hint}"
        raise Finder(file.name, columns, todo=f"{todo}{UNLABELLED}").none("the labels", "label_column")
    return texts, (label,), False


def named_columns(label_column: str, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that `label_column` names: one, also where its name has a comma, or several."""
    if not label_column or label_column in columns:
        return (label_column,) if label_column else ()
    return tuple(column.strip() if column.strip() in columns else column for column in label_column.split(","))


def holds_label_sets(source: pathlib.Path | reading.GivenTable, config: DataConfig) -> bool:
    """Whether a file, or a table in memory, certainly has several labels a text: the user names several columns that
    are there, or its first rows have lists of labels beside texts, and no other lists. False also for a file that
    cannot be read: reading it later says why."""
    try:
        file = open_source(source, config)
        asked = named_columns(config.label_column, file.columns)
        if len(asked) > 1:
            return {*asked} <= {*file.columns}
        texts, (label, *others), _ = label_columns(file, config.text_column, config.label_column)
        is_words = label.lower() in WORDS and not asked
        if file.kinds:
            are_texts = {*texts} <= {*file.of_kinds("text")}
            return are_texts and (bool(others) or (file.kinds[label] in LISTS and not is_words))
        columns = [column for column in file.columns if file.columns.count(column) == 1]
        rows = [row for _, row in itertools.islice(file.read(columns), _LOOKED_AT) if not isinstance(row, UsageError)]
    except (UsageError, OSError):
        return False
    lists = {column for row in rows for column, value in zip(columns, row, strict=True) if isinstance(value, list)}
    cells = [row[columns.index(label)] for row in rows]
    if is_words or lists != {label} or not all(isinstance(cell, list) for cell in cells):
        return False
    items = [item for cell in cells for item in cell]  # Nothing else has lists of labels beside a text.
    return bool(items) and all(isinstance(item, str | int | float) for item in items)


class SetReader:
    """What reads texts with labels, the labels as `label_names` names them; those of all sets are known to the next.

    Args:
        config: Its `label_names`.
        separator: `label_separator`.
        model_labels: Those of a saved model, to be evaluated.
    """

    def __init__(self, config: DataConfig, separator: str, model_labels: Sequence[str] = ()):
        self._separator, self._model_labels = separator, model_labels
        self._names = given_names(config)
        self._written: dict[str, str] = {}
        self._seen: set[str] = set()

    def __call__(self, source: Source, config: DataConfig) -> RawTable:
        """All rows of what an option names, in the format and by the columns of the options, which also say whether
        rows that cannot be used are left out, and counted."""
        file, separator = open_source(source, config), self._separator
        known = self._names or self._model_labels
        texts, columns, has_one_each = label_columns(file, config.text_column, config.label_column, known)
        names = () if has_one_each or self._names else file.label_names.get(columns[0], ())
        known = (*self._names, *self._model_labels, *names)
        bad_rows = reading.BadRows(config.skip_bad_rows, is_data_set=bool(file.kinds))
        if has_one_each and separator:
            received = f"label_separator={separator!r} for {file.name}"
            raise UsageError(f"Columns of 0 and 1 need no separator. Received: {received}. Drop --label_separator.")

        def written(values: list[Any], where: str) -> Any:
            if has_one_each:
                return indicated_labels(values, columns, where)
            return cell_of(values[0], columns[0], where, names)

        table = read_table(file, texts, columns, bad_rows, written)
        every, note = columns, ""
        if not has_one_each:
            separator, size, note = form_of(table.labels, separator, known, table)
            every = tuple(map(str, range(size)))

        def labelled(row: int, cell: Any) -> tuple[int, tuple[str, ...]]:
            if every:
                return row, cell if has_one_each else tuple(name for name, has in zip(every, cell, strict=True) if has)
            return row, labels_of(cell, separator, known, table.where(row))

        kept = list(bad_rows.usable(enumerate(table.labels), labelled))
        none = stand_for_none({*distinct_labels([own for _, own in kept])}, known or self._seen or every or None)

        def checked(row: int, labels: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
            if missing := none.intersection(labels):
                raise missing_error(min(missing), table.where(row))
            return row, labels

        table = table.labelled(list(bad_rows.usable(kept, checked)), bad_rows)
        self._seen.update(distinct_labels(table.labels))
        table = dataclasses.replace(
            table,
            notes=(*table.notes, *([f"{file.name}: {note}"] if note else [])),
            label_names=every or names or None,
            has_all=bool(every),
            # A column for each label is found by the label's name.
            columns=table.columns | ({"label_column": ()} if has_one_each else {}),
        )
        return with_names(table, self._names, self._written)
