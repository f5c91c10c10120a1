"""What a tokenizer is to tasks; and BERT's WordPiece inside the TensorFlow graph, with the ids of `BertTokenizerFast`.

`host` has the tokenizers that only Hugging Face's library knows. WordPiece serves `tf.data` and a SavedModel that takes
raw text, so training and serving cannot disagree. One difference is intended: a special token written in a text, such
as a literal `[SEP]`, is plain text (`[`, `sep`, `]`), because a text must not be able to inject control ids. Hugging
Face does the same with `split_special_tokens=True`, which `save` states. (Setting it on the `backend_tokenizer` has no
effect: each call resets it.) `normalizer` lists the other differences: rare new characters.

Ragged rows in NumPy; and a function applied to many texts: on all cores, in order, with memory that does not grow with
long texts.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import json
import os
import pathlib
import re
import reprlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from tfbert.devices.process import is_watched
from tfbert.errors import UsageError
from tfbert.measure import counted_alone
from tfbert.output.logs import bar
from tfbert.private import check_not_forked
from tfbert.tokens.normalizer import FlatPieces, Pieces, find_pieces, normalize
from tfbert.tokens.vocabulary import MAX_WORD_CHARS, NORMALIZER_NAMES, SPECIAL_TOKENS, read_pretrained, read_vocab_file

__all__ = ["BertTokenizer", "TokenIds", "Tokenizer"]

TOKENIZER_JSON = "tokenizer.json"
_MAX_WORD_BYTES = 4 * MAX_WORD_CHARS
_MAX_TOKENS = 1_000_000  # Twice those of LaBSE, the largest known vocabulary; compiled in seconds.
_MAX_TOKEN_BYTES = 256  # The limit of FastWordpieceTokenizer.
_NOT_A_TOKEN = re.compile("[\r\n\0\ud800-\udfff]")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TokenIds:
    """Token ids of many rows, held flat in memory. `len()` is the number of rows.

    Attributes:
        flat: int32 [total]: the ids of all rows, one after the other.
        row_splits: int64 [n + 1]: row i is `flat[row_splits[i]:row_splits[i + 1]]`.
        second_start: int32 [n]: the position in its row at which segment B starts; the row's length for single texts.
        pad_id: The id that pads rows.
        splits: int64 [examples + 1]: example i has the rows `splits[i]` to `splits[i + 1]`; None where each has one.
    """

    flat: np.ndarray
    row_splits: np.ndarray
    second_start: np.ndarray
    pad_id: int = 0
    splits: np.ndarray | None = None

    @classmethod
    def of(cls, flat: np.ndarray, lengths: np.ndarray, second: np.ndarray, counts: np.ndarray, pad_id: int) -> Self:
        """From what `Tokenizer.rows` returns, as arrays."""
        splits = None if len(counts) == len(lengths) else splits_of(counts)
        return cls(flat=flat, row_splits=splits_of(lengths), second_start=second, pad_id=pad_id, splits=splits)

    @property
    def lengths(self) -> np.ndarray:
        """int32 [n]: tokens of each row, `[CLS]` and `[SEP]` counted."""
        return np.diff(self.row_splits).astype(np.int32)

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def thinned(self, most: int) -> TokenIds:
        """At most so many rows of each example, spread evenly over its own."""
        assert self.splits is not None
        counts = np.diff(self.splits)
        kept = np.minimum(counts, most)
        number, last = ranges(np.zeros_like(kept), kept), np.maximum(kept - 1, 1)
        rows = np.repeat(self.splits[:-1], kept)
        rows += number * np.repeat(counts - 1, kept) // np.repeat(last, kept)
        lengths = self.lengths[rows]
        flat = self.flat[ranges(self.row_splits[rows], lengths)]
        return TokenIds.of(flat, lengths, self.second_start[rows], kept, self.pad_id)


class Tokenizer(abc.ABC):
    """Text -> token ids, and what stands around texts: `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`, by whatever names.

    A special token written in a text is plain text: a text cannot inject control ids.

    Attributes:
        vocab: The tokens in the order of their ids.
        pad_id: The id that pads rows.
        unk_id: The id of what the vocabulary lacks.
        cls_id: The id before all texts.
        sep_id: The id after each text.
        mask_id: The id of a masked place; None where there is none.
        mask_token: What a masked place is in a text to fill in.
        mask_takes_blanks: Whether the blanks before it are part of it.
        separators: How many `sep_id` stand between two texts: 1, or 2 as in RoBERTa.
        has_token_types: Whether the model is told which of two texts a token is of.
        long_texts: What rows keep of texts that are too long, see `cutting`.
        special_ids: The ids that pre-training never predicts.
        casing: What besides the vocabulary decides the ids of a text, as JSON can hold it.
        file: The file that decides the ids of words: its name and its content.
        pieces: What each token is in a text, with the blank before it. A byte that is a part of a character is a
            surrogate, as Python's `surrogateescape` has it.
        word_marks: bool [vocab_size] twice: the tokens that begin a word wherever they stand, and those after which one
            begins. Words are BERT's: between blanks, each punctuation mark and each Chinese character by itself.
        in_graph: Whether it can be part of a SavedModel.
        most_per_character: The most tokens of a character: three, those of Hangul's letters.
        batch_size: The most texts that are encoded together.
    """

    vocab: tuple[str, ...]
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int | None
    mask_token: str = "[MASK]"
    mask_takes_blanks: bool = False
    separators: int = 1
    has_token_types: bool = True
    long_texts: str = "cut"
    special_ids: tuple[int, ...]
    casing: dict[str, Any]
    file: tuple[str, str]
    pieces: tuple[str, ...]
    word_marks: tuple[np.ndarray, np.ndarray]
    in_graph: ClassVar[bool] = True
    most_per_character: ClassVar[float] = 3
    batch_size: ClassVar[int] = 1024
    _kind: tuple[Any, ...]
    """All that decides the ids of a text."""

    def __eq__(self, other: object) -> bool:
        own = self._kind, self.long_texts, self.has_token_types
        return isinstance(other, Tokenizer) and own == (other._kind, other.long_texts, other.has_token_types)

    def __hash__(self) -> int:
        return self.crc32

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.vocab)

    @functools.cached_property
    def crc32(self) -> int:
        """A checksum of the vocabulary, and of what `casing` does not say in words."""
        return zlib.crc32("\n".join(self.vocab).encode("utf-8", "surrogatepass"))

    def cutting(self, long_texts: str) -> Self:
        """The same tokenizer, whose rows keep of texts that are too long the beginning, `cut`, or a quarter of the
        tokens at the beginning and three quarters at the end, `first_last`; or that makes several rows of them, which
        have all tokens, `windows`: see `rows`."""
        other = copy.copy(self)
        other.long_texts = long_texts
        return other

    def notes(self) -> dict[str, str]:
        """What a saved model must record about it besides its files, as JSON can hold it."""
        return {} if self.long_texts == "cut" else {"long_texts": self.long_texts}

    @property
    def drawn_ids(self) -> np.ndarray:
        """The ids that pre-training puts in a word's place at random: all, as in Google's script."""
        return np.arange(self.vocab_size)

    @property
    def shown_vocab(self) -> tuple[str, ...]:
        """The tokens in the order of their ids, for people to read."""
        return self.vocab

    @abc.abstractmethod
    def ids_of(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of texts without special ones, as one call computes them: int32 ids of all, one text after the
        other, and int64 how many each has."""

    def num_special(self, num_texts: int) -> int:
        """The special tokens of a row of one text, or of two."""
        return 2 + self.separators * (num_texts - 1)

    def encode(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, *, max_seq_length: int) -> TokenIds:
        """Makes model inputs from a whole data set, on all cores, in order.

        Args:
            texts: n texts.
            text_pairs: n second texts, or None.
            max_seq_length: Longest row, special tokens counted. In a pair, the longer text is cut first, as with
                Hugging Face's `truncation=True`.

        Raises:
            UsageError: if there are not as many second texts as texts, or `max_seq_length` is too small.
        """
        if text_pairs is not None and len(text_pairs) != len(texts):
            rule = "Every text needs its second text"
            raise UsageError(f"{rule}. Received: {len(texts)} texts, {len(text_pairs)} second texts. Check the data.")
        columns = [texts] if text_pairs is None else [texts, text_pairs]
        rows = functools.partial(self._rows, max_seq_length=max_seq_length)
        arrays = map_texts(rows, *columns, batch_size=self.batch_size)
        return TokenIds.of(*arrays, pad_id=self.pad_id)

    @abc.abstractmethod
    def _rows(self, *columns: list[str], max_seq_length: int) -> Sequence[np.ndarray]:
        """What `TokenIds.of` takes, of one or two columns of texts."""

    @abc.abstractmethod
    def encode_with_offsets(self, texts: Sequence[str], *, batch_size: int = 1024) -> FlatPieces:
        """The tokens of a whole data set without special ones, and the characters of each; on all cores, in order.

        Args:
            texts: n texts.
            batch_size: Most texts handled at a time; fewer where texts are long.
        """

    def encode_words(self, words: Sequence[str]) -> FlatPieces:
        """As `encode_with_offsets`, for single words of sentences."""
        return self.encode_with_offsets(words, batch_size=8192)

    @abc.abstractmethod
    def find_words(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The words of texts, which BERT splits at spaces, around punctuation and around CJK characters.

        Returns:
            int32 `[words]` twice: the character of its text at which each word starts, and one past its last, its
            accents counted; int64 `[n + 1]`: text i has the words `splits[i]:splits[i + 1]`.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Token ids as text, as Hugging Face's tokenizer of what `save` writes decodes them."""

    @staticmethod
    def _tidied(text: str) -> str:
        """A decoded text without blanks before punctuation, by transformers' `clean_up_tokenization_spaces`."""
        for end in (".", "?", "!", ",", "' ", "n't", "'m", "'s", "'ve", "'re"):
            text = text.replace(f" {end}", end.rstrip())
        return text

    def save(self, directory: str | pathlib.Path, *, model_max_length: int = 512, fills_masks: bool = False) -> None:
        """Writes the files from which Hugging Face's libraries load a tokenizer that gives the same ids.

        Args:
            directory: Created if it does not exist.
            model_max_length: The most tokens the model has positions for.
            fills_masks: Whether a mask written in a text is a place to fill in. As `transformers` finds all special
                tokens or none, it finds the others too.
        """
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in self._files(model_max_length, fills_masks).items():
            text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False)
            (directory / name).write_text(text, encoding="utf-8", newline="\n")

    @abc.abstractmethod
    def _files(self, model_max_length: int, fills_masks: bool) -> dict[str, Any]:
        """What `save` writes by the files' names: texts, and what becomes JSON."""

    def rows(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None, *, max_seq_length: int
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Rows of texts that are tokenized, cut to a length, or in windows of that length.

        Of a text that is too long, windows are as few rows as hold all its tokens, each as long as a row may be; they
        start at equal distances, the first at the beginning, and the last ends at the end. Of a pair, each window has
        as much of either text as a row that is cut: a text that would not be cut is whole in each.

        Args:
            first: int32 [n, None], ids without special tokens.
            second: The same of second texts, or None.
            max_seq_length: As for `encode`.

        Returns:
            int32 [rows, None] ids; int32 [rows] `second_start`, see `TokenIds`; and int64 [n], the rows of each text, 1
            where there are no windows.

        Raises:
            UsageError: if `max_seq_length` has no room for the special tokens, and windows none for a token of each
                text.
        """
        texts = [first] if second is None else [first, second]
        num_special, has_windows = self.num_special(len(texts)), self.long_texts == "windows"
        least, beside = (num_special + len(texts), " and a token of each text") if has_windows else (num_special, "")
        if max_seq_length < least:
            rule = f"max_seq_length must hold {num_special} special tokens{beside}"
            raise UsageError(f"{rule}. Received: max_seq_length={max_seq_length}. Pass a larger one.")
        room, totals = max_seq_length - num_special, [text.row_lengths() for text in texts]
        sizes = [tf.minimum(totals[0], room)] if second is None else _longest_first(totals[0], totals[1], room)
        counts = tf.ones_like(totals[0])
        if has_windows:
            needed = (-(-total // tf.maximum(size, 1)) for total, size in zip(totals, sizes, strict=True))
            counts = tf.reduce_max([counts, *needed], axis=0)
        numbers = tf.ragged.range(counts)
        text, last = numbers.value_rowids(), tf.maximum(counts - 1, 1)
        parts = []
        for tokens, total, size in zip(texts, totals, sizes, strict=True):
            start, size, lost = (tf.gather(each, text) for each in (tokens.row_starts(), size, total - size))
            start += numbers.values * lost // tf.gather(last, text)
            if self.long_texts == "first_last":
                head = tf.where(lost > 0, (size + 3) // 4, 0)
                ends = [tf.ragged.range(start, start + head), tf.ragged.range(start + lost + head, start + lost + size)]
                parts.append(tf.gather(tokens.values, tf.concat(ends, axis=1)))
            else:
                parts.append(tf.gather(tokens.values, tf.ragged.range(start, start + size)))
        return *self.joined(*parts), counts

    def joined(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """As `rows`, of texts that are not to be cut."""
        cls, sep = (tf.fill([first.nrows(), 1], id) for id in (self.cls_id, self.sep_id))
        parts = [cls, first, sep] if second is None else [cls, first, *[sep] * self.separators, second, sep]
        ids: Any = tf.concat(parts, axis=1)
        if second is None or not self.has_token_types:
            return ids, tf.cast(ids.row_lengths(), tf.int32)
        return ids, tf.cast(first.row_lengths() + 1 + self.separators, tf.int32)


def beginnings(tokens: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first tokens of each row, as many as `lengths` says, int64 [n]."""
    return tf.gather(tokens.values, tf.ragged.range(tokens.row_starts(), tokens.row_starts() + lengths))


class BertTokenizer(Tokenizer):
    """WordPiece (Devlin et al. 2018; algorithm of Song et al. 2020) over a fixed vocabulary.

    Tokenizers of the same vocabulary and casing are equal, and share what is traced.

    Args:
        vocab: The tokens; a token's position is its id. Special ids are looked up by name, so any order works.
        do_lower_case: Lower-case texts: for uncased models.
        strip_accents: Strip accents. None: as `do_lower_case`.
        tokenize_chinese_chars: Make every CJK character a word of its own.

    Raises:
        UsageError: if `vocab` lacks a special token, or holds a token twice or one that no vocabulary can have.

    Examples:
        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "deep", "##er"])
        >>> tokenizer(tf.constant(["Deeper"]), max_seq_length=8)[0].to_list()
        [[2, 5, 6, 3]]
    """

    def __init__(
        self,
        vocab: Sequence[str],
        *,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ):
        import tensorflow_text as tf_text

        self.vocab = tuple(vocab)
        self.casing = {
            "do_lower_case": do_lower_case,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": tokenize_chinese_chars,
        }
        if len(self.vocab) > _MAX_TOKENS:
            rule = f"A vocabulary must have at most {_MAX_TOKENS:,} tokens"
            raise UsageError(f"{rule}. Received: {len(self.vocab):,}. Use another.")
        ids: dict[str, int] = {}
        for i, token in enumerate(self.vocab):  # An empty one is fine: SciBERT has it.
            is_text = not _NOT_A_TOKEN.search(token)
            if token in ids or not is_text or len(token.removeprefix("##").encode()) > _MAX_TOKEN_BYTES:
                first = f", first seen as token {ids[token]}" if token in ids else ""
                raise UsageError(
                    "Every token of a vocabulary must occur once, have no line breaks, be valid Unicode and at most "
                    f"{_MAX_TOKEN_BYTES} bytes long. Received: {reprlib.repr(token)} as token {i} (counted from 0)"
                    f"{first}. Repair the vocabulary."
                )
            ids[token] = i
        missing = [token for token in SPECIAL_TOKENS if token not in ids]
        if missing:
            rule = f"A BERT vocabulary must hold {' '.join(SPECIAL_TOKENS)}"
            received = f"{len(ids)} tokens without {' '.join(missing)}"
            raise UsageError(f"{rule}. Received: {received}. Use the model's own vocabulary.")
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[token] for token in SPECIAL_TOKENS)
        self.special_ids = self.pad_id, self.cls_id, self.sep_id
        with tf.init_scope(), tf.device("CPU:0"):  # The compiled vocabulary must not belong to a particular graph.
            self._wordpiece = tf_text.FastWordpieceTokenizer(
                list(self.vocab),
                max_bytes_per_word=_MAX_WORD_BYTES,
                token_out_type=tf.int32,  # pyright: ignore[reportArgumentType] - the same class, imported from two places
                no_pretokenization=True,
            )
        self._kind = self.vocab, *self.casing.values()

    def __reduce__(self) -> tuple:
        state = self.notes() | {"has_token_types": self.has_token_types}
        return functools.partial(type(self), **self.casing), (self.vocab,), state  # Without what was traced.

    @property
    def do_lower_case(self) -> bool:
        """Whether texts are lower-cased."""
        return self.casing["do_lower_case"]

    @property
    def file(self) -> tuple[str, str]:
        return "vocab.txt", "".join(f"{token}\n" for token in self.vocab)

    @functools.cached_property
    def pieces(self) -> tuple[str, ...]:
        return tuple(token[2:] if token.startswith("##") else f" {token}" for token in self.vocab)

    @functools.cached_property
    def word_marks(self) -> tuple[np.ndarray, np.ndarray]:
        begins = np.array([not token.startswith("##") for token in self.vocab], bool)
        return begins, np.zeros_like(begins)

    def ids_of(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        return _traced(_flat_ids, self)(texts)

    @classmethod
    def from_vocab_file(cls, path: str | pathlib.Path, **casing: Any) -> BertTokenizer:
        """Reads a vocabulary, one token per line.

        Args:
            path: The file, UTF-8.
            **casing: `do_lower_case`, `strip_accents`, `tokenize_chinese_chars`, as for the constructor.

        Raises:
            UsageError: if there is no such file, or it is not a vocabulary.
        """
        return cls._of(path, read_vocab_file(path), casing)

    @classmethod
    def from_pretrained(cls, directory: str | pathlib.Path, **options: Any) -> BertTokenizer:
        """Reads a model directory: `vocab.txt`, or else the vocabulary in `tokenizer.json`.

        The casing is what `tokenizer_config.json` says, as for transformers. Where no file says whether text is
        lower-cased, it is, and a line is logged.

        Raises:
            UsageError: if neither file exists, they contradict each other, they describe a tokenizer that would give
                other ids than this one, or none says how a vocabulary with capitals or accents is cased.
        """
        _check_own(options)
        vocab, casing, has_token_types = read_pretrained(pathlib.Path(directory))
        found = cls._of(directory, vocab, casing)
        found.has_token_types = has_token_types
        return found

    @classmethod
    def _of(cls, source: str | pathlib.Path, vocab: list[str], casing: Mapping[str, Any]) -> BertTokenizer:
        try:
            return cls(vocab, **casing)
        except UsageError as error:
            raise UsageError(f"{source}: {error}") from None

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts into wordpieces. Works eagerly, in `tf.data` and in a SavedModel.

        Args:
            text: string [n].

        Returns:
            int32 [n, None] ids without special tokens.
        """
        return self._wordpiece.tokenize(_words(normalize(text, **self.casing))).merge_dims(-2, -1)  # pyright: ignore[reportReturnType]

    def tokenize_with_offsets(self, text: tf.Tensor) -> Pieces:
        """Splits texts into wordpieces and finds the characters of each. Works wherever `tokenize` does.

        Args:
            text: string [n].

        Returns:
            The ids of `tokenize`, and for each piece and each word its characters in `text`.
        """
        with tf.device("CPU:0"):  # In a SavedModel too: there is too little work for a GPU.
            normalized = normalize(text, **self.casing)
            return find_pieces(text, normalized, _words(normalized), self._wordpiece, self.unk_id, self.casing)

    def __call__(
        self, text: tf.Tensor, text_pair: tf.Tensor | None = None, *, max_seq_length: int = 0, **options: Any
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Makes model inputs: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

        Args:
            text: string [n].
            text_pair: string [n] or None.
            max_seq_length: Longest row, special tokens counted. In a pair, the longer text is cut first, as with
                Hugging Face's `truncation=True`.

        Returns:
            int32 [n, None] ids and int32 [n] `second_start`, where segment B starts; the row's length without a pair.

        Raises:
            UsageError: if `max_seq_length` has no room for the special tokens.
        """
        _check_own(options)
        second = None if text_pair is None else self.tokenize(text_pair)
        return self.rows(self.tokenize(text), second, max_seq_length=max_seq_length)[:2]

    def _rows(self, *columns: list[str], max_seq_length: int) -> Sequence[np.ndarray]:
        return _traced(_flat_rows, self, len(columns), max_seq_length=max_seq_length)(*columns)

    def encode_with_offsets(self, texts: Sequence[str], *, batch_size: int = 1024) -> FlatPieces:
        ids, starts, ends, lengths, *_ = map_texts(_traced(_flat_pieces, self), texts, batch_size=batch_size)
        return FlatPieces(ids, starts, ends, splits_of(lengths))

    def find_words(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        *_, starts, ends, lengths = map_texts(_traced(_flat_pieces, self), texts)
        return starts, ends, splits_of(lengths)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        from tokenizers import decoders

        tokens = [self.vocab[id] for id in ids]
        skipped = SPECIAL_TOKENS if skip_special_tokens else ()
        return self._tidied(decoders.WordPiece().decode([token for token in tokens if token not in skipped]))

    def _files(self, model_max_length: int, fills_masks: bool) -> dict[str, Any]:
        """`vocab.txt` and the JSON files of Hugging Face's tokenizers.

        A special token written in a text stays text: for transformers by `split_special_tokens`; for `tokenizers`,
        whose files cannot say that, because `tokenizer.json` names no tokens to find in texts.
        """
        from tokenizers import Tokenizer as Fast
        from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

        ids = {token: id for id, token in enumerate(self.vocab)}
        names = {f"{token.strip('[]').lower()}_token": token for token in sorted(SPECIAL_TOKENS)}
        exact = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        # As transformers 4 writes them.
        config = {
            "added_tokens_decoder": {str(ids[token]): {"content": token} | exact for token in SPECIAL_TOKENS},
            "clean_up_tokenization_spaces": True,
            "do_basic_tokenize": True,
            "extra_special_tokens": {},
            "model_max_length": model_max_length,
            "never_split": None,
            **({} if self.has_token_types else {"model_input_names": ["input_ids", "attention_mask"]}),
            "split_special_tokens": not fills_masks,
            "tokenizer_class": "BertTokenizer",
        }
        fast: Any = Fast(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS))
        fast.normalizer = normalizers.BertNormalizer(**{NORMALIZER_NAMES[name]: v for name, v in self.casing.items()})
        fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        fast.post_processor = processors.TemplateProcessing(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", self.cls_id), ("[SEP]", self.sep_id)]
        )
        fast.decoder = decoders.WordPiece()
        if fills_masks:
            fast.add_special_tokens(["[MASK]"])
        return {
            "tokenizer_config.json": dict(sorted((config | self.casing | names).items())),
            "special_tokens_map.json": names,
            TOKENIZER_JSON: json.loads(fast.to_str()),
            **dict([self.file]),
        }


@functools.lru_cache(maxsize=16)
def _traced(compute: Callable[..., Any], tokenizer: BertTokenizer, num_columns: int = 1, **options: Any) -> Any:
    """A function of tensors of texts as one of lists of texts, which returns arrays. Tracing takes a second, and a
    process may train or load several models alike: tokenizers that are equal share it."""

    # Autograph would hide a UsageError.
    @counted_alone(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)] * num_columns)
    def traced(*texts):
        return compute(tokenizer, *texts, **options)

    def call(*columns: list[str]) -> tuple[np.ndarray, ...]:
        with tf.device("CPU:0"):
            found = traced(*(tf.constant(texts, tf.string, [len(texts)]) for texts in columns))
            return tuple(tensor.numpy() for tensor in found)

    return call


def _flat_rows(tokenizer: BertTokenizer, *texts: tf.Tensor, max_seq_length: int) -> tuple[tf.Tensor, ...]:
    """`__call__` for flat arrays."""
    ids, *others = tokenizer.rows(*map(tokenizer.tokenize, texts), max_seq_length=max_seq_length)
    return ids.values, ids.row_lengths(), *others


def _flat_pieces(tokenizer: BertTokenizer, text: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """The pieces of `tokenize_with_offsets`, and its words, as flat arrays."""
    ids, starts, ends, _, *words = tokenizer.tokenize_with_offsets(text)
    pieces = ids.values, starts.values, ends.values, ids.row_lengths()
    return *pieces, *(part.values for part in words), words[0].row_lengths()


def _flat_ids(tokenizer: BertTokenizer, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`tokenize` as flat arrays."""
    ids = tokenizer.tokenize(texts)
    return ids.values, ids.row_lengths()


def _check_own(options: Mapping[str, Any]) -> None:
    """Refuses the arguments of transformers' class of this name."""
    if options:
        raise UsageError(
            "tfbert.BertTokenizer tokenizes in graphs, and has other arguments than transformers'. "
            f"Received: {', '.join(options)}. Write `from transformers import BertTokenizer`, and "
            'tokenizer(texts, padding=True, return_tensors="np").'
        )


def _words(normalized: tf.Tensor) -> tf.RaggedTensor:
    """string [n, words]: the words for WordPiece to split. A word of too many characters becomes one of too many bytes,
    which WordPiece maps to [UNK]."""
    too_long = f"[^ ]{{{MAX_WORD_CHARS + 1},}}"
    return tf.strings.split(tf.strings.regex_replace(normalized, too_long, "x" * (_MAX_WORD_BYTES + 1)))


def _longest_first(first: tf.Tensor, second: tf.Tensor, room: int) -> tuple[tf.Tensor, tf.Tensor]:
    """How many tokens each pair of rows of these lengths keeps of `room` in total, int64 [n], as `truncate_encodings`
    of Hugging Face's tokenizers has it."""
    short = tf.minimum(tf.minimum(first, second), room // 2)
    is_longer, fits = first > second, first + second <= room
    keep_first, keep_second = tf.where(is_longer, room - short, short), tf.where(is_longer, short, room - short)
    return tf.where(fits, first, keep_first), tf.where(fits, second, keep_second)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int64 [sum of lengths]: the ranges `start, start + 1, ...` of these lengths, concatenated."""
    shifts = starts - (np.cumsum(lengths, dtype=np.int64) - lengths)
    return np.repeat(shifts, lengths) + np.arange(len(shifts) and np.sum(lengths))


def splits_of(lengths: np.ndarray) -> np.ndarray:
    """int64 [n + 1]: where rows of these lengths start and end in a flat array."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


SECONDS_WITHOUT_BAR = 2.0
_CHUNK_CHARACTERS = 1 << 22  # Handed to one call.
_SURROGATE = re.compile("[\ud800-\udfff]")


def map_texts(
    function: Callable[..., Sequence[np.ndarray]], *columns: Sequence[str], batch_size: int = 1024
) -> tuple[np.ndarray, ...]:
    """Calls a function on chunks of texts, in threads, and joins what it returns; with a bar where somebody watches and
    it takes long.

    Args:
        function: Takes a list of texts for each column, returns arrays.
        *columns: Texts, equally many in each.
        batch_size: Most texts in a chunk; fewer if texts are long.

    Returns:
        For each array that `function` returns, one: the results of all chunks, concatenated along axis 0.

    Raises:
        UsageError: in a process forked from one that had used TensorFlow.
    """
    check_not_forked()
    columns = tuple([without_surrogates(text) for text in column] for column in columns)
    chunks, first, size = [], 0, 0
    sizes = [sum(map(len, row)) for row in zip(*columns, strict=True)]
    for row, own in enumerate(sizes):
        if row > first and (row - first >= batch_size or size + own > _CHUNK_CHARACTERS):
            chunks.append(slice(first, row))
            first, size = row, 0
        size += own
    chunks.append(slice(first, len(sizes)))  # At least one, so that the arrays are there.
    options = {"desc": "tokenizing", "leave": False, "delay": SECONDS_WITHOUT_BAR, "disable": not is_watched()}
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        parts = threads.map(lambda chunk: function(*(column[chunk] for column in columns)), chunks)
        parts = list(bar(iterable=parts, total=len(chunks), **options))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def without_surrogates(text: str) -> str:
    """A text with U+FFFD in the place of lone surrogates, which JSON can contain and UTF-8 has no form for: so they are
    dropped later, and the characters after them keep their places."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
