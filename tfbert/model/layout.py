"""What a model is made of: layers by name, in a tree; and the shapes of their weights, before any is made.

A tree is a dictionary: the parts of a layer by the names that transformers gives them in PyTorch, so that a weight's
name is the path to it. `"attribute=name"` gives Python another name for a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

Tree = dict[str, Any]
"""Trees, lists of trees and the layers below, by name."""
Shapes = dict[str, tuple[int, ...]]
"""Shapes by the weight's name in PyTorch."""


class Dense(NamedTuple):
    """A dense layer of an input of `size`."""

    size: int
    units: int
    has_bias: bool = True


class Table(NamedTuple):
    """A table of embeddings."""

    rows: int
    size: int


class Norm(NamedTuple):
    """LayerNorm of an input of `size`."""

    size: int
    epsilon: float
    has_bias: bool = True


class Dropout(NamedTuple):
    """Dropout; `number` decides its noise under FineTuner."""

    number: int
    rate: float


class Words(NamedTuple):
    """The words of a vocabulary as outputs: a bias for each beside `parts`; the kernel is the table of the inputs."""

    rows: int
    parts: Tree
    has_bias: bool = True


def named(tree: Tree) -> Iterator[tuple[str, str, Any]]:
    """Attribute, name and part of each."""
    for key, part in tree.items():
        attribute, _, name = key.partition("=")
        yield attribute, name or attribute, part


def shapes_of(part: Any, name: str = "") -> Shapes:
    """The shape of each weight of a part, by PyTorch name."""
    match part:
        case Dense(size, units, has_bias):
            found = {"weight": (units, size), "bias": (units,)}
        case Norm(size, _, has_bias):
            found = {"weight": (size,), "bias": (size,)}
        case Table(rows, size):
            found, has_bias = {"weight": (rows, size)}, True
        case Words(rows, parts, has_bias):
            return shapes_of(parts, name) | ({f"{name}.bias": (rows,)} if has_bias else {})
        case dict() | list():
            within = ((own, each) for _, own, each in named(part)) if isinstance(part, dict) else enumerate(part)
            paths = ((f"{name}.{own}" if name else str(own), each) for own, each in within)
            return {key: shape for path, each in paths for key, shape in shapes_of(each, pytorch_path(path)).items()}
        case _:
            return {}
    return {f"{name}.{leaf}": shape for leaf, shape in found.items() if has_bias or leaf != "bias"}


def pytorch_path(path: str) -> str:
    """`mlm___cls.predictions` of transformers' TensorFlow models is `cls.predictions`."""
    return re.sub(r"[^/.]*___", "", path)
