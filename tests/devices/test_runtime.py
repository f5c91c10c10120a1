"""Set-up of the process: the precision policy, the devices asked for, what the CPU can do."""

import mmap
import pathlib

import keras
import pytest
import tensorflow as tf
from tensorflow.python.framework import config as determinism

from tfbert import Config, RunError, RuntimeConfig, UsageError
from tfbert.devices import runtime
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
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
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
