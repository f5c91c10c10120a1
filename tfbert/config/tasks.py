"""The options of several labels a text, of tagging words, of finding answers and of choosing them. Imports nothing but
the standard library.

`config` puts the dataclasses into `Config`; `commandline` makes flags of them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from tfbert.config.pretraining import PretrainingConfig
from tfbert.config.rules import EVALUATE, TRAIN, option
from tfbert.config.types import Options
from tfbert.errors import UsageError

_MULTI_LABEL = ("multi_label_classification",)
_TAGGING = ("token_classification",)
_ANSWERING = ("question_answering",)
_CHOOSING = ("multiple_choice",)
MAX_QUERY_LENGTH, DOC_STRIDE = 64, 128
N_BEST_SIZE, MAX_ANSWER_LENGTH = 20, 30
_SPECIAL = 3
"""The special tokens of a row with a question and a context."""


def window_sizes(max_seq_length: int, doc_stride: int | None, max_query_length: int | None) -> tuple[int, int]:
    """`doc_stride` and `max_query_length` for rows of some length; where None is given, what suits it.

    A question gets at most half of a row, and windows share half of what the longest question leaves, so that an answer
    at the end of one is whole in the next. For rows of 384 tokens this is 128 and 64, as published.
    """
    shortest = min(max_query_length or MAX_QUERY_LENGTH, max_seq_length // 2)
    room = max_seq_length - _SPECIAL - shortest
    return doc_stride or max(min(DOC_STRIDE, room // 2), 1), max_query_length or shortest


def most_room(max_seq_length: int) -> int:
    """The tokens of a row that a question of one token leaves for the context, or the reverse."""
    return max_seq_length - _SPECIAL - 1


LabelThreshold = float | Literal["auto", "auto_per_label"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiLabelConfig(Options):
    """How several labels of a text are read, and which of them are given."""

    label_separator: str = option("", resume="content", modes=EVALUATE, tasks=_MULTI_LABEL)
    """What separates the labels of a row that has them in one column, such as `|`. Empty: the one of `|`, `;` and `,`
    that occurs in the labels; the log says which."""
    label_threshold: LabelThreshold | None = option(None, resume="same", tasks=_MULTI_LABEL, above=0, below=1)
    """A text gets each label whose probability is above this. In training also `auto`, the one by which F1 is best on
    the first validation set (micro F1, or macro or sample F1 where that decides which weights are kept), or
    `auto_per_label`, for each label the one by which its F1 is best; the model remembers them. Default: in training
    0.5, later the model's own."""
    top_k: int = option(0, modes=("predict",), tasks=_MULTI_LABEL, least=0)
    """Give each text this many labels, the most probable ones, in place of those above the threshold. 0: do not."""
    column_per_label: bool = option(False, modes=("predict",), tasks=_MULTI_LABEL)
    """Write the probability of each label in a column of its own, as Kaggle's submissions have it, in place of lists
    of labels."""

    @property
    def threshold(self) -> float | None:
        """The threshold, where it is a number."""
        return None if isinstance(self.label_threshold, str) else self.label_threshold

    @property
    def chooses_threshold(self) -> bool:
        """Whether validation decides about it."""
        return isinstance(self.label_threshold, str)

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        if self.top_k and self.column_per_label:
            rule = "With column_per_label, all labels are written"
            return [f"{rule}. Received: top_k={self.top_k} beside it. Drop one of them."]
        return []


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingConfig(Options):
    """How words are tagged."""

    label_all_tokens: bool = option(False, resume="same", modes=TRAIN, tasks=_TAGGING)
    """Train on every piece of a word, rather than on its first alone. A word's tag is that of its first piece either
    way."""
    strict_entities: bool = option(False, resume="same", tasks=_TAGGING)
    """Count only entities that the tags' scheme allows: in IOB2, those that start at B-. By default, as in conlleval,
    an I- with no entity of its type before it also starts one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnsweringConfig(Options):
    """How answers are found in contexts longer than a row, and which of them is given."""

    doc_stride: int | None = option(None, resume="same", tasks=_ANSWERING, least=1)
    """Context tokens from the start of one window to the start of the next: a stride, as in Google's BERT, not the
    overlap that Hugging Face's run_qa calls doc_stride. Where a long question leaves less room, the next window starts
    where the one before ends. Default: in training 128, in short rows half of what the longest question leaves; later
    the value that the model was trained with."""
    max_query_length: int | None = option(None, resume="same", tasks=_ANSWERING, least=1)
    """Longest question in tokens; longer ones are cut. Default: in training 64, but at most half of a row; later the
    value that the model was trained with."""
    version_2_with_negative: bool = option(False, resume="same", tasks=_ANSWERING)
    """Some questions have no answer in their context, as in SQuAD 2.0. A model trained with it remembers this."""
    null_score_diff_threshold: float = option(0.0, resume="same", tasks=_ANSWERING, below=math.inf)
    """Give no answer where the score of having none exceeds the best answer's score by more than this. For models
    trained with `version_2_with_negative`."""
    n_best_size: int = option(N_BEST_SIZE, resume="same", tasks=_ANSWERING, least=1)
    """How many of the best starts and ends of each window are combined, and how many answers a question keeps."""
    max_answer_length: int = option(MAX_ANSWER_LENGTH, resume="same", tasks=_ANSWERING, least=1)
    """Longest answer in tokens."""
    keep_misaligned_answers: bool = option(False, resume="content", modes=TRAIN, tasks=_ANSWERING)
    """Look elsewhere in its context for an answer that is not where the data says. Otherwise training leaves it out;
    evaluation keeps it either way."""

    def check_length(self, max_seq_length: int) -> None:
        """Refuses sizes that were asked for and do not go with rows of this length.

        Raises:
            UsageError: naming one.
        """
        most = most_room(max_seq_length)
        if self.max_query_length is not None and self.max_query_length > most:
            rule = "A row must hold a question, 3 special tokens and some of the context"
            received = f"max_seq_length={max_seq_length} for questions of max_query_length={self.max_query_length}"
            todo = "Pass a larger max_seq_length or a smaller max_query_length."
            raise UsageError(f"{rule}. Received: {received} tokens. {todo}")
        if self.doc_stride is not None and self.doc_stride > most:
            rule = "doc_stride must be at most the tokens of context in a window, or windows skip some"
            where = f"where a question of one token leaves {most} of max_seq_length={max_seq_length}"
            todo = "Pass a smaller doc_stride or a larger max_seq_length."
            raise UsageError(f"{rule}. Received: doc_stride={self.doc_stride} {where}. {todo}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoosingConfig(Options):
    """Where the choices of a question are."""

    choice_columns: tuple[str, ...] = option((), resume="content", tasks=_CHOOSING)
    """The columns of a question's choices: one with lists, or one for each choice, of which the last may be empty.
    Then `text_column` names context and question, or the only one of these. Default: found by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """All options of single tasks, and what else they depend on."""

    multi_label: MultiLabelConfig = dataclasses.field(default_factory=MultiLabelConfig)
    tagging: TaggingConfig = dataclasses.field(default_factory=TaggingConfig)
    answering: AnsweringConfig = dataclasses.field(default_factory=AnsweringConfig)
    choosing: ChoosingConfig = dataclasses.field(default_factory=ChoosingConfig)
    pretraining: PretrainingConfig = dataclasses.field(default_factory=PretrainingConfig)
    seed: int = 0
    """The run's seed; decides which words are masked."""
    model_type: str = "bert"
    """The encoder that is trained; decides whether it has a head for next sentences."""
