"""Packed rows compute what one example a row computes: logits, loss, gradients, updates, under every way of running."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import BATCH, make_examples, packed_batches, plain_batches, plan_of
from tests.support.models import QUICK_FLOAT32, VOCAB, NumpyAdamW, reference_steps, strategy_of, tiny_bert, variables_of
from tests.support.runs import assert_same_bits, make_config, stop_at, weights
from tests.support.updates import CLIP, DECAY, EPSILON, RATE, TOLERANCE, assert_equal_weights, build
from tfbert.batches.pipeline import make_dataset
from tfbert.batches.plan import FILL
from tfbert.errors import Preempted
from tfbert.model.forward import forward
from tfbert.step.updates import NO_DECAY
from tfbert.train.run import finetune


@pytest.mark.parametrize(
    "replicas, accumulation",
    [(1, 1), (2, 4)] + [pytest.param(*case, marks=pytest.mark.slow) for case in ((2, 1), (1, 2))],
)
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
    def compute(inputs, labels, weights):
        with tf.GradientTape() as tape:
            # The model's own pass where rows are plain.
            output = forward(model, inputs, True) if "example_ids" in inputs else model(inputs, training=True).logits
            logits = tf.cast(output, tf.float32)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(tf.where(weights > 0, weights * losses, 0.0))
        grads = tape.gradient(loss, variables_of(model))
        return logits, loss, [tf.convert_to_tensor(g) for g in grads]

    shapes = set()
    for one, other in zip(packed_batches(examples, plan), plain_batches(examples, plan), strict=True):
        shapes.add(tuple(tuple(tensor.shape) for tensor in tf.nest.flatten(one)))
        is_real = (one[2] > 0).numpy()
        found, expected = compute(*one), compute.python_function(*other)
        np.testing.assert_allclose(found[0][is_real], expected[0][is_real], atol=5 * tolerance)
        assert float(found[1]) == pytest.approx(float(expected[1]), rel=5 * tolerance)
        for variable, a, b in zip(model.trainable_variables, found[2], expected[2], strict=True):
            size = float(tf.linalg.global_norm(expected[2]))
            np.testing.assert_allclose(a, b, atol=5 * tolerance * max(1.0, size), rtol=0, err_msg=variable.path)
    assert len(shapes) == 1, "every batch has the same shape, the short one too"


def test_examples_of_a_row_see_nothing_of_each_other():
    """Another neighbour changes no bit of a logit; a neighbour that is infinite neither."""
    model, examples = tiny_bert(), make_examples()
    plan = plan_of(examples)
    inputs, _, _ = packed_batches(examples, plan)[0]
    changed = inputs["example_ids"] == 3
    ids = tf.where(changed, (inputs["input_ids"] + 17) % VOCAB, inputs["input_ids"])
    before, after = (forward(model, inputs | {"input_ids": i}, False).numpy() for i in (inputs["input_ids"], ids))
    others = np.arange(BATCH) != 2
    np.testing.assert_array_equal(after[others], before[others])
    assert np.abs(after[2] - before[2]).max() > 1e-3


GRID = [
    (1, 2, "float32", False),
    (1, 1, "float32", True),
    (1, 4, "float32", False),
    (2, 2, "float32", False),
    (2, 2, "float32", True),
    (2, 4, "mixed_bfloat16", False),
    (1, 2, "mixed_float16", True),
    (2, 1, "mixed_float16", False),
    (1, 8, "float32", False),
]


@pytest.mark.slow
@pytest.mark.parametrize("replicas, micro_batches, policy, xla", GRID)
def test_updates_equal_those_of_one_example_a_row(replicas, micro_batches, policy, xla):
    """Five updates with weights, pairs and a short last batch, against whole plain batches in NumPy."""
    examples = make_examples()
    plan = plan_of(examples, replicas * micro_batches)
    plain = [
        ({name: t.numpy() for name, t in inputs.items()}, labels.numpy(), w.numpy())
        for inputs, labels, w in plain_batches(examples, plan)
    ]
    reference = reference_steps(tiny_bert(num_hidden_layers=1), plain, NumpyAdamW(RATE, DECAY, EPSILON), CLIP, NO_DECAY)
    model = build(
        lambda: tiny_bert(num_hidden_layers=1),
        replicas=replicas,
        policy=policy,
        gradient_accumulation_steps=micro_batches,
        max_grad_norm=CLIP,
        jit_compile=xla,
        forward=forward,
    )
    dataset = strategy_of(replicas).distribute_datasets_from_function(
        lambda _: make_dataset(examples, lambda: iter([plan]), range(replicas), replicas, shape=plan.shape)
    )
    model.fit(dataset, steps_per_epoch=len(plan), verbose=0)
    assert int(model.counters.skipped_steps.numpy()) == 0
    assert_equal_weights(model, reference, TOLERANCE[policy] * 2)


def packing(config, **training):
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, batching="packed"),
        training=dataclasses.replace(config.training, **training),
    )


@pytest.mark.slow
def test_a_stopped_packed_run_goes_on_to_the_same_bits(corpus, monkeypatch):
    straight = finetune(packing(make_config(corpus, "straight"), class_weights=(1.0, 2.0)))
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(Preempted, match="after step 7 of 12"):
            finetune(packing(make_config(corpus, "resumed"), class_weights=(1.0, 2.0)))
    resumed = finetune(packing(make_config(corpus, "resumed"), class_weights=(1.0, 2.0)))
    assert_same_bits(weights(corpus / "straight"), weights(corpus / "resumed"))
    assert straight["train_loss"] == resumed["train_loss"]
