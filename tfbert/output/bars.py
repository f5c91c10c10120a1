"""Bars of progress: on a terminal, or in a notebook, where a bar is one output that is updated in place."""

from __future__ import annotations

import sys
from typing import Any

import tqdm

from tfbert.devices.waiting import is_notebook


def bar(**options: Any) -> tqdm.tqdm:
    """A bar where somebody watches; for its options see `tqdm.tqdm`."""
    if is_notebook():
        return tqdm.tqdm(file=_Output(), **options)
    return tqdm.tqdm(dynamic_ncols=True, **options)


class _Output:
    """A file for a bar, which writes a line again and again: an output of a notebook's cell that shows the last one.

    Text with carriage returns would stay in a saved notebook, every state of it; and widgets need an extension.
    """

    encoding = "utf-8"

    def __init__(self):
        self._display: Any = None
        self._text = self._shown = ""

    def write(self, text: str) -> None:
        """Takes a line; what moves the cursor of a terminal is left out."""
        if text.startswith("\r"):
            self._text = text[1:].rstrip()

    def flush(self) -> None:
        """Shows the line."""
        if self._text == self._shown:
            return
        self._shown, data = self._text, {"text/plain": self._text}
        if self._display is None:
            self._display = sys.modules["IPython"].display.display(data, raw=True, display_id=True)
        else:
            self._display.update(data, raw=True)
