"""DistilBERT (Sanh et al. 2019): BERT's layers under other names, without token types and without a pooler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfbert.model.encoders.bert import Bert, Config
from tfbert.model.layout import Dense, Dropout, Norm, Tree, Words

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfbert.model.ops import Arithmetic, Pass


class DistilBert(Bert):
    """What differs from BERT."""

    PREFIX = "distilbert"
    PARTS = ("embeddings.", "transformer.")
    POOLED = ()
    VOCABULARY = "vocab_projector"
    FIELDS = {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    }
    DEFAULTS = {"num_hidden_layers": 6, "seq_classif_dropout": 0.2, "qa_dropout": 0.1}
    RATES = (*Bert.RATES, "seq_classif_dropout", "qa_dropout")
    TOKEN_TYPES = False
    LORA = ("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2")
    LAYERS = "transformer.layer"

    def parts(self, config: Config, *, has_pooler: bool = False) -> Tree:
        parts = super().parts(config, has_pooler=False)
        del parts["embeddings"]["token_type_embeddings"]
        return {"embeddings": parts["embeddings"], "transformer": parts["encoder"]}

    def norm(self, config: Config, size: int = 0) -> Norm:
        return Norm(config.hidden_size, 1e-12)  # Whatever `config.json` says.

    def layer_parts(self, config: Config, noise: int) -> Tree:
        hidden, wide = config.hidden_size, config.intermediate_size
        attention = {name: Dense(hidden, hidden) for name in ("q_lin", "k_lin", "v_lin", "out_lin")}
        attention["dropout"] = Dropout(noise + 12, config.attention_probs_dropout_prob)
        dropout = Dropout(noise + 22, config.hidden_dropout_prob)
        return {
            "attention": attention,
            "sa_layer_norm": self.norm(config),
            "ffn": {"lin1": Dense(hidden, wide), "lin2": Dense(wide, hidden), "dropout": dropout},
            "output_layer_norm": self.norm(config),
        }

    def head(self, config: Config, kind: str, outputs: int) -> Tree:
        hidden, dropout = config.hidden_size, {"dropout": self.head_dropout(config, kind)}
        if kind in ("SequenceClassification", "MultipleChoice"):
            return {"pre_classifier": Dense(hidden, hidden)} | dropout | {"classifier": Dense(hidden, outputs)}
        if kind in self.OUTPUTS:
            return dropout | {self.OUTPUTS[kind]: Dense(hidden, outputs)}
        words = {"vocab_layer_norm": self.norm(config), "vocab_projector": Words(config.vocab_size, {})}
        return {"vocab_transform": Dense(hidden, hidden)} | words if kind == "MaskedLM" else {}

    def head_dropout(self, config: Config, kind: str) -> Dropout:
        rates = {"TokenClassification": config.hidden_dropout_prob, "QuestionAnswering": config.qa_dropout}
        return super().head_dropout(config, kind)._replace(rate=rates.get(kind, config.seq_classif_dropout))

    def layer(self, part: keras.layers.Layer, tokens: tf.Tensor, run: Pass, number: int) -> tf.Tensor:
        own, wide = part.attention, part.ffn
        read, *projected = run.project(tokens, own.q_lin, own.k_lin, own.v_lin)
        attended = run.dense(run.attend(*projected, own.dropout), own.out_lin)
        attended = run.norm(attended + read, part.sa_layer_norm)
        output = run.drop(run.dense(run.act(run.dense(attended, wide.lin1)), wide.lin2), wide.dropout)
        return run.norm(output + attended, part.output_layer_norm)

    def of_text(self, model: keras.Model, first: tf.Tensor, run: Arithmetic) -> tf.Tensor:
        return run.drop(run.act(run.dense(first, model.pre_classifier), "relu"), model.dropout)

    def words(self, model: keras.Model) -> tuple[Any, str, Any, Any]:
        return model.vocab_transform, model.config.hidden_act, model.vocab_layer_norm, model.vocab_projector


ENCODER = DistilBert()
