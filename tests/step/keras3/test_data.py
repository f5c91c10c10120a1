"""Rows that Keras 3 would take for others, or answer in many lines; KerasHub's tasks, which take texts; rows that are
given as arrays."""

import types
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import SLOW, slow
from tests.support.either_keras import Either, apart, rows, weights
from tests.support.keras_hub import with_preprocessor
from tests.support.refusals import refused
from tfbert.step.keras3.data import as_read, check_rows
from tfbert.step.keras3.finetuner import _shared

LABELS = [0, 1, 2, 1]
THREE = Either("keras")
TEXTS = ["a good film", "the fox", "bad", "a fox"]


@pytest.fixture(scope="module")
def of_texts():
    return THREE.build(with_preprocessor)


@pytest.fixture(scope="module")
def of_numbers():
    return THREE.build()


def table():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"text": TEXTS, "label": LABELS})


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", None, "b", "c"], LABELS, "a text in each row .* Received: list, Can't convert"),
        (np.array(["a", float("nan"), "b", "c"], object), LABELS, r"Received: ndarray, Failed to convert .*float"),
        ((TEXTS, ["a", "b", "c", None]), LABELS, r"Received: tuple, .*None"),
        (lambda: table()[["text"]], LABELS, r"Received: a table with the columns text in x, y"),
        ("a bright film", None, r"takes columns, .*Received: str, "),
        (TEXTS, LABELS[:3], "Received: 4 rows and 3 labels in x, y"),
        (TEXTS, [0, 1, 2, 3], r"classes, from 0 to 2. Received: .*3.* among the labels"),
        (TEXTS, ["x", "y", "z", "x"], r"Received: .*'x'.* among the labels"),
        (np.arange(4), LABELS, r"takes texts. Received: numbers alone in x, y. Pass texts"),
        ([[1, 2], [3, 4]], None, r"Received: numbers alone in x, y"),
        ({"token_ids": np.ones([4, 8], int)}, LABELS, r"Received: numbers alone in x, y"),
        (tf.data.Dataset.from_tensors(([1, 2], [0, 1])), None, r"Received: numbers alone in x, y"),
    ],
)
def test_texts(of_texts, texts, labels, message):
    texts = texts() if callable(texts) else texts
    method, given = (of_texts.predict, (texts,)) if labels is None else (of_texts.fit, (texts, labels))
    with refused(message, ValueError):
        method(*given, verbose=0)


@pytest.mark.parametrize("wrong", [0.5, -1, 3, float("nan")])
def test_classes(of_numbers, wrong):
    x, y = rows(40)
    y = y.astype(np.float64)
    y[3] = wrong
    for given in (
        {"y": y},
        {"y": y.tolist()},
        {"y": y.astype(object)},
        {"y": [*y[:-1].tolist(), None]},
        {"y": np.zeros(len(x)), "validation_data": (x, y)},
    ):
        with pytest.raises(ValueError, match="takes the numbers of classes, from 0 to 2. Received: ") as caught:
            of_numbers.fit(x, verbose=0, **given)
        assert ("validation_data" in str(caught.value)) == ("validation_data" in given)


@pytest.mark.parametrize(
    ("weight", "given", "message"),
    [
        ({"pos": 2.0}, {}, r"from 0 to 2, their weights. Received: class_weight={'pos': 2.0}, with 'pos'"),
        ({0: 1.0, 3: 2.0}, {}, "from 0 to 2, their weights. .* with 3"),
        ([1.0, 2.0, 3.0], {}, r"Received: class_weight=\[1.0, 2.0, 3.0\]"),
        ({0: 2.0}, {"y": ["a"] * 40}, "takes the numbers of classes, from 0 to 2. Received: "),
        ({0: 2.0}, {"y": np.ones([40, 2], int)}, r"labels y, each of which is one class. Received: labels \[40, 2\]"),
        ({0: 2.0}, {"x": {"input_ids": np.ones([40, 2]), "labels": np.ones(40)}, "y": None}, "Received: no y"),
    ],
)
def test_weights_of_classes(of_numbers, weight, given, message):
    given = dict(zip(("x", "y"), rows(40), strict=True)) | given
    for method in (of_numbers.fit, of_numbers.train_on_batch):
        with pytest.raises(ValueError, match=message):
            method(**given, class_weight=weight)


class Batches(keras.utils.PyDataset):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.batch


@pytest.mark.parametrize("make", [Batches, tf.data.Dataset.from_tensors])
def test_weights_of_classes_in_data_sets(of_numbers, make):
    x, y = rows(40)
    several = np.stack([y, y], 1)  # Keras would weigh each row by the place of its largest label.
    for data, message in [((x, several), r"Received: labels \[40, 2\] of several"), ({"x": x, "labels": y}, "no y")]:
        with pytest.raises(ValueError, match=message):
            of_numbers.fit(make(data), class_weight={0: 2.0})
    binary, categorical = keras.losses.BinaryCrossentropy(), keras.losses.CategoricalCrossentropy()
    for loss in (binary, "bce"):
        with pytest.raises(ValueError, match="of several"):
            check_rows({"x": make((x, several % 2)), "class_weight": {0: 2.0}}, None, loss)
    check_rows({"x": make((x, np.eye(3)[y])), "class_weight": {0: 2.0}}, None, categorical)


def test_classes_without_a_weight_have_1_in_data_sets_too(three):
    x, y = rows(40)
    model = three.build(optimizer=lambda: three.sgd(0.0))  # So that each fit has the same losses.
    fit, batches = {"class_weight": {0: 2.0}, "verbose": 0}, tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
    (one,), (other,) = (model.fit(*xy, **fit).history["loss"] for xy in ((x, y, 10), (batches,)))
    assert one == pytest.approx(other, rel=1e-6) and abs(one - model.evaluate(x, y, verbose=0)) > 0.1


def test_what_is_right_is_taken(of_texts, of_numbers):
    x, y = rows(40)
    for labels in (y, y.astype(np.float32), y.astype(object), y.tolist(), keras.ops.convert_to_tensor(y)):
        check_rows({"x": x, "y": labels}, of_numbers.model, of_numbers.loss)
    lists = of_numbers.evaluate(x.tolist(), list(y), sample_weight=[1.0] * 40, verbose=0)
    assert lists == pytest.approx(of_numbers.evaluate(x, y, verbose=0))
    for texts in (table()["text"], (TEXTS, TEXTS)):
        check_rows({"x": texts, "y": table()["label"]}, of_texts.model, of_texts.loss)
    batches = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2)  # `batch_size` is of the rows alone.
    given = {"x": TEXTS, "y": np.array(LABELS), "batch_size": 2, "validation_data": batches}
    assert len(as_read("fit", given, of_texts.model, seed=0, num_workers=1)["validation_data"]) == 2
    ignoring = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    check_rows({"x": x, "y": y - 1}, of_numbers.model, ignoring)
    check_rows({"x": x, "y": y + 0.5}, of_numbers.model, "mse")
    for labels, weight in ((y, {np.float32(0): 1.0, 2.0: 2.0}), (np.full([40, 3], 0.3333, np.float32), {0: 1.0})):
        check_rows({"x": x, "y": labels, "class_weight": weight}, of_numbers.model, None)
    one_hot = pytest.importorskip("pandas").DataFrame(np.eye(3)[y])
    check_rows({"x": x, "y": one_hot, "class_weight": {0: 1.0}}, of_numbers.model, keras.losses.BinaryCrossentropy())
    for outputs in (1, 2):  # Two, of three ordered classes.
        check_rows({"x": x, "y": y, "class_weight": {2: 2.0}}, THREE.classifier(outputs=outputs), "mse")
    check_rows({"x": x, "y": 2 * (y > 0) - 1, "class_weight": {-1: 1.0, 1: 2.0}}, THREE.classifier(outputs=1), "hinge")
    others = THREE.subclassed()
    others.num_classes = 2  # Beside a class that is none of the user's.
    check_rows({"x": x, "y": y}, others, "sparse_categorical_crossentropy")


@SLOW
def test_what_is_right_is_trained_on(of_texts):
    of_texts.fit(table()["text"], table()["label"], verbose=0)
    assert of_texts.predict((TEXTS, TEXTS), verbose=0).shape == (4, 3)
    x, y = rows(40)
    THREE.ours(lambda: THREE.classifier(outputs=1), (x, y + 0.5), replicas=1, compiled={"loss": "mse"})


@pytest.mark.parametrize(
    "kind", [*(slow(kind) for kind in (list, tuple)), lambda arrays: dict(zip(("one", "two"), arrays, strict=True))]
)
def test_several_inputs_are_no_rows(kind):
    def make():
        one, two = keras.Input([3], name="one"), keras.Input([2], name="two")
        both = keras.layers.Concatenate()([one, two])
        outputs = [keras.layers.Dense(2, name="a")(both), keras.layers.Dense(2, name="b")(both)]
        return keras.Model({"one": one, "two": two} if kind not in (list, tuple) else [one, two], outputs)

    x, fit = kind([np.zeros([8, 3]), np.zeros([8, 2])]), {"compiled": {"loss": [THREE.loss(), THREE.loss()]}}
    THREE.ours(make, (x, [np.zeros(8, int), np.ones(8, int)]), replicas=1, **fit)
    with pytest.raises(ValueError, match="cardinality"):
        THREE.ours(make, (x, [np.zeros(7, int), np.ones(7, int)]), replicas=1, **fit)


# Texts.

FILMS = np.array(["the film was good", "the film was bad", "a fox", "good fox a film"] * 6)
KINDS = np.array([1, 0, 1, 1] * 6)


@SLOW
@pytest.mark.parametrize("lora", [False, True])
def test_a_kerashub_task_takes_texts(lora):
    fit = {"validation_data": (FILMS[:5], KINDS[:5]), "compiled": {"metrics": ["accuracy"]}}
    make = lambda: with_preprocessor(lora)  # noqa: E731
    found = THREE.ours(make, (FILMS, KINDS), parts=2, **fit)
    expected = THREE.plain(make, (FILMS, KINDS), **fit)
    assert apart(found, expected) < 1e-5
    for name, values in expected.history.items():
        np.testing.assert_allclose(found.history[name], values, atol=1e-5, err_msg=name)
    plain, model = expected.model, found.model
    for texts in (FILMS[:3], FILMS[:3].tolist(), tf.data.Dataset.from_tensor_slices(FILMS[:3]).batch(2)):
        found = model.predict(texts, verbose=0)
        np.testing.assert_allclose(found, plain.predict(texts, verbose=0), atol=1e-5)
    assert model.evaluate(FILMS, KINDS, verbose=0) == pytest.approx(plain.evaluate(FILMS, KINDS, verbose=0), abs=1e-5)
    one, other = (each.train_on_batch(FILMS[:5], KINDS[:5]) for each in (model, plain))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_rows_given_as_arrays_are_in_the_same_order_on_all_workers():
    x, y = np.arange(20, dtype=np.float32)[:, None], np.arange(20)
    orders = []
    for _ in range(2):
        given = as_read("fit", {"x": x, "y": y, "batch_size": 8}, THREE.classifier(), seed=3, num_workers=2)
        orders.append([np.concatenate([labels.numpy() for _, labels in given["x"]]).tolist() for _ in range(2)])
        assert given["x"].options().autotune.enabled is False  # Or the end of an epoch may wait: private.py.
    assert orders[0] == orders[1] and orders[0][0] != orders[0][1]
    assert all(sorted(order) == list(range(20)) for order in orders[0])
    assert given.keys() == {"x", "shuffle"} and not given["shuffle"]


def test_rows_to_predict_are_shared_out_as_keras_joins_results():
    """Of two workers with two devices each: their first ones', then their second ones'."""
    of_replica = lambda number: types.SimpleNamespace(replica_id_in_sync_group=number)  # noqa: E731
    strategy = types.SimpleNamespace(num_replicas_in_sync=4, extended=types.SimpleNamespace(worker_devices="01"))
    strategy.experimental_distribute_values_from_function = lambda share: [share(of_replica(i)) for i in range(4)]
    of_each = _shared(strategy, np.arange(11), for_results=True)
    assert tf.concat([*of_each[0::2], *of_each[1::2]], 0).numpy().tolist() == list(range(11))
    assert tf.concat(_shared(strategy, np.arange(11)), 0).numpy().tolist() == list(range(11))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"y": KINDS}, "Received: x=a tf.data.Dataset and y. Leave them out"),
        ({"validation_split": 0.5}, "validation_split takes rows of arrays"),
        ({"x": iter([])}, "preprocessor takes columns, .*Received: list_iterator"),
    ],
)
def test_texts_given_otherwise(arguments, message):
    model = THREE.build(with_preprocessor)
    given = {"x": tf.data.Dataset.from_tensor_slices((FILMS, KINDS)).batch(4)} | arguments
    with pytest.raises(ValueError, match=message):
        model.fit(**given, verbose=0)


@SLOW
def test_a_saved_task_is_one_again(tmp_path):
    model = THREE.ours(with_preprocessor, (FILMS, KINDS), replicas=1, validation_split=0.25).model
    model.save(tmp_path / "task.keras")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*compile")
        loaded = keras.models.load_model(tmp_path / "task.keras")
    np.testing.assert_allclose(loaded.predict(FILMS, verbose=0), model.predict(FILMS, verbose=0), atol=1e-6)
    loaded.fit(FILMS, KINDS, verbose=0)
    model.model.save(tmp_path / "inner.keras")
    inner = keras.models.load_model(tmp_path / "inner.keras")
    assert apart(weights(inner), weights(model)) == 0
