"""The built-in questions: always the same, unambiguous, with words that training has not seen."""

import collections
import hashlib
import re

import numpy as np

from tfbert.data.demo_questions import demo_questions
from tfbert.data.questions import misaligned_answers


def facts(context):
    """(who, what is said of them) of each sentence."""
    return [re.fullmatch(r"(\w+ \w+) (.+)", sentence).groups() for sentence in context.rstrip(".").split(". ")]


def test_sizes_and_no_repeats():
    train, validation = demo_questions()
    assert (len(train), len(validation)) == (2000, 200)
    assert len({*train.contexts, *validation.contexts}) == 2200
    assert len({*train.ids, *validation.ids}) == 2200
    assert max(len(context.split()) for context in train.contexts + validation.contexts) <= 60
    words = collections.Counter(word for context in train.contexts for word in context.split())
    assert len(words) < 250 and min(words.values()) >= 5


def test_the_same_everywhere():
    """In every process, whatever the hash seed, and on Python 3.10 to 3.13: scores on it can be compared."""
    tables = demo_questions()
    text = repr([(t.ids, t.questions, [t.context(i) for i in range(len(t))], t.answers) for t in tables])
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "28a5768325fd373f3e452d94ae1d42bbb8e90735e0766ef6720b6552bdcbac0f"
    )


def test_answers_are_right_and_the_only_ones():
    """Found anew from the sentences: who has what the question names, or what the named one has."""
    verbs = {
        "Where does (.+) live": "lives in (.+)",
        "What does (.+) work as": "works as a (.+)",
        "When was (.+) born": "was born in (.+)",
        "What does (.+) play": "plays the (.+)",
        "What pet does (.+) have": "has a (.+)",
    }
    for table in demo_questions():
        assert misaligned_answers(table) == [] and not table.is_impossible.any()
        for row, question in enumerate(table.questions):
            told = facts(table.context(row))
            assert question[-1] == "?"
            if question.startswith("Who "):
                found = [name for name, said in told if said == question[4:-1]]
            else:
                ((name, said_of),) = [
                    (match[1], pattern)
                    for asked, pattern in verbs.items()
                    if (match := re.fullmatch(asked, question[:-1]))
                ]
                found = [match[1] for own, said in told if own == name and (match := re.fullmatch(said_of, said))]
            (answer,) = table.answers[row]
            assert found == [answer[0]]


def test_learning_by_heart_does_not_help():
    train, validation = demo_questions()
    known = {word for context in train.contexts for word in re.findall(r"\w+", context)}
    answers = [answers[0][0] for answers in validation.answers]
    unseen = np.mean([any(word not in known for word in answer.split()) for answer in answers])
    assert 0.2 < unseen < 0.5
    # Half of the questions have another fact of the kind that is asked for.
    for table in (train, validation):
        kinds = [[said.split()[0:2] for _, said in facts(table.context(row))] for row in range(len(table))]
        starts = [table.answers[row][0][1] for row in range(len(table))]
        rivals = 0
        for row, start in enumerate(starts):
            own = table.context(row)[:start].count(". ")
            rivals += kinds[row].count(kinds[row][own]) > 1
        assert 0.4 < rivals / len(table) < 0.6
