"""A command's screen without the noise of the libraries below it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import textwrap
import types
import warnings
from collections.abc import Iterator

from tfbert.devices.imports import without_collections
from tfbert.devices.interrupts import interrupted_later
from tfbert.devices.onednn import use_onednn
from tfbert.devices.waiting import is_notebook, log_if_slow, terminal_width

log = logging.getLogger("tfbert")

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_ONLY_ERRORS, _ONLY_FATAL = "2", "3"


def silence_libraries() -> None:
    """Shows this program's messages and only the libraries' errors; a library's own environment variable overrides."""
    os.environ.setdefault(_LEVEL, _ONLY_ERRORS)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    screen = logging.StreamHandler()
    screen.setFormatter(WholeFields())
    logging.basicConfig(handlers=[screen], level=logging.WARNING)
    logging.getLogger("tfbert").setLevel(logging.INFO)


class WholeFields(logging.Formatter):
    """The message alone. On a terminal, information that is wider continues on further lines, none of which begins in
    the middle of a number: between fields, which two spaces part, such as `eval_loss 0.5000  eval_accuracy 0.8125`."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        width = terminal_width() if record.levelno == logging.INFO else 0
        return "\n".join("\n".join(_fitted(line, width)) for line in text.split("\n")) if width else text


def _fitted(line: str, width: int) -> list[str]:
    """A line in parts of at most a width, where words allow it."""
    if len(line) <= width:
        return [line]
    head = re.match(r"\S+ {2,}(?=\S)", line)  # `data       train 100, ...`
    indent = " " * (len(head[0]) if head and len(head[0]) <= width // 4 else 2)
    out = [""]
    for gap, field in re.findall(r"( {2,}|^ *)(\S+(?: \S+)*)", line):
        if len(out[-1]) + len(gap) + len(field) <= width:
            out[-1] += gap + field
        elif len(indent) + len(field) <= width and out[-1].strip():
            out.append(indent + field)
        else:  # A sentence, which breaks between words.
            first, *more = textwrap.wrap(
                field,
                width,
                initial_indent=out[-1] + gap,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            out[-1:] = [first, *more]
    return out


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
    use_onednn()
    is_own = _LEVEL not in os.environ
    os.environ.setdefault(_LEVEL, _ONLY_FATAL if silent else _ONLY_ERRORS)  # Read once, when TensorFlow is loaded.
    try:
        # Warnings of the libraries to themselves; in a notebook stderr is more than the descriptor that is held back.
        with (
            interrupted_later(),
            stderr_held_back(what),
            warnings.catch_warnings(action="ignore"),
            without_collections(),
        ):
            yield
            import tensorflow as tf

            tf.config.list_physical_devices("GPU")
    finally:
        if is_own:
            del os.environ[_LEVEL]


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


@contextlib.contextmanager
def without_main_module() -> Iterator[None]:
    """For a block that starts a process of multiprocessing's "spawn": it does not import the program that runs here,
    which a user may have written without a guard for `__main__`."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


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
