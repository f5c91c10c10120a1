"""Writes small generated files for the commands of docs/: `python examples/make_data.py data`.

Reviews with a sentiment, sentences with names, contexts with questions, questions with choices, and a corpus. All are
generated, so what a model learns from them is of no use elsewhere.
"""

import json
import pathlib
import sys

from tfbert.data.rows import demo_table


def built_in(task: str) -> list[list[dict]]:
    """The rows of the built-in `train` and `validation` of a task."""
    tables = [demo_table(task, split) for split in ("train", "validation")]
    return [[dict(zip(table.columns, row, strict=True)) for _, row in table.read(table.columns)] for table in tables]


def main() -> None:
    """Writes all files into the directory named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/make_data.py DIRECTORY")
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    files = reviews() | tagged() | questions() | choices()
    documents = ["\n".join(row["sentences"]) for row in built_in("pretraining")[0][:500]]
    files["corpus.txt"] = "\n\n".join(documents) + "\n"
    for name, text in files.items():
        (directory / name).write_text(text)
    print(f"{len(files)} files in {directory}: {', '.join(files)}")


def reviews() -> dict[str, str]:
    """train.tsv, dev.tsv and test.tsv with labels; new.csv and reviews.txt without."""
    train, rows = built_in("classification")
    parts = {"train": train[:2000], "dev": rows[:300], "test": rows[300:600]}
    files = {
        f"{name}.tsv": "label\tsentence\n" + "".join(f"{row['label']}\t{row['text']}\n" for row in part)
        for name, part in parts.items()
    }
    new = [row["text"] for row in rows[600:620]]
    files["new.csv"] = "sentence\n" + "".join(f"{json.dumps(text)}\n" for text in new)
    files["reviews.txt"] = "".join(f"{text}\n" for text in new)
    return files


def tagged() -> dict[str, str]:
    """train.conll and dev.conll with tags; new.conll without."""
    train, validation = built_in("token_classification")
    sentences = [
        "".join(f"{word}\t{tag}\n" for word, tag in zip(row["tokens"], row["tags"], strict=True))
        for row in train + validation
    ]
    new = ["".join(f"{word}\n" for word in row["tokens"]) for row in validation[-20:]]
    files = {"train.conll": sentences[:1000], "dev.conll": sentences[-220:-20], "new.conll": new}
    return {name: "\n".join(part) for name, part in files.items()}


def questions() -> dict[str, str]:
    """train.json and dev.json in SQuAD's form; asked.jsonl without answers."""
    train, validation = built_in("question_answering")
    asked = [{"question": row["question"], "context": row["context"]} for row in validation[-20:]]
    asked_lines = "".join(json.dumps(row) + "\n" for row in asked)
    return {"train.json": squad(train[:1500]), "dev.json": squad(validation), "asked.jsonl": asked_lines}


def choices() -> dict[str, str]:
    """train_choices.jsonl and dev_choices.jsonl with labels; asked_choices.jsonl without."""
    train, validation = built_in("multiple_choice")
    unlabelled = [{key: value for key, value in row.items() if key != "label"} for row in validation[-20:]]
    parts = {"train": train[:1500], "dev": validation[:200], "asked": unlabelled}
    return {f"{name}_choices.jsonl": "".join(json.dumps(row) + "\n" for row in part) for name, part in parts.items()}


def squad(rows: list[dict]) -> str:
    """Questions as SQuAD's JSON."""
    paragraphs = []
    for row in rows:
        answers = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in answers]
        asked = {"id": row["id"], "question": row["question"], "answers": answers}
        paragraphs.append({"context": row["context"], "qas": [asked]})
    return json.dumps({"version": "1.1", "data": [{"title": "generated", "paragraphs": paragraphs}]})


if __name__ == "__main__":
    main()
