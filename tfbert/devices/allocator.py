"""Freed memory stays with the process: glibc's malloc is set up for TensorFlow, before TensorFlow is imported.

By default glibc returns large freed blocks to the kernel, and the threads that compute allocate from arenas of their
own, whose heaps of 64 MB hold few large tensors. So in each step the kernel maps and zeroes the activations' memory
anew: on some machines 40% of a step. With one arena that grows in large pieces and never shrinks, a step reuses the
memory of the step before. Nothing is preloaded, and no process is started twice. See mallopt(3).
"""

from __future__ import annotations

import ctypes
import os
import platform

_SETTINGS = {
    # No block is mapped by itself, whatever its size. Raising M_MMAP_THRESHOLD, the size from which blocks are, does
    # not last: TensorFlow sets it to 128 KiB when it makes a data set from a Python generator
    # (`ApplyPython311MemoryPatch`).
    -4: (0, {"MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "mmap_max", "mmap_threshold"}),
    # The heap does not shrink.
    -1: ((1 << 31) - 1, {"MALLOC_TRIM_THRESHOLD_", "trim_threshold"}),
    # All threads share one arena: other arenas' heaps cannot hold a large tensor, and threads can reuse each other's
    # freed memory.
    -8: (1, {"MALLOC_ARENA_MAX", "arena_max"}),
    # The heap grows by 256 MB at a time; pages that are not touched take no memory.
    -2: (1 << 28, {"MALLOC_TOP_PAD_", "top_pad"}),
}
"""By a parameter of mallopt, its number in malloc.h: its value, and what a user sets instead, in the environment or in
GLIBC_TUNABLES."""


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
    own = {parameter: value for parameter, (value, instead) in _SETTINGS.items() if not given & instead}
    return any([libc.mallopt(parameter, value) for parameter, value in own.items()])  # A list: all of them.
