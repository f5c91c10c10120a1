"""The source of tagged sentences, and their tags as they are usually written, in the scheme of a model."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Container

from tfbert.config.counted import counted
from tfbert.config.data import DataConfig
from tfbert.data.label_names import given_names, named_labels
from tfbert.data.rows import Source
from tfbert.errors import UsageError
from tfbert.tasks.classes import quoted
from tfbert.tasks.tagging.tagged import TaggedTable, read_sentences
from tfbert.tasks.tagging.tags import invalid_transitions, look_like_entities, read_forms, scheme_of, to_scheme


def read_named(source: Source, config: DataConfig) -> TaggedTable:
    """The sentences that an option names, their tags as its `label_names` name them."""
    if not config.header:
        raise UsageError(
            "Files of tagged words have no header, or must have one where each row holds a word. "
            f"Received: header={config.header}. Drop --noheader."
        )
    return _named(read_sentences(source, config), given_names(config))


def _named(table: TaggedTable, names: tuple[str, ...]) -> TaggedTable:
    """The same sentences with the names that the user gives to their tags, if any."""
    if not names or table.tags is None:
        return table
    distinct = dict.fromkeys(tag for tags in table.tags for tag in tags)

    def where(tag: str) -> str:
        return table.where(next(row for row, tags in enumerate(table.tags) if tag in tags))

    written = named_labels(distinct, names, where)
    return dataclasses.replace(table, tags=[[written[tag] for tag in tags] for tags in table.tags])


def in_usual_form(
    table: TaggedTable, notes: list[str], *, model_has_entities: bool = True, known: Container[str] = ()
) -> TaggedTable:
    """The same table with entity tags as they are usually written: `B_PER`, `PER-B` and `b-PER` become `B-PER`, a bare
    `B` becomes `B-ENTITY`. Other tags stay as they are.

    Args:
        table: As it was written.
        notes: Receives the form that was found, and a warning about tags that look like entity tags but stay.
        model_has_entities: Whether the model's tags are entity tags. If not, tags stay as they are.
        known: Tags that are classes although they are no entity tags: the model's own.

    Raises:
        UsageError: for a few tags that are no entity tags among many that are.
    """
    counts = collections.Counter(itertools.chain.from_iterable(table.tags))
    reading = read_forms(counts)
    if reading is not None and (foreign := reading.foreign(known)):
        row = next(row for row, tags in enumerate(table.tags) if foreign in tags)
        word = table.tags[row].index(foreign)
        kinds, words = sum(tag not in known for tag in reading.others), sum(reading.others.values())
        where = table.where_word(row, word)
        raise UsageError(
            f"Where tags have prefixes, such as {reading.example}, all but O have one. "
            f"Received: {quoted(foreign)} for {quoted(table.words[row][word])} in {where}; "
            f"such tags are {kinds:,}, of {words:,} words, beside {reading.num_words:,} words with a prefix. "
            "Correct the tag, or delete the line if it is no word."
        )
    if reading is not None and reading.is_certain and model_has_entities:
        if reading.form.is_usual:
            return table
        usual = {tag: reading.form.usual(tag) or "O" for tag in counts}
        notes.append(f"{table.name}: tags are written as {reading.example}, read as {usual[reading.example]}")
        return dataclasses.replace(table, tags=[[usual[tag] for tag in tags] for tags in table.tags])
    if (reading is not None and reading.is_certain and not reading.form.is_usual) or look_like_entities(counts):
        tags = ", ".join([quoted(tag) for tag in counts if tag != "O"][:4])
        todo = (
            "name them with --label_names=O,B-PER,..."
            if all(map(str.isdigit, counts))
            else "write them as B-PER and I-PER, and O elsewhere"
        )
        notes.append(
            f"warning: {table.name}: these look like entity tags ({tags}), but each is a class of words: whole "
            f"entities are not counted; for that, {todo}"
        )
    return table


def in_scheme(target: str, table: TaggedTable, notes: list[str], *, strict: bool = False) -> list[list[str]]:
    """A table's tags in the scheme of a model; as written where they have no prefixes, or the model's have none.

    Args:
        target: The model's scheme, as `scheme_of_model` returns it.
        table: As it was written.
        notes: Receives the scheme that was found, and tags that cannot stand where they do.
        strict: Refuse such tags.

    Raises:
        UsageError: if `strict`, for a tag that cannot stand where it does in its scheme.
    """
    scheme = scheme_of(table.tags)
    what = f"are {scheme.name}" if scheme.has_entities else "have no prefixes"
    is_converted = scheme.has_entities and target not in (scheme.name, "none")
    converted = f", converted to {target}" * is_converted
    notes.append(f"{table.name}: tags {what}{scheme.doubt}{converted}")
    bad = invalid_transitions(table.tags, scheme)
    if bad is not None:
        after = f"{bad.tag!r} after {bad.previous!r}" if bad.previous else f"{bad.tag!r} at the start"
        after = after if bad.tag else f"{bad.previous!r} at the end"
        what = f"{counted(bad.count, 'tag')} out of place in {scheme.name}, the first {after}"
        if strict:
            raise UsageError(
                "With strict_entities, every tag must be able to follow the one before. "
                f"Received: {what} in the sentence of {table.where(bad.sentence)}. "
                "Correct them, or drop --strict_entities."
            )
        notes.append(
            f"warning: {table.name}: {what} in the sentence of {table.unit} {table.lines[bad.sentence]}: each starts "
            "an entity, as for conlleval"
        )
    # In IOB2, what cannot stand where it does is written as the entity that it starts.
    is_written = is_converted or scheme.name == target == "IOB2"
    return to_scheme(table.tags, scheme, target) if is_written else [list(tags) for tags in table.tags]
