"""What a saved model is used on, and what it answers: inputs in Python and rows of files become the same items, and
their answers have the keys of transformers' pipelines. Each group of tasks has a class of items of its own.

The files of `--mode=predict` are tables, JSON lines and other forms; one of answers appears under its name only when it
is whole. An exported model is tokenizer, model and decoding in one module to save.

A fine-tuned model ready for use: what predictions, exported models and calls from Python share.
"""

from __future__ import annotations

import abc
import collections
import csv
import dataclasses
import datetime
import decimal
import functools
import io
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TextIO, TypeVar

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import EncodedExamples, MaskedRecords, TokenTensors, padded_inputs_in_graph
from tfbert.bert.layers import fix_kernels
from tfbert.config.data import TYPED_TEXTS
from tfbert.config.modes import PredictConfig
from tfbert.config.run import Config
from tfbert.config.types import STANDARD_STREAM
from tfbert.data.files import find_columns
from tfbert.data.reading import TEXTS, BadRows, Formats, OpenFile, Row, format_of
from tfbert.data.rows import input_source, open_rows, source_format
from tfbert.errors import ReaderGone, RunError, UsageError
from tfbert.model.files import check_token_types
from tfbert.model.predictor import Predictor
from tfbert.output import output_dir
from tfbert.tasks.base import SAVED_MODEL_WAY_OUT, Examples, Task, rounded

if TYPE_CHECKING:
    from tfbert.bert.pretrained import PreTrainedModel
    from tfbert.tokens.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A saved model, ready for use.

    Attributes:
        name: The directory or hub name, for messages.
        classifier: The model.
        tokenizer: Its tokenizer.
        task: The model's task, with its classes.
        num_texts: 1 for single texts, 2 for pairs; None if the directory does not say.
        max_seq_length: Longest input in tokens.
        columns: Those of the data that it was trained on, by the options that name them.
    """

    name: str
    classifier: PreTrainedModel
    tokenizer: Tokenizer
    task: Task
    num_texts: int | None
    max_seq_length: int
    columns: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def logits(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """The logits of a batch's inputs, for a `Predictor`: float32 `[rows, num_labels]`, or
        `[rows, width, num_labels]`; or whatever the task keeps of the model's outputs."""
        outputs = self.task.head().forward(self.classifier, inputs, training)
        return self.task.select_outputs(
            tf.nest.map_structure(lambda output: tf.cast(output, tf.float32), outputs), inputs
        )

    def predictor(self, strategy: tf.distribute.Strategy, rows_per_replica: int | None) -> Predictor:
        """A predictor with this model, which must have been loaded in the strategy's scope, and never changes again."""
        of_tokens = self.task.reads_tokens
        predictor = Predictor(self.logits, strategy, rows_per_replica=rows_per_replica, of_tokens=of_tokens)
        if predictor.is_one_cpu and self.classifier.compute_dtype == "bfloat16":
            fix_kernels(self.classifier)
        return predictor

    def encode(self, examples: Examples) -> EncodedExamples | MaskedRecords:
        """Examples as token ids, cut or split as in training."""
        return self.task.encode(examples, self.tokenizer, self.max_seq_length)

    def check_texts(self, columns: Sequence[str], source: str) -> None:
        """Checks that data holds as many texts in each row as the model was trained on.

        Raises:
            UsageError: for pairs if the model takes single texts, and the reverse.
        """
        if self.num_texts is None:
            check_token_types(self.classifier.config, len(columns))
        if self.num_texts in (None, len(columns)):
            return
        takes, todo = ("pairs of texts", "FIRST,SECOND") if self.num_texts == 2 else ("single texts", "COLUMN")
        todo = f"--text_column={todo}"
        if source == TYPED_TEXTS:
            todo = "a --text_pair for each --text" if self.num_texts == 2 else "--text without --text_pair"
        todo = f"Pass {todo}, or a model for {'single texts' if len(columns) == 1 else 'pairs'}."
        raise UsageError(f"The model was trained on {takes}. Received: {source} with {' and '.join(columns)}. {todo}")


CHUNK_ROWS = 8192
"""The most items that are read, sorted by length and predicted together."""
CHUNK_CHARACTERS = 1 << 22
"""A chunk ends at this many characters too, so that memory does not grow with the length of texts."""
BEST = "best"
NAME = "inputs"
"""What messages call the inputs of a call."""


@dataclasses.dataclass(kw_only=True)
class Item:
    """Texts that are answered together.

    Attributes:
        name: What names them in a file of answers.
        texts: As they were given.
    """

    name: Any = None
    texts: Sequence[str]

    def __repr__(self) -> str:
        return repr(self.name)  # As messages show the id of an example.


ItemT = TypeVar("ItemT")


class Items(abc.ABC, Generic[ItemT]):
    """The items of one call, or of one file, and their answers.

    Args:
        model: The model that was called.
        top_k: How many answers each item gets; None for all; `BEST` for the usual number.

    Attributes:
        most: The most items that are predicted together.
        takes_top_k: Whether there are several answers to choose from.
        task: The model's.

    Raises:
        UsageError: for a `top_k` that this task does not have, or no number.
    """

    most: int = CHUNK_ROWS
    takes_top_k: bool = False

    def __init__(self, model: TrainedModel, top_k: int | None | Literal["best"] = BEST):
        if top_k != BEST and not self.takes_top_k:
            rule = f"top_k chooses among classes, and this is {model.task.kind}"
            raise UsageError(f"{rule}. Received: top_k={top_k!r}. Drop it.")
        if top_k is not None and top_k != BEST:
            check_whole("top_k", top_k)
        self._model, self._top_k, self.task = model, top_k, model.task

    # Inputs in Python.

    def is_one(self, inputs: Any) -> bool:
        """Whether `inputs` is one item, rather than many."""
        return isinstance(inputs, str | Mapping)

    @abc.abstractmethod
    def item(self, value: Any, where: str) -> ItemT:
        """Checks an input.

        Args:
            value: The input as it was given.
            where: What messages call it.

        Raises:
            UsageError: for an input that the model does not take.
        """

    def as_trained(self, value: Mapping[str, Any], option: str) -> list[Any]:
        """The values of the columns that the model was trained on; empty where an input lacks one of them, as a row of
        other data.

        Args:
            value: An input.
            option: The option that names the columns.
        """
        columns = self._model.columns.get(option, ())
        return [value[column] for column in columns] if all(column in value for column in columns) else []

    # Rows of files.

    def check_columns(self, texts: Sequence[str], source: str) -> None:
        """Refuses columns of texts that the model does not take.

        Raises:
            UsageError: naming them.
        """

    def row(self, texts: Mapping[str, Any], where: str) -> ItemT:
        """The item of a table's row.

        Args:
            texts: The values of the columns of texts, by the columns' names.
            where: What messages call it.

        Raises:
            UsageError: for a row that the model does not take.
        """
        raise NotImplementedError

    def notes(self, name: str) -> list[str]:
        """What the user should know at the end of a file, one line each."""
        return []

    # Predictions.

    def chunks(self, items: Iterable[ItemT]) -> Iterator[list[ItemT]]:
        """Consecutive items that are predicted together, few enough to bound the memory."""
        chunk, size = [], 0
        for item in items:
            chunk.append(item)
            size += self.size(item)
            if len(chunk) == self.most or size >= CHUNK_CHARACTERS:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def size(self, item: Any) -> int:
        """The number of its characters, about."""
        return sum(map(len, item.texts))

    @abc.abstractmethod
    def encode(self, items: Sequence[ItemT]) -> EncodedExamples:
        """Some items as token ids, in several threads."""

    def predictions(self, outputs: Any, encoded: Any) -> Any:
        """What the model's outputs say about the encoded items."""
        return self.task.predictions(outputs, encoded)

    def scores(self, predictions: Any) -> np.ndarray:
        """The numbers behind the predictions, `[n, ...]`."""
        return self.task.scores(predictions)

    # Answers.

    @abc.abstractmethod
    def answers(self, items: Sequence[ItemT], predictions: Any) -> Iterator[Any]:
        """The answer to each item, as a loaded model gives it.

        Args:
            items: Items that have been encoded.
            predictions: What `predictions` makes of the model's outputs for them.
        """

    def records(self, items: Sequence[ItemT], predictions: Any) -> Iterator[dict[str, Any]]:
        """The answer to each item, as a line of JSON holds it beside the item's name; a float32 is rounded by who
        writes it. Arguments as for `answers`."""
        return self.answers(items, predictions)

    def columns(self) -> Sequence[str]:
        """The columns of a table of answers beside the ids; if there is nothing else to say, keys of `records`."""
        raise NotImplementedError

    def cells(self, item: ItemT, record: dict[str, Any]) -> Iterable[Sequence[Any]]:
        """The rows of that table for an item and its record."""
        return [[record[column] for column in self.columns()]]


def check_whole(name: str, value: Any) -> None:
    """Refuses what is no whole number of at least 1.

    Raises:
        UsageError: naming it.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise UsageError(f"{name} must be a whole number of at least 1. Received: {name}={value!r:.60}. Pass another.")


Line = Callable[[Iterable[Any]], str]
"""The values of a row -> a line of a table."""
Answered = Iterable[tuple[Any, dict[str, Any]]]
"""Items, each with its record."""
Lines = Callable[[Answered], Iterator[str]]
"""All items with their records, as they are predicted -> the lines of a file."""

_ID_NAMES = ("id", "idx", "index", "guid")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """An input of `--mode=predict`, just opened, and where the answers go.

    Attributes:
        name: What messages call the input.
        columns: Those that are read, by the options that name them; empty where there is no choice.
        rows: The place of each row in words, and the row, or the error that says why it has none.
        read: Makes an item of the model's items, a row, its number from 0 and its place.
        texts: The columns of texts; empty where the input is no table of texts.
        path: The file of answers; None for standard output.
        format: Of the answers, one of `FORMATS`.
        lines: Another way to write them; for a model whose labels do not fit, it raises a UsageError.
        doubts: What looks like a mistake in the first items, one line each.
        notes: What the user should know at the end, one line each.
    """

    name: str
    columns: Mapping[str, tuple[str, ...]]
    rows: Iterable[tuple[str, Any]]
    read: Callable[[Items, Any, int, str], Any]
    texts: Sequence[str] = ()
    path: pathlib.Path | None
    format: str
    lines: Callable[[Items], Lines] | None = None
    doubts: Callable[[list[Any]], list[str]] = lambda items: []
    notes: Callable[[], list[str]] = list

    def writer(self, items: Items) -> Lines:
        """How answers are written.

        Raises:
            UsageError: for a model that does not fit the input, or its form of answers.
        """
        if self.texts:
            items.check_columns(self.texts, self.name)
        return self.lines(items) if self.lines else functools.partial(FORMATS[self.format], items)

    def items(self, items: Items, bad_rows: BadRows) -> Iterator[Any]:
        """The rows as items of a model.

        Raises:
            UsageError: for a row that cannot be read and may not be skipped.
        """

        def checked(place: tuple[int, str], row: Any) -> Any:
            number, where = place
            item = self.read(items, row, number, where)
            bad_rows.note_bytes(item.texts, where)
            return item

        numbered = (((number, where), row) for number, (where, row) in enumerate(self.rows))
        return bad_rows.usable(numbered, checked)


def table_job(
    config: Config,
    file: OpenFile,
    texts: Sequence[str] = (),
    *,
    check: Callable[[Any, str], None] = lambda name, where: None,
    row: Callable[[Any, dict[str, Any], str], Any] = lambda items, texts, where: items.row(texts, where),
    **options: Any,
) -> Job:
    """The job of a table of texts.

    Args:
        config: Names the columns, and the output.
        file: Just opened.
        texts: Its text column, or the two of pairs; if empty, they are found by their names.
        check: Raises a UsageError for an id that cannot be used; takes it and its place.
        row: Takes a model's items, a row by its columns, and its place; returns its item.
        options: Fields of `Job`; `path` is by default the one asked for.

    Raises:
        UsageError: for a column that does not exist, if no column or several could be meant, or if standard output is
            closed.
    """
    asked = config.predict
    if not texts:  # Several columns may look like labels: predict has no --label_column.
        others = [column for column in file.columns if column != asked.id_column]
        texts, _ = find_columns(file, config.data.text_column, columns=others, find_label=False)
    id_column = id_column_of(asked, file, texts)

    def rows() -> Iterator[tuple[str, Any]]:
        for line, cells in file.read([*texts, *([id_column] if id_column else [])]):
            yield f"{file.name}, {file.unit} {line}", cells

    def read(items: Items, cells: list[Any], number: int, where: str) -> Any:
        item = row(items, dict(zip(texts, cells, strict=False)), where)
        item.name = row_id(cells[-1], id_column, where) if id_column else number
        check(item.name, where)
        return item

    if "path" not in options:
        options["path"] = output_path(asked)
    has_others = len(file.columns) > len(texts)
    options.setdefault("columns", {"text_column": tuple(texts)} if has_others else {})
    if has_others and not id_column and not asked.glue_task:
        options["notes"] = lambda: [f"{file.name}: no column of ids is known (--id_column): rows are numbered from 0"]
    return Job(name=file.name, rows=rows(), read=read, texts=texts, **options)


def typed_texts(asked: PredictConfig, names: Sequence[str] = ("text", "text_pair")) -> OpenFile:
    """The texts of `--text`, and of `--text_pair` if there are any, as a file of rows.

    Args:
        asked: Holds them.
        names: What to call the two columns.
    """
    given = (asked.text, asked.text_pair) if asked.text_pair else (asked.text,)
    columns = dict(zip(names, given, strict=False))

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        rows = zip(*(columns[name] for name in wanted), strict=True)
        return ((number, list(row)) for number, row in enumerate(rows, 1))

    return OpenFile(name=TYPED_TEXTS, columns=[*columns], read=read, unit="text")


def open_text_file(config: Config) -> OpenFile:
    """Opens the file or stream of texts to predict, or takes those of the command line.

    Raises:
        UsageError: for input that cannot be opened.
    """
    if config.predict.text:
        return typed_texts(config.predict)
    source, data = input_source(config.predict.input_file), config.data
    return open_rows(source, source_format(source, data, TEXTS, "text"), header=data.header, delimiter=data.separator)


def id_column_of(asked: PredictConfig, file: OpenFile, but: Sequence[str] = ()) -> str:
    """The column of ids: the one asked for, else the only one of its usual names; empty where there is none.

    Args:
        asked: Names it, perhaps.
        file: Whose column it is.
        but: Columns that are something else.

    Raises:
        UsageError: for a column that the input does not have.
    """
    if asked.id_column and file.columns.count(asked.id_column) != 1:
        raise UsageError(
            f"id_column must be a column of the input. Received: id_column={asked.id_column!r} for {file.name} with "
            f"columns {', '.join(map(repr, file.columns[:20])) or 'none'}. Pass one of them, or drop --id_column: rows "
            "are numbered."
        )
    return asked.id_column or usual_id_column([column for column in file.columns if column not in but])


def usual_id_column(columns: Sequence[str]) -> str:
    """The one column with a usual name for ids; empty if there is none, or several."""
    usual = [column for column in columns if column.strip().lower() in _ID_NAMES]
    return usual[0] if len(usual) == 1 else ""


def row_id(value: Any, column: str, where: str) -> str | int | float:
    """The id in a form that both .tsv and JSON can hold."""
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):  # From .parquet.
        return str(value)
    if isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    todo = "Repair or drop the row, or pass another --id_column."
    raise UsageError(f"An id must be a word, a number or a date. Received: {column}={value!r:.60} in {where}. {todo}")


def output_path(asked: PredictConfig) -> pathlib.Path | None:
    """Where predictions go; None for standard output.

    Raises:
        UsageError: if standard output is closed; found now, not after the model has been loaded.
    """
    if asked.output_file != STANDARD_STREAM:
        return pathlib.Path(asked.output_file)
    standard_output()
    return None


def chosen_format(asked: PredictConfig, formats: Formats, *, default: str) -> str:
    """The format of predictions: the user's choice, or by the file's ending.

    Args:
        asked: Names the file, and perhaps the format.
        formats: The possible ones.
        default: The format on standard output, but for texts that were given one by one: they are answered in JSON.

    Raises:
        UsageError: for another ending or another format.
    """
    if asked.output_format in formats:
        return asked.output_format
    if asked.output_format == "auto" and asked.output_file == STANDARD_STREAM:
        return "jsonl" if asked.text else default
    if asked.output_format == "auto" and (found := format_of(asked.output_file, formats)):
        return found
    endings = _either(known[0] for known in formats.values())
    received = f"output_format={asked.output_format!r}, output_file={asked.output_file!r}"
    todo = f"Pass --output_format with one of them, or a file that ends in {endings}, also with .gz."
    raise UsageError(f"Predictions of this model are written as {_either(formats)}. Received: {received}. {todo}")


def _either(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def standard_output() -> TextIO:
    """Standard output, to write predictions to.

    Raises:
        UsageError: if it is closed: Python would silently drop what is written.
    """
    if sys.stdout is None:
        rule = "Standard output must be open to write predictions to it"
        received = "output_file='-' with it closed"
        raise UsageError(f"{rule}. Received: {received}. Pass --output_file=FILE, or run the command without >&-.")
    return sys.stdout


def write_predictions(path: pathlib.Path | None, lines: Iterable[str], *, is_writer: bool = True) -> None:
    """Writes lines as they are made. A file appears under its name when it is whole.

    Args:
        path: The file to write; None: standard output.
        lines: Without their ends.
        is_writer: Whether to write at all; the lines are made in any case.

    Raises:
        RunError: if they cannot be written.
    """
    text = (f"{line}\n" for line in lines)
    if not is_writer:
        collections.deque(text, maxlen=0)
    elif path is not None:
        output_dir.make(path.parent)
        output_dir.write_text(path, text)
    else:
        _print(text)


def _print(text: Iterable[str]) -> None:
    file: Any = standard_output()
    if hasattr(file, "reconfigure"):  # JSON can bring a lone surrogate into an id: it is written as \udc80.
        file.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        try:
            file.writelines(text)
        finally:  # What was written stays written.
            file.flush()
    except OSError as error:
        if sys.stdout is sys.__stdout__:  # No notebook's. Python flushes its buffer at exit, and would fail again.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise ReaderGone from None
        rule, todo = "Output must be writable", "Check free space and permissions there."
        raise RunError(f"{rule}. Received: standard output ({error.strerror}). {todo}") from None


def _json_lines(items: Items, answers: Answered) -> Iterator[str]:
    """One object per line: `id`, and the record."""
    for item, record in answers:
        yield json.dumps({"id": item.name} | record, ensure_ascii=False, default=rounded)


def _table(line: Line, items: Items, answers: Answered) -> Iterator[str]:
    """`id` and the task's columns."""
    yield line(["id", *items.columns()])
    for item, record in answers:
        for cells in items.cells(item, record):
            yield line([item.name, *map(_cell, cells)])


def _tsv_line(values: Iterable[Any]) -> str:
    """Tabs and line ends, which only CSV and JSON input can contain, are written as `\\t`, `\\n` and `\\r`;
    backslashes, as of paths, stay as they are. A .csv holds them in quotes."""
    cells = (str(value).replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r") for value in values)
    return "\t".join(cells)


def _csv_line(values: Iterable[Any]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\r\n").writerow(values)  # These ends decide what is quoted.
    return file.getvalue().removesuffix("\r\n")


def _cell(value: Any) -> Any:
    return f"{value:.7g}" if type(value) is np.float32 else value


def _conll(items: Items, answers: Answered) -> Iterator[str]:
    """The lines of the input's words, each with its predicted tag, and a blank line between sentences."""
    for number, (item, record) in enumerate(answers):
        if number:
            yield ""
        yield from (f"{line}{tag}" for line, tag in zip(item.written, record["tags"], strict=True))


def _squad(items: Items, answers: Answered) -> Iterator[str]:
    """One object, id -> answer, as in SQuAD's `predictions.json`; one question per line."""
    before = "{"
    for item, record in answers:
        yield before
        before = json.dumps({str(item.name): record["answer"]}, ensure_ascii=False)[1:-1] + ","
    yield before.removesuffix(",")
    yield "}"


FORMATS = {
    "jsonl": _json_lines,
    "conll": _conll,
    "squad": _squad,
    "tsv": functools.partial(_table, _tsv_line),
    "csv": functools.partial(_table, _csv_line),
}
"""Items of a model, and these with their records -> the lines of a file."""


_ROWS_AT_ONCE = 32
"""Rows that the model computes at a time where one text may become many: memory does not grow with its length."""

BLANK = r"[\s\x0b\x1c-\x1f\x{85}\pZ]*"
"""Matches a text of which Python's `str.strip` leaves nothing."""
NOT_FINITE = f"Predictions must be finite. {SAVED_MODEL_WAY_OUT}."


class ServedModel(tf.Module):
    """A model that takes raw text.

    A batch may hold the rows of several clients, so a row that cannot be answered changes no other: `error`, string
    `[n]`, says why, and is empty for all others. Only inputs that do not fit each other, or no row, end in an error.

    Args:
        model: Text is cut or split, and given special tokens, as in this model's training.

    Attributes:
        num_texts: How many texts an input has; None if models of the task differ.
        text_inputs: The names of the texts; empty for a model that takes token ids alone.
    """

    num_texts: ClassVar[int | None] = None
    text_inputs: Any = ()

    def __init__(self, model: TrainedModel):
        super().__init__()
        self._model = model
        # Only the variables: for a Keras model, tf.saved_model.save would also trace and store every layer.
        self._weights = [variable.value for variable in model.classifier.weights]

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        """The task's options that are part of the graph, as JSON can hold them."""
        return {}

    @classmethod
    def takes_text(cls, model: TrainedModel) -> bool:
        """Whether the graph of a model holds its tokenizer."""
        return bool(cls.text_inputs) and model.tokenizer.in_graph

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answers to texts, string `[n]` each, by name."""
        raise NotImplementedError

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answers to rows of token ids, by name, from the model's logits for them."""
        return {"logits": logits}

    def signature_functions(self) -> dict[str, Any]:
        """The signatures of the SavedModel.

        Returns:
            `serving_default`, also called `text`: takes the texts, string `[n]` each. `token_ids`: takes `input_ids`,
            `attention_mask` and, where the model reads it, `token_type_ids`, int32 `[n, length]`, with a length from 1
            to the model's positions. With a tokenizer that no graph holds, or a task without texts, `serving_default`
            is `token_ids`, and there is no `text`. No rows give no rows. Inputs whose shapes do not fit end in an
            InvalidArgumentError that says the rule; a row of ids that do not exist has an `error`, and its logits are
            NaN.
        """
        text = {name: tf.TensorSpec([None], tf.string, name=name) for name in self.text_inputs}
        names = self._model.classifier.config.encoder.inputs
        ids = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in names}
        # AutoGraph has nothing to convert, and takes seconds to find out.
        from_ids = tf.function(self._from_ids, autograph=False).get_concrete_function(**ids)
        if not self.takes_text(self._model):
            return {"serving_default": from_ids, "token_ids": from_ids}
        from_text = tf.function(self._from_text, autograph=False).get_concrete_function(**text)
        return {"serving_default": from_text, "text": from_text, "token_ids": from_ids}

    def _from_text(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        rule = f"Every row needs each of its texts: {' and '.join(self.text_inputs)} must be of one length. Received: "
        sizes = [tf.shape(texts[name]) for name in self.text_inputs]
        with tf.control_dependencies([_assert_all_equal(sizes, rule)]):
            return self.answer(**{name: tf.identity(part) for name, part in texts.items()})

    def _from_ids(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        config, shape = self._model.classifier.config, tf.shape(inputs["input_ids"])
        count, width, positions = shape[0], shape[1], config.num_positions
        rule = f"{', '.join(inputs)} must be of one shape. Received: "
        fits = [_assert_all_equal([tf.shape(value) for value in inputs.values()], rule)]
        rule = f"Rows must have 1 to {positions} columns, as many as the model has positions. Received: "
        fits += [tf.debugging.Assert((count == 0) | ((width > 0) & (width <= positions)), [rule, shape])]
        with tf.control_dependencies(fits):
            error = tf.fill([count], "")
            sizes = {"token_type_ids": config.type_vocab_size, "input_ids": config.vocab_size}
            for name, size in ((name, size) for name, size in sizes.items() if name in inputs):
                # For an id outside the table a GPU gives zeros, without an error.
                outside = (inputs[name] < 0) | (inputs[name] >= size)
                rule = f"{name} must be from 0 to {size - 1}."
                error = tf.where(tf.reduce_any(outside, axis=1), rule, error)
                inputs[name] = tf.where(outside, 0, inputs[name])
            # BERT cannot compute a batch without rows: one row stands in, and is taken out again. A batch without rows
            # may have any number of columns, also none.
            stand_in = [[0, tf.maximum(1 - count, 0)], [0, tf.maximum(1 - width, 0)]]
            inputs = {name: tf.pad(value, stand_in)[:, :positions] for name, value in inputs.items()}
        return self.answer_rows(self._model.logits(inputs)[:count], error)

    def answer_rows(self, logits: tf.Tensor, error: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answers to rows, by name, and `error`; the logits of a row with an error are NaN.

        Args:
            logits: float32 `[n, ...]`.
            error: string `[n]`, empty but for rows that could not be computed.
        """
        of_row = list(range(1, logits.shape.rank))
        is_finite = tf.reduce_all(tf.math.is_finite(logits), axis=of_row)
        error = tf.where((error == "") & ~is_finite, NOT_FINITE, error)
        is_sound = tf.reshape(error == "", [-1, *[1] * len(of_row)])
        return self.answer_ids(tf.where(is_sound, logits, float("nan"))) | {"error": error}

    def logits_of(self, tokens: TokenTensors) -> tf.Tensor:
        """The logits of some rows, any number, as a `Predictor` gives them: float32 `[rows, labels]`; or where the task
        reads tokens, `[tokens, labels]`, in the order of `tokens.flat`."""
        task: Any = self._model.task

        def compute(rows: tf.Tensor) -> tf.Tensor:
            padded = padded_inputs_in_graph(tokens, rows, tf.reduce_max(tf.gather(tokens.lengths, rows)))
            logits = self._model.logits(padded.inputs)
            return tf.boolean_mask(logits, padded.is_token) if task.reads_tokens else logits

        none = tf.zeros([0, len(task.head().labels)])
        return in_parts(compute, tf.range(tf.size(tokens.lengths)), _ROWS_AT_ONCE, none)


def in_parts(function: Callable[[tf.Tensor], tf.Tensor], rows: tf.Tensor, at_once: Any, none: tf.Tensor) -> tf.Tensor:
    """What a function makes of rows, concatenated: it is given some at a time, as many as memory and caches are for.

    Args:
        function: Takes numbers of rows; returns a tensor `[any, columns]`.
        rows: The numbers of all rows, of an integer type.
        at_once: At least 1.
        none: What the function makes of no rows: `[0, columns]`.
    """
    shape = [None, *none.shape[1:]]
    parts = tf.TensorArray(none.dtype, size=1, dynamic_size=True, infer_shape=False, element_shape=shape)

    def add(number: tf.Tensor, parts: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return number + 1, parts.write(number + 1, function(rows[number * at_once : (number + 1) * at_once]))

    _, parts = tf.while_loop(
        lambda number, _: number * at_once < tf.size(rows),
        add,
        (0, parts.write(0, none)),
        parallel_iterations=1,  # Else several are in memory at a time.
    )
    return parts.concat()


def without_endless(
    error: tf.Tensor, logits: tf.Tensor, tokens: TokenTensors, text_of: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the texts with logits that are not finite, which would spoil sums over all texts.

    Args:
        error: string `[n]`, as in `ServedModel`.
        logits: float32 `[tokens, labels]`.
        tokens: The rows.
        text_of: int64 `[rows]`, the text that each row is of.

    Returns:
        `error` with those texts, and the logits with 0 for them.
    """
    text_of = tf.repeat(text_of, tokens.lengths)
    is_endless = tf.reduce_any(~tf.math.is_finite(logits), axis=1)
    is_endless = tf.math.unsorted_segment_max(tf.cast(is_endless, tf.int32), text_of, tf.size(error)) > 0
    logits = tf.where(tf.gather(is_endless, text_of)[:, tf.newaxis], 0.0, logits)
    return tf.where((error == "") & is_endless, NOT_FINITE, error), logits


def substrings(text: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Parts of texts, by characters as Python counts them.

    Args:
        text: string `[n]`; bytes that are not UTF-8 are counted and replaced as `bytes.decode(errors="replace")` does.
        rows: int64 `[m]`, the text of each part.
        starts: int32 `[m]`, its first character.
        ends: int32 `[m]`, the character after its last.

    Returns:
        string `[m]`.
    """
    codes = tf.strings.unicode_decode(text, "UTF-8")
    origin = tf.gather(codes.row_starts(), rows)
    places = tf.ragged.range(origin + tf.cast(starts, tf.int64), origin + tf.cast(ends, tf.int64))
    return tf.strings.unicode_encode(tf.gather(codes.values, places), "UTF-8")


def _assert_all_equal(shapes: Sequence[tf.Tensor], rule: str) -> tf.Operation:
    """Refuses inputs of different shapes, in the graph."""
    equal = tf.reduce_all([tf.reduce_all(shape == shapes[0]) for shape in shapes])
    return tf.debugging.Assert(equal, [rule, *shapes])
