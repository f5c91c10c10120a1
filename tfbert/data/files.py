"""Files of examples -> texts and labels as written. Every error names the file and the line.

`rows` parses the files; the task decides what a label means.

Finds the columns of the text and the label, or of the words and their tags: those the user names, or else those with
usual names.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import itertools
import json
import tokenize
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.config.types import Recorded
from tfbert.data.labels import label_text, named_id
from tfbert.data.reading import OTHER_FORMATS, VALUES, BadRows, OpenFile, check_unicode
from tfbert.data.rows import Source, open_source
from tfbert.errors import UsageError

TEXT_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("question", "passage"),
    ("text", "text_pair"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("#1 string", "#2 string"),
)
"""Names of two columns that hold a pair, as in GLUE, SNLI, BoolQ and Hugging Face."""
TEXT_NAMES = ("text", "sentence", "content", "review", "review_body", "comment", "comment_text", "tweet")
TEXT_NAMES += ("document", "description")
LABEL_NAMES = (
    ("label",),
    ("labels", "gold_label", "class", "target", "sentiment", "score", "category", "is_duplicate", "quality"),
)
"""Usual names of the label's column; a plain `label` wins over all others."""
WORDS_NAMES = (("tokens", "words"), ("text",))
"""Usual names of a column whose rows are lists of words, the preferred first: `text` is often the unsplit sentence."""
TAGS_NAMES = (("ner_tags",), ("tags", "labels", "label", "ner", "ner_labels"), ("pos_tags", "upos", "pos"))
"""Usual names of a column whose rows are lists of tags, the preferred first."""
RENAME = "Columns of one name cannot be told apart: rename all but one, or drop them"
"""What to do about them: no option could name one."""
UNLABELLED = "; data without labels is for --mode=predict"
"""The rest of what to do, where the labels' column is missing."""


def named_by_user(*columns: str) -> tuple[str, ...]:
    """Those of these columns that a user named, rather than the training of a saved model."""
    return tuple(column for column in columns if column and not isinstance(column, Recorded))


def in_data(asked: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Columns as a user named them; those of a saved model's training only where all of them are there, in any case.

    Args:
        asked: The columns, all named by one or the other; empty for none.
        columns: Those of the data.
    """
    if named_by_user(*asked):
        return tuple(asked)
    folded = {_folded(column): column for column in reversed(columns)} | {column: column for column in columns}
    found = tuple(folded.get(str(column), folded.get(_folded(column), "")) for column in asked)
    return found if all(found) else ()


def _folded(column: str) -> str:
    return column.strip().casefold()


def about_columns(name: str, found: Mapping[str, Sequence[str]], asked: Mapping[str, Sequence[str]]) -> list[str]:
    """A line about the columns that are read where no user named them.

    Args:
        name: What messages call the data.
        found: The columns that are read, by the options that name them.
        asked: What these options hold.
    """
    own = {option: asked.get(option, ()) for option in found if not named_by_user(*asked.get(option, ()))}
    columns = [column for option in own for column in found[option]]
    trained = [column for option in own for column in own[option] if column]
    lacking = [str(column) for column in trained if _folded(column) not in map(_folded, columns)]
    if not columns and not lacking:
        return []
    read = f"{name}: reading {' and '.join(map(repr, columns)) or 'the usual columns'}"
    if lacking:
        there = "which is not there" if len(lacking) == 1 else "which are not there"
        there = there if columns else "which is not there, or holds something else"  # Of CoNLL, by its index.
        return [f"warning: {read}; the model was trained on {' and '.join(map(repr, lacking))}, {there}"]
    return [f"{read}, as in training" if trained else f"{read}, found by name"]


class Finder:
    """The columns of a table by what they hold: those that the user names, or else those with usual names.

    Args:
        name: What messages call the data.
        columns: All columns there are.
        hint: What else the user can try, for error messages.
        todo: What to do instead of naming a column; empty: name it.
        asked: The columns as the user names them, by option.

    Attributes:
        asked: Those that are read, by option.
        usual: All others, by their names in lower case.

    Raises:
        UsageError: when a named column is absent, or there twice.
    """

    def __init__(self, name: str, columns: Sequence[str], *, hint: str = "", todo: str = "", **asked: Sequence[str]):
        trained = [repr(str(one)) for wanted in asked.values() for one in wanted if isinstance(one, Recorded)]
        about = f" Training reads {' and '.join(trained)}." if trained else ""
        shown = [f"{column[:37]}..." if len(column) > 40 else column for column in columns[:20]]
        listed = ", ".join(map(repr, shown)) + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
        self._has, self._hint, self._todo = f"Received: {name} with columns {listed}.{about}", hint, todo
        self.asked = {option: in_data(wanted, columns) for option, wanted in asked.items()}
        taken = {column: option for option, wanted in self.asked.items() for column in wanted}
        for column, option in taken.items():
            rule = f"{option}={column!r} is "
            if column not in columns:
                way_out = f"Pass --{option} with one of them{hint}{_about_labels(option)}"
                raise UsageError(f"{rule}not in the data. {self._has} {way_out}.")
            if columns.count(column) > 1:
                raise UsageError(f"{rule}in the data twice. {self._has} {RENAME}.")
        self.usual: dict[str, list[str]] = {}
        for column in columns:
            if column not in taken:
                self.usual.setdefault(column.strip().lower(), []).append(column)

    def one_of(self, what: str, option: str, groups: Iterable[Sequence[str]], taken: Sequence[str] = ()) -> str:
        """The column with a name of the first group of which there is any; empty for none.

        Args:
            what: What it holds, for messages.
            option: Which option names it.
            groups: Usual names, the preferred first.
            taken: Columns that hold something else.

        Raises:
            UsageError: where several could be meant.
        """
        for names in groups:
            found = [(name,) for name in names if any(own not in taken for own in self.usual.get(name, ()))]
            if found:
                return self.the_one(what, option, found)[0]
        return ""

    def the_one(self, what: str, option: str, found: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """The columns of the only candidate, a name or two.

        Raises:
            UsageError: for none or several, or a name that several columns have.
        """
        if not found:
            raise self.none(f"the {what}", option)
        columns = [column for names in found for name in names for column in self.usual[name]]
        if len(found) > 1 or len(columns) != len(found[0]):
            way_out = RENAME if len({*columns}) < len(columns) else self._todo or f"Pass --{option}"
            raise UsageError(f"{' and '.join(columns)} all look like the {what}. {self._has} {way_out}.")
        return tuple(columns)

    def label(
        self, what: str, groups: Iterable[Sequence[str]], taken: Sequence[str], *, is_required: bool, rule: str = ""
    ) -> str:
        """The column of the label, as for `one_of`; where none is required, empty for none or several.

        Raises:
            UsageError: for none or several, where one is required; `rule` is added to what it would hold.
        """
        label = "".join(self.asked["label_column"])
        try:
            label = label or self.one_of(what, "label_column", groups, taken)
        except UsageError:
            if is_required:
                raise
        if not label and is_required:
            raise self.none(f"the {what}{rule}", "label_column")
        return label

    def none(self, what: str, option: str) -> UsageError:
        """The error where no column could be meant."""
        todo = self._todo or f"Pass --{option}{self._hint}{_about_labels(option)}"
        return UsageError(f"No column looks like {what}. {self._has} {todo}; for another form, {OTHER_FORMATS}.")


def _about_labels(option: str) -> str:
    return UNLABELLED if option == "label_column" else ""


def check_different(*columns: str) -> None:
    """Refuses columns that are read as two things.

    Raises:
        UsageError: naming them.
    """
    if len({*columns}) != len(columns):
        received = ", ".join(map(repr, columns))
        raise UsageError(f"What is read must be different columns. Received: {received}. Pass different ones.")


def find_columns(
    file: OpenFile,
    text_column: Sequence[str] = (),
    label_column: str = "",
    *,
    columns: Sequence[str] | None = None,
    require_label: bool = True,
    find_label: bool = True,
) -> tuple[tuple[str, ...], str]:
    """Decides which columns hold the text (one, or two for pairs) and the label (`""`: none).

    Args:
        file: Just opened. Of a data set, the columns are values, and the only text and the only class, whatever they
            are called.
        text_column: As the user named it. Empty: found by name.
        label_column: As the user named it. Empty: found by name.
        columns: Those that may be read, found by name alone. None: as above.
        require_label: Whether it is an error if no column, or more than one, could be the label.
        find_label: Whether to look for a label column by name. If not, only `label_column` counts.

    Raises:
        UsageError: when a named column is absent, or when no column or more than one looks right.
    """
    if columns is None:
        columns = file.of_kinds(*VALUES)
        text_column = in_data(text_column, columns) or file.only("text") or text_column
        label_column = next(iter(in_data([label_column], columns) or file.only("class")), label_column)
    found = Finder(file.name, columns, hint=file.hint, text_column=text_column, label_column=[label_column])
    texts, label = found.asked["text_column"], "".join(found.asked["label_column"])
    if not texts:
        pairs = [pair for pair in TEXT_PAIRS if all(part in found.usual for part in pair)]
        in_pairs = {part for pair in pairs for part in pair}
        singles = [(single,) for single in TEXT_NAMES if single in found.usual and single not in in_pairs]
        texts = found.the_one("text", "text_column", pairs + singles)
    if find_label:
        label = found.label("label", LABEL_NAMES, texts, is_required=require_label)
    check_different(*texts, *filter(None, [label]))
    return texts, label


def are_of_texts(file: OpenFile) -> bool:
    """Whether columns have the usual names of a text and a label."""
    try:
        find_columns(file, columns=file.columns)
    except UsageError:
        return False
    return True


def find_tag_columns(
    file: OpenFile, text_column: Sequence[str] = (), label_column: str = "", *, require_label: bool = True
) -> tuple[str, str]:
    """Decides which column holds each row's list of words, and which its list of tags (`""`: none). Of a data set, they
    are such lists, and the only one of texts and the only one of classes, whatever they are called.

    Args:
        file: Just opened.
        text_column: As the user named it. Empty: found by name.
        label_column: As the user named it. Empty: found by name.
        require_label: Whether it is an error if no column, or more than one, could be the tags.

    Raises:
        UsageError: when a named column is absent, or when no column or more than one looks right.
    """
    columns = file.of_kinds("texts", "classes", "wholes")
    texts = in_data(text_column, columns) or file.only("texts") or text_column
    label = in_data([label_column], columns) or file.only("classes") or [label_column]
    found = Finder(file.name, columns, text_column=texts, label_column=label)
    texts = found.asked["text_column"]
    if len(texts) > 1:
        received = f"text_column={','.join(texts)!r}"
        raise UsageError(f"Words with tags must be in one column. Received: {received}. Pass one --text_column.")
    words = "".join(texts) or found.one_of("words", "text_column", WORDS_NAMES)
    if not words:
        raise found.none("the words: each row needs a list", "text_column")
    tags = found.label("tags", TAGS_NAMES, [words], is_required=require_label, rule=": each row needs a list")
    check_different(words, tags)
    return words, tags


_BY_NAME = DataConfig()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Rows as they were written.

    Attributes:
        name: Where they came from, for messages.
        lines: Each row's position from 1: the line it starts on, or its number.
        unit: What `lines` counts: `line` or `row`.
        notes: What the user should know, one line each.
        columns: Those that were read, by the options that name them; empty where nobody can choose them.
        per_row: The attributes with an entry for each row, besides `lines`.
    """

    per_row: ClassVar[tuple[str, ...]] = ()
    name: str
    lines: Any
    unit: str = "line"
    notes: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def where(self, row: int) -> str:
        """What messages call row `row`, counted from 0."""
        return f"{self.name}, {self.unit} {self.lines[row]}"

    def take(self, rows: Iterable[int]) -> Self:
        """These rows, counted from 0, in that order."""
        rows, found = np.asarray([*rows], np.int64), {name: getattr(self, name) for name in ("lines", *self.per_row)}
        taken = {
            name: values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]
            for name, values in found.items()
            if values is not None
        }
        return dataclasses.replace(self, **taken)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawTable(Table):
    """Texts and labels.

    Attributes:
        text_columns: One name, or two for pairs.
        text: The texts, or the first of each pair.
        text_pair: The second of each pair; None for single texts.
        labels: As text (`1`, `true`, `entailment`), one per row; for several labels a text a tuple of them, maybe none.
        label_names: The classes as the data set itself defines them, or as the user gives them. None: they are found
            from the training labels.
        has_all: Whether rows say of each of `label_names` whether they have it.
        is_regression: Whether the data set itself says that its labels are measurements.
    """

    per_row = ("text", "text_pair", "labels")
    text_columns: tuple[str, ...]
    text: list[str]
    text_pair: list[str] | None
    labels: list[Any]
    label_names: tuple[str, ...] | None = None
    has_all: bool = False
    is_regression: bool = False

    def __len__(self) -> int:
        return len(self.text)

    def labelled(self, labels: Sequence[tuple[int, Any]], bad_rows: BadRows) -> Self:
        """The rows of these numbers, from 0, with these labels; a note says what was left out.

        Raises:
            UsageError: for none.
        """
        notes = (*self.notes, *bad_rows.skipped(self.name, len(labels), "example", "rows"))
        taken = self.take(row for row, _ in labels)
        return dataclasses.replace(taken, labels=[label for _, label in labels], notes=notes)


def read_table(
    file: OpenFile,
    texts: tuple[str, ...],
    labels: Sequence[str],
    bad_rows: BadRows,
    label_of: Callable[[list[Any], str], Any],
) -> RawTable:
    """The rows of a file that can be used.

    Args:
        file: Just opened.
        texts: Its columns of texts.
        labels: Those of labels.
        bad_rows: Counts the others.
        label_of: Takes the values of the columns of labels, and what messages call the row; returns its label.

    Raises:
        UsageError: for a row that cannot be used, unless these are left out.
    """

    def checked(line: int, row: list) -> tuple[int, list[str], Any]:
        where = f"{file.name}, {file.unit} {line}"
        found = [check_text(value, column, where) for value, column in zip(row, texts, strict=False)]
        return line, found, label_of(row[len(texts) :], where)

    columns, found, lines = [[] for _ in texts], [], []
    for line, own, label in bad_rows.usable(file.without_rejected().read([*texts, *labels]), checked):
        for value, column in zip(own, columns, strict=True):
            column.append(value)
        found.append(label)
        lines.append(line)
    return RawTable(
        name=file.name,
        text_columns=texts,
        text=columns[0],
        text_pair=columns[1] if len(texts) == 2 else None,
        labels=found,
        lines=lines,
        unit=file.unit,
        columns={"text_column": texts, "label_column": tuple(labels)},
    )


def read_file(
    source: Source, config: DataConfig = _BY_NAME, *, class_words: Container[str] = (), names_ids: bool = True
) -> RawTable:
    """Reads a file of examples.

    TSV fields are separated by tabs, and quotes in them are plain characters, as in GLUE. CSV follows RFC 4180. JSON
    has one object per line. Blank lines are skipped, but in a .tsv of one column they are empty texts. Blanks around
    labels are dropped. In every format, a label that is empty, or that pandas reads as missing, is a missing label.

    Args:
        source: As for `open_rows`.
        config: Says its format and its columns, and whether rows that cannot be used are left out.
        class_words: Words that usually stand for a missing label, but are classes here.
        names_ids: Whether labels get the names that the data itself has for their ids.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there or cannot be found, or a bad row.
    """
    file = open_source(source, config)
    texts, label = find_columns(file, config.text_column, config.label_column)
    is_data_set = bool(file.kinds)
    names = file.label_names.get(label) if names_ids or is_data_set else None  # A data set holds the names themselves.
    bad_rows = BadRows(config.skip_bad_rows, is_data_set=is_data_set)

    def label_of(values: list[Any], where: str) -> str:
        value = named_id(values[0], names, label, where) if names else values[0]
        return label_text(value, label, where, names or file.label_names.get(label) or class_words)

    table = read_table(file, texts, [label], bad_rows, label_of)
    notes = bad_rows.skipped(file.name, len(table), "example", "rows")
    is_regression = file.kinds.get(label) == "float"
    return dataclasses.replace(table, notes=notes, label_names=names, is_regression=is_regression)


def literal(text: str) -> Any:
    """The list, dictionary, set or tuple that a text is, as JSON or Python writes it; None for any other text, and for
    an array as NumPy writes it, `['a' 'b']`, which Python reads as `['ab']`."""
    for parse in (json.loads, _apart):
        with contextlib.suppress(*_NO_LITERAL):
            value = parse(text)
            if isinstance(value, list | dict | set | tuple):
                return value
    return None


_NO_LITERAL = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, tokenize.TokenError)


def _apart(text: str) -> Any:
    value, tokens = ast.literal_eval(text), tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = [token.type for token in tokens if token.string.strip()]
    return None if (tokenize.STRING,) * 2 in itertools.pairwise(kinds) else value


def check_text(value: Any, column: str, where: str, *, strict: bool = True) -> str:
    """Checks that a row's text is valid, and returns it.

    Args:
        value: As it was read.
        column: The column it is from.
        where: What messages call the row.
        strict: Refuse what is not valid Unicode. If false, it stays in the text, as lone surrogates.

    Raises:
        UsageError: for a value that is not a text.
    """
    if not isinstance(value, str):
        received = "none" if value is None else f"{value!r:.60}"
        rule = "Every row needs a text, as a string"
        raise UsageError(f"{rule}. Received: {received} for {column!r} in {where}. Repair or drop it.")
    return check_unicode(value, where) if strict else value
