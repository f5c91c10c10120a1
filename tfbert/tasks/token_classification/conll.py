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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from tfbert.config.types import counted
from tfbert.data.files import in_data, named_by_user
from tfbert.data.reading import (
    CONLL_ENDINGS,
    OTHER_FORMATS,
    WORDS,
    OpenFile,
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
"""A line's number from 1, and the line without its end."""


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
class SentenceFile(OpenFile):
    """A file whose columns are known and whose sentences have yet to be read, once. In CoNLL it has no columns: none
    names a sentence. `read` takes further columns, whose values become `others`, and iterates over the sentences, with
    an error in place of each that cannot be read.

    Attributes:
        format: `conll`, `jsonl` or `parquet`.
        notes: What the user should know of what was read so far, one line each.
        chosen: The columns that are read, by the options that name them. In CoNLL, those that a user named: which are
            found depends on how many there are.
    """

    format: str
    notes: Callable[[], tuple[str, ...]] = tuple
    chosen: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


def open_conll(
    source: pathlib.Path | BinaryIO, *, text_column: Sequence[str] = (), label_column: str = "", with_tags: bool = True
) -> SentenceFile:
    """Opens a CoNLL file and finds its columns.

    Where most of the first lines have a tab, only tabs separate the columns, so that a word may hold a space.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream such as standard input.
        text_column: The index of the words' column, from 0. Empty: the first.
        label_column: The index of the tags' column. Empty: the last.
        with_tags: Whether tags are read.

    Raises:
        UsageError: for a file that cannot be read or has no sentences, a column that is not there, or one that cannot
            be what it is taken for.
    """
    name = source_name(source)
    lines = ((number, without_end(line)) for number, line in lines_of(source, name))
    head = list(itertools.islice(lines, _HEAD_LINES))
    while not _rows(head)[2] and (more := list(itertools.islice(lines, len(head)))):  # More comments than that.
        head += more
    if not _rows(head)[2]:
        comments = " but comments" if any(line.startswith("#") for _, line in head) else ""
        rule = "A data file needs at least one sentence"
        raise UsageError(f"{rule}. Received: {name!r} with none{comments}. Check the path.")
    try:
        layout = _Layout(name, head, text_column, label_column, with_tags)
    except UsageError:  # The columns of a model's training need not be those of this file.
        own, label = named_by_user(*text_column), "".join(named_by_user(label_column))
        layout = _Layout(name, head, own, label, with_tags)
    sentences = layout.sentences(itertools.chain(head, lines))
    return SentenceFile(
        name=name, format="conll", columns=[], read=lambda others: sentences, notes=layout.notes, chosen=layout.asked
    )


class _Layout:
    """The columns of a file, and its sentences. Arguments as for `open_conll`; `head` are its first lines.

    Attributes:
        asked: The columns that a user or a model's training named, by the options that name them.
    """

    def __init__(self, name: str, head: Sequence[Line], text_column: Sequence[str], label_column: str, with_tags: bool):
        self._name, self._left_out = name, collections.Counter[str]()
        self._separator, self._size, rows = _rows(head)
        size, rows = self._size, [row for row in rows if len(row) == self._size]
        columns = [[cell.strip(" ") for cell in column] for column in zip(*rows, strict=True)]
        if _is_header(rows[0]):
            raise UsageError(f"CoNLL files have no header. Received: {name} with {rows[0]!r:.60}. Delete the line.")
        is_numbered = _are_mostly(columns[0], _COUNT.fullmatch) and any(map(str.isdigit, columns[0]))
        is_conllu = size == _CONLLU_COLUMNS and is_numbered
        asked = in_data((*text_column, *filter(None, [label_column])), list(map(str, range(size))))  # All or none.
        own_text, own_label = asked[: len(text_column)], asked[len(text_column) :]
        self.asked = {"text_column": own_text, "label_column": own_label}
        for option, value in ((option, ",".join(own)) for option, own in self.asked.items() if own):
            if not (value.isascii() and value.isdigit()) or int(value) >= size:
                rule = f"{option} of a CoNLL file must be a column's index, from 0"
                received = f"{option}={value!r} for {name} with columns 0 to {size - 1}"
                raise UsageError(f"{rule}. Received: {received}. Pass one of them.")
        text, label = (_FORM, _UPOS) if is_conllu else (0, size - 1)
        text = int(own_text[0]) if own_text else text
        label = None if not with_tags else int(own_label[0]) if own_label else label
        shown = (", ".join(f"{value!r:.40}" for value in [*dict.fromkeys(column)][:3]) for column in columns)
        examples = "; ".join(f"{n}: {values}" for n, values in enumerate(itertools.islice(shown, _CONLLU_COLUMNS)))
        if label == text:
            rule = "Words and tags must be in different columns, separated by tabs or spaces"
            todo = "Pass another --text_column or --label_column, or --mode=predict for words without tags."
            raise UsageError(f"{rule}. Received: column {text} of {size} for both in {name}: {examples}. {todo}")
        last, is_named = size - 1 if label is None else label, bool(named_by_user(*text_column))
        words, tags = columns[text], columns[last]
        are_entities = [hold_entities(collections.Counter(column)) for column in columns]
        repeated = sum(a == b for a, b in itertools.pairwise(words))  # As the name of a document is.
        no_words = _are_mostly(words, lambda cell: not any(map(str.isalpha, cell))) or (
            size > 2 and 2 * repeated > len(words) > _MANY
        )
        kinds = [len({cell for cell in column if any(map(str.isalpha, cell))}) for column in columns]
        others = [count for column, count in enumerate(kinds) if column not in (text, last)]
        no_words = no_words or max(others, default=0) > max(_MANY, 5 * kinds[text])  # As tags in front of words.
        are_tags = are_entities[text] and (last == text or not are_entities[last])
        wrong = "words" if size > 1 and (are_tags or (no_words and not is_named)) else ""
        if not wrong and label is not None and not own_label and not are_entities[label]:
            others = any(are_entities[:text] + are_entities[text + 1 :])
            are_many = len({*tags}) > max(_MANY, len({*words}))
            wrong = "tags" if are_many or (others and {*tags} != {"O"}) else ""
        if wrong:
            raise UsageError(
                "The words are in the column that --text_column names, or else in the first (FORM in CoNLL-U), the "
                f"tags in that of --label_column, or else in the last. Received: {name}, where column "
                f"{text if wrong == 'words' else label} cannot hold the {wrong}: {examples}. Pass the numbers before "
                "both."
            )
        if self._separator == "\t" and not is_named and _are_mostly(words, lambda cell: " " in cell):
            received = f"{name}, where nearly all words hold blanks, such as {words[0]!r:.60} in column {text}"
            todo = f"Write tabs in their place, or pass --text_column={text} if these are the words."
            raise UsageError(f"Tabs separate either all columns or none. Received: {received}. {todo}")
        self._text, self._label, self._known = text, label, {*tags}
        self._read = (text,) if label is None else (text, label)
        self._is_counted = text > 0 and is_numbered  # So that `1-2` and `8.1` are no words.
        self._notes = []
        language = _LANGUAGE.match(words[0])
        if language and all(word.startswith(language[0]) for word in words):
            self._notes.append(
                f"warning: {name}: every word starts with {language[0]!r}, as in WikiAnn, and is read with it; other "
                "texts have no such thing: cut it off"
            )
        is_told = size == 1 or (size == 2 and are_entities[last])  # The file itself says which is which.
        if not is_told and not (own_text and (own_label or label is None)):
            which = "" if label is None else f", the tags those of column {label}"
            self._notes.append(
                f"{name}: the words are those of column {text}{which}: {examples}; --text_column and --label_column "
                "take others"
            )

    def notes(self) -> tuple[str, ...]:
        """What was found rather than told, and how many lines were left out, one line each."""
        what = "without a word left out, as comments; the first is"
        left_out = self._left_out.items()
        return (*self._notes, *(f"{self._name}: {counted(n, 'line')} {what} {first}" for first, n in left_out))

    def sentences(self, lines: Iterable[Line]) -> Iterator[Sentence | UsageError]:
        """All sentences of the file, with an error in place of each that cannot be read."""
        block: list[tuple[int, str, list[str]]] = []
        for number, line in itertools.chain(lines, [(0, "")]):  # A blank line ends the last sentence too.
            if _separates(line):
                if block:
                    try:
                        yield self._sentence(block)
                    except UsageError as error:
                        yield error
                block = []
                continue
            columns = _split(line, self._separator)
            if _is_hash(line):  # Where words are behind, a word's line rarely starts so.
                is_word = len(columns) == self._size and (self._text == 0 or self._tag(columns) in self._known)
            else:
                is_word = not (self._is_counted and _NO_WORD.fullmatch(columns[0]))
            if not is_word:
                self._left_out[next(iter(self._left_out), f"line {number}: {line!r:.60}")] += 1
            elif len(block) <= MOST_WORDS:
                block.append((number, line, columns))

    def _tag(self, columns: Sequence[str]) -> str:
        return columns[self._size - 1 if self._label is None else self._label].strip(" ")

    def _sentence(self, block: list[tuple[int, str, list[str]]]) -> Sentence:
        first = block[0][0]
        if len(block) > MOST_WORDS:
            rule = f"A sentence has at most {MOST_WORDS:,} words, and a blank line ends it"
            raise UsageError(f"{rule}. Received: more words in {self._name}, from line {first}. Add blank lines.")
        for number, line, columns in block:
            if byte := not_utf8(line):
                raise not_utf8_error(byte, f"{self._name}, line {number}")
            if len(columns) != self._size:
                separated = "tabs" if self._separator == "\t" else "spaces"
                raise UsageError(
                    f"Every line with a word must have {self._size} columns separated by {separated}, like the "
                    f"others. Received: {len(columns)} in {self._name}, line {number}. Repair it or drop the sentence."
                )
            if (
                _is_hash(line)
                and self._size > 1
                and not ((tag := self._tag(columns)) in {*self._known, "", "#"} or hold_entities({tag: 1}))
            ):
                raise UsageError(
                    "A line that starts with # holds a word only if other words have its tag. Received: "
                    f"{line!r:.60} in {self._name}, line {number}. Delete it if it is a comment; if it is a word, "
                    f"write the sentences as lists: {OTHER_FORMATS}."
                )
            for column in self._read:
                if not columns[column].strip(" "):
                    received = f"{columns[column]!r} in column {column} of {self._name}, line {number}"
                    todo = "Repair it or drop the sentence, or pass another column."
                    raise UsageError(f"A word must not be blank, and needs a tag. Received: {received}. {todo}")
        return Sentence(
            line=first,
            words=[columns[self._text] for _, _, columns in block],
            tags=None if self._label is None else [sys.intern(self._tag(columns)) for _, _, columns in block],
            written=[f"{line}{self._separator}" for _, line, _ in block],
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
    if ending_of(path) in CONLL_ENDINGS or ending_of(path) not in WORDS["conll"]:
        return ending_of(path) in CONLL_ENDINGS
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


def _split(line: str, separator: str) -> list[str]:
    """A line's columns. Only tabs and spaces separate them: a word may be any other of Unicode's blanks."""
    return line.split("\t") if separator == "\t" else [column for column in line.split(" ") if column]


def _is_hash(line: str) -> bool:
    return line.lstrip(" ").startswith("#")


def _separates(line: str) -> bool:
    """Whether a line stands between sentences: a document's start, or nothing but spaces and tabs."""
    return not line.strip(" \t") or (line.startswith(DOCSTART) and line[len(DOCSTART) :][:1] in ("", " ", "\t"))


def _rows(lines: Sequence[Line]) -> tuple[str, int, list[list[str]]]:
    """What separates the columns of lines; how many most of the words' lines have; and these columns."""
    filled = [line for _, line in lines if not _separates(line)]
    data = [line for line in filled if not _is_hash(line)]
    data = data or [line for line in filled if len(line.split()) == 1]  # Only words that start with `#`, or comments.
    separator = "\t" if 2 * sum("\t" in line for line in data) >= len(data) else " "
    rows = [_split(line, separator) for line in data]
    sizes = collections.Counter(map(len, rows))
    return separator, max(sizes, key=sizes.__getitem__, default=0), rows  # Of equals, that of the first line.


def _are_mostly(column: Sequence[str], holds: Callable[[str], object]) -> bool:
    """Whether most cells of a column are so."""
    return sum(bool(holds(cell)) for cell in column) >= _MOST * len(column)


def _is_header(row: Sequence[str]) -> bool:
    """Whether these are the names of columns of words and of tags."""
    names = {cell.strip().lower() for cell in row}
    return bool(names & _HEADER_WORDS and names & _HEADER_TAGS)
