"""SIGTERM ends every command with status 75, however early it comes, and as PID 1, where the kernel drops it otherwise.

Most tests stand in for TensorFlow: a package that says when it is imported, and then takes for ever.
"""

import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import ROOT, wait_until
from tfbert.devices import process as module

LINE = "stopped by SIGTERM; nothing is lost, the same command starts again"
IMPORTED = """\
import os, pathlib, time

pathlib.Path(os.environ["SAYS_WHEN"], str(os.getpid())).touch()
time.sleep(100)
"""
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
UNSHARE = ["unshare", "--fork", "--pid", "--kill-child"]


def can_unshare():
    return bool(shutil.which("unshare")) and not subprocess.run([*UNSHARE, "true"], capture_output=True).returncode


@pytest.fixture
def importing(tmp_path):
    """A function that starts a command and returns once that many of its processes import TensorFlow."""
    package, said = tmp_path / "stand_in" / "tensorflow", tmp_path / "said"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(IMPORTED)
    said.mkdir()
    path = os.pathsep.join([str(package.parent), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "SAYS_WHEN": str(said)}
    processes = []

    def start(*command, count=1):
        words = list(map(str, command))
        process = subprocess.Popen(words, cwd=tmp_path, env=environment, text=True, **PIPES)
        processes.append(process)
        assert wait_until(lambda: len(list(said.iterdir())) == count or process.poll() is not None, seconds=60)
        assert process.poll() is None, process.communicate()
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def words_of(name, tmp_path):
    rows, out = tmp_path / "rows.tsv", f"--output_dir={tmp_path / 'out'}"
    rows.write_text("label\tsentence\n1\tgood\n")
    (tmp_path / "model").mkdir()
    data, model = f"--validation_file={rows}", f"--model={tmp_path / 'model'}"
    finetune, pretrain = ROOT / "run_finetune.py", ROOT / "run_pretraining.py"
    return {
        "train": [finetune],
        "seeds": [finetune, "--seeds=1,2"],
        "evaluate": [finetune, "--mode=evaluate", model, data],
        "predict": [finetune, "--mode=predict", model, f"--input_file={rows}"],
        "export": [finetune, "--mode=export", model, out],
        "pretrain": [pretrain],
        "prepare": [pretrain, "--mode=prepare", f"--input_files={rows}", out, "--learn_vocab=100"],
        "word": ["-m", "tfbert", "finetune"],
    }[name]


def said(errors):
    """The only line; on a slow machine there is another one before it."""
    *before, line = errors.splitlines()
    assert before in ([], ["importing TensorFlow ..."]), errors
    return line


@pytest.mark.parametrize(
    "name", ["train", "seeds", *map(slow, ("prepare", "predict", "evaluate", "export", "pretrain"))]
)
def test_a_command_that_still_imports_ends_with_75(importing, tmp_path, name):
    process = importing(sys.executable, *words_of(name, tmp_path))
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (75, "")
    assert said(errors).endswith(f".py: {LINE}")


def test_so_does_the_word_and_ctrl_c_keeps_its_status(importing, tmp_path):
    for count, (number, status) in enumerate([(signal.SIGTERM, 75), (signal.SIGINT, 130)], start=1):
        process = importing(sys.executable, "-m", "tfbert", "finetune", count=count)
        process.send_signal(number)
        errors = process.communicate(timeout=120)[1]
        assert process.returncode == status
        assert said(errors).startswith("python -m tfbert finetune: stopped by ")


@pytest.mark.skipif(not can_unshare(), reason="needs unshare")
@pytest.mark.parametrize("name", ["word", slow("train"), slow("predict")])
def test_so_it_is_as_process_1(importing, tmp_path, name):
    outer = importing(*UNSHARE, sys.executable, *words_of(name, tmp_path))
    (inner,) = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    os.kill(int(inner), signal.SIGTERM)
    errors = outer.communicate(timeout=120)[1]
    assert outer.returncode == 75
    assert LINE in errors


def run(body, sends=1, wait=0.1):
    """Runs `body` as a program that prints a line when it is ready for SIGTERM."""
    code = "import os, signal, sys, time\nfrom tfbert.devices import process\n" + body
    code += "\nsys.exit(process.run_program('prog', main))"
    command, environment = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": str(ROOT)}
    # `communicate` knows nothing of what a buffer took beyond the first line.
    process = subprocess.Popen(command, bufsize=0, env=environment, **PIPES)
    process.stdout.readline()
    for _ in range(sends):
        process.send_signal(signal.SIGTERM)
        time.sleep(wait)
    out, errors = process.communicate(timeout=120)
    return process.returncode, out.decode(), errors.decode()


@pytest.mark.parametrize(
    "error, line",
    [
        (OSError(28, "No space left on device", "/a/b"), "No space left on device: '/a/b'"),
        (PermissionError(13, "Permission denied", "x"), "Permission denied: 'x'. Check"),
        (OSError(36, "File name too long", "a" * 999), "File name too long: 'aaa.{,200}C"),
        (
            ImportError("Keras cannot be imported."),
            "Keras cannot .* Run unset TF_USE_LEGACY_KERAS, or pip install tf_keras",
        ),
        (ImportError("No module named 'absl'"), "No module .* Run pip install -e"),
        (FileNotFoundError(2, "No such file", "x"), ""),
        (OSError("of no kind"), ""),
    ],
)
def test_what_the_machine_refuses_is_a_line_and_a_bug_is_none(error, line, monkeypatch, capsys):
    def main():
        raise error

    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    with module.signals_handled(signal.SIG_IGN, signal.SIGTERM):
        if not line:
            with pytest.raises(type(error)):
                module.run_program("prog", main)
            return
        assert module.run_program("prog", main) == 1
    assert re.fullmatch(f"prog: error: .* Received: {line}.*\n", capsys.readouterr().err)


def test_a_second_signal_does_not_cut_the_cleaning_up():
    body = """
def main():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        time.sleep(0.5)
        print("cleaned")
"""
    assert run(body, sends=3) == (75, "cleaned\n", f"prog: {LINE}\n")


def test_a_signal_that_other_code_swallowed_is_found_later():
    body = """
def main():
    try:
        print("ready", flush=True)
        time.sleep(60)
    except BaseException:
        pass
    process.check()
    print("went on")
"""
    assert run(body) == (75, "", f"prog: {LINE}\n")


def test_a_later_signal_is_heard_if_the_first_one_was_swallowed():
    body = """
process._SECONDS_BETWEEN = 0.1
def main():
    try:
        print("ready", flush=True)
        time.sleep(60)
    except BaseException:
        pass
    time.sleep(60)
"""
    assert run(body, sends=2, wait=0.3)[0] == 75


def test_a_program_that_is_done_says_so():
    body = """
import atexit
atexit.register(lambda: (print("ready", flush=True), time.sleep(0.4)))
main = lambda: 0
"""
    assert run(body) == (0, "", "")


def test_a_forked_process_ends_as_without_a_handler():
    body = """
def main():
    child = os.fork()
    if not child:
        time.sleep(60)
    time.sleep(0.2)
    os.kill(child, signal.SIGTERM)
    print("ready", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return 7
"""
    code, out, errors = run(body.replace('print("ready"', 'print(flush=True); print("ended"'), sends=0)
    assert (code, out, errors) == (7, f"ended {-signal.SIGTERM}\n", "")


def test_a_call_without_python_can_be_killed():
    body = """
def main():
    with process.deaf():
        print("ready", flush=True)
        time.sleep(60)
"""
    assert run(body)[0] == -signal.SIGTERM


def test_an_ignored_signal_stays_ignored():
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def main():
    print("ready", flush=True)
    time.sleep(0.4)
    return 5
"""
    assert run(body) == (5, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "as_process_1", [False, pytest.param(True, marks=pytest.mark.skipif(not can_unshare(), reason="needs unshare"))]
)
@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.0, 4.0, 7.0])
def test_a_prediction_ends_with_75_and_leaves_no_file(runs, tmp_path, as_process_1, seconds):
    (tmp_path / "rows.tsv").write_text("sentence\n" + "the film was not very good\n" * 400_000)
    command = [sys.executable, str(ROOT / "run_finetune.py"), "--mode=predict", f"--model={runs / 'single'}"]
    command += [f"--input_file={tmp_path / 'rows.tsv'}", f"--output_file={tmp_path / 'out' / 'p.jsonl'}"]
    process = subprocess.Popen(UNSHARE * as_process_1 + command, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    told = process.pid
    if as_process_1:
        (told,) = map(int, pathlib.Path(f"/proc/{told}/task/{told}/children").read_text().split())
    os.kill(told, signal.SIGTERM)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 75, errors
    assert errors.splitlines()[-1].endswith(LINE)
    assert not list(tmp_path.glob("out/*")) and not list(tmp_path.glob("out/.*"))
