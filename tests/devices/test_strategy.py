"""Which devices a strategy takes, and what it calls them; GPUs are pretended."""

import json

import pytest
import tensorflow as tf

from tfbert import RunError, RuntimeConfig, UsageError
from tfbert.devices import runtime as devices
from tfbert.devices.runtime import build_strategy, describe


@pytest.fixture
def gpus(monkeypatch):
    """A machine with three GPUs, none of them hidden; `hide()` hides them."""
    visible = ["first", "second", "third"]
    models = {"first": "NVIDIA H100 80GB HBM3", "second": "NVIDIA H100 80GB HBM3", "third": "NVIDIA T4"}
    cpus = tf.config.list_physical_devices("CPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(models) if kind == "GPU" else cpus)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: visible if kind == "GPU" else cpus)
    details = lambda gpu: {"device_name": models[gpu]} if models[gpu] else {}  # noqa: E731
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details)
    return visible, models


def test_hidden_gpus_are_not_used(gpus):
    gpus[0].clear()
    for config, text in (
        (RuntimeConfig(device="cpu"), "OneDeviceStrategy, 1 replica on CPU"),
        (RuntimeConfig(device="cpu", strategy="mirrored"), "MirroredStrategy, 1 replica on CPU"),
    ):
        strategy = build_strategy(config)
        assert [tf.DeviceSpec.from_string(name).device_type for name in strategy.extended.worker_devices] == ["CPU"]
        assert describe(strategy) == text


def test_gpus_are_named(gpus):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    assert describe(strategy) == "OneDeviceStrategy, 1 replica on GPU (NVIDIA H100 80GB HBM3)"
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert describe(strategy) == "MirroredStrategy, 2 replicas on GPU (NVIDIA H100 80GB HBM3)", "each model once"
    gpus[1]["second"] = "NVIDIA T4"
    assert describe(strategy) == "MirroredStrategy, 2 replicas on GPU (NVIDIA H100 80GB HBM3, NVIDIA T4)"
    gpus[1].update(first="", second="")
    assert describe(strategy) == "MirroredStrategy, 2 replicas on GPU"


def test_what_tensorflow_has_settled_is_one_line(monkeypatch):
    """A later run of a process may want other devices than the first."""
    tf.constant(0) + 1
    with pytest.raises(UsageError, match="CPU replicas must be set up before.*num_replicas=3.*use a new process"):
        build_strategy(RuntimeConfig(strategy="mirrored", num_replicas=3, device="cpu"))
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    with pytest.raises(UsageError, match="A cluster must be joined before.*in a new process"):
        build_strategy(RuntimeConfig(strategy="multi_worker"), cluster_timeout_seconds=0.1)


@pytest.mark.parametrize("given, expected", [({}, 7), ({"cluster_timeout_seconds": 0.5}, 0.5)])
def test_the_configuration_says_how_long_to_wait_for_workers(monkeypatch, given, expected):
    waited = []
    monkeypatch.setattr(devices.private, "devices_are_initialized", lambda: False)
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))

    def wait(cluster, seconds):
        waited.append(seconds)
        raise RunError("nobody")

    monkeypatch.setattr(devices, "wait_for_peers", wait)
    with pytest.raises(RunError, match="nobody"):
        build_strategy(RuntimeConfig(strategy="multi_worker", cluster_timeout_seconds=7), **given)
    assert waited == [expected]
