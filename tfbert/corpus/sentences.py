"""Running text -> sentences."""

from __future__ import annotations

import importlib.metadata

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
