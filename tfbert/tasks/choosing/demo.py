"""The built-in questions with choices: short paragraphs about people, written by a grammar.

They are synthetic. Nobody wrote them and the people do not exist; a score on them says that training works, not how
well a model reads. Most questions can be answered by their kind alone (of three choices, one is a city): a tiny BERT
learns them in a few epochs. In the others two choices are of that kind, of which one is in the paragraph: a tiny BERT
hardly learns these. Questions have two to four choices.
"""

from __future__ import annotations

import random

import numpy as np

from tfbert.tasks.choosing.questions import Asked, ChoiceExamples

NUM_TRAIN, NUM_VALIDATION = 2000, 300
_NUM_CHOICES = (2, 3, 3, 4, 4)
_SAME_KIND_SHARE = 0.25
_FIRST_NAMES = (
    "Anna Ben Clara David Emma Felix Grace Henry Ida Jacob Karen Leo Maria Nina Oscar Paula Robert Sara Tom Vera"
)
# For each kind of fact: its words, what the paragraph says, and the question.
_KINDS = {
    "city": (
        "Athens Berlin Boston Cairo Dublin Geneva Lima London Madrid Milan Oslo Paris Prague Rome Tokyo Vienna",
        "{name} lives in {value}.",
        "Where does {name} live?",
    ),
    "job": (
        "baker butcher doctor driver farmer gardener judge lawyer nurse painter pilot singer tailor teacher waiter",
        "{name} works as a {value}.",
        "What does {name} work as?",
    ),
    "instrument": (
        "cello drums flute guitar harp organ piano trumpet violin",
        "{name} plays the {value}.",
        "What does {name} play?",
    ),
    "animal": (
        "cat dog horse parrot pony rabbit snake turtle",
        "{name} has a {value}.",
        "Which animal does {name} have?",
    ),
    "colour": (
        "black blue brown green grey orange pink purple red white yellow",
        "{name} likes {value} best.",
        "Which colour does {name} like best?",
    ),
}


def demo_choices() -> tuple[ChoiceExamples, ChoiceExamples]:
    """Questions to train on and questions to evaluate on, always the same; none of the latter is among the former."""
    rng, seen = random.Random(0), set[str]()
    return _examples("demo train", rng, NUM_TRAIN, seen), _examples("demo validation", rng, NUM_VALIDATION, seen)


def _examples(name: str, rng: random.Random, count: int, seen: set[str]) -> ChoiceExamples:
    asked: list[Asked] = []
    while len(asked) < count:
        one = _asked(rng)
        if one.context not in seen:
            seen.add(one.context)
            asked.append(one)
    return ChoiceExamples(
        name=name,
        asked=asked,
        labels=np.array([one.index for one in asked], np.int32),
        places=np.arange(1, count + 1, dtype=np.int32)[:, None],
        place_names=("example",),
    )


def _asked(rng: random.Random) -> Asked:
    name, kinds = rng.choice(_FIRST_NAMES.split()), rng.sample(list(_KINDS), len(_KINDS))
    values = {kind: rng.choice(_KINDS[kind][0].split()) for kind in kinds}
    wanted, *others = kinds
    count = rng.choice(_NUM_CHOICES)
    wrong = [values[kind] for kind in others[: count - 1]]
    if rng.random() < _SAME_KIND_SHARE:
        wrong[0] = rng.choice([value for value in _KINDS[wanted][0].split() if value != values[wanted]])
    told = kinds[:3]
    rng.shuffle(told)
    context = " ".join(_KINDS[kind][1].format(name=name, value=values[kind]) for kind in told)
    choices = [values[wanted], *wrong]
    rng.shuffle(choices)
    index = choices.index(values[wanted])
    question = _KINDS[wanted][2].format(name=name)
    return Asked(context=context, question=question, choices=tuple(choices), label=index, index=index)
