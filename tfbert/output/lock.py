"""The lock on an output directory: one process at a time decides how to start there, and writes there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import stat
import time
from collections.abc import Iterator

from tfbert.errors import RunError, UsageError

LOCK = ".lock"
"""Exists while a run has the directory, and after a run that was killed."""
_TRIES = 10
_PAUSE_SECONDS = 0.05
_CONFLICTS = (errno.EWOULDBLOCK, errno.EACCES)


@contextlib.contextmanager
def locked(directory: pathlib.Path, *, shared: bool = False) -> Iterator[None]:
    """Keeps other processes out of a directory, which is made if needed, until the end of the block or of this process.

    The lock file is removed at the end, and so are directories that were made for it and that nothing was written to.

    Args:
        directory: The directory.
        shared: Let other processes in that ask for a shared lock too, as the tasks of an array job do.

    Raises:
        UsageError: for a directory that cannot be made or written to.
        RunError: for one that another process has locked.
    """
    directory = directory.absolute()
    made = [path for path in (directory, *directory.parents) if not path.exists()]  # The deepest first.
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = _take(directory, shared)
    except OSError as error:
        _remove(made)
        rule = "output_dir must be writable"
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r} ({error.strerror}). Pass another.") from None
    except (UsageError, RunError):
        _remove(made)
        raise
    try:
        yield
    finally:
        _give_back(directory, descriptor)
        _remove(made)


def _remove(made: list[pathlib.Path]) -> None:
    with contextlib.suppress(OSError):  # Something was written there.
        for path in made:
            path.rmdir()


def _take(directory: pathlib.Path, shared: bool) -> int | None:
    """An open descriptor that holds the lock; None on a file system without locks."""
    path = directory / LOCK
    for tries_left in reversed(range(_TRIES)):
        try:
            # Follows no link and overwrites nothing: the path may be a file of the user's.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            if path.is_symlink() or path.is_dir():
                raise _not_a_lock(path) from None
            raise error from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _not_a_lock(path)
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            # False if the last holder has just removed the file, and always where a file system's numbers change.
            if _is_file(path, descriptor) or not tries_left:
                return descriptor
            os.close(descriptor)
        except UsageError:
            os.close(descriptor)
            raise
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _CONFLICTS:
                path.unlink(missing_ok=True)
                return None
            if shared and tries_left:
                time.sleep(_PAUSE_SECONDS)  # The holder may share the lock and be about to release it.
                continue
            # No waiting: once the other run ends, what the user wanted of the directory is out of date.
            received = f"output_dir={str(directory)!r}, to which another process is writing"
            todo = "Pass another, or wait for it; several workers need --strategy=multi_worker."
            raise RunError(f"A run needs an output directory of its own. Received: {received}. {todo}") from None
    raise AssertionError("unreachable")


def _give_back(directory: pathlib.Path, descriptor: int | None) -> None:
    if descriptor is None:
        return
    path = directory / LOCK
    with contextlib.suppress(OSError):  # The directory may be gone.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Fails while others share the lock: theirs to remove.
        if _is_file(path, descriptor):
            path.unlink()
    with contextlib.suppress(OSError):  # So may its file server be; the error that ended the block is what counts.
        os.close(descriptor)


def _is_file(path: pathlib.Path, descriptor: int) -> bool:
    """Whether the path still leads to the open file."""
    try:
        found, opened = path.lstat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def _not_a_lock(path: pathlib.Path) -> UsageError:
    rule = "The lock of an output directory must be a file"
    todo = "Remove it, or pass another --output_dir."
    return UsageError(f"{rule}. Received: {str(path)!r}, which is a link or something else. {todo}")
