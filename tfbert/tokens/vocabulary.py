"""Vocabularies: read from a file, or learned from text.

Hugging Face's trainer merges the most frequent pairs, as in "Japanese and Korean Voice Search" (Schuster and Nakajima
2012) and byte pair encoding. It numbers the characters in the order of a hash table, and breaks ties between pairs of
equal count by these numbers. So it is given all characters in a fixed order first; then its result is always the same.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np

from tfbert.data.foreign_files import read_text
from tfbert.devices.quiet import log_if_slow
from tfbert.errors import UsageError
from tfbert.output.logs import PassProgress

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARS = 100
"""Longer words are `[UNK]`: `max_input_chars_per_word` of every BERT."""
_MIN_CHARACTERS = 1000
_COVERAGE = 0.9995  # Share of a text's characters that are tokens; matters for Chinese. SentencePiece's default too.
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD_CHARS + 1},}}")
_CODES = 0x110000
_TEXTS_AT_A_TIME = 1000


def read_vocab_file(path: str | pathlib.Path) -> list[str]:
    """Reads a vocabulary, one token per line, UTF-8.

    Raises:
        UsageError: if there is no such file, it is not UTF-8, or ends in blank lines.
    """
    text = read_text(pathlib.Path(path) if isinstance(path, str) else path, "A vocabulary must be a text file in UTF-8")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens = text.removesuffix("\n").split("\n")  # str.splitlines would split at U+2028 and others as well.
    blank = len(tokens) - len(text.rstrip("\n").split("\n"))
    if blank > 1:  # A single one is a token: SciBERT has it.
        raise UsageError(
            f"A vocabulary must hold one token per line. Received: {path} with {blank} blank lines at its end, from "
            f"line {len(tokens) - blank + 1}. Remove them."
        )
    return tokens


def learn_vocabulary(
    texts: Iterable[str], *, vocab_size: int, do_lower_case: bool = True, is_sample: bool = False
) -> list[str]:
    """Learns a WordPiece vocabulary; the same texts give the same one.

    Args:
        texts: The texts.
        vocab_size: The most tokens. Few texts give fewer.
        do_lower_case: Learn from lower-cased text without accents.
        is_sample: Whether the texts are documents, a sample of a corpus. Then a size without room for all characters
            is refused; else the rarest are left out.

    Returns:
        The special tokens, the characters, those that continue a word (`##e`), and the merged tokens, the most frequent
        first.

    Raises:
        UsageError: for texts without a word, or a size without room for the characters of a sample.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    what, unit = ("sample", "documents") if is_sample else ("training texts", "texts")
    normalizer = normalizers.BertNormalizer(lowercase=do_lower_case)

    def normalize(text: str) -> str:
        if text.isascii() and text.isprintable():  # The same result, far faster.
            return text.lower() if do_lower_case else text
        return normalizer.normalize_str(text.encode("utf-8", "ignore").decode())  # JSON can hold lone surrogates.

    texts = list(texts)
    texts = [_LONG_WORD.sub(" ", normalize(text)) for text in _followed(f"normalizing the {what}", texts, unit)]
    codes, continues = _characters(texts)
    if not len(codes):
        raise UsageError(
            f"A vocabulary is learned from words. Received: {len(texts):,} {unit} without one. Check the data."
        )
    num_first = len(SPECIAL_TOKENS) + np.cumsum(1 + continues)
    if is_sample and num_first[-1] > vocab_size:
        raise UsageError(
            f"A vocabulary needs room for the corpus's {num_first[-1]:,} characters. "
            f"Received: learn_vocab={vocab_size}. Pass a larger one, or --vocab_file."
        )
    alphabet = sorted(map(chr, codes[num_first <= vocab_size]))
    continuing = sorted(f"##{chr(code)}" for code in codes[(num_first <= vocab_size) & continues])
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        limit_alphabet=len(alphabet),
        initial_alphabet=alphabet,
        special_tokens=[*SPECIAL_TOKENS, *alphabet, *continuing],
        continuing_subword_prefix="##",
        show_progress=False,
    )
    with contextlib.ExitStack() as merging:  # The trainer reads all texts first, and says nothing of its second half.

        def counted() -> Iterator[str]:
            yield from _followed(f"counting the words of the {what}", texts, unit)
            merging.enter_context(log_if_slow(f"merging characters into {vocab_size:,} tokens"))

        tokenizer.train_from_iterator(counted(), trainer)
    ids = tokenizer.get_vocab(with_added_tokens=False)
    return sorted(ids, key=ids.get)


def _followed(what: str, texts: list[str], unit: str) -> Iterator[str]:
    """The texts, with progress."""
    with PassProgress(what, sum(map(len, texts)), unit) as progress:
        for text in texts:
            yield text
            progress.advance(len(text), 1)


def _characters(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The characters that become tokens, the most frequent first, and whether each also continues a word, as `##e`."""
    counts = np.zeros(_CODES, np.int64)
    follows = np.zeros(_CODES, bool)
    for start in range(0, len(texts), _TEXTS_AT_A_TIME):
        text = " ".join(texts[start : start + _TEXTS_AT_A_TIME])
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        counts += np.bincount(codes, minlength=_CODES)
        follows[codes[1:][codes[:-1] != ord(" ")]] = True
    seen = np.flatnonzero(counts)
    seen = seen[[not chr(code).isspace() for code in seen]]
    ordered = seen[np.lexsort((seen, -counts[seen]))]
    cumulative = np.cumsum(counts[ordered])
    enough = int(np.searchsorted(cumulative, _COVERAGE * cumulative[-1])) + 1 if len(ordered) else 0
    chosen = ordered[: max(enough, _MIN_CHARACTERS)]
    return chosen, follows[chosen] & np.array([_in_words(code) for code in chosen], bool)


def _in_words(code: int) -> bool:
    """Whether a character can be inside a word: BERT does not split words at it."""
    character = chr(code)
    return character.isalnum() if code < 128 else not unicodedata.category(character).startswith("P")
