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
PLAIN, OUT, BEGIN, INSIDE, END, SINGLE = range(6)
"""What a tag's prefix means: none as in `NOUN`; `O` itself; and those of entities, in the order of classes."""
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


def form_of(counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """How many words have each tag of the form that fits most tags, `B-PER` or letters alone; and each other but `O`.

    Args:
        counts: How many words have each tag of a data set, in the order of their first words.
    """
    usual, bare = ({tag: n for tag, n in counts.items() if form.fullmatch(tag)} for form in (_USUAL, _BARE))
    own = bare if len(bare) > len(usual) else usual
    return own, {tag: n for tag, n in counts.items() if tag not in own and tag != OUTSIDE}


def must_be_entities(own: Mapping[str, int], counts: Mapping[str, int]) -> bool:
    """Whether the tags that have the form are entity tags, whatever the others are: letters alone need a B or an I, and
    an `O`. Arguments as `form_of` returns and takes them."""
    is_bare = own.keys() <= _CODES.keys()
    return bool(own) and (not is_bare or (bool(own.keys() & {"B", "I"}) and OUTSIDE in counts))


def foreign_tag(counts: Mapping[str, int], known: Container[str] = ()) -> str:
    """The first tag that cannot be a class beside entity tags: it and others like it are few, or of so many kinds that
    they must be something else, such as dates. Empty if there is none.

    Args:
        counts: As for `form_of`.
        known: Tags that are classes all the same.
    """
    own, others = form_of(counts)
    found = {tag: count for tag, count in others.items() if tag not in known}
    if found and OUTSIDE not in counts and any(tag[0] in "BI" for tag in own) and all(map(_is_like_outside, found)):
        return next(iter(found))
    found = {tag: count for tag, count in found.items() if tag not in _PLACEHOLDERS}
    if not found or not must_be_entities(own, counts):
        return ""
    words, fitting, outside = sum(found.values()), sum(own.values()), counts.get(OUTSIDE, 0)
    is_few = words <= max(_FEW_WORDS, _FEW_SHARE * fitting) and words < fitting
    are_most = fitting + outside >= _MOSTLY * (words + fitting + outside) and len(found) > max(10, 2 * len(own))
    return next(iter(found)) if is_few or are_most else ""


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
    own, others = form_of(counts)
    is_read = must_be_entities(own, counts) and any(tag[0] in "BI" for tag in own)
    return are_of_another_form(counts) or (is_read and 10 * sum(others.values()) <= sum(counts.values()))


def look_like_types(counts: Mapping[str, int]) -> bool:
    """Whether tags may be the types of entities alone: half of the words are `O`, or have a tag that must mean it.

    Args:
        counts: How many words have each tag.
    """
    num_words, num_outside = sum(counts.values()), sum(n for tag, n in counts.items() if _is_like_outside(tag))
    return num_words <= 2 * num_outside < 2 * num_words


class TagMeanings:
    """What each of a set of tags means, by its id.

    Args:
        names: The tags, which must all be different.

    Attributes:
        prefixes: int32 `[num_tags]`, `PLAIN` to `SINGLE`.
        types: int32 `[num_tags]`, indexes of `type_names`; -1 for `O`. The type of a tag without a prefix is the tag.
        type_names: In alphabetical order.
    """

    def __init__(self, names: Sequence[str]):
        split = [split_tag(name) for name in names]
        self.type_names = tuple(sorted({kind for code, kind in split if code != OUT}))
        index = {name: i for i, name in enumerate(self.type_names)}
        self.prefixes = np.array([code for code, _ in split], np.int32)
        self.types = np.array([-1 if code == OUT else index[kind] for code, kind in split], np.int32)


def split_tag(tag: str) -> tuple[int, str]:
    """A tag's prefix, `PLAIN` to `SINGLE`, and its type: `(BEGIN, "PER")`, `(OUT, "")`, `(PLAIN, "NOUN")`."""
    if tag == OUTSIDE:
        return OUT, ""
    code = _CODES.get(tag[0], PLAIN) if tag[1:2] == "-" and len(tag) > 2 else PLAIN
    return (code, tag[2:]) if code != PLAIN else (PLAIN, tag)


def scheme_of_model(names: Sequence[str]) -> str:
    """The scheme that a model with these tags writes: `IOB2`, `BIOES`, `BILOU`, `BMES`, `IO`, or `none` for tags
    without prefixes, as parts of speech.

    `B` and `I` alone are IOB2: a model of IOB1 has the same tags, and the entities are the same.
    """
    letters, plain = _letters(names)
    if plain:
        return "none"
    if letters - {"B", "I"}:
        return "BILOU" if letters & {"L", "U"} else "BMES" if "M" in letters else "BIOES"
    return "IO" if letters == {"I"} else "IOB2"


def _letters(names: Sequence[str]) -> tuple[set[str], list[str]]:
    """The letters of the prefixes of tags, and the tags without one."""
    codes = {name: split_tag(name)[0] for name in names}
    return {name[0] for name, code in codes.items() if code > OUT}, [name for name in codes if codes[name] == PLAIN]


class TagSequences:
    """The tags of a data set's sentences, and the scheme that they follow together.

    With only the prefixes `B` and `I`, it is IOB2 if no `I-` starts an entity, and IOB1 if every `B-` directly follows
    an entity of its own type, as it must there. If both rules are broken, it is the one that is broken less often. The
    entities are the same either way; only which tags are invalid differs.

    Args:
        sequences: One per sentence.

    Attributes:
        scheme: As `scheme_of_model` has it, or `IOB1`.
        doubt: What speaks against this scheme, or which other it could be, to follow `tags are ...`; may be empty.
    """

    def __init__(self, sequences: Sequence[Sequence[str]]):
        self._sequences = sequences
        self._names = list(dict.fromkeys([*itertools.chain.from_iterable(sequences), OUTSIDE]))
        index = {name: i for i, name in enumerate(self._names)}
        # An O after each sentence, so that its end is like any other place.
        flat = (index[tag] for tags in sequences for tag in (*tags, OUTSIDE))
        self._lengths = np.array([len(tags) + 1 for tags in sequences], np.int64)
        self._ids = np.fromiter(flat, np.int64)
        self._sentences = np.repeat(np.arange(len(sequences)), self._lengths)
        self._meanings = TagMeanings(self._names)
        with tf.device("CPU:0"):
            places = tf.constant(self._ids), tf.constant(self._sentences)
            self._places = [part.numpy() for part in _with_previous(*places, self._meanings)]
        letters, plain = _letters(self._names)
        self.scheme, self.doubt = scheme_of_model(self._names), ""
        if plain and letters:
            listed = ", ".join(f"{letter}-" for letter in sorted(letters))
            self.doubt = f", although {listed} occur too: {plain[0]!r} has no prefix"
        elif not plain and not letters:
            self.doubt = ", although there is no entity"
        elif letters == {"B"}:
            self.doubt = ", all entities have one word: no I- occurs"
        elif letters == {"I"}:
            self.doubt = ", or IOB1 where no entities touch: the entities are the same"
        elif letters == {"B", "I"} and self._are_invalid("IOB1").sum() < self._are_invalid("IOB2").sum():
            self.scheme = "IOB1"

    @property
    def starts(self) -> np.ndarray:
        """Which words start an entity, by the rules of `find_entities`: bool `[num_words]`."""
        return np.delete(_are_starts(*self._places), np.cumsum(self._lengths) - 1)

    def written_in(self, target: str) -> list[list[str]]:
        """The same entities in another scheme; tags without prefixes as they are. The entities are those that conlleval
        finds: each word that is in an entity stays in one. In IO, entities of one type that touch become one.

        Args:
            target: `IOB2`, `BIOES`, `BILOU`, `BMES` or `IO`.
        """
        if self.scheme == "none":
            return [list(tags) for tags in self._sequences]
        starts = _are_starts(*self._places)
        goes_on = (self._meanings.prefixes[self._ids] > OUT) & ~starts
        ends = ~np.append(goes_on, False)[1:]  # Where the next word does not continue the entity.
        split = list(zip(self._names, self._meanings.prefixes.tolist(), strict=True))
        names = np.array(
            [[f"{letter}-{name[2:]}" if code > OUT else name for name, code in split] for letter in _WRITTEN[target]],
            object,
        )
        flat, stops = names[starts + 2 * ends, self._ids].tolist(), np.cumsum(self._lengths).tolist()
        return [flat[stop - 1 - len(tags) : stop - 1] for tags, stop in zip(self._sequences, stops, strict=True)]

    def _are_invalid(self, scheme: str) -> np.ndarray:
        """Which words, or ends of sentences, cannot stand where they do in a scheme.

        In IOB2, an `I-` must follow a `B-` or `I-` of its type; in IOB1, a `B-` must. In BIOES, BILOU and BMES, an
        entity that has begun must also end. In IO, and without prefixes, all tags may follow one another.
        """
        prefix, kind, before, kind_before = self._places
        is_same = (before != OUT) & (kind == kind_before)
        if scheme in ("none", "IO"):
            return np.zeros(len(prefix), bool)
        if scheme in ("IOB1", "IOB2"):
            return (prefix == (INSIDE if scheme == "IOB2" else BEGIN)) & ~is_same
        is_open = (before == BEGIN) | (before == INSIDE)
        goes_on = (prefix == INSIDE) | (prefix == END)
        return (is_open != goes_on) | (goes_on & ~is_same)

    def invalid(self) -> tuple[int, str] | None:
        """The first sentence with a tag that cannot follow the previous one in the scheme, from 0; and, in words, how
        many words or ends of sentences cannot stand where they do, and the first. None if there are none."""
        bad = np.flatnonzero(self._are_invalid(self.scheme))
        if not len(bad):
            return None
        sentence = int(self._sentences[bad[0]])
        tags, word = self._sequences[sentence], int(bad[0] - np.searchsorted(self._sentences, sentence))
        first = repr(tags[word]) if word < len(tags) else f"{tags[-1]!r} at the end"
        if word < len(tags):
            first += f" after {tags[word - 1]!r}" if word else " at the start"
        return sentence, f"{counted(len(bad), 'tag')} out of place in {self.scheme}, the first {first}"


def class_names(sequences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """All tags that occur, in the order of classes: `O` first (always, if some tag has a prefix), then by type, `B`
    before `I`."""
    found = set(itertools.chain.from_iterable(sequences))
    split = {tag: split_tag(tag) for tag in found}
    if any(code > OUT for code, _ in split.values()):
        split[OUTSIDE] = (OUT, "")
    return tuple(sorted(split, key=lambda tag: (tag != OUTSIDE, split[tag][1], split[tag][0], tag)))


def _with_previous(tags: tf.Tensor, texts: tf.Tensor, meanings: TagMeanings) -> tuple[tf.Tensor, ...]:
    """Each word's prefix and type, and those of the word before it; at a sentence's start, those of `O`."""
    prefix, kind = (tf.gather(tf.constant(part), tags) for part in (meanings.prefixes, meanings.types))
    follows = texts[1:] == texts[:-1]

    def before(values: tf.Tensor, outside: int) -> tf.Tensor:
        return tf.concat([[outside], tf.where(follows, values[:-1], outside)], 0)[: tf.size(tags)]

    return prefix, kind, before(prefix, OUT), before(kind, -1)


def _are_starts(prefix: Any, kind: Any, before: Any, kind_before: Any) -> Any:
    """Which words start an entity, by conlleval's rules, from what `_with_previous` returns, as tensors or arrays.

    A word in an entity starts it if its own tag says so (`B`, `S`), or if it cannot continue the previous entity: that
    one has ended (`E`, `S`), is of another type, or does not exist in the sentence.
    """
    starts = (prefix == BEGIN) | (prefix == SINGLE) | (before <= OUT) | (before >= END) | (kind != kind_before)
    return starts & (prefix > OUT)


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
    prefix, kind, *before = _with_previous(tags, texts, meanings)
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


def by_type(
    gold: Entities, predicted: Entities, type_names: Sequence[str]
) -> tuple[dict[str, dict[str, float]], np.ndarray, np.ndarray]:
    """What is found of each type; which types are taken for which, which entities are missed, and which are made up.

    Args:
        gold: The right entities.
        predicted: The predicted entities of the same words.
        type_names: In the order of `Entities.type`.

    Returns:
        By type: `precision`, `recall` and `f1`, 0 where they are undefined, and `entities`, how many are right ones.

        int64 `[num_types + 1, num_types + 1]`. Rows are the types of right entities. Columns are the types of the
        predicted entities in their place: for each right entity, the predicted one that shares most words with it; of
        equals, the one of the same type, then the first. The last column counts right entities that no predicted one
        touches, the last row predicted entities that touch no right one. So each row but the last sums to the number
        of entities of its type.

        int64 `[num_types]`: how many of those on the diagonal have other boundaries, and so are wrong.
    """
    size, words = len(type_names), np.arange(int(max([0, *gold.end[-1:], *predicted.end[-1:]])))

    def of_words(entities: Entities) -> np.ndarray:
        """The entity of each word, -1 for none."""
        found = np.searchsorted(entities.start, words, side="right") - 1
        return np.where(words < np.append(entities.end, 0)[found], found, -1)

    pairs = np.stack([of_words(gold), of_words(predicted)])
    (right, other), num_shared = np.unique(pairs[:, (pairs >= 0).all(axis=0)], axis=1, return_counts=True)
    best_first = np.lexsort((other, gold.type[right] != predicted.type[other], -num_shared, right))
    touched, first = np.unique(right[best_first], return_index=True)
    columns = np.full(len(gold), size)
    columns[touched] = predicted.type[other[best_first][first]]
    confusion = np.zeros((size + 1, size + 1), np.int64)
    np.add.at(confusion, (gold.type, columns), 1)
    np.add.at(confusion[size], np.delete(predicted.type, other), 1)
    types = (predicted.type[are_correct(gold, predicted)], predicted.type, gold.type)
    counts = np.stack([np.bincount(own, minlength=size) for own in types], axis=1)
    rows = zip(type_names, counts.tolist(), strict=True)
    table = {name: ratios(*row) | {"entities": row[2]} for name, row in rows}
    return table, confusion, np.diag(confusion)[:size] - counts[:, 0]
