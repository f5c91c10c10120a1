"""Which options each command has: the same machinery, and flags for what its user can mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tfbert.config.pretraining import PRETRAINING
from tfbert.config.rules import EVERY, OF_MODELS, Mode
from tfbert.config.run import Config

_OF_CORPORA = ("dataset", "data_dir", "text_column", "skip_bad_rows", "max_seq_length")
_OF_RECORDS = ("batching", "max_train_examples", "max_eval_examples")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A script at the top of the repository.

    Attributes:
        script: Its name.
        modes: What it can do.
        leaves_out: Parts of `Config` whose options it does not have.
        only: Of a part, the options that it has; parts that are not named it has whole.
        task: The one that it trains; empty where its user says.
    """

    script: str
    modes: tuple[Mode, ...]
    leaves_out: tuple[str, ...]
    only: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    task: str = ""

    def options(self) -> dict[str, tuple[str, ...]]:
        """The names of its options, by the part of `Config` that they belong to."""
        parts = {
            part.name: part.default_factory
            for part in dataclasses.fields(Config)
            if part.default_factory is not dataclasses.MISSING and part.name not in self.leaves_out
        }
        return {
            name: self.only.get(name, tuple(field.name for field in dataclasses.fields(part)))
            for name, part in parts.items()
        }


FINETUNE = Command(script="run_finetune.py", modes=OF_MODELS, leaves_out=("corpus", "pretraining"))
PRETRAIN = Command(
    script="run_pretraining.py",
    modes=tuple(mode for mode in EVERY if mode not in ("predict", "export")),
    leaves_out=("tagging", "answering", "predict", "export"),
    only={"data": (*_OF_CORPORA, *_OF_RECORDS)},
    task=PRETRAINING,
)


def command_of(config: Config) -> Command:
    """The command that a configuration is for."""
    return PRETRAIN if config.data.task == PRETRAIN.task else FINETUNE
