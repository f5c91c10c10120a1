"""Small models of Keras 3, the same training through FineTuner and by plain Keras, and one big batch written out."""

import keras
import numpy as np
import tensorflow as tf

from tests.support.models import strategy_of
from tfbert.step.keras3.dropout import KeyedRandom
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.step.noise import Rows, noise_key

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "was", "good", "bad", "a", "fox"]
ROWS, FEATURES, CLASSES, VOCAB = 40, 5, 3, 50


def classifier(outputs=CLASSES, activation=None, regularizer=None, dropout=0.0, seed=3):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.layers.Input([FEATURES]),
            keras.layers.Dense(8, activation="tanh", kernel_regularizer=regularizer),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(outputs, activation=activation, bias_regularizer=regularizer),
        ]
    )


def bert(dropout=0.2, layers=1, **options):
    """KerasHub's, with random weights."""
    import keras_hub

    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=VOCAB,
        num_layers=layers,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        max_sequence_length=16,
        dropout=dropout,
    )
    return keras_hub.models.BertTextClassifier(
        backbone=backbone, num_classes=CLASSES, dropout=dropout, **{"preprocessor": None} | options
    )


def with_preprocessor(lora=False):
    """A task that takes texts, of the words in its vocabulary."""
    import keras_hub

    tokenizer = keras_hub.models.BertTokenizer(vocabulary=_WORDS)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8)
    model = bert(dropout=0.0, preprocessor=preprocessor)
    if lora:
        model.backbone.enable_lora(2)
    return model


def data(rows=ROWS, classes=CLASSES, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    return x, np.argmax(x[:, :classes], axis=1).astype(np.int32)


def texts(rows=ROWS, width=7, seed=1):
    """Inputs of `bert`, in which most tokens occur several times, and labels."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, width + 1, [rows, 1])
    mask = (np.arange(width) < lengths).astype(np.int32)
    ids = rng.integers(1, VOCAB // 4, (rows, width)).astype(np.int32) * mask
    inputs = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": mask}
    return inputs, rng.integers(0, CLASSES, rows).astype(np.int32)


def sgd():
    return keras.optimizers.SGD(0.3, momentum=0.9)


def logits_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def build(make_model, *, replicas=1, policy="float32", compiled=None, **options):
    """A compiled FineTuner in the scope of its strategy."""
    keras.config.set_dtype_policy(policy)
    with strategy_of(replicas).scope():
        model = FineTuner(make_model(), **options)
        settings = {"optimizer": sgd, "loss": logits_loss} | (compiled or {})
        model.compile(**{key: value() if callable(value) else value for key, value in settings.items()})
    return model


def weights(model):
    return [np.array(weight) for weight in getattr(model, "model", model).get_weights()]


def train(make_model, x, y=None, *, wrap=True, replicas=1, options=None, compiled=None, **fit):
    """Weights, history and trained model, after `fit` through FineTuner or of the plain model itself, eagerly."""
    fit = {"batch_size": 10, "epochs": 2, "shuffle": False, "verbose": 0} | fit
    if wrap:
        model = build(make_model, replicas=replicas, compiled=compiled, **(options or {}))
    else:
        model = make_model()
        settings = {"optimizer": sgd, "loss": logits_loss, "run_eagerly": True} | (compiled or {})
        model.compile(**{key: value() if callable(value) else value for key, value in settings.items()})
    history = model.fit(x, y, **fit)
    return weights(model), history.history, model


def assert_close(found, expected, atol=1e-5):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=atol, rtol=0)


def assert_like_keras(make_model, x, y, *, replicas=1, options=None, compiled=None, atol=1e-5, **fit):
    expected, expected_history, _ = train(make_model, x, y, wrap=False, compiled=compiled, **fit)
    found, history, trained = train(make_model, x, y, replicas=replicas, options=options, compiled=compiled, **fit)
    assert_close(found, expected, atol)
    assert history.keys() == expected_history.keys()
    for name, values in expected_history.items():
        np.testing.assert_allclose(history[name], values, atol=1e-5, err_msg=name)
    return trained


def reference_steps(model, x, y, optimizer, *, batch_size, epochs=1, clip=0.0):
    """One big batch a step, float32, gradients made dense. Dropout draws by row, as FineTuner's does.

    Args:
        model: Its weights are updated.
        x: Inputs of all rows.
        y: Their labels.
        optimizer: As `tests.support.models.NumpyAdamW`.
        batch_size: Rows of a step.
        epochs: Passes over the rows.
        clip: Largest global norm; 0 for none.
    """
    noise = KeyedRandom(model, 1)
    for start in [*range(0, len(y), batch_size)] * epochs:
        inputs, labels = tf.nest.map_structure(lambda each, at=start: each[at : at + batch_size], (x, y))
        key = noise_key(0, tf.constant(optimizer.step))
        with noise.keyed(key, Rows(0, len(labels))), tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        found = tape.gradient(loss, [v.value for v in model.trainable_variables])
        grads = [tf.convert_to_tensor(gradient).numpy().astype(np.float64) for gradient in found]
        norm = np.sqrt(sum((gradient**2).sum() for gradient in grads))
        factor = clip / max(norm, clip) if clip else 1.0
        for variable, gradient in zip(model.trainable_variables, grads, strict=True):
            new = optimizer(variable.path, variable.numpy().astype(np.float64), gradient * factor, True)
            variable.assign(new.astype(np.float32))
        optimizer.step += 1
    return weights(model)
