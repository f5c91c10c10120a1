"""The options of preparing a corpus and of pre-training on it. Imports nothing but the standard library.

`config` puts the dataclasses into `Config`; `commandline` makes flags of them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from tfbert.config.rules import TRAIN, at_least, option

CorpusFormat = Literal["auto", "sentences", "document", "jsonl", "parquet"]
RecordNames = Literal["v1", "v2"]
Engine = Literal["local", "beam"]
Masking = Literal["dynamic", "static"]

PRETRAINING = "pretraining"
"""What `--task` would call it; `run_pretraining.py` has no other."""
_ONLY = (PRETRAINING,)
_PREPARE = ("prepare",)
MASK_OPTIONS = (*_PREPARE, *TRAIN, "evaluate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How `--mode=prepare` makes records of a corpus."""

    input_files: tuple[str, ...] = option((), modes=_PREPARE, tasks=_ONLY)
    """The corpus: files, directories (all files in them) or patterns such as `corpus/*.jsonl.gz`, separated by commas.
    Empty: `dataset`, or the built-in corpus."""
    corpus_format: CorpusFormat = option("auto", modes=_PREPARE, tasks=_ONLY)
    """`sentences`: a sentence a line, a blank line between documents; `document`: a file is a document; `jsonl`,
    `parquet`: a document a row, its text in `text_column` (of several columns, one after the other). `auto`: parquet
    by its ending, jsonl by that or its first line; other files are `sentences` where they have blank lines, else
    refused with both choices. All but parquet also .gz."""
    language: str = option("en", modes=_PREPARE, tasks=_ONLY)
    """Of text that is not a sentence a line, as a code such as `de` or `zh`: its abbreviations end no sentence."""
    learn_vocab: int = option(0, modes=_PREPARE, tasks=_ONLY)
    """Learn a WordPiece vocabulary of this many tokens from the corpus, rather than read `vocab_file`."""
    dupe_factor: int = option(1, modes=_PREPARE, tasks=_ONLY)
    """How often the corpus is gone through: each time with other partners and masks. Training draws masks anew in each
    epoch by itself."""
    short_seq_prob: float = option(0.1, modes=_PREPARE, tasks=_ONLY)
    """Share of records whose target length is drawn at random rather than `max_seq_length`."""
    random_next_sentence: bool = option(True, modes=_PREPARE, tasks=_ONLY)
    """Records are two stretches of text, the second in half of them from another document, to be told apart. Otherwise
    whole sentences fill each record, as RoBERTa does."""
    num_shards: int = option(0, modes=_PREPARE, tasks=_ONLY)
    """Record files. 0: one for each 64 MB of the corpus as it is on the disk, at least 4 of 400 documents or more."""
    shards: str = option("", modes=_PREPARE, tasks=_ONLY)
    """Make only these of them, as `0-99` or `7`: one task of an array job. Empty: all."""
    num_processes: int = option(0, modes=_PREPARE, tasks=_ONLY)
    """Processes of this machine that make shards. 0: as many as it has cores."""
    engine: Engine = option("local", modes=_PREPARE, tasks=_ONLY)
    """`local`: processes of this machine; `beam`: an Apache Beam pipeline (`pip install tfbert[beam]`)."""
    beam_args: tuple[str, ...] = option((), modes=_PREPARE, tasks=_ONLY)
    """Options of the Beam pipeline, separated by commas, such as `--runner=FlinkRunner`. Empty: its local runner."""
    record_names: RecordNames = option("v1", modes=_PREPARE, tasks=_ONLY)
    """Names of the records' features: `v1` as Google's and NVIDIA's scripts have them, `v2` as Model Garden does."""
    compress_records: bool = option(False, modes=_PREPARE, tasks=_ONLY)
    """Write records as GZIP, which other trainers read too; this one unpacks them once."""

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = []
        for name, least in (("learn_vocab", 0), ("dupe_factor", 1), ("num_shards", 0), ("num_processes", 0)):
            out += at_least(name, getattr(self, name), least)
        if not 0 <= self.short_seq_prob <= 1:
            out.append(
                "short_seq_prob must be from 0 to 1. "
                f"Received: short_seq_prob={self.short_seq_prob}. Pass for example 0.1."
            )
        if self.shards and not re.fullmatch(r"\d+(-\d+)?", self.shards):
            out.append(
                "shards must be a number or a range of them. "
                f"Received: shards={self.shards!r}. Pass for example --shards=0-99."
            )
        if self.beam_args and self.engine != "beam":
            out.append(
                "beam_args are for engine=beam. "
                f"Received: beam_args={','.join(self.beam_args)!r} with engine={self.engine!r}. Add --engine=beam."
            )
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """What is masked, and what is pre-trained on."""

    train_records: tuple[str, ...] = option((), resume="content", modes=TRAIN, tasks=_ONLY)
    """Records to train on: a directory that `--mode=prepare` wrote, or TFRecord files or patterns, of other scripts
    too. Empty: the built-in corpus is prepared."""
    validation_records: tuple[str, ...] = option((), resume="content", modes=(*TRAIN, "evaluate"), tasks=_ONLY)
    """Records to evaluate on, likewise. Empty: no evaluation during training; of the built-in corpus a part."""
    masking: Masking = option("dynamic", resume="same", modes=TRAIN, tasks=_ONLY)
    """`dynamic`: words to mask are drawn anew in each epoch, from (seed, epoch, record); `static`: those of the
    records. Evaluation's are always the same."""
    masked_lm_prob: float = option(0.15, resume="same", modes=MASK_OPTIONS, tasks=_ONLY)
    """Share of a record's tokens that are predicted."""
    max_predictions_per_seq: int = option(0, resume="same", modes=MASK_OPTIONS, tasks=_ONLY)
    """Most tokens of a record that are predicted. 0: `masked_lm_prob` of `max_seq_length`, rounded up."""
    whole_word_masking: bool = option(False, resume="same", modes=MASK_OPTIONS, tasks=_ONLY)
    """Mask all pieces of a word together."""
    next_sentence: bool = option(True, resume="same", modes=TRAIN, tasks=_ONLY)
    """Train on whether the second stretch of text follows the first, where records say so."""
    skip_bad_records: bool = option(False, resume="content", modes=(*TRAIN, "evaluate"), tasks=_ONLY)
    """Leave out what follows a damaged record in its file, and count it, rather than stop."""

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = at_least("max_predictions_per_seq", self.max_predictions_per_seq, 0)
        if not 0 < self.masked_lm_prob < 1:
            out.append(
                "masked_lm_prob must be above 0 and below 1. "
                f"Received: masked_lm_prob={self.masked_lm_prob}. Pass for example 0.15."
            )
        return out
