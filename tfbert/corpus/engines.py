"""Makes the wanted shards with processes of this machine: the corpus is scanned once, then each shard is built."""

from __future__ import annotations

import contextlib
import logging
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfbert.corpus import buckets
from tfbert.corpus.buckets import Scanned
from tfbert.corpus.documents import Source
from tfbert.corpus.recipe import Recipe
from tfbert.corpus.shards import Job, build_shard, check_documents
from tfbert.corpus.worker_pool import WorkerPool
from tfbert.errors import UsageError
from tfbert.output.lock import LOCK
from tfbert.output.progress import PassProgress

log = logging.getLogger("tfbert")

_TASK_BYTES = 16 << 20
"""Bytes of the corpus, as it is on the disk, per task of the scan."""
_LEAST_TASKS, _MOST_TASKS = 4, 64  # Per process: enough to share the work, but each receives the names of all files.


def make_shards(source: Source, job: Job, shards: Sequence[int], num_processes: int) -> None:
    """Makes shards.

    Args:
        source: The corpus.
        job: How they are made. Its directory `work` must be locked; what it holds after a kill is used again.
        shards: Their numbers.
        num_processes: The number of processes.

    Raises:
        UsageError: for a corpus that cannot be used; no shard has been made then.
        RunError: if something cannot be written, or a process ends early.
    """
    directory = pathlib.Path(job.work)
    with WorkerPool(num_processes) as pool:
        _scan_once(source, job, shards, pool, num_processes)
        sizes = {shard: bucket_size(directory, shard) for shard in shards}
        tasks = [(job, shard) for shard in sorted(shards, key=lambda shard: -sizes[shard])]
        with PassProgress("making records", sum(sizes.values())) as progress:
            for entry in pool.map(_build, tasks):
                progress.advance(sizes[entry["shard"]], entry["sentences"])
    _clear(directory)


def scan_corpus(source: Source, job: Job, shards: Sequence[int], num_processes: int) -> None:
    """The part of `make_shards` that can refuse the corpus; `make_shards` then resumes from it. Arguments as there.

    Raises:
        UsageError: for a corpus that cannot be used.
        RunError: if something cannot be written, or a process ends early.
    """
    with WorkerPool(num_processes) as pool:
        _scan_once(source, job, shards, pool, num_processes)


def _scan_once(source: Source, job: Job, shards: Sequence[int], pool: WorkerPool, num_processes: int) -> None:
    """Deals the documents to the shards, unless an earlier start has, into the job's directory `work`."""
    directory = pathlib.Path(job.work)
    if buckets.marked(directory, job.digest, shards) is not None:
        return
    _clear(directory)
    try:
        seen = _scan(source, job.recipe, shards, pool, num_processes, directory)
        check_corpus(source.name, job.recipe, seen)
        buckets.mark(directory, job.digest, job.recipe, shards, seen)
    except BaseException:
        _clear(directory)
        raise


def check_corpus(name: str, recipe: Recipe, seen: Scanned) -> None:
    """Refuses a corpus from which no records can be made.

    Raises:
        UsageError: that says why.
    """
    count = int(seen.documents.sum())
    if not count:
        raise UsageError(
            f"A corpus must have documents. Received: {name} without a sentence. Check input_files and corpus_format."
        )
    check_lengths(name, recipe, documents=count, longer_documents=seen.longer_documents)
    fewest = int(np.argmin(seen.documents))
    check_documents(recipe, fewest, int(seen.documents[fewest]))


def check_lengths(name: str, recipe: Recipe, *, documents: int, longer_documents: int) -> None:
    """Refuses documents of one sentence each if pairs are to be made of them.

    Raises:
        UsageError: if no document has two sentences.
    """
    if recipe.random_next_sentence and not longer_documents:
        raise UsageError(
            "A next sentence needs documents of two sentences or more. "
            f"Received: {name}, {documents:,} documents of one sentence each. Separate documents, not sentences, by "
            "blank lines; or pass --corpus_format=lines and --language where each line is a whole document, or "
            "--norandom_next_sentence."
        )


def bucket_size(directory: pathlib.Path, shard: int) -> int:
    """Bytes of a shard's documents, at least 1."""
    path = buckets.bucket(directory, shard)
    return max(1, path.stat().st_size if path.exists() else 0)


def _scan(
    source: Source,
    recipe: Recipe,
    shards: Sequence[int],
    pool: WorkerPool,
    num_processes: int,
    directory: pathlib.Path,
) -> Scanned:
    sizes = source.sizes()
    parts = list(enumerate(source.parts()))
    total = sum(sizes[name] for _, name in parts)
    seen = Scanned(documents=np.zeros(recipe.num_shards, np.int64))
    most = max(_TASK_BYTES, total // (_MOST_TASKS * num_processes))
    tasks = _group(parts, sizes, min(most, total // (_LEAST_TASKS * num_processes)))
    arguments = [(source, group, recipe, tuple(shards), str(directory)) for group in tasks]
    with PassProgress("reading the corpus", total) as progress:
        for size, part in pool.map(_scan_group, arguments):
            seen.add(part)
            progress.advance(size, part.sentences)
    if seen.empty_parts:
        log.warning(
            "%d parts of the corpus hold no sentence, such as %s.", len(seen.empty_parts), min(seen.empty_parts)
        )
    return seen


def _group(parts: list[tuple[int, str]], sizes: dict[str, int], least: int) -> list[list[tuple[int, str]]]:
    """Groups successive parts, so that each group but the last has at least `least` bytes."""
    groups: list[list[tuple[int, str]]] = [[]]
    size = 0
    for part in parts:
        if size >= least and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += sizes[part[1]]
    return groups


def _scan_group(
    source: Source, parts: list[tuple[int, str]], recipe: Recipe, shards: tuple[int, ...], directory: str
) -> tuple[int, Scanned]:
    sizes = source.sizes()
    return sum(sizes[name] for _, name in parts), buckets.scan(source, parts, recipe, shards, directory)


def _build(job: Job, shard: int) -> dict[str, Any]:
    directory = pathlib.Path(job.work)
    entry = build_shard(job, shard, buckets.read_bucket(directory, shard))
    with contextlib.suppress(OSError):
        buckets.bucket(directory, shard).unlink()
    return entry


def _clear(directory: pathlib.Path) -> None:
    """Empties the directory, except for its lock."""
    for path in directory.iterdir():
        if path.name != LOCK:
            with contextlib.suppress(OSError):
                path.unlink()
