"""A label as it is written in a file or a data set: which values stand for a missing label, and the others as text."""

from __future__ import annotations

import decimal
import re
from collections.abc import Container
from typing import Any

from tfbert.data.given_table import plain
from tfbert.data.lines import not_utf8, not_utf8_error
from tfbert.errors import UsageError

NAMES_OR_MISSING = frozenset({"NA", "N/A", "n/a", "None", "NULL", "null"})
"""Words that pandas reads as a missing value, but that could be the name of a class."""
MISSING = NAMES_OR_MISSING | {"#N/A", "#N/A N/A", "#NA", "<NA>", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
"""All words that pandas reads as a missing value, except NaN, which is one in any case and with any sign."""

SPANS = "spans of characters, as doccano and Label Studio write (tagging needs a tag for each word: export CoNLL)"
"""What lists of lists or of objects in the place of labels seem to be."""

_NO_CONSENSUS = "-"
"""What SNLI and MultiNLI write in `gold_label` where the annotators disagreed."""
_INTEGRAL = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
_NAN = re.compile("[+-]?nan", re.IGNORECASE)


def is_missing(text: str, class_words: Container[str] = ()) -> bool:
    """Whether a label, without the blanks around it, stands for a missing one.

    Args:
        text: As it was written.
        class_words: Words of `MISSING`, or forms of NaN, that are classes here.
    """
    return text not in class_words and (not text or text in MISSING or _NAN.fullmatch(text) is not None)


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
    if is_missing(text, class_words) or (text == _NO_CONSENSUS and column == "gold_label"):
        received = f"{text!r}, which stands for a missing one," if text else "none"
        way_out = "; if it is the name of a class, train with --task=classification" * (text in NAMES_OR_MISSING)
        raise UsageError(
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
