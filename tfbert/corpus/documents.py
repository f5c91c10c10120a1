"""The interface of a corpus: it has parts, a part has documents, and a document is a list of sentences.

`text_files` reads files, `tfds_corpus` a data set of TensorFlow Datasets, `built_in` has one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Protocol

Document = list[str]
"""A document's sentences in order. None is empty, has white space at its ends or a line feed in it."""
ALL: Iterable[bool] = itertools.repeat(True)
"""Every row of a part."""


class Source(Protocol):
    """A corpus that can be read part by part, in any process: the object is small and can be pickled.

    A part is a file, a block of a large file, or a shard of a data set. Its content and its name depend only on the
    corpus: not on the machine, the working directory or the number of processes.
    """

    @property
    def name(self) -> str:
        """What messages call the corpus."""

    def parts(self) -> list[str]:
        """The parts' names, sorted and all different."""

    def read(self, part: str, kept: Iterable[bool] = ALL) -> Iterator[Document]:
        """The documents of a part in order, each with at least one sentence, in bounded memory.

        Args:
            part: Its name.
            kept: Whether each row of it is wanted, in order. A row is what can be passed over before its text is cut
                into sentences: mostly a document. Those of a part are the same however often it is read.

        Raises:
            UsageError: during iteration, for data that cannot be read as text.
        """

    def sizes(self) -> dict[str, int]:
        """Bytes of each part on the disk, for progress and the number of shards. They may be estimates."""

    def fingerprints(self) -> dict[str, str]:
        """For each part, a digest of all that its documents depend on: content, format, column, sentence splitter.

        Raises:
            UsageError: for a file that no longer exists or cannot be read.
        """
