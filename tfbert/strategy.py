"""RuntimeConfig -> the tf.distribute.Strategy a run is built and trained under."""

from __future__ import annotations

import json
import os

import tensorflow as tf

from tfbert.config import RuntimeConfig, UsageError


def build_strategy(config: RuntimeConfig) -> tf.distribute.Strategy:
    """One device, all GPUs of this machine, or all workers named in TF_CONFIG.

    Call it before anything else touches TensorFlow's devices, since CPU replicas are logical devices that must be set
    up first.

    Raises:
        UsageError: for GPUs that are not there, or a TF_CONFIG that is missing or malformed.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and config.num_replicas > len(gpus):
        raise UsageError(
            f"num_replicas is the number of GPUs to use. Received: num_replicas={config.num_replicas} with {len(gpus)} "
            f"visible. Pass --num_replicas={len(gpus)} or fewer."
        )
    if config.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    if config.strategy == "mirrored":
        return tf.distribute.MirroredStrategy(_devices(config.num_replicas, bool(gpus)))
    return _multi_worker_strategy(config, gpus)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes files and shows progress."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not resolver.task_type:
        return True
    has_chief = "chief" in resolver.cluster_spec().jobs
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id == 0)


def describe(strategy: tf.distribute.Strategy) -> str:
    """The devices in a few words, for the start banner."""
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    replicas = strategy.num_replicas_in_sync
    name = type(strategy).__name__
    text = f"{name}, {replicas} replica{'s' * (replicas > 1)} on {kind}"
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        resolver = strategy.cluster_resolver
        workers = sum(resolver.cluster_spec().num_tasks(job) for job in resolver.cluster_spec().jobs) or 1
        text += f", {workers} workers"
    if kind == "CPU" and replicas > 1 and not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        text += " (logical devices that share its cores)"
    return text


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
            raise UsageError(
                "CPU replicas must be set up before TensorFlow is used. "
                f"Received: num_replicas={count}. Build the strategy first, or use a new process."
            ) from None
    return [f"CPU:{i}" for i in range(count)]


def _multi_worker_strategy(config: RuntimeConfig, gpus: list) -> tf.distribute.Strategy:
    check_tf_config(os.environ.get("TF_CONFIG", ""))
    if not gpus and config.num_replicas > 1:
        raise UsageError(
            "A worker without GPUs has one replica. "
            f"Received: num_replicas={config.num_replicas}. Start more workers instead."
        )
    if gpus and config.num_replicas:
        tf.config.set_visible_devices(gpus[: config.num_replicas], "GPU")
    return tf.distribute.MultiWorkerMirroredStrategy()


def check_tf_config(text: str) -> None:
    """Checks TF_CONFIG before TensorFlow does, which would hang or crash on most mistakes.

    Args:
        text: The environment variable's value.

    Raises:
        UsageError: naming what is wrong.
    """
    advice = (
        'Set it like {"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}.'
    )

    def refuse(rule: str, received: object) -> UsageError:
        return UsageError(f"{rule} Received: {received}. {advice}")

    if not text:
        raise refuse("multi_worker needs TF_CONFIG in the environment.", "TF_CONFIG=''")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise refuse("TF_CONFIG must be JSON.", f"TF_CONFIG={text[:200]!r} ({error})") from None
    cluster = value.get("cluster") if isinstance(value, dict) else None
    task = value.get("task") if isinstance(value, dict) else None
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise refuse("TF_CONFIG must hold a cluster and a task.", f"TF_CONFIG={text[:200]!r}")
    if unknown := set(cluster) - {"chief", "worker"}:
        raise refuse("A multi_worker cluster has chief and worker jobs only.", f"jobs {sorted(unknown)}")
    addresses = [address for job in cluster.values() for address in job]
    for address in addresses:
        host, _, port = str(address).rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise refuse("Each address in TF_CONFIG must be host:port.", f"address {address!r}")
    if repeated := sorted({a for a in addresses if addresses.count(a) > 1}):
        raise refuse("Each worker in TF_CONFIG needs an address of its own.", f"{repeated[0]!r} twice")
    job, index = task.get("type"), task.get("index")
    if job not in cluster or not isinstance(index, int) or not 0 <= index < len(cluster[job]):
        sizes = ", ".join(f"{name}: {len(hosts)}" for name, hosts in cluster.items())
        raise refuse("TF_CONFIG's task must be in its cluster.", f"task {json.dumps(task)} with jobs {{{sizes}}}")
