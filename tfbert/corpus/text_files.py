"""The files of a corpus as documents: plain text, JSON lines and Parquet, block by block."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import os
import pathlib
from collections.abc import Iterable, Iterator

from tfbert.corpus.blocks import WHOLE, Block, BlockLines
from tfbert.corpus.digests import digest, file_digests
from tfbert.corpus.documents import ALL, Document
from tfbert.corpus.found_files import InputFile
from tfbert.corpus.sentences import cut, split_sentences, splitter
from tfbert.data.bad_rows import BadRows
from tfbert.data.files import check_text
from tfbert.data.json_rows import open_json_lines
from tfbert.data.lines import lines_of, not_utf8, not_utf8_error
from tfbert.data.open_file import OpenFile
from tfbert.data.rows import open_parquet

log = logging.getLogger("tfbert")

MAX_DOCUMENT_CHARACTERS = 16 << 20
"""The rest of a longer document counts as another document, so that memory is bounded. The Bible has 4 million."""
_VERSION = 1  # Of how documents are read: raise it with every change by which the same file gives other documents.


@dataclasses.dataclass(frozen=True)
class FileCorpus:
    """Files as a `Source`.

    Attributes:
        files: As `find_inputs` finds them.
        language: Of the text, as `split_sentences` takes it.
        skip_bad_rows: Leave out lines and rows that cannot be used, and log their number, rather than stop.
    """

    files: tuple[InputFile, ...]
    language: str = "en"
    skip_bad_rows: bool = False

    @property
    def name(self) -> str:
        """The file, or the directory that all files have in common."""
        return os.path.commonpath([file.path for file in self.files])

    @functools.cached_property
    def _places(self) -> dict[str, tuple[InputFile, Block]]:
        places = {}
        for file in self.files:
            for i, block in enumerate(file.blocks):
                places[f"{file.name}#{i:05d}" if len(file.blocks) > 1 else file.name] = (file, block)
        return dict(sorted(places.items()))

    def parts(self) -> list[str]:
        """Files by name; a file of several blocks has one part per block, `NAME#00000`."""
        return list(self._places)

    def read(self, part: str, kept: Iterable[bool] = ALL) -> Iterator[Document]:
        """The documents of a part; see `Source`."""
        file, block = self._places[part]
        return read_documents(file, block, kept, language=self.language, skip_bad_rows=self.skip_bad_rows)

    def sizes(self) -> dict[str, int]:
        """Bytes on the disk; each block of a Parquet file counts as an equal share of the file."""
        sizes = {}
        for part, (file, (start, end)) in self._places.items():
            if file.format == "parquet" or len(file.blocks) == 1:
                sizes[part] = file.size // len(file.blocks)
            else:
                sizes[part] = (file.size if end < 0 else end) - start
        return sizes

    def fingerprints(self) -> dict[str, str]:
        """A digest of all bytes of each part's file; see `Source`."""
        digests = file_digests([file.path for file in self.files])
        out = {}
        for part, (file, block) in self._places.items():
            how = () if file.format == "sentences" else (self.language, splitter())
            out[part] = digest(_VERSION, digests[file.path], file.format, *file.columns, *block, *how)
        return out


def read_documents(
    file: InputFile,
    block: Block = WHOLE,
    kept: Iterable[bool] = ALL,
    *,
    language: str = "en",
    skip_bad_rows: bool = False,
) -> Iterator[Document]:
    """The documents of a block of a file, in order.

    Args:
        file: As `find_inputs` found it.
        block: One of its blocks.
        kept: As `Source.read` takes it.
        language: The language of text that is not yet cut into sentences.
        skip_bad_rows: Leave out lines or rows that cannot be used; a warning counts them.

    Raises:
        UsageError: during iteration, for a file that is not whole, text that is not UTF-8, or a row without text.
    """
    path = pathlib.Path(file.path)
    bad = BadRows(skip_bad_rows)
    if file.format == "parquet":
        start, end = block
        rows = open_parquet(path, None if end < 0 else range(start, end))
        yield from _in_rows(rows, _from(file, start, "row group"), kept, file.columns, language, bad)
    else:
        between = file.format in ("sentences", "paragraphs")
        lines = lines_of(BlockLines(path, block, between_blank_lines=between), file.path)
        where = _from(file, block[0], "byte")
        if file.format == "jsonl":
            if first := next(((number, line) for number, line in lines if line.strip()), None):
                rows = open_json_lines(where, itertools.chain([first], lines))
                yield from _in_rows(rows, where, kept, file.columns, language, bad)
        elif file.format in ("lines", "paragraphs"):
            texts = ((number, line) for number, line in lines if line.strip())
            texts = _paragraphs(lines) if file.format == "paragraphs" else texts
            for found in _sentences(itertools.compress(texts, kept), where, bad, language):
                yield from _pieces([found])
        else:
            own = language if file.format == "document" else None
            yield from itertools.compress(_pieces(_sentences(lines, where, bad, own)), kept)
    if bad.count:
        log.warning("%s: bad lines or rows skipped: %d; the first: %s", file.path, bad.count, bad.first)


def _from(file: InputFile, start: int, unit: str) -> str:
    """What messages call a block; its lines or rows count from 1."""
    return f"{file.path}, from {unit} {start:,}" if start else file.path


def _paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines between blank ones as one, with the number of the first; no more than a document may have."""
    parts: list[str] = []
    start = size = 0
    for number, line in lines:
        text = line.strip()
        if parts and (not text or size > MAX_DOCUMENT_CHARACTERS):
            yield start, " ".join(parts)
            parts, size = [], 0
        if text:
            start = start if parts else number
            parts.append(text)
            size += len(text)
    if parts:
        yield start, " ".join(parts)


def _sentences(
    lines: Iterable[tuple[int, str]], where: str, bad: BadRows, language: str | None
) -> Iterator[Document | None]:
    """The sentences of each line: the line itself, or those that the splitter finds; None between documents."""
    for number, line in lines:
        if not line.isascii() and (byte := not_utf8(line)):
            bad.add(not_utf8_error(byte, f"{where}, line {number}"))
            continue
        text = line.strip()
        if language is not None:
            yield split_sentences(text, language)
        else:
            yield cut(text) if text else None


def _in_rows(
    rows: OpenFile, where: str, kept: Iterable[bool], columns: tuple[str, ...], language: str, bad: BadRows
) -> Iterator[Document]:
    def checked(number: int, row: list) -> list[str]:
        place = f"{where}, {rows.unit} {number}"
        return [check_text(value, column, place) for value, column in zip(row, columns, strict=True)]

    for texts in bad.usable(itertools.compress(rows.read(columns), kept), checked):
        yield from _pieces(split_sentences(text, language) for text in texts)


def _pieces(sentences: Iterable[Document | None]) -> Iterator[Document]:
    """Documents of at most `MAX_DOCUMENT_CHARACTERS` plus one line. In the input, None separates documents."""
    document: Document = []
    size = 0
    for more in sentences:
        if more:
            document += more
            size += sum(map(len, more))
        if document and (more is None or size > MAX_DOCUMENT_CHARACTERS):
            yield document
            document, size = [], 0
    if document:
        yield document
