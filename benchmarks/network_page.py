"""The page of `network_failures.py`: what was found of each trial, as tables."""

from __future__ import annotations

import argparse
import re
from typing import Any

from results_page import beginning, table

SIDES = {
    "command": "`run_finetune.py --strategy=multi_worker`",
    "keras3": "Keras 3, FineTuner, `tfbert.build_strategy`",
    "keras3-plain": "Keras 3, FineTuner, `tf.distribute.MultiWorkerMirroredStrategy()`",
}
_MOST = 110


def page(args: argparse.Namespace, rows: list[dict[str, Any]]) -> list[str]:
    """The results as Markdown, one paragraph each.

    Args:
        args: The command's options.
        rows: What `network_failures.py` found, a trial each.
    """
    lines: dict[str, str] = {}
    parts = [
        *beginning("Workers on several hosts, and a network that fails", "network_failures.py", args),
        "Hosts are network namespaces of one machine with veth pairs to a bridge, one worker on each. The load is "
        "how many threads wanted the machine's cores in the minute before the end, the workers' own among them: where "
        "it is far above their number, seconds are longer than they need be. All hosts write to one local directory; "
        "for one on a file server see `network_shared_directory.py`.",
    ]
    for side, title in SIDES.items():
        own = [row for row in rows if row["key"][0] == side]
        if own:
            parts += [f"## {title}", *_tables(own, lines)]
    if lines:
        parts += ["## Last lines", "\n".join(f"- {letter}: `{line}`" for line, letter in lines.items())]
    return parts


def _tables(rows: list[dict[str, Any]], lines: dict[str, str]) -> list[str]:
    ended = [row for row in rows if "resumed" in row]
    again = [row for row in rows if "done" in row["ends"][0]]
    lasting = [row for row in rows if "resumed" not in row and "done" not in row["ends"][0]]
    out = []
    if ended:
        head = ["what fails", "workers", "at", "load", "s until each has ended", "statuses", "last line"]
        head += ["started again"]
        out += [table(head, [[*_key(row), *_ends(row, lines), _again(row)] for row in ended])]
    if again:
        head = ["what fails", "workers", "at", "load", "s until each has first ended", "statuses", "last line"]
        head += ["starts", "done after, s", "weights"]
        out += ["Each host starts its own worker again, a second after it has ended:"]
        out += [table(head, [[*_key(row), *_ends(row, lines), *_finished(row)] for row in again])]
    if lasting:
        head = ["on every link, from the start", "workers", "load", "statuses", "s", "s undisturbed", "weights"]
        out += [table(head, [_lasting(row) for row in lasting])]
    return out


def _key(row: dict[str, Any]) -> list[str]:
    _, workers, name, host = row["key"]
    return [name, str(workers), f"host {host}", f"{row['load']:.0f}"]


def _ends(row: dict[str, Any], lines: dict[str, str]) -> list[str]:
    ends = [one for one in row["ends"] if one["status"] is not None or "done" not in one]
    seconds = ", ".join("still running" if one["seconds"] is None else f"{one['seconds']:.0f}" for one in ends)
    letters = []
    for one in ends:
        if one["status"] != -9:
            letters.append(lines.setdefault(shortened(one["line"]), _letter(len(lines))))
    return [seconds or "none", ", ".join(str(one["status"]) for one in ends), ", ".join(letters)]


def _letter(number: int) -> str:
    return chr(ord("a") + number % 26) * (1 + number // 26)


def shortened(line: str) -> str:
    """A last line, without what differs from one trial to the next, and no longer than a table bears."""
    line = re.sub(r"\b(worker|host|task:|task) ?\d+", r"\1 N", line)
    line = re.sub(r"^\d{4}-\d\d-\d\d .*?\] ", "", line.replace("`", "'"))
    received = re.search(r"Received: .*?(?=\. |$)", line)
    kept = received[0] if received else line
    return kept if len(kept) <= _MOST else kept[:_MOST] + "..."


def _weights(row: dict[str, Any]) -> str:
    difference = row["difference"]
    return {None: "none", 0: "same bits"}.get(difference) or f"differ by {difference:.1g}"


def _again(row: dict[str, Any]) -> str:
    statuses = ", ".join(map(str, sorted(set(row["resumed"]), key=str)))
    return f"status {statuses}, {_weights(row)}"


def _finished(row: dict[str, Any]) -> list[str]:
    ends = row["ends"]
    is_done = all(one["at_last"] == 0 for one in ends)
    starts = ", ".join(str(one["starts"]) for one in ends)
    return [starts, f"{ends[0]['done']:.0f}" if is_done else "not done", _weights(row)]


def _lasting(row: dict[str, Any]) -> list[str]:
    statuses = ", ".join(str(one["status"]) for one in row["ends"])
    seconds = [f"{row[name]:.0f}" for name in ("seconds", "undisturbed_seconds")]
    return [row["key"][2], str(row["key"][1]), f"{row['load']:.0f}", statuses, *seconds, _weights(row)]
