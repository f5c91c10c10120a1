"""The project's first promise: the same update however a global batch is split."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.models import NumpyAdamW, random_batch, strategy_of
from tests.support.tf_keras_models import reference_steps, tiny_bert
from tests.support.tf_keras_updates import (
    CLIP,
    DECAY,
    EPSILON,
    RATE,
    TOLERANCE,
    adamw,
    assert_equal_weights,
    batches,
    build,
    concatenated,
    weights,
)
from tfbert.step.updates import NO_DECAY

REPLICAS = {"one_device": 1, "mirrored": 2}

# Quick float32 cases are in test_cluster (two workers, dropout on), test_invariance_tasks and test_tokens_read, XLA's
# is in test_terms; the rest of the grid is slow.
COVERING = {("mirrored", 2, "mixed_float16", False)}
GRID = [
    pytest.param(*case, marks=() if case in COVERING else pytest.mark.slow, id="-".join(map(str, case)))
    for case in (
        (name, micro_batches, policy, xla)
        for name in REPLICAS
        for micro_batches in (1, 2, 4)
        for policy in TOLERANCE
        for xla in (False, True)
    )
]


def noisy_bert():
    """Noise belongs to rows of the global batch, so that splits may not differ with dropout on either."""
    return tiny_bert(num_hidden_layers=1, dropout=0.2)


@pytest.fixture(scope="module")
def reference():
    keras.mixed_precision.set_global_policy("float32")
    return reference_steps(noisy_bert(), batches(2), NumpyAdamW(RATE, DECAY, EPSILON), CLIP, NO_DECAY)


@pytest.mark.parametrize("name, micro_batches, policy, xla", GRID)
def test_every_split_gives_the_weights_of_one_big_batch(name, micro_batches, policy, xla, reference):
    model = build(
        noisy_bert,
        replicas=REPLICAS[name],
        policy=policy,
        gradient_accumulation_steps=micro_batches,
        max_grad_norm=CLIP,
        jit_compile=xla,
    )
    dataset = tf.data.Dataset.from_tensor_slices(concatenated(batches(2))).batch(16)
    model.fit(dataset, verbose=0)
    assert int(model.counters.skipped_steps.numpy()) == 0
    assert_equal_weights(model, reference, TOLERANCE[policy])


@pytest.mark.parametrize(
    "replicas, micro_batches", [pytest.param(*case, marks=pytest.mark.slow) for case in [(1, 3), (2, 4)]]
)
def test_uneven_shares_over_two_epochs(replicas, micro_batches):
    """37 rows in batches of 16, split by Keras: whole, whole, and 5 rows for 8 micro-batches; twice."""
    everything = random_batch(37, seed=7)
    parts = [tf.nest.map_structure(lambda a, i=i: a[i : i + 16], everything) for i in (0, 16, 32)]
    expected = reference_steps(noisy_bert(), parts * 2, NumpyAdamW(RATE, DECAY, EPSILON), CLIP, NO_DECAY)
    model = build(noisy_bert, replicas=replicas, gradient_accumulation_steps=micro_batches, max_grad_norm=CLIP)
    inputs, labels, _ = everything
    history = model.fit(tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(16), epochs=2, verbose=0)
    assert_equal_weights(model, expected, 2e-5)
    assert int(model.optimizer.iterations.numpy()) == 6
    assert len(history.history["loss"]) == 2


# From here on a small model, for which the update can be written down.


def dense(seed=3):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Input([5]), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)]
    return keras.Sequential(layers)


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 5)).astype(np.float32), rng.integers(0, 3, count).astype(np.int32)


def sgd_reference(model, global_batches, rate, clip=0.0):
    """Plain gradient descent over whole batches; also the losses."""
    losses = []
    for x, y in global_batches:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))
        grads = tape.gradient(loss, model.trainable_variables)
        norm = float(tf.linalg.global_norm(grads))
        for variable, gradient in zip(model.trainable_variables, grads, strict=True):
            variable.assign_sub(rate * gradient * (clip / max(norm, clip) if clip else 1.0))
        losses.append(float(loss))
    return [v.numpy() for v in model.trainable_variables], losses


@pytest.mark.parametrize(
    "count, replicas, micro_batches",
    [
        (2, 2, 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(34, 1, 4), (1, 2, 1), (33, 2, 3), (37, 2, 1), (47, 2, 3)]
        ),
    ],
)
def test_shares_of_any_size_even_none(count, replicas, micro_batches):
    x, y = rows(count)
    parts = [(x[i : i + 16], y[i : i + 16]) for i in range(0, count, 16)]
    expected, losses = sgd_reference(dense(), parts * 2, 0.5, clip=0.1)
    model = build(
        dense,
        replicas=replicas,
        optimizer=lambda: keras.optimizers.SGD(0.5),
        gradient_accumulation_steps=micro_batches,
        max_grad_norm=0.1,
    )
    history = model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16), epochs=2, verbose=0)
    assert_equal_weights(model, expected, 1e-6)
    # Keras's running mean is over rows.
    sizes = [len(part[1]) for part in parts]
    by_epoch = [np.average(losses[i : i + len(parts)], weights=sizes) for i in (0, len(parts))]
    np.testing.assert_allclose(history.history["loss"], by_epoch, atol=1e-6)
    assert float(model.counters.loss_sum.numpy()) == pytest.approx(sum(losses), abs=1e-5)


def test_a_batch_of_no_weight_at_all_changes_nothing():
    model = build(dense, replicas=2, optimizer=lambda: keras.optimizers.SGD(0.5), gradient_accumulation_steps=2)
    before = weights(model)
    x, y = rows(8)
    model.fit(x, y, sample_weight=np.zeros(8), batch_size=8, verbose=0)
    assert_equal_weights(model, before, 0)
    assert int(model.counters.skipped_steps.numpy()) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "replicas, micro_batches, policy, optimizer",
    [
        (1, 2, "mixed_float16", "adamw"),
        (2, 1, "mixed_float16", "adamw"),
        (1, 2, "float32", "sgd"),
        (1, 1, "mixed_float16", "adamw"),
        (2, 1, "mixed_float16", "sgd"),
        (2, 2, "float32", "adamw"),
        (2, 2, "mixed_float16", "adamw"),
    ],
)
def test_a_step_that_is_not_finite_is_skipped_everywhere(replicas, micro_batches, policy, optimizer):
    """Row 2 of the second of four batches has an infinite weight: only one replica's one micro-batch sees it."""
    make = {"sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9), "adamw": adamw}[optimizer]
    options = {"gradient_accumulation_steps": micro_batches, "max_grad_norm": 1.0}

    def train(bad_steps, sound_steps):
        model = build(dense, replicas=replicas, policy=policy, optimizer=make, **options)
        count = 8 * len(bad_steps + sound_steps)
        x, y = (column[:count] for column in rows(32))
        sample_weight = np.ones(len(x), np.float32)
        for step in bad_steps:
            sample_weight[8 * step + 2] = np.inf
        model.fit(x, y, sample_weight=sample_weight, batch_size=8, shuffle=False, verbose=0)
        return model

    def counters(model):
        read = {name: variable.numpy() for name, variable in vars(model.counters).items()}
        return {name: read[name] for name in ("finite_steps", "skipped_steps", "skipped_in_a_row")}

    broken = train([1], [0])
    assert counters(broken) == {"finite_steps": 1, "skipped_steps": 1, "skipped_in_a_row": 1}
    assert not np.isfinite(broken.counters.gradient_norm.numpy())
    assert np.isfinite(broken.counters.loss_sum.numpy())
    assert int(broken.optimizer.iterations.numpy()) == 2
    assert_equal_weights(broken, weights(train([], [0])), 0)
    if replicas > 1:
        for variable in broken.model.trainable_variables:
            one, other = (local.numpy() for local in strategy_of(2).experimental_local_results(variable))
            np.testing.assert_array_equal(one, other)

    longer = train([1, 2], [0, 3])
    assert counters(longer) == {"finite_steps": 2, "skipped_steps": 2, "skipped_in_a_row": 0}
    assert all(np.isfinite(value).all() for value in weights(longer))
    assert any((a != b).any() for a, b in zip(weights(longer), weights(broken), strict=True))
    if policy == "mixed_float16":
        first = float(keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1)).loss_scale)
        assert float(broken.optimizer.loss_scale) == first / 2
        assert float(longer.optimizer.loss_scale) == first / 4


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_step_after_a_skipped_one_is_as_if_it_had_not_been(replicas):
    x, y = rows(24)
    model = build(dense, replicas=replicas, optimizer=lambda: keras.optimizers.SGD(0.5), gradient_accumulation_steps=2)
    sample_weight = np.ones(24, np.float32)
    sample_weight[10] = np.inf
    model.fit(x, y, sample_weight=sample_weight, batch_size=8, shuffle=False, verbose=0)
    expected, losses = sgd_reference(dense(), [(x[:8], y[:8]), (x[16:], y[16:])], 0.5)
    assert_equal_weights(model, expected, 1e-6)
    assert float(model.counters.loss_sum.numpy()) == pytest.approx(sum(losses), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_first_loss_scale_does_not_overflow_on_a_loss_of_usual_size(replicas):
    model = build(dense, replicas=replicas, policy="mixed_float16", gradient_accumulation_steps=2)
    x, y = rows(32)
    model.fit(x, y, batch_size=16, verbose=0)
    assert int(model.counters.skipped_steps.numpy()) == 0


# Clipping.


class Linear(keras.losses.Loss):
    """Its gradient by the output is the label."""

    def call(self, labels, outputs):
        return labels[:, 0] * outputs[:, 0]


def linear_model():
    return keras.Sequential(
        [keras.layers.Input([2]), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )


@pytest.mark.parametrize(
    "replicas, micro_batches, policy",
    [
        (2, 2, "mixed_float16"),
        *(
            pytest.param(*c, marks=pytest.mark.slow)
            for c in [(1, 4, "float32"), (2, 1, "mixed_float16"), (2, 2, "float32")]
        ),
    ],
)
def test_clipping_comes_after_the_sum_over_all_replicas(replicas, micro_batches, policy):
    """Rows pull apart: each share's gradient alone has norm 2, all together 1/8, clipped to 1/16."""
    x = np.array([[2, 1 / 8], [2, 1 / 8], [-2, 1 / 8], [-2, 1 / 8]], np.float32)
    model = build(
        linear_model,
        replicas=replicas,
        policy=policy,
        optimizer=lambda: keras.optimizers.SGD(1.0),
        loss=Linear(),
        gradient_accumulation_steps=micro_batches,
        max_grad_norm=1 / 16,
    )
    model.fit(x, np.ones(4, np.float32), batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(weights(model)[0][:, 0], [0.0, -1 / 16], atol=1e-6)
    assert float(model.counters.gradient_norm.numpy()) == pytest.approx(1 / 8)


# Dropout.


def noisy_model():
    return keras.Sequential(
        [
            keras.layers.Input([400]),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
        ]
    )


@pytest.mark.parametrize(
    "replicas, micro_batches, draws",
    [pytest.param(*case, marks=pytest.mark.slow) for case in [(2, 2, 4), (1, 1, 1), (1, 2, 2), (2, 1, 2)]],
)
def test_micro_batches_and_replicas_draw_noise_of_their_own(replicas, micro_batches, draws):
    """Equal rows, one a micro-batch: after a step of rate -1, a weight tells how many of them kept its input.

    By default `GRID` guards it: each row has the noise there that it has in one big batch.
    """
    model = build(
        noisy_model,
        replicas=replicas,
        optimizer=lambda: keras.optimizers.SGD(-draws / 2),
        loss=Linear(),
        gradient_accumulation_steps=micro_batches,
    )
    model.fit(np.ones((draws, 400), np.float32), np.ones(draws, np.float32), batch_size=draws, verbose=0)
    kept = weights(model)[0].reshape(-1)
    counts = np.bincount(np.round(kept).astype(int), minlength=draws + 1) / 400
    binomial = {1: [0.5, 0.5], 2: [0.25, 0.5, 0.25], 4: [1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16]}[draws]
    np.testing.assert_allclose(counts, binomial, atol=0.1)


def test_each_step_draws_new_noise():
    kept = []
    model = build(noisy_model, optimizer=lambda: keras.optimizers.SGD(-0.5), loss=Linear())
    for _ in range(3):
        before = weights(model)[0]
        model.fit(np.ones((1, 400), np.float32), np.ones(1, np.float32), verbose=0)
        kept.append((weights(model)[0] - before).reshape(-1) > 0.5)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert 0.4 < np.mean(kept[a] == kept[b]) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("is_bert", [False, True])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(is_bert):
    options = {"replicas": 2 if is_bert else 1, "gradient_accumulation_steps": 2, "max_grad_norm": CLIP}
    if is_bert:
        inputs, labels, _ = concatenated(batches(steps=1))
    else:
        options |= {"optimizer": lambda: keras.optimizers.SGD(-0.5), "loss": Linear()}
        inputs, labels = np.ones((16, 400), np.float32), np.ones(16, np.float32)

    def train(seed):
        model = build((lambda: tiny_bert(dropout=0.2)) if is_bert else noisy_model, seed=seed, **options)
        model.fit(tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(16), verbose=0)
        return weights(model)

    first, again, other = train(1), train(1), train(2)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert max(np.abs(one - two).max() for one, two in zip(first, other, strict=True)) > 1e-3
