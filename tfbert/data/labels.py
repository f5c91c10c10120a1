"""Labels as they are written in a file or a data set: which values stand for a missing one, the others as text, and
what 0, 1, 2, ... mean, as a user says with `--label_names`, or a Parquet file.
"""

from __future__ import annotations

import decimal
import json
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.reading import OTHER_FORMATS, Unlabelled, check_unicode, plain, read_text
from tfbert.errors import UsageError

NAMES_OR_MISSING = frozenset({"NA", "N/A", "n/a", "None", "NULL", "null"})
"""Words that pandas reads as a missing value, but that could be the name of a class."""
MISSING = NAMES_OR_MISSING | {"#N/A", "#N/A N/A", "#NA", "#NV", "<NA>", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
MISSING |= {"NaT", "\\N"}
"""Words that pandas and databases write for a missing value; see `_MISSING` for those of a form."""
MARKS = frozenset({"-", "--", "---", "\u2013", "\u2014"})
"""What stands for a missing label beside words and numbers, as `-` in SNLI, where annotators disagreed."""
HELD_BACK = "-1"
"""What `datasets`, TensorFlow Datasets and GLUE write for a label that is held back."""

_INTEGRAL = re.compile(r"(?:-(?=0+(?:\.|$)))?([+-]?\d+)(?:\.0*)?", re.ASCII)
_MISSING = re.compile(r"(?i:[+-]?nan|[(<\[{](null|nil|nan|na|n/a)[)>\]}])|#[¡¿]?[A-Z0-9À-Þ]+(/0)?[!?]|Err:\d{3}")
"""NaN in any case and with any sign; databases' `(null)` and `<null>`; spreadsheets' `#VALUE!` and `#DIV/0!`."""


def is_missing(text: str, class_words: Container[str] = ()) -> bool:
    """Whether a label, without the blanks around it, stands for a missing one.

    Args:
        text: As it was written.
        class_words: Words of `MISSING`, or forms of NaN, that are classes here.
    """
    return text not in class_words and (not text or text in MISSING or _MISSING.fullmatch(text) is not None)


def stand_for_none(labels: Collection[str], classes: Container[str] | None = None) -> set[str]:
    """The labels that stand for a missing one beside the others of their set, in whatever form they were read.

    -1 does where it alone is below 0, or others are words. It does not beside lower numbers or fractions, which are a
    scale, nor where the labels are -1, 0 and 1, or only one other. A mark such as `-` does beside labels that have
    letters or digits, not beside other signs, such as `+`. Where a set has nothing else, both do.

    Args:
        labels: All that occur in a set, `is_missing` for none.
        classes: The classes, where they are known; -1 and marks are among them, or are none. None: as above.
    """
    ones = {label for label in labels if canonical(label) == HELD_BACK}
    marks = MARKS.intersection(labels)
    if classes is not None:
        return {label for label in ones | marks if label not in classes and canonical(label) not in classes}
    if ones == {*labels} or (marks == {*labels} and len(marks) == 1):
        return {*labels}
    others = {label for label in labels if label not in marks}
    marks = marks if others and all(any(map(str.isalnum, label)) for label in others) else set()
    try:
        numbers = {float(label) for label in others - ones}
    except ValueError:  # Words.
        return marks | ones
    are_classes = len(numbers) == 1 or numbers == {0.0, 1.0} or any(number < -1 or number % 1 for number in numbers)
    return marks if are_classes else marks | ones


def canonical(label: str) -> str:
    """A label with a whole number in its short form (`2.0` as `2`, a rounded `-0.0` as `0`); others as they are."""
    match = _INTEGRAL.fullmatch(label)
    return match[1] if match else label


def label_text(value: Any, column: str, where: str, class_words: Container[str] = ()) -> str:
    """The label of a row, as text that is the same from every format.

    JSON's null, NaN and what pandas writes for them are missing labels. A decimal number of Parquet is a number.

    Args:
        value: As it was read.
        column: The column it is from.
        where: What messages call the row.
        class_words: As for `is_missing`.

    Raises:
        UsageError: for a missing label, or a value that cannot be a label.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | decimal.Decimal):
        value = plain(value)
    if value is not None and not isinstance(value, str | int | float):
        raise UsageError(
            "A label must be a word, a number, true or false. "
            f"Received: {column}={value!r:.60} in {where}. Pass another --label_column, or for several labels "
            f"--task=multi_label_classification; for spans of characters, {OTHER_FORMATS}."
        )
    text = stripped("" if value is None else str(value), where)
    if is_missing(text, class_words):
        received = f"{text!r}, which stands for a missing one," if text else "none"
        is_name = text in NAMES_OR_MISSING
        way_out = "; if it is the name of a class, train with --task=classification" if is_name else ""
        raise Unlabelled(
            f"Every row needs a label. Received: {received} for {column!r} in {where}. Add it or drop the row{way_out}."
        )
    return text


def stripped(text: str, where: str) -> str:
    """The text of a label without the blanks around it.

    Raises:
        UsageError: for zero bytes, and what is not valid Unicode.
    """
    text = text.strip()
    if "\0" in text:
        raise UsageError(f"A label must be text. Received: zero bytes in {text!r:.60} in {where}. Repair the file.")
    return check_unicode(text, where)


_RULE = "A file of label names must be a text file with one name a line"


def given_names(config: DataConfig) -> tuple[str, ...]:
    """The name of each id, as `label_names` lists them or the file that it names; empty where it says nothing.

    Raises:
        UsageError: for a file that cannot be read, fewer than two names, an empty name, or one that occurs twice.
    """
    names, where = list(config.label_names), "label_names"
    if config.label_names_file:
        where = config.label_names_file
        names = read_text(pathlib.Path(where), _RULE).removeprefix("\ufeff").rstrip().split("\n")
    if not names:
        return ()
    names = [stripped(name, where) for name in names]
    if len(names) < 2:
        rule = "There must be two labels or more"
        raise UsageError(f"{rule}. Received: {', '.join(map(repr, names))} in {where}. Name all of them.")
    bad = next((number for number, name in enumerate(names) if not name or name in names[:number]), None)
    if bad is not None:
        what = f"{names[bad]!r} twice" if names[bad] else "an empty name"
        rule = "Every label needs a name of its own"
        raise UsageError(f"{rule}. Received: {what} in {where}, for label {bad}. Repair it.")
    return tuple(names)


def named_alike(labels: Iterable[str], names: Sequence[str]) -> dict[str, str | None]:
    """The name that each label is, be it in another case where that is clear, or `2.0` for `2`; None for none."""
    folded = {name.casefold(): name for name in names}
    folded = folded if len(folded) == len(names) else {}
    return {
        label: next(filter(names.__contains__, (label, canonical(label))), folded.get(label.casefold()))
        for label in labels
    }


def named_labels(
    distinct: Iterable[str],
    names: tuple[str, ...],
    where: Callable[[str], str],
    written: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The name of each label of a table, which holds either names or ids, not some of each.

    Args:
        distinct: The labels that occur, as text; `2.0` also counts as `2`.
        names: The name of each id. Where some of them are whole numbers, labels that could be names as well as other
            ids are refused.
        where: The place where a label occurs first, for messages.
        written: The names of the training data's labels, which say what ambiguous ones are.

    Raises:
        UsageError: for a label that is neither a name nor an id, and for labels that are ambiguous.
    """
    distinct = list(distinct)
    ids = {str(number): name for number, name in enumerate(names)}
    by_id, by_name = {label: ids.get(canonical(label)) for label in distinct}, named_alike(distinct, names)
    are_ids, are_names = (None not in found.values() for found in (by_id, by_name))
    if written and are_ids and are_names:
        fits = [all(written.get(label, name) == name for label, name in found.items()) for found in (by_id, by_name)]
        are_ids, are_names = fits if any(fits) else (True, True)
    if are_ids and are_names and by_id != by_name:
        label = next(label for label in distinct if by_id[label] != by_name[label])
        rule = "Where label_names has numbers, it must be clear whether a label is a name or an id"
        received = f"{label!r} in {where(label)}, the name {by_name[label]!r} or the id of {by_id[label]!r}"
        raise UsageError(f"{rule}. Received: {received}. Write the names in the file, or pass words.")
    if are_ids:
        return by_id
    if are_names:
        return by_name
    # Names decide what the bad label is: a file of ids has no name in it.
    has_names = any(name is not None and by_id[label] is None for label, name in by_name.items())
    label = next(label for label in distinct if (by_name if has_names else by_id)[label] is None)
    mixed = "" if by_id[label] is None else " beside names"
    rule = f"Labels must be the {len(names)} names of label_names, or their numbers 0 to {len(names) - 1}"
    raise UsageError(f"{rule}. Received: {label!r:.60}{mixed} in {where(label)}. Correct it, or --label_names.")


def names_in_schema(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """The names of ids, by column, where Hugging Face's `datasets` wrote them into the schema of a table.

    It writes the type of a class as `{"names": [...]}`, that of a list of classes as `{"feature": {"names": [...]}}`;
    before 2022, `[{"names": [...]}]`.

    Args:
        metadata: Of a schema of Arrow or Parquet.
    """
    found = {}
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"null"))["info"]["features"].items()
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError):
        return found
    for column, feature in features:
        feature = feature[0] if isinstance(feature, list) and feature else feature
        feature = feature.get("feature", feature) if isinstance(feature, dict) else {}
        names = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(names, list) and names and all(isinstance(name, str) and name.strip() for name in names):
            found[column] = tuple(sys.intern(name.strip()) for name in names)
    return found


def named_id(value: Any, names: Sequence[str], column: str, where: str) -> Any:
    """The name of a class id of such a file; what is no whole number stays as it is.

    Args:
        value: As it was read.
        names: The name of each id.
        column: The column it is from.
        where: What messages call the row.

    Raises:
        UsageError: for an id without a name, such as -1, by which `datasets` says that there is no label.
    """
    if type(value) is not int:
        return value
    if not 0 <= value < len(names):
        rule = f"A label's id must be one of the {len(names)} that the file names"
        raise UsageError(f"{rule}. Received: {value} for {column!r} in {where}. Repair or drop the row.")
    return names[value]
