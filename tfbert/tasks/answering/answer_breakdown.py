"""Scores of answers in groups, for reports: by length of context, question and answer, and with an answer or without.

Lengths count words between spaces, which needs no tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfbert.tasks.answering.questions import QuestionTable
from tfbert.tasks.answering.squad_metrics import Scores

NUM_BINS = 5


def breakdown(table: QuestionTable, scores: Scores) -> dict[str, Any]:
    """Scores of parts of an evaluation, 0 to 100, as JSON can hold them.

    Args:
        table: The questions that were answered.
        scores: The score of each.

    Returns:
        `context_words`, `question_words` and `answer_words`: as `by_length`. `answer_words` has only questions with an
        answer, by the length of their shortest answer. `answerable`: `yes` and `no` -> `questions`, `exact`, `f1`, if
        there are such questions.
    """
    context_words = np.array([len(context.split()) for context in table.contexts], np.int64)[table.context_of]
    question_words = np.array([len(question.split()) for question in table.questions], np.int64)
    has_answer = np.array([bool(answers) for answers in table.answers])
    answer_words = [min(len(text.split()) for text, _ in answers) for answers in table.answers if answers]
    with_answer = Scores(exact=scores.exact[has_answer], f1=scores.f1[has_answer])
    groups = {"yes": has_answer, "no": ~has_answer}
    return {
        "context_words": by_length(context_words, scores),
        "question_words": by_length(question_words, scores),
        "answer_words": by_length(np.array(answer_words, np.int64), with_answer),
        "answerable": {name: _of(scores, rows) for name, rows in groups.items() if rows.any()},
    }


def by_length(lengths: Sequence[int] | np.ndarray, scores: Scores) -> list[dict[str, Any]]:
    """Scores of questions of similar length, in bins with about as many each.

    There may be fewer bins than `NUM_BINS`, because equal lengths are in one.

    Args:
        lengths: Integers `[questions]`.
        scores: The score of each.

    Returns:
        For each bin, in order: `least` and `most`, the lengths in it, `questions`, `exact` and `f1`, 0 to 100.
    """
    lengths = np.asarray(lengths)
    if not len(lengths):
        return []
    edges = np.unique(np.quantile(lengths, np.arange(1, NUM_BINS) / NUM_BINS, method="inverted_cdf"))
    which = np.searchsorted(edges, lengths, side="left")
    return [
        {"least": int(lengths[rows].min()), "most": int(lengths[rows].max())} | _of(scores, rows)
        for rows in (which == number for number in np.unique(which))
    ]


def _of(scores: Scores, rows: np.ndarray) -> dict[str, Any]:
    means = {name: 100.0 * float(np.mean(getattr(scores, name)[rows])) for name in ("exact", "f1")}
    return {"questions": int(rows.sum())} | means


def as_groups(found: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The results of `breakdown` as tables for a report: title -> rows of a name and scores."""
    titles = {
        "context_words": "By words of the context",
        "question_words": "By words of the question",
        "answer_words": "By words of the shortest right answer",
    }
    groups = {
        title: [_row(_range(row["least"], row["most"]), row) for row in found[name]]
        for name, title in titles.items()
        if found[name]
    }
    answerable = found["answerable"]
    if len(answerable) > 1:
        names = {"yes": "has an answer", "no": "has none"}
        groups["With and without an answer"] = [_row(names[name], row) for name, row in answerable.items()]
    return groups


def _range(least: int, most: int) -> str:
    return f"{least} to {most}" if least < most else str(least)


def _row(name: str, scores: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "exact_match": scores["exact"], "f1": scores["f1"], "questions": scores["questions"]}
