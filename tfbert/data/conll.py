"""CoNLL files, read one sentence at a time in constant memory: one word per line, its tag in a column beside it.

Tabs or runs of spaces separate the columns; blank lines and `-DOCSTART-` lines separate sentences. Nothing else is
special: a line that starts with `#` is the word `#`. In place of a sentence that cannot be read, a `UsageError` is
yielded: the caller decides whether to stop.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Literal

from tfbert.data.rows import lines_of, not_utf8, not_utf8_error, without_end
from tfbert.errors import UsageError

CONLL_SUFFIXES = (".conll", ".iob", ".bio")
"""Endings that only CoNLL files have. Files that end in .txt or .tsv may be CoNLL too. All may also end in .gz."""
DOCSTART = "-DOCSTART-"
"""The first column of the line that starts a document in CoNLL-2003; it is not a word."""

Tags = Literal["required", "optional", "none"]
"""Whether a file must have tags, may lack them (where it has one column), or has its tags ignored."""

_HEAD_LINES = 1000  # They decide what separates the columns, and whether a file is CoNLL at all.
_MOST_WORDS = 100_000  # In a sentence. A file with more probably has no blank lines, and would fill the memory.
_HEADER_WORDS = {"token", "tokens", "word", "words"}
_HEADER_TAGS = {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags"}
_TAG_PREFIXES = ("B-", "I-", "E-", "S-", "L-", "U-", "M-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence as it was written.

    Attributes:
        line: Its position from 1: its first line, or its row's number.
        words: At least one.
        tags: One per word, ids as text; None where no tags were read.
        others: The values of further columns that the caller wants.
    """

    line: int
    words: list[str]
    tags: list[str] | None
    others: Sequence = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConllSentence(Sentence):
    """A sentence with everything that its file holds about it.

    Attributes:
        written: Each word's line, without its end.
        before: The blank and `-DOCSTART-` lines between the previous sentence and this one, without their ends.
        after: The same for the lines that follow the last sentence of a file; empty for other sentences.
        separator: What separates the file's columns: a tab, or a space for runs of spaces.
        line_end: The line end of the file's first line with words.
    """

    written: list[str]
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    separator: str
    line_end: str

    def with_column(self, values: Sequence[str], outside: str = "O") -> str:
        """The lines of this sentence as they were, each with a column added.

        All sentences of a file together are the file with a column added. `conlleval` reads it where the previous
        column holds the right tags. The last line gets a line end if the file has none.

        Args:
            values: One per word.
            outside: The value for a `-DOCSTART-` line: conlleval demands the same number of columns in all lines.
        """
        lines = [*map(self._blank_or_start, self.before, itertools.repeat(outside))]
        lines += [f"{line}{self.separator}{value}" for line, value in zip(self.written, values, strict=True)]
        lines += map(self._blank_or_start, self.after, itertools.repeat(outside))
        return "".join(line + self.line_end for line in lines)

    def _blank_or_start(self, line: str, outside: str) -> str:
        return line if _is_blank(line) else f"{line}{' ' if ' ' in line else self.separator}{outside}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConllFile:
    """A file whose columns are known and whose sentences have yet to be read, once.

    Attributes:
        name: What messages call it.
        num_columns: Columns per line.
        has_tags: Whether its sentences have tags.
        sentences: Each sentence, or the error that says why it cannot be read.
    """

    name: str
    num_columns: int
    has_tags: bool
    sentences: Iterator[ConllSentence | UsageError]


def open_conll(
    source: pathlib.Path | BinaryIO, *, text_column: Sequence[str] = (), label_column: str = "", tags: Tags = "required"
) -> ConllFile:
    """Opens a CoNLL file and finds its columns.

    In a file with a tab in its first lines, only tabs separate the columns, so that a word may hold a space.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream such as standard input.
        text_column: The index of the words' column, from 0. Empty: the first.
        label_column: The index of the tags' column. Empty: the last.
        tags: Whether tags are needed.

    Raises:
        UsageError: for a file that cannot be read or has no sentences, or a column that is not there.
    """
    name = str(source) if isinstance(source, pathlib.Path) else "standard input"
    lines = lines_of(source, name)
    head = list(itertools.islice(lines, _HEAD_LINES))
    lines = itertools.chain(head, lines)
    before = []  # Blank and -DOCSTART- lines at the start; there may be more than _HEAD_LINES of them.
    first = next(lines, None)
    while first and _separates(without_end(first[1])):
        before.append(first)
        first = next(lines, None)
    if first is None:
        raise UsageError(f"A data file needs at least one sentence. Received: {name!r} with none. Check the path.")
    head = [without_end(line) for _, line in (*head, first)]
    separator = "\t" if any("\t" in line for line in head if not _separates(line)) else " "
    columns = _split(without_end(first[1]), separator)
    text = _index("text_column", ",".join(text_column) or "0", columns, name)
    label = None
    if tags != "none" and (label_column or len(columns) > 1):
        label = _index("label_column", label_column or str(len(columns) - 1), columns, name)
    elif tags == "required":
        raise UsageError(
            "A CoNLL file needs a column of words and one of tags. "
            f"Received: {name} with one column, {columns[0]!r:.60} in line {first[0]}. "
            "Separate columns by tabs or spaces, or pass --mode=predict for words without tags."
        )
    if label == text:
        raise UsageError(
            "Words and tags must be different columns. "
            f"Received: column {text} of {len(columns)} for both in {name}. "
            "Pass another --text_column or --label_column."
        )
    if label is not None and columns[text].lower() in _HEADER_WORDS and columns[label].lower() in _HEADER_TAGS:
        raise UsageError(
            "CoNLL files have no header. "
            f"Received: {columns[text]!r} with the tag {columns[label]!r} in {name}, line {first[0]}. Delete the line."
        )
    line_end = "\r\n" if first[1].endswith("\r\n") else "\n"
    parse = _parser(name, separator, line_end, len(columns), text, label)
    return ConllFile(
        name=name,
        num_columns=len(columns),
        has_tags=label is not None,
        sentences=_sentences(itertools.chain(before, [first], lines), parse),
    )


def looks_like_conll(path: pathlib.Path) -> bool:
    """Whether a file certainly holds words with entity tags.

    A file with one of the endings `CONLL_SUFFIXES` does. A .tsv or .txt file does if its first lines are blocks with
    blank lines between them, all lines have the same number of columns, at least 2, and the last column holds only
    `O` and tags such as `B-PER`; so it has no header. All may also end in .gz.

    Raises:
        UsageError: for a file that cannot be read.
    """
    if has_conll_suffix(path):
        return True
    if _suffix(path) not in (".tsv", ".txt"):
        return False
    head = [without_end(line) for _, line in itertools.islice(lines_of(path, str(path)), _HEAD_LINES)]
    words = [line for line in head if not _separates(line)]
    separator = "\t" if any("\t" in line for line in words) else " "
    rows = [_split(line, separator) for line in words]
    found = {row[-1] for row in rows}
    return (
        any(_is_blank(a) and not _separates(b) for a, b in itertools.pairwise(itertools.dropwhile(_separates, head)))
        and {len(row) for row in rows} == {max(2, len(rows[0]))}
        and all(tag == "O" or (tag.startswith(_TAG_PREFIXES) and len(tag) > 2) for tag in found)
        and found != {"O"}
    )


def has_conll_suffix(path: pathlib.Path) -> bool:
    """Whether a file's name ends in one of `CONLL_SUFFIXES`, with or without .gz."""
    return _suffix(path) in CONLL_SUFFIXES


def _suffix(path: pathlib.Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:-1] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def _is_blank(line: str) -> bool:
    return not line.strip(" \t")


def _separates(line: str) -> bool:
    """Whether a line stands between sentences."""
    return _is_blank(line) or (line.startswith(DOCSTART) and line[len(DOCSTART) :][:1] in ("", " ", "\t"))


def _split(line: str, separator: str) -> list[str]:
    """A line's columns. Only tabs and spaces separate them: a word may be any other of Unicode's blanks."""
    return line.split("\t") if separator == "\t" else [column for column in line.split(" ") if column]


def _index(flag: str, value: str, columns: list[str], name: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) >= len(columns):
        raise UsageError(
            f"{flag} of a CoNLL file must be a column's index, from 0. "
            f"Received: {flag}={value!r} for {name} with columns 0 to {len(columns) - 1}. Pass one of them."
        )
    return int(value)


Block = list[tuple[int, str]]
"""Consecutive lines with words: each line's number, and the line with its end."""


def _blocks(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[list[str], Block]]:
    """For each sentence, the lines before it, without their ends, and its own lines. The last item holds the lines at
    the end of the file and whatever sentence follows them, which may be empty."""
    before: list[str] = []
    block: Block = []
    for number, line in lines:
        text = without_end(line)
        if not _separates(text):
            if len(block) <= _MOST_WORDS:
                block.append((number, line))
            continue
        if block:
            yield before, block
            before, block = [], []
        before.append(text)
    yield before, block


def _sentences(
    lines: Iterator[tuple[int, str]], parse: Callable[[list[str], Block], ConllSentence | UsageError]
) -> Iterator[ConllSentence | UsageError]:
    held = None  # The previous sentence, until it is known whether it is the last.
    for before, block in _blocks(lines):
        if not block:
            if isinstance(held, ConllSentence):
                held = dataclasses.replace(held, after=before)
            break
        if held is not None:
            yield held
        held = parse(before, block)
    if held is not None:
        yield held


def _parser(
    name: str, separator: str, line_end: str, num_columns: int, text: int, label: int | None
) -> Callable[[list[str], Block], ConllSentence | UsageError]:
    """A function that turns the lines of a sentence into a sentence."""
    separated = "tabs" if separator == "\t" else "spaces"

    def parse(before: list[str], block: Block) -> ConllSentence | UsageError:
        if len(block) > _MOST_WORDS:
            return UsageError(
                f"A sentence has at most {_MOST_WORDS:,} words, and a blank line ends it. "
                f"Received: more words in {name}, from line {block[0][0]}. Add blank lines."
            )
        words, tags, written = [], [], []
        for number, line in block:
            where = f"{name}, line {number}"
            line = without_end(line)
            if not line.isascii() and (byte := not_utf8(line)):
                return not_utf8_error(byte, where)
            columns = _split(line, separator)
            if len(columns) != num_columns:
                return UsageError(
                    f"Every line with a word must have {num_columns} columns separated by {separated}, like the first. "
                    f"Received: {len(columns)} in {where}. Repair it or drop the sentence."
                )
            word = columns[text]
            if not word.strip(" "):
                return UsageError(
                    f"A word must not be blank. Received: {word!r} in column {text} of {where}. "
                    "Repair it or drop the sentence."
                )
            if label is not None:
                tag = columns[label].strip(" ")
                if not tag:
                    return UsageError(
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
            written=written,
            before=before,
            separator=separator,
            line_end=line_end,
        )

    return parse
