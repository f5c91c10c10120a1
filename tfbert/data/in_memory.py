"""The tables that Python users hold in memory: pandas and polars DataFrames, Arrow tables, columns, records, (text,
label) pairs, and data sets of tf.data and of Hugging Face.

None of these packages is imported: where a value is of one of them, it has been.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfbert.config.types import shown
from tfbert.data.files import WORDS_NAMES
from tfbert.data.labels import names_in_schema
from tfbert.data.reading import GivenTable, make_table, plain
from tfbert.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf


WHAT = (
    "a path, a DataFrame, a dictionary of columns, a list of records or of (text, label) pairs, a finite "
    "tf.data.Dataset or a datasets.Dataset"
)
_BATCH = 1000


def given_table(argument: str, value: Any, *, holds_sentences: bool = False) -> GivenTable:
    """A table of what a user gives.

    Args:
        argument: What the user calls it: `train`, `validation`, `validation_NAME` or `test`.
        value: The data. A tf.data.Dataset is read at once, all others when their rows are asked for.
        holds_sentences: Whether each row of a tf.data.Dataset is a list of words and a list of tags.

    Raises:
        UsageError: for anything else, and for data without rows.
    """
    for is_of, table_of in _KINDS:
        if is_of(value):
            return table_of(argument, value)
    if _is_of(value, "tensorflow", "data.Dataset"):
        return table_of_tf_data(argument, value, holds_sentences=holds_sentences)
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


_MOST_ROWS = 1_000_000
"""Rows that are read of a data set that does not say how many it has: it may have no end."""
_FORMS = "Pass one of (text, label), ((text, text), label), (words, tags) or dictionaries of columns"


def table_of_tf_data(argument: str, dataset: tf.data.Dataset, *, holds_sentences: bool = False) -> GivenTable:
    """A table of a data set, batched or not; it is read once, as a shuffled one has another order each time.

    Args:
        argument: What messages call the data.
        dataset: Its elements are pairs or dictionaries.
        holds_sentences: Whether a pair of lists is a sentence with its tags, rather than a batch of texts.

    Raises:
        UsageError: for one without an end, or with other elements.
    """
    import tensorflow as tf

    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise UsageError(f"{argument} must have an end. Received: {argument}={shown(dataset)}. Drop its repeat().")
    names, flat = _columns(argument, dataset.element_spec, holds_sentences)
    specs = dict(zip(names, flat(dataset.element_spec), strict=True))
    depth = _depth(argument, specs, holds_sentences)
    is_single = [_ends_in_one(spec, depth) for spec in specs.values()]
    if not depth and all(isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0 for spec in specs.values()):
        dataset, depth = dataset.batch(_BATCH), 1  # Ten times as fast.
    rows: list[Sequence[Any]] = []
    for element in dataset.as_numpy_iterator():
        values = [plain(value) for value in flat(element)]
        for row in zip(*map(_of_batch, values), strict=True) if depth else [values]:
            rows.append([v[0] if single else v for v, single in zip(row, is_single, strict=True)])
        if len(rows) > _MOST_ROWS and dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY:
            raise UsageError(
                f"{argument} must have an end. Received: a tf.data.Dataset of more than {_MOST_ROWS:,} rows that does "
                "not say how many it has. Apply tf.data.experimental.assert_cardinality(n) to it."
            )

    def read(places: list[int]) -> Iterator[Sequence[Any]]:
        return ([row[place] for place in places] for row in rows)

    return make_table(argument, "tf.data.Dataset", names, len(rows), read)


def _columns(argument: str, spec: Any, holds_sentences: bool) -> tuple[list[str], Any]:
    """The names of the columns of elements, and a function that lists an element's values."""
    if isinstance(spec, Mapping):
        names = list(spec)
        return names, lambda element: [element[name] for name in names]
    if not isinstance(spec, tuple) or len(spec) != 2:
        what = "without labels" if not isinstance(spec, tuple) else f"of {len(spec)} parts"
        raise UsageError(
            f"A tf.data.Dataset has pairs or dictionaries as elements. Received: {argument} with elements {what}: "
            f"{shown(spec)}. {_FORMS}."
        )
    inputs, _ = spec
    if isinstance(inputs, Mapping):
        names = list(inputs)
        return [*names, "label"], lambda element: [*(element[0][name] for name in names), element[1]]
    if isinstance(inputs, tuple):
        if len(inputs) != 2:
            raise UsageError(f"A pair has two texts. Received: {argument} with elements {shown(spec)}. {_FORMS}.")
        return ["text", "text_pair", "label"], lambda element: [*element[0], element[1]]
    return (["tokens", "tags"] if holds_sentences else ["text", "label"]), list


def _depth(argument: str, specs: Mapping[str, Any], holds_sentences: bool) -> int:
    """0 for a data set whose elements are rows; 1 for batches of rows."""
    import tensorflow as tf

    leaves = {name: tf.nest.flatten(spec) for name, spec in specs.items()}
    for name, found in leaves.items():
        if any(isinstance(spec, tf.SparseTensorSpec) or spec.shape.rank is None for spec in found):
            raise UsageError(
                "The tensors of a data set must be dense or ragged, and of known rank. "
                f"Received: {argument} with {name!r}: {shown(specs[name])}. Convert them with map(...)."
            )
    ranks = {name: min(spec.shape.rank for spec in found) for name, found in leaves.items()}
    words = next((name for name in specs if str(name).lower() in WORDS_NAMES[0]), None)
    if words is None and not holds_sentences:
        depth = min(ranks.values())
    else:
        depth = (ranks[words] if words is not None else min(ranks.values())) - 1
    if not 0 <= depth <= 1:
        raise UsageError(
            "A data set has a row, or a batch of rows, in each element. "
            f"Received: {argument} with {shown(dict(specs))}. Call its unbatch() or map(...)."
        )
    return depth


def _ends_in_one(spec: Any, depth: int) -> bool:
    """Whether each row has a list of one number, as Keras gives labels of two classes."""
    import tensorflow as tf

    is_tensor = isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string
    return is_tensor and spec.shape.rank == depth + 1 and spec.shape[-1] == 1


def _of_batch(value: Any) -> list[Any]:
    """The values of a batch, a list or a dictionary of lists, as a list."""
    if not isinstance(value, dict):
        return value
    columns = [_of_batch(inner) for inner in value.values()]
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
