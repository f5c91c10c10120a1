"""The process's set-up before any tensor exists: precision policy, seeds, determinism, memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform

import tensorflow as tf
import tf_keras as keras

from tfbert.config import RuntimeConfig

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def set_up(config: RuntimeConfig) -> str:
    """Makes the process what the configuration says; call it once, before the strategy is built.

    Returns:
        The precision policy's name: `float32`, `mixed_float16` or `mixed_bfloat16`.
    """
    keep_freed_memory()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    policy = precision_policy(config)
    keras.mixed_precision.set_global_policy(policy)
    return policy


def precision_policy(config: RuntimeConfig) -> str:
    """The Keras policy; `auto` is float16 on a GPU and bfloat16 on a CPU, where float16 arithmetic is emulated."""
    if not config.mixed_precision:
        return "float32"
    if config.mixed_precision_dtype != "auto":
        return f"mixed_{config.mixed_precision_dtype}"
    return "mixed_float16" if tf.config.list_physical_devices("GPU") else "mixed_bfloat16"


def keep_freed_memory() -> None:
    """Lets glibc keep large blocks for reuse; by default each tensor of some MB is mapped and cleared anew."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(ctypes.util.find_library("c"))
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
