"""What a corpus is to all that read one: parts of documents, and a document is its sentences.

`text_files` reads files, `tfds_corpus` a data set of TensorFlow Datasets, `demo_corpus` in `tfbert/data/` makes one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

Document = list[str]
"""A document's sentences in order. None is empty, has white space at its ends or a line feed in it."""


class Source(Protocol):
    """A corpus that can be read part by part, in any process: it is small and can be pickled.

    A part is a file, a block of a large one, or a shard of a data set. What it holds and what it is called depend
    on the corpus alone: not on the machine, the working directory or the number of processes.
    """

    @property
    def name(self) -> str:
        """What messages call the corpus."""

    def parts(self) -> list[str]:
        """The parts' names: sorted, each once."""

    def read(self, part: str) -> Iterator[Document]:
        """The documents of a part in order, each with at least one sentence, in bounded memory.

        Raises:
            UsageError: while it is read, for what cannot be read as text.
        """

    def sizes(self) -> dict[str, int]:
        """Bytes of each part as they are on the disk: for progress and the number of shards. They may be estimates."""

    def fingerprints(self) -> dict[str, str]:
        """A digest for each part of all that its documents depend on: content, format, column, who finds sentences.

        Raises:
            UsageError: for a file that has gone, or cannot be read.
        """
