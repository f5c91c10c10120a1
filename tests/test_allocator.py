"""Freed memory stays with the process, unless the user says otherwise, and from before TensorFlow is imported."""

import ctypes
import json
import os
import pathlib
import platform
import subprocess
import sys

import pytest

from tfbert import allocator

ROOT = pathlib.Path(__file__).parent.parent
ALL = {-3: 1 << 30, -1: (1 << 31) - 1, -8: 1, -2: 1 << 28}
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc")

FAULTS = """
import resource, sys, threading
from tfbert.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
import numpy as np

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def compute():
    np.ones(50 << 20, np.uint8)
    before = faults()
    for _ in range(20):
        np.ones(50 << 20, np.uint8)
    print(faults() - before)

thread = threading.Thread(target=compute)
thread.start()
thread.join()
"""


@needs_glibc
def test_a_thread_finds_the_memory_that_it_freed():
    def faults(word):
        command = [sys.executable, "-c", FAULTS, word]
        return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)

    # 20 times 12,800 pages, or 25 large ones.
    assert faults("given back") >= 500
    assert faults("kept") < 20


class Libc:
    """Notes the calls of mallopt, and refuses values above a limit, as older versions do."""

    def __init__(self, limit=1 << 40):
        self.calls, self.limit = {}, limit

    def mallopt(self, parameter, value):
        if value <= self.limit:
            self.calls[parameter] = value
        return int(value <= self.limit)


@pytest.mark.parametrize(
    "environment, kept",
    [
        ({}, {-3, -1, -8, -2}),
        ({"MALLOC_ARENA_MAX": "4"}, {-3, -1, -2}),
        ({"GLIBC_TUNABLES": "glibc.malloc.top_pad=1:glibc.rtld.nns=2:glibc.malloc.arena_max=3"}, {-3, -1}),
        ({f"MALLOC_{name}": "1" for name in ("MMAP_THRESHOLD_", "TRIM_THRESHOLD_", "ARENA_MAX", "TOP_PAD_")}, set()),
    ],
)
def test_what_the_environment_sets_stays(monkeypatch, environment, kept):
    libc = Libc()
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert allocator.keep_freed_memory() == bool(kept)
    assert libc.calls == {parameter: ALL[parameter] for parameter in kept}


def test_an_older_version_gets_what_it_takes(monkeypatch):
    libc = Libc(limit=1 << 29)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.17"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    assert allocator.keep_freed_memory()
    assert libc.calls == {-3: 1 << 25, -8: 1, -2: 1 << 28}


def test_another_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("no glibc"))
    assert not allocator.keep_freed_memory()


@pytest.mark.parametrize("flags, expected", [([], [False]), (["--nokeep_freed_memory"], [])])
def test_the_command_does_it_before_tensorflow_is_imported(flags, expected):
    code = f"""
import json, sys, run_finetune

seen = []
run_finetune.keep_freed_memory = lambda: seen.append("tensorflow" in sys.modules)
run_finetune.stderr_held_back = lambda: sys.exit(json.dumps(seen))
sys.argv = ["run_finetune.py", *{flags!r}]
run_finetune.main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert json.loads(done.stderr) == expected
