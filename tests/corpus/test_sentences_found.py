"""Text into sentences: abbreviations, ends in a row, quotes, line ends, and what has no sentences."""

import pytest

from tfbert.corpus.sources import MAX_CHARACTERS, cut, split_sentences


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
def test_sentences(text, expected):
    found = split_sentences(text)
    assert len(found) == expected
    assert all(sentence and sentence == sentence.strip() for sentence in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_languages():
    text = "Siehe S. 3 usw. oder nicht. Ende."
    assert split_sentences(text, "de") == ["Siehe S. 3 usw. oder nicht.", "Ende."]
    assert len(split_sentences(text, "en")) == len(split_sentences(text, "no-such")) == 3


def test_no_sentence_is_longer_than_the_most():
    text = "word " * 5000
    pieces = split_sentences(text)
    assert len(pieces) == 3
    assert max(map(len, pieces)) <= MAX_CHARACTERS
    assert " ".join(pieces) == text.strip()
    assert [len(piece) for piece in cut("x" * 25_000)] == [10_000, 10_000, 5_000]
    assert cut("short") == ["short"]
