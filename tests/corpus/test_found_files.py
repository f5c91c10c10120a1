"""Which files a corpus is, and of what format."""

import gzip
import json
import re

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.refusals import refused
from tfbert.config.tasks import CorpusConfig
from tfbert.corpus.sources import WHOLE, find_inputs

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
def folder(tmp_path):
    files = {"a.txt": CUT, "b/c.txt.gz": gzip.compress(CUT), "b/empty.txt": b""}
    files |= {"b/rows.jsonl": ROW, "b/rows2.json.gz": gzip.compress(ROW), "b/wiki_00": ROW}
    files |= {"b/_SUCCESS": b"", "b/.DS_Store": b"\0\0", ".git/config": b"[core]\n"}
    files |= {"README.md": b"# A corpus\n", "picture.png": b"\x89PNG"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
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


def test_json_whose_keys_stand_off_is_json(tmp_path):
    (tmp_path / "a.txt").write_text('{ "text": "One. Two." }\n\n{ "text": "Three." }\n')
    assert names(tmp_path / "a.txt") == {"a.txt": "jsonl"}


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


def test_large_files_have_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("tfbert.corpus.sources.BLOCK_BYTES", 10)
    monkeypatch.setattr("tfbert.corpus.sources.blocks_of.__defaults__", (10,))
    (tmp_path / "a.txt").write_bytes(CUT)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(CUT))
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
