"""A table in memory: what `rows` opens in the place of a file."""

from __future__ import annotations

import dataclasses
import decimal
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.config.counted import counted
from tfbert.data.open_file import OpenFile, Row
from tfbert.errors import UsageError

FORMAT = "parquet"
"""The format of a table in memory, where a file's is asked for: its columns have types, as in Parquet."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GivenTable(OpenFile):
    """A table in memory, to be read as often as one likes. Its name is such as `train=DataFrame of 60 rows`."""

    unit: str = "row"


def make_table(
    argument: str,
    kind: str,
    columns: Sequence[Any],
    num_rows: int,
    read: Callable[[list[int]], Iterator[Sequence[Any] | UsageError]],
    label_names: Mapping[str, tuple[str, ...]] | None = None,
) -> GivenTable:
    """A table of values of any types.

    Args:
        argument: As for `given_table`.
        kind: What it is, as a user calls it.
        columns: The columns' names; all become text.
        num_rows: The number of rows.
        read: Takes the places of the wanted columns; iterates over the rows, or over what is wrong with them.
        label_names: The names of ids, by column.

    Raises:
        UsageError: for no rows.
    """
    names = [str(column) for column in columns]
    name = f"{argument}={kind} of {counted(num_rows, 'row')}"
    if not num_rows:
        raise UsageError(f"Data needs at least one row. Received: {name}. Pass data with rows.")

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        for number, row in enumerate(read([names.index(column) for column in wanted]), start=1):
            yield number, row if isinstance(row, UsageError) else [plain(value) for value in row]

    return GivenTable(name=name, columns=names, read=rows, label_names=dict(label_names or {}))


def plain(value: Any) -> Any:
    """A value with the types of Python alone, as a file of typed columns gives it.

    Missing values (None, NaN, pandas.NA) become None. Bytes are UTF-8, as TensorFlow's strings are; others stay bytes,
    which no text or label may be. A decimal number is an integer or a float, as other numbers are. What Python has no
    type for stays as it is.
    """
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, decimal.Decimal):
        value = int(value) if value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, str):
        return str.__str__(value)  # An Enum's text, rather than its name.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, bytes):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, np.generic | np.ndarray):
        is_time = value.dtype.kind in "mM"  # Python's form of some of these is an integer.
        return value if is_time else plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    for name in ("as_py", "numpy", "to_pylist", "to_list", "tolist"):  # Of Arrow, tensors and columns.
        if callable(method := getattr(value, name, None)):
            return plain(method())
    return value
