"""A command's screen without the noise of the libraries below it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator

from tfbert.devices.waiting import log_if_slow, terminal_width

SLOW_CALLBACK = "is slow compared to the batch time"
"""Part of a warning of Keras."""


def silence_libraries() -> None:
    """Shows this program's messages and only the libraries' errors; a library's own environment variable overrides."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # Importing PyTorch and Keras 3 beside TensorFlow costs seconds, and nothing here uses them.
    os.environ.setdefault("USE_TORCH", "0")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    screen = logging.StreamHandler()
    screen.setFormatter(WholeFields())
    logging.basicConfig(handlers=[screen], level=logging.WARNING)
    logging.getLogger("tfbert").setLevel(logging.INFO)
    # Evaluation, checkpoints and waiting for a GPU happen in callbacks; Keras takes slow ones for a mistake.
    logging.getLogger("tensorflow").addFilter(lambda record: SLOW_CALLBACK not in str(record.msg))


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
    shown = log_if_slow(what, lambda line: os.write(kept, f"{line}\n".encode())) if what else contextlib.nullcontext()
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


def start_quietly(threads: int = 0) -> None:
    """Sets up a process that helps another one: TensorFlow without GPUs, and without messages.

    Use it as the initializer of a spawned process, before anything there imports TensorFlow.

    Args:
        threads: Threads of TensorFlow; 0 for as many as there are cores.
    """
    silence_libraries()
    with stderr_held_back():
        import tensorflow as tf

        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        tf.constant(0)
