"""Starting and watching other processes."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).parents[2]
LIMIT_SECONDS = 180
QUICK_START = """
import gc, sys
gc.set_threshold(50_000)
sys.modules |= dict.fromkeys(("matplotlib", "pandas", "sklearn"))
"""
"""What a program begins with to import TensorFlow in two thirds of the time: Keras imports these where they are."""


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def output_of(code, directory=ROOT, **variables) -> str:
    """What Python code prints in a process of its own, which ends well."""
    command, environment = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def tf_config(cluster, job="worker", index=0) -> str:
    """The environment variable of a worker."""
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def write_program(path, text):
    """A shell script that can be started by its name."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def wait_until(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@contextlib.contextmanager
def processes_of(code, environments):
    """A Python process for each environment; none is left afterwards."""
    command = [sys.executable, "-c", *code]
    common = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=ROOT, env=common | env, **pipes) for env in environments]
    guards = [threading.Timer(LIMIT_SECONDS, process.kill) for process in processes]  # for reads, which have no limit
    for guard in guards:
        guard.start()
    try:
        yield processes
    finally:
        for process, guard in zip(processes, guards, strict=True):
            guard.cancel()
            process.kill()
            process.communicate()


def command(directory, *arguments, text=""):
    """What run_finetune.py does in a process of its own."""
    words = [sys.executable, str(ROOT / "run_finetune.py"), *map(str, arguments)]
    return subprocess.run(words, cwd=directory, input=text, capture_output=True, text=True, timeout=300)
