"""Questions with choices as token ids, a sequence for each choice; and batches of them, an example with all its choices
a row."""

from __future__ import annotations

import dataclasses
import reprlib
import zlib
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfbert.batches.inputs import TokenTensors, padded_inputs_in_graph
from tfbert.batches.packing import PackedShape
from tfbert.batches.pipeline import Batch, EncodedExamples
from tfbert.batches.plan import FILL
from tfbert.errors import UsageError
from tfbert.tasks.choosing.questions import Asked
from tfbert.tokens.ragged import ranges, splits_of
from tfbert.tokens.tokenizer import TokenIds, Tokenizer

NO_ROOM = "A row must hold a question, a choice, 3 special tokens and some of the context"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncodedChoices(EncodedExamples):
    """Examples of several choices: `tokens` has a sequence for each choice of each example, in their order. Labels and
    weights belong to examples.

    Plain batches are as those of `EncodedExamples`, but int32 `[rows, choices, width]` each, with as many choices as
    the example has that has most; one that an example does not have attends to a single token. Packed ones have each
    choice as a sequence of its own, those of an example one after the other, and `cls_positions` `[examples, choices]`,
    -1 where there is none.

    Attributes:
        splits: int64 `[n + 1]`: example i has the sequences `splits[i]` to `splits[i + 1]`.
        num_cut: How many examples have a context that is cut.
    """

    splits: np.ndarray
    num_cut: int
    may_be_cut: ClassVar[bool] = False  # What is cut is counted, rather than concluded from lengths.

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def counts(self) -> np.ndarray:
        """int64 `[n]`: how many choices each example has."""
        return np.diff(self.splits)

    @property
    def is_there(self) -> np.ndarray:
        """bool `[n, choices]`: which choices there are."""
        counts = self.counts
        return np.arange(counts.max(initial=0)) < counts[:, None]

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[n, choices]`: the tokens of each choice; 0 where there is none."""
        found = np.zeros(self.is_there.shape, np.int32)
        found[self.is_there] = self.tokens.lengths
        return found

    @property
    def crc32(self) -> int:
        return zlib.crc32(np.ascontiguousarray(self.splits).data.cast("B"), super().crc32)

    def gather(self, shape: PackedShape | None) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
        return _gather_rows(self) if shape is None else _gather_packed(self, shape)


class _Held:
    """Examples as tensors of the pipeline."""

    def __init__(self, examples: EncodedChoices):
        self.tokens = TokenTensors(
            flat=tf.constant(examples.tokens.flat),
            starts=tf.constant(examples.tokens.row_splits[:-1]),
            lengths=tf.constant(examples.tokens.lengths),
            second_start=tf.constant(examples.tokens.second_start),
            pad_id=examples.tokens.pad_id,
        )
        self.most = int(examples.counts.max())
        self._splits = tf.constant(examples.splits)
        self._labels, self._weights = tf.constant(examples.labels), tf.constant(examples.weights)

    def sequences(self, rows: tf.Tensor) -> tf.Tensor:
        """int64 `[rows, choices]`: the sequences of some examples; `FILL` where there is none."""
        row = tf.maximum(rows, 0)
        first, end = tf.gather(self._splits, row), tf.gather(self._splits, row + 1)
        found = first[:, None] + tf.range(self.most, dtype=tf.int64)
        return tf.where((rows != FILL)[:, None] & (found < end[:, None]), found, FILL)

    def labels(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Labels and weights of some examples, 0 each for `FILL`."""
        row, is_real = tf.maximum(rows, 0), rows != FILL
        labels, weights = tf.gather(self._labels, row), tf.gather(self._weights, row)
        return tf.where(is_real, labels, 0), tf.where(is_real, weights, 0.0)


def _gather_rows(examples: EncodedChoices) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    held = _Held(examples)

    def gather(rows: tf.Tensor, width: tf.Tensor, epoch: tf.Tensor) -> Batch:
        sequences = held.sequences(rows)
        padded = padded_inputs_in_graph(held.tokens, tf.reshape(sequences, [-1]), width)
        shape = tf.stack([tf.size(rows), held.most, width])
        inputs = {name: tf.reshape(values, shape) for name, values in padded.inputs.items()}
        return inputs, *held.labels(rows)

    return gather


def _gather_packed(examples: EncodedChoices, shape: PackedShape) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    held = _Held(examples)
    tokens, most = held.tokens, held.most
    part_size = shape.num_rows * shape.width

    def gather(rows: tf.Tensor, starts: tf.Tensor, epoch: tf.Tensor) -> Batch:
        sequences = held.sequences(rows)
        is_there, sequence = sequences != FILL, tf.maximum(sequences, 0)
        length = tf.where(is_there, tf.gather(tokens.lengths, sequence), 0)
        # The choices of an example stand one after the other, from where the example starts.
        firsts = starts[:, None] + tf.cumsum(length, axis=1, exclusive=True)
        part = tf.range(tf.size(rows)) // shape.num_examples
        in_part = tf.range(tf.size(rows)) % shape.num_examples
        number = in_part[:, None] * most + tf.range(most) + 1
        # From here on one element per token, sequence after sequence.
        flat_length = tf.reshape(length, [-1])
        of = tf.repeat(tf.range(tf.size(flat_length)), flat_length)
        position = tf.range(tf.size(of)) - tf.gather(tf.cumsum(flat_length, exclusive=True), of)
        own = tf.gather(tf.reshape(sequence, [-1]), of)
        source = tf.gather(tokens.starts, own) + tf.cast(position, tf.int64)
        target = tf.gather(tf.reshape(part[:, None] * part_size + firsts, [-1]), of) + position
        num_rows = tf.size(rows) // shape.num_examples * shape.num_rows

        def spread(values: tf.Tensor, empty: int) -> tf.Tensor:
            blank = tf.fill([num_rows * shape.width], empty)
            filled = tf.tensor_scatter_nd_update(blank, target[:, None], tf.cast(values, tf.int32))
            return tf.reshape(filled, [num_rows, shape.width])

        inputs = {
            "input_ids": spread(tf.gather(tokens.flat, source), tokens.pad_id),
            "token_type_ids": spread(position >= tf.gather(tokens.second_start, own), 0),
            "position_ids": spread(position, 0),
            "example_ids": spread(tf.gather(tf.reshape(number, [-1]), of), 0),
            "cls_positions": tf.where(is_there, firsts, -1),
        }
        return inputs, *held.labels(rows)

    return gather


def encode_choices(
    asked: Sequence[Asked],
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    labels: np.ndarray,
    where: Callable[[int], str],
) -> EncodedChoices:
    """Makes a sequence `[CLS] context [SEP] question choice [SEP]` for each choice; without a context, or without a
    question, `[CLS] question [SEP] choice [SEP]` or `[CLS] context [SEP] choice [SEP]`. A blank is between question and
    choice.

    Where it is too long, the end of the context is left out; never any of the question or the choice. Each distinct
    text is tokenized once, on all cores.

    Args:
        asked: The questions.
        tokenizer: The tokenizer.
        max_seq_length: Longest sequence, special tokens counted.
        labels: int32 `[n]`: the right choices.
        where: What messages call a question.

    Raises:
        UsageError: for a question and a choice that leave no room for the context, or that do not fit by themselves.
    """
    index: dict[str, int] = {}

    def known(text: str) -> int:
        return index.setdefault(text, len(index))

    counts = np.array([len(one.choices) for one in asked], np.int64)
    splits, example = splits_of(counts), np.repeat(np.arange(len(asked)), counts)
    first_of, second_of = np.zeros(len(asked), np.int64), np.zeros(len(example), np.int64)
    for row, one in enumerate(asked):
        first, second = parts_of(one)
        first_of[row] = known(first)
        seconds = [f"{second} {choice}" if second.strip() else choice for choice in one.choices]
        second_of[splits[row] : splits[row + 1]] = [known(text) for text in seconds]
    read = tokenizer.encode_with_offsets(list(index))
    sizes = np.diff(read.row_splits)

    first, second = sizes[first_of][example], sizes[second_of]
    has_context = np.array([bool(one.context.strip()) for one in asked], bool)[example]
    num_special = tokenizer.num_special(2)
    room = max_seq_length - num_special - second
    # Without a context, what comes first is the question, which must not be cut.
    needed = np.where(has_context, np.minimum(first, 1), first)
    for i in np.flatnonzero(room < needed)[:1]:
        choice = i - splits[example[i]]
        raise no_room_error(max_seq_length, asked[example[i]], choice, where(int(example[i])), num_special)
    kept = np.minimum(first, room)
    is_cut = np.zeros(len(asked), bool)
    is_cut[example[kept < first]] = True

    row_splits = splits_of(kept + second + num_special)
    flat = np.full(row_splits[-1], tokenizer.sep_id, np.int32)
    flat[row_splits[:-1]] = tokenizer.cls_id
    second_start = kept + 1 + tokenizer.separators
    parts = ((first_of[example], row_splits[:-1] + 1, kept), (second_of, row_splits[:-1] + second_start, second))
    for text, at, length in parts:
        flat[ranges(at, length)] = read.ids[ranges(read.row_splits[text], length)]
    if not tokenizer.has_token_types:
        second_start = np.diff(row_splits)
    return EncodedChoices(
        tokens=TokenIds(
            flat=flat, row_splits=row_splits, second_start=second_start.astype(np.int32), pad_id=tokenizer.pad_id
        ),
        labels=np.asarray(labels, np.int32),
        weights=np.ones(len(asked), np.float32),
        splits=splits,
        num_cut=int(is_cut.sum()),
    )


def parts_of(asked: Asked) -> tuple[str, str]:
    """What stands before the first `[SEP]`, and what before the choice after it."""
    return (asked.context, asked.question) if asked.context.strip() else (asked.question, "")


def no_room_error(max_seq_length: int, asked: Asked, choice: int, where: str, num_special: int) -> UsageError:
    """The error for a question and a choice that are too long."""
    rule = NO_ROOM.replace("3", str(num_special))
    return UsageError(
        f"{rule}: only the context is cut. Received: max_seq_length={max_seq_length}, too little for question "
        f"{reprlib.repr(asked.question)} and choice {reprlib.repr(asked.choices[choice])} in {where}. "
        "Pass a larger max_seq_length, or shorten them."
    )
