"""Freed memory stays with the process: glibc's malloc is set up for TensorFlow, before TensorFlow is imported.

By default glibc returns large freed blocks to the kernel, and the threads that compute allocate from arenas of their
own, whose heaps of 64 MB hold few large tensors. So in each step the kernel maps and zeroes the activations' memory
anew: on some machines 40% of a step. With one arena that grows in large pieces and never shrinks, a step reuses the
memory of the step before. Nothing is preloaded, and no process is started twice. See mallopt(3).
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Setting:
    """One call of mallopt.

    Attributes:
        parameter: Its number in malloc.h.
        value: What it is set to.
        variables: What a user sets in the environment instead.
        tunables: The same in GLIBC_TUNABLES.
    """

    parameter: int
    value: int
    variables: tuple[str, ...]
    tunables: tuple[str, ...]


_SETTINGS = (
    # No block is mapped by itself, whatever its size. Raising M_MMAP_THRESHOLD, the size from which blocks are, does
    # not last: TensorFlow sets it to 128 KiB when it makes a data set from a Python generator
    # (`ApplyPython311MemoryPatch`).
    _Setting(
        parameter=-4,
        value=0,
        variables=("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_"),
        tunables=("mmap_max", "mmap_threshold"),
    ),
    # The heap does not shrink.
    _Setting(parameter=-1, value=(1 << 31) - 1, variables=("MALLOC_TRIM_THRESHOLD_",), tunables=("trim_threshold",)),
    # All threads share one arena: other arenas' heaps cannot hold a large tensor, and threads can reuse each other's
    # freed memory.
    _Setting(parameter=-8, value=1, variables=("MALLOC_ARENA_MAX",), tunables=("arena_max",)),
    # The heap grows by 256 MB at a time; pages that are not touched take no memory.
    _Setting(parameter=-2, value=1 << 28, variables=("MALLOC_TOP_PAD_",), tunables=("top_pad",)),
)


def keep_freed_memory() -> bool:
    """Lets this process keep freed memory for its next use. Call it before TensorFlow, or anything else that starts
    threads, is imported; later it helps less, and harms nothing.

    Whatever the environment sets (`MALLOC_ARENA_MAX` and the like, or `GLIBC_TUNABLES`) is left as it is.

    Returns:
        Whether anything was set: False without glibc, or if the environment sets all of it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    tunables = {part.partition("=")[0] for part in os.environ.get("GLIBC_TUNABLES", "").split(":")}
    given = {*os.environ, *(name.removeprefix("glibc.malloc.") for name in tunables)}
    own = [setting for setting in _SETTINGS if not given & {*setting.variables, *setting.tunables}]
    return any([libc.mallopt(setting.parameter, setting.value) for setting in own])  # A list: all of them.
