"""Texts with several labels each, as they were written: rows of a file or a data set -> a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.bad_rows import BadRows
from tfbert.data.files import RawTable, check_text
from tfbert.data.label_names import given_names, named_id, named_labels
from tfbert.data.labels import stand_for_none
from tfbert.data.open_file import OpenFile
from tfbert.data.rows import Source, open_source
from tfbert.errors import UsageError
from tfbert.tasks.multi_label.label_cells import LabelReader, cell_of, indicated_labels, missing_error
from tfbert.tasks.multi_label.label_columns import Columns, indicator_columns, label_columns


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


def label_reader(config: DataConfig, separator: str, model_labels: Sequence[str] = ()) -> Callable[[Source], LabelSets]:
    """What reads texts with labels, the labels as `label_names` names them; those of all sets are known to the next.

    Args:
        config: Says the format and the columns.
        separator: `label_separator`.
        model_labels: Those of a saved model, to be evaluated.
    """
    names = given_names(config)
    known, seen = (*names, *model_labels), set()

    def read(source: Source) -> LabelSets:
        file = open_source(source, config)
        columns = label_columns(file, config.text_column, config.label_column, names or model_labels)
        own = file.label_names.get(columns.labels[0], ()) if columns.has_one_each is False and not names else ()
        options = {"separator": separator, "known": known, "names": own, "classes": seen}
        table = read_label_sets(file, columns, **options, skip_bad_rows=config.skip_bad_rows)
        seen.update(distinct_labels(table.labels))
        return with_names(table, names, are_given=True)

    return read


def read_label_sets(
    file: OpenFile,
    columns: Columns,
    *,
    separator: str = "",
    known: Sequence[str] = (),
    names: Sequence[str] = (),
    classes: Collection[str] = (),
    skip_bad_rows: bool = False,
) -> LabelSets:
    """Reads all rows.

    Args:
        file: Just opened.
        columns: Of the texts and labels.
        separator: What separates labels in a text; empty: found.
        known: Labels that are known beforehand, see `LabelReader`.
        names: The names of ids, as the data itself has them.
        classes: The labels of the training data; empty where these are it.
        skip_bad_rows: Leave out rows that cannot be used, rather than stop at the first; a note counts them.

    Raises:
        UsageError: for a row that cannot be used, or rows that have their labels in different forms.
    """
    bad_rows, num_texts = BadRows(skip_bad_rows, is_data_set=bool(file.kinds)), len(columns.texts)

    def where(line: int) -> str:
        return f"{file.name}, {file.unit} {line}"

    def checked(line: int, row: list) -> _Row:
        texts = [check_text(value, name, where(line)) for value, name in zip(row, columns.texts, strict=False)]
        written = row[num_texts:]
        if columns.has_one_each is False:
            (column,) = columns.labels
            cell = cell_of(written[0], column, where(line))
            if names and type(written[0]) is int:
                cell = [written[0]]
            if names and isinstance(cell, list):
                cell = [named_id(item, names, column, where(line)) for item in cell]
            written = [cell]
        return line, texts, written

    rows: list[_Row] = list(bad_rows.usable(file.without_rejected().read([*columns.texts, *columns.labels]), checked))
    known = (*known, *names)
    labels_of, found, note = _how_labels_are_written(file, columns, rows, separator, known, where)

    def labelled(line: int, row: _Row) -> tuple[int, list[str], tuple[str, ...]]:
        return line, row[1], labels_of(row[2], where(line))

    kept = list(bad_rows.usable(((row[0], row) for row in rows), labelled))
    none = stand_for_none({*distinct_labels(labels for _, _, labels in kept)}, known or classes or found)

    def with_labels(line: int, row: Any) -> Any:
        if missing := none.intersection(row[2]):
            raise missing_error(min(missing), where(line))
        return row

    kept = list(bad_rows.usable(((row[0], row) for row in kept), with_labels))
    return LabelSets(
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
        columns={
            "text_column": columns.texts,
            "label_column": () if columns.has_one_each is not False else columns.labels,
        },
    )


_Row = tuple[int, list[str], list[Any]]
"""Its line, its texts, and what is written in the columns of its labels."""
_LabelsOf = Callable[[list[Any], str], tuple[str, ...]]
"""The labels of what is written there, and where the row is."""


def _how_labels_are_written(
    file: OpenFile,
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
        left_out = f"; no labels: {', '.join(others)}" * bool(others)
        notes.append(f"{file.name}: the labels are the columns of 0 and 1: {', '.join(names)}{left_out}")
    places = [columns.labels.index(name) for name in names]
    return lambda written, place: indicated_labels([written[i] for i in places], names, place), names, notes


def with_names(table: LabelSets, names: tuple[str, ...], *, are_given: bool) -> LabelSets:
    """The same table with other names for its labels.

    Args:
        table: As it was written. Where its rows say of each label whether they have it, there must be as many names,
            and names of columns that are no numbers must be among them.
        names: All labels in order; empty: the table stays as it is.
        are_given: Whether the user gives them, rather than the data set itself; a note says what they mean then.

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
    ids = ("0, 1, ... are " + ", ".join(names)) * (are_given and list(written.values()) != list(written))
    notes = (f"{table.name}: the labels {ids}, as label_names says",) if ids else ()
    labels = [tuple(written[label] for label in row) for row in table.labels]
    return dataclasses.replace(table, labels=labels, notes=(*table.notes, *notes), label_names=names)


def _first_place(table: LabelSets, label: str) -> str:
    return next((table.where(row) for row, labels in enumerate(table.labels) if label in labels), table.name)


def distinct_labels(labels: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Each label that occurs, once, as it first occurs."""
    return iter(dict.fromkeys(label for row in labels for label in row))
