"""Reads the tables of a run or of an evaluation: from files, from a named data set, or the built-in corpus.

Rows as written -> a task and its examples.

data = load_data(DataConfig(train_file="train.tsv", validation_file="dev.tsv"))
data.task.label_names, len(data.train), data.validation["validation"].labels

A part of the training examples is held out, to evaluate on: `--validation_split`.

It depends on `--split_seed` and the examples, in their order, alone. Examples that share a text are on one side; each
class keeps its share, as far as that allows.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.config.types import Given, Recorded
from tfbert.data.files import about_columns
from tfbert.data.rows import Source, demo_table, input_source
from tfbert.errors import UsageError
from tfbert.tasks.base import Examples, Task, TaskData, eval_prefix, subset
from tfbert.tasks.registry import entry_of

Table = TypeVar("Table", bound=Any)
Read = Callable[[Source, DataConfig], Table]
"""Reads what an option names, as the task and these options do."""


def read_training_tables(config: DataConfig, task: str, read: Read[Table], notes: list[str]) -> dict[str, Table]:
    """Reads what a run trains and is evaluated on.

    Args:
        config: Names a data set, or files.
        task: Whose built-in data these may be.
        read: Reads one set.
        notes: Receives those of the tables, and whether nothing is evaluated during training.

    Returns:
        Tables by name, `train` first, then `validation...`, then `test`.

    Raises:
        UsageError: for data that does not exist or cannot be read.
    """
    tables = _tables(config, task, read, with_train=True)
    if config.uses_files and not config.has_validation_data:
        notes.append("no validation_file: nothing is evaluated during training")
    notes += [line for table in tables.values() for line in table.notes]
    return tables


def read_labelled_tables(
    config: DataConfig, task: str, read: Read[Table], notes: list[str], choice_columns: Sequence[str] = ()
) -> dict[str, Table]:
    """Reads what a saved model is evaluated on.

    Args:
        config: As for `read_training_tables`; `test_file` may be standard input.
        task: As for `read_training_tables`.
        read: As for `read_training_tables`.
        notes: Receives those of the tables, and which columns were read.
        choice_columns: The option of this name.

    Returns:
        Tables by the prefix of their metrics: `eval`, `test`, ...

    Raises:
        UsageError: for data that does not exist or cannot be read.
    """
    tables = _tables(config, task, read, with_train=False)
    asked = _asked(config, choice_columns)
    for table in tables.values():
        notes += [*table.notes, *about_columns(table.name, table.columns, asked)]
    is_test = config.uses_files  # A data set's is what there is to evaluate on.
    return {name if is_test and name == "test" else eval_prefix(name): table for name, table in tables.items()}


def _asked(config: DataConfig, choice_columns: Sequence[str]) -> dict[str, Sequence[str]]:
    """The columns that a user, or the training of a saved model, named, by option."""
    columns = {"text_column": config.text_column, "label_column": (config.label_column,)}
    return columns | {"choice_columns": choice_columns}


def _tables(config: DataConfig, task: str, read: Read[Table], *, with_train: bool) -> dict[str, Table]:
    if config.uses_files:
        paths, tables = config.validation_files, dict[str, Table]()
        files = {"train": config.train_file if with_train else ""}
        files |= dict(zip(validation_names(paths), paths, strict=True)) | {"test": config.test_file}
        for name in filter(files.get, files):
            tables[name] = read(input_source(files[name], f"{name}_file"), config)
            config = as_trained(config, tables["train"].columns) if with_train else config
        return tables
    if not config.header:
        raise UsageError("Only .tsv and .csv files can lack a header. Received: header=False. Drop --noheader.")
    if config.dataset not in ("", "demo"):
        from tfbert.data.tfds_builder import read_splits  # imports TensorFlow Datasets

        return read_splits(config.dataset, config.data_dir, lambda split: read(split, config), with_train=with_train)
    splits = ("train", "validation") if with_train else ("validation",)
    tables = {split: read(demo_table(task, split), config) for split in splits}
    return {split: dataclasses.replace(table, columns={}) for split, table in tables.items()}


def as_trained(config: DataConfig, columns: Mapping[str, Sequence[str]]) -> DataConfig:
    """The same options; where they name no columns, those that were trained on, see `Recorded`: what is evaluated is
    read by these where it has them, whatever other columns it has."""
    text, label = (tuple(map(Recorded, columns.get(option, ()))) for option in ("text_column", "label_column"))
    own = config.label_column or (label[0] if len(label) == 1 else "")
    return dataclasses.replace(config, text_column=config.text_column or text, label_column=own)


def validation_names(paths: Sequence[str]) -> list[str]:
    """The names of validation files: `validation` for one, `validation_NAME` for each of several; of data in memory,
    their own.

    Raises:
        UsageError: for files with the same name.
    """
    if given := [path.argument for path in paths if isinstance(path, Given)]:
        return given
    if len(paths) <= 1:
        return ["validation"] * len(paths)
    names = [f"validation_{pathlib.Path(path).name.partition('.')[0]}" for path in paths]
    if len(set(names)) != len(names):
        rule = "Validation files need different names, so that their metrics can be told apart"
        raise UsageError(f"{rule}. Received: validation_file={','.join(paths)!r}. Rename one.")
    return names


def data_of(task: Task, sets: dict[str, Any], notes: Sequence[str], config: DataConfig) -> TaskData:
    """The sets by their names. Without a test file, a split `test` counts as validation if the data set has no other
    examples to evaluate on, as a part of the training examples that is held out."""
    is_last = config.test_file or config.validation_split is not None
    train, test = sets.pop("train"), sets.pop("test", None) if is_last else None
    return TaskData(task=task, train=train, validation=sets, test=test, notes=tuple(notes), columns=train.columns)


def load_data(config: DataConfig, options: TaskOptions | None = None) -> TaskData:
    """Reads everything a run trains and evaluates on.

    Reading from TensorFlow Datasets starts TensorFlow's devices: set them up first.

    `max_train_examples` and `max_eval_examples` keep a random subset, always the same one, so that files sorted by
    class (as IMDB's) still give all classes.

    Args:
        config: Names a data set, or files.
        options: Options of single tasks; None for their defaults.

    Raises:
        UsageError: for data that does not exist, cannot be read, or does not fit together.
    """
    options, notes = options or TaskOptions(), []
    data = entry_of(config.task).load(config, options)

    train = subset(data.train, config.max_train_examples, notes)
    others = {name: subset(examples, config.max_eval_examples, notes) for name, examples in data.sets.items()}
    doubts = data.task.doubts(train)
    for other in others.values():
        doubts += _rows_in_common(train, other)
    notes = [*about_columns(train.name, data.columns, _asked(config, options.choosing.choice_columns)), *notes]
    notes = [*data.notes, *notes, *(f"warning: {line}" for line in doubts)]
    test = others.pop("test", None) if data.test is not None else None
    return dataclasses.replace(data, train=train, validation=others, test=test, notes=tuple(notes))


def _rows_in_common(train: Examples, other: Examples) -> list[str]:
    """A line if some examples are both trained on and evaluated on."""
    if os.path.realpath(train.name) == os.path.realpath(other.name):
        return [f"{other.name} is used for training and for evaluation: its scores say nothing about other texts"]
    # Keeps only the contents of the evaluation set in memory, as it is smaller. Empty texts do not count as equal.
    evaluated = {key for key in other.contents() if any(key)}
    seen = {key for key in train.contents() if key in evaluated}
    count = sum(key in seen for key in other.contents())
    return [f"{other.name}: {count:,} of {len(other):,} rows are in the training data too"] if count else []


Set = TypeVar("Set", bound=Any)
"""A dataclass with a length, `name` and `take`: examples, or a table of them."""


def hold_out(
    sets: dict[str, Set],
    config: DataConfig,
    notes: list[str],
    groups: Callable[[Set], np.ndarray],
    strata: Callable[[Set], np.ndarray | None] = lambda train: None,
) -> dict[str, Set]:
    """The sets of a run with a part of `train` as `validation`; as they are without `validation_split`.

    Args:
        sets: By name, `train` first.
        config: Names the share, and the seed.
        notes: Receives what was held out.
        groups: Takes `train`; returns int `[n]`: examples with equal numbers stay together.
        strata: Likewise, the class of each, each of which keeps its share; None: all are alike.

    Raises:
        UsageError: where there are other examples to evaluate on, or none can be held out.
    """
    share, seed, train = config.validation_split, config.split_seed, sets["train"]
    if share is None:
        return sets
    if found := [name for name in sets if name.startswith("validation")]:
        rule = "validation_split is for data without examples to evaluate on"
        received = f"validation_split={share} with {sets[found[0]].name}"
        raise UsageError(f"{rule}. Received: {received}. Drop --validation_split.")
    wanted, group = int(share * len(train) + 0.5), groups(train)
    is_held, largest = held_out_rows(group, strata(train), share, seed), np.bincount(group).max()
    together = f", in groups of up to {largest:,} that share their texts" if largest > 1 else ""
    count = int(is_held.sum())
    if not count:
        rule = "validation_split must hold out at least one example, and leave one of each class to train on"
        received = f"validation_split={share} of {len(train):,} in {train.name}{together}"
        raise UsageError(f"{rule}. Received: {received}. Pass a larger share, or more examples.")
    few = f", rather than {wanted:,}, as they come{together[1:]}" if 2 * count < wanted else ""
    notes.append(
        f"validation_split={share:g}: {count:,} of {len(train):,} examples of {train.name} are held out to evaluate "
        f"on{few}; split_seed={seed}"
    )
    held = dataclasses.replace(train.take(np.flatnonzero(is_held)), name=f"{train.name} (validation_split)")
    kept = train.take(np.flatnonzero(~is_held))
    return {"train": kept, "validation": held} | {name: part for name, part in sets.items() if name != "train"}


def held_out_rows(groups: np.ndarray, strata: np.ndarray | None, share: float, seed: int) -> np.ndarray:
    """Which of n rows are held out: bool `[n]`.

    Groups are taken in an order drawn at random, each if its rows are still wanted of all their strata.

    Args:
        groups: int `[n]`, from 0.
        strata: int `[n]`, from 0; at least one row of each is left. None: all are alike.
        share: Above 0 and below 1.
        seed: Decides the order.
    """
    strata = np.zeros(len(groups), np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    random = np.random.Generator(np.random.PCG64(seed))
    wanted = _quotas(np.bincount(strata), share, random).tolist()
    by_group = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups)).tolist()
    is_held, left = np.zeros(len(groups), bool), sum(wanted)
    for group in random.permutation(len(ends)).tolist():
        if not left:
            break
        rows = by_group[(ends[group - 1] if group else 0) : ends[group]]
        counts = collections.Counter(strata[rows].tolist())
        if rows.size and all(wanted[stratum] >= count for stratum, count in counts.items()):
            is_held[rows] = True
            left -= len(rows)
            for stratum, count in counts.items():
                wanted[stratum] -= count
    return is_held


def _quotas(sizes: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """How many rows of each stratum are held out: the share of it, rounded so that the sum is the share of all; never a
    whole stratum. Where several are as near to the next number, chance decides."""
    exact = share * sizes
    quotas = np.floor(exact).astype(np.int64)
    missing = int(share * sizes.sum() + 0.5) - int(quotas.sum())
    order = np.lexsort((random.permutation(len(sizes)), quotas - exact))
    quotas[order[: max(missing, 0)]] += 1
    return np.minimum(quotas, sizes - 1)


def equal(keys: Iterable[Hashable]) -> np.ndarray:
    """Numbers that are equal where the keys are: int64 `[n]`."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def that_share_texts(contents: Sequence[tuple[str, ...]], share: float, notes: list[str]) -> np.ndarray:
    """Numbers that are equal where examples share a text: int64 `[n]`.

    Pairs may all hang together through a few texts that many of them have, so that nothing could be held out. Then only
    pairs with the same first text stay together, or else those with the same second one, or else equal pairs.

    Args:
        contents: The text, or the two texts, of each example.
        share: The share of them that is held out.
        notes: Receives a line where pairs that share a text may be on both sides.
    """
    if not contents or len(contents[0]) == 1:
        return equal(contents)
    largest = max(_SMALL_GROUP, int(share * len(contents)) // 10)
    first, second = (equal(texts) for texts in zip(*contents, strict=True))
    choices = (
        ("", _connected(contents)),
        ("pairs with the same first text", first),
        ("pairs with the same second text", second),
        ("equal pairs", equal(contents)),
    )
    what, groups = next((choice for choice in choices if np.bincount(choice[1]).max() <= largest), choices[-1])
    if what:
        notes.append(f"warning: validation_split keeps {what} together, no others: they share too many texts")
    return groups


_SMALL_GROUP = 10
"""Groups of up to this many pairs are small, however few pairs there are."""


def _connected(pairs: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Numbers that are equal where pairs hang together through texts that they share: int64 `[n]`."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    flat = equal(text for pair in pairs for text in pair).reshape(-1, 2)
    size = int(flat.max()) + 1
    graph = coo_array((np.ones(len(flat), np.int8), (flat[:, 0], flat[:, 1])), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return labels[flat[:, 0]].astype(np.int64)
