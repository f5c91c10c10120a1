"""Imports of large libraries: they run without the garbage collector, and an interrupt while TensorFlow is first
imported comes as KeyboardInterrupt, after which the next call works."""

import gc
import signal
import sys
import threading

import pytest

from tests.support.processes import output_of
from tfbert.devices.process import interrupted_later, without_collections, without_modules

COLLECTIONS_OF_IMPORTS = """
import gc, sys

counts = []
gc.callbacks.append(lambda phase, info: counts.append(phase))
import tfbert
counts.clear()
tfbert.build_strategy
assert "tensorflow" in sys.modules and gc.isenabled()
assert len(counts) < 40, len(counts)  # TensorFlow and tf_keras alone: more than 2,000.
"""


def test_the_collector_is_as_it_was():
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), without_collections():
        import tfbert.no_such_module  # noqa: F401
    assert gc.isenabled()
    gc.disable()
    with without_collections():
        pass
    was_enabled = gc.isenabled()
    gc.enable()
    assert not was_enabled


@pytest.mark.slow
def test_tensorflow_is_imported_without_it():
    output_of(COLLECTIONS_OF_IMPORTS)


def test_modules_are_not_found_in_the_block_and_are_afterwards():
    sys.modules.pop("wave", None)
    with without_modules("gc", "wave"):
        import gc as found  # Imported already: it stays.

        with pytest.raises(ImportError):
            import wave
    import wave

    assert found is gc and wave.__name__ == "wave"


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
