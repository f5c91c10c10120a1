"""The tables that Python users hold in memory: pandas and polars DataFrames, Arrow tables, columns, records, (text,
label) pairs, and data sets of Hugging Face.

None of these packages is imported: where a value is of one of them, it has been.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfbert.config.types import counted, shown
from tfbert.data.labels import names_in_schema
from tfbert.data.reading import GivenTable, Row, plain
from tfbert.errors import UsageError, first_line

WHAT = (
    "a path, a DataFrame, a dictionary of columns, a list of records or of (text, label) pairs, or a datasets.Dataset"
)
_BATCH = 1000
_Read = Callable[[list[int]], Iterator["Sequence[Any] | UsageError"]]
"""Takes the places of the wanted columns; iterates over the rows, or over what is wrong with them."""


def given_table(argument: str, value: Any) -> GivenTable:
    """A table of what a user gives.

    Args:
        argument: What the user calls it: `train`, `validation`, `validation_NAME` or `test`.
        value: The data, whose rows are read when they are asked for.

    Raises:
        UsageError: for anything else, and for data without rows.
    """
    label_names, columns, read = {}, [], None
    if isinstance(value, list):
        (kind, names, read), num_rows = _of_list(argument, value), len(value)
    elif _is_of(value, "pandas", "DataFrame"):
        # By position, as two columns may have one name, and whatever the index is.
        kind, names, columns = "DataFrame", value.columns, [value.iloc[:, place] for place in range(value.shape[1])]
        num_rows = len(value)
    elif _has_arrow(value):
        kind, table = type(value).__name__, _arrow_table(argument, value)
        names, columns, num_rows = table.column_names, table.columns, table.num_rows
        label_names = names_in_schema(table.schema.metadata)
    elif isinstance(value, Mapping):
        kind, names, columns = "columns", list(value), list(value.values())
        num_rows = _rows_of_columns(argument, value)
    else:
        raise UsageError(f"{argument} must be {WHAT}. Received: {argument}={shown(value)}. {_way_out(value)}")

    names, name = [str(column) for column in names], f"{argument}={kind} of {counted(num_rows, 'row')}"
    if not num_rows:
        raise UsageError(f"Data needs at least one row. Received: {name}. Pass data with rows.")

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        places = [names.index(column) for column in wanted]
        found = read(places) if read else zip(*(_values(columns[place]) for place in places), strict=True)
        for number, row in enumerate(found, start=1):
            yield number, row if isinstance(row, UsageError) else [plain(value) for value in row]

    return GivenTable(name=name, columns=names, read=rows, label_names=label_names)


def is_data(value: Any) -> bool:
    """Whether a value is certainly a whole table, not a column of one."""
    is_frame = _is_of(value, "pandas", "DataFrame") or _is_of(value, "tensorflow", "data.Dataset")
    is_records = isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    return is_frame or is_records or isinstance(value, Mapping) or _has_arrow(value)


def _way_out(value: Any) -> str:
    """What to do with data of another kind."""
    if isinstance(value, Iterator):
        return "It can be read only once: pass list(...) of it."
    if isinstance(value, tuple) and len(value) == 2:
        return "Pass list(zip(texts, labels))."
    if isinstance(value, Mapping) and any(map(is_data, value.values())):
        return f"Pass one of its sets, such as data[{next(iter(value))!r}]."
    if _is_of(value, "tensorflow", "data.Dataset"):
        return "Pass list(data.as_numpy_iterator()), with data.unbatch() for data where it has batches."
    if _is_of(value, "polars", "LazyFrame"):
        return "Pass its collect()."
    if _is_of(value, "datasets", "IterableDataset"):
        return "It may have no end: pass datasets.Dataset.from_generator(...), or a list of its rows."
    if _is_of(value, "pandas", "Series"):
        return "A Series is one column: pass a DataFrame with texts and labels."
    return "Pass one of these."


def _is_of(value: Any, module: str, path: str) -> bool:
    """Whether a value is of a class of a package, which then was imported."""
    found = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return isinstance(found, type) and isinstance(value, found)


def _has_arrow(value: Any) -> bool:
    """Whether a value has Arrow's interface, as its own tables, polars' and those of `datasets` have."""
    has_interface = hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")
    is_table = has_interface and hasattr(value, "columns") and hasattr(value, "__len__")
    return is_table or _is_of(value, "datasets", "Dataset")


def _arrow_table(argument: str, value: Any) -> Any:
    import pyarrow

    if _is_of(value, "datasets", "Dataset"):
        if (value.format or {}).get("type") == "custom":
            rule = "A datasets.Dataset is read as it is stored"
            received = f"{argument} with a transform that is applied when it is read"
            raise UsageError(f"{rule}. Received: {received}. Pass its map(...) instead.")
        value = value.with_format("arrow")[:]
    try:
        return pyarrow.table(value)
    except (pyarrow.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        rule = "A table's columns must have types that Arrow knows"
        received = f"{argument}={type(value).__name__} ({first_line(error)})"
        raise UsageError(f"{rule}. Received: {received}. Pass a dictionary of columns.") from None


def _rows_of_columns(argument: str, columns: Mapping[Any, Any]) -> int:
    if _is_of(columns, "datasets", "DatasetDict") or (columns and all(map(is_data, columns.values()))):
        raise UsageError(f"{argument} is one set. Received: {argument}={shown(columns)}. {_way_out(columns)}")
    lengths = {}
    for name, values in columns.items():
        is_list = not isinstance(values, str | bytes | Mapping | set | frozenset) and hasattr(values, "__getitem__")
        if not is_list or not hasattr(values, "__len__") or getattr(values, "shape", (0,)) == ():
            rule = "In a dictionary of columns, each is a list with a value for each row"
            raise UsageError(f"{rule}. Received: {argument}[{name!r}]={shown(values)}. Pass lists.")
        lengths[name] = len(values)
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name!r}: {length:,}" for name, length in lengths.items())
        raise UsageError(f"All columns must have as many values. Received: {argument} with {counts}. Make them equal.")
    return next(iter(lengths.values()), 0)


def _values(column: Any) -> Any:
    """The values of a column in order; a Series is not indexed from 0, and of Arrow, some at a time become Python's."""
    if hasattr(column, "iterchunks"):
        parts = (chunk.slice(at, _BATCH) for chunk in column.iterchunks() for at in range(0, len(chunk), _BATCH))
        return itertools.chain.from_iterable(part.to_pylist() for part in parts)
    for name in ("to_pylist", "tolist", "to_list"):
        if callable(method := getattr(column, name, None)):
            return method()
    return column


def _of_list(argument: str, rows: list[Any]) -> tuple[str, list[Any], _Read]:
    """Records; or pairs: a text and its label, two texts and their label, words and their tags. What they are, the
    names of their columns, and what reads some of these."""
    # The names of a named tuple, as of DataFrame.itertuples, say what its values are, whatever their order.
    rows = [row._asdict() if hasattr(row, "_asdict") else row for row in rows]
    first, kind, is_nested = rows[0] if rows else None, "records", False
    if isinstance(first, Mapping):
        rule = "Each record is a dictionary"
        names = list(dict.fromkeys(key for record in rows if isinstance(record, Mapping) for key in record))
    elif _is_pair(first):
        kind, is_text = "pairs", isinstance(first[0], str | bytes)
        has_lists = not is_text and isinstance(plain(first[0]), list) and isinstance(plain(first[1]), list)
        is_nested = not is_text and not has_lists and isinstance(first[0], list | tuple)
        names = ["tokens", "tags"] if has_lists else ["text", "text_pair", "label"] if is_nested else ["text", "label"]
        rule = f"Each pair is {'((text, text), label)' if is_nested else '(text, label)'}"
    else:
        shape = "A list holds records, each a dictionary, or pairs of a text and its label; at least one row"
        received = f"[{shown(first)}, ...]" if rows else "[]"
        raise UsageError(f"{shape}. Received: {argument}={received}. Pass for example [('good', 1), ('bad', 0)].")

    def values(row: Any) -> Sequence[Any] | None:
        if kind == "records":
            return [row.get(name) for name in names] if isinstance(row, Mapping) else None
        if is_nested and _is_pair(row):
            return (*row[0], row[1]) if _is_pair(row[0]) else None
        return row if _is_pair(row) else None

    def read(places: list[int]) -> Iterator[Sequence[Any] | UsageError]:
        for number, row in enumerate(rows, start=1):
            found = values(row)
            if found is None:
                yield UsageError(f"{rule}. Received: {shown(row)} in {argument}, row {number}.")
            else:
                yield [found[place] for place in places]

    return kind, names, read


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2
