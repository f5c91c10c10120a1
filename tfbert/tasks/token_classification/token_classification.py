"""Token classification: a tag for each word of a sentence, as named entities or parts of speech.

Rows of words: sentences that are already split into words, and texts whose words are to be found.

A sentence that is longer than a row becomes several rows, so that every word keeps its first piece. It is cut between
words into equal parts: a word goes to part `start x parts // pieces`, where `start` counts the pieces before it. The
number of parts is the smallest that works, so none is very short, except next to words nearly as long as a row. Only a
word of more pieces than a row holds loses its last pieces.

Rows are made in TensorFlow: in the graph of an exported model, and eagerly for what is in memory.

Prediction of tags: texts, or sentences that are split into words, in Python and in files -> entities, or the tags of
words. As a SavedModel: texts -> entities, or tagged words, with their characters.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import EncodedExamples, TokenTensors
from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.config.tasks import TaskOptions
from tfbert.config.training import TrainingConfig
from tfbert.config.types import STANDARD_STREAM, counted, is_pipe
from tfbert.data.files import check_text
from tfbert.data.labels import given_names
from tfbert.data.reading import CONLL_ENDINGS, PREDICTED_TAGS, TEXTS, ending_of, format_of
from tfbert.data.rows import input_source
from tfbert.errors import UsageError
from tfbert.model.files import BertConfig
from tfbert.model.head import Head
from tfbert.tasks import prediction
from tfbert.tasks.base import CheckTexts, ErrorAnalysis, InMemory, Task, TaskData, Training, rounded
from tfbert.tasks.classes import all_alike, names_of_model, or_name_ids, quoted, shortened
from tfbert.tasks.losses import HeadStart, SmoothedCrossEntropy, class_start, class_weights
from tfbert.tasks.metrics import class_table, cross_entropy
from tfbert.tasks.tables import data_of, equal, hold_out, read_labelled_tables, read_training_tables
from tfbert.tasks.token_classification.conll import Sentence, SentenceFile
from tfbert.tasks.token_classification.tagged import (
    TaggedTable,
    holds_words,
    in_scheme,
    in_usual_form,
    open_sentences,
    read_sentences,
)
from tfbert.tasks.token_classification.tags import (
    PLAIN,
    Entities,
    TagMeanings,
    TagSequences,
    by_type,
    class_names,
    entities_in_graph,
    entity_metrics,
    find_entities,
    scheme_of_model,
)
from tfbert.tokens.normalizer import Pieces
from tfbert.tokens.tokenizer import Tokenizer, ranges, splits_of


class WordRows(NamedTuple):
    """Model inputs of sentences, and the words in them, as tensors or arrays. Words are numbered through all sentences;
    rows are in order.

    Attributes:
        tokens: The rows, `[CLS] words [SEP]` each, as `TokenTensors` or `TokenIds`.
        first_piece: int64 `[words]`: where in `tokens.flat` each word's first piece is.
        word: int32 `[tokens]`: the word that each token of `tokens.flat` belongs to; -1 for special tokens.
        sentence: int32 `[rows]`: the sentence that each row holds, or holds a part of. A sentence without words has no
            row.
    """

    tokens: Any
    first_piece: Any
    word: Any
    sentence: Any


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], *, max_seq_length: int) -> WordRows:
    """Makes rows of sentences that are already split into words.

    The ids are those of Hugging Face's `BertTokenizerFast(words, is_split_into_words=True)`, except that a word without
    a piece, such as a lone accent, becomes `[UNK]`. Each distinct word is tokenized once, on all cores.

    Args:
        tokenizer: The tokenizer.
        sentences: The words of each sentence.
        max_seq_length: Longest row, special tokens counted.

    Returns:
        The rows; longer sentences take several.

    Raises:
        UsageError: if `max_seq_length` has no room for a word.
    """
    index: dict[str, int] = {}
    which = [index.setdefault(word, len(index)) for words in sentences for word in words]
    pieces = tokenizer.encode_words(list(index))
    first, last = pieces.row_splits[which], pieces.row_splits[np.array(which, np.int64) + 1]
    splits = splits_of(np.array([len(words) for words in sentences], np.int64))
    with tf.device("CPU:0"):
        arrays = (tf.constant(part, tf.int64) for part in (first, last - first, splits))
        tokens, *parts = _word_rows(tokenizer, tf.constant(pieces.ids), *arrays, max_seq_length)
    return WordRows(tokens.in_memory(), *(part.numpy() for part in parts))


def text_rows_in_graph(tokenizer: Tokenizer, pieces: Pieces, max_seq_length: int) -> WordRows:
    """The rows that `encode_words` makes of the words of texts, as tensors.

    Args:
        tokenizer: The tokenizer.
        pieces: The texts, as the tokenizer splits them.
        max_seq_length: Longest row, special tokens counted.
    """
    word_splits = pieces.word_starts.row_splits
    word = tf.cast(pieces.words.values, tf.int64) + tf.gather(word_splits, pieces.words.value_rowids())
    sizes = tf.math.unsorted_segment_sum(tf.ones_like(word), word, tf.size(pieces.word_starts.values))
    first = tf.cumsum(sizes, exclusive=True)
    return _word_rows(tokenizer, pieces.ids.values, first, sizes, word_splits, max_seq_length)


def _word_rows(
    tokenizer: Tokenizer,
    ids: tf.Tensor,
    first: tf.Tensor,
    sizes: tf.Tensor,
    sentence_splits: tf.Tensor,
    max_seq_length: int,
) -> WordRows:
    """Rows of words. Each word is `sizes` ids from `ids[first]` on, int64 [words] both; a word of 0 ids is `[UNK]`."""
    if max_seq_length < 3:
        rule = "max_seq_length must hold 2 special tokens and a word"
        raise UsageError(f"{rule}. Received: max_seq_length={max_seq_length}. Pass a larger one.")
    room = max_seq_length - 2
    first = tf.where(sizes == 0, tf.size(ids, tf.int64), first)
    ids = tf.concat([ids, [tokenizer.unk_id]], 0)
    sizes = tf.clip_by_value(sizes, 1, room)  # If a word has more pieces than a row holds, its last ones are lost.
    sentence = tf.ragged.row_splits_to_segment_ids(sentence_splits)
    row = _rows_of_words(sizes, sentence, sentence_splits, room)

    lengths = tf.math.segment_sum(sizes, row)

    def rows(values: tf.Tensor, first: int, last: int) -> tf.RaggedTensor:
        ragged = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
        return tf.concat([tf.fill([ragged.nrows(), 1], first), ragged, tf.fill([ragged.nrows(), 1], last)], axis=1)

    pieces = tf.gather(ids, tf.ragged.range(first, first + sizes)).values
    words = tf.repeat(tf.range(tf.size(sizes)), sizes)
    return WordRows(
        tokens=TokenTensors.of_rows(rows(pieces, tokenizer.cls_id, tokenizer.sep_id), None, tokenizer.pad_id),
        first_piece=tf.cumsum(sizes, exclusive=True) + 2 * row + 1,
        word=rows(words, -1, -1).values,
        sentence=tf.cast(tf.math.segment_max(sentence, row), tf.int32),
    )


def _rows_of_words(sizes: tf.Tensor, text: tf.Tensor, word_splits: tf.Tensor, room: int) -> tf.Tensor:
    """int64 `[words]`: the row of each word.

    Args:
        sizes: int64 `[words]`, 1 to `room` pieces each.
        text: int64 `[words]`, the text of each word.
        word_splits: int64 `[n + 1]`, where each text begins and ends, in words.
        room: Most pieces in a row.
    """
    before = tf.concat([[0], tf.cumsum(sizes)], 0)
    of_texts = tf.gather(before, word_splits)
    totals = of_texts[1:] - of_texts[:-1]
    start = before[:-1] - tf.gather(of_texts, text)
    longest = tf.maximum(tf.math.unsorted_segment_max(sizes, text, tf.size(totals)), 1)  # A text may have no words.
    most_parts = -(-totals // (room - longest + 1))

    def rows(parts: tf.Tensor) -> tf.Tensor:
        part = start * tf.gather(parts, text) // tf.gather(totals, text)
        is_first = (text[1:] != text[:-1]) | (part[1:] != part[:-1])
        return tf.concat([tf.zeros_like(text[:1]), tf.cumsum(tf.cast(is_first, tf.int64))], 0)

    def too_long(parts: tf.Tensor) -> tf.Tensor:
        row = rows(parts)
        is_long = tf.gather(tf.math.segment_sum(sizes, row) > room, row)
        return tf.math.unsorted_segment_max(tf.cast(is_long, tf.int32), text, tf.size(totals)) > 0

    def split_more(parts: tf.Tensor, long: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = tf.where(long, tf.minimum(parts + 1 + parts // 8, most_parts), parts)
        return parts, too_long(parts)

    parts = -(-totals // room)
    parts, _ = tf.while_loop(lambda _, long: tf.reduce_any(long), split_more, (parts, too_long(parts)))
    return rows(parts)


_OF_ENTITIES = ("f1", "precision", "recall")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceExamples(InMemory):
    """Sentences whose words have tags, see `Examples`.

    Attributes:
        words: The words of each sentence, at least one.
        labels: int32 `[words]`, the class of each word of all sentences in order; None when unlabelled.
        starts: bool `[words]`, which words start an entity, where the classes do not say it; None: as they say.
    """

    per_row, num_texts = ("words",), 1
    words: list[list[str]]
    labels: np.ndarray | None
    starts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def splits(self) -> np.ndarray:
        """int64 `[n + 1]`: sentence i has the words `splits[i]:splits[i + 1]`."""
        return np.cumsum([0, *map(len, self.words)])

    @property
    def sentences(self) -> np.ndarray:
        """int64 `[words]`: the sentence of each word."""
        return np.repeat(np.arange(len(self)), list(map(len, self.words)))

    def take(self, rows: Iterable[int]) -> SentenceExamples:
        rows, splits = np.array([*rows], np.int64), self.splits
        places = ranges(splits[rows], np.diff(splits)[rows])
        taken = {name: own[places] for name in ("labels", "starts") if (own := getattr(self, name)) is not None}
        return dataclasses.replace(super().take(rows), **taken)

    def rarest_tags(self, num_tags: int) -> np.ndarray:
        """The tag of each sentence that fewest words of all sentences have: int64 `[n]`."""
        order = np.argsort(np.bincount(self.labels, minlength=num_tags), kind="stable")
        ranks = np.argsort(order)
        return order[np.minimum.reduceat(ranks[self.labels], self.splits[:-1])]

    def texts(self) -> list[str]:
        return [" ".join(words) for words in self.words]

    def contents(self) -> Iterator[tuple[str, ...]]:
        return map(tuple, self.words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedSentences(EncodedExamples):
    """Sentences as rows; long sentences take several rows.

    Attributes:
        first_pieces: int64 `[words]`: where each word's first piece is in `tokens.flat`.
    """

    first_pieces: np.ndarray


@dataclasses.dataclass(frozen=True)
class TokenClassification(Task[SentenceExamples, np.ndarray]):
    """See `Task`. Outputs are logits of tokens, float32 `[tokens, num_labels]`; predictions are those of each word's
    first piece, `[words, num_labels]`.

    Metrics: for tags with prefixes (`B-PER`), `f1`, `precision` and `recall` of entities, as conlleval counts them; for
    all tags, `accuracy`, the share of right words, and `loss`, the mean cross-entropy of words in nats, without label
    smoothing or class weights. Scores are between 0 and 1.

    Args:
        label_names: The tags. Where they have prefixes, IOB2 for models of tfbert, any scheme for models of others.
        label_all_tokens: Train on all pieces of a word.
        strict_entities: Count only entities that the tags' scheme allows.
    """

    label_names: tuple[str, ...]
    label_all_tokens: bool = False
    strict_entities: bool = False

    name = "token_classification"
    length_rule = "Longer texts are split into rows of"
    pipeline_tag = "token-classification"
    reads_tokens = True

    def __post_init__(self):
        if len(self.label_names) < 2:
            rule = "A tagger needs two tags or more"
            raise UsageError(f"{rule}. Received: {list(self.label_names)}. Check --label_column.")

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> TokenClassification:
        """The task of a saved model."""
        return cls(names_of_model(saved, directory), strict_entities=options.tagging.strict_entities)

    @property
    def has_entities(self) -> bool:
        """Whether the tags mark entities, rather than single words as parts of speech do."""
        return not (self.meanings.prefixes == PLAIN).any()

    @functools.cached_property
    def meanings(self) -> TagMeanings:
        """What each tag means."""
        return TagMeanings(self.label_names)

    @functools.cached_property
    def scheme(self) -> str:
        """The scheme of the tags, as `scheme_of_model` has it."""
        return scheme_of_model(self.label_names)

    def entities(self, tags: np.ndarray, examples: SentenceExamples) -> tuple[Entities, Entities]:
        """The entities of the examples' words: by their own tags, and by `tags`, int `[words]`."""
        ways = ((examples.labels, examples.starts), (tags, None))
        gold, found = (
            find_entities(own, examples.sentences, self.meanings, strict=self.strict_entities, starts=starts)
            for own, starts in ways
        )
        return gold, found

    @property
    def kind(self) -> str:
        if not self.has_entities:
            return f"token classification with {len(self.label_names)} tags"
        types = self.meanings.type_names
        return f"token classification, entities of {counted(len(types), 'type')}: {', '.join(types[:8])}"

    def doubts(self, examples: SentenceExamples) -> list[str]:
        """Tags that hardly occur are often typing errors."""
        counts = np.bincount(examples.labels, minlength=len(self.label_names))
        absent = [name for name, count in zip(self.label_names, counts, strict=True) if not count]
        return [f"tags without a word in the training data: {shortened(absent)}"] if absent else []

    def head(self) -> Head:
        return Head(kind="TokenClassification", labels=self.label_names, has_names=True)

    def encode(
        self, examples: SentenceExamples, tokenizer: Tokenizer, max_seq_length: int, training: Training = None
    ) -> EncodedSentences:
        found = encode_words(tokenizer, examples.words, max_seq_length=max_seq_length)
        count = len(found.tokens.flat)
        labels, weights = np.zeros(count, np.int32), np.zeros(count, np.float32)
        if examples.labels is not None:
            places, words = found.first_piece, slice(None)
            if self.label_all_tokens and training is not None:
                places = np.flatnonzero(found.word >= 0)
                words = found.word[places]
            labels[places] = examples.labels[words]
            # What the loss counts: words, or all of their pieces.
            weights[places] = class_weights(training, labels[places], len(self.label_names))[labels[places]]
        return EncodedSentences(
            tokens=found.tokens, labels=labels, weights=weights, labels_tokens=True, first_pieces=found.first_piece
        )

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: CheckTexts
    ) -> dict[str, SentenceExamples]:
        tables = read_labelled_tables(config, self.name, read_sentences, notes)
        return {prefix: self.examples(table, notes) for prefix, table in tables.items()}

    def examples(self, table: TaggedTable, notes: list[str]) -> SentenceExamples:
        """Turns a table into examples; its tags must be this task's, in any scheme.

        They are brought into the scheme of this task's tags. IO cannot say where one of two entities of a type that
        touch ends: there, `starts` keeps it.

        Args:
            table: As it was written.
            notes: Receives what the user should know about the tags' scheme.

        Raises:
            UsageError: for a tag that is not one of this task's.
        """
        ids, written = {name: index for index, name in enumerate(self.label_names)}, table.tags
        table = in_usual_form(table, notes, model_has_entities=self.has_entities, known=ids)
        tags = in_scheme(self.scheme, table, notes, strict=self.strict_entities)
        if unknown := {tag for own in tags for tag in own} - ids.keys():
            row = next(row for row, own in enumerate(tags) if unknown & {*own})
            tag, old = next(pair for pair in zip(tags[row], written[row], strict=True) if pair[0] in unknown)
            as_written = f", written {quoted(old)}," if tag != old else ""
            rule = f"A tag must be one of the training data's {len(ids)}: {shortened(self.label_names)}"
            received = f"{quoted(tag)}{as_written} in the sentence of {table.where(row)}"
            todo = f"Correct it, or add it to the training data{or_name_ids(old, self.label_names)}."
            raise UsageError(f"{rule}. Received: {received}. {todo}")
        return SentenceExamples(
            name=table.name,
            words=table.words,
            labels=np.array([ids[tag] for own in tags for tag in own], np.int32),
            starts=TagSequences(table.tags).starts if self.scheme == "IO" else None,
            lines=np.asarray(table.lines, np.int64),
            unit=table.unit,
            columns=table.columns,
        )

    def head_start(self, encoded: EncodedExamples, training: TrainingConfig) -> HeadStart:
        return class_start(encoded, training, len(self.label_names), "tags")

    def loss(self, training: TrainingConfig) -> SmoothedCrossEntropy:
        return SmoothedCrossEntropy(training.label_smoothing)

    def predictions(self, outputs: np.ndarray, encoded: EncodedSentences) -> np.ndarray:
        return outputs[encoded.first_pieces]

    @property
    def undefined_metrics(self) -> tuple[str, ...]:
        return () if self.has_entities else _OF_ENTITIES

    def _metrics(self, predictions: np.ndarray, examples: SentenceExamples) -> dict[str, float]:
        tags, found = predictions.argmax(axis=1), {}
        if self.has_entities:
            scores = entity_metrics(*self.entities(tags, examples))
            found = {name: scores[name] for name in _OF_ENTITIES}
        return found | {
            "accuracy": float(np.mean(tags == examples.labels)),
            "loss": float(cross_entropy(predictions, examples.labels).mean()),
        }

    def remarks(self, predictions: np.ndarray, examples: SentenceExamples) -> list[str]:
        return all_alike(examples.name, predictions, examples.labels, self.label_names, "words", "tag")

    def details(self, predictions: np.ndarray, examples: SentenceExamples) -> tuple[dict[str, Any], list[str]]:
        if not self.has_entities:
            return {}, []
        (gold, found), names = self.entities(predictions.argmax(axis=1), examples), self.meanings.type_names
        table, confusion, shifted = by_type(gold, found, names)
        facts = {"types": [*names, "nothing"], "rows": confusion.tolist()}
        with_shifted = {name: table[name] | {"shifted": n} for name, n in zip(names, shifted.tolist(), strict=True)}
        lines = class_table("type", with_shifted, confusion, ["nothing"])
        if shifted.any():
            lines.append("shifted: predicted as the right type, but with other boundaries, which counts as wrong")
        return {"per_type": table, "type_confusion": facts}, lines

    def error_analysis(self, predictions: np.ndarray, examples: SentenceExamples) -> ErrorAnalysis:
        """The error is the sum of the cross-entropies of a sentence's wrong words."""
        tags, labels, splits = predictions.argmax(axis=1), examples.labels, examples.splits
        entropy = np.where(tags != labels, cross_entropy(predictions, labels), 0.0)

        def shown(row: int) -> dict[str, Any]:
            own = slice(splits[row], splits[row + 1])
            names = ([self.label_names[tag] for tag in column[own]] for column in (labels, tags))
            return {"words": examples.words[row], **dict(zip(("tags", "predicted_tags"), names, strict=True))}

        errors, (facts, _) = np.add.reduceat(entropy, splits[:-1]), self.details(predictions, examples)
        return ErrorAnalysis(errors=errors, measure="loss", shown=shown, facts=facts)

    @property
    def marks(self) -> tuple[str, ...]:
        """The names of what tags mark: types of entities, or the tags themselves where these mark none."""
        return self.meanings.type_names if self.has_entities else self.label_names

    def marked(self, logits: tf.Tensor, sentences: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """The predicted entities, or all words where tags mark no entities; in the graph, or eagerly.

        Args:
            logits: float32 `[words, num_labels]`.
            sentences: int64 `[words]`: the sentence of each word.

        Returns:
            The mark of each, an index of `marks`; its first word, counted over all sentences, and one past its last;
            and float64, the mean probability of its words' tags.
        """
        tags = tf.argmax(logits, axis=1)
        scores = tf.reduce_max(tf.nn.softmax(tf.cast(logits, tf.float64)), axis=1)
        if not self.has_entities:
            words = tf.range(tf.size(tags, tf.int64))
            return tags, words, words + 1, scores
        found = entities_in_graph(tags, sentences, self.meanings, strict=self.strict_entities)
        sums = tf.concat([tf.zeros([1], tf.float64), tf.cumsum(scores)], 0)
        totals = tf.gather(sums, found.end) - tf.gather(sums, found.start)
        return found.type, found.start, found.end, totals / tf.cast(found.end - found.start, tf.float64)

    def card(self, num_texts: int) -> str:
        return "finds entities in sentences" if self.has_entities else "tags the words of sentences"


def load_sentences(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads sentences with a tag for each word."""
    notes: list[str] = []
    tables = read_training_tables(config, TokenClassification.name, read_sentences, notes)
    found = class_names(in_scheme("IOB2", in_usual_form(tables["train"], []), []))
    given = tuple(given_names(config))  # Unless another scheme has made others of them.
    task = TokenClassification(
        given if {*found} <= {*given} else found,
        label_all_tokens=options.tagging.label_all_tokens,
        strict_entities=options.tagging.strict_entities,
    )
    sets = {name: task.examples(table, notes) for name, table in tables.items()}
    num_tags = len(task.label_names)
    sets = hold_out(
        sets, config, notes, lambda train: equal(train.contents()), lambda train: train.rarest_tags(num_tags)
    )
    return data_of(task, sets, notes, config)


_WORD_SIZE = 32
"""What a word counts as, in characters: the scores of all tags are kept for it."""


@dataclasses.dataclass(kw_only=True, repr=False)
class TaggedItem(prediction.Item):
    """A sentence that is split into words, and has no text; or a text whose words are found when it is encoded.

    Attributes:
        words: Its words.
        spans: Each word's first character in the text, and one past its last.
        written: As in `Sentence`.
    """

    texts: Sequence[str] = ()
    words: list[str] = dataclasses.field(default_factory=list)
    spans: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    written: Sequence[str] = ()


class SentenceItems(prediction.Items[TaggedItem]):
    """Texts whose words are found and tagged, and lists of words."""

    def item(self, value: Any, where: str) -> TaggedItem:
        if isinstance(value, tuple | list | np.ndarray):
            return TaggedItem(words=[check_text(word, "words", where, strict=False) for word in value])
        return TaggedItem(texts=[check_text(value, "text", where, strict=False)])

    def check_columns(self, texts: Sequence[str], source: str) -> None:
        dataclasses.replace(self._model, num_texts=1).check_texts(texts, source)  # Whatever the directory says.

    def row(self, texts: Mapping[str, Any], where: str) -> TaggedItem:
        ((name, text),) = texts.items()
        return TaggedItem(texts=[check_text(text, name, where, strict=False)])

    def size(self, item: TaggedItem) -> int:
        return super().size(item) + _WORD_SIZE * len(item.words)

    def encode(self, items: Sequence[TaggedItem]) -> EncodedSentences:
        tokenizer = self._model.tokenizer
        asked = [item for item in items if item.texts]
        starts, ends, splits = tokenizer.find_words([item.texts[0] for item in asked])
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        for item, (first, last) in zip(asked, itertools.pairwise(splits.tolist()), strict=True):
            item.spans = spans[first:last]
            item.words = [item.texts[0][start:end] for start, end in item.spans]
        words = [item.words for item in items]
        encoded = self._model.encode(SentenceExamples(name=prediction.NAME, words=words, labels=None))
        if len(encoded.tokens):
            return encoded
        # No text may have a word, but a model must be given at least one row.
        tokens = tokenizer.encode([""], max_seq_length=2)
        none = np.zeros(len(tokens.flat), np.int32)
        return dataclasses.replace(encoded, tokens=tokens, labels=none, weights=none.astype(np.float32))

    def _marked(
        self, items: Sequence[TaggedItem], predictions: np.ndarray
    ) -> Iterator[tuple[TaggedItem, list[str], list[dict[str, Any]]]]:
        """Each item with the tags of its words, and its entities as transformers has them, or its words where tags mark
        no entities: `start` and `end` count characters in a text and words in a sentence."""
        what, counts = "entity_group" if self.task.has_entities else "entity", [len(item.words) for item in items]
        tags = [self.task.label_names[tag] for tag in predictions.argmax(axis=1)]
        with tf.device("CPU:0"):
            sentences = tf.repeat(tf.range(len(items), dtype=tf.int64), counts)
            marks, firsts, lasts, scores = (p.numpy().tolist() for p in self.task.marked(predictions, sentences))
        kinds = (self.task.marks[mark] for mark in marks)
        spans = list(zip(kinds, firsts, lasts, scores, strict=True))
        stops = [*itertools.accumulate(counts)]
        places = np.searchsorted(firsts, [0, *stops]).tolist()
        for item, stop, (first, last) in zip(items, stops, itertools.pairwise(places), strict=True):
            at, found = stop - len(item.words), []
            for kind, a, b, score in spans[first:last]:
                start, end, word = a - at, b - at, " ".join(item.words[a - at : b - at])
                if item.texts:
                    start, end = item.spans[start][0], item.spans[end - 1][1]
                    word = item.texts[0][start:end]
                found.append({what: kind, "score": rounded(score), "word": word, "start": start, "end": end})
            yield item, tags[at:stop], found

    def answers(self, items: Sequence[TaggedItem], predictions: np.ndarray) -> Iterator[list[dict[str, Any]]]:
        return (marked for _, _, marked in self._marked(items, predictions))

    def records(self, items: Sequence[TaggedItem], predictions: np.ndarray) -> Iterator[dict[str, Any]]:
        """`tags` of a sentence, and `entities`; `words` of a text where tags mark no entities."""
        for item, tags, marked in self._marked(items, predictions):
            found: dict[str, Any] = {} if item.texts else {"tags": tags}
            if self.task.has_entities:
                found["entities"] = marked
            elif item.texts:
                found["words"] = marked
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
    if asked.text or data.input_format == "text":
        are_words = False
    elif is_pipe(asked.input_file):  # It can be read only once: there is no look into it.
        is_named = data.input_format == "auto" and ending_of(asked.input_file) in CONLL_ENDINGS
        are_words = data.input_format == "conll" or is_named
    else:  # CoNLL, or a list of words in each row.
        are_words = holds_words(pathlib.Path(asked.input_file), data, with_tags=False)
    if are_words:
        file = open_sentences(input_source(asked.input_file), data)
    else:
        file = prediction.open_text_file(config)
    read_as = file.format if isinstance(file, SentenceFile) else "texts"
    format = prediction.chosen_format(asked, PREDICTED_TAGS, default="conll" if read_as == "conll" else "jsonl")
    if format == "conll" and read_as != "conll":
        rule = "A CoNLL file of predictions has the words' lines of a CoNLL file with one more column"
        todo = "Pass --output_format=jsonl, tsv or csv, or --input_format=conll if it holds words, one a line."
        raise UsageError(f"{rule}. Received: the format conll for {file.name}, which is read as {read_as}. {todo}")
    if not isinstance(file, SentenceFile):
        are_lines = asked.input_file == STANDARD_STREAM or format_of(asked.input_file, TEXTS) == "text"
        is_plain = data.input_format == "auto" and not asked.text and are_lines

        def doubts(items: Sequence[TaggedItem]) -> list[str]:
            """A line if texts look like words and blank lines: one is blank, or most have one word."""
            counts = [len(item.texts[0].split()) for item in items] if is_plain else []
            looks_odd = 0 in counts or 2 * counts.count(1) > len(counts)
            line = f"reading {file.name} as plain texts, one a line; --input_format=conll reads words, one a line"
            return [line] if looks_odd else []

        return [prediction.table_job(config, file, format=format, doubts=doubts)]
    id_column = prediction.id_column_of(asked, file)

    def read(items: SentenceItems, row: Sentence, number: int, where: str) -> TaggedItem:
        where = f"{file.name}, {file.unit} {row.line}"
        name = prediction.row_id(row.others[0], id_column, where) if id_column else number
        return TaggedItem(name=name, words=row.words, written=row.written)

    def notes() -> list[str]:
        left_out = f"{file.name}: the lines of words are written with a tag; comments and -DOCSTART- lines are not"
        return [*file.notes(), *([left_out] if format == "conll" else [])]

    return [
        prediction.Job(
            name=file.name,
            columns=file.chosen,
            rows=(("", row) for row in file.read([id_column] if id_column else [])),
            read=read,
            path=prediction.output_path(asked),
            format=format,
            notes=notes,
        )
    ]


class Tagger(prediction.ServedModel):
    """Takes `text`; gives the predictions of `--mode=predict`.

    Returns flat arrays over all texts, in their order. For entities: `entity_row`, int32 `[m]`, the text that each is
    in; `entity_type` and `entity_text`, string `[m]`; `entity_start` and `entity_end`, int32 `[m]`, its first character
    and the one after its last, as Python counts characters; `entity_score`, float32 `[m]`, its words' mean probability.
    Where tags are no entities, the same for words: `word_row`, `word_tag`, `word_text`, `word_start`, `word_end` and
    `word_score`. And `error`, string `[n]`, see `ServedModel`: nothing is said about a text with an error.

    For rows of token ids, returns `logits`, float32 `[n, length, num_labels]`, and `error`.
    """

    num_texts: ClassVar[int | None] = 1
    text_inputs = ("text",)

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        return {"strict_entities": task.strict_entities}

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        tokenizer = self._model.tokenizer
        with tf.device("CPU:0"):
            pieces = tokenizer.tokenize_with_offsets(text)
            rows = text_rows_in_graph(tokenizer, pieces, self._model.max_seq_length)
        logits = self.logits_of(rows.tokens)
        with tf.device("CPU:0"):
            error, logits = prediction.without_endless(tf.fill(tf.shape(text), ""), logits, rows.tokens, rows.sentence)
            task, texts = self._model.task, pieces.word_starts.value_rowids()
            marks, first, end, score = task.marked(tf.gather(logits, rows.first_piece), texts)
            of = tf.gather(texts, first)
            starts, ends = tf.gather(pieces.word_starts.values, first), tf.gather(pieces.word_ends.values, end - 1)
            what, kind = ("entity", "type") if task.has_entities else ("word", "tag")
            found = {
                f"{what}_row": tf.cast(of, tf.int32),
                f"{what}_{kind}": tf.gather(tf.constant(task.marks), marks),
                f"{what}_text": prediction.substrings(text, of, starts, ends),
                f"{what}_start": starts,
                f"{what}_end": ends,
                f"{what}_score": tf.cast(score, tf.float32),
            }
            is_sound = tf.gather(error == "", of)
            return {name: tf.boolean_mask(values, is_sound) for name, values in found.items()} | {"error": error}
