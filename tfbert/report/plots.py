"""Numbers -> plots as SVG text that stands inside an HTML page. Takes values and labels, knows nothing of runs."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

COLORS = ("#2563a8", "#c2571a", "#2e7d4f", "#8a3ffc", "#a3195b", "#5f6b7a", "#0f8b8d", "#9a7b00")
_DASHES = ("-", "--", ":", "-.")
_WIDTH, _HEIGHT = 4.4, 2.7
"""Inches: about a phone's width, so that text keeps its size there; a page puts two side by side."""
_LONGEST_LABEL = 56

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # Text stays text: small, searchable, and in the page's own font.
    "svg.hashsalt": "tfbert",  # The same numbers give the same file.
    "text.parse_math": False,  # A dollar sign in a run's name is a dollar sign.
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    "axes.edgecolor": "#8b95a1",
    "xtick.color": "#3c4650",
    "ytick.color": "#3c4650",
    "lines.linewidth": 1.4,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """A line of a plot.

    Attributes:
        label: For the legend; empty for none.
        x: `[n]`.
        y: `[n]`.
        is_marked: Whether each point is marked; one that stands alone always is.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    is_marked: bool = False


def lines(
    series: Sequence[Series], *, x_label: str, y_label: str, from_zero: bool = False, x_is_whole: bool = True
) -> str:
    """A plot of one or more lines.

    Args:
        series: What to draw.
        x_label: Under the plot.
        y_label: Beside it.
        from_zero: Start the vertical axis at 0.
        x_is_whole: Whether the horizontal axis counts: there is no half a step.
    """

    from matplotlib.ticker import MaxNLocator

    def draw(axes):
        for index, line in enumerate(series):
            marker = "o" if line.is_marked or len(line.x) == 1 else ""
            color, style = COLORS[index % len(COLORS)], _DASHES[index // len(COLORS) % len(_DASHES)]
            axes.plot(line.x, line.y, color=color, linestyle=style, marker=marker, markersize=3.5)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=x_is_whole))
        # Around a single value, matplotlib would draw an axis of a few percent, such as 7.6 to 8.4.
        for values, set_limits in (("x", axes.set_xlim), ("y", axes.set_ylim)):
            found = {value for line in series for value in getattr(line, values) if math.isfinite(value)}
            if len(found) == 1:
                end = 1.1 * found.pop()  # From 0 to a little beyond it.
                set_limits(*((min(0, end), max(0, end)) if end else (-1, 1)))
        if from_zero:
            axes.set_ylim(bottom=0)
        labels = [shortened(line.label) for line in series]
        if any(labels):
            # Below the plot, where no line can hide it. Handles are given, as matplotlib leaves out some labels.
            axes.legend(
                axes.get_lines(), labels, loc="upper left", bbox_to_anchor=(-0.1, -0.22), frameon=False, fontsize=8
            )

    return _svg(draw)


def lines_against(columns: Mapping[str, Sequence[float]], x: str) -> str:
    """A plot of several quantities against one.

    Args:
        columns: By name, `[n]` each.
        x: The name of the one.
    """
    series = [Series(label=name, x=columns[x], y=values) for name, values in columns.items() if name != x]
    return lines(series, x_label=x, y_label="", from_zero=True, x_is_whole=False)


def shortened(label: str) -> str:
    """The beginning and the end of a long label, so that the legend does not widen the plot."""
    if len(label) <= _LONGEST_LABEL:
        return label
    return f"{label[: _LONGEST_LABEL // 3]}…{label[_LONGEST_LABEL // 3 + 1 - _LONGEST_LABEL :]}"


def _svg(draw) -> str:
    # matplotlib takes half a second to import; the Figure alone keeps no global state and needs no display.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A name in a script that matplotlib's font lacks; the page's has it.
        figure = Figure(figsize=(_WIDTH, _HEIGHT))
        draw(figure.add_subplot())
        file = io.StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", bbox_inches="tight", pad_inches=0.05, transparent=True, metadata=metadata)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    # Several plots share a page, where an id must be unique; nothing refers to those of groups.
    return re.sub(r'<g id="[^"]*"', "<g", text)
