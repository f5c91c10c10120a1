"""CoNLL files, read one sentence at a time in constant memory: one word per line, its tag in a column beside it.

Tabs or runs of spaces separate the columns; blank lines and `-DOCSTART-` lines separate sentences. `conll_layout` finds
the columns, and the lines that hold no word. In place of a sentence that cannot be read, a `UsageError` is yielded: the
caller decides whether to stop.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from tfbert.config.counted import counted
from tfbert.data.columns import named_by_user
from tfbert.data.endings import CONLL_ENDINGS, WORDS, ending_of
from tfbert.data.lines import lines_of, not_utf8, not_utf8_error, source_name, without_end
from tfbert.errors import UsageError
from tfbert.tasks.tagging.conll_layout import DOCSTART, Layout, Tags, find_layout, is_blank, is_header, separates, split
from tfbert.tasks.tagging.tag_forms import read_forms

"""Endings that only CoNLL files have. Files that end in .txt or .tsv may be CoNLL too. All may also end in .gz."""

_HEAD_LINES = 1000  # They decide what the columns are, and whether a file is CoNLL at all.
MOST_WORDS = 100_000  # In a sentence. A file with more probably has no blank lines, and would fill the memory.
_CERTAIN = 0.98  # Of the lines, if a file without a telling name is CoNLL: one that is bad is named when it is read.


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

    def with_column(self, values: Sequence[str], outside: str = "O") -> str:
        """The lines of this sentence as they were, each with a column added.

        All sentences of a file together are the file with a column added. `conlleval` reads it where the previous
        column holds the right tags. The last line gets a line end if the file has none.

        Args:
            values: One per word.
            outside: The value for a `-DOCSTART-` line: conlleval demands the same number of columns in all lines.
        """
        lines = [self._without_word(line, outside) for line in self.before]
        between = collections.deque(self.between)
        for place, (line, value) in enumerate(zip(self.written, values, strict=True), start=1):
            lines.append(f"{line}{self.separator}{value}")
            while between and between[0][0] == place:
                lines.append(self._without_word(between.popleft()[1], outside))
        lines += [self._without_word(line, outside) for line in self.after]
        return "".join(line + self.line_end for line in lines)

    def _without_word(self, line: str, outside: str) -> str:
        """A blank line and a comment stay as they are."""
        if is_blank(line) or line.lstrip(" ").startswith("#"):
            return line
        if line.startswith(DOCSTART):
            return f"{line}{' ' if ' ' in line else self.separator}{outside}"
        return f"{line}{self.separator}_"


class LinesWithoutWords:
    """Counts the comments and the like of a file.

    Args:
        name: What messages call the file.
    """

    def __init__(self, name: str):
        self._name = name
        self._counts: collections.Counter[str] = collections.Counter()
        self._firsts: dict[str, str] = {}

    def add(self, kind: str, number: int, line: str) -> None:
        """Counts a line.

        Args:
            kind: As `Layout.holds_no_word` says, or `doubt` for a word that could be a comment.
            number: The line's number.
            line: Without its end.
        """
        self._counts[kind] += 1
        self._firsts.setdefault(kind, f"line {number}: {line!r:.60}")

    def notes(self) -> tuple[str, ...]:
        """What the user should know of the lines so far."""
        what = {
            "comment": ("comment", "comments", "left out: lines that start with #"),
            "node": ("multiword range or empty node", "multiword ranges and empty nodes", "left out: no words"),
            "doubt": (
                "line that may be a comment",
                "lines that may be comments",
                "read as words: after # comes a tag that no other word has; delete comments",
            ),
        }
        return tuple(
            f"{'warning: ' * (kind == 'doubt')}{self._name}: {counted(self._counts[kind], noun, nouns)} {text}; "
            f"the first is {first}"
            for kind, (noun, nouns, text) in what.items()
            if (first := self._firsts.get(kind))
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConllFile:
    """A file whose columns are known and whose sentences have yet to be read, once.

    Attributes:
        name: What messages call it.
        num_columns: Columns per line.
        has_tags: Whether its sentences have tags.
        asked: As in `Layout`.
        sentences: Each sentence, or the error that says why it cannot be read.
        notes: What the user should know of the lines read so far, one line each.
    """

    name: str
    num_columns: int
    has_tags: bool
    asked: dict[str, tuple[str, ...]]
    sentences: Iterator[ConllSentence | UsageError]
    notes: Callable[[], tuple[str, ...]]


def open_conll(
    source: pathlib.Path | BinaryIO, *, text_column: Sequence[str] = (), label_column: str = "", tags: Tags = "required"
) -> ConllFile:
    """Opens a CoNLL file and finds its columns.

    Where most of the first lines have a tab, only tabs separate the columns, so that a word may hold a space.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream such as standard input.
        text_column: The index of the words' column, from 0. Empty: as `find_layout` finds it, mostly the first.
        label_column: The index of the tags' column. Empty: as `find_layout` finds it, mostly the last.
        tags: Whether tags are needed.

    Raises:
        UsageError: for a file that cannot be read or has no sentences, or a column that is not there.
    """
    name = source_name(source)
    lines = lines_of(source, name)
    head = list(itertools.islice(lines, _HEAD_LINES))

    def layout_of(head: list[tuple[int, str]]) -> Layout | None:
        plain = [(number, without_end(line)) for number, line in head]
        try:
            return find_layout(plain, name, text_column=text_column, label_column=label_column, tags=tags)
        except UsageError:  # The columns of a model's training need not be those of this file.
            own, label = named_by_user(*text_column), "".join(named_by_user(label_column))
            return find_layout(plain, name, text_column=own, label_column=label, tags=tags)

    layout, size = layout_of(head), len(head)
    while layout is None and (more := list(itertools.islice(lines, _HEAD_LINES))):  # More comments than that.
        head += more
        if (layout := layout_of(more)) is not None:
            head += itertools.islice(lines, _HEAD_LINES)
            layout = layout_of(head[size:])
    if layout is None:
        comments = " but comments" * any(line.startswith("#") for _, line in head)
        raise UsageError(
            f"A data file needs at least one sentence. Received: {name!r} with none{comments}. Check the path."
        )
    if layout.doubt:
        raise UsageError(layout.doubt)
    line_end = "\r\n" if head[0][1].endswith("\r\n") else "\n"
    without_words = LinesWithoutWords(name)
    parse = _parser(name, layout, line_end)
    return ConllFile(
        name=name,
        num_columns=layout.num_columns,
        has_tags=layout.label is not None,
        asked=layout.asked,
        sentences=_sentences(_blocks(itertools.chain(head, lines), layout, without_words), parse),
        notes=lambda: (*layout.notes, *without_words.notes()),
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
    if head and is_header(head[0][1]):  # Reading it says that it must go.
        head = head[1:]
    try:
        layout = find_layout(head, str(path), text_column=text_column, label_column=label_column, tags="optional")
    except UsageError:
        return False
    if layout is None or layout.label is None:
        return False
    lines = [line for _, line in head if separates(line) or not layout.holds_no_word(line)]
    rows = [split(line, layout.separator) for line in lines if not separates(line)]
    good = [row for row in rows if len(row) == layout.num_columns]
    pairs = itertools.pairwise(itertools.dropwhile(separates, lines))
    if not any(is_blank(a) and not separates(b) for a, b in pairs):
        return False

    def holds_entities(column: int) -> bool:
        reading = read_forms(collections.Counter(row[column].strip(" ") for row in good))
        fits = reading.num_words + reading.num_outside if reading and reading.is_plausible else 0
        return fits >= _CERTAIN * len(rows)

    others = (column for column in range(layout.num_columns) if column != layout.text)
    return any(map(holds_entities, [layout.label] if label_column else others))


Block = list[tuple[int, str]]
"""Consecutive lines with words: each line's number, and the line with its end."""


@dataclasses.dataclass(kw_only=True)
class _Found:
    """A sentence's lines, and the lines around its words, see `ConllSentence`."""

    before: list[str] = dataclasses.field(default_factory=list)
    block: Block = dataclasses.field(default_factory=list)
    between: list[tuple[int, str]] = dataclasses.field(default_factory=list)


def _blocks(lines: Iterator[tuple[int, str]], layout: Layout, without_words: LinesWithoutWords) -> Iterator[_Found]:
    """The lines of each sentence. The last item holds the lines at the end of the file and whatever sentence follows
    them, which may be empty."""
    found = _Found()
    for number, line in lines:
        text = without_end(line)
        if separates(text):
            if found.block:
                yield found
                found = _Found()
            found.before.append(text)
        elif kind := layout.holds_no_word(text):
            without_words.add(kind, number, text)
            if found.block:
                found.between.append((len(found.block), text))
            else:
                found.before.append(text)
        elif len(found.block) <= MOST_WORDS:
            if text.startswith("#") and layout.is_doubtful(text):
                without_words.add("doubt", number, text)
            found.block.append((number, line))
    yield found


def _sentences(
    blocks: Iterator[_Found], parse: Callable[[_Found], ConllSentence | UsageError]
) -> Iterator[ConllSentence | UsageError]:
    held = None  # The previous sentence, until it is known whether it is the last.
    for found in blocks:
        if not found.block:
            if isinstance(held, ConllSentence):
                held = dataclasses.replace(held, after=found.before)
            break
        if held is not None:
            yield held
        held = parse(found)
    if held is not None:
        yield held


def _parser(name: str, layout: Layout, line_end: str) -> Callable[[_Found], ConllSentence | UsageError]:
    """A function that turns the lines of a sentence into a sentence."""
    separator, text, label = layout.separator, layout.text, layout.label
    separated = "tabs" if separator == "\t" else "spaces"

    def parse(found: _Found) -> ConllSentence | UsageError:
        block = found.block
        if len(block) > MOST_WORDS:
            return UsageError(
                f"A sentence has at most {MOST_WORDS:,} words, and a blank line ends it. "
                f"Received: more words in {name}, from line {block[0][0]}. Add blank lines."
            )
        words, tags, written = [], [], []
        for number, line in block:
            where = f"{name}, line {number}"
            line = without_end(line)
            if not line.isascii() and (byte := not_utf8(line)):
                return not_utf8_error(byte, where)
            columns = split(line, separator)
            if len(columns) != layout.num_columns:
                return UsageError(
                    f"Every line with a word must have {layout.num_columns} columns separated by {separated}, like the "
                    f"others. Received: {len(columns)} in {where}. Repair it or drop the sentence."
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
            places=places_of([number for number, _ in block]),
            written=written,
            before=found.before,
            between=found.between,
            separator=separator,
            line_end=line_end,
        )

    return parse


def places_of(numbers: list[int]) -> Sequence[int]:
    """The same numbers, as a range where they follow one another: it takes no memory.

    Args:
        numbers: At least one, each above the one before.
    """
    whole = range(numbers[0], numbers[-1] + 1)
    return whole if len(whole) == len(numbers) else numbers
