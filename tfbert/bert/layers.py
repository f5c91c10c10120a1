"""An encoder's layers under transformers' names. They hold the variables; what is computed of them is `forward`'s."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfbert.bert.calls import Called
from tfbert.devices.runtime import processor_flags
from tfbert.model import layout, ops
from tfbert.model.files import BertConfig
from tfbert.model.forward import Seen, encode, pooler_output
from tfbert.private import layers_of
from tfbert.step.keras3.private import take_as_they_are


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

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """`[...]` -> `[..., hidden]`, in the precision that the layer computes in."""
        inputs, table = tf.cast(inputs, tf.int32), tf.convert_to_tensor(self.embeddings)
        if tf.config.get_visible_devices("GPU"):  # There, TensorFlow gives zeros for a row that the table has not.
            with tf.device("CPU"):  # Where batches come from: what a GPU finds, the host would wait for.
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
            self._freeze()

    def _freeze(self) -> None:
        for variable in (self._kernel, self.bias):
            if variable is not None:
                variable.trainable = False

    def enable_lora(self, *args: Any, **options: Any) -> None:
        """As Keras's."""
        super().enable_lora(*args, **options)
        self._freeze()

    def save_own_variables(self, store: Any) -> None:
        """As Keras's; of one with an update, all its variables."""
        if not self.lora_enabled or self.quantization_mode:
            super().save_own_variables(store)
            return
        for number, variable in enumerate((self._kernel, self.bias, self.lora_kernel_a, self.lora_kernel_b)):
            if variable is not None:
                store[str(number)] = variable
        store["scale"] = np.float32(self.lora_alpha / self.lora_rank)

    def load_own_variables(self, store: Any) -> None:
        """As Keras's. An update of the same size is loaded; any other becomes a part of the kernel."""
        if self.quantization_mode or ("scale" not in store and not self.lora_enabled):
            super().load_own_variables(store)
            return
        kernel, is_same = np.asarray(store["0"]), False
        if "scale" in store:
            a, b, scale = (np.asarray(store[name]) for name in ("2", "3", "scale"))
            own = (self.lora_rank, np.float32(self.lora_alpha / self.lora_rank)) if self.lora_enabled else None
            is_same = own == (a.shape[1], scale)
            if is_same:
                self.lora_kernel_a.assign(a)
            else:
                kernel = kernel + float(scale) * a @ b
        if self.lora_enabled:
            self.lora_kernel_b.assign(b if is_same else np.zeros(self.lora_kernel_b.shape))
        self._kernel.assign(kernel)
        if self.bias is not None:
            self.bias.assign(store["1"])


def fix_kernels(model: keras.Model) -> None:
    """For predictions in bfloat16 on a CPU, of weights that change no more: makes one operation of a product, its bias
    and GELU. Where the CPU has a matrix unit (AMX), that pays only for constants of the graph, whose layout oneDNN
    changes once.
    """
    has_matrix_unit = "amx_bf16" in processor_flags()
    for layer in layers_of(model):
        if isinstance(layer, Dense):
            kernel = tf.cast(layer.merged_kernel(), tf.bfloat16).numpy() if has_matrix_unit else layer.kernel
            layer.fixed_kernel = kernel


class WithParts:
    """A layer or model that holds layers under their names."""

    def add_parts(self, make: Maker, tree: layout.Tree) -> None:
        """Makes layers, and remembers the sizes of their inputs; see `layout`."""
        self._sizes = {}
        for attribute, own, each in layout.named(tree):
            layer, self._sizes[attribute] = make.made(each, own)
            setattr(self, attribute, layer)

    def build(self, input_shape: Any = None) -> None:
        """Creates all variables, under the names of the parts that they are in; a model's constructor does so."""
        for key, size in self._sizes.items():
            for layer in keras.tree.flatten(getattr(self, key)):
                layer.build([size])


class Part(WithParts, keras.layers.Layer):
    """Layers under their names.

    Args:
        make: Makes them.
        name: The part's own.
        tree: See `layout`.
    """

    def __init__(self, make: Maker, name: str, tree: layout.Tree):
        super().__init__(name=name, dtype=make.dtype)
        self.add_parts(make, tree)


class Maker:
    """Makes layers of one configuration.

    Args:
        config: The model's.
        dtype: The policy of all layers but LayerNorm, which is float32 in any.
        initializer: Of kernels and tables; None for BERT's own.
    """

    def __init__(self, config: BertConfig, dtype: Any, initializer: str | None):
        self.config, self.dtype, self._initializer = config, dtype, initializer
        self.table: Embedding | None = None
        """The words', for a head of words."""

    def _initial(self) -> Any:
        """A new one each time: Keras's give the same values twice."""
        return self._initializer or keras.initializers.TruncatedNormal(stddev=self.config.initializer_range)

    def made(self, node: Any, name: str) -> tuple[Any, int | None]:
        """What a node of a tree describes, and the size of its input, if it needs one."""
        options = {"name": name, "dtype": self.dtype}
        match node:
            case layout.Dense(size, units, has_bias):
                return Dense(units, use_bias=has_bias, kernel_initializer=self._initial(), **options), size
            case layout.Table(rows, size):
                return Embedding(rows, size, embeddings_initializer=self._initial(), **options), None
            case layout.Norm(size, epsilon, has_bias):
                norm = keras.layers.LayerNormalization(epsilon=epsilon, center=has_bias, name=name, dtype="float32")
                return norm, size
            case layout.Dropout(number, rate):
                dropout = keras.layers.Dropout(rate, **options)
                dropout.noise_number = number
                return dropout, None
            case layout.Words():
                return _WordsHead(self, name, node), None
            case list():
                return [Part(self, f"{name}_._{number}", each) for number, each in enumerate(node)], None
        return (Embeddings if name == "embeddings" else Part)(self, name, node), None


class _WordsHead(Part):
    """What comes before the bias of each word; the table is that of the embeddings, which hold it."""

    def __init__(self, make: Maker, name: str, words: layout.Words):
        super().__init__(make, name, words.parts)
        self._has_bias, self.bias = words.has_bias, None
        object.__setattr__(self, "input_embeddings", make.table)  # Not tracked: it is no part of the head's own.

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        super().build(input_shape)
        if self._has_bias:
            self.bias = self.add_weight(shape=[self.input_embeddings.input_dim], initializer="zeros", name="bias")


class Embeddings(Part):
    """Words as vectors, with those of their positions and segments, where there are such."""

    def __init__(self, make: Maker, name: str, tree: layout.Tree):
        super().__init__(make, name, tree)
        self.config = make.config

    @property
    def weight(self) -> Any:
        """The table of words, under the name that transformers gives it."""
        return self.word_embeddings.embeddings

    def call(self, input_ids=None, position_ids=None, token_type_ids=None, inputs_embeds=None, training=None):
        """`[rows, width]` -> `[rows, width, hidden]`."""
        words = self.word_embeddings(input_ids) if inputs_embeds is None else tf.cast(inputs_embeds, self.compute_dtype)
        shape, hidden = tf.shape(words), words
        if position_ids is None:
            position_ids = ops.positions_of(self.config, {"input_ids": input_ids, "inputs_embeds": inputs_embeds})
        if hasattr(self, "position_embeddings"):
            hidden += self.position_embeddings(tf.range(shape[1])[None] if position_ids is None else position_ids)
        if hasattr(self, "token_type_embeddings"):
            types = tf.zeros(shape[:2], tf.int32) if token_type_ids is None else token_type_ids
            hidden += self.token_type_embeddings(types)
        hidden = ops.norm_layer(tf.reshape(hidden, [-1, words.shape[-1]]), self.LayerNorm)
        return self.dropout(inputs=tf.reshape(hidden, shape), training=training)


@keras.saving.register_keras_serializable("tfbert")
class TFBertMainLayer(Called, Part):
    """An encoder without a head; called as `TFBertModel` is."""

    def __init__(self, make: Maker, *, has_pooler: bool = True):
        encoder = make.config.encoder
        ops.activation(make.config.hidden_act)
        super().__init__(make, encoder.PREFIX, encoder.parts(make.config, has_pooler=has_pooler))
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
