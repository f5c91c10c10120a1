"""Tables with one word per row, as Kaggle's `ner_dataset.csv`: a column names the sentence, on each row or on the first
of its rows only; others hold the word and its tag. And tables with a sentence per row: a list of words and one of tags,
or a text and as many tags as words."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.columns import find_columns, find_tag_columns, in_data
from tfbert.data.files import RawTable, check_text
from tfbert.data.given_table import GivenTable
from tfbert.data.open_file import OpenFile, Unlabelled
from tfbert.data.rows import open_rows
from tfbert.errors import UsageError
from tfbert.tasks.classes import hold_tags, words_and_tags
from tfbert.tasks.tagging.conll import MOST_WORDS, Sentence, places_of
from tfbert.tasks.tagging.tags import read_forms

_LOOKED_AT = 20
"""Rows by which a table of lists or texts is recognised."""
_SENTENCES = (
    *("sentence", "sentenceid", "sentenceidx", "sentenceindex", "sentenceno", "sentencenr", "sentencenum"),
    *("sentencenumber", "sent", "sentid", "sentidx", "sentno", "sentnum", "sid"),
)
_WORDS = (("word", "words", "token", "tokens"), ("text", "form"))
_TAGS = (
    ("tag", "tags", "ner", "nertag", "nertags", "nerlabel", "iob", "iobtag", "bio", "biotag", "entity"),
    ("label", "labels"),
    ("pos", "postag", "postags", "upos", "xpos"),
)
_SAMPLE = 300  # Rows that decide whether cells are single words, of sentences of several rows.
_SINGLE = 0.9  # The least share of cells without a blank in them.
_FEWEST = 30  # With fewer texts, only their labels or their column's name can say that they are words.
_NO_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]{2}")
"""Two letters of a script whose sentences may have no blanks: Thai, Lao, Burmese, Khmer, Chinese, Japanese, Korean."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordColumns:
    """The columns of a table with one word per row.

    Attributes:
        sentence: The column that names the sentence.
        word: The column of the words.
        tag: The column of the tags; empty if there is none, or it is not known.
    """

    sentence: str
    word: str
    tag: str


def find_word_columns(
    columns: Sequence[str], text_column: Sequence[str] = (), label_column: str = ""
) -> WordColumns | None:
    """The columns of a table that may have one word per row, by their names; None for another table.

    Args:
        columns: All columns there are.
        text_column: The column of the words, as the user named it. Empty: found by name.
        label_column: The column of the tags, as the user named it. Empty: found by name.
    """
    text_column, label_column = in_data(text_column, columns), "".join(in_data([label_column], columns))
    if len(text_column) > 1 or not {*text_column, *([label_column] if label_column else [])} <= set(columns):
        return None
    word = "".join(text_column) or _named(columns, _WORDS, label_column)
    sentence = _named([column for column in columns if column not in (word, label_column)], (_SENTENCES,))
    if not word or not sentence:
        return None
    return WordColumns(sentence=sentence, word=word, tag=label_column or _named(columns, _TAGS, word, sentence))


def open_word_rows(
    source: pathlib.Path | GivenTable, format: str, config: DataConfig
) -> tuple[OpenFile, WordColumns] | None:
    """Opens a table that certainly has one word per row; None for any other.

    It has columns with the usual names, hardly a cell of words holds a blank, and sentences have several rows.

    Args:
        source: A path, or a table in memory.
        format: `csv`, `tsv`, `jsonl` or `parquet`.
        config: As for `open_sentences`.

    Raises:
        UsageError: for a file that cannot be read.
    """
    file = open_rows(source, format, delimiter=config.separator)
    found = find_word_columns(file.columns, config.text_column, config.label_column)
    if found is None:
        return None
    rows = [row for _, row in itertools.islice(file.read([found.sentence, found.word]), _SAMPLE)]
    rows = [row for row in rows if not isinstance(row, UsageError)]
    words = [word.strip() for _, word in rows if isinstance(word, str)]
    if len(words) < len(rows) or sum(" " not in word for word in words) < _SINGLE * len(words):
        return None
    names = [_name(name) for name, _ in rows]
    if not any(not b or a == b for a, b in itertools.pairwise(names)):
        return None
    return open_rows(source, format, delimiter=config.separator), found


def sentences_of_words(file: OpenFile, columns: WordColumns, others: Sequence[str]) -> Iterator[Sentence | UsageError]:
    """The sentences of a table; an error in place of each that cannot be read.

    A sentence begins where another name is in its column, and after a row of blanks. Names that come back are an error:
    the rows are in another order. But where names are numbered, each document may begin with the first again.

    Args:
        file: Just opened.
        columns: Its columns; without `tag`, sentences have no tags.
        others: Further columns, whose values in a sentence's first row become its `others`.
    """
    wanted = [columns.sentence, columns.word, *([columns.tag] if columns.tag else [])]
    names, name = _Names(), ""
    rows: list[tuple[int, Any]] = []
    problem = None  # Why this sentence cannot be read, where it is not a word of it.
    for line, row in (file.without_rejected() if columns.tag else file).read([*wanted, *others]):
        if isinstance(row, UsageError):
            rows.append((line, row))
            continue
        own = _name(row[0])
        is_blank = not any(map(_name, row[: len(wanted)]))
        if rows and (is_blank or (own and own != name)):
            yield problem or _sentence(file, columns, rows)
            rows, problem = [], None
        if is_blank:
            continue
        if own and own != name:
            name = own
            if not names.add(name):
                problem = UsageError(
                    "The words of a sentence must be in rows that follow one another. Received: "
                    f"{columns.sentence}={own!r:.60} again in {file.name}, {file.unit} {line}. "
                    "Sort the rows, or give each sentence a name of its own."
                )
        if len(rows) <= MOST_WORDS:
            rows.append((line, row))
    if rows:
        yield problem or _sentence(file, columns, rows)


class _Names:
    """The names of the sentences so far."""

    def __init__(self):
        self._seen: set[str] = set()
        self._first = ""
        self._number = 0
        self._are_numbers = True  # Each name is the number after the one before, or the first one.

    def add(self, name: str) -> bool:
        """Whether another sentence may have this name."""
        self._first = self._first or name
        digits = re.search(r"(\d+)(?:\.0)?$", name, re.ASCII)
        number = int(digits[1]) if digits else -1
        follows = not self._seen or name == self._first or number == self._number + 1
        self._are_numbers = self._are_numbers and digits is not None and follows
        self._number = number
        if name == self._first and self._are_numbers and len(self._seen) > 2:
            self._seen = set()
        is_new = name not in self._seen
        self._seen.add(name)
        return is_new


def warning_of_words(table: RawTable) -> str:
    """A line about texts that look like the words of sentences; empty if they do not."""
    is_single = table.text_pair is None and table.labels is not None
    if is_single and hold_tags(table.text[:_SAMPLE], table.labels[:_SAMPLE]):
        return (
            f"warning: {table.name}: labels hold a tag for each word of their texts, and all of a text's are one "
            "class; --task=token_classification gives each word its tag"
        )
    if not is_single or not look_like_words(table.text_columns[0], table.text, table.labels):
        return ""
    return (
        f"warning: {table.name}: nearly all texts are single words, and each gets a class alone; to tag the words "
        "of sentences, name each word's sentence in a column sentence_id"
    )


def look_like_words(column: str, texts: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether texts with a label each look like the words of sentences, each with its tag: nearly all are one word.

    Args:
        column: The texts' column.
        texts: The texts.
        labels: The label of each.
    """
    if len(texts) < _FEWEST and not _named([column], _WORDS[:1]):
        reading = read_forms(collections.Counter(labels))
        if reading is None or not reading.is_certain:
            return False
    words = sum(len(text.split()) == 1 and not _NO_SPACES.search(text) for text in texts)
    return words >= _SINGLE * len(texts)


def _sentence(file: OpenFile, columns: WordColumns, rows: list[tuple[int, Any]]) -> Sentence | UsageError:
    if len(rows) > MOST_WORDS:
        return UsageError(
            f"A sentence has at most {MOST_WORDS:,} words. Received: more rows of one sentence in {file.name}, from "
            f"{file.unit} {rows[0][0]}. Name each sentence in its first row."
        )
    words, tags = [], []
    for line, row in rows:
        where = f"{file.name}, {file.unit} {line}"
        try:
            if isinstance(row, UsageError):
                raise row
            word = check_text(row[1], columns.word, where).strip()
            if not word:
                raise UsageError(
                    f"A word must not be blank. Received: {row[1]!r} in column {columns.word!r} of {where}. "
                    "Repair or drop the sentence."
                )
            words.append(word)
            if columns.tag:
                tags.append(tag_of(row[2], columns.tag, where))
        except UsageError as error:
            return error
    return Sentence(
        line=rows[0][0],
        words=words,
        tags=tags if columns.tag else None,
        others=rows[0][1][2 + bool(columns.tag) :],
        places=places_of([line for line, _ in rows]),
    )


def _name(value: Any) -> str:
    """A cell as text; empty where it is blank. Where some cells of a column are blank, pandas writes 1 as 1.0."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value).strip()


def _named(columns: Sequence[str], groups: Sequence[Sequence[str]], *taken: str) -> str:
    """The one column with a name of the first group that has any; empty if there is none, or several."""
    plain = {column: re.sub(r"[\W_]", "", column.lower()) for column in columns if column not in taken}
    for group in groups:
        found = [column for column, name in plain.items() if name in group]
        if found:
            return found[0] if len(found) == 1 else ""
    return ""


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
