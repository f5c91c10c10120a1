"""Blocks of a file: each line in exactly one, wherever the blocks are cut."""

import random

import pytest

from tfbert.corpus.sources import WHOLE, BlockLines, blocks_of
from tfbert.data.lines import lines_of


def read(path, block, **options):
    return [line for _, line in lines_of(BlockLines(path, block, **options), str(path))]


def test_blocks_cover_a_file_once():
    assert blocks_of(0) == blocks_of(9, 10) == blocks_of(10, 10) == (WHOLE,)
    assert blocks_of(11, 10) == ((0, 10), (10, -1))
    assert blocks_of(30, 10) == ((0, 10), (10, 20), (20, -1))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("seed", range(6))
def test_every_line_in_one_block(tmp_path, seed, end):
    rng = random.Random(seed)
    lines = [rng.choice(("", "", "a", "bc def", "é" * 30, " ")) + end for _ in range(60)]
    lines[-1] = rng.choice((end, "last"))
    path = tmp_path / "a.txt"
    path.write_bytes("".join(lines).encode())
    for size in (1, 2, 3, 7, 20, 1000):
        blocks = blocks_of(path.stat().st_size, size)
        assert [line for block in blocks for line in read(path, block)] == lines
        by_block = [read(path, block, between_blank_lines=True) for block in blocks]
        assert [line for found in by_block for line in found] == lines
        # No document is torn apart: all but the first block start with a border.
        assert all(not found[0].strip() for found in by_block[1:] if found)


def test_a_block_reads_its_own_bytes_only(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x\n" * 500 + b"\xff\n" * 500)
    assert set(read(path, (0, 1000))) == {"x\n"}


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tfbert.corpus.sources.MAX_LINE_BYTES", 1 << 10)
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\n" + b"x" * 2000)
    with pytest.raises(ValueError, match=r"A line of a corpus must be shorter .* Received: a longer one in '.*a\.txt'"):
        read(path, WHOLE)
