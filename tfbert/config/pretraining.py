"""The options of preparing a corpus and of pre-training on it. Imports nothing but the standard library.

`config` puts the dataclasses into `Config`; `commandline` makes flags of them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal

from tfbert.config.rules import TRAIN, option
from tfbert.config.types import Options

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
    beam_args: tuple[str, ...] = option((), modes=_PREPARE, tasks=_ONLY)
    """Options of the Beam pipeline, separated by commas, such as `--runner=FlinkRunner`. Empty: Beam's local runner."""
    record_names: RecordNames = option("v1", modes=_PREPARE, tasks=_ONLY)
    """Names of the records' features: `v1` as in Google's and NVIDIA's scripts, `v2` as in Model Garden."""
    compress_records: bool = option(False, modes=_PREPARE, tasks=_ONLY)
    """Compress records with GZIP. Other trainers read that too; this one unpacks them once."""

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = []
        if self.shards and not re.fullmatch(r"\d+(-\d+)?", self.shards):
            rule = "shards must be a number or a range of numbers"
            out.append(f"{rule}. Received: shards={self.shards!r}. Pass for example --shards=0-99.")
        if self.beam_args and self.engine != "beam":
            rule = "beam_args are for engine=beam"
            todo = "Add --engine=beam."
            out.append(f"{rule}. Received: beam_args={','.join(self.beam_args)!r} with engine={self.engine!r}. {todo}")
        return out


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
    skip_bad_records: bool = option(False, resume="content", modes=(*TRAIN, "evaluate"), tasks=_ONLY)
    """Leave out a damaged record and the rest of its file, and count that, rather than stop."""

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
