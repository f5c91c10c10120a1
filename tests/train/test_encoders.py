"""Training each encoder: the same updates on any split and in any way, and a run by the command that splits, resumes,
answers and is exported.

What such runs save, transformers 5 loads in PyTorch: logits of each task, and ids by AutoTokenizer. That needs PyTorch,
transformers 5 and TensorFlow in one environment.
"""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support import texts
from tests.support.bert import worst
from tests.support.encoders import batch_of, make, write_run
from tests.support.host_tokenizers import OF_ENCODERS
from tests.support.models import strategy_of
from tests.support.runs import assert_same_bits, make_config, run_to, undrawn, weights
from tests.support.task_runs import CHOICES, LABELS, QUESTIONS, SENTENCES, arguments_of, command, write_tasks
from tfbert.bert.models import class_of
from tfbert.commandline import run_command
from tfbert.config.run import FINETUNE
from tfbert.config.tables import ENCODERS
from tfbert.model.forward import forward
from tfbert.tokens.host import read_tokenizer
from tfbert.train.run import finetune

SLOW = pytest.mark.slow
TEXTS = ["alpha beta", "gamma", "good film " * 20]


@functools.cache
def trained(model_type, replicas=1, parts=1, lora=False, recompute=False, xla=False, policy="float32"):
    """The weights after two updates of 8 rows with dropout; and those before."""
    keras.config.set_dtype_policy(policy)
    with strategy_of(replicas).scope():
        # The updates are those of each layer.
        model = make(model_type, dropout=0.1, **{"num_hidden_layers": 1} if lora else {})
        if lora:
            model.enable_lora(2, targets="all", seed=1)
        before = model.get_weights()
        compute = functools.partial(forward, recompute=recompute)
        options = {"gradient_accumulation_steps": parts, "jit_compile": xla, "forward": compute}
        tuner = tfbert.FineTuner(model, seed=1, **options)
        tuner.compile(tfbert.AdamW(1e-2, epsilon=1e-3), loss=keras.losses.SparseCategoricalCrossentropy(True))
    inputs = {name: np.concatenate([value, value[1:3]]) for name, value in batch_of(model).items()}
    tuner.fit(inputs, np.arange(8) % 3, batch_size=8, epochs=2, shuffle=False, verbose=0)
    keras.config.set_dtype_policy("float32")
    return model.get_weights(), before


BFLOAT16 = {"policy": "mixed_bfloat16"}
WAYS = {
    "micro_batches": ((1, 4), {}),
    "replicas": ((2, 1), {}),
    "both": ((2, 4), {}),
    "lora": ((2, 1), {"lora": True}),
    "recomputed": ((2, 4), {"recompute": True}),
    "xla": ((1, 1), {"xla": True}),
    "xla_both": ((2, 4), {"xla": True}),
    "bfloat16": ((1, 1), BFLOAT16),
    "bfloat16_both": ((2, 4), BFLOAT16),
}
"""Replicas and micro-batches, and how an update is made."""
QUICK = ("modernbert", "lora")
"""On two replicas; test_lora.py has low-rank updates in micro-batches, test_splits.py splits of a BERT without them."""
GRID = [(name, way) for name in ENCODERS for way in WAYS]
GRID = [each if each == QUICK else pytest.param(*each, marks=SLOW) for each in GRID]


@pytest.mark.parametrize("model_type, way", GRID)
def test_any_way_gives_the_weights_of_one_device(model_type, way):
    """Of one device in float32 without XLA and recomputation; in bfloat16 besides, more nearly, of one device in it.

    Each part's gradients, up to 0.1, are rounded by 2**-9 of that, and an update is at most 10 times its gradient (rate
    / epsilon): 2e-3 in each of two updates.
    """
    split, way = WAYS[way]
    one, before = trained(model_type, lora="lora" in way)
    found, _ = trained(model_type, *split, **way)
    distance = worst(one, found)
    print(f"{distance:.1e}")
    assert distance < (3e-2 if "policy" in way else 2e-6)
    if "policy" in way:
        assert worst(trained(model_type, **way)[0], found) < 4e-3
    assert worst(one, before) > 5e-3


@SLOW
@pytest.mark.parametrize("model_type", ENCODERS)
def test_a_run_splits_resumes_answers_and_is_exported(model_type, tmp_path, monkeypatch):
    tokenizer = write_run(model_type, tmp_path)
    config = make_config(tmp_path, "whole").changed({"max_steps": 4})
    cut = config.changed({"output_dir": str(tmp_path / "cut")})
    with undrawn():
        finetune(config)
        run_to(2, cut, monkeypatch)
        finetune(cut)
        finetune(make_config(tmp_path, "split", strategy="mirrored", num_replicas=2).changed({"max_steps": 4}))
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "split")
    assert one.keys() == two.keys() and max(worst(one[name], two[name]) for name in one) < 2e-6

    answers = tfbert.load(tmp_path / "whole")(TEXTS, top_k=None)
    by_label = [sorted(answer, key=lambda each: each["label"]) for answer in answers]
    shares = np.array([[each["score"] for each in answer] for answer in by_label])
    model = tfbert.TFAutoModelForSequenceClassification.from_pretrained(tmp_path / "whole")
    assert type(model).__name__ == f"TF{ENCODERS[model_type].classes}ForSequenceClassification"
    tokens = read_tokenizer(tmp_path / "whole").encode(TEXTS, max_seq_length=16)
    lengths = np.diff(tokens.row_splits)
    inputs = {"input_ids": tf.RaggedTensor.from_row_lengths(tokens.flat, lengths).to_tensor(tokenizer.pad_id)}
    inputs["attention_mask"] = tf.sequence_mask(lengths, dtype=tf.int32)
    if "token_type_ids" in model.config.encoder.inputs:
        inputs["token_type_ids"] = tf.zeros_like(inputs["input_ids"])
    logits = model(inputs).logits
    assert worst(tf.nn.softmax(logits), shares) < 1e-5
    model.save(tmp_path / "model.keras")
    assert worst(keras.models.load_model(tmp_path / "model.keras")(inputs).logits, logits) == 0

    flags = ["--mode=export", f"--model={tmp_path / 'whole'}", f"--output_dir={tmp_path / 'exported'}"]
    assert run_command(FINETUNE, ["command", *flags]) == 0
    signatures = tf.saved_model.load(tmp_path / "exported").signatures
    assert {*signatures["token_ids"].structured_input_signature[1]} == {*model.config.encoder.inputs}
    assert worst(signatures["token_ids"](**inputs)["logits"], logits) < 1e-5
    assert ("text" in signatures) == (model_type not in OF_ENCODERS)
    if "text" in signatures:
        assert worst(signatures["text"](text=tf.constant(TEXTS))["probabilities"], shares) < 1e-5


HEADS = dict.fromkeys(("texts", "numbers", LABELS), "SequenceClassification")
HEADS |= {SENTENCES: "TokenClassification", QUESTIONS: "QuestionAnswering", CHOICES: "MultipleChoice"}
"""The class of each task's model."""
PAIRS = [*zip(texts.TEXTS, texts.TEXTS[::-1], strict=True)]


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
    files = {"texts": "train.tsv", "numbers": "numbers.tsv"}
    if task in files:
        return [f"--train_file={directory / files[task]}", "--max_seq_length=16", "--global_batch_size=8"]
    drawn = ("--model", "--vocab", "--output_dir", "--num_train", "--learning_rate")
    return [argument for argument in arguments_of(directory, task, task) if not argument.startswith(drawn)]


@SLOW
@pytest.mark.parametrize("task", HEADS)
def test_transformers_computes_what_the_run_saved(corpus, task):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers", "5")
    model_type, directory = corpus
    out = directory / f"{task}-run"
    own = [f"--model={directory / 'model'}", f"--output_dir={out}"]
    command(*arguments(directory, task), *own, "--max_seq_length=48", "--max_steps=2", "--learning_rate=3e-3")

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
    tfbert.load(out)  # Is read.
    assert model.config.num_labels == other.config.num_labels
