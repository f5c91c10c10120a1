"""Exact match and F1 as SQuAD's own scripts compute them, to every digit: evaluate-v1.1.py and evaluate-v2.0.py.

The scripts differ in more than their names. If an answer holds nothing but articles and punctuation, version 1.1 gives
it an F1 of 0; version 2.0 drops such a gold answer, and treats such a prediction as no answer.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import string
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """How each prediction compares with the best of its gold answers.

    Attributes:
        exact: float64 `[questions]`, 0 or 1: whether both are equal except for case, punctuation, articles and spaces.
        f1: float64 `[questions]`, 0 to 1: the F1 of the words of both.
    """

    exact: np.ndarray
    f1: np.ndarray


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous spaces, in this order."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score_predictions(
    golds: Sequence[Sequence[str]], predictions: Sequence[str | None], *, version_2_with_negative: bool = False
) -> Scores:
    """Compares each prediction with its gold answers.

    Args:
        golds: The texts of all gold answers of each question; an empty list for a question without an answer.
        predictions: One per question; empty for no answer; None for a question that was left out, which scores 0.
        version_2_with_negative: Whether version 2.0's rules hold.
    """
    normalized = functools.cache(_words)
    exact, f1 = np.zeros((2, len(golds)))
    for row, (given, prediction) in enumerate(zip(golds, predictions, strict=True)):
        if prediction is None:
            continue
        answers = [normalized(gold) for gold in given]
        if version_2_with_negative:
            answers = [words for words in answers if words] or [()]
        words = normalized(prediction)
        exact[row] = words in answers
        f1[row] = max((_f1(gold, words, empty_agrees=version_2_with_negative) for gold in answers), default=0)
    return Scores(exact=exact, f1=f1)


def squad_metrics(
    golds: Sequence[Sequence[str]],
    predictions: Sequence[str | None],
    *,
    version_2_with_negative: bool = False,
    null_odds: Sequence[float] | np.ndarray | None = None,
) -> dict[str, float]:
    """The metrics of SQuAD's scripts, on their scale of 0 to 100.

    Args:
        golds: As for `score_predictions`.
        predictions: As for `score_predictions`.
        version_2_with_negative: Whether to follow version 2.0's script rather than 1.1's.
        null_odds: With version 2.0, `[questions]`: how much more likely no answer is than any answer, by any measure;
            needed for `best_*`, which are left out without it.

    Returns:
        `exact_match` and `f1`. Or version 2.0's `exact`, `f1` and `total`; the same three as `HasAns_*` and `NoAns_*`
        for the questions with and without an answer, if there are any; and `best_exact`, `best_exact_thresh`, `best_f1`
        and `best_f1_thresh`: the best scores if answers whose odds are above a threshold are withdrawn, and the
        thresholds.
    """
    scores = score_predictions(golds, predictions, version_2_with_negative=version_2_with_negative)
    exact, f1 = scores.exact.tolist(), scores.f1.tolist()
    if not version_2_with_negative:
        return {"exact_match": _percent_in_order(exact), "f1": _percent_in_order(f1)}
    has_answer = [bool(given) for given in golds]
    odds = None if null_odds is None else [float(value) for value in null_odds]
    out: dict[str, float] = {}
    with_answer, without = ([row for row, has in enumerate(has_answer) if has is kind] for kind in (True, False))
    for prefix, rows in (("", range(len(golds))), ("HasAns_", with_answer), ("NoAns_", without)):
        if rows:
            for name, values in zip(("exact", "f1"), (exact, f1), strict=True):
                out[f"{prefix}{name}"] = _percent_in_order([values[row] for row in rows])
            out[f"{prefix}total"] = len(rows)
    if odds is not None:
        gives_answer = [bool(prediction) for prediction in predictions]
        for name, values in (("exact", exact), ("f1", f1)):
            best = _best_threshold(values, odds, has_answer, gives_answer)
            out[f"best_{name}"], out[f"best_{name}_thresh"] = best
    return out


def _words(text: str) -> tuple[str, ...]:
    return tuple(normalize_answer(text).split())


def _f1(gold: tuple[str, ...], predicted: tuple[str, ...], *, empty_agrees: bool) -> float:
    if gold == predicted and gold:
        return 1.0
    if not gold or not predicted:
        return float(empty_agrees and gold == predicted)
    num_same = sum((collections.Counter(gold) & collections.Counter(predicted)).values())
    if num_same == 0:
        return 0.0
    precision, recall = num_same / len(predicted), num_same / len(gold)
    return (2 * precision * recall) / (precision + recall)


def _percent_in_order(values: Sequence[float]) -> float:
    """Adds the values one by one, as evaluate-v1.1.py does, and version 2 did until Python 3.11: since 3.12, `sum`
    compensates for rounding, and scores would depend on the version."""
    total = 0.0
    for value in values:
        total += value
    return 100.0 * total / len(values)


def _best_threshold(
    values: Sequence[float], odds: Sequence[float], has_answer: Sequence[bool], gives_answer: Sequence[bool]
) -> tuple[float, float]:
    """The best score, in percent, if only questions up to some odds of no answer are answered, and these odds; 0.0 if
    it is best to answer none."""
    score = best = float(len(values) - sum(has_answer))
    threshold = 0.0
    for row in sorted(range(len(values)), key=odds.__getitem__):
        score += values[row] if has_answer[row] else -gives_answer[row]
        if score > best:
            best, threshold = score, odds[row]
    return 100.0 * best / len(values), threshold
