"""The command's flags, for code beside the scripts, from `tfbert.commandline`. `presets/`: flags of known runs."""

from tfbert.commandline import config_from_flags, define_flags

__all__ = ["config_from_flags", "define_flags"]
