"""What is set up before TensorFlow is imported: its memory and kernels, imports that no interrupt breaks off, and a
screen without the noise of the libraries; and SIGTERM outside training: a command ends by itself and says so, however
early the signal comes. Imports no TensorFlow at its top.

Freed memory stays with the process: By default glibc returns large freed blocks to the kernel, and the threads that
compute allocate from arenas of their own, whose heaps of 64 MB hold few large tensors. So in each step the kernel maps
and zeroes the activations' memory anew: on some machines 40% of a step. With one arena that grows in large pieces and
never shrinks, a step reuses the memory of the step before. Nothing is preloaded, and no process is started twice. See
mallopt(3).

Ctrl-C, or a notebook's interrupt, does not break off the first import of TensorFlow, which could not be imported again
in the same process, so that the next call would fail.

A line about work that takes long, shown only once it does, so that nobody takes it for a hang.

Help on the screen: the text of a flag, and printing for a reader that may leave.

Without a handler SIGTERM kills a process, which schedulers take for a failure; and as PID 1, as in a container, a
process without one never notices it. While a run trains, `workers.StopRequest` hears signals instead, and it saves.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import pathlib
import platform
import signal
import sys
import tempfile
import textwrap
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tfbert.errors import Preempted, RunError, first_line, in_command, of_surroundings, other_project, replaced

log = logging.getLogger("tfbert")

SECONDS_ON_A_TERMINAL = 2.0
SECONDS_IN_A_FILE = 10.0
"""A log file is read later: it needs fewer lines."""


_nobody_watches = False


def nobody_watching() -> AbstractContextManager[None]:
    """In the block, no terminal and no notebook counts as watched: nothing is drawn there."""
    return replaced(globals(), _nobody_watches=True)


def is_unwatched() -> bool:
    """Whether it was said that nobody watches: helper processes show nothing either."""
    return _nobody_watches


def is_notebook() -> bool:
    """Whether this process runs the cells of a notebook, in Jupyter, Colab or an editor."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return not _nobody_watches and hasattr(shell, "kernel")


def is_watched() -> bool:
    """Whether somebody watches as it happens: what is drawn is seen at once, and may change."""
    is_terminal = sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
    return (is_terminal and not _nobody_watches) or is_notebook()


@contextlib.contextmanager
def log_if_slow(what: str, say: Callable[[str], object] = log.info) -> Iterator[None]:
    """Says `what ...` if the block takes longer than two seconds where somebody watches, or ten seconds elsewhere.

    Args:
        what: The work, as `tokenizing 25,000 examples`.
        say: Shows a line; the logger by default.
    """
    seconds = SECONDS_ON_A_TERMINAL if is_watched() else SECONDS_IN_A_FILE
    timer = threading.Timer(seconds, say, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # `say` may use what ends with the block.


_SETTINGS = {
    # No block is mapped by itself, whatever its size. Raising M_MMAP_THRESHOLD, the size from which blocks are, does
    # not last: TensorFlow sets it to 128 KiB when it makes a data set from a Python generator
    # (`ApplyPython311MemoryPatch`).
    -4: 0,
    -1: (1 << 31) - 1,  # The heap does not shrink.
    # All threads share one arena: other arenas' heaps cannot hold a large tensor, and threads can reuse each other's
    # freed memory.
    -8: 1,
    -2: 1 << 28,  # The heap grows by 256 MB at a time; pages that are not touched take no memory.
}
"""Values of mallopt's parameters, by their numbers in malloc.h."""


def keep_freed_memory() -> bool:
    """Lets this process keep freed memory for its next use. Call it before TensorFlow, or anything else that starts
    threads, is imported; later it helps less, and harms nothing.

    Where the environment sets any of it (`MALLOC_ARENA_MAX` and the like, or `glibc.malloc` in `GLIBC_TUNABLES`), all
    is left as it is.

    Returns:
        Whether it was set: False without glibc, and where the environment says otherwise.
    """
    is_set = any(name.startswith("MALLOC_") for name in os.environ)
    if platform.libc_ver()[0] != "glibc" or is_set or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    libc = ctypes.CDLL(None)
    return all([libc.mallopt(parameter, value) for parameter, value in _SETTINGS.items()])


_OF_PRODUCTS = ("--xla_gpu_enable_triton_gemm=false", "--xla_gpu_autotune_level=0")


def choose_kernels() -> None:
    """Decides for this process and its child processes by which kernels TensorFlow computes; what the environment says
    of it wins. Call it before TensorFlow is imported.

    On every x86 CPU, oneDNN's. TensorFlow 2.21 turns them on by itself only where there are instructions for neural
    networks (AVX512-VNNI and later). With AVX2 alone they made steps of short texts 1.10 times as fast
    (`benchmarks/results/2026-11-22-allocator.md`).

    Where there is a GPU of NVIDIA's, of a product that XLA compiles, the one that cuBLAS chooses. By default XLA writes
    hundreds in Triton and tries them all: a step of BERT-base was not compiled after 180 s, in place of 15, and each
    process may choose others, which give other bits (`benchmarks/results/2026-11-27-gpu.md`).
    """
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    # Elsewhere nothing needs them, and the XLA of another library may not know them.
    if _has_nvidia() and (missing := missing_xla_flags()):
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *missing]).strip()


def _has_nvidia() -> bool:
    return any(pathlib.Path("/dev").glob("nvidia*")) or pathlib.Path("/dev/dxg").exists()  # Or within Windows.


def missing_xla_flags() -> list[str]:
    """What XLA_FLAGS lacks, so that XLA on a GPU tries kernels for minutes; nothing where it names a file."""
    given = os.environ.get("XLA_FLAGS", "").strip()
    is_file = given and not given.startswith("-")
    return [] if is_file else [flag for flag in _OF_PRODUCTS if flag.split("=")[0] not in given]


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """For a block that imports TensorFlow: what a module defines stays, and looking through all of it
    again and again, 1,158 times, is 1.0 of the 3.5 s of these imports."""
    if not gc.isenabled():  # Within another such block, or as the program's author wants it.
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def without_modules(*names: str) -> AbstractContextManager[None]:
    """For a block of imports that try these modules and do without them: there they are not found, unless they are
    imported already. Keras imports all of scikit-learn, matplotlib, pandas and scipy, for wrappers, galleries and data
    frames that no command gives it: 1.1 of the 3.5 s of these imports, and 150 MB.

    Args:
        names: The modules.
    """
    return replaced(sys.modules, **{name: None for name in names if name not in sys.modules})


@contextlib.contextmanager
def signals_handled(handler: Any, *numbers: int) -> Iterator[None]:
    """In the block, these signals have this handler; afterwards, what they had before."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def interrupted_later() -> Iterator[None]:
    """Keeps an interrupt until the block ends, for more than an import that must not be broken off."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    received: list[int] = []
    with signals_handled(lambda number, frame: received.append(number), signal.SIGINT):
        yield
    if received:
        signal.raise_signal(signal.SIGINT)


_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_ONLY_ERRORS, _ONLY_FATAL = "2", "3"


def silence_libraries() -> None:
    """Shows this program's messages and only the libraries' errors; a library's own environment variable overrides."""
    os.environ.setdefault(_LEVEL, _ONLY_ERRORS)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("tfbert").setLevel(logging.INFO)


@contextlib.contextmanager
def imported_quietly(what: str = "", *, silent: bool = False) -> Iterator[None]:
    """For the block that first imports TensorFlow in a program of the user's own: as quiet as the command, and with the
    same kernels, but nothing else of the libraries is set. Later it does nothing.

    Args:
        what: As for `stderr_held_back`.
        silent: Show not even TensorFlow's errors, then and later.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    choose_kernels()
    level = os.environ.get(_LEVEL, _ONLY_FATAL if silent else _ONLY_ERRORS)  # Read once, when TensorFlow is loaded.
    # Warnings of the libraries to themselves; in a notebook stderr is more than the descriptor that is held back.
    with (
        replaced(os.environ, **{_LEVEL: level}),
        interrupted_later(),
        stderr_held_back(what),
        warnings.catch_warnings(action="ignore"),
        without_collections(),
    ):
        yield
        import tensorflow as tf

        tf.config.list_physical_devices("GPU")


@contextlib.contextmanager
def stderr_held_back(what: str = "") -> Iterator[None]:
    """Shows what the block writes to stderr only if it ends with an error: TensorFlow's C++ code logs before it can be
    told not to.

    Args:
        what: What the block does, shown nevertheless if it takes long; empty for nothing.
    """
    if sys.stderr is None:  # Closed: nobody reads it.
        yield
        return
    sys.stderr.flush()
    kept, held = os.dup(2), tempfile.TemporaryFile()  # noqa: SIM115 (closed below)
    say = log.info if is_notebook() else lambda line: os.write(kept, f"{line}\n".encode())
    shown = log_if_slow(what, say) if what else contextlib.nullcontext()
    try:
        with shown:
            os.dup2(held.fileno(), 2)
            yield
    except Exception:  # A signal is no error.
        held.seek(0)
        os.write(kept, held.read())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        held.close()


def without_main_module() -> AbstractContextManager[None]:
    """For a block that starts a process of multiprocessing's "spawn": it does not import the program that runs here,
    which a user may have written without a guard for `__main__`."""
    return replaced(sys.modules, __main__=types.ModuleType("__main__"))


def start_quietly(threads: int = 0, *, silent: bool = False) -> None:
    """Sets up a process that helps another one: TensorFlow without GPUs, and without messages.

    Use it as the initializer of a spawned process, before anything there imports TensorFlow.

    Args:
        threads: Threads of TensorFlow; 0 for as many as there are cores.
        silent: Show nothing at all.
    """
    if silent:
        os.environ[_LEVEL] = _ONLY_FATAL
        logging.disable(logging.CRITICAL)
    silence_libraries()
    with stderr_held_back():
        import tensorflow as tf

        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        tf.constant(0)


WIDTH = 100
ASKS_FOR_HELP = ("--help", "-help", "-h", "-?", "--helpshort", "-helpshort")


def show(text: str) -> int:
    """Prints a text on stdout.

    Returns:
        The exit status: 0; 141 where the reader, such as `head`, closed the pipe.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Else Python fails once more at its end.
        if not isinstance(error, BrokenPipeError):
            raise
        return 141
    return 0


def flag_text(names: Sequence[str], takes: str, text: str, default: Any = None) -> str:
    """The lines of a flag: how it is written, what it does, its default.

    Args:
        names: Its names.
        takes: What follows `=`: a word such as N, or choices with | between; empty for a switch.
        text: What it does.
        default: Its default; None where there is none, or where the text says what an empty value does.
    """
    written = ", ".join(f"--{name}={takes}" if takes else f"--[no]{name}" for name in names)
    if "|" in takes and len(f"  {written}") > WIDTH:  # They do not fit on the line of the name.
        written, text = f"--{names[0]}=WORD", f"{takes.replace('|', ', ')}. {text}"
    if isinstance(default, bool):
        default = "on" if default else "off"
    elif isinstance(default, list | tuple):
        default = ",".join(map(str, default))
    if default not in (None, ""):
        text += f" Default: {default}."
    return "\n".join([f"  {written}", *wrapped(text, "      ")]) + "\n"


def wrapped(text: str, indent: str, *, further: int = 0, width: int = WIDTH) -> list[str]:
    """The lines of a text, those after the first indented further; a line breaks at spaces only."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + further * " ",
        break_long_words=False,
        break_on_hyphens=False,
    )


_SECONDS_BETWEEN = 5.0
"""A SIGTERM so soon after another one lets the process clean up. A later one is heard: the first may have been lost in
code that catches everything."""


class Terminated(KeyboardInterrupt):
    """Told to end by SIGTERM, where there is nothing to save. What cleans up after Ctrl-C does so here. Exit status 75
    (EX_TEMPFAIL)."""

    status = 75

    def __init__(self):
        super().__init__("stopped by SIGTERM; nothing is lost, the same command starts again")


class _Handler:
    def __init__(self):
        self.last: float | None = None

    def __call__(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self.last is None or now - self.last >= _SECONDS_BETWEEN:
            self.last = now
            raise Terminated


def told(name: str, error: BaseException) -> int:
    """Says how a program ended, a line for each thing that is wrong; returns its exit status."""
    text = "stopped by Ctrl-C" if type(error) is KeyboardInterrupt else str(error)
    kind = "" if isinstance(error, Preempted | KeyboardInterrupt) else "error: "
    for line in text.splitlines():
        print(f"{name}: {kind}{line}", file=sys.stderr)
    return getattr(error, "status", 128 + signal.SIGINT)


def run_program(name: str, main: Callable[[], int]) -> int:
    """Runs a program's `main`, which imports what it needs, so that SIGTERM ends it from its first line on.

    Call it once in a process, from its main thread. A SIGTERM that is ignored stays ignored.

    Args:
        name: What its messages begin with.
        main: Returns the exit status.

    Returns:
        The exit status: 75 if it was told to end by SIGTERM, 130 by Ctrl-C; 1 where a package is missing or broken.
    """
    is_heard = signal.getsignal(signal.SIGTERM) != signal.SIG_IGN
    with in_command():
        try:
            if is_heard:
                signal.signal(signal.SIGTERM, _Handler())
                os.register_at_fork(after_in_child=_forget)
            return main()
        except KeyboardInterrupt as stop:
            ended = stop
        except ImportError as error:
            found = other_project()
            if not found and (error.name or "").partition(".")[0] == "tfbert":
                raise  # A bug of ours.
            needed = f"The packages that tfbert needs must be there. Received: {first_line(error)} in {sys.executable}."
            way_out = "pip install -e . in the clone"
            if "Keras" in str(error) and "TF_USE_LEGACY_KERAS" in os.environ:
                way_out = "unset TF_USE_LEGACY_KERAS, or pip install tf_keras"
            ended = RunError(found or f"{needed} Run {way_out}.")
        except OSError as error:
            if (ended := of_surroundings(error)) is None:
                raise
        finally:
            if is_heard:  # What was done is done: the status must say how it ended.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return told(name, ended)


def check() -> None:
    """Ends the program if it was told to and the exception was lost, as in code that catches all of them.

    Raises:
        Terminated: then.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if isinstance(handler, _Handler) and handler.last is not None:
        raise Terminated


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """For a call that may take minutes in which Python runs nothing: SIGTERM kills, as without a handler.

    As PID 1 it would do nothing at all, so that there it is handled after the call.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if not isinstance(handler, _Handler) or os.getpid() == 1:
        yield
        return
    with signals_handled(signal.SIG_DFL, signal.SIGTERM):
        yield


def _forget() -> None:
    """In a forked process, which is another program: what ends it is not ours to say."""
    if isinstance(signal.getsignal(signal.SIGTERM), _Handler):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
