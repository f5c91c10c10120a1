"""An interrupt while TensorFlow is first imported: it comes as KeyboardInterrupt, and the next call works."""

import signal
import threading

import pytest

from tests.support.processes import output_of
from tfbert.devices.process import interrupted_later


def test_an_interrupt_comes_when_the_block_is_done_to_whoever_hears_it():
    received = []
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler, comes in ((lambda number, frame: received.append(number), [signal.SIGINT]), (signal.SIG_IGN, [])):
            received.clear()
            signal.signal(signal.SIGINT, handler)
            with interrupted_later():
                signal.raise_signal(signal.SIGINT)
                assert received == []
            assert received == comes
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(KeyboardInterrupt), interrupted_later():
        signal.raise_signal(signal.SIGINT)


def test_other_threads_are_left_alone():
    seen = []

    def enter():
        with interrupted_later():
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

for module in {modules}:
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FineTuner", "load", "build_strategy", "BertTokenizer", "finetune"])
def test_a_name_that_was_interrupted_in_its_imports_is_there_the_next_time(tmp_path, name):
    modules = ["tfbert.config.run", "numpy._core.printoptions"]
    if name != "finetune":  # Which imports TensorFlow when it is called.
        modules += ["tensorflow.python.eager.context", "tensorflow.python.ops.nn"]
    output_of(AT_IMPORTS.format(call=f"tfbert.{name}", modules=modules), tmp_path)


DELAYED = """
import os, signal, sys, threading
import tfbert

def train():
    return tfbert.finetune(model="scratch/tiny", max_steps=4, output_dir="run", quiet=True)

main = threading.main_thread().ident
threading.Timer({delay}, signal.pthread_kill, (main, signal.SIGINT)).start()
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
    how, step = output_of(DELAYED.replace("{delay}", str(delay)), tmp_path).split("\n")[:2]
    assert how in ("KeyboardInterrupt", "Preempted", "finished before") and step == "4"
