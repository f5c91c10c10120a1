"""The built-in corpus for pre-training: short tales of people at work, written by a grammar, so that runs need no
download.

It is synthetic. Nobody wrote these tales, and a score on them says that training works, not what a model knows. There
is something to learn at every distance: which word follows (grammar, numbers, tenses); which things, tools and places
go with a trade; and, over a whole tale, who it is about (he, she or they) and what time of day it is. All of this helps
to tell the next sentence from one of another tale.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Literal

NUM_TRAIN = 4000
NUM_VALIDATION = 400

_SENTENCES = (5, 6, 7, 8, 9, 10)
_TWO_PEOPLE_SHARE = 0.3
_PAST_SHARE = 0.5
_PRONOUN_SHARE = 0.5
_WOMEN = "Anna Clara Emma Grace Ida Karen Maria Nina Paula Sara Vera Julia"
_MEN = "Ben David Felix Henry Jacob Leo Oscar Peter Robert Tom Victor Adam"
_CITIES = "Athens Berlin Boston Cairo Dublin Geneva Lima London Madrid Milan Oslo Paris Prague Rome Tokyo Vienna"
_WEATHER = ("sunny", "rainy", "cold", "windy", "warm", "cloudy")
_TIMES = ("in the morning", "at nine", "before noon", "at noon", "after lunch", "in the afternoon", "at five")
"""In the order of a day; a tale uses some of them, in this order."""
_EVENINGS = ("in the evening", "at night", "after dinner")


@dataclasses.dataclass(frozen=True)
class _Trade:
    """A trade: what is done with what, where and with which tools. Verbs are `base/past`; things have a plural in s."""

    role: str
    place: str
    guest: str
    verbs: tuple[str, ...]
    things: tuple[str, ...]
    tools: tuple[str, ...]
    adjectives: tuple[str, ...]


def _trade(role: str, place: str, guest: str, verbs: str, things: str, tools: str, adjectives: str) -> _Trade:
    return _Trade(role, place, guest, *(tuple(words.split()) for words in (verbs, things, tools, adjectives)))


_TRADES = (
    _trade(
        "baker", "bakery", "customer", "bake/baked fill/filled cut/cut sell/sold",
        "roll cake tart pie biscuit", "spoon knife tin", "sweet fresh crisp brown",
    ),
    _trade(
        "gardener", "garden", "neighbour", "plant/planted water/watered pick/picked trim/trimmed",
        "rose tulip shrub hedge lily", "spade rake hose", "red tall thorny green",
    ),
    _trade(
        "mechanic", "garage", "driver", "repair/repaired paint/painted test/tested clean/cleaned",
        "car truck engine motor brake", "wrench hammer jack", "rusty old noisy fast",
    ),
    _trade(
        "teacher", "school", "pupil", "explain/explained read/read write/wrote correct/corrected",
        "poem essay lesson story exercise", "pen board book", "easy difficult long short",
    ),
    _trade(
        "fisher", "harbour", "sailor", "catch/caught weigh/weighed smoke/smoked carry/carried",
        "trout salmon herring crab eel", "net rod boat", "silver heavy wet slippery",
    ),
    _trade(
        "tailor", "workshop", "lady", "sew/sewed mend/mended iron/ironed measure/measured",
        "coat shirt dress skirt jacket", "needle thread button", "woollen blue elegant tight",
    ),
    _trade(
        "doctor", "hospital", "nurse", "treat/treated bandage/bandaged examine/examined heal/healed",
        "wound fever burn cough injury", "syringe lamp glove", "painful severe mild deep",
    ),
    _trade(
        "farmer", "stable", "vet", "feed/fed brush/brushed lead/led wash/washed",
        "horse cow goat sheep donkey", "bucket rope brush", "hungry calm young strong",
    ),
    _trade(
        "musician", "theatre", "singer", "play/played practise/practised record/recorded tune/tuned",
        "violin flute trumpet cello guitar", "bow stand microphone", "loud wooden famous gentle",
    ),
    _trade(
        "carpenter", "cellar", "builder", "saw/sawed polish/polished build/built join/joined",
        "table chair shelf cupboard door", "saw nail plane", "oak smooth broken solid",
    ),
    _trade(
        "cook", "kitchen", "waiter", "boil/boiled fry/fried taste/tasted serve/served",
        "soup stew omelette sauce dumpling", "pan pot ladle", "hot salty spicy delicious",
    ),
    _trade(
        "painter", "studio", "collector", "sketch/sketched frame/framed show/showed finish/finished",
        "portrait landscape picture mural drawing", "easel palette pencil", "bright dark colourful strange",
    ),
)  # fmt: skip
_PLURALS = {
    "sheep": "sheep",
    "shelf": "shelves",
    "lady": "ladies",
    "injury": "injuries",
    "salmon": "salmon",
    "cello": "cellos",
}
# {who}: who it is about, by name, trade or pronoun; {do}: a verb with its thing. The tale determines the rest.
_PATTERNS = (
    "{time} {who} {do} in the {place}",
    "{time} {who} {do} with {a_tool}",
    "{who} {do} and {do_too}",
    "{who} {do} because it {is} {adjective}",
    "the {guest} {asks} for {a_thing}, and {who} {do_it}",
    "{who} {do_not} without {a_tool}",
    "{time} the {guest} {comes} to the {place} and {who} {do}",
    "the {thing} {is} {adjective} and {adjective_too}, but {who} {do_it}",
    "{who} {has} {two} {things} in the {place}",
    "{who} {do} for the {guest}",
)


def demo_corpus(split: Literal["train", "validation"] = "train") -> list[list[str]]:
    """The documents of a split, each a list of sentences: always the same, and no document twice.

    Examples:
        print(*demo_corpus()[0])
    """
    every = _tales()
    chosen = every[:NUM_TRAIN] if split == "train" else every[NUM_TRAIN:]
    return [list(tale) for tale in chosen]


@functools.cache
def _tales() -> list[list[str]]:
    rng = random.Random(0)
    tales: dict[str, list[str]] = {}
    while len(tales) < NUM_TRAIN + NUM_VALIDATION:
        tale = _tale(rng)
        tales.setdefault(" ".join(tale), tale)
    return list(tales.values())


def _tale(rng: random.Random) -> list[str]:
    trade = rng.choice(_TRADES)
    past = rng.random() < _PAST_SHARE
    many = rng.random() < _TWO_PEOPLE_SHARE
    names, pronoun = rng.choice(((_WOMEN, "she"), (_MEN, "he")))
    names = f"{_WOMEN} {_MEN}" if many else names
    people = " and ".join(rng.sample(names.split(), 2 if many else 1))
    pronoun = "they" if many else pronoun
    role = _plural(trade.role) if many else trade.role
    be = ("were" if many else "was") if past else ("are" if many else "is")
    kind = role if many else _with_article(role)
    first = f"{people} {be} {kind} in {rng.choice(_CITIES.split())}"
    second = f"the day {'was' if past else 'is'} {rng.choice(_WEATHER)} and {pronoun} {be} in the {trade.place}"
    count = rng.choice(_SENTENCES) - 3
    times = iter(sorted(rng.sample(range(len(_TIMES)), min(count, len(_TIMES)))))
    sentences = [first, second]
    for pattern in rng.sample(_PATTERNS, count):
        who = pronoun if rng.random() < _PRONOUN_SHARE else rng.choice((people, f"the {role}"))
        time = _TIMES[next(times)] if "{time}" in pattern else ""
        sentences.append(_sentence(rng, trade, pattern, who, time, past=past, many=many))
    close, go = (_verb(verb, past=past, many=many) for verb in ("close/closed", "go/went"))
    sentences.append(f"{rng.choice(_EVENINGS)} {people} {close} the {trade.place} and {go} home")
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences]


def _sentence(rng: random.Random, trade: _Trade, pattern: str, who: str, time: str, *, past: bool, many: bool) -> str:
    thing, thing_too = rng.sample(trade.things, 2)
    verb, verb_too = rng.sample(trade.verbs, 2)
    adjective, adjective_too = rng.sample(trade.adjectives, 2)
    negation = "did not" if past else ("do not" if many else "does not")
    done = _verb(verb, past=past, many=many)
    return pattern.format(
        who=who,
        time=time,
        do=f"{done} the {thing}",
        do_it=f"{done} it",
        do_too=f"{_verb(verb_too, past=past, many=many)} the {thing_too}",
        do_not=f"{negation} {verb.split('/')[0]} the {thing}",
        has=_verb("have/had", past=past, many=many),
        comes=_verb("come/came", past=past, many=False),
        asks=_verb("ask/asked", past=past, many=False),
        **{"is": "was" if past else "is"},
        place=trade.place,
        guest=trade.guest,
        a_tool=_with_article(rng.choice(trade.tools)),
        thing=thing,
        things=_plural(thing),
        a_thing=_with_article(thing),
        adjective=adjective,
        adjective_too=adjective_too,
        two=rng.choice(("two", "three", "four", "five")),
    )


def _verb(verb: str, *, past: bool, many: bool) -> str:
    base, past_form = verb.split("/")
    if past or many:
        return past_form if past else base
    if base == "have":
        return "has"
    return f"{base[:-1]}ies" if base[-1] == "y" and base[-2] not in "aeiou" else _with_s(base)


def _plural(noun: str) -> str:
    return _PLURALS.get(noun) or _with_s(noun)


def _with_s(word: str) -> str:
    return f"{word}es" if word.endswith(("s", "sh", "ch", "x", "o")) else f"{word}s"


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
