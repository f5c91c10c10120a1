"""What FineTuner does not take of a Keras is refused with a line that says what to do."""

import functools
import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfbert
from tests.support.cases import SLOW, slow
from tests.support.either_keras import CLASSES, FEATURES, OVER_BOTH, Either, apart, rows, weights
from tests.support.models import strategy_of
from tests.support.refusals import refused
from tfbert.private import with_mask
from tfbert.step.comparisons import drawing_in
from tfbert.step.core import check_data
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.step.terms import Terms
from tfbert.step.tf_keras.finetuner import FineTuner as TFKerasFineTuner

THREE, TWO = Either("keras"), Either("tf_keras")


def method(name, base):
    """A class with a method of its own, which calls its base's."""

    def own(self, *args, **kwargs):
        return getattr(super(type(self), self), name)(*args, **kwargs)

    return type("Own", (base,), {name: own})


@functools.cache
def some_model(keras):
    """One of each Keras, for what is refused without a look at it."""
    return Either(keras.__name__).classifier()


def own_model(either, name):
    return method(name, type(either.subclassed()))()


def test_one_name_for_both():
    one, three = TWO.classifier(), THREE.classifier()
    assert type(tfbert.FineTuner(one)) is TFKerasFineTuner and type(tfbert.FineTuner(three)) is FineTuner
    for made in (tfbert.FineTuner(one), tfbert.FineTuner(three)):
        assert isinstance(made, tfbert.FineTuner)
    assert not isinstance(three, tfbert.FineTuner) and issubclass(FineTuner, tfbert.FineTuner)

    class Tuner(tfbert.FineTuner):
        def greeting(self):
            return f"{super().name} of {type(self).__name__}"

    assert isinstance(Tuner(one, name="x"), TFKerasFineTuner) and Tuner(one, name="x").greeting() == "x of Tuner"
    with pytest.raises(ValueError, match="Received: model=Sequential of Keras 3. Write `import tf_keras`"):
        Tuner(three)
    with pytest.raises(ValueError, match="Received: model=Sequential of tf_keras. Write `import keras`"):
        FineTuner(one)


# Methods of one's own.


@OVER_BOTH
@pytest.mark.parametrize(
    "name",
    [
        *("train_step", "test_step", "compute_metrics", "make_train_function", "make_test_function"),
        *("get_metrics_result", "compile", "reset_metrics"),
    ],
)
def test_a_models_own_method(either, name):
    with pytest.raises(ValueError, match=f"model Own with a {name} of its own"):
        tfbert.FineTuner(own_model(either, name))


@OVER_BOTH
def test_however_it_came_there(either):
    class Mixin:
        def train_step(self, data):
            return {}

    mixed = type("Mixed", (Mixin, type(either.subclassed())), {})
    tracked = either.subclassed(metrics=property(lambda self: []))
    assigned, bound = either.subclassed(), either.subclassed()
    object.__setattr__(assigned, "train_step", lambda data: {})
    object.__setattr__(bound, "test_step", functools.partial(Mixin.train_step, bound))
    for model in (mixed(), type("Below", (mixed,), {})(), assigned, bound, tracked):
        with pytest.raises(ValueError, match="of its own"):
            tfbert.FineTuner(model)
    later = either.subclassed()
    model = tfbert.FineTuner(later)
    object.__setattr__(later, "train_step", Mixin.train_step)
    with pytest.raises(ValueError, match="a train_step of its own"):
        model.compile(optimizer=either.sgd(), loss=either.loss())


def test_a_library_has_its_own_and_a_user_of_it_not(either):
    model = either.bert(num_hidden_layers=1)
    tfbert.FineTuner(model)  # Ours override compile and compute_loss, transformers' train_step and test_step too.
    with pytest.raises(ValueError, match="a train_step of its own"):
        tfbert.FineTuner(method("train_step", type(model))(model.config))


@OVER_BOTH
def test_a_subclass_of_finetuner(either):
    base = type(tfbert.FineTuner(either.classifier()))
    with pytest.raises(ValueError, match="a FineTuner Own with a compute_loss of its own"):
        method("compute_loss", base)(either.classifier())


@OVER_BOTH
@pytest.mark.parametrize("name", ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"])
def test_a_method_that_users_call(either, name):
    model = either.build(lambda: own_model(either, name), replicas=None)
    x, y = rows(8)
    with pytest.raises(ValueError, match=f"model Own with a {name} of its own"):
        getattr(model, name)(*((x,) if name.startswith("predict") else (x, y)))


@OVER_BOTH
def test_an_optimizers_own_method(either):
    """Of those below it, and of one within a loss scale, too."""
    for name in either.step.of_optimizers:
        kind = type("Own", (either.keras.optimizers.SGD,), {name: lambda self, *args, **kwargs: None})
        below = type("Below", (kind,), {})
        for optimizer in (kind(0.1), below(0.1), either.scaled(kind(0.1))):
            with pytest.raises(ValueError, match=f"with a {name} of its own"):
                tfbert.FineTuner(some_model(either.keras)).compile(optimizer, either.loss())


# Arguments of `compile`.


def of_compile(name):
    """Arguments of `compile` that a FineTuner of this Keras refuses, and with what."""
    here, there, other = (keras, tf_keras, "tf_keras") if name == "keras" else (tf_keras, keras, "Keras 3")
    of_other = [
        ({"optimizer": there.optimizers.SGD(0.1)}, "optimizer=SGD"),
        ({"loss": type("Below", (there.losses.MeanSquaredError,), {})()}, "loss=Below"),
        ({"loss": there.losses.mean_squared_error}, "loss=mean_squared_error"),
        ({"metrics": {"output": ["accuracy", there.metrics.Mean()]}}, "metrics=Mean"),
        ({"weighted_metrics": [there.metrics.Mean()]}, "weighted_metrics=Mean"),
    ]
    mean, steps = here.losses.MeanSquaredError, "gradient_accumulation_steps"
    called = method("__call__", mean)
    accumulating = lambda count: keras.optimizers.Adam(0.1, gradient_accumulation_steps=count)  # noqa: E731
    if name == "keras":  # tf_keras itself takes no such schedule.
        rate = there.optimizers.schedules.PolynomialDecay(0.1, 5)
        of_other.append(({"optimizer": here.optimizers.SGD(rate)}, "learning_rate=PolynomialDecay"))
        own = [
            ({"loss": mean("mean_with_sample_weight")}, "reduction='mean_with_sample_weight'"),
            ({"optimizer": accumulating(4)}, rf"Received: an optimizer with {steps}=4\. Pass FineTuner\({steps}=4"),
            ({"optimizer": THREE.scaled(accumulating(2))}, f"{steps}=2"),
        ]
    else:
        own = [
            ({"optimizer": optimizer}, f"current optimizers. Received: optimizer={kind}. Pass keras.opt")
            for optimizer, kind in [((1, 2), "tuple"), (here.optimizers.legacy.SGD(0.1), "SGD")]
        ]
    way = f"of {other}. .*Write `import {name}` and use its objects"
    return [(given, f"Received: {received} {way}") for given, received in of_other] + [
        ({"loss": None}, "FineTuner needs a loss for an output. Received: loss=None"),
        ({"loss": [None]}, r"needs a loss for an output. Received: loss=\[None\]"),
        ({"loss": {"a": None}}, "needs a loss for an output. Received: loss={"),
        ({"loss": "auto"}, "Received: loss='auto'"),
        ({"loss": mean(reduction="sum")}, "Received: a loss with reduction='sum'"),
        ({"loss": ["mse", mean(reduction="sum")]}, "Received: a loss with reduction='sum'"),
        ({"loss": called()}, "loss Own with a __call__ of its own"),
        ({"loss": method("call", called)()}, "loss Own with a __call__ of its own"),
        ({"jit_compile": True}, r"Received: compile\(jit_compile=True\). Pass FineTuner\(jit_compile=True\)"),
        ({"steps_per_execution": 2}, "one update in an execution. Received: steps_per_execution=2. Leave it out"),
        *own,
    ]


COMPILED = [(name, *case) for name in ("keras", "tf_keras") for case in of_compile(name)]


def test_executions_of_several_updates_that_are_set_after_compile():
    """Keras counts the batches of each by this attribute; all but one of them would be left out."""
    tuner, message = THREE.build(), "one update in an execution. Received: steps_per_execution=4. Leave it out"
    tuner.steps_per_execution = 4
    for call in (tuner.fit, tuner.evaluate):
        with pytest.raises(ValueError, match=message):
            call(*rows(16), batch_size=4, verbose=0)


@pytest.mark.parametrize(("either", "given", "message"), COMPILED, indirect=["either"])
def test_arguments_of_compile(either, given, message):
    with pytest.raises(ValueError, match=message):
        tfbert.FineTuner(some_model(either.keras)).compile(**{"optimizer": either.sgd(), "loss": either.loss()} | given)


@OVER_BOTH
def test_losses_that_are_means(either):
    for reduction in either.step.means:
        loss = either.keras.losses.MeanSquaredError(reduction=reduction)
        tfbert.FineTuner(some_model(either.keras)).compile("sgd", loss)


@OVER_BOTH
@pytest.mark.parametrize("argument", ["loss", "loss_weights"])
@pytest.mark.parametrize("names", [["one", "two"], ["one", "two", "three"], {"first": 1, "third": 1}])
def test_names_that_are_not_the_outputs(either, argument, names):
    given = {"loss": "mse", "loss_weights": 1.0}
    value = dict.fromkeys(names, given[argument]) if isinstance(names, dict) else [given[argument]] * len(names)
    there = ["first", "second"] if isinstance(names, dict) or len(names) != 2 else ["first"]
    inputs = either.keras.Input([FEATURES])
    model = either.keras.Model(inputs, [either.layers.Dense(CLASSES, name=name)(inputs) for name in there])
    with pytest.raises(ValueError, match=f"those of the outputs.*Received: {argument} for"):
        tfbert.FineTuner(model).compile("sgd", **given | {argument: value})


# Models, options and callbacks.


@OVER_BOTH
@pytest.mark.parametrize(
    "name, values",
    [
        ("gradient_accumulation_steps", (0, 2.5, "auto")),
        ("max_grad_norm", (-1.0, float("nan"), None)),
        ("jit_compile", ("auto",)),
        ("seed", (None, "1")),
        ("all_reduce_dtype", ("float16",)),
    ],
)
def test_options_out_of_range(either, name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"Received: .*{name}={value!r}"):
            tfbert.FineTuner(some_model(either.keras), **{name: value})


@OVER_BOTH
def test_options_that_there_are_not(either):
    for name, answer in [
        ("accumulation_steps", "Did you mean gradient_accumulation_steps?"),
        ("clipnorm", "It has gradient_accumulation_steps, max_grad_norm, "),
    ]:
        with pytest.raises(ValueError, match=re.escape(f"Received: {name}=1 (int). {answer}")):
            tfbert.FineTuner(some_model(either.keras), **{name: 1})


def test_what_is_trained_is_settled_by_compile(either):
    model = either.build(optimizer=lambda: either.sgd(0.5))
    model.fit(*rows(8), verbose=0)
    model.model.layers[0].trainable = False
    with pytest.raises(ValueError, match="Received: 2 trainable variables, not the 4 of before.*Call compile again"):
        model.fit(*rows(8), verbose=0)
    model.model.layers[0].trainable, model.max_grad_norm = True, 1e-9
    with pytest.raises(ValueError, match="Received: max_grad_norm=1e-09, not the 0.0 of before.*Call compile again"):
        model.fit(*rows(8), verbose=0)
    model.compile(either.sgd(0.5), either.loss())
    before = weights(model)
    model.fit(*rows(8), verbose=0)
    assert apart(before, weights(model)) < 1e-6
    inner = either.classifier()
    inner.trainable = False
    frozen = either.build(lambda: inner, replicas=None)
    for answer in ("none that are trainable", "Received: 4 trainable variables, not the 0 of before"):
        with pytest.raises(ValueError, match=answer):
            frozen.fit(*rows(8), verbose=0)
        frozen.model.trainable = True


def test_a_fit_that_skipped_updates_says_so(either):
    model = either.build(optimizer=lambda: either.sgd(0.5))
    x, y = rows(16)
    with pytest.warns(UserWarning, match="Received: 2 such of 2, the last 2 in a row"):
        model.fit(x * np.nan, y, batch_size=8, verbose=0)
    with pytest.warns(UserWarning, match="Received: 1 such of 2, the last 0 in a row"):
        model.fit(np.concatenate([x[:8] * np.nan, x[8:]]), y, batch_size=8, verbose=0, shuffle=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(x, y, batch_size=8, verbose=0)


@OVER_BOTH
def test_labels_that_are_missing(either):
    for metrics in (None, ["accuracy"]):
        model = either.build(compiled={"metrics": metrics})
        with pytest.raises(ValueError, match="needs labels for its loss. Received: inputs alone"):
            model.fit(rows(8)[0], verbose=0)


@OVER_BOTH
def test_what_is_no_model_to_wrap_or_to_train(either):
    with pytest.raises(ValueError, match=rf"wraps a {either.keras.__name__}\.Model. Received: model="):
        type(tfbert.FineTuner(either.classifier()))(lambda x: x)
    with pytest.raises(ValueError, match="which is one already"):
        tfbert.FineTuner(tfbert.FineTuner(either.classifier()))
    model = either.classifier()
    model.trainable = False
    trained = either.build(lambda: model, replicas=None)
    with pytest.raises(ValueError, match="none that are trainable"):
        trained.fit(*rows(8), verbose=0)


@OVER_BOTH
def test_callbacks_of_the_other_keras(either):
    other, name = (TWO, "tf_keras") if either.is_keras_3 else (THREE, "Keras 3")
    model = either.build()
    for callback in (other.keras.callbacks.EarlyStopping(), type("Stop", (other.keras.callbacks.Callback,), {})()):
        for call in (model.fit, model.evaluate):
            with pytest.raises(ValueError, match=f"Received: callbacks={type(callback).__name__} of {name}"):
                call(*rows(8), verbose=0, callbacks=[callback])


@OVER_BOTH
def test_scopes(either):
    outside, optimizer = either.classifier(), either.sgd()
    with strategy_of(2).scope():
        with pytest.raises(ValueError, match="FineTuner under MirroredStrategy"):
            tfbert.FineTuner(outside)
        model = tfbert.FineTuner(either.classifier())
        if either.is_keras_3:
            with pytest.raises(ValueError, match="an optimizer created under .*, and a model under MirroredStrategy"):
                model.compile(optimizer, either.loss())


def test_other_strategies():
    scope = tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"]).scope()
    with scope, pytest.raises(ValueError, match="MultiWorkerMirroredStrategy. Received: CentralStorageStrategy"):
        tfbert.FineTuner(THREE.classifier())


def test_another_backend(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="trains with TensorFlow. Received: a model of Keras 3 with the backend 'jax'"):
        tfbert.FineTuner(THREE.classifier())


@pytest.mark.parametrize("hold", [lambda layer: layer, lambda layer: [layer], lambda layer: {"a": layer}])
def test_a_layer_of_the_other_keras_within_a_model(hold):
    """Keras 3 would not train it, without a word."""

    class Mixed(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = hold(tf_keras.layers.Dense(8))

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = Mixed()

    for make in (Mixed, Outer):
        with pytest.raises(ValueError, match=r"Received: Dense of tf_keras as Mixed\.first\. Use a layer of Keras 3"):
            tfbert.FineTuner(make())


# What only a batch, or the step being traced, shows: in one line.


def mean_of_all(labels, predictions):
    return tf.reduce_mean(tf.square(tf.cast(labels, tf.float32) - predictions))


def one_number(self, x=None, y=None, y_pred=None, sample_weight=None, **others):
    return tf.reduce_mean(y_pred)


X, Y = rows(8)
PLAIN = "sparse_categorical_crossentropy"
IN_FIT = {
    "a class that is not there": (
        {"xy": (tf.data.Dataset.from_tensors((X, Y + 1)), None), "batch_size": None},
        "takes the numbers of classes, from 0 to 2. Received: 3 among the labels",
    ),
    "half a class": (
        {"xy": (tf.data.Dataset.from_tensors((X, np.where(Y == 1, 0.5, Y))), None), "batch_size": None},
        "from 0 on. Received: a number with a fraction, or none, among the labels",
    ),
    "logits for probabilities": (
        {"compiled": {"loss": PLAIN}},
        "those of layer 'dense.*', without an activation, and loss='sparse_cat",
    ),
    "the same in a model in a model": (
        {"make": lambda each: each.sequential(lambda: [each.classifier()]), "compiled": {"loss": PLAIN}},
        "those of layer 'dense.*', without an activation",
    ),
    "an own loss of one number": (
        {"make": lambda each: each.subclassed(compute_loss=one_number), "compiled": {"loss": None}},
        "compute_loss of Own, which returns one number",
    ),
    "an own loss that asks for the compiled one": (
        {"make": lambda either: own_model(either, "compute_loss")},
        r"compute_loss must return one value per row, and the compiled loss.*calls super\(\).compute_loss or",
    ),
    "a loss of labels": (
        {"make": lambda each: each.classifier(outputs=1), "compiled": {"loss": lambda y, p: tf.cast(y, tf.float32)}},
        "depend on a trainable variable",
    ),
}


@pytest.mark.parametrize("what", IN_FIT)
def test_what_a_batch_shows(either, what):
    given, message = IN_FIT[what]
    options = {"make": Either.classifier, "xy": (X, Y)} | given
    make = options.pop("make")
    with refused(message, ValueError):
        either.ours(lambda: make(either), replicas=1, **options)


NAMES = {"output_names": ["first", "second"]}
OUTPUTS = dict.fromkeys(("first", "second"), X[:, :CLASSES])
MASKED = with_mask(tf.zeros([8, 6, CLASSES]), tf.ones([8, 6], bool))
WITHOUT_FIT = {
    "labels of one output for several": (
        *(None, Y, OUTPUTS, None, NAMES),
        "labels of its own. Received: labels for 1 outputs.*first, second",
    ),
    "an output that is not there": (
        *({"first": "mse", "third": "mse"}, {"first": X, "third": X}, OUTPUTS, None, {}),
        "Received: outputs for first, second, and losses for first, third",
    ),
    "outputs within an output": (
        *({"first": "mse"}, {"first": [X, X]}, {"first": [X, X]}, None, {}),
        "labels of its own. Received: outputs for first, and losses for first. .* none within another",
    ),
    "weights of positions": (None, Y, X, np.ones([8, 4]), {}, r"sample_weight \[8, 4\] and a loss \[8\], SparseCateg"),
    "weights of other rows": (None, Y, X, np.ones(1), {}, r"sample_weight \[1\] and a loss \[8\]"),
    "one-hot labels for numbers": (None, np.eye(5)[Y], X, None, {}, r"labels \[8, 5\] and outputs \[8, 5\] for sp"),
    "numbers for one-hot labels": (
        *("categorical_crossentropy", Y, X, None, {}),
        "Labels have the shape of the outputs.* for categorical_crossentropy",
    ),
    "a label for all outputs": ("mse", X[:, :1], X, None, {}, r"labels \[8, 1\] and outputs \[8, 5\] for mean_sq"),
    "labels of one axis": ("mse", X[:, 0], X, None, {}, r"Labels have the shape.* labels \[8.* for mean_sq"),
    "labels of other rows": ("mse", X[:1], X, None, {}, r"labels \[1, 5\] and outputs \[8, 5\]"),
    "a single class": (None, 0 * Y, X[:, :1], None, {}, "numbers of two or more"),
    "a mask and a loss for each row": (
        *(lambda y, p: tf.reduce_sum(p, axis=[1, 2]), Y[:, None] + np.zeros(6, int), MASKED, None, {}),
        r"or a mask, \[8, 6\] and a loss \[8\], <lambda>",
    ),
    "a loss that compares rows and masks them": (
        *(keras.losses.Circle(), Y, X, None, {}),
        "Received: Circle.*a loss that compares rows with each other",
    ),
    "one number": (mean_of_all, X, X, None, {}, "^A loss must return one value per row.*Received: mean_of_all"),
}


@OVER_BOTH
@pytest.mark.parametrize("what", WITHOUT_FIT)
def test_losses_labels_and_weights_that_do_not_fit(either, what):
    loss, labels, outputs, sample_weight, options, message = WITHOUT_FIT[what]
    if isinstance(loss, keras.losses.Loss) and not either.is_keras_3:
        pytest.skip("tf_keras has none such")
    terms = Terms(either.step, loss or either.loss(), **options)
    with pytest.raises(ValueError, match=message):
        weights = terms.masked(terms.weights(sample_weight, 8, labels), outputs)
        labels, outputs = tf.nest.map_structure(tf.convert_to_tensor, (labels, outputs))
        terms.by_row(terms.rows(labels, sample_weight), outputs, weights, None)


@pytest.mark.parametrize(
    "tensor, xla, message",
    [
        (tf.TensorSpec(None), False, "dense tensors.* Received: a tensor of unknown shape"),
        (tf.ragged.constant([[1, 2], [3]]), False, r"dense tensors, .*Received: a RaggedTensor.*to_tensor\(\)"),
        (tf.constant(["a text"]), True, "XLA compiles numbers. Received: texts, and FineTuner"),
    ],
)
def test_tensors_that_no_step_takes(tensor, xla, message):
    with pytest.raises(ValueError, match=message):
        check_data((X, tensor), xla=xla)


@pytest.mark.parametrize("xla", [False, slow(True)])
def test_logits_for_probabilities_on_all_replicas(either, xla):
    with refused("Received: outputs below 0 or above 1, and loss='sparse_cat", ValueError):
        either.ours(either.subclassed, parts=2, compiled={"loss": PLAIN}, wrap={"jit_compile": xla})
    model = either.build(either.subclassed, compiled={"loss": PLAIN})
    with pytest.raises(ValueError, match="outputs below 0 or above 1"):
        model.evaluate(X, Y, verbose=0)


def test_a_refused_compile_leaves_the_loss_as_it_was(either):
    model = either.build(either.classifier)
    before = model._terms
    with pytest.raises(ValueError, match="without an activation"):
        model.compile("sgd", PLAIN)
    assert model._terms is before


def test_layers_that_talk_to_other_replicas(either):
    kinds = [functools.partial(either.layers.BatchNormalization, synchronized=True)]
    kinds += [] if either.is_keras_3 else [either.layers.experimental.SyncBatchNormalization]
    for kind in kinds:
        make = lambda: either.sequential(lambda: [kind(name="norm"), either.layers.Dense(CLASSES)])  # noqa: B023, E731
        model = either.build(make, replicas=2)
        for _ in range(2):  # `fit` again is refused again.
            with pytest.raises(ValueError, match="'norm' with synchronized=True on several replicas"):
                model.fit(*rows(8), verbose=0)
        model = either.build(make)
        model.model.build([None, FEATURES])
        model.create_variables()


@pytest.mark.parametrize("policy, xla, warns", [("mixed_bfloat16", 0, 1), ("mixed_bfloat16", 1, 0), ("float32", 0, 0)])
def test_biases_that_tensorflow_sums_in_bfloat16_are_warned_of(policy, xla, warns):
    make = lambda: tf_keras.Sequential([tf_keras.layers.Dense(2, name="named")])  # noqa: E731
    model = TWO.build(make, policy=policy, jit_compile=bool(xla))
    model.build([None, 3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.create_variables()
    messages = [str(each.message) for each in caught if "bfloat16" in str(each.message)]
    assert len(messages) == warns and all("Received: layer 'named'" in message for message in messages)


# State and numbers of layers.


def plus_gamma(x):
    return x + keras.random.gamma(keras.ops.shape(x), 1.0, seed=3)


class Seeding(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + tf.cast(self.generator.next()[0], x.dtype)


def measuring(either, way="attribute"):
    """Reports a mean of its inputs, in the way asked for."""

    class Measuring(either.layers.Layer):
        def __init__(self):
            super().__init__()
            self.mean = either.keras.metrics.Mean(name="inside") if way == "attribute" else None

        def call(self, x):
            if way == "attribute":
                self.mean.update_state(tf.reduce_mean(x))
            else:
                self.add_metric(tf.reduce_mean(x), name="inside")
            return x

    return Measuring()


def assigning(either, change):
    """Changes a variable of its own: by each call."""

    class Assigning(either.layers.Layer):
        def build(self, shape):
            self.kept = self.add_weight(name="kept", shape=(), initializer="zeros", trainable=False)

        def call(self, x):
            self.kept.assign(change(tf.convert_to_tensor(self.kept), x))
            return x

    return Assigning()


_seen = []


def of_nobody(either):
    """Assigns a variable that no layer holds."""
    _seen.append(tf.Variable(0.0, trainable=False))
    place = len(_seen) - 1

    def count(x):
        _seen[place].assign_add(1.0)
        return x

    return either.layer(count)


STATE, NUMBERS = "A layer's own state must change once in a step", "Random numbers must belong to rows"
WITH_STATE = {
    "count": (lambda each: assigning(each, lambda kept, x: kept + 1.0), STATE),
    "average": (lambda each: assigning(each, lambda kept, x: 0.9 * kept + 0.1 * tf.reduce_mean(x)), STATE),
    "global": (of_nobody, STATE),
    "metric": (measuring, "metric 'inside' of a layer"),
    "add_metric": (lambda each: measuring(each, "add_metric"), "metric 'inside' of a layer"),
    "seed": (lambda each: Seeding(), STATE),
    "gamma": (lambda each: each.layer(plus_gamma), "a layer that calls keras.random.gamma, and a batch in 2 parts"),
    "tf.nn": (lambda each: each.layer(lambda x: tf.nn.dropout(x, 0.5)), NUMBERS + ".*a layer that draws by itself"),
}
OF_ONE = {"add_metric": False, "seed": True, "gamma": True, "tf.nn": True}
"""What only Keras 3 has, or only tf_keras."""


def with_state(either, name, shape):
    """What makes a model of such a layer and another one; and what is said of it."""
    if OF_ONE.get(name, either.is_keras_3) != either.is_keras_3:
        pytest.skip("the other Keras's")
    make, message = WITH_STATE[name]
    layers = lambda: [make(either), either.layers.Dense(CLASSES)]  # noqa: E731
    return lambda: either.sequential(layers, shape=shape), message


@pytest.mark.parametrize(("replicas", "parts"), [(1, 2), slow(2, 1)])
@pytest.mark.parametrize("name", WITH_STATE)
def test_what_would_depend_on_the_split(either, name, replicas, parts):
    shape = [FEATURES] if either.is_keras_3 else None  # tf_keras itself cannot build some of them on two replicas.
    make, message = with_state(either, name, shape)
    with pytest.raises(ValueError, match=message):
        either.ours(make, (X, Y), replicas=replicas, parts=parts)


@SLOW
@pytest.mark.parametrize("name", WITH_STATE)
def test_and_is_kerass_in_one_part(either, name):
    make, _ = with_state(either, name, [FEATURES])
    if name in ("seed", "gamma", "tf.nn"):
        history = either.ours(make, (X, Y), replicas=1).history
        assert np.isfinite(history["loss"]).all()
    else:
        history = either.like(make, replicas=1, parts=1).history
    assert ("inside" in history) == (name in ("metric", "add_metric"))


OF_TENSORFLOW = {
    "gamma": lambda x: x + tf.random.gamma([5], 1.0),
    "poisson": lambda x: x + tf.random.poisson([5], 1.0),
    "binomial": lambda x: x + tf.random.stateless_binomial([5], [1, 2], 3.0, 0.5, tf.float32),
    "categorical": lambda x: x + tf.cast(tf.random.categorical(x, 5), x.dtype),
    "stateless": lambda x: x + tf.random.stateless_normal(tf.shape(x), [1, 2]),
    "uniform": lambda x: x + tf.random.stateless_uniform(tf.shape(x), [1, 2]),
    "whole": lambda x: x + tf.cast(tf.random.stateless_uniform(tf.shape(x), [1, 2], 0, 5, tf.int32), x.dtype),
    "generator": lambda x: x + _GENERATOR.normal([5]),
    "shuffle": lambda x: tf.random.experimental.stateless_shuffle(x, [1, 2]),
    "loop": lambda x: tf.map_fn(lambda row: row + tf.random.normal([5]), x),
    "function": tf.function(lambda x: x + tf.random.truncated_normal([5])),
}
_GENERATOR = tf.random.Generator.from_seed(1)


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_whatever_tensorflow_draws_by_itself_is_noticed(name):
    tuner = tfbert.FineTuner(THREE.classifier(), gradient_accumulation_steps=2)
    graph = tf.function(OF_TENSORFLOW[name]).get_concrete_function(tf.TensorSpec([None, 5])).graph
    plain = tf.function(lambda x: tf.cumsum(x) + 1.0).get_concrete_function(tf.TensorSpec([None, 5])).graph
    assert drawing_in(graph) and not drawing_in(plain)
    with graph.as_default(), pytest.raises(ValueError, match="a layer that draws by itself"), tuner._kept_once(2):
        OF_TENSORFLOW[name](graph.inputs[0])
