"""Prediction of tags: texts, or sentences that are split into words, in Python and in files -> entities, or the tags of
words.

Token classification as a SavedModel: texts -> entities, or tagged words, with their characters.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from tfbert.config.data import STANDARD_STREAM, is_pipe
from tfbert.config.modes import PredictConfig
from tfbert.config.run import Config
from tfbert.data.files import check_text
from tfbert.data.reading import CONLL_ENDINGS, PREDICTED_TAGS, TEXTS, WORDS, ending_of
from tfbert.data.rows import file_format, input_source
from tfbert.errors import UsageError
from tfbert.tasks import prediction
from tfbert.tasks.base import Task, rounded
from tfbert.tasks.token_classification.conll import ConllSentence, Sentence, looks_like_conll
from tfbert.tasks.token_classification.tagged import holds_word_rows, open_sentences
from tfbert.tasks.token_classification.tags import entities_in_graph
from tfbert.tasks.token_classification.token_classification import (
    EncodedSentences,
    SentenceExamples,
    encode_text_words,
    text_rows_in_graph,
)
from tfbert.tokens.normalizer import Pieces

_WORD_SIZE = 32
"""What a word counts as, in characters: the scores of all tags are kept for it."""


@dataclasses.dataclass(kw_only=True, repr=False)
class TaggedItem(prediction.Item):
    """A sentence that is split into words, and has no text; or a text whose words are found when it is encoded.

    Attributes:
        words: Its words.
        spans: Each word's first character in the text, and one past its last.
        written: The lines of the CoNLL file that it came from.
    """

    texts: Sequence[str] = ()
    words: list[str] = dataclasses.field(default_factory=list)
    spans: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    written: ConllSentence | None = None

    def marked(self, what: str, kind: str, first: int, last: int, score: float) -> dict[str, Any]:
        """The words `first:last` as transformers has an entity: `start` and `end` count characters in a text and words
        in a sentence."""
        if not self.texts:
            word, start, end = " ".join(self.words[first:last]), first, last
        else:
            start, end = self.spans[first][0], self.spans[last - 1][1]
            word = self.texts[0][start:end]
        return {what: kind, "score": rounded(score), "word": word, "start": start, "end": end}


class SentenceItems(prediction.Items[TaggedItem]):
    """Texts whose words are found and tagged, or lists of words; all items of a call are of one kind."""

    def __init__(self, model: prediction.TrainedModel, top_k: Literal["best"] = prediction.BEST):
        super().__init__(model, top_k)
        self._are_texts: bool | None = None

    def item(self, value: Any, where: str) -> TaggedItem:
        is_text = not isinstance(value, tuple | list | np.ndarray)
        if self._are_texts not in (None, is_text):
            raise UsageError(
                "A tagger takes texts, or lists of words, one kind per call. "
                f"Received: {'a text' if is_text else 'words'} in {where}. Call it once for each kind."
            )
        values, name = ([value], "text") if is_text else (value, "words")
        found = [check_text(text, name, where, strict=False) for text in values]
        self._are_texts = is_text  # Not before: one that cannot be read says nothing about the others.
        return TaggedItem(texts=found) if is_text else TaggedItem(words=found)

    def check_columns(self, texts: Sequence[str], source: str) -> None:
        dataclasses.replace(self._model, num_texts=1).check_texts(texts, source)  # Whatever the directory says.

    def row(self, texts: Mapping[str, Any], where: str) -> TaggedItem:
        ((name, text),) = texts.items()
        return TaggedItem(texts=[check_text(text, name, where, strict=False)])

    def size(self, item: TaggedItem) -> int:
        return super().size(item) + _WORD_SIZE * len(item.words)

    def encode(self, items: Sequence[TaggedItem]) -> EncodedSentences:
        if not items[0].texts:
            return self._model.encode(
                SentenceExamples(name=prediction.NAME, words=[item.words for item in items], labels=None)
            )
        tokenizer, length = self._model.tokenizer, self._model.max_seq_length
        found = encode_text_words(tokenizer, [item.texts[0] for item in items], max_seq_length=length)
        spans = list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
        for item, (first, last) in zip(items, itertools.pairwise(found.splits.tolist()), strict=True):
            item.spans = spans[first:last]
            item.words = [item.texts[0][start:end] for start, end in item.spans]
        # No text may have a word, but a model must be given at least one row.
        tokens = found.rows.tokens if len(found.rows.tokens) else tokenizer.encode([""], max_seq_length=2)
        labels, weights = np.zeros(len(tokens.flat), np.int32), np.zeros(len(tokens.flat), np.float32)
        return EncodedSentences(
            tokens=tokens, labels=labels, weights=weights, labels_tokens=True, first_pieces=found.rows.first_piece
        )

    def _marked(
        self, items: Sequence[TaggedItem], predictions: np.ndarray
    ) -> Iterator[tuple[TaggedItem, list[str], Iterator[dict[str, Any]]]]:
        """Each item with the tags of its words, and its entities; or its words, where tags mark no entities."""
        what, counts = "entity_group" if self.task.has_entities else "entity", [len(item.words) for item in items]
        tags = [self.task.label_names[tag] for tag in predictions.argmax(axis=1)]
        kinds, firsts, lasts, scores = self.task.marked(predictions, counts)
        spans = list(zip(kinds, firsts.tolist(), lasts.tolist(), scores.tolist(), strict=True))
        ends = [*itertools.accumulate(counts)]
        places = np.searchsorted(firsts, [0, *ends]).tolist()
        for item, end, (first, last) in zip(items, ends, itertools.pairwise(places), strict=True):
            at = end - len(item.words)
            own = (item.marked(what, kind, a - at, b - at, score) for kind, a, b, score in spans[first:last])
            yield item, tags[at:end], own

    def answers(self, items: Sequence[TaggedItem], predictions: np.ndarray) -> Iterator[list[dict[str, Any]]]:
        return ([*marked] for _, _, marked in self._marked(items, predictions))

    def records(self, items: Sequence[TaggedItem], predictions: np.ndarray) -> Iterator[dict[str, Any]]:
        """`tags` of a sentence, and `entities`; `words` of a text where tags mark no entities."""
        for item, tags, marked in self._marked(items, predictions):
            found: dict[str, Any] = {} if item.texts else {"tags": tags}
            if self.task.has_entities:
                found["entities"] = [*marked]
            elif item.texts:
                found["words"] = [*marked]
            yield found

    def columns(self) -> Sequence[str]:
        return ("type", "text", "start", "end", "score") if self.task.has_entities else ("word", "tag")

    def cells(self, item: TaggedItem, record: dict[str, Any]) -> Iterable[Sequence[Any]]:
        """A row for each entity, or for each word where tags mark no entities."""
        if self.task.has_entities:
            keys = ("entity_group", "word", "start", "end", "score")
            return [[entity[key] for key in keys] for entity in record["entities"]]
        tags = record["tags"] if "tags" in record else [word["entity"] for word in record["words"]]
        return zip(item.words, tags, strict=True)


def open_sentence_files(config: Config) -> list[prediction.Job]:
    """The input to tag, and where the tags go.

    Raises:
        UsageError: for input that cannot be opened, or output without a known ending.
    """
    asked, data = config.predict, config.data
    if not _holds_words(config):
        format, is_text = prediction.chosen_format(asked, PREDICTED_TAGS, default="jsonl"), _is_plain_text(config)
        file = prediction.open_text_file(config)
        if format == "conll":
            words = "--input_format=conll where it holds words, one a line, or " if is_text and not asked.text else ""
            input_is = f"{file.name}, which is read as {'plain texts' if is_text else 'texts'}"
            raise _no_conll(asked, input_is, f"{words}--output_format=jsonl, tsv or csv")
        by_default = is_text and data.input_format == "auto" and not asked.text
        doubts = functools.partial(_about_words, file.name) if by_default else lambda items: []
        return [prediction.table_job(config, file, format=format, doubts=doubts)]
    if data.input_format == "auto" and is_pipe(asked.input_file):
        data = dataclasses.replace(data, input_format=file_format(pathlib.Path(asked.input_file), WORDS))
    file = open_sentences(input_source(asked.input_file), data)
    format = prediction.chosen_format(asked, PREDICTED_TAGS, default="conll" if file.format == "conll" else "jsonl")
    if format == "conll" and file.format != "conll":
        form = "a table with one word per row" if file.id_column else file.format
        raise _no_conll(asked, f"{file.name}, which is {form}", "--output_format=jsonl, tsv or csv")
    id_column = asked.id_column
    if file.format == "conll" and id_column:
        raise UsageError(
            "The sentences of a CoNLL file have no ids: they are numbered. "
            f"Received: id_column={id_column!r} for {file.name}. Drop --id_column."
        )
    prediction.check_id_column(id_column, file.name, file.columns)
    id_column = (
        id_column or file.id_column or prediction.usual_id_column(file.columns if file.format != "conll" else ())
    )

    def read(items: SentenceItems, row: Sentence, number: int, where: str) -> TaggedItem:
        name = (
            prediction.row_id(row.others[0], id_column, f"{file.name}, {file.unit} {row.line}") if id_column else number
        )
        return TaggedItem(name=name, words=row.words, written=row if isinstance(row, ConllSentence) else None)

    return [
        prediction.Job(
            name=file.name,
            columns=file.chosen,
            rows=(("", row) for row in file.read([id_column] if id_column else [])),
            read=read,
            path=prediction.output_path(asked),
            format=format,
            notes=file.notes,
        )
    ]


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


def _about_words(name: str, items: Sequence[TaggedItem]) -> list[str]:
    """A line if texts look like words with blank lines between sentences: one is blank, or most have one word."""
    counts = [len(item.texts[0].split()) for item in items]
    if 0 not in counts and 2 * counts.count(1) <= len(counts):
        return []
    return [f"reading {name} as plain texts, one a line; --input_format=conll reads words, one a line"]


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
        format = file_format(path, WORDS) if data.input_format == "auto" else data.input_format
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


class Tagger(prediction.ServedModel):
    """Takes `text`; gives the predictions of `--mode=predict`.

    Returns flat arrays over all texts, in their order. For entities: `entity_row`, int32 `[m]`, the text that each is
    in; `entity_type` and `entity_text`, string `[m]`; `entity_start` and `entity_end`, int32 `[m]`, its first character
    and the one after its last, as Python counts characters; `entity_score`, float32 `[m]`, its words' mean probability.
    Where tags are no entities, the same for words: `word_row`, `word_tag`, `word_text`, `word_start`, `word_end` and
    `word_score`. And `error`, string `[n]`, see `ServedModel`: nothing is said about a text with an error.

    For rows of token ids, returns `logits`, float32 `[n, length, num_labels]`, and `error`.

    Raises:
        UsageError: if `max_seq_length` has no room for a word.
    """

    num_texts: ClassVar[int | None] = 1
    text_inputs = ("text",)

    def __init__(self, model: prediction.TrainedModel):
        if model.max_seq_length < 3:
            raise UsageError(
                "max_seq_length must hold 2 special tokens and a word. "
                f"Received: max_seq_length={model.max_seq_length}. Pass a larger one."
            )
        super().__init__(model)

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        return {"strict_entities": task.strict_entities}

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        tokenizer = self._model.tokenizer
        with tf.device("CPU:0"):
            pieces = tokenizer.tokenize_with_offsets(text)
            rows = text_rows_in_graph(tokenizer, pieces, self._model.max_seq_length)
        logits = self.token_logits(rows.tokens)
        with tf.device("CPU:0"):
            error, logits = prediction.without_endless(tf.fill(tf.shape(text), ""), logits, rows.tokens, rows.sentence)
            return self._found(text, pieces, tf.gather(logits, rows.first_piece), error) | {"error": error}

    def _found(self, text: tf.Tensor, pieces: Pieces, logits: tf.Tensor, error: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answer for words with these logits, float32 `[words, num_labels]`, in texts without an error."""
        task, texts = self._model.task, pieces.word_starts.value_rowids()
        tags = tf.argmax(logits, axis=1)
        first = last = tf.range(tf.size(tags))
        score = tf.reduce_max(tf.nn.softmax(tf.cast(logits, tf.float64)), axis=1)
        what, kind, names = "word", "tag", tf.gather(tf.constant(task.label_names), tags)
        if task.has_entities:
            found = entities_in_graph(tags, texts, task.meanings, strict=task.strict_entities)
            first, last = found.start, found.end - 1
            sums = tf.concat([tf.zeros([1], tf.float64), tf.cumsum(score)], 0)
            score = tf.gather(sums, found.end) - tf.gather(sums, found.start)
            score /= tf.cast(found.end - found.start, tf.float64)
            what, kind, names = "entity", "type", tf.gather(tf.constant(task.meanings.type_names), found.type)
        rows = tf.gather(texts, first)
        start, end = tf.gather(pieces.word_starts.values, first), tf.gather(pieces.word_ends.values, last)
        found = {
            f"{what}_row": tf.cast(rows, tf.int32),
            f"{what}_{kind}": names,
            f"{what}_text": prediction.substrings(text, rows, start, end),
            f"{what}_start": start,
            f"{what}_end": end,
            f"{what}_score": tf.cast(score, tf.float32),
        }
        is_sound = tf.gather(error == "", rows)
        return {name: tf.boolean_mask(values, is_sound) for name, values in found.items()}
