"""What every mode begins with: the process set up before any tensor exists (precision policy, seeds, determinism,
memory), the strategy built, and only the chief's messages shown."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pathlib
import platform
import resource
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfbert import private
from tfbert.config.modes import RuntimeConfig
from tfbert.config.run import Config
from tfbert.config.types import counted
from tfbert.devices.cluster import Cluster, cluster_from_tf_config, current_cluster, divide_gpus, wait_for_peers
from tfbert.devices.process import deaf, keep_freed_memory, stderr_held_back
from tfbert.devices.workers import check_same, is_chief, num_workers_of, versions_of
from tfbert.errors import RunError, UsageError, first_line, of_surroundings

log = logging.getLogger("tfbert")

_HEARTBEAT_TIMEOUT_SECONDS = 15.0
_SLURM_BINDINGS = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_NTASKS_PER_GPU")
_SLURM_BINDINGS += ("SLURM_TRES_PER_TASK", "SLURM_TRES_BIND")


def build_strategy(config: RuntimeConfig, *, cluster_timeout_seconds: float | None = None) -> tf.distribute.Strategy:
    """One device, all GPUs of this machine, or all workers named in TF_CONFIG or by SLURM.

    Call it before anything else uses TensorFlow's devices, since CPU replicas are logical devices that must be set up
    first, and before Python signal handlers are installed, since none runs while TensorFlow joins a cluster.

    Args:
        config: Which strategy, over how many devices.
        cluster_timeout_seconds: How long `multi_worker` waits for the other workers; None for as long as the
            configuration says.

    Raises:
        UsageError: for GPUs that do not exist, or a TF_CONFIG that is missing or malformed.
        RunError: for workers that did not answer in time, or a port that is taken.
    """
    gpus = tf.config.get_visible_devices("GPU")  # None with --device=cpu, which hides them.
    cluster, text = None, os.environ.get("TF_CONFIG")
    if config.strategy == "multi_worker":
        cluster = current_cluster()
        if not gpus and config.num_replicas > 1:
            rule = "A worker without GPUs has one replica"
            raise UsageError(f"{rule}. Received: num_replicas={config.num_replicas}. Start more workers instead.")
        gpus = _own_gpus(cluster, gpus)
    elif text and (size := cluster_from_tf_config(text).size) > 1:
        rule = "One of several workers must train with the others"  # Alone, they would overwrite each other's output.
        todo = "Pass --strategy=multi_worker, or unset TF_CONFIG."
        raise UsageError(f"{rule}. Received: strategy={config.strategy!r} with {size} workers in TF_CONFIG. {todo}")
    if gpus and config.num_replicas > len(gpus):
        rule = "num_replicas is the number of GPUs to use"
        todo = f"Pass --num_replicas={len(gpus)} or fewer."
        raise UsageError(f"{rule}. Received: num_replicas={config.num_replicas} with {len(gpus)} visible. {todo}")
    if cluster:
        seconds = config.cluster_timeout_seconds if cluster_timeout_seconds is None else cluster_timeout_seconds
        strategy = _multi_worker_strategy(cluster, gpus[: config.num_replicas or None], seconds)
    elif config.strategy == "one_device":
        strategy = tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    else:
        private.number_collectives_apart()
        strategy = tf.distribute.MirroredStrategy(_devices(config.num_replicas, bool(gpus)))
    with stderr_held_back(), tf.device("CPU"):
        # TensorFlow's C++ code logs once, as an error, that oneDNN lacks an integer type; that is harmless here.
        tf.transpose(tf.zeros([2, 2], tf.int64))
    return strategy


def describe(strategy: tf.distribute.Strategy, *, precision: bool = False) -> str:
    """The devices in a few words, and the precision if asked for."""
    replicas = strategy.num_replicas_in_sync
    gpus = tf.config.get_visible_devices("GPU")[:replicas]
    kind = "GPU" if gpus else "CPU"
    name = type(strategy).__name__.replace("CollectiveAllReduce", "MultiWorkerMirrored")
    text = f"{name}, {counted(replicas, 'replica')} on {kind}"
    models = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
    if any(models):
        text += f" ({', '.join(dict.fromkeys(filter(None, models)))})"
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        text += f", {counted(num_workers_of(strategy), 'worker')}"
    elif kind == "CPU" and replicas > 1:
        text += " (logical devices that share its cores)"
    return f"{text}, {keras.config.dtype_policy().name}" if precision else text


def _devices(num_replicas: int, has_gpus: bool) -> list[str] | None:
    if has_gpus:
        return [f"GPU:{i}" for i in range(num_replicas)] or None
    count = max(1, num_replicas)
    cpu = tf.config.list_physical_devices("CPU")[0]
    existing = tf.config.get_logical_device_configuration(cpu)
    if not existing or len(existing) < count:
        try:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
        except RuntimeError:
            rule = "CPU replicas must be set up before TensorFlow is used"
            todo = "Build the strategy first, or use a new process."
            raise UsageError(f"{rule}. Received: num_replicas={count}. {todo}") from None
    return [f"CPU:{i}" for i in range(count)]


def _multi_worker_strategy(cluster: Cluster, gpus: list, timeout_seconds: float) -> tf.distribute.Strategy:
    """One in which TensorFlow gives up on workers that do not register in time, or later stop answering.

    Every worker sends heartbeats to the first one (the chief) from a C++ thread. If a worker is killed or frozen, the
    collective operations of all others raise (see `is_peer_failure`) within about 20 s.
    """
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2

    if gpus:
        tf.config.set_visible_devices(gpus, "GPU")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({job: list(addresses) for job, addresses in cluster.jobs.items()}),
        task_type=cluster.job,
        task_id=cluster.index,
        num_accelerators={"GPU": len(gpus)},
        rpc_layer="grpc",
    )
    # Checked before waiting for the others, at a port that an earlier run in this process may hold.
    if private.devices_are_initialized():
        raise _too_late("TensorFlow has used its devices.")
    wait_for_peers(cluster, timeout_seconds)
    job_of: Any = coordination_config_pb2.CoordinatedJob  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    jobs = [job_of(name=job, num_tasks=len(cluster.jobs[job])) for job in ("chief", "worker") if job in cluster.jobs]
    private.configure_coordination(  # Else the strategy registers without a time limit.
        service_type="standalone",
        service_leader=f"/job:{jobs[0].name}/replica:0/task:0",
        cluster_register_timeout_in_ms=int(timeout_seconds * 1000),
        heartbeat_timeout_in_ms=int(_HEARTBEAT_TIMEOUT_SECONDS * 1000),
        coordinated_jobs=jobs,
    )
    try:
        with deaf():
            return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except tf.errors.OpError as error:
        rule = f"All {cluster.size} workers must join the cluster within cluster_timeout_seconds={timeout_seconds:g}"
        todo = "See the other workers' output for the cause, and start all workers again."
        raise RunError(f"{rule}. Received: {type(error).__name__}: {first_line(error)}. {todo}") from error
    except RuntimeError as error:
        raise _too_late(f"{first_line(error)}.") from error


def _too_late(received: str) -> UsageError:
    rule = "A cluster must be joined before TensorFlow is used"
    return UsageError(f"{rule}. Received: {received} Build the strategy first, in a new process.")


def _own_gpus(cluster: Cluster, gpus: list) -> list:
    """This worker's share of the GPUs, if SLURM lets several workers of a node see all of them."""
    bound = any(os.environ.get(name) for name in _SLURM_BINDINGS)
    if cluster.num_local == 1 or bound or len(gpus) < cluster.num_local:
        return gpus
    return divide_gpus(gpus, cluster.num_local)[cluster.local_index]


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
        todo = "Check nvidia-smi and CUDA_VISIBLE_DEVICES, install tensorflow[and-cuda], or pass --device=cpu."
        raise UsageError(f"device=gpu needs a GPU that TensorFlow can use. Received: none visible. {todo}")
    # The driver may show some that TensorFlow does not: its own warning, of libraries that it cannot load, is among the
    # messages that a command does not show.
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    unused = 0 if is_hidden else len(list(_DEVICE_FILES.glob("nvidia[0-9]*")))
    if config.device == "auto" and not gpus and unused:
        these = "GPU" if unused == 1 else f"{unused} GPUs"
        todo = "Install tensorflow[and-cuda] and check nvidia-smi, or pass --device=cpu."
        log.warning("TensorFlow cannot use this machine's %s: the run takes the CPU. %s", these, todo)
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
        rule = f"A process crashes when it needs more than {allowed:,} memory maps"
        received = f"one that has {taken:,}, to which each run with XLA adds thousands that TensorFlow never frees"
        log.warning("%s. Received: %s. Train in a new process, or raise vm.max_map_count.", rule, received)


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
    flags = processor_flags()
    return "avx2" in flags and not {"avx512_bf16", "amx_bf16", "avx_ne_convert"} & flags


def processor_flags() -> set[str]:
    """What an x86 CPU can do, as Linux says: `amx_bf16` for a unit for products in bfloat16."""
    try:
        return set(pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split())
    except OSError:
        return set()


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


_WARNING = "warning: "
_runs = itertools.count()
_OF_CHIEF = "is_of_the_chief"
"""Marks what every worker would say of the same run."""


def start_devices(config: Config) -> tuple[tf.distribute.Strategy, bool]:
    """Sets the process up, builds the strategy and compares its workers' options; all of these must call this.

    Returns:
        The strategy, and whether this process is the chief, which writes files and shows progress.

    Raises:
        UsageError: for devices, or a cluster, that cannot be used; for workers of other options or versions; and in a
            process forked from one that had used TensorFlow.
        RunError: for workers that do not answer in time.
    """
    private.check_not_forked()
    check_backend()
    policy = set_up(config.runtime)
    strategy = build_strategy(config.runtime)
    chief = is_chief(strategy)
    if not chief:
        cluster = current_cluster()
        me, first = f"{cluster.job} {cluster.index}", "the chief" if "chief" in cluster.jobs else "worker 0"
        log.info(
            f"this is {me} of {cluster.size}: it computes with the others, but {first} alone shows progress and writes "
            "files, such as log.jsonl in the output directory; warnings and errors are shown here too"
        )
    inform_on_chief_alone(chief)
    check_same(lambda: config.shared() | {"precision": policy} | versions_of("keras"), strategy)
    return strategy, chief


@contextlib.contextmanager
def chief_ends_last(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Keeps the other workers at the end of the block until the chief is there: of one that ends before it, TensorFlow
    says there that it has crashed."""
    name = f"tfbert/ended/{next(_runs)}"
    has_peers, chief = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy), is_chief(strategy)
    try:
        yield
    finally:
        if has_peers and chief:
            with contextlib.suppress(tf.errors.OpError):
                private.publish(name, "")
    if has_peers and not chief:
        with contextlib.suppress(tf.errors.OpError):  # The chief is gone.
            while private.published(name, seconds=1.0) is None:
                pass


def check_backend() -> None:
    """Refuses Keras 3 that does not compute with TensorFlow.

    Raises:
        UsageError: for another backend.
    """
    if keras.config.backend() != "tensorflow":
        raise UsageError(
            f"BERT is computed by TensorFlow. Received: Keras with the backend {keras.config.backend()!r}. "
            'Set os.environ["KERAS_BACKEND"] = "tensorflow" before keras is imported.'
        )


def tell(lines: Iterable[str]) -> None:
    """Logs what the user should know of a run, by the chief alone.

    Args:
        lines: One that begins with `warning: ` is a warning, any other information.
    """
    for line in lines:
        level = logging.WARNING if line.startswith(_WARNING) else logging.INFO
        log.log(level, "%s", line, extra={_OF_CHIEF: True})


def inform_on_chief_alone(chief: bool) -> None:
    """Makes the logger "tfbert" drop messages of level INFO, unless this process is the chief.

    Every worker shows warnings and errors, and with the logger at DEBUG also information. This holds until the next
    call: a process may be the chief of one run and not of the next.
    """
    log.removeFilter(_is_for_every_worker)
    if not chief:
        log.addFilter(_is_for_every_worker)


def _is_for_every_worker(record: logging.LogRecord) -> bool:
    is_for_all = record.levelno > logging.INFO and not hasattr(record, _OF_CHIEF)
    return is_for_all or log.isEnabledFor(logging.DEBUG)
