"""Imports of large libraries, without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """For a block that imports TensorFlow: what a module defines stays, and looking through all of it
    again and again, 1,158 times, is 1.0 of the 3.5 s of these imports."""
    if not gc.isenabled():  # Within another such block, or as the program's author wants it.
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
