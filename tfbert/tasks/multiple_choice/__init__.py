"""Multiple choice: which of several choices answers a question, or ends a text. As token ids, a sequence for each
choice; a batch's row is an example with all its choices.

Questions with their choices: the columns of a table, labels, and the questions of a file as examples. A row has a
context, a question, choices and a label, in columns that `open_choices` finds: so SWAG, HellaSwag and COPA, and the
tables that Hugging Face has of ARC, CommonsenseQA and RACE. A label is a number from 0, a letter, or the text of a
choice: one reading for a whole file.

Prediction of choices: questions in Python, or of files in any form in which they are read -> a choice for each. As a
SavedModel: token ids -> logits.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import pathlib
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from tfbert.batches.pipeline import EncodedExamples, TokenTensors
from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.config.tasks import ChoosingConfig, TaskOptions
from tfbert.config.training import TrainingConfig
from tfbert.config.types import Recorded
from tfbert.data.files import UNLABELLED, Finder, are_of_texts, check_different, check_text, literal
from tfbert.data.labels import HELD_BACK, NAMES_OR_MISSING, is_missing
from tfbert.data.reading import OTHER_FORMATS, PREDICTED_TEXTS, BadRows, GivenTable, OpenFile, Unlabelled, plain
from tfbert.data.rows import Source, input_source, open_source
from tfbert.errors import UsageError
from tfbert.model.files import BertConfig
from tfbert.model.head import Head
from tfbert.tasks import prediction
from tfbert.tasks.base import CheckTexts, ErrorAnalysis, InMemory, Task, TaskData, Training, rounded
from tfbert.tasks.losses import SmoothedCrossEntropy
from tfbert.tasks.metrics import cross_entropy
from tfbert.tasks.tables import data_of, equal, hold_out, read_labelled_tables, read_training_tables
from tfbert.tokens.tokenizer import Tokenizer, beginnings, splits_of

log = logging.getLogger("tfbert")


@dataclasses.dataclass(kw_only=True)
class Asked:
    """A question with its choices.

    Attributes:
        name: What names it in a file of predictions; None for a number.
        context: What it is about; may be empty if there is a question.
        question: The question, or the beginning of what each choice ends; may be empty if there is a context.
        choices: At least two, none of them empty.
        label: The right one as it was written; None if the data does not say.
        index: The right one, counted from 0, where the data names the choices; else None.
    """

    name: Any = None
    context: str
    question: str
    choices: tuple[str, ...]
    label: int | str | None = None
    index: int | None = None

    def __repr__(self) -> str:
        return repr(self.name)  # As messages show the id of an example.

    @property
    def texts(self) -> list[str]:
        return [self.context, self.question, *self.choices]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceExamples(InMemory):
    """Questions with their choices, see `Examples`.

    Attributes:
        asked: The questions.
        labels: int32 `[n]`: the right choice of each, from 0.
    """

    per_row, num_texts = ("asked", "labels"), 2
    asked: list[Asked]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.asked)

    def texts(self) -> list[str]:
        contexts = dict.fromkeys(asked.context for asked in self.asked)  # Many questions may be about one.
        return [*contexts, *(text for asked in self.asked for text in (asked.question, *asked.choices))]

    def checksum(self, name: str, start: int) -> int:
        # How many choices each question has is part of what is held: the texts alone do not say.
        parts = [name, *(f"{len(asked.choices)}\0{asked.context}" for asked in self.asked)]
        return super().checksum("\0".join(parts), start)

    def contents(self) -> Iterator[tuple[str, ...]]:
        return (tuple(map(str.strip, (a.context, a.question, *a.choices))) for a in self.asked)


CONTEXT_NAMES = ("context", "article", "passage", "premise", "paragraph", "dialogue", "story", "ctx", "sent1", "para")
QUESTION_NAMES = ("question", "question_stem", "query", "goal", "sent2", "stem")
LIST_NAMES = ("choices", "options", "endings", "choice")
"""Usual names of a column that holds all choices of a question."""
LABEL_NAMES = (("label",), ("answerkey", "answer", "gold_label", "correct_option", "labels", "target", "gold", "cop"))
"""Usual names of the label's column; a plain `label` wins over all others."""
_ENDS = re.compile(r"(choice|option|ending|answer|sol|op)?[_ ]?(\d{1,3}|[a-z])", re.ASCII)
_HINT = (
    "Name them with --choice_columns (one column of lists, or one for each choice), "
    "--text_column=CONTEXT,QUESTION and --label_column"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table.

    Attributes:
        context: That of the contexts; empty where there is none.
        question: That of the questions; empty where there is none.
        choices: One whose cells hold all choices of a question, or one for each choice.
        label: That of the labels; empty where there is none.
    """

    context: str
    question: str
    choices: tuple[str, ...]
    label: str

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.context, self.question, *self.choices, self.label)))

    @property
    def by_option(self) -> dict[str, tuple[str, ...]]:
        """All of them, by the options that name them. A context alone cannot be named, only a question."""
        texts = (self.context, self.question) if self.context and self.question else (self.question,)
        named = {"text_column": texts, "choice_columns": self.choices, "label_column": (self.label,)}
        return {option: columns for option, columns in named.items() if columns and all(columns)}


def _numbered(usual: dict[str, list[str]]) -> tuple[str, ...]:
    """Columns such as `ending0`, `ending1`, ..., or `A`, `B`, ...: those of the stem with most of them, at least two,
    without a gap from 0, 1 or A on."""
    stems: dict[tuple[str, bool], dict[int, str]] = {}
    for key, names in usual.items():
        if (match := _ENDS.fullmatch(key)) and len(names) == 1 and (match[1] or not match[2].isdigit()):
            number = int(match[2]) if match[2].isdigit() else ord(match[2]) - ord("a") + 1
            stems.setdefault((match[1] or "", match[2].isdigit()), {})[number] = names[0]
    whole = [
        found
        for found in stems.values()
        if len(found) >= 2 and min(found) <= 1 and max(found) - min(found) == len(found) - 1
    ]
    best = max(whole, key=len, default={})
    return tuple(best[number] for number in sorted(best))


_WHOLE = re.compile(r"([+-]?\d{1,18})(\.0*)?", re.ASCII)
_LETTER = re.compile(r"\(?([A-Za-z])[).]?", re.ASCII)
_RULE = "A label is the number of the right choice from 0, its letter, or a text that it alone has"


def _number(label: int | str | None, choices: Sequence[str]) -> int | None:
    match = _WHOLE.fullmatch(str(label).strip())
    return int(match[1]) if match else None


def _letter(label: int | str | None, choices: Sequence[str]) -> int | None:
    match = _LETTER.fullmatch(str(label).strip())
    return ord(match[1].upper()) - ord("A") if match else None


def _text(label: int | str | None, choices: Sequence[str]) -> int | None:
    same = [index for index, choice in enumerate(choices) if isinstance(label, str) and choice.strip() == label.strip()]
    return same[0] if len(same) == 1 else None


_READINGS = {"numbers": _number, "letters": _letter, "texts": _text}


def find_indexes(asked: Sequence[Asked], where: Sequence[str]) -> list[int | UsageError]:
    """The right choice of each labelled question, from 0; or the error that says why it is not known.

    The reading that fits most labels is that of the whole file.

    Args:
        asked: The questions; `label` of each is what was written. Those whose `index` is known keep it.
        where: What messages call each question.

    Raises:
        UsageError: for labels that can be read in two ways that differ, or numbers that count from 1.
    """
    read = {
        kind: [reading(one.label, one.choices) if one.index is None else one.index for one in asked]
        for kind, reading in _READINGS.items()
    }
    sizes, numbers = [len(one.choices) for one in asked], read["numbers"]
    found = {
        kind: [index if index in range(size) else None for index, size in zip(indexes, sizes, strict=True)]
        for kind, indexes in read.items()
    }
    fits = {kind: len(asked) - indexes.count(None) for kind, indexes in found.items()}
    best = [kind for kind, count in fits.items() if count == max(fits.values())]
    past = [row for row, size in enumerate(sizes) if numbers[row] == size]
    written = [number for one, number in zip(asked, numbers, strict=True) if one.index is None]
    if "numbers" in best and past and 0 not in written:
        raise UsageError(
            f"{_RULE}. Received: {asked[past[0]].label!r} for {sizes[past[0]]} choices in {where[past[0]]}, and no 0: "
            "these seem to count from 1. Subtract 1, or write letters: A, B, ..."
        )
    for row, indexes in enumerate(zip(*(found[kind] for kind in best), strict=True)):
        if len({*indexes}) > 1:
            raise UsageError(
                f"{_RULE}, the same in a whole file. Received: labels that could be read as {' and '.join(best)}, "
                f"such as {asked[row].label!r:.60} in {where[row]}, where these differ. Write letters: A, B, ..."
            )
    like = f", and most here are {best[0]}" if len(best) == 1 else ""
    rule, todo = f"{_RULE}{like}", "Correct it or drop the question."
    return [
        UsageError(f"{rule}. Received: {one.label!r:.60} for {len(one.choices)} choices in {at}. {todo}")
        if index is None
        else index
        for one, at, index in zip(asked, where, found[best[0]], strict=True)
    ]


_REPAIR = "Repair or drop the question."


def asked_of(row: Mapping[str, Any], columns: Columns, where: str, *, labelled: bool = True) -> Asked:
    """The question of a row.

    Args:
        row: Its values, by column.
        columns: Which of them hold what.
        where: What messages call it.
        labelled: Whether its label is read, and texts that are not valid Unicode are refused.

    Raises:
        UsageError: for one that cannot be read.
    """

    def text(value: Any, what: str) -> str:
        return "" if value is None else check_text(value, what, where, strict=labelled)

    context, question = row.get(columns.context), text(row.get(columns.question), "question")
    if isinstance(context, list | tuple):  # A dialogue's turns.
        context = " ".join(text(turn, "turn") for turn in context)
    context = text(context, "context")
    if not context.strip() and not question.strip():
        raise UsageError(f"A question needs a context or a question. Received: neither in {where}. {_REPAIR}")
    found: list[Any] = [row.get(column) for column in columns.choices]
    names: list[str] = []
    if len(found) == 1:
        found, names = _choices(found[0], where)
    else:  # The last columns may be empty.
        while found and (found[-1] is None or not str(found[-1]).strip()):
            found.pop()
    choices = tuple(check_text(choice, "choice", where, strict=labelled) for choice in found)
    if len(choices) < 2 or not all(map(str.strip, choices)):
        rule = "A question needs at least two choices, none of them empty, but the last ones of those in columns"
        raise UsageError(f"{rule}. Received: {found!r:.80} in {where}. {_REPAIR}")
    label = label_of(row.get(columns.label), where) if columns.label and labelled else None
    index = None
    if names and label is not None:
        if names.count(str(label)) != 1:
            rule = "A label must be the name of one choice"
            raise UsageError(f"{rule}. Received: {label!r:.60} for choices named {names!r:.60} in {where}. {_REPAIR}")
        index = names.index(str(label))
    elif label not in choices and _number(label, ()) is None:
        index = _column(label, columns.choices[: len(choices)])
    return Asked(context=context, question=question, choices=choices, label=label, index=index)


def _column(label: int | str | None, names: Sequence[str]) -> int | None:
    """Which column a label names, as `choice1` in COPA; a letter in whatever form letters have."""
    letter = _LETTER.fullmatch(str(label).strip())
    name, own = (letter[1].upper(), [each.upper() for each in names]) if letter else (label, names)
    return own.index(str(name)) if name in own else None


def label_of(value: Any, where: str) -> int | str | None:
    """A label as it was written; None where it is missing or held back.

    Raises:
        UsageError: for what cannot be a label.
    """
    value = plain(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or str(value) == HELD_BACK:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UsageError(f"{_RULE}. Received: {value!r:.60} in {where}. {_REPAIR}")
    return None if isinstance(value, str) and is_missing(value.strip(), NAMES_OR_MISSING) else value


def _choices(value: Any, where: str) -> tuple[list[Any], list[str]]:
    """The choices of a question, and the names that labels call them by; no names where the data gives none."""
    value = plain(value)
    if isinstance(value, str) and isinstance(found := literal(value), list | dict):
        value = found
    texts, names = value, []
    if isinstance(value, Mapping):
        texts, names = value.get("text"), value.get("label")
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        texts, names = [one.get("text") for one in value], [one.get("label") for one in value]
    is_list = isinstance(texts, list) and not any(isinstance(text, list) for text in texts)  # Of several questions.
    are_names = isinstance(names, list) and all(isinstance(name, int | str) for name in names)
    if not is_list or not are_names or len(names) not in (0, len(texts)):
        raise UsageError(
            'Choices are a list of texts, or of objects with "label" and "text". '
            f"Received: {value!r:.80} in {where}. {_REPAIR[:-1]}; for another form, {OTHER_FORMATS}."
        )
    return texts, [str(name) for name in names]


_LOOKED_AT = 20
"""Questions by which a file is recognised."""


def open_choices(
    source: Source, config: DataConfig, choice_columns: Sequence[str] = (), *, labelled: bool = True
) -> tuple[OpenFile, Columns]:
    """Opens a file of questions, and finds its columns.

    Args:
        source: As for `open_rows`.
        config: Says the format, and which columns hold what: context and question, or the only one of these, and the
            label; what it leaves open is found by name.
        choice_columns: The columns of choices; empty: found by name.
        labelled: As for `asked_of`; if false, only a label's column that the user names counts.

    Raises:
        UsageError: for a file that cannot be read, a column that is not there, or if none, or several, could be meant.
    """
    opened = open_source(source, config)
    file = opened.without_rejected() if labelled else opened
    asked = {"text_column": config.text_column, "choice_columns": choice_columns, "label_column": [config.label_column]}
    given = Finder(file.name, file.columns, todo=_HINT, **asked)
    *contexts, question = given.asked["text_column"] or [""]
    context, choices, label = "".join(contexts), given.asked["choice_columns"], "".join(given.asked["label_column"])
    if not question:
        context = given.one_of("context", "text_column", [CONTEXT_NAMES])
        question = given.one_of("question", "text_column", [QUESTION_NAMES])
    if not choices and (name_of_list := given.one_of("choices", "choice_columns", [LIST_NAMES])):
        choices = (name_of_list,)
    choices = choices or _numbered(given.usual)
    if labelled and not label:
        label = given.one_of("label", "label_column", LABEL_NAMES, choices)
    if not choices and (label or not labelled):
        choices = tuple(given.usual.get("answers", ()))
    if not context and not question:
        raise given.none("a context or a question", "text_column")
    if not choices:
        raise given.none("the choices", "choice_columns")
    columns = Columns(context=context, question=question, choices=choices, label=label)
    check_different(*columns.all)
    return file, columns


def _reader(file: OpenFile, columns: Columns) -> Callable[[int, list[Any]], Asked]:
    """Takes the line and the cells of a row, and returns its question. Ids of labels get the names that the data has
    for them."""
    names = file.label_names.get(columns.label, ())

    def read(line: int, cells: list[Any]) -> Asked:
        values = dict(zip(columns.all, cells, strict=True))
        if type(label := values.get(columns.label)) is int and 0 <= label < len(names):
            values[columns.label] = names[label]
        return asked_of(values, columns, f"{file.name}, {file.unit} {line}")

    return read


def read_choices(source: Source, config: DataConfig, choice_columns: Sequence[str] = ()) -> ChoiceExamples:
    """Reads labelled questions.

    Args:
        source: As for `open_choices`.
        config: As for `open_choices`; and whether questions that cannot be used are left out, and counted.
        choice_columns: As for `open_choices`.

    Raises:
        UsageError: for a bad question, one without a label, or no question at all.
    """
    file, columns = open_choices(source, config, choice_columns)
    bad_rows, read = BadRows(config.skip_bad_rows, is_data_set=bool(file.kinds)), _reader(file, columns)

    def checked(line: int, cells: list[Any]) -> tuple[int, Asked]:
        asked = read(line, cells)
        if asked.label is None:
            raise Unlabelled(
                f"Every question needs a label, the right choice. Received: none in {file.name}, {file.unit} {line}. "
                f"Add it or drop the question{'' if columns.label else f', or pass --label_column{UNLABELLED}'}."
            )
        return line, asked

    found = list(bad_rows.usable(file.read(columns.all), checked))
    indexes = find_indexes([asked for _, asked in found], [f"{file.name}, {file.unit} {line}" for line, _ in found])
    kept = list(bad_rows.usable(zip(found, indexes, strict=True), lambda one, index: (*one, index)))
    return ChoiceExamples(
        name=file.name,
        asked=[asked for _, asked, _ in kept],
        labels=np.array([index for *_, index in kept], np.int32),
        lines=np.array([line for line, *_ in kept], np.int64),
        unit=file.unit,
        notes=bad_rows.skipped(file.name, len(kept), "question", "questions"),
        columns=columns.by_option,
    )


def holds_choices(path: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a file certainly holds questions with choices; False where the user chooses columns, or it cannot be
    read."""
    if config.text_column or config.label_column:
        return False
    try:
        file, columns = open_choices(path, config)
        if file.kinds:
            return bool(columns.label)
        bad_rows, rows = BadRows(True), itertools.islice(file.read(columns.all), _LOOKED_AT)
        firsts = list(bad_rows.usable(rows, _reader(file, columns)))
    except UsageError:
        return False
    # The first of them may be bad rows. A column of choices alone is not enough: another task may read the others.
    if any(one.label is not None for one in firsts):
        return True
    # Where all are, reading them as questions says what is wrong, unless the columns are also those of texts.
    are_bad = not firsts and bad_rows.count > 0
    return are_bad and bool(columns.label) and not are_of_texts(file)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncodedChoices(EncodedExamples):
    """Examples of several choices: `tokens` has a sequence for each choice of each example, in their order. Labels and
    weights belong to examples.

    Attributes:
        num_cut: How many examples have a context that is cut.
    """

    num_cut: int
    may_be_cut: ClassVar[bool] = False  # What is cut is counted, rather than concluded from lengths.

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[n, choices]`: the tokens of each choice; 0 where there is none."""
        counts = np.diff(self.splits)
        is_there = np.arange(counts.max(initial=0)) < counts[:, None]
        found = np.zeros(is_there.shape, np.int32)
        found[is_there] = self.tokens.lengths
        return found


def encode_choices(
    asked: Sequence[Asked],
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    labels: np.ndarray | None = None,
    where: Callable[[int], str] = str,
) -> EncodedChoices:
    """Makes a sequence `[CLS] context [SEP] question choice [SEP]` for each choice; without a context, or without a
    question, `[CLS] question [SEP] choice [SEP]` or `[CLS] context [SEP] choice [SEP]`. A blank is between question and
    choice.

    Where it is too long, the end of the context is left out; never any of the question or the choice. Each distinct
    text is tokenized once, on all cores.

    Args:
        asked: The questions.
        tokenizer: The tokenizer.
        max_seq_length: Longest sequence, special tokens counted.
        labels: int32 `[n]`: the right choices; None where nobody asks for them.
        where: What messages call a question.

    Raises:
        UsageError: for a question and a choice that leave no room for the context, or that do not fit by themselves.
    """
    index: dict[str, int] = {}

    def known(text: str) -> int:
        return index.setdefault(text, len(index))

    found: list[tuple[int, bool, int, int]] = []
    for row, one in enumerate(asked):
        has_context = bool(one.context.strip())
        first, second = (one.context, one.question) if has_context else (one.question, "")
        for choice in one.choices:
            own = f"{second} {choice}" if second.strip() else choice
            found.append((row, has_context, known(first), known(own)))
    example, has_context, first_of, second_of = np.array(found, np.int64).reshape(-1, 4).T
    splits = splits_of(np.bincount(example, minlength=len(asked)))
    read = tokenizer.encode_with_offsets(list(index))
    sizes = np.diff(read.row_splits)

    first, second = sizes[first_of], sizes[second_of]
    num_special = tokenizer.num_special(2)
    room = max_seq_length - num_special - second
    # Without a context, what comes first is the question, which must not be cut.
    needed = np.where(has_context, np.minimum(first, 1), first)
    for i in np.flatnonzero(room < needed)[:1]:
        one, choice = asked[example[i]], i - splits[example[i]]
        raise UsageError(
            f"A row must hold a question, a choice, {num_special} special tokens and some of the context: only the "
            f"context is cut. Received: max_seq_length={max_seq_length}, too little for question "
            f"{reprlib.repr(one.question)} and choice {reprlib.repr(one.choices[choice])} in {where(int(example[i]))}. "
            "Pass a larger max_seq_length, or shorten them."
        )
    kept = np.minimum(first, room)
    with tf.device("CPU:0"):
        texts = tf.RaggedTensor.from_row_splits(read.ids, read.row_splits, validate=False)
        before = beginnings(tf.gather(texts, first_of), kept)
        ids, second_start = tokenizer.joined(before, tf.gather(texts, second_of))
        tokens = TokenTensors.of_rows(ids, second_start, tokenizer.pad_id).in_memory()
    return EncodedChoices(
        tokens=dataclasses.replace(tokens, splits=splits),
        labels=np.zeros(len(asked), np.int32) if labels is None else np.asarray(labels, np.int32),
        weights=np.ones(len(asked), np.float32),
        num_cut=len(np.unique(example[kept < first])),
    )


MISSING = -np.inf
"""The logit of a choice that an example does not have."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """The model's scores for the choices of each example.

    Attributes:
        logits: float32 `[n, choices]`; `MISSING` for a choice that an example does not have.
        counts: int64 `[n]`: how many choices each has.
    """

    logits: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, splits: np.ndarray) -> Choices:
        """From scores of all choices, float32 `[sequences]`, and where each example's begin, int64 `[n + 1]`."""
        counts = np.diff(splits)
        found = cls(logits=np.full([len(counts), counts.max(initial=0)], MISSING, np.float32), counts=counts)
        found.logits[found.is_there] = scores
        return found

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def is_there(self) -> np.ndarray:
        """bool `[n, choices]`: which choices there are."""
        return np.arange(self.logits.shape[1]) < self.counts[:, None]

    @property
    def index(self) -> np.ndarray:
        """int64 `[n]`: the best choice of each; the first of equals."""
        return self.logits.argmax(axis=1)

    @property
    def probabilities(self) -> np.ndarray:
        """float64 `[n, choices]`: a softmax over the choices of each example; 0 for missing ones."""
        return softmax(self.logits.astype(np.float64), axis=1)


def choice_metrics(choices: Choices, labels: np.ndarray) -> dict[str, float]:
    """The metrics of predictions, given the right choices, int `[n]`."""
    logits = choices.logits
    own, is_before = logits[np.arange(len(labels)), labels][:, None], np.arange(logits.shape[1]) < labels[:, None]
    # The place of each right choice, best first, from 1: of equals, the first comes first, as in `index`.
    ranks = 1 + ((logits > own) | ((logits == own) & is_before)).sum(axis=1)
    return {
        "accuracy": float((ranks == 1).mean()),
        "mean_reciprocal_rank": float((1 / ranks).mean()),
        "loss": float(cross_entropy(logits, labels).mean()),
    }


_SHOWN_CONTEXT = 800
"""Characters of a context that a report shows."""
_FEW = 20
"""So many examples that have no first choice among their answers are no accident."""


@dataclasses.dataclass(frozen=True)
class MultipleChoice(Task[ChoiceExamples, Choices]):
    """See `Task`. Outputs are a logit for each choice, float32 `[sequences, 1]`; predictions are the `Choices` of each
    example.

    Metrics: `accuracy`; `mean_reciprocal_rank`, the mean of 1 / place of the right choice; `loss`, the mean
    cross-entropy of a softmax over an example's choices, in nats. Of equal choices, the first counts as better.

    Args:
        options: Where the choices are in tables.
    """

    options: ChoosingConfig

    name, kind = "multiple_choice", "multiple choice"
    pipeline_tag = "multiple-choice"
    length_rule = "Contexts are cut to fit"

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> MultipleChoice:
        """The task of a saved model."""
        return cls(options.choosing)

    def read(self, source: Source, config: DataConfig) -> ChoiceExamples:
        """The questions that an option names."""
        return read_choices(source, config, self.options.choice_columns)

    def labelled_sets(self, config: DataConfig, notes: list[str], check_texts: CheckTexts) -> dict[str, ChoiceExamples]:
        return read_labelled_tables(config, self.name, self.read, notes, self.options.choice_columns)

    def doubts(self, examples: ChoiceExamples) -> list[str]:
        """Labels that are all alike, or never the first choice; choices that are the same."""
        out, labels = [], examples.labels
        if len(labels) >= _FEW and len(np.unique(labels)) == 1:
            out.append(f"the right choice is number {labels[0]} (from 0) in every example of {examples.name}")
        elif len(labels) >= _FEW and labels.min() > 0:
            out.append(
                f"the first choice is right in no example of {examples.name}: numbers as labels count from 0, not 1"
            )
        twice = [row for row, one in enumerate(examples.asked) if len(set(one.choices)) < len(one.choices)]
        if twice:
            out.append(
                f"{examples.name}: {len(twice):,} of {len(examples):,} questions have equal choices, the first in "
                f"{examples.where(twice[0])}"
            )
        return out

    def head(self) -> Head:
        return Head(kind="MultipleChoice", labels=("LABEL_0",))

    def encode(
        self, examples: ChoiceExamples, tokenizer: Tokenizer, max_seq_length: int, training: Training = None
    ) -> EncodedChoices:
        encoded = encode_choices(
            examples.asked,
            tokenizer,
            max_seq_length,
            labels=examples.labels,
            where=lambda row: f"{examples.name}, {examples.where(row)}",
        )
        if encoded.num_cut:
            log.info(
                "%s: contexts of %s of %s questions are cut to fit %d tokens",
                *(examples.name, f"{encoded.num_cut:,}", f"{len(examples):,}", max_seq_length),
            )
        return encoded

    def loss(self, training: TrainingConfig) -> SmoothedCrossEntropy:
        return SmoothedCrossEntropy()

    def predictions(self, outputs: np.ndarray, encoded: EncodedChoices) -> Choices:
        return Choices.of(outputs[:, 0], encoded.splits)

    def scores(self, predictions: Choices) -> np.ndarray:
        return np.where(predictions.is_there, predictions.logits, 0.0)

    def _metrics(self, predictions: Choices, examples: ChoiceExamples) -> dict[str, float]:
        return choice_metrics(predictions, examples.labels)

    def error_analysis(self, predictions: Choices, examples: ChoiceExamples) -> ErrorAnalysis:
        """The error is the loss of a wrong choice."""
        labels, chosen, shares = examples.labels, predictions.index, predictions.probabilities

        def shown(row: int) -> dict[str, Any]:
            one, marks = examples.asked[row], {chosen[row]: "wrong"} | {labels[row]: "answer"}
            choices = [
                {"text": text, "probability": float(share), "mark": marks.get(number, "")}
                for number, (text, share) in enumerate(zip(one.choices, shares[row], strict=False))
            ]
            more = " …" if len(one.context) > _SHOWN_CONTEXT else ""
            return {"context": one.context[:_SHOWN_CONTEXT] + more, "question": one.question, "choices": choices}

        errors = np.where(chosen != labels, cross_entropy(predictions.logits, labels), 0.0)
        return ErrorAnalysis(errors=errors, measure="loss", shown=shown, facts={})

    def card(self, num_texts: int) -> str:
        return "chooses which of several choices answers a question, or ends a text"

    def example(self, num_texts: int) -> str:
        return '{"context": "...", "question": "...", "choices": ["...", "..."]}'


def load_choices(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads questions with their choices."""
    task, notes, choices = MultipleChoice(options.choosing), [], [*options.choosing.choice_columns]

    def read(source: Source, config: DataConfig) -> ChoiceExamples:  # All sets by the columns of the first.
        found = read_choices(source, config, choices)
        choices[:] = choices or map(Recorded, found.columns["choice_columns"])
        return found

    sets = read_training_tables(config, task.name, read, notes)

    def groups(train: ChoiceExamples) -> np.ndarray:  # Of one context; without contexts, of equal questions.
        return equal(one.context.strip() or f"\0{one.question.strip()}" for one in train.asked)

    return data_of(task, hold_out(sets, config, notes, groups), notes, config)


class ChoiceRows(prediction.ServedModel):
    """Takes rows of token ids, one for each choice. Returns `logits`, float32 `[n, 1]`, and `error`."""

    num_texts: ClassVar[int | None] = 2


class ChoiceItems(prediction.Items[Asked]):
    """Questions with their choices."""

    most = 2048
    takes_top_k = True
    _num_read = _num_cut = 0

    def item(self, value: Any, where: str) -> Asked:
        columns = Columns(context="context", question="question", choices=("choices",), label="")
        if isinstance(value, Mapping) and self.as_trained(value, "text_column"):
            if self.as_trained(value, "choice_columns"):
                *context, question = self._model.columns["text_column"]
                choices = tuple(self._model.columns["choice_columns"])
                columns = Columns(context="".join(context), question=question, choices=choices, label="")
        if not isinstance(value, Mapping) or columns.choices[0] not in value:
            received = f"the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else f"{value!r:.60}"
            raise UsageError(
                'Choices come with their question or context, as {"context": ..., "question": ..., "choices": [...]}. '
                f"Received: {received} in {where}. Pass choices as a list, and a question, a context or both."
            )
        return self.checked(asked_of(value, columns, where, labelled=False), where)

    def checked(self, asked: Asked, where: str) -> Asked:
        """The same question, unless it is too long.

        Only those are tokenised that may be.

        Raises:
            UsageError: for one that leaves no room for the context.
        """
        longest, tokenizer = max(map(len, asked.choices)), self._model.tokenizer
        room = self._model.max_seq_length - tokenizer.num_special(2) - 1
        if tokenizer.most_per_character * (len(asked.question) + longest) > room:
            encode_choices([asked], tokenizer, self._model.max_seq_length, where=lambda row: where)
        return asked

    def size(self, item: Asked) -> int:
        return len(item.context) * len(item.choices) + sum(map(len, item.choices))

    def encode(self, items: Sequence[Asked]) -> EncodedChoices:
        encoded = encode_choices(items, self._model.tokenizer, self._model.max_seq_length)
        self._num_read += len(items)
        self._num_cut += encoded.num_cut
        return encoded

    def notes(self, name: str) -> list[str]:
        if not self._num_cut:
            return []
        cut, total = f"{self._num_cut:,}", f"{self._num_read:,}"
        return [f"{name}: contexts of {cut} of {total} questions are cut to fit {self._model.max_seq_length} tokens"]

    def answers(self, items: Sequence[Asked], predictions: Choices) -> Iterator[Any]:
        for one, shares in zip(items, predictions.probabilities, strict=True):
            own = shares[: len(one.choices)]
            most = 1 if self._top_k == prediction.BEST else self._top_k
            order = np.argsort(-own, kind="stable")[:most].tolist()
            found = [{"index": i, "choice": one.choices[i], "score": rounded(own[i])} for i in order]
            yield found[0] if self._top_k == prediction.BEST else found

    def records(self, items: Sequence[Asked], predictions: Choices) -> Iterator[dict[str, Any]]:
        """Also the `probabilities` of all choices."""
        answers = self.answers(items, predictions)
        for one, answer, shares in zip(items, answers, predictions.probabilities, strict=True):
            yield answer | {"probabilities": [*map(rounded, shares[: len(one.choices)])]}

    def columns(self) -> Sequence[str]:
        return ("index", "choice", "score", "probabilities")  # The last is a list in JSON.


def open_choice_files(config: Config) -> list[prediction.Job]:
    """The questions to answer, and where the answers go.

    Raises:
        UsageError: for input that cannot be opened, or output without a known ending.
    """
    source, options = input_source(config.predict.input_file), config.choosing
    file, columns = open_choices(source, config.data, options.choice_columns, labelled=False)

    def row(items: ChoiceItems, values: dict[str, Any], where: str) -> Asked:
        return items.checked(asked_of(values, columns, where, labelled=False), where)

    format = prediction.chosen_format(config.predict, PREDICTED_TEXTS, default="jsonl")
    return [prediction.table_job(config, file, columns.all, row=row, columns=columns.by_option, format=format)]
