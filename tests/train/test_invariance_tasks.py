"""Updates on tagged words, on answers, on several labels a text and on texts in windows are those of one big batch
however it is split: split sentences and windows, weights of classes, and a ragged last batch included; packed rows of
sentences and of windows compute what plain ones do."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import packed_batches, packed_plan
from tests.support.models import VOCAB, NumpyAdamW, reference_steps, strategy_of, tiny_bert
from tests.support.task_runs import CHOICES, LABELS, QUESTIONS, SENTENCES, write_tasks
from tests.support.updates import CLIP, DECAY, EPSILON, RATE, TOLERANCE, assert_equal_weights, build
from tfbert import AnsweringConfig, DataConfig, TrainingConfig
from tfbert.batches.pipeline import make_dataset
from tfbert.batches.plan import BatchPlan, plan_epoch
from tfbert.bert.models import class_of
from tfbert.config.tasks import TaskOptions
from tfbert.step.updates import NO_DECAY
from tfbert.tasks.tables import load_data
from tfbert.tokens.tokenizer import BertTokenizer

WINDOWS = "windows"  # Of texts with several labels.
BATCH, WIDTH, SMOOTHING = 8, {SENTENCES: 16, QUESTIONS: 24, CHOICES: 24, LABELS: 16, WINDOWS: 8}, 0.1
OPTIONS = TaskOptions(answering=AnsweringConfig(doc_stride=9, max_query_length=5, version_2_with_negative=True))
TRAINING = TrainingConfig(label_smoothing=SMOOTHING, class_weights=(1.0, 2.0, 0.5, 1.5))
WEIGHTS = np.array(TRAINING.class_weights, np.float32)
QUICK = [(QUESTIONS, 1, 2), (CHOICES, 2, 1), (WINDOWS, 1, 2)]
"""tests/step/test_terms.py has labels of tokens; labels of texts are those of windows with one window each; both splits
at once are in tests/step/test_splits.py."""
GRID = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in itertools.product(WIDTH, (1, 2), (1, 2, 4))
]


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """By task, the task and 19 rows of its training data."""
    directory = tmp_path_factory.mktemp("tasks")
    write_tasks(directory)
    words = (directory / "vocab.txt").read_text().split()
    tokenizer = BertTokenizer(words + [f"[unused{i}]" for i in range(VOCAB - len(words))])
    found = {}
    files = {SENTENCES: "train.conll", QUESTIONS: "train.json", CHOICES: "train.jsonl", LABELS: "train-labels.jsonl"}
    for name, file in (files | {WINDOWS: files[LABELS]}).items():
        task = LABELS if name == WINDOWS else name
        data = load_data(DataConfig(train_file=str(directory / file), task=task), OPTIONS)
        own = tokenizer.cutting("windows") if name == WINDOWS else tokenizer
        rows = data.task.encode(data.train, own, WIDTH[name], TRAINING)
        assert len(rows.tokens) > len(data.train) or name == LABELS, "long ones must be split"
        found[name] = data.task, rows
    return found


def plan_of(rows):
    """A whole batch and a ragged one."""
    lengths = rows.lengths if rows.lengths.ndim == 1 else rows.lengths.max(axis=1)
    widths = np.arange(1, max(lengths) + 1)
    plan = plan_epoch(lengths, global_batch_size=BATCH, seed=3, epoch=0, group_by_length=True, allowed_widths=widths)
    last = plan.rows[-1].copy()
    last[5:] = -1
    # The ragged batch is narrower than the longest row, whose labels may be places that it does not have.
    order = np.argsort(lengths, kind="stable")
    last[:5] = order[:5]
    assert lengths[order[4]] < lengths.max()
    widths = np.array([plan.widths[0], lengths[order[4]]], np.int32)
    return BatchPlan(rows=np.stack([plan.rows[0], last]), widths=widths)


def tag_losses(model, inputs, labels):
    """Of each token, with label smoothing, by the model's own call."""
    log_p = tf.nn.log_softmax(model(inputs, training=True).logits)
    own = tf.gather(log_p, labels, batch_dims=2)
    return -(1 - SMOOTHING) * own - SMOOTHING * tf.reduce_mean(log_p, axis=-1)


def span_losses(model, inputs, labels):
    """Of each row, the mean for its start and end by the model's own call, among the tokens that are there."""
    found = model(inputs, training=True)
    missing = -10000.0 * tf.cast(1 - inputs["attention_mask"], tf.float32)
    ends = (found.start_logits + missing, found.end_logits + missing)
    losses = [tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, i], ends[i]) for i in range(2)]
    return (losses[0] + losses[1]) / 2


def choice_losses(model, inputs, labels):
    """Of each row, by the model's own call over the choices that are there, one at a time."""
    is_there = tf.reduce_sum(inputs["attention_mask"], axis=2) > 1
    each = [
        model({name: value[:, i : i + 1] for name, value in inputs.items()}, training=True).logits
        for i in range(is_there.shape[1])
    ]
    shares = tf.where(is_there, tf.exp(tf.concat(each, axis=1)), 0.0)
    shares = tf.where(is_there[:, :1], shares, 1.0)  # A row that only fills the batch has no choices.
    return tf.math.log(tf.reduce_sum(shares, axis=1)) - tf.math.log(tf.gather(shares, labels, batch_dims=1))


def label_losses(model, inputs, labels):
    """Of each row, the mean over labels with label smoothing and the weights of those that the row has."""
    return _label_losses(tf.cast(model(inputs, training=True).logits, tf.float32), labels)


def window_losses(model, inputs, labels):
    """The same from the mean of the logits of a row's windows, by the model's own call of one at a time."""
    is_there, total = tf.reduce_sum(inputs["attention_mask"], axis=2) > 1, 0.0
    for i in range(is_there.shape[1]):
        logits = model({name: value[:, i] for name, value in inputs.items()}, training=True).logits
        total += tf.where(is_there[:, i : i + 1], logits, 0.0)
    counts = tf.math.count_nonzero(is_there, axis=1, keepdims=True, dtype=tf.float32)
    return _label_losses(tf.math.divide_no_nan(total, counts), labels)


def _label_losses(logits, labels):
    has = tf.cast(labels > 0, tf.float32)
    targets = has * (1 - SMOOTHING) + SMOOTHING / 2
    terms = -targets * tf.math.log_sigmoid(logits) - (1 - targets) * tf.math.log_sigmoid(-logits)
    return tf.reduce_mean(terms * (1 + has * (WEIGHTS - 1)), axis=1)


VALUES = {SENTENCES: tag_losses, QUESTIONS: span_losses, CHOICES: choice_losses, LABELS: label_losses}
VALUES[WINDOWS] = window_losses


def make_model(task):
    head = task.head()
    return tiny_bert(num_labels=len(head.labels), num_hidden_layers=1, kind=class_of("bert", head.kind))


@pytest.fixture(scope="module")
def reference(encoded):
    """By task, the weights after two updates with whole batches in NumPy."""

    @functools.cache
    def weights(name):
        task, rows = encoded[name]
        plans = [plan_of(rows)]
        batches = list(make_dataset(rows, plans.__iter__, range(1), 1).as_numpy_iterator())
        model, optimizer = make_model(task), NumpyAdamW(RATE, DECAY, EPSILON)
        return reference_steps(model, batches, optimizer, CLIP, NO_DECAY, values=VALUES[name])

    return weights


@pytest.mark.parametrize("name, replicas, micro_batches", GRID)
def test_every_split_gives_the_updates_of_one_big_batch(encoded, reference, name, replicas, micro_batches):
    task, rows = encoded[name]
    plan = plan_of(rows)
    model = build(
        lambda: make_model(task),
        replicas=replicas,
        loss=task.loss(TRAINING),
        gradient_accumulation_steps=micro_batches,
        max_grad_norm=CLIP,
        forward=task.head().forward,
    )
    model.is_foreign = False  # As in a run.
    dataset = strategy_of(replicas).distribute_datasets_from_function(
        lambda _: make_dataset(rows, lambda: iter([plan]), range(replicas), replicas)
    )
    model.fit(dataset, steps_per_epoch=len(plan), verbose=0)
    assert int(model.counters.skipped_steps.numpy()) == 0
    assert_equal_weights(model, reference(name), TOLERANCE["float32"])


@pytest.mark.parametrize("name", [SENTENCES, WINDOWS, pytest.param(LABELS, marks=pytest.mark.slow)])
def test_packed_examples_give_the_loss_and_gradients_of_plain_ones(encoded, name):
    task, rows = encoded[name]
    plan = packed_plan(rows.lengths, BATCH, seed=3, epochs=1, max_width=48)
    packed = packed_batches(rows, plan)
    widths = np.full(len(plan), rows.lengths.max(), np.int32)
    plain = list(make_dataset(rows, lambda: iter([BatchPlan(rows=plan.rows, widths=widths)]), range(1), 1))
    model, loss = make_model(task), task.loss(TRAINING)

    @tf.function
    def compute(inputs, labels, weights):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(weights * loss.call(labels, task.head().forward(model, inputs, True)))
        gradients = tape.gradient(value, model.trainable_variables)
        return value, tf.reduce_sum(tf.cast(weights > 0, tf.int32)), [tf.convert_to_tensor(g) for g in gradients]

    counts = []
    for one, other in zip(packed, plain, strict=True):
        (found, count, mine), (expected, same, theirs) = compute(*one), compute(*other)
        assert one[0]["input_ids"].shape[0] < other[0]["input_ids"].shape[0], "rows hold several sentences"
        counts.append(int(count))
        assert count == same and float(found) == pytest.approx(float(expected), rel=1e-5)
        size = float(tf.linalg.global_norm(theirs))
        for variable, a, b in zip(model.trainable_variables, mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, size), rtol=0, err_msg=variable.name)
    assert sum(counts) == (len(rows.first_pieces) if name == SENTENCES else len(rows)), "every label counts once"
