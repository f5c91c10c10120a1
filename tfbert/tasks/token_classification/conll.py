"""CoNLL files, read one sentence at a time in constant memory: one word per line, its tag in a column beside it.

Tabs or runs of spaces separate the columns; blank lines and `-DOCSTART-` lines separate sentences. There is no header:
the words are in the first column and the tags in the last, unless the user names others; in CoNLL-U, in those of the
word and of UPOS. Where the first lines speak against that, the file is refused with the columns that it may be: wrong
words beside right tags look healthy. Most lines decide, so that one foreign line changes nothing.

A line that starts with `#` is a comment, unless it has as many columns as the others and a tag such as they have. Where
words are counted, multiword ranges (`1-2`) and empty nodes (`8.1`) are no words.

In place of a sentence that cannot be read, a `UsageError` is yielded: the caller decides whether to stop.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, Literal

from tfbert.config.types import counted
from tfbert.data.files import in_data, named_by_user
from tfbert.data.reading import (
    CONLL_ENDINGS,
    IOB_ENDINGS,
    WORDS,
    ending_of,
    lines_of,
    not_utf8,
    not_utf8_error,
    source_name,
    without_end,
)
from tfbert.errors import UsageError
from tfbert.tasks.token_classification.tags import TagForm, read_forms

DOCSTART = "-DOCSTART-"
"""The first column of the line that starts a document in CoNLL-2003; it is not a word."""
MOST_WORDS = 100_000  # In a sentence. A file with more probably has no blank lines, and would fill the memory.
Tags = Literal["required", "optional", "none"]
"""Whether a file must have tags, may lack them (where it has one column), or has its tags ignored."""

_HEAD_LINES = 1000  # They decide what the columns are, and whether a file is CoNLL at all.
_CERTAIN = 0.98  # Of the lines, if a file without a telling name is CoNLL: one that is bad is named when it is read.
_MOST = 0.8  # Of the lines: a few foreign ones do not matter.
_FEW = 0.1  # Of the sentences: accidents.
_MANY = 20  # Different words: with fewer, it says little that another column has more.
_CONLLU_COLUMNS, _FORM, _UPOS = 10, 1, 3
_NO_WORD = re.compile(r"\d+-\d+|\d+\.\d+", re.ASCII)
_NUMBERED = re.compile(r"[^\W\d_]+\d+")
_HEADER_WORDS = {"token", "tokens", "word", "words"}
_HEADER_TAGS = {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags"}
_LANGUAGE = re.compile("[a-z]{2,3}(-[a-z]+)*:")  # What precedes each word in WikiAnn's files.
_OTHER_TAGS = {"X", "_", "-", "PAD", "[PAD]"}  # What pieces of words may have beside entity tags.

Line = tuple[int, str]
"""A line's number from 1, and the line."""
Blocks = list[list[list[str]]]
"""The columns of the words of each sentence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence as it was written.

    Attributes:
        line: Its position from 1: its first line, or its row's number.
        words: At least one.
        tags: One per word, ids as text; None where no tags were read.
        others: The values of further columns that the caller wants.
        places: The line of each word, where each has its own; else empty.
    """

    line: int
    words: list[str]
    tags: list[str] | None
    others: Sequence = ()
    places: Sequence[int] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConllSentence(Sentence):
    """A sentence with everything that its file holds about it.

    Attributes:
        written: Each word's line, without its end.
        before: The lines between the last word of the previous sentence and the first of this one, without their ends.
        between: The comments and other lines without a word inside the sentence and right after it, each with the
            number of words before it.
        after: The same for the lines that follow the last sentence of a file; empty for other sentences.
        separator: What separates the file's columns: a tab, or a space for runs of spaces.
        line_end: The line end of the file's first line with words.
    """

    written: list[str]
    before: Sequence[str] = ()
    between: Sequence[tuple[int, str]] = ()
    after: Sequence[str] = ()
    separator: str
    line_end: str

    def with_column(self, values: Sequence[str]) -> str:
        """The lines of this sentence as they were, each with a column added.

        All sentences of a file together are the file with a column added. `conlleval` reads it where the previous
        column holds the right tags. The last line gets a line end if the file has none.

        Args:
            values: One per word. A `-DOCSTART-` line gets an O: conlleval demands the same number of columns in all.
        """
        lines = [self._without_word(line) for line in self.before]
        between = collections.deque(self.between)
        for place, (line, value) in enumerate(zip(self.written, values, strict=True), start=1):
            lines.append(f"{line}{self.separator}{value}")
            while between and between[0][0] == place:
                lines.append(self._without_word(between.popleft()[1]))
        lines += [self._without_word(line) for line in self.after]
        return "".join(line + self.line_end for line in lines)

    def _without_word(self, line: str) -> str:
        """A blank line and a comment stay as they are."""
        if _is_blank(line) or line.lstrip(" ").startswith("#"):
            return line
        if line.startswith(DOCSTART):
            return f"{line}{' ' if ' ' in line else self.separator}O"
        return f"{line}{self.separator}_"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns of a file, and which of its lines hold words.

    Attributes:
        separator: What separates them: a tab, or a space for runs of spaces.
        num_columns: Columns per line.
        text: The column of the words.
        label: The column of the tags; None where they are not read.
        places: The columns before the words that say where a word is.
        counted: Those that hold plain numbers, so that `1-2` and `8.1` are no words.
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
    counted: tuple[int, ...]
    form: TagForm | None
    tags: frozenset[str]
    has_hashes: bool
    asked: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]
    doubt: str

    def kind_of(self, line: str) -> str:
        """`comment`; `node` for a range or an empty node of CoNLL-U; `doubt` for a word that starts with `#` and whose
        tag only such words have; empty for any other word.

        Args:
            line: Neither blank nor a `-DOCSTART-` line, without its end.
        """
        is_hash = line.lstrip(" ").startswith("#")
        if not is_hash and not self.counted:
            return ""
        columns = _split(line, self.separator)
        if not is_hash:
            is_node = any(c < len(columns) and _NO_WORD.fullmatch(columns[c]) for c in self.counted)
            return "node" if is_node else ""
        fields = line.split()
        is_whole = len(columns) == self.num_columns
        if not is_whole and len(fields) == self.num_columns > 1 and fields[-1] in (self.tags | {"O"}):
            return ""  # Columns separated by something else.
        if not is_whole:  # `#hashtag` without a tag may be a word that lost it.
            return "comment" if len(fields) > 1 or not self.has_hashes else ""
        if self.places:  # A word's line starts with its place.
            return "comment"
        tag = columns[self.num_columns - 1 if self.label is None else self.label].strip(" ")
        is_piece = columns[0].startswith("##") and len(columns[0]) > 2
        if not self.tags or is_piece or tag in self.tags or tag in ("", "#"):
            return ""
        if self.form is not None:
            return "" if self.form.fits(tag) or tag in _OTHER_TAGS else "comment"
        if _is_entity(tag):  # So far, no other word may be in an entity.
            return ""
        is_new = columns[0] == "#" and tag in ("newdoc", "newpar")
        is_other = tag != "O" and _shape(tag) not in set(map(_shape, self.tags))
        return "comment" if is_new or is_other else "doubt"


def find_layout(
    lines: Sequence[Line], name: str, *, text_column: Sequence[str] = (), label_column: str = "", tags: Tags
) -> Layout | None:
    """Finds a file's columns from its first lines; None if none of them holds a word.

    Args:
        lines: The lines, without their ends.
        name: What messages call the file; its ending counts too.
        text_column: The index of the words' column, from 0. Empty: the first.
        label_column: The index of the tags' column. Empty: the last.
        tags: Whether tags are needed.

    Raises:
        UsageError: for a column that is not there, or that cannot be what it was named as.
    """
    filled = [line for line in lines if not _separates(line[1])]
    data = [line for line in filled if not line[1].lstrip(" ").startswith("#")]
    # Only words that start with `#`, or only comments.
    data = data or [line for line in filled if _is_word_alone(line[1])]
    if not data:
        return None
    separator = "\t" if 2 * sum("\t" in line for _, line in data) >= len(data) else " "
    sizes = collections.Counter(len(_split(line, separator)) for _, line in data)
    size = max(sizes, key=sizes.__getitem__)  # Of equals, that of the first line.
    blocks = _blocks(lines, {number for number, _ in data}, separator, size)
    rows = [row for block in blocks for row in block]
    is_conllu = size == _CONLLU_COLUMNS and _are_mostly(rows, 0, str.isdigit)
    notes: list[str] = []
    asked = in_data((*text_column, *filter(None, [label_column])), list(map(str, range(size))))  # All or none.
    own_text, own_label = asked[: len(text_column)], "".join(asked[len(text_column) :])
    text = column_index("text_column", ",".join(own_text), size, name) if own_text else _FORM if is_conllu else 0
    label = None
    if tags != "none" and own_label:
        label = column_index("label_column", own_label, size, name)
    elif tags != "none" and size > 1:
        label = size - 1
    elif tags == "required":
        number, line = next(line for line in data if len(_split(line[1], separator)) == size)
        raise UsageError(
            "A CoNLL file needs a column of words and one of tags. "
            f"Received: {name} with one column, {line!r:.60} in line {number}. "
            "Separate columns by tabs or spaces, or pass --mode=predict for words without tags."
        )
    doubt = ""
    if own_text and (_are_tags(rows, text) or _count_words(blocks, text)):
        raise UsageError(
            "A column of entity tags or of running numbers does not hold the words. "
            f"Received: text_column={text} for {name}, with {rows[0][text]!r:.60}. Pass another."
        )
    if not own_text and not is_conllu:
        text, doubt = _find_words(blocks, size, label, name)
    if text and not own_text:
        what = "tags" if _are_tags(rows, 0) else "their places"
        notes.append(f"{name}: the words are in column {text}; column 0 holds {what}")
    places = tuple(c for c in range(text) if _are_places(blocks, c) and not _are_tags(rows, c))
    if label is not None and not own_label:
        label, tag_doubt = _find_tags(rows, text, places, name, notes, is_conllu=is_conllu)
        doubt = doubt or tag_doubt
    if label == text:
        raise UsageError(
            "Words and tags must be different columns. "
            f"Received: column {text} of {size} for both in {name}. Pass another --text_column or --label_column."
        )
    _check_header(rows[0], name, data, size, separator)
    doubt = _about_blank_lines(blocks, text, label, name) or doubt
    notes += _warnings(rows, name, text, label if not own_label and label == size - 1 else None)
    values = collections.Counter(row[size - 1 if label is None else label].strip(" ") for row in rows)
    reading = read_forms(values)
    is_entities = size > 1 and reading is not None and sum(reading.others.values()) <= reading.num_words
    layout = Layout(
        separator=separator,
        num_columns=size,
        text=text,
        label=label,
        places=places,
        counted=tuple(column for column in places if _are_mostly(rows, column, str.isdigit)),
        form=reading.form if is_entities else None,
        tags=frozenset(values) if size > 1 else frozenset(),
        has_hashes=size == 1,
        asked={"text_column": own_text, "label_column": asked[len(text_column) :]},
        notes=tuple(notes),
        doubt=doubt,
    )
    hashes = [line for _, line in filled if line.lstrip(" ").startswith("#") and len(_split(line, separator)) == size]
    has_hashes = size == 1 or any(layout.kind_of(line) != "comment" for line in hashes)
    return dataclasses.replace(layout, has_hashes=has_hashes)


def _split(line: str, separator: str) -> list[str]:
    """A line's columns. Only tabs and spaces separate them: a word may be any other of Unicode's blanks."""
    return line.split("\t") if separator == "\t" else [column for column in line.split(" ") if column]


def _is_blank(line: str) -> bool:
    """Whether a line, without its end, holds nothing but spaces and tabs."""
    return not line.strip(" \t")


def _separates(line: str) -> bool:
    """Whether a line stands between sentences."""
    return _is_blank(line) or (line.startswith(DOCSTART) and line[len(DOCSTART) :][:1] in ("", " ", "\t"))


def _is_word_alone(line: str) -> bool:
    """Whether a line that starts with `#`, in a file of such lines, holds a word: alone, or with an entity tag."""
    fields = line.split()
    return len(fields) == 1 or fields[-1] == "O" or _is_entity(fields[-1])


def _is_entity(tag: str) -> bool:
    reading = read_forms({tag: 1})
    return reading is not None and reading.is_certain


def _shape(tag: str) -> str:
    """Whether a tag has small letters, only capitals, or neither."""
    return "small" if tag != tag.upper() else "capital" if tag != tag.lower() else "other"


def _blocks(lines: Sequence[Line], numbers: set[int], separator: str, size: int) -> Blocks:
    """The columns of the lines with these numbers that have the right number of columns, by sentences."""
    blocks: Blocks = [[]]
    for number, line in lines:
        if _separates(line):
            blocks.append([])
        elif number in numbers and len(row := _split(line, separator)) == size:
            blocks[-1].append(row)
    # Where words are counted, ranges and empty nodes are none; elsewhere, 2-1 is a word.
    words = [[row for row in block if not any(map(_NO_WORD.fullmatch, row[:-1]))] for block in blocks]
    rows = [row for block in words for row in block]
    is_counted = any(_are_places(words, c) and _are_mostly(rows, c, str.isdigit) for c in range(size - 1))
    return list(filter(None, words if is_counted else blocks))


def _are_mostly(rows: list[list[str]], column: int, holds: Callable[[str], object]) -> bool:
    """Whether most cells of a column are so."""
    return bool(rows) and sum(bool(holds(row[column])) for row in rows) >= _MOST * len(rows)


def _has_no_letters(cell: str) -> bool:
    """Whether a cell has no letter: `3`, `0-7`, `12:30`, `_`."""
    return not any(map(str.isalpha, cell))


def _has_digits(cell: str) -> bool:
    return any(map(str.isdigit, cell))


def _numbers(cell: str) -> list[int]:
    """All numbers in a cell: 3 and 7 in `3-7`, `3:7` and `s3_7`."""
    return list(map(int, re.findall(r"\d{1,18}", cell)))


def _pairs(blocks: Blocks, column: int) -> list[tuple[str, str]]:
    """The cells of neighbours in each sentence."""
    return [(a[column], b[column]) for block in blocks for a, b in itertools.pairwise(block)]


def _name_sentences(blocks: Blocks, column: int) -> bool:
    """Whether a column is the same throughout each sentence: its number, or a document. Tags come back; it does not."""
    pairs = _pairs(blocks, column)
    cells = [[row[column] for row in block] for block in blocks]
    back = sum(len(own) - len(set(own)) - sum(a == b for a, b in itertools.pairwise(own)) for own in cells)
    return bool(pairs) and 2 * sum(a == b for a, b in pairs) >= len(pairs) and 100 * back <= len(pairs)


def _count_words(blocks: Blocks, column: int) -> bool:
    """Whether a column's numbers rise from word to word, or begin again; T1 may be a number, but w1 a word."""
    pairs = _pairs(blocks, column)
    same = sum(a == b for a, b in pairs)
    rising = sum([] < _numbers(a) < _numbers(b) for a, b in pairs)
    again = sum(_begins_again(a, b) for a, b in pairs)
    return rising > 0 and rising >= 2 * again and same + rising + again >= _MOST * len(pairs)


def _are_places(blocks: Blocks, column: int) -> bool:
    return _name_sentences(blocks, column) or _count_words(blocks, column)


def _begins_again(before: str, cell: str) -> bool:
    """Whether running numbers fall back to 0 or 1."""
    return _numbers(cell)[:1] in ([0], [1]) and _numbers(cell) < _numbers(before)


def _are_tags(rows: list[list[str]], column: int) -> bool:
    """Whether a column certainly holds entity tags, all of them."""
    reading = read_forms(collections.Counter(row[column].strip(" ") for row in rows))
    return reading is not None and reading.is_certain and not reading.form.is_bare and reading.num_outside > 0


def _hold_entities(rows: list[list[str]], column: int) -> bool:
    reading = read_forms(collections.Counter(row[column].strip(" ") for row in rows))
    return (
        reading is not None and sum(reading.others.values()) <= 0.1 * len(rows) and bool(reading.letters & {"B", "I"})
    )


def _find_words(blocks: Blocks, size: int, label: int | None, name: str) -> tuple[int, str]:
    """The column of the words, the first that does not say where a word is; and why the user must say it, or nothing.

    Args:
        blocks: The columns of the words of each sentence.
        size: The number of columns.
        label: The column that holds the tags.
        name: What messages call the file.
    """
    rows = [row for block in blocks for row in block]
    columns = range(size)
    names = [size > 1 and _name_sentences(blocks, column) for column in columns]
    counts = [size > 1 and _count_words(blocks, column) for column in columns]
    numbered = [_are_mostly(rows, column, _NUMBERED.fullmatch) for column in columns]
    no_words = [_are_mostly(rows, column, _has_no_letters) for column in columns]
    digits = [_are_mostly(rows, column, _has_digits) for column in columns]
    is_tags = [_are_tags(rows, column) for column in columns]

    def is_place(column: int) -> bool:
        if names[column]:  # A word may be all of a sentence: "no no".
            return size > 2 and (len(blocks) > 1 or True in counts[column:])
        return counts[column] and not numbered[column]

    text = next((column for column in columns if is_tags[column] or not is_place(column)), 0)
    if is_place(text) and counts[text]:
        raise UsageError(
            f"A CoNLL file needs a column of words. Received: {name}, where all hold numbers. Pass --text_column."
        )
    if size == 2 and is_tags[0] and not is_tags[1]:
        text = 1
    others = [c for c in columns if c != text and not (names[c] or counts[c] or no_words[c] or digits[c])]
    others = [column for column in others if column != label or size == 2]
    num_values = [len({row[column] for row in rows}) for column in columns]
    other = max(others, key=num_values.__getitem__, default=None)
    is_odd = names[text] or counts[text] or no_words[text] or (digits[text] and not numbered[text])
    is_odd = is_odd and (size > 2 or ((names[text] or counts[text]) and no_words[text]))
    is_odd = is_odd or (size > 2 and is_tags[text] and not is_tags[-1])
    if other is not None and (is_odd or num_values[other] >= max(_MANY, 1.5 * num_values[text])):
        about_lines = _about_blank_lines(blocks, other, label, name) if names[text] else ""
        return text, about_lines or _which("text_column", "words", rows, text, other, name)
    if _are_mostly(rows, text, lambda cell: " " in cell.strip()):
        return text, (
            "Tabs separate either all columns or none. "
            f"Received: {name}, where nearly all words hold blanks, such as {rows[0][text]!r:.60} in column {text}. "
            f"Write tabs in their place, or pass --text_column={text} if these are the words."
        )
    return text, ""


def _find_tags(
    rows: list[list[str]], text: int, places: Sequence[int], name: str, notes: list[str], *, is_conllu: bool
) -> tuple[int, str]:
    """The column of the tags, the last where nothing speaks against it; the rest is as for `_find_words`."""
    last = len(rows[0]) - 1
    if last == text == 1 and _are_tags(rows, 0):
        return 0, ""
    entities = [column for column in range(last) if column not in (text, *places) and _hold_entities(rows, column)]
    values = {row[last].strip(" ") for row in rows}
    has_no_letters = _are_mostly(rows, last, _has_no_letters)
    is_coreference = any("(" in value for value in values) and all(map(_has_no_letters, values))
    if values == {"O"} or _hold_entities(rows, last):
        if places and entities:
            notes.append(f"{name}: the tags are in column {last}, the last; --label_column={entities[-1]} takes others")
    elif len(entities) == 1 and (is_coreference or len(values) == 1 or ending_of(name) in IOB_ENDINGS):
        notes.append(f"{name}: the tags are in column {entities[0]}, the only one with entity tags")
        return entities[0], ""
    elif is_coreference:
        raise UsageError(
            "A column of coreference does not hold the tags. "
            f"Received: {name}, where it is column {last}, the last. Pass --label_column."
        )
    elif is_conllu:
        notes.append(f"{name}: the tags are in column {_UPOS}, UPOS, as this is CoNLL-U; --label_column takes another")
        return _UPOS, ""
    elif entities and has_no_letters:
        return last, _which("label_column", "tags", rows, last, entities[-1], name)
    elif entities:
        notes.append(
            f"warning: {name}: the tags are in column {last}, the last, but column {entities[-1]} holds entity tags; "
            f"--label_column={entities[-1]} takes these"
        )
    return last, ""


def _which(option: str, what: str, rows: list[list[str]], column: int, other: int, name: str) -> str:
    """The question which of two columns holds the words or the tags, the likely one last."""
    shown = {c: ", ".join(map(repr, list(dict.fromkeys(row[c] for row in rows))[:3])) for c in (column, other)}
    return (
        f"It must be clear which column holds the {what}. "
        f"Received: {name} with {shown[column]} in column {column} and {shown[other]} in column {other}. "
        f"Pass --{option}={other} or --{option}={column}."
    )


def _about_blank_lines(blocks: Blocks, text: int, label: int | None, name: str) -> str:
    """What to say where a column of places begins again inside sentences, but for accidents; else empty."""
    rows = [row for block in blocks for row in block]
    for column in range(len(rows[0])):
        pairs, is_name = _pairs(blocks, column), _name_sentences(blocks, column)
        if column in (text, label) or not _are_places(blocks, column) or _are_tags(rows, column):
            continue
        if column > text:  # Only numbers that rise from sentence to sentence certainly are the sentences'.
            cells = [row[column] for row in rows]
            rises = all(_numbers(a) <= _numbers(b) for a, b in itertools.pairwise(cells))
            are_numbers = len({*cells}) > 2 and all(map(_has_no_letters, cells))
            if not (is_name and rises and are_numbers and len(cells) > _MANY):
                continue
        again = [(a, b) for a, b in pairs if (a != b if is_name else _begins_again(a, b))]
        if len(again) > _FEW * len(blocks):
            return (
                "A blank line ends a sentence. "
                f"Received: {name}, where column {column} goes from {again[0][0]!r:.40} to {again[0][1]!r:.40} without "
                "one. Add blank lines; or save it as .csv with the columns' names in its first line, such as "
                "sentence_id,word,tag."
            )
    return ""


def _warnings(rows: list[list[str]], name: str, text: int, last: int | None) -> list[str]:
    """What looks odd in a file that is read all the same.

    Args:
        rows: The columns of the words.
        name: What messages call the file.
        text: The column of the words.
        last: That of the tags, where it is the last and nobody named it.
    """
    notes = []
    if last is not None and last > text + 1:
        tags, others = ({row[column].strip(" ") for row in rows} - {"O"} for column in (last, last - 1))
        shared = sorted(tag for tag in tags & others if any(map(str.isalpha, tag)))
        if shared and 2 * len(shared) >= min(len(tags), len(others)):
            notes.append(
                f"the tags are in column {last}, the last, but column {last - 1} holds such too, such as "
                f"{shared[0]!r:.60}: if these are the right ones and the last are predicted, pass "
                f"--label_column={last - 1}"
            )
    language = _LANGUAGE.match(rows[0][text])
    if language and len(rows) > 2 and all(row[text].startswith(language[0]) for row in rows):
        notes.append(
            f"every word starts with {language[0]!r}, as in WikiAnn, and is read with it; other texts have no such "
            "thing: cut it off"
        )
    if any(row[text] == '""""' for row in rows):
        notes.append(
            'the word """" is how CSV quotes ", and is read as it stands; write the file without quotes, in pandas '
            "with quoting=csv.QUOTE_NONE"
        )
    return [f"warning: {name}: {note}" for note in notes]


def _is_header(line: str) -> bool:
    """Whether a line names columns of words and of tags."""
    names = {column.lower() for column in line.split()}
    return bool(names & _HEADER_WORDS and names & _HEADER_TAGS)


def _check_header(first: list[str], name: str, data: Sequence[Line], size: int, separator: str) -> None:
    words = [column for column in first if column.strip().lower() in _HEADER_WORDS]
    tags = [column for column in first if column.strip().lower() in _HEADER_TAGS]
    if words and tags:
        line = next(number for number, line in data if len(_split(line, separator)) == size)
        raise UsageError(
            "CoNLL files have no header. "
            f"Received: {words[0]!r} with the tag {tags[-1]!r} in {name}, line {line}. Delete the line."
        )


def column_index(flag: str, value: str, size: int, name: str) -> int:
    """The column that an option names; an error where it is none of the file's."""
    if not (value.isascii() and value.isdigit()) or int(value) >= size:
        raise UsageError(
            f"{flag} of a CoNLL file must be a column's index, from 0. "
            f"Received: {flag}={value!r} for {name} with columns 0 to {size - 1}. Pass one of them."
        )
    return int(value)


class _LinesWithoutWords:
    """Counts the comments and the like of a file.

    Args:
        name: What messages call the file.
    """

    _WHAT = {
        "comment": ("comment", "comments", "left out: lines that start with #"),
        "node": ("multiword range or empty node", "multiword ranges and empty nodes", "left out: no words"),
        "doubt": (
            "line that may be a comment",
            "lines that may be comments",
            "read as words: after # comes a tag that no other word has; delete comments",
        ),
    }

    def __init__(self, name: str):
        self._name = name
        self._counts: collections.Counter[str] = collections.Counter()
        self._firsts: dict[str, str] = {}

    def add(self, kind: str, number: int, line: str) -> None:
        """Counts a line, of a kind as `Layout.kind_of` says, by its number; the line is without its end."""
        self._counts[kind] += 1
        self._firsts.setdefault(kind, f"line {number}: {line!r:.60}")

    def notes(self) -> tuple[str, ...]:
        """What the user should know of the lines so far."""
        return tuple(
            f"{'warning: ' if kind == 'doubt' else ''}{self._name}: {counted(self._counts[kind], noun, nouns)} {text}; "
            f"the first is {self._firsts[kind]}"
            for kind, (noun, nouns, text) in self._WHAT.items()
            if kind in self._firsts
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceFile:
    """A file whose columns are known and whose sentences have yet to be read, once.

    Attributes:
        name: What messages call it.
        format: `conll`, `jsonl`, `parquet`, or `csv` for all tables with one word per row.
        columns: The columns' names; in CoNLL, indexes from 0.
        has_tags: Whether its sentences have tags.
        unit: What the sentences' positions count: `line` or `row`.
        read: Takes further columns (none in CoNLL), whose values become `others`. Iterates over the sentences
            (`ConllSentence` in CoNLL), with an error in place of each that cannot be read.
        id_column: The column that names the sentences, where each word has a row; else empty.
        notes: What the user should know of what was read so far, one line each.
        chosen: The columns that are read, by the options that name them. In CoNLL, those that a user named: which are
            found depends on how many there are.
    """

    name: str
    format: str
    columns: list[str]
    has_tags: bool
    unit: str
    read: Callable[[Sequence[str]], Iterator[Sentence | UsageError]]
    id_column: str = ""
    notes: Callable[[], tuple[str, ...]] = tuple
    chosen: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


def open_conll(
    source: pathlib.Path | BinaryIO, *, text_column: Sequence[str] = (), label_column: str = "", tags: Tags = "required"
) -> SentenceFile:
    """Opens a CoNLL file and finds its columns.

    Where most of the first lines have a tab, only tabs separate the columns, so that a word may hold a space.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream such as standard input.
        text_column: As for `find_layout`.
        label_column: As for `find_layout`.
        tags: Whether tags are needed.

    Raises:
        UsageError: for a file that cannot be read or has no sentences, or a column that is not there.
    """
    name = source_name(source)
    lines = lines_of(source, name)
    head = list(itertools.islice(lines, _HEAD_LINES))

    def find() -> Layout | None:
        plain = [(number, without_end(line)) for number, line in head]
        try:
            return find_layout(plain, name, text_column=text_column, label_column=label_column, tags=tags)
        except UsageError:  # The columns of a model's training need not be those of this file.
            own, label = named_by_user(*text_column), "".join(named_by_user(label_column))
            return find_layout(plain, name, text_column=own, label_column=label, tags=tags)

    layout = find()
    if layout is None:
        while layout is None and (more := list(itertools.islice(lines, _HEAD_LINES))):  # More comments than that.
            head += more
            layout = find()
        head += itertools.islice(lines, _HEAD_LINES)
        layout = find()
    if layout is None:
        comments = " but comments" if any(line.startswith("#") for _, line in head) else ""
        raise UsageError(
            f"A data file needs at least one sentence. Received: {name!r} with none{comments}. Check the path."
        )
    if layout.doubt:
        raise UsageError(layout.doubt)
    line_end = "\r\n" if head[0][1].endswith("\r\n") else "\n"
    without_words = _LinesWithoutWords(name)
    sentences = _sentences(name, _groups(itertools.chain(head, lines), layout, without_words), layout, line_end)
    return SentenceFile(
        name=name,
        format="conll",
        columns=list(map(str, range(layout.num_columns))),
        has_tags=layout.label is not None,
        unit="line",
        read=lambda others: sentences,
        notes=lambda: (*layout.notes, *without_words.notes()),
        chosen=layout.asked,
    )


def looks_like_conll(path: pathlib.Path, *, text_column: Sequence[str] = (), label_column: str = "") -> bool:
    """Whether a file certainly holds words with entity tags.

    A file with one of the endings `CONLL_ENDINGS` does. A .tsv or .txt file does if its first lines are blocks with
    blank lines between them, they have the same number of columns, at least 2, and one of them, or the one that
    is named, holds only `O` and tags such as `B-PER`; so it has no header. All may also end in .gz.

    Args:
        path: The file.
        text_column: As for `open_conll`.
        label_column: As for `open_conll`.

    Raises:
        UsageError: for a file that cannot be read.
    """
    if ending_of(path) in CONLL_ENDINGS:
        return True
    if ending_of(path) not in WORDS["conll"]:
        return False
    head = [(number, without_end(line)) for number, line in itertools.islice(lines_of(path, str(path)), _HEAD_LINES)]
    if head and _is_header(head[0][1]):  # Reading it says that it must go.
        head = head[1:]
    try:
        layout = find_layout(head, str(path), text_column=text_column, label_column=label_column, tags="optional")
    except UsageError:
        return False
    if layout is None or layout.label is None:
        return False
    lines = [line for _, line in head if _separates(line) or layout.kind_of(line) in ("", "doubt")]
    rows = [_split(line, layout.separator) for line in lines if not _separates(line)]
    good = [row for row in rows if len(row) == layout.num_columns]
    pairs = itertools.pairwise(itertools.dropwhile(_separates, lines))
    if not any(_is_blank(a) and not _separates(b) for a, b in pairs):
        return False

    def holds_entities(column: int) -> bool:
        reading = read_forms(collections.Counter(row[column].strip(" ") for row in good))
        fits = reading.num_words + reading.num_outside if reading and reading.is_plausible else 0
        return fits >= _CERTAIN * len(rows)

    others = (column for column in range(layout.num_columns) if column != layout.text)
    return any(map(holds_entities, [layout.label] if label_column else others))


@dataclasses.dataclass(kw_only=True)
class _Group:
    """A sentence's lines with their numbers and ends, and the lines around its words, see `ConllSentence`."""

    before: list[str] = dataclasses.field(default_factory=list)
    block: list[Line] = dataclasses.field(default_factory=list)
    between: list[tuple[int, str]] = dataclasses.field(default_factory=list)


def _groups(lines: Iterator[Line], layout: Layout, without_words: _LinesWithoutWords) -> Iterator[_Group]:
    """The lines of each sentence. The last item holds the lines at the end of the file and whatever sentence follows
    them, which may be empty."""
    group = _Group()
    for number, line in lines:
        text = without_end(line)
        if _separates(text):
            if group.block:
                yield group
                group = _Group()
            group.before.append(text)
            continue
        kind = layout.kind_of(text)
        if kind and len(group.block) <= MOST_WORDS:
            without_words.add(kind, number, text)
        if kind not in ("", "doubt"):
            if group.block:
                group.between.append((len(group.block), text))
            else:
                group.before.append(text)
        elif len(group.block) <= MOST_WORDS:
            group.block.append((number, line))
    yield group


def _sentences(
    name: str, groups: Iterator[_Group], layout: Layout, line_end: str
) -> Iterator[ConllSentence | UsageError]:
    held = None  # The previous sentence, until it is known whether it is the last.
    for group in groups:
        if not group.block:
            if isinstance(held, ConllSentence):
                held = dataclasses.replace(held, after=group.before)
            break
        if held is not None:
            yield held
        try:
            held = _sentence(name, group, layout, line_end)
        except UsageError as error:
            held = error
    if held is not None:
        yield held


def _sentence(name: str, group: _Group, layout: Layout, line_end: str) -> ConllSentence:
    block, label = group.block, layout.label
    if len(block) > MOST_WORDS:
        raise UsageError(
            f"A sentence has at most {MOST_WORDS:,} words, and a blank line ends it. "
            f"Received: more words in {name}, from line {block[0][0]}. Add blank lines."
        )
    words, tags, written = [], [], []
    for number, line in block:
        where = f"{name}, line {number}"
        line = without_end(line)
        if not line.isascii() and (byte := not_utf8(line)):
            raise not_utf8_error(byte, where)
        columns = _split(line, layout.separator)
        if len(columns) != layout.num_columns:
            separated = "tabs" if layout.separator == "\t" else "spaces"
            raise UsageError(
                f"Every line with a word must have {layout.num_columns} columns separated by {separated}, like the "
                f"others. Received: {len(columns)} in {where}. Repair it or drop the sentence."
            )
        word = columns[layout.text]
        if not word.strip(" "):
            raise UsageError(
                f"A word must not be blank. Received: {word!r} in column {layout.text} of {where}. "
                "Repair it or drop the sentence."
            )
        if label is not None:
            tag = columns[label].strip(" ")
            if not tag:
                raise UsageError(
                    f"Every word needs a tag. Received: none in column {label} of {where}. "
                    "Repair it or drop the sentence, or pass another --label_column."
                )
            tags.append(sys.intern(tag))
        words.append(word)
        written.append(line)
    return ConllSentence(
        line=block[0][0],
        words=words,
        tags=tags if label is not None else None,
        places=places_of([number for number, _ in block]),
        written=written,
        before=group.before,
        between=group.between,
        separator=layout.separator,
        line_end=line_end,
    )


def places_of(numbers: list[int]) -> Sequence[int]:
    """The same numbers, as a range where they follow one another: it takes no memory.

    Args:
        numbers: At least one, each above the one before.
    """
    whole = range(numbers[0], numbers[-1] + 1)
    return whole if len(whole) == len(numbers) else numbers
