"""How records are made: everything that a shard depends on besides its documents."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfbert.config.pretraining import CorpusConfig, PretrainingConfig, RecordNames
from tfbert.corpus.masking import Masking, most_predictions, record_keys
from tfbert.errors import UsageError
from tfbert.tokens.tokenizer import BertTokenizer

_LEAST_LENGTH = 5
"""Three special tokens, and one token of each stretch of text."""
_ROWS = 1 << 12
"""Rows of a part that are dealt at a time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The options of `--mode=prepare` that decide what is in the records, and the vocabulary. It can be pickled.

    Attributes:
        max_seq_length: Width of a record, in tokens.
        max_predictions_per_seq: Most tokens of a record that are predicted.
        masked_lm_prob: Share of a record's tokens that are predicted.
        whole_word_masking: Mask all pieces of a word together.
        dupe_factor: Number of passes over the corpus.
        short_seq_prob: Share of shorter target lengths.
        random_next_sentence: Pairs rather than full sentences.
        record_names: Names of the features.
        compress_records: Write GZIP.
        seed: The seed of everything that is drawn.
        num_shards: The number of record files.
        vocab: The tokens in the order of their ids.
        casing: `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` of the tokenizer, as pairs.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    masked_lm_prob: float
    whole_word_masking: bool
    dupe_factor: int
    short_seq_prob: float
    random_next_sentence: bool
    record_names: RecordNames
    compress_records: bool
    seed: int
    num_shards: int
    vocab: tuple[str, ...]
    casing: tuple[tuple[str, bool | None], ...]

    @classmethod
    def of_config(
        cls,
        corpus: CorpusConfig,
        pretraining: PretrainingConfig,
        tokenizer: BertTokenizer,
        *,
        max_seq_length: int,
        seed: int,
        num_shards: int,
    ) -> Recipe:
        """The recipe that a run's options describe.

        Args:
            corpus: Options of the corpus.
            pretraining: Options of masking.
            tokenizer: Its vocabulary and casing.
            max_seq_length: Width of a record, in tokens.
            seed: The seed of everything that is drawn.
            num_shards: The number of record files.

        Raises:
            UsageError: for options that do not fit each other.
        """
        if max_seq_length < _LEAST_LENGTH:
            raise UsageError(
                f"Records must have room for {_LEAST_LENGTH} tokens. "
                f"Received: max_seq_length={max_seq_length}. Pass a larger one."
            )
        pretraining = pretraining.with_masking()
        prob = pretraining.masked_lm_prob
        most = most_predictions(pretraining.max_predictions_per_seq, masked_lm_prob=prob, max_seq_length=max_seq_length)
        return cls(
            max_seq_length=max_seq_length,
            max_predictions_per_seq=most,
            masked_lm_prob=prob,
            whole_word_masking=pretraining.whole_word_masking,
            dupe_factor=corpus.dupe_factor,
            short_seq_prob=corpus.short_seq_prob,
            random_next_sentence=corpus.random_next_sentence,
            record_names=corpus.record_names,
            compress_records=corpus.compress_records,
            seed=seed,
            num_shards=num_shards,
            vocab=tokenizer.vocab,
            casing=tuple(tokenizer.casing.items()),
        )

    def options(self) -> dict[str, Any]:
        """All options, as JSON can hold them; for the vocabulary, its size and hash."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["vocab"]
        return fields | {
            "casing": dict(self.casing),
            "vocab_size": len(self.vocab),
            "vocab_sha256": hash_of(vocab_text(self.vocab)),
        }

    @functools.cached_property
    def masking(self) -> Masking:
        """How the records are masked."""
        return Masking.of_vocab(
            self.vocab,
            masked_lm_prob=self.masked_lm_prob,
            max_predictions_per_seq=self.max_predictions_per_seq,
            whole_words=self.whole_word_masking,
        )

    def dealt(self, part: int, place: int, count: int) -> Iterator[bool]:
        """Which rows of a part are dealt to one of the shards that read it, without end.

        Args:
            part: The number of the part among all of them.
            place: Which of the shards that read it, from 0.
            count: How many do.
        """
        for start in itertools.count(0, _ROWS):
            # Another seed than that of a shard's own draws, so that both are independent.
            keys = record_keys(~self.seed, part, np.arange(start, start + _ROWS))
            yield from (keys % np.uint64(count) == place).tolist()

    def key_of_pass(self, shard: int, number: int) -> int:
        """The key that alone decides what one pass over a shard draws."""
        return int(record_keys(self.seed, shard, np.array([number]))[0])


def vocab_text(vocab: tuple[str, ...]) -> str:
    """The content of `vocab.txt`."""
    return "".join(token + "\n" for token in vocab)


def hash_of(text: str) -> str:
    """The SHA-256 of a vocabulary's text."""
    return hashlib.sha256(text.encode()).hexdigest()
