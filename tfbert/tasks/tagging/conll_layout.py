"""What the columns of a CoNLL file are and which of its lines hold no word, from its first lines.

CoNLL has no header, and its relatives differ. Most lines decide, so that one foreign line changes nothing:

- A column that counts the words of each sentence, or all words (GermEval, CoNLL-U, UNER), is never that of the words.
  Nor is one before it that is the same throughout each sentence (the document of CoNLL-2012), or numbers the sentences.
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
from tfbert.data.endings import IOB_ENDINGS, ending_of
from tfbert.errors import UsageError
from tfbert.tasks.tagging.tag_forms import TagForm, read_forms

DOCSTART = "-DOCSTART-"
"""The first column of the line that starts a document in CoNLL-2003; it is not a word."""

Tags = Literal["required", "optional", "none"]
"""Whether a file must have tags, may lack them (where it has one column), or has its tags ignored."""

_HEADER_WORDS = {"token", "tokens", "word", "words"}
_HEADER_TAGS = {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags"}
_CONLLU_COLUMNS, _UPOS = 10, 3
_COUNTED = 0.8  # Of the lines, if a column counts: a few foreign lines do not matter.
_NUMBER = re.compile(r"(?:[A-Za-z]*\d+[-_:])?(\d+)[.)]?", re.ASCII)  # 2, 2., and 2 in 1-2 and s1_2; w2 may be a word.
_NO_WORD = re.compile(r"\d+-\d+|\d+\.\d+", re.ASCII)
_COREFERENCE = re.compile(r"\(?\d+\)?(\|\(?\d+\)?)*", re.ASCII)
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
        counters: The columns that count words or sentences.
        has_nodes: Whether they hold plain numbers, so that `1-2` and `8.1` are no words.
        form: The form of the entity tags in the last column, or that of the tags; None for other tags.
        tags: The tags of words that do not start with `#`; empty in files of one column.
        has_hashes: Whether words start with `#`.
        notes: What was found rather than told, one line each.
    """

    separator: str
    num_columns: int
    text: int
    label: int | None
    counters: tuple[int, ...]
    has_nodes: bool
    form: TagForm | None
    tags: frozenset[str]
    has_hashes: bool
    notes: tuple[str, ...]

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
        is_node = any(_NO_WORD.fullmatch(columns[column]) for column in self.counters if column < len(columns))
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
        if min(self.counters, default=self.text) < self.text:
            return True  # A word's line starts with a number.
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
    counters = [column for column in range(size) if size > 1 and _counts(blocks, column)]
    notes: list[str] = []
    indexes = list(map(str, range(size)))
    text_column, label_column = in_data(text_column, indexes), "".join(in_data([label_column], indexes))
    text = _text_column(blocks, size, counters, name, text_column, notes)
    label = None
    if tags != "none" and (label_column or size > 1):
        label = _label_column(rows, size, text, counters, name, label_column, notes)
    elif tags == "required":
        number, line = next(line for line in data if len(split(line[1], separator)) == size)
        raise UsageError(
            "A CoNLL file needs a column of words and one of tags. "
            f"Received: {name} with one column, {line!r:.60} in line {number}. "
            "Separate columns by tabs or spaces, or pass --mode=predict for words without tags."
        )
    if label == text:
        numbered = "".join(f", and running numbers in column {column}" for column in counters[:1])
        raise UsageError(
            "Words and tags must be different columns. "
            f"Received: column {text} of {size} for both in {name}{numbered}. "
            "Pass another --text_column or --label_column."
        )
    _check_header(rows[0], name, data, size, separator)
    language = _LANGUAGE.match(rows[0][text])
    if language and len(rows) > 2 and all(row[text].startswith(language[0]) for row in rows):
        notes.append(
            f"warning: {name}: every word starts with {language[0]!r}, as in WikiAnn, and is read with it; "
            "other texts have no such thing: cut it off"
        )
    counts = collections.Counter(row[size - 1 if label is None else label].strip(" ") for row in rows)
    reading = read_forms(counts)
    is_entities = size > 1 and reading is not None and sum(reading.others.values()) <= reading.num_words
    layout = Layout(
        separator=separator,
        num_columns=size,
        text=text,
        label=label,
        counters=tuple(counters),
        has_nodes=any(sum(row[c].isdigit() for row in rows) >= _COUNTED * len(rows) for c in counters),
        form=reading.form if is_entities else None,
        tags=frozenset(counts) if size > 1 else frozenset(),
        has_hashes=size == 1,
        notes=tuple(notes),
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


def _blocks(lines: Sequence[Line], numbers: set[int], separator: str, size: int) -> list[list[list[str]]]:
    """The columns of the lines with these numbers that have the right number of columns, by sentences."""
    blocks: list[list[list[str]]] = [[]]
    for number, line in lines:
        if separates(line):
            blocks.append([])
        elif number in numbers:
            row = split(line, separator)
            if len(row) == size:
                blocks[-1].append(row)
    # Where words are counted, ranges and empty nodes are none; elsewhere, 2-1 is a word.
    words = [[row for row in block if not any(map(_NO_WORD.fullmatch, row[:-1]))] for block in blocks]
    is_counted = any(_counts(list(filter(None, words)), column) for column in range(size - 1))
    return list(filter(None, words if is_counted else blocks))


def _counts(blocks: list[list[list[str]]], column: int) -> bool:
    """Whether a column counts the words of each sentence from 0 or 1, or all words, or the sentences."""
    in_sentence = in_file = steps = 0
    total = sum(map(len, blocks))
    before = None
    of_blocks = []
    for block in blocks:
        found = [_NUMBER.fullmatch(row[column]) for row in block]
        values = [int(number[1]) if number else None for number in found]
        of_blocks.append(values[0] if len(set(values)) == 1 else None)
        for place, value in enumerate(values):
            if value is not None:
                follows = before is not None and value == before + 1
                in_file += follows
                in_sentence += follows if place else value in (0, 1)
                steps += bool(follows and place)
            before = value
    if steps and max(in_sentence, (in_file + 1) * (total > 2)) >= _COUNTED * total:
        return True
    numbered = [a is not None and b == a + 1 for a, b in zip(of_blocks, of_blocks[1:], strict=False)]
    return bool(numbered) and total > len(blocks) and sum(numbered) >= _COUNTED * len(numbered)


def _text_column(
    blocks: list[list[list[str]]],
    size: int,
    counters: list[int],
    name: str,
    asked: Sequence[str],
    notes: list[str],
) -> int:
    """The column of the words."""
    if asked:
        text = _index("text_column", ",".join(asked), size, name)
        if text in counters:
            other = next((column for column in range(text + 1, size) if column not in counters), None)
            raise UsageError(
                "A column of running numbers does not hold the words. "
                f"Received: text_column={text} for {name}, where it counts them. "
                + (f"Pass --text_column={other}." if other is not None else "Pass another file.")
            )
        if _are_tags(blocks, text):
            raise UsageError(
                "A column of entity tags does not hold the words. "
                f"Received: text_column={text} for {name}, with {blocks[0][0][text]!r:.60}. Pass another."
            )
        return text
    text = 0
    if counters and max(map(len, blocks)) > 1:
        before = range(counters[0])
        if all(len({row[column] for row in block}) == 1 for block in blocks for column in before):
            text = counters[0] + 1
    rows = [row for block in blocks for row in block]
    # After a number there may be the place in the text, such as 0-3.
    while text in counters or (0 < text < size and all(_NO_WORD.fullmatch(row[text]) for row in rows)):
        text += 1
    if text >= size:
        raise UsageError(
            "A CoNLL file needs a column of words. "
            f"Received: {name}, where column {counters[-1]}, the last, holds running numbers. Pass --text_column."
        )
    if text:
        notes.append(f"{name}: the words are in column {text}; column {counters[0]} holds running numbers")
    if _are_tags(blocks, text) and not _are_tags(blocks, size - 1):
        if size != 2:
            raise UsageError(
                "A CoNLL file needs a column of words. "
                f"Received: {name}, where column {text} holds entity tags. Pass --text_column and --label_column."
            )
        notes.append(f"{name}: the words are in column 1, behind their tags in column 0")
        return 1
    return text


def _are_tags(blocks: list[list[list[str]]], column: int) -> bool:
    """Whether a column certainly holds entity tags, all of them."""
    reading = read_forms(collections.Counter(row[column].strip(" ") for block in blocks for row in block))
    return reading is not None and reading.is_certain and bool(reading.form.separator) and reading.num_outside > 0


def _label_column(
    rows: list[list[str]], size: int, text: int, counters: list[int], name: str, asked: str, notes: list[str]
) -> int:
    """The column of the tags."""
    if asked:
        return _index("label_column", asked, size, name)
    last = size - 1
    if size == 2 and text == last and _are_tags([rows], 0):
        return 0
    entities = [c for c in range(size) if c not in (text, *counters) and _holds_entities(rows, c)]
    values = {row[last].strip(" ") for row in rows}
    if last in (text, *entities) or values == {"O"}:
        if counters and len(entities) > 1:
            notes.append(f"{name}: the tags are in column {last}, the last; --label_column={entities[-2]} takes others")
        return last
    if len(entities) == 1 and (ending_of(name) in IOB_ENDINGS or len(values) == 1):
        notes.append(f"{name}: the tags are in column {entities[0]}, the only one with entity tags")
        return entities[0]
    if any("(" in value or ")" in value for value in values) and all(
        value in ("-", "_", "*") or _COREFERENCE.fullmatch(value) for value in values
    ):
        if len(entities) == 1:
            notes.append(f"{name}: the tags are in column {entities[0]}; the last holds coreference")
            return entities[0]
        raise UsageError(
            "A column of coreference does not hold the tags. "
            f"Received: {name}, where it is column {last}, the last. Pass --label_column."
        )
    if size == _CONLLU_COLUMNS and 0 in counters:
        notes.append(f"{name}: the tags are in column {_UPOS}, UPOS, as this is CoNLL-U; --label_column takes another")
        return _UPOS
    if entities:
        notes.append(
            f"warning: {name}: the tags are in column {last}, the last, but column {entities[-1]} holds entity tags; "
            f"--label_column={entities[-1]} takes these"
        )
    return last


def _holds_entities(rows: list[list[str]], column: int) -> bool:
    reading = read_forms(collections.Counter(row[column].strip(" ") for row in rows))
    return (
        reading is not None and sum(reading.others.values()) <= 0.1 * len(rows) and bool(reading.letters & {"B", "I"})
    )


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


def _index(flag: str, value: str, size: int, name: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) >= size:
        raise UsageError(
            f"{flag} of a CoNLL file must be a column's index, from 0. "
            f"Received: {flag}={value!r} for {name} with columns 0 to {size - 1}. Pass one of them."
        )
    return int(value)


def _shape(tag: str) -> str:
    """Whether a tag has small letters, only capitals, or neither."""
    return "small" if tag != tag.upper() else "capital" if tag != tag.lower() else "other"
