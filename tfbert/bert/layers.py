"""BERT's layers under transformers' names. They hold the variables; what is computed of them is `forward`'s."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbert.bert.calls import Called
from tfbert.errors import UsageError
from tfbert.model.configuration import BertConfig
from tfbert.model.forward import Seen, encode, pooler_output
from tfbert.model.ops import layer_norm
from tfbert.step.keras3.private import take_as_they_are

_ACTIVATIONS = {
    "gelu_new": lambda x: keras.activations.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: keras.activations.gelu(x, approximate=True),
    "gelu": keras.activations.gelu,
} | {name: getattr(keras.activations, name) for name in ("relu", "silu", "tanh", "sigmoid", "mish")}
_ACTIVATIONS |= {
    "swish": keras.activations.silu,
    "gelu_fast": _ACTIVATIONS["gelu_new"],
    "gelu_10": lambda x: tf.clip_by_value(keras.activations.gelu(x), -10.0, 10.0),
    "quick_gelu": lambda x: x * tf.sigmoid(1.702 * x),
}


@tf.custom_gradient
def _rows_of(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Rows of a table, with a dense gradient."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        flat = tf.reshape(upstream, [-1, table.shape[1]])
        return tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), table.shape[0]), None

    return tf.gather(table, ids), gradient


class Embedding(keras.layers.Embedding):
    """Keras's, whose gradient is a tensor in which what several tokens give to one row is added up.

    Keras's own is a list of rows with repetitions, each of which Keras 3's optimizers square by itself.
    """

    @property
    def weight(self) -> Any:
        """The table, under the name that transformers gives it."""
        return self.embeddings

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """`[...]` -> `[..., hidden]`, in the precision that the layer computes in."""
        inputs, table = tf.cast(inputs, tf.int32), tf.convert_to_tensor(self.embeddings)
        if tf.config.get_visible_devices("GPU"):  # There, TensorFlow gives zeros for a row that the table has not.
            tf.debugging.assert_less(inputs, self.input_dim, f"{self.name} has {self.input_dim} rows.")
        return tf.cast(_rows_of(table, inputs), self.compute_dtype)


class Dense(keras.layers.Dense):
    """Keras's, whose low-rank update is saved beside the kernel, and leaves kernel and bias frozen whatever is set.

    (Keras's own saves the sum, and starts again from an update of zeros, whose gradient is 0 for ever.)
    """

    @property
    def base_kernel(self) -> Any:
        """The kernel without its update."""
        return self._kernel

    def merged_kernel(self) -> np.ndarray:
        """The kernel with its update."""
        kernel = self._kernel.numpy()
        if not self.lora_enabled:
            return kernel
        return kernel + self.lora_kernel_a.numpy() @ self.lora_kernel_b.numpy() * (self.lora_alpha / self.lora_rank)

    @property
    def trainable(self) -> bool:
        """Whether its variables are; of one with an update, those of the update."""
        return keras.layers.Layer.trainable.fget(self)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        if getattr(self, "lora_enabled", False):
            self._kernel.trainable = self.bias.trainable = False

    def enable_lora(self, *args: Any, **options: Any) -> None:
        """As Keras's."""
        super().enable_lora(*args, **options)
        self.bias.trainable = False

    def save_own_variables(self, store: Any) -> None:
        """As Keras's; of one with an update, all its variables."""
        if not self.lora_enabled or self.quantization_mode:
            super().save_own_variables(store)
            return
        for number, variable in enumerate((self._kernel, self.bias, self.lora_kernel_a, self.lora_kernel_b)):
            store[str(number)] = variable
        store["scale"] = np.float32(self.lora_alpha / self.lora_rank)

    def load_own_variables(self, store: Any) -> None:
        """As Keras's. An update of the same size is loaded; any other becomes a part of the kernel."""
        if self.quantization_mode or ("scale" not in store and not self.lora_enabled):
            super().load_own_variables(store)
            return
        kernel, low = np.asarray(store["0"]), [np.asarray(store[each]) for each in "23"] if "scale" in store else None
        scale = float(np.asarray(store["scale"])) if low else 1.0
        if self.lora_enabled:
            is_same = (
                low and low[0].shape[1] == self.lora_rank and scale == np.float32(self.lora_alpha / self.lora_rank)
            )
            if is_same:
                self.lora_kernel_a.assign(low[0])
            self.lora_kernel_b.assign(low[1] if is_same else np.zeros(self.lora_kernel_b.shape))
            low = None if is_same else low
        self._kernel.assign(kernel + scale * low[0] @ low[1] if low else kernel)
        self.bias.assign(store["1"])


class Part(keras.layers.Layer):
    """Layers under their names.

    Args:
        name: The part's own.
        dtype: The policy.
        **layers: Each with the size of its input, None where it needs none; or a list of parts.
    """

    def __init__(self, name: str, dtype: Any, **layers: Any):
        super().__init__(name=name, dtype=dtype)
        self._sizes = {}
        for key, value in layers.items():
            layer, self._sizes[key] = value if isinstance(value, tuple) else (value, None)
            setattr(self, key, layer)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """What a part computes, where it does so by itself."""
        if type(self).call is keras.layers.Layer.call:
            raise UsageError(
                f"A part of BERT holds weights, which the model computes with. Received: a call of {self.path!r}. "
                "Call the model, with output_hidden_states=True for what is between its layers."
            )
        return super().__call__(*args, **options)

    def build(self, input_shape: Any = None) -> None:
        """Creates all variables, under the names of the parts that they are in."""
        for key, size in self._sizes.items():
            for layer in keras.tree.flatten(getattr(self, key)):
                layer.build([size])


class Maker:
    """Makes layers of one configuration.

    Args:
        config: The model's.
        dtype: The policy of all layers but LayerNorm, which is float32 in any.
        initializer: Of kernels and tables; None for BERT's own.
    """

    def __init__(self, config: BertConfig, dtype: Any, initializer: str | None):
        self.config, self.dtype, self._initializer = config, dtype, initializer

    def initializer(self) -> Any:
        """A new one each time: Keras's give the same values twice."""
        return self._initializer or keras.initializers.TruncatedNormal(stddev=self.config.initializer_range)

    def dense(self, size: int, units: int, name: str = "dense") -> tuple[Dense, int]:
        """A dense layer of an input of this size."""
        made = Dense(units, name=name, dtype=self.dtype, kernel_initializer=self.initializer())
        return made, size

    def norm(self) -> tuple[keras.layers.LayerNormalization, int]:
        """LayerNorm over the hidden size."""
        epsilon = self.config.layer_norm_eps
        made = keras.layers.LayerNormalization(epsilon=epsilon, name="LayerNorm", dtype="float32")
        return made, self.config.hidden_size

    def table(self, rows: int, name: str) -> Embedding:
        """A table of embeddings."""
        options = {"name": name, "dtype": self.dtype, "embeddings_initializer": self.initializer()}
        return Embedding(rows, self.config.hidden_size, **options)

    def dropout(self, number: int, rate: float | None = None) -> keras.layers.Dropout:
        """Dropout, at the rate of hidden states by default; `number` decides its noise under FineTuner. It is that of
        tfbert 1.0."""
        rate = self.config.hidden_dropout_prob if rate is None else rate
        made = keras.layers.Dropout(rate, name="dropout", dtype=self.dtype)
        made.noise_number = number
        return made

    def part(self, name: str, **layers: Any) -> Part:
        """Layers under a name."""
        return Part(name, self.dtype, **layers)

    def head_dropout(self, *, has_pooler: bool) -> keras.layers.Dropout:
        """Dropout before a head of labels."""
        return self.dropout(6 + 17 * self.config.num_hidden_layers + 2 * has_pooler, self.config.classifier_dropout)

    def activation(self) -> Any:
        """The function within the layers."""
        name = self.config.hidden_act
        if name not in _ACTIVATIONS:
            raise UsageError(
                f"hidden_act is one of {', '.join(_ACTIVATIONS)}. Received: hidden_act={name!r}. Use another model."
            )
        return _ACTIVATIONS[name]

    def output(self, size: int, number: int) -> Part:
        """What follows attention or the wide layer: dense, dropout, and LayerNorm of the sum with what came before."""
        dense = self.dense(size, self.config.hidden_size)
        return self.part("output", dense=dense, dropout=self.dropout(number), LayerNorm=self.norm())

    def layer(self, number: int) -> Part:
        """An encoder layer."""
        config, hidden, noise = self.config, self.config.hidden_size, 17 * number
        projections = {name: self.dense(hidden, hidden, name) for name in ("query", "key", "value")}
        own = self.part("self", **projections, dropout=self.dropout(noise + 12, config.attention_probs_dropout_prob))
        own.num_attention_heads = config.num_attention_heads
        middle = self.part("intermediate", dense=self.dense(hidden, config.intermediate_size))
        middle.config, middle.intermediate_act_fn = config, self.activation()
        attention = self.part("attention", self_attention=own, dense_output=self.output(hidden, noise + 16))
        last = self.output(config.intermediate_size, noise + 22)
        return self.part(f"layer_._{number}", attention=attention, intermediate=middle, bert_output=last)

    def words_head(self, table: Embedding) -> Part:
        """The head of masked words: a transformation, and the table of words with a bias."""
        hidden = self.config.hidden_size
        transform = self.part("transform", dense=self.dense(hidden, hidden), LayerNorm=self.norm())
        transform.config, transform.transform_act_fn = self.config, self.activation()
        return self.part("mlm___cls", predictions=_WordsHead(self, transform, table))


class _WordsHead(Part):
    """`transform` and the bias of each word; the table is that of the embeddings, which hold it."""

    def __init__(self, make: Maker, transform: Part, table: Embedding):
        super().__init__("predictions", make.dtype, transform=transform)
        self.read_from(table)

    def read_from(self, table: Embedding) -> None:
        """Ties the head to a table. Not tracked: it is no part of the head's own."""
        object.__setattr__(self, "input_embeddings", table)

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        super().build(input_shape)
        self.bias = self.add_weight(shape=[self.input_embeddings.input_dim], initializer="zeros", name="bias")


class Embeddings(Part):
    """Words, positions and segments as vectors."""

    def __init__(self, make: Maker):
        config = make.config
        super().__init__(
            "embeddings",
            make.dtype,
            word_embeddings=make.table(config.vocab_size, "word_embeddings"),
            position_embeddings=make.table(config.max_position_embeddings, "position_embeddings"),
            token_type_embeddings=make.table(config.type_vocab_size, "token_type_embeddings"),
            LayerNorm=make.norm(),
            dropout=make.dropout(4),
        )

    @property
    def weight(self) -> Any:
        """The table of words, under the name that transformers gives it."""
        return self.word_embeddings.embeddings

    def call(self, input_ids=None, position_ids=None, token_type_ids=None, inputs_embeds=None, training=None):
        """`[rows, width]` -> `[rows, width, hidden]`."""
        words = self.word_embeddings(input_ids) if inputs_embeds is None else tf.cast(inputs_embeds, self.compute_dtype)
        shape, size = tf.shape(words), words.shape[-1]
        positions = tf.range(shape[1])[None] if position_ids is None else position_ids
        types = tf.zeros(shape[:2], tf.int32) if token_type_ids is None else token_type_ids
        hidden = words + self.position_embeddings(positions) + self.token_type_embeddings(types)
        norm = self.LayerNorm
        hidden = layer_norm(tf.reshape(hidden, [-1, size]), norm.gamma, norm.beta, norm.epsilon)
        return self.dropout(inputs=tf.reshape(hidden, shape), training=training)


@keras.saving.register_keras_serializable("tfbert")
class TFBertMainLayer(Called, Part):
    """BERT without a head; called as `TFBertModel` is."""

    def __init__(self, make: Maker, *, has_pooler: bool = True):
        layers = [make.layer(number) for number in range(make.config.num_hidden_layers)]
        parts = {"embeddings": Embeddings(make), "encoder": make.part("encoder", layer=layers)}
        if has_pooler:
            hidden = make.config.hidden_size
            parts["pooler"] = make.part("pooler", dense=make.dense(hidden, hidden))
        super().__init__("bert", make.dtype, **parts)
        take_as_they_are(self)
        self.config = make.config

    def get_input_embeddings(self) -> Embedding:
        """The layer that holds the table of words."""
        return self.embeddings.word_embeddings

    def _fields(self, inputs: dict[str, tf.Tensor], training: bool | None, seen: Seen | None) -> dict[str, tf.Tensor]:
        tokens = encode(self, inputs, training, seen=seen)
        pooled = pooler_output(self.pooler, tokens[:, 0]) if hasattr(self, "pooler") else None
        return {"last_hidden_state": tokens, "pooler_output": pooled}

    def get_config(self) -> dict[str, Any]:
        """What `from_config` makes such a layer of."""
        return {
            "config": self.config.to_dict(),
            "has_pooler": hasattr(self, "pooler"),
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TFBertMainLayer:
        """A layer whose variables exist: in a functional model it may stand alone."""
        policy = keras.saving.deserialize_keras_object(config["dtype"])
        made = cls(Maker(BertConfig.from_dict(config["config"]), policy, None), has_pooler=config["has_pooler"])
        made.build()
        made.trainable = config["trainable"]
        return made

    def get_build_config(self) -> None:
        """Nothing: `from_config` builds."""
