"""The source of questions with their answers."""

from __future__ import annotations

from tfbert.config.data import DataConfig
from tfbert.data.streams import labelled_source
from tfbert.errors import UsageError
from tfbert.tasks.answering.questions import QuestionTable
from tfbert.tasks.answering.squad import read_questions
from tfbert.tasks.tables import Source


def question_source(config: DataConfig, *, version_2_with_negative: bool) -> Source[QuestionTable]:
    """The source of questions that the configuration names; with `version_2_with_negative`, some have no answer."""

    def read_file(path: str) -> QuestionTable:
        if not config.header or config.delimiter:
            raise UsageError(
                "Questions with answers come as JSON or .parquet, which have no delimiter and no header. "
                f"Received: header={config.header}, delimiter={config.delimiter!r}. Drop --noheader and --delimiter."
            )
        return read_questions(
            labelled_source(path),
            format="jsonl" if config.input_format == "squad" else config.input_format,
            text_column=config.text_column,
            label_column=config.label_column,
            version_2_with_negative=version_2_with_negative,
            skip_bad_rows=config.skip_bad_rows,
        )

    return Source(read_file=read_file, demo="question_answering")
