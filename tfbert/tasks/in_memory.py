"""What examples share that are held in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Self

import numpy as np


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
