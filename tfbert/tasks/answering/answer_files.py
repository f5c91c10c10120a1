"""Candidates -> the answer to each question, and SQuAD's files of answers: predictions, n-best lists, null odds."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfbert.output import output_dir
from tfbert.tasks.answering.answers import Candidates

PREDICTIONS, N_BEST, NULL_ODDS = "predictions.json", "nbest_predictions.json", "null_odds.json"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """The answer to each question; characters 0 to 0 where there is none.

    Attributes:
        char_start: int32 `[questions]`: the answer's first character in the context.
        char_end: int32 `[questions]`: one past its last character.
        probability: float64 `[questions]`: the probability of the given answer (or of no answer) among all candidates.
        null_odds: float64 `[questions]`: the score of no answer minus the score of the best answer.
    """

    char_start: np.ndarray
    char_end: np.ndarray
    probability: np.ndarray
    null_odds: np.ndarray

    def texts(self, contexts: Sequence[str], context_of: np.ndarray) -> list[str]:
        """The answers' texts, cut from the original contexts.

        Args:
            contexts: The distinct contexts.
            context_of: int `[questions]`: which of them each question is about.
        """
        spans = zip(context_of.tolist(), self.char_start.tolist(), self.char_end.tolist(), strict=True)
        return [contexts[context][start:end] for context, start, end in spans]


def select_answers(
    candidates: Candidates, *, version_2_with_negative: bool = False, null_score_diff_threshold: float = 0.0
) -> Answers:
    """The best candidate of each question, or none.

    Args:
        candidates: Of all questions.
        version_2_with_negative: Whether "no answer" may be chosen.
        null_score_diff_threshold: No answer is chosen if it scores higher than the best answer by more than this.
    """
    chosen, null_probability = probabilities(candidates, version_2_with_negative)
    null_odds = candidates.null_odds
    answered = np.diff(candidates.row_splits) > 0
    if version_2_with_negative:
        answered &= null_odds <= null_score_diff_threshold
    best = candidates.row_splits[:-1][answered]
    char_start, char_end = np.zeros((2, len(candidates)), np.int32)
    char_start[answered], char_end[answered] = candidates.char_start[best], candidates.char_end[best]
    probability = null_probability.copy()
    probability[answered] = chosen[best]
    return Answers(char_start=char_start, char_end=char_end, probability=probability, null_odds=null_odds)


def probabilities(candidates: Candidates, version_2_with_negative: bool) -> tuple[np.ndarray, np.ndarray]:
    """A softmax over the candidates of each question, including "no answer" where that is a candidate.

    Returns:
        The probability of each candidate, float64 `[candidates]`, and of no answer, float64 `[questions]`: 1 where
        there is no other candidate, and 0 where no answer is not a candidate.
    """
    counts = np.diff(candidates.row_splits)
    has_null = (counts == 0) | version_2_with_negative
    question = np.repeat(np.arange(len(candidates)), counts)
    largest = np.where(has_null, candidates.null_score, -np.inf)
    np.maximum.at(largest, question, candidates.score)
    own = np.exp(candidates.score - largest[question])
    null = np.where(has_null, np.exp(candidates.null_score - largest), 0.0)
    total = null + np.bincount(question, own, minlength=len(candidates))
    return own / total[question], null / total


def n_best(
    candidates: Candidates, contexts: Sequence[str], context_of: np.ndarray, *, version_2_with_negative: bool = False
) -> Iterator[list[dict[str, Any]]]:
    """Each question's candidates, best first, as `text`, `probability`, `start_logit` and `end_logit`.

    Args:
        candidates: Of all questions.
        contexts: The distinct contexts.
        context_of: int `[questions]`: which of them each question is about.
        version_2_with_negative: Whether "no answer" is always a candidate; else it is one only if there is no other.
    """
    chosen, null_probability = probabilities(candidates, version_2_with_negative)
    columns = (candidates.char_start, candidates.char_end, chosen, candidates.start_logit, candidates.end_logit)
    rows = list(zip(*(column.tolist() for column in (*columns, candidates.score)), strict=True))
    nulls = (null_probability, candidates.null_start_logit, candidates.null_end_logit, candidates.null_score)
    splits = candidates.row_splits.tolist()
    for i, null in enumerate(zip(*(column.tolist() for column in nulls), strict=True)):
        context = contexts[context_of[i]]
        own = rows[splits[i] : splits[i + 1]]
        out = [_entry(context[start:end], *numbers) for start, end, *numbers, _ in own]
        if version_2_with_negative or not own:
            out.insert(sum(row[-1] >= null[-1] for row in own), _entry("", *null[:-1]))
        yield out


def write_answers(
    directory: pathlib.Path,
    ids: Sequence[str],
    candidates: Candidates,
    contexts: Sequence[str],
    context_of: np.ndarray,
    *,
    prefix: str = "",
    version_2_with_negative: bool = False,
    null_score_diff_threshold: float = 0.0,
) -> None:
    """Writes files in SQuAD's official form, each whole or not at all; null odds only with version 2.

    Args:
        directory: Directory for the files; must exist.
        ids: One per question.
        candidates: Of all questions.
        contexts: The distinct contexts.
        context_of: int `[questions]`: which of them each question is about.
        prefix: Put before each file's name.
        version_2_with_negative: As for `select_answers`.
        null_score_diff_threshold: As for `select_answers`.

    Raises:
        RunError: if they cannot be written.
    """
    answers = select_answers(
        candidates,
        version_2_with_negative=version_2_with_negative,
        null_score_diff_threshold=null_score_diff_threshold,
    )
    lists = n_best(candidates, contexts, context_of, version_2_with_negative=version_2_with_negative)
    _write(directory / f"{prefix}{PREDICTIONS}", ids, answers.texts(contexts, context_of))
    _write(directory / f"{prefix}{N_BEST}", ids, lists)
    if version_2_with_negative:
        _write(directory / f"{prefix}{NULL_ODDS}", ids, answers.null_odds.tolist())


def _entry(text: str, probability: float, start_logit: float, end_logit: float) -> dict[str, Any]:
    return {"text": text, "probability": probability, "start_logit": start_logit, "end_logit": end_logit}


def _write(path: pathlib.Path, ids: Sequence[str], values: Any) -> None:
    """Writes an object with one line per question. The indentation of `json` would take ten times as long."""
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in zip(ids, values, strict=True))
    output_dir.write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
