"""Texts with several labels each: which columns hold them, how labels are written, and rows as a table.

A table has its labels in one of these forms, which all its rows share: a column of 0 and 1 for each label; a list of
names, of ids, or of a 0 or 1 for each label; a text in which a character separates names or ids. The user names the
columns, or known labels do, or they have usual names.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data import reading
from tfbert.data.files import (
    UNLABELLED,
    WORDS_NAMES,
    Finder,
    RawTable,
    check_different,
    check_text,
    find_columns,
    in_data,
    literal,
)
from tfbert.data.labels import (
    NAMES_OR_MISSING,
    canonical,
    given_names,
    is_missing,
    named_id,
    named_labels,
    stand_for_none,
    stripped,
)
from tfbert.data.reading import OTHER_FORMATS
from tfbert.data.rows import Source, open_source
from tfbert.errors import UsageError
from tfbert.tasks.prediction import usual_id_column

SEPARATORS = ("|", ";", ",")
"""What is taken for a separator unless the user names one."""
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")
Cell = str | list
Where = Callable[[int], str]
"""What messages call a row, counted from 0."""


def is_indicator(value: Any) -> bool:
    """Whether a value says if a row has a label: 0 or 1, true or false, as a number or as text."""
    return _indicated(value) is not None


def indicated_labels(values: Sequence[Any], columns: Sequence[str], where: str) -> tuple[str, ...]:
    """The labels of a row that has a column for each.

    Args:
        values: Of these columns.
        columns: Their names, which are the labels'.
        where: What messages call the row.

    Raises:
        UsageError: for a value that is not 0 or 1.
    """
    found = []
    for value, column in zip(values, columns, strict=True):
        has = _indicated(value)
        if has is None:
            received = "none" if reading.plain(value) in (None, "") else f"{value!r:.60}"
            raise UsageError(
                "The column of a label holds 0 or 1 in each row, or true or false. "
                f"Received: {received} for {column!r} in {where}. Repair or drop the row, or pass another "
                "--label_column."
            )
        if has:
            found.append(column)
    return tuple(found)


def _indicated(value: Any) -> bool | None:
    text = str(reading.plain(value)).strip().lower()
    return text in _YES if text in (*_YES, *_NO) else None


def cell_of(value: Any, column: str, where: str) -> Cell:
    """The labels of a row that has them in one column: a text, or the items of a list.

    A text that is a list for JSON or for Python, as pandas writes lists into .csv files, is that list.

    Raises:
        UsageError: for what is neither, and for a missing value.
    """
    value = reading.plain(value)
    if isinstance(value, list):
        return value
    if value is None:
        raise reading.Unlabelled(
            "Every row needs its labels, if only an empty list or text. "
            f"Received: none for {column!r} in {where}. Write [] or '' where a text has no label, or drop the row."
        )
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise UsageError(
            "The labels of a row are a list, or a text in which a character separates them. "
            f"Received: {column}={value!r:.60} in {where}. Convert them, or pass another --label_column."
        )
    text = stripped(str(value), where)
    is_bracketed = text[:1] == "[" and text[-1:] == "]"
    found = literal(text) if is_bracketed or text[:1] in ("{", "(") else None
    if (is_bracketed or found is not None or text == "set()") and not isinstance(found, list):
        raise UsageError(
            "A text in brackets must be a list that JSON or Python reads. "
            f'Received: {column}={text!r:.60} in {where}. Write it as ["a", "b"] or as a|b; {OTHER_FORMATS}.'
        )
    return text if found is None else found


class LabelReader:
    """How one table writes the labels of its rows, found from all of them.

    Args:
        cells: Those of all rows.
        separator: As the user named it; empty: found.
        known: Labels that are known beforehand: a text that is one of them holds no separator, and is no missing value.
        where: What messages call a row.

    Attributes:
        notes: What was found that the user did not say, a line.
        size: The number of labels where lists have a 0 or 1 for each; else 0.

    Raises:
        UsageError: for cells of several forms, or several possible separators.
    """

    def __init__(self, cells: Sequence[Cell], separator: str, known: Collection[str], where: Where):
        self._known, self._words = known, {*known, *NAMES_OR_MISSING}
        lists = [isinstance(cell, list) for cell in cells]
        if any(lists) and not all(lists):
            row = lists.index(not lists[0])
            raise UsageError(
                f"All rows must have their labels in one form. Received: {_shown(cells[row])} in {where(row)}, "
                f"{_shown(cells[0])} in {where(0)}. Convert one of them."
            )
        self.notes: tuple[str, ...] = ()
        self.size, self._separator = 0, separator
        if not any(lists):
            self._separator = separator or self._found_separator(cells, where)
        elif separator:
            raise UsageError(
                f"A list needs no separator. Received: label_separator={separator!r} for {_shown(cells[0])} in "
                f"{where(0)}. Drop --label_separator."
            )
        else:
            self.size = _size_of_vectors(cells)

    def _found_separator(self, cells: Sequence[Cell], where: Where) -> str:
        whole = [cell for cell in cells if cell not in self._known]
        found = {mark: cell for mark in SEPARATORS if (cell := next((c for c in whole if mark in c), None))}
        if len(found) > 1:
            rows = {mark: cells.index(cell) for mark, cell in found.items()}
            seen = " and ".join(f"{mark!r} in {where(row)}" for mark, row in rows.items())
            raise UsageError(
                f"One character separates labels. Received: {seen}. Pass --label_separator with the right one."
            )
        if found:
            (mark,) = found
            self.notes = (f"labels are separated by {mark!r}; --label_separator takes another character",)
            return mark
        blanks = next((cell for cell in whole if _are_numbers(cell.split()) and " " in cell), None)
        if blanks and all(_are_numbers(cell.split()) for cell in whole if cell):
            self.notes = ("labels are numbers separated by blanks",)
            return " "
        return ""

    def labels(self, cell: Cell, where: str) -> tuple[str, ...]:
        """The labels of a row: names, or ids as text.

        Raises:
            UsageError: for a label that occurs twice, is empty, or stands for a missing one.
        """
        if self.size:
            return tuple(str(i) for i, value in enumerate(cell) if value)
        found = tuple(self._of_list(cell, where) if isinstance(cell, list) else self._of_text(cell, where))
        if missing := next((label for label in found if is_missing(label, self._words)), None):
            raise missing_error(missing, where)
        if len(set(found)) < len(found):
            twice = next(label for label in found if found.count(label) > 1)
            vector = ", or write a 0 or 1 for each label, as many in all rows" if twice in ("0", "1") else ""
            raise UsageError(
                f"A row has each label once. Received: {twice!r:.60} twice in {where}. Repair the row{vector}; for "
                f"tags of words, {OTHER_FORMATS}."
            )
        return found

    def _of_text(self, cell: str, where: str) -> Iterator[str]:
        if not cell:
            return
        if is_missing(cell, self._known):
            raise missing_error(cell, where)
        parts = [cell] if cell in self._known or not self._separator else cell.split(self._separator)
        parts = parts[:-1] if len(parts) > 1 and not parts[-1].strip() else parts  # As in `a|b|`.
        for part in parts:
            if not part.strip():
                raise UsageError(
                    f"Labels must not be empty. Received: {cell!r:.60} in {where}, separated by "
                    f"{self._separator!r}. Repair the row, or pass another --label_separator."
                )
            yield canonical(part.strip())

    def _of_list(self, cell: list, where: str) -> Iterator[str]:
        for item in cell:
            if item is None:
                raise reading.Unlabelled(
                    f"A list of labels holds names or ids. Received: {_shown(cell)} in {where}. Repair it."
                )
            if isinstance(item, bytes):
                item = item.decode("utf-8", "surrogateescape")
            is_id = isinstance(item, int) and not isinstance(item, bool) and item >= 0
            if not is_id and not (isinstance(item, str) and item.strip()) or reading.not_utf8(str(item)):
                raise UsageError(
                    "A list of labels holds names, or ids from 0, or a 0 or 1 for each label, as many in all rows. "
                    f"Received: {item!r:.60} of {_shown(cell)} in {where}. Repair or drop the row."
                )
            yield canonical(str(item).strip())


def missing_error(label: str, where: str) -> UsageError:
    """The error for what stands for a missing label."""
    return reading.Unlabelled(
        "It must be clear whether a row has labels. "
        f"Received: {label!r}, which stands for a missing value, in {where}. Leave the column empty where a "
        "text has no label, drop the row, or name this label with --label_names."
    )


def _size_of_vectors(cells: Sequence[Cell]) -> int:
    """The length of lists that have a 0 or 1 for each label; 0 for lists of names or ids.

    Ids occur once in a row, and there are others than 0 and 1 or rows of other lengths.
    """
    sizes = {len(cell) for cell in cells}
    (size,) = sizes if len(sizes) == 1 else (0,)
    items = [item for cell in cells for item in cell] if size > 1 else []
    return size if items and all(isinstance(item, int | float) and item in (0, 1) for item in items) else 0


def _are_numbers(parts: Sequence[str]) -> bool:
    return bool(parts) and all(part.isascii() and part.isdigit() for part in parts)


def _shown(cell: Cell) -> str:
    return f"the {'list' if isinstance(cell, list) else 'text'} {cell!r:.60}"


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


def label_columns(
    file: reading.OpenFile, text_column: Sequence[str], label_column: str, known: Sequence[str] = ()
) -> Columns:
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
    columns = file.of_kinds(*reading.VALUES, *reading.LISTS)
    label_column = "".join(in_data([label_column], columns))
    if file.kinds:
        text_column, label_column = _by_kinds(file, columns, in_data(text_column, columns), label_column)
    asked = named_columns(label_column, columns)
    known = known if known and all(columns.count(label) == 1 for label in known) else ()
    is_named = len(asked) > 1 or bool(known and not asked)
    if not is_named:
        texts, label = find_columns(
            file.name, columns, text_column=text_column, label_column=label_column, require_label=False, hint=file.hint
        )
        if label:
            return Columns(texts=texts, labels=(label,), has_one_each=False)
        rest = [column for column in columns if column not in texts and column.strip()]  # Without a name, it is none.
        ids = usual_id_column(rest)
        asked = tuple(column for column in rest if column != ids)
    labels = asked or tuple(known)
    found = Finder(file.name, columns, hint=file.hint, label_column=labels)  # Each is there, once.
    check_different(*labels)
    if not labels or (file.kinds and not is_named):
        raise found.none("the labels", "label_column")
    if is_named:
        others = [column for column in columns if column not in labels]
        texts, _ = find_columns(file.name, others, text_column=text_column, find_label=False, hint=file.hint)
    return Columns(texts=texts, labels=labels, has_one_each=True if is_named else None)


def _by_kinds(
    file: reading.OpenFile, columns: Sequence[str], text_column: Sequence[str], label_column: str
) -> tuple[Sequence[str], str]:
    """What a data set's user means, who names no columns."""
    texts, lists, truths = (file.of_kinds(*kinds) for kinds in (("text",), reading.LISTS, ("truth",)))
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


def holds_label_sets(source: pathlib.Path | reading.GivenTable, config: DataConfig) -> bool:
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


def _shows_label_sets(file: reading.OpenFile, found: Columns, *, is_asked: bool) -> bool:
    if file.kinds and not {*found.texts} <= {*file.of_kinds("text")}:
        return False
    if found.has_one_each is not False:
        return bool(file.kinds)
    (label,) = found.labels
    if not is_asked and label.lower() in WORDS:
        return False
    if file.kinds:
        return file.kinds[label] in reading.LISTS
    columns = [column for column in file.columns if file.columns.count(column) == 1]
    rows = [row for _, row in itertools.islice(file.read(columns), _LOOKED_AT)]
    rows = [dict(zip(columns, row, strict=True)) for row in rows if not isinstance(row, UsageError)]
    lists = {column for column in columns if any(isinstance(row[column], list) for row in rows)}
    # One that is missing is a bad row, which reading the file as such names.
    texts_are_texts = all(isinstance(row[column], str | None) for row in rows for column in found.texts)
    if lists != {label} or not texts_are_texts or not all(isinstance(row[label], list) for row in rows):
        return False
    items = [item for row in rows for item in row[label]]  # Nothing else has lists of labels beside a text.
    return bool(items) and all(isinstance(item, str | int | float) for item in items)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSets(RawTable):
    """Texts and the labels of each.

    Attributes:
        labels: Of each row, as text; maybe none.
        label_names: As for `RawTable`; all labels, in order.
        has_all: Whether rows say of each of `label_names` whether they have it.
    """

    labels: list[tuple[str, ...]]
    has_all: bool = False


class SetReader:
    """What reads texts with labels, the labels as `label_names` names them; those of all sets are known to the next.

    Args:
        config: Says the format and the columns, and whether rows that cannot be used are left out, and counted.
        separator: `label_separator`.
        model_labels: Those of a saved model, to be evaluated.
    """

    def __init__(self, config: DataConfig, separator: str, model_labels: Sequence[str] = ()):
        self._config, self._separator, self._model_labels = config, separator, model_labels
        self._names = given_names(config)
        self._seen: set[str] = set()

    def __call__(self, source: Source) -> LabelSets:
        """All rows of what an option names."""
        config = self._config
        file = open_source(source, config)
        columns = label_columns(file, config.text_column, config.label_column, self._names or self._model_labels)
        is_one, num_texts = columns.has_one_each is False, len(columns.texts)
        names = file.label_names.get(columns.labels[0], ()) if is_one and not self._names else ()
        bad_rows = reading.BadRows(config.skip_bad_rows, is_data_set=bool(file.kinds))

        def where(line: int) -> str:
            return f"{file.name}, {file.unit} {line}"

        def checked(line: int, row: list) -> _Row:
            texts = [check_text(value, name, where(line)) for value, name in zip(row, columns.texts, strict=False)]
            written = row[num_texts:]
            if is_one:
                (column,), (value,) = columns.labels, written
                cell = [value] if names and type(value) is int else cell_of(value, column, where(line))
                if names and isinstance(cell, list):
                    cell = [named_id(item, names, column, where(line)) for item in cell]
                written = [cell]
            return line, texts, written

        read = file.without_rejected().read([*columns.texts, *columns.labels])
        rows: list[_Row] = list(bad_rows.usable(read, checked))
        known = (*self._names, *self._model_labels, *names)
        labels_of, found, note = _how_labels_are_written(file, columns, rows, self._separator, known, where)

        def labelled(line: int, row: _Row) -> tuple[int, list[str], tuple[str, ...]]:
            return line, row[1], labels_of(row[2], where(line))

        kept = list(bad_rows.usable(((row[0], row) for row in rows), labelled))
        none = stand_for_none({*distinct_labels(labels for _, _, labels in kept)}, known or self._seen or found)

        def with_labels(line: int, row: Any) -> Any:
            if missing := none.intersection(row[2]):
                raise missing_error(min(missing), where(line))
            return row

        kept = list(bad_rows.usable(((row[0], row) for row in kept), with_labels))
        table = LabelSets(
            name=file.name,
            text_columns=columns.texts,
            text=[texts[0] for _, texts, _ in kept],
            text_pair=[texts[1] for _, texts, _ in kept] if num_texts == 2 else None,
            labels=[labels for _, _, labels in kept],
            lines=[line for line, _, _ in kept],
            unit=file.unit,
            notes=(*bad_rows.skipped(file.name, len(kept), "example", "rows"), *note),
            label_names=found or (tuple(names) or None),
            has_all=found is not None,
            # A column for each label is found by the label's name.
            columns={"text_column": columns.texts, "label_column": columns.labels if is_one else ()},
        )
        self._seen.update(distinct_labels(table.labels))
        return _with_names(table, self._names)


_Row = tuple[int, list[str], list[Any]]
"""Its line, its texts, and what is written in the columns of its labels."""
_LabelsOf = Callable[[list[Any], str], tuple[str, ...]]
"""The labels of what is written there, and where the row is."""


def _how_labels_are_written(
    file: reading.OpenFile,
    columns: Columns,
    rows: Sequence[_Row],
    separator: str,
    known: Sequence[str],
    where: Callable[[int], str],
) -> tuple[_LabelsOf, tuple[str, ...] | None, list[str]]:
    """What reads a row's labels; the names of all labels, where rows say of each whether they have it; and notes."""
    if columns.has_one_each is False:
        reader = LabelReader([row[2][0] for row in rows], separator, known, lambda place: where(rows[place][0]))
        notes = [f"{file.name}: {note}" for note in reader.notes]
        names = tuple(map(str, range(reader.size))) if reader.size else None
        return lambda written, place: reader.labels(written[0], place), names, notes
    if separator:
        raise UsageError(
            "Columns of 0 and 1 need no separator. "
            f"Received: label_separator={separator!r} for {file.name}. Drop --label_separator."
        )
    names, notes = columns.labels, []
    if columns.has_one_each is None:
        names = indicator_columns(file.name, columns.labels, [row[2] for row in rows])
        others = [column for column in columns.labels if column not in names]
        left_out = f"; no labels: {', '.join(others)}" if others else ""
        notes.append(f"{file.name}: the labels are the columns of 0 and 1: {', '.join(names)}{left_out}")
    places = [columns.labels.index(name) for name in names]
    return lambda written, place: indicated_labels([written[i] for i in places], names, place), names, notes


def _with_names(table: LabelSets, names: tuple[str, ...]) -> LabelSets:
    """The same table with the names that the user gives to its labels.

    Args:
        table: As it was written. Where its rows say of each label whether they have it, there must be as many names,
            and names of columns that are no numbers must be among them.
        names: All labels in order; empty: the table stays as it is.

    Raises:
        UsageError: for a label that is neither a name nor a number of one.
    """
    if not names:
        return table
    if table.has_all and len(table.label_names) != len(names):
        raise UsageError(
            f"label_names must be as many as the labels of the data, {len(table.label_names)}. "
            f"Received: {len(names)} names for {table.name}. Name each of them."
        )
    columns = table.label_names if table.has_all else ()
    if table.has_all and all(map(str.isdigit, columns)):  # Places in a list, or columns of a file without a header.
        written = dict(zip(columns, names, strict=True))
    else:
        distinct = dict.fromkeys(label for labels in (*table.labels, columns) for label in labels)
        written = named_labels(distinct, names, lambda label: _first_place(table, label))
    notes = ()
    if list(written.values()) != list(written):
        notes = (f"{table.name}: the labels 0, 1, ... are {', '.join(names)}, as label_names says",)
    labels = [tuple(written[label] for label in row) for row in table.labels]
    return dataclasses.replace(table, labels=labels, notes=(*table.notes, *notes), label_names=names)


def _first_place(table: LabelSets, label: str) -> str:
    return next((table.where(row) for row, labels in enumerate(table.labels) if label in labels), table.name)


def distinct_labels(labels: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Each label that occurs, once, as it first occurs."""
    return iter(dict.fromkeys(label for row in labels for label in row))
