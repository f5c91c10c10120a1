"""Sentences as lists of words, each with its tag: CoNLL; JSON lines or Parquet whose rows hold lists of words; and
tables with one word per row, in CSV too.

`conll`, `rows` and `word_rows` parse the files. The task decides what the tags mean.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO

from tfbert.config.data import DataConfig
from tfbert.data.bad_rows import BadRows
from tfbert.data.columns import find_tag_columns
from tfbert.data.endings import CONLL_ENDINGS, WORDS, ending_of, format_of, how_to_convert
from tfbert.data.given_table import FORMAT, GivenTable
from tfbert.data.open_file import OpenFile, Row
from tfbert.data.rows import Source, open_rows
from tfbert.errors import UsageError
from tfbert.tasks.tagging.conll import Sentence, Tags, looks_like_conll, open_conll
from tfbert.tasks.tagging.word_rows import (
    WordColumns,
    find_word_columns,
    open_tagged_texts,
    open_word_rows,
    sentences_of_rows,
    sentences_of_words,
)

_LOOKED_AT = 20
"""Rows by which a table is recognised."""
_BY_NAME = DataConfig()
_LONG_SENTENCE = 300  # Words of the only sentence of a file: the file may lack what ends one.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedTable:
    """Sentences and tags as they were written.

    Attributes:
        name: Where they came from, for messages.
        words: The words of each sentence, at least one.
        tags: One per word. Ids are text, or names where the file has the names of ids. None where no tags were read.
        lines: Each sentence's position from 1: the line it starts on, or its row's number.
        unit: What `lines` counts: `line` or `row`.
        notes: What the user should know, one line each.
        places: The line, or row, of each word of each sentence; None where a sentence has only one.
        columns: Those that were read, by the options that name them; empty where nobody can choose them.
    """

    name: str
    words: list[list[str]]
    tags: list[list[str]] | None
    lines: Sequence[int]
    unit: str = "line"
    notes: tuple[str, ...] = ()
    places: list[Sequence[int]] | None = None
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.words)

    def where(self, row: int) -> str:
        """What messages call sentence `row`, counted from 0."""
        return f"{self.name}, {self.unit} {self.lines[row]}"

    def where_word(self, row: int, word: int) -> str:
        """What messages call a word of sentence `row`, both counted from 0."""
        if self.places is None:
            return f"word {word + 1} of {self.where(row)}"
        return f"{self.name}, {self.unit} {self.places[row][word]}"


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


def sentence_format(path: pathlib.Path | GivenTable) -> str:
    """`conll`, `csv`, `jsonl` or `parquet`, by a file's ending; all but .parquet may also end in .gz. For a table in
    memory, what it is read as.

    Raises:
        UsageError: for another ending.
    """
    if isinstance(path, GivenTable) or path.is_dir():
        return FORMAT
    if format := format_of(path, WORDS):
        return format
    *known, last = itertools.chain(*WORDS.values())
    raise UsageError(
        f"A file of tagged words ends in {', '.join(known)} or {last}, all but the last also with .gz. "
        f"Received: {str(path)!r}. {how_to_convert(path)}."
    )


def open_sentences(source: Source, config: DataConfig = _BY_NAME, tags: Tags = "none") -> SentenceFile:
    """Opens a file of sentences, to be read one by one in constant memory.

    A table with one word per row is found by its columns' names and its first rows.

    Args:
        source: A path, an open binary stream such as standard input, or a table in memory.
        config: Its format, as `sentence_format` names it; `tsv` and `text` are CoNLL as well, but where a table has one
            word per row. Its columns of words and tags: names, or indexes from 0 in CoNLL, where the first and the last
            are the usual ones. Its delimiter is of a table in CSV or TSV.
        tags: Whether tags are required, may be absent, or are ignored.

    Raises:
        UsageError: for a file that cannot be read, or a column that does not exist or cannot be found.
    """
    source = pathlib.Path(source) if isinstance(source, str) else source
    if tags == "none":
        config = dataclasses.replace(config, label_column="")
    if isinstance(source, GivenTable):
        config = dataclasses.replace(config, input_format="auto", delimiter="")
    format = _format(source, config)
    if table := _word_rows(source, format, config):
        return _of_word_rows(*table, tags)
    table_format = _table_format(source, format)
    if tags != "none" and (texts := open_tagged_texts(source, table_format, config)):
        return _of_lists(table_format, *texts, are_texts=True)
    if config.delimiter:
        raise UsageError(
            "Only tables with one word per row have a delimiter; CoNLL has tabs or spaces between its columns. "
            f"Received: delimiter={config.separator!r}. Drop --delimiter."
        )
    format = {"tsv": "conll", "text": "conll"}.get(format, format)
    if format not in WORDS:
        what = f"input_format={format!r}" if format else "standard input without input_format"
        raise UsageError(
            f"Tagged words are read from {', '.join(WORDS)}. Received: {what}. Pass --input_format with one of them."
        )
    text_column, label_column = config.text_column, config.label_column
    if format == "conll":
        file = open_conll(source, text_column=text_column, label_column=label_column, tags=tags)
        return SentenceFile(
            name=file.name,
            format=format,
            columns=[str(index) for index in range(file.num_columns)],
            has_tags=file.has_tags,
            unit="line",
            read=lambda others: file.sentences,
            notes=file.notes,
            chosen=file.asked,
        )
    if format == "csv":
        return _of_word_rows(*_named_word_rows(source, config), tags)
    rows = open_rows(source, format)
    words, label = find_tag_columns(rows, text_column, label_column, require_label=tags == "required")
    return _of_lists(format, rows, words, label if tags != "none" else "")


def _of_lists(format: str, rows: OpenFile, words: str, label: str, *, are_texts: bool = False) -> SentenceFile:
    """A table, just opened, with lists of words and of tags in its rows, or with texts that hold them."""
    names = rows.label_names.get(label)
    note = f"{rows.name}: {label!r} holds as many tags as {words!r} has words, so each word has its tag"
    return SentenceFile(
        name=rows.name,
        format=format,
        columns=rows.columns,
        has_tags=bool(label),
        unit=rows.unit,
        read=lambda others: sentences_of_rows(rows, words, label, names, others, are_texts=are_texts),
        notes=lambda: (note,) if are_texts else (),
        chosen={"text_column": (words,), "label_column": (label,) if label else ()},
    )


def read_sentences(source: Source, config: DataConfig = _BY_NAME, *, require_label: bool = True) -> TaggedTable:
    """Reads a file of sentences whose words have tags.

    Args:
        source: As for `open_sentences`.
        config: As for `open_sentences`; and whether sentences that cannot be used are left out, and counted.
        require_label: Whether a file without tags is an error.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there or cannot be found, or a bad sentence.
    """
    file = open_sentences(source, config, "required" if require_label else "optional")
    words, tags, lines, places = [], [], [], []
    bad_rows = BadRows(config.skip_bad_rows, is_data_set=isinstance(source, GivenTable) and bool(source.kinds))
    for sentence in bad_rows.usable(enumerate(file.read(())), lambda number, sentence: sentence):
        words.append([sys.intern(word) for word in sentence.words])  # A file has few distinct words.
        tags.append(sentence.tags)
        lines.append(sentence.line)
        places.append(sentence.places)
    skipped = bad_rows.skipped(file.name, len(lines), "sentence", "sentences")
    notes = list(file.notes())
    if len(lines) == 1 and len(words[0]) >= _LONG_SENTENCE:
        notes.append(
            f"warning: {file.name}: one sentence of {len(words[0]):,} words; a blank line, or another name in a column "
            "of sentences, ends a sentence"
        )
    return TaggedTable(
        name=file.name,
        words=words,
        tags=tags if file.has_tags else None,
        lines=lines,
        unit=file.unit,
        notes=(*notes, *skipped),
        places=places if all(places) else None,
        columns=file.chosen,
    )


def holds_tags(path: pathlib.Path | GivenTable, config: DataConfig = _BY_NAME) -> bool:
    """Whether a file can be for no other task than tagging: `looks_like_conll` says so; it is a table with one word per
    row, or with as many tags in each label as its text has words; or one of the first rows of JSON lines or Parquet has
    a list of strings in the column of words and another list in the column of tags.

    Args:
        path: The file, or a table in memory.
        config: As for `open_sentences`.

    Returns:
        False also for a file that cannot be read: reading it later says why.
    """
    if isinstance(path, GivenTable):
        config = dataclasses.replace(config, input_format="auto")
    elif config.input_format == "conll":
        return True
    try:
        format = _format(path, config)
        table = _word_rows(path, format, config)
        if table is not None:
            return bool(table[1].tag)
        texts = open_tagged_texts(path, _table_format(path, format), config)
        if texts is not None or format == "csv":
            return texts is not None
        if format in ("conll", "tsv", "text"):
            return looks_like_conll(path, text_column=config.text_column, label_column=config.label_column)
        rows = open_rows(path, format)
        columns = find_tag_columns(rows, config.text_column, config.label_column)
        if rows.kinds:
            return columns[0] in rows.of_kinds("texts")
        return any(map(_is_tagged, itertools.islice(rows.read(columns), _LOOKED_AT)))
    except UsageError:
        return False


def _is_tagged(place_and_row: Row) -> bool:
    """Whether a row holds a list of words and another list."""
    _, row = place_and_row
    if isinstance(row, UsageError):
        return False
    words, tags = row
    return isinstance(tags, list) and isinstance(words, list) and all(isinstance(word, str) for word in words)


def holds_word_rows(path: pathlib.Path, config: DataConfig) -> bool:
    """Whether a file certainly is a table with one word per row, with or without tags.

    Raises:
        UsageError: for a file that cannot be read.
    """
    return _word_rows(path, _format(path, config), dataclasses.replace(config, label_column="")) is not None


def _format(source: Source, config: DataConfig) -> str:
    """As `sentence_format` has it; empty for a stream of which nobody says it."""
    if config.input_format != "auto":
        return config.input_format
    return sentence_format(source) if isinstance(source, pathlib.Path | GivenTable) else ""


def _word_rows(source: Source, format: str, config: DataConfig) -> tuple[OpenFile, WordColumns] | None:
    """A table with one word per row, just opened; None for another file."""
    with contextlib.suppress(UsageError):  # Reading it in another form says what is wrong.
        if format := _table_format(source, format):
            return open_word_rows(source, format, config)
    return None


def _table_format(source: Source, format: str) -> str:
    """The format of what may be a table; empty for another file. A pipe can be read only once: it is none."""
    if isinstance(source, pathlib.Path):
        if not source.exists() or source.is_fifo():
            return ""
    elif not isinstance(source, GivenTable) or source.kinds:  # Data sets have lists.
        return ""
    if format == "conll" and ending_of(source) not in CONLL_ENDINGS:  # A .tsv may be either.
        format = "tsv"
    return format if format in ("csv", "tsv", "jsonl", "parquet") else ""


def _named_word_rows(source: pathlib.Path | BinaryIO, config: DataConfig) -> tuple[OpenFile, WordColumns]:
    """A CSV file that holds one word per row, by its columns' names alone."""
    file = open_rows(source, "csv")
    found = find_word_columns(file.columns, config.text_column, config.label_column)
    if found is None:
        raise UsageError(
            "A CSV file of tagged words has one word per row: a column that names the sentence, such as sentence_id, "
            f"one of words and one of tags. Received: {file.name} with {', '.join(map(repr, file.columns[:20]))}. "
            "Rename them, or pass --text_column and --label_column for words and tags."
        )
    return file, found


def _of_word_rows(file: OpenFile, columns: WordColumns, tags: Tags) -> SentenceFile:
    if tags == "none":
        columns = dataclasses.replace(columns, tag="")
    if tags == "required" and not columns.tag:
        raise UsageError(
            "No column looks like the tags, or several do. "
            f"Received: {file.name} with columns {', '.join(map(repr, file.columns[:20]))}. Pass --label_column."
        )
    tagged = f" and its tag in {columns.tag!r}" * bool(columns.tag)
    note = f"{file.name}: each row holds a word, in {columns.word!r}{tagged}, of the sentence in {columns.sentence!r}"
    return SentenceFile(
        name=file.name,
        format="csv",
        columns=file.columns,
        has_tags=bool(columns.tag),
        unit=file.unit,
        read=lambda others: sentences_of_words(file, columns, others),
        id_column=columns.sentence,
        notes=lambda: (note,),
        chosen={"text_column": (columns.word,), "label_column": (columns.tag,) if columns.tag else ()},
    )
