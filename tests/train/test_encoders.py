"""Training each encoder: the same updates on any split and in any way, and a run by the command that splits, resumes,
answers and is exported."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.bert import worst
from tests.support.encoders import batch_of, make, write_run
from tests.support.host_tokenizers import OF_ENCODERS
from tests.support.models import strategy_of
from tests.support.runs import assert_same_bits, changed, make_config, run_to, undrawn, weights
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


@pytest.mark.parametrize(
    "model_type, way", [each if each == QUICK else pytest.param(*each, marks=SLOW) for each in GRID]
)
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
    config = make_config(tmp_path, "whole")
    config = changed(config, training={"max_steps": 4})
    with undrawn():
        finetune(config)
        again = changed(config, output={"output_dir": str(tmp_path / "cut")})
        run_to(2, again, monkeypatch)
        finetune(again)
        split = make_config(tmp_path, "split", strategy="mirrored", num_replicas=2)
        finetune(changed(split, training={"max_steps": 4}))
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
