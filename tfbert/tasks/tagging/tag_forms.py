"""The forms in which entity tags are written (`B-PER`, `B_PER`, `PER-B`, `b-per`, a bare `B`), and tags that do not fit
the others of their data.

A form is found from all tags of a data set together. No single tag says what it is: `I` is also a pronoun's, and `S-1`
the name of a class.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Container, Mapping

PREFIXES = "BIESMLU"
"""The letters of all schemes: beginning, inside, end, single; in BMES M is inside; in BILOU L is the end, U single."""
BARE_TYPE = "ENTITY"
"""The type of entities in data whose tags are bare letters."""
PLACEHOLDERS = frozenset({"X", "_", "-", "-X-", "PAD", "[PAD]", "<PAD>", "<pad>", "[CLS]", "[SEP]", "IGNORE", "-100"})
"""What files write for words, or pieces of words, that have no tag of their own."""

_OUTSIDE_WORDS = frozenset({"o", "0", "out", "outside", "other", "none", "null", "nil", "na", "n/a"})
_SPELLED = re.compile(
    "(beg(in(ning)?)?|start|in(side|ner)?|intermediate|mid(dle)?|cont(inue|inuation)?|end|last|single(ton)?|unit)",
    re.IGNORECASE,
)
"""How some write the letters of a scheme."""
_FEW_WORDS, _FEW_SHARE = 3, 0.1
"""Foreign tags are few if they have no more words than this, or than this share of the words in entities."""
_MOSTLY = 0.5
"""Where so many words have a tag of the form, or `O`, very many different foreign tags are no classes either."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagForm:
    """One way to write entity tags.

    Attributes:
        separator: What is between the letter and the type; empty: there is no type.
        is_suffix: Whether the letter comes last.
        is_lower: Whether letters are small; then `o` is outside as well as `O`.
    """

    separator: str
    is_suffix: bool = False
    is_lower: bool = False

    @property
    def is_usual(self) -> bool:
        """Whether this is `B-PER`, the form that all others are turned into."""
        return self == _USUAL

    @property
    def example(self) -> str:
        """How it writes a `B`."""
        if not self.separator:
            return "b" if self.is_lower else "B"
        return (
            "".join(("b", self.separator, "per")[:: -1 if self.is_suffix else 1])
            if self.is_lower
            else (f"PER{self.separator}B" if self.is_suffix else f"B{self.separator}PER")
        )

    def is_outside(self, tag: str) -> bool:
        """Whether a tag says that a word is in no entity."""
        return tag == "O" or (self.is_lower and tag == "o")

    def letter(self, tag: str) -> str:
        """The letter of a tag of this form, as a capital; empty for `O` and for tags of other forms."""
        return self._split(tag)[0]

    def usual(self, tag: str) -> str:
        """A tag of this form, or `O`, as it is usually written: `B-PER`."""
        letter, kind = self._split(tag)
        return f"{letter}-{kind}" if letter else "O"

    def fits(self, tag: str) -> bool:
        """Whether a tag has this form, or is `O`."""
        return self.is_outside(tag) or bool(self.letter(tag))

    def _split(self, tag: str) -> tuple[str, str]:
        if not self.separator:
            letter, kind = tag, BARE_TYPE
        elif self.is_suffix:
            kind, _, letter = tag.rpartition(self.separator)
        else:
            letter, _, kind = tag.partition(self.separator)
        letters = PREFIXES.lower() if self.is_lower else PREFIXES
        return (letter.upper(), kind) if len(letter) == 1 and letter in letters and kind else ("", "")


_USUAL = TagForm(separator="-")
_FORMS = tuple(
    TagForm(separator=separator, is_suffix=is_suffix, is_lower=is_lower)
    for is_lower, is_suffix, separator in itertools.product((False, True), (False, True), "-_:/")
) + (TagForm(separator=""), TagForm(separator="", is_lower=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagReading:
    """The form that fits most tags of a data set, and what does not fit.

    Attributes:
        form: The form.
        num_words: How many words have a tag of this form.
        num_outside: How many words are `O`.
        letters: The letters of its tags, as capitals.
        others: How many words have each of the other tags.
        num_tags: How many different tags have this form.
    """

    form: TagForm
    num_words: int
    num_outside: int
    letters: frozenset[str]
    others: Mapping[str, int]
    num_tags: int

    @property
    def is_certain(self) -> bool:
        """Whether all tags are of the form and must be entity tags. Forms other than `B-PER` need more than letters
        that could be something else: a B or an I, and an `O` or a second letter."""
        return not self.others and self.is_plausible

    @property
    def is_plausible(self) -> bool:
        """Whether the tags that have the form must be entity tags, whatever the others are."""
        if self.form.is_usual:
            return True
        has_usual_letter = bool(self.letters & {"B", "I"})
        if not self.form.separator:
            return has_usual_letter and self.num_outside > 0
        return has_usual_letter and (self.num_outside > 0 or len(self.letters) > 1)

    def foreign(self, known: Container[str] = ()) -> str:
        """The first tag that cannot be a class beside entity tags: it and others like it are few, or of so many kinds
        that they must be something else, such as dates. Empty if there is none.

        Args:
            known: Tags that are classes all the same.
        """
        found = {tag: count for tag, count in self.others.items() if tag not in known}
        if found and not self.num_outside and self.letters & {"B", "I"} and all(map(_is_like_outside, found)):
            return next(iter(found))
        found = {tag: count for tag, count in found.items() if tag not in PLACEHOLDERS}
        if not found or not (self.form.is_usual or (self.is_plausible and self.num_outside)):
            return ""
        words = sum(found.values())
        few = max(_FEW_WORDS, _FEW_SHARE * self.num_words)
        is_few = words <= few and words < self.num_words
        total = words + self.num_words + self.num_outside
        is_mostly = self.num_words > 0 and self.num_words + self.num_outside >= _MOSTLY * total
        return next(iter(found)) if is_few or (is_mostly and len(found) > max(10, 2 * self.num_tags)) else ""


def read_forms(counts: Mapping[str, int]) -> TagReading | None:
    """The form that fits most tags of a data set; None if no tag has any.

    Args:
        counts: How many words have each tag, in the order of their first words.
    """

    def fitting(form: TagForm) -> tuple[int, int]:
        own = [count for tag, count in counts.items() if form.letter(tag)]
        return len(own), sum(own)

    form = max(_FORMS, key=fitting)  # Of equals, the first.
    num_tags, num_words = fitting(form)
    if not num_words:
        return None
    return TagReading(
        form=form,
        num_words=num_words,
        num_outside=sum(count for tag, count in counts.items() if form.is_outside(tag)),
        letters=frozenset(filter(None, map(form.letter, counts))),
        others={tag: count for tag, count in counts.items() if not form.fits(tag)},
        num_tags=num_tags,
    )


def _is_like_outside(tag: str) -> bool:
    """Whether a tag must mean `O` where most words have it: a word such as `none`, or a sign such as `_`."""
    return tag.casefold() in _OUTSIDE_WORDS or not any(map(str.isalnum, tag))


def look_like_entities(counts: Mapping[str, int]) -> bool:
    """Whether tags of no form that is read look like entity tags all the same.

    They do if half of the words have the tag `O`, or one that must mean it; if most other tags come in pairs that
    differ in a B and an I alone; if some have these letters as words, as `Begin-PER`, `Inside-PER`; or if they are
    brackets as in `(PER*`, `*)`.

    Args:
        counts: How many words have each tag.
    """
    tags = [tag for tag in counts if not _is_like_outside(tag)]
    if not tags:
        return False
    if 2 * sum(count for tag, count in counts.items() if _is_like_outside(tag)) >= sum(counts.values()):
        return True
    parts = [re.split("[-_:/.+]", tag) for tag in tags]
    spelled = {end.lower() for own in parts for end in (own[0], own[-1]) if len(own) > 1 and _SPELLED.fullmatch(end)}
    if len(spelled) > 1:
        return True
    if sum(bool(_BRACKETS.fullmatch(tag)) for tag in tags) == len(tags):
        return True
    kinds: dict[str, set[str]] = collections.defaultdict(set)
    for tag in tags:
        core = tag.strip("()[]<>{}*")
        for letter, kind in ((core[:1], core[1:]), (core[-1:], core[:-1])):
            if letter.upper() in ("B", "I"):
                kinds[kind.strip(" -_:/.|+#")].add(letter.upper())
    return 2 * sum(2 for letters in kinds.values() if len(letters) == 2) > len(tags)


_BRACKETS = re.compile(r"\(?[^()*]*\*\)?|\*+|\([^()*]+\)")
