"""A corpus and its vocabulary: one is learned from a sample, and whether records can be made with it.

The words of the corpus that a vocabulary does not know, `[UNK]`, are counted, warned of, or refused.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import heapq
import logging
import re
from typing import Any

import numpy as np

from tfbert.corpus.manifest import Recipe
from tfbert.corpus.sources import Source
from tfbert.errors import UsageError
from tfbert.output.logs import PassProgress
from tfbert.tokens.vocabulary import learn_vocabulary

log = logging.getLogger("tfbert")

SAMPLE_CHARACTERS = 64 << 20
"""Characters of text that a vocabulary is learned from. Twice as many take twice the time and change it hardly."""
_MAX_PARTS = 4096
MANY, NEARLY_ALL = 0.03, 0.9
"""Shares of unknown words. Vocabularies that fit have below 0.5%; Chinese text and English vocabularies 60%."""
_MOST_PARTS, _MOST_CHARACTERS = 32, 1 << 20  # Of a sample.
_MOST_WORDS, _SHOWN, _SHOWN_CHARACTERS = 1000, 3, 20
_WORD = re.compile(r"\w+|[^\w\s]")


def learn_vocab(source: Source, size: int, seed: int) -> list[str]:
    """Learns a vocabulary of lower-cased text without accents; the same corpus, size and seed give the same one.

    Args:
        source: The corpus.
        size: The most tokens. A small corpus gives fewer.
        seed: The seed of the sample.

    Returns:
        The tokens; see `learn_vocabulary`.

    Raises:
        UsageError: for a corpus without a word, or a size without room for its characters.
    """
    texts = sample(source, seed, SAMPLE_CHARACTERS)
    log.info("learning a vocabulary of %d tokens from %d documents", size, len(texts))
    vocab = learn_vocabulary(texts, vocab_size=size, is_sample=True)
    if len(vocab) < size:
        log.warning(
            "The vocabulary has %s tokens, fewer than the %s asked for: all that occur twice in the corpus are in it. "
            "Pass more text for more.",
            f"{len(vocab):,}",
            f"{size:,}",
        )
    return vocab


def sample(source: Source, seed: int, most_characters: int = SAMPLE_CHARACTERS) -> list[str]:
    """A sample of a corpus's documents, each as one text.

    All parts (of very many, the 4,096 with the smallest hashes) are read from their beginnings, eight times the sample
    in total. What short parts leave of their share goes to longer ones. Of the documents that were read, those with the
    smallest hashes are kept. So time and memory are bounded, and a corpus smaller than the sample is taken whole.

    Args:
        source: The corpus.
        seed: Decides which documents are taken.
        most_characters: The characters to sample; the last document may exceed them.

    Returns:
        The documents in the order of their hashes.
    """
    sizes = source.sizes()
    parts = sorted(sizes, key=lambda part: _hash(seed, part))[:_MAX_PARTS]
    parts.sort(key=lambda part: (sizes[part], part))  # The shortest first: the later ones share what they leave over.
    left = 8 * most_characters
    share = left // max(1, len(parts))
    kept: list[tuple[int, str, int, str]] = []  # A heap with the largest hash on top.
    num_kept = 0
    with PassProgress("reading a sample", sum(min(sizes[part], share) for part in parts)) as progress:
        for i, part in enumerate(parts):
            allowed = left // (len(parts) - i)
            for number, document in enumerate(source.read(part)):
                text = " ".join(document)
                left -= len(text)
                allowed -= len(text)
                heapq.heappush(kept, (-_hash(seed, part, number), part, number, text))
                num_kept += len(text)
                while num_kept - len(kept[0][-1]) >= most_characters:
                    num_kept -= len(heapq.heappop(kept)[-1])
                progress.advance(0, len(document))
                if allowed <= 0:
                    break
            progress.advance(min(sizes[part], share), 0)
    return [text for *_, text in sorted(kept, reverse=True)]


def _hash(*values: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(values).encode("utf-8", "backslashreplace"), digest_size=8).digest())


def word_counts(recipe: Recipe, tokens: np.ndarray) -> dict[str, int]:
    """The number of words in tokens, and how many of them are unknown; marks of punctuation are no words.

    Args:
        recipe: Holds the tokenizer.
        tokens: int32 [tokens], without special tokens.

    Returns:
        `words`, all of them, and `unknown_words`, which are `[UNK]`.
    """
    tokenizer = recipe.tokenizer
    is_word = tokenizer.word_marks[0] & [any(map(str.isalnum, piece)) for piece in tokenizer.pieces]
    is_word[tokenizer.unk_id] = True
    counts = np.bincount(tokens, minlength=tokenizer.vocab_size)
    return {"words": int(counts[is_word].sum()), "unknown_words": int(counts[tokenizer.unk_id])}


def share_of(totals: dict[str, Any]) -> float:
    """The share of unknown words."""
    return totals["unknown_words"] / max(totals["words"], 1)


def check_beginnings(source: Source, recipe: Recipe) -> None:
    """Refuses a corpus before any record of it is made, by the beginnings of some parts.

    Raises:
        UsageError: if nearly all of their words are unknown, or if they are all of a small corpus and `check_documents`
            refuses it.
    """
    found = _beginnings(source)
    longer = sum(len(document) > 1 for document in found.documents)
    if found.empty_parts:
        log.warning(
            "%d parts of the corpus hold no sentence, such as %s.", len(found.empty_parts), min(found.empty_parts)
        )
    if found.is_whole:
        check_documents(source.name, recipe, documents=len(found.documents), longer_documents=longer)
    elif recipe.random_next_sentence and not longer:
        log.warning(
            "None of %s documents that were looked at has two sentences. If none at all has, the corpus is refused in "
            "the end; see --corpus_format.",
            f"{len(found.documents):,}",
        )
    words = word_counts(recipe, recipe.tokenizer.ids_of(found.sentences)[0])
    if share_of(words) >= NEARLY_ALL:
        _refuse(source, recipe, words, "of a sample of ")


def check_documents(name: str, recipe: Recipe, *, documents: int, longer_documents: int) -> None:
    """Refuses a corpus without documents, or with documents of one sentence each if pairs are to be made of them.

    Raises:
        UsageError: that says why.
    """
    if not documents:
        rule = "A corpus must have documents"
        raise UsageError(f"{rule}. Received: {name} without a sentence. Check input_files and corpus_format.")
    if recipe.random_next_sentence and not longer_documents:
        raise UsageError(
            "A next sentence needs documents of two sentences or more. "
            f"Received: {name}, {documents:,} documents of one sentence each. Separate documents, not sentences, by "
            "blank lines; or pass --corpus_format=lines and --language where each line is a whole document, or "
            "--norandom_next_sentence."
        )


def check_totals(source: Source, recipe: Recipe, totals: dict[str, Any]) -> None:
    """Checks a corpus of which records have been made; warns of many unknown words.

    Args:
        source: The corpus.
        recipe: How its records are made.
        totals: Those of the manifest.

    Raises:
        UsageError: as `check_documents` does, and if nearly all words are unknown.
    """
    documents, longer = totals["documents"], totals["longer_documents"]
    check_documents(source.name, recipe, documents=documents, longer_documents=longer)
    share = share_of(totals)
    if share >= NEARLY_ALL:
        _refuse(source, recipe, totals, "of ")
    if share >= MANY:
        log.warning(
            "%s of %s%s are unknown to the vocabulary: they become %s, and a model learns to predict that. %s",
            _how_many(totals),
            source.name,
            _examples(source, recipe),
            recipe.tokenizer.vocab[recipe.tokenizer.unk_id],
            _reason(recipe),
        )


def _refuse(source: Source, recipe: Recipe, found: dict[str, Any], what: str) -> None:
    raise UsageError(
        "The vocabulary must know the words of the corpus. "
        f"Received: {_how_many(found)} {what}{source.name}{_examples(source, recipe)} are unknown, "
        f"{recipe.tokenizer.vocab[recipe.tokenizer.unk_id]}. "
        f"{_reason(recipe)}"
    )


def _how_many(found: dict[str, Any]) -> str:
    return f"{100 * share_of(found):.1f}% of the {found['words']:,} words"


def _reason(recipe: Recipe) -> str:
    advice = "Pass the --vocab_file or --model of a model for this text, or --learn_vocab."
    casing = recipe.tokenizer.casing
    if not casing.get("do_lower_case", True) and not any(map(_has_capital, recipe.tokenizer.vocab)):
        return (
            "The vocabulary has no capital letters, but text is not lower-cased for it: set do_lower_case to true in "
            "the tokenizer_config.json beside it."
        )
    return f"It is of another language or script than the text, or the text is none, such as base64. {advice}"


def _has_capital(token: str) -> bool:
    """Whether a token has capital letters; `[CLS]` and `[unused7]` do not count."""
    return not token.startswith("[") and token != token.lower()


def _examples(source: Source, recipe: Recipe) -> str:
    """The most frequent unknown words of the corpus's beginnings, for a message."""
    counts = collections.Counter(word for text in _beginnings(source).sentences for word in _WORD.findall(text))
    words = [word for word, _ in counts.most_common(_MOST_WORDS)]
    ids, lengths = recipe.tokenizer.ids_of(words)
    unknown = np.repeat(np.arange(len(words)), lengths)[ids == recipe.tokenizer.unk_id]
    unknown = [words[place] for place in dict.fromkeys(unknown.tolist())][:_SHOWN]
    shown = [repr(word[:_SHOWN_CHARACTERS] + "..." * (len(word) > _SHOWN_CHARACTERS)) for word in unknown]
    return f", such as {', '.join(shown)}," if shown else ""


@dataclasses.dataclass
class _Beginnings:
    """Documents from the beginnings of parts all over a corpus; the parts without one; whether these are all."""

    documents: list[list[str]] = dataclasses.field(default_factory=list)
    empty_parts: list[str] = dataclasses.field(default_factory=list)
    is_whole: bool = True

    @property
    def sentences(self) -> list[str]:
        return [text.encode("utf-8", "ignore").decode() for document in self.documents for text in document]


def _beginnings(source: Source) -> _Beginnings:
    parts, found = source.parts(), _Beginnings()
    chosen = parts[:: -(-len(parts) // _MOST_PARTS)] if parts else []
    found.is_whole = chosen == parts
    for part in chosen:
        left, before = _MOST_CHARACTERS // len(chosen), len(found.documents)
        for document in source.read(part):
            if left <= 0:
                found.is_whole = False
                break
            found.documents.append(document)
            left -= sum(map(len, document))
        if len(found.documents) == before:
            found.empty_parts.append(part)
    return found
