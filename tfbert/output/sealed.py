"""JSON that carries its own checksum: a file that was changed later is refused. Standard library only."""

from __future__ import annotations

import json
import zlib
from typing import Any

_SEAL = "crc32"


def seal(values: dict[str, Any]) -> str:
    """The JSON text of an object, with a checksum over all of it.

    Args:
        values: Anything that JSON can hold; no NaN or infinity.
    """
    return json.dumps(values | {_SEAL: checksum(values)}, indent=2, allow_nan=False) + "\n"


def unseal(text: str) -> dict[str, Any]:
    """Reads the JSON object that was sealed.

    Raises:
        ValueError: for any other text.
    """
    try:
        values = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    if _SEAL not in values:
        raise ValueError("without a checksum")
    return checked(values)


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """An object without its checksum; one that has none is returned as it is.

    Raises:
        ValueError: for one that was changed after it was sealed.
    """
    values = dict(values)
    if _SEAL not in values:
        return values
    expected = values.pop(_SEAL)
    if type(expected) is not int or expected != checksum(values):
        raise ValueError("not what was written")
    return values


def with_seal(values: dict[str, Any]) -> dict[str, Any]:
    """The object with its checksum, as JSON gives it back; NaN may be in it."""
    values = json.loads(json.dumps(values))
    return values | {_SEAL: checksum(values)}


def checksum(values: dict[str, Any]) -> int:
    """CRC-32 of the values, however the text around them is laid out."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")
