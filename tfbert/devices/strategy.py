"""RuntimeConfig -> the tf.distribute.Strategy a run is built and trained under."""

from __future__ import annotations

import os

import tensorflow as tf

from tfbert.config.counted import counted
from tfbert.config.parts import RuntimeConfig
from tfbert.devices.cluster import Cluster, cluster_from_tf_config, current_cluster, divide_gpus, wait_for_peers
from tfbert.devices.quiet import stderr_held_back
from tfbert.devices.termination import deaf
from tfbert.errors import RunError, UsageError, first_line
from tfbert.private import configure_coordination, devices_are_initialized, number_collectives_apart

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
    timeout_seconds = config.cluster_timeout_seconds if cluster_timeout_seconds is None else cluster_timeout_seconds
    strategy = _build(config, timeout_seconds)
    with stderr_held_back(), tf.device("CPU"):
        # TensorFlow's C++ code logs once, as an error, that oneDNN lacks an integer type; that is harmless here.
        tf.transpose(tf.zeros([2, 2], tf.int64))
    return strategy


def _build(config: RuntimeConfig, timeout_seconds: float) -> tf.distribute.Strategy:
    gpus = tf.config.get_visible_devices("GPU")  # None with --device=cpu, which hides them.
    if config.strategy == "multi_worker":
        return _multi_worker_strategy(config, gpus, timeout_seconds)
    _refuse_lone_workers(config)
    _refuse_missing_gpus(config, gpus)
    if config.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    number_collectives_apart()
    return tf.distribute.MirroredStrategy(_devices(config.num_replicas, bool(gpus)))


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes files and shows progress."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not resolver.task_type:
        return True
    has_chief = "chief" in resolver.cluster_spec().jobs
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id == 0)


def describe(strategy: tf.distribute.Strategy) -> str:
    """The devices in a few words, for the start banner and the report."""
    replicas = strategy.num_replicas_in_sync
    gpus = tf.config.get_visible_devices("GPU")[:replicas]
    kind = "GPU" if gpus else "CPU"
    name = type(strategy).__name__.replace("CollectiveAllReduce", "MultiWorkerMirrored")
    text = f"{name}, {counted(replicas, 'replica')} on {kind}"
    models = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
    if any(models):
        text += f" ({', '.join(dict.fromkeys(filter(None, models)))})"
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        resolver = strategy.cluster_resolver
        workers = sum(resolver.cluster_spec().num_tasks(job) for job in resolver.cluster_spec().jobs) or 1
        text += f", {counted(workers, 'worker')}"
    if kind == "CPU" and replicas > 1 and not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        text += " (logical devices that share its cores)"
    return text


def fail_fast(cluster: Cluster, timeout_seconds: float) -> None:
    """Makes TensorFlow give up on workers that do not register in time, or later stop answering.

    Call this before MultiWorkerMirroredStrategy is built, which otherwise registers without a time limit. Every worker
    sends heartbeats to the first one (the chief) from a C++ thread. If a worker is killed or frozen, the collective
    operations of all others raise (see `lost_peers`) within about 20 s.

    Args:
        cluster: This run's workers.
        timeout_seconds: For registration, which starts when all workers have been seen.
    """
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2

    jobs = [job for job in ("chief", "worker") if job in cluster.jobs]
    configure_coordination(
        service_type="standalone",
        service_leader=f"/job:{jobs[0]}/replica:0/task:0",
        cluster_register_timeout_in_ms=int(timeout_seconds * 1000),
        heartbeat_timeout_in_ms=int(_HEARTBEAT_TIMEOUT_SECONDS * 1000),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(  # pyright: ignore[reportAttributeAccessIssue] - made at run time
                name=job, num_tasks=len(cluster.jobs[job])
            )
            for job in jobs
        ],
    )


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


def _refuse_missing_gpus(config: RuntimeConfig, gpus: list) -> None:
    if gpus and config.num_replicas > len(gpus):
        rule = "num_replicas is the number of GPUs to use"
        todo = f"Pass --num_replicas={len(gpus)} or fewer."
        raise UsageError(f"{rule}. Received: num_replicas={config.num_replicas} with {len(gpus)} visible. {todo}")


def _refuse_lone_workers(config: RuntimeConfig) -> None:
    """Refuses to train alone as one of several workers: they would overwrite each other's output."""
    text = os.environ.get("TF_CONFIG")
    if text and (size := cluster_from_tf_config(text).size) > 1:
        rule = "One of several workers must train with the others"
        todo = "Pass --strategy=multi_worker, or unset TF_CONFIG."
        raise UsageError(f"{rule}. Received: strategy={config.strategy!r} with {size} workers in TF_CONFIG. {todo}")


def _multi_worker_strategy(config: RuntimeConfig, gpus: list, timeout_seconds: float) -> tf.distribute.Strategy:
    cluster = current_cluster()
    if not gpus and config.num_replicas > 1:
        rule = "A worker without GPUs has one replica"
        raise UsageError(f"{rule}. Received: num_replicas={config.num_replicas}. Start more workers instead.")
    gpus = _own_gpus(cluster, gpus)
    _refuse_missing_gpus(config, gpus)
    gpus = gpus[: config.num_replicas or None]
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
    if devices_are_initialized():
        raise _too_late("TensorFlow has used its devices.")
    wait_for_peers(cluster, timeout_seconds)
    fail_fast(cluster, timeout_seconds)
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
