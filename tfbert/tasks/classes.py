"""Labels as text: which are numbers, how messages show them, and what a user, or a saved model, calls those of data."""

from __future__ import annotations

import dataclasses
import decimal
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.config.types import counted
from tfbert.data.labels import canonical, named_alike, named_labels
from tfbert.data.reading import OTHER_FORMATS
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.data.files import RawTable
    from tfbert.model.files import BertConfig


FEW_EXAMPLES = 5
"""A class with fewer examples is hardly learned, and is often a typing error."""
_FEW_ROWS = 100
_MOST_SHOWN = 10
_SEPARATORS = ("|", ",", ";", " ")
"""What stands between several labels in one text; blanks only between numbers."""
_SIGNS = ("#", "+", "/", "&")
"""The same, where each part is a label of its own too: names such as `comp/sys` and `R&B` are usual."""
_LIST = re.compile(r"\[.*\]|\{.*[,'\"].*\}|\(.*,.*\)", re.DOTALL)
_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_TAG = re.compile(r"O|[BIESMLU][-_:/]\S+")
"""A tag of entities; a name of a class may look so too, but never among others, twice."""
_PARTS = re.compile(r"[^\s,;|\[\]'\"]+")
"""What blanks and other marks separate in a text of tags."""
_SAMPLE = 300  # Rows that decide whether labels are tags.
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def is_number(label: str) -> bool:
    """Whether a label reads as a number, finite or not."""
    return _NUMBER.fullmatch(label) is not None


def have_fractions(labels: Sequence[str]) -> bool:
    """Whether all labels are numbers and at least one has a fraction."""
    return all(map(is_number, labels)) and any(float(label) % 1 for label in labels if np.isfinite(float(label)))


def not_numbers(labels: Sequence[str]) -> list[int]:
    """The rows whose labels alone, words or numbers with a decimal comma, keep all from being numbers with fractions;
    none where most labels are no numbers."""
    others = [row for row, label in enumerate(labels) if not is_number(label)]
    numbers = [label.replace(",", ".") for label in labels if is_number(label) or _COMMA.fullmatch(label)]
    return others if 2 * len(numbers) > len(labels) and have_fractions(numbers) else []


def several_in_one(names: Sequence[str]) -> str | None:
    """A label that looks like several in one text, such as `[0, 1, 0]`, `a|b` or `8,20`; None if none does.

    A character in a name is no sign of that. The parts must occur elsewhere too: `R&B|Soul` beside `Rock` is one class.
    """
    lists = [name for name in names if len(name) > 1 and _LIST.fullmatch(name)]
    if len(lists) > 1 and 2 * len(lists) >= len(names):
        return lists[0]
    for separator in (*_SEPARATORS, *_SIGNS):
        parts = {name: {part.strip() for part in name.split(separator)} for name in names if separator in name}
        parts = {name: own for name, own in parts.items() if all(own)}
        if separator == " ":
            parts = {name: own for name, own in parts.items() if all(map(is_number, own))}
        whole = set(names) - parts.keys()
        for name, own in parts.items():
            more = (part for other, part in parts.items() if other != name and separator not in _SIGNS)
            others = whole.union(*more)
            if own <= others:
                return name
    return None


def about_tags(table: RawTable, *, is_asked_for: bool) -> list[str]:
    """A line about labels that are the tags of words.

    They hold tags for the words of their texts where nearly all have as many, or hold entity tags alone, be they more
    or fewer; half of them are several, and some have the same twice, which no name of a class has.

    Raises:
        UsageError: for labels that hold a tag for each word of their texts, unless the user asks for classes.
    """
    pairs = zip(table.text[:_SAMPLE], table.labels[:_SAMPLE], strict=True)
    rows = [(len(text.split()), _PARTS.findall(label)) for text, label in pairs] if table.text_pair is None else []
    tags = [own for count, own in rows if len(own) == count or all(map(_TAG.fullmatch, own))]
    several = [own for own in tags if len(own) > 1]
    has_twice = any(len(set(own)) < len(own) for own in several)
    if has_twice and 2 * len(several) >= len(rows) and len(tags) >= 0.8 * len(rows):
        if not is_asked_for:
            raise UsageError(
                "A text has one label, not a tag for each of its words. "
                f"Received: {quoted(table.labels[0])} in {table.where(0)}. Write words and tags as lists: "
                f"{OTHER_FORMATS}; or pass --task=classification if each label is one class."
            )
        return [f"warning: {table.name}: labels hold a tag for each word of their texts, and all are one class"]
    labels = set(table.labels)
    if "O" in labels and len(labels) > 1 and all(map(_TAG.fullmatch, labels)):
        return [
            f"warning: {table.name}: labels are entity tags, and each text gets one alone; to tag the words of "
            f"sentences, write these as lists: {OTHER_FORMATS}"
        ]
    return []


def names_of_model(saved: BertConfig, directory: pathlib.Path) -> tuple[str, ...]:
    """The labels of a saved model, in their order.

    Raises:
        UsageError: for labels that cannot be told apart.
    """
    names = tuple(saved.id2label.get(i, f"LABEL_{i}") for i in range(saved.num_labels))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        received = f"{twice!r} more than once in id2label of {directory / 'config.json'}"
        raise UsageError(f"Every label of a model must have a different name. Received: {received}. Repair it.")
    return names


def or_name_ids(label: str, names: Sequence[str]) -> str:
    """The end of a message about an unknown label: what to do if it is a number, and names are no numbers."""
    is_id = label.isdigit() and not any(map(is_number, names))
    return ", or pass --label_names with the names of 0, 1, ... in this order" if is_id else ""


def class_ids(labels: Sequence[str], label_names: Sequence[str], where: Callable[[int], str]) -> np.ndarray:
    """Class ids of labels as written; `2.0` also counts as `2`.

    Args:
        labels: As in `RawTable.labels`.
        label_names: Name of each class id.
        where: What messages call a row, as `RawTable.where`.

    Returns:
        int32 `[n]`.

    Raises:
        UsageError: for a label that is not in `label_names`.
    """
    ids = {name: index for index, name in enumerate(label_names)}
    out = np.empty(len(labels), np.int32)
    for row, label in enumerate(labels):
        known = ids.get(label, ids.get(canonical(label)))
        if known is None:
            rule = f"A label must be one of the training data's {len(ids)}: {shortened(label_names)}"
            todo = f"Correct it, or add it to the training data{or_name_ids(label, label_names)}."
            raise UsageError(f"{rule}. Received: {quoted(label)} in {where(row)}. {todo}")
        out[row] = known
    return out


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels as the names of classes: numbers by value, `2.0` as `2`; words by alphabet."""
    labels = {*labels}
    if not all(map(is_number, labels)):
        return tuple(sorted(labels))
    return tuple(sorted(set(map(canonical, labels)), key=lambda name: (float(name), name)))


def check_few(table: RawTable, names: Sequence[str], way_out: str, *, most: int | None = None) -> None:
    """Refuses labels that are as many as examples, or too many.

    Args:
        table: The training data.
        names: Its distinct labels.
        way_out: What else to do.
        most: The most that are no mistake; None for any number.

    Raises:
        UsageError: naming some.
    """
    is_mostly_distinct = len(table) > _FEW_ROWS and len(names) > len(table) / 2
    if is_mostly_distinct or (most is not None and len(names) > most):
        if not is_mostly_distinct:
            way_out += ", or --task=classification if there are so many classes"
        raise UsageError(
            "Labels must be few compared with examples. "
            f"Received: {len(names):,} distinct labels in the {len(table):,} rows of {table.name}, such as "
            f"{shortened(names, 3)}. Check --label_column{way_out}."
        )


def shortened(names: Sequence[str], most: int = 20) -> str:
    """The first labels, in quotes."""
    return ", ".join(map(quoted, names[:most])) + (", ..." if len(names) > most else "")


def quoted(label: str) -> str:
    """A label in quotes, cut to 60 characters."""
    return repr(label if len(label) <= 60 else f"{label[:57]}...")


def doubts_of(names: Sequence[str], counts: Sequence[int], what: str) -> list[str]:
    """Lines if some labels are almost the same, or hardly occur.

    Args:
        names: The labels.
        counts: The training examples of each.
        what: What messages call several labels.
    """
    groups: dict[str, list[str]] = {}
    out, rare = [], []
    for name, count in zip(names, counts, strict=True):
        key = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        key = str(+decimal.Decimal(key).normalize()) if is_number(key) else key  # Of -0, 0.
        groups.setdefault(key, []).append(f"{name!r} ({counted(count, 'example')})")
        if count < FEW_EXAMPLES:
            rare.append(f"{name!r} ({count})")
    if alike := [", ".join(group) for group in groups.values() if len(group) > 1]:
        how = "in case or space, or write one number in two ways"
        out.append(f"{what} that differ only {how}: {_first_few(alike, '; ')}")
    if rare:
        few = f"{len(rare):,} of {len(counts):,} {what} with fewer than {FEW_EXAMPLES} training examples"
        out.append(f"{few}: {_first_few(rare)}")
    return out


def all_alike(
    name: str, logits: np.ndarray, labels: np.ndarray, names: Sequence[str], things: str, what: str
) -> list[str]:
    """A line if all examples, `[n, num_labels]`, are predicted alike although their labels, int `[n]`, differ.

    Args:
        name: What messages call the data.
        logits: Of the examples.
        labels: Of the examples.
        names: The labels' names.
        things: What messages call examples.
        what: What they call a label.
    """
    predicted = np.unique(logits.argmax(axis=1))
    if len(predicted) > 1 or len(np.unique(labels)) < 2:
        return []
    return [
        f"{name}: all {len(labels):,} {things} get the {what} {quoted(names[predicted[0]])}: the model tells no {what} "
        "from another so far; train longer, or try --class_weights=balanced"
    ]


def _first_few(items: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(items) - _MOST_SHOWN:,} more" if len(items) > _MOST_SHOWN else ""
    return separator.join(items[:_MOST_SHOWN]) + more


def label_sets(table: RawTable) -> list[tuple[str, ...]]:
    """The labels of each row, be it one; after these, where rows say of each label whether they have it, all."""
    sets = [(own,) if isinstance(own, str) else own for own in table.labels]
    return [*sets, table.label_names or ()] if table.has_all else sets


def distinct_labels(sets: Iterable[tuple[str, ...]]) -> list[str]:
    """Each label that occurs, once, as it first occurs."""
    return list(dict.fromkeys(label for own in sets for label in own))


def renamed(table: RawTable, written: Mapping[str, Any]) -> RawTable:
    """The same table with other names for its labels."""
    labels = [written[own] if isinstance(own, str) else tuple(map(written.__getitem__, own)) for own in table.labels]
    names = table.label_names and tuple(written.get(name, name) for name in table.label_names)
    return dataclasses.replace(table, labels=labels, label_names=names)


def with_names(table: RawTable, names: tuple[str, ...], known: dict[str, str]) -> RawTable:
    """The same table with the names that `label_names` gives to its labels; itself where that is empty.

    Args:
        table: As it was written.
        names: All labels in order. Where rows say of each label whether they have it, there must be as many, and names
            of columns that are no numbers must be among them.
        known: What the labels of the training data are called, which says what ambiguous ones are; receives them.

    Raises:
        UsageError: for a label that is neither a name nor a number of one.
    """
    if not names:
        return table
    columns = (table.label_names or ()) if table.has_all else ()
    if columns and len(columns) != len(names):
        rule = f"label_names must be as many as the labels of the data, {len(columns)}"
        raise UsageError(f"{rule}. Received: {len(names)} names for {table.name}. Name each of them.")
    sets, notes = label_sets(table), table.notes

    def where(label: str) -> str:
        row = next(row for row, own in enumerate(sets) if label in own)
        return table.where(row) if row < len(table) else table.name

    if columns and all(map(str.isdigit, columns)):  # Places in a list, or columns of a file without a header.
        written = dict(zip(columns, names, strict=True))
    else:
        written = named_labels(distinct_labels(sets), names, where, known)
    known.update({} if known else written)
    if list(written.values()) != list(written):
        notes += (f"{table.name}: the labels 0, 1, ... are {', '.join(names)}, as label_names says",)
    return dataclasses.replace(renamed(table, written), notes=notes, label_names=names, is_regression=False)


def as_in_model(table: RawTable, names: Sequence[str], notes: list[str], *, are_given: bool) -> RawTable:
    """A table with its labels as the model calls them.

    Labels match by name, in any case. Numbers never stand for names, nor names for numbers, unless the user says which:
    two files of the same data set may order its classes differently.

    Args:
        table: As it was written; its `label_names` are those that the data set itself defines, or the user gives.
        names: The model's labels.
        notes: Receives a line if labels were not matched by name.
        are_given: Whether the user gave `label_names`.

    Raises:
        UsageError: for labels that are not the model's.
    """
    rows = label_sets(table)
    found = named_alike(distinct_labels(rows), names)
    own_names = f"the model's {len(names)}: {', '.join(names[:20])}"
    is_numbered = are_numbered(names)
    rename = ", or write the names of the model's labels into id2label of its config.json"
    given = (table.label_names or ()) if are_given else names
    if len(given) != len(names) or None in named_alike(given, names).values():
        todo = f"Write each as the model does, in the order of the data's numbers{rename if is_numbered else ''}."
        raise UsageError(f"label_names must be {own_names}. Received: {len(given)} names, {shortened(given)}. {todo}")
    if None not in found.values():
        return renamed(table, found)
    ids = {str(place): name for place, name in enumerate(names)}
    by_id = {label: ids.get(canonical(label)) for label in found}
    if _are_unnamed(names) and None not in by_id.values():
        notes.append(f"{table.name}: its labels 0, 1, ... are those of the model, which has no names for them")
        return renamed(table, by_id)
    row, unknown = next((i, label) for i, labels in enumerate(rows) for label in labels if found[label] is None)
    way_out = ""
    if is_numbered and not is_number(unknown):
        way_out = rename
    elif None not in by_id.values():
        way_out = ", or --label_names with the names of 0, 1, ... in this order"
    rule = f"Labels must be {own_names}"
    received = f"{unknown!r} in {table.where(row) if row < len(table) else table.name}"
    raise UsageError(f"{rule}. Received: {received}. Pass data for this model, or --label_column{way_out}.")


def are_numbered(names: Sequence[str]) -> bool:
    """Whether a model's labels are the numbers 0, 1, ..., or have no names at all."""
    return _are_unnamed(names) or list(names) == [str(i) for i in range(len(names))]


def _are_unnamed(names: Sequence[str]) -> bool:
    return list(names) == [f"LABEL_{i}" for i in range(len(names))]
