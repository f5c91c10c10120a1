"""The commands' flags, apart from those of the process; and the model of tests whose model does not matter."""

from absl import flags as absl_flags

import flags
from tfbert.config.modes import ModelConfig
from tfbert.config.run import FINETUNE, Config
from tfbert.config.types import ALIASES

SCRATCH = ModelConfig(model_name_or_path="scratch/tiny")


def defined(command=FINETUNE):
    values = absl_flags.FlagValues()
    flags.define_flags(values, command)
    return values


def parsed(*arguments, command=FINETUNE):
    """The configuration that flags describe; no word is anything else."""
    values = defined(command)
    assert values([command.script, *arguments]) == [command.script]
    return flags.config_from_flags(values, command)


def configured(mode="train", **options):
    """The configuration that has these options, by their flags' names."""
    return Config().changed({ALIASES.get(name, name): value for name, value in options.items()}, mode)
