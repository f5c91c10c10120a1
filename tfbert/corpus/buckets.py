"""The step between the corpus and its shards: each document's text is appended to the file of its shard, in any order.

All processes append to the same files, one per shard. Files that a killed run left incomplete are not used: a mark says
that they are complete, and how large each file is then.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pathlib
import struct
from collections.abc import Collection, Iterator

import numpy as np

from tfbert.corpus.documents import Source
from tfbert.corpus.recipe import Recipe
from tfbert.corpus.shards import StoredDocument, check_size
from tfbert.errors import RunError
from tfbert.output.output_dir import write_text
from tfbert.output.sealed import seal, unseal

_MARK = "scanned.json"
_HEADER = struct.Struct("<QQQ")  # The part, the document's number in it, the bytes of its text.
_BUFFER_BYTES = 32 << 20
_NUMBERS = 1 << 12  # Documents whose shards are computed at once.


@dataclasses.dataclass(kw_only=True)
class Scanned:
    """What a scan of a corpus found. The counts are of all documents, also those of shards that are not wanted.

    Attributes:
        documents: int64 [num_shards]: documents of each shard.
        sentences: Sentences of all documents.
        longer_documents: Documents of two sentences or more.
        empty_parts: Parts without a document.
    """

    documents: np.ndarray
    sentences: int = 0
    longer_documents: int = 0
    empty_parts: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Scanned) -> None:
        """Adds what the scan of other parts found."""
        self.documents += other.documents
        self.sentences += other.sentences
        self.longer_documents += other.longer_documents
        self.empty_parts += other.empty_parts


def stored(source: Source, part: int, name: str, recipe: Recipe) -> Iterator[tuple[int, int, StoredDocument]]:
    """A part's documents: the shard of each, its number of sentences, and the document as it is stored.

    Args:
        source: The corpus.
        part: The part's number among all.
        name: Its name.
        recipe: Decides the shard of each document.

    Raises:
        UsageError: for documents that cannot be read.
    """
    shards: list[int] = []
    for number, document in enumerate(source.read(name)):
        place = number % _NUMBERS
        if place == 0:
            shards = recipe.shards_of(part, np.arange(number, number + _NUMBERS)).tolist()
        # A lone surrogate has no form in UTF-8; the tokenizer drops bytes that are not UTF-8.
        text = "\n".join(document).encode("utf-8", "ignore")
        yield shards[place], len(document), (part, number, text)


def scan(
    source: Source, parts: list[tuple[int, str]], recipe: Recipe, wanted: Collection[int], directory: str
) -> Scanned:
    """Reads parts of a corpus, and appends the documents of the wanted shards to their files.

    Args:
        source: The corpus.
        parts: Their numbers and names.
        recipe: Decides the shard of each document.
        wanted: Numbers of shards.
        directory: The directory of the files.

    Raises:
        UsageError: for documents that cannot be read.
        RunError: if the files cannot be written.
    """
    seen = Scanned(documents=np.zeros(recipe.num_shards, np.int64))
    waiting: dict[int, list[bytes]] = {}
    size = 0
    wanted = frozenset(wanted)
    for part, name in parts:
        before = seen.sentences
        for shard, num_sentences, (_, number, text) in stored(source, part, name, recipe):
            seen.documents[shard] += 1
            seen.sentences += num_sentences
            seen.longer_documents += num_sentences > 1
            if shard in wanted:
                waiting.setdefault(shard, []).extend((_HEADER.pack(part, number, len(text)), text))
                size += len(text)
                if size >= _BUFFER_BYTES:
                    _append(waiting, directory)
                    size = 0
        if seen.sentences == before:
            seen.empty_parts.append(name)
    _append(waiting, directory)
    return seen


def mark(directory: pathlib.Path, digest: str, recipe: Recipe, shards: Collection[int], seen: Scanned) -> None:
    """Writes the mark that the files of these shards are complete.

    Raises:
        UsageError: for a shard that would need too much memory.
        RunError: if the mark cannot be written.
    """
    sizes = {str(shard): _size(directory, shard) for shard in shards}
    texts = {shard: sizes[str(shard)] - _HEADER.size * int(seen.documents[shard]) for shard in shards}
    largest = max(texts, key=texts.get)
    check_size(recipe, largest, texts[largest])
    values = dataclasses.asdict(seen) | {"documents": seen.documents.tolist(), "of": digest, "sizes": sizes}
    write_text(directory / _MARK, seal(values))


def marked(directory: pathlib.Path, digest: str, shards: Collection[int]) -> Scanned | None:
    """The results of an earlier scan, if its files of these shards are complete; else None."""
    try:
        values = unseal((directory / _MARK).read_text(encoding="utf-8"))
        if values["of"] != digest:
            return None
        if any(values["sizes"].get(str(shard)) != _size(directory, shard) for shard in shards):
            return None
        fields = {field.name: values[field.name] for field in dataclasses.fields(Scanned)}
    except (OSError, ValueError, KeyError, json.JSONDecodeError):
        return None
    return Scanned(**fields | {"documents": np.array(fields["documents"], np.int64)})


def read_bucket(directory: pathlib.Path, shard: int) -> Iterator[StoredDocument]:
    """A shard's documents, as they were appended."""
    path = bucket(directory, shard)
    if not path.exists():
        return
    with path.open("rb") as file:
        while header := file.read(_HEADER.size):
            part, number, size = _HEADER.unpack(header)
            yield part, number, file.read(size)


def bucket(directory: pathlib.Path, shard: int) -> pathlib.Path:
    """The file of a shard's documents."""
    return directory / f"{shard:05}.documents"


def _size(directory: pathlib.Path, shard: int) -> int:
    path = bucket(directory, shard)
    return path.stat().st_size if path.exists() else 0


def _append(waiting: dict[int, list[bytes]], directory: str) -> None:
    """Writes and clears the waiting documents."""
    try:
        for shard, pieces in waiting.items():
            with bucket(pathlib.Path(directory), shard).open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # Other processes append to it as well.
                file.write(b"".join(pieces))
    except OSError as error:
        raise RunError(
            f"While records are made, the text of their shards must be writable beside them. Received: {directory} "
            f"({os.strerror(error.errno) if error.errno else error}). Check free space and permissions there."
        ) from None
    waiting.clear()
