"""Tagged words, answers, choices, several labels a text, and texts in windows, trained by the command, end in one
device's weights however a batch is split, dropout on: of {one device, two replicas, two workers through TF_CONFIG} x
{1, 2, 4 micro-batches} x {float32, bfloat16, float16} x {XLA off, on}, the 18 cells in which each two values meet (of
windows three). Sentences and contexts are longer than a row, and the last batch is ragged."""

import functools
import itertools

import numpy as np
import pytest

from tests.support.models import VOCAB, tiny_bert
from tests.support.runs import weights
from tests.support.splits import DEVICES, NO_GRADIENT, PRECISIONS, alone, assert_same_update, launched, split_flags
from tests.support.task_runs import (
    CHOICES,
    LABEL_WORDS,
    LABELS,
    QUESTIONS,
    SENTENCES,
    arguments_of,
    command,
    write_tasks,
)
from tfbert.bert.models import (
    TFBertForMultipleChoice,
    TFBertForQuestionAnswering,
    TFBertForSequenceClassification,
    TFBertForTokenClassification,
)
from tfbert.model.head import save_pretrained
from tfbert.tokens.tokenizer import BertTokenizer

TAGS = ("O", "B-PER", "B-WORK", "I-WORK")
HEADS = {
    SENTENCES: (TFBertForTokenClassification, TAGS, "classifier.weight"),
    QUESTIONS: (TFBertForQuestionAnswering, ("LABEL_0", "LABEL_1"), "qa_outputs.weight"),
    CHOICES: (TFBertForMultipleChoice, ("LABEL_0",), "classifier.weight"),
    LABELS: (TFBertForSequenceClassification, LABEL_WORDS, "classifier.weight"),
}
# The scores of all tokens of a row are one softmax, which feels no constant: nothing that adds one to every token.
WITHOUT = {QUESTIONS: (*NO_GRADIENT, "qa_outputs.bias", "layer.0.output.LayerNorm.bias")}
WITHOUT[CHOICES] = (*NO_GRADIENT, "classifier.bias")  # Likewise the scores of all choices.
WITHOUT |= dict.fromkeys((SENTENCES, LABELS), NO_GRADIENT)
OWN = dict.fromkeys((SENTENCES, LABELS), ["--class_weights=1,2,0.5,1.5", "--label_smoothing=0.1"])
OWN[LABELS] = [*OWN[LABELS], "--label_threshold=0.5"]  # These runs have nothing to choose it on.
OWN |= {QUESTIONS: [], CHOICES: []}
WINDOWS = "windows"  # Of the same texts with several labels.
HEADS[WINDOWS], WITHOUT[WINDOWS] = HEADS[LABELS], WITHOUT[LABELS]
OWN[WINDOWS] = [*OWN[LABELS], "--long_texts=windows", "--max_seq_length=8"]
MICRO_BATCHES = (1, 2, 4)
GRID = [
    (task, devices, MICRO_BATCHES[(i + j + xla + 1) % 3], precision, xla)
    for task in (SENTENCES, QUESTIONS, CHOICES, LABELS)
    for (i, devices), (j, precision), xla in itertools.product(enumerate(DEVICES), enumerate(PRECISIONS), (False, True))
]
GRID += [(WINDOWS, "mirrored", 2, "float32", True), (WINDOWS, "two_workers", 4, "float32", False)]
GRID += [(WINDOWS, "two_workers", 1, "bfloat16", True)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """By task, the flags of all runs; a directory with the first weights; and where one big batch a step led, by XLA.

    With and without it batches have other widths, and noise belongs to places in a row of some width.
    """
    directory = tmp_path_factory.mktemp("tasks")
    write_tasks(directory)
    words = (directory / "vocab.txt").read_text().split()
    tokenizer = BertTokenizer(words + [f"[unused{i}]" for i in range(VOCAB - len(words))])

    @functools.cache
    def start(task):
        kind, labels, _ = HEADS[task]
        model = tiny_bert(num_labels=len(labels), dropout=0.1, num_hidden_layers=1, kind=kind)
        model.config.id2label = dict(enumerate(labels))
        save_pretrained(model, tokenizer, directory / f"{task}-model")
        return directory / f"{task}-model"

    def arguments(task, out):
        given = arguments_of(directory, LABELS if task == WINDOWS else task, out)
        given = [flag for flag in given if not flag.startswith(("--vocab_file", "--validation_file"))]
        own = [f"--model={start(task)}", "--num_train_epochs=1", "--learning_rate=1e-3", "--save_steps=0"]
        return [*given, *own, *OWN[task]]

    @functools.cache
    def whole(task, xla):
        out = directory / f"{task}-{xla}"
        command(*arguments(task, out), *["--xla"] * xla)
        return weights(out)

    return arguments, start, whole


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("task, devices, micro_batches, precision, xla", GRID)
def test_every_split_gives_the_weights_of_one_device(reference, tmp_path, task, devices, micro_batches, precision, xla):
    arguments, start, whole = reference
    given = [*arguments(task, tmp_path / "split"), *split_flags(devices, micro_batches, precision, xla)]
    if devices == "two_workers":
        launched("run_finetune.py", given)
    elif xla:
        alone("run_finetune.py", given)
    else:
        command(*given)
    before, one, split = weights(start(task)), whole(task, xla), weights(tmp_path / "split")
    assert_same_update(before, one, split, precision, WITHOUT[task])
    head = HEADS[task][-1]
    assert np.abs(one[head] - before[head]).max() > 1e-3, "the runs must have trained"
