"""The source of questions with their choices."""

from __future__ import annotations

from tfbert.config.data import DataConfig
from tfbert.config.tasks import ChoosingConfig
from tfbert.data.streams import labelled_source
from tfbert.tasks.choosing.choice_files import open_questions, read_questions
from tfbert.tasks.choosing.questions import ChoiceExamples
from tfbert.tasks.tables import Source


def choice_source(config: DataConfig, options: ChoosingConfig) -> Source[ChoiceExamples]:
    """The source of questions that the configuration names."""

    def read_file(path: str) -> ChoiceExamples:
        opened = open_questions(labelled_source(path), config, choice_columns=options.choice_columns)
        return read_questions(opened, skip_bad_rows=config.skip_bad_rows)

    return Source(read_file=read_file, demo="multiple_choice")
