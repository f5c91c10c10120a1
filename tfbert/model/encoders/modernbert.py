"""ModernBERT (Warner et al. 2024): rotary positions, attention to all tokens or to near ones by turns, gated layers,
the norm before each part, no biases but where `config.json` asks for them, and a head with a dense layer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfbert.model.encoders.bert import NOISE_OF_LAYER, Bert, Config
from tfbert.model.layout import Dense, Dropout, Norm, Table, Tree, Words

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfbert.model.ops import Arithmetic, Pass

_FULL, _NEAR = "full_attention", "sliding_attention"


class ModernBert(Bert):
    """What differs from BERT."""

    PREFIX = "model"
    PARTS = ("embeddings.", "layers.", "final_norm.")
    POOLED = ()
    OUTPUTS = Bert.OUTPUTS | {"QuestionAnswering": "classifier"}
    VOCABULARY = "decoder"
    FIELDS = {
        "hidden_act": "hidden_activation",
        "layer_norm_eps": "norm_eps",
        "attention_probs_dropout_prob": "attention_dropout",
    }
    DEFAULTS = {
        "vocab_size": 50368,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 50283,
        "decoder_bias": True,
        "classifier_pooling": "cls",
        "classifier_activation": "gelu",
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
    }
    SIZES = {"local_attention": 0, "global_attn_every_n_layers": 1}
    RATES = ("attention_probs_dropout_prob", "embedding_dropout", "mlp_dropout", "classifier_dropout")
    BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
    DEFAULTS |= dict.fromkeys(RATES, 0.0) | dict.fromkeys(BIASES, False)
    CHOICES = dict.fromkeys((*BIASES, "decoder_bias"), (True, False))
    CHOICES |= {"classifier_pooling": ("cls", "mean"), "classifier_activation": ("gelu", "silu", "relu", "tanh")}
    TOKEN_TYPES = False
    LORA = ("Wqkv", "Wqkv", "Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo")
    LAYERS = "blocks"
    WIDE = 3

    def problem(self, config: dict[str, Any]) -> str:
        kinds, rotary = config.get("layer_types"), config.get("rope_parameters") or {}
        if kinds is not None and (
            not isinstance(kinds, list)
            or len(kinds) != config["num_hidden_layers"]
            or any(kind not in (_FULL, _NEAR) for kind in kinds)
        ):
            return f"layer_types={kinds!r}, which must name {_FULL} or {_NEAR} for each layer"
        each = list(rotary.values()) if isinstance(rotary, dict) else [rotary]
        others = [one for one in each if not isinstance(one, dict) or one.get("rope_type", "default") != "default"]
        if others or config.get("rope_scaling"):
            return f"rotary positions of another kind than default: {(*others, config.get('rope_scaling'))[0]!r}"
        thetas = [config.get(f"{where}_rope_theta", 1) for where in ("global", "local")]
        for theta in thetas + [one.get("rope_theta", 1) for one in each]:
            if type(theta) not in (int, float) or not 0 < theta < float("inf"):
                return f"rope_theta={theta!r}, which must be a number above 0"
        if config["hidden_size"] % (2 * config["num_attention_heads"]):
            return f"hidden_size={config['hidden_size']}, of which each head must have an even share"
        return ""

    def parts(self, config: Config, *, has_pooler: bool = False) -> Tree:
        embeddings = {
            "word_embeddings=tok_embeddings": Table(config.vocab_size, config.hidden_size),
            "LayerNorm=norm": self.norm(config),
            "dropout=drop": Dropout(4, config.embedding_dropout),
        }
        layers = [self.layer_parts(config, NOISE_OF_LAYER * i) for i in range(config.num_hidden_layers)]
        return {"embeddings": embeddings, "blocks=layers": layers, "final_norm": self.norm(config)}

    def norm(self, config: Config, size: int = 0) -> Norm:
        return Norm(config.hidden_size, config.layer_norm_eps, config.norm_bias)

    def layer_parts(self, config: Config, noise: int) -> Tree:
        hidden, wide, rate = config.hidden_size, config.intermediate_size, config.attention_probs_dropout_prob
        attention = {
            "Wqkv": Dense(hidden, 3 * hidden, config.attention_bias),
            "Wo": Dense(hidden, hidden, config.attention_bias),
            "dropout": Dropout(noise + 12, rate),
            "out_drop": Dropout(noise + 16, rate),
        }
        gated = {
            "Wi": Dense(hidden, 2 * wide, config.mlp_bias),
            "drop": Dropout(noise + 22, config.mlp_dropout),
            "Wo": Dense(wide, hidden, config.mlp_bias),
        }
        before = {"attn_norm": self.norm(config)} if noise else {}  # Not in the first layer.
        return before | {"attn": attention, "mlp_norm": self.norm(config), "mlp": gated}

    def head(self, config: Config, kind: str, outputs: int) -> Tree:
        hidden = config.hidden_size
        body = {"head": {"dense": Dense(hidden, hidden, config.classifier_bias), "norm": self.norm(config)}}
        if kind in self.OUTPUTS:
            return body | {"drop": self.head_dropout(config, kind), "classifier": Dense(hidden, outputs)}
        return body | {"decoder": Words(config.vocab_size, {}, config.decoder_bias)} if kind == "MaskedLM" else {}

    def windows(self, config: Config) -> list[int | None]:
        every, kinds = config.global_attn_every_n_layers, getattr(config, "layer_types", None)
        kinds = kinds or [_NEAR if i % every else _FULL for i in range(config.num_hidden_layers)]
        return [config.local_attention // 2 if kind == _NEAR else None for kind in kinds]

    def shared(self, config: Config, run: Pass) -> Any:
        """What turns queries and keys by their positions, by window."""
        given, found = getattr(config, "rope_parameters", None) or {}, {}
        for window in {*self.windows(config)}:
            usual, kind = (config.global_rope_theta, _FULL) if window is None else (config.local_rope_theta, _NEAR)
            found[window] = run.turns((given.get(kind) or {}).get("rope_theta", usual))
        return found

    def layer(self, part: keras.layers.Layer, tokens: tf.Tensor, run: Pass, number: int) -> tf.Tensor:
        own, wide, window = part.attn, part.mlp, self.windows(run.config)[number]
        before = run.norm(tokens, part.attn_norm) if number else tokens
        query, key, value = run.split(run.dense(before, own.Wqkv), 3)
        query, key = (run.turned(each, run.shared[window]) for each in (query, key))
        attended = run.dense(run.attend(run.read(query), key, value, own.dropout, window), own.Wo)
        tokens = run.read(tokens) + run.drop(attended, own.out_drop)
        inner, gate = run.split(run.dense(run.norm(tokens, part.mlp_norm), wide.Wi), 2)
        return tokens + run.dense(run.drop(run.act(inner) * gate, wide.drop), wide.Wo)

    def end(self, base: keras.layers.Layer, tokens: tf.Tensor, run: Pass) -> tf.Tensor:
        return run.norm(tokens, base.final_norm)

    def means(self, config: Config) -> bool:
        return config.classifier_pooling == "mean"

    def of_text(self, model: keras.Model, first: tf.Tensor, run: Arithmetic) -> tf.Tensor:
        inner = run.act(run.dense(first, model.head.dense), model.config.classifier_activation)
        return run.drop(run.norm(inner, model.head.norm), model.drop)

    of_tokens = of_text

    def words(self, model: keras.Model) -> tuple[Any, str, Any, Any]:
        return model.head.dense, model.config.classifier_activation, model.head.norm, model.decoder


ENCODER = ModernBert()
