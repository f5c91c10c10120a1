"""The built-in data: files of rows in `tfbert/demos/`, read as any others."""

from __future__ import annotations

import pathlib

from tfbert.data.given_table import GivenTable
from tfbert.data.rows import open_rows

DEMOS = pathlib.Path(__file__).parent.parent / "demos"


def demo_table(task: str, split: str) -> GivenTable:
    """The rows of a task's `train` or `validation`."""
    path = DEMOS / task / f"{split}.jsonl.gz"
    columns = open_rows(path, "jsonl").columns
    return GivenTable(
        name=f"demo {split}", columns=columns, read=lambda wanted: open_rows(path, "jsonl").read(wanted), unit="example"
    )
