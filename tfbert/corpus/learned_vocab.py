"""Learns a WordPiece vocabulary from a corpus of any size: from a sample of it that is always the same."""

from __future__ import annotations

import hashlib
import heapq
import logging

from tfbert.corpus.documents import Source
from tfbert.output.progress import PassProgress
from tfbert.tokens.vocabulary import learn_vocabulary

log = logging.getLogger("tfbert")

SAMPLE_CHARACTERS = 64 << 20
"""Characters of text that a vocabulary is learned from. Twice as many take twice the time and change it hardly."""
_MAX_PARTS = 4096


def learn_vocab(
    source: Source, size: int, seed: int, *, lower_case: bool = True, sample_characters: int = SAMPLE_CHARACTERS
) -> list[str]:
    """Learns a vocabulary; the same corpus, size and seed give the same one.

    Args:
        source: The corpus.
        size: The most tokens. A small corpus gives fewer.
        seed: The seed of the sample.
        lower_case: Learn from lower-cased text without accents.
        sample_characters: The most characters of text to learn from.

    Returns:
        The tokens; see `learn_vocabulary`.

    Raises:
        UsageError: for a corpus without a word, or a size without room for its characters.
    """
    texts = sample(source, seed, sample_characters)
    log.info("learning a vocabulary of %d tokens from %d documents", size, len(texts))
    vocab = learn_vocabulary(texts, vocab_size=size, do_lower_case=lower_case, is_sample=True)
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
