"""The vocabulary and the casing of a model directory: as its files state them, else as its vocabulary shows them; and
vocabularies that are read from a file, or learned from text.

Hugging Face's trainer merges the most frequent pairs, as in "Japanese and Korean Voice Search" (Schuster and Nakajima
2012) and byte pair encoding. It numbers the characters in the order of a hash table, and breaks ties between pairs of
equal count by these numbers. So it is given all characters in a fixed order first; then its result is always the same.

transformers lower-cases whatever does not say `"do_lower_case": false` in `tokenizer_config.json`, cased vocabularies
too. Here the vocabulary decides then, and a line says so. Otherwise the same directory gives the same ids as with
transformers' `AutoTokenizer`, or is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import pathlib
import re
import reprlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tfbert.data.reading import read_json_object, read_text
from tfbert.devices.process import log_if_slow
from tfbert.errors import UsageError
from tfbert.output.logs import PassProgress
from tfbert.tokens.normalizer import effective_casing

log = logging.getLogger("tfbert")

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


# What tokenizer_config.json and tokenizer.json must say about the algorithm, if they say anything.
_CLASSES = {
    name + fast for name in ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer") for fast in ("", "Fast")
}
_OF_TOKENIZER_JSON = {"PreTrainedTokenizerFast", "TokenizersBackend"}
"""Classes for which tokenizer.json alone decides."""
_PIPELINE = {
    ("model", "type"): "WordPiece",
    ("model", "unk_token"): "[UNK]",
    ("model", "continuing_subword_prefix"): "##",
    ("model", "max_input_chars_per_word"): MAX_WORD_CHARS,
    ("normalizer", "type"): "BertNormalizer",
    ("normalizer", "clean_text"): True,
    ("pre_tokenizer", "type"): "BertPreTokenizer",
}
_NAMED = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
_NORMALIZER_NAMES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""A casing's options, and what tokenizer.json calls them."""
_KINDS = {bool: "true or false", dict: "an object", list: "a list", str: "a word"}

# bert-base-cased has capitals in 29% of its words. SciBERT's uncased vocabulary, made without lower-casing everything,
# has them in 0.5%, and accents in 1.4%.
_FEW_CAPITALS, _FEW_ACCENTS = 0.02, 0.05

Casing = dict[str, bool]


def read_pretrained(directory: pathlib.Path) -> tuple[list[str], Casing]:
    """Reads the vocabulary and the casing of a model directory; logs how text is cased where no file states it.

    Args:
        directory: Holds `vocab.txt` or `tokenizer.json`, and maybe `tokenizer_config.json`.

    Returns:
        The vocabulary, and `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` where they are not the
        tokenizer's defaults.

    Raises:
        UsageError: if there is no vocabulary, the files describe another tokenizer than BERT's, or they contradict each
            other.
    """
    config, fast = JsonObject.read(directory / "tokenizer_config.json"), JsonObject.read(directory / "tokenizer.json")
    normalizer = fast.object("normalizer")
    in_json = _known({key: normalizer.get(name, bool) for key, name in _NORMALIZER_NAMES.items()})
    names = _refuse_unlike(directory, config, fast)
    tokens = _read_tokens(directory, fast)
    if fast.exists:
        _refuse_other_ends(fast, tokens)
    config.warn_of_side()
    if fast.exists and names & _OF_TOKENIZER_JSON:
        return tokens, in_json
    casing = _agreed(config, fast, in_json) if fast.exists else _casing_in(config)
    _warn_of_capitals(casing, tokens, config if "do_lower_case" in _casing_in(config) else fast)
    if "do_lower_case" in casing:
        return tokens, casing
    chosen, why = shown_by(tokens, casing)
    if fast.exists:
        _refuse_other_casing(config, fast, in_json, chosen)
    if not why:
        log.info("Text is lower-cased, as the vocabulary suggests.")
    else:
        how = "lower-cased and keeps its accents" if chosen["do_lower_case"] else "not lower-cased"
        log.warning(
            "Text is %s, as the vocabulary suggests (%s). State it in %s: %s; without that, transformers lower-cases "
            "text and drops its accents.",
            how,
            why,
            config.path,
            json.dumps({key: value for key, value in chosen.items() if key not in casing}),
        )
    return tokens, chosen


def read_casing(directory: pathlib.Path, tokens: Sequence[str]) -> Casing:
    """The casing for a vocabulary that is given by itself: what `directory/tokenizer_config.json` states, else what the
    vocabulary shows.

    Raises:
        UsageError: if the file is not JSON, or states anything but true or false.
    """
    config = JsonObject.read(directory / "tokenizer_config.json")
    casing = _casing_in(config)
    _warn_of_capitals(casing, tokens, config)
    return casing if "do_lower_case" in casing else shown_by(tokens, casing)[0]


def shown_by(tokens: Sequence[str], stated: Casing) -> tuple[Casing, str]:
    """The casing under which a vocabulary's words can be found in texts.

    A word with a capital letter is never found in lower-cased text, nor one with an accent where accents are dropped.

    Args:
        tokens: The vocabulary.
        stated: What is known of the casing; without `do_lower_case`.

    Returns:
        The casing, and why it is not transformers' default; empty where it is.
    """
    words = [token.removeprefix("##") for token in tokens if not token.startswith("[")]
    accents = _share([_without_accents(word) != word for word in words if any(map(str.isalpha, word))])
    if (capitals := _share_of_capitals(tokens)) > _FEW_CAPITALS:
        return {"do_lower_case": False} | stated, f"{capitals:.0%} of its words have capitals"
    if accents > _FEW_ACCENTS and "strip_accents" not in stated:
        return {"do_lower_case": True, "strip_accents": False} | stated, f"{accents:.0%} of its words have accents"
    return {"do_lower_case": True} | stated, ""


def _share_of_capitals(tokens: Sequence[str]) -> float:
    """The share of words with a capital, among those of letters that have capitals: not Chinese ones, or numbers."""
    words = [token.removeprefix("##") for token in tokens if not token.startswith("[")]
    return _share([word != word.lower() for word in words if word != word.lower() or word != word.upper()])


def _warn_of_capitals(casing: Casing, tokens: Sequence[str], source: JsonObject) -> None:
    if casing.get("do_lower_case") and (capitals := _share_of_capitals(tokens)) > _FEW_CAPITALS:
        log.warning(
            "Text is lower-cased, as %s says, but %.0f%% of the vocabulary's words have capitals and are never found "
            "then.",
            source.path,
            100 * capitals,
        )


def _agreed(config: JsonObject, fast: JsonObject, in_json: Casing) -> Casing:
    """What is stated by a directory that has both JSON files.

    transformers' class for BERT takes the casing from `tokenizer_config.json`, or its own defaults, and overwrites what
    `tokenizer.json` says: that counts where both are the same.
    """
    stated = _casing_in(config)
    default, found = _effective(stated), _effective(in_json)
    decided = _decided_by(config)
    same = {key: value for key, value in in_json.items() if key not in decided and default[key] == found[key]}
    if "do_lower_case" in stated | same:
        _refuse_other_casing(config, fast, in_json, stated | same)
    return stated | same


def _refuse_other_casing(config: JsonObject, fast: JsonObject, in_json: Casing, casing: Casing) -> None:
    """Raises UsageError where `tokenizer.json` says something else than the casing to be used, and
    `tokenizer_config.json` does not say."""
    decided, resolved, found = _decided_by(config), _effective(casing), _effective(in_json)
    for key, name in _NORMALIZER_NAMES.items():
        if key in in_json and key not in decided and found[key] != resolved[key]:
            raise UsageError(
                "tokenizer.json and tokenizer_config.json must describe one tokenizer. Received: "
                f"normalizer.{name}={json.dumps(found[key])} in {fast.path}, which transformers takes as "
                f"{json.dumps(resolved[key])}. State {key} in tokenizer_config.json."
            )


def _effective(casing: Casing) -> Casing:
    """All three options, resolved as transformers resolves what is not stated."""
    return dict(zip(_NORMALIZER_NAMES, effective_casing(**{"do_lower_case": True} | casing), strict=True))


def _share(found: list[bool]) -> float:
    return sum(found) / len(found) if found else 0.0


def _without_accents(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", word) if unicodedata.category(char) != "Mn")


def _casing_in(config: JsonObject) -> Casing:
    return _known({key: config.get(key, bool) for key in _NORMALIZER_NAMES})


def _decided_by(config: JsonObject) -> set[str]:
    """The options that `tokenizer_config.json` decides: also that accents are as lower-casing, by null."""
    return _casing_in(config).keys() | ({"strip_accents"} & config.values.keys())


def _known(values: dict[str, bool | None]) -> Casing:
    return {key: value for key, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class JsonObject:
    """An object in a tokenizer's JSON file; each value must have the requested type, be null or be absent."""

    path: pathlib.Path
    values: dict[str, Any]
    exists: bool = True

    @classmethod
    def read(cls, path: pathlib.Path) -> JsonObject:
        """Reads a file; if it does not exist, the object is empty."""
        if not path.is_file():
            return cls(path, {}, exists=False)
        return cls(path, read_json_object(path, "A tokenizer's file must be JSON"))

    def get(self, key: str, kind: type) -> Any:
        """A value of a type, or None."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, kind):
            raise UsageError(
                f"A tokenizer's file must give {key} as {_KINDS[kind]}. "
                f"Received: {key}={reprlib.repr(value)} in {self.path}. Repair the file."
            )
        return value

    def warn_of_side(self) -> None:
        """Says so where it states that texts are cut at their start."""
        if (side := self.get("truncation_side", str) or "right") != "right":
            log.warning("%s says truncation_side=%r; tfbert cuts texts at their end.", self.path, side)

    def object(self, key: str) -> JsonObject:
        """The object under a key; empty if it is null or absent."""
        return JsonObject(self.path, self.get(key, dict) or {})


def _read_tokens(directory: pathlib.Path, fast: JsonObject) -> list[str]:
    """The vocabulary; of two files, both must hold the same."""
    listed = read_vocab_file(directory / "vocab.txt") if (directory / "vocab.txt").is_file() else None
    if not fast.exists:
        if listed is None:
            raise UsageError(
                "A BERT model directory must hold its vocabulary. "
                f"Received: {directory} without vocab.txt and tokenizer.json. Add one, or pass --vocab_file."
            )
        return listed
    ids = fast.object("model").get("vocab", dict) or {}
    if not all(type(id) is int for id in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise UsageError(
            "The ids of a vocabulary must be 0 to n - 1. "
            f"Received: others in {directory / 'tokenizer.json'}. Repair the file."
        )
    tokens = sorted(ids, key=ids.get)
    if listed is None or listed == tokens:
        return tokens
    both = itertools.zip_longest(listed, tokens)
    place, (first, second) = next((i, pair) for i, pair in enumerate(both) if pair[0] != pair[1])
    first, second = ("absent" if token is None else reprlib.repr(token) for token in (first, second))
    raise UsageError(
        "vocab.txt and tokenizer.json of a directory must hold the same vocabulary. Received: token "
        f"{place} (counted from 0) is {first} in vocab.txt and {second} in tokenizer.json, in {directory}. "
        "Remove the file that is not the model's."
    )


def _refuse_unlike(directory: pathlib.Path, config: JsonObject, fast: JsonObject) -> set[str]:
    """Raises UsageError if the files describe another algorithm, other special tokens, or tokens to find in texts.

    Returns:
        The tokenizer's class, if the files name one.
    """
    unlike = {}
    named = config.get("tokenizer_class", str)
    if named is None and (directory / "config.json").is_file():  # transformers looks there next.
        config_json = read_json_object(directory / "config.json", "config.json must be readable JSON")
        named = JsonObject(directory / "config.json", config_json).get("tokenizer_class", str)
    if named not in _CLASSES | _OF_TOKENIZER_JSON | {None}:
        unlike["tokenizer_class"] = named
    for (part, key), wanted in _PIPELINE.items() if fast.exists else ():
        found = (fast.object(part).values or {"type": None}).get(key, wanted)
        if found != wanted:
            unlike[f"{part}.{key}"] = found
    more: list[tuple[JsonObject, Any]] = []
    for file in (config, JsonObject.read(directory / "special_tokens_map.json")):
        for key, wanted in _NAMED.items():
            if token_text(file, file.values.get(key)) not in (wanted, None):
                unlike[key] = token_text(file, file.values[key])
        more += [(file, token) for token in file.get("additional_special_tokens", list) or []]
        more += [(file, file.values.get(key)) for key in ("bos_token", "eos_token")]
        extra = file.values.get("extra_special_tokens")
        more += [(file, token) for token in (extra.values() if isinstance(extra, dict) else extra or ())]
    more += [(fast, token) for token in fast.get("added_tokens", list) or []]
    more += [(config, token) for token in config.object("added_tokens_decoder").values.values()]
    names = {token_text(file, token) for file, token in more}
    names |= set(JsonObject.read(directory / "added_tokens.json").values)
    if names - {None, *SPECIAL_TOKENS}:
        unlike["added_tokens"] = sorted(names - {None, *SPECIAL_TOKENS})
    if unlike:
        raise UsageError(
            "A model's tokenizer must be BERT's WordPiece without added tokens. "
            f"Received: {', '.join(f'{key}={reprlib.repr(value)}' for key, value in unlike.items())} in {directory}. "
            "Use another model."
        )
    return {named} - {None}


def token_text(file: JsonObject, token: Any) -> str | None:
    """The text of a token, which files give by itself or as an object."""
    return (
        token if isinstance(token, str) else JsonObject(file.path, {"token": token}).object("token").get("content", str)
    )


def _refuse_other_ends(fast: JsonObject, tokens: list[str]) -> None:
    """Raises UsageError if `tokenizer.json` makes anything but `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`."""
    found = fast.object("post_processor")
    ids = {token: tokens.index(token) for token in ("[CLS]", "[SEP]") if token in tokens}
    cls, a, sep = _special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, _special("[SEP]", 0)
    pair = [cls, a, sep, {"Sequence": {"id": "B", "type_id": 1}}, _special("[SEP]", 1)]
    kind = found.get("type", str)
    if kind == "TemplateProcessing":
        special = found.object("special_tokens")
        fits = (found.values.get("single"), found.values.get("pair")) == ([cls, a, sep], pair) and all(
            special.object(token).values.get("ids") == [id] for token, id in ids.items()
        )
    else:
        wanted = {part: [token, ids.get(token)] for part, token in (("cls", "[CLS]"), ("sep", "[SEP]"))}
        fits = kind == "BertProcessing" and all(found.values.get(part) == pair for part, pair in wanted.items())
    if not fits:
        raise UsageError(
            "tokenizer.json must put [CLS] and [SEP] around texts as BERT does. Received: "
            f"post_processor={reprlib.repr(found.values or None)} in {fast.path}. Use another model."
        )


def _special(token: str, type_id: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": type_id}}
