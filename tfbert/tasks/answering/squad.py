"""Files of questions about contexts: SQuAD's nested JSON, JSON lines and .parquet, told apart by what they hold.

SQuAD 1.1 and 2.0 have an object whose `data` is a list of articles, each with paragraphs, each with questions. Hugging
Face and TensorFlow Datasets have one row per question: `id`, `question`, `context` and `answers`. Articles and rows are
read one by one.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from tfbert.config.data import DataConfig
from tfbert.data.columns import Finder, check_different, in_data, named_by_user
from tfbert.data.given_table import GivenTable
from tfbert.data.lines import source_name
from tfbert.data.open_file import OpenFile
from tfbert.data.rows import Source, open_rows, source_format
from tfbert.errors import UsageError
from tfbert.tasks.answering.question_rows import question_table
from tfbert.tasks.answering.questions import Place, QuestionTable
from tfbert.tasks.answering.squad_json import QUESTION_COLUMNS, NestedQuestions, open_question_json

_BY_NAME = DataConfig()


def read_questions(
    source: Source,
    config: DataConfig = _BY_NAME,
    *,
    require_answers: bool = True,
    version_2_with_negative: bool = False,
) -> QuestionTable:
    """Reads a file of questions with their answers. No question is dropped because of where its answers are.

    Args:
        source: As for `open_rows`: JSON of any kind, Parquet, or a table in memory.
        config: Says its format and columns, and whether questions that cannot be used are left out. Columns of a table:
            those of questions and contexts, empty for `question` and `context`, and of answers, empty for `answers`.
        require_answers: As for `question_table`.
        version_2_with_negative: As for `question_table`.

    Raises:
        UsageError: for a file that cannot be read, or a bad question.
    """
    if not config.header or config.delimiter:
        raise UsageError(
            "Questions with answers come as JSON or .parquet, which have no delimiter and no header. "
            f"Received: header={config.header}, delimiter={config.delimiter!r}. Drop --noheader and --delimiter."
        )
    format = _format(source, config)
    if format not in ("jsonl", "parquet"):
        raise UsageError(
            "Questions with answers come as JSON (SQuAD's own, or one question per line) or .parquet. "
            f"Received: {source_name(source)!r} as {format}. Convert it."
        )
    file = open_rows(source, format, open_json=open_question_json)
    if isinstance(file, NestedQuestions):
        _refuse_columns(file, config)
        rows, place_names, columns = file.rows, file.place_names, {}
    else:
        file = file.without_rejected()
        answers = "".join(in_data([config.label_column], file.columns)) or "answers"
        columns = {"text_column": question_columns(file, config.text_column), "label_column": (answers,)}
        rows, place_names = _table_rows(file, format, *columns["text_column"], answers), (file.unit,)
    table = question_table(
        file.name,
        rows,
        place_names=place_names,
        require_answers=require_answers,
        version_2_with_negative=version_2_with_negative,
        skip_bad_rows=config.skip_bad_rows,
    )
    return dataclasses.replace(table, columns=columns)


def open_questions(source: Source, config: DataConfig = _BY_NAME) -> OpenFile:
    """Opens questions to be answered, as rows of a table: read row by row, nested JSON article by article.

    Args:
        source: As for `read_questions`.
        config: As for `read_questions`.

    Returns:
        The file. Nested JSON has the columns `id`, `title`, `question` and `context`; answers are left out.

    Raises:
        UsageError: for a file that cannot be read or lacks one of the columns.
    """
    options = {"header": config.header, "delimiter": config.separator, "open_json": open_question_json}
    file = open_rows(source, _format(source, config), **options)
    if isinstance(file, NestedQuestions):
        _refuse_columns(file, dataclasses.replace(config, label_column=""))
        file = file.as_table()
    question_columns(file, config.text_column)  # Refuses a file that lacks one.
    return file


def question_columns(file: OpenFile, text_column: Sequence[str] = ()) -> tuple[str, str]:
    """The columns of the questions and of the contexts.

    Args:
        file: Just opened.
        text_column: As the user named them. Empty: `question` and `context`, in any case.

    Raises:
        UsageError: for columns that do not exist, or if there are not exactly two.
    """
    hint = f"; name one of questions and one of contexts{file.hint}"
    found = Finder(file.name, file.columns, hint=hint, text_column=text_column)
    columns = found.asked["text_column"] or tuple(
        found.the_one(what, "text_column", [(what,)] if what in found.usual else [])[0] for what in QUESTION_COLUMNS
    )
    if len(columns) != 2:
        raise UsageError(
            "Question answering needs two text columns: one of questions, one of contexts. "
            f"Received: text_column={','.join(columns)!r}. Pass --text_column=QUESTION,CONTEXT."
        )
    check_different(*columns)
    return columns


def holds_questions(source: pathlib.Path | GivenTable, config: DataConfig = _BY_NAME) -> bool:
    """Whether a file can be for no other task, by its format, or the questions, contexts and answers in it. False for
    one that cannot be read."""
    if not isinstance(source, GivenTable) and config.input_format != "auto":
        return config.input_format == "squad"
    try:
        format = _format(source, config)
        file = open_rows(source, format, open_json=open_question_json) if format in ("jsonl", "parquet") else None
    except UsageError:
        return False
    if isinstance(file, NestedQuestions):
        return True
    if file is None or not {*QUESTION_COLUMNS, "answers"} <= set(file.columns):
        return False
    return not file.kinds or {"text", "answer_start"} <= {*file.kinds["answers"].split(",")}


def _refuse_columns(file: NestedQuestions, config: DataConfig) -> None:
    text_column, label_column = config.text_column, config.label_column
    if named_by_user(*text_column, label_column):
        raise UsageError(
            "JSON with questions grouped by their contexts has no columns to choose. Received: "
            f"text_column={','.join(text_column)!r}, label_column={label_column!r} for {file.name}. Drop them."
        )


def _format(source: Source, config: DataConfig) -> str:
    format = source_format(source, config)
    return "jsonl" if format == "squad" else format


def _table_rows(
    file: OpenFile, format: str, question: str, context: str, answers_column: str
) -> Iterator[tuple[Place, dict[str, Any] | UsageError]]:
    keys = {"id": "id", question: "question", context: "context", answers_column: "answers"}
    keys.setdefault("is_impossible", "is_impossible")
    # A line of JSON may have keys that the first line lacks.
    wanted = [column for column in keys if format == "jsonl" or column in file.columns]
    for line, row in file.read(wanted):
        if isinstance(row, UsageError):
            yield (line,), row
        else:
            yield (line,), {keys[column]: value for column, value in zip(wanted, row, strict=True)}
