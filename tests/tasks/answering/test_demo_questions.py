"""The built-in questions: always the same, unambiguous, and about people that training has not seen."""

import collections
import hashlib
import re

from tfbert.tasks.answering.demo import demo_questions
from tfbert.tasks.answering.questions import misaligned_answers


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
        hashlib.sha256(text.encode()).hexdigest() == "bac15177a22bfe8792954b2aba3ca17c7a45facfb6b2282a216286a46185aaa0"
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


def test_the_people_are_new_and_their_names_are_not():
    train, validation = demo_questions()
    people = [{name for context in table.contexts for name, _ in facts(context)} for table in (train, validation)]
    assert len(people[0]) > 200 and len(people[1]) > 50 and not people[0] & people[1]
    known = {word for context in train.contexts for word in re.findall(r"\w+", context)}
    assert {word for context in validation.contexts for word in re.findall(r"\w+", context)} <= known


def test_some_facts_have_a_rival():
    """Another of the kind that is asked for, of somebody else."""
    for table in demo_questions():
        rivals = 0
        for row in range(len(table)):
            told = facts(table.context(row))
            own, said = told[table.context(row)[: table.answers[row][0][1]].count(". ")]
            others = [name for name, other in told if other.split()[:2] == said.split()[:2]]
            assert own in others and len(set(others)) == len(others) <= 2
            rivals += len(others) == 2
        assert 0.2 < rivals / len(table) < 0.4
