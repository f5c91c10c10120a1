"""CoNLL files, read one sentence at a time in constant memory: one word per line, its tag in a column beside it.

Tabs or runs of spaces separate the columns; blank lines and `-DOCSTART-` lines separate sentences. There is no header:
the words are in the first column and the tags in the last, unless the user names others; in CoNLL-U, in FORM and UPOS.
Where the first lines show that this cannot be, the file is refused with its columns: wrong words beside right tags look
healthy. Most lines decide, so that one foreign line changes nothing.

A line that starts with `#` is a comment, unless it has as many columns as the others: then it holds a word, whose tag
other words must have. Where the first column counts words, multiword ranges (`1-2`) and empty nodes (`8.1`) are none.

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
    OTHER_FORMATS,
    WORDS,
    ending_of,
    lines_of,
    not_utf8,
    not_utf8_error,
    source_name,
    without_end,
)
from tfbert.errors import UsageError
from tfbert.tasks.token_classification.tags import hold_entities

DOCSTART = "-DOCSTART-"
"""The first column of the line that starts a document in CoNLL-2003; it is not a word."""
MOST_WORDS = 100_000  # In a sentence. A file with more probably has no blank lines, and would fill the memory.
Tags = Literal["required", "optional", "none"]
"""Whether a file must have tags, may lack them (where it has one column), or has its tags ignored."""

_HEAD_LINES = 1000  # They decide what the columns are, and whether a file is CoNLL at all.
_CERTAIN = 0.98  # Of the lines, if a file without a telling name is CoNLL: one that is bad is named when it is read.
_MOST = 0.9  # Of the words: a few foreign ones do not matter.
_MANY = 20  # Words, or different tags: with fewer, it says little that words repeat, or that there are more tags.
_CONLLU_COLUMNS, _FORM, _UPOS = 10, 1, 3
_NO_WORD, _COUNT = (re.compile(pattern, re.ASCII) for pattern in (r"\d+[-.]\d+", r"\d+([-.]\d+)?"))
_HEADER_WORDS = {"token", "tokens", "word", "words"}
_HEADER_TAGS = {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags"}
_LANGUAGE = re.compile("[a-z]{2,3}(-[a-z]+)*:")  # What precedes each word in WikiAnn's files.

Line = tuple[int, str]
"""A line's number from 1, and the line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence as it was written.

    Attributes:
        line: Its position from 1: its first line, or its row's number.
        words: At least one.
        tags: One per word, ids as text; None where no tags were read.
        others: The values of further columns that the caller wants.
        written: Each word's line in CoNLL, with what separates a further column behind it; else empty.
    """

    line: int
    words: list[str]
    tags: list[str] | None
    others: Sequence = ()
    written: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns of a file, and which of its lines hold words.

    Attributes:
        separator: What separates them: a tab, or a space for runs of spaces.
        num_columns: Columns per line.
        text: The column of the words.
        label: The column of the tags; None where they are not read.
        is_counted: Whether the first column holds the words' numbers, so that `1-2` and `8.1` are no words.
        tags: Of the words of the first lines; where they are not read, what the last column holds there.
        asked: The columns that a user or a model's training named, by the options that name them.
        notes: What was found rather than told, one line each.
    """

    separator: str
    num_columns: int
    text: int
    label: int | None
    is_counted: bool
    tags: set[str]
    asked: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]

    def holds_word(self, line: str) -> bool:
        """Whether a line holds a word, rather than a comment, or a range or an empty node of CoNLL-U.

        Args:
            line: Neither blank nor a `-DOCSTART-` line, without its end.
        """
        is_hash = line.lstrip(" ").startswith("#")
        if not is_hash and not self.is_counted:
            return True
        columns = _split(line, self.separator)
        if not is_hash:
            return not _NO_WORD.fullmatch(columns[0])
        # Where words are behind, a word's line rarely starts so.
        return len(columns) == self.num_columns and (self.text == 0 or self._tag(columns) in self.tags)

    def has_tag(self, columns: Sequence[str]) -> bool:
        """Whether the tag in these columns is one that words have."""
        tag = self._tag(columns)
        return self.num_columns == 1 or tag in self.tags or tag in ("", "#") or hold_entities({tag: 1})

    def _tag(self, columns: Sequence[str]) -> str:
        return columns[self.num_columns - 1 if self.label is None else self.label].strip(" ")


def find_layout(
    lines: Sequence[Line], name: str, *, text_column: Sequence[str] = (), label_column: str = "", tags: Tags
) -> Layout | None:
    """Finds a file's columns from its first lines; None if none of them holds a word.

    Args:
        lines: The lines, without their ends.
        name: What messages call the file.
        text_column: The index of the words' column, from 0. Empty: the first.
        label_column: The index of the tags' column. Empty: the last.
        tags: Whether tags are needed.

    Raises:
        UsageError: for a column that is not there, or that cannot be what it is taken for.
    """
    separator, size, rows = _rows(lines)
    if not rows:
        return None
    rows = [row for row in rows if len(row) == size]
    if _is_header(rows[0]):
        raise UsageError(f"CoNLL files have no header. Received: {name} with {rows[0]!r:.60}. Delete the line.")
    is_numbered = _are_mostly(rows, 0, _COUNT.fullmatch) and any(row[0].isdigit() for row in rows)
    is_named = bool(named_by_user(*text_column))
    is_conllu = size == _CONLLU_COLUMNS and is_numbered
    asked = in_data((*text_column, *filter(None, [label_column])), list(map(str, range(size))))  # All or none.
    own_text, own_label = asked[: len(text_column)], "".join(asked[len(text_column) :])
    text, label = _FORM if is_conllu else 0, None
    if own_text:
        text = column_index("text_column", ",".join(own_text), size, name)
    if tags != "none" and own_label:
        label = column_index("label_column", own_label, size, name)
    elif tags != "none" and size > 1:
        label = _UPOS if is_conllu else size - 1
    elif tags == "required":
        raise UsageError(
            "A CoNLL file needs a column of words and one of tags. "
            f"Received: {name} with one column, {_examples(rows)}. "
            "Separate columns by tabs or spaces, or pass --mode=predict for words without tags."
        )
    if label == text:
        raise UsageError(
            "Words and tags must be different columns. "
            f"Received: column {text} of {size} for both in {name}. Pass another --text_column or --label_column."
        )
    last = size - 1 if label is None else label
    are_entities = [hold_entities(collections.Counter(row[c].strip(" ") for row in rows)) for c in range(size)]
    repeated = sum(a[text] == b[text] for a, b in itertools.pairwise(rows))  # As the name of a document is.
    no_words = _are_mostly(rows, text, lambda cell: not any(map(str.isalpha, cell))) or (
        size > 2 and 2 * repeated > len(rows) > _MANY
    )
    are_tags = are_entities[text] and (last == text or not are_entities[last])
    has_words, has_tags = size == 1 or not (are_tags or (no_words and not is_named)), True
    if label is not None and not own_label and not is_conllu and not are_entities[label]:
        values = {row[label].strip(" ") for row in rows}
        others = any(are_entities[column] for column in range(size) if column != text)
        has_tags = not (others and values != {"O"}) and len(values) <= max(_MANY, len({row[text] for row in rows}))
    if not has_words or not has_tags:
        what, column = ("tags", label) if has_words else ("words", text)
        raise UsageError(
            "The words are in the column that --text_column names, or else in the first (FORM in CoNLL-U), the tags in "
            f"that of --label_column, or else in the last. Received: {name}, where column {column} cannot hold the "
            f"{what}: {_examples(rows)}. Pass the numbers before both."
        )
    hold_blanks = separator == "\t" and _are_mostly(rows, text, lambda cell: " " in cell.strip())
    if hold_blanks and not is_named:
        raise UsageError(
            "Tabs separate either all columns or none. "
            f"Received: {name}, where nearly all words hold blanks, such as {rows[0][text]!r:.60} in column {text}. "
            f"Write tabs in their place, or pass --text_column={text} if these are the words."
        )
    notes = _warnings([row[text] for row in rows], name)
    if size > 2 and not (own_text and (own_label or label is None)):
        which = "" if label is None else f", the tags those of column {label}"
        notes.append(
            f"{name}: the words are those of column {text}{which}: {_examples(rows)}; --text_column and --label_column "
            "take others"
        )
    return Layout(
        separator=separator,
        num_columns=size,
        text=text,
        label=label,
        is_counted=text > 0 and is_numbered,
        tags={row[last].strip(" ") for row in rows},
        asked={"text_column": own_text, "label_column": asked[len(text_column) :]},
        notes=tuple(notes),
    )


def _split(line: str, separator: str) -> list[str]:
    """A line's columns. Only tabs and spaces separate them: a word may be any other of Unicode's blanks."""
    return line.split("\t") if separator == "\t" else [column for column in line.split(" ") if column]


def _is_blank(line: str) -> bool:
    """Whether a line, without its end, holds nothing but spaces and tabs."""
    return not line.strip(" \t")


def _separates(line: str) -> bool:
    """Whether a line stands between sentences."""
    return _is_blank(line) or (line.startswith(DOCSTART) and line[len(DOCSTART) :][:1] in ("", " ", "\t"))


def _rows(lines: Sequence[Line]) -> tuple[str, int, list[list[str]]]:
    """What separates the columns of lines; how many most of the words' lines have; and these columns."""
    filled = [line for _, line in lines if not _separates(line)]
    data = [line for line in filled if not line.lstrip(" ").startswith("#")]
    data = data or [line for line in filled if len(line.split()) == 1]  # Only words that start with `#`, or comments.
    separator = "\t" if 2 * sum("\t" in line for line in data) >= len(data) else " "
    rows = [_split(line, separator) for line in data]
    sizes = collections.Counter(map(len, rows))
    return separator, max(sizes, key=sizes.__getitem__, default=0), rows  # Of equals, that of the first line.


def _are_mostly(rows: list[list[str]], column: int, holds: Callable[[str], object]) -> bool:
    """Whether most cells of a column are so."""
    return sum(bool(holds(row[column])) for row in rows) >= _MOST * len(rows)


def _examples(rows: list[list[str]]) -> str:
    """The first values of the first columns, for messages."""
    shown = (list(dict.fromkeys(column))[:3] for column in itertools.islice(zip(*rows, strict=True), _CONLLU_COLUMNS))
    return "; ".join(f"{number}: {', '.join(f'{value!r:.40}' for value in own)}" for number, own in enumerate(shown))


def _warnings(words: list[str], name: str) -> list[str]:
    """What looks odd in the words of a file that is read all the same."""
    language = _LANGUAGE.match(words[0])
    if not language or len(words) < 3 or not all(word.startswith(language[0]) for word in words):
        return []
    return [
        f"warning: {name}: every word starts with {language[0]!r}, as in WikiAnn, and is read with it; other texts "
        "have no such thing: cut it off"
    ]


def _is_header(columns: Sequence[str]) -> bool:
    """Whether they are the names of columns of words and of tags."""
    names = {column.strip().lower() for column in columns}
    return bool(names & _HEADER_WORDS and names & _HEADER_TAGS)


def column_index(flag: str, value: str, size: int, name: str) -> int:
    """The column that an option names; an error where it is none of the file's."""
    if not (value.isascii() and value.isdigit()) or int(value) >= size:
        raise UsageError(
            f"{flag} of a CoNLL file must be a column's index, from 0. "
            f"Received: {flag}={value!r} for {name} with columns 0 to {size - 1}. Pass one of them."
        )
    return int(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceFile:
    """A file whose columns are known and whose sentences have yet to be read, once.

    Attributes:
        name: What messages call it.
        format: `conll`, `jsonl` or `parquet`.
        columns: The names of the columns; empty in CoNLL, where none names a sentence.
        unit: What the sentences' positions count: `line` or `row`.
        read: Takes further columns (none in CoNLL), whose values become `others`. Iterates over the sentences, with an
            error in place of each that cannot be read.
        notes: What the user should know of what was read so far, one line each.
        chosen: The columns that are read, by the options that name them. In CoNLL, those that a user named: which are
            found depends on how many there are.
    """

    name: str
    format: str
    columns: list[str]
    unit: str
    read: Callable[[Sequence[str]], Iterator[Sentence | UsageError]]
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
    while layout is None and (more := list(itertools.islice(lines, _HEAD_LINES))):  # More comments than that.
        head += [*more, *itertools.islice(lines, _HEAD_LINES)]
        layout = find()
    if layout is None:
        comments = " but comments" if any(line.startswith("#") for _, line in head) else ""
        raise UsageError(
            f"A data file needs at least one sentence. Received: {name!r} with none{comments}. Check the path."
        )
    left_out = collections.Counter[str]()  # The first line without a word, and how many there are.

    def notes() -> tuple[str, ...]:
        what = "without a word left out, as comments; the first is"
        return (*layout.notes, *(f"{name}: {counted(n, 'line')} {what} {first}" for first, n in left_out.items()))

    sentences = _sentences(name, itertools.chain(head, lines), layout, left_out)
    return SentenceFile(
        name=name,
        format="conll",
        columns=[],
        unit="line",
        read=lambda others: sentences,
        notes=notes,
        chosen=layout.asked,
    )


def looks_like_conll(path: pathlib.Path, *, text_column: Sequence[str] = (), label_column: str = "") -> bool:
    """Whether a file certainly holds words with entity tags.

    A file with one of the endings `CONLL_ENDINGS` does. A .tsv or .txt file does if its first lines are blocks with
    blank lines between them, they have the same number of columns, at least 2, and one of them, or the one that
    is named, holds entity tags; so it has no header. All may also end in .gz.

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
    blocks = itertools.groupby((line for _, line in head if not line.startswith("#")), _separates)
    _, size, rows = _rows(head)
    rows = rows[1:] if rows and _is_header(rows[0]) else rows  # Reading it says that it must go.
    good, named = [row for row in rows if len(row) == size], named_by_user(*text_column, label_column)
    if [separates for separates, _ in blocks].count(False) < 2 or not {*named} <= {*map(str, range(size))}:
        return False
    columns = [int(label_column)] if label_column in named else range(size if size > 1 else 0)
    return len(good) >= _CERTAIN * len(rows) and any(
        hold_entities(collections.Counter(row[column].strip(" ") for row in good)) for column in columns
    )


def _sentences(
    name: str, lines: Iterator[Line], layout: Layout, left_out: collections.Counter[str]
) -> Iterator[Sentence | UsageError]:
    block: list[Line] = []
    for number, line in itertools.chain(lines, [(0, "")]):  # A blank line ends the last sentence too.
        text = without_end(line)
        if _separates(text):
            if block:
                try:
                    yield _sentence(name, block, layout)
                except UsageError as error:
                    yield error
            block = []
        elif not layout.holds_word(text):
            left_out[next(iter(left_out), f"line {number}: {text!r:.60}")] += 1
        elif len(block) <= MOST_WORDS:
            block.append((number, text))


def _sentence(name: str, block: list[Line], layout: Layout) -> Sentence:
    label = layout.label
    if len(block) > MOST_WORDS:
        raise UsageError(
            f"A sentence has at most {MOST_WORDS:,} words, and a blank line ends it. "
            f"Received: more words in {name}, from line {block[0][0]}. Add blank lines."
        )
    words, tags, written = [], [], []
    for number, line in block:
        where = f"{name}, line {number}"
        if not line.isascii() and (byte := not_utf8(line)):
            raise not_utf8_error(byte, where)
        columns = _split(line, layout.separator)
        if len(columns) != layout.num_columns:
            separated = "tabs" if layout.separator == "\t" else "spaces"
            raise UsageError(
                f"Every line with a word must have {layout.num_columns} columns separated by {separated}, like the "
                f"others. Received: {len(columns)} in {where}. Repair it or drop the sentence."
            )
        if line.lstrip(" ").startswith("#") and not layout.has_tag(columns):
            raise UsageError(
                "A line that starts with # holds a word only if other words have its tag. "
                f"Received: {line!r:.60} in {where}. Delete it if it is a comment; if it is a word, write the "
                f"sentences as lists: {OTHER_FORMATS}."
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
        written.append(f"{line}{layout.separator}")
    return Sentence(line=block[0][0], words=words, tags=tags if label is not None else None, written=written)
