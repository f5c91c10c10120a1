"""AdamW and LAMB of Keras 3: right for repeated words; saved whole."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert import worst
from tests.support.models import strategy_of
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.step.keras3.fused import LAMB, AdamW, WarmupSchedule, create_optimizer

IDS = np.random.default_rng(0).integers(0, 5, (24, 6)).astype(np.int32)
SLOW = pytest.mark.slow
CLASSES = (IDS.sum(1) % 3).astype(np.int32)


def make():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Embedding(20, 8), keras.layers.LayerNormalization(), keras.layers.GlobalAveragePooling1D()]
    return keras.Sequential([keras.Input([6], dtype="int32"), *layers, keras.layers.Dense(3)])


def loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize("kind", [AdamW, LAMB])
def test_repeated_rows_are_added_up_before_they_are_squared_and_clipped(kind):
    rows = tf.IndexedSlices(
        tf.constant([[0.5, 1.0], [1.5, 1.0], [1.0, 1.0]]), tf.constant([1, 1, 2]), tf.constant([4, 2])
    )
    tables = [keras.Variable(np.ones([4, 2], np.float32)) for _ in range(2)]
    for table, grad in zip(tables, (rows, tf.convert_to_tensor(rows)), strict=True):
        kind(0.1, epsilon=0.01, global_clipnorm=1.0).apply([grad], [table])
    assert worst(*tables) == 0
    assert worst(tables[0], np.ones([4, 2])) > 0.01


@SLOW  # By default test_splits has AdamW on two replicas, and test_optimizers both optimizers, beside NumPy.
@pytest.mark.parametrize("kind", [AdamW, LAMB])
@pytest.mark.parametrize("replicas, micro_batches", [(2, 2), (2, 0), (1, 1)])
def test_plain_fit_replicas_and_fine_tuner_make_the_same_updates(kind, replicas, micro_batches):
    def train(replicas, micro_batches):
        with strategy_of(replicas).scope():
            model = trained = make()
            if micro_batches:
                trained = FineTuner(model, gradient_accumulation_steps=micro_batches, max_grad_norm=100.0)
            is_reference = not micro_batches and replicas == 1
            trained.compile(kind(1e-2, 0.1, epsilon=1e-4), loss(), run_eagerly=is_reference)
        trained.fit(IDS, CLASSES, batch_size=8, epochs=2, shuffle=False, verbose=0)
        assert int(trained.optimizer.iterations.numpy()) == 6
        return model.get_weights()

    assert worst(train(replicas, micro_batches), train(1, 0)) < 1e-6


@SLOW  # By default test_optimizers has the update under a loss scale.
def test_the_loss_scale_of_float16_stands_around_it():
    keras.config.set_dtype_policy("mixed_float16")
    model = make()
    model.compile(AdamW(1e-2), loss())
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    before = model.get_weights()
    model.fit(IDS, CLASSES, batch_size=8, verbose=0)
    assert np.isfinite(worst(model.get_weights(), before)) and worst(model.get_weights(), before) > 1e-3


def test_an_optimizer_and_its_schedule_are_saved_whole():
    rate = WarmupSchedule(peak=0.1, schedule="polynomial", warmup_steps=2, total_steps=7, power=2.0)
    for kind in (AdamW, LAMB):
        made = kind(rate, 0.2, epsilon=1e-5, no_decay=["bias", "gamma"])
        again = keras.optimizers.deserialize(keras.optimizers.serialize(made))
        assert type(again) is kind and again.get_config() == made.get_config()
        assert not again._use_weight_decay(keras.Variable(0.0, name="bias"))
        assert [float(again._learning_rate(i)) for i in range(9)] == [float(rate(i)) for i in range(9)]
    # Schedules were saved without a power before there was one.
    before = WarmupSchedule.from_config({name: v for name, v in rate.get_config().items() if name != "power"})
    assert before.power == 1.0


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="Received: amsgrad=True"):
        LAMB(amsgrad=True)
    with pytest.raises(ValueError, match="'half' of bfloat16"):
        AdamW().build([keras.Variable(np.zeros(3), dtype="bfloat16", name="half")])
    with pytest.raises(ValueError, match="schedule='line'"):
        WarmupSchedule(peak=1.0, schedule="line", warmup_steps=0, total_steps=1)
    with pytest.raises(ValueError, match="total_steps=0"):
        WarmupSchedule(peak=1.0, schedule="linear", warmup_steps=0, total_steps=0)


@pytest.mark.parametrize("is_theirs", [False, pytest.param(True, marks=SLOW)])
@pytest.mark.parametrize("warmup", [0, 3])
def test_create_optimizer_has_the_rates_and_decay_of_transformers(warmup, is_theirs):
    optimizer, rates = create_optimizer(1e-3, 10, warmup, weight_decay_rate=0.01, power=2.0, adam_global_clipnorm=1.0)
    expected = [1e-3 * (i / warmup if i < warmup else (max(10 - i, 0) / (10 - warmup)) ** 2) for i in range(12)]
    if is_theirs:
        from transformers import create_optimizer as theirs

        _, schedule = theirs(1e-3, 10, warmup, weight_decay_rate=0.01, power=2.0)
        expected = [float(schedule(i)) for i in range(12)]
    np.testing.assert_allclose([float(rates(i)) for i in range(12)], expected, atol=1e-9)
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.global_clipnorm) == (0.01, 1e-8, 1.0)
    assert not optimizer._use_weight_decay(tf.Variable(0.0, name="bert/LayerNorm/gamma"))
