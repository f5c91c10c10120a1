"""Vocabularies: read from a file, or learned from text."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

import tensorflow as tf

from tfbert.data.foreign_files import read_text
from tfbert.devices.autotune import without_autotune
from tfbert.errors import UsageError
from tfbert.tokens.normalizer import normalize

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARS = 100
"""Longer words are `[UNK]`: `max_input_chars_per_word` of every BERT."""


def read_vocab_file(path: str | pathlib.Path) -> list[str]:
    """Reads a vocabulary, one token per line, UTF-8.

    Raises:
        UsageError: if there is no such file, it is not UTF-8, or ends in blank lines.
    """
    text = read_text(pathlib.Path(path), "A vocabulary must be a text file in UTF-8")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens = text.removesuffix("\n").split("\n")  # str.splitlines would split at U+2028 and others as well.
    blank = len(tokens) - len(text.rstrip("\n").split("\n"))
    if blank > 1:  # A single one is a token: SciBERT has it.
        raise UsageError(
            f"A vocabulary must hold one token per line. Received: {path} with {blank} blank lines at its end, from "
            f"line {len(tokens) - blank + 1}. Remove them."
        )
    return tokens


def learn_vocabulary(texts: Iterable[str], *, vocab_size: int, do_lower_case: bool = True) -> list[str]:
    """Learns a WordPiece vocabulary; the same texts give the same one.

    Args:
        texts: The training texts.
        vocab_size: The most tokens. Few texts give fewer.
        do_lower_case: Learn from lower-cased text without accents.

    Returns:
        The special tokens, the single characters, then longer tokens, the most frequent first.

    Raises:
        UsageError: if there is no word in the texts.
    """
    import keras_nlp  # Imports all of Keras 3, which only this function needs.

    rows = [text.encode("utf-8", "surrogatepass") for text in texts]
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(rows, tf.string, [len(rows)])).batch(256)
    words = dataset.map(lambda text: tf.strings.split(normalize(text, do_lower_case=do_lower_case)).values)
    words = without_autotune(words)
    if not any(len(batch) for batch in words):
        raise UsageError(
            f"A vocabulary is learned from words. Received: {len(rows)} texts without one. Check the data."
        )
    return keras_nlp.tokenizers.compute_word_piece_vocabulary(
        words, vocabulary_size=vocab_size, split=False, reserved_tokens=list(SPECIAL_TOKENS)
    )
