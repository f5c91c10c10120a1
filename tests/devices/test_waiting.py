"""Lines about work that takes long."""

import io
import logging
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.support.processes import wait_until
from tfbert.devices import process
from tfbert.tokens.tokenizer import map_texts


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "stream, seconds",
    [(Terminal(), "SECONDS_ON_A_TERMINAL"), (io.StringIO(), "SECONDS_IN_A_FILE"), (None, "SECONDS_IN_A_FILE")],
    ids=["terminal", "file", "closed"],
)
def test_slow_work_is_named_once(stream, seconds, monkeypatch, caplog):
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(process, seconds, 0.05)
    with caplog.at_level(logging.INFO, "tfbert"), process.log_if_slow("reading"):
        wait_until(lambda: caplog.messages, seconds=20)
    assert caplog.messages == ["reading ..."]


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_quick_work_is_not_named(stream, monkeypatch, caplog):
    monkeypatch.setattr("sys.stderr", stream())
    monkeypatch.setattr(process, "SECONDS_ON_A_TERMINAL", 0.05)
    monkeypatch.setattr(process, "SECONDS_IN_A_FILE", 0.05)
    with caplog.at_level(logging.INFO, "tfbert"):
        with pytest.raises(ValueError, match="bad"), process.log_if_slow("reading"):
            raise ValueError("bad")
        time.sleep(0.2)
    assert not caplog.messages


@pytest.mark.parametrize(
    "stream, delay, is_shown", [(Terminal, 0.0, True), (Terminal, 3600.0, False), (None, 0.0, False)]
)
def test_texts_have_a_bar_on_a_terminal_where_they_take_long(stream, delay, is_shown, monkeypatch):
    stream = stream and stream()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("tfbert.tokens.tokenizer.SECONDS_WITHOUT_BAR", delay)
    (lengths,) = map_texts(lambda texts: [np.array([*map(len, texts)])], ["a", "bc"] * 5, batch_size=2)
    np.testing.assert_array_equal(lengths, [1, 2] * 5)
    assert (stream is not None and "tokenizing" in stream.getvalue()) == is_shown


def test_slow_work_is_named_while_stderr_is_held_back():
    script = """
import os, sys, time
from tfbert.devices import process
from tfbert.devices.process import stderr_held_back
process.SECONDS_IN_A_FILE = 0.05
with stderr_held_back("importing"):
    os.write(2, b"noise of C++\\n")
    time.sleep(1)
with stderr_held_back():
    time.sleep(0.3)
print("after", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "importing ...\nafter\n")
