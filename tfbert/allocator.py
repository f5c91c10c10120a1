"""Memory that is freed stays with the process: glibc's malloc set for TensorFlow, before TensorFlow is imported.

As it comes, glibc gives large blocks back to the kernel when they are freed, and the threads that compute allocate
from arenas of their own, whose heaps of 64 MB hold few large tensors. So each step's activations are mapped, and zeroed
by the kernel, once more: on some machines 40% of a step. With one arena that grows in large pieces and never shrinks, a
step finds the memory of the step before. Nothing is preloaded, and no process is started twice. See mallopt(3).
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
        values: The first one that is accepted holds: older versions of glibc know an upper limit.
        variable: What a user sets in the environment instead.
        tunable: The same in GLIBC_TUNABLES.
    """

    parameter: int
    values: tuple[int, ...]
    variable: str
    tunable: str


_SETTINGS = (
    # Blocks come from the heap, whatever their size; an older glibc takes half of an arena's heap at most.
    _Setting(parameter=-3, values=(1 << 30, 1 << 25), variable="MALLOC_MMAP_THRESHOLD_", tunable="mmap_threshold"),
    # The heap does not shrink.
    _Setting(parameter=-1, values=((1 << 31) - 1,), variable="MALLOC_TRIM_THRESHOLD_", tunable="trim_threshold"),
    # All threads share it: the others' heaps cannot hold a large tensor, and what one frees another may use.
    _Setting(parameter=-8, values=(1,), variable="MALLOC_ARENA_MAX", tunable="arena_max"),
    # It grows by 256 MB at a time; pages that are not touched take no memory.
    _Setting(parameter=-2, values=(1 << 28,), variable="MALLOC_TOP_PAD_", tunable="top_pad"),
)


def keep_freed_memory() -> bool:
    """Lets this process keep freed memory for its next use. Call it before TensorFlow, or anything else that starts
    threads, is imported; after that it helps less, and harms nothing.

    What the environment sets (`MALLOC_ARENA_MAX` and the like, or `GLIBC_TUNABLES`) is left as it is.

    Returns:
        Whether there was something to set: False without glibc, or where the environment sets all of it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    tunables = {part.partition("=")[0] for part in os.environ.get("GLIBC_TUNABLES", "").split(":")}
    own = [s for s in _SETTINGS if s.variable not in os.environ and f"glibc.malloc.{s.tunable}" not in tunables]
    # any() of a generator would stop at the first value that is accepted, as it should within one setting only.
    return any([any(libc.mallopt(setting.parameter, value) for value in setting.values) for setting in own])
