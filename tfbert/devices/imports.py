"""Imports of large libraries, without what they can do without."""

from __future__ import annotations

import contextlib
import gc
import sys
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


@contextlib.contextmanager
def without_module(name: str) -> Iterator[None]:
    """For a block of imports that try this module and do without it: there it is not found, unless it is imported
    already. Keras imports all of scikit-learn, for the base classes of wrappers that no command has: 0.5 of the 3.3 s
    of these imports, and 59 MB.

    Args:
        name: The module.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        del sys.modules[name]
