"""Vocabularies: read from a file or a model directory, or learned from text."""

from __future__ import annotations

import dataclasses
import pathlib
import reprlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tfbert.data.foreign_files import read_json_object, read_text
from tfbert.devices.autotune import without_autotune
from tfbert.errors import UsageError
from tfbert.tokens.normalizer import normalize

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARS = 100
"""Longer words are `[UNK]`: `max_input_chars_per_word` of every BERT."""

# What tokenizer_config.json and tokenizer.json must say about the algorithm, if they say anything.
_CLASSES = {
    name + fast for name in ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer") for fast in ("", "Fast")
}
_CLASSES |= {None, "PreTrainedTokenizerFast", "TokenizersBackend"}
_PIPELINE = {
    ("model", "type"): "WordPiece",
    ("model", "unk_token"): "[UNK]",
    ("model", "continuing_subword_prefix"): "##",
    ("model", "max_input_chars_per_word"): MAX_WORD_CHARS,
    ("normalizer", "type"): "BertNormalizer",
    ("normalizer", "clean_text"): True,
    ("pre_tokenizer", "type"): "BertPreTokenizer",
}

_KINDS = {bool: "true or false", dict: "an object", list: "a list", str: "a word"}


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


def read_pretrained(directory: pathlib.Path) -> tuple[list[str], dict[str, bool]]:
    """Reads the vocabulary and the casing of a model directory.

    Args:
        directory: Holds `vocab.txt` or `tokenizer.json`, and maybe `tokenizer_config.json`.

    Returns:
        The vocabulary, and those of `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` that the files state:
        `tokenizer_config.json` first, then `tokenizer.json`.

    Raises:
        UsageError: if there is no vocabulary, or the files describe another tokenizer than BERT's.
    """
    config, fast = _Object.read(directory / "tokenizer_config.json"), _Object.read(directory / "tokenizer.json")
    _refuse_unlike(directory, config, fast)
    normalizer = fast.object("normalizer")
    stated = {
        "do_lower_case": normalizer.get("lowercase", bool),
        "strip_accents": normalizer.get("strip_accents", bool),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", bool),
    }
    casing = {key: value for key, value in stated.items() if value is not None} | read_casing(directory)
    if (directory / "vocab.txt").is_file():
        return read_vocab_file(directory / "vocab.txt"), casing
    if not fast.values:
        raise UsageError(
            "A BERT model directory must hold its vocabulary. "
            f"Received: {directory} without vocab.txt and tokenizer.json. Add one, or pass --vocab_file."
        )
    ids = fast.object("model").get("vocab", dict) or {}
    if not all(type(id) is int for id in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise UsageError(
            "The ids of a vocabulary must be 0 to n - 1. "
            f"Received: others in {directory / 'tokenizer.json'}. Repair the file."
        )
    return sorted(ids, key=ids.get), casing


def read_casing(directory: pathlib.Path) -> dict[str, bool]:
    """Those of `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` that `tokenizer_config.json` states.

    Raises:
        UsageError: if the file is not JSON, or states anything but true or false.
    """
    config = _Object.read(directory / "tokenizer_config.json")
    stated = {key: config.get(key, bool) for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars")}
    return {key: value for key, value in stated.items() if value is not None}


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


@dataclasses.dataclass(frozen=True)
class _Object:
    """An object in a tokenizer's JSON file; each value must have the requested type, be null or be absent."""

    path: pathlib.Path
    values: dict[str, Any]

    @classmethod
    def read(cls, path: pathlib.Path) -> _Object:
        """Reads a file; if it does not exist, the object is empty."""
        return cls(path, read_json_object(path, "A tokenizer's file must be JSON") if path.is_file() else {})

    def get(self, key: str, kind: type) -> Any:
        """A value of a type, or None."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, kind):
            raise UsageError(
                f"A tokenizer's file must give {key} as {_KINDS[kind]}. "
                f"Received: {key}={reprlib.repr(value)} in {self.path}. Repair the file."
            )
        return value

    def object(self, key: str) -> _Object:
        """The object under a key; empty if it is null or absent."""
        return _Object(self.path, self.get(key, dict) or {})


def _refuse_unlike(directory: pathlib.Path, config: _Object, fast: _Object) -> None:
    """Raises UsageError if the files describe another algorithm, or added tokens to find in texts."""
    unlike = {}
    if config.get("tokenizer_class", str) not in _CLASSES:
        unlike["tokenizer_class"] = config.values["tokenizer_class"]
    for (part, key), wanted in _PIPELINE.items() if fast.values else ():
        found = (fast.object(part).values or {"type": None}).get(key, wanted)
        if found != wanted:
            unlike[f"{part}.{key}"] = found
    added = [(fast.path, token) for token in fast.get("added_tokens", list) or []]
    added += [(config.path, token) for token in config.object("added_tokens_decoder").values.values()]
    names = {_Object(path, {"token": token}).object("token").get("content", str) for path, token in added}
    names |= set(_Object.read(directory / "added_tokens.json").values)
    if names - {None, *SPECIAL_TOKENS}:
        unlike["added_tokens"] = sorted(names - {None, *SPECIAL_TOKENS})
    if unlike:
        raise UsageError(
            "A model's tokenizer must be BERT's WordPiece without added tokens. "
            f"Received: {', '.join(f'{key}={reprlib.repr(value)}' for key, value in unlike.items())} in {directory}. "
            "Use another model."
        )
