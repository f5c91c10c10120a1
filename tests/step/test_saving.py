"""A FineTuner saved in every way that Keras has: loaded, it predicts the same bits and trains on to the same bits."""

import functools

import numpy as np
import pytest

import tfbert
from tests.support.cases import SLOW, slow
from tests.support.either_keras import Either, apart, rows
from tests.support.models import random_batch, strategy_of
from tfbert.classifier import forward

TWO = Either("tf_keras")
WEIGHTS = ("model.weights.h5", "model.h5", "checkpoint")


def make(either, kind, seed=1):
    if kind == "small":
        layers = lambda: [either.layers.Dense(8, activation="tanh"), either.layers.Dense(3)]  # noqa: E731
        model = either.sequential(layers, seed=seed)
    else:
        model = either.bert(dropout=0.1, seed=seed, num_hidden_layers=1)
    options = {"gradient_accumulation_steps": 2, "max_grad_norm": 1.0, "seed": 3}
    tuner = tfbert.FineTuner(model, forward=forward if kind == "forward" else None, **options)
    tuner.compile(either.keras.optimizers.Adam(1e-2), either.loss(), metrics=["accuracy"])
    return tuner


def examples(kind):
    return rows(12) if kind == "small" else random_batch(12)[:2]


def fit(model, kind, **options):
    model.fit(*examples(kind), batch_size=6, shuffle=False, verbose=0, **options)


def predictions(model, kind):
    return model.predict(examples(kind)[0], verbose=0)


def assert_same(model, other, kind):
    np.testing.assert_array_equal(predictions(model, kind), predictions(other, kind))


def names_of_weights(either):
    return WEIGHTS[:1] if either.is_keras_3 else WEIGHTS


_saved = {}


@pytest.fixture
def saved(either, tmp_path_factory):
    """Of a kind: a model whose callbacks saved it whole and its weights in every way, its predictions, and where."""

    def of(kind):
        key = either.keras.__name__, kind
        if key not in _saved:
            directory, model = tmp_path_factory.mktemp("saved"), make(either, kind)
            names = ("model.keras", *names_of_weights(either))
            checkpoint = either.keras.callbacks.ModelCheckpoint
            callbacks = [checkpoint(str(directory / name), save_weights_only=name in WEIGHTS) for name in names]
            fit(model, kind, callbacks=callbacks)
            _saved[key] = model, predictions(model, kind), directory
        return _saved[key]

    return of


OF_KINDS = pytest.mark.parametrize("kind", ["small", slow("bert"), slow("forward")])


@OF_KINDS
def test_a_keras_file_is_the_whole_of_it(either, kind, saved):
    first, expected, directory = saved(kind)
    second = either.keras.models.load_model(str(directory / "model.keras"))
    np.testing.assert_array_equal(predictions(second, kind), expected)
    assert (second.gradient_accumulation_steps, second.max_grad_norm, second.seed) == (2, 1.0, 3)
    for model in (first, second):  # The optimizer's state, and which step's dropout noise is the next.
        fit(model, kind)
    assert second.optimizer.iterations.numpy() == 4
    assert_same(first, second, kind)


@OF_KINDS
def test_weights_alone(either, kind, saved):
    _, expected, directory = saved(kind)
    for name in names_of_weights(either):
        second = make(either, kind, seed=2)
        predictions(second, kind)
        second.load_weights(str(directory / name))
        np.testing.assert_array_equal(predictions(second, kind), expected)


@SLOW
@OF_KINDS
def test_a_directory_of_tf_keras_predicts(kind, tmp_path):
    first = make(TWO, kind)
    fit(first, kind, callbacks=[TWO.keras.callbacks.ModelCheckpoint(str(tmp_path / "model"))])
    assert_same(first, TWO.keras.models.load_model(str(tmp_path / "model")), kind)


@SLOW
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_model_of_two_replicas_is_loaded_by_one_and_by_two(either, tmp_path, replicas):
    path = str(tmp_path / "model.keras")
    with strategy_of(2).scope():
        first = make(either, "small")
    fit(first, "small")
    first.save(path)
    with strategy_of(replicas).scope():
        second = either.keras.models.load_model(path)
    for number in range(replicas):  # As it was saved, and where both train on in the same way.
        if number:
            fit(first, "small")
            fit(second, "small")
        mine, theirs = ([*m.model.get_weights(), *(v.numpy() for v in m.optimizer.variables)] for m in (second, first))
        assert apart(mine, theirs) == 0


@SLOW
def test_a_loaded_hugging_face_model_saves_as_its_own(tmp_path):
    from transformers import TFBertForSequenceClassification

    first = make(TWO, "bert")
    first.save(str(tmp_path / "model.keras"))
    TWO.keras.models.load_model(str(tmp_path / "model.keras")).model.save_pretrained(tmp_path / "model")
    loaded = TFBertForSequenceClassification.from_pretrained(tmp_path / "model")
    np.testing.assert_allclose(loaded(examples("bert")[0]).logits.numpy(), predictions(first, "bert"), atol=1e-6)


def test_a_forward_without_a_name_is_refused_and_nothing_is_written(tmp_path):
    for nameless in (functools.partial(forward, recompute=True), lambda model, inputs, training: model(inputs)):
        model = tfbert.FineTuner(TWO.bert(num_hidden_layers=1), forward=nameless)
        with pytest.raises(NotImplementedError, match=r"A function is saved by its name.*model\.save_weights"):
            model.save(str(tmp_path / "model.keras"))
    assert not list(tmp_path.iterdir())
