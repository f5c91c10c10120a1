"""Processes that do tasks: in this one if it is alone, told of if one dies, gone when this one is."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.processes import is_running, wait_until
from tfbert.corpus.worker_pool import WorkerPool
from tfbert.errors import RunError

PROGRAM = """\
import os, signal, sys, time
from tfbert.corpus.worker_pool import WorkerPool
if __name__ == "__main__":
    with WorkerPool(2) as pool:
        pids = pool.map(os.getpid, [(), (), ()])
        print(next(pids), flush=True)
        list(pool.map(time.sleep, [(600,), (600,)]))
"""


def test_one_process_is_this_one():
    with WorkerPool(1) as pool:
        assert list(pool.map(os.getpid, [(), ()])) == [os.getpid()] * 2
    with WorkerPool(4) as pool:
        assert list(pool.map(os.getpid, [()])) == [os.getpid()]


@pytest.mark.slow
def test_two_processes_are_others_and_errors_come_back():
    with WorkerPool(2) as pool:
        assert sorted(pool.map(pow, [(2, 3), (3, 2), (1, 5)])) == [1, 8, 9]
        assert os.getpid() not in set(pool.map(os.getpid, [(), ()]))
    with pytest.raises(ZeroDivisionError), WorkerPool(2) as pool:
        list(pool.map(divmod, [(1, 0), (1, 1)]))


@pytest.mark.slow
def test_a_process_that_dies_is_told_of():
    message = "was ended, probably by the kernel .*2 processes. Pass a lower --num_processes: shards that are whole are"
    message += " not made again. Or make all again, with a higher --num_shards and --overwrite_output_dir."
    with pytest.raises(RunError, match=message), WorkerPool(2) as pool:
        list(pool.map(os._exit, [(9,), (9,)]))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_outlives_the_one_that_was_killed(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}  # noqa: PTH109 (where pytest was started)
    started = subprocess.Popen([sys.executable, tmp_path / "program.py"], stdout=subprocess.PIPE, env=environment)
    worker = int(started.stdout.readline())
    assert is_running(worker)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert wait_until(lambda: not is_running(worker))
