"""Files of questions about contexts: SQuAD's nested JSON, JSON lines and .parquet; and their rows as a table of
questions, each checked. Every error names the place and the id.

SQuAD 1.1 and 2.0 have an object whose `data` is a list of articles, each with paragraphs, each with questions. Hugging
Face and TensorFlow Datasets have one row per question: `id`, `question`, `context` and `answers`. Articles and rows are
read one by one: memory does not grow with their number.

Questions about contexts with their answers as written, and which answers are not where they should be.

`answer_start` counts Unicode characters, as Python's `str` does. In published data sets, some answers are not at their
`answer_start`. An evaluation needs only the texts of answers and keeps them all; training would learn the wrong words.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfbert.batches.pipeline import EncodedExamples
from tfbert.config.data import DataConfig
from tfbert.config.types import counted
from tfbert.data.files import UNLABELLED, Finder, check_different, check_text, in_data, named_by_user
from tfbert.data.reading import BadRows, GivenTable, OpenFile, Row, source_name
from tfbert.data.rows import Entries, Source, open_rows, source_format
from tfbert.errors import UsageError
from tfbert.tasks.base import InMemory
from tfbert.tasks.question_answering.windows import Windows

Answer = tuple[str, int]
"""The text of an answer, and the character of the context at which it starts."""
_SHOWN_IDS = 5
Place = tuple[int, ...]
"""Where a question is in its file, from 1: a line, or article, paragraph and question; 0 where a level is unknown."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuestionTable:
    """Questions and answers as they were written.

    Attributes:
        name: Where they came from, for messages.
        ids: One per question, all different.
        questions: One per question.
        contexts: The distinct contexts.
        context_of: int32 `[n]`: which of `contexts` a question is about.
        answers: All gold answers of each question; empty for a question that has none.
        places: int32 `[n, levels]`: one `Place` per question.
        place_names: What each level of `places` counts, such as `line`.
        notes: What the user should know, one line each.
        misaligned_ids: The ids that `note_misaligned` found, also of questions that were left out since.
        columns: Those that were read, by the options that name them; empty where nobody can choose them.
    """

    name: str
    ids: list[str]
    questions: list[str]
    contexts: list[str]
    context_of: np.ndarray
    answers: list[tuple[Answer, ...]]
    places: np.ndarray
    place_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    misaligned_ids: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_impossible(self) -> np.ndarray:
        """bool `[n]`: whether the context does not hold an answer."""
        return np.array([not given for given in self.answers], bool)

    def context(self, row: int) -> str:
        """The context of question `row`, counted from 0."""
        return self.contexts[self.context_of[row]]

    def where(self, row: int) -> str:
        """What messages call question `row`, counted from 0."""
        return where(self.name, self.place_names, self.places[row])

    def place(self, row: int) -> str:
        """The same without the file's name."""
        return ", ".join(_known(self.place_names, self.places[row]))

    def take(self, indices: Sequence[int] | np.ndarray) -> QuestionTable:
        """A table of these questions in this order, with only their contexts."""
        indices = np.asarray(indices, np.int64)
        used, context_of = np.unique(self.context_of[indices], return_inverse=True)
        return dataclasses.replace(
            self,
            ids=[self.ids[i] for i in indices],
            questions=[self.questions[i] for i in indices],
            contexts=[self.contexts[i] for i in used],
            context_of=context_of.astype(np.int32).reshape(-1),
            answers=[self.answers[i] for i in indices],
            places=self.places[indices],
        )


def where(name: str, place_names: Sequence[str], place: Sequence[int]) -> str:
    """What messages call a place in a file, such as `dev.json, article 3, paragraph 1, question 7`."""
    return ", ".join([name, *_known(place_names, place)])


def _known(place_names: Sequence[str], place: Sequence[int]) -> list[str]:
    return [f"{what} {number}" for what, number in zip(place_names, place, strict=True) if number]


def misaligned_answers(table: QuestionTable) -> list[tuple[int, int]]:
    """The answers that are not in their context at `answer_start`, each as its question's row and its own index."""
    return [
        (row, number)
        for row, answers in enumerate(table.answers)
        for number, (text, start) in enumerate(answers)
        if start < 0 or not table.context(row).startswith(text, start)
    ]


def note_misaligned(table: QuestionTable, file: str) -> QuestionTable:
    """The same table, with the ids of questions with answers that are not at `answer_start`, and a note about them.

    Args:
        table: As it was read.
        file: What will hold all these ids, for the note, which shows a few.
    """
    bad = misaligned_answers(table)
    if not bad:
        return table
    ids = tuple(table.ids[row] for row in dict.fromkeys(row for row, _ in bad))
    shown = ", ".join(f"{name!r:.60}" for name in ids[:_SHOWN_IDS])
    more = f" and {len(ids) - _SHOWN_IDS:,} more, all in {file}" if len(ids) > _SHOWN_IDS else ""
    note = (
        f"{table.name}: {len(bad):,} of {sum(map(len, table.answers)):,} answers are not in their context at "
        f"answer_start: {'ids' if len(ids) > 1 else 'id'} {shown}{more}"
    )
    return dataclasses.replace(table, notes=(*table.notes, note), misaligned_ids=ids)


def training_questions(table: QuestionTable, *, keep_misaligned_answers: bool = False) -> QuestionTable:
    """The questions to train on: only answers that are at their `answer_start`, and only questions that have such an
    answer or are impossible.

    Args:
        table: As it was read.
        keep_misaligned_answers: Move an answer that is not at its `answer_start` to the nearest place of its text in
            the context, rather than leave it out. An answer whose text is nowhere in the context is left out anyway.

    Returns:
        The table itself if all answers are where they should be; else a new one, whose last note says what was changed.

    Raises:
        UsageError: where no question is left.
    """
    bad = misaligned_answers(table)
    if not bad:
        return table
    answers: list[list[Answer | None]] = [list(given) for given in table.answers]
    num_moved = 0
    for row, number in bad:
        text, start = table.answers[row][number]
        found = nearest(table.context(row), text, start) if keep_misaligned_answers else -1
        answers[row][number] = (text, found) if found >= 0 else None
        num_moved += found >= 0
    sound = [tuple(answer for answer in given if answer is not None) for given in answers]
    kept = [row for row, given in enumerate(sound) if given or not table.answers[row]]
    if not kept:
        look = "" if keep_misaligned_answers else ", or pass --keep_misaligned_answers to look for their texts"
        raise UsageError(
            "Training needs an answer that is in its context at answer_start, counted in characters. "
            f"Received: {table.name}, where none of {len(table):,} questions has one. Repair the file{look}."
        )
    moved = f"{num_moved:,} moved to the nearest place of their text, " if keep_misaligned_answers else ""
    note = (
        f"{table.name}: of {len(bad):,} answers that are not at answer_start, {moved}{len(bad) - num_moved:,} left out "
        f"of training; questions left out because no answer remains: {len(table) - len(kept):,} of {len(table):,}"
    )
    return dataclasses.replace(table, answers=sound, notes=(*table.notes, note)).take(kept)


def nearest(context: str, text: str, start: int) -> int:
    """The place of a text in a context that is nearest to the character `start`; of two equally near, the first; -1 if
    the text does not occur."""
    best = -1
    found = context.find(text)
    while found >= 0:
        if best < 0 or abs(found - start) < abs(best - start):
            best = found
        found = context.find(text, found + 1)
    return best


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuestionExamples(InMemory):
    """Questions about contexts, see `Examples`.

    Attributes:
        table: The questions as they were written.
    """

    table: QuestionTable

    num_texts = 2

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def labels(self) -> np.ndarray:
        """int32 `[n, 2]`: the first character of each question's first answer and one past its last; 0, 0 for none.

        Where the data puts an answer outside the context, as only evaluation keeps it, the nearest end of the context.
        """
        return np.array([self._span(row) for row in range(len(self))], np.int32).reshape(-1, 2)

    def _span(self, row: int) -> tuple[int, int]:
        if not self.table.answers[row]:
            return 0, 0
        (text, start), *_ = self.table.answers[row]
        first, end = (min(max(place, 0), len(self.table.context(row))) for place in (start, start + len(text)))
        return first, end

    def __len__(self) -> int:
        return len(self.table)

    def take(self, indices: Iterable[int]) -> QuestionExamples:
        return QuestionExamples(table=self.table.take(np.asarray(list(indices), np.int64)))

    def where(self, row: int) -> str:
        return self.table.place(row)

    def texts(self) -> list[str]:
        return self.table.questions + self.table.contexts

    def contents(self) -> Iterator[tuple[str, ...]]:
        return ((q.strip(), self.table.context(i).strip()) for i, q in enumerate(self.table.questions))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncodedQuestions(EncodedExamples):
    """Windows over the contexts of questions, one row per window.

    Attributes:
        windows: The windows.
        num_questions: The number of questions.
    """

    windows: Windows
    num_questions: int


def blank_error(what: str, where: str) -> UsageError:
    """The error for a question or a context of nothing but spaces."""
    return UsageError(f"A {what} must not be empty. Received: an empty one in {where}. Repair or drop the question.")


def question_table(
    name: str,
    rows: Iterable[tuple[Place, dict[str, Any] | UsageError]],
    *,
    place_names: tuple[str, ...],
    version_2_with_negative: bool = False,
    skip_bad_rows: bool = False,
) -> QuestionTable:
    """Checks questions one by one and makes a table of them.

    Args:
        name: What messages call the data.
        rows: The place of each question, and its `id`, `question`, `context`, `answers` (a list of objects with `text`
            and `answer_start`, or an object with a list of each) and, where there is one, `is_impossible`; or the error
            that says why it cannot be read.
        place_names: What a place's numbers count.
        version_2_with_negative: Whether a question may have no answer.
        skip_bad_rows: Leave out questions that cannot be used, rather than stop at the first; a note counts them.

    Raises:
        UsageError: for a bad question, one without an answer where there may be none, or no question at all.
    """
    ids, contexts, bad_rows = set(), {}, BadRows(skip_bad_rows)

    def checked(place: Place, row: dict[str, Any]) -> tuple[Place, str, str, int, tuple[Answer, ...]]:
        at = where(name, place_names, place)
        own_id = _id(row.get("id"), at)
        at = f"{at} (id {own_id!r:.60})"
        if own_id in ids:
            raise UsageError(f"Every question needs a unique id. Received: a repeated id in {at}. Rename or drop it.")
        question, context = [_filled_text(row.get(what), what, at) for what in ("question", "context")]
        answers = _answers(row, at)
        ids.add(own_id)
        return place, own_id, question, contexts.setdefault(context, len(contexts)), answers

    kept = list(bad_rows.usable(rows, checked))
    notes = bad_rows.skipped(name, len(kept), "question", "questions")
    table = QuestionTable(
        name=name,
        ids=[own_id for _, own_id, *_ in kept],
        questions=[question for _, _, question, *_ in kept],
        contexts=list(contexts),
        context_of=np.array([context for *_, context, _ in kept], np.int32),
        answers=[given for *_, given in kept],
        places=np.array([place for place, *_ in kept], np.int32),
        place_names=place_names,
        notes=notes,
    )
    if not version_2_with_negative and table.is_impossible.any():
        first = int(table.is_impossible.argmax())
        raise UsageError(
            f"Questions without an answer need version_2_with_negative. Received: {int(table.is_impossible.sum()):,} "
            f"of {len(table):,} questions of {table.name} without one, the first with id {table.ids[first]!r:.60}. "
            "Pass --version_2_with_negative, or drop them."
        )
    return table


def _id(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        received = "none" if value in (None, "") else f"id={value!r:.60}"
        raise UsageError(
            f"Every question needs an id, a word or a number. Received: {received} in {where}. Add one or drop it."
        )
    return check_text(str(value), "id", where)


def _filled_text(value: Any, what: str, where: str) -> str:
    text = check_text(value, what, where)
    if not text.strip():
        raise blank_error(what, where)
    return text


def _answers(row: dict[str, Any], where: str) -> tuple[Answer, ...]:
    """The answers, empty for an impossible question."""
    given, impossible = row.get("answers"), row.get("is_impossible")
    if not isinstance(impossible, bool | None):
        raise UsageError(
            f"is_impossible must be true or false. Received: is_impossible={impossible!r:.60} in {where}. Repair it."
        )
    if given is None and not impossible:
        raise UsageError(
            "Every question needs 'answers', an empty list if it has none. "
            f"Received: no 'answers' in {where}. Add them or drop the question{UNLABELLED}."
        )
    answers = tuple(_answer(text, start, where) for text, start in _pairs(given or [], where))
    if answers and impossible:
        raise UsageError(
            "A question with is_impossible=True must have no answers. "
            f"Received: is_impossible=True with {counted(len(answers), 'answer')} in {where}. Drop one or the other."
        )
    return answers


def _pairs(given: Any, where: str) -> list[tuple[Any, Any]]:
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
    elif isinstance(given, list) and all(isinstance(answer, dict) for answer in given):
        return [(answer.get("text"), answer.get("answer_start")) for answer in given]
    raise UsageError(
        "'answers' must be a list of objects with 'text' and 'answer_start', or an object with two equally long lists "
        "under these names. "
        f"Received: answers={given!r:.80} in {where}. Repair or drop the question."
    )


def _answer(text: Any, start: Any, where: str) -> Answer:
    for key, value in (("text", text), ("answer_start", start)):
        if value is None:
            raise UsageError(f"Every answer needs {key!r}. Received: an answer without it in {where}. Add it.")
    if not isinstance(text, str) or not text.strip():
        raise UsageError(
            "An answer must have a text; a question without an answer has an empty list. "
            f"Received: text={text!r:.60} in {where}. Repair or drop it."
        )
    if isinstance(start, bool) or not isinstance(start, int):
        raise UsageError(
            "answer_start must be a whole number: a character of the context, counted from 0. "
            f"Received: answer_start={start!r:.60} in {where}. Repair or drop the answer."
        )
    return check_text(text, "text", where), start


QUESTION_COLUMNS = ("question", "context")
"""The columns of tables, unless the user names others."""
_NESTED_PLACES = ("article", "paragraph", "question")


def _nested_rows(file: Entries) -> Iterator[tuple[Place, dict[str, Any] | UsageError]]:
    """The place of each question of SQuAD's articles, and the question as the rows of a table have it."""
    for first, article in enumerate(file.entries, start=1):
        where = f"{file.name}, article {first}"
        paragraphs = _list_of(article, "article", "paragraphs", where)
        if isinstance(paragraphs, UsageError):
            yield (first, 0, 0), paragraphs
            continue
        for second, paragraph in enumerate(paragraphs, start=1):
            at = f"{where}, paragraph {second}"
            questions = _list_of(paragraph, "paragraph", "qas", at)
            if isinstance(questions, UsageError):
                yield (first, second, 0), questions
                continue
            shared = {"title": article.get("title"), "context": paragraph.get("context")}
            for third, question in enumerate(questions, start=1):
                if isinstance(question, dict):
                    yield (first, second, third), question | shared
                else:
                    yield (first, second, third), _not_an_object("question", question, f"{at}, question {third}")


def _list_of(value: Any, what: str, key: str, where: str) -> list[Any] | UsageError:
    if not isinstance(value, dict):
        return _not_an_object(what, value, where)
    if not isinstance(value.get(key), list):
        received = f"{key}={value[key]!r:.60}" if key in value else f"no {key!r}"
        return UsageError(
            f"In SQuAD's JSON, every {what} has a list {key!r}. Received: {received} in {where}. Repair or drop it."
        )
    return value[key]


def _not_an_object(what: str, value: Any, where: str) -> UsageError:
    return UsageError(
        f"In SQuAD's JSON, every {what} is an object. Received: {value!r:.60} in {where}. Repair or drop it."
    )


_BY_NAME = DataConfig()


def read_questions(
    source: Source, config: DataConfig = _BY_NAME, *, version_2_with_negative: bool = False
) -> QuestionTable:
    """Reads a file of questions with their answers. No question is dropped because of where its answers are.

    Args:
        source: As for `open_rows`: JSON of any kind, Parquet, or a table in memory.
        config: Says its format and columns, and whether questions that cannot be used are left out. Columns of a table:
            those of questions and contexts, empty for `question` and `context`, and of answers, empty for `answers`.
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
    file = open_rows(source, format, takes_articles=True)
    if isinstance(file, Entries):
        _refuse_columns(file, config)
        rows, place_names, columns = _nested_rows(file), _NESTED_PLACES, {}
    else:
        file = file.without_rejected()
        answers = "".join(in_data([config.label_column], file.columns)) or "answers"
        columns = {"text_column": question_columns(file, config.text_column), "label_column": (answers,)}
        rows, place_names = _table_rows(file, format, *columns["text_column"], answers), (file.unit,)
    table = question_table(
        file.name,
        rows,
        place_names=place_names,
        version_2_with_negative=version_2_with_negative,
        skip_bad_rows=config.skip_bad_rows,
    )
    return dataclasses.replace(table, columns=columns)


def open_questions(source: Source, config: DataConfig = _BY_NAME) -> OpenFile:
    """Opens questions to be answered, as rows of a table: lines are read row by row.

    Args:
        source: As for `read_questions`.
        config: As for `read_questions`.

    Returns:
        The file. Nested JSON has the columns `id`, `title`, `question` and `context`; answers are left out.

    Raises:
        UsageError: for a file that cannot be read or lacks one of the columns.
    """
    options = {"header": config.header, "delimiter": config.separator}
    file = open_rows(source, _format(source, config), takes_articles=True, **options)
    if not isinstance(file, Entries):
        question_columns(file, config.text_column)  # Refuses a file that lacks one.
        return file
    _refuse_columns(file, dataclasses.replace(config, label_column=""))

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        for number, (_, row) in enumerate(_nested_rows(file), start=1):
            yield number, row if isinstance(row, UsageError) else [row.get(column) for column in wanted]

    return OpenFile(name=file.name, columns=["id", "title", *QUESTION_COLUMNS], read=read, unit="question")


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
        file = open_rows(source, format, takes_articles=True) if format in ("jsonl", "parquet") else None
    except UsageError:
        return False
    if isinstance(file, Entries):
        return True
    if file is None or not {*QUESTION_COLUMNS, "answers"} <= set(file.columns):
        return False
    return not file.kinds or {"text", "answer_start"} <= {*file.kinds["answers"].split(",")}


def _refuse_columns(file: Entries, config: DataConfig) -> None:
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
