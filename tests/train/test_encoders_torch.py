"""What runs of the command save, transformers 5 loads in PyTorch: logits of each task, and ids by AutoTokenizer.

Needs PyTorch, transformers 5 and TensorFlow in one environment.
"""

import numpy as np
import pytest

import tfbert
from tests.support.bert import worst
from tests.support.encoders import write_run
from tests.support.task_runs import CHOICES, LABELS, QUESTIONS, SENTENCES, arguments_of, command, write_tasks
from tests.support.texts import TEXTS
from tfbert.bert.models import class_of
from tfbert.config.tables import ENCODERS
from tfbert.tokens.host import read_tokenizer

pytestmark = pytest.mark.slow
HEADS = {
    "texts": "SequenceClassification",
    "numbers": "SequenceClassification",
    LABELS: "SequenceClassification",
    SENTENCES: "TokenClassification",
    QUESTIONS: "QuestionAnswering",
    CHOICES: "MultipleChoice",
}
"""The class of each task's model."""
PAIRS = [(text, TEXTS[-1 - i]) for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module", params=ENCODERS)
def corpus(request, tmp_path_factory):
    """The `model_type`, and a directory of data and a small model with a tokenizer of its kind."""
    directory = tmp_path_factory.mktemp(request.param)
    write_run(request.param, directory)
    write_tasks(directory)
    numbers = [f"{i * 7 % 10 / 10}\t{'good ' * (i % 4)}film" for i in range(20)]
    (directory / "numbers.tsv").write_text("\n".join(["label\tsentence", *numbers]) + "\n")
    return request.param, directory


def arguments(directory, task):
    if task in ("texts", "numbers"):
        name = "train" if task == "texts" else "numbers"
        return [f"--train_file={directory / name}.tsv", "--max_seq_length=16", "--global_batch_size=8"]
    drawn = ("--model", "--vocab", "--output_dir", "--num_train", "--learning_rate")
    return [argument for argument in arguments_of(directory, task, task) if not argument.startswith(drawn)]


@pytest.mark.parametrize("task", HEADS)
def test_transformers_computes_what_the_run_saved(corpus, task):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers", "5")
    model_type, directory = corpus
    out = directory / f"{task}-run"
    own = [
        "--max_seq_length=48",
        "--max_steps=2",
        "--learning_rate=3e-3",
        f"--model={directory / 'model'}",
        f"--output_dir={out}",
    ]
    command(*arguments(directory, task), *own)

    theirs, ours = transformers.AutoTokenizer.from_pretrained(out), read_tokenizer(out)
    tokens = ours.encode(*zip(*PAIRS, strict=True), max_seq_length=32)
    expected = theirs(*map(list, zip(*PAIRS, strict=True)), truncation=True, max_length=32)["input_ids"]
    rows = [row.tolist() for row in np.split(tokens.flat, tokens.row_splits[1:-1])]
    assert rows == expected

    padded = theirs.pad({"input_ids": rows}, return_tensors="np", padding=True)
    inputs = {name: np.array(padded[name], np.int32) for name in ("input_ids", "attention_mask")}
    model = class_of(model_type, HEADS[task]).from_pretrained(out)
    if "token_type_ids" in model.config.encoder.inputs:
        inputs["token_type_ids"] = np.cumsum(inputs["input_ids"] == ours.sep_id, axis=1).clip(0, 1)
    if task == CHOICES:
        inputs = {name: value[: len(value) // 2 * 2].reshape(-1, 2, value.shape[1]) for name, value in inputs.items()}
    auto = getattr(transformers, f"AutoModelFor{HEADS[task]}")
    other, said = auto.from_pretrained(out, output_loading_info=True)
    assert type(other).__name__ == f"{ENCODERS[model_type].classes}For{HEADS[task]}"
    assert not any(said[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    with torch.inference_mode():
        outputs = other.eval()(**{name: torch.tensor(value).long() for name, value in inputs.items()}).to_tuple()
    is_token = inputs["attention_mask"] > 0
    for one, two in zip(model(inputs).to_tuple(), outputs, strict=True):
        is_of_tokens = tuple(one.shape[:2]) == is_token.shape and task != CHOICES
        places = is_token if is_of_tokens else slice(None)
        assert worst(np.asarray(one)[places], two.numpy()[places]) < 1e-5
    assert isinstance(tfbert.load(out), object) and model.config.num_labels == other.config.num_labels
