"""The command's flags, apart from those of the process."""

import copy
import functools

from absl import flags as absl_flags

import flags


@functools.cache
def once_defined():
    """Reading every field's docstring takes a while."""
    values = absl_flags.FlagValues()
    flags.define_flags(values)
    return values


def defined():
    return copy.deepcopy(once_defined())
