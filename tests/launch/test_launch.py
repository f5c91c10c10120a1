"""The launcher, with workers that are small Python scripts and import no TensorFlow."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import types

import pytest

from tests.support.processes import ROOT, is_running, wait_until, write_program
from tests.support.refusals import refused
from tfbert import launch as launch_module
from tfbert.devices.cluster import PREEMPTED_STATUS
from tfbert.launch import Signals, launch, parse_command_line, worker_environments

TIMEOUT_SECONDS = 30


@pytest.fixture
def start(tmp_path):
    """Starts the launcher over a worker script; whatever happens, it is gone after the test."""
    started = []

    def start(script: str, *flags: str, arguments=(), **environment: str) -> subprocess.Popen:
        path = tmp_path / "worker.py"
        path.write_text(PROLOGUE + textwrap.dedent(script))
        command = [sys.executable, "-m", "tfbert.launch", "--num_workers=2", *flags, "--", str(path), *arguments]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **environment}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}  # for two readers of one pipe
        process = subprocess.Popen(command, env=env, cwd=tmp_path, **pipes)
        guard = threading.Timer(TIMEOUT_SECONDS, process.kill)  # for reads, which have no limit
        guard.start()
        started.append((process, guard))
        return process

    yield start
    for process, guard in started:
        guard.cancel()
        process.kill()
        process.communicate()


PROLOGUE = """\
import json, os, signal, subprocess, sys, time
me = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
restarts = int(os.environ["TFBERT_RESTARTS"])
def stay():
    print("ready", flush=True)
    while True:
        signal.pause()
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""


def finish(process: subprocess.Popen) -> tuple[int, list[str], list[str]]:
    """Waits for the launcher's end: status, lines of stdout, lines of stderr."""
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, sorted(out.decode().splitlines()), err.decode().splitlines()


@pytest.fixture
def run(tmp_path, monkeypatch, capfdbinary):
    """Runs the launcher over a worker script in this process: status, what is on stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def run(script: str, *flags: str, arguments=(), **environment: str) -> tuple[int, bytes, bytes]:
        (tmp_path / "worker.py").write_text(PROLOGUE + textwrap.dedent(script))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        status = launch(parse_command_line(["--num_workers=2", *flags, "--", str(tmp_path / "worker.py"), *arguments]))
        return status, *capfdbinary.readouterr()

    return run


def lines(data: bytes) -> list[str]:
    return sorted(data.decode().splitlines())


def read_lines(process: subprocess.Popen, count: int) -> list[str]:
    return sorted(process.stdout.readline().decode().rstrip("\n") for _ in range(count))


def test_each_worker_gets_its_place_arguments_and_gpus(run):
    status, out, _ = run(
        'print(os.environ["TF_CONFIG"], os.environ["CUDA_VISIBLE_DEVICES"], sys.argv[1:], sep="|")',
        arguments=["--strategy=multi_worker", "--", "--num_workers=7"],
        CUDA_VISIBLE_DEVICES="4,5,6,7,8",
        TF_CONFIG="an outer one",
    )
    assert status == 0
    (first, gpus_0, argv_0), (second, gpus_1, argv_1) = (line.split("|") for line in lines(out))
    config_0 = json.loads(first.removeprefix("[worker 0] "))
    addresses = config_0["cluster"]["worker"]
    assert len(set(addresses)) == 2 and all(address.startswith("127.0.0.1:") for address in addresses)
    assert config_0["task"] == {"type": "worker", "index": 0}
    expected = config_0 | {"task": {"type": "worker", "index": 1}}
    assert json.loads(second.removeprefix("[worker 1] ")) == expected
    assert (gpus_0, gpus_1) == ("4,5", "6,7")
    assert argv_0 == argv_1 == "['--strategy=multi_worker', '--', '--num_workers=7']"


def test_output_keeps_streams_and_bytes(run):
    status, out, err = run(
        r"""
        if me == 0:
            sys.stdout.buffer.write(b"caf\xe9 \xff\n\nno newline")
            sys.stderr.buffer.write(b"\r 1/2\r 2/2\ndone\r\n")
        """
    )
    assert (status, out) == (0, b"[worker 0] caf\xe9 \xff\n[worker 0] \n[worker 0] no newline\n")
    assert err == b"[worker 0] \r 1/2\r 2/2\n[worker 0] done\r\n"


def test_lines_written_in_pieces_stay_whole(run):
    _, out, _ = run(
        """
        for _ in range(200):
            for piece in "a", "b", "c", "\\n":
                os.write(1, piece.encode())
        """
    )
    assert lines(out) == ["[worker 0] abc"] * 200 + ["[worker 1] abc"] * 200


@pytest.mark.parametrize(
    "failure, expected, said",
    [("sys.exit(3)", 3, "failed (exit status 3)"), ("os.kill(os.getpid(), 9)", 137, "was killed by SIGKILL")],
)
def test_the_first_failure_ends_all_with_its_status_or_128_plus_its_signal(run, failure, expected, said):
    status, _, err = run(f"{failure} if me == 1 else time.sleep(100)")
    assert (status, err.decode()) == (expected, f"[launch] worker 1 {said}; ending the others\n")


@pytest.mark.parametrize("how", ["ignores SIGTERM", "is frozen"])
def test_a_worker_that_does_not_end_is_killed(start, how):
    process = start(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if me == 1:
            print(os.getpid(), flush=True)
            signal.pause()
        wait_for("go")
        sys.exit(5)
        """,
        "--grace_seconds=0.3",
    )
    pid = int(read_lines(process, 1)[0].split()[-1])
    if how == "is frozen":
        os.kill(pid, signal.SIGSTOP)
    pathlib.Path(process.args[-1]).with_name("go").touch()
    status, _, err = finish(process)
    assert (status, err[-1]) == (5, "[launch] worker 1 did not end in time: killed")
    assert not is_running(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_all_workers_and_end_the_restarts(start, number):
    process = start(
        f"""
        def stop(number, frame):
            print("saved after", number, flush=True)
            sys.exit({PREEMPTED_STATUS})
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        stay()
        """,
        "--max_restarts=3",
    )
    assert read_lines(process, 2) == ["[worker 0] ready", "[worker 1] ready"]
    process.send_signal(number)
    status, out, err = finish(process)
    assert (status, err) == (PREEMPTED_STATUS, [])
    assert out == [f"[worker 0] saved after {number}", f"[worker 1] saved after {number}"]


def test_a_second_interrupt_kills_at_once(start):
    process = start(
        """
        signal.signal(signal.SIGINT, lambda *_: print("saving", flush=True))
        stay()
        """
    )
    read_lines(process, 2)
    process.send_signal(signal.SIGINT)
    assert read_lines(process, 2) == ["[worker 0] saving", "[worker 1] saving"]
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 137


def test_restarts_use_fresh_ports_and_end_with_success(run):
    status, out, err = run(
        """
        if me:
            print(restarts, json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"], flush=True)
            sys.exit(restarts < 2)
        """,
        "--max_restarts=5",
        "--restart_delay_seconds=0.01",
    )
    assert status == 0
    out, err = lines(out), err.decode().splitlines()
    assert [line[:12] for line in out] == ["[worker 1] 0", "[worker 1] 1", "[worker 1] 2"]
    assert len({line[12:] for line in out}) == 3
    assert err[1::2] == [f"[launch] all workers start again in 0.0{n} s (restart {n} of 5)" for n in (1, 2)]


@pytest.mark.parametrize("status, starts", [(2, 1), (PREEMPTED_STATUS, 3)])
def test_what_is_started_again(run, status, starts):
    flags = ("--max_restarts=2", "--restart_delay_seconds=0")
    code, out, _ = run(f"if me: print('start'); sys.exit({status})", *flags)
    assert (code, len(lines(out))) == (status, starts)


def test_bad_usage_of_one_worker_decides(run):
    status, _, _ = run(
        """
        if me == 1:
            wait_for("ready")
            sys.exit(1)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
        open("ready", "w").close()
        stay()
        """,
        "--max_restarts=2",
    )
    assert status == 2


def test_the_delay_doubles_up_to_a_minute(monkeypatch):
    delays = []
    monkeypatch.setattr(launch_module, "WorkerGroup", lambda *_, **__: types.SimpleNamespace(run=lambda *_: 1))
    monkeypatch.setattr(Signals, "wait", lambda self, seconds: delays.append(seconds))
    assert launch(parse_command_line(["--max_restarts=8", "--", "x.py"])) == 1
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_signal_ends_the_delay(start):
    process = start("sys.exit(1)", "--max_restarts=1", "--restart_delay_seconds=50")
    while b"start again" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 75


def test_no_process_is_left(run):
    status, out, _ = run(
        """
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        print(os.getpid(), child.pid, flush=True)
        open(f"said-{me}", "w").close()
        wait_for(f"said-{1 - me}")  # The failure of one stops the other, in the middle of a line too.
        sys.exit(me)
        """
    )
    pids = [int(pid) for line in lines(out) for pid in line.split()[2:]]
    assert (status, len(pids)) == (1, 4)
    assert wait_until(lambda: not any(map(is_running, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_workers_die_with_a_killed_launcher(start):
    process = start("print(os.getpid(), flush=True); time.sleep(100)")
    pids = [int(line.split()[-1]) for line in read_lines(process, 2)]
    assert all(map(is_running, pids))
    process.kill()
    assert wait_until(lambda: not any(map(is_running, pids)))


def test_a_closed_pipe_ends_all_workers(start):
    process = start(
        """
        print("ready", flush=True)
        while True:
            print("more", flush=True)
            time.sleep(0.01)
        """
    )
    process.stdout.close()
    assert process.wait(TIMEOUT_SECONDS) == 141
    process.stdout = None


def test_a_program_other_than_python_is_run_as_it_is(capfdbinary):
    assert launch(parse_command_line(["--", "sh", "-c", "echo $0", "hello"])) == 0
    assert capfdbinary.readouterr().out == b"[worker 0] hello\n"


@pytest.mark.parametrize(
    "words, message",
    [
        ("", "A command must follow --. Received: none."),
        ("--num_workers=2 x.py", "go before --.* Received: unrecognized arguments: x.py. Usage: "),
        ("--num_worker=2 -- x.py", "Received: unrecognized arguments: --num_worker=2. Usage: .*--num_workers=N"),
        ("--num_workers=two -- x.py", "Received: argument --num_workers: invalid int value: 'two'. Usage: "),
        ("--grace_seconds=1s -- x.py", "Received: argument --grace_seconds: invalid float value: '1s'. Usage: "),
        ("--max_restarts", "Received: argument --max_restarts: expected one argument. Usage: "),
        ("--num_workers=0 -- x.py", "num_workers must be 1 or more. Received: num_workers=0."),
        ("--grace_seconds=nan -- x.py", "grace_seconds must be finite."),
    ],
)
def test_bad_usage_is_one_line(words, message):
    with refused(message):
        parse_command_line(words.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--num_workers=2", "-h", "--", "x.py"]])
def test_its_help_names_all_flags_with_their_defaults(arguments, capsys):
    assert launch_module.main(arguments) == 0
    text = capsys.readouterr().out
    assert "--num_workers N" in text and "processes to start" in text and "(30.0)" in text
    assert all(f"--{name} " in text for name in vars(parse_command_line(["--", "x"])) if name != "command")


def test_its_help_may_be_cut_short():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tfbert.launch", "--help"]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_command_reports_bad_usage_with_status_2(capsys):
    assert launch_module.main(["--num_workers=2", "--", "no-such-program"]) == 2
    assert capsys.readouterr().err == (
        "The command must be a program. Received: 'no-such-program' (No such file or directory). Check its path.\n"
    )


def test_gpus_are_counted_by_nvidia_smi(monkeypatch, tmp_path):
    write_program(tmp_path / "nvidia-smi", "echo 'GPU 0: A (UUID: x)'; echo 'GPU 1: A (UUID: y)'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in worker_environments(2)] == ["0", "1"]
