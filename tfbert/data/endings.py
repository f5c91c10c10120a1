"""The formats of files and the endings that they have, for reading and for writing. The first ending of each is the
usual one; all but .parquet may also be followed by .gz."""

from __future__ import annotations

import pathlib
import shlex
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


SAVE_SHEET = "save the sheet as CSV (UTF-8), or with pandas: read_excel(PATH).to_csv('data.csv', index=False)"
_UNPACK = {".zip": "unzip", ".bz2": "bunzip2 -k", ".xz": "unxz -k", ".zst": "unzstd", ".7z": "7z x", ".rar": "unrar x"}
_UNPACK |= {".tar": "tar -xf", ".tgz": "tar -xzf", ".parquet.gz": "gunzip -k"}
_PANDAS = {".feather": "feather", ".pkl": "pickle", ".pickle": "pickle", ".orc": "orc", ".h5": "hdf", ".hdf5": "hdf"}
_PANDAS |= {".dta": "stata", ".sav": "spss", ".sas7bdat": "sas", ".xml": "xml", ".arrow": "feather"}
_RENAME = {".pq": ".parquet", ".parq": ".parquet", ".ndjson": ".jsonl", ".jsonlines": ".jsonl", ".jl": ".jsonl"}
_RENAME |= {".tab": ".tsv"}
_SHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")


def how_to_convert(path: pathlib.Path) -> str:
    """What to do with a file that is not read, judging by its ending: the end of a message, without a stop."""
    ending, name = ending_of(path), shlex.quote(str(path))
    if ending in _SHEETS:
        return SAVE_SHEET[0].upper() + SAVE_SHEET[1:]
    if ending in _UNPACK:
        return f"Unpack it: {_UNPACK[ending]} {name}"
    if ending in _PANDAS:
        saved = ", or pass its directory if datasets' save_to_disk wrote it" if ending == ".arrow" else ""
        return f"Convert it, with pandas: read_{_PANDAS[ending]}({str(path)!r}).to_parquet('data.parquet'){saved}"
    return f"Rename it to end in {_RENAME[ending]}" if ending in _RENAME else "Convert or rename it"


def ending_of(path: str | pathlib.PurePath) -> str:
    """A name's ending in lower case, without .gz but for .parquet.gz, which nothing is read from; empty without one."""
    name = pathlib.PurePath(path).name.lower()
    ending = pathlib.PurePath(name.removesuffix(".gz")).suffix
    return ".parquet.gz" if ending == ".parquet" and name.endswith(".gz") else ending


def format_of(path: str | pathlib.PurePath, formats: Formats) -> str:
    """The format that a name's ending stands for; empty if none."""
    ending = ending_of(path)
    return next((name for name, endings in formats.items() if ending in endings), "")
