"""Small data of tagged words, of questions and of several labels a text, what trains on it, and the command in this
process."""

import contextlib
import json

import numpy as np

from tests.support.flag_values import parsed
from tests.support.records import VOCAB_SIZE, some_records, write_records
from tests.support.runs import TOKENS, WORDS, changed, make_config, save_encoder, undrawn
from tests.support.saved_models import kept_models
from tfbert.commandline import verb_of
from tfbert.config.tasks import PRETRAINING
from tfbert.tokens.vocabulary import SPECIAL_TOKENS

SENTENCES, QUESTIONS, CHOICES = "token_classification", "question_answering", "multiple_choice"
LABELS, LABEL_WORDS = "multi_label_classification", ("cast", "film", "plot", "slow")
TEXTS = "texts"
KINDS = (TEXTS, PRETRAINING, SENTENCES, QUESTIONS, CHOICES, LABELS)
"""What a run may train on."""


def write_tasks(directory):
    """Training and validation data of the tasks, with sentences, texts and contexts longer than a row of 16 or 24
    tokens, and two to five choices a question; and a vocabulary."""
    rng = np.random.default_rng(5)
    for name, count in (("train", 27), ("dev", 13)):
        (directory / f"{name}.conll").write_text("".join(_sentence(rng) for _ in range(count)))
        rows = [_paragraph(rng, f"{name}{i}") for i in range(count)]
        data = {"version": "v2.0", "data": [{"title": "t", "paragraphs": rows}]}
        (directory / f"{name}.json").write_text(json.dumps(data))
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(_choices(rng, i)) + "\n" for i in range(count)))
    write_label_sets(directory)
    (directory / "vocab.txt").write_text("\n".join([*TOKENS, "##s"]) + "\n")


def write_small_model(directory):
    """`small`, a model of one layer for the words of `write_tasks`, for what no depth changes; no head yet."""
    save_encoder((directory / "vocab.txt").read_text().split("\n")[:-1], directory / "small")


def write_label_sets(directory):
    """Texts of up to 22 words; their labels are the words of `LABEL_WORDS` in them, but for some noise."""
    rng = np.random.default_rng(6)
    for name, count in (("train", 43), ("dev", 21)):
        rows = []
        for _ in range(count):
            words = [str(word) for word in rng.choice(WORDS, rng.integers(2, 23))]
            labels = [word for word in LABEL_WORDS if (word in words) != (rng.random() < 0.1)]
            rows.append({"text": " ".join(words), "labels": labels})
        (directory / f"{name}-labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _sentence(rng):
    words = [str(word) for word in rng.choice([*WORDS, "films", "é"], rng.integers(2, 30))]
    tags = {"film": "B-WORK", "plot": "B-WORK", "films": "I-WORK", "cast": "B-PER"}
    lines, before = [], "O"
    for word in words:
        tag = tags.get(word, "O")
        tag = "B-WORK" if tag == "I-WORK" and before[2:] != "WORK" else tag
        lines.append(f"{word}\tX\t{tag}\n")
        before = tag
    return "".join(lines) + "\n"


def _paragraph(rng, name):
    words = [str(word) for word in rng.choice(WORDS, rng.integers(4, 45))]
    context = " ".join(words)
    questions = []
    for number in range(2):
        first = int(rng.integers(len(words)))
        text = " ".join(words[first : first + int(rng.integers(1, 4))])
        start = len(" ".join(words[:first])) + (first > 0)
        is_impossible = bool(number and rng.random() < 0.6)
        answers = [] if is_impossible else [{"text": text, "answer_start": start}]
        question = " ".join(str(word) for word in rng.choice(WORDS, rng.integers(1, 8)))
        questions.append({"id": f"{name}-{number}", "question": question, "answers": answers})
        questions[-1]["is_impossible"] = is_impossible
    return {"context": context, "qas": questions}


def _choices(rng, number):
    def words(least, most):
        return " ".join(str(word) for word in rng.choice(WORDS, rng.integers(least, most)))

    choices = [f"{first} {words(1, 4)}" for first in rng.permutation(WORDS)[: rng.integers(2, 6)]]
    row = {"context": words(3, 30), "question": words(1, 5) if number % 5 else "", "choices": choices}
    return row | {"label": int(rng.integers(len(choices)))}


def arguments_of(directory, task, name, *, is_small=False):
    """What trains the task for a few updates, the last batch ragged, with dropout; of the model of
    `write_small_model`, where that is enough."""
    common = ["--model=scratch/tiny", f"--vocab_file={directory / 'vocab.txt'}", "--global_batch_size=8"]
    if is_small:
        write_small_model(directory)
        common = [f"--model={directory / 'small'}", "--global_batch_size=8"]
    common += [f"--output_dir={directory / name}", "--num_train_epochs=2", "--learning_rate=3e-3"]
    of_questions = ["--max_seq_length=24", "--doc_stride=9", "--max_query_length=5", "--version_2_with_negative"]
    ending, own = {
        SENTENCES: (".conll", ["--max_seq_length=16"]),
        CHOICES: (".jsonl", [f"--task={CHOICES}", "--max_seq_length=24"]),
        LABELS: ("-labels.jsonl", [f"--task={LABELS}", "--max_seq_length=16", "--label_threshold=auto_per_label"]),
        QUESTIONS: (".json", of_questions),
    }[task]
    files = [f"--{kind}_file={directory / name}{ending}" for kind, name in (("train", "train"), ("validation", "dev"))]
    return [*common, *files, *own]


def run_of(kind, corpus, name, **runtime):
    """A run of about 12 updates of two micro-batches, with dropout: the command that makes it, and its configuration.
    Writes its data, but for the texts of `write_corpus`."""
    if kind == TEXTS:
        return "run_finetune", make_config(corpus, name, **runtime)
    if kind == PRETRAINING:
        return "run_pretraining", pretraining(corpus, name, **runtime)
    write_tasks(corpus)
    config = config_of(*arguments_of(corpus, kind, name), "--gradient_accumulation_steps=2", "--logging_steps=1")
    return "run_finetune", changed(config, runtime=runtime)


def config_of(*arguments):
    """The configuration that a command line describes; `scratch/tiny`, where it names no model."""
    return parsed("--model=scratch/tiny", *map(str, arguments))


def command(*arguments):
    """What run_finetune.py does, in this process, without a report; what its verb returns."""
    config = config_of(*arguments)
    with undrawn(), kept_models() if config.mode in ("evaluate", "predict") else contextlib.nullcontext():
        return verb_of(config)(config)


def evaluate(directory, name):
    """What `--mode=evaluate` with the model `run` of a directory finds for a file there, and writes to `evaluated`."""
    files = [f"--validation_file={directory / name}", f"--output_dir={directory / 'evaluated'}"]
    return command("--mode=evaluate", f"--model={directory / 'run'}", *files)


def predict(directory, source, name, *more):
    """What `--mode=predict` with the model `run` of a directory writes there."""
    path = directory / name
    path.unlink(missing_ok=True)
    command("--mode=predict", f"--model={directory / 'run'}", f"--input_file={source}", f"--output_file={path}", *more)
    return path


def pretraining(corpus, name, **runtime):
    """As many updates of an epoch as `make_config`: 44 records in batches of 8."""
    records = write_records(corpus / "records.tfrecord", some_records(44))
    words = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(VOCAB_SIZE - 5))]
    (corpus / "words.txt").write_text("\n".join(words) + "\n")
    model = {"model_name_or_path": "scratch/L-2_H-128", "vocab_file": corpus / "words.txt"}
    data = {"task": PRETRAINING, "train_file": "", "validation_file": ""}
    data |= {"train_records": records, "validation_records": records}
    return make_config(corpus, name, **runtime).changed(model | data)
