"""What a model returns: a tuple of what there is, whose items have names, as transformers' `ModelOutput`."""

from __future__ import annotations

import collections
import functools
from typing import Any

_NAMES = (
    "loss",
    "logits",
    "start_logits",
    "end_logits",
    "prediction_logits",
    "seq_relationship_logits",
    "last_hidden_state",
    "pooler_output",
    "hidden_states",
    "attentions",
)
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


def make_output(**parts: Any) -> Any:
    """An output of the parts that are not None."""
    return _made({name: parts[name] for name in _NAMES if parts.get(name) is not None})


def _made(parts: dict[str, Any]) -> Any:
    return _kind_of(tuple(parts))(*parts.values())


@functools.cache
def _kind_of(names: tuple[str, ...]) -> type:
    """One class for all outputs with the same parts: TensorFlow compares the types of structures."""
    return type("ModelOutput", (ModelOutput, collections.namedtuple("ModelOutput", names)), {"__slots__": ()})
