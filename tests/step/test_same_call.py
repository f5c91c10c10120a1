"""What workers compare that call `fit` and the like: all that decides an update, and nothing that another machine or
process has otherwise. Both Kerases."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.support.either_keras import CLASSES, FEATURES, rows
from tests.support.processes import processes_of
from tfbert.errors import UsageError
from tfbert.launch import worker_environments
from tfbert.step import tuner as tuners

X, Y = rows(16)
DATA = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)


def tuner_of(either, *, units=8, activation="tanh", optimizer=None, compiled=None, layers=(), **options):
    kinds = either.layers
    first = [kinds.Input([FEATURES]), kinds.Dense(units, activation=activation)]  # Weights are of no seed.
    made = [*first, *layers, kinds.Dropout(0.1), kinds.Dense(CLASSES)]
    compiled = {"optimizer": optimizer or either.keras.optimizers.AdamW(0.1)} | (compiled or {})
    return either.build(lambda: either.keras.Sequential(made), replicas=None, compiled=compiled, **options)


@pytest.fixture
def facts_of(either, monkeypatch):
    """The facts of a worker that calls `fit`, for a tuner made so, and these arguments."""

    def facts_of(given=None, **options):
        found = []
        monkeypatch.setattr(tuners, "check_same", lambda facts, *_, **__: found.append(facts()))
        tuner_of(either, **options)._check_same_call("fit", {"x": X, "y": Y} | (given or {}))
        return found[0]

    return facts_of


def lambda_in(file, keras):
    return keras.layers.Lambda(eval(compile("lambda x: x * 2", file, "eval")))


def falling(either):
    return either.keras.optimizers.schedules.CosineDecay(0.1, 9)


DIFFERENT = {
    "a seed": lambda either: {"seed": 1},
    "XLA": lambda either: {"jit_compile": True},
    "a shape": lambda either: {"units": 9},
    "an activation": lambda either: {"activation": "relu"},
    "a layer": lambda either: {"layers": [either.layers.ReLU()]},
    "an optimizer": lambda either: {"optimizer": either.sgd(0.1)},
    "a schedule": lambda either: {"optimizer": either.keras.optimizers.AdamW(falling(either))},
    "a loss": lambda either: {"compiled": {"loss": "mse"}},
    "an option of the loss": lambda either: {"compiled": {"loss": either.loss(ignore_class=2)}},
    "a metric": lambda either: {"compiled": {"metrics": ["accuracy"]}},
    "epochs": lambda either: {"given": {"epochs": 2}},
    "a batch size": lambda either: {"given": {"batch_size": 4}},
    "rows": lambda either: {"given": {"x": X[:-1]}},
    "labels": lambda either: {"given": {"y": Y[::-1]}},
    "validation": lambda either: {"given": {"validation_data": (X, Y)}},
    "class weights": lambda either: {"given": {"class_weight": {0: 1.0, 1: 2.0}}},
    "an argument that is new": lambda either: {"given": {"of_another_version": 1}},
    "texts": lambda either: {"given": {"x": ["a text"] * 99}},
    "batches": lambda either: {"given": {"x": DATA}},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_decides_an_update_is_compared(what, facts_of, either):
    assert facts_of() != facts_of(**DIFFERENT[what](either))


def test_what_a_process_has_otherwise_is_not_compared(facts_of, either, tmp_path):
    keras = either.keras
    first = facts_of(layers=[lambda_in("/here/a.py", keras), keras.layers.Dropout(0.1, seed=1)])
    keras.layers.Dense(1), keras.layers.Dense(1)  # Layers are numbered.
    other = {"callbacks": [keras.callbacks.TerminateOnNaN()], "verbose": 2}
    second = facts_of(other, layers=[lambda_in("/there/b.py", keras), keras.layers.Dropout(0.1, seed=2)])
    assert first == second
    assert facts_of({"x": DATA.take(1)}) != facts_of({"x": DATA}) == facts_of({"x": DATA})
    (tmp_path / "vocab.txt").touch()
    assert tuners.described(str(tmp_path / "vocab.txt")) == tuners.described(str(tmp_path))


class WithoutConfiguration:
    def get_config(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.float32(0.5), 0.5),
        ({1: "dense_12", "seed": 3}, {"1": "dense"}),
        pytest.param(f"<function at {hex(id(X))}>", "<function>", id="address"),
        (WithoutConfiguration(), {"class": "WithoutConfiguration", "config": None}),
        (rows, "rows"),
        (object(), "object"),
        ((1, [None]), [1, [None]]),
    ],
)
def test_a_description_is_the_same_in_every_process(value, expected):
    assert tuners.described(value) == expected


def test_data_sets_of_each_workers_own_may_differ():
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    own = DATA.with_options(options)
    assert tuners.described(own) == tuners.described(own.take(1)) != tuners.described(DATA)


def test_large_arrays_are_read_in_part(monkeypatch):
    monkeypatch.setattr(tuners, "_MOST_BYTES", X.nbytes // 2)
    other = X.copy()
    other[0] += 1
    assert tuners.described(X) == tuners.described(X.copy()) != tuners.described(other)


def test_evaluation_within_fit_is_not_compared_again(either, monkeypatch):
    compared = []
    monkeypatch.setattr(tuners.Tuner, "_check_same_call", lambda tuner, name, given: compared.append(name))
    history = tuner_of(either).fit(X, Y, validation_data=(X, Y), verbose=0).history
    assert compared == ["fit"] and np.isfinite(history["val_loss"]).all()


WORKER = """\
import sys
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()  # Before anything is computed.
from tests.step.test_same_call import X, Y, tuner_of
from tests.support.either_keras import Either
either = Either(sys.argv[1])
own = strategy.cluster_resolver.task_id
def train(given=None, **options):
    with strategy.scope():
        either.keras.utils.set_random_seed(1)
        tuner = tuner_of(either, **options)
        tuner.model.set_weights([(1 + own * weights) * each for each in tuner.model.get_weights()])
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    try:
        history = tuner.fit(**{"x": data, "verbose": 2 * own} | (given or {})).history
        print("trained", round(history["loss"][-1], 5), flush=True)
    except ValueError as error:
        print(type(error).__name__, error, flush=True)
    return tuner
weights = 0.0
train(seed=own)
train(activation=("tanh", "relu")[own])
train({"epochs": 1 + own})
train(max_grad_norm=0.5)
weights = 0.1
train(max_grad_norm=0.5)
weights = 0.0
tuner = train()
try:
    tuner.predict(X[: 16 - own], verbose=0)
except ValueError as error:
    print(type(error).__name__, error, flush=True)
"""
EXPECTED = (
    "seed=0 on worker 0 and 1 on worker 1",
    r"'activation': 'tanh', .* on worker 0 and .*'activation': 'relu', .* on worker 1",
    "epochs=1 on worker 0 and 2 on worker 1",
    "trained",
    "Workers must begin with the same weights after the same number of steps. Received: sum of the weights=",
    "trained",
    r"x='float32\[16, 5\], ",
)


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_two_workers_that_differ_are_refused_and_those_alike_train(name):
    with processes_of([WORKER, name], worker_environments(2)) as processes:
        outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    first, second = (
        [line for line in out.splitlines() if line.startswith(("trained", UsageError.__name__))] for out, _ in outputs
    )
    assert first == second and len(first) == len(EXPECTED), outputs
    for line, expected in zip(first, EXPECTED, strict=True):
        assert re.search(expected, line)
