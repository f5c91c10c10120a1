"""Blocks of large text files, so that many processes can read one file: the lines of each block, and how to read them.

Hadoop's rule: a block starts at the first border that begins within it and ends at the first one that begins within a
later block. A border is the start of a line, or a blank line between documents. So each line belongs to exactly one
block, and no process needs to know what another one found.
"""

from __future__ import annotations

import gzip
import pathlib
from collections.abc import Iterator

from tfbert.data.lines import check_gzip
from tfbert.errors import UsageError

Block = tuple[int, int]
"""Where a block starts and where the next one starts, in bytes. An end of -1: the rest of the file."""
BLOCK_BYTES = 64 << 20
MAX_LINE_BYTES = 256 << 20
"""A longer line is not a document but a sign of another file format; a line has to fit into memory."""
WHOLE: Block = (0, -1)


def blocks_of(size: int, block_bytes: int = BLOCK_BYTES) -> tuple[Block, ...]:
    """The blocks of a plain file of `size` bytes, at least one."""
    starts = range(0, max(size, 1), block_bytes)
    return tuple((start, start + block_bytes if start + block_bytes < size else -1) for start in starts)


class BlockLines:
    """The lines of a block as bytes with their ends; an open binary stream to `rows.lines_of`.

    Args:
        path: The file, decompressed where it ends in .gz: then the block must be `WHOLE`.
        block: The block to read.
        between_blank_lines: Whether borders are blank lines rather than the starts of lines.
    """

    def __init__(self, path: pathlib.Path, block: Block = WHOLE, *, between_blank_lines: bool = False):
        self._path = path
        self._start, self._end = block
        self._blank = between_blank_lines

    def __enter__(self) -> BlockLines:
        if self._path.suffix.lower() == ".gz":
            check_gzip(self._path)
            self._file = gzip.open(self._path, "rb")
        else:
            self._file = self._path.open("rb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        file, position, end = self._file, self._start, self._end
        if position:
            file.seek(position - 1)  # If a line ends just before the block, the next one begins within it.
            position += len(self._line()) - 1
        own = not (self._start and self._blank)
        while line := self._line():
            border = not self._blank or not line.strip()
            if border and 0 <= end <= position:
                return
            own = own or border
            if own:
                yield line
            elif 0 <= end <= position:  # There is no border in the whole block.
                return
            position += len(line)

    def _line(self) -> bytes:
        line = self._file.readline(MAX_LINE_BYTES)
        if len(line) == MAX_LINE_BYTES:
            raise UsageError(
                f"A line of a corpus must be shorter than {MAX_LINE_BYTES >> 20} MiB. Received: a longer one in "
                f"{str(self._path)!r}. Cut it, or check the file's format."
            )
        return line
