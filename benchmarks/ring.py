"""What more devices would give, on paper: time of an update = arithmetic, the optimizer's too, + all-reduce.

The gradients of an update are reduced once, with its last micro-batch, so that micro-batches divide the all-reduce's
share of the time. What of it the backward pass hides, where a batch is in one piece, is left out. A ring sends
`2 (n - 1) / n` of the bytes over each of n links, which is the least possible (Patarasuk and Yuan 2009, "Bandwidth
optimal all-reduce algorithms"): its time hardly grows with n.
"""

from __future__ import annotations

import dataclasses

GRADIENT_BYTES = {"float32": 4, "bfloat16": 2}
"""Of each trained number, by `--all_reduce_dtype`, in every precision."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """How devices are linked.

    Attributes:
        devices_per_node: Devices of a machine.
        intra_node: Bytes a second that each device sends to another of its machine, while it receives as many.
        inter_node: Bytes a second that each machine sends to another, while it receives as many.
    """

    devices_per_node: int
    intra_node: float
    inter_node: float


def ring_seconds(num_bytes: float, num_participants: int, bytes_per_second: float) -> float:
    """Seconds of a ring all-reduce over equal links, without latency.

    Args:
        num_bytes: That each participant holds.
        num_participants: 1 or more.
        bytes_per_second: Of each link in each direction.
    """
    return _bytes_over_a_link(num_bytes, num_participants) / bytes_per_second


def ring_bytes_per_second(num_bytes: float, num_participants: int, seconds: float) -> float:
    """What links carry if a ring all-reduce takes these seconds, which NCCL's tests call bus bandwidth: the inverse of
    `ring_seconds`, for 2 participants or more."""
    return _bytes_over_a_link(num_bytes, num_participants) / seconds


def _bytes_over_a_link(num_bytes: float, num_participants: int) -> float:
    return 2 * (num_participants - 1) / num_participants * num_bytes


def all_reduce_seconds(num_bytes: float, num_devices: int, network: Network) -> float:
    """Seconds of an all-reduce: over the devices of each machine, and over the machines.

    Args:
        num_bytes: Of all gradients.
        num_devices: Of all machines; as many on each.
        network: Their links.

    Raises:
        ValueError: if the devices do not fill whole machines.
    """
    on_each = min(num_devices, network.devices_per_node)
    nodes = num_devices / on_each
    if nodes != int(nodes):
        raise ValueError(
            f"Devices must fill whole machines. Received: num_devices={num_devices}, "
            f"devices_per_node={on_each}. Pass a multiple of {on_each}, or fewer than that."
        )
    seconds = ring_seconds(num_bytes, on_each, network.intra_node)
    return seconds + ring_seconds(num_bytes, int(nodes), network.inter_node)
