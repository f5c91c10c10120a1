"""Prediction of choices: files of questions, in any form in which they are read -> a choice for each question."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfbert.config.run import Config
from tfbert.data.endings import PREDICTED_TEXTS, TABLES
from tfbert.data.open_file import BadRows
from tfbert.data.rows import input_source
from tfbert.errors import UsageError
from tfbert.tasks.base import rounded
from tfbert.tasks.choosing.encoded import EncodedChoices, encode_choices
from tfbert.tasks.choosing.metrics import Choices
from tfbert.tasks.choosing.questions import Asked, Checks, OpenQuestions, open_questions, place_text, unlabelled
from tfbert.tasks.prediction_files import Line, PredictionFile, chosen_format, line_of
from tfbert.tasks.prediction_texts import CHUNK_CHARACTERS, check_id_column, output_path, row_id, usual_id_column
from tfbert.tasks.trained import TrainedModel

log = logging.getLogger("tfbert")

CHUNK_QUESTIONS = 2048
"""The most questions that are read, sorted by length and predicted together."""


@dataclasses.dataclass(frozen=True)
class Questions:
    """Consecutive questions."""

    ids: list[Asked]


@dataclasses.dataclass(kw_only=True)
class ChoiceJob:
    """A file of questions with choices, see `Job`.

    Attributes:
        opened: The file, just opened.
        path: Where the predictions go; None for standard output.
        format: Of the predictions.
        num_cut: Questions so far whose context was cut.
    """

    opened: OpenQuestions
    path: pathlib.Path | None
    format: str
    num_cut: int = 0

    @property
    def name(self) -> str:
        return self.opened.name

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        return self.opened.read

    def writer(self, model: TrainedModel, *, is_writer: bool) -> PredictionFile:
        if self.format in TABLES:
            return _TableFile(self.path, is_writer=is_writer, line=line_of(self.format))
        return _JsonFile(self.path, is_writer=is_writer)

    def chunks(self, model: TrainedModel, bad_rows: BadRows) -> Iterator[Questions]:
        opened, check_room = self.opened, room_check(model)
        numbered = ((number, place, asked) for number, (place, asked) in enumerate(opened.rows))
        rows = (((number, place), asked) for number, place, asked in numbered)
        found: list[Asked] = []
        size = total = 0

        def checked(key: tuple[int, Any], asked: Asked) -> Asked:
            number, place = key
            where = f"{opened.name}, {place_text(opened.place_names, place)}"
            name = number if asked.name is None else row_id(asked.name, "id", where)
            check_room(asked, where)
            bad_rows.note_bytes([asked.context, asked.question, *asked.choices], where)
            return dataclasses.replace(asked, name=name)

        for asked in bad_rows.usable(rows, checked):
            found.append(asked)
            size += len(asked.context) * len(asked.choices) + sum(map(len, asked.choices))
            if len(found) == CHUNK_QUESTIONS or size >= CHUNK_CHARACTERS:
                total += len(found)
                yield Questions(found)
                found, size = [], 0
        if found:
            total += len(found)
            yield Questions(found)
        if self.num_cut:
            log.info(
                "%s: contexts of %s of %s questions are cut to fit %d tokens",
                *(self.name, f"{self.num_cut:,}", f"{total:,}", model.max_seq_length),
            )

    def encoder(self, model: TrainedModel) -> Callable[[Questions], EncodedChoices]:
        def encode(chunk: Questions) -> EncodedChoices:
            encoded = encoded_questions(model, chunk.ids, self.name)
            self.num_cut += encoded.num_cut
            return encoded

        return encode


def open_choice_files(config: Config) -> list[ChoiceJob]:
    """The questions to answer, and where the answers go.

    Raises:
        UsageError: for input that cannot be opened, output without a known ending, or a data set by name.
    """
    asked, data = config.predict, config.data
    if data.dataset or asked.glue_task:
        raise UsageError(
            "Choices are predicted for files. "
            f"Received: dataset={data.dataset!r}, glue_task={asked.glue_task!r}. Pass --input_file."
        )
    if asked.text:
        raise UsageError(
            "Choices are predicted for files, or in Python by tfbert.load. "
            f"Received: text={asked.text[0]!r:.60}. Pass --input_file."
        )

    def id_column(columns: Sequence[str]) -> str:
        if asked.id_column and not columns:
            check_id_column(asked.id_column, asked.input_file, columns)
        return asked.id_column or usual_id_column(columns)

    opened = open_questions(
        input_source(asked.input_file),
        data,
        choice_columns=config.choosing.choice_columns,
        id_column=id_column,
        checks=Checks(strict=False, labelled=False),
    )
    format = chosen_format(asked, PREDICTED_TEXTS, default="jsonl")
    return [ChoiceJob(opened=opened, path=output_path(asked), format=format)]


def encoded_questions(model: TrainedModel, asked: Sequence[Asked], name: str) -> EncodedChoices:
    """Questions without labels as token ids."""
    examples = unlabelled(name, asked)
    return encode_choices(
        asked,
        model.tokenizer,
        model.max_seq_length,
        labels=examples.labels,
        where=lambda row: f"{name}, {asked[row].name!r}",
    )


def room_check(model: TrainedModel) -> Callable[[Asked, str], None]:
    """A function that refuses a question that is too long; it takes the question and its place.

    It tokenises only those that may be.
    """
    length, tokenizer = model.max_seq_length, model.tokenizer

    def check(asked: Asked, where: str) -> None:
        longest = max(map(len, asked.choices))
        room = length - tokenizer.num_special(2) - 1
        if tokenizer.most_per_character * (len(asked.question) + longest) > room:
            none = unlabelled("", [asked])
            encode_choices([asked], tokenizer, length, labels=none.labels, where=lambda row: where)

    return check


def chosen(asked: Sequence[Asked], choices: Choices) -> Iterator[dict[str, Any]]:
    """The answer to each question: `index`, the number of the best choice from 0; `choice`, its text; `score`, its
    probability; `probabilities`, that of each choice."""
    rows = zip(asked, choices.index.tolist(), choices.probabilities, strict=True)
    for one, index, shares in rows:
        own = [rounded(share) for share in shares[: len(one.choices)]]
        yield {"index": index, "choice": one.choices[index], "score": own[index], "probabilities": own}


class _JsonFile(PredictionFile):
    """One object per line."""

    def _lines(self, ids: Sequence[Asked], outputs: Choices) -> Iterable[str]:
        rows = zip(ids, chosen(ids, outputs), strict=True)
        return (json.dumps({"id": asked.name} | answer, ensure_ascii=False) for asked, answer in rows)


class _TableFile(PredictionFile):
    """One row per question; the probabilities as a list in JSON."""

    def __init__(self, path: pathlib.Path | None, *, is_writer: bool, line: Line):
        super().__init__(path, is_writer=is_writer)
        self._line = line

    def _header(self) -> Iterable[str]:
        return [self._line(("id", "index", "choice", "score", "probabilities"))]

    def _lines(self, ids: Sequence[Asked], outputs: Choices) -> Iterable[str]:
        rows = zip(ids, chosen(ids, outputs), strict=True)
        return (self._line((asked.name, *answer.values())) for asked, answer in rows)
