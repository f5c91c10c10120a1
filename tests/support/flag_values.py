"""What flags mean; and the model of tests whose model does not matter."""

from tfbert.commandline.command import parse
from tfbert.config.modes import ModelConfig
from tfbert.config.run import FINETUNE

SCRATCH = ModelConfig(model_name_or_path="scratch/tiny")


def parsed(*arguments, command=FINETUNE):
    """The configuration that flags describe."""
    return parse(command, [command.script, *arguments])
