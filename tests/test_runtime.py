"""Set-up of the process: the precision policy, the devices asked for, what the CPU can do."""

import pathlib

import pytest
import tensorflow as tf
import tf_keras as keras

from tfbert import runtime
from tfbert.config import Config, RuntimeConfig
from tfbert.errors import RunError, UsageError


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
        assert keras.mixed_precision.global_policy().name == "mixed_bfloat16"
        drawn.append(float(tf.random.normal([])))
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])
    with pytest.raises(UsageError, match="device=gpu needs a GPU.*pass --device=cpu"):
        runtime.set_up(RuntimeConfig(device="gpu"))


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


def test_the_peak_of_each_gpu_is_reset(monkeypatch):
    reset = []
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["first", "second"])
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", reset.append)
    runtime.reset_peak_memory()
    assert reset == ["GPU:0", "GPU:1"]


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[512,12]\nmore"),
        tf.errors.InternalError(None, None, "CUDNN: out of memory"),
    ],
)
def test_a_batch_that_is_too_large_is_one_line_with_the_ways_out(error):
    ways = "--gradient_accumulation_steps=auto.*--max_seq_length"
    with pytest.raises(RunError, match=ways) as caught, runtime.out_of_memory_as_run_error(Config()):
        raise error
    assert "\n" not in str(caught.value) and error.message.splitlines()[0] in str(caught.value)


def test_other_errors_pass():
    for error in (tf.errors.InternalError(None, None, "something else"), ValueError("out of memory")):
        with pytest.raises(type(error)), runtime.out_of_memory_as_run_error(Config()):
            raise error
