"""The built-in corpus of several labels a text: reviews of gadgets, and what each complains about.

It is synthetic, like that of classification. A review speaks of one to three things, well or ill, so that naming a
thing is not complaining about it: a model must read the words around it.
"""

from __future__ import annotations

import random

from tfbert.tasks.multi_label.table import LabelSets

NUM_TRAIN = 10000
NUM_VALIDATION = 1000
LABEL_NAMES = ("battery", "delivery", "price", "screen", "sound", "support")

_NAMES = {
    "battery": ("battery", "charge"),
    "delivery": ("delivery", "shipping"),
    "price": ("price", "cost"),
    "screen": ("screen", "display"),
    "sound": ("sound", "speaker"),
    "support": ("support", "service"),
}
_BAD = ("awful", "bad", "poor", "dreadful", "disappointing", "a joke")
_GOOD = ("great", "good", "excellent", "splendid", "fine", "a joy")
_COMPLAINTS = (
    "the {thing} is {bad}",
    "the {thing} was {bad}",
    "I am not happy with the {thing}",
    "the {thing} could be better",
    "the {thing} is anything but {good}",
    "the {thing} was not {good} but {bad}",
)
_PRAISE = (
    "the {thing} is {good}",
    "the {thing} was {good}",
    "I am very happy with the {thing}",
    "the {thing} could not be better",
    "the {thing} is anything but {bad}",
    "the {thing} was not {bad} but {good}",
)
_REMARKS = ("I bought it in {place}.", "It came from {place}.", "My {friend} has one too.", "I gave it to my {friend}.")
_PLACES = ("London", "a small shop", "the market", "town", "another country")
_FRIENDS = ("brother", "mother", "friend", "neighbour", "sister", "uncle")


def demo_label_sets() -> tuple[LabelSets, LabelSets]:
    """The training and validation sets: always the same, no review twice, about a quarter without a label.

    Example:
        train, validation = demo_label_sets()
        print(train.text[0], train.labels[0])
    """
    rng = random.Random(0)
    reviews: dict[str, tuple[str, ...]] = {}
    while len(reviews) < NUM_TRAIN + NUM_VALIDATION:
        text, labels = _review(rng)
        reviews.setdefault(text, labels)
    rows = list(reviews.items())
    return _table("demo train", rows[:NUM_TRAIN]), _table("demo validation", rows[NUM_TRAIN:])


def _review(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    things = rng.sample(LABEL_NAMES, rng.choice((1, 2, 2, 3)))
    labels, sentences = [], []
    for thing in things:
        complains = rng.random() < 0.5
        labels += [thing] * complains
        pattern = rng.choice(_COMPLAINTS if complains else _PRAISE)
        text = pattern.format(thing=rng.choice(_NAMES[thing]), bad=rng.choice(_BAD), good=rng.choice(_GOOD))
        sentences.append(f"{text[0].upper()}{text[1:]}.")
    if rng.random() < 0.4:
        remark = rng.choice(_REMARKS)
        sentences.append(remark.format(place=rng.choice(_PLACES), friend=rng.choice(_FRIENDS)))
    return " ".join(sentences), tuple(sorted(labels))


def _table(name: str, rows: list[tuple[str, tuple[str, ...]]]) -> LabelSets:
    return LabelSets(
        name=name,
        text_columns=("text",),
        text=[text for text, _ in rows],
        text_pair=None,
        labels=[labels for _, labels in rows],
        lines=range(1, len(rows) + 1),
        unit="example",
        label_names=LABEL_NAMES,
    )
