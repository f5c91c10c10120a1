"""How much arithmetic examples need in a model, from its configuration and the real tokens alone.

Only matrix products count, and only for real tokens: padding and recomputation are not needed work. In the last layer a
classifier needs each sequence's `[CLS]` alone: see `model.forward`. These are the "model FLOPs" of Chowdhery et al.
2022 (PaLM), appendix B.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

TRAINING_PASSES = 3
"""A training step computes the forward pass once, and twice as much for the gradients of inputs and weights; with LoRA
the gradients of weights are next to nothing."""
ANY_LENGTH = 1 << 30
"""More tokens than a sequence has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What some examples hold.

    Attributes:
        examples: How many; rows that only fill a batch do not count.
        tokens: Their real tokens, `[CLS]` and `[SEP]` included.
        squared_tokens: Sum of each sequence's tokens squared: what attention's cost grows with.
        further_sequences: Sequences of tokens beyond one an example: an example may have several.
    """

    examples: int = 0
    tokens: int = 0
    squared_tokens: int = 0
    further_sequences: int = 0

    @property
    def sequences(self) -> int:
        """All sequences."""
        return self.examples + self.further_sequences

    @classmethod
    def of(cls, lengths: np.ndarray, longest: int = ANY_LENGTH) -> Work:
        """The work of examples with these numbers of tokens: int `[n]`; `[n, sequences]` for examples of several
        sequences, 0 where there is none. More than `longest` are in windows of so many."""
        lengths = np.asarray(lengths, np.int64)
        return cls(
            examples=len(lengths),
            tokens=int(lengths.sum()),
            squared_tokens=int((lengths * np.minimum(lengths, longest)).sum()),
            further_sequences=int((-(-lengths // longest)).sum()) - len(lengths),
        )

    def __add__(self, other: Work) -> Work:
        return Work(
            examples=self.examples + other.examples,
            tokens=self.tokens + other.tokens,
            squared_tokens=self.squared_tokens + other.squared_tokens,
            further_sequences=self.further_sequences + other.further_sequences,
        )


def forward_flops(bert_config: Any, work: Work, *, reads_tokens: bool = False, masked_share: float = 0.0) -> float:
    """Floating-point operations of the forward pass, a multiplication and an addition counted as two.

    Args:
        bert_config: A `BertConfig`: its encoder, `hidden_size` and `num_labels` are read, and `vocab_size` for masked
            tokens.
        work: The examples.
        reads_tokens: Whether the head reads every token of the last layer, and has no pooler below it.
        masked_share: Share of the tokens that are also read to predict a word of the vocabulary each.
    """
    hidden, encoder = bert_config.hidden_size, bert_config.encoder
    keys_and_values = 2 * hidden * hidden
    rest = 2 * hidden * hidden + encoder.wide_products(bert_config)  # Query and output; the MLP.
    per_pair = 2 * hidden  # Scores, and the weighted sum of the values.
    *windows, last_window = encoder.windows(bert_config)
    # How many tokens all attend to: those of their sequences, or those near them.
    pairs = [
        work.squared_tokens if window is None else min(work.squared_tokens, (2 * window + 1) * work.tokens)
        for window in (*windows, last_window)
    ]
    whole = len(windows) * (keys_and_values + rest) * work.tokens + per_pair * sum(pairs[:-1])
    whole += encoder.embedding_products(bert_config) * work.tokens
    if reads_tokens or encoder.means(bert_config):
        last = (keys_and_values + rest) * work.tokens + per_pair * pairs[-1]
    else:
        last = (keys_and_values + per_pair) * work.tokens + rest * work.sequences
    if reads_tokens:
        head = hidden * bert_config.num_labels * work.tokens
    else:
        head = (hidden * hidden + hidden * bert_config.num_labels) * work.sequences  # Pooler and classifier.
    if masked_share:
        head += masked_share * hidden * (hidden + bert_config.vocab_size) * work.tokens
        last += masked_share * (rest * work.tokens + per_pair * work.squared_tokens)
    return 2.0 * (whole + last + head)


def training_flops(bert_config: Any, work: Work, *, is_frozen: bool = False, **read: Any) -> float:
    """Floating-point operations of forward and backward pass.

    Args:
        bert_config: As for `forward_flops`, like all others.
        work: The examples.
        is_frozen: Whether the kernels are, as with LoRA.
        **read: What the head reads.
    """
    return (TRAINING_PASSES - is_frozen) * forward_flops(bert_config, work, **read)
