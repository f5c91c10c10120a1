"""Sentences as lists of words, each with its tag: CoNLL, and tables whose rows hold lists of words. Tables with a word
per row, as Kaggle's `ner_dataset.csv`, are refused.

Then their tags as they are usually written, in the scheme of a model. The task decides what they mean.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
import re
import sys
from collections.abc import Container, Iterator, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.config.types import counted
from tfbert.data.files import Table, check_text, find_tag_columns, in_data
from tfbert.data.labels import given_names, named_id, named_labels
from tfbert.data.reading import (
    OTHER_FORMATS,
    TEXTS,
    WORDS,
    BadRows,
    GivenTable,
    OpenFile,
    Unlabelled,
    plain,
    source_name,
)
from tfbert.data.rows import Source, file_format, open_rows, source_format
from tfbert.errors import UsageError
from tfbert.tasks.classes import quoted
from tfbert.tasks.token_classification import conll
from tfbert.tasks.token_classification.tags import (
    TagSequences,
    are_of_another_form,
    foreign_tag,
    form_of,
    look_like_types,
    must_be_entities,
)

_LOOKED_AT = 20
"""Rows by which a table of lists or texts is recognised."""
_SENTENCE = re.compile("(sentence|sent)(id|idx|index|no|nr|num|number)?|sid")
_WORD = re.compile("words?|tokens?|text|form")
"""Usual names of the columns of a table with one word per row, in small letters alone."""
_SAMPLE = 300  # Rows that decide whether cells are single words, of sentences of several rows.
_SINGLE = 0.9  # The least share of cells without a blank in them.


def words_in_rows(source: Source, config: DataConfig) -> str:
    """The column of words of what certainly is a table with one word per row: another has the name of a sentence,
    hardly a word holds a blank, and sentences have several rows. Empty for another file.

    Args:
        source: As for `open_sentences`. A stream or a pipe can be read only once: it is none.
        config: As for `open_sentences`.
    """
    is_given = isinstance(source, GivenTable)
    if not (is_given and not source.kinds) and not (isinstance(source, pathlib.Path) and source.is_file()):
        return ""  # Data sets have lists.
    try:
        is_named = not is_given and config.input_format not in ("auto", "conll")
        format = config.input_format if is_named else file_format(source, TEXTS)
        options = {"format": "tsv" if format == "text" else format, "delimiter": "" if is_given else config.separator}
        columns = open_rows(source, **options).columns
        short = {column: re.sub(r"[\W_]", "", column.lower()) for column in columns}
        words = in_data(config.text_column, columns) or [column for column in columns if _WORD.fullmatch(short[column])]
        names = [column for column in columns if _SENTENCE.fullmatch(short[column])]
        for word, name in itertools.product(words, names):
            rows = itertools.islice(open_rows(source, **options).read([name, word]), _SAMPLE)
            found = [row for _, row in rows if not isinstance(row, UsageError)]
            are_single = sum(isinstance(cell, str) and " " not in cell.strip() for _, cell in found)
            sentences = ["" if plain(own) is None else str(own).strip() for own, _ in found]
            goes_on = any(not b or a == b for a, b in itertools.pairwise(sentences))
            if word != name and goes_on and are_single >= _SINGLE * len(found):
                return word
    except UsageError:  # Reading it in another form says what is wrong.
        pass
    return ""


def sentences_of_rows(
    rows: OpenFile, words: str, label: str, others: Sequence[str]
) -> Iterator[conll.Sentence | UsageError]:
    """The sentences of a table with a list of words in each row; an error in place of each that cannot be read.

    A word may be all blanks, as in data sets that keep line ends as words, but not empty.

    Args:
        rows: Just opened.
        words: The column of the words.
        label: The column of the tags, names or ids; empty: tags are not read.
        others: Further columns, whose values become `others`.
    """
    names, labels = rows.label_names.get(label), [label] if label else []
    for line, row in (rows.without_rejected() if label else rows).read([words, *labels, *others]):
        where = f"{rows.name}, {rows.unit} {line}"
        try:
            if isinstance(row, UsageError):
                raise row
            found, *rest = row
            if not isinstance(found, list) or not all(isinstance(word, str) and word for word in found):
                raise UsageError(
                    "Words must be a list of strings in each row, none of them empty. "
                    f"Received: {words}={found!r:.60} in {where}. Repair or drop the row, or pass another "
                    f"--text_column; for a text that is not cut into words, {OTHER_FORMATS}."
                )
            if not found:
                rule = "A sentence needs at least one word"
                raise Unlabelled(f"{rule}. Received: {words}=[] in {where}. Drop the row.", "empty")
            check_text(" ".join(found), words, where)
            tags = None
            if label:
                tags = rest.pop(0)
                if not isinstance(tags, list) or len(tags) != len(found):
                    rule = "Tags must be a list of names or ids in each row, one for each word"
                    received = f"{label}={tags!r:.60} for {counted(len(found), 'word')} in {where}"
                    todo = "Repair or drop the row, or pass another --label_column."
                    raise UsageError(f"{rule}. Received: {received}. {todo}")
                tags = [_tag_text(tag, label, names, where) for tag in tags]
            yield conll.Sentence(line=line, words=found, tags=tags, others=rest)
        except UsageError as error:
            yield error


def _tag_text(tag: Any, column: str, names: Sequence[str] | None, where: str) -> str:
    """A tag as text: ids by their names, where there are any."""
    if names is not None and tag != -1:  # Which a data set writes where labels are held back.
        tag = named_id(tag, names, column, where)
    if type(tag) is int and tag >= 0:
        return sys.intern(str(tag))
    if isinstance(tag, str) and tag.strip():
        return sys.intern(check_text(tag, column, where).strip())
    kind = Unlabelled if tag is None or type(tag) is int else UsageError
    raise kind(
        "Every word needs a tag: a name, or an id from 0. "
        f"Received: {tag!r:.60} for {column!r} in {where}. Repair or drop the row."
    )


_BY_NAME = DataConfig()
_LONG_SENTENCE = 300  # Words of the only sentence of a file: the file may lack what ends one.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedTable(Table):
    """Sentences and tags, a row each.

    Attributes:
        words: The words of each sentence, at least one.
        tags: One per word. Ids are text, or names where the file has the names of ids.
    """

    per_row = ("words", "tags")
    words: list[list[str]]
    tags: list[list[str]]

    def __len__(self) -> int:
        return len(self.words)


def open_sentences(source: Source, config: DataConfig = _BY_NAME, *, with_tags: bool = False) -> conll.SentenceFile:
    """Opens a file of sentences, to be read one by one in constant memory.

    Args:
        source: A path, an open binary stream such as standard input, or a table in memory.
        config: Its format, one of `WORDS`; `tsv` and `text` are CoNLL as well. Its columns of words and tags: names, or
            indexes from 0 in CoNLL, where the first and the last are the usual ones.
        with_tags: Whether tags are read, and required.

    Raises:
        UsageError: for a file that cannot be read, or a column that does not exist or cannot be found.
    """
    source = pathlib.Path(source) if isinstance(source, str) else source
    is_given = isinstance(source, GivenTable)
    name = source.name if is_given else source_name(source)
    if column := words_in_rows(source, config):
        raise UsageError(
            "A row holds a sentence, as a list of its words and a list of their tags. "
            f"Received: {name} with one word per row, in {column!r}. Write the sentences as lists: {OTHER_FORMATS}; or "
            "pass --task=classification if each word is an example."
        )
    if config.delimiter and not is_given:
        rule = "A delimiter is of tables; CoNLL has tabs or spaces between its columns"
        raise UsageError(f"{rule}. Received: delimiter={config.separator!r}. Drop --delimiter.")
    format = source_format(source, config, WORDS, "")
    format = {"tsv": "conll", "text": "conll"}.get(format, format)
    if format not in WORDS:
        what = f"input_format={format!r}" if format else "standard input without input_format"
        todo = f"Pass --input_format with one of them; for another form, {OTHER_FORMATS}."
        raise UsageError(f"Tagged words are read from {', '.join(WORDS)}. Received: {what}. {todo}")
    text_column, label_column = config.text_column, config.label_column if with_tags else ""
    if format == "conll":
        return conll.open_conll(source, text_column=text_column, label_column=label_column, with_tags=with_tags)
    rows = open_rows(source, format)
    words, label = find_tag_columns(rows, text_column, label_column, require_label=with_tags)
    label = label if with_tags else ""
    return conll.SentenceFile(
        name=rows.name,
        format=format,
        columns=rows.columns,
        unit=rows.unit,
        read=lambda others: sentences_of_rows(rows, words, label, others),
        chosen={"text_column": (words,), "label_column": (label,) if label else ()},
    )


def read_sentences(source: Source, config: DataConfig = _BY_NAME) -> TaggedTable:
    """Reads a file of sentences whose words have tags, named as the `label_names` of the options name them.

    Args:
        source: As for `open_sentences`.
        config: As for `open_sentences`; and whether sentences that cannot be used are left out, and counted.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there or cannot be found, or a bad sentence.
    """
    if not config.header:
        raise UsageError(f"Files of tagged words have no header. Received: header={config.header}. Drop --noheader.")
    file = open_sentences(source, config, with_tags=True)
    words, tags, lines = [], [], []
    bad_rows = BadRows(config.skip_bad_rows, is_data_set=isinstance(source, GivenTable) and bool(source.kinds))
    for sentence in bad_rows.usable(enumerate(file.read(())), lambda number, sentence: sentence):
        words.append([sys.intern(word) for word in sentence.words])  # A file has few distinct words.
        tags.append(sentence.tags)
        lines.append(sentence.line)
    skipped = bad_rows.skipped(file.name, len(lines), "sentence", "sentences")
    notes = list(file.notes())
    if len(lines) == 1 and len(words[0]) >= _LONG_SENTENCE:
        notes.append(f"warning: {file.name}: one sentence of {len(words[0]):,} words; a blank line ends a sentence")
    if names := given_names(config):
        distinct = dict.fromkeys(tag for own in tags for tag in own)

        def where(tag: str) -> str:
            return f"{file.name}, {file.unit} {next(n for n, own in zip(lines, tags, strict=True) if tag in own)}"

        written = named_labels(distinct, names, where)
        tags = [[written[tag] for tag in own] for own in tags]
    return TaggedTable(
        name=file.name,
        words=words,
        tags=tags,
        lines=lines,
        unit=file.unit,
        notes=(*notes, *skipped),
        columns=file.chosen,
    )


def holds_words(path: pathlib.Path | GivenTable, config: DataConfig = _BY_NAME, *, with_tags: bool = True) -> bool:
    """Whether a file certainly holds sentences that are split into words: `looks_like_conll` says so; it is a table
    with one word per row, which is refused when it is opened; or one of the first rows of JSON lines or Parquet has a
    list of strings in the column of words and another list in the column of tags.

    Args:
        path: The file, or a table in memory.
        config: As for `open_sentences`.
        with_tags: Whether it must have tags, and so can be for no other task than tagging.

    Returns:
        False also for a file that cannot be read: reading it later says why.
    """
    if config.input_format == "conll" and not isinstance(path, GivenTable):
        return True
    try:
        if words_in_rows(path, config):
            return True
        format = source_format(path, config, WORDS)
        if format in ("conll", "tsv", "text"):
            return conll.looks_like_conll(path, text_column=config.text_column, label_column=config.label_column)
        rows = open_rows(path, format)
        words, label = find_tag_columns(rows, config.text_column, config.label_column, require_label=with_tags)
        if rows.kinds:
            return words in rows.of_kinds("texts")
        for _, row in itertools.islice(rows.read([words, label] if with_tags else [words]), _LOOKED_AT):
            if isinstance(row, list) and all(isinstance(cell, list) for cell in row):
                num_texts = sum(len(str(word).split()) > 1 for word in row[0])  # In a batch of texts with labels, most.
                if all(isinstance(word, str) for word in row[0]) and 2 * num_texts <= len(row[0]):
                    return True
    except UsageError:
        pass
    return False


def in_usual_form(
    table: TaggedTable, notes: list[str], *, model_has_entities: bool = True, known: Container[str] = ()
) -> TaggedTable:
    """The same table with entity tags as they are usually written: a bare `B` becomes `B-ENTITY`. Other tags stay as
    they are.

    Args:
        table: As it was written.
        notes: Receives what was changed, and a warning about tags that look like entity tags but stay.
        model_has_entities: Whether the model's tags are entity tags. If not, tags stay as they are.
        known: Tags that are classes although they are no entity tags: the model's own.

    Raises:
        UsageError: for entity tags of another form, and for a few tags that are none among many that are.
    """
    counts = collections.Counter(itertools.chain.from_iterable(table.tags))
    own, others = form_of(counts)
    if foreign := foreign_tag(counts, known):
        row = next(row for row, tags in enumerate(table.tags) if foreign in tags)
        word = table.tags[row].index(foreign)
        kinds = sum(tag not in known for tag in others)
        raise UsageError(
            f"Where tags have prefixes, such as {next(iter(own))}, all but O have one. Received: {quoted(foreign)} for "
            f"{quoted(table.words[row][word])} in word {word + 1} of {table.where(row)}; such tags are {kinds:,}, of "
            f"{sum(others.values()):,} words, beside {sum(own.values()):,} words with a prefix. "
            "Correct the tag, or delete the line if it is no word."
        )
    are_entities, is_foreign_form = must_be_entities(own, counts), are_of_another_form(counts)
    tags = ", ".join([quoted(tag) for tag in counts if tag != "O"][:4])
    if is_foreign_form and model_has_entities:
        rule = "Entity tags are written as B-PER, I-PER and O"
        raise UsageError(f"{rule}. Received: {tags} in {table.name}. Write them so: {OTHER_FORMATS}.")
    is_bare, letters = all(len(tag) == 1 for tag in own), {tag[0] for tag in own}
    if are_entities and not others and model_has_entities:
        if not is_bare:
            return table
        example = next(iter(own))
        notes.append(f"{table.name}: tags are written as {example}, read as {example}-ENTITY")
        usual = {tag: tag if tag == "O" else f"{tag}-ENTITY" for tag in counts}
        return dataclasses.replace(table, tags=[[usual[tag] for tag in tags] for tags in table.tags])
    is_doubtful = are_entities and (letters >= {"B", "I"} or (is_bare and not others))
    if is_doubtful or is_foreign_form or look_like_types(counts):
        are_ids = all(map(str.isdigit, counts))
        todo = "name them with --label_names=O,B-PER,..." if are_ids else "write them as B-PER, I-PER, and O elsewhere"
        notes.append(
            f"warning: {table.name}: these look like entity tags ({tags}), but each is a class of words: whole "
            f"entities are not counted; for that, {todo}"
        )
    return table


def in_scheme(target: str, table: TaggedTable, notes: list[str], *, strict: bool = False) -> list[list[str]]:
    """A table's tags in the scheme of a model; as written where they have no prefixes, or the model's have none.

    Args:
        target: The model's scheme, as `scheme_of_model` returns it.
        table: As it was written.
        notes: Receives the scheme that was found, and tags that cannot stand where they do.
        strict: Refuse such tags.

    Raises:
        UsageError: if `strict`, for a tag that cannot stand where it does in its scheme.
    """
    found = TagSequences(table.tags)
    what = "have no prefixes" if found.scheme == "none" else f"are {found.scheme}"
    is_converted = "none" not in (found.scheme, target) and target != found.scheme
    converted = f", converted to {target}" if is_converted else ""
    notes.append(f"{table.name}: tags {what}{found.doubt}{converted}")
    if invalid := found.invalid():
        sentence, what = invalid
        if strict:
            rule = "With strict_entities, every tag must be able to follow the one before"
            received = f"{what} in the sentence of {table.where(sentence)}"
            raise UsageError(f"{rule}. Received: {received}. Correct them, or drop --strict_entities.")
        notes.append(
            f"warning: {table.name}: {what} in the sentence of {table.unit} {table.lines[sentence]}: each starts an "
            "entity, as for conlleval"
        )
    # In IOB2, what cannot stand where it does is written as the entity that it starts.
    is_written = is_converted or found.scheme == target == "IOB2"
    return found.written_in(target) if is_written else table.tags
