"""The options of tasks: several labels a text, tagging words, finding answers, choosing them; preparing a corpus and
pre-training on it. Imports nothing but the standard library."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from tfbert.config.types import EVALUATE, TRAIN, Options, option, problem
from tfbert.errors import UsageError

CorpusFormat = Literal["auto", "sentences", "paragraphs", "lines", "document", "jsonl", "parquet"]
RecordNames = Literal["v1", "v2"]
Engine = Literal["local", "beam"]
Masking = Literal["dynamic", "static"]

PRETRAINING = "pretraining"
"""The name of the task; `run_pretraining.py` has no other."""
_ONLY = (PRETRAINING,)
_PREPARE = ("prepare",)
MASK_OPTIONS = (*_PREPARE, *TRAIN, "evaluate")
_MASKED_LM_PROB = 0.15


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig(Options):
    """How `--mode=prepare` makes records of a corpus."""

    input_files: tuple[str, ...] = option((), modes=_PREPARE, tasks=_ONLY)
    """The corpus: files, directories (all files in them but records) or patterns such as `corpus/*.jsonl.gz`, separated
    by commas. Empty: `dataset`, or the built-in corpus."""
    corpus_format: CorpusFormat = option("auto", modes=_PREPARE, tasks=_ONLY)
    """`sentences`: one sentence per line, a blank line between documents; `paragraphs`: lines go on until a blank line,
    and what they are together is a document; `lines`: each line is a document; `document`: each file is a document, and
    no sentence goes on in the next line; `jsonl`, `parquet`: each row is a document, its text in `text_column` (if two
    are found by name, one after the other). `auto`: parquet by its ending, jsonl by its ending or first line; other
    files are `sentences` if they have blank lines, else they are refused and the choices are named. All but parquet may
    be .gz."""
    language: str = option("en", modes=_PREPARE, tasks=_ONLY)
    """Language of text that does not have one sentence per line, as a code such as `de` or `zh`: its abbreviations do
    not end a sentence."""
    learn_vocab: int = option(0, modes=_PREPARE, tasks=_ONLY, least=0)
    """Learn a WordPiece vocabulary of this many tokens from the corpus, rather than take that of a model or a file."""
    dupe_factor: int = option(1, modes=_PREPARE, tasks=_ONLY, least=1)
    """Passes over the corpus, each with different sentence pairs and masks. Training draws masks anew in each epoch
    anyway."""
    short_seq_prob: float = option(0.1, modes=_PREPARE, tasks=_ONLY, least=0, most=1)
    """Share of records whose target length is drawn at random rather than `max_seq_length`."""
    random_next_sentence: bool | None = option(None, modes=_PREPARE, tasks=_ONLY)
    """A record is two stretches of text; in half of the records the second is from another document, for next-sentence
    prediction. Otherwise whole sentences fill each record, as in RoBERTa. Unset: yes for BERT, no for other encoders,
    which have no head for it."""
    num_shards: int = option(0, modes=_PREPARE, tasks=_ONLY, least=0)
    """Number of record files. 0: one for each 64 MB of the corpus on disk, at least 4; a small corpus of fewer than 400
    documents has 1."""
    shards: str = option("", modes=_PREPARE, tasks=_ONLY)
    """Make only these shards, as `0-99` or `7`, in one task of an array job. Empty: all."""
    num_processes: int = option(0, modes=_PREPARE, tasks=_ONLY, least=0)
    """Processes on this machine that make shards. 0: one for each core."""
    engine: Engine = option("local", modes=_PREPARE, tasks=_ONLY)
    """`local`: processes of this machine; `beam`: an Apache Beam pipeline (`pip install -e '.[beam]'` in the clone)."""
    beam_args: tuple[str, ...] = option((), modes=_PREPARE, tasks=_ONLY, needs="engine=beam")
    """Options of the Beam pipeline, separated by commas, such as `--runner=FlinkRunner`. Empty: Beam's local runner."""
    record_names: RecordNames = option("v1", modes=_PREPARE, tasks=_ONLY)
    """Names of the records' features: `v1` as in Google's and NVIDIA's scripts, `v2` as in Model Garden."""
    compress_records: bool = option(False, modes=_PREPARE, tasks=_ONLY)
    """Compress records with GZIP. Other trainers read that too; this one unpacks them once."""

    def rules(self) -> Iterator[str]:
        """A line for each rule that it breaks."""
        if self.shards and not re.fullmatch(r"\d+(-\d+)?", self.shards):
            rule = "shards must be a number or a range of numbers"
            yield problem(rule, "Pass for example --shards=0-99.", shards=self.shards)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig(Options):
    """Which records to pre-train on, and which of their tokens are masked."""

    train_records: tuple[str, ...] = option((), resume="content", modes=TRAIN, tasks=_ONLY)
    """Records to train on: a directory that `--mode=prepare` wrote, or TFRecord files or patterns; other scripts' files
    too. Empty: the built-in corpus is prepared."""
    validation_records: tuple[str, ...] = option((), resume="content", modes=(*TRAIN, "evaluate"), tasks=_ONLY)
    """Records to evaluate on, likewise. Empty: no evaluation during training, or a part of the built-in corpus."""
    masking: Masking = option("dynamic", resume="same", modes=TRAIN, tasks=_ONLY)
    """`dynamic`: words to mask are drawn anew in each epoch, from (seed, epoch, record); `static`: the masks of the
    records are used. Evaluation always uses the same masks."""
    masked_lm_prob: float | None = option(None, resume="same", modes=MASK_OPTIONS, tasks=_ONLY, above=0, below=1)
    """Share of a record's tokens that are predicted. Default: 0.15 in new records, in training the share that the
    records were made with, later the share that the model was trained with."""
    max_predictions_per_seq: int = option(0, resume="same", modes=MASK_OPTIONS, tasks=_ONLY, least=0)
    """The most tokens of a record that are predicted. 0: `masked_lm_prob` of `max_seq_length`, rounded up."""
    whole_word_masking: bool | None = option(None, resume="same", modes=MASK_OPTIONS, tasks=_ONLY)
    """Mask all pieces of a word together; words are between blanks, each punctuation mark and each Chinese character by
    itself. Unset: no in new records, in training and later as for `masked_lm_prob`."""
    next_sentence: bool = option(True, resume="same", modes=TRAIN, tasks=_ONLY)
    """Train to predict whether the second stretch of text follows the first, where the records have that label, and the
    encoder is BERT: others have no head for it."""

    def with_masking(self, noted: Mapping[str, Any] | None = None) -> PretrainingConfig:
        """The same options, but what is masked is no longer left open.

        Args:
            noted: The options of records, or what a saved model recorded; values of another kind count as missing.
        """
        share, whole = (noted or {}).get("masked_lm_prob"), (noted or {}).get("whole_word_masking")
        if not isinstance(share, float) or not 0 < share < 1:
            share = _MASKED_LM_PROB
        return dataclasses.replace(
            self,
            masked_lm_prob=share if self.masked_lm_prob is None else self.masked_lm_prob,
            whole_word_masking=whole is True if self.whole_word_masking is None else self.whole_word_masking,
        )


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

    def rules(self) -> Iterator[str]:
        """A line for each rule that it breaks."""
        if self.top_k and self.column_per_label:
            rule = "With column_per_label, all labels are written"
            yield problem(rule, "Drop one.", top_k=self.top_k, column_per_label=True)


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

    def check_length(self, max_seq_length: int) -> None:
        """Refuses sizes that were asked for and do not go with rows of this length.

        Raises:
            UsageError: naming one.
        """
        most = most_room(max_seq_length)
        for name in ("max_query_length", "doc_stride"):
            if (value := getattr(self, name) or 0) > most:
                rule = f"{name} must be at most {most}: a row holds question and context, and windows skip nothing"
                todo = f"Pass a larger max_seq_length or a smaller {name}."
                raise UsageError(problem(rule, todo, max_seq_length=max_seq_length, **{name: value}))


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
