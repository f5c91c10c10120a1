"""A table, once: as Markdown, as lines for a screen, and by the templates as HTML; and values as people read them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

# Characters with a meaning to Markdown or HTML within a line; an underscore only at the edge of a word.
_MARKUP = re.compile(r"[\\`*\[\]<>|~$&]|(?<!\w)_|_(?!\w)")
# Control characters, ends of lines, what turns the direction of the text around, and halves of surrogate pairs.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

Shown = str | Callable[[Any], str]
"""How a column shows its values: a pattern, or a function."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        names: Of its columns.
        body: A text for each cell.
        title: What it is about; may be empty.
        numeric: Columns of numbers, which stand on the right.
        kept: The row that is marked on a page.
        links: On a page, for each row what stands behind it, as (address, text).
    """

    names: Sequence[str]
    body: Sequence[Sequence[str]]
    title: str = ""
    numeric: Collection[str] = ()
    kept: int | None = None
    links: Sequence[Sequence[tuple[str, str]]] = ()

    def markdown(self) -> str:
        """The table in GitHub's Markdown."""
        rule = ["---:" if name in self.numeric else "---" for name in self.names]
        lines = [map(markdown_text, self.names), rule, *(map(markdown_text, row) for row in self.body)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def plain(self) -> list[str]:
        """The table for a screen, a line each: its first column on the left, numbers on the right; its rows are columns
        where there are more metrics than rows."""
        lines = [list(self.names), *map(list, self.body)]
        if len(self.names) > len(lines):
            lines = [list(line) for line in zip(*lines, strict=True)]
        first, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return [
            "  ".join([line[0].ljust(first), *(cell.rjust(w) for cell, w in zip(line[1:], widths, strict=True))])
            for line in lines
        ]


def table_of(
    columns: Sequence[tuple[str, Sequence[Any], Shown]], *, texts: Collection[str] = (), **about: Any
) -> Table:
    """A table of columns; those without a value in any row are left out.

    Args:
        columns: The name of each, a value for each row, or None, and how they are shown.
        texts: Columns that hold no numbers.
        **about: The other attributes of the table.
    """
    known = [column for column in columns if any(value is not None for value in column[1])]
    cells = [["–" if value is None else _cell(value, shown) for value in values] for _, values, shown in known]
    names = [name for name, *_ in known]
    body = [list(row) for row in zip(*cells, strict=True)]
    return Table(names=names, body=body, numeric={*names} - {*texts}, **about)


def _cell(value: Any, shown: Shown) -> str:
    return shown.format(value) if isinstance(shown, str) else shown(value)


def markdown_text(text: str) -> str:
    """Markdown that shows a text as it is: it starts no HTML, no link, no table column and no new line."""
    return _MARKUP.sub(r"\\\g<0>", visible(text))


def visible(text: str) -> str:
    """A text whose control characters, which JSON can bring into labels, are written as Python writes them."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def sentence(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def show(value: Any) -> str:
    """A value for people: numbers with 4 significant digits, lists separated by commas, no value as a dash."""
    if value is None or value == "" or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def share(value: float | None, digits: int = 1) -> str:
    """A part of 1 in percent."""
    return "–" if value is None else f"{100 * value:.{digits}f}%"


def memory(value: float) -> str:
    """Bytes as GiB."""
    return f"{value / 2**30:.2f} GiB"


def duration(seconds: float) -> str:
    """`1 h 2 min`, `2 min 3 s` or `3.1 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
