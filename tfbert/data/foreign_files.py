"""Small files that other programs wrote, such as a model's JSON: read whole, with limits on size and depth."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

from tfbert.errors import UsageError

MAX_BYTES = 32 << 20
"""Largest such file; LaBSE's vocabulary of 501,153 tokens has 14 MB as JSON."""
_MAX_DEPTH = 50


def read_text(path: pathlib.Path, rule: str) -> str:
    """Reads a text file.

    Args:
        path: The file.
        rule: What the file must be: the first sentence of the error.

    Raises:
        UsageError: for a path that does not exist or is not a file; for a file that is not UTF-8 or above `MAX_BYTES`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _error(rule, path, f"larger than {MAX_BYTES >> 20} MiB")
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _error(rule, path, f"not UTF-8, {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise _error(rule, path, error.strerror or str(error)) from None


def read_json_object(path: pathlib.Path, rule: str) -> dict[str, Any]:
    """Reads a file that holds a JSON object.

    Args:
        path: The file.
        rule: As for `read_text`.

    Raises:
        UsageError: as `read_text`, and for anything but a JSON object, or an object that is nested too deeply.
    """
    text = read_text(path, rule)
    try:
        value = json.loads(text)
    except RecursionError:
        raise _error(rule, path, "nested too deeply") from None
    except ValueError as error:
        raise _error(rule, path, str(error)[:200]) from None
    if not isinstance(value, dict):
        raise _error(rule, path, "not a JSON object")
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return value
    raise _error(rule, path, "nested too deeply")


def file_beside(index: pathlib.Path, name: str) -> pathlib.Path:
    """A file that an index names.

    Whoever wrote the index, the file must be beside it. It may be a link, but only to a file below the directory or in
    the hub's cache, which links `snapshots/REVISION/FILE` to `blobs/HASH`.
    """
    directory = index.parent
    is_plain = 0 < len(name) < 256 and name not in (".", "..") and not re.search(r"[/\\\0]", name)
    if not is_plain or not (directory / name).is_file():
        raise UsageError(
            f"All files that {index.name} lists must exist beside it. "
            f"Received: {directory} without {name[:100]!r}. Copy or download the model again."
        )
    own, target = directory.resolve(), (directory / name).resolve()
    blobs = own.parent.parent / "blobs"
    if not target.is_relative_to(own) and not (own.parent.name == "snapshots" and target.parent == blobs):
        raise UsageError(
            f"All files that {index.name} lists must be in its directory. "
            f"Received: {directory / name}, a link to {target}. Put the file itself there."
        )
    return directory / name


def _error(rule: str, path: pathlib.Path, what: str) -> UsageError:
    return UsageError(f"{rule}. Received: {path}: {what}. Repair it, or copy or download it again.")
