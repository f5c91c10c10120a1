"""Sets of examples: their interface, their names, and random parts of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, Self, TypeVar

import numpy as np
import tensorflow as tf

from tfbert.devices.workers import check_same


class Examples(Protocol):
    """The examples that a task trains and is evaluated on; each task has its own class of them.

    Attributes:
        name: Where they came from, for messages.
        labels: In the form that the task defines; None where there are none.
        num_texts: 1 for single texts, 2 for pairs.
    """

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> np.ndarray | None: ...

    @property
    def num_texts(self) -> int: ...

    def __len__(self) -> int: ...

    def take(self, indices: Iterable[int]) -> Self:
        """The examples at `indices`, in that order."""
        ...

    def sample(self, count: int) -> Self:
        """`count` of them, drawn at random but always the same, in their order."""
        ...

    def checksum(self, name: str, start: int) -> int:
        """CRC-32 of a name and what they hold, texts and labels; continues the checksum `start`."""
        ...

    def where(self, row: int) -> str:
        """The place of an example in the file or data set that it comes from, such as `line 17`."""
        ...

    def texts(self) -> list[str]:
        """All their texts, without labels, for learning a vocabulary."""
        ...

    def contents(self) -> Iterator[tuple[str, ...]]:
        """The text or texts of each example, without blanks around them; duplicates have equal contents."""
        ...


class InMemory:
    """Part of a class of `Examples` whose texts and labels are in memory."""

    labels: np.ndarray | None

    def __len__(self) -> int:
        raise NotImplementedError

    def take(self, indices: Iterable[int]) -> Self:
        """See `Examples`."""
        raise NotImplementedError

    def texts(self) -> list[str]:
        """See `Examples`."""
        raise NotImplementedError

    def sample(self, count: int) -> Self:
        """See `Examples`."""
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(self))
        return self.take(np.sort(order[:count]))

    def checksum(self, name: str, start: int) -> int:
        """See `Examples`."""
        labels = zlib.crc32(np.ascontiguousarray(self.labels).data.cast("B"))
        labels = zlib.crc32(np.array([start]).data.cast("B"), labels)
        return zlib.crc32("\0".join([name, *self.texts()]).encode("utf-8", "surrogatepass"), labels)


ExamplesT = TypeVar("ExamplesT", bound=Examples)


def eval_prefix(name: str) -> str:
    """The prefix of the metrics of a set that is evaluated during training: `validation` -> `eval`,
    `validation_matched` -> `eval_matched`, `test` -> `eval`.

    For a data set without a validation split, `test` takes its place.
    """
    return "eval" + ("" if name == "test" else name.removeprefix("validation"))


def check_same_examples(sets: Mapping[str, Examples], strategy: tf.distribute.Strategy) -> None:
    """Refuses workers that hold different examples, or the same in another order.

    Args:
        sets: This worker's, by name.
        strategy: Each of its workers must call this function.

    Raises:
        UsageError: on all workers alike.
    """
    check_same(
        lambda: {name: f"{len(part)} examples, {part.checksum('', 0):08x}" for name, part in sets.items()},
        strategy,
        rule="All workers must have the same examples, in the same order",
        way_out="Give each the same files or tables; a data set that shuffles needs a seed",
    )


def place_of(row: int, lines: np.ndarray | None, unit: str) -> str:
    """`Examples.where`, from all examples' int64 `[n]` lines, or whatever the unit counts; None: they have none."""
    return f"{unit} {lines[row]}" if lines is not None else f"row {row + 1}"


def subset(examples: ExamplesT, limit: int, notes: list[str]) -> ExamplesT:
    """At most `limit` examples (0: all), drawn at random but always the same; adds a line to `notes` if some are left
    out."""
    if not 0 < limit < len(examples):
        return examples
    notes.append(f"{examples.name}: {limit:,} of {len(examples):,} examples, a random subset that is always the same")
    return examples.sample(limit)
