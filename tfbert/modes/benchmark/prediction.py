"""What rows of several replicas should give, from the row of one and the bytes that are reduced: see `measure.scaling`.

Assumed: the time of the arithmetic is proportional to the examples; GPUs each have their own, replicas on CPUs share
the machine's; nothing hides the all-reduce, and it does not slow the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

from tfbert.measure.scaling import ring_bytes_per_second, ring_seconds

DEVICES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def predicted(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, float]:
    """`predicted_examples_per_second` of a row that has an all-reduce, if there is a row of one replica like it."""
    one = one_replica(row, rows)
    if one is None:
        return {}
    seconds = _arithmetic_seconds(row, one) + row["all_reduce_ms"] / 1000
    return {"predicted_examples_per_second": round(row["batch_size"] / seconds, 2)}


def one_replica(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The row of one replica that is most like a row with an all-reduce, see `smallest_like`; None without one."""
    if not row.get("all_reduce_ms"):
        return None
    found = smallest_like(row, rows)
    return found if _replicas(found) == 1 else None


def smallest_like(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row with the fewest replicas that differs from a row in nothing but devices, batch and micro-batches; of
    these, the one that computes the most similar number of examples at a time.

    Args:
        row: A row that is done; it is the answer where no other is like it.
        rows: The rows to choose from.
    """
    alike = ("status", "pass", "precision", "xla", "seq_length", "batching")
    found = [other for other in [*rows, row] if all(other.get(name) == row.get(name) for name in alike)]
    return min(found, key=lambda other: (_replicas(other), abs(math.log(_at_a_time(other) / _at_a_time(row)))))


def growth(row: dict[str, Any], one: dict[str, Any]) -> list[tuple[int, int, float, float]]:
    """What more devices would give, each with as many examples of an update as one replica of a row has.

    Args:
        row: A row of several replicas, whose all-reduce says what the links carry.
        one: Its row of one replica.

    Returns:
        Devices, examples of an update, examples a second, efficiency.
    """
    share = row["batch_size"] // _replicas(row)
    seconds = share / one["examples_per_second"]
    speed = ring_bytes_per_second(row["gradient_bytes"], _replicas(row), row["all_reduce_ms"] / 1000)
    out = []
    for number in DEVICES:
        update = seconds + ring_seconds(row["gradient_bytes"], number, speed)
        out.append((number, number * share, number * share / update, seconds / update))
    return out


def _arithmetic_seconds(row: dict[str, Any], one: dict[str, Any]) -> float:
    own = _replicas(row) if "GPU" in row["devices"] else 1
    return row["batch_size"] / own / one["examples_per_second"]


def _replicas(row: dict[str, Any]) -> int:
    return row["workers"] * row["replicas"]


def _at_a_time(row: dict[str, Any]) -> float:
    return row["batch_size"] / _replicas(row) / row["micro_batches"]
