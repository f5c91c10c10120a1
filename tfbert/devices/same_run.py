"""Whether all workers are of the same run: named facts, compared before the first collective that depends on them."""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.devices.preemption import Consensus
from tfbert.errors import RunError, UsageError
from tfbert.private import publish, published

_WAY_OUT = "Give all workers the same; only paths, and what is logged or written, may differ"
_SHOWN, _BEFORE, _MOST = 60, 10, 5
"""The most characters of a value in a message, those of them before a difference, and the most facts."""
_SECONDS = 60.0
_numbers = itertools.count()


def check_same(
    facts: Callable[[], Mapping[str, Any]],
    strategy: tf.distribute.Strategy | None = None,
    *,
    rule: str = "All workers must be of the same run",
    way_out: str = _WAY_OUT,
    error: type[UsageError] | type[RunError] = UsageError,
) -> None:
    """Refuses workers that are not the same, each with all that differs; without other workers it does nothing.

    Only a number is exchanged where they agree; else the facts are, apart from the collectives.

    Args:
        facts: Gives them, by name, as JSON can hold them: all that decides an update, or which collectives come when.
        strategy: Each of its workers must call this function at the same place; None for the present one.
        rule: What a message begins with.
        way_out: What it ends with.
        error: Its class.

    Raises:
        UsageError, or what `error` says: on all workers alike.
    """
    strategy = strategy or tf.distribute.get_strategy()
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    text = json.dumps(facts(), sort_keys=True)
    if not _consensus_of(strategy).is_same(zlib.crc32(text.encode())):
        found = {worker: json.loads(each) for worker, each in _of_all_workers(text, strategy).items()}
        refusal = error(f"{rule}. Received: {differences(found)}. {way_out}.")
        refusal.others_know = True
        raise refusal


def differences(found: Mapping[str, Mapping[str, Any]]) -> str:
    """What differs between workers, such as `seed=1 on worker 0 and 2 on worker 1; ...`.

    Args:
        found: The facts of each worker, by its name.
    """
    leaves = {worker: _leaves(facts) for worker, facts in found.items()}
    phrases = []
    for name in dict.fromkeys(itertools.chain.from_iterable(leaves.values())):
        workers: dict[str, list[str]] = {}
        for worker, facts in leaves.items():
            workers.setdefault(facts.get(name, "nothing"), []).append(worker)
        # Of long texts, from where they differ.
        first = max(0, len(os.path.commonprefix([*workers])) - _BEFORE) if max(map(len, workers)) > _SHOWN else 0
        values = []
        for value, names in workers.items():
            shown = f"{'...' if first else ''}{value[first:][:_SHOWN]}{'...' if len(value) > first + _SHOWN else ''}"
            who = ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others"
            values.append(f"{shown} on {who}")
        if len(values) > 1:
            phrases.append(f"{name}={' and '.join(values)}")
    more = [f"{len(phrases) - _MOST} more"] if len(phrases) > _MOST else []
    return "; ".join([*phrases[:_MOST], *more])


def checksum(*arrays: Any) -> str:
    """What tells arrays from others, whatever they hold."""
    value = 0
    for array in map(np.ascontiguousarray, arrays):
        value = zlib.crc32(f"{array.dtype}{array.shape}".encode(), value)
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.reshape(-1).view(np.uint8).data
        value = zlib.crc32(content, value)
    return f"{value:08x}"


def versions_of(*modules: str) -> dict[str, str]:
    """The versions of imported packages whose numbers workers must share."""
    return {name: importlib.import_module(name).__version__ for name in ("tfbert", "tensorflow", "numpy", *modules)}


def _of_all_workers(text: str, strategy: tf.distribute.Strategy) -> dict[str, str]:
    """The text of each worker, by its name; of those of which there is none in time, none."""
    resolver, name = strategy.cluster_resolver, f"tfbert/facts/{next(_numbers)}"
    spec = resolver.cluster_spec()
    workers = [f"{job} {i}" for job in ("chief", "worker") if job in spec.jobs for i in spec.task_indices(job)]
    own = f"{resolver.task_type} {resolver.task_id}"
    publish(f"{name}/{own}", text)
    found = {worker: published(f"{name}/{worker}", _SECONDS) for worker in workers}
    publish(f"{name}/{own}/seen", "")
    if own == workers[0]:  # It keeps the texts, and must not be gone before the others have them.
        for worker in workers:
            published(f"{name}/{worker}/seen", _SECONDS)
    return {worker: each for worker, each in found.items() if each is not None}


@functools.lru_cache(maxsize=1)  # Traced once: a process is of one cluster.
def _consensus_of(strategy: tf.distribute.Strategy) -> Consensus:
    return Consensus(strategy)


def _leaves(value: Any, name: str = "") -> dict[str, str]:
    """Facts within facts, as text by a name such as `optimizer.learning_rate` or `layers[3].units`."""
    text = repr(value)
    if isinstance(value, dict):
        parts = {f"{name}.{key}" if name else str(key): each for key, each in value.items()}
    elif isinstance(value, list) and len(text) > _SHOWN:
        parts = {f"{name}[{place}]": each for place, each in enumerate(value)}
    else:
        return {name: text}
    return {key: leaf for path, part in parts.items() for key, leaf in _leaves(part, path).items()}
