"""The project's first promise: the same update however a global batch is split."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import SLOW, quick, slow
from tests.support.either_keras import CLASSES, apart, rows, weights
from tests.support.models import NumpyAdamW, NumpyLAMB, reference_steps, strategy_of
from tests.support.updates import CLIP, DECAY, EPSILON, RATE, TOLERANCE, batches, concatenated, fused, lamb
from tfbert.step.updates import NO_DECAY

# Quick float32 cases are in test_cluster (two workers, dropout on) and test_invariance_tasks, XLA's is in test_terms;
# 16 bits on two replicas are in the tests of steps that are not finite and of clipping. The rest of the grid is slow.
GRID = quick(itertools.product((1, 2), (1, 2, 4), TOLERANCE, (False, True)), (2, 4, "float32", False))


def noisy_bert(either):
    """Noise belongs to rows of the global batch, so that splits may not differ with dropout on either."""
    return either.bert(num_hidden_layers=1, dropout=0.2)


def adamw(either):
    if either.is_keras_3:
        return fused()
    optimizer = either.keras.optimizers.AdamW(RATE, DECAY, epsilon=EPSILON, jit_compile=False)
    # tf_keras calls the second replica's variable gamma/replica_1:0.
    optimizer.exclude_from_weight_decay(var_names=[name.removesuffix(":0") for name in NO_DECAY])
    return optimizer


_references = {}


def assert_like_one_big_batch(either, optimizer, numpy_optimizer, replicas, parts, policy, xla):
    """Two whole batches and one of 11 rows, filled up to 16 with weight 0; the reference is written out in NumPy."""
    key = either.keras.__name__, numpy_optimizer
    first = noisy_bert(either)
    start = [variable.numpy() for variable in first.trainable_variables]
    if key not in _references:
        rest = numpy_optimizer(RATE, DECAY, EPSILON), CLIP, NO_DECAY
        _references[key] = reference_steps(first, batches(2), *rest, dropout=either.step.keyed(first, 1))
    options = {"gradient_accumulation_steps": parts, "max_grad_norm": CLIP, "jit_compile": xla}
    options |= {"replicas": replicas, "policy": policy, "optimizer": optimizer}
    model = either.build(lambda: noisy_bert(either), **options)
    model.fit(tf.data.Dataset.from_tensor_slices(concatenated(batches(2))).batch(16), verbose=0)
    assert int(model.counters.skipped_steps.numpy()) == 0
    found = [variable.numpy() for variable in model.model.trainable_variables]
    assert apart(found, _references[key]) < TOLERANCE[policy]
    moved = [np.abs(one - other).max() for one, other in zip(_references[key], start, strict=True)]
    assert np.median(moved) > 10 * TOLERANCE["float32"], "the updates must be larger than what is allowed to differ"
    assert ("LossScale" in type(model.optimizer).__name__) == (policy == "mixed_float16")


@pytest.mark.parametrize("replicas, parts, policy, xla", GRID)
def test_every_split_gives_the_weights_of_one_big_batch(either, replicas, parts, policy, xla):
    assert_like_one_big_batch(either, lambda: adamw(either), NumpyAdamW, replicas, parts, policy, xla)


@SLOW  # By default, test_optimizers compares LAMB with NumPy.
@pytest.mark.parametrize("replicas, parts, policy, xla", GRID)
def test_so_does_lamb(three, replicas, parts, policy, xla):
    assert_like_one_big_batch(three, lamb, NumpyLAMB, replicas, parts, policy, xla)


# From here on a small model, for which the update can be written down.


def sgd_reference(either, global_batches, rate, clip=0.0):
    """Plain gradient descent over whole batches; also the losses."""
    model, losses = either.classifier(), []
    for x, y in global_batches:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))
        grads = tape.gradient(loss, [either.step.value_of(v) for v in model.trainable_variables])
        norm = float(tf.linalg.global_norm(grads))
        for variable, gradient in zip(model.trainable_variables, grads, strict=True):
            variable.assign_sub(rate * gradient * (clip / max(norm, clip) if clip else 1.0))
        losses.append(float(loss))
    return weights(model), losses


@pytest.mark.parametrize(
    "count, replicas, parts",
    [(2, 2, 3), *(slow(*c) for c in [(34, 1, 4), (1, 2, 1), (33, 2, 3), (37, 2, 1), (47, 2, 3)])],
)
def test_shares_of_any_size_even_none(either, count, replicas, parts):
    x, y = rows(count)
    cut = [(x[i : i + 16], y[i : i + 16]) for i in range(0, count, 16)]
    expected, losses = sgd_reference(either, cut * 2, 0.5, clip=0.1)
    options = {"gradient_accumulation_steps": parts, "max_grad_norm": 0.1}
    model = either.build(replicas=replicas, optimizer=lambda: either.sgd(0.5), **options)
    batched = lambda weight: tf.data.Dataset.from_tensor_slices((x, y, np.full(count, weight))).batch(16)  # noqa: E731
    history = model.fit(batched(1.0), epochs=2, verbose=0)
    assert apart(weights(model), expected) < 1e-6
    # Keras's running mean is over rows.
    sizes = [len(part[1]) for part in cut]
    by_epoch = [np.average(losses[i : i + len(cut)], weights=sizes) for i in (0, len(cut))]
    np.testing.assert_allclose(history.history["loss"], by_epoch, atol=1e-6)
    assert float(model.counters.loss_sum.numpy()) == pytest.approx(sum(losses), abs=1e-5)
    before = weights(model)
    model.fit(batched(0.0), verbose=0)
    assert apart(weights(model), before) == 0, "batches of no weight at all change nothing"
    assert int(model.counters.skipped_steps.numpy()) == 0


# Steps that are not finite.


def normalized(either):
    kinds = either.layers
    return either.sequential(lambda: [kinds.Dense(8), kinds.BatchNormalization(), kinds.Dense(CLASSES)])


OF_OPTIMIZERS = {
    "sgd": lambda either: either.sgd(0.1, momentum=0.9),
    "adamw": adamw,
    "lamb": lambda either: lamb(),
    "averages": lambda either: either.keras.optimizers.Adam(0.1, use_ema=True),
}


NOT_FINITE = [
    (1, 1, "float32", "averages"),
    (1, 1, "mixed_float16", "adamw"),
    (1, 1, "mixed_float16", "lamb"),
    (1, 2, "float32", "sgd"),
    (1, 2, "mixed_float16", "adamw"),
    (2, 1, "mixed_float16", "sgd"),
    (2, 1, "mixed_float16", "adamw"),
    (2, 2, "float32", "adamw"),
    (2, 2, "float32", "averages"),
    (2, 2, "mixed_float16", "adamw"),
    (2, 2, "mixed_float16", "averages"),
    (2, 2, "mixed_float16", "lamb"),
]


@pytest.mark.parametrize("replicas, parts, policy, name", quick(NOT_FINITE, (2, 2, "mixed_float16", "averages")))
def test_a_step_that_is_not_finite_is_skipped_everywhere(either, replicas, parts, policy, name):
    """Row 2 of the second and third batch has an infinite weight: only one replica's one micro-batch sees it."""
    if name == "lamb" and not either.is_keras_3:
        pytest.skip("ours are of Keras 3")
    options = {"gradient_accumulation_steps": parts, "max_grad_norm": 1.0, "policy": policy, "replicas": replicas}
    options["jit_compile"] = name == "sgd"  # For XLA, too.
    scales, made = policy == "mixed_float16", OF_OPTIMIZERS[name]
    optimizer = lambda: either.scaled(made(either), initial_scale=64.0) if scales else made(either)  # noqa: E731
    model = either.build(lambda: normalized(either), optimizer=optimizer, **options)
    x, y = rows(32)

    def train(step, is_sound):
        """What the model and its counters are after one more batch."""
        batch, sample_weight = slice(8 * step, 8 * step + 8), np.ones(8, np.float32)
        sample_weight[2] = 1 if is_sound else np.inf
        model.fit(x[batch], y[batch], sample_weight=sample_weight, batch_size=8, shuffle=False, verbose=0)
        found = {each: variable.numpy() for each, variable in vars(model.counters).items()}
        counts = [int(found[each]) for each in ("finite_steps", "skipped_steps", "skipped_in_a_row")]
        assert np.isfinite(found["gradient_norm"]) == is_sound and np.isfinite(found["loss_sum"])
        scale = np.array(getattr(model.optimizer, "dynamic_scale" if either.is_keras_3 else "loss_scale", 0.0))
        return weights(model), counts, float(scale)

    (sound, *first), (broken, *second) = train(0, True), train(1, False)
    assert (first, second) == ([[1, 0, 0], 64.0 * scales], [[1, 1, 1], 32.0 * scales])
    assert int(model.optimizer.iterations.numpy()) == 2
    assert apart(broken, sound) == 0  # BatchNormalization's averages, too.
    fresh = weights(normalized(either))
    assert all(np.abs(one - other).max() > 0 for one, other in zip(sound[-4:], fresh[-4:], strict=True))
    shown = model.model.variables if either.is_keras_3 else model.model.trainable_variables
    for variable in shown:  # tf_keras shows the mean of what replicas have of an average.
        one, *others = strategy_of(replicas).experimental_local_results(either.step.value_of(variable))
        for other in others:
            np.testing.assert_array_equal(other.numpy(), one.numpy())
    assert train(2, False)[1:] == ([1, 2, 2], 16.0 * scales)
    longer, *last = train(3, True)
    assert last == [[2, 2, 0], 16.0 * scales]
    assert all(np.isfinite(value).all() for value in longer) and apart(longer, broken) > 0


@SLOW  # By default test_fit trains with averages that overwrite the weights; test_situations clips.
@pytest.mark.parametrize("options", [{"use_ema": True}, {"loss_scale_factor": 1024.0}, {"weight_decay": 0.1}])
def test_what_optimizers_do_with_a_gradient_they_do_with_the_global_batchs(three, options):
    three.like(optimizer=lambda: three.keras.optimizers.Adam(0.02, epsilon=EPSILON, **options))


def test_each_of_several_optimizers_gets_the_global_batchs(three):
    kinds = three.keras.optimizers
    by_name = lambda: kinds.OptimizerMap(kinds.Adam(0.02), {".*kernel": three.sgd(global_clipnorm=0.1)})  # noqa: E731
    three.like(optimizer=lambda: kinds.MultiOptimizer(by_name()), compiled={"run_eagerly": True})
    model = three.build(optimizer=lambda: kinds.MultiOptimizer(by_name()), compiled={"run_eagerly": True})
    model.train_on_batch(*rows(8), sample_weight=np.full(8, np.inf, np.float32))
    assert [int(each.iterations.numpy()) for each in (model.optimizer, *model.optimizer.optimizers)] == [1, 1, 1]
    named = type("Named", (kinds.SGD,), {"optimizers": {"other": "adam"}})  # A user's own may mean anything by it.
    three.build(optimizer=named, compiled={"run_eagerly": True}).train_on_batch(*rows(8))


# Clipping and dropout.


def linear(either, width, *before):
    """One output, at first 0; its gradient is the label times the inputs."""

    class Linear(either.keras.losses.Loss):
        def call(self, labels, outputs):
            return tf.reshape(labels, [-1]) * outputs[:, 0]

    dense = lambda: either.layers.Dense(1, use_bias=False, kernel_initializer="zeros")  # noqa: E731
    return lambda: either.sequential(lambda: [*(make() for make in before), dense()], shape=[width]), {"loss": Linear()}


@pytest.mark.parametrize(
    "replicas, parts, policy",
    [(2, 2, "mixed_float16"), *(slow(*c) for c in [(1, 4, "float32"), (2, 1, "mixed_float16"), (2, 2, "float32")])],
)
def test_clipping_comes_after_the_sum_over_all_replicas(either, replicas, parts, policy):
    """Rows pull apart: each share's gradient alone has norm 2, all together 1/8, clipped to 1/16."""
    x = np.array([[2, 1 / 8], [2, 1 / 8], [-2, 1 / 8], [-2, 1 / 8]], np.float32)
    make, compiled = linear(either, 2)
    options = {"gradient_accumulation_steps": parts, "max_grad_norm": 1 / 16, "policy": policy, "replicas": replicas}
    model = either.build(make, optimizer=lambda: either.sgd(1.0), compiled=compiled, **options)
    model.fit(x, np.ones(4, np.float32), batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(weights(model)[0][:, 0], [0.0, -1 / 16], atol=1e-6)
    assert float(model.counters.gradient_norm.numpy()) == pytest.approx(1 / 8)


def kept_inputs(either, draws, steps=1, **options):
    """How many of equal rows, one a micro-batch, kept each input: by a weight's change in steps of rate -1."""
    make, compiled = linear(either, 400, lambda: either.layers.Dropout(0.5))
    model = either.build(make, optimizer=lambda: either.sgd(-draws / 2), compiled=compiled, **options)
    found = []
    for _ in range(steps):
        before = weights(model)[0]
        model.fit(np.ones((draws, 400), np.float32), np.ones(draws, np.float32), batch_size=draws, verbose=0)
        found.append((weights(model)[0] - before).reshape(-1))
    return found


def test_each_step_draws_new_noise(either):
    kept = [each > 0.5 for each in kept_inputs(either, 1, steps=3)]
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert 0.4 < np.mean(kept[a] == kept[b]) < 0.6


@pytest.mark.parametrize("recurrent", [False, slow(True)])
def test_layers_draw_by_row_whichever_they_are(three, recurrent):
    """Dropout of slices and a layer of the user's own; other layers of Keras, which test_noise has by default."""
    keras, kinds = three.keras, three.layers

    class Own(kinds.Layer):
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

    def layers():
        noise = [kinds.SpatialDropout1D(0.3)]
        if recurrent:
            lstm = kinds.LSTM(4, dropout=0.3, recurrent_dropout=0.2, return_sequences=True)
            noise += [kinds.GaussianNoise(0.3), lstm, kinds.GaussianDropout(0.2), kinds.AlphaDropout(0.2)]
        return [*noise, Own(), kinds.GlobalAveragePooling1D(), kinds.Dense(CLASSES)]

    x = np.random.default_rng(0).normal(size=(20, 6, 4)).astype(np.float32)
    fit = {"xy": (x, np.arange(20) % CLASSES), "optimizer": lambda: three.sgd(momentum=0.9)}

    def trained(replicas, parts, seed):
        options = {"wrap": {"seed": seed}, "compiled": {"run_eagerly": parts == 1}}
        make = lambda: three.sequential(layers, shape=[6, 4], seed=2)  # noqa: E731
        return three.ours(make, replicas=replicas, parts=parts, **options, **fit)

    whole, split = trained(1, 1, 0), trained(2, 2, 0)
    assert apart(split, whole) < 1e-5
    if recurrent:
        assert apart(trained(1, 1, 0), whole) == 0 and apart(trained(1, 1, 1), whole) > 1e-3


@SLOW
@pytest.mark.parametrize("replicas, parts, policy, xla", GRID)
def test_kerashubs_bert_is_split_alike(three, replicas, parts, policy, xla):
    """Dropout on, tokens that occur many times in a batch; the last batch has eleven rows."""
    from tests.support import keras_hub

    x, y = keras_hub.texts(43)
    if "hub" not in _references:
        optimizer = NumpyAdamW(RATE, DECAY, EPSILON)
        _references["hub"] = keras_hub.reference_steps(keras_hub.bert(), x, y, optimizer, batch_size=16, clip=CLIP)
    options = {"gradient_accumulation_steps": parts, "max_grad_norm": CLIP, "jit_compile": xla}
    plain = lambda: three.keras.optimizers.AdamW(RATE, weight_decay=DECAY, epsilon=EPSILON)  # noqa: E731
    model = three.build(keras_hub.bert, replicas=replicas, policy=policy, optimizer=plain, **options)
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16), verbose=0)
    assert apart(weights(model), _references["hub"]) < TOLERANCE[policy]
    assert int(model.counters.skipped_steps.numpy()) == 0


@pytest.mark.parametrize("metrics", [None, ["accuracy"]])
def test_the_outputs_of_a_batch_are_kept_only_where_a_metric_reads_them(three, metrics):
    """Those of all micro-batches would need memory that grows with the batch, which accumulation is there to avoid."""
    model = three.build(gradient_accumulation_steps=4, compiled={"metrics": metrics})
    data = (tf.zeros([8, 5]), tf.zeros([8], tf.int32))
    step = tf.function(lambda *data: model.train_step(data), autograph=False)
    step(*data)
    assert ("accuracy" in model.get_metrics_result()) == bool(metrics)
    graph = step.get_concrete_function(*data).graph
    functions = [graph, *(f.graph for f in graph._functions.values() if hasattr(f, "graph"))]
    operations = {op.type for each in functions for op in each.get_operations()}
    assert ("TensorListReserve" in operations) == bool(metrics), sorted(operations)
