"""A label as it is written in a file or a data set: which values stand for a missing label, and the others as text."""

from __future__ import annotations

import decimal
import re
from collections.abc import Collection, Container
from typing import Any

from tfbert.data.given_table import plain
from tfbert.data.lines import not_utf8, not_utf8_error
from tfbert.data.open_file import Unlabelled
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

SPANS = "spans of characters, as doccano and Label Studio write (tagging needs a tag for each word: export CoNLL)"
"""What lists of lists or of objects in the place of labels seem to be."""

_INTEGRAL = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
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
    """A label with a whole number in its short form (`2.0` as `2`); other labels as they are."""
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
            f"Received: {column}={value!r:.60} in {where}{_what(value)}. Pass another --label_column."
        )
    text = "" if value is None else str(value).strip()
    if "\0" in text:
        raise UsageError(f"A label must be text. Received: zero bytes in {text!r:.60} in {where}. Repair the file.")
    if byte := not_utf8(text):
        raise not_utf8_error(byte, where)
    if is_missing(text, class_words):
        received = f"{text!r}, which stands for a missing one," if text else "none"
        way_out = "; if it is the name of a class, train with --task=classification" * (text in NAMES_OR_MISSING)
        raise Unlabelled(
            f"Every row needs a label. Received: {received} for {column!r} in {where}. Add it or drop the row{way_out}."
        )
    return text


def _what(value: Any) -> str:
    """What a list as a label seems to be, to follow its place in a message."""
    if not isinstance(value, list | tuple):
        return ""
    if any(isinstance(item, list | tuple | dict) for item in value):
        return f", {SPANS}"
    return ", a list, where each row has one label (several are for --task=multi_label_classification)"
