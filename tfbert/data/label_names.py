"""What the labels 0, 1, 2, ... of a data set mean: as its user says with `--label_names`, or a Parquet file."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.foreign_files import read_text
from tfbert.data.labels import HELD_BACK, canonical
from tfbert.errors import UsageError

_RULE = "A file of label names must be a text file with one name a line"


def given_names(config: DataConfig) -> tuple[str, ...]:
    """The name of each id, as `label_names` lists them or the file that it names; empty where it says nothing.

    Raises:
        UsageError: for a file that cannot be read, fewer than two names, an empty name, or one that occurs twice.
    """
    names, where = list(config.label_names), "label_names"
    if config.label_names_file:
        where = config.label_names_file
        names = read_text(pathlib.Path(where), _RULE).removeprefix("\ufeff").rstrip().split("\n")
    if not names:
        return ()
    names = [name.strip() for name in names]
    if len(names) < 2:
        raise UsageError(
            f"There must be two labels or more. Received: {', '.join(map(repr, names))} in {where}. Name all of them."
        )
    seen: set[str] = set()
    for number, name in enumerate(names):
        if not name or name in seen:
            what = f"{name!r} twice" if name else "an empty name"
            raise UsageError(
                f"Every label needs a name of its own. Received: {what} in {where}, for label {number}. Repair it."
            )
        seen.add(name)
    return tuple(names)


def named_labels(
    distinct: Iterable[str],
    names: tuple[str, ...],
    where: Callable[[str], str],
    written: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The name of each label of a table, which holds either names or ids, not some of each.

    Args:
        distinct: The labels that occur, as text; `2.0` also counts as `2`.
        names: The name of each id. Where some of them are whole numbers, labels that could be names as well as other
            ids are refused.
        where: The place where a label occurs first, for messages.
        written: The names of the training data's labels, which say what ambiguous ones are.

    Raises:
        UsageError: for a label that is neither a name nor an id, and for labels that are ambiguous.
    """
    distinct = list(distinct)
    ids = {str(number): name for number, name in enumerate(names)}
    folded = {name.casefold(): name for name in names}
    folded = folded if len(folded) == len(names) else {}
    by_id = {label: ids.get(canonical(label)) for label in distinct}
    by_name = {
        label: next(filter(names.__contains__, (label, canonical(label))), folded.get(label.casefold()))
        for label in distinct
    }
    are_ids, are_names = (None not in found.values() for found in (by_id, by_name))
    if written and are_ids and are_names:
        fits = [all(written.get(label, name) == name for label, name in found.items()) for found in (by_id, by_name)]
        are_ids, are_names = fits if any(fits) else (True, True)
    if are_ids and are_names and by_id != by_name:
        label = next(label for label in distinct if by_id[label] != by_name[label])
        raise UsageError(
            "Where label_names has numbers, it must be clear whether a label is a name or an id. "
            f"Received: {label!r} in {where(label)}, the name {by_name[label]!r} or the id of {by_id[label]!r}. "
            "Write the names in the file, or pass words."
        )
    if are_ids:
        return by_id
    if are_names:
        return by_name
    # Names decide what the bad label is: a file of ids has no name in it.
    has_names = any(name is not None and by_id[label] is None for label, name in by_name.items())
    label = next(label for label in distinct if (by_name if has_names else by_id)[label] is None)
    mixed = " beside names" * (by_id[label] is not None)
    raise UsageError(
        f"Labels must be the {len(names)} names of label_names, or their numbers 0 to {len(names) - 1}. "
        f"Received: {label!r:.60}{mixed} in {where(label)}. Correct it, or --label_names."
    )


def names_in_schema(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """The names of ids, by column, where Hugging Face's `datasets` wrote them into the schema of a table.

    It writes the type of a class as `{"names": [...]}`, that of a list of classes as `{"feature": {"names": [...]}}`;
    before 2022, `[{"names": [...]}]`.

    Args:
        metadata: Of a schema of Arrow or Parquet.
    """
    found = {}
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"null"))["info"]["features"].items()
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError):
        return found
    for column, feature in features:
        try:
            feature = feature[0] if isinstance(feature, list) else feature.get("feature", feature)
            names = feature["names"]
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
        if isinstance(names, list) and names and all(isinstance(name, str) and name.strip() for name in names):
            found[column] = tuple(sys.intern(name.strip()) for name in names)
    return found


def named_id(value: Any, names: Sequence[str], column: str, where: str) -> Any:
    """The name of a class id of such a file; what is no whole number stays as it is.

    Args:
        value: As it was read.
        names: The name of each id.
        column: The column it is from.
        where: What messages call the row.

    Raises:
        UsageError: for an id without a name, such as -1, by which `datasets` says that there is no label.
    """
    if type(value) is not int:
        return value
    if str(value) == HELD_BACK:
        raise UsageError(
            f"Every row needs a label. Received: -1, which stands for a missing one, for {column!r} in {where}. "
            "Add it or drop the row."
        )
    if not 0 <= value < len(names):
        raise UsageError(
            f"A label's id must be one of the {len(names)} that the file names. "
            f"Received: {value} for {column!r} in {where}. Repair or drop the row."
        )
    return names[value]
