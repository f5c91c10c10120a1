"""The built-in corpus: short English reviews of films and gadgets, written by a grammar, so that runs need no download.

It is synthetic. Nobody wrote these reviews, and a score on them says that training works, not how well a model reads.
Their sentiment depends on word order and negation ("not boring but moving" against "not moving but boring"): most
patterns hold a favourable and an unfavourable word, or negate one, so that counting words does not tell them apart
(accuracy 0.69), while a small BERT learns to read them in a minute.
"""

from __future__ import annotations

import dataclasses
import random

from tfbert.data.files import RawTable

NUM_TRAIN = 10000
NUM_VALIDATION = 1000
LABEL_NAMES = ("negative", "positive")

# {same}, {same2}, {love} and {better} are words of the review's own sentiment; {other}, {other2}, {hate} and {worse},
# of the opposite one. So every pattern gives reviews of both sentiments.
_PLAIN_PATTERNS = (
    "the {part} was {same}",
    "the {part} was {same} and {same2}",
    "I {love} it because the {part} was so {same}",
    "I {love} it",
)
_TURNED_PATTERNS = (
    # The order decides.
    "the {part} was not {other} but {same}",
    "the {part} was {same}, not {other}",
    "far from {other}, the {part} was {same}",
    "I expected the {part} to be {other}, but it was {same}",
    "instead of {a_other} {thing} I got {a_same} one",
    "the {part} was more {same} than {other}",
    # Somebody else thinks otherwise.
    "everyone but me {hate} it",
    "my {friend} {hate} it, but I {love} it",
    # A negation reverses the word, or is itself reversed.
    "the {part} was not {other} at all",
    "the {part} was neither {other} nor {other2}",
    "I would never call the {part} {other}",
    "nobody could deny that the {part} was {same}",
    "there was nothing {other} about the {part}",
    # Comparisons.
    "the {part} could not be {better}",
    "I have never {tried} a {better} {thing} than this one",
    "most {thing}s are {worse} than this one",
)
# Chosen so that a tiny BERT learns it in three epochs: at learning rate 1e-3, all of six seeds reached 0.98. With fewer
# plain reviews, more sentences or the remark in front, some seeds stayed at 0.85.
_PLAIN_SHARE = 0.55
_NUM_SENTENCES = (1, 1, 1, 2)
_REMARK_SHARE = 0.4
_FRIENDS = ("sister", "brother", "father", "mother", "neighbour", "friend", "colleague", "teacher")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LOVE = {"negative": ("hated", "disliked", "loathed"), "positive": ("loved", "liked", "enjoyed")}
_BETTER = {"negative": "worse", "positive": "better"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Topic:
    """What a review is about. Every adjective goes with every part."""

    things: tuple[str, ...]
    parts: tuple[str, ...]
    tried: str
    negative: tuple[str, ...]
    positive: tuple[str, ...]
    remarks: tuple[str, ...]


_FILMS = _Topic(
    things=("film", "movie", "drama", "comedy", "thriller", "western"),
    parts=("film", "plot", "script", "story", "ending", "dialogue", "acting", "music"),
    tried="seen",
    negative=("boring", "dull", "clumsy", "tedious", "shallow", "silly", "lifeless", "bland", "awful", "weak"),
    positive=("moving", "gripping", "charming", "clever", "funny", "witty", "fresh", "touching", "superb", "lively"),
    remarks=(
        "We saw it on {day}.",
        "I watched it with my {friend} on {day}.",
        "My {friend} chose it for {day} evening.",
        "It was on television last {day}.",
    ),
)
_GADGETS = _Topic(
    things=("phone", "camera", "laptop", "tablet", "printer", "speaker"),
    parts=("screen", "battery", "keyboard", "cable", "design", "case", "software", "charger"),
    tried="used",
    negative=("useless", "flimsy", "shoddy", "terrible", "dreadful", "poor", "unreliable", "faulty", "awkward", "bad"),
    positive=("excellent", "solid", "fine", "reliable", "great", "splendid", "sturdy", "perfect", "superb", "good"),
    remarks=(
        "It arrived on {day}.",
        "I bought it for my {friend} on {day}.",
        "My {friend} gave it to me last {day}.",
        "I have had it since {day}.",
    ),
)


def demo_data() -> tuple[RawTable, RawTable]:
    """The training and validation sets: always the same, half of each positive, and no review twice.

    Examples:
        train, validation = demo_data()
        print(train.text[0], train.labels[0])
    """
    rng = random.Random(0)
    reviews: dict[str, str] = {}
    while len(reviews) < NUM_TRAIN + NUM_VALIDATION:
        sentiment = LABEL_NAMES[len(reviews) % 2]
        # A review that was drawn before is drawn again, so that the sentiments keep alternating.
        reviews.setdefault(_review(rng, sentiment), sentiment)
    rows = list(reviews.items())
    return _table("demo train", rows[:NUM_TRAIN]), _table("demo validation", rows[NUM_TRAIN:])


def _review(rng: random.Random, sentiment: str) -> str:
    """One or two sentences of the same sentiment, sometimes followed by a neutral one."""
    topic = rng.choice((_FILMS, _GADGETS))
    # Plain sentences are not mixed with others: beside a plain one, a model need not read a negated one.
    patterns = _PLAIN_PATTERNS if rng.random() < _PLAIN_SHARE else _TURNED_PATTERNS
    patterns = rng.sample(patterns, rng.choice(_NUM_SENTENCES))
    sentences = [_sentence(rng, topic, sentiment, pattern) for pattern in patterns]
    if rng.random() < _REMARK_SHARE:
        sentences.append(rng.choice(topic.remarks).format(day=rng.choice(_DAYS), friend=rng.choice(_FRIENDS)))
    return " ".join(sentences)


def _sentence(rng: random.Random, topic: _Topic, sentiment: str, pattern: str) -> str:
    opposite = LABEL_NAMES[1 - LABEL_NAMES.index(sentiment)]
    same, same2 = rng.sample(getattr(topic, sentiment), 2)
    other, other2 = rng.sample(getattr(topic, opposite), 2)
    text = pattern.format(
        same=same,
        same2=same2,
        other=other,
        other2=other2,
        a_same=_with_article(same),
        a_other=_with_article(other),
        love=rng.choice(_LOVE[sentiment]),
        hate=rng.choice(_LOVE[opposite]),
        better=_BETTER[sentiment],
        worse=_BETTER[opposite],
        part=rng.choice(topic.parts),
        thing=rng.choice(topic.things),
        tried=topic.tried,
        friend=rng.choice(_FRIENDS),
    )
    return f"{text[0].upper()}{text[1:]}."


def _with_article(adjective: str) -> str:
    return f"{'an' if adjective[0] in 'aeiou' and not adjective.startswith('use') else 'a'} {adjective}"


def _table(name: str, rows: list[tuple[str, str]]) -> RawTable:
    return RawTable(
        name=name,
        text_columns=("text",),
        text=[text for text, _ in rows],
        text_pair=None,
        labels=[label for _, label in rows],
        lines=range(1, len(rows) + 1),
        unit="example",
    )
