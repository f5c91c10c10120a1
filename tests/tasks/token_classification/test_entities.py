"""Entities and their metrics against sentence-by-sentence Python, hand-made cases, and numbers of seqeval 1.2.2."""

import collections
import itertools

import numpy as np
import pytest

from tfbert.tasks.metrics import class_table
from tfbert.tasks.token_classification.tags import TagMeanings, are_correct, by_type, entity_metrics, find_entities

IOB2 = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER", "B-a-b", "I-a-b")
IO = ("O", "I-LOC", "I-PER")
BIOES = ("O", *(f"{letter}-{kind}" for kind in ("LOC", "PER") for letter in "BIES"))


def entities(sequences, names=IOB2, strict=False):
    ids = np.array([names.index(tag) for tags in sequences for tag in tags], np.int32)
    sentence = np.repeat(np.arange(len(sequences)), [len(tags) for tags in sequences])
    return find_entities(ids, sentence, TagMeanings(names), strict=strict)


def triples(found, names):
    types = TagMeanings(names).type_names
    return [(types[kind], int(a), int(b)) for kind, a, b in zip(found.type, found.start, found.end, strict=True)]


def slow_entities(sequences, strict):
    """The rules word by word: (type, first word, word after the last), counted over all sentences."""
    has_ends = any(tag[0] in "ES" for tags in sequences for tag in tags)
    first = "B" if any(tag[0] == "B" for tags in sequences for tag in tags) else "I"
    runs, place = [], 0
    for tags in sequences:
        for previous, tag in itertools.pairwise(["O", *tags]):
            letter, _, kind = tag.partition("-")
            last_letter, _, last_kind = previous.partition("-")
            if letter != "O":
                if letter in "BS" or last_letter in ("O", "E", "S") or kind != last_kind:
                    runs.append([kind, place, place, ""])
                runs[-1][2] = place + 1
                runs[-1][3] += letter
            place += 1

    def are_by_rule(letters):
        begins = letters[0] == first
        return letters == "S" or (begins and letters[-1] == "E") if has_ends else begins

    return [tuple(run) for *run, letters in runs if are_by_rule(letters) or not strict]


def check(gold, predicted, names, strict):
    """All that is counted, against sets of the slow rules' entities."""
    a, b = entities(gold, names, strict), entities(predicted, names, strict)
    right, guessed = slow_entities(gold, strict), slow_entities(predicted, strict)
    assert triples(a, names) == right and triples(b, names) == guessed
    hits = set(right) & set(guessed)
    kinds = TagMeanings(names).type_names
    table, confusion, shifted = by_type(a, b, kinds)
    for name, found in [("", entity_metrics(a, b)), *table.items()]:
        counts = [sum(not name or e[0] == name for e in group) for group in (hits, guessed, right)]
        precision, recall = counts[0] / max(counts[1], 1), counts[0] / max(counts[2], 1)
        assert found["precision"] == precision and found["recall"] == recall
        assert found["f1"] == pytest.approx(2 * precision * recall / max(precision + recall, 1e-9), abs=1e-12)
    assert [row["entities"] for row in table.values()] == [sum(e[0] == kind for e in right) for kind in kinds]

    expected = collections.Counter()
    for kind, start, end in right:
        shared = [(min(end, e[2]) - max(start, e[1]), e[0] == kind, -e[1], e[0]) for e in guessed]
        most = max(shared, default=[0])
        expected[kind, most[-1] if most[0] > 0 else "nothing"] += 1
    for kind, start, end in guessed:
        expected["nothing", kind] += not any(e[1] < end and start < e[2] for e in right)
    rows = (*kinds, "nothing")
    assert confusion.tolist() == [[expected[row, column] for column in rows] for row in rows]
    correct = [sum(e[0] == kind for e in hits) for kind in kinds]
    assert shifted.tolist() == [expected[kind, kind] - n for kind, n in zip(kinds, correct, strict=True)]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("names", [IOB2, BIOES, IO], ids=["IOB2", "BIOES", "IO"])
def test_random_tags_against_slow_rules(names, strict):
    rng = np.random.default_rng(0)
    for rate in (0, 0.1, 0.5, 1):
        for _ in range(2):  # All tags first, so that both know the scheme.
            gold = [list(names), *(rng.choice(names, rng.integers(1, 12)).tolist() for _ in range(20))]
            predicted = [[str(rng.choice(names)) if rng.random() < rate else tag for tag in tags] for tags in gold[1:]]
            check(gold, [gold[0], *predicted], names, strict)


GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-a-b", "I-a-b", "I-a-b"], ["B-LOC", "B-LOC", "O", "I-PER"]]
PREDICTED = [["B-PER", "I-PER", "O", "I-LOC"], ["B-a-b", "I-a-b", "I-a-b", "O"], ["B-LOC", "I-LOC", "B-PER", "B-PER"]]


@pytest.mark.parametrize(("strict", "expected"), [(False, 0.5), (True, 0.2)])
def test_numbers_by_hand_and_of_seqeval(strict, expected):
    """As seqeval 1.2.2 gives them, mode None and mode "strict" with IOB2: precision, recall and F1 are one number.

    conlleval: 6 right, 6 predicted; PER 0-2, LOC 3 and PER at the end are hits. Strict: 5 and 5; the first only."""
    gold, predicted = entities(GOLD, strict=strict), entities(PREDICTED, strict=strict)
    assert [*entity_metrics(gold, predicted).values()] == pytest.approx([expected] * 3)


def test_table_and_confusion():
    gold, predicted = entities(GOLD), entities(PREDICTED)
    table, confusion, shifted = by_type(gold, predicted, ("LOC", "PER", "a-b"))
    # LOC, PER, a-b, nothing: of three LOC, one is right and two share one prediction; a PER is made up.
    assert confusion.tolist() == [[3, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]]
    assert shifted.tolist() == [2, 0, 1]
    assert class_table("type", table, confusion, ["nothing"]) == [
        "type     precision  recall      f1  entities | predicted as LOC, PER, a-b, nothing",
        "LOC         0.5000  0.3333  0.4000         3 |       3       0       0       0",
        "PER         0.6667  1.0000  0.8000         2 |       0       2       0       0",
        "a-b         0.0000  0.0000  0.0000         1 |       0       0       1       0",
        "nothing                                      |       0       1       0",
    ]


def test_no_entities():
    none, some = entities([["O", "O"]]), entities([["B-PER", "O"]])
    for gold, predicted in ((none, none), (none, some), (some, none)):
        assert set(entity_metrics(gold, predicted).values()) == {0.0}
        assert are_correct(gold, predicted).tolist() == [False] * len(predicted)
        assert by_type(gold, predicted, "abc")[1].sum() == max(len(gold), len(predicted))
    empty = np.zeros(0, np.int32)
    assert len(find_entities(empty, empty, TagMeanings(IOB2))) == 0
