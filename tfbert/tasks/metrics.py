"""Metrics over all predictions, on the host, through scikit-learn and SciPy; and labels as text: which are numbers, how
messages show them, and what a saved model calls those of some data."""

from __future__ import annotations

import ast
import contextlib
import decimal
import math
import pathlib
import re
import unicodedata
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.config.tables import METRICS
from tfbert.config.types import counted
from tfbert.data.labels import canonical
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.data.files import RawTable
    from tfbert.model.files import BertConfig


FEW_EXAMPLES = 5
"""A class with fewer examples is hardly learned, and is often a typing error."""
_MOST_SHOWN = 10
_SEPARATORS = ("|", ",", ";", " ")
"""What stands between several labels in one text; blanks only between numbers."""
_SIGNS = ("#", "+", "/", "&")
"""The same, where each part is a label of its own too: names such as `comp/sys` and `R&B` are usual."""
_LIST = re.compile(r"\[.*\]|\{.*[,'\"].*\}|\(.*,.*\)", re.DOTALL)
_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_MAYBE_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]")
"""What Unicode lets nobody see (Default_Ignorable_Code_Point) although it is no format character."""
_TAG = re.compile(r"O|[BIESMLU][-_:/]\S+")
"""A tag of entities; a name of a class may look so too, but never among others, twice."""
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def is_number(label: str) -> bool:
    """Whether a label reads as a number, finite or not."""
    return _NUMBER.fullmatch(label) is not None


def have_fractions(labels: Sequence[str]) -> bool:
    """Whether all labels are numbers and at least one has a fraction."""
    return all(map(is_number, labels)) and any(float(label) % 1 for label in labels if np.isfinite(float(label)))


def maybe_thousands(labels: Sequence[str]) -> list[str]:
    """A line if points may set off thousands, as in German: some numbers have none, and three digits come after each
    point."""
    pointed = [label for label in labels if "." in label]
    if not 0 < len(pointed) < len(labels) or not all(map(_MAYBE_THOUSANDS.fullmatch, pointed)):
        return []
    label = pointed[0]
    return [
        f"{quoted(label)} is read as {float(label):g}, since a point begins a fraction; "
        f"if it sets off thousands, write {label.replace('.', '')}"
    ]


def not_numbers(labels: Sequence[str]) -> list[int]:
    """The rows whose labels alone, words or numbers with a decimal comma, keep all from being numbers with fractions;
    none where most labels are no numbers."""
    others = [row for row, label in enumerate(labels) if not is_number(label)]
    numbers = [label.replace(",", ".") for label in labels if is_number(label) or _COMMA.fullmatch(label)]
    return others if 2 * len(numbers) > len(labels) and have_fractions(numbers) else []


def several_in_one(names: Sequence[str]) -> str | None:
    """A label that looks like several in one text, such as `[0, 1, 0]`, `a|b` or `8,20`; None if none does.

    A character in a name is no sign of that. The parts must occur elsewhere too: `R&B|Soul` beside `Rock` is one class.
    """
    lists = [name for name in names if len(name) > 1 and _LIST.fullmatch(name)]
    if len(lists) > 1 and 2 * len(lists) >= len(names):
        return lists[0]
    for separator in (*_SEPARATORS, *_SIGNS):
        parts = {name: {part.strip() for part in name.split(separator)} for name in names if separator in name}
        parts = {name: own for name, own in parts.items() if all(own)}
        if separator == " ":
            parts = {name: own for name, own in parts.items() if all(map(is_number, own))}
        whole = set(names) - parts.keys()
        for name, own in parts.items():
            more = (part for other, part in parts.items() if other != name and separator not in _SIGNS)
            others = whole.union(*more)
            if own <= others:
                return name
    return None


def words_and_tags(text: Any, label: Any) -> tuple[list, list] | None:
    """The words of a text and their tags, where its label holds as many: a list, or a text in which blanks, or one of
    `,|;`, separate them; None where it does not."""
    words, tags = _parts(text), _parts(label)
    if len(tags) != len(words) and isinstance(label, str):
        mark = next((mark for mark in ",|;" if label.count(mark) == len(words) - 1 > 0), ",")
        tags = [tag.strip() for tag in label.split(mark)]
    tags = [tag.rstrip(",;") or tag if isinstance(tag, str) else tag for tag in tags]
    return (words, tags) if isinstance(text, str) and len(words) == len(tags) else None


def hold_tags(texts: Iterable[Any], labels: Iterable[Any]) -> bool:
    """Whether labels hold tags for the words of their texts: nearly all have as many, or hold entity tags alone, be
    they more or fewer than what blanks separate; half of them are several, and some have the same twice, which no name
    of a class has."""
    found = list(zip(texts, labels, strict=True))
    rows = [words_and_tags(*row) for row in found]
    tags = [row[1] for row in rows if row is not None]
    if len(tags) < 0.8 * len(rows):
        labels = [_parts(label) for text, label in found if isinstance(text, str)]
        tags = [[tag for part in own for tag in re.split("[,;|]", str(part)) if tag] for own in labels]
        tags = [own for own in tags if all(map(_TAG.fullmatch, own))]
    several = [own for own in tags if len(own) > 1]
    has_twice = any(own.count(tag) > 1 for own in several for tag in own)
    return has_twice and 2 * len(several) >= len(rows) and len(tags) >= 0.8 * len(rows)


def _parts(value: Any) -> list:
    """The items of a list, also of one that Python or JSON wrote as text; else the words of a text."""
    if isinstance(value, list):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text.startswith("["):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = ast.literal_eval(text)
            return found if isinstance(found, list) else text.split()
    return text.split()


def names_of_model(saved: BertConfig, directory: pathlib.Path) -> tuple[str, ...]:
    """The labels of a saved model, in their order.

    Raises:
        UsageError: for labels that cannot be told apart.
    """
    names = tuple(saved.id2label.get(i, f"LABEL_{i}") for i in range(saved.num_labels))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            "Every label of a model must have a different name. "
            f"Received: {twice!r} more than once in id2label of {directory / 'config.json'}. Repair it."
        )
    return names


def or_name_ids(label: str, names: Sequence[str]) -> str:
    """The end of a message about an unknown label: what to do if it is a number, and names are no numbers."""
    is_id = label.isdigit() and not any(map(is_number, names))
    return ", or pass --label_names with the names of 0, 1, ... in this order" if is_id else ""


def shortened(names: Sequence[str], most: int = 20) -> str:
    """The first labels, in quotes."""
    return ", ".join(map(quoted, names[:most])) + (", ..." if len(names) > most else "")


def quoted(label: str) -> str:
    """A label in quotes, cut to 60 characters."""
    return repr(label if len(label) <= 60 else f"{label[:57]}...")


def look_alikes(names: Sequence[str], counts: Sequence[int], what: str) -> list[str]:
    """A line if some labels are almost the same.

    Args:
        names: The labels.
        counts: The training examples of each.
        what: What messages call several labels.
    """
    groups: dict[str, list[str]] = {}
    for name, count in zip(names, counts, strict=True):
        groups.setdefault(_key(name), []).append(
            f"{ascii(name) if _hides(name) else repr(name)} ({counted(count, 'example')})"
        )
    alike = [", ".join(group) for group in groups.values() if len(group) > 1]
    how = "in case, space, or what cannot be seen, or write one number in two ways"
    return [f"{what} that differ only {how}: {_first_few(alike, '; ')}"] if alike else []


def _hides(name: str) -> bool:
    return any(_is_unseen(c) or (unicodedata.category(c) == "Pd" and not c.isascii()) for c in name)


def _is_unseen(c: str) -> bool:
    """Whether nobody sees a character, such as a soft hyphen or the selector of an emoji's form."""
    return unicodedata.category(c) in ("Cf", "Cc") or _UNSEEN.fullmatch(c) is not None


def _key(name: str) -> str:
    """The same for labels that look the same: without case, blanks, and characters that nobody sees; dashes are one."""
    seen = [c for c in unicodedata.normalize("NFKC", name).casefold() if c.isspace() or not _is_unseen(c)]
    text = " ".join("".join("-" if unicodedata.category(c) == "Pd" else c for c in seen).split())
    return str(decimal.Decimal(text).normalize()) if is_number(text) else text


def rare_ones(names: Sequence[str], counts: Sequence[int], what: str) -> list[str]:
    """A line if some labels hardly occur; see `look_alikes`."""
    pairs = zip(names, counts, strict=True)
    rare = [f"{name!r} ({count})" for name, count in pairs if count < FEW_EXAMPLES]
    if not rare:
        return []
    return [
        f"{len(rare):,} of {len(counts):,} {what} with fewer than {FEW_EXAMPLES} training examples: {_first_few(rare)}"
    ]


def _first_few(items: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(items) - _MOST_SHOWN:,} more" if len(items) > _MOST_SHOWN else ""
    return separator.join(items[:_MOST_SHOWN]) + more


def as_in_model(
    table: RawTable, rows: Sequence[Sequence[str]], names: Sequence[str], notes: list[str], *, are_given: bool
) -> dict[str, str]:
    """What the model calls each label of a table.

    Labels match by name, in any case. Numbers never stand for names, nor names for numbers, unless the user says which:
    two files of the same data set may order its classes differently.

    Args:
        table: As it was written; its `label_names` are those that the data set itself defines, or the user gives.
        rows: The labels of each of its rows; after these, others that occur in none.
        names: The model's labels.
        notes: Receives a line if labels were not matched by name.
        are_given: Whether the user gave `label_names`.

    Returns:
        By the label as written, for each that occurs or is defined by position.

    Raises:
        UsageError: for labels that are not the model's.
    """
    distinct = sorted({label for labels in rows for label in labels})
    names, defined = list(names), table.label_names
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
        notes.append(f"{table.name}: its labels 0, 1, ... are those of the model, which has no names for them")
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
        f"in {table.where(row) if row < len(table) else table.name}. "
        f"Pass data for this model, or --label_column{way_out}."
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


_LOWER_IS_BETTER = ("loss", "mse", "perplexity")
_TIES = ("loss", "f1", "exact_match", "exact")
"""What decides, in this order, where the metric that should is equal. Answers have no loss."""


def is_better(name: str, new: float, best: float | None) -> bool:
    """Whether a value beats the best so far: lower is better for losses, `mse` and `perplexity`, higher for the rest. A
    NaN never beats anything."""
    if math.isnan(new):
        return False
    if best is None or math.isnan(best):
        return True
    return new < best if lower_is_better(name) else new > best


def decided_by(decisive: str, new: Mapping[str, float], best: Mapping[str, float]) -> tuple[int, str]:
    """Compares two evaluations. Where the metric that decides is equal, its set's loss does, then F1 or exact match.

    Args:
        decisive: The metric that decides, with the prefix of its set, such as `eval_matched_accuracy`.
        new: All metrics of an evaluation.
        best: Of another one; empty if there is none.

    Returns:
        1 if the new one is better, -1 if it is not, and the metric in which they differ; 0 and an empty name if they
        are equal in all of these. A NaN is never better.
    """
    for name in (decisive, *tie_breakers(decisive, new)):
        before = best.get(name)
        if name not in new or (name != decisive and before is None):
            continue
        if before is None or not (new[name] == before or math.isnan(new[name]) and math.isnan(before)):
            return (1 if is_better(name, new[name], before) else -1), name
    return 0, ""


def tie_breakers(decisive: str, names: Container[str]) -> list[str]:
    """What decides, in this order, where the metric that should is equal.

    Args:
        decisive: That metric, with the prefix of its set.
        names: The metrics that there are.
    """
    metric = max((name for name in METRICS if decisive.endswith(f"_{name}")), key=len, default="")
    stem = decisive.removesuffix(metric)
    return [name for name in (f"{stem}{tie}" for tie in _TIES) if name in names and name != decisive]


def lower_is_better(name: str) -> bool:
    """Whether the better of two values is the lower one.

    Args:
        name: A metric's name, with or without the prefix of its set, such as `eval_matched_loss`.
    """
    return name.endswith(_LOWER_IS_BETTER)


_ROWS_AT_ONCE = 1 << 16
"""So many rows are copied to float64 at a time: of a million rows and 200 classes, all copies together took 10 GB."""


def by_row(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], logits: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """A function's value for each row, float64 `[n]`: it is called with the float64 logits of some rows at a time."""
    starts = range(0, max(len(labels), 1), _ROWS_AT_ONCE)
    parts = ((array[start : start + _ROWS_AT_ONCE] for array in (logits, labels)) for start in starts)
    return np.concatenate([function(np.asarray(some, np.float64), own) for some, own in parts])


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The cross-entropy of each label, in nats: float64 `[n]`.

    Args:
        logits: `[n, num_labels]`.
        labels: Integers `[n]`.
    """
    from scipy.special import logsumexp

    return by_row(
        lambda some, own: logsumexp(some, axis=1) - some[np.arange(len(own)), own], np.asarray(logits), labels
    )


def confusion_matrix(logits: np.ndarray, labels: np.ndarray, num_labels: int) -> np.ndarray:
    """Counts examples by class.

    Args:
        logits: float32 `[n, num_labels]`.
        labels: Integers `[n]`.
        num_labels: All classes, also those that do not occur.

    Returns:
        int64 `[num_labels, num_labels]`; rows are the labels, columns the predictions.
    """
    from sklearn import metrics

    predictions = np.argmax(np.asarray(logits), axis=1)
    return metrics.confusion_matrix(np.asarray(labels), predictions, labels=np.arange(num_labels)).astype(np.int64)


def per_class(confusion: np.ndarray, label_names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and the number of examples of each class.

    Args:
        confusion: int64 `[num_labels, num_labels]`, as `confusion_matrix` returns it.
        label_names: In the order of the classes.

    Returns:
        By label name: `precision`, `recall` and `f1`, 0 where they are undefined, and `examples`.
    """
    hits, predicted, actual = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
    return {
        name: {
            "precision": float(hits[i] / max(predicted[i], 1)),
            "recall": float(hits[i] / max(actual[i], 1)),
            "f1": float(2 * hits[i] / max(predicted[i] + actual[i], 1)),
            "examples": int(actual[i]),
        }
        for i, name in enumerate(label_names)
    }


def class_table(table: dict[str, dict[str, float]], confusion: np.ndarray) -> list[str]:
    """The per-class table and the confusion matrix as lines for the screen."""
    width = max(len("label"), *map(len, table))
    cells = max(8, len(f"{confusion.max():,}") + 1)
    lines = [f"{'label':{width}}  precision  recall      f1  examples | predicted as"]
    lines[0] += ", ".join(["", *table])[1:]
    for (name, row), counts in zip(table.items(), confusion, strict=True):
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['examples']:8,}"
        lines.append(f"{name:{width}}  {numbers} |" + "".join(f"{count:{cells},}" for count in counts))
    predicted, actual = confusion.any(axis=0), confusion.any(axis=1)
    if predicted.sum() == 1 and actual.sum() > 1:
        only = quoted(list(table)[predicted.argmax()])
        lines.append(
            f"every example is taken for {only}: nothing that tells the classes apart was learned yet; more epochs or "
            "another learning rate can help"
        )
    return lines


def classification_metrics(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The metrics of `Classification`, from logits `[n, num_labels]` and int64 labels `[n]`."""
    from sklearn import metrics

    predictions = np.argmax(logits, axis=1)
    values = {
        "accuracy": metrics.accuracy_score(labels, predictions),
        "macro_f1": metrics.f1_score(labels, predictions, average="macro", zero_division=0),
    }
    if logits.shape[1] == 2:
        values["f1"] = metrics.f1_score(labels, predictions, pos_label=1, average="binary", zero_division=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # With only one class, scikit-learn warns and returns 0.
            values["matthews_correlation"] = metrics.matthews_corrcoef(labels, predictions)
    values["loss"] = np.mean(cross_entropy(logits, labels))
    return {name: float(value) for name, value in values.items()}


def regression_metrics(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """The metrics of `Regression`, from float64 `[n]` each."""
    from scipy import stats

    mse = float(np.mean((predictions - targets) ** 2))
    return {
        "pearson": _correlation(stats.pearsonr, predictions, targets),
        "spearmanr": _correlation(stats.spearmanr, predictions, targets),
        "mse": mse,
        "loss": mse,
    }


def _correlation(function, predictions: np.ndarray, targets: np.ndarray) -> float:
    if np.ptp(predictions) == 0 or np.ptp(targets) == 0:  # Also a single example.
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's warning about nearly constant input.
        value = float(function(predictions, targets)[0])
    return 0.0 if math.isnan(value) else value
