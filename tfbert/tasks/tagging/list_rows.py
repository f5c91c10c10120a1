"""Rows that hold a list of words and a list of their tags: JSON lines, Parquet, data sets; and texts with as
many tags as words, in any table."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.columns import find_columns, find_tag_columns
from tfbert.data.files import check_text
from tfbert.data.given_table import GivenTable
from tfbert.data.open_file import OpenFile, Unlabelled
from tfbert.data.rows import open_rows
from tfbert.errors import UsageError
from tfbert.tasks.classes import hold_tags, words_and_tags
from tfbert.tasks.tagging.conll import Sentence

_LOOKED_AT = 20
"""Rows by which a table is recognised."""


def open_tagged_texts(
    source: pathlib.Path | GivenTable, format: str, config: DataConfig
) -> tuple[OpenFile, str, str] | None:
    """Opens a table whose labels hold as many tags as their texts have words; None for any other, and for a file that
    cannot be read: reading it in another form says why.

    Args:
        source: A path, or a table in memory.
        format: As for `open_rows`; empty for what is no table.
        config: As for `open_sentences`.

    Returns:
        The table, just opened, the column of the texts and that of their labels.
    """
    if not format:
        return None
    columns = {"text_column": config.text_column, "label_column": config.label_column}
    try:
        file = open_rows(source, format, delimiter=config.separator)
        texts, label = (), ""
        with contextlib.suppress(UsageError):  # As the task of texts and their labels calls them.
            texts, label = find_columns(file.name, file.columns, **columns)
        if len(texts) > 1:
            return None
        with contextlib.suppress(UsageError):
            text, label = find_tag_columns(file, **columns)
            texts = (text,)
        if not label:
            return None
        rows = [row for _, row in itertools.islice(file.read([*texts, label]), _LOOKED_AT)]
        rows = [row for row in rows if not isinstance(row, UsageError)]
        if hold_tags((row[0] for row in rows), (row[1] for row in rows)):
            return open_rows(source, format, delimiter=config.separator), *texts, label
    except UsageError:
        pass
    return None


def sentences_of_rows(
    rows: OpenFile,
    words: str,
    label: str,
    names: Sequence[str] | None,
    others: Sequence[str],
    *,
    are_texts: bool = False,
) -> Iterator[Sentence | UsageError]:
    """The sentences of a table with a list of words in each row; an error in place of each that cannot be read.

    Args:
        rows: Just opened.
        words: The column of the words.
        label: The column of the tags, names or ids; empty: tags are not read.
        names: The names of the ids; None: ids become text as they are.
        others: Further columns, whose values become `others`.
        are_texts: Whether words and tags are texts, as `words_and_tags` reads them.
    """
    for line, row in (rows.without_rejected() if label else rows).read([words, *([label] if label else []), *others]):
        where = f"{rows.name}, {rows.unit} {line}"
        try:
            if isinstance(row, UsageError):
                raise row
            if are_texts:
                row = [*(words_and_tags(*row[:2]) or map(str.split, map(str, row[:2]))), *row[2:]]
            found = _check_words(row[0], words, where)
            tags = _check_tags(row[1], label, names, where) if label else None
            if tags is not None and len(tags) != len(found):
                raise UsageError(
                    f"Every word needs one tag. Received: {len(found)} words and {len(tags)} tags in {where}. "
                    "Repair or drop the row."
                )
            yield Sentence(line=line, words=found, tags=tags, others=row[1 + bool(label) :])
        except UsageError as error:
            yield error


def _check_words(value: Any, column: str, where: str) -> list[str]:
    """Checks a list of words. A word may be all blanks, as in data sets that keep line ends as words, but not empty."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        is_text = ", a text not cut into words (doccano and Label Studio can export CoNLL)" * isinstance(value, str)
        raise UsageError(
            "Words must be a list of strings in each row. "
            f"Received: {column}={value!r:.60} in {where}{is_text}. "
            "Repair or drop the row, or pass another --text_column."
        )
    if not value:
        rule = "A sentence needs at least one word"
        raise Unlabelled(f"{rule}. Received: {column}=[] in {where}. Drop the row.", "empty")
    if "" in value:
        raise UsageError(
            "A word must not be empty. "
            f"Received: '' as word {value.index('') + 1} of {column!r} in {where}. Repair or drop the row."
        )
    check_text(" ".join(value), column, where)
    return value


def _check_tags(value: Any, column: str, names: Sequence[str] | None, where: str) -> list[str]:
    if not isinstance(value, list):
        raise UsageError(
            "Tags must be a list of names or ids in each row. "
            f"Received: {column}={value!r:.60} in {where}. Repair or drop the row, or pass another --label_column."
        )
    tags = []
    for tag in value:
        is_id = names is not None and type(tag) is int and tag >= 0
        if is_id and tag >= len(names):
            raise UsageError(
                f"A tag's id must be one of the {len(names)} that the file names. "
                f"Received: {tag} for {column!r} in {where}. Repair or drop the row."
            )
        tags.append(names[tag] if is_id else tag_of(tag, column, where))
    return tags


def tag_of(value: Any, column: str, where: str) -> str:
    """A word's tag as text.

    Raises:
        UsageError: for what cannot be one.
    """
    if type(value) is int and value >= 0:
        return sys.intern(str(value))
    if isinstance(value, str) and value.strip():
        return sys.intern(check_text(value, column, where).strip())
    kind = Unlabelled if value is None or type(value) is int else UsageError
    raise kind(
        "Every word needs a tag: a name, or an id from 0. "
        f"Received: {value!r:.60} for {column!r} in {where}. Repair or drop the row."
    )
