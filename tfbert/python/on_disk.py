"""Data in memory as files, for runs in other processes: what these read is what the table holds."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfbert.config.data import DataConfig
from tfbert.config.types import Given
from tfbert.data.open_file import GivenTable
from tfbert.data.rows import JSON_COLUMNS
from tfbert.errors import RunError, UsageError
from tfbert.output import output_dir
from tfbert.python.data import OPTIONS

if TYPE_CHECKING:
    import pyarrow


def on_disk(data: DataConfig, directory: pathlib.Path, runs: Sequence[pathlib.Path]) -> DataConfig:
    """The same data, with files in the place of tables in memory.

    Args:
        data: Its paths may be `Given`.
        directory: Where to write them, as Parquet; made if need be.
        runs: The directories of earlier runs that read them, and are not trained again from the beginning.

    Raises:
        UsageError: for a row that cannot be read, and for other data than that of these runs: nothing is written then.
        RunError: where a file cannot be written.
    """
    paths, changed = {}, {}
    for option in OPTIONS.values():
        given = getattr(data, option)
        if not isinstance(given, Given):
            continue
        own = []
        for part in given.parts or (given,):
            own.append(part.source)
            if isinstance(part.source, GivenTable):
                own[-1] = path = directory / f"{part.argument.removeprefix('validation_')}.parquet"
                table = _as_arrow(part.source, keeps_bad_rows=data.skip_bad_rows)
                if what := _other_than(path, table):
                    changed[path] = table
                    for run in runs:
                        read = output_dir.read_run_config(run).get("data", {}).get(option, "")
                        if path.exists() or str(path) not in read:
                            raise _other_data(part, run, what)
        paths[option] = ",".join(map(str, own))
    for path, table in changed.items():
        _write(table, path)
    return dataclasses.replace(data, **paths)


def _as_arrow(table: GivenTable, *, keeps_bad_rows: bool) -> pyarrow.Table:
    """The table, with each column as JSON that Arrow might not give back as it is: all but texts, numbers of one type,
    and lists of these.

    The names of classes are where `datasets` writes them. Beside ids they would name these; the values are names.
    """
    import pyarrow
    from pyarrow import types

    rows = []
    for _, row in table.read(table.columns):
        if isinstance(row, UsageError) and not keeps_bad_rows:
            raise row
        rows.append([None] * len(table.columns) if isinstance(row, UsageError) else row)
    arrays, as_json = [], []
    for place, values in enumerate(zip(*rows, strict=True)):
        try:
            array = pyarrow.array(values)
            kind = array.type.value_type if types.is_list(array.type) else array.type
            is_plain = (
                types.is_string(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
            )
            is_kept = is_plain and all(map(_are_equal, array.to_pylist(), values))
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
            is_kept = False
        if not is_kept:
            array = pyarrow.array([json.dumps(value, default=_no_word) for value in values])
            as_json.append(place)
        arrays.append(array)
    features = {column: {"names": list(names), "_type": "ClassLabel"} for column, names in table.label_names.items()}
    notes = {"huggingface": json.dumps({"info": {"features": features}})} if features else {}
    notes |= {JSON_COLUMNS: json.dumps(as_json)} if as_json else {}
    return pyarrow.Table.from_arrays(arrays, names=table.columns).replace_schema_metadata(notes or None)


def _are_equal(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # In type too, also within lists: 1 is not 1.0, nor true.


def _no_word(value: Any) -> dict[str, None]:
    """What stands in JSON for a value of another type, such as an image: nobody takes it for a text or a label."""
    return {type(value).__name__: None}


def _other_than(path: pathlib.Path, table: pyarrow.Table) -> str:
    """In which way a table is not what a file holds; empty if it is."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            before = file.read()
    except (pyarrow.ArrowException, OSError) as error:
        return f"no file {str(path)!r}" if isinstance(error, FileNotFoundError) else f"a damaged {str(path)!r}"
    if (before.column_names, before.num_rows) != (table.column_names, table.num_rows):
        return "other columns, or another number of rows"
    for name, old, new in zip(table.column_names, before.columns, table.columns, strict=True):
        if not old.equals(new):
            return f"other values in the column {name!r}"
    return "" if before.schema.metadata == table.schema.metadata else "other names of classes"


def _other_data(given: Given, run: pathlib.Path, what: str) -> UsageError:
    rule = "All runs of a sweep have the same data"
    todo = "Pass the same data, or another --output_dir; --overwrite_output_dir trains all runs again."
    return UsageError(f"{rule}. Received: {given} and {str(run)!r}, a run with other data: {what}. {todo}")


def _write(table: pyarrow.Table, path: pathlib.Path) -> None:
    from pyarrow import parquet

    output_dir.make(path.parent)
    partial = path.with_name(f".{path.name}.partial")
    try:
        parquet.write_table(table, partial)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        rule = "Output must be writable"
        todo = "Check free space and permissions there."
        raise RunError(f"{rule}. Received: {str(path)!r} ({error.strerror}). {todo}") from None
