"""A corpus and its vocabulary: one is learned from a sample, and whether records can be made with it.

The words of the corpus that a vocabulary does not know, `[UNK]`, are counted, warned of, or refused.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
from typing import Any

import numpy as np

from tfbert.corpus.manifest import Recipe
from tfbert.corpus.sources import Source
from tfbert.errors import UsageError
from tfbert.output.logs import PassProgress
from tfbert.tokens.tokenizer import Tokenizer
from tfbert.tokens.vocabulary import learn_vocabulary

log = logging.getLogger("tfbert")

SAMPLE_CHARACTERS = 64 << 20
"""Characters of text that a vocabulary is learned from. Twice as many take twice the time and change it hardly."""
_MAX_PARTS = 4096
MANY, NEARLY_ALL = 0.03, 0.9
"""Shares of unknown words. Vocabularies that fit have below 0.5%; Chinese text and English vocabularies 60%."""
_MOST_PARTS, _MOST_CHARACTERS = 32, 1 << 20  # Of a sample.


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
    parts = source.parts()
    chosen = parts[:: max(1, -(-len(parts) // _MOST_PARTS))]
    documents, empty_parts, is_whole = [], [], chosen == parts
    for part in chosen:
        left, before = _MOST_CHARACTERS // len(chosen), len(documents)
        for document in source.read(part):
            if left <= 0:
                is_whole = False
                break
            documents.append(document)
            left -= sum(map(len, document))
        if len(documents) == before:
            empty_parts.append(part)
    longer = sum(len(document) > 1 for document in documents)
    if empty_parts:
        log.warning("%d parts of the corpus hold no sentence, such as %s.", len(empty_parts), min(empty_parts))
    if is_whole:
        check_documents(source.name, recipe, documents=len(documents), longer_documents=longer)
    elif recipe.random_next_sentence and not longer:
        log.warning(
            "None of %s documents that were looked at has two sentences. If none at all has, the corpus is refused in "
            "the end; see --corpus_format.",
            f"{len(documents):,}",
        )
    sentences = [text.encode("utf-8", "ignore").decode() for document in documents for text in document]
    _check_unknown(source, recipe, word_counts(recipe, recipe.tokenizer.ids_of(sentences)[0]), "a sample of ")


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
    _check_unknown(source, recipe, totals)


def _check_unknown(source: Source, recipe: Recipe, found: dict[str, Any], part: str = "") -> None:
    """Refuses text of which nearly all words are unknown; warns of many, unless it is only a part of the corpus."""
    share, tokenizer = share_of(found), recipe.tokenizer
    if share < MANY:
        return
    about = (
        f"{100 * share:.1f}% of the {found['words']:,} words of {part}{source.name} are "
        f"unknown and become {tokenizer.vocab[tokenizer.unk_id]}. {_reason(tokenizer)}"
    )
    if share >= NEARLY_ALL:
        raise UsageError(f"The vocabulary must know the words of the corpus. Received: {about}")
    if not part:
        log.warning("%s", about)


def _reason(tokenizer: Tokenizer) -> str:
    # `[CLS]` and `[unused7]` are no words with capitals.
    has_capitals = any(not token.startswith("[") and token != token.lower() for token in tokenizer.vocab)
    if not tokenizer.casing.get("do_lower_case", True) and not has_capitals:
        return (
            "The vocabulary has no capital letters, but text is not lower-cased for it: set do_lower_case to true in "
            "the tokenizer_config.json beside it."
        )
    return (
        "It is of another language or script than the text, or the text is none, such as base64. Pass the --vocab_file "
        "or --model of a model for this text, or --learn_vocab."
    )
