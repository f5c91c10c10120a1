"""What is set before TensorFlow is imported, unless the user says otherwise: freed memory stays, oneDNN is used."""

import ctypes
import os
import platform
from unittest import mock

import pytest

from tests.support.processes import output_of
from tfbert.devices import process
from tfbert.devices.process import choose_kernels

ALL = {-4: 0, -1: (1 << 31) - 1, -8: 1, -2: 1 << 28}
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc")

FAULTS = """
import resource, threading
from tfbert.devices.process import keep_freed_memory
assert keep_freed_memory()
import ctypes
ctypes.CDLL(None).mallopt(-3, 131072)  # As TensorFlow does when it makes a data set of a generator.
import numpy as np

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def compute():
    held = np.ones(280 << 20, np.uint8)  # Of more than what the heap grew by at first.
    np.ones(50 << 20, np.uint8)
    before = faults()
    for _ in range(8):
        np.ones(50 << 20, np.uint8)
    print(faults() - before)

thread = threading.Thread(target=compute)
thread.start()
thread.join()
"""


@needs_glibc
def test_a_thread_finds_the_memory_that_it_freed():
    assert int(output_of(FAULTS)) < 8, "without it, 8 times 12,800 pages, or 25 large ones"


@pytest.mark.parametrize(
    "environment, kept",
    [
        ({}, ALL),
        ({"MALLOC_ARENA_MAX": "4"}, {}),
        ({"GLIBC_TUNABLES": "glibc.rtld.nns=2"}, ALL),
        ({"GLIBC_TUNABLES": "glibc.rtld.nns=2:glibc.malloc.arena_max=3"}, {}),
    ],
)
def test_where_the_environment_says_anything_all_stays(monkeypatch, environment, kept):
    libc = mock.Mock(spec=["mallopt"], mallopt=mock.Mock(return_value=1))
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert process.keep_freed_memory() == bool(kept)
    assert dict(call.args for call in libc.mallopt.call_args_list) == kept


def test_another_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("no glibc"))
    assert not process.keep_freed_memory()


def test_the_command_does_it_and_turns_onednn_on_before_tensorflow_is_imported():
    code = """
import os, sys
os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)
import run_finetune
from tfbert.devices import process

def imports(what):
    print(flag, *seen, os.environ.get("TF_ENABLE_ONEDNN_OPTS"), "tensorflow" in sys.modules)
    raise KeyboardInterrupt

process.stderr_held_back = imports
process.keep_freed_memory = lambda: seen.append("memory")
for flag in ("--keep_freed_memory", "--nokeep_freed_memory"):
    seen, sys.argv = [], ["run_finetune.py", flag]
    run_finetune.main()
"""
    on_x86 = "1" if platform.machine() == "x86_64" else None
    assert output_of(code) == f"--keep_freed_memory memory {on_x86} False\n--nokeep_freed_memory {on_x86} False\n"


@pytest.mark.parametrize(
    "machine, given, expected", [("x86_64", None, "1"), ("x86_64", "0", "0"), ("aarch64", None, None)]
)
def test_onednn_is_used_on_x86(monkeypatch, machine, given, expected):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if given:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", given)
    choose_kernels()
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == expected
    os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0"),
        ("--xla_gpu_autotune_level=4", "--xla_gpu_autotune_level=4 --xla_gpu_enable_triton_gemm=false"),
        ("flags.txt", "flags.txt"),
    ],
)
def test_xla_searches_no_kernels_on_a_gpu_unless_told_to(monkeypatch, given, wanted):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    monkeypatch.setenv("XLA_FLAGS", given)
    monkeypatch.setattr(process, "_has_nvidia", lambda: False)
    choose_kernels()
    assert os.environ["XLA_FLAGS"] == given, "there is no GPU"
    monkeypatch.setattr(process, "_has_nvidia", lambda: True)
    choose_kernels()
    assert os.environ["XLA_FLAGS"] == wanted
    choose_kernels()
    assert os.environ["XLA_FLAGS"] == wanted
