"""Files of questions about contexts: SQuAD's nested JSON, JSON lines and .parquet, told apart by what they hold.

SQuAD 1.1 and 2.0 have an object whose `data` is a list of articles, each with paragraphs, each with questions. Hugging
Face and TensorFlow Datasets have one row per question: `id`, `question`, `context` and `answers`. Articles and rows are
read one by one.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from tfbert.config.data import DataConfig
from tfbert.data.columns import find_columns, in_data, named_by_user
from tfbert.data.given_table import GivenTable
from tfbert.data.lines import source_name
from tfbert.data.open_file import OpenFile, Row
from tfbert.data.rows import file_format, open_rows
from tfbert.errors import UsageError
from tfbert.tasks.answering.question_rows import blank_error, question_table
from tfbert.tasks.answering.questions import Place, QuestionTable
from tfbert.tasks.answering.squad_json import QUESTION_COLUMNS, NestedQuestions, open_question_json


def read_questions(
    source: str | pathlib.Path | BinaryIO | GivenTable,
    *,
    format: str = "auto",
    text_column: Sequence[str] = (),
    label_column: str = "",
    require_answers: bool = True,
    version_2_with_negative: bool = False,
    skip_bad_rows: bool = False,
) -> QuestionTable:
    """Reads a file of questions with their answers. No question is dropped because of where its answers are.

    Args:
        source: A path, also of a .gz file; an open binary stream such as standard input, which holds JSON; or a table
            in memory.
        format: `jsonl` for JSON of either kind, or `parquet`; `auto`: by the ending.
        text_column: The columns of questions and contexts in a table; empty: `question` and `context`.
        label_column: The column of answers in a table; empty: `answers`.
        require_answers: As for `question_table`.
        version_2_with_negative: As for `question_table`.
        skip_bad_rows: As for `question_table`.

    Raises:
        UsageError: for a file that cannot be read, or a bad question.
    """
    source = pathlib.Path(source) if isinstance(source, str) else source
    format = _format(source, format)
    if format not in ("jsonl", "parquet"):
        raise UsageError(
            "Questions with answers come as JSON (SQuAD's own, or one question per line) or .parquet. "
            f"Received: {source_name(source)!r} as {format}. Convert it."
        )
    file = _open(source, format)
    if isinstance(file, NestedQuestions):
        _refuse_columns(file, text_column, label_column)
        rows, place_names, columns = file.rows, file.place_names, {}
    else:
        file = file.without_rejected()
        answers = "".join(in_data([label_column], file.columns)) or "answers"
        columns = {"text_column": question_columns(file, text_column), "label_column": (answers,)}
        rows, place_names = _table_rows(file, format, *columns["text_column"], answers), (file.unit,)
    table = question_table(
        file.name,
        rows,
        place_names=place_names,
        require_answers=require_answers,
        version_2_with_negative=version_2_with_negative,
        skip_bad_rows=skip_bad_rows,
    )
    return dataclasses.replace(table, columns=columns)


def open_questions(
    source: pathlib.Path | BinaryIO,
    format: str = "auto",
    *,
    header: bool = True,
    delimiter: str = "",
    text_column: Sequence[str] = (),
) -> OpenFile:
    """Opens questions to be answered, as rows of a table: read row by row, nested JSON article by article.

    A row whose question or context holds only spaces counts as one that cannot be read.

    Args:
        source: As for `read_questions`.
        format: As `rows.file_format` returns it; `jsonl` for JSON of either kind; `auto`: by the ending.
        header: Whether a .tsv or .csv file starts with its columns' names.
        delimiter: What separates the columns of a .tsv or .csv file; empty: a tab or a comma.
        text_column: The columns of questions and contexts; empty: `question` and `context`.

    Returns:
        The file. Nested JSON has the columns `id`, `title`, `question` and `context`; answers are left out.

    Raises:
        UsageError: for a file that cannot be read or lacks one of the columns.
    """
    file = _open(source, _format(source, format), header=header, delimiter=delimiter)
    if isinstance(file, NestedQuestions):
        _refuse_columns(file, text_column, "")
        file = file.as_table()
    return without_blanks(file, text_column)


def without_blanks(opened: OpenFile, text_column: Sequence[str] = ()) -> OpenFile:
    """The same table of questions; a row whose question or context holds only spaces counts as one that cannot be
    read.

    Args:
        opened: Just opened.
        text_column: As for `question_columns`.

    Raises:
        UsageError: as `question_columns`.
    """
    columns = question_columns(opened, text_column)

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        checked = [
            (wanted.index(column), what)
            for column, what in zip(columns, QUESTION_COLUMNS, strict=True)
            if column in wanted
        ]
        for line, row in opened.read(wanted):
            if not isinstance(row, UsageError):
                for index, what in checked:
                    if isinstance(row[index], str) and not row[index].strip():
                        row = blank_error(what, f"{opened.name}, {opened.unit} {line}")
                        break
            yield line, row

    return dataclasses.replace(opened, read=read)


def question_columns(file: OpenFile, text_column: Sequence[str] = ()) -> tuple[str, str]:
    """The columns of the questions and of the contexts.

    Args:
        file: Just opened.
        text_column: As the user named them. Empty: `question` and `context`, in any case.

    Raises:
        UsageError: for columns that do not exist, or if there are not exactly two.
    """
    text_column = in_data(text_column, file.columns)
    if text_column and len(text_column) != 2:
        raise UsageError(
            "Question answering needs two text columns: one of questions, one of contexts. "
            f"Received: text_column={','.join(text_column)!r}. Pass --text_column=QUESTION,CONTEXT."
        )
    usual = {column.strip().lower(): column for column in reversed(file.columns)}
    wanted = tuple(text_column) or tuple(usual.get(column, column) for column in QUESTION_COLUMNS)
    (question, context), _ = find_columns(
        file.name,
        file.columns,
        text_column=wanted,
        find_label=False,
        hint=f"; name one of questions and one of contexts{file.hint}",
    )
    return question, context


def holds_questions(path: pathlib.Path | GivenTable, config: DataConfig) -> bool:
    """Whether a file can be for no other task, by its format or what it holds."""
    if isinstance(path, GivenTable):
        return looks_like_squad(path)
    return config.input_format == "squad" or (config.input_format == "auto" and looks_like_squad(path))


def looks_like_squad(path: pathlib.Path | GivenTable) -> bool:
    """Whether a file holds questions with contexts and answers; False for one that cannot be read."""
    try:
        format = file_format(path)
        file = _open(path, format) if format in ("jsonl", "parquet") else None
    except UsageError:
        return False
    if isinstance(file, NestedQuestions):
        return True
    if file is None or not {*QUESTION_COLUMNS, "answers"} <= set(file.columns):
        return False
    return not file.kinds or {"text", "answer_start"} <= {*file.kinds["answers"].split(",")}


def _format(source: pathlib.Path | BinaryIO | GivenTable, asked: str) -> str:
    if isinstance(source, GivenTable):
        return file_format(source)
    if asked != "auto":
        return asked
    return file_format(source) if isinstance(source, pathlib.Path) else "jsonl"


def _refuse_columns(file: NestedQuestions, text_column: Sequence[str], label_column: str) -> None:
    if named_by_user(*text_column, label_column):
        raise UsageError(
            "JSON with questions grouped by their contexts has no columns to choose. Received: "
            f"text_column={','.join(text_column)!r}, label_column={label_column!r} for {file.name}. Drop them."
        )


def _open(
    source: pathlib.Path | BinaryIO | GivenTable, format: str, *, header: bool = True, delimiter: str = ""
) -> OpenFile | NestedQuestions:
    if format == "jsonl" and header and not delimiter:  # `open_rows` refuses JSON with --noheader or --delimiter.
        return open_question_json(source, source_name(source))
    return open_rows(source, format, header=header, delimiter=delimiter)


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
