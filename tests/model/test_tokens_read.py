"""Heads that read each token, or some: the last layer, labels of tokens, and a loss of two terms over them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import make_examples, packed_batches, plain_batches, plan_of
from tests.support.models import strategy_of, tiny_bert, variables_of
from tfbert.batches.pipeline import EncodedExamples, make_dataset
from tfbert.batches.plan import FILL, BatchPlan
from tfbert.model.forward import encode
from tfbert.step.keras3.finetuner import FineTuner

LABELS = 3


def labelled(count=37, share=0.6):
    """Examples whose tokens have labels, but for some."""
    examples = make_examples(count)
    rng = np.random.default_rng(9)
    size = len(examples.tokens.flat)
    labels = rng.integers(0, LABELS, size).astype(np.int32)
    weights = np.where(rng.random(size) < share, np.repeat(examples.weights, examples.tokens.lengths), 0)
    weights[: examples.tokens.lengths[0]] = 0  # An example without any.
    return EncodedExamples(
        tokens=examples.tokens, labels=labels, weights=weights.astype(np.float32), labels_tokens=True
    )


def last_layer(model, inputs):
    names = ("input_ids", "attention_mask", "token_type_ids")
    return model.bert({name: inputs[name] for name in names}, training=False).last_hidden_state.numpy()


@pytest.mark.parametrize("is_packed", [False, True])
def test_every_token_is_that_of_the_models_own_pass(is_packed):
    model, examples = tiny_bert(), make_examples(19)
    plan = plan_of(examples)
    plain = plain_batches(examples, plan)
    for (inputs, _, _), (alone, _, weights) in zip(
        packed_batches(examples, plan) if is_packed else plain, plain, strict=True
    ):
        expected, found = last_layer(model, alone), encode(model.bert, inputs).numpy()
        for row in np.flatnonzero(weights):
            length = int(alone["attention_mask"][row].numpy().sum())
            if is_packed:
                start = int(inputs["cls_positions"][row])
                own = found.reshape(-1, found.shape[-1])[start : start + length]
            else:
                own = found[row, :length]
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
    for rows, starts, (inputs, labels, weights) in zip(plan.rows, plan.starts, batches, strict=True):
        ids = inputs["input_ids"].numpy()
        assert labels.shape == weights.shape == ids.shape and (labels.dtype, weights.dtype) == (tf.int32, tf.float32)
        found = [array.numpy().reshape(-1) for array in (labels, weights)]
        counted = 0
        for place, (row, start) in enumerate(zip(rows, starts, strict=True)):
            if row == FILL:
                continue
            start = start if is_packed else place * ids.shape[1]
            own = slice(tokens.row_splits[row], tokens.row_splits[row + 1])
            expected, there = examples.labels[own], slice(start, start + tokens.lengths[row])
            np.testing.assert_array_equal(found[0][there], expected)
            weighed = examples.weights[own]
            np.testing.assert_array_equal(found[1][there], weighed)
            counted += np.count_nonzero(weighed)
            seen[own] += 1
        assert np.count_nonzero(found[1]) == counted, "nothing else weighs"
    np.testing.assert_array_equal(seen, 1)


class Tagger(keras.Model):
    """Two heads over every token: a class, and a number with a term of its own."""

    def __init__(self):
        super().__init__()
        self.tagger = tiny_bert(num_hidden_layers=1)
        self.tags = keras.layers.Dense(LABELS, name="tags", kernel_initializer=keras.initializers.RandomNormal(seed=4))
        self.scores = keras.layers.Dense(1, name="scores", kernel_initializer=keras.initializers.RandomNormal(seed=5))
        self.tags.build([None, 32])
        self.scores.build([None, 32])

    def call(self, inputs, training=None):
        hidden = encode(self.tagger.bert, inputs, training)
        return {"tags": self.tags(hidden), "scores": self.scores(hidden)[:, 0]}


def two_terms(inputs, labels, weights):
    """A class for each labelled token, and for each row a number that every second has."""
    row = tf.range(tf.shape(labels)[0])
    has_score = tf.cast((inputs["input_ids"][:, 0] > -1) & (row % 2 == 0), tf.float32) * tf.reduce_max(weights, 1)
    targets = {"tags": labels, "scores": tf.cast(inputs["input_ids"][:, :1] % 7, tf.float32)}
    return inputs, targets, {"tags": weights, "scores": has_score}


def trained(batches, replicas, accumulation):
    """The model after an update for each global batch, and the loss of each."""
    with strategy_of(replicas).scope():
        tagger = Tagger()
        model = FineTuner(tagger, gradient_accumulation_steps=accumulation, max_grad_norm=1.0)
        loss = {"tags": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "scores": "mse"}
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    # One big batch is computed eagerly: nothing of it is compiled, split or traced.
    is_split = (replicas, accumulation) != (1, 1)
    strategy, step = strategy_of(replicas), model.train_step
    step = tf.function(step, autograph=False) if is_split else step
    losses = []
    for batch in batches:
        shares = [tf.nest.map_structure(lambda x, i=i: tf.split(x, replicas)[i], batch) for i in range(replicas)]
        data = strategy.experimental_distribute_values_from_function(
            lambda context, shares=shares: shares[context.replica_id_in_sync_group]
        )
        model.reset_metrics()
        strategy.run(step, args=(data,))
        losses.append({metric.name: float(metric.result()) for metric in model.metrics})
    return [w.numpy() for w in tagger.trainable_variables], losses


def numpy_losses(model, batch):
    """Each term, its own count beneath it."""
    inputs, targets, weights = batch
    outputs = {name: value.numpy().astype(np.float64) for name, value in model(inputs, training=False).items()}
    logits, labels = outputs["tags"], targets["tags"].numpy()
    shares = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    squares = (outputs["scores"][:, 0] - targets["scores"].numpy()[:, 0]) ** 2
    own = [(weights["tags"].numpy(), shares), (weights["scores"].numpy(), squares)]
    return [float((w * v).sum() / np.count_nonzero(w)) for w, v in own]


def batches_of_two_terms():
    """Two global batches of 8 rows; the last rows of the second are empty."""
    examples = labelled(14)
    rows = np.array([[*range(8)], [8, 9, 10, 11, 12, 13, FILL, FILL]])
    plan = BatchPlan(rows=rows, widths=np.full(2, 20, np.int32))
    return [two_terms(*batch) for batch in make_dataset(examples, lambda: iter([plan]), range(1), 1)]


@pytest.fixture(scope="module")
def one_big_batch():
    return trained(batches_of_two_terms(), 1, 1)


@pytest.mark.slow
def test_each_term_is_divided_by_its_own_count(one_big_batch):
    batches = batches_of_two_terms()
    tags, scores = numpy_losses(Tagger(), batches[0])
    first = one_big_batch[1][0]
    assert first["tags_loss"] == pytest.approx(tags, rel=1e-5)
    assert first["scores_loss"] == pytest.approx(scores, rel=1e-5)
    assert first["loss"] == pytest.approx(tags + scores, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("replicas, accumulation", [(1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4)])
def test_every_split_gives_the_weights_of_one_big_batch(one_big_batch, replicas, accumulation):
    weights, losses = trained(batches_of_two_terms(), replicas, accumulation)
    for one, other in zip(weights, one_big_batch[0], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for one, other in zip(losses, one_big_batch[1], strict=True):
        assert one == pytest.approx(other, rel=1e-5)
