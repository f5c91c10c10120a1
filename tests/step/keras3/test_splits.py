"""Keras 3: the same update however a global batch is split."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.keras3 import (
    CLASSES,
    FEATURES,
    assert_close,
    assert_like_keras,
    bert,
    build,
    classifier,
    data,
    logits_loss,
    reference_steps,
    texts,
    train,
    weights,
)
from tests.support.models import NumpyAdamW, strategy_of
from tests.support.updates import CLIP, DECAY, EPSILON, RATE, TOLERANCE
from tfbert.step.keras3.finetuner import FineTuner

ROWS, BATCH = 43, 16
"""Two whole batches and one of 11 rows."""

SLOW = pytest.mark.slow
COVERING = {(2, 4, "float32", False)}
GRID = [
    pytest.param(*case, marks=() if case in COVERING else SLOW, id="-".join(map(str, case)))
    for case in (
        (replicas, micro_batches, policy, xla)
        for replicas in (1, 2)
        for micro_batches in (1, 4)
        for policy in TOLERANCE
        for xla in (False, True)
    )
]


def adamw():
    return keras.optimizers.AdamW(RATE, weight_decay=DECAY, epsilon=EPSILON)


@pytest.fixture(scope="module")
def reference():
    keras.config.set_dtype_policy("float32")
    return reference_steps(bert(), *texts(ROWS), NumpyAdamW(RATE, DECAY, EPSILON), batch_size=BATCH, clip=CLIP)


@pytest.mark.parametrize("replicas, micro_batches, policy, xla", GRID)
def test_every_split_gives_the_weights_of_one_big_batch(replicas, micro_batches, policy, xla, reference):
    """KerasHub's BERT, dropout on, tokens that occur many times in a batch."""
    options = {"gradient_accumulation_steps": micro_batches, "max_grad_norm": CLIP, "jit_compile": xla}
    model = build(bert, replicas=replicas, policy=policy, compiled={"optimizer": adamw}, **options)
    x, y = texts(ROWS)
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH), verbose=0)
    assert_close(weights(model), reference, TOLERANCE[policy])
    assert int(model.counters.skipped_steps.numpy()) == 0
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == (policy == "mixed_float16")


SPLITS = pytest.mark.parametrize(
    "replicas, micro_batches",
    [pytest.param(1, 1, marks=SLOW), pytest.param(1, 3, marks=SLOW), (2, 2)],
)


@SPLITS
def test_history_and_weights_are_those_of_plain_keras(replicas, micro_batches):
    """Metrics, weighted or not, sample_weight and evaluation; what batches report, too."""
    x, y = data(37)

    class Batches(keras.callbacks.Callback):
        def __init__(self):
            self.seen = []

        def on_train_batch_end(self, batch, logs=None):
            self.seen.append([float(logs[name]) for name in sorted(logs)])

    one, other = Batches(), Batches()
    accuracy = keras.metrics.SparseCategoricalAccuracy
    compiled = {
        "optimizer": adamw,
        "metrics": lambda: ["accuracy", keras.metrics.SparseCategoricalCrossentropy(from_logits=True)],
        "weighted_metrics": lambda: [accuracy(name="weighted")],
    }
    fit = {"validation_data": (x[:13], y[:13]), "sample_weight": np.linspace(0.3, 2, 37).astype(np.float32)}
    options = {"gradient_accumulation_steps": micro_batches}
    expected, history, _ = train(classifier, x, y, wrap=False, compiled=compiled, callbacks=[one], **fit)
    found, own, _ = train(
        classifier, x, y, replicas=replicas, options=options, compiled=compiled, callbacks=[other], **fit
    )
    assert_close(found, expected)
    assert own.keys() == history.keys()
    for name, values in history.items():
        np.testing.assert_allclose(own[name], values, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(other.seen, one.seen, atol=1e-5)


@pytest.mark.parametrize(
    "count, replicas, micro_batches",
    [(7, 2, 3), *(pytest.param(*case, marks=SLOW) for case in [(1, 2, 1), (33, 2, 4)])],
)
def test_shares_of_any_size_even_none(count, replicas, micro_batches):
    x, y = data(count)
    options = {"gradient_accumulation_steps": micro_batches}
    assert_like_keras(classifier, x, y, replicas=replicas, options=options, batch_size=16)


@SLOW
@pytest.mark.parametrize("how", [{"steps_per_execution": 3}, {"run_eagerly": True}], ids=lambda how: next(iter(how)))
def test_ways_to_run(how):
    """Three batches at once, of which the last call has one."""
    expected, history, _ = train(classifier, *data(), wrap=False)
    options = {"gradient_accumulation_steps": 2}
    found, other, model = train(classifier, *data(), replicas=2, options=options, compiled=how)
    assert_close(found, expected)
    np.testing.assert_allclose(other["loss"], history["loss"], atol=1e-6)
    assert int(model.optimizer.iterations.numpy()) == 8


def test_single_batches():
    """Their rows are divided among the replicas."""
    x, y = data(11)
    plain = classifier()
    plain.compile(keras.optimizers.SGD(0.3, momentum=0.9), logits_loss(), run_eagerly=True)
    model = build(classifier, replicas=2, gradient_accumulation_steps=2)
    for _ in range(2):
        expected, found = plain.train_on_batch(x, y), model.train_on_batch(x, y)
        assert float(found) == pytest.approx(float(expected), abs=1e-6)
    assert_close(weights(model), weights(plain))
    assert float(model.test_on_batch(x, y)) == pytest.approx(float(plain.test_on_batch(x, y)), abs=1e-6)
    np.testing.assert_allclose(model.predict(x, verbose=0), plain(x), atol=1e-5)


def normalized():
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dense(CLASSES)]
    return keras.Sequential([keras.layers.Input([FEATURES]), *layers])


@pytest.mark.parametrize("replicas, micro_batches", [(2, 2), pytest.param(1, 1, marks=SLOW)])
@pytest.mark.parametrize("policy", ["mixed_float16", pytest.param("float32", marks=SLOW)])
def test_a_step_that_is_not_finite_changes_nothing_but_the_count(policy, replicas, micro_batches):
    """Row 2 of the second batch has an infinite weight: only one replica's one micro-batch sees it."""
    x, y = data(24)
    sample_weight = np.ones(24, np.float32)
    sample_weight[8 + 2] = np.inf
    options = {"policy": policy, "replicas": replicas, "gradient_accumulation_steps": micro_batches}
    scales = policy == "mixed_float16"

    def optimizer():
        inner = keras.optimizers.Adam(0.1, use_ema=True)
        return keras.optimizers.LossScaleOptimizer(inner, initial_scale=64.0) if scales else inner

    compiled = {"optimizer": optimizer}
    broken, sound = (build(normalized, compiled=compiled, max_grad_norm=1.0, **options) for _ in range(2))
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0}
    broken.fit(x[:16], y[:16], sample_weight=sample_weight[:16], **fit)
    sound.fit(x[:8], y[:8], **fit)
    assert_close(weights(broken), weights(sound), 0)
    assert int(broken.counters.skipped_steps.numpy()) == int(broken.counters.skipped_in_a_row.numpy()) == 1
    assert np.isfinite(broken.counters.loss_sum.numpy())
    assert int(broken.optimizer.iterations.numpy()) == 2
    for variable in broken.model.variables:
        copies = strategy_of(replicas).experimental_local_results(variable.value)
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy.numpy(), copies[0].numpy())
    if scales:
        scale, counter = broken.optimizer.dynamic_scale.numpy(), broken.optimizer.step_counter.numpy()
        assert (scale, counter, sound.optimizer.dynamic_scale.numpy()) == (32.0, 0, 64.0)


def test_steps_that_overflow_again_and_again_do_not_lose_the_loss_scale():
    """Twelve in a row, on one replica's one micro-batch; the update after them is that of a sound run."""
    x, y = data(8)
    overflowing = np.where(np.arange(8) == 5, np.inf, 1.0).astype(np.float32)
    options = {"policy": "mixed_float16", "replicas": 2, "gradient_accumulation_steps": 2}

    def optimizer():
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=256.0)

    broken, sound = (build(classifier, compiled={"optimizer": optimizer}, **options) for _ in range(2))
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0}
    broken.fit(x, y, sample_weight=overflowing, epochs=12, **fit)
    assert (broken.optimizer.dynamic_scale.numpy(), broken.counters.skipped_in_a_row.numpy()) == (1.0, 12)
    sound.optimizer.build(sound.model.trainable_variables)
    sound.optimizer.dynamic_scale.assign(1.0)
    for model in (broken, sound):
        model.fit(x, y, **fit)
    assert_close(weights(broken), weights(sound), 0)
    assert broken.counters.skipped_in_a_row.numpy() == 0


def test_the_loss_scale_grows_when_it_is_due():
    def optimizer():
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4.0, dynamic_growth_steps=2)

    model = build(classifier, replicas=2, compiled={"optimizer": optimizer})
    model.fit(*data(), batch_size=8, epochs=1, verbose=0)
    assert (model.optimizer.dynamic_scale.numpy(), model.optimizer.step_counter.numpy()) == (16.0, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 3},
        *(
            pytest.param(each, marks=SLOW)
            for each in (
                {"use_ema": True, "ema_momentum": 0.9},
                {"clipnorm": 0.02},
                {"global_clipnorm": 0.05},
                {"clipvalue": 0.01},
                {"loss_scale_factor": 1024.0},
                {"weight_decay": 0.1},
            )
        ),
    ],
    ids=lambda options: "-".join(options),
)
def test_what_optimizers_do_with_a_gradient_they_do_with_the_global_batchs(options):
    compiled = {"optimizer": lambda: keras.optimizers.Adam(0.02, epsilon=EPSILON, **options)}
    split = {"gradient_accumulation_steps": 2}
    assert_like_keras(classifier, *data(), replicas=2, options=split, compiled=compiled)


@pytest.mark.parametrize("recurrent", [False, pytest.param(True, marks=SLOW)])
def test_layers_draw_by_row_whichever_they_are(recurrent):
    """Dropout of slices, noise that is added and multiplied, an LSTM's dropout, and a layer of the user's own."""

    class Own(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.generator = keras.random.SeedGenerator(5)

        def call(self, x, training=False):
            if not training:
                return x
            x = x + 0.1 * keras.random.truncated_normal(keras.ops.shape(x), seed=self.generator)
            x = x * keras.random.uniform([keras.ops.shape(x)[0], 1, 1], 0.5, 1.5)  # No seed: Keras's global generator.
            whole = keras.random.randint(keras.ops.shape(x), 0, 3, seed=self.generator)
            return keras.random.dropout(x + 0.1 * keras.ops.cast(whole, x.dtype), 0.1, seed=7)

    def make():
        keras.utils.set_random_seed(2)
        return keras.Sequential(
            [
                keras.layers.Input([6, 4]),
                keras.layers.SpatialDropout1D(0.3),
                keras.layers.GaussianNoise(0.3),
                *(
                    [keras.layers.LSTM(4, dropout=0.3, recurrent_dropout=0.2, return_sequences=True)]
                    if recurrent
                    else []
                ),
                keras.layers.GaussianDropout(0.2),
                keras.layers.AlphaDropout(0.2),
                Own(),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(CLASSES),
            ]
        )

    x = np.random.default_rng(0).normal(size=(20, 6, 4)).astype(np.float32)
    y = np.arange(20) % CLASSES
    whole, _, _ = train(make, x, y)
    split, _, _ = train(make, x, y, replicas=2, options={"gradient_accumulation_steps": 2})
    assert_close(split, whole)  # Generators' states too, which nothing has changed.
    if recurrent:
        again, _, _ = train(make, x, y)
        other, _, _ = train(make, x, y, options={"seed": 1})
        assert_close(again, whole, 0)
        assert max(np.abs(one - two).max() for one, two in zip(whole, other, strict=True)) > 1e-3


@SLOW
def test_saved_and_taken_up_again(tmp_path):
    """Three epochs, or two, a file and one more."""
    x, y = data()

    def make():
        return build(classifier, gradient_accumulation_steps=2, compiled={"optimizer": adamw, "metrics": ["accuracy"]})

    fit = {"batch_size": 10, "shuffle": False, "verbose": 0}
    straight, first = make(), make()
    straight.fit(x, y, epochs=3, **fit)
    first.fit(x, y, epochs=2, **fit)
    first.save(tmp_path / "model.keras")
    second = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(second, FineTuner) and second.gradient_accumulation_steps == 2
    second.fit(x, y, epochs=1, **fit)
    assert_close(weights(second), weights(straight), 0)
    first.save_weights(tmp_path / "some.weights.h5")
    third = make()
    third.load_weights(tmp_path / "some.weights.h5")
    assert_close(weights(third), weights(first), 0)
