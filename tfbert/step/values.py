"""What a loss returned: a value for each row or position, or refused with a line that says what to do instead.

What is refused while a step is traced or runs, and a worker that is lost, end in one line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfbert.devices.workers import peer_failures_as_run_errors
from tfbert.private import mask_of

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


def check_no_mask(values: tf.Tensor, loss: Any) -> None:
    """Raises ValueError for a loss that says by a mask which of its values count."""
    if mask_of(values) is not None:
        raise ValueError(
            "Which rows count is known from their weights, before the loss. "
            f"Received: {name_of(loss)}, which says by a mask of its values which of them count. Pass sample_weight, 0 "
            "where there is padding; a loss that compares rows with each other, as Circle does, trains in plain Keras."
        )


def one_for_each(values: tf.Tensor, weights: tf.Tensor, loss: str) -> tf.Tensor:
    """The values; where they are `[1]` but the rows perhaps not one, they are checked when the step runs.

    Raises:
        ValueError: where they do not fit in any case.
    """
    if values.shape[0] == 1 != weights.shape[0]:
        rule = f"A loss must return one value per row. Received: {loss}, which returns one for all. Leave out its mean."
        if weights.shape[0] is not None:
            raise ValueError(rule)
        with tf.control_dependencies([refuse_unless_equal(tf.shape(weights)[0], 1, rule)]):
            return tf.identity(values)
    return values


def check_loss_values(values: tf.Tensor, weights: tf.Tensor, *, loss: Any, mask: tf.Tensor | None) -> None:
    """Raises ValueError for a loss from which no mean over the rows of the global batch can be computed.

    Args:
        values: What the loss returned for a micro-batch.
        weights: `[rows]`, or `[rows, positions]`.
        loss: The loss, or its name.
        mask: Keras's mask of the predictions; None for none.
    """
    if values.shape.rank == 0:
        raise ValueError(
            "A loss must return one value per row: the mean over the global batch must not depend on the split. "
            f"Received: {name_of(loss)}, which returns one number. "
            "Leave out its mean over the rows: tf.reduce_mean(..., axis=-1) keeps one value per row."
        )
    if values.shape.rank < weights.shape.rank:
        raise ValueError(
            "Each weight must belong to a value of the loss. "
            f"Received: sample_weight of {weights.shape.rank} dimensions and a loss of {values.shape.rank}, "
            f"{name_of(loss)}. "
            "Pass one weight per row, or a loss with a value per position."
        )
    if mask is not None and values.shape.rank > weights.shape.rank:
        # Keras takes the mean over the positions that a replica's rows leave unmasked: another mean for each split.
        raise ValueError(
            "A row's loss is the mean over its positions, and sample_weight must say which of them count. "
            "Received: masked positions without a sample_weight for each. "
            "Pass sample_weight of shape [rows, positions], 0 where there is padding."
        )


def name_of(loss: Any) -> str:
    """What a loss, or its name, is called in an error."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
