"""Pre-training: predicts masked words, and whether the second stretch of text follows the first."""

from __future__ import annotations

import collections
import dataclasses
import logging
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.batches.inputs import INPUTS
from tfbert.batches.masked_records import CHUNK, MASKED_LM, NEXT_SENTENCE, POSITIONS, MaskedRecords
from tfbert.config.commands import PRETRAIN
from tfbert.config.data import DataConfig
from tfbert.config.encoders import kinds_of
from tfbert.config.pretraining import PRETRAINING, PretrainingConfig
from tfbert.config.tasks import TaskOptions
from tfbert.config.types import counted
from tfbert.corpus.masking import Masking, most_predictions
from tfbert.corpus.records import Records, open_records
from tfbert.errors import UsageError
from tfbert.model.bert_config import OWN_FIELD
from tfbert.model.pretraining_head import PretrainingHead, pretraining_head
from tfbert.output.logs import evaluating
from tfbert.tasks.base import ErrorAnalysis, Task, TaskData, subset
from tfbert.tasks.losses import HeadStart, SmoothedCrossEntropy, base_rate
from tfbert.tasks.masked.masked_words import LABELS, MaskedPredictions, MaskedRows, candidates, scored

if TYPE_CHECKING:
    import tensorflow as tf

    from tfbert.config.data import DataConfig
    from tfbert.config.tasks import TaskOptions
    from tfbert.config.training import TrainingConfig
    from tfbert.model.configuration import BertConfig
    from tfbert.model.predictor import Predictor
    from tfbert.tokens.tokenizer import Tokenizer

log = logging.getLogger("tfbert")

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
    """

    next_sentence: bool = True
    options: PretrainingConfig = dataclasses.field(default_factory=PretrainingConfig)
    seed: int = 0

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
    default_metric = "loss"
    input_names = (*INPUTS, POSITIONS)
    made = "pre-trained"

    @property
    def kind(self) -> str:
        return f"pre-training on masked words{' and next sentences' * self.next_sentence}"

    @property
    def masked_share(self) -> float:
        return self.options.masked_lm_prob

    def notes(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in ("masked_lm_prob", "whole_word_masking")}

    def head(self) -> PretrainingHead:
        return pretraining_head(next_sentence=self.next_sentence)

    def encode(
        self,
        examples: Records,
        tokenizer: Tokenizer,
        max_seq_length: int,
        training: TrainingConfig | None = None,
    ) -> EncodedRecords:
        """Adds how records are masked; the records stay in their files.

        Raises:
            UsageError: for records of another vocabulary, longer than `max_seq_length`, or that need more predictions.
        """
        examples.check_vocabulary(tokenizer.vocab)
        examples.check_casing(tokenizer.casing)
        length = examples.schema.max_seq_length
        if length > max_seq_length:
            raise UsageError(
                "max_seq_length must be at least that of the records. "
                f"Received: max_seq_length={max_seq_length} with {examples.name}, of {length} tokens. "
                f"Pass --max_seq_length={length}, or prepare shorter records."
            )
        if training is not None and length < max_seq_length:
            about = "positions above learn nothing; prepare longer records for them"
            log.warning(
                "%s has rows of %d tokens, below max_seq_length=%d: %s", examples.name, length, max_seq_length, about
            )
        options = self.options
        masking = Masking.of_tokenizer(
            tokenizer,
            masked_lm_prob=options.masked_lm_prob,
            max_predictions_per_seq=most_predictions(
                options.max_predictions_per_seq, masked_lm_prob=options.masked_lm_prob, max_seq_length=length
            ),
            whole_words=options.whole_word_masking,
        )
        common = {
            "records": examples,
            "has_next_sentence": self.next_sentence and examples.has_pairs,
            "pad_id": tokenizer.pad_id,
            "tokenizer": tokenizer,
        }
        if training is None:
            return EncodedRecords.to_evaluate(masking=masking, **common)
        return EncodedRecords(masking=None if options.masking == "static" else masking, seed=self.seed, **common)

    def head_start(self, encoded: EncodedRecords, training: TrainingConfig) -> HeadStart:
        """At the frequencies of masked words, of records spread evenly over all."""
        rows = np.unique(np.linspace(0, len(encoded) - 1, _COUNTED_RECORDS).astype(np.int64))
        words = []
        for part in np.array_split(rows, -(-len(rows) // CHUNK)):
            _, masked = encoded.masked(part)
            words.append(masked.labels[masked.weights > 0])
        bias = base_rate(np.concatenate(words), "single_label_classification", num_classes=encoded.tokenizer.vocab_size)
        return HeadStart(bias=bias, words=f"the frequencies of words in {counted(len(rows), 'record')}")

    def loss(self, training: TrainingConfig) -> dict[str, SmoothedCrossEntropy]:
        """The loss of each masked word, float32 `[rows, predictions]`, and of each pair, `[rows]`."""
        names = (MASKED_LM, NEXT_SENTENCE) if self.next_sentence else (MASKED_LM,)
        return {name: SmoothedCrossEntropy() for name in names}

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: Callable[[Sequence[str], str], None]
    ) -> dict[str, Records]:
        options = self.options
        if not options.validation_records:
            raise UsageError(
                "A model for pre-training is evaluated on records. "
                f"Received: {config.source}. Use {PRETRAIN.typed} --mode=evaluate --validation_records=..."
            )
        records = open_records(
            options.validation_records,
            "validation_records",
            skip_bad_records=options.skip_bad_records,
            notes=notes,
        )
        return {"eval": records}

    def select_outputs(self, outputs: dict[str, tf.Tensor], inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The scores of the labels if they are given, else the best words."""
        return scored(outputs, inputs[LABELS]) if LABELS in inputs else candidates(outputs)

    def predict(self, predictor: Predictor, encoded: EncodedRecords) -> MaskedPredictions:
        """Chunk by chunk, in memory that does not grow with the number of records."""
        found, chunks = MaskedPredictions(encoded.tokenizer), collections.deque()

        def rows() -> Iterator[MaskedRows]:
            for chunk in encoded.chunks():
                chunks.append(chunk)
                yield MaskedRows(tokens=chunk.tokens, positions=chunk.positions, labels=chunk.labels)

        with evaluating(len(encoded)) as on_rows:
            for outputs in predictor.stream(rows(), on_rows=on_rows):
                found.add(chunks.popleft(), outputs)
        return found

    def scores(self, predictions: MaskedPredictions) -> np.ndarray:
        """The summed losses of each chunk."""
        return np.array([*predictions.word_losses, *predictions.pair_losses])

    @property
    def metric_names(self) -> tuple[str, ...]:
        names = ("masked_accuracy", "loss", "perplexity")
        of_pairs = ("next_sentence_accuracy", "masked_lm_loss", "next_sentence_loss")
        return names + of_pairs if self.next_sentence else names

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
class EncodedRecords(MaskedRecords):
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
    skips = {"skip_bad_records": own.skip_bad_records, "notes": notes}
    train = subset(open_records(own.train_records, "train_records", **skips), config.max_train_examples, notes)
    if own.validation_records:
        sets["validation"] = open_records(own.validation_records, "validation_records", **skips)
        sample = subset(train, min(len(sets["validation"]), _SAMPLED_RECORDS), [])
        sets["validation_training"] = dataclasses.replace(sample, name=f"a sample of {train.name}")
    next_sentence, has_head = own.next_sentence and train.has_pairs, "PreTraining" in kinds_of(options.model_type)
    if own.next_sentence and not train.has_pairs and has_head:
        notes.append(f"{train.name}: no pairs, so no next-sentence prediction: only masked words are predicted")
    if next_sentence and not has_head:
        notes.append(
            f"{train.name}: pairs, but a {options.model_type} model has no head for next sentences: only masked words "
            "are predicted. Records of --norandom_next_sentence hold one text each"
        )
    task = Pretraining(next_sentence=next_sentence and has_head, options=own, seed=options.seed)
    return TaskData(task=task, train=train, validation=sets, test=None, notes=tuple(notes))
