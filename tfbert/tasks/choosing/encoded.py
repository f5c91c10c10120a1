"""Questions with choices as token ids, a sequence for each choice; and batches of them, an example with all its choices
a row."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from tfbert.batches.pipeline import EncodedExamples
from tfbert.errors import UsageError
from tfbert.tasks.choosing.questions import Asked
from tfbert.tokens.ragged import ranges, splits_of
from tfbert.tokens.tokenizer import TokenIds, Tokenizer

NO_ROOM = "A row must hold a question, a choice, 3 special tokens and some of the context"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncodedChoices(EncodedExamples):
    """Examples of several choices: `tokens` has a sequence for each choice of each example, in their order. Labels and
    weights belong to examples.

    Attributes:
        num_cut: How many examples have a context that is cut.
    """

    num_cut: int
    may_be_cut: ClassVar[bool] = False  # What is cut is counted, rather than concluded from lengths.

    @property
    def counts(self) -> np.ndarray:
        """int64 `[n]`: how many choices each example has."""
        return np.diff(self.splits)

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[n, choices]`: the tokens of each choice; 0 where there is none."""
        counts = self.counts
        is_there = np.arange(counts.max(initial=0)) < counts[:, None]
        found = np.zeros(is_there.shape, np.int32)
        found[is_there] = self.tokens.lengths
        return found


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
            flat=flat,
            row_splits=row_splits,
            second_start=second_start.astype(np.int32),
            pad_id=tokenizer.pad_id,
            splits=splits,
        ),
        labels=np.asarray(labels, np.int32),
        weights=np.ones(len(asked), np.float32),
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
