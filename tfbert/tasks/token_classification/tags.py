"""Entity tags: the form in which they are written, the scheme that they follow, and the same in another scheme.

A tag is `O`, or a prefix, a dash and a type, which may hold dashes: `B-PER`. Of the prefixes, `B` begins an entity, `I`
(in BMES `M`) is inside one, `E` (in BILOU `L`) ends it, and `S` (in BILOU `U`) is an entity of one word. A bare `B` is
read as well; what others write, as `B_PER`, `PER-B` and `b-per`, is recognised to be refused.

Form and scheme (IOB1, IOB2, BIOES, ...) are found from all tags of a data set together. No single tag says what it is:
`I` is also a pronoun's, and `S-1` the name of a class.

Entities in tagged words, and how well predicted ones match: precision, recall and F1 as conlleval and seqeval compute
them.

Everything works on flat arrays over the words of all sentences: a million words take a fraction of a second.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.config.types import counted
from tfbert.tasks.metrics import ratios

OUTSIDE = "O"
PREFIXES = ("", "O", "B", "I", "E", "S")
"""What a tag's prefix means, by its code: 0 for a tag without one, such as `NOUN`."""
PLAIN, OUT, BEGIN, INSIDE, END, SINGLE = range(len(PREFIXES))
_CODES = {"B": BEGIN, "I": INSIDE, "E": END, "S": SINGLE, "M": INSIDE, "L": END, "U": SINGLE}
_WRITTEN = {"IOB2": "IBIB", "BIOES": "IBES", "BILOU": "IBLU", "BMES": "MBES", "IO": "IIII"}
"""By scheme, the letters for a word inside an entity, one that begins it, one that ends it, one that is all of it."""


_USUAL, _BARE = re.compile("[BIESMLU]-.+", re.DOTALL), re.compile("[BIESMLU]")
"""The forms that are read: `B-PER`, and letters alone."""
_OTHER_FORMS = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in ("([BIESMLU])[-_:/+.].+", ".+[-_:/+.]([BIESMLU])")
]
_PLACEHOLDERS = frozenset({"X", "_", "-", "-X-", "PAD", "[PAD]", "<PAD>", "<pad>", "[CLS]", "[SEP]", "IGNORE", "-100"})
"""What files write for words, or pieces of words, that have no tag of their own."""
_OUTSIDE_WORDS = frozenset({"o", "0", "out", "outside", "other", "none", "null", "nil", "na", "n/a"})
_SPELLED = re.compile(
    "(beg(in(ning)?)?|start|in(side|ner)?|intermediate|mid(dle)?|cont(inue|inuation)?|end|last|single(ton)?|unit)",
    re.IGNORECASE,
)
"""How some write the letters of a scheme."""
_BRACKETS = re.compile(r"\(?[^()*]*\*\)?|\*+|\([^()*]+\)")
_FEW_WORDS, _FEW_SHARE = 3, 0.1
"""Foreign tags are few if they have no more words than this, or than this share of the words in entities."""
_MOSTLY = 0.5
"""Where so many words have a tag of the form, or `O`, very many different foreign tags are no classes either."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagReading:
    """The form that fits most tags of a data set, and what does not fit.

    Attributes:
        is_bare: Whether that form is letters alone, rather than `B-PER`.
        words: How many words have each tag of this form, in the order of the first words.
        num_outside: How many words are `O`.
        others: How many words have each of the other tags.
    """

    is_bare: bool
    words: Mapping[str, int]
    num_outside: int
    others: Mapping[str, int]

    @property
    def example(self) -> str:
        """The first tag of this form."""
        return next(iter(self.words))

    @property
    def letters(self) -> set[str]:
        """The letters of its tags."""
        return {tag[0] for tag in self.words}

    @property
    def is_certain(self) -> bool:
        """Whether all tags are of the form and must be entity tags."""
        return not self.others and self.is_plausible

    @property
    def is_plausible(self) -> bool:
        """Whether the tags that have the form must be entity tags, whatever the others are: letters alone need a B or
        an I, and an `O`."""
        return not self.is_bare or (bool(self.letters & {"B", "I"}) and self.num_outside > 0)

    def foreign(self, known: Container[str] = ()) -> str:
        """The first tag that cannot be a class beside entity tags: it and others like it are few, or of so many kinds
        that they must be something else, such as dates. Empty if there is none.

        Args:
            known: Tags that are classes all the same.
        """
        found = {tag: count for tag, count in self.others.items() if tag not in known}
        if found and not self.num_outside and self.letters & {"B", "I"} and all(map(_is_like_outside, found)):
            return next(iter(found))
        found = {tag: count for tag, count in found.items() if tag not in _PLACEHOLDERS}
        if not found or not self.is_plausible:
            return ""
        words, fitting = sum(found.values()), sum(self.words.values())
        is_few = words <= max(_FEW_WORDS, _FEW_SHARE * fitting) and words < fitting
        total = words + fitting + self.num_outside
        are_most = fitting + self.num_outside >= _MOSTLY * total and len(found) > max(10, 2 * len(self.words))
        return next(iter(found)) if is_few or are_most else ""


def read_forms(counts: Mapping[str, int]) -> TagReading | None:
    """The form that fits most tags of a data set; None if no tag has any.

    Args:
        counts: How many words have each tag, in the order of their first words.
    """
    usual, bare = ({tag: n for tag, n in counts.items() if form.fullmatch(tag)} for form in (_USUAL, _BARE))
    words = bare if len(bare) > len(usual) else usual
    if not words:
        return None
    others = {tag: count for tag, count in counts.items() if tag not in {OUTSIDE, *words}}
    return TagReading(is_bare=words is bare, words=words, num_outside=counts.get(OUTSIDE, 0), others=others)


def _is_like_outside(tag: str) -> bool:
    """Whether a tag must mean `O` where most words have it: a word such as `none`, or a sign such as `_`."""
    return tag.casefold() in _OUTSIDE_WORDS or not any(map(str.isalnum, tag))


def are_of_another_form(counts: Mapping[str, int]) -> bool:
    """Whether tags must be entity tags that are written otherwise than `B-PER`.

    They must if all, but for those of the usual form, are as `B_PER`, `PER-B`, `b-per` or `b`; if most come in pairs
    that differ in a B and an I alone; if some have these letters as words, as `Begin-PER`, `Inside-PER`; or if they are
    brackets as in `(PER*`, `*)`.

    Args:
        counts: How many words have each tag.
    """
    has_outside = any(map(_is_like_outside, counts))
    tags = [tag for tag in counts if not (_is_like_outside(tag) or tag in _PLACEHOLDERS)]
    tags = [tag for tag in tags if not (_USUAL.fullmatch(tag) or _BARE.fullmatch(tag))]
    if not tags:
        return False
    for form in _OTHER_FORMS:
        found = [form.fullmatch(tag) for tag in tags]
        letters = {match[1].upper() for match in found if match}
        if all(found) and letters & {"B", "I"} and (has_outside or len(letters) > 1):
            return True
    if has_outside and {"b", "i"} & {*tags} and {*tags} <= {*"biesmlu"}:
        return True
    parts = [re.split("[-_:/.+]", tag) for tag in tags]
    spelled = {end.lower() for own in parts for end in (own[0], own[-1]) if len(own) > 1 and _SPELLED.fullmatch(end)}
    if len(spelled) > 1 or all(map(_BRACKETS.fullmatch, tags)):
        return True
    kinds: dict[str, set[str]] = collections.defaultdict(set)
    for tag in tags:
        core = tag.strip("()[]<>{}*")
        for letter, kind in ((core[:1], core[1:]), (core[-1:], core[:-1])):
            if letter.upper() in ("B", "I"):
                kinds[kind.strip(" -_:/.|+#")].add(letter.upper())
    return 2 * sum(2 for letters in kinds.values() if len(letters) == 2) > len(tags)


def hold_entities(counts: Mapping[str, int]) -> bool:
    """Whether tags, but for a tenth of the words, must be entity tags, of the form that is read or another."""
    reading = read_forms(counts)
    is_read = reading is not None and reading.is_plausible and bool(reading.letters & {"B", "I"})
    return are_of_another_form(counts) or (is_read and 10 * sum(reading.others.values()) <= sum(counts.values()))


def look_like_types(counts: Mapping[str, int]) -> bool:
    """Whether tags may be the types of entities alone: half of the words are `O`, or have a tag that must mean it.

    Args:
        counts: How many words have each tag.
    """
    num_words, num_outside = sum(counts.values()), sum(n for tag, n in counts.items() if _is_like_outside(tag))
    return num_words <= 2 * num_outside < 2 * num_words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scheme:
    """How entities are written as tags.

    Attributes:
        name: `IOB1`, `IOB2`, `BIOES`, `BILOU`, `BMES`, `IO`, or `none` for tags without prefixes, as parts of speech.
        doubt: What speaks against this scheme, or which other it could be, to follow `tags are ...`; may be empty.
    """

    name: str
    doubt: str = ""

    @property
    def has_entities(self) -> bool:
        """Whether there are entities at all."""
        return self.name != "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagMeanings:
    """What each of a set of tags means, by its id.

    Attributes:
        names: The tags.
        prefixes: int32 `[num_tags]`, indexes of `PREFIXES`.
        types: int32 `[num_tags]`, indexes of `type_names`; -1 for `O`. The type of a tag without a prefix is the tag.
        type_names: In alphabetical order.
    """

    names: tuple[str, ...]
    prefixes: np.ndarray
    types: np.ndarray
    type_names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> TagMeanings:
        """The meanings of tags, which must all be different."""
        split = [split_tag(name) for name in names]
        type_names = sorted({kind for code, kind in split if code != OUT})
        index = {name: i for i, name in enumerate(type_names)}
        return cls(
            names=tuple(names),
            prefixes=np.array([code for code, _ in split], np.int32),
            types=np.array([-1 if code == OUT else index[kind] for code, kind in split], np.int32),
            type_names=tuple(type_names),
        )


def split_tag(tag: str) -> tuple[int, str]:
    """A tag's prefix, as an index of `PREFIXES`, and its type: `(BEGIN, "PER")`, `(OUT, "")`, `(PLAIN, "NOUN")`."""
    if tag == OUTSIDE:
        return OUT, ""
    code = _CODES.get(tag[0], PLAIN) if tag[1:2] == "-" and len(tag) > 2 else PLAIN
    return (code, tag[2:]) if code != PLAIN else (PLAIN, tag)


def scheme_of(sequences: Sequence[Sequence[str]]) -> Scheme:
    """Finds the scheme of all tags of a data set.

    With only the prefixes `B` and `I`, it is IOB2 if no `I-` starts an entity, and IOB1 if every `B-` directly follows
    an entity of its own type, as it must there. If both rules are broken, it is the one that is broken less often. The
    entities are the same either way; only which tags are invalid differs.

    Args:
        sequences: One per sentence.
    """
    ids, sentences, meanings = _flat(sequences)
    name, (letters, plain) = scheme_of_model(meanings.names), _letters(meanings.names)
    listed = ", ".join(f"{letter}-" for letter in sorted(letters))
    if plain:
        mixed = f", although {listed} occur too: {plain[0]!r} has no prefix" if letters else ""
        return Scheme(name=name, doubt=mixed)
    if not letters:
        return Scheme(name=name, doubt=", although there is no entity")
    if letters - {"B", "I"}:
        odd = letters - set(name) | ({"B"} - letters if letters & {"I", "M"} else set())
        return Scheme(name=name, doubt=f", although the prefixes are {listed}" if odd else "")
    if letters == {"B"}:
        return Scheme(name=name, doubt=", all entities have one word: no I- occurs")
    if letters == {"I"}:
        return Scheme(name=name, doubt=", or IOB1 where no entities touch: the entities are the same")
    prefix, kind, before, kind_before = _in_memory(ids, sentences, meanings)
    goes_on = (before != OUT) & (kind == kind_before)
    num_loose, num_needless = (int(((prefix == letter) & ~goes_on).sum()) for letter in (INSIDE, BEGIN))
    if not num_loose:
        return Scheme(name="IOB2")
    if not num_needless:
        return Scheme(name="IOB1")
    if num_loose <= num_needless:
        return Scheme(name="IOB2", doubt=f", although I- starts {counted(num_loose, 'entity', 'entities')}")
    return Scheme(
        name="IOB1", doubt=f", although B- starts {counted(num_needless, 'entity', 'entities')} for no reason"
    )


def scheme_of_model(names: Sequence[str]) -> str:
    """The scheme that a model with these tags writes, as `Scheme.name`.

    `B` and `I` alone are IOB2: a model of IOB1 has the same tags, and the entities are the same.
    """
    letters, plain = _letters(names)
    if plain:
        return "none"
    if letters - {"B", "I"}:
        return "BILOU" if letters & {"L", "U"} else "BMES" if "M" in letters else "BIOES"
    return "IO" if letters == {"I"} else "IOB2"


def to_scheme(sequences: Sequence[Sequence[str]], scheme: Scheme, target: str) -> list[list[str]]:
    """The same entities in another scheme. They are those that conlleval finds: each word that is in an entity stays in
    one. In IO, entities of one type that touch become one.

    Args:
        sequences: One per sentence.
        scheme: The scheme of these tags. Tags of `none` stay as they are.
        target: `IOB2`, `BIOES`, `BILOU`, `BMES` or `IO`.
    """
    if not scheme.has_entities:
        return [list(tags) for tags in sequences]
    ids, sentences, meanings = _flat(sequences)
    starts = _are_starts(*_in_memory(ids, sentences, meanings))
    goes_on = (meanings.prefixes[ids] > OUT) & ~starts
    ends = ~np.append(goes_on, False)[1:]  # Where the next word does not continue the entity.
    split = list(zip(meanings.names, meanings.prefixes.tolist(), strict=True))
    names = np.array(
        [[f"{letter}-{name[2:]}" if code > OUT else name for name, code in split] for letter in _WRITTEN[target]],
        object,
    )
    flat = names[starts + 2 * ends, ids].tolist() if len(ids) else []
    stops = itertools.accumulate(map(len, sequences))
    return [flat[stop - len(tags) : stop] for tags, stop in zip(sequences, stops, strict=True)]


def starts_of(sequences: Sequence[Sequence[str]]) -> np.ndarray:
    """Which words start an entity, by the rules of `find_entities`: bool `[num_words]`.

    Args:
        sequences: One per sentence.
    """
    return _are_starts(*_in_memory(*_flat(sequences)))


def invalid_transitions(sequences: Sequence[Sequence[str]], scheme: Scheme) -> tuple[int, str] | None:
    """Finds tags that cannot follow the previous tag in their scheme; None if there are none.

    In IOB2, an `I-` must follow a `B-` or `I-` of its type; in IOB1, a `B-` must. In BIOES, BILOU and BMES, an entity
    that has begun must also end. In IO, and without prefixes, all tags may follow one another.

    Args:
        sequences: One per sentence.
        scheme: The scheme of these tags.

    Returns:
        The sentence of the first, from 0; and, in words, how many words or ends of sentences cannot stand where they
        do, and the first.
    """
    if scheme.name in ("none", "IO") or not any(map(len, sequences)):
        return None
    # An O after each sentence, so that its end is checked like any other place.
    ids, sentences, meanings = _flat([[*tags, OUTSIDE] for tags in sequences])
    prefix, kind, before, kind_before = _in_memory(ids, sentences, meanings)
    is_same = (before != OUT) & (kind == kind_before)
    if scheme.name in ("IOB1", "IOB2"):
        bad = (prefix == (INSIDE if scheme.name == "IOB2" else BEGIN)) & ~is_same
    else:
        is_open = (before == BEGIN) | (before == INSIDE)
        goes_on = (prefix == INSIDE) | (prefix == END)
        bad = (is_open != goes_on) | (goes_on & ~is_same)
    if not bad.any():
        return None
    place = int(np.argmax(bad))
    sentence = int(sentences[place])
    tags, word = sequences[sentence], place - int(np.searchsorted(sentences, sentence))
    if word == len(tags):
        first = f"{tags[-1]!r} at the end"
    else:
        first = f"{tags[word]!r} " + (f"after {tags[word - 1]!r}" if word else "at the start")
    return sentence, f"{counted(int(bad.sum()), 'tag')} out of place in {scheme.name}, the first {first}"


def class_names(sequences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """All tags that occur, in the order of classes: `O` first (always, if some tag has a prefix), then by type, `B`
    before `I`."""
    found = set(itertools.chain.from_iterable(sequences))
    split = {tag: split_tag(tag) for tag in found}
    if any(code > OUT for code, _ in split.values()):
        split[OUTSIDE] = (OUT, "")
    return tuple(sorted(split, key=lambda tag: (tag != OUTSIDE, split[tag][1], split[tag][0], tag)))


def _in_memory(ids: np.ndarray, sentences: np.ndarray, meanings: TagMeanings) -> list[np.ndarray]:
    """`_in_graph` as arrays."""
    with tf.device("CPU:0"):
        parts = _in_graph(tf.constant(ids, tf.int64), tf.constant(sentences, tf.int64), meanings)
    return [part.numpy() for part in parts]


def _in_graph(tags: tf.Tensor, texts: tf.Tensor, meanings: TagMeanings) -> tuple[tf.Tensor, ...]:
    """Each word's prefix and type, and those of the word before it; at a sentence's start, those of `O`."""
    prefix, kind = (tf.gather(tf.constant(part), tags) for part in (meanings.prefixes, meanings.types))
    follows = texts[1:] == texts[:-1]

    def before(values: tf.Tensor, outside: int) -> tf.Tensor:
        return tf.concat([[outside], tf.where(follows, values[:-1], outside)], 0)[: tf.size(tags)]

    return prefix, kind, before(prefix, OUT), before(kind, -1)


def _are_starts(prefix: Any, kind: Any, before: Any, kind_before: Any) -> Any:
    """Which words start an entity, by conlleval's rules, from what `_in_graph` returns, or `_in_memory`.

    A word in an entity starts it if its own tag says so (`B`, `S`), or if it cannot continue the previous entity: that
    one has ended (`E`, `S`), is of another type, or does not exist in the sentence.
    """
    starts = (prefix == BEGIN) | (prefix == SINGLE) | (before <= OUT) | (before >= END) | (kind != kind_before)
    return starts & (prefix > OUT)


def _flat(sequences: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray, TagMeanings]:
    """Each word's tag id, its sentence, and what the tags mean."""
    names = dict.fromkeys(itertools.chain.from_iterable(sequences))
    index = {name: i for i, name in enumerate(names)}
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    flat = map(index.__getitem__, itertools.chain.from_iterable(sequences))
    ids = np.fromiter(flat, np.int32, int(lengths.sum()))
    return ids, np.repeat(np.arange(len(sequences)), lengths), TagMeanings.of(tuple(names))


def _letters(names: Sequence[str]) -> tuple[set[str], list[str]]:
    """The letters of the prefixes of tags, and the tags without one."""
    codes = {name: split_tag(name)[0] for name in names}
    return {name[0] for name in names if codes[name] > OUT}, [name for name in names if codes[name] == PLAIN]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entities:
    """The entities of one tagging, in the order of the words.

    Attributes:
        start: int64 `[n]`, each entity's first word, counted over all sentences.
        end: int64 `[n]`, the word after its last word.
        type: int32 `[n]`, an index of `TagMeanings.type_names`.
    """

    start: np.ndarray
    end: np.ndarray
    type: np.ndarray

    def __len__(self) -> int:
        return len(self.start)

    def by_word(self, num_words: int) -> np.ndarray:
        """The entity of each word: int64 `[num_words]`, -1 for none."""
        words = np.arange(num_words)
        found = np.searchsorted(self.start, words, side="right") - 1
        return np.where(words < np.append(self.end, 0)[found], found, -1)


def find_entities(
    ids: np.ndarray,
    sentences: np.ndarray,
    meanings: TagMeanings,
    *,
    strict: bool = False,
    starts: np.ndarray | None = None,
) -> Entities:
    """The entities of tagged words.

    As in conlleval, each word with a prefix is in an entity, and an `I-` that cannot continue the previous entity
    starts a new one. Strict entities are those that the scheme allows: they start with a `B-` if tags have one, and
    where tags have `E-` or `S-`, they end with an `E-` or are a single `S-`. With `strict`, the others are left out.

    Args:
        ids: Integers `[num_words]`, the ids of the tags.
        sentences: Integers `[num_words]`, equal for the words of one sentence, which are consecutive.
        meanings: The meanings of the tags.
        strict: Leave out entities that the scheme does not allow.
        starts: bool `[num_words]`: which words start an entity; None: as the tags say.
    """
    with tf.device("CPU:0"):
        tags, sentences = tf.constant(ids, tf.int64), tf.constant(sentences, tf.int64)
        found = entities_in_graph(tags, sentences, meanings, strict=strict, starts=starts)
    return Entities(start=found.start.numpy(), end=found.end.numpy(), type=found.type.numpy())


def entities_in_graph(
    tags: tf.Tensor, texts: tf.Tensor, meanings: TagMeanings, *, strict: bool, starts: Any = None
) -> Entities:
    """The entities that `find_entities` finds, as tensors; arguments as there, int64."""
    prefix, kind, *before = _in_graph(tags, texts, meanings)
    is_start = _are_starts(prefix, kind, *before) if starts is None else starts
    start = tf.where(is_start)[:, 0]
    stops = tf.concat([tf.where(is_start | (prefix <= OUT))[:, 0], [tf.size(tags, tf.int64)]], 0)
    end = tf.gather(stops, tf.searchsorted(stops, start, side="right"))
    if strict:
        first, last = tf.gather(prefix, start), tf.gather(prefix, end - 1)
        kept = (first == BEGIN) | (BEGIN not in meanings.prefixes)
        if (meanings.prefixes >= END).any():
            kept = (kept & (last == END)) | (first == SINGLE)
        start, end = tf.boolean_mask(start, kept), tf.boolean_mask(end, kept)
    return Entities(start=start, end=end, type=tf.gather(kind, start))


def are_correct(gold: Entities, predicted: Entities) -> np.ndarray:
    """Whether each predicted entity is right, in boundaries and type: bool `[len(predicted)]`."""
    # An entity is the only one of its tagging with its start.
    place = np.searchsorted(gold.start, predicted.start)
    pairs = ((gold.start, predicted.start), (gold.end, predicted.end), (gold.type, predicted.type))
    return np.logical_and.reduce([np.append(ours, -1)[place] == theirs for ours, theirs in pairs])


def entity_metrics(gold: Entities, predicted: Entities) -> dict[str, float]:
    """`precision`, `recall` and `f1` over all entities of all types, 0 where they are undefined."""
    return ratios(int(are_correct(gold, predicted).sum()), len(predicted), len(gold))


def per_type(gold: Entities, predicted: Entities, type_names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and the number of entities of each type.

    Args:
        gold: The right entities.
        predicted: The predicted entities of the same words.
        type_names: In the order of `Entities.type`.

    Returns:
        By type: `precision`, `recall` and `f1`, 0 where they are undefined, and `entities`, how many are right ones.
    """
    size = len(type_names)
    hits = np.bincount(predicted.type[are_correct(gold, predicted)], minlength=size)
    found, actual = np.bincount(predicted.type, minlength=size), np.bincount(gold.type, minlength=size)
    return {
        name: ratios(hits[i], found[i], actual[i]) | {"entities": int(actual[i])} for i, name in enumerate(type_names)
    }


def word_accuracy(gold_ids: np.ndarray, predicted_ids: np.ndarray) -> float:
    """The share of words with the right tag, prefix included, as conlleval prints it; 0 if there are no words."""
    return float(np.mean(gold_ids == predicted_ids)) if len(gold_ids) else 0.0


def type_confusion(gold: Entities, predicted: Entities, num_types: int) -> tuple[np.ndarray, np.ndarray]:
    """Which types are taken for which, which entities are missed, and which are made up.

    Args:
        gold: The right entities.
        predicted: The predicted entities of the same words.
        num_types: The number of all types, also those that do not occur.

    Returns:
        int64 `[num_types + 1, num_types + 1]`. Rows are the types of right entities. Columns are the types of the
        predicted entities in their place: for each right entity, the predicted one that shares most words with it; of
        equals, the one of the same type, then the first. The last column counts right entities that no predicted one
        touches, the last row predicted entities that touch no right one. So each row but the last sums to the number
        of entities of its type.

        int64 `[num_types]`: how many of those on the diagonal have other boundaries, and so are wrong.
    """
    num_words = int(max([0, *gold.end[-1:], *predicted.end[-1:]]))
    of_gold, of_predicted = gold.by_word(num_words), predicted.by_word(num_words)
    shared = (of_gold >= 0) & (of_predicted >= 0)
    width = max(len(predicted), 1)
    pairs, num_shared = np.unique(of_gold[shared] * width + of_predicted[shared], return_counts=True)
    right, other = pairs // width, pairs % width
    is_same = gold.type[right] == predicted.type[other]
    best_first = np.lexsort((other, ~is_same, -num_shared, right))
    right, other = right[best_first], other[best_first]
    touched, first = np.unique(right, return_index=True)

    columns = np.full(len(gold), num_types)
    columns[touched] = predicted.type[other[first]]
    counts = np.zeros((num_types + 1, num_types + 1), np.int64)
    np.add.at(counts, (gold.type, columns), 1)
    made_up = np.ones(len(predicted), bool)
    made_up[other] = False
    counts[num_types, :num_types] = np.bincount(predicted.type[made_up], minlength=num_types)
    hits = np.bincount(predicted.type[are_correct(gold, predicted)], minlength=num_types)
    return counts, np.diag(counts)[:num_types] - hits
