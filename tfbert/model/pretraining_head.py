"""BERT's own heads: the word at a masked position, and whether segment B follows segment A."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tfbert.model.forward import forward_pretraining
from tfbert.model.head import Head, Shapes
from tfbert.model.weights import Stored

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig

_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
_DECODER, _DECODER_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
_BIAS = "cls.predictions.bias"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingHead(Head):
    """The two heads of `BertForPreTraining`, or the one of `BertForMaskedLM`; its decoder is the word embeddings.

    Attributes:
        next_sentence: Whether there is a next-sentence head.
    """

    next_sentence: bool = True

    second_names = (_DECODER, _DECODER_BIAS)

    def describe_in(self, config: BertConfig) -> None:
        config.id2label = {0: "LABEL_0", 1: "LABEL_1"}  # transformers' default: there are no labels.
        config.label2id = {"LABEL_0": 0, "LABEL_1": 1}
        config.problem_type = None
        config.tie_word_embeddings = True

    def shapes(self, stored: Mapping[str, Stored], config: BertConfig) -> Shapes:
        return _masked_word_shapes(config) | (_next_sentence_shapes(config) if self.next_sentence else {})

    def read(self, stored: Mapping[str, Stored], saved: BertConfig) -> tuple[dict[str, np.ndarray], str]:
        """The weights of each head that the file holds whole."""
        if _BIAS not in stored and _DECODER_BIAS in stored:
            stored = {**stored, _BIAS: stored[_DECODER_BIAS]}
        words, pairs = _masked_word_shapes(saved), _next_sentence_shapes(saved)
        missing = []
        if not all(name in stored for name in words):
            words, missing = {}, ["the file has no masked-word head"]
        elif _DECODER in stored and not _is_tied(stored):
            words, missing = {}, ["the decoder of the file's masked-word head is not its table of embeddings"]
        if not self.next_sentence:
            pairs = {}
        elif not all(name in stored for name in pairs):
            pairs, missing = {}, [*missing, "the file has no next-sentence head"]
        return {name: stored[name].read() for name in words | pairs}, "; ".join(missing)


def pretraining_head(*, next_sentence: bool) -> PretrainingHead:
    """The heads that BERT is pre-trained with.

    Args:
        next_sentence: Whether to predict if segment B follows segment A.
    """
    return PretrainingHead(
        architecture="BertForPreTraining" if next_sentence else "BertForMaskedLM",
        forward=forward_pretraining,
        has_pooler=next_sentence,
        next_sentence=next_sentence,
    )


def _masked_word_shapes(config: BertConfig) -> Shapes:
    hidden, stem = config.hidden_size, "cls.predictions.transform"
    norms = {f"{stem}.LayerNorm.{part}": (hidden,) for part in ("weight", "bias")}
    dense = {f"{stem}.dense.weight": (hidden, hidden), f"{stem}.dense.bias": (hidden,)}
    return {_BIAS: (config.vocab_size,)} | dense | norms


def _next_sentence_shapes(config: BertConfig) -> Shapes:
    return {"cls.seq_relationship.weight": (2, config.hidden_size), "cls.seq_relationship.bias": (2,)}


def _is_tied(stored: Mapping[str, Stored]) -> bool:
    decoder, embeddings = stored[_DECODER], stored[_EMBEDDINGS]
    return decoder.shape == embeddings.shape and np.array_equal(decoder.read(), embeddings.read())
