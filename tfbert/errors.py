"""How a run can end early without a bug; the command turns each of these errors into one line and an exit status."""

from __future__ import annotations


class UsageError(ValueError):
    """Something given cannot be used. Each line has the rule, `Received: name=value`, and what to do. Exit status 2."""

    status = 2


class RunError(RuntimeError):
    """A run that was set up correctly failed: a full disk, a lost worker, diverged training. Exit status 1."""

    status = 1


class ReaderGone(RunError):
    """The reader of the output, such as `head`, closed the pipe. That is not a failure, so there is no message. Exit
    status 141, as a shell reports for a command that a closed pipe ended."""

    status = 141


class Preempted(Exception):
    """The run was asked to stop by SIGTERM or SIGINT and has saved a checkpoint. Exit status 75 (EX_TEMPFAIL)."""

    status = 75


EXPECTED = (UsageError, RunError, Preempted)


def first_line(error: BaseException | str, most: int = 200) -> str:
    """An exception's message, or a text, cut to its first line and to `most` characters, without its full stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:most].rstrip(".")
