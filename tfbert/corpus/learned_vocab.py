"""Learns a WordPiece vocabulary from a corpus of any size: from a sample of it that is always the same.

Hugging Face's trainer merges the most frequent pairs, as in "Japanese and Korean Voice Search" (Schuster and Nakajima
2012) and byte pair encoding. It numbers the characters in the order of a hash table, and breaks ties between pairs of
equal count by these numbers. So it is given all characters in a fixed order first; then its result is always the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import logging
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from tfbert.corpus.documents import Source
from tfbert.devices.waiting import log_if_slow
from tfbert.errors import UsageError
from tfbert.output.progress import PassProgress
from tfbert.tokens.vocabulary import MAX_WORD_CHARS, SPECIAL_TOKENS

log = logging.getLogger("tfbert")

SAMPLE_CHARACTERS = 64 << 20
"""Characters of text that a vocabulary is learned from. Twice as many take twice the time and change it hardly."""
_MAX_PARTS = 4096
_MIN_CHARACTERS = 1000
_COVERAGE = 0.9995  # Share of a text's characters that are tokens; matters for Chinese. SentencePiece's default too.
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD_CHARS + 1},}}")
_CODES = 0x110000
_TEXTS_AT_A_TIME = 1000


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
        The special tokens, the characters, those that continue a word (`##e`), and the merged tokens, the most frequent
        first.

    Raises:
        UsageError: for a corpus without a word, or a size without room for its characters.
    """
    return learn_from(sample(source, seed, sample_characters), size, lower_case=lower_case)


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


def learn_from(texts: Sequence[str], size: int, *, lower_case: bool = True) -> list[str]:
    """Learns a vocabulary from texts, as `learn_vocab` does."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    normalizer = normalizers.BertNormalizer(lowercase=lower_case)

    def normalize(text: str) -> str:
        if text.isascii() and text.isprintable():  # The same result, far faster.
            return text.lower() if lower_case else text
        return normalizer.normalize_str(text)

    texts = [_LONG_WORD.sub(" ", normalize(text)) for text in _followed("normalizing the sample", texts)]
    alphabet, continuing = _characters(texts)
    if not alphabet:
        raise UsageError(
            f"A vocabulary is learned from words. Received: {len(texts):,} documents without one. Check the data."
        )
    first = [*SPECIAL_TOKENS, *alphabet, *continuing]
    if size < len(first):
        raise UsageError(
            f"A vocabulary needs room for the corpus's {len(first):,} characters. "
            f"Received: learn_vocab={size}. Pass a larger one, or --vocab_file."
        )
    log.info("learning a vocabulary of %d tokens from %d documents", size, len(texts))
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        limit_alphabet=len(alphabet),
        initial_alphabet=alphabet,
        special_tokens=first,
        continuing_subword_prefix="##",
        show_progress=False,
    )
    with contextlib.ExitStack() as merging:  # The trainer reads all texts first, and says nothing of its second half.

        def counted() -> Iterator[str]:
            yield from _followed("counting the words of the sample", texts)
            merging.enter_context(log_if_slow(f"merging characters into {size:,} tokens"))

        tokenizer.train_from_iterator(counted(), trainer)
    ids = tokenizer.get_vocab(with_added_tokens=False)
    if len(ids) < size:
        log.warning(
            "The vocabulary has %s tokens, fewer than the %s asked for: all that occur twice in the corpus are in it. "
            "Pass more text for more.",
            f"{len(ids):,}",
            f"{size:,}",
        )
    return sorted(ids, key=ids.get)


def _followed(what: str, texts: Sequence[str]) -> Iterator[str]:
    """The texts, with progress."""
    with PassProgress(what, sum(map(len, texts)), "documents") as progress:
        for text in texts:
            yield text
            progress.advance(len(text), 1)


def _characters(texts: list[str]) -> tuple[list[str], list[str]]:
    """The characters that become tokens, and those of them that also continue a word, as `##e`; both sorted."""
    counts = np.zeros(_CODES, np.int64)
    follows = np.zeros(_CODES, bool)
    for start in range(0, len(texts), _TEXTS_AT_A_TIME):
        text = " ".join(texts[start : start + _TEXTS_AT_A_TIME])
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        counts += np.bincount(codes, minlength=_CODES)
        follows[codes[1:][codes[:-1] != ord(" ")]] = True
    seen = np.flatnonzero(counts)
    seen = seen[[not chr(code).isspace() for code in seen]]
    ordered = seen[np.lexsort((seen, -counts[seen]))]
    cumulative = np.cumsum(counts[ordered])
    enough = int(np.searchsorted(cumulative, _COVERAGE * cumulative[-1])) + 1 if len(ordered) else 0
    chosen = sorted(map(int, ordered[: max(enough, _MIN_CHARACTERS)]))
    return [chr(code) for code in chosen], [f"##{chr(code)}" for code in chosen if follows[code] and _in_words(code)]


def _in_words(code: int) -> bool:
    """Whether a character can be inside a word: BERT does not split words at it."""
    character = chr(code)
    return character.isalnum() if code < 128 else not unicodedata.category(character).startswith("P")


def _hash(*values: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(values).encode("utf-8", "backslashreplace"), digest_size=8).digest())
