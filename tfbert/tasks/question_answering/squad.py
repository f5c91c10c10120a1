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
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.config.types import counted
from tfbert.data.files import UNLABELLED, Finder, check_different, check_text, in_data, named_by_user
from tfbert.data.reading import BadRows, GivenTable, OpenFile, Row, source_name
from tfbert.data.rows import Entries, Source, open_rows, source_format
from tfbert.errors import UsageError
from tfbert.tasks.base import InMemory

Answer = tuple[str, int]
"""The text of an answer, and the character of the context at which it starts."""
_SHOWN_IDS = 5


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QuestionExamples(InMemory):
    """Questions about contexts, and their answers as they were written; see `Examples`.

    Attributes:
        ids: One per question, all different.
        questions: One per question.
        contexts: The distinct contexts.
        context_of: int32 `[n]`: which of `contexts` a question is about.
        answers: All gold answers of each question; empty for a question that has none.
    """

    per_row = ("ids", "questions", "context_of", "answers")
    ids: list[str]
    questions: list[str]
    contexts: list[str]
    context_of: np.ndarray
    answers: list[tuple[Answer, ...]]

    num_texts = 2

    def __len__(self) -> int:
        return len(self.questions)

    def context(self, row: int) -> str:
        """The context of question `row`, counted from 0."""
        return self.contexts[self.context_of[row]]

    @property
    def labels(self) -> np.ndarray:
        """int32 `[n, 2]`: the first character of each question's first answer and one past its last; 0, 0 for none.

        Where the data puts an answer outside the context, as only evaluation keeps it, the nearest end of the context.
        """

        spans = np.zeros((len(self), 2), np.int32)
        for row, given in enumerate(self.answers):
            for text, start in given[:1]:
                spans[row] = [min(max(place, 0), len(self.context(row))) for place in (start, start + len(text))]
        return spans

    def take(self, rows: Iterable[int]) -> QuestionExamples:
        taken = super().take(rows)
        used, context_of = np.unique(taken.context_of, return_inverse=True)
        contexts = [self.contexts[place] for place in used]
        return dataclasses.replace(taken, contexts=contexts, context_of=context_of.astype(np.int32).reshape(-1))

    def texts(self) -> list[str]:
        return self.questions + self.contexts

    def contents(self) -> Iterator[tuple[str, ...]]:
        return ((q.strip(), self.context(i).strip()) for i, q in enumerate(self.questions))


def is_there(context: str, text: str, start: int) -> bool:
    """Whether an answer is in its context at its `answer_start`."""
    return start >= 0 and context.startswith(text, start)


def _aligned(examples: QuestionExamples) -> list[tuple[Answer, ...]]:
    """Of each question the answers that are at their `answer_start`."""
    return [
        tuple(answer for answer in given if is_there(examples.context(row), *answer))
        for row, given in enumerate(examples.answers)
    ]


def training_questions(examples: QuestionExamples, notes: list[str]) -> QuestionExamples:
    """The questions to train on: only answers that are at their `answer_start`, and only questions that have such an
    answer or are impossible. `notes` receives what was left out.

    Raises:
        UsageError: where no question is left.
    """
    sound = _aligned(examples)
    if sound == examples.answers:
        return examples
    kept = [row for row, given in enumerate(sound) if given or not examples.answers[row]]
    if not kept:
        rule = "Training needs an answer that is in its context at answer_start, counted in characters"
        received = f"{examples.name}, where none of {len(examples):,} questions has one"
        todo = "Repair the file: answer_start = context.find(text) looks for it."
        raise UsageError(f"{rule}. Received: {received}. {todo}")
    num_bad = sum(map(len, examples.answers)) - sum(map(len, sound))
    notes.append(
        f"{examples.name}: {num_bad:,} answers that are not at answer_start are left out of training; questions left "
        f"out because no answer remains: {len(examples) - len(kept):,} of {len(examples):,}"
    )
    return dataclasses.replace(examples, answers=sound).take(kept)


def filled_text(value: Any, what: str, where: str, *, strict: bool = True) -> str:
    """A question or a context, which must not be of nothing but blanks.

    Args:
        value: As it was given.
        what: `question` or `context`.
        where: What messages call its place.
        strict: As for `check_text`.
    """
    text = check_text(value, what, where, strict=strict)
    if not text.strip():
        raise UsageError(f"A {what} must not be empty. Received: an empty one in {where}. Repair or drop the question.")
    return text


def _answers(given: Any, impossible: Any, where: str) -> tuple[Answer, ...]:
    """The answers, empty for an impossible question."""
    if given is None and not impossible:
        rule = "Every question needs 'answers', an empty list if it has none"
        raise UsageError(f"{rule}. Received: no 'answers' in {where}. Add them or drop the question{UNLABELLED}.")
    match given or []:
        case {"text": list(texts), "answer_start": list(starts)}:
            pairs = list(itertools.zip_longest(texts, starts))
        case list(entries):
            pairs = [(a.get("text"), a.get("answer_start")) if isinstance(a, dict) else (a, None) for a in entries]
        case other:
            pairs = [(other, None)]
    for text, start in pairs:
        if not isinstance(text, str) or not text.strip() or type(start) is not int:
            raise UsageError(
                "'answers' must be a list of objects with 'text', which is not empty, and 'answer_start', a whole "
                "number: a character of the context, counted from 0; or an object with two equally long lists under "
                "these names; or an empty list for a question without an answer. "
                f"Received: text={text!r:.60}, answer_start={start!r:.60} in {where}. Repair or drop the question."
            )
    if not isinstance(impossible, bool | None) or (impossible and pairs):
        rule = "is_impossible must be true or false, and a question with true must have no answers"
        received = f"is_impossible={impossible!r:.60} with {counted(len(pairs), 'answer')} in {where}"
        raise UsageError(f"{rule}. Received: {received}. Repair it.")
    return tuple((check_text(text, "text", where), start) for text, start in pairs)


QUESTION_COLUMNS = ("question", "context")
"""The columns of tables, unless the user names others."""
_LEVELS = (("article", "paragraphs", "title"), ("paragraph", "qas", "context"), ("question", "", ""))
"""Of SQuAD's JSON: what an entry is, the key of the list in it, and the key of what all in that list share."""
_BY_NAME = DataConfig()


class NestedFile(OpenFile):
    """Questions of SQuAD's articles, whose columns nobody can choose."""


def open_questions(source: Source, config: DataConfig = _BY_NAME) -> OpenFile:
    """Opens questions as rows of a table; lines are read row by row.

    Args:
        source: As for `open_rows`.
        config: Says the file's format and columns. Columns of a table: those of questions and contexts, empty for
            `question` and `context`, and of answers, empty for `answers`.

    Raises:
        UsageError: for a file that cannot be read, or options that do not fit it.
    """
    options = {"header": config.header, "delimiter": config.separator}
    file = open_rows(source, _format(source, config), takes_articles=True, **options)
    if not isinstance(file, Entries):
        return file
    if named_by_user(*config.text_column, config.label_column):
        rule = "JSON with questions grouped by their contexts has no columns to choose"
        received = f"text_column={','.join(config.text_column)!r}, label_column={config.label_column!r} for {file.name}"
        raise UsageError(f"{rule}. Received: {received}. Drop them.")

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        for number, row in enumerate(_nested_rows(file.entries, file.name, {}, _LEVELS), start=1):
            yield number, row if isinstance(row, UsageError) else [row.get(column) for column in wanted]

    columns = ["id", "title", *QUESTION_COLUMNS, "answers", "is_impossible"]
    return NestedFile(name=file.name, columns=columns, read=read, unit="question")


def _nested_rows(
    entries: list[Any], where: str, shared: dict[str, Any], levels: Sequence[tuple[str, str, str]]
) -> Iterator[dict[str, Any] | UsageError]:
    """The questions in a list of articles, paragraphs or questions, with the title and the context that they share."""
    (what, key, name), *inner = levels
    for number, entry in enumerate(entries, start=1):
        at = f"{where}, {what} {number}"
        if not isinstance(entry, dict) or (key and not isinstance(entry.get(key), list)):
            listing = f" with a list {key!r}" if key else ""
            yield UsageError(
                f"In SQuAD's JSON, every {what} is an object{listing}. Received: {entry!r:.60} in {at}. "
                "Repair or drop it."
            )
        elif key:
            yield from _nested_rows(entry[key], at, {**shared, name: entry.get(name)}, inner)
        else:
            yield entry | shared


def read_questions(
    source: Source, config: DataConfig = _BY_NAME, *, version_2_with_negative: bool = False
) -> QuestionExamples:
    """Reads a file of questions with their answers. No question is dropped because of where its answers are.

    Args:
        source: As for `open_questions`: JSON of any kind, Parquet, or a table in memory. Each question has an `id`,
            `answers` (a list of objects with `text` and `answer_start`, or an object with a list of each), and maybe
            `is_impossible`.
        config: As for `open_questions`; and whether questions that cannot be used are left out, and counted.
        version_2_with_negative: Whether a question may have no answer.

    Raises:
        UsageError: for a file that cannot be read, a bad question, one without an answer where there may be none, or
            no question at all.
    """
    format = _format(source, config)
    if format not in ("jsonl", "parquet"):
        rule = "Questions with answers come as JSON (SQuAD's own, or one question per line) or .parquet"
        raise UsageError(f"{rule}. Received: {source_name(source)!r} as {format}. Convert it.")
    file = open_questions(source, config).without_rejected()
    texts = question_columns(file, config.text_column)
    label = "".join(in_data([config.label_column], file.columns)) or "answers"
    columns = ["id", *texts, label, "is_impossible"]
    # A line of JSON may have keys that the first line lacks.
    wanted = list(dict.fromkeys(column for column in columns if format == "jsonl" or column in file.columns))
    known, contexts, bad_rows = set(), {}, BadRows(config.skip_bad_rows)

    def checked(line: int, cells: list[Any]) -> tuple[int, str, str, int, tuple[Answer, ...]]:
        row, at = dict(zip(wanted, cells, strict=True)), f"{file.name}, {file.unit} {line}"
        own_id, *asked, given, impossible = map(row.get, columns)
        if isinstance(own_id, bool) or not isinstance(own_id, str | int) or own_id == "":
            received = "none" if own_id in (None, "") else f"id={own_id!r:.60}"
            rule = "Every question needs an id, a word or a number"
            raise UsageError(f"{rule}. Received: {received} in {at}. Add one or drop it.")
        own_id = check_text(str(own_id), "id", at)
        at = f"{at} (id {own_id!r:.60})"
        if own_id in known:
            raise UsageError(f"Every question needs a unique id. Received: a repeated id in {at}. Rename or drop it.")
        question, context = (filled_text(text, what, at) for what, text in zip(QUESTION_COLUMNS, asked, strict=True))
        answers = _answers(given, impossible, at)
        known.add(own_id)
        return line, own_id, question, contexts.setdefault(context, len(contexts)), answers

    kept = list(bad_rows.usable(file.read(wanted), checked))
    notes = bad_rows.skipped(file.name, len(kept), "question", "questions")
    lines, ids, questions, context_of, answers = zip(*kept, strict=True)
    impossible = [own_id for own_id, given in zip(ids, answers, strict=True) if not given]
    if impossible and not version_2_with_negative:
        raise UsageError(
            f"Questions without an answer need version_2_with_negative. Received: {len(impossible):,} of {len(ids):,} "
            f"questions of {file.name} without one, the first with id {impossible[0]!r:.60}. "
            "Pass --version_2_with_negative, or drop them."
        )
    examples = QuestionExamples(
        name=file.name,
        ids=[*ids],
        questions=[*questions],
        contexts=[*contexts],
        context_of=np.array(context_of, np.int32),
        answers=[*answers],
        lines=np.array(lines, np.int64),
        unit=file.unit,
        columns={} if isinstance(file, NestedFile) else {"text_column": texts, "label_column": (label,)},
    )
    sound = _aligned(examples)
    bad = [own_id for own_id, given, kept in zip(ids, answers, sound, strict=True) if given != kept]
    if bad:
        count, total = sum(map(len, sound)), sum(map(len, answers))
        shown = ", ".join(f"{own_id!r:.60}" for own_id in bad[:_SHOWN_IDS])
        more = f" and {len(bad) - _SHOWN_IDS:,} more" if len(bad) > _SHOWN_IDS else ""
        about = f"{file.name}: {total - count:,} of {total:,} answers are not in their context at answer_start: "
        notes = (*notes, f"{about}{'ids' if len(bad) > 1 else 'id'} {shown}{more}")
    return dataclasses.replace(examples, notes=notes)


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
        rule = "Question answering needs two text columns: one of questions, one of contexts"
        raise UsageError(f"{rule}. Received: text_column={','.join(columns)!r}. Pass --text_column=QUESTION,CONTEXT.")
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


def _format(source: Source, config: DataConfig) -> str:
    format = source_format(source, config)
    return "jsonl" if format == "squad" else format
