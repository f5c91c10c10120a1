"""What all corpora have: parts, documents and sentences, how text is cut into these, and whether it is still the same.

A corpus has parts, a part has documents, and a document is a list of sentences. `text_files` reads files; `sources`
data sets of TensorFlow Datasets and the built-in corpus.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import importlib.metadata
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tfbert.errors import UsageError
from tfbert.output.progress import PassProgress

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


MAX_CHARACTERS = 10_000
"""No sentence is longer: a table, or text without full stops, is cut between words. Uncut, only its first tokens would
fit into a record, and the rest would be lost."""


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a text, found by sentencex (https://github.com/wikimedia/sentencex).

    A line feed also ends a sentence: lines of a file are paragraphs, headings or list items far more often than halves
    of a sentence, and half a sentence does no harm.

    Args:
        text: Valid Unicode.
        language: The text's language, as a code such as `de`: its abbreviations do not end a sentence. A language that
            sentencex does not know is treated as English.

    Returns:
        The sentences, without white space at their ends; none is empty or longer than `MAX_CHARACTERS`.
    """
    from sentencex import segment

    out: list[str] = []
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n"):
        for sentence in segment(language, line):
            sentence = sentence.strip()
            if sentence:
                out += cut(sentence)
    return out


def cut(sentence: str) -> list[str]:
    """A sentence, cut into pieces if it is longer than `MAX_CHARACTERS`; between words if it has spaces.

    Args:
        sentence: Without white space at its ends, not empty.
    """
    if len(sentence) <= MAX_CHARACTERS:
        return [sentence]
    pieces = []
    start = 0
    while start < len(sentence):
        end = start + MAX_CHARACTERS
        space = sentence.rfind(" ", start + 1, end) if end < len(sentence) else -1
        end = end if space < 0 else space
        pieces.append(sentence[start:end].strip())
        start = end
    return [piece for piece in pieces if piece]


def splitter() -> str:
    """The name and version of the sentence splitter: another version may find other sentences."""
    return f"sentencex {importlib.metadata.version('sentencex')}"


_PIECE = 64 << 20
_READ = 1 << 20


def digest(*values: object) -> str:
    """A digest of the `repr` of values."""
    return hashlib.blake2b(repr(values).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def file_digests(paths: Sequence[str]) -> dict[str, str]:
    """A digest of the content of each file.

    Pieces are hashed by as many threads as there are cores, so that one large file takes no longer than many small
    ones. A sample of the bytes would be quicker and would miss a file that was changed in its middle.

    Raises:
        UsageError: for a file that no longer exists or cannot be read.
    """
    try:
        sizes = [pathlib.Path(path).stat().st_size for path in paths]
        pieces = [(path, start) for path, size in zip(paths, sizes, strict=True) for start in range(0, size, _PIECE)]
        found = []
        with (
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
            PassProgress("hashing the corpus", sum(sizes), "MB") as progress,
        ):
            for value, size in pool.map(_piece_digest, pieces):
                found.append(value)
                progress.advance(size, size / 1e6)
    except OSError as error:
        raise UsageError(
            f"The files of a corpus must stay readable. Received: {error.filename!r} ({error.strerror}). "
            "Check the path."
        ) from None
    by_path: dict[str, list[str]] = {path: [] for path in paths}
    for (path, _), value in zip(pieces, found, strict=True):
        by_path[path].append(value)
    return {path: digest(size, *by_path[path]) for path, size in zip(paths, sizes, strict=True)}


def _piece_digest(piece: tuple[str, int]) -> tuple[str, int]:
    """The digest of a piece, and its bytes."""
    path, start = piece
    # OpenSSL's implementation, fast on processors with instructions for it; hashlib's other algorithms have none.
    state = hashlib.sha256()
    left = _PIECE
    with pathlib.Path(path).open("rb") as file:
        file.seek(start)
        while left and (data := file.read(min(_READ, left))):
            state.update(data)
            left -= len(data)
    return state.hexdigest(), _PIECE - left
