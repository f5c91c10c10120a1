"""Vocabularies: read from a file or a model directory, or learned from text."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable

import tensorflow as tf

from tfbert.data.autotune import without_autotune
from tfbert.data.normalizer import normalize
from tfbert.errors import UsageError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARS = 100
"""Longer words are `[UNK]`: `max_input_chars_per_word` of every BERT."""

# What tokenizer_config.json and tokenizer.json must say of the algorithm, where they say anything.
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


def read_vocab_file(path: str | pathlib.Path) -> list[str]:
    """Reads a vocabulary, one token a line, UTF-8.

    Raises:
        UsageError: if there is no such file, or it is not UTF-8.
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"A vocabulary must be a file. Received: {path} ({error.strerror}). Check the path.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"A vocabulary must be UTF-8. Received: {path} ({error}). Convert the file.") from None
    return text.removesuffix("\n").split("\n")  # str.splitlines would split at U+2028 and others as well.


def read_pretrained(directory: pathlib.Path) -> tuple[list[str], dict[str, bool]]:
    """Reads the vocabulary and the casing of a model directory.

    Args:
        directory: Holds `vocab.txt` or `tokenizer.json`, and maybe `tokenizer_config.json`.

    Returns:
        The vocabulary, and which of `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` the files state:
        `tokenizer_config.json` first, then `tokenizer.json`.

    Raises:
        UsageError: if there is no vocabulary, or the files describe another tokenizer than BERT's.
    """
    config, fast = _read_json(directory / "tokenizer_config.json"), _read_json(directory / "tokenizer.json")
    _refuse_unlike(directory, config, fast)
    normalizer = fast.get("normalizer", {})
    stated = {
        "do_lower_case": normalizer.get("lowercase"),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars"),
    }
    stated = {key: value if config.get(key) is None else config[key] for key, value in stated.items()}
    casing = {key: value for key, value in stated.items() if value is not None}
    if (directory / "vocab.txt").is_file():
        return read_vocab_file(directory / "vocab.txt"), casing
    if not fast:
        raise UsageError(
            "A BERT model directory must hold its vocabulary. "
            f"Received: {directory} without vocab.txt and tokenizer.json. Add one, or pass --vocab_file."
        )
    ids = fast["model"]["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise UsageError(
            "The ids of a vocabulary must be 0 to n - 1. "
            f"Received: others in {directory / 'tokenizer.json'}. Repair the file."
        )
    return sorted(ids, key=ids.get), casing


def learn_vocabulary(texts: Iterable[str], *, vocab_size: int, do_lower_case: bool = True) -> list[str]:
    """Learns a WordPiece vocabulary; the same texts give the same one.

    Args:
        texts: The training texts.
        vocab_size: The most tokens. Few texts give fewer.
        do_lower_case: Learn from lower-cased text without accents.

    Returns:
        The special tokens, the single characters, then longer tokens by falling count.

    Raises:
        UsageError: if there is no word in the texts.
    """
    import keras_nlp  # Brings in all of Keras 3, which only this function needs.

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


def _read_json(path: pathlib.Path) -> dict:
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"A tokenizer's file must be JSON. Received: {path} ({error}). Repair the file.") from None


def _refuse_unlike(directory: pathlib.Path, config: dict, fast: dict) -> None:
    """Raises UsageError if the files describe another algorithm, or further tokens to be found in texts."""
    unlike = {}
    if config.get("tokenizer_class") not in _CLASSES:
        unlike["tokenizer_class"] = config["tokenizer_class"]
    for (part, key), wanted in _PIPELINE.items() if fast else ():
        found = (fast.get(part) or {"type": None}).get(key, wanted)
        if found != wanted:
            unlike[f"{part}.{key}"] = found
    added = [*fast.get("added_tokens", []), *config.get("added_tokens_decoder", {}).values()]
    names = {token["content"] for token in added} | set(_read_json(directory / "added_tokens.json"))
    if names - set(SPECIAL_TOKENS):
        unlike["added_tokens"] = sorted(names - set(SPECIAL_TOKENS))
    if unlike:
        raise UsageError(
            "A model's tokenizer must be BERT's WordPiece without added tokens. "
            f"Received: {', '.join(f'{key}={value!r}' for key, value in unlike.items())} in {directory}. "
            "Use another model."
        )
