"""The forward pass that computes what is read, packed or not, with recomputation or without: logits, loss, gradients,
updates are those of the models' own calls and of one example a row, under every way of running."""

import functools
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import models
from tests.support.batches import BATCH, distributed, make_examples, packed_batches, plain_batches, plan_of
from tests.support.cases import SLOW, slow
from tests.support.models import POLICIES, QUICK_FLOAT32, random_batch, tiny_bert, variables_of
from tests.support.processes import output_of
from tests.support.runs import assert_same_bits, changed, make_config, run_to, weights
from tests.support.updates import CLIP, DECAY, EPSILON, RATE, TOLERANCE, assert_equal_weights, build
from tfbert.batches.pipeline import EncodedExamples
from tfbert.batches.plan import FILL
from tfbert.bert.models import TFBertForMaskedLM, TFBertForPreTraining
from tfbert.model.forward import encode, forward, forward_pretraining
from tfbert.step.keras3.parts import KeyedRandom
from tfbert.step.noise import Rows, noise_key
from tfbert.step.updates import NO_DECAY
from tfbert.train.run import finetune

LABELS = 3


def differentiated(compute, model, inputs, labels, weights=1.0):
    """(logits, loss, gradients) of a summed loss, in float32."""
    with tf.GradientTape() as tape:
        logits = tf.cast(compute(inputs), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_sum(tf.where(weights > 0, weights * losses, 0.0))
    return logits, loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables_of(model))]


def assert_same(model, found, expected, tolerance, rows=slice(None)):
    """Logits of these rows, loss and gradients."""
    np.testing.assert_allclose(found[0][rows], expected[0][rows], atol=5 * tolerance)
    assert float(found[1]) == pytest.approx(float(expected[1]), rel=5 * tolerance)
    size = max(1.0, float(tf.linalg.global_norm(expected[2])))
    for variable, one, other in zip(model.trainable_variables, found[2], expected[2], strict=True):
        np.testing.assert_allclose(one, other, atol=5 * tolerance * size, rtol=0, err_msg=variable.path)


# A classifier's plain rows.


def assert_computes_the_models_own(model, inputs, labels, tolerance, xla=False):
    def own(inputs):
        return model(inputs, training=True, output_hidden_states=True).logits

    step = tf.function(differentiated, jit_compile=True, autograph=False) if xla else differentiated
    found = step(lambda x: forward(model, x, True), model, inputs, labels)
    assert_same(model, found, differentiated(own, model, inputs, labels), tolerance)


@POLICIES
def test_logits_and_gradients_are_the_models_own(policy, tolerance, xla):
    keras.config.set_dtype_policy(policy)
    inputs, labels, _ = random_batch(6)
    inputs["token_type_ids"][:, 5:] = 1
    assert_computes_the_models_own(tiny_bert(num_hidden_layers=3), inputs, labels, tolerance, xla)


@pytest.mark.parametrize("names", [("input_ids",), ("input_ids", "attention_mask"), ("input_ids", "token_type_ids")])
@pytest.mark.parametrize("width", [slow(1), 9])
def test_inputs_that_may_be_left_out(names, width):
    inputs, labels, _ = random_batch(4, width=12)
    inputs = {name: inputs[name][:, :width] for name in names}
    other = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}
    assert_computes_the_models_own(tiny_bert(num_hidden_layers=1, **other), inputs, labels, 2e-6)


def test_what_fills_a_row_changes_nothing():
    model = tiny_bert()
    inputs, _, _ = random_batch(5)
    other = inputs | {"input_ids": np.where(inputs["attention_mask"], inputs["input_ids"], model.config.vocab_size - 1)}
    np.testing.assert_array_equal(forward(model, other, False), forward(model, inputs, False))


@SLOW
def test_with_dropout_the_logits_have_the_models_mean():
    """Means over 3,000 noises of both, some standard errors apart at most; dropout is on at every place of both."""
    model = tiny_bert(dropout=0.2)
    inputs, _, _ = random_batch(2)
    # Each row of a batch has noise of its own.
    inputs = {name: np.tile(values, [3000, 1]) for name, values in inputs.items()}
    dropout = KeyedRandom(model, 1)

    def logits(compute):
        with dropout.keyed(noise_key(1, tf.constant(0, tf.int64)), Rows(0, 6000)):
            found = compute(inputs).numpy().reshape(3000, 2, -1)
        return found.mean(axis=0), found.std(axis=0)

    mean, spread = logits(lambda x: forward(model, x, True))
    expected, expected_spread = logits(lambda x: model(x, training=True, output_hidden_states=True).logits)
    assert (np.abs(mean - expected) < 5 * np.hypot(spread, expected_spread) / np.sqrt(3000)).all()
    np.testing.assert_allclose(spread, expected_spread, rtol=0.1)


# Packed rows.


@pytest.mark.parametrize("replicas, accumulation", [(1, 1), (2, 4), slow(2, 1), slow(1, 2)])
def test_batches_equal_numpy(replicas, accumulation):
    examples = make_examples()
    plan = plan_of(examples, replicas * accumulation)
    shape, tokens = plan.shape, examples.tokens
    batches = packed_batches(examples, plan, replicas, pad_id=7)
    assert len(batches) == replicas * len(plan)
    for number, (inputs, labels, weights_) in enumerate(batches):
        step, replica = divmod(number, replicas)
        rows = plan.rows[step].reshape(replicas, accumulation, -1)[replica]
        starts = plan.starts[step].reshape(replicas, accumulation, -1)[replica]
        expected = {name: np.zeros((accumulation, shape.num_rows * shape.width), int) for name in inputs}
        expected["input_ids"][:] = 7
        for part in range(accumulation):
            for index, (row, start) in enumerate(zip(rows[part], starts[part], strict=True)):
                if row == FILL:
                    continue
                length = tokens.lengths[row]
                place = slice(start, start + length)
                expected["input_ids"][part, place] = tokens.flat[tokens.row_splits[row] :][:length]
                expected["token_type_ids"][part, place] = np.arange(length) >= tokens.second_start[row]
                expected["position_ids"][part, place] = np.arange(length)
                expected["example_ids"][part, place] = index + 1
        for name in ("input_ids", "token_type_ids", "position_ids", "example_ids"):
            assert inputs[name].dtype == tf.int32
            assert inputs[name].shape == (accumulation * shape.num_rows, shape.width)
            np.testing.assert_array_equal(tf.reshape(inputs[name], [accumulation, -1]), expected[name], err_msg=name)
        np.testing.assert_array_equal(inputs["cls_positions"], starts.reshape(-1))
        is_real = rows.reshape(-1) != FILL
        np.testing.assert_array_equal(labels[is_real], examples.labels[rows.reshape(-1)][is_real])
        np.testing.assert_array_equal(weights_, np.where(is_real, examples.weights[rows.reshape(-1)], 0))


@QUICK_FLOAT32
def test_logits_loss_and_gradients_equal_those_of_one_example_a_row(policy, tolerance, xla):
    keras.config.set_dtype_policy(policy)
    model, examples = tiny_bert(), make_examples()
    plan = plan_of(examples)

    @tf.function(jit_compile=xla, autograph=False)
    def compute(*batch):
        return differentiated(lambda inputs: forward(model, inputs, True), model, *batch)

    shapes = set()
    for one, other in zip(packed_batches(examples, plan), plain_batches(examples, plan), strict=True):
        shapes.add(tuple(tuple(tensor.shape) for tensor in tf.nest.flatten(one)))
        expected = differentiated(lambda inputs: model(inputs, training=True).logits, model, *other)
        assert_same(model, compute(*one), expected, tolerance, rows=(one[2] > 0).numpy())
    assert len(shapes) == 1, "every batch has the same shape, the short one too"


def test_examples_of_a_row_see_nothing_of_each_other():
    """Another neighbour changes no bit of a logit; a neighbour that is infinite neither."""
    model, examples = tiny_bert(), make_examples()
    plan = plan_of(examples)
    inputs, _, _ = packed_batches(examples, plan)[0]
    changed = inputs["example_ids"] == 3
    ids = tf.where(changed, (inputs["input_ids"] + 17) % model.config.vocab_size, inputs["input_ids"])
    before, after = (forward(model, inputs | {"input_ids": i}, False).numpy() for i in (inputs["input_ids"], ids))
    others = np.arange(BATCH) != 2
    np.testing.assert_array_equal(after[others], before[others])
    assert np.abs(after[2] - before[2]).max() > 1e-3


GRID = [(replicas, parts, "float32", False) for replicas, parts in ((1, 2), (1, 4), (1, 8), (2, 2))]
GRID += [(1, 1, "float32", True), (2, 2, "float32", True), (1, 2, "mixed_float16", True)]
GRID += [(2, 1, "mixed_float16", False), (2, 4, "mixed_bfloat16", False)]


@SLOW
@pytest.mark.parametrize("replicas, micro_batches, policy, xla", GRID)
def test_updates_equal_those_of_one_example_a_row(replicas, micro_batches, policy, xla):
    """Five updates with weights, pairs and a short last batch, against whole plain batches in NumPy."""
    examples = make_examples()
    plan = plan_of(examples, replicas * micro_batches)
    plain = tf.nest.map_structure(lambda tensor: tensor.numpy(), plain_batches(examples, plan))
    options = {"gradient_accumulation_steps": micro_batches, "max_grad_norm": CLIP, "jit_compile": xla}
    make = functools.partial(tiny_bert, num_hidden_layers=1)
    reference = models.reference_steps(make(), plain, models.NumpyAdamW(RATE, DECAY, EPSILON), CLIP, NO_DECAY)
    model = build(make, replicas=replicas, policy=policy, forward=forward, **options)
    model.fit(distributed(examples, plan, replicas), steps_per_epoch=len(plan), verbose=0)
    assert int(model.counters.skipped_steps.numpy()) == 0
    assert_equal_weights(model, reference, TOLERANCE[policy] * 2)


@SLOW
def test_a_stopped_packed_run_goes_on_to_the_same_bits(corpus, monkeypatch):
    options = {"data": {"batching": "packed"}, "training": {"class_weights": (1.0, 2.0)}}
    straight, resumed = (changed(make_config(corpus, name), **options) for name in ("straight", "resumed"))
    assert "after step 7 of 12" in run_to(7, resumed, monkeypatch)
    assert finetune(straight)["train_loss"] == finetune(resumed)["train_loss"]
    assert_same_bits(weights(corpus / "straight"), weights(corpus / "resumed"))


# Heads that read each token, or some: the last layer, and labels of tokens.


def labelled(count=37, share=0.6):
    """Examples whose tokens have labels, but for some."""
    examples = make_examples(count)
    rng = np.random.default_rng(9)
    size = len(examples.tokens.flat)
    labels = rng.integers(0, LABELS, size).astype(np.int32)
    weights = np.where(rng.random(size) < share, np.repeat(examples.weights, examples.tokens.lengths), 0)
    weights[: examples.tokens.lengths[0]] = 0  # An example without any.
    own = {"labels": labels, "weights": weights.astype(np.float32), "labels_tokens": True}
    return EncodedExamples(tokens=examples.tokens, **own)


def test_every_token_of_packed_rows_is_that_of_one_example_a_row():
    model, examples = tiny_bert(), make_examples(11)
    plan = plan_of(examples)
    batches = zip(packed_batches(examples, plan), plain_batches(examples, plan), strict=True)
    for (inputs, _, _), (alone, _, is_row) in batches:
        expected, found = (encode(model.bert, each).numpy() for each in (alone, inputs))
        for row in np.flatnonzero(is_row):
            length, start = int(alone["attention_mask"][row].numpy().sum()), int(inputs["cls_positions"][row])
            own = found.reshape(-1, found.shape[-1])[start : start + length]
            np.testing.assert_allclose(own, expected[row, :length], atol=1e-5)


@pytest.mark.parametrize("is_packed", [False, True])
def test_positions_are_those_of_every_token_with_their_gradients(is_packed):
    model, examples = tiny_bert(num_hidden_layers=2), make_examples()
    plan = plan_of(examples)
    inputs = (packed_batches if is_packed else plain_batches)(examples, plan)[0][0]
    rows, width = inputs["input_ids"].shape
    positions = np.random.default_rng(0).integers(0, width, (rows, 5)).astype(np.int32)
    # Only places that hold a token: what stands at the others is not defined.
    held = inputs["example_ids"] if is_packed else inputs["attention_mask"]
    positions = np.where(np.take_along_axis(held.numpy(), positions, 1) > 0, positions, 0).astype(np.int32)
    side = tf.constant(np.random.default_rng(1).normal(size=(rows, 5, 32)), tf.float32)

    def compute(read):
        with tf.GradientTape() as tape:
            values = read()
            loss = tf.reduce_sum(values * side)
        return values, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables_of(model.bert.encoder))]

    read = positions
    if is_packed:  # Of an example in each row, counted through the rows.
        own = inputs["example_ids"].numpy() == inputs["example_ids"].numpy()[:, :1]
        positions = np.where(np.take_along_axis(own, positions, 1), positions, 0)
        read = positions + width * np.arange(rows, dtype=np.int32)[:, None]
    found = compute(lambda: encode(model.bert, inputs, reads=tf.constant(read)))
    expected = compute(lambda: tf.gather(encode(model.bert, inputs), positions, batch_dims=1))
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("is_packed", [False, True])
def test_labels_of_tokens_stand_where_the_ids_are(is_packed):
    examples = labelled()
    plan, tokens = plan_of(examples), examples.tokens
    batches = (packed_batches if is_packed else plain_batches)(examples, plan)
    seen = np.zeros(len(tokens.flat), int)
    for rows, starts, (inputs, labels, weighed) in zip(plan.rows, plan.starts, batches, strict=True):
        ids = inputs["input_ids"].numpy()
        assert labels.shape == weighed.shape == ids.shape and (labels.dtype, weighed.dtype) == (tf.int32, tf.float32)
        found = [array.numpy().reshape(-1) for array in (labels, weighed)]
        counted = 0
        for place, (row, start) in enumerate(zip(rows, starts, strict=True)):
            if row == FILL:
                continue
            start = start if is_packed else place * ids.shape[1]
            own = slice(tokens.row_splits[row], tokens.row_splits[row + 1])
            there = slice(start, start + tokens.lengths[row])
            np.testing.assert_array_equal(found[0][there], examples.labels[own])
            np.testing.assert_array_equal(found[1][there], examples.weights[own])
            counted += np.count_nonzero(examples.weights[own])
            seen[own] += 1
        assert np.count_nonzero(found[1]) == counted, "nothing else weighs"
    np.testing.assert_array_equal(seen, 1)


# Heads of pre-training: words where they are masked, and next sentences.


@pytest.mark.parametrize("next_sentence", [True, slow(False)])
@pytest.mark.parametrize("policy, tolerance", [("float32", 2e-5), slow("mixed_bfloat16", 0.15)])
def test_packed_logits_are_those_of_one_example_a_row_and_of_all_places(policy, tolerance, next_sentence):
    keras.config.set_dtype_policy(policy)
    model, examples = tiny_bert(kind=TFBertForPreTraining if next_sentence else TFBertForMaskedLM), make_examples()
    plan = plan_of(examples)
    batches = packed_batches(examples, plan), plain_batches(examples, plan)
    for rows, (inputs, _, _), (plain, _, _) in zip(plan.rows, *batches, strict=True):
        lengths = plain["attention_mask"].numpy().sum(axis=1)
        positions = np.random.default_rng(4).integers(0, lengths[:, None], (len(lengths), 3)).astype(np.int32)
        is_real = rows != FILL
        through = np.where(is_real[:, None], inputs["cls_positions"][:, None] + positions, 0)
        # Predictions that a record lacks read the first place of the micro-batch.
        through[::2, -1] = 0
        counts = np.ones(positions.shape, bool)
        counts[::2, -1] = False
        found = forward_pretraining(model, inputs | {"masked_lm_positions": tf.constant(through, tf.int32)}, False)
        expected = forward_pretraining(model, plain | {"masked_lm_positions": tf.constant(positions)}, False)
        assert found.keys() == expected.keys() == {"masked_lm", *["next_sentence"] * next_sentence}
        assert all(np.isfinite(value.numpy().astype(np.float32)).all() for value in found.values())
        counted = counts & is_real[:, None]
        every = forward_pretraining(model, plain, False)
        every["masked_lm"] = tf.gather(every["masked_lm"], positions, batch_dims=1)
        for outputs, pairs in ((found, is_real), (every, slice(None))):
            for name, value in outputs.items():
                read = counted if name == "masked_lm" else pairs
                both = [tf.cast(each, tf.float32).numpy()[read] for each in (value, expected[name])]
                np.testing.assert_allclose(*both, atol=tolerance, rtol=0)


# Recomputation: the same gradients, dropout included, from less memory.


PLAIN, RECOMPUTED = (functools.partial(forward, recompute=recompute) for recompute in (False, True))


def make_model():
    return tiny_bert(dropout=0.3, num_hidden_layers=2)


def count_ops(function, name):
    """How often an operation occurs in the graph of a tf.function, functions it calls included."""
    definition = function.get_concrete_function().graph.as_graph_def()
    nodes = [*definition.node, *(node for part in definition.library.function for node in part.node_def)]
    return sum(node.op == name for node in nodes)


@pytest.fixture
def sums_in_written_order(optimised_graphs):
    """Without the pass of TensorFlow's graph optimiser that merges sums across layers, which changes their rounding."""
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    yield
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True})


RECOMPUTING = [("float32", False, 0.0), slow("mixed_bfloat16", False, 0.0), slow("mixed_float16", False, 0.0)]
RECOMPUTING += [slow("float32", True, 1e-5), slow("mixed_bfloat16", True, 1e-3)]


@pytest.mark.parametrize("policy, xla, tolerance", RECOMPUTING)
def test_gradients_are_the_same_with_dropout_on(policy, xla, tolerance, sums_in_written_order):
    keras.config.set_dtype_policy(policy)
    inputs, labels, _ = random_batch(6)

    def compute(forward):
        model = make_model()
        dropout = KeyedRandom(model, 1)

        def logits(inputs):  # Of rows 3 to 8 of a global batch.
            with dropout.keyed(noise_key(1, tf.constant(2, tf.int64)), Rows(tf.constant(3, tf.int64), 6)):
                return forward(model, inputs, True)

        # The key's context is left before the gradients, as it is in FineTuner: recomputation must remember it.
        return tf.function(lambda: differentiated(logits, model, inputs, labels), jit_compile=xla, autograph=False)

    plain, recomputed = compute(PLAIN), compute(RECOMPUTED)
    (_, loss, grads), (_, loss_again, grads_again) = plain(), recomputed()
    assert float(loss) == pytest.approx(float(loss_again), rel=max(tolerance, 1e-7))
    size = float(tf.linalg.global_norm(grads))
    for one, other in zip(grads, grads_again, strict=True):
        np.testing.assert_allclose(other, one, atol=tolerance * size, rtol=0)
    if not xla:  # Each of 2 layers but the last computes its attention once more.
        assert (count_ops(plain, "Softmax"), count_ops(recomputed, "Softmax")) == (2, 3)


@SLOW
@pytest.mark.parametrize("replicas", [1, 2])
def test_packed_rows_are_recomputed_too(replicas):
    examples = make_examples()
    plan = plan_of(examples, 2 * replicas)

    def train(forward):
        model = build(make_model, replicas=replicas, gradient_accumulation_steps=2, forward=forward)
        model.fit(distributed(examples, plan, replicas), steps_per_epoch=len(plan), verbose=0)
        return model.model.get_weights()

    for one, other in zip(train(PLAIN), train(RECOMPUTED), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6, rtol=0)


def test_what_is_not_trained_with_keys_is_left_as_it_was():
    inputs, _, _ = random_batch(3)
    model = make_model()
    np.testing.assert_array_equal(RECOMPUTED(model, inputs, False), PLAIN(model, inputs, False))
    noise = [RECOMPUTED(model, inputs, True).numpy() for _ in range(2)]
    assert (noise[0] != noise[1]).any()


MEMORY = """
import functools, os, pathlib, re
import keras
import tensorflow as tf
from tests.support.models import tiny_bert
from tests.support.updates import build
from tfbert.model.forward import forward

sizes = {"hidden_size": 128, "num_hidden_layers": 8, "intermediate_size": 512, "max_position_embeddings": 128}
make = functools.partial(tiny_bert, dropout=0.1, num_attention_heads=4, **sizes)
options = {"optimizer": lambda: keras.optimizers.SGD(0.1), "jit_compile": os.environ["COMPILED"] == "xla"}
trained = build(make, forward=functools.partial(forward, recompute=os.environ["KIND"] == "recompute"), **options)

def peak_after(rows):
    inputs = dict.fromkeys(("input_ids", "attention_mask"), tf.ones([rows, 128], tf.int32))
    trained.fit(tf.data.Dataset.from_tensors((inputs, tf.ones([rows], tf.int32))).repeat(2), verbose=0)
    # Not ru_maxrss: a process takes over that of the one that started it.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])

before = peak_after(1)
print(peak_after(64) - before)
"""


@SLOW
@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("compiled", ["plain", "xla"])
def test_the_peak_of_a_process_is_lower(compiled):
    """Eight layers' parts against their inputs: what 63 rows more add to the process's memory, in kB.

    One row's step holds what tracing and compiling take, which for XLA is more than a small step's data.
    """
    plain, recomputed = (int(output_of(MEMORY, KIND=kind, COMPILED=compiled)) for kind in ("keep", "recompute"))
    print(f"{compiled}: {plain / 1024:.0f} MB, recomputed {recomputed / 1024:.0f} MB")
    assert recomputed < 0.6 * plain
