"""One row's process: the ordinary run of `finetune`, then what the machine gives: the peak matrix rate in the run's
precision, and the time of an all-reduce of its gradients.

python -m tfbert.modes.benchmark.row RUN_CONFIG.json RESULT.json [ROWS_AT_A_TIME]

The third argument is for inference rows only: see `grid.BenchmarkRow`.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import sys
import time
from typing import TYPE_CHECKING

from tfbert.config.run import Config
from tfbert.devices.allocator import keep_freed_memory
from tfbert.devices.cluster import cluster_from_tf_config
from tfbert.devices.imports import without_collections
from tfbert.devices.onednn import use_onednn
from tfbert.devices.quiet import silence_libraries, stderr_held_back
from tfbert.errors import EXPECTED, in_command
from tfbert.modes.benchmark.grid import replicas_of, resolve_inference
from tfbert.output.output_dir import write_json

if TYPE_CHECKING:
    import tensorflow as tf

log = logging.getLogger("tfbert")

_SECONDS = 1.0
"""How long the peak is measured."""
_ALL_REDUCES = 5
_PIECE_BYTES = 2**22
"""As a matrix of BERT's: gradients are reduced variable by variable."""


@in_command()
def main(argv: list[str]) -> int:
    """Runs a row; returns the exit status of the command."""
    config_file, result_file = map(pathlib.Path, argv[:2])
    text = os.environ.get("TF_CONFIG")
    num_workers = cluster_from_tf_config(text).size if text else 1
    found: dict[str, float | None] = {"all_reduce_seconds": None}

    def at_end(strategy: tf.distribute.Strategy, results: dict[str, float]) -> None:
        found["all_reduce_seconds"] = measure_all_reduce(strategy, results["gradient_bytes"])

    silence_libraries()
    use_onednn()
    try:
        config = Config.from_json(config_file.read_text(encoding="utf-8"))
        if config.runtime.keep_freed_memory:
            keep_freed_memory()
        with without_collections(), stderr_held_back():
            from tfbert.train.run import finetune
        if len(argv) > 2:
            num_replicas = num_workers * replicas_of(config.runtime, _num_gpus(config))
            config = resolve_inference(config, int(argv[2]), num_replicas)
        finetune(config, at_end=None if len(argv) > 2 else at_end)
    except EXPECTED as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    if not text or json.loads(text)["task"]["index"] == 0:
        write_json(result_file, found | {"peak_flops": measure_peak(config), "num_workers": num_workers})
    return 0


def measure_peak(config: Config) -> float:
    """The best rate of a large matrix product on one device, in floating-point operations a second.

    Args:
        config: Its precision decides the data type; devices are as the run left them.
    """
    import tensorflow as tf

    from tfbert.devices.runtime import precision_policy

    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    dtype = precision_policy(config.runtime, has_gpus=has_gpu).removeprefix("mixed_")
    size = 8192 if has_gpu else 2048
    with tf.device("GPU:0" if has_gpu else "CPU:0"):
        first = tf.cast(tf.random.stateless_uniform([size, size], [1, config.runtime.seed]), dtype)
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
        strategy: The run's.
        num_bytes: That each replica holds, as float32 numbers.

    Returns:
        The seconds; None for one replica, or where memory does not suffice.
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
    try:
        for number in range(1 + _ALL_REDUCES):  # The first one traces.
            start = time.perf_counter()
            reduce(tf.constant(float(number))).numpy()
            seconds.append(time.perf_counter() - start)
    except tf.errors.ResourceExhaustedError:
        log.warning("no room to time the all-reduce alone; the row has no prediction")
        return None
    return min(seconds[1:])


def _num_gpus(config: Config) -> int:
    import tensorflow as tf

    return 0 if config.runtime.device == "cpu" else len(tf.config.get_visible_devices("GPU"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
