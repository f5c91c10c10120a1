"""Finds the columns of the text and the label, or of the words and their tags: those the user names, or else those with
usual names."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from tfbert.config.given import Recorded
from tfbert.data.labels import SPANS
from tfbert.errors import UsageError

TEXT_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("question", "passage"),
    ("text", "text_pair"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("#1 string", "#2 string"),
)
"""Names of two columns that hold a pair, as in GLUE, SNLI, BoolQ and Hugging Face."""
TEXT_NAMES = ("text", "sentence", "content", "review", "review_body", "comment", "comment_text", "tweet")
TEXT_NAMES += ("document", "description")
LABEL_NAMES = (
    ("label",),
    ("labels", "gold_label", "class", "target", "sentiment", "score", "category", "is_duplicate", "quality"),
)
"""Usual names of the label's column; a plain `label` wins over all others."""
SPAN_NAMES = ("entities", "spans", "annotations")
"""Usual names of a column of what is marked in a text, which is no label of it."""
WORDS_NAMES = (("tokens", "words"), ("text",))
"""Usual names of a column whose rows are lists of words, the preferred first: `text` is often the unsplit sentence."""
TAGS_NAMES = (("ner_tags",), ("tags", "labels", "label", "ner", "ner_labels"), ("pos_tags", "upos", "pos"))
"""Usual names of a column whose rows are lists of tags, the preferred first."""
RENAME = "Columns of one name cannot be told apart: rename all but one, or drop them"
"""What to do about them: no option could name one."""
UNLABELLED = "; data without labels is for --mode=predict"
"""The rest of what to do, where the labels' column is missing."""


def named_by_user(*columns: str) -> tuple[str, ...]:
    """Those of these columns that a user named, rather than the training of a saved model."""
    return tuple(column for column in columns if column and not isinstance(column, Recorded))


def in_data(asked: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Columns as a user named them; those of a saved model's training only where all of them are there, in any case.

    Args:
        asked: The columns, all named by one or the other; empty for none.
        columns: Those of the data.
    """
    if named_by_user(*asked):
        return tuple(asked)
    folded = {_folded(column): column for column in reversed(columns)} | {column: column for column in columns}
    found = tuple(folded.get(str(column), folded.get(_folded(column), "")) for column in asked)
    return found if all(found) else ()


def _folded(column: str) -> str:
    return column.strip().casefold()


def about_columns(name: str, found: Mapping[str, Sequence[str]], asked: Mapping[str, Sequence[str]]) -> list[str]:
    """A line about the columns that are read where no user named them.

    Args:
        name: What messages call the data.
        found: The columns that are read, by the options that name them.
        asked: What these options hold.
    """
    own = {option: asked.get(option, ()) for option in found if not named_by_user(*asked.get(option, ()))}
    columns = [column for option in own for column in found[option]]
    trained = [column for option in own for column in own[option] if column]
    lacking = [str(column) for column in trained if _folded(column) not in map(_folded, columns)]
    if not columns and not lacking:
        return []
    read = f"{name}: reading {' and '.join(map(repr, columns)) or 'the usual columns'}"
    if lacking:
        there = "which is not there" if len(lacking) == 1 else "which are not there"
        return [f"warning: {read}; the model was trained on {' and '.join(map(repr, lacking))}, {there}"]
    return [f"{read}, as in training" if trained else f"{read}, found by name"]


def find_columns(
    name: str,
    columns: Sequence[str],
    *,
    text_column: Sequence[str] = (),
    label_column: str = "",
    require_label: bool = True,
    find_label: bool = True,
    hint: str = "",
) -> tuple[tuple[str, ...], str]:
    """Decides which columns hold the text (one, or two for pairs) and the label (`""`: none).

    Args:
        name: What messages call the data.
        columns: All columns there are.
        text_column: As the user named it. Empty: found by name.
        label_column: As the user named it. Empty: found by name.
        require_label: Whether it is an error if no column, or more than one, could be the label.
        find_label: Whether to look for a label column by name. If not, only `label_column` counts.
        hint: What else the user can try, for error messages.

    Raises:
        UsageError: when a named column is absent, or when no column or more than one looks right.
    """
    has = f"Received: {name} with columns {_listed(columns)}."
    text_column, label_column = in_data(text_column, columns), "".join(in_data([label_column], columns))
    by_lower = _asked_for(columns, text_column, label_column, has, hint)
    texts = text_column
    if not texts:
        pairs = [pair for pair in TEXT_PAIRS if all(part in by_lower for part in pair)]
        in_pairs = {part for pair in pairs for part in pair}
        singles = [(single,) for single in TEXT_NAMES if single in by_lower and single not in in_pairs]
        texts = _the_one("text", "text_column", pairs + singles, by_lower, has, hint)
    label = label_column
    if not label and find_label:
        for names in LABEL_NAMES:
            found = [(name,) for name in names if name in by_lower and by_lower[name][0] not in texts]
            if len(found) > 1 and not require_label:
                break
            if found:
                (label,) = _the_one("label", "label_column", found, by_lower, has, hint)
                break
    if not label and find_label and require_label:
        what = _about_spans(by_lower)
        raise UsageError(f"No column looks like the label. {has}{what} Pass --label_column{hint}{UNLABELLED}.")
    if label in texts or len(set(texts)) != len(texts):
        raise UsageError(
            "Text and label must be different columns. "
            f"Received: text_column={','.join(texts)!r}, label_column={label!r}. Pass different ones."
        )
    return texts, label


def are_of_texts(columns: Sequence[str]) -> bool:
    """Whether columns have the usual names of a text and a label."""
    try:
        find_columns("", columns)
    except UsageError:
        return False
    return True


def find_tag_columns(
    name: str,
    columns: Sequence[str],
    *,
    text_column: Sequence[str] = (),
    label_column: str = "",
    require_label: bool = True,
) -> tuple[str, str]:
    """Decides which column holds each row's list of words, and which its list of tags (`""`: none).

    Args:
        name: What messages call the data.
        columns: All columns there are.
        text_column: As the user named it. Empty: found by name.
        label_column: As the user named it. Empty: found by name.
        require_label: Whether it is an error if no column, or more than one, could be the tags.

    Raises:
        UsageError: when a named column is absent, or when no column or more than one looks right.
    """
    has = f"Received: {name} with columns {_listed(columns)}."
    text_column, label_column = in_data(text_column, columns), "".join(in_data([label_column], columns))
    by_lower = _asked_for(columns, text_column, label_column, has)
    if len(text_column) > 1:
        raise UsageError(
            "Words with tags must be in one column. "
            f"Received: text_column={','.join(text_column)!r}. Pass one --text_column."
        )
    words = "".join(text_column)
    for names in () if words else WORDS_NAMES:
        if found := [(name,) for name in names if name in by_lower]:
            (words,) = _the_one("words", "text_column", found, by_lower, has, "")
            break
    if not words:
        raise UsageError(f"No column looks like the words: each row needs a list. {has} Pass --text_column.")
    tags = label_column
    for names in () if tags else TAGS_NAMES:
        found = [(name,) for name in names if name in by_lower and words not in by_lower[name]]
        if found and not require_label and (len(found) > 1 or len(by_lower[found[0][0]]) > 1):
            break
        if found:
            (tags,) = _the_one("tags", "label_column", found, by_lower, has, "")
            break
    if not tags and require_label:
        what = _about_spans(by_lower)
        way_out = f"Pass --label_column{UNLABELLED}"
        raise UsageError(f"No column looks like the tags: each row needs a list. {has}{what} {way_out}.")
    if words == tags:
        raise UsageError(
            "Words and tags must be different columns. "
            f"Received: text_column={words!r}, label_column={tags!r}. Pass different ones."
        )
    return words, tags


def _asked_for(
    columns: Sequence[str], text_column: Sequence[str], label_column: str, has: str, hint: str = ""
) -> dict[str, list[str]]:
    """Checks that the named columns exist. Returns all columns but the label's, by their names in lower case."""
    for flag, wanted in (("text_column", text_column), ("label_column", (label_column,) if label_column else ())):
        for column in wanted:
            if column not in columns:
                way_out = f"Pass --{flag} with one of them{hint}{UNLABELLED if column == label_column else ''}"
                raise UsageError(f"{flag}={column!r} is not in the data. {has} {way_out}.")
            if columns.count(column) > 1:
                raise UsageError(f"{flag}={column!r} is in the data twice. {has} {RENAME}.")
    by_lower: dict[str, list[str]] = {}
    for column in columns:
        if column != label_column:
            by_lower.setdefault(column.strip().lower(), []).append(column)
    return by_lower


def _about_spans(columns: Container[str]) -> str:
    """A sentence, to follow another, about a column that may hold spans; empty for none."""
    name = next((name for name in SPAN_NAMES if name in columns), "")
    return f" {name!r} may hold {SPANS}." if name else ""


def _the_one(what: str, flag: str, found: list, by_lower: dict[str, list[str]], has: str, hint: str) -> tuple[str, ...]:
    if not found:
        raise UsageError(f"No column looks like the {what}. {has} Pass --{flag}{hint}.")
    columns = [column for names in found for name in names for column in by_lower[name]]
    if len(found) > 1 or len(columns) != len(found[0]):
        way_out = RENAME if len(set(columns)) < len(columns) else f"Pass --{flag}"
        raise UsageError(f"{' and '.join(columns)} all look like the {what}. {has} {way_out}.")
    return tuple(columns)


def _listed(columns: Sequence[str]) -> str:
    shown = [f"{column[:37]}..." if len(column) > 40 else column for column in columns[:20]]
    return ", ".join(map(repr, shown)) + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
