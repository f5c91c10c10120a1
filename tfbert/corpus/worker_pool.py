"""Tasks on several processes of this machine, each with one thread of TensorFlow."""

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
            for process in own:  # What they are at is not waited for; nothing that they write is half written.
                process.terminate()
        self._executor.shutdown()

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple]) -> Iterator[Any]:
        """Calls a function for each task, and yields what it returns as it comes.

        Args:
            function: At the top of a module.
            tasks: Arguments for each call. Those that take long should be first.

        Raises:
            RunError: if a process ends in the middle, as when memory is short; and whatever the function raises.
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
                "A process that makes records ended, as the kernel ends one where memory is short. Received: "
                f"{self._num_processes} processes. Pass a lower --num_processes or a higher --num_shards; what is "
                "whole is not made again."
            ) from None

    def _start(self) -> concurrent.futures.ProcessPoolExecutor:
        if self._executor is None:
            self._others = set(multiprocessing.active_children())
            # Not forked: TensorFlow's threads would not be there.
            context = multiprocessing.get_context("spawn")
            self._executor = concurrent.futures.ProcessPoolExecutor(self._num_processes, context, _set_up)
        return self._executor


def _set_up() -> None:
    """Begins a process of the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the one that started them stops them.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start_quietly(threads=1)


def _end_with_parent() -> None:
    """Ends this process when the one that started it has ended, however: else it would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
