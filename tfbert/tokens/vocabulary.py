"""The vocabulary and the casing of a model directory, as its files state them; and vocabularies that are read from a
file, or learned from text.

Hugging Face's trainer merges the most frequent pairs, as in "Japanese and Korean Voice Search" (Schuster and Nakajima
2012) and byte pair encoding. It numbers the characters in the order of a hash table, and breaks ties between pairs of
equal count by these numbers. So it is given all characters in a fixed order first; then its result is always the same.

transformers lower-cases whatever does not say `"do_lower_case": false` in `tokenizer_config.json`, cased vocabularies
too. Here these are refused then. Otherwise the same directory gives the same ids as with transformers' `AutoTokenizer`,
or is refused.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.data.reading import read_json_object, read_text
from tfbert.devices.process import log_if_slow
from tfbert.errors import UsageError, first_line
from tfbert.output.logs import PassProgress
from tfbert.tokens.normalizer import effective_casing

if TYPE_CHECKING:
    import tokenizers

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
        received = f"{path} with {blank} blank lines at its end, from line {len(tokens) - blank + 1}"
        raise UsageError(f"A vocabulary must hold one token per line. Received: {received}. Remove them.")
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
        rule = "A vocabulary is learned from words"
        raise UsageError(f"{rule}. Received: {len(texts):,} {unit} without one. Check the data.")
    num_first = len(SPECIAL_TOKENS) + np.cumsum(1 + continues)
    if is_sample and num_first[-1] > vocab_size:
        rule = f"A vocabulary needs room for the corpus's {num_first[-1]:,} characters"
        raise UsageError(f"{rule}. Received: learn_vocab={vocab_size}. Pass a larger one, or --vocab_file.")
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
_CLASSES = {f"{name}Tokenizer{fast}" for name in ("Bert", "DistilBert", "Electra") for fast in ("", "Fast")}
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
NORMALIZER_NAMES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""A casing's options, and what tokenizer.json calls them."""
_KINDS = {bool: "true or false", dict: "an object", list: "a list", str: "a word"}

# bert-base-cased has capitals in 29% of its words. SciBERT's uncased vocabulary, made without lower-casing everything,
# has them in 0.5%, and accents in 1.4%.
_FEW_CAPITALS, FEW_ACCENTS = 0.02, 0.05

Casing = dict[str, bool]


def read_pretrained(directory: pathlib.Path) -> tuple[list[str], Casing, bool]:
    """Reads the vocabulary and the casing of a model directory; logs where no file states it.

    Args:
        directory: Holds `vocab.txt` or `tokenizer.json`, and maybe `tokenizer_config.json`.

    Returns:
        The vocabulary; `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` where they are not the tokenizer's
        defaults; and whether second texts have a type of their own, as for transformers.

    Raises:
        UsageError: if there is no vocabulary, the files describe another tokenizer than BERT's, or they contradict each
            other.
    """
    config, fast = JsonObject.read(directory / "tokenizer_config.json"), JsonObject.read(directory / "tokenizer.json")
    found = _casing_in(fast.object("normalizer"), NORMALIZER_NAMES)
    kind = class_name(config)
    _refuse_unlike(directory, config, fast, kind)
    tokens = _read_tokens(directory, fast)
    if fast.exists and not {*SPECIAL_TOKENS} - {*tokens}:  # Else BertTokenizer says which is missing.
        around = ends(fast_tokenizer(fast.values, str(fast.path)), str(fast.path))
        if around != (tokens.index("[CLS]"), tokens.index("[SEP]"), 1, True):
            raise UsageError(
                "tokenizer.json must put [CLS] and [SEP] around texts as BERT does, and give second texts a type of "
                f"their own. Received: {fast.path}, which does not. Use another model."
            )
    config.warn_of_side()
    names = config.get("model_input_names", list)  # Unless they say it, it is as for the class, or that of the model.
    of = (kind or JsonObject.read(directory / "config.json").get("model_type", str) or "").lower()
    has_types = not of.startswith("distilbert") if names is None else "token_type_ids" in names
    if fast.exists and kind in _OF_TOKENIZER_JSON:
        return tokens, found, has_types
    # transformers' class for BERT takes the casing from tokenizer_config.json, or its own defaults, and overwrites what
    # tokenizer.json says: that counts where both are the same.
    stated = _casing_in(config)
    if "strip_accents" in config.values:  # By null too: as lower-casing.
        found.pop("strip_accents", None)
    found = {key: value for key, value in found.items() if key not in stated}
    casing = _decided(found | stated, tokens, fast if "do_lower_case" in found else config)
    if "do_lower_case" not in found | stated:
        log.info("Text is lower-cased, as the vocabulary suggests.")
    ours, theirs = effective_casing(**casing), effective_casing(**stated)
    for key in found:
        if ours[key] != theirs[key]:
            raise UsageError(
                "tokenizer.json and tokenizer_config.json must describe one tokenizer. Received: normalizer."
                f"{NORMALIZER_NAMES[key]}={json.dumps(ours[key])} in {fast.path}, which transformers takes as "
                f"{json.dumps(theirs[key])}. State {key} in tokenizer_config.json."
            )
    return tokens, casing, has_types


def read_casing(directory: pathlib.Path, tokens: Sequence[str]) -> Casing:
    """The casing for a vocabulary by itself: what `directory/tokenizer_config.json` states, else `_decided`.

    Raises:
        UsageError: if the file is not JSON, states anything but true or false, or nothing where it must.
    """
    config = JsonObject.read(directory / "tokenizer_config.json")
    return _decided(_casing_in(config), tokens, config)


def _decided(casing: Casing, tokens: Sequence[str], file: JsonObject) -> Casing:
    """The casing: where no file states it, text is lower-cased and loses its accents, as transformers has it.

    A word with a capital letter is never found in lower-cased text, nor one with an accent where accents are dropped.

    Args:
        casing: As it is stated.
        tokens: The vocabulary.
        file: Where it is stated, or should be.

    Raises:
        UsageError: where a vocabulary has such words, and no file states the casing.
    """
    if casing.get("do_lower_case") is False:
        return casing
    state = {"do_lower_case": False}
    words, share = "capitals", _share_of_capitals(tokens)
    if "do_lower_case" in casing:
        if share > _FEW_CAPITALS:
            log.warning(
                "Text is lower-cased, as %s says, but %.0f%% of the vocabulary's words have capitals and are never "
                "found then.",
                file.path,
                100 * share,
            )
        return casing
    if share <= _FEW_CAPITALS:
        words, share, state = "accents", share_of_accents(tokens), {"do_lower_case": True, "strip_accents": False}
        if share <= FEW_ACCENTS or "strip_accents" in casing:
            return {"do_lower_case": True} | casing
    rule = "A file must say how text is cased, where the vocabulary has words that lower-cased text has not"
    received = f"{words} in {share:.0%} of its words, and no do_lower_case in {file.path}"
    todo = f"Write {json.dumps(state)} there, or what else the model was trained with."
    raise UsageError(f"{rule}. Received: {received}. {todo}")


def share_of_accents(tokens: Sequence[str]) -> float:
    """The share of words with an accent, among those with a letter."""

    def plain(word: str) -> str:
        return "".join(char for char in unicodedata.normalize("NFD", word) if unicodedata.category(char) != "Mn")

    return _share([plain(word) != word for word in _words_of(tokens) if any(map(str.isalpha, word))])


def _share_of_capitals(tokens: Sequence[str]) -> float:
    """The share of words with a capital, among those of letters that have capitals: not Chinese ones, or numbers."""
    return _share([word != word.lower() for word in _words_of(tokens) if not word == word.lower() == word.upper()])


def _words_of(tokens: Sequence[str]) -> list[str]:
    return [token.removeprefix("##") for token in tokens if not token.startswith("[")]


def _share(found: list[bool]) -> float:
    return sum(found) / len(found) if found else 0.0


def _casing_in(file: JsonObject, names: Mapping[str, str] | None = None) -> Casing:
    """What a file says of the casing, under its own names for the options."""
    found = {key: file.get((names or {}).get(key, key), bool) for key in NORMALIZER_NAMES}
    return {key: value for key, value in found.items() if value is not None}


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
            rule = f"A tokenizer's file must give {key} as {_KINDS[kind]}"
            raise UsageError(f"{rule}. Received: {key}={reprlib.repr(value)} in {self.path}. Repair the file.")
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
            rule = "A BERT model directory must hold its vocabulary"
            received = f"{directory} without vocab.txt and tokenizer.json"
            raise UsageError(f"{rule}. Received: {received}. Add one, or pass --vocab_file.")
        return listed
    ids = fast.object("model").get("vocab", dict) or {}
    if not all(type(id) is int for id in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        rule = "The ids of a vocabulary must be 0 to n - 1"
        raise UsageError(f"{rule}. Received: others in {directory / 'tokenizer.json'}. Repair the file.")
    tokens = sorted(ids, key=ids.get)
    if listed is None or listed == tokens:
        return tokens
    both = enumerate(itertools.zip_longest(map(repr, listed), map(repr, tokens), fillvalue="absent"))
    place, first, second = next((place, *pair) for place, pair in both if pair[0] != pair[1])
    raise UsageError(
        "vocab.txt and tokenizer.json of a directory must hold the same vocabulary. Received: token "
        f"{place} (counted from 0) is {first:.60} in vocab.txt and {second:.60} in tokenizer.json, in {directory}. "
        "Remove the file that is not the model's."
    )


def class_name(config: JsonObject) -> str | None:
    """transformers' class for the tokenizer, if `tokenizer_config.json` names one, or `config.json` beside it."""
    model = JsonObject.read(config.path.with_name("config.json"))
    return config.get("tokenizer_class", str) or model.get("tokenizer_class", str)


def _refuse_unlike(directory: pathlib.Path, config: JsonObject, fast: JsonObject, kind: str | None) -> None:
    """Raises UsageError if the files describe another algorithm, other special tokens, or tokens to find in texts."""
    unlike = {} if kind in _CLASSES | _OF_TOKENIZER_JSON | {None} else {"tokenizer_class": kind}
    for (part, key), wanted in _PIPELINE.items() if fast.exists else ():
        found = (fast.object(part).values or {"type": None}).get(key, wanted)
        if found != wanted:
            unlike[f"{part}.{key}"] = found
    files = config, JsonObject.read(directory / "special_tokens_map.json")
    names = {token for token, _ in named_tokens(directory, *files)}
    names |= {token_text(fast, token) for token in fast.get("added_tokens", list) or []}
    for file in files:
        found = {key: token_text(file, file.values.get(key)) for key in (*_NAMED, "bos_token", "eos_token")}
        names |= {found.pop("bos_token"), found.pop("eos_token")}
        unlike |= {key: token for key, token in found.items() if token not in (_NAMED[key], None)}
    if names - {None, *SPECIAL_TOKENS}:
        unlike["added_tokens"] = sorted(names - {None, *SPECIAL_TOKENS})
    if unlike:
        rule = "A model's tokenizer must be BERT's WordPiece without added tokens"
        received = f"{', '.join(f'{key}={reprlib.repr(value)}' for key, value in unlike.items())} in {directory}"
        raise UsageError(f"{rule}. Received: {received}. Use another model.")


def named_tokens(directory: pathlib.Path, *files: JsonObject) -> list[tuple[str | None, bool | None]]:
    """The tokens to find in texts that files beside `tokenizer.json` name, and whether as special ones, if they say."""
    found = [(token, None) for token in JsonObject.read(directory / "added_tokens.json").values]
    for file in files:
        decoder, extra = file.object("added_tokens_decoder").values.values(), file.values.get("extra_special_tokens")
        found += [(token_text(file, token), bool(token.get("special"))) for token in decoder]
        special = [*(file.get("additional_special_tokens", list) or [])]
        special += extra.values() if isinstance(extra, dict) else extra or []
        found += [(token_text(file, token), True) for token in special]
    return found


def token_text(file: JsonObject, token: Any) -> str | None:
    """The text of a token, which files give by itself or as an object."""
    return (
        token if isinstance(token, str) else JsonObject(file.path, {"token": token}).object("token").get("content", str)
    )


def fast_tokenizer(whole: dict[str, Any], source: str) -> tokenizers.Tokenizer:
    """The tokenizer that a `tokenizer.json` describes, of single texts and pairs as long as they are.

    Raises:
        UsageError: for what `tokenizers` does not read.
    """
    import tokenizers

    try:
        found = tokenizers.Tokenizer.from_str(json.dumps(whole | {"truncation": None, "padding": None}))
    except Exception as error:  # tokenizers raises nothing more specific.
        rule = f"tokenizer.json must be one that the installed tokenizers {tokenizers.__version__} reads"
        received = f"{first_line(error)} in {source}"
        raise UsageError(f"{rule}. Received: {received}. Use another version, or another model.") from None
    found.encode_special_tokens = True
    return found


def ends(tokenizer: tokenizers.Tokenizer, source: str) -> tuple[int, int, int, bool]:
    """The special tokens around texts: the one before, the one after, how many of these are between two, and whether
    the second text has a type of its own."""
    single, pair = tokenizer.encode("a"), tokenizer.encode("a", "a")
    ids, of = np.array(pair.ids), [{None: -1}.get(text, text) for text in pair.sequence_ids]
    fits = {0, 1} <= {*of}
    if fits:
        end, second = len(of) - 1 - of[::-1].index(0), of.index(1)
        between, are_ends = ids[end + 1 : second], of[:2] == [-1, 0] and of[-2:] == [1, -1]
        fits = are_ends and 1 <= len(between) <= 2 and {*between, ids[-1]} == {ids[-1]}
    if not fits or single.ids != [ids[0], *ids[1 : end + 1], ids[-1]]:
        rule = "tokenizer.json must put one special token before texts, one after, and one or two of these between two"
        raise UsageError(f"{rule}. Received: {' '.join(pair.tokens)} in {source}. Use another model.")
    return int(ids[0]), int(ids[-1]), len(between), pair.type_ids[second] != pair.type_ids[1]
