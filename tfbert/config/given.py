"""Values that stand in options in the place of what a user names: data in memory for a file, and the columns that a
saved model was trained on. Imports nothing but the standard library."""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"(train|validation(_[\w-]+)?|test)=[\w.]+ of \d+ rows?\b")


class Given(str):
    """What `DataConfig` holds in the place of a path: the name of the data, with the data.

    As text, in JSON and in messages, it is the name alone, such as `train=DataFrame of 60 rows`.

    Attributes:
        source: What is read: a table, as `data.given_kinds` makes it, or a `pathlib.Path`; None for several sets.
        parts: Several sets, each with a name of its own.
    """

    source: Any
    parts: tuple[Given, ...]

    def __new__(cls, name: str, source: Any = None, parts: tuple[Given, ...] = ()) -> Given:
        given = super().__new__(cls, name)
        given.source, given.parts = source, parts
        return given

    @property
    def argument(self) -> str:
        """The name of the set: `train`, `validation`, `validation_NAME` or `test`."""
        return self.partition("=")[0]

    @property
    def what(self) -> str:
        """The data without the name of the set, such as `DataFrame of 60 rows`."""
        return self.partition("=")[2]

    def __deepcopy__(self, memo: dict[int, Any]) -> Given:
        return self  # As all text is.

    def __reduce__(self) -> tuple[Any, ...]:
        return Given, (str.__str__(self), self.source, self.parts)


class Recorded(str):
    """A column that a saved model was trained on, where its user names none: it is read where the data has it."""


def names_given_data(*values: Any) -> bool:
    """Whether any of these is the name of data in memory, as `run_config.json` has it."""
    return any(isinstance(value, str) and _NAME.match(value) is not None for value in values)
