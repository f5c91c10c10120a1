"""`compile` and `fit`, plain and through FineTuner: the same updates on any split; labels wherever they are."""

import collections
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.bert import CLASSES, IDS, KINDS, PLACES, SIZES, TAGS, TEXTS, WIDTH, WITH_LABELS, make, tuned, worst
from tests.support.cases import SLOW, quick, slow
from tests.support.models import strategy_of
from tests.support.refusals import assert_refused
from tfbert.step.keras3.parts import KeyedRandom
from tfbert.step.noise import Rows, noise_key

on_one_device = functools.cache(functools.partial(tuned, make))


@SLOW
@pytest.mark.parametrize("replicas, micro_batches", [(1, 1), (2, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("xla", [pytest.param(False, id="plain"), pytest.param(True, id="xla")])
@pytest.mark.parametrize("policy, tolerance", [("float32", 2e-6), ("mixed_bfloat16", 3e-2), ("mixed_float16", 4e-3)])
@pytest.mark.parametrize("kind", WITH_LABELS)
def test_every_split_precision_and_xla_is_one_device(kind, policy, tolerance, xla, replicas, micro_batches):
    """By default test_pretraining has the split of two losses, test_splits that of a classifier, test_invariance_tasks
    those of other heads, and the next test micro-batches of tokens."""
    expected, history = on_one_device(kind)
    keras.config.set_dtype_policy(policy)
    found, others = tuned(make, kind, replicas, micro_batches, jit_compile=xla)
    distances = worst(found.get_weights(), expected.get_weights()), worst(others, history)
    print(f"weights {distances[0]:.1e}, losses {distances[1]:.1e}")
    assert max(distances) < tolerance


@pytest.mark.parametrize("kind", quick(WITH_LABELS, "TFBertForTokenClassification"))
def test_fine_tuner_gives_what_plain_keras_gives(kind):
    _, texts, labels = KINDS[kind]
    before, plain, inner = (make(kind, num_hidden_layers=1) for _ in range(3))
    for model in (plain, tfbert.FineTuner(inner, gradient_accumulation_steps=2)):
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        model.fit(texts | labels, batch_size=12, shuffle=False, verbose=0)
    assert worst(inner.get_weights(), plain.get_weights()) < 1e-6
    assert worst(plain.get_weights(), before.get_weights()) > 1e-3


def test_labels_may_be_anywhere_and_the_loss_may_be_the_models_own():
    """Among the inputs, by the names of arguments or outputs, or as they are; or the same loss by name."""
    model = make("TFBertForQuestionAnswering", num_hidden_layers=1)

    def losses_of(inputs, y=None, **options):
        model.compile("sgd", **options, run_eagerly=True)
        return model.evaluate(inputs, y, batch_size=12, return_dict=True, verbose=0)

    expected, own = losses_of(TEXTS | PLACES), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    by_output = {name.replace("positions", "logits"): value for name, value in PLACES.items()}
    for y in (PLACES, by_output, tuple(PLACES.values())):
        found = losses_of(TEXTS, y, loss=dict.fromkeys(by_output, own), loss_weights=dict.fromkeys(by_output, 0.5))
        assert found == pytest.approx(expected, abs=1e-6)
    assert losses_of(TEXTS, PLACES, loss=own)["start_logits_loss"] == pytest.approx(expected["start_logits_loss"])


def test_tags_of_minus_100_count_neither_in_the_loss_nor_in_metrics():
    model = make("TFBertForTokenClassification", num_hidden_layers=1)
    logits = model.predict(TEXTS, verbose=0).logits.astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    counts = TAGS >= 0
    expected = -np.log(np.take_along_axis(shares, np.maximum(TAGS, 0)[..., None], -1)[..., 0])[counts].mean()
    accuracy = (logits.argmax(-1) == TAGS)[counts].mean()
    for loss in (None, keras.losses.SparseCategoricalCrossentropy(from_logits=True), model.compute_loss):
        model.compile(tfbert.AdamW(1e-3), loss, metrics=["accuracy"], run_eagerly=True)
        found = model.evaluate(TEXTS, TAGS, batch_size=len(TAGS), verbose=0)
        np.testing.assert_allclose(found, [expected, accuracy], atol=1e-6)
    tuner = tfbert.FineTuner(model, gradient_accumulation_steps=2)
    tuner.compile(tfbert.AdamW(1e-3), metrics=["accuracy"])
    texts = collections.UserDict({name: value.tolist() for name, value in TEXTS.items()})  # As a BatchEncoding.
    found = tuner.evaluate(texts, TAGS.tolist(), batch_size=5, verbose=0)
    np.testing.assert_allclose(found, [expected, accuracy], atol=1e-6)
    assert tuner.predict(TEXTS, verbose=0).shape == logits.shape


def test_weights_of_rows_are_those_of_their_tags_in_metrics_too():
    model, weights = make("TFBertForTokenClassification", num_hidden_layers=1), np.arange(len(TAGS)) + 1.0
    found, counts = model.predict(TEXTS, verbose=0).logits.argmax(-1) == TAGS, (TAGS >= 0) * weights[:, None]
    expected = (found * counts).sum() / counts.sum()
    for trained in (model, tfbert.FineTuner(model, gradient_accumulation_steps=2)):
        trained.compile(keras.optimizers.SGD(0.0), weighted_metrics=["accuracy"], run_eagerly=trained is model)
        for method in (trained.fit, trained.evaluate):
            done = method(TEXTS, TAGS, sample_weight=weights, verbose=0)
            accuracy = done[1] if isinstance(done, list) else done.history["accuracy"][0]
            assert accuracy == pytest.approx(expected, abs=1e-6)


def test_weights_of_two_labels_are_in_their_order():
    """Those of rows Keras repeats, where the labels are a tuple."""
    model, labels, one = make("TFBertForQuestionAnswering", num_hidden_layers=1), (CLASSES, CLASSES + 1), CLASSES + 1.0
    logits = map(np.float64, model.predict(TEXTS, verbose=0))
    losses = [np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y] for z, y in zip(logits, labels, strict=True)]
    for trained in (model, tfbert.FineTuner(model, gradient_accumulation_steps=2)):
        trained.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
        lists = [one.tolist(), (one**2).tolist()], [each.tolist() for each in labels]
        named = {f"{name}_positions": each for name, each in zip(("start", "end"), labels, strict=True)}
        for given, weights, y in (
            ((one, one**2), (one, one**2), labels),
            (one, (one, one), labels),
            (lists[0], (one, one**2), lists[1]),
            ((one, one**2), (one, one**2), named),
            ([one, one**2], (one, one**2), None),
            (one, (one, one), None),
        ):
            expected = sum((loss * weight).mean() / 2 for loss, weight in zip(losses, weights, strict=True))
            x = TEXTS if y is not None else TEXTS | named
            held_out = trained.fit(TEXTS, labels, validation_data=(x, y, given), verbose=0).history["val_loss"]
            for found in (trained.evaluate(x, y, sample_weight=given, verbose=0), held_out):
                assert found[0] == pytest.approx(expected, rel=1e-5)
            assert trained.test_on_batch(x, y, given)[0] == pytest.approx(expected, rel=1e-5)


def test_what_compile_is_given_in_lists_is_in_the_order_of_the_labels():
    """Keras's is that of the outputs' names, of which "end_logits" comes first."""
    model, labels = make("TFBertForQuestionAnswering", num_hidden_layers=1), (CLASSES, CLASSES + 1)
    loss, count = (
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        keras.metrics.SparseTopKCategoricalAccuracy,
    )
    logits = model.predict(TEXTS, verbose=0)
    one, other = (float(loss(y, each)) for y, each in zip(labels, logits, strict=True))
    for trained in (model, tfbert.FineTuner(model, gradient_accumulation_steps=2)):
        metrics = {"metrics": [["accuracy"], [count(2, name="two")]], "weighted_metrics": [count(3, name="three")]}
        trained.compile("sgd", [loss, loss], [1.0, 0.1], run_eagerly=True, **metrics)
        found = trained.evaluate(TEXTS, labels, verbose=0, return_dict=True)
        assert found["loss"] == pytest.approx(one + 0.1 * other, rel=1e-5)
        trained.compile("sgd", loss_weights=[1.0, 0.1], run_eagerly=True)  # Of the model's own losses.
        assert trained.evaluate(TEXTS, labels, verbose=0)[0] == pytest.approx(found["loss"], rel=1e-6)
        measured = {"start_logits_accuracy", "end_logits_two", "start_logits_three", "end_logits_three"}
        assert found.keys() == {"loss", "start_logits_loss", "end_logits_loss"} | measured


@pytest.mark.parametrize("kind, labels", [("SequenceClassification", CLASSES), ("TokenClassification", TAGS)])
def test_labels_and_weights_of_one_output_may_have_its_name(kind, labels):
    model, weights = make(f"TFBertFor{kind}", num_hidden_layers=1), CLASSES + 1.0
    for trained in (model, tfbert.FineTuner(model, gradient_accumulation_steps=2)):
        trained.compile("sgd", run_eagerly=True)
        score = lambda y, weight: trained.evaluate(TEXTS, y, sample_weight=weight, verbose=0)  # noqa: B023, E731
        expected = score(labels, weights)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        for weight in ([2], [keras.Variable(2.0)], {"logits": 2}) if kind == "SequenceClassification" else ():
            trained.compile("sgd", [loss], loss_weights=weight, run_eagerly=True)
            assert score(labels, weights) == pytest.approx(2 * expected, rel=1e-6)
        trained.compile("sgd", run_eagerly=True)
        assert score({"labels": labels}, {"labels": weights}) == score([labels], weights) == expected
        assert trained.evaluate(TEXTS | {"labels": labels}, sample_weight=weights, verbose=0) == expected


PROBLEMS = {
    "regression": ({"num_labels": 1}, CLASSES / 2, lambda y, z: (y - z[:, 0]) ** 2),
    "multi_label_classification": (
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        np.eye(3, dtype=np.int32)[CLASSES],
        lambda y, z: (np.log1p(np.exp(z)) - y * z).mean(1),
    ),
}


@pytest.mark.parametrize("values, labels, expected", PROBLEMS.values(), ids=PROBLEMS)
def test_the_own_loss_follows_the_problem(values, labels, expected):
    model = make(num_hidden_layers=1, **values)
    output = model(TEXTS | {"labels": labels})
    np.testing.assert_allclose(output.loss, expected(labels, output.logits.numpy()), atol=1e-6)
    np.testing.assert_allclose(model.hf_compute_loss(labels, output.logits), output.loss)
    model.compile(tfbert.AdamW(1e-3), run_eagerly=True)
    assert model.evaluate(TEXTS, labels, verbose=0) == pytest.approx(output.loss.numpy().mean(), abs=1e-6)


def test_keras_own_optimizers_add_up_repeated_words():
    """As tf_keras does; Keras 3 squares each occurrence by itself where it gets a list of rows."""
    tf_keras = pytest.importorskip("tf_keras")
    model = make(num_hidden_layers=1)
    model.compile(keras.optimizers.Adam(1e-2, epsilon=1e-3), run_eagerly=True)
    model.fit(TEXTS, CLASSES, batch_size=len(CLASSES), verbose=0)
    other = make(num_hidden_layers=1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(other(TEXTS | {"labels": CLASSES}).loss)
    table = tf.Variable(other.bert.embeddings.weight.numpy())
    grad = tape.gradient(loss, other.bert.embeddings.weight.value)
    assert not isinstance(grad, tf.IndexedSlices)
    tf_keras.optimizers.Adam(1e-2, epsilon=1e-3, jit_compile=False).apply_gradients([(grad, table)])
    assert worst(model.bert.embeddings.weight, table) < 1e-6


@pytest.mark.parametrize("policy", ["mixed_bfloat16", slow("mixed_float16"), slow("bfloat16")])
def test_layer_norm_is_float32_in_every_precision(policy):
    expected = make(num_hidden_layers=1)(TEXTS).logits
    keras.config.set_dtype_policy(policy)
    model = make(num_hidden_layers=1)
    norms = [v for v in model.weights if "LayerNorm" in v.path]
    assert {v.dtype for v in norms} == {"float32"} and len(norms) == 6
    assert model(TEXTS).logits.dtype == policy.removeprefix("mixed_") and worst(model(TEXTS).logits, expected) < 0.1
    model.compile(keras.optimizers.SGD(1e-3), run_eagerly=True)
    assert np.isfinite(model.fit(TEXTS, CLASSES, verbose=0).history["loss"]).all()


def test_what_is_frozen_stays_and_lists_and_encodings_train():
    model = make(num_hidden_layers=1)
    model.layers[0].trainable = False
    model.compile(optimizer="adam", metrics=["accuracy"], run_eagerly=True)
    before = [v.numpy() for v in model.weights]
    model.fit({name: value.tolist() for name, value in TEXTS.items()}, CLASSES.tolist(), verbose=0)
    moved = [v.path for v, value in zip(model.weights, before, strict=True) if (v.numpy() != value).any()]
    assert [path.partition("/")[2] for path in moved] == ["classifier/kernel", "classifier/bias"]


def test_every_method_takes_lists_and_encodings():
    model, weight = make(num_hidden_layers=1), np.linspace(0.5, 2, len(CLASSES))
    model.compile("sgd", run_eagerly=True)
    texts = collections.UserDict({name: value.tolist() for name, value in TEXTS.items()})
    for method in (model.evaluate, model.test_on_batch):
        found = method(texts, CLASSES.tolist(), sample_weight=weight.tolist())
        assert found == pytest.approx(method(TEXTS, CLASSES, sample_weight=weight), rel=1e-6)
    np.testing.assert_array_equal(model.predict_on_batch(texts).logits, model.predict(TEXTS, verbose=0).logits)
    for method in (model.fit, model.train_on_batch):
        method(texts, CLASSES.tolist(), sample_weight=weight.tolist())
        with pytest.raises(ValueError, match="among the labels in x, y"):
            method(texts, (CLASSES + 1).tolist())


def test_classes_without_a_weight_have_1_in_data_sets_too():
    model, fit = make(num_hidden_layers=1), {"class_weight": {0: 2.0}, "verbose": 0}
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    batches = tf.data.Dataset.from_tensor_slices((TEXTS, CLASSES)).batch(4)
    (one,), (other,) = (model.fit(*xy, **fit).history["loss"] for xy in ((TEXTS, CLASSES, 4), (batches,)))
    assert one == pytest.approx(other, rel=1e-6)


def test_objects_of_tf_keras_are_refused():
    tf_keras, model = pytest.importorskip("tf_keras"), make(num_hidden_layers=1)
    message = "Received: optimizer=Adam of tf_keras.*TF_USE_LEGACY_KERAS=1"
    assert_refused(message, model.compile, tf_keras.optimizers.Adam(1e-3), kind=ValueError)
    assert_refused("Received: input_ids of tf_keras", model, tf_keras.Input([9], dtype="int32"), kind=ValueError)


def test_losses_without_labels_are_refused():
    model = make(num_hidden_layers=1)
    model.compile("adam", run_eagerly=True)
    assert_refused("inputs without labels. Pass y", model.fit, TEXTS, verbose=0, kind=ValueError)
    assert_refused("TFBertModel has no loss of its own", make("TFBertModel").compile, "adam", kind=ValueError)


@pytest.fixture(scope="module")
def refusing():
    """A model, and one in a FineTuner, of which each test compiles what it needs; neither is trained."""
    return make(num_hidden_layers=1), tfbert.FineTuner(make(num_hidden_layers=1))


OF_PROBABILITIES = ["sparse_categorical_crossentropy", keras.losses.sparse_categorical_crossentropy]
OF_PROBABILITIES += [keras.losses.CategoricalCrossentropy(), {"logits": keras.losses.BinaryCrossentropy()}]


@pytest.mark.parametrize("loss", OF_PROBABILITIES)
def test_losses_of_probabilities_are_refused_and_others_taken(loss, refusing):
    line = "are logits, not probabilities.*Received: .*loss='(.*crossentropy)'"
    for model in refusing:
        assert_refused(line, model.compile, "adam", loss, kind=ValueError)
        model.compile("adam", keras.losses.CategoricalCrossentropy(from_logits=True))
        model.compile("adam", "mse")


class Softmax(tfbert.TFBertForSequenceClassification):
    def call(self, inputs, training=None):
        return tf.nn.softmax(super().call(inputs, training=training).logits)


def test_a_class_whose_outputs_are_probabilities_may_have_such_a_loss():
    Softmax(make(num_hidden_layers=1).config).compile("adam", "sparse_categorical_crossentropy")


@pytest.mark.parametrize(
    "inputs, labels, message",
    [
        (["a text"] * 12, CLASSES, "takes ids of tokens. Received: texts"),
        ([[1, 2], [3]] * 6, CLASSES, "or of no numbers. Tokenize and pad texts"),
        (np.array(["a text"] * 12), CLASSES, "takes ids of tokens. Received: texts"),
        (IDS + SIZES["vocab_size"], CLASSES, f"Ids of tokens are 0 to {SIZES['vocab_size'] - 1}, the vocabulary"),
        (np.ones([12, 99], np.int32), CLASSES, "at most .* tokens, the positions of the model. Received: 99"),
        (IDS, CLASSES + 1, "from 0 to 2. Received: np.int32.3. among the labels"),
        (IDS, CLASSES.astype(str), "from 0 to 2. Received: np.str_.* among the labels"),
        (IDS, CLASSES[:7], "12 rows and 7 labels"),
        ({"input_ids": IDS, "labels": CLASSES + 1}, None, "from 0 to 2. Received: 3 among the labels"),
    ],
)
def test_rows_that_cannot_be_are_refused(inputs, labels, message, refusing):
    for model in refusing:
        for method in (model.fit, model.evaluate):
            # In a graph: labels among the inputs, for which the model looks there. Others: tests/step/test_refusals.py.
            model.compile("adam", run_eagerly=labels is not None or method == model.fit)
            assert_refused(message, method, inputs, labels, verbose=0, kind=ValueError)


def test_rows_and_labels_behind_forward_are_those_of_that_function():
    """As of a larger vocabulary, and more classes than the model has."""
    size = SIZES["vocab_size"]

    def forward(model, inputs, training):
        return tf.repeat(model(inputs - size, training=training).logits, 2, axis=1)

    model = tfbert.FineTuner(make(num_hidden_layers=1), forward=forward)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    model.fit(IDS + size, CLASSES + 3, verbose=0)


@pytest.mark.parametrize("replicas", [slow(1), 2])
def test_plain_fit_and_evaluate_run_under_a_strategy(replicas):
    """`tests/support` trains plain Keras eagerly elsewhere, on one device."""
    with strategy_of(replicas).scope():
        model = make(num_hidden_layers=1)
        model.compile(keras.optimizers.SGD(0.0), metrics=["accuracy"])
    history = model.fit(TEXTS, CLASSES, batch_size=12, validation_data=(TEXTS, CLASSES), verbose=0).history
    loss, accuracy = model.evaluate(TEXTS, CLASSES, batch_size=12, verbose=0)
    assert history["val_loss"] == pytest.approx([loss]) and history["loss"] == pytest.approx([loss], rel=1e-5)
    assert history["val_accuracy"] == pytest.approx([accuracy])


def test_the_wrapped_model_is_saved_by_its_own_name(tmp_path):
    tfbert.FineTuner(make(num_hidden_layers=1)).save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "config.json").is_file()
    (tmp_path / "file").touch()
    save = make(num_hidden_layers=1).save_pretrained
    assert_refused("saved as a directory. Received: .*file, a file", save, tmp_path / "file")


class OwnStep(tfbert.TFBertForSequenceClassification):
    def train_step(self, data):
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.hf_compute_loss(labels, self(inputs, training=True).logits))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables, strict=True))
        return {"loss": loss}


def test_an_own_train_step_shows_its_own_loss():
    """Keras would show its own metric of this name, which is 0."""
    plain = make(num_hidden_layers=1)
    own = OwnStep(plain.config)
    own.set_weights(plain.get_weights())
    found = []
    for model in (plain, own):
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        history = model.fit(TEXTS, CLASSES, batch_size=12, epochs=2, shuffle=False, verbose=0).history
        found.append((history["loss"], model.evaluate(TEXTS, CLASSES, verbose=0)))
    assert worst(found[0], found[1]) < 1e-6


def test_two_encoders_of_one_model_have_noise_of_their_own():
    ids = keras.Input([WIDTH], dtype="int32")
    encoders = [tfbert.TFBertModel(tfbert.BertConfig(**SIZES, hidden_dropout_prob=0.5)) for _ in range(2)]
    model = keras.Model(ids, [encoder(ids)[1] for encoder in encoders])
    encoders[1].set_weights(encoders[0].get_weights())
    noise = KeyedRandom(model, 1)
    for training in (False, True):
        with noise.keyed(noise_key(0, tf.constant(1)), Rows(tf.constant(0, tf.int64), 12)):
            first, second = model(tf.constant(IDS), training=training)
        assert np.array_equal(first, second) != training
