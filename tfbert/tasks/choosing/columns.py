"""Which columns of a table hold contexts, questions, choices and labels: as the user says, or by their usual names."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Sequence

from tfbert.data.columns import Finder, check_different
from tfbert.errors import UsageError

CONTEXT_NAMES = ("context", "article", "passage", "premise", "paragraph", "dialogue", "story", "ctx", "sent1", "para")
QUESTION_NAMES = ("question", "question_stem", "query", "goal", "sent2", "stem")
LIST_NAMES = ("choices", "options", "endings", "choice")
"""Usual names of a column that holds all choices of a question."""
LABEL_NAMES = (("label",), ("answerkey", "answer", "gold_label", "correct_option", "labels", "target", "gold", "cop"))
"""Usual names of the label's column; a plain `label` wins over all others."""
_ENDS = re.compile(r"(choice|option|ending|answer|sol|op)?[_ ]?(\d{1,3}|[a-z])", re.ASCII)
_HINT = (
    "Name them with --choice_columns (one column of lists, or one for each choice), "
    "--text_column=CONTEXT,QUESTION and --label_column"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table.

    Attributes:
        context: That of the contexts; empty where there is none.
        question: That of the questions; empty where there is none.
        choices: One whose cells hold all choices of a question, or one for each choice; empty where they are inside of
            the question, as in ARC's own files.
        label: That of the labels; empty where there is none.
    """

    context: str
    question: str
    choices: tuple[str, ...]
    label: str

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.context, self.question, *self.choices, self.label)))

    @property
    def by_option(self) -> dict[str, tuple[str, ...]]:
        """All of them, by the options that name them. A context alone cannot be named, only a question."""
        texts = (self.context, self.question) if self.context and self.question else (self.question,)
        named = {"text_column": texts, "choice_columns": self.choices, "label_column": (self.label,)}
        return {option: columns for option, columns in named.items() if columns and all(columns)}


def find_columns(
    name: str,
    columns: Sequence[str],
    *,
    text_column: Sequence[str] = (),
    choice_columns: Sequence[str] = (),
    label_column: str = "",
    find_label: bool = True,
) -> Columns:
    """Decides which columns hold what.

    Args:
        name: What messages call the data.
        columns: All columns there are.
        text_column: As the user named them: context and question, or the only one of these. Empty: found by name.
        choice_columns: As the user named them. Empty: found by name.
        label_column: As the user named it. Empty: found by name.
        find_label: Whether to look for a label column by name. If not, only `label_column` counts.

    Raises:
        UsageError: for a column that is not there, or if none, or several, could be meant.
    """
    asked = {"text_column": text_column, "choice_columns": choice_columns, "label_column": [label_column]}
    given = Finder(name, columns, todo=_HINT, **asked)
    texts = given.asked["text_column"]
    context, question = texts if len(texts) == 2 else ("", *texts) if texts else ("", "")
    if not texts:
        context = given.one_of("context", "text_column", [CONTEXT_NAMES])
        question = given.one_of("question", "text_column", [QUESTION_NAMES])
    choices = given.asked["choice_columns"]
    if not choices and (name_of_list := given.one_of("choices", "choice_columns", [LIST_NAMES])):
        choices = (name_of_list,)
    choices = choices or _numbered(given.usual)
    label = "".join(given.asked["label_column"])
    if find_label and not label:
        label = given.one_of("label", "label_column", LABEL_NAMES, choices)
    if not choices and (label or not find_label):
        choices = tuple(given.usual.get("answers", ()))
    if not context and not question:
        raise given.none("a context or a question", "text_column")
    if not choices and not question:
        raise given.none("the choices", "choice_columns")
    found = Columns(context=context, question=question, choices=choices, label=label)
    check_different(*found.all)
    return found


def no_choices(name: str, columns: Sequence[str]) -> UsageError:
    """The error for a table in which nothing looks like choices."""
    return Finder(name, columns, todo=_HINT).none("the choices", "choice_columns")


def _numbered(usual: dict[str, list[str]]) -> tuple[str, ...]:
    """Columns such as `ending0`, `ending1`, ..., or `A`, `B`, ...: those of the stem with most of them, at least two,
    without a gap from 0, 1 or A on."""
    stems: dict[tuple[str, bool], dict[int, str]] = {}
    for key, names in usual.items():
        if (match := _ENDS.fullmatch(key)) and len(names) == 1 and (match[1] or not match[2].isdigit()):
            number = int(match[2]) if match[2].isdigit() else string.ascii_lowercase.index(match[2])
            stems.setdefault((match[1] or "", match[2].isdigit()), {})[number] = names[0]
    best: tuple[str, ...] = ()
    for (_, has_digits), found in stems.items():
        first = 1 if has_digits and 0 not in found else 0
        numbers = range(first, first + len(found))
        if len(found) >= 2 and set(numbers) == set(found) and len(found) > len(best):
            best = tuple(found[number] for number in numbers)
    return best
