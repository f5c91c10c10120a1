"""What a run on questions trains and evaluates on: questions as written -> the task, and its examples."""

from __future__ import annotations

import dataclasses

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.output.output_dir import FACTS
from tfbert.tasks.answering.question_answering import QuestionAnswering, QuestionExamples
from tfbert.tasks.answering.questions import note_misaligned, training_questions
from tfbert.tasks.answering.source import question_source
from tfbert.tasks.base import TaskData
from tfbert.tasks.held_out import equal, hold_out
from tfbert.tasks.tables import data_of, read_training_tables


def load_questions(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads questions about contexts, with their answers."""
    own_notes: list[str] = []
    task = QuestionAnswering.of_options(options.answering)
    task = task.at_length(config.max_seq_length or task.default_max_seq_length, options, own_notes)
    source = question_source(config, version_2_with_negative=task.version_2_with_negative)
    tables, notes = read_training_tables(config, source)
    if config.validation_split is not None:
        train = tables["train"]
        groups = equal(train.context(row).strip() for row in range(len(train)))
        tables = hold_out(tables, config, own_notes, groups=groups)
        tables["validation"] = dataclasses.replace(tables["validation"], notes=())
    notes = (*notes, *own_notes)
    tables = {name: note_misaligned(table, FACTS) for name, table in tables.items()}
    misaligned = {name: list(table.misaligned_ids) for name, table in tables.items() if table.misaligned_ids}
    keep = options.answering.keep_misaligned_answers
    tables["train"] = training_questions(tables["train"], keep_misaligned_answers=keep)
    sets = {name: QuestionExamples(table=table) for name, table in tables.items()}
    notes = (*notes, *(line for table in tables.values() for line in table.notes))
    data = data_of(task, sets, notes, config, tables["train"].columns)
    return dataclasses.replace(data, facts={"misaligned_answers": misaligned}) if misaligned else data
