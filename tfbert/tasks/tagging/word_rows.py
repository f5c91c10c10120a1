"""Tables with one word per row, as Kaggle's `ner_dataset.csv`: a column names the sentence, on each row or on the first
of its rows only; others hold the word and its tag."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.columns import in_data
from tfbert.data.files import RawTable, check_text
from tfbert.data.given_table import GivenTable
from tfbert.data.open_file import OpenFile
from tfbert.data.rows import open_rows
from tfbert.errors import UsageError
from tfbert.tasks.classes import hold_tags
from tfbert.tasks.tagging.conll import MOST_WORDS, Sentence, places_of
from tfbert.tasks.tagging.list_rows import tag_of
from tfbert.tasks.tagging.tag_forms import read_forms

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
