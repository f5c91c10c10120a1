"""Which columns of a CoNLL file hold the words and the tags, judging by its first lines.

Where it is not clear, the file is refused with both columns named: wrong words beside right tags look healthy.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Callable, Sequence

from tfbert.data.endings import IOB_ENDINGS, ending_of
from tfbert.errors import UsageError
from tfbert.tasks.tagging.tag_forms import read_forms

_CONLLU_COLUMNS, _UPOS = 10, 3
_MOST = 0.8  # Of the lines: a few foreign ones do not matter.
_FEW = 0.1  # Of the sentences: accidents.
_MANY = 20  # Different words: with fewer, it says little that another column has more.
_RUNNING, _SAME = "running numbers", "one value for each sentence"
_NUMBERED = re.compile(r"[^\W\d_]+\d+")  # T1 may be a number, but w1 a word.
NO_WORD = re.compile(r"\d+-\d+|\d+\.\d+", re.ASCII)
_COREFERENCE = re.compile(r"\(?\d+\)?(\|\(?\d+\)?)*", re.ASCII)

Blocks = list[list[list[str]]]
"""The columns of the words of each sentence."""


def are_mostly(rows: list[list[str]], column: int, holds: Callable[[str], object]) -> bool:
    """Whether most cells of a column are so."""
    return bool(rows) and sum(bool(holds(row[column])) for row in rows) >= _MOST * len(rows)


def _is_number(cell: str) -> bool:
    """Whether a cell has no letter: `3`, `0-7`, `12:30`, `_`."""
    return not any(map(str.isalpha, cell))


def _has_digits(cell: str) -> bool:
    return any(map(str.isdigit, cell))


def _numbers(cell: str) -> list[int]:
    """All numbers in a cell: 3 and 7 in `3-7`, `3:7` and `s3_7`."""
    return list(map(int, re.findall(r"\d{1,18}", cell)))


def _begins_again(before: str, cell: str) -> bool:
    """Whether running numbers fall back to 0 or 1."""
    return _numbers(cell)[:1] in ([0], [1]) and _numbers(cell) < _numbers(before)


def place_of_words(blocks: Blocks, column: int) -> str:
    """What a column holds if it says where each word is, `_SAME` or `_RUNNING`; empty for any other."""
    num_pairs = same = rising = again = back = 0
    for block in blocks:
        cells = [row[column] for row in block]
        pairs = list(itertools.pairwise(cells))
        own = sum(a == b for a, b in pairs)
        num_pairs, same = num_pairs + len(pairs), same + own
        rising += sum([] < _numbers(a) < _numbers(b) for a, b in pairs)
        again += sum(_begins_again(a, b) for a, b in pairs)
        back += len(cells) - own - len(set(cells))  # A sentence's name does not come back; tags do.
    if num_pairs and 2 * same >= num_pairs and 100 * back <= num_pairs:
        return _SAME
    return _RUNNING if rising and rising >= 2 * again and same + rising + again >= _MOST * num_pairs else ""


def numbers_sentences(blocks: Blocks, column: int) -> bool:
    """Whether a column certainly holds numbers that rise from sentence to sentence."""
    cells = [row[column] for block in blocks for row in block]
    rises = all(_numbers(a) <= _numbers(b) for a, b in itertools.pairwise(cells))
    is_numbers = len(cells) > _MANY and len({*cells}) > 2 and all(map(_is_number, cells))
    return is_numbers and rises and place_of_words(blocks, column) == _SAME


def about_blank_lines(blocks: Blocks, column: int, name: str) -> str:
    """What to say where a column of places begins again inside sentences, but for accidents; else empty."""
    is_same = place_of_words(blocks, column) == _SAME
    pairs = [(a[column], b[column]) for block in blocks for a, b in itertools.pairwise(block)]
    again = [(a, b) for a, b in pairs if (a != b if is_same else _begins_again(a, b))]
    if len(again) <= _FEW * len(blocks):
        return ""
    return (
        "A blank line ends a sentence. "
        f"Received: {name}, where column {column} goes from {again[0][0]!r:.40} to {again[0][1]!r:.40} without one. "
        "Add blank lines; or save it as .csv with the columns' names in its first line, such as sentence_id,word,tag."
    )


def find_text_column(
    blocks: Blocks,
    size: int,
    name: str,
    asked: Sequence[str],
    tag_column: int,
    notes: list[str],
    doubts: list[str],
) -> int:
    """The column of the words.

    Args:
        blocks: The columns of the words of each sentence.
        size: The number of columns.
        name: What messages call the file.
        asked: As the user named it.
        tag_column: A column that is not that of the words; -1 for none.
        notes: Receives what was found.
        doubts: Receives why the user must say which column it is.
    """
    rows = [row for block in blocks for row in block]

    def mostly(column: int, holds: Callable[[str], object]) -> bool:
        return are_mostly(rows, column, holds)

    def num_values(column: int) -> int:
        return len({row[column] for row in rows})

    kinds = [place_of_words(blocks, column) if size > 1 else "" for column in range(size)]
    numbered = [mostly(column, _NUMBERED.fullmatch) for column in range(size)]
    if asked:
        text = column_index("text_column", ",".join(asked), size, name)
        if kinds[text] == _RUNNING and not numbered[text]:
            other = next((column for column in range(text + 1, size) if not kinds[column]), None)
            raise UsageError(
                "A column of running numbers does not hold the words. "
                f"Received: text_column={text} for {name}, where it counts them. "
                + (f"Pass --text_column={other}." if other is not None else "Pass another file.")
            )
        if are_tags(blocks, text):
            raise UsageError(
                "A column of entity tags does not hold the words. "
                f"Received: text_column={text} for {name}, with {blocks[0][0][text]!r:.60}. Pass another."
            )
        return text
    counter = kinds.index(_RUNNING) if _RUNNING in kinds else 0

    def is_place(column: int) -> bool:
        if kinds[column] == _SAME:  # A word may be all of a sentence: "no no".
            return size > 2 and (len(blocks) > 1 or column < counter)
        return kinds[column] == _RUNNING and not numbered[column]

    text = next((column for column in range(size) if not is_place(column) or are_tags(blocks, column)), 0)
    if is_place(text) and kinds[text] == _RUNNING:
        raise UsageError(
            "A CoNLL file needs a column of words. "
            f"Received: {name}, where column {size - 1}, the last, holds {kinds[-1]}. Pass --text_column."
        )
    if are_tags(blocks, text) and not are_tags(blocks, size - 1):
        if size != 2:
            raise UsageError(
                "A CoNLL file needs a column of words. "
                f"Received: {name}, where column {text} holds entity tags. Pass --text_column and --label_column."
            )
        notes.append(f"{name}: the words are in column 1, behind their tags in column 0")
        return 1
    if text:
        notes.append(f"{name}: the words are in column {text}; column 0 holds {kinds[0]}")
    others = [column for column in range(size) if column not in (text, tag_column) and not kinds[column]]
    others = [column for column in others if not mostly(column, _is_number) and not mostly(column, _has_digits)]
    other = max(others, key=num_values, default=None)
    is_odd = kinds[text] or mostly(text, _is_number) or (mostly(text, _has_digits) and not numbered[text])
    is_odd = is_odd and (size > 2 or (kinds[text] and mostly(text, _is_number)))
    if other is not None and (is_odd or num_values(other) >= max(_MANY, 1.5 * num_values(text))):
        shown = {c: ", ".join(map(repr, list(dict.fromkeys(row[c] for row in rows))[:3])) for c in (text, other)}
        about_lines = about_blank_lines(blocks, text, name) if kinds[text] == _SAME else ""
        doubts.append(
            about_lines
            or "It must be clear which column holds the words. "
            f"Received: {name} with {shown[text]} in column {text} and {shown[other]} in column {other}. "
            f"Pass --text_column={other} or --text_column={text}."
        )
    if mostly(text, lambda cell: " " in cell.strip()):
        doubts.append(
            "Tabs separate either all columns or none. "
            f"Received: {name}, where nearly all words hold blanks, such as {rows[0][text]!r:.60} in column {text}. "
            f"Write tabs in their place, or pass --text_column={text} if these are the words."
        )
    return text


def are_tags(blocks: Blocks, column: int) -> bool:
    """Whether a column certainly holds entity tags, all of them."""
    reading = read_forms(collections.Counter(row[column].strip(" ") for block in blocks for row in block))
    return reading is not None and reading.is_certain and bool(reading.form.separator) and reading.num_outside > 0


def find_label_column(
    rows: list[list[str]],
    size: int,
    text: int,
    places: Sequence[int],
    name: str,
    asked: str,
    notes: list[str],
    doubts: list[str],
) -> int:
    """The column of the tags."""
    if asked:
        return column_index("label_column", asked, size, name)
    last = size - 1
    if size == 2 and text == last and are_tags([rows], 0):
        return 0
    entities = [c for c in range(size) if c not in (text, *places) and _holds_entities(rows, c)]
    values = {row[last].strip(" ") for row in rows}
    if last in (text, *entities) or values == {"O"}:
        if places and len(entities) > 1:
            notes.append(f"{name}: the tags are in column {last}, the last; --label_column={entities[-2]} takes others")
        return last
    if len(entities) == 1 and (ending_of(name) in IOB_ENDINGS or len(values) == 1):
        notes.append(f"{name}: the tags are in column {entities[0]}, the only one with entity tags")
        return entities[0]
    if any("(" in value or ")" in value for value in values) and all(
        value in ("-", "_", "*") or _COREFERENCE.fullmatch(value) for value in values
    ):
        if len(entities) == 1:
            notes.append(f"{name}: the tags are in column {entities[0]}; the last holds coreference")
            return entities[0]
        raise UsageError(
            "A column of coreference does not hold the tags. "
            f"Received: {name}, where it is column {last}, the last. Pass --label_column."
        )
    if size == _CONLLU_COLUMNS and 0 in places:
        notes.append(f"{name}: the tags are in column {_UPOS}, UPOS, as this is CoNLL-U; --label_column takes another")
        return _UPOS
    if entities and are_mostly(rows, last, _is_number):
        doubts.append(
            "It must be clear which column holds the tags. "
            f"Received: {name} with numbers in column {last}, the last, and entity tags in column {entities[-1]}. "
            f"Pass --label_column={entities[-1]} or --label_column={last}."
        )
    elif entities:
        notes.append(
            f"warning: {name}: the tags are in column {last}, the last, but column {entities[-1]} holds entity tags; "
            f"--label_column={entities[-1]} takes these"
        )
    return last


def _holds_entities(rows: list[list[str]], column: int) -> bool:
    reading = read_forms(collections.Counter(row[column].strip(" ") for row in rows))
    return (
        reading is not None and sum(reading.others.values()) <= 0.1 * len(rows) and bool(reading.letters & {"B", "I"})
    )


def column_index(flag: str, value: str, size: int, name: str) -> int:
    """The column that an option names; an error where it is none of the file's."""
    if not (value.isascii() and value.isdigit()) or int(value) >= size:
        raise UsageError(
            f"{flag} of a CoNLL file must be a column's index, from 0. "
            f"Received: {flag}={value!r} for {name} with columns 0 to {size - 1}. Pass one of them."
        )
    return int(value)
