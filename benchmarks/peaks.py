"""What a machine gives: the rate of a large matrix product, and the time in which replicas sum their gradients.

    python benchmarks/peaks.py --replicas=2 --num_bytes=437935112 --dtype=bfloat16 --output=peaks.json
    python -m tfbert.launch --num_workers=2 -- benchmarks/peaks.py --strategy=multi_worker --num_bytes=437935112

Writes `peak_flops`, floating-point operations a second of one device, and `all_reduce_seconds`, null for one replica.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from typing import TYPE_CHECKING

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tfbert  # noqa: E402

if TYPE_CHECKING:
    import tensorflow as tf

_SECONDS = 1.0
"""How long the peak is measured."""
_ALL_REDUCES = 5
_PIECE_BYTES = 2**22
"""As a matrix of BERT's: gradients are reduced variable by variable."""


def main() -> None:
    """Measures both, and writes them on the chief."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--strategy", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--num_bytes", type=int, required=True, help="of all gradients in float32")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("peaks.json"))
    args = parser.parse_args()
    kind, replicas = args.strategy or "mirrored", args.replicas
    if not args.strategy and replicas == 1:
        kind, replicas = "one_device", 0
    if args.device == "cpu":
        import tensorflow as tf

        tf.config.set_visible_devices([], "GPU")
    strategy = tfbert.build_strategy(tfbert.RuntimeConfig(strategy=kind, num_replicas=replicas, device=args.device))
    seconds = measure_all_reduce(strategy, args.num_bytes)
    if strategy.extended.should_checkpoint:  # The chief.
        args.output.write_text(json.dumps({"peak_flops": measure_peak(args.dtype), "all_reduce_seconds": seconds}))


def measure_peak(dtype: str) -> float:
    """The best rate of a large matrix product on one device, in floating-point operations a second.

    Args:
        dtype: In which it is computed.
    """
    import tensorflow as tf

    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    size = 8192 if has_gpu else 2048
    with tf.device("GPU:0" if has_gpu else "CPU:0"):
        first = tf.cast(tf.random.stateless_uniform([size, size], [1, 42]), dtype)
        best, until = 0.0, time.perf_counter() + _SECONDS
        while not best or time.perf_counter() < until:
            start = time.perf_counter()
            product = tf.linalg.matmul(first, first)
            product[0, 0].numpy()  # Waits until it is computed.
            best = max(best, 2.0 * size**3 / (time.perf_counter() - start))
    return best


def measure_all_reduce(strategy: tf.distribute.Strategy, num_bytes: int) -> float | None:
    """Seconds that the replicas need to sum so many bytes, with nothing else to do: the quickest of a few times.

    All workers must call this.

    Args:
        strategy: The replicas'.
        num_bytes: That each replica holds, as float32 numbers.

    Returns:
        The seconds; None for one replica.
    """
    import tensorflow as tf

    from tfbert.step.gradients import all_reduce_sum

    if strategy.num_replicas_in_sync == 1:
        return None
    sizes = [min(_PIECE_BYTES, num_bytes - start) // 4 for start in range(0, num_bytes, _PIECE_BYTES)]

    @tf.function
    def reduce(value: tf.Tensor) -> tf.Tensor:
        def replica() -> tf.Tensor:
            # Constants would be folded; the sums must be needed.
            return tf.add_n([sums[0] for sums in all_reduce_sum([tf.fill([size], value) for size in sizes])])

        return strategy.experimental_local_results(strategy.run(replica))[0]

    seconds = []
    for number in range(1 + _ALL_REDUCES):  # The first one traces.
        start = time.perf_counter()
        reduce(tf.constant(float(number))).numpy()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


if __name__ == "__main__":
    main()
