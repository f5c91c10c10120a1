"""Data in memory as files, for runs in other processes."""

from __future__ import annotations

import dataclasses
import pathlib

from tfbert.config.data import DataConfig
from tfbert.config.given import Given
from tfbert.data.label_names import schema_of_names
from tfbert.errors import RunError, UsageError
from tfbert.output import output_dir
from tfbert.python.data import OPTIONS


def on_disk(data: DataConfig, directory: pathlib.Path) -> DataConfig:
    """The same data, with files in the place of tables in memory.

    Args:
        data: Its paths may be `Given`.
        directory: Where to write them, as Parquet; made if need be.

    Raises:
        UsageError: for values that a column of Parquet cannot hold, or a row that cannot be read.
        RunError: where a file cannot be written.
    """
    paths: dict[str, str] = {}
    for option in OPTIONS.values():
        given = getattr(data, option)
        if isinstance(given, Given):
            parts = given.parts or (given,)
            paths[option] = ",".join(str(_written(part, directory)) for part in parts)
    return dataclasses.replace(data, **paths)


def _written(given: Given, directory: pathlib.Path) -> pathlib.Path:
    """The file of a set; its name is that of the set."""
    table = given.source
    if isinstance(table, pathlib.Path):
        return table
    import pyarrow
    from pyarrow import parquet

    rows = []
    for _, row in table.read(table.columns):
        if isinstance(row, UsageError):
            raise row
        rows.append(row)
    columns = zip(*rows, strict=True)
    try:
        written = pyarrow.table(dict(zip(table.columns, map(pyarrow.array, columns), strict=True)))
        lists = {field.name for field in written.schema if pyarrow.types.is_list(field.type)}
        written = written.replace_schema_metadata(schema_of_names(table.label_names, lists))
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            "Runs in other processes read data from files, whose columns have one type each. "
            f"Received: {given} ({str(error).splitlines()[0]:.100}). Write it to a file yourself, and pass its path."
        ) from None
    path = directory / f"{given.argument.removeprefix('validation_')}.parquet"
    output_dir.make(directory)
    partial = path.with_name(f".{path.name}.partial")
    try:
        parquet.write_table(written, partial)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunError(
            f"Output must be writable. Received: {str(path)!r} ({error.strerror}). "
            "Check free space and permissions there."
        ) from None
    return path
