"""The small models and batches that tests share, and the reference update written out in NumPy."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import quick
from tfbert.bert.models import TFBertForSequenceClassification
from tfbert.model.files import BertConfig
from tfbert.private import number_collectives_apart
from tfbert.step.keras3.parts import KeyedRandom
from tfbert.step.noise import Rows, noise_key

VOCAB = 60


def _policies(*chosen):
    tolerances = {"float32": 2e-6, "mixed_bfloat16": 3e-2, "mixed_float16": 4e-3}
    cases = [(policy, tolerance, xla) for policy, tolerance in tolerances.items() for xla in (False, True)]
    plain = [(policy, tolerances[policy], False) for policy in chosen]
    return pytest.mark.parametrize("policy, tolerance, xla", quick(cases, *plain))


POLICIES, QUICK_FLOAT32 = _policies("float32", "mixed_bfloat16"), _policies("float32")
"""Every precision with what its rounding allows, compiled or not; quick are those that differ most, or the one."""


@functools.cache
def strategy_of(replicas):
    """One device, or that many logical CPUs."""
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy("CPU:0")
    # See conftest: kept for later tests, this one needs numbers of its own.
    number_collectives_apart()
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
SIZES |= {"initializer_range": 0.2, "num_hidden_layers": 2, "max_position_embeddings": 64}


def tiny_bert(num_labels=3, dropout=0.0, seed=1, kind=TFBertForSequenceClassification, **options):
    """A 2-layer, hidden-32 BERT with random weights; `options` are those of `BertConfig`."""
    keras.utils.set_random_seed(seed)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return kind(BertConfig(**SIZES | rates | {"num_labels": num_labels} | options))


def randomize(variables, seed, spread=0.2):
    """Gives each weight random numbers, so that no two can be mixed up."""
    rng = np.random.default_rng(seed)
    for variable in variables:
        variable.assign(rng.normal(0, spread, variable.shape))


def variables_of(model):
    """What TensorFlow knows a Keras 3 model's trainable variables as."""
    return [variable.value for variable in model.trainable_variables]


def random_batch(rows, width=12, num_labels=3, seed=0, weights=None):
    """(inputs, labels, weights) with texts of different lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, width + 1, rows)
    mask = np.arange(width) < lengths[:, None]
    inputs = {
        "input_ids": np.where(mask, rng.integers(5, VOCAB, (rows, width)), 0).astype(np.int32),
        "attention_mask": mask.astype(np.int32),
        "token_type_ids": np.zeros((rows, width), np.int32),
    }
    labels = rng.integers(0, num_labels, rows).astype(np.int32)
    return inputs, labels, np.ones(rows, np.float32) if weights is None else np.asarray(weights, np.float32)


class NumpyAdamW:
    """AdamW as in Loshchilov & Hutter 2019, in float64."""

    def __init__(self, rate, decay=0.0, epsilon=1e-8):
        self.rate, self.decay, self.epsilon, self.step, self.m, self.v = rate, decay, epsilon, 0, {}, {}

    def moments(self, name, gradient):
        """The means of gradients and of their squares, not yet divided, and which update this is."""
        self.m[name] = 0.9 * self.m.get(name, 0.0) + 0.1 * gradient
        self.v[name] = 0.999 * self.v.get(name, 0.0) + 0.001 * gradient**2
        return self.m[name], self.v[name], self.step + 1

    def __call__(self, name, value, gradient, decays):
        m, v, t = self.moments(name, gradient)
        rate = self.rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        return value - self.decay * self.rate * decays * value - rate * m / (np.sqrt(v) + self.epsilon)


class NumpyLAMB(NumpyAdamW):
    """LAMB as in You et al. 2020, Algorithm 2, in float64."""

    def __init__(self, rate, decay=0.0, epsilon=1e-6):
        super().__init__(rate, decay, epsilon)

    def __call__(self, name, value, gradient, decays):
        m, v, t = self.moments(name, gradient)
        u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + self.epsilon) + self.decay * decays * value
        length, of_update = np.sqrt((value**2).sum()), np.sqrt((u**2).sum())
        ratio = length / of_update if length > 0 and of_update > 0 else 1.0
        return value - self.rate * ratio * u


def reference_steps(model, batches, optimizer, max_grad_norm, no_decay=(), seed=0, values=None, dropout=None):
    """One big batch after the other, nothing split: the weights that every way of splitting must reach.

    Dropout, where the model has it, is that of a run with this seed. `values` gives the losses that the weights are
    for, of (model, inputs, labels); without it, those of a classifier.
    """
    values = values or _cross_entropy
    dropout = dropout or KeyedRandom(model, 1)
    variables = [v.value if hasattr(v, "path") else v for v in model.trainable_variables]  # Of Keras 3, or of tf_keras.
    for step, (inputs, labels, weights) in enumerate(batches):
        noise = dropout.keyed(noise_key(seed, tf.constant(step, tf.int64)), Rows(0, len(labels)))
        with noise, tf.GradientTape() as tape:
            loss = tf.reduce_sum(values(model, inputs, labels) * weights) / max(1, (weights > 0).sum())
        grads = [tf.convert_to_tensor(g).numpy().astype(np.float64) for g in tape.gradient(loss, variables)]
        norm = np.sqrt(sum((g**2).sum() for g in grads))
        factor = max_grad_norm / max(norm, max_grad_norm) if max_grad_norm else 1.0
        for variable, gradient in zip(model.trainable_variables, grads, strict=True):
            decays = not any(part in _path(variable) for part in no_decay)
            new = optimizer(_path(variable), variable.numpy().astype(np.float64), gradient * factor, decays)
            variable.assign(new.astype(np.float32))
        optimizer.step += 1
    return [v.numpy() for v in model.trainable_variables]


def _cross_entropy(model, inputs, labels):
    logits = tf.cast(model(inputs, training=True).logits, tf.float32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def _path(variable):
    """A name that no other variable has."""
    return getattr(variable, "path", variable.name)
