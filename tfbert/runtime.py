"""The process's set-up before any tensor exists: precision policy, seeds, determinism, memory."""

from __future__ import annotations

import contextlib
import pathlib
import platform
import resource
from collections.abc import Iterator

import tensorflow as tf
import tf_keras as keras

from tfbert.allocator import keep_freed_memory
from tfbert.config import Config, RuntimeConfig
from tfbert.errors import RunError, UsageError


def set_up(config: RuntimeConfig) -> str:
    """Makes the process what the configuration says; call it once, before the strategy is built.

    Returns:
        The precision policy's name: `float32`, `mixed_float16` or `mixed_bfloat16`.

    Raises:
        UsageError: for a GPU that was asked for and is not there.
    """
    if config.keep_freed_memory:
        keep_freed_memory()  # The command has done so before TensorFlow was imported; a program may not have.
    gpus = tf.config.get_visible_devices("GPU")
    if config.device == "gpu" and not gpus:
        raise UsageError(
            "device=gpu needs a GPU that TensorFlow can use. Received: none visible. Check nvidia-smi and "
            "CUDA_VISIBLE_DEVICES, install tensorflow[and-cuda], or pass --device=cpu."
        )
    if config.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
        gpus = []
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    policy = precision_policy(config, has_gpus=bool(gpus))
    keras.mixed_precision.set_global_policy(policy)
    return policy


def precision_policy(config: RuntimeConfig, *, has_gpus: bool) -> str:
    """The Keras policy; `auto` is float16 on a GPU and bfloat16 on a CPU, where float16 arithmetic is emulated."""
    if not config.mixed_precision:
        return "float32"
    if config.mixed_precision_dtype != "auto":
        return f"mixed_{config.mixed_precision_dtype}"
    return "mixed_float16" if has_gpus else "mixed_bfloat16"


def emulates_bfloat16() -> bool:
    """Whether there is no GPU and this x86 CPU has no bfloat16 instructions, so that float32 is the faster one."""
    if tf.config.list_logical_devices("GPU"):
        return False
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "avx2" in flags and not {"avx512_bf16", "amx_bf16", "avx_ne_convert"} & set(flags.split())


def reset_peak_memory() -> None:
    """`peak_memory_bytes` of GPUs counts from here on; that of a process cannot be taken back."""
    for i in range(len(tf.config.list_logical_devices("GPU"))):
        tf.config.experimental.reset_memory_stats(f"GPU:{i}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether TensorFlow, or a library below it, found no memory on the device."""
    if not isinstance(error, tf.errors.OpError):
        return False
    # Libraries that find no memory for themselves say so in an InternalError.
    return isinstance(error, tf.errors.ResourceExhaustedError) or "out of memory" in str(error).lower()


@contextlib.contextmanager
def out_of_memory_as_run_error(config: Config) -> Iterator[None]:
    """Turns a batch that is too large into one line that names the ways out.

    Raises:
        RunError: for an exception that `is_out_of_memory` knows; others pass unchanged.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if not is_out_of_memory(error):
            raise
        ways = "a smaller --per_device_eval_batch_size or --max_seq_length"
        if config.mode == "train":
            ways = f"--gradient_accumulation_steps=auto, --gradient_checkpointing, --mixed_precision, or {ways}"
        received = str(error).strip().splitlines()[0]
        raise RunError(f"A batch must fit into memory. Received: {received}. Pass {ways}.") from error


def peak_memory_bytes() -> int:
    """The most memory in use at one time: the largest of the GPUs', or without one this process's resident memory."""
    gpus = tf.config.list_logical_devices("GPU")
    if gpus:
        return max(tf.config.experimental.get_memory_info(f"GPU:{i}")["peak"] for i in range(len(gpus)))
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
