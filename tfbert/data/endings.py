"""The formats of files and the endings that they have, for reading and for writing. The first ending of each is the
usual one; all but .parquet may also be followed by .gz."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

Formats = Mapping[str, tuple[str, ...]]
"""Formats by name, each with its endings."""

ROWS: Formats = {"tsv": (".tsv",), "csv": (".csv",), "jsonl": (".jsonl", ".json"), "parquet": (".parquet",)}
TEXTS: Formats = {"text": (".txt",), **ROWS}
"""Where labels are not needed, also plain text: one text per line, which cannot have a label."""
IOB_ENDINGS = (".iob", ".iob2", ".bio")
CONLL_ENDINGS = (".conll", ".conllu", *IOB_ENDINGS)
WORDS: Formats = {"conll": (*CONLL_ENDINGS, ".txt", ".tsv")} | {name: ROWS[name] for name in ROWS if name != "tsv"}
CORPUS: Formats = {"jsonl": (*ROWS["jsonl"], ".ndjson"), "parquet": ROWS["parquet"], "": (".txt", ".text", "")}
"""What is read from a directory. Text may be cut in several ways; `wiki_00` has no ending."""

TABLES: Formats = {name: ROWS[name] for name in ("tsv", "csv")}
PREDICTED_TEXTS: Formats = {**TABLES, "jsonl": ROWS["jsonl"]}
PREDICTED_TAGS: Formats = {"conll": (".conll", ".iob", ".bio", ".txt"), "jsonl": ROWS["jsonl"], **TABLES}
PREDICTED_ANSWERS: Formats = {"jsonl": (".jsonl",), **TABLES, "squad": (".json",)}


def ending_of(path: str | pathlib.PurePath) -> str:
    """A name's ending in lower case, without .gz but for .parquet.gz, which nothing is read from; empty without one."""
    name = pathlib.PurePath(path).name.lower()
    ending = pathlib.PurePath(name.removesuffix(".gz")).suffix
    return ".parquet.gz" if ending == ".parquet" and name.endswith(".gz") else ending


def format_of(path: str | pathlib.PurePath, formats: Formats) -> str:
    """The format that a name's ending stands for; empty if none."""
    ending = ending_of(path)
    return next((name for name, endings in formats.items() if ending in endings), "")
