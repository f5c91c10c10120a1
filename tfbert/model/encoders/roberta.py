"""RoBERTa (Liu et al. 2019), and with it XLM-R and CamemBERT: BERT's layers, whose positions begin after the padding
token's number, without token types, and with heads of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfbert.model.encoders.bert import Bert, Config
from tfbert.model.layout import Dense, Tree, Words

if TYPE_CHECKING:
    import keras


class Roberta(Bert):
    """What differs from BERT. There is a table of token types, of which the first row is added to every word."""

    PREFIX = "roberta"
    POOLED = ("Model", "MultipleChoice")
    OUTPUTS = Bert.OUTPUTS | {"SequenceClassification": "classifier.out_proj"}
    VOCABULARY = "lm_head"
    DEFAULTS = {"vocab_size": 50265, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    SIZES = {"pad_token_id": 0}
    TOKEN_TYPES = False
    COUNTS_FROM_PAD = True

    def head(self, config: Config, kind: str, outputs: int) -> Tree:
        if kind == "MaskedLM":
            transform = {"dense": Dense(config.hidden_size, config.hidden_size), "layer_norm": self.norm(config)}
            return {"lm_head": Words(config.vocab_size, transform)}
        return super().head(config, kind, outputs)

    def words(self, model: keras.Model) -> tuple[Any, str, Any, Any]:
        return model.lm_head.dense, "gelu", model.lm_head.layer_norm, model.lm_head


ENCODER = Roberta()
