"""The labels of data as a saved model writes them, to evaluate it on."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from tfbert.data.labels import canonical
from tfbert.errors import UsageError
from tfbert.tasks.classes import is_number, quoted, shortened


def as_in_model(
    rows: Sequence[Sequence[str]],
    names: Sequence[str],
    *,
    defined: Sequence[str] | None,
    are_given: bool,
    name: str,
    where: Callable[[int], str],
    notes: list[str],
) -> dict[str, str]:
    """What the model calls each label of some data.

    Labels match by name, in any case. Numbers never stand for names, nor names for numbers, unless the user says which:
    two files of the same data set may order its classes differently.

    Args:
        rows: The labels of each row, as written.
        names: The model's labels.
        defined: The labels as the data set itself defines them, or the user gives them; None where neither does.
        are_given: Whether the user gave them, with `label_names`.
        name: What messages call the data.
        where: What messages call a row, counted from 0.
        notes: Receives a line if labels were not matched by name.

    Returns:
        By the label as written, for each that occurs or is defined by position.

    Raises:
        UsageError: for labels that are not the model's.
    """
    distinct = sorted({label for labels in rows for label in labels})
    names = list(names)
    folded = {own.casefold(): own for own in names}
    by_number = dict(zip(map(str, range(len(names))), names, strict=True))
    is_unnamed, is_numbered = _are_unnamed(names), are_numbered(names)
    by_position = is_numbered and are_given and not set(defined or ()) <= set(names)
    if are_given:
        _check_given(defined or (), names, folded, by_position)
    numbers = {label: canonical(label) for label in distinct}
    if by_position:
        return dict(zip(defined or (), names, strict=True))
    if set(numbers.values()) <= set(names):
        return numbers
    if len(folded) == len(names) and all(label.casefold() in folded for label in distinct):
        return {label: folded[label.casefold()] for label in distinct}
    if is_unnamed and set(numbers.values()) <= set(by_number):
        notes.append(f"{name}: its labels 0, 1, ... are those of the model, which has no names for them")
        return {label: by_number[number] for label, number in numbers.items()}
    row, unknown = next(
        (i, label)
        for i, labels in enumerate(rows)
        for label in labels
        if label not in names and label.casefold() not in folded
    )
    way_out = ""
    if is_numbered and not is_number(unknown):
        example = "" if defined is None or len(defined) != len(names) else f", such as {','.join(defined)}"
        way_out = f", or --label_names with the names of the model's labels in this order{example}"
    elif set(numbers.values()) <= set(by_number):
        way_out = ", or --label_names with the names of 0, 1, ... in this order"
    raise UsageError(
        f"Labels must be the model's {len(names)}: {', '.join(names[:20])}. Received: {unknown!r} "
        f"in {where(row)}. Pass data for this model, or --label_column{way_out}."
    )


def are_numbered(names: Sequence[str]) -> bool:
    """Whether a model's labels are the numbers 0, 1, ..., or have no names at all."""
    return _are_unnamed(names) or list(names) == [str(i) for i in range(len(names))]


def _are_unnamed(names: Sequence[str]) -> bool:
    return list(names) == [f"LABEL_{i}" for i in range(len(names))]


def _check_given(given: Sequence[str], names: Sequence[str], folded: Container[str], by_position: bool) -> None:
    """Refuses names that the user gives to labels, unless they are those of the model."""
    own = f"{len(names)}: {', '.join(names[:20])}"
    if len(given) != len(names):
        raise UsageError(
            f"label_names must be as many as the model's labels, {own}. Received: {len(given)} names, "
            f"{shortened(given)}. Name each of them."
        )
    for name in () if by_position else given:
        if name not in names and name.casefold() not in folded:
            raise UsageError(
                f"label_names must be the model's labels, {own}. Received: {quoted(name)}. "
                "Write each as the model does, in the order of the data's numbers."
            )
