"""What the columns of a CoNLL file are and which of its lines hold no word, from its first lines.

CoNLL has no header, and its relatives differ. Most lines decide, so that one foreign line changes nothing:

- The words are in the first column that does not say where a word is. One that does is the same throughout each
  sentence (the document of CoNLL-2012, the number of the sentence), or its numbers rise from word to word (GermEval,
  CoNLL-U, offsets of characters). Where such a column begins again, blank lines are missing.
- Where the first column looks like no words in another way (`T1`, parts of speech), the user must name the words'.
- The tags may come first (MIT's restaurants and movies), and a column of coreference (CoNLL-2012) holds no tags.
- A line that starts with `#` is a comment, unless it has as many columns as the others and a tag such as they have.
- In CoNLL-U, multiword ranges (`1-2`) and empty nodes (`8.1`) are no words.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence
from typing import Literal

from tfbert.data.columns import in_data
from tfbert.errors import UsageError
from tfbert.tasks.tagging.conll_columns import (
    NO_WORD,
    Blocks,
    about_blank_lines,
    are_mostly,
    are_tags,
    column_index,
    find_label_column,
    find_text_column,
    numbers_sentences,
    place_of_words,
)
from tfbert.tasks.tagging.tag_forms import TagForm, read_forms

DOCSTART = "-DOCSTART-"
"""The first column of the line that starts a document in CoNLL-2003; it is not a word."""

Tags = Literal["required", "optional", "none"]
"""Whether a file must have tags, may lack them (where it has one column), or has its tags ignored."""

_HEADER_WORDS = {"token", "tokens", "word", "words"}
_HEADER_TAGS = {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags"}
_LANGUAGE = re.compile("[a-z]{2,3}(-[a-z]+)*:")  # What precedes each word in WikiAnn's files.
_OTHER_TAGS = {"X", "_", "-", "PAD", "[PAD]"}  # What pieces of words may have beside entity tags.

Line = tuple[int, str]
"""A line's number from 1, and the line without its end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns of a file.

    Attributes:
        separator: What separates them: a tab, or a space for runs of spaces.
        num_columns: Columns per line.
        text: The column of the words.
        label: The column of the tags; None where they are not read.
        places: The columns before the words that say where a word is.
        has_nodes: Whether they hold plain numbers, so that `1-2` and `8.1` are no words.
        form: The form of the entity tags in the last column, or that of the tags; None for other tags.
        tags: The tags of words that do not start with `#`; empty in files of one column.
        has_hashes: Whether words start with `#`.
        asked: The columns that a user or a model's training named, by the options that name them.
        notes: What was found rather than told, one line each.
        doubt: Why the file cannot be read unless the user says more; empty: it can be.
    """

    separator: str
    num_columns: int
    text: int
    label: int | None
    places: tuple[int, ...]
    has_nodes: bool
    form: TagForm | None
    tags: frozenset[str]
    has_hashes: bool
    asked: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]
    doubt: str

    def holds_no_word(self, line: str) -> str:
        """`comment` for a comment, `node` for a range or an empty node of CoNLL-U; empty for a word.

        Args:
            line: Neither blank nor a `-DOCSTART-` line, without its end.
        """
        if line.lstrip(" ").startswith("#"):
            return "comment" * self._is_comment(line)
        if not self.has_nodes:
            return ""
        columns = split(line, self.separator)
        is_node = any(NO_WORD.fullmatch(columns[column]) for column in self.places if column < len(columns))
        return "node" * is_node

    def is_doubtful(self, line: str) -> bool:
        """Whether a line that starts with `#` and is taken for a word has a tag that only such lines have."""
        columns = split(line, self.separator)
        if self.form is not None or not self._has_tags(columns):
            return False
        tag = self._tag(columns)
        return tag not in (self.tags | {"#"}) and not _is_entity(tag)

    def _is_comment(self, line: str) -> bool:
        columns = split(line, self.separator)
        if len(columns) != self.num_columns:
            fields = line.split()
            if len(fields) == self.num_columns > 1 and (fields[-1] == "O" or fields[-1] in self.tags):
                return False  # Columns separated by something else.
            return len(fields) > 1 or not self.has_hashes  # `#hashtag` without a tag may be a word that lost it.
        if self.places:
            return True  # A word's line starts with its place.
        if not self._has_tags(columns):
            return False
        tag = self._tag(columns)
        if tag in self.tags or tag in ("", "#", "O"):
            return False
        if columns[0].startswith("##") and len(columns[0]) > 2:  # A piece of a word.
            return False
        if self.form is not None:
            return not self.form.fits(tag) and tag not in _OTHER_TAGS
        if _is_entity(tag):  # So far, no other word may be in an entity.
            return False
        return (columns[0] == "#" and tag in ("newdoc", "newpar")) or _shape(tag) not in set(map(_shape, self.tags))

    def _has_tags(self, columns: list[str]) -> bool:
        return len(columns) == self.num_columns > 1 and bool(self.tags)

    def _tag(self, columns: list[str]) -> str:
        return columns[self.num_columns - 1 if self.label is None else self.label].strip(" ")


def find_layout(
    lines: Sequence[Line], name: str, *, text_column: Sequence[str] = (), label_column: str = "", tags: Tags
) -> Layout | None:
    """Finds a file's columns from its first lines; None if none of them holds a word.

    Args:
        lines: The lines.
        name: What messages call the file; its ending counts too.
        text_column: The index of the words' column, from 0. Empty: the first that can be it.
        label_column: The index of the tags' column. Empty: the last; in CoNLL-U, UPOS; beside a last column that is the
            same everywhere, or in a file whose ending says that it holds entity tags, the one that holds entity tags.
        tags: Whether tags are needed.

    Raises:
        UsageError: for a column that is not there, or that cannot be what it was named as.
    """
    data = [line for line in lines if not separates(line[1]) and not line[1].lstrip(" ").startswith("#")]
    if not data:  # Only words that start with `#`, or only comments.
        data = [line for line in lines if not separates(line[1]) and _is_word_alone(line[1])]
    if not data:
        return None
    separator = "\t" if 2 * sum("\t" in line for _, line in data) >= len(data) else " "
    sizes = collections.Counter(len(split(line, separator)) for _, line in data)
    size = max(sizes, key=sizes.__getitem__)  # Of equals, that of the first line.
    blocks = _blocks(lines, {number for number, _ in data}, separator, size)
    rows = [row for block in blocks for row in block]
    notes: list[str] = []
    doubts: list[str] = []
    indexes = list(map(str, range(size)))
    asked = in_data((*text_column, *filter(None, [label_column])), indexes)  # Of training, all or none.
    text_column, label_column = asked[: len(text_column)], "".join(asked[len(text_column) :])
    tag_column = column_index("label_column", label_column, size, name) if label_column else size - 1
    tag_column = -1 if size == 2 or tags == "none" else tag_column
    text = find_text_column(blocks, size, name, text_column, tag_column, notes, doubts)
    places = tuple(c for c in range(text) if place_of_words(blocks, c) and not are_tags(blocks, c))
    label = None
    if tags != "none" and (label_column or size > 1):
        label = find_label_column(rows, size, text, places, name, label_column, notes, doubts)
    elif tags == "required":
        number, line = next(line for line in data if len(split(line[1], separator)) == size)
        raise UsageError(
            "A CoNLL file needs a column of words and one of tags. "
            f"Received: {name} with one column, {line!r:.60} in line {number}. "
            "Separate columns by tabs or spaces, or pass --mode=predict for words without tags."
        )
    if label == size - 1 not in (text, text + 1) and not label_column:
        tags_of = [{row[column].strip(" ") for row in rows} - {"O"} for column in (label, label - 1)]
        shared = sorted(tag for tag in tags_of[0] & tags_of[1] if any(map(str.isalpha, tag)))
        if shared and 2 * len(shared) >= min(map(len, tags_of)):
            notes.append(
                f"warning: {name}: the tags are in column {label}, the last, but column {label - 1} holds such too, "
                f"such as {shared[0]!r:.60}: if these are the right ones and the last are predicted, pass "
                f"--label_column={label - 1}"
            )
    if label == text:
        behind = "".join(f", and {place_of_words(blocks, column)} in column {column}" for column in places[:1])
        raise UsageError(
            "Words and tags must be different columns. "
            f"Received: column {text} of {size} for both in {name}{behind}. "
            "Pass another --text_column or --label_column."
        )
    sentences = [column for column in range(text + 1, size) if column != label and numbers_sentences(blocks, column)]
    doubts += filter(None, (about_blank_lines(blocks, column, name) for column in (*places, *sentences)))
    _check_header(rows[0], name, data, size, separator)
    language = _LANGUAGE.match(rows[0][text])
    if language and len(rows) > 2 and all(row[text].startswith(language[0]) for row in rows):
        notes.append(
            f"warning: {name}: every word starts with {language[0]!r}, as in WikiAnn, and is read with it; "
            "other texts have no such thing: cut it off"
        )
    if any(row[text] == '""""' for row in rows):
        notes.append(
            f'warning: {name}: the word """" is how CSV quotes ", and is read as it stands; write the file without '
            "quotes, in pandas with quoting=csv.QUOTE_NONE"
        )
    counts = collections.Counter(row[size - 1 if label is None else label].strip(" ") for row in rows)
    reading = read_forms(counts)
    is_entities = size > 1 and reading is not None and sum(reading.others.values()) <= reading.num_words
    layout = Layout(
        separator=separator,
        num_columns=size,
        text=text,
        label=label,
        places=places,
        has_nodes=any(are_mostly(rows, column, str.isdigit) for column in places),
        form=reading.form if is_entities else None,
        tags=frozenset(counts) if size > 1 else frozenset(),
        has_hashes=size == 1,
        asked={"text_column": text_column, "label_column": asked[len(text_column) :]},
        notes=tuple(notes),
        doubt=next(iter(doubts), ""),
    )
    hashes = [line for _, line in lines if line.lstrip(" ").startswith("#") and len(split(line, separator)) == size]
    return dataclasses.replace(layout, has_hashes=size == 1 or not all(map(layout.holds_no_word, hashes)))


def split(line: str, separator: str) -> list[str]:
    """A line's columns. Only tabs and spaces separate them: a word may be any other of Unicode's blanks."""
    return line.split("\t") if separator == "\t" else [column for column in line.split(" ") if column]


def is_blank(line: str) -> bool:
    """Whether a line, without its end, holds nothing but spaces and tabs."""
    return not line.strip(" \t")


def separates(line: str) -> bool:
    """Whether a line stands between sentences."""
    return is_blank(line) or (line.startswith(DOCSTART) and line[len(DOCSTART) :][:1] in ("", " ", "\t"))


def _is_word_alone(line: str) -> bool:
    """Whether a line that starts with `#`, in a file of such lines, holds a word: alone, or with an entity tag."""
    fields = line.split()
    return len(fields) == 1 or (len(fields) > 1 and (fields[-1] == "O" or _is_entity(fields[-1])))


def _is_entity(tag: str) -> bool:
    reading = read_forms({tag: 1})
    return reading is not None and reading.is_certain


def _blocks(lines: Sequence[Line], numbers: set[int], separator: str, size: int) -> Blocks:
    """The columns of the lines with these numbers that have the right number of columns, by sentences."""
    blocks: Blocks = [[]]
    for number, line in lines:
        if separates(line):
            blocks.append([])
        elif number in numbers:
            row = split(line, separator)
            if len(row) == size:
                blocks[-1].append(row)
    # Where words are counted, ranges and empty nodes are none; elsewhere, 2-1 is a word.
    words = [[row for row in block if not any(map(NO_WORD.fullmatch, row[:-1]))] for block in blocks]
    rows = [row for block in words for row in block]
    is_counted = any(place_of_words(words, c) and are_mostly(rows, c, str.isdigit) for c in range(size - 1))
    return list(filter(None, words if is_counted else blocks))


def is_header(line: str) -> bool:
    """Whether a line names columns of words and of tags."""
    names = {column.lower() for column in line.split()}
    return bool(names & _HEADER_WORDS and names & _HEADER_TAGS)


def _check_header(first: list[str], name: str, data: Sequence[Line], size: int, separator: str) -> None:
    names = [column.strip().lower() for column in first]
    words = next((column for column, each in zip(first, names, strict=True) if each in _HEADER_WORDS), None)
    tag = next((column for column, each in zip(first[::-1], names[::-1], strict=True) if each in _HEADER_TAGS), None)
    if words is not None and tag is not None:
        line = next(number for number, line in data if len(split(line, separator)) == size)
        raise UsageError(
            "CoNLL files have no header. "
            f"Received: {words!r} with the tag {tag!r} in {name}, line {line}. Delete the line."
        )


def _shape(tag: str) -> str:
    """Whether a tag has small letters, only capitals, or neither."""
    return "small" if tag != tag.upper() else "capital" if tag != tag.lower() else "other"
