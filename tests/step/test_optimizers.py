"""Schedules as lists of rates; AdamW and LAMB, decay groups and skipped updates against NumPy; either
Keras's optimizers and loss scales; one replica and two."""

import functools
import itertools
import math
from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert import worst
from tests.support.cases import SLOW, quick, slow
from tests.support.either_keras import Either, apart
from tests.support.models import NumpyAdamW, NumpyLAMB, strategy_of, tiny_bert
from tfbert import FineTuner
from tfbert.batches.schedule import warmup_steps
from tfbert.config import training as training_config
from tfbert.config.training import LrSchedule, Optimizer, TrainingConfig
from tfbert.step import updates as updates_module
from tfbert.step.gradients import all_reduce_sum
from tfbert.step.keras3.fused import LAMB, AdamW, WarmupSchedule, create_optimizer
from tfbert.step.updates import AFTER_WARM_UP, norm, share_at_end
from tfbert.train.build import _OPTIMIZERS, optimizer_of

THREE = Either("keras")


def rates(schedule, warmup, total, beyond=0):
    rate = WarmupSchedule(peak=2.0, schedule=schedule, warmup_steps=warmup, total_steps=total, power=0.5)
    return [float(rate(tf.constant(step, tf.int64))) for step in range(total + beyond)]


@pytest.mark.parametrize(
    "schedule, warmup, total, expected",
    [
        ("linear", 3, 8, [0.5, 1.0, 1.5, 2.0, 1.6, 1.2, 0.8, 0.4]),
        ("linear", 0, 4, [2.0, 1.5, 1.0, 0.5]),
        ("constant", 1, 4, [1.0, 2.0, 2.0, 2.0]),
        ("constant", 0, 2, [2.0, 2.0]),
        ("cosine", 1, 5, [1.0, 2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]),
        ("linear", 0, 1, [2.0]),
        ("linear", 5, 3, [2 / 6, 4 / 6, 1.0]),
        ("cosine", 3, 3, [0.5, 1.0, 1.5]),
        ("polynomial", 1, 5, [1.0, 2.0, 2 * math.sqrt(0.75), 2 * math.sqrt(0.5), 1.0]),
    ],
)
def test_rates_step_by_step(schedule, warmup, total, expected):
    np.testing.assert_allclose(rates(schedule, warmup, total), expected, rtol=1e-6)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "polynomial"])
def test_no_update_is_wasted_and_past_the_end_the_rate_is_0(schedule):
    found = rates(schedule, 2, 9, beyond=3)
    assert min(found[:9]) > 0
    np.testing.assert_allclose(found[9:], 0.0, atol=1e-7)


def test_every_schedule_and_optimizer_has_its_rows():
    assert get_args(LrSchedule) == tuple(AFTER_WARM_UP)
    assert get_args(Optimizer) == tuple(training_config.OPTIMIZERS) == tuple(_OPTIMIZERS)
    for name in AFTER_WARM_UP:
        assert share_at_end(name, 0.5) == (name == "constant")


@pytest.mark.parametrize(
    "ratio, steps, total, expected", [(0.1, 0, 100, 10), (0.1, 0, 25, 3), (0.0, 0, 9, 0), (0.5, 7, 9, 7)]
)
def test_warmup_in_updates(ratio, steps, total, expected):
    assert warmup_steps(TrainingConfig(warmup_ratio=ratio, warmup_steps=steps), total) == expected


BY_LAMB = {"optimizer": "lamb", "lr_schedule": "polynomial", "lr_power": 2.0, "warmup_ratio": 0.0}


@pytest.mark.parametrize(
    "kind, options, epsilon, rates",
    [
        (AdamW, {"lr_schedule": "constant", "warmup_ratio": 0.25}, 1e-8, {0: 0.125, 3: 0.5, 11: 0.5}),
        (LAMB, BY_LAMB, 1e-6, {0: 0.5, 3: 0.28125, 6: 0.125}),
    ],
)
def test_the_runs_optimizer_is_what_the_configuration_says(kind, options, epsilon, rates):
    config = TrainingConfig(learning_rate=0.5, weight_decay=0.03, **options)
    optimizer = optimizer_of(config, 12, 3 if options["warmup_ratio"] else 0)
    assert type(optimizer) is kind and float(optimizer.weight_decay) == pytest.approx(0.03)
    np.testing.assert_allclose([float(optimizer._learning_rate(step)) for step in rates], list(rates.values()))
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.999, epsilon)
    assert not any((optimizer.clipnorm, optimizer.global_clipnorm, optimizer.clipvalue))


def test_biases_and_layer_norms_do_not_decay():
    model = tiny_bert(num_hidden_layers=1)
    optimizer = optimizer_of(TrainingConfig(learning_rate=0.1, weight_decay=0.5), 10, 0)
    optimizer.build(model.trainable_variables)
    for variable in model.trainable_variables:
        assert optimizer._use_weight_decay(variable.value) == variable.path.endswith(("/kernel", "/embeddings"))


VALUES = {"kernel": [[1.0, -2.0], [3.0, 0.5]], "bias": [1.0, 2.0]}


def train(either, make_optimizer, gradients, *, replicas, factor=1.0):
    """Applies equal gradients on all replicas: the variables' values everywhere, and the optimizer."""
    strategy, parts = strategy_of(replicas), either.step
    kind = either.keras.Variable if either.is_keras_3 else tf.Variable
    with strategy.scope():
        variables = [kind(np.float32(value), name=name) for name, value in VALUES.items()]
        optimizer = make_optimizer()
        optimizer.build(variables)

    @tf.function(autograph=False)
    def step(grads):
        def each(grads):
            grads = all_reduce_sum([g / replicas for g in grads])
            is_finite = tf.math.is_finite(tf.linalg.global_norm(grads))
            parts.apply(optimizer, grads, variables, tf.constant(factor), is_finite)

        strategy.run(each, args=(grads,))

    for grads in gradients:
        step([tf.constant(g, tf.float32) for g in grads])
    values = [[local.numpy() for local in strategy.experimental_local_results(parts.value_of(v))] for v in variables]
    for local in values:
        for value in local[1:]:
            np.testing.assert_array_equal(value, local[0])
    return [local[0] for local in values], optimizer


def some_gradients(steps=5, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(2, 2)), rng.normal(size=2)) for _ in range(steps)]


def lamb(**options):
    return LAMB(**{"learning_rate": 0.05, "weight_decay": 0.1, "no_decay": ["bias"]} | options)


def fused(**options):
    return AdamW(**{"learning_rate": 0.05, "weight_decay": 0.1, "epsilon": 1e-8, "no_decay": ["bias"]} | options)


def assert_like_numpy(found, reference, rates, factor=1.0):
    """Updates by `some_gradients`, at these rates, end with these values."""
    values = {name: np.array(value) for name, value in VALUES.items()}
    for rate, gradients in zip(rates, some_gradients(len(rates)), strict=True):
        reference.rate = rate
        for name, gradient in zip(VALUES, gradients, strict=True):
            values[name] = reference(name, values[name], factor * gradient, name == "kernel")
        reference.step += 1
    for value, expected in zip(found, values.values(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5)


@pytest.mark.parametrize("make_optimizer, reference", [(fused, NumpyAdamW), (lamb, NumpyLAMB)], ids=["adamw", "lamb"])
@pytest.mark.parametrize("replicas, factor", [(2, 0.25), *(slow(*case) for case in [(1, 1.0), (1, 0.25), (2, 1.0)])])
def test_the_fused_update_equals_numpy(replicas, factor, make_optimizer, reference):
    found, optimizer = train(THREE, make_optimizer, some_gradients(), replicas=replicas, factor=factor)
    assert_like_numpy(found, reference(0.05, 0.1), [0.05] * 5, factor)
    assert int(optimizer.iterations.numpy()) == 5


def test_lamb_where_a_norm_is_0():
    """A variable of zeros moves as Adam's; one whose direction is 0 stays, but for its decay."""
    zeros, still = keras.Variable([0.0, 0.0], name="zeros"), keras.Variable([3.0, 4.0], name="bias")
    optimizer = lamb(learning_rate=0.1)
    optimizer.build([zeros, still])
    gradients = [tf.constant([2.0, -5.0]), tf.zeros(2)]
    optimizer.apply_gradients(zip(gradients, [zeros, still], strict=True))
    np.testing.assert_allclose(zeros.numpy(), [-0.1, 0.1], rtol=1e-5)
    np.testing.assert_array_equal(still.numpy(), [3.0, 4.0])


def test_the_norm_of_tens_of_millions_of_elements_does_not_stop_growing():
    """2^25 squares of 1, added one after the other in float32, come to 2^24."""
    found = tf.function(norm, jit_compile=True)(tf.ones([2**17, 2**8]))
    np.testing.assert_allclose(found, 2**12.5, rtol=1e-6)


OF_BOTH_KINDS = pytest.mark.parametrize("make", [fused, slow(lamb)])
"""Where what is shown is none of the update's numbers."""


def tracings(make):
    """How often an update of one more model is traced."""
    shapes = [[3, 19], [3, 19], [19], [19], [19]]
    variables = [keras.Variable(np.ones(s, np.float32), name="kernel" if s[1:] else "bias") for s in shapes]
    optimizer = make()
    optimizer.build(variables)
    before = type(optimizer)._update.experimental_get_tracing_count()
    tf.function(lambda: optimizer.apply([tf.fill(shape, 0.5) for shape in shapes], variables), autograph=False)()
    return type(optimizer)._update.experimental_get_tracing_count() - before


@OF_BOTH_KINDS
def test_variables_of_one_shape_and_decay_share_what_is_compiled_those_of_another_model_too(make):
    assert [tracings(make) for _ in range(2)] == [2, 0]


@OF_BOTH_KINDS
def test_all_variables_in_one_function_as_on_a_gpu_give_the_same_bits(make, monkeypatch):
    one = train(THREE, make, some_gradients(), replicas=1)[0]
    asked = []
    monkeypatch.setattr(updates_module, "takes_all_at_once", lambda device: asked.append(device) or True)
    assert apart(train(THREE, make, some_gradients(), replicas=1)[0], one) == 0
    assert asked


@pytest.mark.parametrize("scale", [None, 1024.0])
@pytest.mark.parametrize("device", ["CPU:0", "GPU:0"])  # As compiled for a GPU; it runs here.
def test_the_norm_of_scaled_gradients_is_numpys(device, scale):
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=shape).astype(np.float32) for shape in ([700, 300], [300], [5, 4, 3])]
    wanted = np.sqrt(sum((grad.astype(np.float64) ** 2).sum() for grad in grads)) / (scale or 1)
    scale = None if scale is None else tf.constant(scale)
    compute = lambda: updates_module.global_norm(list(map(tf.constant, grads)), scale, device)  # noqa: E731
    np.testing.assert_allclose(tf.function(compute, autograph=False)(), wanted, rtol=1e-6)
    grads[1][7] = np.inf
    assert not np.isfinite(compute())


def test_what_makes_xla_search_kernels_on_a_gpu_is_said(monkeypatch, either, caplog):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    FineTuner(either.keras.Sequential([either.keras.layers.Dense(1)]), jit_compile=True)
    assert 'XLA_FLAGS="--xla_gpu_enable_triton_gemm=false"' in caplog.text


class Bounded(AdamW):
    """A user's, which looks at the gradients."""

    def apply(self, grads, trainable_variables=None):
        super().apply([tf.clip_by_value(grad, -0.1, 0.1) for grad in grads], trainable_variables)


@pytest.mark.parametrize("scales", [False, True])
def test_a_class_derived_from_adamw_sees_gradients_times_the_factor(scales):
    def trained(times):
        make = lambda: THREE.scaled(Bounded(0.1), initial_scale=1.0) if scales else Bounded(0.1)  # noqa: E731
        gradients = [tuple(each * times for each in grads) for grads in some_gradients()]
        return train(THREE, make, gradients, replicas=1, factor=1 / times)[0]

    assert apart(trained(1.0), trained(1024.0)) == 0


def test_fused_adamw_follows_a_schedule_and_a_changed_rate():
    schedule = WarmupSchedule(peak=0.1, schedule="linear", warmup_steps=1, total_steps=5)
    found, _ = train(THREE, lambda: fused(learning_rate=schedule), some_gradients(), replicas=1)
    assert_like_numpy(found, NumpyAdamW(0.0, 0.1), [0.05, 0.1, 0.075, 0.05, 0.025])

    variable, optimizer = keras.Variable(np.ones(1, np.float32), name="kernel"), fused(weight_decay=0.0)
    for rate in (0.1, 0.3):
        optimizer.learning_rate = rate
        before = variable.numpy()
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        np.testing.assert_allclose(before - variable.numpy(), rate, rtol=1e-4)


# Of either Keras.


OPTIMIZERS = {
    "sgd": lambda either: either.sgd(0.1, momentum=0.9),
    "adam": lambda either: either.keras.optimizers.Adam(0.1),
    "scaled sgd": lambda either: either.scaled(either.sgd(0.1, momentum=0.9)),
    "fixed adam": lambda either: either.scaled(either.keras.optimizers.Adam(0.1), dynamic=False),
    "fused": lambda either: fused(),
    "clipped fused": lambda either: fused(clipnorm=1.0),
    "lamb": lambda either: lamb(),
    "scaled fused": lambda either: either.scaled(fused()),
    "scaled lamb": lambda either: either.scaled(lamb()),
}
QUICK = {(np.inf, 1, "clipped fused"), (np.inf, 2, "scaled lamb"), (np.inf, 2, "scaled fused")}
OF_TF_KERAS, OF_KERAS_3 = {"fixed adam"}, {name for name in OPTIMIZERS if "fused" in name or "lamb" in name}


@pytest.mark.parametrize("bad, replicas, name", quick(itertools.product((np.inf, np.nan), (1, 2), OPTIMIZERS), *QUICK))
def test_an_update_that_is_not_finite_changes_nothing_but_the_count(either, bad, replicas, name):
    if name in (OF_TF_KERAS if either.is_keras_3 else OF_KERAS_3):
        pytest.skip("the other Keras's")
    make_optimizer = lambda: OPTIMIZERS[name](either)  # noqa: E731
    good = some_gradients(3)
    broken = (np.array([[1.0, bad], [0.0, 0.0]]), np.zeros(2))
    # The update counts although it is skipped, so what Adam corrects for the step differs: compare the first two.
    kept, before = train(either, make_optimizer, [good[0]], replicas=replicas)
    found, optimizer = train(either, make_optimizer, [good[0], broken], replicas=replicas)
    assert apart(found, kept) == 0
    assert int(tf.convert_to_tensor(either.step.num_updates(optimizer))) == 2
    inner = [getattr(each, "inner_optimizer", each) for each in (optimizer, before)]
    one, other = ([v.numpy() for v in each.variables if len(v.shape)] for each in inner)
    assert one and apart(one, other) == 0


@pytest.mark.parametrize(
    "first, growth, bad, good, scale",
    [
        (64.0, 2, 1, 0, 32.0),
        slow(64.0, 2, 2, 1, 16.0),
        (64.0, 2, 0, 3, 128.0),
        # Between 1 and what is finite.
        (8.0, 1, 12, 2, 4.0),
        slow(3.0, 1, 2, 0, 1.0),
        slow(0.25, 1, 3, 0, 0.25),  # A user's own.
        (0.75, 1, 1, 1, 1.5),
        (2.0**126, 1, 0, 3, 2.0**127),  # Twice that is infinite in float32.
    ],
)
@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_the_loss_scale_halves_when_it_overflows_and_doubles_when_it_can(
    either, replicas, first, growth, bad, good, scale
):
    if not either.is_keras_3 and first != 64.0:
        pytest.skip("ours is of Keras 3")
    make = lambda: either.scaled(either.sgd(0.1), initial_scale=first, dynamic_growth_steps=growth)  # noqa: E731
    infinite = (np.full((2, 2), np.inf), np.zeros(2))
    found, optimizer = train(either, make, [infinite] * bad + some_gradients(3)[:good], replicas=replicas)
    assert float(optimizer.dynamic_scale.numpy() if either.is_keras_3 else optimizer.loss_scale) == scale
    assert int(tf.convert_to_tensor(either.step.num_updates(optimizer))) == bad + good
    if good:
        wanted, _ = train(either, lambda: either.sgd(0.1), some_gradients(3)[:good], replicas=1)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)


# Ours of Keras 3: right for repeated words; saved whole.

IDS = np.random.default_rng(0).integers(0, 5, (24, 6)).astype(np.int32)
CLASSES = (IDS.sum(1) % 3).astype(np.int32)


def of_words():
    kinds = THREE.layers
    layers = lambda: [kinds.Embedding(20, 8), kinds.LayerNormalization(), kinds.GlobalAveragePooling1D()]  # noqa: E731
    return THREE.sequential(lambda: [*layers(), kinds.Dense(3)], shape=[6], dtype="int32", seed=0)


@pytest.mark.parametrize("kind", [AdamW, LAMB])
def test_repeated_rows_are_added_up_before_they_are_squared_and_clipped(kind):
    values = tf.constant([[0.5, 1.0], [1.5, 1.0], [1.0, 1.0]])
    rows = tf.IndexedSlices(values, tf.constant([1, 1, 2]), tf.constant([4, 2]))
    tables = [keras.Variable(np.ones([4, 2], np.float32)) for _ in range(2)]
    for table, grad in zip(tables, (rows, tf.convert_to_tensor(rows)), strict=True):
        kind(0.1, epsilon=0.01, global_clipnorm=1.0).apply([grad], [table])
    assert worst(*tables) == 0
    assert worst(tables[0], np.ones([4, 2])) > 0.01


@pytest.mark.parametrize("kind", [AdamW, LAMB])
def test_keras_own_accumulation_in_plain_fit(kind):
    def train(size, **options):
        optimizer = functools.partial(kind, 1e-2, 0.1, epsilon=1e-4, **options)
        return THREE.plain(of_words, xy=(IDS, CLASSES), optimizer=optimizer, batch_size=size, epochs=2)

    assert apart(train(6, gradient_accumulation_steps=2), train(12)) < 1e-6


@SLOW  # By default test_splits has AdamW on two replicas; both optimizers are beside NumPy above.
@pytest.mark.parametrize("kind", [AdamW, LAMB])
@pytest.mark.parametrize("replicas, micro_batches", [(2, 2), (2, 0), (1, 1)])
def test_plain_fit_replicas_and_fine_tuner_make_the_same_updates(kind, replicas, micro_batches):
    fit = {"xy": (IDS, CLASSES), "optimizer": lambda: kind(1e-2, 0.1, epsilon=1e-4), "batch_size": 8, "epochs": 2}
    ours = functools.partial(THREE.ours, parts=micro_batches, wrap={"max_grad_norm": 100.0})
    found = (ours if micro_batches else THREE.plain)(of_words, replicas=replicas, **fit)
    expected = THREE.plain(of_words, **fit)
    assert int(found.model.optimizer.iterations.numpy()) == int(expected.model.optimizer.iterations.numpy()) == 6
    assert apart(found, expected) < 1e-6


@SLOW  # By default the update is made under a loss scale above.
def test_the_loss_scale_of_float16_stands_around_it():
    with THREE.policy("mixed_float16"):
        found = THREE.plain(of_words, (IDS, CLASSES), replicas=1, optimizer=lambda: AdamW(1e-2), batch_size=8)
        moved = worst(found.weights, of_words().get_weights())
    assert isinstance(found.model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert np.isfinite(moved) and moved > 1e-3


def test_an_optimizer_and_its_schedule_are_saved_whole():
    rate = WarmupSchedule(peak=0.1, schedule="polynomial", warmup_steps=2, total_steps=7, power=2.0)
    for kind in (AdamW, LAMB):
        made = kind(rate, 0.2, epsilon=1e-5)
        made.exclude_from_weight_decay(var_names=["bias", "gamma"])
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


@pytest.mark.parametrize("is_theirs", [False, slow(True)])
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
