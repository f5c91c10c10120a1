"""A loss of several terms, labels for each token, masks: each divided by its own count over the global batch."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import SLOW, quick, slow
from tests.support.either_keras import CLASSES, FEATURES, OVER_BOTH, apart, rows, weights
from tfbert.step.terms import Terms, numbered

ROWS, POSITIONS, TAGS, WORDS = 27, 6, 4, 9  # In batches of 16: the last has 11 rows.
RATE = 0.5


def tokens():
    """(inputs [rows, positions, features], (a tag a token, a class a row), (weights of tokens, weights of rows))."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, POSITIONS, FEATURES)).astype(np.float32)
    labels = rng.integers(0, TAGS, (ROWS, POSITIONS)), rng.integers(0, CLASSES, ROWS)
    lengths = rng.integers(0, POSITIONS + 1, (ROWS, 1))  # A row may have no token that counts, and yet count itself.
    token_weights = np.where(np.arange(POSITIONS) < lengths, rng.uniform(0.5, 2, (ROWS, POSITIONS)), 0)
    row_weights = np.where(rng.uniform(size=ROWS) < 0.7, rng.uniform(0.5, 2, ROWS), 0)
    return x, labels, (token_weights.astype(np.float32), row_weights.astype(np.float32))


def cross_entropy(x, kernel, labels, weights):
    """Loss and gradient of a linear classifier in float64, over all values with weight: `[n, features]`, `[n]`."""
    logits = x @ kernel
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    each = np.arange(len(x))
    count = max(1, (weights > 0).sum())
    loss = -(weights * np.log(p[each, labels])).sum() / count
    p[each, labels] -= 1
    return loss, x.T @ (p * weights[:, None]) / count


def terms_of(part, kernels):
    """Losses and gradients of tags and of classes, over a part of the rows."""
    x, (tags, classes), (token_weights, row_weights) = tokens()
    terms = [
        (x[part].reshape(-1, FEATURES), kernels[0], tags[part].reshape(-1), token_weights[part].reshape(-1)),
        (x[part].mean(axis=1), kernels[1], classes[part], row_weights[part]),
    ]
    return [cross_entropy(*(np.asarray(a, np.float64) if a.dtype.kind == "f" else a for a in t)) for t in terms]


def numpy_steps(kernels, coefficients):
    """Gradient descent over whole batches, written out; the kernels and each step's loss."""
    kernels, losses = [kernel.astype(np.float64) for kernel in kernels], []
    for start in (0, 16):
        found = terms_of(slice(start, start + 16), kernels)
        losses.append(sum(c * loss for c, (loss, _) in zip(coefficients, found, strict=True)))
        kernels = [k - RATE * c * g for k, c, (_, g) in zip(kernels, coefficients, found, strict=True)]
    return kernels, losses


def grid(chosen):
    """All ways of running, slow but for this one."""
    return quick(itertools.product((1, 2), (1, 2), (False, True)), chosen)


def two_heads(either):
    kinds = either.layers
    either.keras.utils.set_random_seed(4)
    inputs = either.keras.Input([None, FEATURES])
    tags = kinds.Dense(TAGS, use_bias=False, name="tags")(inputs)
    pooled = kinds.GlobalAveragePooling1D()(inputs)
    return either.keras.Model(inputs, [tags, kinds.Dense(CLASSES, use_bias=False, name="class")(pooled)])


def two_losses(either, *loss_weights):
    return {"loss": [either.loss(), either.loss()], "loss_weights": list(loss_weights)}


@pytest.mark.parametrize("replicas, micro_batches, xla", grid((2, 2, False)))
def test_two_terms_are_those_of_one_big_batch(either, replicas, micro_batches, xla):
    x, labels, sample_weight = tokens()
    expected, losses = numpy_steps(weights(two_heads(either)), (1.0, 0.25))
    options = {"replicas": replicas, "gradient_accumulation_steps": micro_batches, "jit_compile": xla}
    options |= {"optimizer": lambda: either.sgd(RATE), "compiled": two_losses(either, 1.0, 0.25)}
    model = either.build(lambda: two_heads(either), **options)
    model.fit(tf.data.Dataset.from_tensor_slices((x, labels, sample_weight)).batch(16), verbose=0)
    assert apart(weights(model), expected) < 2e-6
    assert float(model.counters.loss_sum.numpy()) == pytest.approx(sum(losses), abs=1e-5)


@pytest.mark.parametrize("replicas, micro_batches, xla", grid((1, 2, True)))
def test_labels_for_each_token_are_divided_by_the_tokens_that_count(either, replicas, micro_batches, xla):
    """However wide the padding is."""
    x, (tags, _), (sample_weight, _) = tokens()
    layers = lambda: [either.layers.Dense(TAGS, use_bias=False)]  # noqa: E731
    make = lambda: either.sequential(layers, shape=[None, FEATURES], seed=4)  # noqa: E731
    (start,) = weights(make())
    (expected, _), _ = numpy_steps([start, np.zeros([FEATURES, CLASSES])], (1.0, 0.0))
    x, tags, sample_weight = (np.pad(a, [(0, 0), (0, 5)] + [(0, 0)] * (a.ndim - 2)) for a in (x, tags, sample_weight))
    options = {"replicas": replicas, "gradient_accumulation_steps": micro_batches, "jit_compile": xla}
    model = either.build(make, optimizer=lambda: either.sgd(RATE), **options)
    columns = x, tags, sample_weight[..., None]  # As of the shape of an output [rows, positions, 1].
    model.fit(tf.data.Dataset.from_tensor_slices(columns).batch(16), verbose=0)
    assert apart(weights(model), [expected]) < 2e-6


@pytest.mark.parametrize("replicas", [slow(1), 2])
def test_an_evaluation_is_over_all_that_counts_however_it_is_batched(either, replicas):
    x, labels, sample_weight = tokens()
    model = either.build(lambda: two_heads(either), replicas=replicas, compiled=two_losses(either, 2.0, 0.5))
    found = [loss for loss, _ in terms_of(slice(None), weights(model))]
    # The names that each Keras gives outputs of a list.
    expected = dict(zip((f"{name}_loss" for name in model.model.output_names), found, strict=True))
    expected["loss"] = 2 * found[0] + found[1] / 2
    options = {"sample_weight": list(sample_weight), "verbose": 0, "return_dict": True}
    for size in (5, 27):
        found = model.evaluate(x, list(labels), batch_size=size, **options)
        assert found == pytest.approx(expected, abs=1e-6)


# As Keras takes and names them.


def both(either, as_dict):
    kinds = either.layers
    either.keras.utils.set_random_seed(3)
    one, other = either.keras.Input([FEATURES], name="one"), either.keras.Input([2], name="other")
    hidden = kinds.Dense(6, activation="tanh", kernel_regularizer="l2")(kinds.Concatenate()([one, other]))
    outputs = [kinds.Dense(CLASSES, name="kind")(hidden), kinds.Dense(1, name="size")(hidden)]
    outputs = dict(zip(("kind", "size"), outputs, strict=True)) if as_dict else outputs
    return either.keras.Model({"one": one, "other": other}, outputs)


BY_NAME = {"size": "mse", "kind": "classes"}


@pytest.mark.parametrize(
    "as_dict, loss, loss_weights, metrics, is_weighted",
    [
        slow(False, ["classes", "mse"], [0.3, 0.1], [["accuracy"], ["mae"]], True),
        (True, BY_NAME, {"kind": 0.3, "size": 0.1}, {"kind": ["accuracy"], "size": ["mae"]}, True),
        slow(True, BY_NAME, {"size": 0.1}, {"kind": "accuracy"}, False),
        slow(True, {"kind": "classes"}, None, None, False),
        slow(False, ["classes", None], None, [["accuracy"], ["mae"]], False),
    ],
    ids=["list", "dictionary", "one", "one loss", "none"],
)
def test_outputs_with_a_loss_each_are_keras_own(either, as_dict, loss, loss_weights, metrics, is_weighted):
    """Terms by the names that Keras gives them, weighted by loss_weights and each by weights of its own."""
    if either.is_keras_3 and not is_weighted:
        pytest.skip("tf_keras alone takes some of what is for each")
    x, kind = rows(40)
    inputs = {"one": x, "other": np.random.default_rng(5).normal(size=(40, 2)).astype(np.float32)}
    as_given = (lambda each: dict(zip(("kind", "size"), each, strict=True))) if as_dict else list
    row_weights = np.linspace(0.5, 2, 40).astype(np.float32)
    fit = {"sample_weight": as_given([row_weights, row_weights[::-1].copy()])} if is_weighted else {}
    made = lambda name: either.loss() if name == "classes" else name  # noqa: E731
    losses = lambda: tf.nest.map_structure(made, loss)  # noqa: E731
    compiled = lambda: {"loss": losses(), "loss_weights": loss_weights, "metrics": metrics}  # noqa: E731
    data = inputs, as_given([kind, x[:, :1] * 2 - x[:, 1:2]])
    either.like(lambda: both(either, as_dict), data, replicas=1, parts=3, compiled=compiled, **fit)


@OVER_BOTH
def test_one_loss_and_weight_are_those_of_all_outputs(either):
    terms = Terms(either.step, either.loss(), output_names=["a", "b"])
    assert [metric.name for metric in terms.metrics] == ["loss", "a_loss", "b_loss"]
    for weight in terms.weights(np.float32([1, 2]), 2, None).values():
        np.testing.assert_array_equal(weight, [1, 2])


@OVER_BOTH
def test_a_weight_of_a_loss_may_be_a_variable_that_changes(either):
    """As where a callback lets a second loss in by and by."""
    weight = either.keras.Variable(0.0) if either.is_keras_3 else tf.Variable(0.0)
    terms = Terms(either.step, [either.loss(), either.loss()], [tf.Variable(2), weight])
    shown = terms.metrics[0]
    for value, total in ((0.0, 2.0), (0.5, 3.5)):
        weight.assign(value)
        terms.update_metrics(np.float32([1, 3, 0]), np.float32([1, 1, 1]))
        assert float(terms.total(np.float32([1, 3, 0]))) == float(shown.result()) == total
    assert shown.get_config()["coefficients"] == [2.0, 0.5, 1.0]


def test_outputs_of_one_layer_have_a_loss_each(either):
    """Of a head that is called twice, both outputs have the name in Keras 3."""

    def twice():
        either.keras.utils.set_random_seed(3)
        inputs = [either.keras.Input([FEATURES]) for _ in range(2)]
        return either.keras.Model(inputs, list(map(either.layers.Dense(CLASSES, name="head"), inputs)))

    x, kind = rows(20)
    loss, weight, metrics = (lambda: [either.loss(), either.loss()]), [1.0, 0.3], [["accuracy"]] * 2
    compiled = lambda: {"loss": loss(), "loss_weights": weight, "metrics": metrics}  # noqa: E731
    plain, found = (
        train(twice, ([x, x[::-1].copy()], [kind, kind]), compiled=compiled) for train in (either.plain, either.ours)
    )
    assert apart(found, plain) < 1e-5
    assert found.history["loss"] == pytest.approx(plain.history["loss"], abs=1e-5)
    parts = {"head_loss", "head_1_loss", "head_accuracy", "head_1_accuracy"}
    assert found.history.keys() == {"loss"} | parts
    loss, weight, metrics = (lambda: {"head": either.loss()}), None, None
    plain, found = (
        train(twice, ([x, x[::-1].copy()], [kind, kind]), compiled=compiled) for train in (either.plain, either.ours)
    )
    assert apart(found, plain) < 1e-5, "which in Keras 3 is a loss of both, and in tf_keras of the first"
    assert numbered(["a", "a", "a_1", "a"]) == ["a", "a_2", "a_1", "a_3"]


@SLOW
def test_a_model_of_ones_own_may_name_its_outputs(either):
    kinds = either.layers

    class Named(either.keras.Model):
        def __init__(self):
            super().__init__()
            either.keras.utils.set_random_seed(1)
            self.kind, self.size = kinds.Dense(CLASSES), kinds.Dense(1)

        def call(self, inputs):
            return {"kind": self.kind(inputs), "size": self.size(inputs), "inputs": inputs}

    x, kind = rows(40)
    labels = {"kind": kind, "size": x[:, :1]}
    losses = {"kind": either.loss(), "size": "mse"}
    found = either.ours(Named, (x, labels), replicas=1, parts=2, compiled={"loss": losses})
    separate = []
    for name, y in labels.items():

        class Alone(Named):
            """With all its layers, and one output."""

            kept = name

            def call(self, inputs):
                return {self.kept: super().call(inputs)[self.kept]}

        one = either.plain(Alone, (x, {name: y}), compiled={"loss": {name: losses[name]}}).weights
        separate += one[:2] if name == "kind" else one[2:]
    assert apart(found.weights, separate) < 1e-5
    assert set(found.history) == {"loss", "kind_loss", "size_loss"}
    assert set(found.model.predict(x, verbose=0)) == {"kind", "size", "inputs"}


# Rows that only fill a share, and masks.


@pytest.mark.parametrize("replicas, parts, xla", [(1, 4, False), slow(2, 3, False), slow(2, 1, True)])
def test_rows_that_fill_a_share_harm_no_masked_mean(either, replicas, parts, xla):
    """Keras's own text classifier: the mean of a text without tokens is 0 / 0.

    Batches of 10, which 4 and 2 x 3 do not divide, and a last one of 1 that leaves shares empty.
    """
    kinds, rng = either.layers, np.random.default_rng(0)
    lengths = rng.integers(1, 8, (41, 1))
    ids = np.where(np.arange(7) < lengths, rng.integers(1, 20, (41, 7)), 0).astype(np.int32)
    layers = lambda: [kinds.Embedding(20, 4, mask_zero=True), kinds.GlobalAveragePooling1D(), kinds.Dense(CLASSES)]  # noqa: E731
    make = lambda: either.sequential(layers, shape=[7], dtype="int32", seed=1)  # noqa: E731
    data, wrap = (ids, ids.max(axis=1) % CLASSES), {"jit_compile": xla}
    trained = either.like(make, data, replicas=replicas, parts=parts, wrap=wrap).model
    assert int(trained.counters.skipped_steps.numpy()) == 0


def test_rows_that_fill_a_share_are_rows_of_it_for_batch_normalisation(either):
    """Equal rows: statistics are those of one row only if no other row, as one of zeros, was added."""
    norm = lambda: [either.layers.BatchNormalization(momentum=0.0), either.layers.Dense(CLASSES)]  # noqa: E731
    data = np.full([5, 5], 3.0, np.float32), np.zeros(5, np.int32)
    model = either.ours(lambda: either.sequential(norm), data, replicas=1, parts=2, batch_size=5).model.model
    np.testing.assert_allclose(np.array(model.layers[0].moving_mean), np.full(5, 3.0), rtol=1e-6)
    np.testing.assert_allclose(np.array(model.layers[0].moving_variance), np.zeros(5), atol=1e-6)


def tagger(either, kind, hidden="Dense"):
    kinds = either.layers
    shape, dtype, first = [POSITIONS], "int32", lambda: kinds.Embedding(WORDS, 4, mask_zero=True)
    if kind == "masking":
        shape, dtype, first = [POSITIONS, 1], None, lambda: kinds.Masking(0.0)
    options = {"activation": "tanh"} if hidden == "Dense" else {"return_sequences": True}
    layers = lambda: [first(), getattr(kinds, hidden)(4, **options), kinds.Dense(CLASSES)]  # noqa: E731
    return either.sequential(layers, shape=shape, dtype=dtype, seed=1)


@pytest.mark.parametrize(
    "kind, hidden, replicas, parts",
    [
        ("alone", "Dense", 1, 3),
        slow("alone", "LSTM", 2, 2),
        slow("embedding", "Dense", 2, 2),
        slow("masking", "LSTM", 1, 2),
        slow("embedding", "SimpleRNN", 1, 4),
    ],
)
def test_a_mask(either, kind, hidden, replicas, parts):
    """Texts of one to six words; each position has a tag and, where the mask is not alone, a weight, padding too."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, WORDS, (40, POSITIONS)) * (np.arange(POSITIONS) < rng.integers(1, POSITIONS + 1, (40, 1)))
    sample_weight = rng.uniform(0.5, 2, ids.shape).astype(np.float32)
    tags = rng.integers(0, CLASSES, ids.shape)
    x = ids[..., None].astype(np.float32) if kind == "masking" else ids.astype(np.int32)
    fit = {
        "sample_weight": sample_weight,
        "batch_size": 40,  # Over several, plain Keras takes a mean of means.
        "validation_data": (x[:20], tags[:20], sample_weight[:20]),
        "compiled": {"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]},
    }
    if kind == "alone":
        fit |= {"sample_weight": None, "validation_data": (x[:20], tags[:20])}
    either.like(lambda: tagger(either, kind, hidden), (x, tags), replicas=replicas, parts=parts, **fit)


@pytest.mark.parametrize("replicas, parts", [(1, 3), slow(2, 2)])
def test_a_class_that_the_loss_ignores(either, replicas, parts):
    x, (tags, _), _ = tokens()
    tags[:, 4:], tags[3] = -100, -100
    compiled = {"loss": either.loss(ignore_class=-100)}
    fit = {"batch_size": ROWS, "validation_data": (x[:9], tags[:9])}
    make = lambda: either.sequential(lambda: [either.layers.Dense(TAGS)], shape=[None, FEATURES])  # noqa: E731
    either.like(make, (x, tags), replicas=replicas, parts=parts, compiled=compiled, **fit)


# Labels of one axis.


def test_labels_of_one_axis(either):
    x, y = rows(20)
    y = y.astype(np.float32) + np.arange(20) % 4
    make = lambda: either.sequential(lambda: [either.layers.Dense(1)], seed=1)  # noqa: E731
    either.like(make, (x, y), replicas=1, parts=1, compiled={"loss": "mse", "metrics": ["mae"]})


def test_a_loss_with_a_call_of_its_own_takes_what_it_takes(either):
    kind = either.keras.losses.SparseCategoricalCrossentropy
    own = type("Values", (kind,), {"call": lambda self, y, p: kind(from_logits=True, reduction="none")(y, p)})
    either.like(replicas=1, parts=3, compiled=lambda: {"loss": own()})
    with pytest.raises(ValueError, match="logits, not probabilities"):
        either.ours(xy=rows(8), replicas=1, compiled={"loss": kind()})


@pytest.mark.parametrize(
    "kind", ["a layer", *(slow(k) for k in ("outputs that the loss divides", "a functional model", "rounded ones"))]
)
def test_outputs_that_the_user_makes_probabilities(either, kind):
    class Probabilities(either.layers.Dense):
        def call(self, inputs):
            return tf.nn.softmax(super().call(inputs))

    class Model(either.keras.Model):
        def call(self, inputs, training=None, mask=None):
            return tf.nn.softmax(super().call(inputs))

    def functional():
        model = either.classifier()
        return Model(model.inputs, model.outputs[0])

    make = {
        "a layer": lambda: either.sequential(lambda: [Probabilities(3)]),
        "a functional model": functional,
        "outputs that the loss divides": lambda: either.classifier(activation=lambda x: 9 * tf.exp(x)),
        "rounded ones": lambda: either.classifier(activation=lambda x: tf.nn.softmax(20 * x) * 1.04 - 0.02),
    }[kind]
    x, y = rows(20)
    either.like(make, (x, np.eye(3)[y]), replicas=1, parts=1, compiled={"loss": "categorical_crossentropy"})
