"""KerasHub's tasks, which take texts, and rows that are given as arrays."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.either_keras import SLOW, Either, apart, weights
from tests.support.keras_hub import with_preprocessor
from tfbert.step.keras3.data import for_fit

THREE = Either("keras")
TEXTS = np.array(["the film was good", "the film was bad", "a fox", "good fox a film"] * 6)
LABELS = np.array([1, 0, 1, 1] * 6)


@SLOW
@pytest.mark.parametrize("lora", [False, True])
def test_a_kerashub_task_takes_texts(lora):
    fit = {"validation_data": (TEXTS[:5], LABELS[:5]), "compiled": {"metrics": ["accuracy"]}}
    make = lambda: with_preprocessor(lora)  # noqa: E731
    found = THREE.ours(make, (TEXTS, LABELS), parts=2, **fit)
    expected = THREE.plain(make, (TEXTS, LABELS), **fit)
    assert apart(found, expected) < 1e-5
    for name, values in expected.history.items():
        np.testing.assert_allclose(found.history[name], values, atol=1e-5, err_msg=name)
    plain, model = expected.model, found.model
    for texts in (TEXTS[:3], TEXTS[:3].tolist(), tf.data.Dataset.from_tensor_slices(TEXTS[:3]).batch(2)):
        found = model.predict(texts, verbose=0)
        np.testing.assert_allclose(found, plain.predict(texts, verbose=0), atol=1e-5)
    assert model.evaluate(TEXTS, LABELS, verbose=0) == pytest.approx(plain.evaluate(TEXTS, LABELS, verbose=0), abs=1e-5)
    one, other = model.train_on_batch(TEXTS[:5], LABELS[:5]), plain.train_on_batch(TEXTS[:5], LABELS[:5])
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_rows_given_as_arrays_are_in_the_same_order_on_all_workers():
    x, y = np.arange(20, dtype=np.float32)[:, None], np.arange(20)
    orders = []
    for _ in range(2):
        given = for_fit({"x": x, "y": y, "batch_size": 8}, THREE.classifier(), seed=3, num_workers=2)
        orders.append([np.concatenate([labels.numpy() for _, labels in given["x"]]).tolist() for _ in range(2)])
        assert given["x"].options().autotune.enabled is False  # Or the end of an epoch may wait: private.py.
    assert orders[0] == orders[1] and orders[0][0] != orders[0][1]
    assert all(sorted(order) == list(range(20)) for order in orders[0])
    assert given.keys() == {"x", "shuffle"} and not given["shuffle"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"y": LABELS}, "Received: x=a tf.data.Dataset and y. Leave them out"),
        ({"validation_split": 0.5}, "validation_split takes rows of arrays"),
        ({"x": iter([])}, "maps a KerasHub task's preprocessor over arrays"),
    ],
)
def test_texts_given_otherwise(arguments, message):
    model = THREE.build(with_preprocessor)
    given = {"x": tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)} | arguments
    with pytest.raises(ValueError, match=message):
        model.fit(**given, verbose=0)


@SLOW
def test_a_saved_task_is_one_again(tmp_path):
    model = THREE.ours(with_preprocessor, (TEXTS, LABELS), replicas=1, validation_split=0.25).model
    model.save(tmp_path / "task.keras")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*compile")
        loaded = keras.models.load_model(tmp_path / "task.keras")
    np.testing.assert_allclose(loaded.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0), atol=1e-6)
    loaded.fit(TEXTS, LABELS, verbose=0)
    model.model.save(tmp_path / "inner.keras")
    inner = keras.models.load_model(tmp_path / "inner.keras")
    assert apart(weights(inner), weights(model)) == 0
