"""Exact match and F1: against transformers' port of evaluate-v2.0.py, and evaluate-v1.1.py's rules spelled out."""

import collections
import re
import string
import sys
import types

import numpy as np
import pytest

from tfbert.tasks.question_answering.question_answering import score_predictions, squad_metrics

WORDS = ["the", "a", "An", "cat", "Cat's", "dog,", "dog", "-", "of", "Oslo", "É", "é", "\u2019s", "20%", "the-cat", ""]


def random_answers(rng, count):
    """Texts of which many are equal but for what does not count, and many hold nothing that counts."""
    seps = [" ", "  ", "\u00a0", "\n"]
    return [
        "".join(str(rng.choice(WORDS)) + str(rng.choice(seps)) for _ in range(rng.integers(0, 5))) for _ in range(count)
    ]


def random_set(seed, count=300):
    rng = np.random.default_rng(seed)
    golds = [random_answers(rng, rng.integers(0, 4)) for _ in range(count)]
    predictions = random_answers(rng, count)
    for row in np.flatnonzero(rng.random(count) < 0.3):
        predictions[row] = str(rng.choice(golds[row])) if golds[row] else ""
    odds = np.round(rng.normal(0, 3, count), int(rng.integers(0, 3)))  # Many equal ones.
    return golds, predictions, odds


def reference_v2(golds, predictions, odds):
    from transformers.data.metrics.squad_metrics import squad_evaluate

    answers = [[{"text": text} for text in texts] for texts in golds]
    examples = [types.SimpleNamespace(qas_id=row, answers=own) for row, own in enumerate(answers)]
    odds = dict(enumerate(map(float, odds)))
    found = dict(squad_evaluate(examples, dict(enumerate(predictions)), odds, float("inf")))
    return {name: value for name, value in found.items() if not name.startswith("has_ans")}


def to_every_digit(values):
    """Up to the last digits from Python 3.12 on, where the reference's `sum` compensates for rounding."""
    return values if sys.version_info < (3, 12) else pytest.approx(values, rel=1e-14)


def reference_v1(golds, predictions):
    """As evaluate-v1.1.py says: lower, no punctuation, no articles, white space fixed; the best over the golds."""

    def normalize(text):
        text = "".join(character for character in text.lower() if character not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

    def f1(prediction, gold):
        predicted, expected = normalize(prediction).split(), normalize(gold).split()
        same = sum((collections.Counter(predicted) & collections.Counter(expected)).values())
        if same == 0:
            return 0
        precision, recall = 1.0 * same / len(predicted), 1.0 * same / len(expected)
        return (2 * precision * recall) / (precision + recall)

    total_exact = total_f1 = 0
    for texts, prediction in zip(golds, predictions, strict=True):
        total_exact += max(normalize(prediction) == normalize(gold) for gold in texts)
        total_f1 += max(f1(prediction, gold) for gold in texts)
    return {"exact_match": 100.0 * total_exact / len(golds), "f1": 100.0 * total_f1 / len(golds)}


@pytest.mark.parametrize("seed, kept", [(0, None), (1, None), (2, None), (3, None), (3, True), (3, False)])
def test_both_versions_to_every_digit(seed, kept):
    """Of all questions; of those that have an answer, and of those that have none, where no threshold is better than
    0, alone."""
    rows = [row for row in zip(*random_set(seed), strict=True) if kept in (None, bool(row[0]))]
    golds, predictions, odds = zip(*rows, strict=True)
    found = squad_metrics(golds, predictions, np.array(odds))
    assert found == to_every_digit(reference_v2(golds, predictions, odds))
    assert list(found)[:3] == ["f1", "exact", "total"]
    golds = [texts or ["Oslo"] for texts in golds]
    assert squad_metrics(golds, predictions) == reference_v1(golds, predictions)


def test_answers_of_nothing_that_counts():
    for version_2, exact in ((False, [0, 0]), (True, [0, 1])):
        found = score_predictions([["Rome", "Oslo fjord"], []], ["Oslo", ""], version_2_with_negative=version_2)
        assert found[0].tolist() == exact and found[1].tolist() == pytest.approx([2 / 3, exact[1]])
    # Of several golds, those of nothing that counts are none.
    assert score_predictions([["the", "Oslo"]], ["a"], version_2_with_negative=True)[0].tolist() == [0]
