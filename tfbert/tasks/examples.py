"""Rows as written -> a task and its examples.

data = load_data(DataConfig(train_file="train.tsv", validation_file="dev.tsv"))
data.task.label_names, len(data.train), data.validation["validation"].labels
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from tfbert.batches.pools import permuted
from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.corpus.record_files import open_records
from tfbert.corpus.records import Records
from tfbert.data.files import RawTable
from tfbert.data.label_names import given_names
from tfbert.data.questions import note_misaligned, training_questions
from tfbert.data.sources import read_all
from tfbert.data.word_rows import look_like_words
from tfbert.errors import UsageError
from tfbert.output.output_dir import FACTS
from tfbert.tasks.base import Examples, Task, TaskData
from tfbert.tasks.choose import choose_task, class_words
from tfbert.tasks.pretraining import Pretraining
from tfbert.tasks.question_answering import QuestionAnswering, QuestionExamples
from tfbert.tasks.questions import question_source
from tfbert.tasks.sentences import in_scheme, in_usual_form, sentence_source
from tfbert.tasks.tables import read_training_tables
from tfbert.tasks.tags import class_names
from tfbert.tasks.token_classification import TokenClassification

_SAMPLED_RECORDS = 2048
"""The most training records that are evaluated, beside the validation records; never more than of those."""


def load_data(config: DataConfig, options: TaskOptions | None = None) -> TaskData:
    """Reads everything a run trains and evaluates on.

    Reading from TensorFlow Datasets starts TensorFlow's devices: set them up first.

    `max_train_examples` and `max_eval_examples` keep a random subset, always the same one, so that files sorted by
    class (as IMDB's) still give all classes.

    Args:
        config: Names a data set, or files.
        options: Options of single tasks; None for their defaults.

    Raises:
        UsageError: for data that does not exist, cannot be read, or does not fit together.
    """
    data, notes = _LOADERS.get(config.task, _texts)(config, options or TaskOptions()), []

    def part(examples: Examples, limit: int) -> Examples:
        return subset(examples, limit, notes)

    train = part(data.train, config.max_train_examples)
    others = {name: part(examples, config.max_eval_examples) for name, examples in data.sets.items()}
    doubts = data.task.doubts(train)
    for other in others.values():
        doubts += _rows_in_common(train, other)
    notes = [*data.notes, *notes, *(f"warning: {line}" for line in doubts)]
    test = others.pop("test", None) if data.test is not None else None
    return dataclasses.replace(data, train=train, validation=others, test=test, notes=tuple(notes))


def _texts(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads texts with one label each."""
    raw = read_all(config, class_words=class_words(config.task))
    tables = [raw.train, *raw.validation.values(), *([raw.test] if raw.test else [])]
    _check_same_columns(tables)
    notes = list(raw.notes)
    train = raw.train
    labels = train.labels
    if train.text_pair is None and labels is not None and look_like_words(train.text_columns[0], train.text, labels):
        notes.append(
            f"warning: {train.name}: nearly all texts are single words, and each gets a class alone; to tag the words "
            "of sentences, name each word's sentence in a column sentence_id"
        )
    task = choose_task(raw, config.task, notes)
    for table in tables:
        notes += table.notes
        empty = sum(not text.strip() for texts in (table.text, table.text_pair or []) for text in texts)
        if empty:
            notes.append(f"{table.name}: {empty:,} empty text{'s' if empty > 1 else ''}")
    return TaskData(
        task=task,
        train=task.examples(raw.train),
        validation={name: task.examples(table) for name, table in raw.validation.items()},
        test=task.examples(raw.test) if raw.test else None,
        notes=tuple(notes),
    )


def _sentences(config: DataConfig, options: TaskOptions) -> TaskData:
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
    return _data_of(task, sets, notes, config)


def _tags_in_order(sequences: Sequence[Sequence[str]], given: Sequence[str]) -> tuple[str, ...]:
    """The tags of a model: those that the user gives, in their order, unless another scheme has made others of them."""
    found = class_names(sequences)
    return tuple(given) if set(found) <= set(given) else found


def _questions(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads questions about contexts, with their answers."""
    own_notes: list[str] = []
    task = QuestionAnswering.of_options(options.answering)
    task = task.at_length(config.max_seq_length or task.default_max_seq_length, options, own_notes)
    source = question_source(config, version_2_with_negative=task.version_2_with_negative)
    tables, notes = read_training_tables(config, source)
    notes = (*notes, *own_notes)
    tables = {name: note_misaligned(table, FACTS) for name, table in tables.items()}
    misaligned = {name: list(table.misaligned_ids) for name, table in tables.items() if table.misaligned_ids}
    keep = options.answering.keep_misaligned_answers
    tables["train"] = training_questions(tables["train"], keep_misaligned_answers=keep)
    sets = {name: QuestionExamples(table=table) for name, table in tables.items()}
    notes = (*notes, *(line for table in tables.values() for line in table.notes))
    data = _data_of(task, sets, notes, config)
    return dataclasses.replace(data, facts={"misaligned_answers": misaligned}) if misaligned else data


def _records(config: DataConfig, options: TaskOptions) -> TaskData:
    """Opens records of a corpus. With validation records, a sample of the training records is evaluated as well."""
    own, notes, sets = options.pretraining, [], {}
    skips = {"skip_bad_records": own.skip_bad_records, "notes": notes}
    train = subset(open_records(own.train_records, "train_records", **skips), config.max_train_examples, notes)
    if own.validation_records:
        sets["validation"] = open_records(own.validation_records, "validation_records", **skips)
        sample = subset(train, min(len(sets["validation"]), _SAMPLED_RECORDS), [])
        sets["validation_training"] = dataclasses.replace(sample, name=f"a sample of {train.name}")
    if own.next_sentence and not train.has_pairs:
        notes.append(f"{train.name}: no pairs, so no next-sentence prediction: only masked words are predicted")
    task = Pretraining(next_sentence=own.next_sentence and train.has_pairs, options=own, seed=options.seed)
    return TaskData(task=task, train=train, validation=sets, test=None, notes=tuple(notes))


def _data_of(task: Task, sets: dict[str, Examples], notes: Sequence[str], config: DataConfig) -> TaskData:
    """The sets by their names. Without a test file, a split `test` counts as validation: the data set has no other."""
    train, test = sets.pop("train"), sets.pop("test") if config.test_file else None
    return TaskData(task=task, train=train, validation=sets, test=test, notes=tuple(notes))


_LOADERS = {TokenClassification.name: _sentences, QuestionAnswering.name: _questions, Pretraining.name: _records}
"""Reads a run's data, by its task; other tasks read texts."""


def subset(examples: Examples, limit: int, notes: list[str]) -> Examples:
    """At most `limit` examples (0: all), drawn at random but always the same; adds a line to `notes` if some are left
    out."""
    if not 0 < limit < len(examples):
        return examples
    notes.append(f"{examples.name}: {limit:,} of {len(examples):,} examples, a random subset that is always the same")
    if isinstance(examples, Records):  # There may be too many of them to shuffle.
        return examples.take(np.sort(permuted(np.arange(limit), len(examples), seed=0, epoch=0)))
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(examples))
    return examples.take(np.sort(order[:limit]))


def _check_same_columns(tables: list[RawTable]) -> None:
    train, *others = tables
    for other in others:
        if len(other.text_columns) != len(train.text_columns):
            raise UsageError(
                "All data must be single texts, or all must be pairs. "
                f"Received: {train.name} with {' and '.join(train.text_columns)}, "
                f"{other.name} with {' and '.join(other.text_columns)}. Pass --text_column."
            )


def _rows_in_common(train: Examples, other: Examples) -> list[str]:
    """A line if some examples are both trained on and evaluated on."""
    if os.path.realpath(train.name) == os.path.realpath(other.name):
        return [f"{other.name} is used for training and for evaluation: its scores say nothing about other texts"]
    # Keeps only the contents of the evaluation set in memory, as it is smaller. Empty texts do not count as equal.
    evaluated = {key for key in other.contents() if any(key)}
    seen = {key for key in train.contents() if key in evaluated}
    count = sum(key in seen for key in other.contents())
    return [f"{other.name}: {count:,} of {len(other):,} rows are in the training data too"] if count else []
