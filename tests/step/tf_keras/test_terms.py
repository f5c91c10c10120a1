"""A loss of several terms, and labels for each token: each divided by its own count over the global batch."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.like_tf_keras import (
    CLASSES,
    FEATURES,
    SPLITS_OF_ONE,
    assert_like_keras,
    data,
    logits_loss,
    sgd,
    train,
)
from tests.support.tf_keras_updates import assert_equal_weights, build
from tfbert.step.tf_keras.finetuner import FineTuner

ROWS, POSITIONS, TAGS = 27, 6, 4  # In batches of 16: the last has 11 rows.
RATE = 0.5
SLOW = pytest.mark.slow


def tokens():
    """(inputs [rows, positions, features], (a tag a token, a class a row), (weights of tokens, weights of rows))."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, POSITIONS, FEATURES)).astype(np.float32)
    labels = rng.integers(0, TAGS, (ROWS, POSITIONS)), rng.integers(0, CLASSES, ROWS)
    lengths = rng.integers(0, POSITIONS + 1, (ROWS, 1))  # A row may have no token that counts, and yet count itself.
    token_weights = np.where(np.arange(POSITIONS) < lengths, rng.uniform(0.5, 2, (ROWS, POSITIONS)), 0)
    row_weights = np.where(rng.uniform(size=ROWS) < 0.7, rng.uniform(0.5, 2, ROWS), 0)
    return x, labels, (token_weights.astype(np.float32), row_weights.astype(np.float32))


def two_heads():
    keras.utils.set_random_seed(4)
    inputs = keras.Input([None, FEATURES])
    tags = keras.layers.Dense(TAGS, use_bias=False, name="tags")(inputs)
    pooled = tf.reduce_mean(inputs, axis=1)
    return keras.Model(inputs, [tags, keras.layers.Dense(CLASSES, use_bias=False, name="class")(pooled)])


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


def numpy_steps(kernels, coefficients, epochs=2):
    """Gradient descent over whole batches, written out; the kernels and each step's loss."""
    x, (tags, classes), (token_weights, row_weights) = tokens()
    kernels, losses = [kernel.astype(np.float64) for kernel in kernels], []
    for start in (0, 16) * epochs:
        part = slice(start, start + 16)
        terms = [
            (x[part].reshape(-1, FEATURES), kernels[0], tags[part].reshape(-1), token_weights[part].reshape(-1)),
            (x[part].mean(axis=1), kernels[1], classes[part], row_weights[part]),
        ]
        found = [cross_entropy(*(np.asarray(a, np.float64) if a.dtype.kind == "f" else a for a in t)) for t in terms]
        losses.append(sum(c * loss for c, (loss, _) in zip(coefficients, found, strict=True)))
        kernels = [k - RATE * c * g for k, c, (_, g) in zip(kernels, coefficients, found, strict=True)]
    return kernels, losses


def grid(quick):
    """All ways of running, those that are not quick marked."""
    cases = itertools.product((1, 2), (1, 2), (False, True))
    return [pytest.param(*case, marks=() if case == quick else pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("replicas, micro_batches, xla", grid((2, 2, False)))
def test_two_terms_are_those_of_one_big_batch(replicas, micro_batches, xla):
    x, labels, weights = tokens()
    expected, losses = numpy_steps([w.numpy() for w in two_heads().trainable_variables], (1.0, 0.25))
    model = build(
        two_heads,
        replicas=replicas,
        optimizer=lambda: keras.optimizers.SGD(RATE),
        loss=logits_loss(),
        loss_weights=[1.0, 0.25],
        gradient_accumulation_steps=micro_batches,
        jit_compile=xla,
    )
    batches = tf.data.Dataset.from_tensor_slices((x, labels, weights)).batch(16)
    model.fit(batches, epochs=2, verbose=0)
    assert_equal_weights(model, expected, 2e-6)
    assert float(model.counters.loss_sum.numpy()) == pytest.approx(sum(losses), abs=1e-5)


def tagger():
    keras.utils.set_random_seed(4)
    return keras.Sequential([keras.layers.Input([None, FEATURES]), keras.layers.Dense(TAGS, use_bias=False)])


@pytest.mark.parametrize("replicas, micro_batches, xla", grid((1, 2, True)))
def test_labels_for_each_token_are_divided_by_the_tokens_that_count(replicas, micro_batches, xla):
    """However wide the padding is."""
    x, (tags, _), (weights, _) = tokens()
    start = tagger().trainable_variables[0].numpy()
    (expected, _), _ = numpy_steps([start, np.zeros([FEATURES, CLASSES])], (1.0, 0.0))
    for padding in (0, 5) if micro_batches == 2 else (2,):
        wide = [np.pad(a, [(0, 0), (0, padding)] + [(0, 0)] * (a.ndim - 2)) for a in (x, tags, weights)]
        model = build(
            tagger,
            replicas=replicas,
            optimizer=lambda: keras.optimizers.SGD(RATE),
            loss=logits_loss(),
            gradient_accumulation_steps=micro_batches,
            jit_compile=xla,
        )
        model.fit(tf.data.Dataset.from_tensor_slices(tuple(wide)).batch(16), epochs=2, verbose=0)
        assert_equal_weights(model, [expected], 2e-6)


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=SLOW), 2])
def test_an_evaluation_is_over_all_that_counts_however_it_is_batched(replicas):
    x, labels, weights = tokens()
    model = build(two_heads, replicas=replicas, loss=logits_loss(), loss_weights=[2.0, 0.5])
    tag_kernel, class_kernel = (w.numpy().astype(np.float64) for w in model.model.trainable_variables)
    tag_loss, _ = cross_entropy(
        x.reshape(-1, FEATURES).astype(np.float64), tag_kernel, labels[0].reshape(-1), weights[0].reshape(-1)
    )
    class_loss, _ = cross_entropy(x.mean(axis=1, dtype=np.float64), class_kernel, labels[1], weights[1])
    expected = {"loss": 2 * tag_loss + class_loss / 2, "tags_loss": tag_loss, "class_loss": class_loss}
    for size in (5, 27):
        found = model.evaluate(
            x, list(labels), sample_weight=list(weights), batch_size=size, verbose=0, return_dict=True
        )
        assert found == pytest.approx(expected, abs=1e-6)


# As Keras takes and names them.


def both(as_dict=False):
    keras.utils.set_random_seed(3)
    inputs = keras.Input([FEATURES])
    hidden = keras.layers.Dense(6, activation="tanh", kernel_regularizer=keras.regularizers.l2(0.01))(inputs)
    outputs = [keras.layers.Dense(CLASSES, name="kind")(hidden), keras.layers.Dense(1, name="size")(hidden)]
    return keras.Model(inputs, dict(zip(("kind", "size"), outputs, strict=True)) if as_dict else outputs)


def both_labels():
    x, y = data()
    return x, y, x[:, 0] * 2 - x[:, 1]


@pytest.mark.parametrize(
    "as_dict, loss, loss_weights, metrics",
    [
        pytest.param(False, ["classes", "mse"], [0.3, 0.1], [["accuracy"], ["mae"]], id="list", marks=SLOW),
        pytest.param(
            False, {"size": "mse", "kind": "classes"}, {"size": 0.1}, {"kind": "accuracy"}, id="names", marks=SLOW
        ),
        pytest.param(False, ["classes", None], None, [["accuracy"], ["mae"]], id="none", marks=SLOW),
        pytest.param(
            True,
            {"size": "mse", "kind": "classes"},
            {"kind": 0.3, "size": 0.1},
            {"kind": ["accuracy"]},
            id="dictionary",
        ),
        pytest.param(True, {"kind": "classes"}, 0.3, None, id="one", marks=SLOW),
    ],
)
def test_outputs_with_a_loss_each_are_keras_own(as_dict, loss, loss_weights, metrics):
    x, kind, size = both_labels()
    loss = tf.nest.map_structure(lambda name: logits_loss() if name == "classes" else name, loss)
    assert_like_keras(
        lambda: both(as_dict),
        x,
        {"kind": kind, "size": size} if isinstance(loss, dict) else [kind, size],
        replicas=2 if isinstance(loss_weights, list) else 1,
        options={"gradient_accumulation_steps": 2},
        compiled={"loss": loss, "loss_weights": loss_weights, "metrics": metrics},
    )


@SLOW
@SPLITS_OF_ONE
def test_one_loss_and_weight_for_all_outputs(replicas, micro_batches):
    x, kind, _ = both_labels()

    def model():
        keras.utils.set_random_seed(3)
        inputs = keras.Input([FEATURES])
        return keras.Model(inputs, [keras.layers.Dense(CLASSES, name=name)(inputs) for name in ("a", "b")])

    trained = assert_like_keras(
        model,
        x,
        [kind, (kind + 1) % CLASSES],
        sample_weight=np.random.default_rng(5).uniform(0.1, 3, len(x)),
        replicas=replicas,
        options={"gradient_accumulation_steps": micro_batches},
        compiled={"metrics": ["accuracy"]},
    )
    names = ["loss", "a_loss", "b_loss", "a_accuracy", "b_accuracy"]
    assert [metric.name for metric in trained.metrics] == names


@pytest.mark.slow
def test_a_model_of_ones_own_may_name_its_outputs():
    class Named(keras.Model):
        def __init__(self):
            super().__init__()
            keras.utils.set_random_seed(1)
            self.kind, self.size = keras.layers.Dense(CLASSES), keras.layers.Dense(1)

        def call(self, inputs):
            return {"kind": self.kind(inputs), "size": self.size(inputs), "inputs": inputs}

    x, kind, size = both_labels()
    compiled = {"loss": {"kind": logits_loss(), "size": "mse"}, "optimizer": sgd}
    found, history, trained = train(
        Named, x, {"kind": kind, "size": size}, options={"gradient_accumulation_steps": 2}, compiled=compiled, epochs=1
    )
    separate = []
    for name, y in (("kind", kind), ("size", size)):
        own = compiled | {"loss": {name: compiled["loss"][name]}}
        one, _, _ = train(Named, x, {name: y}, wrap=False, compiled=own, epochs=1)
        separate += one[:2] if name == "kind" else one[2:]
    for value, expected in zip(found, separate, strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-5)
    assert list(history) == ["loss", "kind_loss", "size_loss"]
    assert set(trained.predict(x, verbose=0)) == {"kind", "size", "inputs"}


@pytest.mark.slow
def test_a_hugging_face_model_with_several_outputs():
    from transformers import BertConfig, TFBertForQuestionAnswering

    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1}
    model = TFBertForQuestionAnswering(BertConfig(vocab_size=20, **sizes))
    model.build_in_name_scope()
    trained = FineTuner(model, gradient_accumulation_steps=2)
    trained.compile(keras.optimizers.Adam(0.01), {"start_logits": logits_loss(), "end_logits": logits_loss()})
    ids = np.random.default_rng(0).integers(1, 20, (8, 5)).astype(np.int32)
    labels = {"start_logits": np.full(8, 1), "end_logits": np.full(8, 3)}
    losses = trained.fit(ids, labels, batch_size=8, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    assert {name: value.shape for name, value in trained.predict(ids, verbose=0).items()} == {
        "start_logits": (8, 5),
        "end_logits": (8, 5),
    }
