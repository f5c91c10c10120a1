"""Examples of text tasks that have labels."""

import gzip
import json

import pyarrow
from pyarrow import parquet

from tfbert.tasks.text_task import TextExamples


def labelled(labels, texts=None, text_pairs=None):
    """Texts with these labels; the texts are empty where none are given."""
    return TextExamples(name="labelled", text=texts or [""] * len(labels), text_pair=text_pairs, labels=labels)


def tsv(*rows: str) -> str:
    """A file of lines with a text and a label."""
    return "".join(f"{row}\n" for row in ("text\tlabel", *rows))


def json_lines(*rows: dict) -> str:
    """A file of them."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_rows(path, labels):
    """Rows with these labels, in the format that the path's ending says."""
    rows = [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)]
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text(json_lines(*rows))
    else:
        separator = "," if path.suffix == ".csv" else "\t"
        cells = [("text", "label"), *((row["text"], "" if row["label"] is None else str(row["label"])) for row in rows)]
        data = "\n".join(separator.join(pair) for pair in cells).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)
