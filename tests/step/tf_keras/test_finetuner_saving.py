"""A FineTuner saved in every way that Keras has: loaded, it predicts the same bits and trains on to the same bits."""

import functools

import numpy as np
import pytest
import tf_keras as keras

from tests.support.like_tf_keras import classifier, data, logits_loss
from tests.support.models import random_batch, strategy_of
from tests.support.tf_keras_models import tiny_bert
from tfbert.model.forward import forward
from tfbert.step.tf_keras.finetuner import FineTuner

KINDS = ("keras", "hugging face", "forward")
WEIGHTS = ("model.weights.h5", "model.h5", "checkpoint")


def make(kind, seed=1):
    model = classifier(seed=seed) if kind == "keras" else tiny_bert(dropout=0.1, seed=seed, num_hidden_layers=1)
    tuner = FineTuner(
        model, gradient_accumulation_steps=2, max_grad_norm=1.0, seed=3, forward=forward if kind == "forward" else None
    )
    tuner.compile(keras.optimizers.Adam(1e-2), logits_loss(), metrics=["accuracy"])
    return tuner


def examples(kind):
    return data(12) if kind == "keras" else random_batch(12)[:2]


def fit(model, kind, **options):
    x, y = examples(kind)
    model.fit(x, y, batch_size=6, shuffle=False, verbose=0, **options)


def predictions(model, kind):
    return model.predict(examples(kind)[0], verbose=0)


def assert_same(model, other, kind):
    np.testing.assert_array_equal(predictions(model, kind), predictions(other, kind))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Of a kind: a model whose callbacks saved it whole and its weights in every way, its predictions, and where."""

    @functools.cache
    def of(kind):
        directory, model = tmp_path_factory.mktemp("saved"), make(kind)
        paths = [(str(directory / name), name in WEIGHTS) for name in ("model.keras", *WEIGHTS)]
        fit(model, kind, callbacks=[keras.callbacks.ModelCheckpoint(p, save_weights_only=only) for p, only in paths])
        return model, predictions(model, kind), directory

    return of


def slow_but(*quick):
    """The kinds, those that are not quick marked."""
    return [kind if kind in quick else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("kind", slow_but("keras"))
def test_a_keras_file_is_the_whole_of_it(kind, saved):
    first, expected, directory = saved(kind)
    second = keras.models.load_model(str(directory / "model.keras"))
    np.testing.assert_array_equal(predictions(second, kind), expected)
    assert (second.gradient_accumulation_steps, second.max_grad_norm, second.seed) == (2, 1.0, 3)
    for model in (first, second):  # The optimizer's state, and which step's dropout noise is the next.
        fit(model, kind)
    assert second.optimizer.iterations.numpy() == 4
    assert_same(first, second, kind)


@pytest.mark.parametrize("kind", slow_but("keras"))
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_alone(kind, name, saved):
    _, expected, directory = saved(kind)
    second = make(kind, seed=2)
    predictions(second, kind)
    second.load_weights(str(directory / name))
    np.testing.assert_array_equal(predictions(second, kind), expected)


@pytest.mark.parametrize("kind", slow_but())
def test_a_directory_predicts(kind, tmp_path):
    first = make(kind)
    fit(first, kind, callbacks=[keras.callbacks.ModelCheckpoint(str(tmp_path / "model"))])
    assert_same(first, keras.models.load_model(str(tmp_path / "model")), kind)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_model_of_two_replicas_is_loaded_by_one_and_by_two(tmp_path, replicas):
    path = str(tmp_path / "model.keras")
    with strategy_of(2).scope():
        first = make("keras")
    fit(first, "keras")
    first.save(path)
    with strategy_of(replicas).scope():
        second = keras.models.load_model(path)
    for number in range(replicas):  # As it was saved, and where both train on in the same way.
        if number:
            fit(first, "keras")
            fit(second, "keras")
        mine, theirs = ([*m.model.get_weights(), *(v.numpy() for v in m.optimizer.variables)] for m in (second, first))
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_loaded_hugging_face_model_saves_as_its_own(tmp_path):
    from transformers import TFBertForSequenceClassification

    first = make("hugging face")
    first.save(str(tmp_path / "model.keras"))
    keras.models.load_model(str(tmp_path / "model.keras")).model.save_pretrained(tmp_path / "model")
    loaded = TFBertForSequenceClassification.from_pretrained(tmp_path / "model")
    inputs, _ = examples("hugging face")
    np.testing.assert_allclose(loaded(inputs).logits.numpy(), predictions(first, "hugging face"), atol=1e-6)


def test_a_forward_without_a_name_is_refused_and_nothing_is_written(tmp_path):
    for nameless in (functools.partial(forward, recompute=True), lambda model, inputs, training: model(inputs)):
        model = FineTuner(tiny_bert(), forward=nameless)
        with pytest.raises(NotImplementedError, match=r"A function is saved by its name.*model\.save_weights"):
            model.save(str(tmp_path / "model.keras"))
    assert not list(tmp_path.iterdir())
