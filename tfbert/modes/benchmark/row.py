"""One row's process: the ordinary run of `finetune`, then the machine's peak matrix rate in the run's precision.

python -m tfbert.modes.benchmark.row RUN_CONFIG.json RESULT.json [ROWS_AT_A_TIME]

The third argument is for inference rows only: see `grid.BenchmarkRow`.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

from tfbert.config.run import Config
from tfbert.devices.allocator import keep_freed_memory
from tfbert.devices.cluster import cluster_from_tf_config
from tfbert.devices.onednn import use_onednn
from tfbert.devices.quiet import silence_libraries, stderr_held_back
from tfbert.errors import EXPECTED
from tfbert.modes.benchmark.grid import replicas_of, settle_inference
from tfbert.output.output_dir import write_json

_SECONDS = 1.0
"""How long the peak is measured."""


def main(argv: list[str]) -> int:
    """Runs a row; returns the exit status of the command."""
    config_file, result_file = map(pathlib.Path, argv[:2])
    text = os.environ.get("TF_CONFIG")
    num_workers = cluster_from_tf_config(text).size if text else 1
    silence_libraries()
    use_onednn()
    try:
        config = Config.from_json(config_file.read_text(encoding="utf-8"))
        if config.runtime.keep_freed_memory:
            keep_freed_memory()
        with stderr_held_back():
            from tfbert.train.run import finetune
        if len(argv) > 2:
            num_replicas = num_workers * replicas_of(config.runtime, _num_gpus(config))
            config = settle_inference(config, int(argv[2]), num_replicas)
        finetune(config)
    except EXPECTED as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    if not text or json.loads(text)["task"]["index"] == 0:
        write_json(result_file, {"peak_flops": measure_peak(config), "num_workers": num_workers})
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


def _num_gpus(config: Config) -> int:
    import tensorflow as tf

    return 0 if config.runtime.device == "cpu" else len(tf.config.get_visible_devices("GPU"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
