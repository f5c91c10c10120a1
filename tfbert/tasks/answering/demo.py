"""The built-in questions: short paragraphs about people, written by a grammar, and questions whose answer is a span.

They are synthetic. Nobody wrote them and the people do not exist; a score on them says that training works, not how
well a model reads. No person of the validation set occurs in the training set. Their names combine the same first and
last names in other pairs, since a model trained from scratch knows no other names. Most questions can be answered by
their kind alone, because the paragraph has one fact of that kind (where somebody lives): a tiny BERT learns them in a
few epochs. In three of ten paragraphs, two people have a fact of that kind, and the model has to find the right name:
a tiny BERT hardly learns these.
"""

from __future__ import annotations

import random

from tfbert.tasks.answering.question_rows import question_table
from tfbert.tasks.answering.questions import QuestionTable

NUM_TRAIN = 2000
NUM_VALIDATION = 200

_PEOPLE = (2, 2, 3)
_FACTS = (2, 3, 4)
_SAME_KIND_SHARE = 0.3
_PERSON_SHARE = 0.3
_FIRST_NAMES = (
    "Anna Ben Clara David Emma Felix Grace Henry Ida Jacob Karen Leo Maria Nina Oscar Paula Robert Sara Tom Vera"
)
_LAST_NAMES = "Adams Berg Carter Dahl Evans Fischer Green Hansen Keller Lopez Moreau Novak Olsen Peters Rossi Weber"
_NEW_PEOPLE = 4  # One in four pairs of a first and a last name is kept for the validation set.
_WORDS = {
    "city": "Athens Berlin Boston Cairo Dublin Geneva Lima London Madrid Milan Oslo Paris Prague Rome Tokyo Vienna",
    "job": "baker butcher doctor driver farmer gardener judge lawyer nurse painter pilot singer tailor teacher waiter",
    "year": " ".join(map(str, range(1950, 1990))),
    "instrument": "cello drums flute guitar harp organ piano trumpet violin",
    "animal": "cat dog horse parrot pony rabbit snake turtle",
    "colour": "black brown grey red white",
}
# For each kind of fact: what the paragraph says, the part of it that is asked for, a question for that part, and a
# question for the person.
_KINDS = {
    "home": ("lives in {city}", "{city}", "Where does {name} live?", "Who lives in {city}?"),
    "job": ("works as a {job}", "{job}", "What does {name} work as?", "Who works as a {job}?"),
    "birth": ("was born in {year}", "{year}", "When was {name} born?", "Who was born in {year}?"),
    "music": ("plays the {instrument}", "{instrument}", "What does {name} play?", "Who plays the {instrument}?"),
    "pet": (
        "has a {colour} {animal}",
        "{colour} {animal}",
        "What pet does {name} have?",
        "Who has a {colour} {animal}?",
    ),
}


def demo_questions() -> tuple[QuestionTable, QuestionTable]:
    """The training and the validation set: always the same, and no paragraph twice.

    Examples:
        train, validation = demo_questions()
        print(train.context(0), train.questions[0], train.answers[0])
    """
    rng = random.Random(0)
    people: tuple[list[str], list[str]] = ([], [])
    for i, first in enumerate(_FIRST_NAMES.split()):
        for j, last in enumerate(_LAST_NAMES.split()):
            people[(i + j) % _NEW_PEOPLE == 0].append(f"{first} {last}")
    seen: set[str] = set()
    return (
        _table("demo train", rng, NUM_TRAIN, people[0], seen),
        _table("demo validation", rng, NUM_VALIDATION, people[1], seen),
    )


def _table(name: str, rng: random.Random, count: int, people: list[str], seen: set[str]) -> QuestionTable:
    rows = []
    while len(rows) < count:
        context, question, answer, start = _example(rng, people)
        if context not in seen:
            seen.add(context)
            answers = [{"text": answer, "answer_start": start}]
            row = {"id": f"{name.split()[1]}-{len(rows)}", "question": question, "context": context, "answers": answers}
            rows.append(((len(rows) + 1,), row))
    return question_table(name, rows, place_names=("example",))


def _example(rng: random.Random, people: list[str]) -> tuple[str, str, str, int]:
    """A paragraph, a question about it, the answer, and the character at which the answer starts."""
    names = rng.sample(people, rng.choice(_PEOPLE))
    kinds = rng.sample(list(_KINDS), rng.choice(_FACTS))  # The question asks for the first.
    if rng.random() < _SAME_KIND_SHARE:
        kinds[-1] = kinds[0]
    first, last = rng.sample(names, 2)
    owners = [first, *(rng.choice(names) for _ in kinds[2:]), last]
    # No word twice: else there might be two answers.
    left = {part: rng.sample(words.split(), len(kinds)) for part, words in _WORDS.items()}
    facts = [
        (name, kind, {part: left[part].pop() for part in left if f"{{{part}}}" in _KINDS[kind][0]})
        for kind, name in zip(kinds, owners, strict=True)
    ]
    name, kind, values = facts[0]
    said, value, of_value, of_person = (pattern.format(name=name, **values) for pattern in _KINDS[kind])
    rng.shuffle(facts)
    sentences = [f"{own} {_KINDS[fact][0].format(**parts)}." for own, fact, parts in facts]
    context = " ".join(sentences)
    start = context.index(f"{name} {said}")
    if rng.random() < _PERSON_SHARE:
        return context, of_person, name, start
    return context, of_value, value, start + len(name) + 1 + said.index(value)
