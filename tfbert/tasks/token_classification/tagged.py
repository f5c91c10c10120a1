"""Sentences as lists of words, each with its tag: CoNLL; tables whose rows hold lists of words; and tables with a word
per row, as Kaggle's `ner_dataset.csv`: a column names the sentence, on each row or on the first of its rows only,
others hold the word and its tag.

Then their tags as they are usually written, in the scheme of a model. The task decides what they mean.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import pathlib
import re
import sys
from collections.abc import Container, Iterator, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.files import Table, check_text, find_tag_columns, in_data
from tfbert.data.labels import given_names, named_labels
from tfbert.data.reading import (
    CONLL_ENDINGS,
    OTHER_FORMATS,
    WORDS,
    BadRows,
    GivenTable,
    OpenFile,
    Row,
    Unlabelled,
    ending_of,
)
from tfbert.data.rows import Source, file_format, open_rows
from tfbert.errors import UsageError
from tfbert.tasks.classes import quoted
from tfbert.tasks.token_classification import conll
from tfbert.tasks.token_classification.tags import (
    are_of_another_form,
    invalid_transitions,
    look_like_types,
    read_forms,
    scheme_of,
    to_scheme,
)

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


def _are_word_rows(file: OpenFile, columns: WordColumns) -> bool:
    """Whether a table, just opened, certainly has one word per row: hardly a cell of words holds a blank, and sentences
    have several rows."""
    rows = [row for _, row in itertools.islice(file.read([columns.sentence, columns.word]), _SAMPLE)]
    rows = [row for row in rows if not isinstance(row, UsageError)]
    words = [word.strip() for _, word in rows if isinstance(word, str)]
    if len(words) < len(rows) or sum(" " not in word for word in words) < _SINGLE * len(words):
        return False
    return any(not b or a == b for a, b in itertools.pairwise(_name(name) for name, _ in rows))


def sentences_of_words(
    file: OpenFile, columns: WordColumns, others: Sequence[str]
) -> Iterator[conll.Sentence | UsageError]:
    """The sentences of a table; an error in place of each that cannot be read.

    A sentence begins where another name is in its column, and after a row of blanks. Names that come back are an error.

    Args:
        file: Just opened.
        columns: Its columns; without `tag`, sentences have no tags.
        others: Further columns, whose values in a sentence's first row become its `others`.
    """
    wanted = [columns.sentence, columns.word, *([columns.tag] if columns.tag else [])]
    names, name = set(), ""
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
            if name in names:
                problem = UsageError(
                    "The words of a sentence must be in rows that follow one another. Received: "
                    f"{columns.sentence}={own!r:.60} again in {file.name}, {file.unit} {line}. "
                    f"Sort the rows, or give each sentence a name of its own: {OTHER_FORMATS}."
                )
            names.add(name)
        if len(rows) <= conll.MOST_WORDS:
            rows.append((line, row))
    if rows:
        yield problem or _sentence(file, columns, rows)


def _sentence(file: OpenFile, columns: WordColumns, rows: list[tuple[int, Any]]) -> conll.Sentence | UsageError:
    if len(rows) > conll.MOST_WORDS:
        return UsageError(
            f"A sentence has at most {conll.MOST_WORDS:,} words. Received: more rows of one sentence in {file.name}, "
            f"from {file.unit} {rows[0][0]}. Name each sentence in its first row."
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
    return conll.Sentence(
        line=rows[0][0],
        words=words,
        tags=tags if columns.tag else None,
        others=rows[0][1][2 + bool(columns.tag) :],
        places=conll.places_of([line for line, _ in rows]),
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


def sentences_of_rows(
    rows: OpenFile, words: str, label: str, names: Sequence[str] | None, others: Sequence[str]
) -> Iterator[conll.Sentence | UsageError]:
    """The sentences of a table with a list of words in each row; an error in place of each that cannot be read.

    Args:
        rows: Just opened.
        words: The column of the words.
        label: The column of the tags, names or ids; empty: tags are not read.
        names: The names of the ids; None: ids become text as they are.
        others: Further columns, whose values become `others`.
    """
    for line, row in (rows.without_rejected() if label else rows).read([words, *([label] if label else []), *others]):
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
            yield conll.Sentence(line=line, words=found, tags=tags, others=row[1 + bool(label) :])
        except UsageError as error:
            yield error


def _check_words(value: Any, column: str, where: str) -> list[str]:
    """Checks a list of words. A word may be all blanks, as in data sets that keep line ends as words, but not empty."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(
            "Words must be a list of strings in each row. "
            f"Received: {column}={value!r:.60} in {where}. Repair or drop the row, or pass another --text_column; for "
            f"a text that is not cut into words, {OTHER_FORMATS}."
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


_BY_NAME = DataConfig()
_LONG_SENTENCE = 300  # Words of the only sentence of a file: the file may lack what ends one.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedTable(Table):
    """Sentences and tags, a row each.

    Attributes:
        words: The words of each sentence, at least one.
        tags: One per word. Ids are text, or names where the file has the names of ids.
        places: The line, or row, of each word of each sentence; None where a sentence has only one.
    """

    words: list[list[str]]
    tags: list[list[str]]
    places: list[Sequence[int]] | None = None

    def __len__(self) -> int:
        return len(self.words)

    def where_word(self, row: int, word: int) -> str:
        """What messages call a word of sentence `row`, both counted from 0."""
        if self.places is None:
            return f"word {word + 1} of {self.where(row)}"
        return f"{self.name}, {self.unit} {self.places[row][word]}"


def open_sentences(source: Source, config: DataConfig = _BY_NAME, tags: conll.Tags = "none") -> conll.SentenceFile:
    """Opens a file of sentences, to be read one by one in constant memory.

    A table with one word per row is found by its columns' names and its first rows.

    Args:
        source: A path, an open binary stream such as standard input, or a table in memory.
        config: Its format, one of `WORDS`; `tsv` and `text` are CoNLL as well, but where a table has one
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
    if table := _table(source, config, tags):
        return table
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
        return conll.open_conll(source, text_column=text_column, label_column=label_column, tags=tags)
    rows = open_rows(source, format)
    if format == "csv":
        found = find_word_columns(rows.columns, text_column, label_column)
        if found is None:
            raise UsageError(
                "A CSV file of tagged words has one word per row: a column that names the sentence, such as "
                "sentence_id, one of words and one of tags. "
                f"Received: {rows.name} with {', '.join(map(repr, rows.columns[:20]))}. "
                "Name each word's sentence in its row, and words and tags of other names by --text_column and "
                f"--label_column; for another form, {OTHER_FORMATS}."
            )
        return _of_word_rows(rows, found, tags)
    words, label = find_tag_columns(rows, text_column, label_column, require_label=tags == "required")
    label = label if tags != "none" else ""
    names = rows.label_names.get(label)
    return conll.SentenceFile(
        name=rows.name,
        format=format,
        columns=rows.columns,
        has_tags=bool(label),
        unit=rows.unit,
        read=lambda others: sentences_of_rows(rows, words, label, names, others),
        chosen={"text_column": (words,), "label_column": (label,) if label else ()},
    )


def read_sentences(source: Source, config: DataConfig = _BY_NAME) -> TaggedTable:
    """Reads a file of sentences whose words have tags.

    Args:
        source: As for `open_sentences`.
        config: As for `open_sentences`; and whether sentences that cannot be used are left out, and counted.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there or cannot be found, or a bad sentence.
    """
    file = open_sentences(source, config, "required")
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
        tags=tags,
        lines=lines,
        unit=file.unit,
        notes=(*notes, *skipped),
        places=places if all(places) else None,
        columns=file.chosen,
    )


def holds_tags(path: pathlib.Path | GivenTable, config: DataConfig = _BY_NAME) -> bool:
    """Whether a file can be for no other task than tagging: `looks_like_conll` says so; it is a table with one word per
    row; or one of the first rows of JSON lines or Parquet has a list of strings in the column of words and another list
    in the column of tags.

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
        table = _table(path, config, "optional")
        if table is not None or format == "csv":
            return table is not None and table.has_tags
        if format in ("conll", "tsv", "text"):
            return conll.looks_like_conll(path, text_column=config.text_column, label_column=config.label_column)
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
    return _table(path, dataclasses.replace(config, label_column=""), "none") is not None


def _format(source: Source, config: DataConfig) -> str:
    """As `file_format` has it; empty for a stream of which nobody says it."""
    if config.input_format != "auto":
        return config.input_format
    return file_format(source, WORDS) if isinstance(source, pathlib.Path | GivenTable) else ""


def _table(source: Source, config: DataConfig, tags: conll.Tags) -> conll.SentenceFile | None:
    """A table that certainly has one word per row, just opened; None for another file."""
    if not (format := _table_format(source, _format(source, config))):
        return None

    def opened() -> OpenFile:
        return open_rows(source, format, delimiter=config.separator)

    try:
        columns = find_word_columns(opened().columns, config.text_column, config.label_column)
        if columns is None or not _are_word_rows(opened(), columns):
            return None
    except UsageError:  # Reading it in another form says what is wrong.
        return None
    return _of_word_rows(opened(), columns, tags)


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


def _of_word_rows(file: OpenFile, columns: WordColumns, tags: conll.Tags) -> conll.SentenceFile:
    if tags == "none":
        columns = dataclasses.replace(columns, tag="")
    if tags == "required" and not columns.tag:
        raise UsageError(
            "No column looks like the tags, or several do. "
            f"Received: {file.name} with columns {', '.join(map(repr, file.columns[:20]))}. Pass --label_column."
        )
    tagged = f" and its tag in {columns.tag!r}" if columns.tag else ""
    note = f"{file.name}: each row holds a word, in {columns.word!r}{tagged}, of the sentence in {columns.sentence!r}"
    return conll.SentenceFile(
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


def read_named(source: Source, config: DataConfig) -> TaggedTable:
    """The sentences that an option names, their tags as its `label_names` name them."""
    if not config.header:
        raise UsageError(
            "Files of tagged words have no header, or must have one where each row holds a word. "
            f"Received: header={config.header}. Drop --noheader."
        )
    table, names = read_sentences(source, config), given_names(config)
    if not names:
        return table
    distinct = dict.fromkeys(tag for tags in table.tags for tag in tags)

    def where(tag: str) -> str:
        return table.where(next(row for row, tags in enumerate(table.tags) if tag in tags))

    written = named_labels(distinct, names, where)
    return dataclasses.replace(table, tags=[[written[tag] for tag in tags] for tags in table.tags])


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
    reading = read_forms(counts)
    if reading is not None and (foreign := reading.foreign(known)):
        row = next(row for row, tags in enumerate(table.tags) if foreign in tags)
        word = table.tags[row].index(foreign)
        kinds, words = sum(tag not in known for tag in reading.others), sum(reading.others.values())
        fitting = sum(reading.words.values())
        where = table.where_word(row, word)
        raise UsageError(
            f"Where tags have prefixes, such as {reading.example}, all but O have one. "
            f"Received: {quoted(foreign)} for {quoted(table.words[row][word])} in {where}; "
            f"such tags are {kinds:,}, of {words:,} words, beside {fitting:,} words with a prefix. "
            "Correct the tag, or delete the line if it is no word."
        )
    tags = ", ".join([quoted(tag) for tag in counts if tag != "O"][:4])
    if are_of_another_form(counts) and model_has_entities:
        raise UsageError(
            f"Entity tags are written as B-PER, I-PER and O. Received: {tags} in {table.name}. "
            f"Write them so: {OTHER_FORMATS}."
        )
    is_bare = reading is not None and reading.is_certain and reading.is_bare
    if reading is not None and reading.is_certain and model_has_entities:
        if not is_bare:
            return table
        notes.append(f"{table.name}: tags are written as {reading.example}, read as {reading.example}-ENTITY")
        usual = {tag: tag if tag == "O" else f"{tag}-ENTITY" for tag in counts}
        return dataclasses.replace(table, tags=[[usual[tag] for tag in tags] for tags in table.tags])
    is_mixed = reading is not None and reading.is_plausible and reading.letters >= {"B", "I"}
    if is_bare or is_mixed or are_of_another_form(counts) or look_like_types(counts):
        todo = (
            "name them with --label_names=O,B-PER,..."
            if all(map(str.isdigit, counts))
            else "write them as B-PER and I-PER, and O elsewhere"
        )
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
    scheme = scheme_of(table.tags)
    what = f"are {scheme.name}" if scheme.has_entities else "have no prefixes"
    is_converted = scheme.has_entities and target not in (scheme.name, "none")
    converted = f", converted to {target}" if is_converted else ""
    notes.append(f"{table.name}: tags {what}{scheme.doubt}{converted}")
    bad = invalid_transitions(table.tags, scheme)
    if bad is not None:
        sentence, what = bad
        if strict:
            raise UsageError(
                "With strict_entities, every tag must be able to follow the one before. "
                f"Received: {what} in the sentence of {table.where(sentence)}. Correct them, or drop --strict_entities."
            )
        notes.append(
            f"warning: {table.name}: {what} in the sentence of {table.unit} {table.lines[sentence]}: each starts an "
            "entity, as for conlleval"
        )
    # In IOB2, what cannot stand where it does is written as the entity that it starts.
    is_written = is_converted or scheme.name == target == "IOB2"
    return to_scheme(table.tags, scheme, target) if is_written else [list(tags) for tags in table.tags]
