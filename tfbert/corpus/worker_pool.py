"""Runs tasks in several processes of this machine, each with one TensorFlow thread."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from tfbert.devices.quiet import start_quietly
from tfbert.errors import RunError


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool:
    """Processes that are started when they are first needed and stopped at the end of a `with` block.

    Args:
        num_processes: How many. With 1, tasks run in this process.
    """

    def __init__(self, num_processes: int):
        self._num_processes = num_processes
        self._executor: concurrent.futures.ProcessPoolExecutor | None = None
        self._others: set[multiprocessing.process.BaseProcess] = set()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._executor is None:
            return
        if kind is not None:
            own = set(multiprocessing.active_children()) - self._others
            self._executor.shutdown(wait=False, cancel_futures=True)
            for process in own:  # Their tasks are not awaited; their files appear only when whole.
                process.terminate()
        self._executor.shutdown()

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple]) -> Iterator[Any]:
        """Calls a function for each task, and yields the results as they complete.

        Args:
            function: Defined at the top level of a module.
            tasks: Arguments for each call. Long tasks should be first.

        Raises:
            RunError: if a process ends early, as when memory is short; and whatever the function raises.
        """
        if self._num_processes == 1 or len(tasks) == 1:
            for task in tasks:
                yield function(*task)
            return
        executor = self._start()
        futures = [executor.submit(function, *task) for task in tasks]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise RunError(
                "A process that makes records was ended, probably by the kernel because memory is short. Received: "
                f"{self._num_processes} processes. Pass a lower --num_processes: shards that are whole are not made "
                "again. Or make all again, with a higher --num_shards and --overwrite_output_dir."
            ) from None

    def _start(self) -> concurrent.futures.ProcessPoolExecutor:
        if self._executor is None:
            self._others = set(multiprocessing.active_children())
            # Not forked: a forked process would lack TensorFlow's threads.
            context = multiprocessing.get_context("spawn")
            self._executor = concurrent.futures.ProcessPoolExecutor(self._num_processes, context, _set_up)
        return self._executor


def _set_up() -> None:
    """Sets up a process of the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent stops the others.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start_quietly(threads=1)


def _end_with_parent() -> None:
    """Ends this process when its parent has ended for any reason: else it would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
