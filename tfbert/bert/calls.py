"""What a model is called with, in all the ways that transformers 4 allowed, as one dictionary of tensors; and what it
returns: a tuple of what there is, whose items have names, as transformers' `ModelOutput`."""

from __future__ import annotations

import collections
import functools
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tfbert.errors import UsageError
from tfbert.model.forward import Seen
from tfbert.private import check_not_in_tf_keras, let_go_of_traced_gradients
from tfbert.step.keras3.data import as_array

_BY_PLACE = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "head_mask", "inputs_embeds")
"""In the order of transformers' arguments."""
_PACKED = ("example_ids", "cls_positions", "masked_lm_positions")
"""Inputs of the command's own batches: see `forward`."""
_OF_OUTPUT = ("output_hidden_states", "output_attentions", "return_dict")
_OPTIONS = ("training", *_OF_OUTPUT)
_LEFT_OUT = {"head_mask", "encoder_hidden_states", "encoder_attention_mask", "past_key_values", "use_cache"}
INPUTS = frozenset(_BY_PLACE) - {"head_mask"} | frozenset(_PACKED)


class Called:
    """A layer or model of Keras that is called as transformers' are, and returns as they do.

    Attributes:
        config: Its `BertConfig`.
    """

    LABELS: ClassVar[dict[str, str]] = {}
    """The names of labels among the inputs, and the output that each is for: see `Labelled`."""
    config: Any

    def _fields(self, inputs: dict[str, tf.Tensor], training: bool | None, seen: Seen | None) -> dict[str, tf.Tensor]:
        """The outputs by name."""
        raise NotImplementedError

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The outputs of a batch.

        Args:
            *args: A tensor of ids; tensors in the order of transformers' arguments, or a list of them; a dictionary.
            **options: The same by name, labels among them; `training`, `output_hidden_states`, `output_attentions`;
                `return_dict=False` for a plain tuple.
        """
        check_not_in_tf_keras(type(self).__name__)
        inputs, options = gather(args, options, self.LABELS)
        if "token_type_ids" in inputs and not self.config.encoder.TOKEN_TYPES:
            rule = f"A {self.config.model_type} model is not told which tokens are of a second text"
            raise UsageError(f"{rule}. Received: token_type_ids. Leave it out.")
        return super().__call__(inputs, **options)

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: Any = None, *, training: bool | None = None, **named: Any) -> Any:
        """What Keras calls, with all inputs in one dictionary; classes that derive from this may call it in any way."""
        given, options = gather((inputs,), named, self.LABELS)
        hidden, attentions, is_named = (options.get(name, getattr(self.config, name)) for name in _OF_OUTPUT)
        seen = Seen([], []) if attentions or hidden else None
        fields = self._fields({name: value for name, value in given.items() if name in INPUTS}, training, seen)
        labels = {output: given[name] for name, output in self.LABELS.items() if name in given}
        if labels and len(labels) == len(self.LABELS):
            fields["loss"] = self.hf_compute_loss(labels, fields)
        if hidden:
            fields["hidden_states"] = tuple(seen.hidden)
        if attentions:
            fields["attentions"] = tuple(seen.attentions)
        let_go_of_traced_gradients()
        output = _made({name: fields[name] for name in _NAMES if fields.get(name) is not None})
        return output if is_named else tuple(output)


def gather(args: tuple, options: dict[str, Any], labels: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of a call by name, and its options.

    Args:
        args: A tensor, a list of tensors in the order of transformers' arguments, a dictionary, or several tensors.
        options: The call's keywords; `input_ids` may be anything that is passed alone.
        labels: The names of the model's labels, which are inputs too.

    Raises:
        UsageError: for what the model has not, or what is no batch.
    """
    first, *rest = args or (None,)
    if first is None and "input_ids" in options:
        first, options = options["input_ids"], {name: each for name, each in options.items() if name != "input_ids"}
    if isinstance(first, (list, tuple)) and first and all(hasattr(each, "shape") for each in first):
        first = dict(zip(_BY_PLACE, first, strict=False))
    given = dict(first) if isinstance(first, Mapping) else {"input_ids": first}
    given |= dict(zip(_BY_PLACE[1:], rest, strict=False))
    known = {*INPUTS, *labels}
    taken = {*known, *_LEFT_OUT, *_OPTIONS}
    if unknown := [name for name in given if name not in taken]:
        warnings.warn(f"The model has no inputs {', '.join(map(repr, unknown))}; they are not used.", stacklevel=3)
    inputs, told = {}, {}
    for name, value in ({name: value for name, value in given.items() if name in taken} | options).items():
        if name not in taken or (name in _LEFT_OUT and value is not None and value is not False):
            raise UsageError(
                f"An encoder's inputs are {', '.join(sorted(known - set(_PACKED)))}: it has no cross-attention, no "
                f"cache and no mask of heads. Received: {name}. Leave it out."
            )
        if value is not None and name in _OPTIONS:
            told[name] = value
        elif value is not None and name in known:
            inputs[name] = _as_tensor(value, name)
    if ("input_ids" in inputs) == ("inputs_embeds" in inputs):
        rule = "A model reads input_ids, or inputs_embeds in their place"
        raise UsageError(f"{rule}. Received: {', '.join(inputs) or 'neither'}. Pass one of them.")
    name, dimensions = (
        ("input_ids", "rows, width") if "input_ids" in inputs else ("inputs_embeds", "rows, width, hidden")
    )
    shape, mask = inputs[name].shape, inputs.get("attention_mask")
    if len(shape) <= dimensions.count(","):
        rule = f"A batch is [{dimensions}]"
        raise UsageError(f"{rule}. Received: {name} of shape {tuple(shape)}. Add a dimension: {name}[None].")
    if name == "input_ids" and mask is not None and len(mask.shape) != len(shape):
        rule = "attention_mask has a value for each token, [rows, width]"
        received = f"a shape of {len(mask.shape)} dimensions"
        raise UsageError(f"{rule}. Received: {received}. Pass 1 for a token and 0 for padding.")
    return inputs, told


def _as_tensor(value: Any, name: str) -> Any:
    if type(value).__module__.split(".")[0] == "tf_keras":
        todo = "Write `import keras` and keras.Input(...). (`tf.keras` is tf_keras where TF_USE_LEGACY_KERAS=1.)"
        raise UsageError(f"A model of Keras 3 takes inputs of Keras 3. Received: {name} of tf_keras. {todo}")
    if isinstance(value, keras.KerasTensor):
        return value
    value = tf.convert_to_tensor(as_array(value, name) if isinstance(value, (list, tuple, str)) else value)
    return tf.cast(value, tf.int32) if value.dtype == tf.bool else value


_NAMES = ("loss", "logits", "start_logits", "end_logits", "prediction_logits", "seq_relationship_logits")
_NAMES += ("last_hidden_state", "pooler_output", "hidden_states", "attentions")
"""All that an output may have, in order."""


class ModelOutput:
    """The parts of an output by attribute, by name and by position; what there is not, is None and has no position.

    It is a named tuple to Keras, TensorFlow and Python: `loss, logits = output`, `output[0]`.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, key) if isinstance(key, str) and key in self._fields else super().__getitem__(key)

    def __getattr__(self, name: str) -> None:
        if name not in _NAMES:
            raise AttributeError(f"A model's output has no {name!r}; it has {', '.join(self._fields)}.")

    def __contains__(self, name: Any) -> bool:
        return name in self._fields

    def __reduce__(self) -> tuple:
        return _made, (self._asdict(),)

    def get(self, name: str, default: Any = None) -> Any:
        """A part by its name."""
        return getattr(self, name) if name in self else default

    def keys(self) -> tuple[str, ...]:
        """The names of the parts that there are."""
        return self._fields

    def values(self) -> tuple:
        """The parts."""
        return tuple(self)

    def items(self) -> tuple[tuple[str, Any], ...]:
        """Names and parts."""
        return tuple(zip(self._fields, self, strict=True))

    to_tuple = values


def _made(parts: dict[str, Any]) -> Any:
    return _kind_of(tuple(parts))(*parts.values())


@functools.cache
def _kind_of(names: tuple[str, ...]) -> type:
    """One class for all outputs with the same parts: TensorFlow compares the types of structures."""
    return type("ModelOutput", (ModelOutput, collections.namedtuple("ModelOutput", names)), {"__slots__": ()})
