"""Pre-training: predicts masked words, and whether the second stretch of text follows the first.

The logits of one evaluation would fill any memory. Only two numbers per masked position leave the device, and only
sums of them, counts of words and the first records are kept.

Texts with words to fill in: `Paris is the [MASK] of France.` -> rows -> the best words for each place.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfbert.batches import pipeline
from tfbert.config.data import DataConfig
from tfbert.config.run import PRETRAIN
from tfbert.config.tables import kinds_of
from tfbert.config.tasks import PRETRAINING, PretrainingConfig, TaskOptions
from tfbert.config.training import TrainingConfig
from tfbert.config.types import counted
from tfbert.corpus.masking import Masking
from tfbert.corpus.records import Records, open_records
from tfbert.data.files import check_text
from tfbert.errors import UsageError
from tfbert.model.files import OWN_FIELD, BertConfig
from tfbert.model.head import Head
from tfbert.model.predictor import Predictor
from tfbert.output.logs import evaluating
from tfbert.tasks.base import CheckTexts, ErrorAnalysis, Task, TaskData, Training, rounded, subset
from tfbert.tasks.losses import HeadStart, SmoothedCrossEntropy, base_rate
from tfbert.tasks.prediction import BEST, Item, Items, TrainedModel
from tfbert.tokens.tokenizer import TokenIds, Tokenizer, splits_of

log = logging.getLogger("tfbert")


MOST_CANDIDATES = 100
"""The most words that a user can request for a masked place."""
KEPT_RECORDS = 512
"""How many records of an evaluation are kept, the first ones, so that a report can show them."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class KeptRecord:
    """A record that was predicted.

    Attributes:
        ids: int32 `[length]`, before masking.
        positions: int32 `[masked]`: the places that were masked.
        best: int32 `[masked]`: the words that the model predicts there.
        log_probability: float32 `[masked]`: of the right words.
    """

    ids: np.ndarray
    positions: np.ndarray
    best: np.ndarray
    log_probability: np.ndarray

    @property
    def error(self) -> float:
        """The sum of the losses of its wrongly predicted words."""
        return float(-self.log_probability[self.best != self.ids[self.positions]].sum(dtype=np.float64))


class MaskedPredictions:
    """Predictions of any number of records, in memory of a fixed size, plus one number per chunk of records.

    Args:
        tokenizer: The model's.

    Attributes:
        masked: int64 [vocab]: how often each word was masked, with a weight above 0.
        wrong: int64 [vocab]: how often it was predicted wrong.
        word_losses: float64, for each chunk, the sum of their cross-entropies.
        num_pairs: Records so far that say whether their second text follows.
        right_pairs: How many of them are predicted right.
        pair_losses: float64, for each chunk, the sum of their cross-entropies.
        kept: The first records.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._pieces, self.vocab = tokenizer.pieces, tokenizer.shown_vocab
        self.num_pairs = self.right_pairs = 0
        self.word_losses: list[float] = []
        self.pair_losses: list[float] = []
        self.masked, self.wrong = np.zeros((2, len(self.vocab)), np.int64)
        self.kept: list[KeptRecord] = []

    def add(self, chunk: pipeline.MaskedChunk, outputs: dict[str, np.ndarray]) -> None:
        """Counts some records.

        Args:
            chunk: The records.
            outputs: What `Pretraining.select_outputs` keeps of them.
        """
        counts = chunk.weights > 0
        labels, best = chunk.labels[counts], outputs["best"][counts]
        self.word_losses.append(float(-outputs["log_probability"][counts].sum(dtype=np.float64)))
        self.masked += np.bincount(labels, minlength=len(self.vocab))
        self.wrong += np.bincount(labels[labels != best], minlength=len(self.vocab))
        if chunk.next_sentence is not None:
            chances, answers = outputs[pipeline.NEXT_SENTENCE], chunk.next_sentence
            self.num_pairs += len(answers)
            self.right_pairs += int((chances.argmax(axis=1) == answers).sum())
            self.pair_losses.append(float(-chances[np.arange(len(answers)), answers].sum(dtype=np.float64)))
        tokens = chunk.tokens
        for row in range(min(len(tokens), KEPT_RECORDS - len(self.kept))):
            ids = tokens.flat[tokens.row_splits[row] : tokens.row_splits[row + 1]].copy()
            own, positions = counts[row], chunk.positions[row][counts[row]]
            ids[positions] = chunk.labels[row][own]
            found = {name: outputs[name][row][own] for name in ("best", "log_probability")}
            self.kept.append(KeptRecord(ids=ids, positions=positions, **found))

    def metrics(self) -> dict[str, float]:
        """`masked_accuracy`, `loss`, `perplexity`; if there are pairs, also `next_sentence_accuracy` and the two parts
        of the loss. Losses are means in nats; `loss` is the sum of its parts, as in training."""
        num_words, num_wrong = int(self.masked.sum()), int(self.wrong.sum())
        masked_loss = sum(self.word_losses) / max(num_words, 1)
        found = {
            "masked_accuracy": (num_words - num_wrong) / max(num_words, 1),
            "loss": masked_loss,
            "perplexity": float(np.exp(min(masked_loss, 700.0))),  # Finite, as JSON wants it.
        }
        if self.num_pairs:
            pair_loss = sum(self.pair_losses) / self.num_pairs
            found["loss"] += pair_loss
            found["next_sentence_accuracy"] = self.right_pairs / self.num_pairs
            found |= {"masked_lm_loss": masked_loss, "next_sentence_loss": pair_loss}
        return found

    def worst_words(self, most: int) -> list[dict[str, Any]]:
        """The words that are most often predicted wrong, as JSON can hold them: `word`, and how often it was `masked`
        and `wrong`."""
        words = [word for word in np.argsort(-self.wrong, kind="stable")[:most].tolist() if self.wrong[word]]
        counts = ((self.vocab[word], int(self.masked[word]), int(self.wrong[word])) for word in words)
        return [{"word": word, "masked": masked, "wrong": wrong} for word, masked, wrong in counts]

    def shown(self, record: KeptRecord) -> list[dict[str, str]]:
        """A record in readable form: its text in parts. Masked parts are marked: `answer` where the model is right,
        `wrong` where it is not, with what it predicts as `instead`."""
        guesses = dict(zip(record.positions.tolist(), record.best.tolist(), strict=True))
        parts: list[dict[str, str]] = []
        for place, token in enumerate(record.ids.tolist()):
            if place == 0:  # [CLS]
                continue
            text = self._pieces[token]
            text = text if place > 1 else text.removeprefix(" ")
            guess = guesses.get(place)
            mark = "" if guess is None else "answer" if guess == token else "wrong"
            if parts and not mark and not parts[-1]["mark"]:
                parts[-1]["text"] += text
            else:
                parts.append({"text": text, "mark": mark, "instead": self.vocab[guess] if mark == "wrong" else ""})
        for part in parts:  # Bytes of a character that are together by now.
            part["text"] = part["text"].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return parts


_WORST_WORDS = 20
_SHOWN_RECORDS = 5
_COUNTED_RECORDS = 20_000
"""The most training records whose words are counted for a new head."""


@dataclasses.dataclass(frozen=True)
class Pretraining(Task[Records, MaskedPredictions]):
    """See `Task`. Examples are `Records`. Outputs are logits of masked words `[rows, predictions, vocabulary]` and of
    the next sentence `[rows, 2]`. Only what `masked_words` keeps of them leaves the device. Predictions are the
    `MaskedPredictions` of all records.

    Metrics over all masked words: `masked_accuracy`, `loss` in nats, and `perplexity`. With next sentence, also
    `next_sentence_accuracy` over all pairs; `loss` is then the sum of `masked_lm_loss` and `next_sentence_loss`, as in
    training.

    Args:
        next_sentence: Whether the model learns to tell whether the second stretch of text follows the first.
        options: Decide what is masked; what they leave open is masked as new records are.
        seed: The seed of the masks in training.
        scores_pairs: Whether the records to evaluate on say whether a second stretch of text follows, too.
    """

    next_sentence: bool = True
    options: PretrainingConfig = dataclasses.field(default_factory=PretrainingConfig)
    seed: int = 0
    scores_pairs: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", self.options.with_masking())

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Pretraining:
        """The task of a saved model."""
        masked = options.pretraining.with_masking(getattr(saved, OWN_FIELD, None))
        return cls(next_sentence=saved.architectures[0].endswith("ForPreTraining"), options=masked)

    name = PRETRAINING
    length_rule = "Records have at most"
    pipeline_tag = "fill-mask"
    input_names = (*pipeline.INPUTS, pipeline.POSITIONS)
    made = "pre-trained"

    @property
    def kind(self) -> str:
        return f"pre-training on masked words{' and next sentences' * self.next_sentence}"

    @property
    def masked_share(self) -> float:
        return self.options.masked_lm_prob

    def notes(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in ("masked_lm_prob", "whole_word_masking")}

    def head(self) -> Head:
        return Head(kind="PreTraining" if self.next_sentence else "MaskedLM")

    def encode(
        self, examples: Records, tokenizer: Tokenizer, max_seq_length: int, training: Training = None
    ) -> EncodedRecords:
        """Adds how records are masked; the records stay in their files.

        Raises:
            UsageError: for records of another vocabulary, longer than `max_seq_length`, or that need more predictions.
        """
        examples.check_tokenizer(tokenizer)
        length = examples.schema.max_seq_length
        if length > max_seq_length:
            received = f"max_seq_length={max_seq_length} with {examples.name}, of {length} tokens"
            todo = f"Pass --max_seq_length={length}, or prepare shorter records."
            raise UsageError(f"max_seq_length must be at least that of the records. Received: {received}. {todo}")
        if training is not None and length < max_seq_length:
            about = "positions above learn nothing; prepare longer records for them"
            log.warning(
                "%s has rows of %d tokens, below max_seq_length=%d: %s", examples.name, length, max_seq_length, about
            )
        masking = Masking.of_tokenizer(tokenizer, self.options, length)
        return EncodedRecords(
            records=examples,
            masking=None if training and self.options.masking == "static" else masking,
            seed=self.seed if training else pipeline.EVALUATION_SEED,
            has_next_sentence=self.next_sentence and examples.has_pairs,
            pad_id=tokenizer.pad_id,
            tokenizer=tokenizer,
        )

    def head_start(self, encoded: EncodedRecords, training: TrainingConfig) -> HeadStart:
        """At the frequencies of masked words, of records spread evenly over all."""
        rows = np.unique(np.linspace(0, len(encoded) - 1, _COUNTED_RECORDS).astype(np.int64))
        chunks = map(encoded.masked, np.array_split(rows, -(-len(rows) // pipeline.CHUNK)))
        words = [found.labels[found.weights > 0] for found in chunks]
        bias = base_rate(np.concatenate(words), "single_label_classification", num_classes=encoded.tokenizer.vocab_size)
        return HeadStart(bias=bias, words=f"the frequencies of words in {counted(len(rows), 'record')}")

    def loss(self, training: TrainingConfig) -> dict[str, SmoothedCrossEntropy]:
        """The loss of each masked word, float32 `[rows, predictions]`, and of each pair, `[rows]`."""
        names = (pipeline.MASKED_LM, pipeline.NEXT_SENTENCE) if self.next_sentence else (pipeline.MASKED_LM,)
        return {name: SmoothedCrossEntropy() for name in names}

    def labelled_sets(self, config: DataConfig, notes: list[str], check_texts: CheckTexts) -> dict[str, Records]:
        if not self.options.validation_records:
            todo = f"Use {PRETRAIN.typed} --mode=evaluate --validation_records=..."
            raise UsageError(f"A model for pre-training is evaluated on records. Received: {config.source}. {todo}")
        return {"eval": open_records(self.options.validation_records, "validation_records")}

    def select_outputs(self, outputs: dict[str, tf.Tensor], inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """If labels are given, the `log_probability` of each, float32, and the `best` word, int32, both `[rows,
        predictions]`; and the log probabilities of `next_sentence`, float32 `[rows, 2]`, if the model has that output.
        Else the best words, best first: their probabilities as `score`, float32, and ids as `token`, int32, both
        `[rows, predictions, words]`."""
        logits = outputs[pipeline.MASKED_LM]
        if pipeline.LABELS not in inputs:
            best, ids = tf.math.top_k(logits, k=min(MOST_CANDIDATES, logits.shape[-1]))
            return {"score": tf.exp(best - tf.reduce_logsumexp(logits, axis=-1, keepdims=True)), "token": ids}
        kept = {
            "log_probability": -tf.nn.sparse_softmax_cross_entropy_with_logits(inputs[pipeline.LABELS], logits),
            "best": tf.argmax(logits, axis=-1, output_type=tf.int32),
        }
        if pipeline.NEXT_SENTENCE in outputs:
            kept[pipeline.NEXT_SENTENCE] = tf.nn.log_softmax(outputs[pipeline.NEXT_SENTENCE])
        return kept

    def predict(self, predictor: Predictor, encoded: EncodedRecords, name: str) -> MaskedPredictions:
        """Chunk by chunk, in memory that does not grow with the number of records."""
        found, chunks = MaskedPredictions(encoded.tokenizer), collections.deque()

        def given() -> Iterator[pipeline.MaskedChunk]:  # `itertools.tee` would keep 57 of them.
            for chunk in encoded.chunks():
                chunks.append(chunk)
                yield chunk

        with evaluating(len(encoded), name) as on_rows:
            for outputs in predictor.stream(given(), on_rows=on_rows):
                found.add(chunks.popleft(), outputs)
        return found

    def scores(self, predictions: MaskedPredictions) -> np.ndarray:
        """The summed losses of each chunk."""
        return np.array([*predictions.word_losses, *predictions.pair_losses])

    @property
    def undefined_metrics(self) -> tuple[str, ...]:
        has_pairs = self.next_sentence and self.scores_pairs
        return () if has_pairs else ("next_sentence_accuracy", "masked_lm_loss", "next_sentence_loss")

    def _metrics(self, predictions: MaskedPredictions, examples: Records) -> dict[str, float]:
        return predictions.metrics()

    def details(self, predictions: MaskedPredictions, examples: Records) -> tuple[dict[str, Any], list[str]]:
        words = predictions.worst_words(_WORST_WORDS)
        lines = [f"{word['word']}: {word['wrong']:,} of {word['masked']:,} wrong" for word in words]
        return {"worst_words": words}, [f"words most often wrong: {'; '.join(lines[:5])}"] if lines else []

    def error_analysis(self, predictions: MaskedPredictions, examples: Records) -> ErrorAnalysis:
        """Only of the first records."""
        kept = predictions.kept
        shown = [predictions.shown(record) for record in kept[:_SHOWN_RECORDS]]
        return ErrorAnalysis(
            errors=np.array([record.error for record in kept]),
            measure="loss",
            shown=lambda row: {"parts": predictions.shown(kept[row])},
            facts={"worst_words": predictions.worst_words(_WORST_WORDS), "filled": shown, "num_shown": len(kept)},
        )

    def card(self, num_texts: int) -> str:
        pairs = " and tells whether two stretches of text belong together" * self.next_sentence
        return f"fills in masked words{pairs}, to be fine-tuned for other tasks"

    def example(self, num_texts: int) -> str:
        return 'f"Paris is the {fill.tokenizer.mask_token} of France."'


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncodedRecords(pipeline.MaskedRecords):
    """Records with the way they are masked.

    Attributes:
        tokenizer: The model's.
    """

    tokenizer: Tokenizer


_SAMPLED_RECORDS = 2048
"""The most training records that are evaluated, beside the validation records; never more than of those."""


def load_records(config: DataConfig, options: TaskOptions) -> TaskData:
    """Opens records of a corpus. With validation records, a sample of the training records is evaluated as well."""
    own, notes, sets = options.pretraining, [], {}
    train = subset(open_records(own.train_records, "train_records"), config.max_train_examples, notes)
    if own.validation_records:
        sets["validation"] = open_records(own.validation_records, "validation_records")
        sample = subset(train, min(len(sets["validation"]), _SAMPLED_RECORDS), [])
        sets["validation_training"] = dataclasses.replace(sample, name=f"a sample of {train.name}")
    next_sentence, has_head = own.next_sentence and train.has_pairs, "PreTraining" in kinds_of(options.model_type)
    lacking = [part.name for part in (train, *sets.values()) if not part.has_pairs]
    if own.next_sentence and lacking and has_head:
        notes.append(f"{lacking[0]}: no pairs, so no next-sentence prediction: only masked words are predicted")
    if next_sentence and not has_head:
        notes.append(
            f"{train.name}: pairs, but a {options.model_type} model has no head for next sentences: only masked words "
            "are predicted. Records of --norandom_next_sentence hold one text each"
        )
    has_both = next_sentence and has_head
    task = Pretraining(next_sentence=has_both, options=own, seed=options.seed, scores_pairs=not lacking)
    return TaskData(task=task, train=train, validation=sets, test=None, notes=tuple(notes))


_UNCUT = 1 << 24
_FILLED = 5
"""Words for each masked place by default, as in transformers."""


class MaskedItems(Items[Item]):
    """Texts with words to fill in.

    Args:
        model: The model that was called.
        top_k: How many words to give for each masked place; `BEST`: 5.
    """

    most = 256  # Some hundred candidates are kept for each word.
    takes_top_k = True

    def __init__(self, model: TrainedModel, top_k: int | None | Literal["best"] = BEST):
        super().__init__(model, top_k)
        if top_k is None or (top_k != BEST and top_k > MOST_CANDIDATES):
            rule = f"top_k must be at most {MOST_CANDIDATES} where words are filled in"
            raise UsageError(f"{rule}. Received: top_k={top_k}. Pass fewer.")
        self._words = _FILLED if top_k == BEST else top_k

    def item(self, value: Any, where: str) -> Item:
        text = check_text(value, "text", where, strict=False)
        mask = self._model.tokenizer.mask_token
        if mask not in text:
            rule = f"A text to fill in must have a {mask}"
            raise UsageError(f"{rule}. Received: {text!r:.60} in {where}. Write {mask} for the word to find.")
        return Item(name=where, texts=[text])

    def encode(self, items: Sequence[Item]) -> pipeline.MaskedChunk:
        """Texts as rows. A literal mask, such as `[MASK]`, is a masked place; every other special token is plain text.

        Raises:
            UsageError: for a text whose mask would be cut off.
        """
        tokenizer, longest = self._model.tokenizer, self._model.max_seq_length
        mask, parts = tokenizer.mask_token, [item.texts[0].split(tokenizer.mask_token) for item in items]
        if tokenizer.mask_takes_blanks:
            parts = [[*(part.rstrip() for part in own[:-1]), own[-1]] for own in parts]
        pieces = tokenizer.encode([part for own in parts for part in own], max_seq_length=_UNCUT)
        pieces_of = iter(np.split(pieces.flat, pieces.row_splits[1:-1]))
        rows, places = [], []
        for item, own in zip(items, parts, strict=True):
            ids = [tokenizer.cls_id]
            for number in range(len(own)):
                ids += [tokenizer.mask_id] * (number > 0)
                ids += next(pieces_of)[1:-1].tolist()  # Without [CLS] and [SEP].
            rows.append(np.array([*ids[: longest - 1], tokenizer.sep_id], np.int32))
            places.append(np.flatnonzero(rows[-1] == tokenizer.mask_id))
            if len(places[-1]) < len(own) - 1:
                rule = f"Every {mask} must be within the first {longest} tokens of its text"
                todo = "Shorten the text, or load the model with a larger max_seq_length."
                raise UsageError(f"{rule}. Received: a later one in {item.name}. {todo}")
        lengths, counts = (np.array([*map(len, some)], np.int32) for some in (rows, places))
        splits, pad_id = splits_of(lengths), tokenizer.pad_id
        tokens = TokenIds(flat=np.concatenate(rows), row_splits=splits, second_start=lengths, pad_id=pad_id)
        positions = np.zeros((len(rows), counts.max()), np.int32)
        positions[np.arange(counts.max()) < counts[:, None]] = np.concatenate(places)
        return pipeline.MaskedChunk(tokens=tokens, positions=positions)

    def predictions(self, outputs: dict[str, np.ndarray], encoded: pipeline.MaskedChunk) -> dict[str, Any]:
        return outputs | {"texts": encoded}

    def scores(self, predictions: dict[str, Any]) -> np.ndarray:
        return predictions["score"]

    def answers(self, items: Sequence[Item], predictions: dict[str, Any]) -> Iterator[list[Any]]:
        """The best words of each text, as transformers' `fill-mask` pipeline gives them: best first, each with `score`
        (its probability), `token` (its id), `token_str`, and `sequence`, the text with the word filled in. For a text
        with several masked places, one such list per place; in its sequences, the other places stay masked."""
        tokenizer, texts = self._model.tokenizer, predictions["texts"]
        rows = np.split(texts.tokens.flat, texts.tokens.row_splits[1:-1])
        for ids, positions, *own in zip(rows, texts.positions, predictions["score"], predictions["token"], strict=True):
            places, found = positions[positions > 0].tolist(), []
            for place, scores, tokens in zip(places, *own, strict=False):
                words = []
                for score, token in zip(scores[: self._words].tolist(), tokens[: self._words].tolist(), strict=True):
                    filled = [*ids[:place].tolist(), token, *ids[place + 1 :].tolist()]
                    sequence = tokenizer.decode(filled, skip_special_tokens=len(places) == 1)
                    word = tokenizer.decode([token])
                    words.append({"score": rounded(score), "token": token, "token_str": word, "sequence": sequence})
                found.append(words)
            yield found[0] if len(places) == 1 else found
