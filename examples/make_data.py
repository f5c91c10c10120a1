"""Writes small generated files for the commands of docs/: `python examples/make_data.py data`.

Reviews with a sentiment, sentences with names, contexts with questions, questions with choices, and a corpus. All are
generated, so what a model learns from them is of no use elsewhere.
"""

import json
import pathlib
import sys

from tfbert.data.demo_corpus import demo_corpus
from tfbert.tasks.answering.demo import demo_questions
from tfbert.tasks.choosing.demo import demo_choices
from tfbert.tasks.tagging.demo import demo_tagged_data
from tfbert.tasks.texts.demo import demo_data


def main() -> None:
    """Writes all files into the directory named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/make_data.py DIRECTORY")
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    files = reviews() | tagged() | questions() | choices()
    files["corpus.txt"] = "\n\n".join("\n".join(document) for document in demo_corpus()[:500]) + "\n"
    for name, text in files.items():
        (directory / name).write_text(text)
    print(f"{len(files)} files in {directory}: {', '.join(files)}")


def reviews() -> dict[str, str]:
    """train.tsv, dev.tsv and test.tsv with labels; new.csv and reviews.txt without."""
    train, validation = demo_data()
    rows = list(zip(validation.text, validation.labels, strict=True))
    parts = {"train": list(zip(train.text, train.labels, strict=True))[:2000], "dev": rows[:300], "test": rows[300:600]}
    files = {
        f"{name}.tsv": "label\tsentence\n" + "".join(f"{label}\t{text}\n" for text, label in part)
        for name, part in parts.items()
    }
    new = [text for text, _ in rows[600:620]]
    files["new.csv"] = "sentence\n" + "".join(f"{json.dumps(text)}\n" for text in new)
    files["reviews.txt"] = "".join(f"{text}\n" for text in new)
    return files


def tagged() -> dict[str, str]:
    """train.conll and dev.conll with tags; new.conll without."""
    train, validation = demo_tagged_data()
    sentences = [
        "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
        for table in (train, validation)
        for words, tags in zip(table.words, table.tags, strict=True)
    ]
    new = ["".join(f"{word}\n" for word in words) for words in validation.words[-20:]]
    files = {"train.conll": sentences[:1000], "dev.conll": sentences[-220:-20], "new.conll": new}
    return {name: "\n".join(part) for name, part in files.items()}


def questions() -> dict[str, str]:
    """train.json and dev.json in SQuAD's form; asked.jsonl without answers."""
    train, validation = demo_questions()
    files = {
        f"{name}.json": squad(table, count) for name, table, count in (("train", train, 1500), ("dev", validation, 200))
    }
    asked = zip(validation.questions[-20:], (validation.contexts[i] for i in validation.context_of[-20:]), strict=True)
    files["asked.jsonl"] = "".join(json.dumps({"question": q, "context": context}) + "\n" for q, context in asked)
    return files


def choices() -> dict[str, str]:
    """train_choices.jsonl and dev_choices.jsonl with labels; asked_choices.jsonl without."""
    train, validation = demo_choices()
    parts = {"train": train.asked[:1500], "dev": validation.asked[:200], "asked": validation.asked[-20:]}
    files = {}
    for name, part in parts.items():
        rows = [{"context": one.context, "question": one.question, "choices": one.choices} for one in part]
        labels = [{"label": one.index} if name != "asked" else {} for one in part]
        files[f"{name}_choices.jsonl"] = "".join(
            json.dumps(row | label) + "\n" for row, label in zip(rows, labels, strict=True)
        )
    return files


def squad(table, count: int) -> str:
    """The first questions of a table as SQuAD's JSON."""
    paragraphs = [
        {
            "context": table.contexts[table.context_of[i]],
            "qas": [
                {
                    "id": table.ids[i],
                    "question": table.questions[i],
                    "answers": [{"text": text, "answer_start": start} for text, start in table.answers[i]],
                }
            ],
        }
        for i in range(count)
    ]
    return json.dumps({"version": "1.1", "data": [{"title": "generated", "paragraphs": paragraphs}]})


if __name__ == "__main__":
    main()
