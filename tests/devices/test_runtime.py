"""Set-up of the process: the precision policy, the devices asked for and what a strategy takes and calls them, what the
CPU can do; and who of the workers speaks: information is the chief's, warnings are everybody's."""

import logging
import mmap
import pathlib
from unittest import mock

import keras
import pytest
import tensorflow as tf
from tensorflow.python.framework import config as determinism

from tests.support.models import strategy_of
from tests.support.processes import tf_config
from tfbert import Config, RunError, RuntimeConfig, UsageError
from tfbert.devices import runtime
from tfbert.devices.runtime import build_strategy, describe
from tfbert.errors import first_line


@pytest.mark.parametrize(
    "mixed, dtype, has_gpus, policy",
    [
        (False, "auto", True, "float32"),
        (True, "auto", True, "mixed_float16"),
        (True, "auto", False, "mixed_bfloat16"),
        (True, "float16", False, "mixed_float16"),
        (True, "bfloat16", True, "mixed_bfloat16"),
    ],
)
def test_the_policy(mixed, dtype, has_gpus, policy):
    config = RuntimeConfig(mixed_precision=mixed, mixed_precision_dtype=dtype)
    assert runtime.precision_policy(config, has_gpus=has_gpus) == policy


def test_set_up_sets_policy_and_seeds():
    drawn = []
    for seed in (1, 1, 2):
        assert runtime.set_up(RuntimeConfig(mixed_precision=True, device="cpu", seed=seed)) == "mixed_bfloat16"
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
        drawn.append(float(tf.random.normal([])))
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])
    with pytest.raises(UsageError, match="device=gpu needs a GPU.*pass --device=cpu"):
        runtime.set_up(RuntimeConfig(device="gpu"))


@pytest.mark.parametrize(
    "names, visible, device, found",
    [
        (["nvidia0", "nvidiactl", "nvidia-uvm"], None, "auto", "machine's GPU: the run takes the CPU"),
        (["nvidia0", "nvidia1"], "0,1", "auto", "machine's 2 GPUs: the run takes the CPU"),
        (["nvidia0"], "-1", "auto", ""),
        (["nvidia0"], None, "cpu", ""),
        (["nvidiactl"], None, "auto", ""),
    ],
)
def test_a_gpu_that_tensorflow_cannot_use_is_told_of(tmp_path, monkeypatch, logged, names, visible, device, found):
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(runtime, "_DEVICE_FILES", tmp_path)
    monkeypatch.setattr(runtime, "_visible_gpus", lambda device: [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    runtime.set_up(RuntimeConfig(device=device))
    lines = [line for line in logged() if "cannot use" in line]
    assert len(lines) == bool(found) and found in "".join(lines)


def test_gpus_are_hidden_and_found_again_or_the_run_is_refused(monkeypatch):
    """A process's first run with device=cpu decides for the later ones only if it has used a device."""
    visible, settled = ["GPU"], []

    def set_visible(devices, kind):
        if settled:
            raise RuntimeError("Visible devices cannot be modified after being initialized")
        visible[:] = devices

    monkeypatch.setattr(runtime, "_hidden", [])
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: list(visible))
    monkeypatch.setattr(tf.config, "set_visible_devices", set_visible)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, enable: set_visible([gpu], "GPU"))
    runtime.set_up(RuntimeConfig(device="cpu"))
    assert visible == []
    runtime.set_up(RuntimeConfig(device="gpu"))
    assert visible == ["GPU"]
    settled.append(True)
    runtime.set_up(RuntimeConfig())  # The growth of its memory stays as it was.
    with pytest.raises(UsageError, match="Received: device='cpu' in a process that has run with them. Use a new"):
        runtime.set_up(RuntimeConfig(device="cpu"))
    settled.clear()
    runtime.set_up(RuntimeConfig(device="cpu"))
    settled.append(True)
    runtime.set_up(RuntimeConfig(device="cpu"))
    for device in ("auto", "gpu"):  # Not a run on the CPU without a word.
        with pytest.raises(UsageError, match="in a process that has run without them"):
            runtime.set_up(RuntimeConfig(device=device))


@pytest.mark.parametrize(
    "xla, maps, is_told", [(True, 51, True), (True, 50, False), (False, 99, False), (True, None, False)]
)
def test_a_process_that_xla_has_nearly_filled_is_told_of(tmp_path, monkeypatch, logged, xla, maps, is_told):
    if maps is not None:  # As where there is no /proc.
        (tmp_path / "self").mkdir()
        (tmp_path / "self" / "maps").write_text("7f00-7f01 r--p 00000000 00:00 0\n" * maps)
        (tmp_path / "sys" / "vm").mkdir(parents=True)
        (tmp_path / "sys" / "vm" / "max_map_count").write_text("100\n")
    monkeypatch.setattr(runtime, "_PROC", tmp_path)
    runtime.set_up(RuntimeConfig(xla=xla))
    told = [line for line in logged() if "memory maps" in line]
    assert len(told) == is_told and all("more than 100 memory maps. Received: one that has 51" in line for line in told)


def test_settings_end_with_the_run():
    with runtime.settings_kept():
        runtime.set_up(RuntimeConfig(mixed_precision=True, device="cpu", deterministic=True))
        assert determinism.is_op_determinism_enabled()
    assert keras.config.dtype_policy().name == "float32"
    assert not determinism.is_op_determinism_enabled()


@pytest.mark.skipif(not pathlib.Path("/proc/self/clear_refs").exists(), reason="Linux's")
def test_the_peak_of_a_process_and_of_each_gpu_is_reset(monkeypatch):
    with mmap.mmap(-1, 1 << 28) as large:  # Not malloc's, which `keep_freed_memory` tells to keep what it has.
        large.write(b"\1" * len(large))
        before = runtime.peak_memory_bytes()
    runtime.reset_peak_memory()
    assert runtime.peak_memory_bytes() < before - (1 << 27)
    reset = []
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["first", "second"])
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", reset.append)
    runtime.reset_peak_memory()
    assert reset == ["GPU:0", "GPU:1"]


@pytest.mark.parametrize(
    "flags, emulates",
    [("fpu avx2 avx512f", True), ("fpu avx2 avx512f avx512_bf16", False), ("avx2 amx_bf16", False), ("asimd", False)],
)
def test_cpus_without_bfloat16(monkeypatch, flags, emulates):
    monkeypatch.setattr(pathlib.Path, "read_text", lambda *args, **kwargs: f"flags\t: {flags}\n")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    assert runtime.emulates_bfloat16() == emulates
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["GPU:0"])
    assert not runtime.emulates_bfloat16()


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[512,12]\nmore"),
        tf.errors.InternalError(None, None, "CUDNN: out of memory"),
    ],
)
def test_a_batch_that_is_too_large_is_one_line_with_the_ways_out(error):
    ways = "--gradient_accumulation_steps=auto.*--max_seq_length"
    with pytest.raises(RunError, match=ways) as caught, runtime.library_errors_as_run_errors(Config()):
        raise error
    assert "\n" not in str(caught.value) and error.message.splitlines()[0] in str(caught.value)


def test_a_full_disk_is_no_exhausted_memory():
    """TensorFlow's error is of the class of both."""
    where = "{{function_node __wrapped__SaveV2_device_/job:localhost/replica:0/task:0/device:CPU:0}} "
    error = tf.errors.ResourceExhaustedError(None, None, f"{where}/a/part-0; No space left on device [Op:SaveV2] name:")
    with pytest.raises(RunError) as caught, runtime.library_errors_as_run_errors(Config()):
        raise error
    assert "Received: No space left on device: /a/part-0. Check free space" in str(caught.value)
    assert not runtime.is_out_of_memory(error), "so that fewer examples at a time are not tried"
    with pytest.raises(RunError, match="Disk quota exceeded: 'a'"), runtime.library_errors_as_run_errors(Config()):
        raise OSError(122, "Disk quota exceeded", "a")


@pytest.mark.parametrize(
    "error, shown",
    [
        (tf.errors.UnknownError(None, None, "{{node A/b}} failed\n\t [[{{node A/b}}]]"), "failed"),
        (tf.errors.InternalError(None, None, "{{function_node f}} {{node b}}"), "InternalError"),
        (OSError(28, "No space left on device", "/a/b"), "No space left on device: '/a/b'"),
        (OSError(122, "Can't write data (file write failed, time = x"), "Disk quota exceeded: Can't write data (file"),
        (OSError("no number"), "no number"),
        (ValueError("a [Op: b] c. d."), "a [Op: b] c. d"),
    ],
)
def test_errors_of_libraries_in_one_line(error, shown):
    assert first_line(error).startswith(shown)


def test_other_errors_pass():
    gone = FileNotFoundError(2, "No such file or directory", "x")
    for error in (tf.errors.InternalError(None, None, "something else"), ValueError("out of memory"), gone):
        with pytest.raises(type(error)), runtime.library_errors_as_run_errors(Config()):
            raise error


# --- which devices a strategy takes


WORKERS = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}


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
    for options, kind in (({}, "OneDeviceStrategy"), ({"strategy": "mirrored"}, "MirroredStrategy")):
        strategy = build_strategy(RuntimeConfig(device="cpu", **options))
        assert [tf.DeviceSpec.from_string(name).device_type for name in strategy.extended.worker_devices] == ["CPU"]
        assert describe(strategy) == f"{kind}, 1 replica on CPU"


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
    monkeypatch.setenv("TF_CONFIG", tf_config(WORKERS))
    with pytest.raises(UsageError, match="A cluster must be joined before.*in a new process"):
        build_strategy(RuntimeConfig(strategy="multi_worker"), cluster_timeout_seconds=0.1)


@pytest.mark.parametrize("given, expected", [({}, 7), ({"cluster_timeout_seconds": 0.5}, 0.5)])
def test_the_configuration_says_how_long_to_wait_for_workers(monkeypatch, given, expected):
    waits = mock.Mock(side_effect=RunError("nobody"))
    monkeypatch.setattr(runtime.private, "devices_are_initialized", lambda: False)
    monkeypatch.setattr(runtime, "wait_for_peers", waits)
    monkeypatch.setenv("TF_CONFIG", tf_config(WORKERS))
    with pytest.raises(RunError, match="nobody"):
        build_strategy(RuntimeConfig(strategy="multi_worker", cluster_timeout_seconds=7), **given)
    waits.assert_called_once_with(mock.ANY, expected)


# --- who speaks


LOG = logging.getLogger("tfbert")
OTHER = (
    "this is worker 1 of 2: it computes with the others, but worker 0 alone shows progress and writes files, such as "
    "log.jsonl in the output directory; warnings and errors are shown here too"
)


@pytest.fixture
def start_as(monkeypatch):
    """Starts this process's devices as the chief's, or as another worker's."""

    def start_as(chief):
        monkeypatch.setenv("TF_CONFIG", tf_config(WORKERS, index=1))
        monkeypatch.setattr(runtime, "build_strategy", lambda *args, **kwargs: strategy_of(1))
        monkeypatch.setattr(runtime, "is_chief", lambda strategy: chief)
        assert runtime.start_devices(Config(runtime=RuntimeConfig(device="cpu")))[1] is chief

    yield start_as
    runtime.inform_on_chief_alone(True)


def tell():
    LOG.debug("details")
    LOG.info("evaluating")
    LOG.warning("damaged")


def test_only_the_chief_informs_and_every_worker_warns(start_as, logged):
    for chief, expected in [
        (True, ["evaluating", "damaged"]),
        (False, [OTHER, "damaged"]),
        (False, ["damaged"]),  # It has said so.
        (True, ["evaluating", "damaged"]),  # A process may be the chief of its next run.
    ]:
        start_as(chief)
        tell()
        assert logged() == expected


def test_other_workers_inform_where_debugging_is_asked_for(start_as, logged, caplog):
    caplog.set_level(logging.DEBUG, logger="tfbert")
    start_as(False)
    tell()
    assert logged() == [OTHER, "details", "evaluating", "damaged"]


def test_another_backend_of_keras_is_refused_with_the_way_out(monkeypatch):
    runtime.check_backend()
    monkeypatch.setattr(runtime.keras.config, "backend", lambda: "jax")
    with pytest.raises(UsageError, match="by TensorFlow. Received: Keras with the backend 'jax'"):
        runtime.start_devices(Config(runtime=RuntimeConfig(device="cpu")))
