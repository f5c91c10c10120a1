"""The tables that Python users hold in memory: pandas and polars DataFrames, Arrow tables, columns, records, (text,
label) pairs, and data sets of Hugging Face.

None of these packages is imported: where a value is of one of them, it has been.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfbert.config.types import shown
from tfbert.data.labels import names_in_schema
from tfbert.data.reading import GivenTable, make_table, plain
from tfbert.errors import UsageError

WHAT = (
    "a path, a DataFrame, a dictionary of columns, a list of records or of (text, label) pairs, or a datasets.Dataset"
)
_BATCH = 1000


def given_table(argument: str, value: Any) -> GivenTable:
    """A table of what a user gives.

    Args:
        argument: What the user calls it: `train`, `validation`, `validation_NAME` or `test`.
        value: The data, whose rows are read when they are asked for.

    Raises:
        UsageError: for anything else, and for data without rows.
    """
    for is_of, table_of in _KINDS:
        if is_of(value):
            return table_of(argument, value)
    raise UsageError(f"{argument} must be {WHAT}. Received: {argument}={shown(value)}. {_way_out(value)}")


def is_data(value: Any) -> bool:
    """Whether a value is certainly a whole table, not a column of one."""
    is_table = any(is_of(value) for is_of, _ in _KINDS[:-1]) or _is_of(value, "tensorflow", "data.Dataset")
    return is_table or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


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


def _of_pandas(argument: str, frame: Any) -> GivenTable:
    def read(places: list[int]) -> Iterator[Sequence[Any]]:
        # By position, as two columns may have one name, and whatever the index is.
        return zip(*(frame.iloc[:, place].tolist() for place in places), strict=True)

    return make_table(argument, "DataFrame", frame.columns, len(frame), read)


def _of_arrow(argument: str, value: Any, kind: str = "") -> GivenTable:
    """Of what has Arrow's interface: its own tables, and those of other packages, such as polars."""
    import pyarrow

    kind = kind or type(value).__name__
    try:
        table = pyarrow.table(value)
    except (pyarrow.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(
            f"A table's columns must have types that Arrow knows. Received: {argument}={kind} ({first}). "
            "Pass a dictionary of columns."
        ) from None

    def read(places: list[int]) -> Iterator[Sequence[Any]]:
        for batch in table.select(places).to_batches(max_chunksize=_BATCH):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return make_table(argument, kind, table.column_names, table.num_rows, read, names_in_schema(table.schema.metadata))


def _of_columns(argument: str, columns: Mapping[Any, Any]) -> GivenTable:
    if _is_of(columns, "datasets", "DatasetDict") or (columns and all(map(is_data, columns.values()))):
        raise UsageError(f"{argument} is one set. Received: {argument}={shown(columns)}. {_way_out(columns)}")
    lengths = {}
    for name, values in columns.items():
        is_list = not isinstance(values, str | bytes | Mapping | set | frozenset) and hasattr(values, "__getitem__")
        if not is_list or not hasattr(values, "__len__") or getattr(values, "shape", (0,)) == ():
            raise UsageError(
                f"In a dictionary of columns, each is a list with a value for each row. "
                f"Received: {argument}[{name!r}]={shown(values)}. Pass lists."
            )
        lengths[name] = len(values)
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name!r}: {length:,}" for name, length in lengths.items())
        raise UsageError(f"All columns must have as many values. Received: {argument} with {counts}. Make them equal.")
    names = list(columns)

    def read(places: list[int]) -> Iterator[Sequence[Any]]:
        return zip(*(_values(columns[names[place]]) for place in places), strict=True)

    return make_table(argument, "columns", names, next(iter(lengths.values()), 0), read)


def _values(column: Any) -> Any:
    """The values of a column in order; a Series is not indexed from 0."""
    for name in ("to_pylist", "tolist", "to_list"):
        if callable(method := getattr(column, name, None)):
            return method()
    return column


def _of_list(argument: str, rows: list[Any]) -> GivenTable:
    if not rows:
        raise UsageError(f"Data needs at least one row. Received: {argument}=[]. Pass data with rows.")
    if isinstance(rows[0], Mapping):
        return _of_records(argument, rows)
    if isinstance(rows[0], list | tuple) and len(rows[0]) == 2:
        return _of_pairs(argument, rows)
    raise UsageError(
        "A list holds records, each a dictionary, or pairs of a text and its label. "
        f"Received: {argument}=[{shown(rows[0])}, ...]. Pass for example [('good', 1), ('bad', 0)]."
    )


def _of_records(argument: str, records: list[Any]) -> GivenTable:
    names = list(dict.fromkeys(key for record in records if isinstance(record, Mapping) for key in record))

    def read(places: list[int]) -> Iterator[Sequence[Any] | UsageError]:
        wanted = [names[place] for place in places]
        for number, record in enumerate(records, start=1):
            if isinstance(record, Mapping):
                yield [record.get(name) for name in wanted]
            else:
                yield UsageError(f"Each record is a dictionary. Received: {shown(record)} in {argument}, row {number}.")

    return make_table(argument, "records", names, len(records), read)


def _of_pairs(argument: str, pairs: list[Any]) -> GivenTable:
    """Of a text and its label; of two texts and their label; of words and their tags."""
    first, label = pairs[0]
    is_text = isinstance(first, str | bytes)
    has_lists = not is_text and isinstance(plain(first), list) and isinstance(plain(label), list)
    is_nested = not is_text and not has_lists and isinstance(first, list | tuple)
    names = ["tokens", "tags"] if has_lists else ["text", "text_pair", "label"] if is_nested else ["text", "label"]

    def read(places: list[int]) -> Iterator[Sequence[Any] | UsageError]:
        for number, pair in enumerate(pairs, start=1):
            row = pair if isinstance(pair, list | tuple) and len(pair) == 2 else None
            if row is not None and is_nested:
                row = (*row[0], row[1]) if isinstance(row[0], list | tuple) and len(row[0]) == 2 else None
            if row is None:
                what = "((text, text), label)" if is_nested else "(text, label)"
                yield UsageError(f"Each pair is {what}. Received: {shown(pair)} in {argument}, row {number}.")
            else:
                yield [row[place] for place in places]

    return make_table(argument, "pairs", names, len(pairs), read)


def _of_hugging_face(argument: str, dataset: Any) -> GivenTable:
    if (dataset.format or {}).get("type") == "custom":
        raise UsageError(
            "A datasets.Dataset is read as it is stored. "
            f"Received: {argument} with a transform that is applied when it is read. Pass its map(...) instead."
        )
    return _of_arrow(argument, dataset.with_format("arrow")[:], "Dataset")


def _has_arrow(value: Any) -> bool:
    has_interface = hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")
    return has_interface and hasattr(value, "columns") and hasattr(value, "__len__")


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[str, Any], GivenTable]], ...] = (
    (lambda value: _is_of(value, "pandas", "DataFrame"), _of_pandas),
    (lambda value: _is_of(value, "datasets", "Dataset"), _of_hugging_face),
    (_has_arrow, _of_arrow),
    (lambda value: isinstance(value, Mapping), _of_columns),
    (lambda value: isinstance(value, list), _of_list),
)
"""How each kind of data is known, and its table; lists come last."""
