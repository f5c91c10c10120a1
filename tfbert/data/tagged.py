"""Sentences as lists of words, each with its tag: CoNLL, and JSON lines or Parquet whose rows hold lists of words.

`conll` and `rows` parse the files. The task decides what the tags mean.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from tfbert.data.columns import find_tag_columns
from tfbert.data.conll import CONLL_SUFFIXES, Sentence, Tags, has_conll_suffix, looks_like_conll, open_conll
from tfbert.data.files import check_text
from tfbert.data.rows import OpenFile, file_format, open_rows
from tfbert.errors import UsageError

_FORMATS = ("conll", "jsonl", "parquet")
_CONLL_SUFFIXES = (*CONLL_SUFFIXES, ".txt", ".tsv")


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
    """

    name: str
    words: list[list[str]]
    tags: list[list[str]] | None
    lines: Sequence[int]
    unit: str = "line"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.words)

    def where(self, row: int) -> str:
        """What messages call sentence `row`, counted from 0."""
        return f"{self.name}, {self.unit} {self.lines[row]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceFile:
    """A file whose columns are known and whose sentences have yet to be read, once.

    Attributes:
        name: What messages call it.
        format: `conll`, `jsonl` or `parquet`.
        columns: The columns' names; in CoNLL, indexes from 0.
        has_tags: Whether its sentences have tags.
        unit: What the sentences' positions count: `line` or `row`.
        read: Takes further columns (none in CoNLL), whose values become `others`. Iterates over the sentences
            (`ConllSentence` in CoNLL), with an error in place of each that cannot be read.
    """

    name: str
    format: str
    columns: list[str]
    has_tags: bool
    unit: str
    read: Callable[[Sequence[str]], Iterator[Sentence | UsageError]]


def sentence_format(path: pathlib.Path) -> str:
    """`conll`, `jsonl` or `parquet`, by a file's ending; all but .parquet may also end in .gz.

    Raises:
        UsageError: for another ending.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_gzip = suffixes[-1:] == [".gz"]
    suffix = "".join(suffixes[-2:-1] if is_gzip else suffixes[-1:])
    if suffix in _CONLL_SUFFIXES:
        return "conll"
    if suffix in (".jsonl", ".json") or (suffix == ".parquet" and not is_gzip):
        return file_format(path)
    raise UsageError(
        f"A file of tagged words ends in {', '.join(_CONLL_SUFFIXES)}, .jsonl, .json or .parquet, all but the last "
        f"also with .gz. Received: {str(path)!r}. Convert or rename it."
    )


def open_sentences(
    source: str | pathlib.Path | BinaryIO,
    *,
    format: str = "auto",
    text_column: Sequence[str] = (),
    label_column: str = "",
    tags: Tags = "none",
) -> SentenceFile:
    """Opens a file of sentences, to be read one by one in constant memory.

    Args:
        source: A path, or an open binary stream such as standard input.
        format: As `sentence_format` names it; `tsv` and `text` are CoNLL as well. `auto`: by the ending.
        text_column: The column of the words: a name, or an index from 0 in CoNLL. Empty: found by name; in CoNLL, the
            first.
        label_column: The column of the tags, in the same form. Empty: found by name; in CoNLL, the last.
        tags: Whether tags are required, may be absent, or are ignored.

    Raises:
        UsageError: for a file that cannot be read, or a column that does not exist or cannot be found.
    """
    source = pathlib.Path(source) if isinstance(source, str) else source
    if format == "auto":
        format = sentence_format(source) if isinstance(source, pathlib.Path) else ""
    format = {"tsv": "conll", "text": "conll"}.get(format, format)
    if format not in _FORMATS:
        what = f"input_format={format!r}" if format else "standard input without input_format"
        raise UsageError(
            f"Tagged words are read from {', '.join(_FORMATS)}. Received: {what}. Pass --input_format with one of them."
        )
    if format == "conll":
        file = open_conll(source, text_column=text_column, label_column=label_column, tags=tags)
        return SentenceFile(
            name=file.name,
            format=format,
            columns=[str(index) for index in range(file.num_columns)],
            has_tags=file.has_tags,
            unit="line",
            read=lambda others: file.sentences,
        )
    rows = open_rows(source, format)
    words, label = find_tag_columns(
        rows.name,
        rows.columns,
        text_column=text_column,
        label_column=label_column if tags != "none" else "",
        require_label=tags == "required",
    )
    label = label if tags != "none" else ""
    names = _class_names(source, label) if format == "parquet" and label else None
    return SentenceFile(
        name=rows.name,
        format=format,
        columns=rows.columns,
        has_tags=bool(label),
        unit=rows.unit,
        read=lambda others: sentences_of_rows(rows, words, label, names, others),
    )


def read_sentences(
    source: str | pathlib.Path | BinaryIO,
    *,
    format: str = "auto",
    text_column: Sequence[str] = (),
    label_column: str = "",
    require_label: bool = True,
    skip_bad_rows: bool = False,
) -> TaggedTable:
    """Reads a file of sentences whose words have tags.

    Args:
        source: As for `open_sentences`.
        format: As for `open_sentences`.
        text_column: As for `open_sentences`.
        label_column: As for `open_sentences`.
        require_label: Whether a file without tags is an error.
        skip_bad_rows: Leave out sentences that cannot be used, rather than stop at the first; a note counts them.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there or cannot be found, or a bad sentence.
    """
    file = open_sentences(
        source,
        format=format,
        text_column=text_column,
        label_column=label_column,
        tags="required" if require_label else "optional",
    )
    words, tags, lines = [], [], []
    num_bad, first_bad = 0, ""
    for sentence in file.read(()):
        if isinstance(sentence, UsageError):
            if not skip_bad_rows:
                raise UsageError(f"{sentence} Or pass --skip_bad_rows.")
            num_bad += 1
            first_bad = first_bad or str(sentence)
            continue
        words.append([sys.intern(word) for word in sentence.words])  # A file has few distinct words.
        tags.append(sentence.tags)
        lines.append(sentence.line)
    if not lines:
        received = f"none that can be used; the first: {first_bad}" if num_bad else "none. Check the path."
        raise UsageError(f"A data file needs at least one sentence. Received: {file.name!r} with {received}")
    skipped = f"{file.name}: {num_bad:,} of {len(lines) + num_bad:,} sentences skipped; the first: {first_bad}"
    return TaggedTable(
        name=file.name,
        words=words,
        tags=tags if file.has_tags else None,
        lines=lines,
        unit=file.unit,
        notes=(skipped,) if num_bad else (),
    )


def looks_tagged(
    path: pathlib.Path, *, format: str = "auto", text_column: Sequence[str] = (), label_column: str = ""
) -> bool:
    """Whether a file certainly holds words with tags: `looks_like_conll` says so, or the first row of JSON lines or
    Parquet has a list of strings in the column of words and another list in the column of tags.

    Args:
        path: The file.
        format: As the user named it; `auto`: by the ending.
        text_column: As for `open_sentences`.
        label_column: As for `open_sentences`.

    Returns:
        False also for a file that cannot be read: reading it later says why.
    """
    if format == "conll":
        return True
    try:
        format = sentence_format(path) if format == "auto" else format
        if format in ("conll", "tsv", "text"):
            is_by_name = not all(column.isdigit() for column in (*text_column, label_column) if column)
            return looks_like_conll(path) and not (is_by_name and not has_conll_suffix(path))
        rows = open_rows(path, format)
        columns = find_tag_columns(rows.name, rows.columns, text_column=text_column, label_column=label_column)
        _, first = next(rows.read(columns), (0, None))
        if not isinstance(first, Sequence):
            return False
        words, tags = first
        return isinstance(tags, list) and isinstance(words, list) and all(isinstance(word, str) for word in words)
    except UsageError:
        return False


def sentences_of_rows(
    rows: OpenFile, words: str, label: str, names: Sequence[str] | None, others: Sequence[str]
) -> Iterator[Sentence | UsageError]:
    """The sentences of a table with a list of words in each row; an error in place of each that cannot be read.

    Args:
        rows: Just opened.
        words: The column of the words.
        label: The column of the tags, names or ids; empty: tags are not read.
        names: The names of the ids; None: ids become text as they are.
        others: Further columns, whose values become `others`.
    """
    for line, row in rows.read([words, *([label] if label else []), *others]):
        where = f"{rows.name}, {rows.unit} {line}"
        try:
            if isinstance(row, UsageError):
                raise row
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
        raise UsageError(
            "Words must be a list of strings in each row. "
            f"Received: {column}={value!r:.60} in {where}. Repair or drop the row, or pass another --text_column."
        )
    if not value:
        raise UsageError(f"A sentence needs at least one word. Received: {column}=[] in {where}. Drop the row.")
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
        if type(tag) is int and tag >= 0:
            if names is not None and tag >= len(names):
                raise UsageError(
                    f"A tag's id must be one of the {len(names)} that the file names. "
                    f"Received: {tag} for {column!r} in {where}. Repair or drop the row."
                )
            tags.append(names[tag] if names is not None else sys.intern(str(tag)))
        elif isinstance(tag, str) and tag.strip():
            tags.append(sys.intern(tag.strip()))
        else:
            raise UsageError(
                "Every word needs a tag: a name, or an id from 0. "
                f"Received: {tag!r:.60} for {column!r} in {where}. Repair or drop the row."
            )
    check_text(" ".join(tags), column, where)
    return tags


def _class_names(path: pathlib.Path, column: str) -> tuple[str, ...] | None:
    """The names of a column's ids, where Hugging Face's `datasets` wrote them into the file's schema.

    It writes the type of a list of classes as `{"feature": {"names": [...]}}`; before 2022, `[{"names": [...]}]`.
    """
    from pyarrow import parquet

    try:
        value = json.loads((parquet.read_schema(path).metadata or {}).get(b"huggingface", b"null"))
        feature = value["info"]["features"][column]
        feature = feature[0] if isinstance(feature, list) else feature["feature"]
        names = feature["names"]
    except (KeyError, IndexError, TypeError, ValueError, RecursionError):
        return None
    is_names = isinstance(names, list) and names and all(isinstance(name, str) and name.strip() for name in names)
    return tuple(sys.intern(name.strip()) for name in names) if is_names else None
