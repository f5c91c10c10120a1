"""Files of texts to predict, as all tasks read them: rows -> chunks of texts with their ids -> token ids."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tfbert.config.data import STANDARD_STREAM, TYPED_TEXTS
from tfbert.config.parts import PredictConfig
from tfbert.config.run import Config
from tfbert.data.columns import find_columns
from tfbert.data.endings import TEXTS
from tfbert.data.files import check_text
from tfbert.data.open_file import BadRows, OpenFile, Row
from tfbert.data.rows import input_source, open_rows, source_format
from tfbert.errors import UsageError
from tfbert.tasks.prediction_files import PredictionFile, open_predictions, output_format, standard_output
from tfbert.tasks.trained import TrainedModel
from tfbert.tokens.tokenizer import TokenIds

CHUNK_ROWS = 8192
"""The most rows that are read, sorted by length and predicted together."""
CHUNK_CHARACTERS = 1 << 22
"""A chunk ends at this many characters too, so that memory does not grow with the length of texts."""

_ID_NAMES = ("id", "idx", "index", "guid")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts:
    """Consecutive rows: each one's id, text and, for pairs, second text."""

    ids: list[Any]
    text: list[str]
    text_pair: list[str] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextJob:
    """A file of texts to predict, see `Job`.

    Attributes:
        file: The file, just opened.
        texts: Its text column, or the two of pairs.
        id_column: The column that names its rows; if empty, they are numbered.
        path: Where the predictions go; None for standard output.
        format: Of the predictions.
    """

    file: OpenFile
    texts: tuple[str, ...]
    id_column: str
    path: pathlib.Path | None
    format: str

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        return {"text_column": self.texts} if len(self.file.columns) > len(self.texts) else {}

    def writer(self, model: TrainedModel, *, is_writer: bool) -> PredictionFile:
        model.check_texts(self.texts, self.file.name)
        return open_predictions(self.path, self.format, model.task, is_writer=is_writer)

    def chunks(self, model: TrainedModel, bad_rows: BadRows) -> Iterator[Texts]:
        return read_texts(self.file, self.texts, self.id_column, bad_rows)

    def encoder(self, model: TrainedModel) -> Callable[[Texts], EncodedTexts]:
        def encode(chunk: Texts) -> EncodedTexts:
            tokens = model.tokenizer.encode(chunk.text, chunk.text_pair, max_seq_length=model.max_seq_length)
            return EncodedTexts(tokens)

        return encode


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsJob:
    """What the jobs of other tasks share that read a file of texts, or pairs of texts.

    Attributes:
        texts: The file, and where the predictions go.
    """

    texts: TextJob

    @property
    def name(self) -> str:
        return self.texts.name

    @property
    def path(self) -> pathlib.Path | None:
        return self.texts.path

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        return self.texts.columns


class EncodedTexts(NamedTuple):
    """Texts without labels as token ids."""

    tokens: TokenIds


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


def text_job(config: Config, file: OpenFile, *, format: str = "") -> TextJob:
    """A file's texts, found by the names of columns, and where the predictions go.

    Args:
        config: Names the columns and the output.
        file: Just opened.
        format: Of the predictions; empty: as asked for, `tsv` or `jsonl`.

    Raises:
        UsageError: for columns that do not exist, output without a known ending, or standard output that is closed.
    """
    asked = config.predict
    texts, id_column = find_text_columns(file, config.data.text_column, asked.id_column)
    path = output_path(asked)
    return TextJob(file=file, texts=texts, id_column=id_column, path=path, format=format or output_format(asked))


def output_path(asked: PredictConfig) -> pathlib.Path | None:
    """Where predictions go; None for standard output.

    Raises:
        UsageError: if standard output is closed; found now, not after the model has been loaded.
    """
    if asked.output_file != STANDARD_STREAM:
        return pathlib.Path(asked.output_file)
    standard_output()
    return None


def read_texts(
    file: OpenFile,
    texts: Sequence[str],
    id_column: str,
    bad_rows: BadRows,
    *,
    most_rows: int = CHUNK_ROWS,
    check: Callable[[Any, list[str], str], None] = lambda name, values, where: None,
) -> Iterator[Texts]:
    """Reads all rows, in chunks.

    Args:
        file: The file, just opened.
        texts: The column of the texts, or the two of pairs.
        id_column: The column of the ids; if empty, rows are numbered from 0.
        bad_rows: Decides about rows that cannot be read.
        most_rows: The most rows of a chunk.
        check: Raises a UsageError for a row that cannot be answered; takes its id, its texts and its place.

    Raises:
        UsageError: for a row that cannot be read and may not be skipped.
    """
    wanted = [*texts, *([id_column] if id_column else [])]
    ids: list[Any] = []
    columns: list[list[str]] = [[] for _ in texts]
    size = 0

    def checked(place: tuple[int, int], row: list[Any]) -> tuple[Any, list[str]]:
        number, line = place
        where = f"{file.name}, {file.unit} {line}"
        # Invalid Unicode reaches the tokenizer, which drops it, as in an exported model.
        values = [check_text(value, name, where, strict=False) for name, value in zip(texts, row, strict=False)]
        name = row_id(row[-1], id_column, where) if id_column else number
        check(name, values, where)
        bad_rows.note_bytes(values, where)
        return name, values

    rows = (((number, line), row) for number, (line, row) in enumerate(file.read(wanted)))
    for name, values in bad_rows.usable(rows, checked):
        ids.append(name)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
            size += len(value)
        if len(ids) == most_rows or size >= CHUNK_CHARACTERS:
            yield Texts(ids=ids, text=columns[0], text_pair=columns[1] if len(texts) == 2 else None)
            ids, columns, size = [], [[] for _ in texts], 0
    if ids:
        yield Texts(ids=ids, text=columns[0], text_pair=columns[1] if len(texts) == 2 else None)


def find_text_columns(file: OpenFile, text_column: Sequence[str], id_column: str) -> tuple[tuple[str, ...], str]:
    """The column or columns of the texts, and that of the ids (`""`: none).

    Args:
        file: The file, just opened.
        text_column: The columns asked for; if empty, they are found by name.
        id_column: The column asked for; if empty, it is found by name.

    Raises:
        UsageError: for a column that does not exist, or if no column or several could be meant.
    """
    check_id_column(id_column, file.name, file.columns)
    others = [column for column in file.columns if column != id_column]
    texts, _ = find_columns(
        file.name,
        others,
        text_column=text_column,
        find_label=False,  # Several may look like labels: predict has no --label_column.
        hint=file.hint,
    )
    return texts, id_column or usual_id_column([column for column in others if column not in texts])


def check_id_column(id_column: str, name: str, columns: Sequence[str]) -> None:
    """Refuses a column of ids that the input does not have; an empty name, for no column, is fine.

    Raises:
        UsageError: naming the input's columns.
    """
    if id_column and columns.count(id_column) != 1:
        raise UsageError(
            f"id_column must be a column of the input. Received: id_column={id_column!r} for {name} with columns "
            f"{', '.join(map(repr, columns[:20]))}. Pass one of them, or none."
        )


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
    raise UsageError(
        f"An id must be a word, a number or a date. Received: {column}={value!r:.60} in {where}. "
        "Repair or drop the row, or pass another --id_column."
    )
