"""The built-in corpus as a `Source`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Literal

from tfbert.corpus.digests import digest
from tfbert.corpus.documents import ALL, Document
from tfbert.data.rows import demo_table

_PARTS = 4


@functools.cache
def demo_corpus(split: str) -> list[Document]:
    """The documents of a split, each a list of sentences."""
    return [sentences for _, (sentences,) in demo_table("pretraining", split).read(["sentences"])]


@dataclasses.dataclass(frozen=True)
class BuiltInCorpus:
    """Tales of people at work, written by a grammar, in parts of equal size.

    Attributes:
        split: Which split of it.
    """

    split: Literal["train", "validation"] = "train"

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"the built-in corpus ({self.split})"

    def parts(self) -> list[str]:
        """`train-0` and so on."""
        return [f"{self.split}-{i}" for i in range(_PARTS)]

    def read(self, part: str, kept: Iterable[bool] = ALL) -> Iterator[Document]:
        """Every fourth document, from the part's number on."""
        return itertools.compress(demo_corpus(self.split)[self.parts().index(part) :: _PARTS], kept)

    def sizes(self) -> dict[str, int]:
        """Characters of each part, with one line end per sentence."""
        return {part: sum(len(text) + 1 for document in self.read(part) for text in document) for part in self.parts()}

    def fingerprints(self) -> dict[str, str]:
        """Digests of the text itself: another version of this project may write other tales."""
        return {part: digest(*self.read(part)) for part in self.parts()}
