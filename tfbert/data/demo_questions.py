"""The built-in questions: short paragraphs about people, written by a grammar, and questions whose answer is a span.

They are synthetic. Nobody wrote them and the people do not exist; a score on them says that training works, not how
well a model reads. A third of the words for people and places in the validation set do not occur in the training set,
so that learning answers by heart does not help. Half of the questions can be answered by their kind alone, as there is
one fact of that kind (where somebody lives); for the others two people have one each: the right one has to be found.
"""

from __future__ import annotations

import random

from tfbert.data.question_rows import question_table
from tfbert.data.questions import QuestionTable

NUM_TRAIN = 2000
NUM_VALIDATION = 200

_UNSEEN_SHARE = 1 / 3
_PEOPLE = (2, 2, 3)
_FACTS = (2, 3, 4)
_SAME_KIND_SHARE = 0.5
_SEEN = {
    "first": (
        "Anna Ben Clara David Emma Felix Grace Henry Ida Jacob Karen Leo Maria Nina Oscar Paula Robert Sara Tom Vera"
    ),
    "last": "Adams Berg Carter Dahl Evans Fischer Green Hansen Keller Lopez Moreau Novak Olsen Peters Rossi Weber",
    "city": "Athens Berlin Boston Cairo Dublin Geneva Lima London Madrid Milan Oslo Paris Prague Rome Tokyo Vienna",
}
_UNSEEN = {
    "first": "Alma Boris Dora Erik Frida Hugo Julia Martin Olga Simon",
    "last": "Bauer Costa Duran Falk Jensen Marino Nilsen Santos Vogel",
    "city": "Bergen Delhi Havana Lisbon Naples Seoul Turin Zurich",
}
_ALWAYS = {
    "job": "baker butcher doctor driver farmer gardener judge lawyer nurse painter pilot singer tailor teacher waiter",
    "year": " ".join(map(str, range(1950, 1990))),
    "instrument": "cello drums flute guitar harp organ piano trumpet violin",
    "animal": "cat dog horse parrot pony rabbit snake turtle",
    "colour": "black brown grey red white",
}
# Of each kind of fact: what is said, and what may be asked for, a question for the first part and one for the person.
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
_PERSON_SHARE = 0.4


def demo_questions() -> tuple[QuestionTable, QuestionTable]:
    """The training and the validation set: always the same, and no paragraph twice.

    Example:
        train, validation = demo_questions()
        print(train.context(0), train.questions[0], train.answers[0])
    """
    rng = random.Random(0)
    seen: set[str] = set()
    return _table("demo train", rng, NUM_TRAIN, 0.0, seen), _table(
        "demo validation", rng, NUM_VALIDATION, _UNSEEN_SHARE, seen
    )


def _table(name: str, rng: random.Random, count: int, unseen_share: float, seen: set[str]) -> QuestionTable:
    rows = []
    while len(rows) < count:
        context, question, answer, start = _example(rng, unseen_share)
        if context not in seen:
            seen.add(context)
            answers = [{"text": answer, "answer_start": start}]
            row = {"id": f"{name.split()[1]}-{len(rows)}", "question": question, "context": context, "answers": answers}
            rows.append(((len(rows) + 1,), row))
    return question_table(name, rows, place_names=("example",))


def _example(rng: random.Random, unseen_share: float) -> tuple[str, str, str, int]:
    """A paragraph, a question about it, the answer and the character at which that starts."""
    used: set[str] = set()

    def word(kind: str) -> str:
        """A word that is not yet in the paragraph."""
        while True:
            words = _UNSEEN if kind in _UNSEEN and rng.random() < unseen_share else _SEEN | _ALWAYS
            found = rng.choice(words[kind].split())
            if found not in used:
                used.add(found)
                return found

    names = [f"{word('first')} {word('last')}" for _ in range(rng.choice(_PEOPLE))]
    kinds = rng.sample(list(_KINDS), rng.choice(_FACTS))  # The first is the one that is asked for.
    if rng.random() < _SAME_KIND_SHARE:
        kinds[-1] = kinds[0]
    first, last = rng.sample(names, 2)
    owners = [first, *(rng.choice(names) for _ in kinds[2:]), last]
    facts = []
    for kind, name in zip(kinds, owners, strict=True):
        values = {
            part: word(part)
            for part in ("city", "job", "year", "instrument", "colour", "animal")
            if part in _KINDS[kind][0]
        }
        facts.append((name, kind, values))
    name, kind, values = facts[0]
    said, value, of_value, of_person = (pattern.format(name=name, **values) for pattern in _KINDS[kind])
    rng.shuffle(facts)
    sentences = [f"{own} {_KINDS[fact][0].format(**parts)}." for own, fact, parts in facts]
    context = " ".join(sentences)
    start = context.index(f"{name} {said}")
    if rng.random() < _PERSON_SHARE:
        return context, of_person, name, start
    return context, of_value, value, start + len(name) + 1 + said.index(value)
