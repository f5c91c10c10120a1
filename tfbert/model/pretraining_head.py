"""The heads of pre-training: the word at a masked position, and whether segment B follows segment A."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tfbert.model.forward import forward_pretraining
from tfbert.model.head import Head
from tfbert.model.layout import Shapes, shapes_of, words_path
from tfbert.model.weights import Stored

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingHead(Head):
    """The two heads of `BertForPreTraining`, or the one of `...ForMaskedLM`; its decoder is the word embeddings."""

    def describe_in(self, config: BertConfig) -> None:
        config.id2label = {0: "LABEL_0", 1: "LABEL_1"}  # transformers' default: there are no labels.
        config.label2id = {"LABEL_0": 0, "LABEL_1": 1}
        config.problem_type = None
        config.tie_word_embeddings = True

    def bias_name(self, config: BertConfig) -> str:
        return f"{words_path(config.encoder.head(config, self.kind, 0))}.bias"

    def second_names(self, config: BertConfig) -> tuple[str, ...]:
        """The decoder's, whose weights are the table and the bias, wherever files have it."""
        words = words_path(config.encoder.head(config, self.kind, 0))
        return f"{words}.decoder.weight", f"{words}.weight", f"{words}.decoder.bias"

    def shapes(self, stored: Mapping[str, Stored], config: BertConfig) -> Shapes:
        return shapes_of(config.encoder.head(config, self.kind, 0))

    def read(self, stored: Mapping[str, Stored], saved: BertConfig) -> tuple[dict[str, np.ndarray], str]:
        """The weights of each head that the file holds whole."""
        words, table = shapes_of(saved.encoder.head(saved, "MaskedLM", 0)), next(iter(saved.encoder.shapes(saved)))
        pairs = {name: shape for name, shape in self.shapes(stored, saved).items() if name not in words}
        bias = self.bias_name(saved)
        *decoders, second_bias = self.second_names(saved)
        if bias not in stored and second_bias in stored:
            stored = {**stored, bias: stored[second_bias]}
        missing = []
        if not all(name in stored for name in words):
            words, missing = {}, ["the file has no masked-word head"]
        elif not all(_is_same(stored[name], stored[table]) for name in decoders if name in stored):
            words, missing = {}, ["the decoder of the file's masked-word head is not its table of embeddings"]
        if not all(name in stored for name in pairs):
            pairs, missing = {}, [*missing, "the file has no next-sentence head"]
        return {name: stored[name].read() for name in words | pairs}, "; ".join(missing)


def pretraining_head(*, next_sentence: bool) -> PretrainingHead:
    """The heads that BERT is pre-trained with.

    Args:
        next_sentence: Whether to predict if segment B follows segment A.
    """
    return PretrainingHead(kind="PreTraining" if next_sentence else "MaskedLM", forward=forward_pretraining)


def _is_same(one: Stored, other: Stored) -> bool:
    return one.shape == other.shape and np.array_equal(one.read(), other.read())
