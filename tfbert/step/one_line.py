"""What is refused while a step is traced or runs, and a worker that is lost, end in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfbert.devices.workers import peer_failures_as_run_errors

_LINES: set[str] = set()


def refuse_unless_equal(value: tf.Tensor, expected: Any, line: str) -> tf.Operation:
    """Raises a ValueError of one line in `fit` where, while a step runs, a value is not as it must be."""
    _LINES.add(line)
    return tf.debugging.assert_equal(value, expected, message=line)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Raises what this package refuses as it was said; Keras and AutoGraph put the whole stack into its message.

    Raises:
        RunError: where another worker was lost.
    """
    try:
        with peer_failures_as_run_errors():
            yield
    except tf.errors.InvalidArgumentError as error:
        said = str(error).replace("\\'", "'")
        refused = next((line for line in _LINES if line in said), None)
        if refused is None:
            raise
        raise ValueError(refused) from None
    except (ValueError, RuntimeError) as error:
        refused = None
        each: BaseException | None = error
        while each is not None:  # AutoGraph raises an error of its own about each one; the first is at the end.
            if type(each) is ValueError and _raised_in(each).startswith("tfbert.step"):
                refused = each
            each = each.__cause__ or each.__context__
        if refused is None:
            raise
        raise ValueError(str(refused)) from None


def _raised_in(error: BaseException) -> str:
    """The module that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals.get("__name__", "") if trace else ""
