"""ELECTRA's discriminator (Clark et al. 2020): BERT with shorter vectors of words, and heads of its own for texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfbert.model.encoders.bert import Bert, Config
from tfbert.model.layout import Dense, Tree

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfbert.model.ops import Arithmetic


class Electra(Bert):
    """What differs from BERT."""

    PREFIX = "electra"
    PARTS = ("embeddings.", "embeddings_project.", "encoder.")
    POOLED = ()
    OUTPUTS = Bert.OUTPUTS | {"SequenceClassification": "classifier.out_proj"}
    DEFAULTS = {
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
        "summary_last_dropout": 0.1,
    }
    SIZES = {"embedding_size": 1}
    INNER = "gelu"
    RATES = (*Bert.RATES, "summary_last_dropout")
    CHOICES = {
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu", "relu", "tanh"),
        "summary_first_dropout": (0,),
        "summary_proj_to_labels": (False,),
    }

    def embedding_size(self, config: Config) -> int:
        return config.embedding_size

    def head(self, config: Config, kind: str, outputs: int) -> Tree:
        if kind == "MultipleChoice":
            hidden, dropout = config.hidden_size, self.head_dropout(config, kind)
            dropout = dropout._replace(rate=config.summary_last_dropout)
            summary = {"summary": Dense(hidden, hidden), "last_dropout": dropout}
            return {"sequence_summary": summary, "classifier": Dense(hidden, outputs)}
        return super().head(config, kind, outputs) if kind in self.OUTPUTS else {}

    def of_text(self, model: keras.Model, first: tf.Tensor, run: Arithmetic) -> tf.Tensor:
        if hasattr(model, "sequence_summary"):
            head = model.sequence_summary
            return run.drop(run.act(run.dense(first, head.summary), model.config.summary_activation), head.last_dropout)
        return super().of_text(model, first, run)


ENCODER = Electra()
