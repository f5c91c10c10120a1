"""Which corpus the options mean, which files it is, and files as documents: formats, blocks, what is left out, what is
refused."""

import dataclasses
import gzip
import json
import pathlib
import pickle
import random
import re

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.refusals import refused
from tfbert import CorpusConfig, DataConfig, UsageError
from tfbert.corpus import sources
from tfbert.corpus.sources import WHOLE, FileCorpus, block_lines, blocks_of, find_inputs, split_sentences
from tfbert.data.reading import lines_of


@pytest.fixture
def given(write):
    return CorpusConfig(input_files=(write("a.txt", "One.\n\nTwo.\n"),), language="de")


def test_files_or_the_built_in_one(given):
    assert sources.open_source(CorpusConfig(), DataConfig()) == sources.built_in_corpus()
    found = sources.open_source(given, DataConfig(skip_bad_rows=True))
    assert (type(found), found.language, found.skip_bad_rows) == (FileCorpus, "de", True)


BUILT_IN = "A corpus is files or the built-in one. Received: dataset="


@pytest.mark.parametrize(
    "has_files, options, message",
    [
        (False, {"dataset": "articles"}, f"{BUILT_IN}'articles'.* as lines of JSON, as --input_files; docs/"),
        (True, {"dataset": "articles"}, f"{BUILT_IN}'articles'.* as lines of JSON, as --input_files; docs/"),
        (True, {"dataset": "demo"}, f"{BUILT_IN}'demo' and input_files="),
        (False, {"text_column": ("body",)}, "Only JSON lines and Parquet have columns"),
        (True, {"text_column": ("body",)}, "Only JSON lines and Parquet have columns"),
    ],
)
def test_refused(given, has_files, options, message):
    with refused(message):
        sources.open_source(given if has_files else CorpusConfig(), DataConfig(**options))


CUT = b"One.\nTwo.\n\nThree.\n"
ROW = json.dumps({"id": 1, "text": "One. Two."}).encode() + b"\n"


def find(*paths, columns=(), **options):
    return find_inputs(CorpusConfig(input_files=tuple(map(str, paths)), **options), columns)


def refuse(message, *paths, **options):
    with refused(message):
        find(*paths, **options)


def names(*paths, **options):
    return {file.name: file.format for file in find(*paths, **options)}


@pytest.fixture
def folder(tmp_path, write):
    files = {"a.txt": CUT, "b/c.txt.gz": CUT, "b/empty.txt": b""}
    files |= {"b/rows.jsonl": ROW, "b/rows2.json.gz": ROW, "b/wiki_00": ROW}
    files |= {"b/_SUCCESS": b"", "b/.DS_Store": b"\0\0", ".git/config": b"[core]\n"}
    files |= {"README.md": b"# A corpus\n", "picture.png": b"\x89PNG"}
    for folder in ("b", ".git"):
        (tmp_path / folder).mkdir()
    for name, content in files.items():
        write(name, content)
    (tmp_path / "b" / "round").symlink_to(tmp_path)
    (tmp_path / "again.txt").symlink_to(tmp_path / "a.txt")
    return tmp_path


FOUND = {"a.txt": "sentences", "b/c.txt.gz": "sentences"}
FOUND |= dict.fromkeys(("b/rows.jsonl", "b/rows2.json.gz", "b/wiki_00"), "jsonl")


def test_what_was_guessed_is_said(folder, logged):
    find(folder)
    said = "documents: 2; if a line holds several sentences, or a sentence goes on in the next line, pass"
    assert any(said in line for line in logged())
    find(folder, corpus_format="sentences")
    find(folder / "b" / "rows.jsonl")
    assert not any("one sentence per line" in line for line in logged())


def test_json_whose_keys_stand_off_is_json(write):
    path = write("a.txt", '{ "text": "One. Two." }\n\n{ "text": "Three." }\n')
    assert names(path) == {"a.txt": "jsonl"}


def test_a_directory(folder, logged):
    assert names(folder) == FOUND
    said = "\n".join(logged())
    assert "README.md" in said and "empty.txt" in said


def test_names_do_not_depend_on_how_the_files_were_given(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert names(".") == names(folder / "b", "a.txt") == names("a.txt", folder / "*.txt", "b/*[!n]") == FOUND


def test_the_same_file_by_another_way_is_one(folder):
    files = find(folder / "again.txt", folder / "a.txt", folder / "*.txt")
    assert [(file.name, file.size) for file in files] == [("a.txt", len(CUT))]


def test_a_format_that_is_asked_for(folder):
    (folder / "picture.png").unlink()
    assert set(names(folder, corpus_format="document").values()) == {"document"}
    assert "README.md" in names(folder, corpus_format="document")


def test_large_files_have_blocks(tmp_path, write, monkeypatch):
    monkeypatch.setattr("tfbert.corpus.sources.BLOCK_BYTES", 10)
    monkeypatch.setattr("tfbert.corpus.sources.blocks_of.__defaults__", (10,))
    for name in ("a.txt", "a.txt.gz"):
        write(name, CUT)
    assert [file.blocks for file in find(tmp_path)] == [((0, 10), (10, -1)), (WHOLE,)]
    assert find(tmp_path / "a.txt", corpus_format="document")[0].blocks == (WHOLE,)


def test_row_groups_of_parquet(tmp_path, monkeypatch):
    monkeypatch.setattr("tfbert.corpus.sources.BLOCK_BYTES", 1)
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"title": list("abcde"), "text": list("vwxyz")}), path, row_group_size=2)
    (file,) = find(path)
    assert (file.columns, file.blocks) == (("text",), ((0, 1), (1, 2), (2, 3)))
    monkeypatch.setattr("tfbert.corpus.sources.BLOCK_BYTES", 1 << 20)
    (file,) = find(path, columns=("title", "text"))
    assert (file.columns, file.blocks) == (("title", "text"), ((0, 3),))


PACKED = gzip.compress(b"One.\n" * 999, mtime=0)
"""Without a time: it is part of tests' names, and workers begin in different seconds."""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt.gz", CUT, "A .gz file holds gzip data, all.*Not a gzipped .* drop .gz from its name"),
        ("a.txt.gz", PACKED[:-9], "A .gz file holds gzip data, all of it. Received: .*a.txt.gz, broken"),
        ("a.txt", PACKED, "such as of an archive, Excel or Parquet. Give it the ending of what it is"),
        ("a.txt", b"PK\3\4", "such as of an archive.*unpack it"),
        ("a.txt", CUT.decode().encode("utf-16"), "must be UTF-8. Received: .*a.txt, whose line 1 is as in UTF-16"),
        ("a.txt", b"a\0b.\n", "must be text in UTF-8. Received: .* zero bytes"),
        ("a.txt", b"", "A corpus needs text. Received: .* 1 empty"),
        ("a.txt", b"One.\nTwo.\n\n", "blank lines between documents. Received: 1 of 1 .*Pass --corpus_format"),
        ("a.csv", b"a,b\n", "A corpus is text, JSON lines or Parquet. Received: '.*a.csv', a table"),
        ("a.jsonl", b"\n\n", "at least one example. Received: '.*a.jsonl', empty"),
        ("a.json", b'[{"text": "a"},\n{"text": "b"}]\n', "one object per line. Received: something else in .*, line 1"),
        ("a.txt", b'[\n {"text": "a"}\n]\n', "an object a line. Received: .*a.txt', which begins with '\\['"),
        ("a.txt", b'[{"text": "a"}]\n', "an object a line"),
        ("a.txt", b'{\n "text": "a"\n}\n', "an object a line"),
        ("a.jsonl", b'{"id": 1}\n', "No column looks like the text. Received: .*a.jsonl with columns 'id'"),
        ("a.parquet", b"PAR1....", "A .parquet file must be whole"),
    ],
)  # fmt: skip
def test_files_that_are_no_corpus(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    refuse(message, tmp_path / name)


def test_nothing_there(tmp_path):
    for path, what in ((tmp_path, "a directory without text"), (tmp_path / "*.txt", "nothing there")):
        refuse(f"must exist. Received: input_files='{re.escape(str(path))}', {what}", path)
    for name in ("~nobody-of-this-name/x.txt", "a.txt\n" * 1000):  # The second is what `$(ls)` gives.
        refuse("input_files must be a path that can be used. Received", name)
    (tmp_path / "broken.txt").symlink_to(tmp_path / "gone")
    refuse("broken.txt', which is something else", tmp_path)
    (tmp_path / "a.jsonl").write_bytes(ROW)
    refuse("text_column='body' is not in the data", tmp_path / "a.jsonl", columns=("body",))


DOCUMENTS = [["One is.", "Two are."], ["Three."], ["Vier é.", "Fünf."]]
TEXT = "\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n"


def corpus(*paths, skip=False, **options):
    return FileCorpus(tuple(find(*paths, **options)), skip_bad_rows=skip)


def documents(source):
    return [document for part in source.parts() for document in source.read(part)]


def refuse_reading(message, source):
    with refused(message):
        documents(source)


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
def test_sentences(write, content):
    assert documents(corpus(write("a.txt", content))) == DOCUMENTS
    assert documents(corpus(write("a.txt.gz", content))) == DOCUMENTS


def test_other_formats(tmp_path, write):
    texts = [" ".join(document) for document in DOCUMENTS]
    rows = [{"text": text, "n": i} for i, text in enumerate(texts)]
    assert documents(corpus(write("a.jsonl", json_lines(*rows)))) == DOCUMENTS
    assert documents(corpus(write("a.json.gz", json_lines(*rows)))) == DOCUMENTS
    parquet.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    assert documents(corpus(tmp_path / "a.parquet")) == DOCUMENTS
    for i, text in enumerate(texts):
        write(f"{i}.txt", text)
    assert documents(corpus(tmp_path / "?.txt", corpus_format="document")) == DOCUMENTS
    path = write("b.jsonl", json_lines({"title": "A title", "text": "B."}))
    assert documents(corpus(path, columns=("title", "text"))) == [["A title", "B."]]


def test_sentences_that_go_on_in_the_next_line(write):
    wrapped = "The first one\nends here. The second\none, too.\n\n \nAnother document,\nalso of Dr.\nBrown.\n"
    expected = [["The first one ends here.", "The second one, too."], ["Another document, also of Dr. Brown."]]
    for name, content in (("a.txt", wrapped), ("b.txt.gz", wrapped.replace("\n", "\r\n"))):
        assert documents(corpus(write(name, content), corpus_format="paragraphs")) == expected


def test_rows_without_text_and_empty_ones(write):
    path = write("a.jsonl", json_lines({"text": "A."}, {"text": ""}, {"text": " \n"}, {"text": "B."}))
    assert documents(corpus(path)) == [["A."], ["B."]]
    for bad in ({"id": 1}, {"text": None}, {"text": 5}):
        write("a.jsonl", json_lines({"text": "A."}, bad, {"text": "B."}))
        refuse_reading(r"Every row needs a text.* Received: .*a\.jsonl, line 2.*skip_bad_rows", corpus(path))
        assert documents(corpus(path, skip=True)) == [["A."], ["B."]]


def test_bad_bytes(write, caplog):
    path = write("a.txt", b"One.\n\nTwo.\nBad \xe9.\nThree.\n")
    refuse_reading(r"must be UTF-8. Received: byte 0xe9 in .*a\.txt, line 4", corpus(path))
    assert documents(corpus(path, skip=True)) == [["One."], ["Two.", "Three."]]
    assert "skipped: 1" in caplog.text


def test_half_a_file(write):
    path = pathlib.Path(write("a.txt.gz", "A.\n\n" * 9 + "".join(f"{i * i}\n" for i in range(99_999))))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refuse_reading(r"\.gz file holds gzip data, all of it. Received: .*, broken after line [1-9]", corpus(path))


@pytest.mark.parametrize("format", ["sentences", "paragraphs", "jsonl", "parquet"])
@pytest.mark.parametrize("block", [1, 30])
def test_blocks_hold_the_same_documents(tmp_path, monkeypatch, format, block):
    many = [[f"Number {i} is.", f"So {i} was."][: 1 + i % 2] for i in range(40)]
    path = tmp_path / f"a.{'txt' if format in ('sentences', 'paragraphs') else format}"
    texts = [" ".join(document) for document in many]
    if format == "parquet":
        parquet.write_table(pa.table({"text": texts}), path, row_group_size=3)
    elif format == "jsonl":
        path.write_text(json_lines(*({"text": text} for text in texts)))
    elif format == "paragraphs":
        path.write_text("\n\n".join(text.replace(" ", "\n") for text in texts))
    else:
        path.write_text("\n\n".join("\n".join(document) for document in many))
    monkeypatch.setattr(sources, "BLOCK_BYTES", block)
    monkeypatch.setattr(sources, "blocks_of", lambda size: blocks_of(size, block))
    source = corpus(path, corpus_format=format)
    parts = source.parts()
    assert len(parts) > 4 and parts == sorted(parts) and parts[1] == f"{path.name}#00001"
    assert documents(source) == many
    assert sum(source.sizes().values()) == pytest.approx(path.stat().st_size, abs=len(parts))
    assert len(set(source.fingerprints().values())) == len(parts)


def test_messages_count_from_the_block(write, monkeypatch):
    monkeypatch.setattr(sources, "blocks_of", lambda size: blocks_of(size, 10))
    path = write("a.txt", b"One is.\n\n\n\nBad \xff.\n")
    refuse_reading("byte 0xff in .*a.txt, from byte 10, line 2", corpus(path))


def test_long_lines_and_long_documents(write, monkeypatch):
    source = corpus(write("a.txt", "word " * 5000 + "\n\nEnd.\n"))
    first, last = documents(source)
    assert (len(first), " ".join(first), last) == (3, ("word " * 5000).strip(), ["End."])
    monkeypatch.setattr(sources, "MAX_DOCUMENT_CHARACTERS", 20)
    lines = [f"Line {i} of ten." for i in range(10)]
    source = corpus(write("b.txt", "\n".join(lines)), corpus_format="document")
    assert documents(source) == [lines[i : i + 2] for i in range(0, 10, 2)]


def test_it_travels_to_other_processes(write):
    source = corpus(write("a.txt", TEXT))
    parts = source.parts()
    other = pickle.loads(pickle.dumps(source))
    assert (other.parts(), documents(other), other.fingerprints()) == (parts, DOCUMENTS, source.fingerprints())


def test_fingerprints(tmp_path, write):
    (tmp_path / "other").mkdir()
    path, moved = write("a.txt", TEXT), write("other/a.txt", TEXT)
    assert corpus(path).fingerprints() == corpus(moved).fingerprints()
    found = {corpus(path).fingerprints()["a.txt"]}
    found.add(corpus(write("a.txt", TEXT.replace("Two", "Six"))).fingerprints()["a.txt"])
    found.add(corpus(path, corpus_format="document").fingerprints()["a.txt"])
    found.add(dataclasses.replace(corpus(path, corpus_format="document"), language="de").fingerprints()["a.txt"])
    assert len(found) == 4
    source = corpus(path)
    pathlib.Path(path).unlink()
    with pytest.raises(UsageError, match=r"must stay readable. Received: '.*a\.txt' \(No such file"):
        source.fingerprints()


# --- Blocks: each line in exactly one, wherever they are cut ----------------------------------------------------------


def read(path, block, **options):
    return [line for _, line in lines_of(block_lines(pathlib.Path(path), block, **options), path)]


def test_blocks_cover_a_file_once():
    assert blocks_of(0) == blocks_of(9, 10) == blocks_of(10, 10) == (WHOLE,)
    assert blocks_of(11, 10) == ((0, 10), (10, -1))
    assert blocks_of(30, 10) == ((0, 10), (10, 20), (20, -1))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("seed", range(3))
def test_every_line_in_one_block(write, seed, end):
    rng = random.Random(seed)
    lines = [rng.choice(("", "", "a", "bc def", "é" * 30, " ")) + end for _ in range(60)]
    lines[-1] = rng.choice((end, "last"))
    content = "".join(lines).encode()
    path = write("a.txt", content)
    for size in (1, 2, 3, 7, 20, 1000):
        blocks = blocks_of(len(content), size)
        assert [line for block in blocks for line in read(path, block)] == lines
        by_block = [read(path, block, between_blank_lines=True) for block in blocks]
        assert [line for found in by_block for line in found] == lines
        # No document is torn apart: all but the first block start with a border.
        assert all(not found[0].strip() for found in by_block[1:] if found)


def test_a_block_reads_its_own_bytes_only(write):
    path = write("a.txt", b"x\n" * 500 + b"\xff\n" * 500)
    assert set(read(path, (0, 1000))) == {"x\n"}


def test_a_line_without_end_is_refused(write, monkeypatch):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1 << 10)
    path = write("a.txt", b"fine\n" + b"x" * 2000)
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
    assert [len(piece) for piece in sources.cut("x" * 25_000)] == [10_000, 10_000, 5_000]
    assert sources.cut("short") == ["short"]
    assert max(map(len, split_sentences("word " * 5000))) <= sources.MAX_CHARACTERS
