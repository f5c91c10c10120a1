"""An interrupt at any moment of the first imports: it comes as KeyboardInterrupt, and the next call works."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tests.support.splits import ROOT
from tfbert.devices.process import imports_whole, interrupted_later

BODY = """
import signal

begun = True
signal.raise_signal(signal.SIGINT)
whole = True
"""


@pytest.fixture
def interrupting(tmp_path, monkeypatch):
    """The name of a module whose import is interrupted."""
    (tmp_path / "interrupted_in_import.py").write_text(BODY)
    monkeypatch.syspath_prepend(tmp_path)
    yield "interrupted_in_import"
    sys.modules.pop("interrupted_in_import", None)


def test_an_interrupt_in_an_import_comes_when_it_is_done(interrupting):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), imports_whole():
        __import__(interrupting)
        assert sys.modules[interrupting].whole
        time.sleep(10)
    assert sys.modules[interrupting].whole and signal.getsignal(signal.SIGINT) is before


def test_any_other_interrupt_comes_at_once():
    with pytest.raises(KeyboardInterrupt), imports_whole():
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it did not come")


def test_a_program_that_calls_while_it_is_imported_is_interrupted(tmp_path, monkeypatch):
    body = "from tfbert.devices.process import imports_whole\nwith imports_whole():"
    (tmp_path / "trains_in_import.py").write_text(body + textwrap.indent(BODY, "    "))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        __import__("trains_in_import")


def test_a_users_own_handler_is_called_and_an_ignored_signal_stays_ignored(interrupting):
    received = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        with imports_whole():
            __import__(interrupting)
            time.sleep(0.2)
        with interrupted_later():
            signal.raise_signal(signal.SIGINT)
            assert len(received) == 1
        assert len(received) == 2
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with imports_whole(), interrupted_later():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_left_alone():
    seen = []

    def enter():
        with imports_whole(), interrupted_later():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


AT_IMPORTS = """
import os, signal, sys, time

def first():
    import tfbert
    {call}

def interrupted_at(module):
    came = []

    def hear(event, details):
        if event == "import" and details[0] == module and not came:
            came.append(module)
            signal.raise_signal(signal.SIGINT)

    sys.addaudithook(hear)
    try:
        first()
        time.sleep(0.2)  # An interrupt of the last import comes after it.
        sys.exit("no interrupt")
    except KeyboardInterrupt:
        pass
    first()

for module in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            interrupted_at(module)
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("at the import of " + module)
"""
"""Interrupts the first use of a name at the import of each module, in a process of its own, and uses it again."""


def interrupted_at(tmp_path, call, *modules):
    script = tmp_path / "script.py"
    script.write_text(AT_IMPORTS.format(call=call))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script, *modules], env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_a_call_that_was_interrupted_in_its_first_imports_works_the_next_time(tmp_path):
    """NumPy, among others, can be imported once."""
    call = """
    try:
        tfbert.finetune(nothing=1)
    except tfbert.UsageError:
        pass
    """
    interrupted_at(tmp_path, call, "tfbert.config.modes", "tfbert.data.in_memory", "numpy._core.printoptions")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FineTuner", "load", "build_strategy", "BertTokenizer", "callbacks"])
def test_a_name_that_was_interrupted_in_its_imports_is_there_the_next_time(tmp_path, name):
    heavy = ("numpy._core.printoptions", "tensorflow.python.eager.context", "tensorflow.python.ops.nn")
    modules = ("tfbert.output.logs",) if name == "callbacks" else heavy
    interrupted_at(tmp_path, f"tfbert.{name}", "tfbert.config.run", *modules)


DELAYED = """
import os, signal, sys, threading
import tfbert

def train():
    return tfbert.finetune(model="scratch/tiny", max_steps=4, output_dir="run", quiet=True)

main = threading.main_thread().ident
threading.Timer(float(sys.argv[1]), signal.pthread_kill, (main, signal.SIGINT)).start()
try:
    train()
    print("finished before")
except (KeyboardInterrupt, tfbert.Preempted) as error:
    print(type(error).__name__)
print(train()["global_step"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.05, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2, 3, 4, 5])
def test_a_run_that_was_interrupted_after_a_moment_resumes(tmp_path, delay):
    script = tmp_path / "script.py"
    script.write_text(DELAYED)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script, str(delay)], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    how, step = done.stdout.split("\n")[:2]
    assert done.returncode == 0 and how in ("KeyboardInterrupt", "Preempted", "finished before"), done.stderr
    assert step == "4"
