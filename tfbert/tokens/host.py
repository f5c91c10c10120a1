"""Tokenizers that Hugging Face's `tokenizers` computes on the host: byte-level BPE (RoBERTa, ModernBERT) and unigram
(XLM-R, CamemBERT), from `tokenizer.json`.

The ids are those of transformers' fast tokenizers with `split_special_tokens=True`, which `save` states: a special
token written in a text, such as `</s>`, is plain text. In unigram models, transformers finds such a token none the less
where it is a piece of the vocabulary; here it is spelled with other pieces. Tokens that were added for content, such as
ModernBERT's runs of blanks, are found in texts.
"""

from __future__ import annotations

import functools
import json
import math
import pathlib
import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tensorflow as tf

from tfbert.errors import UsageError
from tfbert.tokens.normalizer import FlatPieces
from tfbert.tokens.tokenizer import TOKENIZER_JSON, BertTokenizer, Tokenizer, map_texts, splits_of
from tfbert.tokens.vocabulary import JsonObject, class_name, ends, fast_tokenizer, named_tokens, token_text

if TYPE_CHECKING:
    import tokenizers

_CLASSES = {f"{name}Tokenizer{fast}" for name in ("Roberta", "XLMRoberta", "Camembert") for fast in ("", "Fast")}
_CLASSES |= {"PreTrainedTokenizerFast", "TokenizersBackend"}
"""transformers' classes whose ids are those of `tokenizer.json`."""
_KINDS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_KEPT = ("add_prefix_space", "clean_up_tokenization_spaces", "model_input_names", "model_max_length")
_KEPT += tuple(f"{kind}_token" for kind in _KINDS)
_USUAL = {kind: (f"<{kind}>", f"[{kind.upper()}]") for kind in ("pad", "unk", "mask")}
"""What tokens are called where no file says it: transformers' classes have these as defaults."""
_BLANK = "\u2581"
"""What a blank is in the vocabularies of SentencePiece."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_CHINESE, _LETTER = re.compile("[\udce4-\udce9]"), re.compile("[\udc80-\udcff]")
"""Bytes of UTF-8, as surrogates: those that a Chinese character begins with, and all that are no whole character."""
_PLAIN = (*range(33, 127), *range(161, 173), *range(174, 256))
_BYTES = {chr(byte): byte for byte in _PLAIN}
_BYTES |= {chr(256 + place): byte for place, byte in enumerate(sorted({*range(256)} - {*_PLAIN}))}
"""The bytes of byte-level BPE (Radford et al. 2019), by the characters that stand for them in its vocabulary."""
_HIDDEN = "\0 "
"""Before a special token's name where texts are searched: no text has both after it is split at blanks."""


class HostTokenizer(Tokenizer):
    """A tokenizer of `tokenizers`.

    Args:
        whole: What `tokenizer.json` holds.
        config: What `tokenizer_config.json` holds, see `save`.
        source: What messages call it.

    Raises:
        UsageError: for one that lacks a token to pad with, or puts other special tokens around texts than one before,
            one after, and one or two between.
    """

    in_graph: ClassVar[bool] = False
    most_per_character: ClassVar[float] = math.inf
    batch_size: ClassVar[int] = 4096  # Rows are made of them without a graph, 15 ms whatever their number.

    def __init__(self, whole: dict[str, Any], config: dict[str, Any], source: str):
        self._whole = whole | {"truncation": None, "padding": None}
        self._config, self._source = {name: config[name] for name in _KEPT if name in config}, source
        self._kind, self._asis = (self._whole, self._config), fast_tokenizer(self._whole, source)
        ids = self._asis.get_vocab(with_added_tokens=True)
        tokens = {id: token for token, id in ids.items()}
        self.vocab = tuple(tokens.get(id, "") for id in range(max(tokens) + 1))
        self.cls_id, self.sep_id, self.separators, has_types = ends(self._asis, source)
        self.has_token_types = has_types and "token_type_ids" in config.get("model_input_names", ["token_type_ids"])
        file = JsonObject(pathlib.Path(source), {})
        named = {kind: token_text(file, self._config.get(f"{kind}_token")) for kind in _KINDS}
        for kind, usual in _USUAL.items():
            named[kind] = named[kind] or next((token for token in usual if token in ids), None)
        named["cls"], named["sep"] = self.vocab[self.cls_id], self.vocab[self.sep_id]
        self.names = {kind: token for kind, token in named.items() if token is not None}
        absent = {kind: token for kind, token in self.names.items() if token not in ids}
        if absent or "pad" not in self.names:
            kind, token = next(iter(absent.items()), ("pad", None))
            rule = "A tokenizer must have a token to pad with, and all that its files name"
            received = f"{kind}_token={token!r} in {source}"
            raise UsageError(f"{rule}. Received: {received}. State {kind}_token in its tokenizer_config.json.")
        self.pad_id = ids[self.names["pad"]]
        self.unk_id = ids[self.names.get("unk", self.names["pad"])]
        self.mask_token = self.names.get("mask", "")
        self.mask_id = ids.get(self.mask_token)
        special = {*self.names.values()} | {token["content"] for token in whole["added_tokens"] if token["special"]}
        self.special_ids = tuple(sorted({ids[token] for token in special} | ({*range(len(self.vocab))} - {*tokens})))
        # Finds no special token in texts, neither as one nor as a piece of the vocabulary.
        self._plain = _without_control(self._whole, special)
        self._texts = fast_tokenizer(self._plain, source)
        self.mask_takes_blanks = any(t["lstrip"] and t["content"] == self.mask_token for t in whole["added_tokens"])

    def __reduce__(self) -> tuple:
        return type(self), (self._whole, self._config, self._source), self.notes()

    @property
    def casing(self) -> dict[str, Any]:
        return {TOKENIZER_JSON: self.crc32}

    @functools.cached_property
    def crc32(self) -> int:
        named = json.dumps([self._whole, sorted(self.names.items())])
        return zlib.crc32(named.encode("utf-8", "surrogatepass"))

    @property
    def file(self) -> tuple[str, str]:
        return TOKENIZER_JSON, json.dumps(self._whole, indent=2, ensure_ascii=False)

    @property
    def drawn_ids(self) -> np.ndarray:
        """All but special tokens and numbers of none."""
        return np.setdiff1d(np.arange(self.vocab_size), self.special_ids)

    @functools.cached_property
    def pieces(self) -> tuple[str, ...]:
        whole = self._whole
        is_bytes = '"ByteLevel"' in json.dumps([whole["pre_tokenizer"], whole["normalizer"]])
        literal = {token["content"] for token in whole["added_tokens"]}

        def text(token: str) -> str:
            if is_bytes and token not in literal and _BYTES.keys() >= {*token}:
                return bytes(map(_BYTES.get, token)).decode("utf-8", "surrogateescape")
            if whole["model"].get("byte_fallback") and _BYTE.fullmatch(token):
                return bytes.fromhex(token[3:5]).decode("utf-8", "surrogateescape")
            return token if is_bytes else token.replace(_BLANK, " ")

        return tuple(map(text, self.vocab))

    @property
    def shown_vocab(self) -> tuple[str, ...]:
        """With a blank as in SentencePiece's vocabularies, whichever tokenizer it is."""
        whole = (piece.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for piece in self.pieces)
        return tuple(piece.replace(" ", _BLANK) for piece in whole)

    @functools.cached_property
    def word_marks(self) -> tuple[np.ndarray, np.ndarray]:
        """Found beside a letter. A byte of a character counts as a letter, the first of a Chinese one as such a one."""
        pieces, find = self.pieces, functools.partial(_flat, _word_finder(), batch_size=8192)
        shown = [_LETTER.sub("x", _CHINESE.sub("\u4e00", piece)) for piece in pieces]
        after, before = find([f"x{piece}" for piece in shown]), find([f"{piece}x" for piece in shown])
        begins = after.ends[after.row_splits[:-1]] == 1
        ends = before.starts[before.row_splits[1:] - 1] == [len(piece) for piece in pieces]
        # A blank belongs to what follows it, and so does the beginning of a character.
        ends &= [bool(piece.strip()) and not _CHINESE.match(piece[-1]) for piece in pieces]
        return begins, ends

    @functools.cached_property
    def _words(self) -> tokenizers.Tokenizer:
        """Splits words, each as if a blank stood before it: as transformers with `add_prefix_space=True`."""
        return fast_tokenizer(_with_prefix_space(self._plain, True), self._source)

    def _rows(self, *columns: list[str], max_seq_length: int) -> Sequence[np.ndarray]:
        with tf.device("CPU:0"):
            texts = (tf.RaggedTensor.from_row_lengths(*self.ids_of(own), validate=False) for own in columns)
            ids, *others = self.rows(*texts, max_seq_length=max_seq_length)
            return [tensor.numpy() for tensor in (ids.values, ids.row_lengths(), *others)]

    def ids_of(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = [row.ids for row in self._texts.encode_batch_fast(texts, add_special_tokens=False)]
        flat = np.fromiter((id for row in rows for id in row), np.int32)
        return flat, np.fromiter(map(len, rows), np.int64, len(rows))

    def encode_with_offsets(self, texts: Sequence[str], *, batch_size: int = 1024) -> FlatPieces:
        return _flat(self._texts, texts, batch_size)

    def encode_words(self, words: Sequence[str]) -> FlatPieces:
        return _flat(self._words, words, 8192)

    def find_words(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = _flat(_word_finder(), texts, 1024)
        return found.starts, found.ends, found.row_splits

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        text = self._asis.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return self._tidied(text) if self._config.get("clean_up_tokenization_spaces") else text

    def _files(self, model_max_length: int, fills_masks: bool) -> dict[str, Any]:
        """`tokenizer.json` as it was read, and a configuration by which that file alone decides."""
        unusual = ("lstrip", "rstrip", "single_word")  # Tokens with such flags are written as objects.
        added = [token for token in self._whole["added_tokens"] if any(token[flag] for flag in unusual)]
        flagged = {each["content"]: {key: value for key, value in each.items() if key != "id"} for each in added}
        names = {f"{kind}_token": flagged.get(token, token) for kind, token in self.names.items()}
        objects = {name: {"__type": "AddedToken"} | token for name, token in names.items() if isinstance(token, dict)}
        # A class that transformers 4 and 5 both know, and for which both take what the file says.
        config = self._config | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": min(model_max_length, self._config.get("model_max_length") or model_max_length),
            "model_input_names": ["input_ids", *["token_type_ids"] * self.has_token_types, "attention_mask"],
            "split_special_tokens": not fills_masks,
        }
        return {
            "tokenizer_config.json": dict(sorted((config | names | objects).items())),
            "special_tokens_map.json": names,
            TOKENIZER_JSON: self._whole,
        }


def read_tokenizer(directory: pathlib.Path) -> Tokenizer:
    """The tokenizer of a model directory, whichever it is.

    Raises:
        UsageError: for files that describe none, contradict each other, or would give other ids in transformers.
    """
    fast = JsonObject.read(directory / TOKENIZER_JSON)
    model = fast.object("model").values
    if "merges" in model or isinstance(model.get("vocab"), list):  # BPE, or unigram.
        return _from_json(directory, fast)
    others = [*directory.glob("merges.txt"), *directory.glob("*.model")]
    if others and not fast.exists and not (directory / "vocab.txt").is_file():
        raise UsageError(
            f"Such a tokenizer is read from the {TOKENIZER_JSON} that transformers makes of it. Received: {others[0]} "
            'alone. Run: pip install transformers sentencepiece; python -c "from transformers import AutoTokenizer as '
            f"A; A.from_pretrained('{directory}').save_pretrained('{directory}')\"."
        )
    return BertTokenizer.from_pretrained(directory)


def _from_json(directory: pathlib.Path, fast: JsonObject) -> HostTokenizer:
    config = JsonObject.read(directory / "tokenizer_config.json")
    kind = class_name(config)
    if kind not in _CLASSES | {None}:
        raise UsageError(
            "A model's tokenizer must be one that its files describe whole: RoBERTa's, XLM-R's, CamemBERT's or "
            f"PreTrainedTokenizerFast. Received: tokenizer_class={kind!r} in {directory}. Use another model."
        )
    config.warn_of_side()
    named = JsonObject.read(directory / "special_tokens_map.json").values
    named = {key: value for key, value in named.items() if value is not None}
    config = JsonObject(config.path, named | config.values)
    whole = json.loads(fast_tokenizer(fast.values, str(fast.path)).to_str())  # Older files say the same in other words.
    stated = config.values.get("add_prefix_space")
    found = (whole["pre_tokenizer"] or {}).get("add_prefix_space")
    if found is not None and bool(stated) != found:
        if stated is None:  # transformers takes its absence for false.
            rule = "tokenizer.json and tokenizer_config.json must describe one tokenizer"
            received = f"pre_tokenizer.add_prefix_space=true in {fast.path}, which transformers takes as false"
            raise UsageError(f"{rule}. Received: {received}. State add_prefix_space in tokenizer_config.json.")
        whole = _with_prefix_space(whole, bool(stated))
    _refuse_other_tokens(directory, config, whole)
    return HostTokenizer(whole, config.values, str(directory))


def _refuse_other_tokens(directory: pathlib.Path, config: JsonObject, whole: dict[str, Any]) -> None:
    """Raises UsageError where other files name tokens that transformers would find in texts, and `tokenizer.json` does
    not."""
    known = {token["content"]: bool(token["special"]) for token in whole["added_tokens"]}
    model = whole["model"]["vocab"]
    known |= {token: True for token in (model if isinstance(model, dict) else dict(model)) if token not in known}
    # Where transformers finds those that are no special ones, these say.
    plain = {token["content"]: token for token in whole["added_tokens"] if not token["special"]}
    stated = {each.get("content"): each for each in config.object("added_tokens_decoder").values.values()}
    both = plain.keys() & stated.keys()
    moved = {text for text in both if any(stated[text].get(key, v) != v for key, v in plain[text].items())}
    for text, is_special in named_tokens(directory, config):
        if text is not None and (text not in known or is_special not in (None, known[text]) or text in moved):
            rule = "tokenizer.json and tokenizer_config.json must describe one tokenizer"
            received = f"token {text!r}, which tokenizer.json lacks or describes otherwise, in {directory}"
            todo = "Save it anew in transformers: AutoTokenizer.from_pretrained(D).save_pretrained(D)."
            raise UsageError(f"{rule}. Received: {received}. {todo}")


def _without_control(whole: dict[str, Any], special: set[str]) -> dict[str, Any]:
    """The same tokenizer, whose special tokens have names that no text holds."""

    def hidden(token: Any) -> Any:
        return _HIDDEN + token if token in special else token

    model = dict(whole["model"])
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {hidden(token): id for token, id in vocab.items()}
    else:
        model["vocab"] = [[hidden(token), score] for token, score in vocab]
    if "unk_token" in model:
        model["unk_token"] = hidden(model["unk_token"])
    added = [t | {"content": hidden(t["content"]), "special": t["content"] in special} for t in whole["added_tokens"]]
    return whole | {"model": model, "added_tokens": added}


def _with_prefix_space(whole: dict[str, Any], wanted: bool) -> dict[str, Any]:
    """The same tokenizer with another `add_prefix_space` where its pre-tokenizer has one."""

    def changed(part: dict[str, Any]) -> dict[str, Any]:
        inner = {"pretokenizers": [changed(each) for each in part["pretokenizers"]]} if "pretokenizers" in part else {}
        return part | inner | ({"add_prefix_space": wanted} if "add_prefix_space" in part else {})

    return whole | {"pre_tokenizer": changed(whole["pre_tokenizer"])} if whole["pre_tokenizer"] else whole


@functools.cache
def _word_finder() -> tokenizers.Tokenizer:
    """Finds words as BERT does: at spaces, around each punctuation character and around each CJK character."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    finder = tokenizers.Tokenizer(models.WordLevel({"": 0}, unk_token=""))
    finder.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=False)
    finder.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return finder


def _flat(tokenizer: tokenizers.Tokenizer, texts: Sequence[str], batch_size: int) -> FlatPieces:
    """Tokens of texts with their characters, blanks at both ends left out."""

    def pieces(chunk: list[str]) -> tuple[np.ndarray, ...]:
        rows = tokenizer.encode_batch(chunk, add_special_tokens=False)
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        ids = np.fromiter((id for row in rows for id in row.ids), np.int32)
        places = np.fromiter((place for row in rows for pair in row.offsets for place in pair), np.int64).reshape(-1, 2)
        return ids, *_without_blanks(chunk, lengths, *places.T), lengths

    *arrays, lengths = map_texts(pieces, texts, batch_size=batch_size)
    return FlatPieces(*arrays, splits_of(lengths))


def _without_blanks(
    texts: list[str], lengths: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """int32 [pieces] twice: starts and ends, moved past blanks; of a piece of blanks alone, both are its end."""
    origin = np.repeat(splits_of(np.fromiter(map(len, texts), np.int64, len(texts)))[:-1], lengths)
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    is_blank = np.isin(codes, [code for code in np.unique(codes).tolist() if chr(code).isspace()])
    place = np.arange(len(codes) + 1)
    after = np.minimum.accumulate(np.where(np.append(is_blank, False), len(codes), place)[::-1])[::-1]
    before = np.maximum.accumulate(np.where(np.append(False, is_blank), 0, place))
    first = np.minimum(after[starts + origin], ends + origin)
    last = np.maximum(before[ends + origin], first)
    return (first - origin).astype(np.int32), (last - origin).astype(np.int32)
