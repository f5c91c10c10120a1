"""Files as documents: formats, blocks, what is left out, what is refused."""

import dataclasses
import gzip
import json
import pickle
import random

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.refusals import refused
from tfbert import CorpusConfig, UsageError
from tfbert.corpus import sources
from tfbert.corpus.sources import WHOLE, FileCorpus, block_lines, blocks_of, cut, find_inputs, split_sentences
from tfbert.data.reading import lines_of

DOCUMENTS = [["One is.", "Two are."], ["Three."], ["Vier é.", "Fünf."]]
TEXT = "\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n"


def corpus(*paths, skip=False, columns=(), **options):
    files = find_inputs(CorpusConfig(input_files=tuple(map(str, paths)), **options), columns)
    return FileCorpus(tuple(files), skip_bad_rows=skip)


def documents(source):
    return [document for part in source.parts() for document in source.read(part)]


def refuse(message, source):
    with refused(message):
        documents(source)


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def json_lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        "\ufeff" + TEXT,
        TEXT.rstrip(),
        "\n \n" + TEXT.replace("\n\n", "\n\t\n\n \n") + "\n\n",
        TEXT.replace("One", "  One").replace("are.", "are. \t"),
    ],
    ids=["plain", "crlf", "bom", "no end", "blank lines", "blanks"],
)
def test_sentences(tmp_path, content):
    assert documents(corpus(written(tmp_path / "a.txt", content))) == DOCUMENTS
    assert documents(corpus(written(tmp_path / "a.txt.gz", gzip.compress(content.encode())))) == DOCUMENTS


def test_other_formats(tmp_path):
    texts = [" ".join(document) for document in DOCUMENTS]
    rows = [{"text": text, "n": i} for i, text in enumerate(texts)]
    assert documents(corpus(written(tmp_path / "a.jsonl", json_lines(*rows)))) == DOCUMENTS
    assert documents(corpus(written(tmp_path / "a.json.gz", gzip.compress(json_lines(*rows).encode())))) == DOCUMENTS
    parquet.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    assert documents(corpus(tmp_path / "a.parquet")) == DOCUMENTS
    for i, text in enumerate(texts):
        written(tmp_path / f"{i}.txt", text)
    assert documents(corpus(tmp_path / "?.txt", corpus_format="document")) == DOCUMENTS
    path = written(tmp_path / "b.jsonl", json_lines({"title": "A title", "text": "B."}))
    assert documents(corpus(path, columns=("title", "text"))) == [["A title", "B."]]


def test_sentences_that_go_on_in_the_next_line(tmp_path):
    wrapped = "The first one\nends here. The second\none, too.\n\n \nAnother document,\nalso of Dr.\nBrown.\n"
    expected = [["The first one ends here.", "The second one, too."], ["Another document, also of Dr. Brown."]]
    for name, content in (("a.txt", wrapped), ("b.txt.gz", gzip.compress(wrapped.replace("\n", "\r\n").encode()))):
        assert documents(corpus(written(tmp_path / name, content), corpus_format="paragraphs")) == expected


def test_rows_without_text_and_empty_ones(tmp_path):
    path = written(tmp_path / "a.jsonl", json_lines({"text": "A."}, {"text": ""}, {"text": " \n"}, {"text": "B."}))
    assert documents(corpus(path)) == [["A."], ["B."]]
    for bad in ({"id": 1}, {"text": None}, {"text": 5}):
        written(path, json_lines({"text": "A."}, bad, {"text": "B."}))
        refuse(r"Every row needs a text.* Received: .*a\.jsonl, line 2.*skip_bad_rows", corpus(path))
        assert documents(corpus(path, skip=True)) == [["A."], ["B."]]


def test_bad_bytes(tmp_path, caplog):
    path = written(tmp_path / "a.txt", b"One.\n\nTwo.\nBad \xe9.\nThree.\n")
    refuse(r"must be UTF-8. Received: byte 0xe9 in .*a\.txt, line 4", corpus(path))
    assert documents(corpus(path, skip=True)) == [["One."], ["Two.", "Three."]]
    assert "skipped: 1" in caplog.text


def test_half_a_file(tmp_path):
    whole = gzip.compress(("A.\n\n" * 9 + "".join(f"{i * i}\n" for i in range(99_999))).encode())
    half = written(tmp_path / "a.txt.gz", whole[: len(whole) // 2])
    refuse(r"\.gz file holds gzip data, all of it. Received: .*, broken after line [1-9]", corpus(half))


@pytest.mark.parametrize("format", ["sentences", "paragraphs", "jsonl", "parquet"])
@pytest.mark.parametrize("block", [1, 30])
def test_blocks_hold_the_same_documents(tmp_path, monkeypatch, format, block):
    many = [[f"Number {i} is.", f"So {i} was."][: 1 + i % 2] for i in range(40)]
    path = tmp_path / f"a.{'txt' if format in ('sentences', 'paragraphs') else format}"
    texts = [" ".join(document) for document in many]
    if format == "parquet":
        parquet.write_table(pa.table({"text": texts}), path, row_group_size=3)
    elif format == "jsonl":
        written(path, json_lines(*({"text": text} for text in texts)))
    elif format == "paragraphs":
        written(path, "\n\n".join(text.replace(" ", "\n") for text in texts))
    else:
        written(path, "\n\n".join("\n".join(document) for document in many))
    monkeypatch.setattr(sources, "BLOCK_BYTES", block)
    monkeypatch.setattr(sources, "blocks_of", lambda size: blocks_of(size, block))
    source = corpus(path, corpus_format=format)
    parts = source.parts()
    assert len(parts) > 4 and parts == sorted(parts) and parts[1] == f"{path.name}#00001"
    assert documents(source) == many
    assert sum(source.sizes().values()) == pytest.approx(path.stat().st_size, abs=len(parts))
    assert len(set(source.fingerprints().values())) == len(parts)


def test_messages_count_from_the_block(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "blocks_of", lambda size: blocks_of(size, 10))
    path = written(tmp_path / "a.txt", b"One is.\n\n\n\nBad \xff.\n")
    refuse("byte 0xff in .*a.txt, from byte 10, line 2", corpus(path))


def test_long_lines_and_long_documents(tmp_path, monkeypatch):
    source = corpus(written(tmp_path / "a.txt", "word " * 5000 + "\n\nEnd.\n"))
    first, last = documents(source)
    assert (len(first), " ".join(first), last) == (3, ("word " * 5000).strip(), ["End."])
    monkeypatch.setattr(sources, "MAX_DOCUMENT_CHARACTERS", 20)
    lines = [f"Line {i} of ten." for i in range(10)]
    source = corpus(written(tmp_path / "b.txt", "\n".join(lines)), corpus_format="document")
    assert documents(source) == [lines[i : i + 2] for i in range(0, 10, 2)]


def test_it_travels_to_other_processes(tmp_path):
    source = corpus(written(tmp_path / "a.txt", TEXT))
    parts = source.parts()
    other = pickle.loads(pickle.dumps(source))
    assert (other.parts(), documents(other), other.fingerprints()) == (parts, DOCUMENTS, source.fingerprints())


def test_fingerprints(tmp_path):
    (tmp_path / "other").mkdir()
    path, moved = tmp_path / "a.txt", tmp_path / "other" / "a.txt"
    here, there = (corpus(written(place, TEXT)).fingerprints() for place in (path, moved))
    assert here == there
    found = {here["a.txt"]}
    found.add(corpus(written(path, TEXT.replace("Two", "Six"))).fingerprints()["a.txt"])
    found.add(corpus(path, corpus_format="document").fingerprints()["a.txt"])
    found.add(dataclasses.replace(corpus(path, corpus_format="document"), language="de").fingerprints()["a.txt"])
    assert len(found) == 4
    source = corpus(path)
    path.unlink()
    with pytest.raises(UsageError, match=r"must stay readable. Received: '.*a\.txt' \(No such file"):
        source.fingerprints()


# --- Blocks: each line in exactly one, wherever they are cut ----------------------------------------------------------


def read(path, block, **options):
    return [line for _, line in lines_of(block_lines(path, block, **options), str(path))]


def test_blocks_cover_a_file_once():
    assert blocks_of(0) == blocks_of(9, 10) == blocks_of(10, 10) == (WHOLE,)
    assert blocks_of(11, 10) == ((0, 10), (10, -1))
    assert blocks_of(30, 10) == ((0, 10), (10, 20), (20, -1))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("seed", range(3))
def test_every_line_in_one_block(tmp_path, seed, end):
    rng = random.Random(seed)
    lines = [rng.choice(("", "", "a", "bc def", "é" * 30, " ")) + end for _ in range(60)]
    lines[-1] = rng.choice((end, "last"))
    path = written(tmp_path / "a.txt", "".join(lines))
    for size in (1, 2, 3, 7, 20, 1000):
        blocks = blocks_of(path.stat().st_size, size)
        assert [line for block in blocks for line in read(path, block)] == lines
        by_block = [read(path, block, between_blank_lines=True) for block in blocks]
        assert [line for found in by_block for line in found] == lines
        # No document is torn apart: all but the first block start with a border.
        assert all(not found[0].strip() for found in by_block[1:] if found)


def test_a_block_reads_its_own_bytes_only(tmp_path):
    path = written(tmp_path / "a.txt", b"x\n" * 500 + b"\xff\n" * 500)
    assert set(read(path, (0, 1000))) == {"x\n"}


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1 << 10)
    path = written(tmp_path / "a.txt", b"fine\n" + b"x" * 2000)
    with pytest.raises(ValueError, match=r"A line of a corpus must be shorter .* Received: a longer one in '.*a\.txt'"):
        read(path, WHOLE)


# --- Sentences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Smith met Mr. J. K. Jones at 5 p.m. on Friday. He left.", 2),
        ("It costs $3.5 million. See Fig. 2, e.g. the table.", 2),
        ('What?! "Really?!" she said. "Yes." They left...', 4),
        ("A heading\nA sentence. Another\r\n\r\nA paragraph.\rAn old Mac's.", 5),
        ("  \n\n\t\n", 0),
        ("", 0),
        ("no end", 1),
        ("これは文です。これも文です。", 2),
    ],
)
def test_texts_are_split_into_sentences(text, expected):
    found = split_sentences(text)
    assert len(found) == expected and all(sentence and sentence == sentence.strip() for sentence in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_languages():
    text = "Siehe S. 3 usw. oder nicht. Ende."
    assert split_sentences(text, "de") == ["Siehe S. 3 usw. oder nicht.", "Ende."]
    assert len(split_sentences(text, "en")) == len(split_sentences(text, "no-such")) == 3


def test_no_sentence_is_longer_than_the_most():
    assert [len(piece) for piece in cut("x" * 25_000)] == [10_000, 10_000, 5_000]
    assert cut("short") == ["short"]
    assert max(map(len, split_sentences("word " * 5000))) <= sources.MAX_CHARACTERS
