"""Prediction of tags: reading sentences or texts one after the other, and encoding them."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from tfbert.config.data import STANDARD_STREAM, TYPED_TEXTS, is_pipe
from tfbert.config.parts import PredictConfig
from tfbert.config.run import Config
from tfbert.data.endings import CONLL_ENDINGS, PREDICTED_TAGS, TEXTS, ending_of
from tfbert.data.open_file import BadRows
from tfbert.data.rows import file_format, input_source
from tfbert.devices.runtime import tell
from tfbert.errors import UsageError
from tfbert.tasks.prediction_files import PredictionFile, chosen_format
from tfbert.tasks.prediction_texts import (
    CHUNK_ROWS,
    RowsJob,
    check_id_column,
    open_text_file,
    output_path,
    row_id,
    text_job,
    usual_id_column,
)
from tfbert.tasks.tagging.conll import ConllSentence, Sentence, looks_like_conll
from tfbert.tasks.tagging.tag_files import TagFile, TaggedItem, open_tags
from tfbert.tasks.tagging.tagged import SentenceFile, holds_word_rows, open_sentences, sentence_format
from tfbert.tasks.tagging.token_classification import EncodedSentences, SentenceExamples, encode_texts
from tfbert.tasks.trained import TrainedModel

log = logging.getLogger("tfbert")

_CHUNK_WORDS = 1 << 17


@dataclasses.dataclass(frozen=True)
class Items:
    """Consecutive sentences, or texts; each has its name and, once they are known, its words."""

    ids: list[TaggedItem]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceJob:
    """A file of sentences that are split into words, see `Job`.

    Attributes:
        file: The file, just opened.
        id_column: The column that names its rows; if empty, they are numbered.
        path: Where the predictions go; None for standard output.
        format: `conll`, `jsonl` or `tsv`.
    """

    file: SentenceFile
    id_column: str
    path: pathlib.Path | None
    format: str

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        return self.file.chosen

    def writer(self, model: TrainedModel, *, is_writer: bool) -> TagFile:
        return open_tags(self.path, self.format, model.task, is_writer=is_writer)

    def chunks(self, model: TrainedModel, bad_rows: BadRows) -> Iterator[Items]:
        items, size = [], 0

        def item(number: int, sentence: Sentence) -> TaggedItem:
            where = f"{self.file.name}, {self.file.unit} {sentence.line}"
            name = row_id(sentence.others[0], self.id_column, where) if self.id_column else number
            written = sentence if isinstance(sentence, ConllSentence) else None
            return TaggedItem(name=name, words=sentence.words, written=written)

        sentences = enumerate(self.file.read([self.id_column] if self.id_column else []))
        for read in bad_rows.usable(sentences, item):
            items.append(read)
            size += len(read.words)
            if len(items) == CHUNK_ROWS or size >= _CHUNK_WORDS:
                yield Items(items)
                items, size = [], 0
        if items:
            yield Items(items)
        tell(self.file.notes())

    def encoder(self, model: TrainedModel) -> Callable[[Items], EncodedSentences]:
        def encode(chunk: Items) -> EncodedSentences:
            return model.encode(SentenceExamples(name=self.name, words=[each.words for each in chunk.ids], labels=None))

        return encode


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedTextJob(RowsJob):
    """A file of texts in which entities are found, see `Job`.

    Attributes:
        may_be_words: Whether lines are taken for texts without having been said to be.
    """

    may_be_words: bool

    def writer(self, model: TrainedModel, *, is_writer: bool) -> PredictionFile:
        model.check_texts(self.texts.texts, self.name)
        return open_tags(self.path, self.texts.format, model.task, is_writer=is_writer)

    def chunks(self, model: TrainedModel, bad_rows: BadRows) -> Iterator[Items]:
        for number, chunk in enumerate(self.texts.chunks(model, bad_rows)):
            if not number and self.may_be_words and _look_like_words(chunk.text):
                line = "reading %s as plain texts, one a line; --input_format=conll reads words, one a line"
                log.info(line, self.name)
            pairs = zip(chunk.ids, chunk.text, strict=True)
            yield Items([TaggedItem(name=name, text=text, words=[]) for name, text in pairs])

    def encoder(self, model: TrainedModel) -> Callable[[Items], EncodedSentences]:
        return lambda chunk: encode_tagged_texts(model, chunk.ids)


def encode_tagged_texts(model: TrainedModel, items: Sequence[TaggedItem]) -> EncodedSentences:
    """Finds the words of texts, stores them in the items, and encodes them as rows."""
    encoded, places = encode_texts(model.tokenizer, [item.text for item in items], model.max_seq_length)
    for item, spans in zip(items, places, strict=True):
        item.spans = spans
        item.words = [item.text[start:end] for start, end in spans]
    return encoded


def open_sentence_files(config: Config) -> list[SentenceJob | TaggedTextJob]:
    """The input to tag, and where the tags go.

    Raises:
        UsageError: for input that cannot be opened, output without a known ending, or a data set by name.
    """
    asked, data = config.predict, config.data
    if data.dataset or asked.glue_task:
        raise UsageError(
            "A tagger reads its input from files. "
            f"Received: dataset={data.dataset!r}, glue_task={asked.glue_task!r}. Pass --input_file."
        )
    if not _holds_words(config):
        format, is_text = chosen_format(asked, PREDICTED_TAGS, default="jsonl"), _is_plain_text(config)
        if format == "conll":
            words = "--input_format=conll where it holds words, one a line, or " * (is_text and not asked.text)
            name = "standard input" if asked.input_file == STANDARD_STREAM else asked.input_file or TYPED_TEXTS
            input_is = f"{name}, which is read as {'plain ' * is_text}texts"
            raise _no_conll(asked, input_is, f"{words}--output_format=jsonl, tsv or csv")
        by_default = is_text and data.input_format == "auto" and not asked.text
        job = text_job(config, open_text_file(config), format=format)
        return [TaggedTextJob(texts=job, may_be_words=by_default)]
    if data.input_format == "auto" and is_pipe(asked.input_file):
        data = dataclasses.replace(data, input_format=sentence_format(pathlib.Path(asked.input_file)))
    file = open_sentences(input_source(asked.input_file), data)
    format = chosen_format(asked, PREDICTED_TAGS, default="conll" if file.format == "conll" else "jsonl")
    if format == "conll" and file.format != "conll":
        form = "a table with one word per row" if file.id_column else file.format
        raise _no_conll(asked, f"{file.name}, which is {form}", "--output_format=jsonl, tsv or csv")
    id_column = asked.id_column
    if file.format == "conll" and id_column:
        raise UsageError(
            "The sentences of a CoNLL file have no ids: they are numbered. "
            f"Received: id_column={id_column!r} for {file.name}. Drop --id_column."
        )
    check_id_column(id_column, file.name, file.columns)
    id_column = id_column or file.id_column or usual_id_column(file.columns if file.format != "conll" else ())
    return [SentenceJob(file=file, id_column=id_column, path=output_path(asked), format=format)]


def _no_conll(asked: PredictConfig, input_is: str, way_out: str) -> UsageError:
    by_ending = f"output_file={asked.output_file!r}" if asked.output_format == "auto" else "output_format='conll'"
    return UsageError(
        "A CoNLL file of predictions is the input with one more column. "
        f"Received: {by_ending} with {input_is}. Pass {way_out}."
    )


def _is_plain_text(config: Config) -> bool:
    """Whether input that holds no words is read line by line."""
    format, name = config.data.input_format, config.predict.input_file
    if format == "auto" and name not in ("", STANDARD_STREAM):
        format = file_format(pathlib.Path(name), TEXTS)
    return format in ("auto", "text")


def _look_like_words(texts: Sequence[str]) -> bool:
    """Whether lines look like words with blank lines between sentences: one is blank, or most have one word."""
    counts = [len(text.split()) for text in texts]
    return 0 in counts or 2 * counts.count(1) > len(counts)


def _holds_words(config: Config) -> bool:
    """Whether the input's texts are already split into words: CoNLL, or a list of words in each row."""
    data, name = config.data, config.predict.input_file
    if config.predict.text:
        return False
    if data.input_format in ("conll", "text") or is_pipe(name):
        # A pipe can be read only once: there is no look into it.
        return data.input_format == "conll" or (data.input_format == "auto" and ending_of(name) in CONLL_ENDINGS)
    path = pathlib.Path(name)
    try:
        format = sentence_format(path) if data.input_format == "auto" else data.input_format
        if data.header and holds_word_rows(path, data):
            return True
        if format == "csv":
            return False
        if format in ("conll", "tsv", "text"):
            return looks_like_conll(path, text_column=data.text_column)
        first = next(open_sentences(path, dataclasses.replace(data, delimiter="")).read(()), None)
    except UsageError:
        return False
    return first is not None and not isinstance(first, UsageError)
