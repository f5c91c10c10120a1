"""Errors of a call from Python: what a user can cause, or asked for, is told without the way through this library."""

from __future__ import annotations

import functools
import gc
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tfbert.errors import Preempted, RunError, UsageError

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def frees_all(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Frees what a call leaves, whatever way it ends: a model is full of reference cycles, and an exception, of which a
    notebook keeps the last, holds all that its frames refer to."""

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except (UsageError, Preempted) as error:
            _clear_frames(error)
            raise error.with_traceback(None) from None
        except (RunError, KeyboardInterrupt) as error:
            _clear_frames(error)
            raise
        finally:
            gc.collect()

    return call


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
