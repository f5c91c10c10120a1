"""Processes that do tasks: in this one if it is alone, told of if one dies, gone when this one is."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.processes import is_running, wait_until
from tfbert.corpus.shards import done_by_processes
from tfbert.errors import RunError

PROGRAM = """\
import os, time
from tfbert.corpus.shards import done_by_processes
def work(number):
    print(os.getpid(), flush=True)
    time.sleep(600)
if __name__ == "__main__":
    list(done_by_processes(work, [1, 2], 2))
"""


def called(task):
    return task, os.getpid()


def test_one_process_is_this_one():
    own = [(number, os.getpid()) for number in range(2)]
    assert list(done_by_processes(called, range(2), 1)) == own
    assert list(done_by_processes(called, range(1), 4)) == own[:1]


@pytest.mark.slow
def test_two_processes_are_others_and_errors_come_back():
    found = dict(done_by_processes(called, range(3), 2))
    assert sorted(found) == [0, 1, 2] and os.getpid() not in found.values()
    with pytest.raises(ZeroDivisionError):
        list(done_by_processes((1).__floordiv__, [0, 1], 2))


def end(task):
    os._exit(9)


@pytest.mark.slow
def test_a_process_that_dies_is_told_of():
    message = "was ended, probably by the kernel .*2 processes. Pass a lower --num_processes: shards that are whole are"
    message += " not made again. Or make all again, with a higher --num_shards and --overwrite_output_dir."
    with pytest.raises(RunError, match=message):
        list(done_by_processes(end, [1, 2], 2))


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
