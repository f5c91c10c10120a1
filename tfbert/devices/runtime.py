"""The process's set-up before any tensor exists: precision policy, seeds, determinism, memory."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import platform
import resource
from collections.abc import Iterator

import keras
import tensorflow as tf

from tfbert import private
from tfbert.config.parts import RuntimeConfig
from tfbert.config.run import Config
from tfbert.devices.allocator import keep_freed_memory
from tfbert.errors import RunError, UsageError, first_line, of_surroundings

log = logging.getLogger("tfbert")

_DEVICE_FILES = pathlib.Path("/dev")
_PROC = pathlib.Path("/proc")

_hidden: list[tf.config.PhysicalDevice] = []
"""GPUs that an earlier run of this process has hidden."""


def set_up(config: RuntimeConfig) -> str:
    """Sets the process up as the configuration says, before the strategy is built; a later run may set it up anew.

    Returns:
        The precision policy's name: `float32`, `mixed_float16` or `mixed_bfloat16`.

    Raises:
        UsageError: for a GPU that was asked for and does not exist, or a change of devices, which TensorFlow does not
            allow once it has used them.
    """
    if config.keep_freed_memory:
        keep_freed_memory()  # The command did so before it imported TensorFlow; another program may not have.
    gpus = _visible_gpus(config.device)
    if config.device == "gpu" and not gpus:
        rule = "device=gpu needs a GPU that TensorFlow can use"
        todo = "Check nvidia-smi and CUDA_VISIBLE_DEVICES, install tensorflow[and-cuda], or pass --device=cpu."
        raise UsageError(f"{rule}. Received: none visible. {todo}")
    if config.device == "auto" and not gpus and (unused := _unused_gpus()):
        log.warning(
            "TensorFlow cannot use this machine's %s: the run takes the CPU. Install tensorflow[and-cuda] and check "
            "nvidia-smi, or pass --device=cpu.",
            "GPU" if unused == 1 else f"{unused} GPUs",
        )
    for gpu in gpus:
        with contextlib.suppress(RuntimeError):  # In use already, so that it stays as it is.
            tf.config.experimental.set_memory_growth(gpu, True)
    if config.xla:
        _warn_of_memory_maps()
    keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    policy = precision_policy(config, has_gpus=bool(gpus))
    keras.config.set_dtype_policy(policy)
    return policy


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Undoes at its end what `set_up` changed inside: the caller's own models get their precision and kernels back.

    Devices, which stay as they were first used, and seeds are not restored.
    """
    policy, is_deterministic = keras.config.dtype_policy(), private.is_op_determinism_enabled()
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        if not is_deterministic:
            private.disable_op_determinism()


def _warn_of_memory_maps() -> None:
    """Warns of a process that may soon need more memory maps than the kernel allows, and crash.

    TensorFlow keeps what XLA compiled until the process ends: https://github.com/tensorflow/tensorflow/issues/64170.
    """
    try:
        with (_PROC / "self" / "maps").open("rb") as maps:
            taken = sum(1 for _ in maps)
        allowed = int((_PROC / "sys" / "vm" / "max_map_count").read_text(encoding="ascii"))
    except (OSError, ValueError):  # Not Linux.
        return
    if taken > allowed // 2:
        log.warning(
            "A process crashes when it needs more than %s memory maps. Received: one that has %s, to which each run "
            "with XLA adds thousands that TensorFlow never frees. Train in a new process, or raise vm.max_map_count.",
            f"{allowed:,}",
            f"{taken:,}",
        )


def _unused_gpus() -> int:
    """How many GPUs the driver shows to a process that TensorFlow shows none; 0 if its environment hides them.

    TensorFlow's own warning, of libraries that it cannot load, is among the messages that a command does not show.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return 0 if hidden else len(list(_DEVICE_FILES.glob("nvidia[0-9]*")))


def _visible_gpus(device: str) -> list[tf.config.PhysicalDevice]:
    """The GPUs to use; with `device="cpu"` they are hidden, until a run of this process asks for them again."""
    global _hidden
    gpus = tf.config.get_visible_devices("GPU")
    wanted = [] if device == "cpu" else gpus or _hidden
    if wanted == gpus:
        return gpus
    try:
        tf.config.set_visible_devices(wanted, "GPU")
    except RuntimeError:
        rule = "Whether GPUs are used is decided when TensorFlow first uses a device"
        received = f"device={device!r} in a process that has run {'with' if gpus else 'without'} them"
        raise UsageError(f"{rule}. Received: {received}. Use a new process.") from None
    _hidden = gpus
    return wanted


def precision_policy(config: RuntimeConfig, *, has_gpus: bool) -> str:
    """The Keras policy; `auto` is float16 on a GPU and bfloat16 on a CPU, where float16 arithmetic is emulated."""
    if not config.mixed_precision:
        return "float32"
    if config.mixed_precision_dtype != "auto":
        return f"mixed_{config.mixed_precision_dtype}"
    return "mixed_float16" if has_gpus else "mixed_bfloat16"


def emulates_bfloat16() -> bool:
    """Whether there is no GPU and this x86 CPU has no bfloat16 instructions, so that float32 is faster."""
    if tf.config.list_logical_devices("GPU"):
        return False
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "avx2" in flags and not {"avx512_bf16", "amx_bf16", "avx_ne_convert"} & set(flags.split())


def reset_peak_memory() -> None:
    """Makes `peak_memory_bytes` count from here on; resident memory can be reset on Linux only."""
    for i in range(len(tf.config.list_logical_devices("GPU"))):
        tf.config.experimental.reset_memory_stats(f"GPU:{i}")
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # See proc(5).


def is_out_of_memory(error: BaseException) -> bool:
    """Whether TensorFlow, or a library below it, found no memory on the device."""
    if not isinstance(error, tf.errors.OpError) or of_surroundings(error):  # A full disk is an exhausted resource too.
        return False
    # Libraries that find no memory for themselves say so in an InternalError.
    return isinstance(error, tf.errors.ResourceExhaustedError) or "out of memory" in str(error).lower()


@contextlib.contextmanager
def library_errors_as_run_errors(config: Config) -> Iterator[None]:
    """Turns the error of a batch that is too large into one line that names the ways out, and that of a full disk and
    the like into one that names the disk.

    Raises:
        RunError: for an exception that `is_out_of_memory` or `of_surroundings` knows; others pass unchanged.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        if (found := of_surroundings(error)) is not None:
            raise found from error
        if not is_out_of_memory(error):
            raise
        ways = "a smaller --per_device_eval_batch_size or --max_seq_length"
        if config.mode == "train":
            ways = f"--gradient_accumulation_steps=auto, --gradient_checkpointing, --mixed_precision, or {ways}"
        received = first_line(error)
        raise RunError(f"A batch must fit into memory. Received: {received}. Pass {ways}.") from error


def peak_memory_bytes() -> int:
    """The most memory in use at one time: the largest of all GPUs, or without GPUs this process's resident memory."""
    gpus = tf.config.list_logical_devices("GPU")
    if gpus:
        return max(tf.config.experimental.get_memory_info(f"GPU:{i}")["peak"] for i in range(len(gpus)))
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
