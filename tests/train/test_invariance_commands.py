"""Each command gives one device's weights however a batch is split, dropout on and the last batch ragged.

Of {one device, two replicas, two workers through TF_CONFIG} x micro-batches x {float32, bfloat16, float16} x {XLA off,
on}: all cells of texts with 1, 2 and 4 micro-batches; of texts with LoRA with 2; of pre-training by AdamW and by LAMB
with 1 and 4. Of tagged words, answers, choices and several labels a text, whose sentences and contexts are longer than
a row, the 18 cells in which each two values meet; of windows three.
"""

import functools
import itertools

import numpy as np
import pytest

from tests.support.flag_values import parsed
from tests.support.models import tiny_bert
from tests.support.records import VOCAB_SIZE, some_records, write_records
from tests.support.runs import TOKENS, tokenizer_of, undrawn, weights, write_corpus
from tests.support.splits import DEVICES, NO_GRADIENT, PRECISIONS, alone, assert_same_update, launched, split_flags
from tests.support.task_runs import CHOICES, LABEL_WORDS, LABELS, QUESTIONS, SENTENCES, arguments_of, write_tasks
from tfbert.bert.models import class_of
from tfbert.commandline import verb_of
from tfbert.config.run import FINETUNE, PRETRAIN
from tfbert.model.head import save_pretrained
from tfbert.tokens.vocabulary import SPECIAL_TOKENS

TEXTS, LORA, WINDOWS = "texts", "lora", "windows"  # Windows are of the texts with several labels.
RATES = {"adamw": "1e-3", "lamb": "5e-3"}
TASKS = (SENTENCES, QUESTIONS, CHOICES, LABELS)
HEADS = {
    TEXTS: ("SequenceClassification", ("0", "1")),
    SENTENCES: ("TokenClassification", ("O", "B-PER", "B-WORK", "I-WORK")),
    QUESTIONS: ("QuestionAnswering", ("LABEL_0", "LABEL_1")),
    CHOICES: ("MultipleChoice", ("LABEL_0",)),
    LABELS: ("SequenceClassification", LABEL_WORDS),
}
OF = {LORA: TEXTS, WINDOWS: LABELS}
"""Whose model and data a kind has."""
# The scores of all tokens of a row are one softmax, which feels no constant: nothing that adds one to every token.
WITHOUT = {QUESTIONS: (*NO_GRADIENT, "qa_outputs.bias", "layer.0.output.LayerNorm.bias")}
WITHOUT[CHOICES] = (*NO_GRADIENT, "classifier.bias")  # Likewise the scores of all choices.
OWN = dict.fromkeys((SENTENCES, LABELS), ["--class_weights=1,2,0.5,1.5", "--label_smoothing=0.1"])
OWN[LABELS] = [*OWN[LABELS], "--label_threshold=0.5"]  # These runs have nothing to choose it on.
OWN[WINDOWS] = [*OWN[LABELS], "--long_texts=windows", "--max_seq_length=8"]
OWN[LORA] = ["--lora_rank=4", "--lora_targets=all"]
MICRO_BATCHES, XLA = (1, 2, 4), (False, True)
GRID = [*itertools.product([TEXTS], DEVICES, MICRO_BATCHES, PRECISIONS, XLA)]
GRID += [*itertools.product([LORA], DEVICES, (2,), PRECISIONS, XLA)]
GRID += [*itertools.product(RATES, DEVICES, (1, 4), PRECISIONS, XLA)]
GRID += [
    (task, devices, MICRO_BATCHES[(i + j + xla + 1) % 3], precision, xla)
    for task in TASKS
    for (i, devices), (j, precision), xla in itertools.product(enumerate(DEVICES), enumerate(PRECISIONS), XLA)
]
GRID += [(WINDOWS, "mirrored", 2, "float32", True), (WINDOWS, "two_workers", 4, "float32", False)]
GRID += [(WINDOWS, "two_workers", 1, "bfloat16", True)]


def run_command(command, arguments):
    """What the command does, in this process."""
    with undrawn():
        config = parsed(*map(str, arguments), command=command)
        verb_of(config)(config)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Of a kind: command and flags of all its runs, the first weights, and by XLA those of one big batch a step.

    With and without it batches have other widths, and noise belongs to places in a row of some width.
    """
    directory = tmp_path_factory.mktemp("invariance")
    write_corpus(directory)
    write_tasks(directory)
    # Two batches of 16 and one of 4, of which a second replica with 4 micro-batches has none.
    write_records(directory / "records.tfrecord", some_records(36))
    words = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(VOCAB_SIZE - 5))]
    (directory / "words.txt").write_text("\n".join(words) + "\n")
    common = ["--num_train_epochs=1", "--save_steps=0"]

    @functools.cache
    def model_of(kind):
        head, labels = HEADS[kind]
        model = tiny_bert(num_labels=len(labels), dropout=0.1, num_hidden_layers=1, kind=class_of("bert", head))
        model.config.id2label = dict(enumerate(labels))
        save_pretrained(model, tokenizer_of(TOKENS if kind == TEXTS else [*TOKENS, "##s"]), directory / f"{kind}-model")
        return directory / f"{kind}-model"

    def flags_of(kind, out, rate=None):
        if kind in RATES:
            own = [f"--train_records={directory / 'records.tfrecord'}", f"--vocab_file={directory / 'words.txt'}"]
            own += ["--model=scratch/L-2_H-128", "--max_seq_length=16", "--global_batch_size=16", "--warmup_ratio=0"]
            own += ["--lr_schedule=constant", f"--optimizer={kind}", f"--learning_rate={rate or RATES[kind]}"]
            return PRETRAIN, [*own, *common, f"--output_dir={out}"]
        task = OF.get(kind, kind)
        if task == TEXTS:
            # One epoch of 44 rows in batches of 8: the last batch holds 4, so a second replica's share of it is empty.
            own = [f"--train_file={directory / 'train.tsv'}", "--max_seq_length=16", "--global_batch_size=8"]
        else:
            own = arguments_of(directory, task, out)
            own = [flag for flag in own if not flag.startswith(("--vocab_file", "--validation_file"))]
        own += [f"--model={model_of(task)}", "--learning_rate=1e-3", *OWN.get(kind, ())]
        return FINETUNE, [*own, *common, f"--output_dir={out}"]

    @functools.cache
    def whole(kind, xla):
        out = directory / f"{kind}-{xla}"
        command, flags = flags_of(kind, out)
        run_command(command, [*flags, *["--xla"] * xla])
        return weights(out)

    @functools.cache
    def before(kind):
        if kind not in RATES:
            return weights(model_of(OF.get(kind, kind)))
        run_command(*flags_of(kind, directory / f"{kind}-before", rate="1e-12"))
        return weights(directory / f"{kind}-before")

    return flags_of, before, whole


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("kind, devices, micro_batches, precision, xla", GRID)
def test_every_split_gives_the_weights_of_one_device(reference, tmp_path, kind, devices, micro_batches, precision, xla):
    flags_of, before, whole = reference
    command, flags = flags_of(kind, tmp_path / "split")
    flags += split_flags(devices, micro_batches, precision, xla)
    if devices == "two_workers":
        launched(command.script, flags)
    elif xla:
        alone(command.script, flags)
    else:
        run_command(command, flags)
    start, one, split = before(kind), whole(kind, xla), weights(tmp_path / "split")
    assert_same_update(start, one, split, precision, WITHOUT.get(kind, NO_GRADIENT))
    trained = [np.abs(one[name] - value).max() for name, value in start.items()]
    largest = np.max(trained) if kind == LORA else np.median(trained)
    assert largest > 1e-3, "the updates must be larger than what is allowed to differ"
