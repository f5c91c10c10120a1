"""Steps as functions of an iterator: over all replicas and workers, with results that are read over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

Step = Callable[[Any], None]
Results = Callable[[], dict[str, tf.Tensor]]


def over_replicas(
    strategy: tf.distribute.Strategy, step: Step, results: Results, *, num_steps: int, eagerly: bool
) -> Callable[[Iterator[Any]], dict[str, tf.Tensor]]:
    """What Keras calls for its next batches.

    Keras's own takes a mean over replicas of what each has measured, and fails with several workers.

    Args:
        strategy: Whose replicas run the step.
        step: Of one replica, in its context, given its share of a batch.
        results: Of what has been measured so far, outside any replica.
        num_steps: The most batches to take in one call.
        eagerly: Whether not to trace.

    Returns:
        A function of an iterator, that ends with OutOfRangeError or StopIteration where there is no batch left.
    """

    def one(batch: Any) -> None:
        strategy.run(step, args=(batch,))

    @tf.autograph.experimental.do_not_convert
    def one_batch(batch: Any) -> dict[str, tf.Tensor]:
        one(_without_gaps(batch))
        return results()

    @tf.autograph.experimental.do_not_convert
    def batches_of(iterator: Any) -> dict[str, tf.Tensor]:
        one(_without_gaps(iterator.get_next()))
        if num_steps > 1:
            _up_to(num_steps - 1, iterator, one)
        return results()

    if not eagerly:
        one_batch = tf.function(one_batch, reduce_retracing=True)
        batches_of = tf.function(batches_of, reduce_retracing=True)

    def function(iterator: Any) -> dict[str, tf.Tensor]:
        if isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
            return batches_of(iterator)
        logs = None
        for _, batch in zip(range(num_steps), iterator, strict=False):
            logs = one_batch(_shared(strategy, batch))
        if logs is None:
            raise StopIteration
        return logs

    return function


def _up_to(count: int, iterator: Any, one: Callable[[Any], None]) -> None:
    """Takes so many batches, or as many as there are; the step is traced once for all of them."""

    def body(done: tf.Tensor, has_more: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = iterator.get_next_as_optional()
        has_more = found.has_value()

        def take() -> tf.Tensor:
            one(_without_gaps(found.get_value()))
            return tf.constant(0)

        tf.cond(has_more, take, lambda: tf.constant(0))
        return done + 1, has_more

    start = tf.constant(0), tf.constant(True)
    tf.while_loop(lambda done, has_more: (done < count) & has_more, body, start, parallel_iterations=1)


def _without_gaps(batch: Any) -> Any:
    """None for what tf.data writes as an optional without a value."""
    return keras.tree.map_structure(lambda each: None if isinstance(each, tf.experimental.Optional) else each, batch)


def _shared(strategy: tf.distribute.Strategy, batch: Any) -> Any:
    """A batch given at once, as the share of each replica: rows one after the other, perhaps none for the last."""
    batch = keras.tree.map_structure(lambda each: None if each is None else tf.convert_to_tensor(each), batch)
    count = strategy.num_replicas_in_sync
    if count == 1:
        return batch

    def share(context: tf.distribute.experimental.ValueContext) -> Any:
        def rows(tensor: tf.Tensor | None) -> tf.Tensor | None:
            if tensor is None:
                return None
            size = -(-tensor.shape[0] // count)
            return tensor[context.replica_id_in_sync_group * size :][:size]

        return keras.tree.map_structure(rows, batch)

    return strategy.experimental_distribute_values_from_function(share)
