"""How much of a corpus a vocabulary does not know: words that become `[UNK]`, counted, warned of, or refused."""

from __future__ import annotations

import collections
import logging
import re
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.corpus.documents import Source
from tfbert.corpus.recipe import Recipe
from tfbert.errors import UsageError
from tfbert.tokens.tokenizer import BertTokenizer

log = logging.getLogger("tfbert")

MANY, NEARLY_ALL = 0.03, 0.9
"""Shares of unknown words. Vocabularies that fit have below 0.5%; Chinese text and English vocabularies 60%."""
_MOST_PARTS, _MOST_CHARACTERS = 32, 1 << 20  # Of a sample.
_MOST_WORDS, _SHOWN, _SHOWN_CHARACTERS = 1000, 3, 20
_WORD = re.compile(r"\w+|[^\w\s]")


def counted(recipe: Recipe, tokens: np.ndarray) -> dict[str, int]:
    """The number of words in tokens, and how many of them are unknown; marks of punctuation are no words.

    Args:
        recipe: Holds the vocabulary.
        tokens: int32 [tokens], without special tokens.

    Returns:
        `words`, all of them, and `unknown_words`, which are `[UNK]`.
    """
    unknown = recipe.vocab.index("[UNK]")
    begins_word = np.array([not token.startswith("##") and any(map(str.isalnum, token)) for token in recipe.vocab])
    begins_word[unknown] = True
    counts = np.bincount(tokens, minlength=len(recipe.vocab))
    return {"words": int(counts[begins_word].sum()), "unknown_words": int(counts[unknown])}


def share_of(totals: dict[str, Any]) -> float:
    """The share of unknown words."""
    return totals["unknown_words"] / max(totals["words"], 1)


def check_sample(source: Source, recipe: Recipe) -> None:
    """Refuses a corpus before any record of it is made, by the beginnings of some parts.

    Raises:
        UsageError: if nearly all of their words are unknown.
    """
    tokenizer = BertTokenizer(recipe.vocab, **dict(recipe.casing))
    tokens = tokenizer.tokenize(tf.constant(_sample(source), tf.string)).values.numpy()
    found = counted(recipe, tokens)
    if share_of(found) >= NEARLY_ALL:
        _refuse(source, recipe, found, "of a sample of ")


def check_totals(source: Source, recipe: Recipe, totals: dict[str, Any]) -> None:
    """Warns of a corpus with many unknown words.

    Args:
        source: The corpus.
        recipe: How its records are made.
        totals: With what `counted` returns, summed.

    Raises:
        UsageError: if nearly all are unknown.
    """
    share = share_of(totals)
    if share >= NEARLY_ALL:
        _refuse(source, recipe, totals, "of ")
    if share >= MANY:
        log.warning(
            "%s of %s%s are unknown to the vocabulary: they become [UNK], and a model learns to predict that. %s",
            _how_many(totals),
            source.name,
            _examples(source, recipe),
            _reason(recipe),
        )


def _refuse(source: Source, recipe: Recipe, found: dict[str, Any], what: str) -> None:
    raise UsageError(
        "The vocabulary must know the words of the corpus. "
        f"Received: {_how_many(found)} {what}{source.name}{_examples(source, recipe)} are unknown, [UNK]. "
        f"{_reason(recipe)}"
    )


def _how_many(found: dict[str, Any]) -> str:
    return f"{100 * share_of(found):.1f}% of the {found['words']:,} words"


def _reason(recipe: Recipe) -> str:
    advice = "Pass the --vocab_file of a model for this text, or --learn_vocab."
    if not dict(recipe.casing)["do_lower_case"] and not any(map(_has_capital, recipe.vocab)):
        return (
            "The vocabulary has no capital letters, but text is not lower-cased for it: set do_lower_case to true in "
            "the tokenizer_config.json beside it."
        )
    return f"It is of another language or script than the text, or the text is none, such as base64. {advice}"


def _has_capital(token: str) -> bool:
    """Whether a token has capital letters; `[CLS]` and `[unused7]` do not count."""
    return not token.startswith("[") and token != token.lower()


def _examples(source: Source, recipe: Recipe) -> str:
    """The most frequent unknown words of the corpus's beginnings, for a message."""
    counts = collections.Counter(word for text in _sample(source) for word in _WORD.findall(text))
    words = [word for word, _ in counts.most_common(_MOST_WORDS)]
    tokenizer = BertTokenizer(recipe.vocab, **dict(recipe.casing))
    is_unknown = tf.reduce_any(tokenizer.tokenize(tf.constant(words, tf.string)) == tokenizer.unk_id, axis=1).numpy()
    unknown = [word for word, flag in zip(words, is_unknown, strict=True) if flag][:_SHOWN]
    shown = [repr(word[:_SHOWN_CHARACTERS] + "..." * (len(word) > _SHOWN_CHARACTERS)) for word in unknown]
    return f", such as {', '.join(shown)}," if shown else ""


def _sample(source: Source) -> list[str]:
    """Sentences from the beginnings of parts all over the corpus."""
    parts = source.parts()
    chosen = parts[:: -(-len(parts) // _MOST_PARTS)] if parts else []
    out = []
    for part in chosen:
        left = _MOST_CHARACTERS // len(chosen)
        for document in source.read(part):
            for sentence in document:
                out.append(sentence.encode("utf-8", "ignore").decode())
                left -= len(sentence)
            if left <= 0:
                break
    return out
