"""CoNLL files as they occur, and those that cannot be read."""

import io
import itertools
import pathlib

import pytest

from tfbert.errors import UsageError
from tfbert.tasks.token_classification import conll
from tfbert.tasks.token_classification.conll import open_conll


def read(content, **options):
    """(line, words, tags) of each sentence, or the message of one that cannot be read."""
    data = content if isinstance(content, bytes) else content.encode()
    found = open_conll(io.BytesIO(data), **options).read(())
    return [str(s) if isinstance(s, UsageError) else (s.line, s.words, s.tags) for s in found]


TWO = [(1, ["Ann", "left"], ["B-PER", "O"]), (4, ["Oslo"], ["B-LOC"])]


@pytest.mark.parametrize(
    "content",
    [
        "Ann\tB-PER\nleft\tO\n\nOslo\tB-LOC\n",
        "Ann\tB-PER\nleft\tO\n\nOslo\tB-LOC",
        "Ann B-PER\nleft    O\n\nOslo B-LOC\n\n\n",
        "Ann NNP  I-NP B-PER\nleft VB O O\n \t\nOslo NNP O B-LOC\n",
        "Ann\tB-PER\r\nleft\tO\r\n\r\nOslo\tB-LOC\r\n",
        "\ufeffAnn\tB-PER\nleft\t O \n\nOslo\tB-LOC\n",
        "Ann B-PER\nleft O\n-DOCSTART- O\nOslo B-LOC\n-DOCSTART- O\n",
    ],
)
def test_forms_of_one_file(content, write):
    assert read(content) == TWO
    path = pathlib.Path(write("a.conll.gz", content))
    assert [(s.line, s.words, s.tags) for s in open_conll(path).read(())] == TWO


def test_words_without_tags():
    assert read("Ann\nleft\n\nOslo\n", tags="optional") == [(1, ["Ann", "left"], None), (4, ["Oslo"], None)]
    assert read("Ann B-PER\n", tags="none") == [(1, ["Ann"], None)]
    assert read("Ann\t\n", tags="none") == [(1, ["Ann"], None)]


def test_words_that_look_like_something_else():
    """A comment, quotes, and blanks of Unicode that are no column's end."""
    words = ["#", '"', "New York", "\xa0", "a\u2028b", "\u3000", "\x85", "，"]
    assert read("".join(f"{word}\tO\n" for word in words)) == [(1, words, ["O"] * len(words))]
    words.remove("New York")
    assert read("".join(f"{word}  O\n" for word in words)) == [(1, words, ["O"] * len(words))]


BAD = {
    "columns": ("a\tO\nb\tO\tO\n\nc\tO\n", "must have 2 columns separated by tabs.*Received: 3 in .*, line 2"),
    "spaces": ("a O\nb c O\n\nc O\n", "must have 2 columns separated by spaces.*Received: 3 in .*, line 2"),
    "another separator": ("a\tO\nb O\n\nc\tO\n", "must have 2 columns separated by tabs.*Received: 1 in .*, line 2"),
    "no word": ("a\tO\n\tO\n\nc\tO\n", "must not be blank. Received: '' in column 0 of .*, line 2"),
    "blank word": ("a\tO\n  \tO\n\nc\tO\n", "must not be blank. Received: '  ' in column 0 of .*, line 2"),
    "no tag": ("a\tO\nb\t \n\nc\tO\n", "needs a tag. Received: none in column 1 of .*, line 2"),
    "bytes": (b"a\tO\nb\xff\tO\n\nc\tO\n", "must be UTF-8. Received: byte 0xff in .*, line 2"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_sentence_is_an_error_in_its_place(content, message, write):
    path = pathlib.Path(write("a.conll", content))
    error, good = open_conll(path).read(())
    assert isinstance(error, UsageError) and (good.words, good.tags) == (["c"], ["O"])
    with pytest.raises(UsageError, match=message):
        raise error
    assert "\n" not in str(error) and str(path) in str(error)


def test_a_file_without_blank_lines_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(conll, "MOST_WORDS", 3)
    endless = itertools.chain([b"a O\n"] * 10, [b"\n"], itertools.cycle([b"b O\n", b"\n"]))

    class Endless(io.BytesIO):
        def __iter__(self):
            return endless

    found = open_conll(Endless()).read(())
    assert "at most 3 words, and a blank line ends it. Received: more words in standard input, from" in str(next(found))
    assert next(found).line == 12
    assert read("a O\na O\na O\n") == [(1, ["a"] * 3, ["O"] * 3)]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "at least one sentence. Received: 'standard input' with none"),
        ("\n\n-DOCSTART- O\n\n", {}, "at least one sentence"),
        ("a O\n", {"label_column": "2"}, "label_column='2' for standard input with columns 0 to 1"),
        ("a O\n", {"label_column": "-1"}, "label_column='-1'"),
        ("a O\n", {"text_column": ["tokens"]}, "text_column='tokens'"),
        ("a O\n", {"text_column": ["0", "1"]}, "text_column='0,1'"),
        ("a O\n", {"text_column": ["1"]}, "must be different columns. Received: column 1 of 2 for both"),
        ("a\nb\n", {}, "needs a column of words and one of tags"),
        ("word\tlabel\na\tO\n", {}, "have no header. Received: .* 'label'"),
    ],
)
def test_files_that_do_not_serve(content, options, message):
    with pytest.raises(UsageError, match=message):
        open_conll(io.BytesIO(content.encode()), **options)


def test_lines_of_words_as_they_were():
    content = "\n-DOCSTART- -X- O\n\nNew  NNP B-LOC \n#  #   O\n\n\n-DOCSTART- -X- O\nb NN O\n\n\n"
    found = [s.written for s in open_conll(io.BytesIO(content.encode())).read(())]
    assert found == [["New  NNP B-LOC  ", "#  #   O "], ["b NN O "]]
    assert [s.written for s in open_conll(io.BytesIO(b"a b\tO\r\n\r\nc\tO")).read(())] == [["a b\tO\t"], ["c\tO\t"]]
