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

    def read_name(with_train: bool) -> dict[str, QuestionTable]:
        from tfbert.tasks.answering.tfds import read_tfds_questions  # imports TensorFlow Datasets

        return read_tfds_questions(
            config.dataset, config.data_dir, version_2_with_negative=version_2_with_negative, with_train=with_train
        )

    return Source(read_file=read_file, read_name=read_name, demo="question_answering")
