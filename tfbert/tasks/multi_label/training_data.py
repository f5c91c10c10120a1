"""What a run on texts with several labels trains and evaluates on: rows as written -> the task, and its examples."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.errors import UsageError
from tfbert.tasks.base import TaskData
from tfbert.tasks.classes import is_number, shortened
from tfbert.tasks.held_out import hold_out, that_share_texts
from tfbert.tasks.multi_label.multi_label_classification import MultiLabelClassification, check_all_labels
from tfbert.tasks.multi_label.source import label_source
from tfbert.tasks.multi_label.table import LabelSets, distinct_labels
from tfbert.tasks.tables import data_of, read_training_tables
from tfbert.tasks.text_task import about_empty, check_same_columns

_MANY_ROWS = 100


def load_label_sets(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads texts with several labels each."""
    notes: list[str] = []
    tables, more = read_training_tables(config, label_source(config, options.multi_label.label_separator))
    notes += more
    train = tables["train"]
    task = MultiLabelClassification.of_names(_names(train), options.multi_label)
    check_same_columns(train, tables.values())
    for table in tables.values():
        notes += [*table.notes, *about_empty(table)]
        if bare := sum(not labels for labels in table.labels):
            notes.append(f"{table.name}: {bare:,} of {len(table):,} texts have no label")
        check_all_labels(table, table.label_names or (), task.label_names)
    sets = {name: task.examples(table) for name, table in tables.items()}
    if config.validation_split is not None:
        groups = that_share_texts(list(sets["train"].contents()), config.validation_split, notes)
        strata = rarest_labels(sets["train"].labels)
        sets = hold_out(sets, config, notes, groups=groups, strata=strata)
    data = data_of(task, sets, notes, config, train.columns)
    if task.choice and not data.validation:
        raise UsageError(
            f"label_threshold={task.choice} is chosen on validation examples. Received: none. "
            "Pass --validation_file or --validation_split, or a number."
        )
    about = tuple(line for examples in data.sets.values() for line in task.about_labels(examples))
    return dataclasses.replace(data, notes=(*data.notes, *about))


def _names(train: LabelSets) -> tuple[str, ...]:
    """The labels: those that the data set or the user defines, or else those that occur, numbers ordered by value and
    words by alphabet.

    Raises:
        UsageError: for labels that do not look like labels, or fewer than two.
    """
    found = set(distinct_labels(train.labels))
    names = train.label_names
    if names is None:
        is_numeric = all(map(is_number, found))
        names = tuple(sorted(found, key=lambda name: (float(name), name) if is_numeric else name))
    if len(names) < 2 or not found:
        raise UsageError(
            "Multi-label classification needs at least two labels, and a text that has one. "
            f"Received: {'only ' + shortened(sorted(found)) if found else 'no label'} in {train.name}. "
            "Check the file and --label_column; one label or none is --task=classification."
        )
    if len(train) > _MANY_ROWS and len(found) > len(train) / 2:
        raise UsageError(
            "Labels must be few compared with examples. "
            f"Received: {len(found):,} distinct labels in the {len(train):,} rows of {train.name}, such as "
            f"{shortened(sorted(found), 3)}. Check --label_column and --label_separator."
        )
    return names


def rarest_labels(labels: np.ndarray) -> np.ndarray:
    """For each text, which of its labels the fewest texts have: int64 `[n]`; the number of labels for one without any.

    Args:
        labels: 0 or 1 `[n, num_labels]`.
    """
    counts = labels.sum(axis=0, dtype=np.int64)
    own = np.where(labels > 0, counts, len(labels) + 1)
    return np.where(labels.any(axis=1), own.argmin(axis=1), labels.shape[1])
