"""Situations that users of Keras report, on one device and on several replicas: what plain Keras and FineTuner do.

The table in docs/fit.md has them, but for a lost worker and a file in another process. Where plain Keras has been
mended since, that is asserted too.
"""

import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.cases import SLOW
from tests.support.either_keras import CLASSES, FEATURES, Either, apart, rows, weights
from tests.support.models import strategy_of
from tests.support.processes import processes_of
from tests.support.refusals import refused

SAME, OTHER = 1e-5, 1e-3
"""What rounding may change, and what it cannot."""


@SLOW  # By default test_refusals has FineTuner's half.
def test_objects_of_the_two_kerases_together(three):
    """keras#19262, #21666: transformers' models for TensorFlow are of tf_keras, while `tf.keras` is Keras 3."""
    from tests.support.tf_keras_models import tiny_bert  # Imports transformers, which no quick test here needs.

    two = Either("tf_keras")
    adam = three.keras.optimizers.Adam(1e-5)
    for model in (tiny_bert(), two.classifier()):
        with pytest.raises(ValueError, match="Could not interpret optimizer identifier"):
            model.compile(adam, "mse")
        with pytest.raises(ValueError, match="Received: optimizer=Adam of Keras 3. Write `import tf_keras`"):
            tfbert.FineTuner(model).compile(adam, "mse")
    model, adam = three.classifier(), two.keras.optimizers.Adam(1e-5)
    with pytest.raises(ValueError, match="Could not interpret optimizer identifier"):
        model.compile(adam, "mse")
    with pytest.raises(ValueError, match="Received: optimizer=Adam of tf_keras. Write `import keras`"):
        tfbert.FineTuner(model).compile(adam, "mse")


def test_a_lost_worker_ends_fit_in_one_line(either):
    """Plain Keras shows the message of the operation that noticed it, in four lines."""

    def lose(logs):
        message = "Collective ops is aborted by: unhealthy:\n/job:worker/replica:0/task:1\nRestart your program"
        raise tf.errors.UnavailableError(None, None, message)

    loses = lambda: [either.keras.callbacks.LambdaCallback(on_train_begin=lose)]  # noqa: E731
    with refused("lost contact with worker 1. See its output", tfbert.RunError):
        either.ours(replicas=1, callbacks=loses())
    with pytest.raises(tf.errors.UnavailableError, match="\n"):
        either.plain(callbacks=loses())


def accumulating(three, **options):
    return lambda: three.sgd(gradient_accumulation_steps=2, **options)


def parts_of_two_sizes(three):
    """keras#19990: equal parts are exact since; others still have the same share, whatever their size."""
    data, big = {"xy": rows(30)}, {"batch_size": 30}
    small = three.plain(batch_size=20, optimizer=accumulating(three), **data)
    return three.plain(**big, **data), small, three.ours(parts=4, replicas=1, **big, **data)


def an_epoch_that_ends_between_two_updates(three):
    """Plain Keras leaves the last rows to the next epoch, or to nobody."""
    data, big = {"xy": rows(50)}, {"batch_size": 20}
    small = three.plain(optimizer=accumulating(three), **data)
    return three.plain(**big, **data), small, three.ours(parts=2, replicas=1, **big, **data)


def a_schedule_of_the_learning_rate(three):
    """Plain Keras counts micro-batches, so that the rate falls as many times too fast."""
    rate = lambda: three.keras.optimizers.schedules.PolynomialDecay(0.5, 2)  # noqa: E731
    whole = {"batch_size": 20, "optimizer": lambda: three.keras.optimizers.SGD(rate())}
    small = lambda: three.keras.optimizers.SGD(rate(), gradient_accumulation_steps=2)  # noqa: E731
    return three.plain(**whole), three.plain(optimizer=small), three.ours(parts=2, replicas=1, **whole)


def one_micro_batch_that_is_not_finite(three):
    """With a loss scale, plain Keras leaves out that part, and trains on the others as if they were all."""
    fit = {"sample_weight": np.where(np.arange(40) == 12, np.inf, 1.0).astype(np.float32)}
    whole = {"batch_size": 20, "optimizer": lambda: three.scaled(three.sgd())}
    parts = three.plain(optimizer=lambda: three.scaled(accumulating(three)()), **fit)
    return three.plain(**whole, **fit), parts, three.ours(parts=2, **whole, **fit)


def rows_of_weight_zero(either):
    """keras#19740: they count in the mean of plain Keras."""
    x, y = rows(8)
    fit = {"xy": (x, y), "sample_weight": np.repeat([1.0, 0.0], 4).astype(np.float32)}
    return either.plain(xy=(x[:4], y[:4])), either.plain(**fit), either.ours(parts=2, **fit)


def classes_of_weight_zero(either):
    x, y = rows(30)
    fit = {"xy": (x, y), "batch_size": 30, "class_weight": {0: 1.0, 1: 1.0, 2: 0.0}}
    alone = either.plain(xy=(x[y != 2], y[y != 2]), batch_size=30)
    return alone, either.plain(**fit), either.ours(parts=2, **fit)


def texts_of_two_lengths():
    """With a tag for each position, and where there is a word."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(8, 6, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, (8, 6))
    return x, y, (np.arange(6) < np.repeat([6, 1], 4)[:, None]).astype(np.float32)


def padding_of_weight_zero(either):
    """tensorflow#34491: the loss is divided by all positions."""
    x, y, mask = texts_of_two_lengths()
    alone = either.plain(either.tagger, (x[mask > 0][:, None], y[mask > 0][:, None]), batch_size=int(mask.sum()))
    trained = [train(either.tagger, (x, y), sample_weight=mask) for train in (either.plain, either.ours)]
    return alone, *trained


@SLOW
@pytest.mark.parametrize(
    "situation",
    [
        *(parts_of_two_sizes, an_epoch_that_ends_between_two_updates, a_schedule_of_the_learning_rate),
        *(one_micro_batch_that_is_not_finite, rows_of_weight_zero, classes_of_weight_zero, padding_of_weight_zero),
    ],
)
def test_what_plain_keras_makes_otherwise(either, situation):
    """Each gives a reference, plain Keras's training and ours."""
    if "zero" not in situation.__name__ and not either.is_keras_3:
        pytest.skip("only Keras 3 accumulates")
    expected, plain, found = situation(either)
    assert apart(expected, plain) > OTHER and apart(expected, found) < SAME
    assert found.history["loss"][-1] == pytest.approx(expected.history["loss"][-1], abs=SAME)


def test_adam_where_a_token_occurs_twice(either):
    """Plain Keras 3 adds up the squares of the parts of its gradient. tf_keras and FineTuner square their sum."""
    kinds, data = either.layers, (np.array([[1, 1]]), np.array([[0.0]], np.float32))
    layers = lambda: [kinds.Embedding(3, 1, embeddings_initializer="ones"), kinds.GlobalAveragePooling1D()]  # noqa: E731
    make = lambda: either.sequential(layers, shape=[2], dtype="int32")  # noqa: E731
    train = {"optimizer": lambda: either.keras.optimizers.Adam(0.1), "compiled": {"loss": "mse"}}
    plain, found = either.plain(make, data, **train), either.ours(make, data, replicas=1, **train)
    assert plain.weights[0][1, 0] == pytest.approx(0.85858 if either.is_keras_3 else 0.9, abs=1e-5)
    assert found.weights[0][1, 0] == pytest.approx(0.9, abs=1e-5)


@SLOW
def test_clipping_where_a_token_occurs_twice(either):
    """The norm of an embedding's gradient, of which plain Keras adds up the parts of one token by themselves."""
    clip, data = 1e-2, (np.zeros((4, 4), np.int32), np.zeros(4, np.int32))
    before = weights(either.words())

    def moved(trained):
        return np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(before, trained.weights, strict=True))) / clip

    optimizer = lambda: either.keras.optimizers.SGD(1.0, global_clipnorm=clip)  # noqa: E731
    assert moved(either.plain(either.words, data, optimizer=optimizer)) == pytest.approx(1.2511, abs=1e-3)
    assert moved(either.ours(either.words, data, optimizer=optimizer)) == pytest.approx(1, abs=1e-3)


@SLOW
def test_dropout_in_a_run_that_is_taken_up_again(either, tmp_path):
    """Two epochs, or one, a file and another one."""
    make = lambda: either.classifier(dropout=0.5)  # noqa: E731
    for train, is_ours in ((either.plain, False), (either.ours, True)):
        straight = train(make, replicas=1, epochs=2)
        train(make, replicas=1).model.save(tmp_path / "model.keras")
        loaded = either.keras.models.load_model(tmp_path / "model.keras")
        assert isinstance(loaded, tfbert.FineTuner) == is_ours
        loaded.fit(*rows(40), batch_size=10, shuffle=False, verbose=0)
        difference = apart(straight.weights, weights(loaded))
        assert difference == 0 if is_ours else difference > OTHER


def test_a_fit_after_one_that_was_restored(three, tmp_path):
    """Plain Keras begins it at the epoch where the first went on; here, of two, none is left."""
    kinds, epochs = three.keras.callbacks, {}
    scores = kinds.LambdaCallback(on_train_begin=lambda logs: scores.model.evaluate(*rows(8), verbose=0))
    for name, train in (("plain", three.plain), ("ours", three.ours)):
        (backup := tmp_path / name).mkdir()
        (backup / "training_metadata.json").write_text('{"epoch": 2, "batch": 0}')  # As of a run that was killed.
        callbacks = [kinds.BackupAndRestore(backup), scores]
        first = train(lambda: three.classifier(), replicas=1, epochs=3, callbacks=callbacks)
        assert len(first.history["loss"]) == 1
        epochs[name] = first.model.fit(*rows(40), epochs=2, verbose=0).epoch
    assert epochs == {"plain": [], "ours": [0, 1]}


@SLOW
def test_averages_in_a_step_that_is_skipped(either):
    """With a loss scale, the weights are spared; the averages of BatchNormalization only by FineTuner."""
    x, y = rows(20)
    x[12] = np.inf
    make = lambda: either.classifier(either.keras.layers.BatchNormalization())  # noqa: E731
    optimizer = lambda: either.scaled(either.sgd())  # noqa: E731
    plain, found = (train(make, (x, y), replicas=1, optimizer=optimizer) for train in (either.plain, either.ours))
    assert [bool(np.isfinite(weight).all()) for weight in plain.weights] == [True] * 4 + [False] * 2 + [True] * 2
    assert all(np.isfinite(weight).all() for weight in found.weights)


@SLOW
@pytest.mark.parametrize("is_known", [True, False])
def test_a_file_in_another_process(three, tmp_path, is_known):
    """Keras 3 imports no class that a file names: `from tfbert import FineTuner` makes it known."""
    path = str(tmp_path / "model.keras")
    three.ours(replicas=1).model.save(path)
    imports = "import keras\nfrom tfbert import FineTuner" if is_known else "import keras"
    code = f"{imports}\nprint(type(keras.models.load_model({path!r})).__name__)"
    with processes_of([code], [{}]) as (process,):
        out, err = process.communicate()
    assert out == "FineTuner\n" if is_known else "Could not locate class 'FineTuner'" in err


# On several replicas.


@SLOW
def test_the_optimizers_own_accumulation(either):
    """keras#20582."""
    big = either.plain(batch_size=20)
    assert apart(either.ours(batch_size=20, parts=2), big) < SAME
    if either.is_keras_3:
        with pytest.raises(RuntimeError, match="merge_call"):
            either.plain(optimizer=lambda: either.sgd(gradient_accumulation_steps=2), replicas=2)
    else:
        with pytest.raises((TypeError, ValueError), match="gradient_accumulation_steps"):
            either.sgd(gradient_accumulation_steps=2)


def error(kind, match):
    return lambda: pytest.raises(kind, match=match)


def clipped(option, largest):
    return {"optimizer": lambda either: lambda: either.sgd(**{option: largest})}, {}, {}, OTHER, SAME


MERGED = error(RuntimeError, "merge_call")
SITUATIONS = {
    # keras#19891, keras#19280, keras#19308: losses, metrics and weights depended on their number.
    "one or several replicas": ({"compiled": {"metrics": ["accuracy"]}}, {}, {}, SAME, SAME),
    "a last batch that they do not divide": ({"xy": rows(43)}, {}, {}, OTHER, OTHER),
    # tensorflow#36224: a replica without rows gave a loss that is not a number.
    "a last batch of fewer rows than replicas": ({"xy": rows(41)}, {}, {}, OTHER, OTHER),
    "a first batch that they do not divide": (
        *({"xy": rows(7)}, {}, {}),
        *(error(tf.errors.InvalidArgumentError, "AddN"), OTHER),
    ),
    # tensorflow#33929.
    "clipnorm before the sum over replicas": clipped("clipnorm", 0.05),
    "global_clipnorm before the sum over replicas": clipped("global_clipnorm", 0.05),
    "clipvalue before the sum over replicas": clipped("clipvalue", 0.01),
    # keras#19005; with a loss scale keras#21366, keras#20763.
    "XLA": (
        *({}, {"compiled": {"jit_compile": True}}, {"wrap": {"jit_compile": True}}),
        *[error(tf.errors.InvalidArgumentError, "from device")] * 2,
    ),
    "averaged weights that overwrite": (
        {"optimizer": lambda either: lambda: either.sgd(use_ema=True, ema_overwrite_frequency=2)},
        *({}, {}, MERGED, SAME),
    ),
}
"""Arguments of all trainings, of plain Keras's on two replicas, of ours; what plain Keras 3 and tf_keras make of it."""


@SLOW
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("what", SITUATIONS)
def test_two_replicas_are_one(either, what, policy):
    if policy != "float32" and what not in ("XLA", "one or several replicas"):
        pytest.skip("what a loss scale changes (keras#18666: merge_call) is in two of them")
    both, plain, ours, *results = SITUATIONS[what]
    both = both | ({"optimizer": both["optimizer"](either)} if "optimizer" in both else {})
    result = results[0 if either.is_keras_3 else 1]
    with either.policy(policy):
        one, found = either.plain(**both), either.ours(**both | ours)
        if callable(result):
            with result():
                either.plain(replicas=2, **both | plain)
        else:
            two = either.plain(replicas=2, **both | plain)
            assert np.isfinite(two.history["loss"]).all()
            assert (apart(one, two) > OTHER) == (result == OTHER)
    tolerance = SAME if policy == "float32" else OTHER
    assert apart(one, found) < tolerance
    for name, values in one.history.items():
        np.testing.assert_allclose(found.history[name], values, atol=tolerance)


@SLOW
def test_averages_of_batch_normalization(either):
    make = lambda: either.classifier(either.keras.layers.BatchNormalization(momentum=0.5))  # noqa: E731
    plain, found = either.plain(make, replicas=2), either.ours(make)
    mean = found.model.model.layers[1].moving_mean
    of_replicas = strategy_of(2).experimental_local_results(mean.value if either.is_keras_3 else mean)
    if either.is_keras_3:  # Plain Keras 3 shows and saves those of the first replica.
        shown = strategy_of(2).experimental_local_results(plain.model.layers[1].moving_mean.value)
        np.testing.assert_array_equal(plain.weights[4], shown[0].numpy())
        assert np.abs(shown[0] - shown[1]).max() > OTHER
        np.testing.assert_array_equal(of_replicas[0].numpy(), of_replicas[1].numpy())
        np.testing.assert_allclose(found.weights[4], np.mean(shown, axis=0), atol=SAME)
    else:
        np.testing.assert_allclose(found.weights[4], plain.weights[4], atol=SAME)


@SLOW
def test_synchronized_batch_normalization(either):
    """keras#18667. FineTuner says that it does not do this."""
    make = lambda: either.classifier(either.keras.layers.BatchNormalization(synchronized=True))  # noqa: E731
    one, two = (either.plain(make, replicas=count) for count in (1, 2))
    assert apart(one, two) < SAME
    with pytest.raises(ValueError, match="synchronized=True on several replicas"):
        either.ours(make)


@SLOW
def test_dropout(either):
    """Plain Keras draws other numbers for another number of replicas, or of parts."""
    make = lambda: either.classifier(dropout=0.5)  # noqa: E731
    one, two = (either.plain(make, replicas=count) for count in (1, 2))
    assert apart(one, two) > OTHER
    if either.is_keras_3:
        assert apart(either.plain(make, batch_size=20), either.plain(make, optimizer=accumulating(either))) > OTHER
    assert apart(either.ours(make, replicas=1), either.ours(make, parts=2)) < SAME


@SLOW
def test_a_loss_that_is_one_number(either):
    """keras#16285: of a number that a loss took the mean of, a replica gives its own."""
    x, _ = rows(20)
    compiled = {"loss": lambda y, predicted: tf.reduce_mean((tf.cast(y, tf.float32) - predicted) ** 2)}
    one, two = (either.plain(xy=(x, x[:, :CLASSES]), replicas=count, compiled=compiled) for count in (1, 2))
    assert (apart(one, two) > OTHER) == either.is_keras_3
    with pytest.raises(ValueError, match="A loss must return one value per row"):
        either.ours(xy=(x, x[:, :CLASSES]), compiled=compiled)


@SLOW
def test_masks_of_several_lengths(either):
    """Plain Keras takes the mean over the positions of each replica."""
    x, y, lengths = texts_of_two_lengths()
    x = x * lengths[..., None]
    make = lambda: either.tagger(either.keras.layers.Masking())  # noqa: E731
    one, two = (either.plain(make, (x, y), replicas=count) for count in (1, 2))
    assert apart(one, two) > OTHER
    assert apart(one, either.ours(make, (x, y))) < SAME
    assert apart(one, either.ours(either.tagger, (x, y), sample_weight=lengths)) < SAME


@SLOW
def test_what_batches_report(either):
    """tensorflow#39268: of a metric that is no mean, plain Keras 3 reports the mean of the replicas' values."""
    x, y = rows(40)
    y = (y > 0).astype(np.float32)[:, None]
    compiled = lambda: {"loss": "binary_crossentropy", "metrics": [either.keras.metrics.AUC(name="auc")]}  # noqa: E731
    make = lambda: either.sequential(lambda: [either.layers.Dense(1, activation="sigmoid")])  # noqa: E731

    def seen(train, replicas):
        values = []
        note = lambda batch, logs: values.append(float(logs["auc"]))  # noqa: E731
        callbacks = [either.keras.callbacks.LambdaCallback(on_train_batch_end=note)]
        train(make, (x, y), replicas=replicas, compiled=compiled, callbacks=callbacks)
        return values

    one, two = (seen(either.plain, replicas) for replicas in (1, 2))
    assert (np.abs(np.subtract(one, two)).max() > OTHER) == either.is_keras_3
    np.testing.assert_allclose(seen(either.ours, 2), one, atol=SAME)
