"""A run's profile -> where a step's time goes: data, forward and backward, all-reduce, update, other.

    python run_finetune.py --profile_steps=10,15 --output_dir=runs/profiled ...
    python benchmarks/profile_split.py runs/profiled/profile

On a CPU the marks of `tfbert.measure` say when each part of each replica began and ended. On GPUs the
kernels say which part they belong to: their operation's name holds the scope it was made in. An instant at which
several parts run counts for the first of `PARTS`: time shown as all-reduce is the part of it that no arithmetic hides.
"""

from __future__ import annotations

import collections
import pathlib
import re
import sys
from collections.abc import Iterable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from results_page import table  # noqa: E402

from tfbert.measure import (  # noqa: E402  # noqa: E402
    ALL_REDUCE,
    ARRIVED,
    ASKED,
    FORWARD_BACKWARD,
    GRADIENTS,
    OPERATIONS,  # noqa: E402
    REDUCED,
    ROWS,
    UPDATE,
    UPDATED,
)

PARTS = ("forward and backward", "update", "all-reduce", "data")
OTHER = "other"

Interval = tuple[int, int]
"""Start and end in picoseconds."""

_MARK = re.compile(
    rf"(?:replica_(\d+)/)?({ASKED}|{ARRIVED}|{ROWS}|{GRADIENTS}|{REDUCED}|{UPDATED}):(?:{'|'.join(OPERATIONS)})"
)


def read_split(directory: str | pathlib.Path) -> dict[str, float]:
    """Mean seconds of a profiled step by part; with `OTHER`, they add up to the mean time of a step.

    Args:
        directory: What `tf.profiler.experimental.start` was given.

    Raises:
        ValueError: for a directory without a profile of training steps.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    found = sorted(pathlib.Path(directory).glob("plugins/profile/*/*.xplane.pb"))
    space = xplane_pb2.XSpace()
    if found:
        space.ParseFromString(found[-1].read_bytes())
    steps = _steps(space)
    if not steps:
        raise ValueError(f"A profile must hold a training step. Received: {str(directory)!r}. Profile a run.")
    return split(steps, _kernel_intervals(space) or _marked_intervals(space))


def split(steps: list[Interval], intervals: dict[str, list[Interval]]) -> dict[str, float]:
    """Divides the time of steps.

    Args:
        steps: When each step ran; they do not overlap.
        intervals: Part -> when it ran; may overlap each other and any step.

    Returns:
        Part -> mean seconds of a step in which it ran and no part before it in `PARTS` did; `OTHER` -> the rest.
    """
    total = dict.fromkeys(PARTS, 0)
    covered: list[Interval] = []
    for part in PARTS:
        with_part = _union([*covered, *intervals.get(part, [])])
        total[part] = _overlap(steps, with_part) - _overlap(steps, covered)
        covered = with_part
    total[OTHER] = sum(end - start for start, end in steps) - sum(total.values())
    return {part: picoseconds / 1e12 / len(steps) for part, picoseconds in total.items()}


def _steps(space: Any) -> list[Interval]:
    """When each step ran: Keras records each step of `fit`, callbacks included, as `train`."""
    events = sorted((start, end) for _, name, _, start, end in _events(space, "/host:CPU") if name == "train")
    nexts = [start for start, _ in events[1:]]
    return [(start, after) for (start, _), after in zip(events, [*nexts, *(e for _, e in events[-1:])], strict=True)]


def _marked_intervals(space: Any) -> dict[str, list[Interval]]:
    times: dict[str, dict[int, list[int]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for _, name, _, start, _ in _events(space, "/host:CPU"):
        if match := _MARK.fullmatch(name):
            times[match[2]][int(match[1] or 0)].append(start)
    replicas = sorted(times[GRADIENTS])
    # Without other replicas, counting the rows is no communication.
    counted = ROWS if len(replicas) > 1 else ARRIVED
    out = {"data": _between(times[ASKED][0], times[ARRIVED][0])}
    bounds = (("forward and backward", counted, GRADIENTS), ("all-reduce", GRADIENTS, REDUCED))
    for part, begin, end in (*bounds, ("update", REDUCED, UPDATED), ("all-reduce", ARRIVED, counted)):
        for replica in replicas:
            begun = times[begin][0 if begin == ARRIVED else replica]
            out[part] = out.get(part, []) + _between(begun, times[end][0 if end == ARRIVED else replica])
    return out


def _between(begun: list[int], ended: list[int]) -> list[Interval]:
    """Pairs each beginning with the first end after it."""
    out, ended = [], sorted(ended)
    for start in sorted(begun):
        after = [end for end in ended if end >= start]
        out += [(start, after[0])] if after else []
    return out


def _kernel_intervals(space: Any) -> dict[str, list[Interval]]:
    """When each part ran on GPUs; empty without GPUs. The host's wait for data counts where no kernel runs."""
    out: dict[str, list[Interval]] = collections.defaultdict(list)
    for line, name, stats, start, end in _events(space, "/device:GPU:"):
        if not line.startswith("Stream"):  # Other lines repeat the kernels, summed up.
            continue
        text = f"{name} {stats}"
        for part, pattern in (
            ("all-reduce", rf"nccl|\b{ALL_REDUCE}"),
            ("forward and backward", rf"\b{FORWARD_BACKWARD}"),
            ("update", rf"\b{UPDATE}(_\d+)?/"),
        ):
            if re.search(pattern, text, re.IGNORECASE):
                out[part].append((start, end))
                break
    if out:
        out["data"] = _marked_intervals(space)["data"]
    return dict(out)


def _events(space: Any, plane_prefix: str) -> Iterable[tuple[str, str, str, int, int]]:
    """(line, name, text of the stats, start, end) of each event on planes of that name."""
    for plane in space.planes:
        if not plane.name.startswith(plane_prefix):
            continue
        is_device = plane_prefix.startswith("/device")
        for line in plane.lines:
            for event in line.events:
                start = line.timestamp_ns * 1000 + event.offset_ps
                texts = [s.str_value or plane.stat_metadata[s.ref_value].name for s in event.stats] if is_device else []
                name = plane.event_metadata[event.metadata_id].name
                yield line.name, name, " ".join(texts), start, start + event.duration_ps


def _union(intervals: list[Interval]) -> list[Interval]:
    out: list[Interval] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((start, end))
    return out


def _overlap(steps: list[Interval], intervals: list[Interval]) -> int:
    """Picoseconds of the steps that the intervals, which do not overlap each other, cover."""
    return sum(max(0, min(e, end) - max(s, start)) for s, e in steps for start, end in intervals)


if __name__ == "__main__":
    parts = read_split(sys.argv[1])
    whole = sum(parts.values())
    rows = [[name, f"{1000 * seconds:.2f}", f"{seconds / whole:.1%}"] for name, seconds in parts.items()]
    print(table(["part", "ms a step", "share"], rows))
