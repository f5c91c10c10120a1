"""The built-in corpus of tagged words: short English news with people, places and organisations, made from templates.

It is synthetic. Nobody wrote these sentences, and the names are put together from syllables: a score on them says that
training works, not how well a model finds names. What a name means depends on its sentence: the same words name people,
places and organisations (`Marford was born in Torlen`, `the mayor of Marford`, `shares of Marford & Torlen`), and half
of the names in the validation sentences occur in no training sentence. So learning names by heart does not help, while
a small BERT learns to read the sentences in a minute.
"""

from __future__ import annotations

import random

from tfbert.tasks.tagging.tagged import TaggedTable

NUM_TRAIN = 2000
NUM_VALIDATION = 200
TYPES = ("LOC", "ORG", "PER")

_UNSEEN_NAMES = 300
_UNSEEN_SHARE = 0.5
"""In the validation sentences."""
_BEGINNINGS = (
    *("Ab", "Bal", "Bren", "Car", "Cor", "Dal", "Dor", "Ed", "El", "Fen", "Gar", "Gil", "Hal", "Hol", "Is", "Jor"),
    *("Kel", "Kor", "Lan", "Lor", "Mar", "Mel", "Nor", "Or", "Os", "Pel", "Pen", "Quin", "Ras", "Ros", "Sel", "Sim"),
    *("Tam", "Tor", "Ul", "Val", "Ver", "Wes", "Yar", "Zan"),
)
_ENDINGS = (
    *("ado", "ala", "beck", "bo", "by", "den", "dra", "ero", "ford", "gan", "gate", "holm", "ik", "in", "kas", "len"),
    *("lo", "mer", "mont", "na", "nick", "ova", "ow", "rin", "ron", "sen", "sey", "ton", "va", "wick"),
)

_TEMPLATES = (
    # The word before the name tells.
    "{PER} lives in {LOC} .",
    "{PER} works for {ORG} .",
    "{PER} moved from {LOC} to {LOC} in {month} .",
    "the {job} {PER} left {ORG} after {number} years .",
    "shares of {ORG} fell by {number} percent on {day} .",
    "the mayor of {LOC} thanked {PER} and {PER} .",
    "the {job} of {ORG} thanked {PER} .",
    "the train from {LOC} to {LOC} was late on {day} .",
    "it rained in {LOC} for {number} days .",
    "born in {LOC} , {PER} now runs {ORG} .",
    "on {day} the {job} , {PER} , flew to {LOC} .",
    # The words after it tell.
    "{PER} said on {day} that {ORG} would close its {building} in {LOC} .",
    "{ORG} hired {PER} as a {job} .",
    "{ORG} sold its {building} near {LOC} to {ORG} .",
    "{ORG} opened a {building} in {month} .",
    "{LOC} is {number} miles from {LOC} .",
    "{LOC} has a new {building} and {number} people .",
    "{PER} is a {job} and has {number} children .",
    "{PER} married the {job} {PER} in {month} .",
    "{PER} told {PER} about the {building} in {LOC} .",
    "{ORG} shares rose on {day} .",
    "{ORG} and {ORG} will merge in {month} .",
    # No name.
    "the {building} was closed on {day} .",
    "a {job} from the {building} called in {month} .",
    "there were {number} people in the {building} .",
)
_FORMS = {
    "PER": ("{name}", "{name}", "{first} {name}"),
    "LOC": ("{name}", "{name}", "North {name}", "Port {name}", "{name} Bay"),
    "ORG": ("{name}", "{name}", "{name} & {name}", "{name} Motors", "Bank of {name}", "University of {name}"),
}
_WORDS = {
    "first": ("Anna", "Clara", "David", "Emma", "Henry", "James", "Laura", "Oscar", "Peter", "Sophie"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "month": ("January", "March", "May", "June", "August", "October", "December"),
    "number": ("two", "three", "five", "seven", "ten", "twelve", "30", "45", "60", "200"),
    "job": ("lawyer", "teacher", "driver", "doctor", "singer", "painter", "judge", "director"),
    "building": ("factory", "school", "hotel", "library", "museum", "station", "hospital", "theatre"),
}


def demo_tagged_data() -> tuple[TaggedTable, TaggedTable]:
    """The training and validation sets: always the same, tagged as IOB2, and no sentence twice.

    Examples:
        train, validation = demo_tagged_data()
        print(train.words[0], train.tags[0])
    """
    rng = random.Random(0)
    names = [beginning + ending for beginning in _BEGINNINGS for ending in _ENDINGS]
    rng.shuffle(names)
    unseen, seen = names[:_UNSEEN_NAMES], names[_UNSEEN_NAMES:]
    taken: set[tuple[str, ...]] = set()
    train = _table("demo train", rng, NUM_TRAIN, (seen,), taken)
    return train, _table("demo validation", rng, NUM_VALIDATION, (seen, unseen), taken)


def _table(
    name: str, rng: random.Random, size: int, names: tuple[list[str], ...], taken: set[tuple[str, ...]]
) -> TaggedTable:
    """A table of new sentences; they are added to `taken`."""
    sentences: list[tuple[list[str], list[str]]] = []
    while len(sentences) < size:
        words, tags = _sentence(rng, names)
        if tuple(words) not in taken:
            taken.add(tuple(words))
            sentences.append((words, tags))
    return TaggedTable(
        name=name,
        words=[words for words, _ in sentences],
        tags=[tags for _, tags in sentences],
        lines=range(1, size + 1),
        unit="example",
    )


def _sentence(rng: random.Random, names: tuple[list[str], ...]) -> tuple[list[str], list[str]]:
    words: list[str] = []
    tags: list[str] = []
    for part in rng.choice(_TEMPLATES).split():
        kind = part.strip("{}")
        form = rng.choice(_FORMS[kind]).split() if kind in TYPES else [part]
        words += [_word(rng, word, names) for word in form]
        tags += [f"B-{kind}"] + [f"I-{kind}"] * (len(form) - 1) if kind in TYPES else ["O"]
    return [words[0][0].upper() + words[0][1:], *words[1:]], tags


def _word(rng: random.Random, part: str, names: tuple[list[str], ...]) -> str:
    """The word for one part of a pattern."""
    kind = part.strip("{}")
    if kind == "name":
        return rng.choice(names[0] if len(names) == 1 or rng.random() >= _UNSEEN_SHARE else names[1])
    return rng.choice(_WORDS[kind]) if kind in _WORDS else part
