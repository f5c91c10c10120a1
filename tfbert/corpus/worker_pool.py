"""Does tasks in several processes of this machine, each with one TensorFlow thread."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import pickle
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


def done_by_processes(
    function: Callable[[Any, Any], Any], given: Any, tasks: Sequence[Any], num_processes: int
) -> Iterator[Any]:
    """Calls a function for each task, and yields the results as they complete.

    Args:
        function: Defined at the top level of a module.
        given: Its first argument, the same for all tasks.
        tasks: Its second one for each call. Long tasks should be first.
        num_processes: With 1, or for a single task, all is done in this process.

    Raises:
        RunError: if a process ends early, as when memory is short; and whatever the function raises.
    """
    if num_processes == 1 or len(tasks) == 1:
        for task in tasks:
            yield function(given, task)
        return
    others = set(multiprocessing.active_children())
    # Not forked: a forked process would lack TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    started = pickle.dumps((function, given))  # Bytes: what it imports, TensorFlow too, comes after the set-up.
    executor = concurrent.futures.ProcessPoolExecutor(num_processes, context, _set_up, (started,))
    try:
        futures = [executor.submit(_call, task) for task in tasks]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()
    except BaseException as error:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in {*multiprocessing.active_children()} - others:  # Their files appear only when whole.
            process.terminate()
        if not isinstance(error, BrokenProcessPool):
            raise
        raise RunError(
            "A process that makes records was ended, probably by the kernel because memory is short. Received: "
            f"{num_processes} processes. Pass a lower --num_processes: shards that are whole are not made "
            "again. Or make all again, with a higher --num_shards and --overwrite_output_dir."
        ) from None
    finally:
        executor.shutdown()


def _set_up(started: bytes) -> None:
    """Sets up a process that does tasks."""
    global _function, _given
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent stops the others.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start_quietly(threads=1)
    _function, _given = pickle.loads(started)


def _call(task: Any) -> Any:
    return _function(_given, task)


def _end_with_parent() -> None:
    """Ends this process when its parent has ended for any reason: else it would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
