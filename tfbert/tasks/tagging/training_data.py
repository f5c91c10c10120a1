"""What a run on tagged words trains and evaluates on: sentences as written -> the task, and its examples."""

from __future__ import annotations

from collections.abc import Sequence

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.data.label_names import given_names
from tfbert.tasks.base import TaskData
from tfbert.tasks.held_out import equal, hold_out
from tfbert.tasks.tables import data_of, read_training_tables
from tfbert.tasks.tagging.source import in_scheme, in_usual_form, sentence_source
from tfbert.tasks.tagging.tags import class_names
from tfbert.tasks.tagging.token_classification import TokenClassification


def load_sentences(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads sentences with a tag for each word."""
    tables, notes = read_training_tables(config, sentence_source(config))
    notes = list(notes)
    for table in tables.values():
        notes += table.notes
    task = TokenClassification(
        _tags_in_order(in_scheme("IOB2", in_usual_form(tables["train"], []), []), given_names(config)),
        label_all_tokens=options.tagging.label_all_tokens,
        strict_entities=options.tagging.strict_entities,
    )
    sets = {name: task.examples(table, notes) for name, table in tables.items()}
    if config.validation_split is not None:
        train = sets["train"]
        groups, strata = equal(train.contents()), train.rarest_tags(len(task.label_names))
        sets = hold_out(sets, config, notes, groups=groups, strata=strata)
    return data_of(task, sets, notes, config, tables["train"].columns)


def _tags_in_order(sequences: Sequence[Sequence[str]], given: Sequence[str]) -> tuple[str, ...]:
    """The tags of a model: those that the user gives, in their order, unless another scheme has made others of them."""
    found = class_names(sequences)
    return tuple(given) if set(found) <= set(given) else found
