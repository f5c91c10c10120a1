"""The command's flags, apart from those of the process."""

from absl import flags as absl_flags

import flags


def defined():
    values = absl_flags.FlagValues()
    flags.define_flags(values)
    return values
