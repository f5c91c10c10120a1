"""Speeds and the model's arithmetic, against NumPy and against TensorFlow's own count; and updates on a CPU in 16 bits
leave out TensorFlow's graph optimizer, and nothing else does."""

import itertools
import math
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import config_of
from tests.support.models import strategy_of, tiny_bert
from tfbert import measure
from tfbert.batches.plan import FILL
from tfbert.batches.schedule import plan_run, planned_steps, training_batches
from tfbert.bert.models import TFBertForPreTraining
from tfbert.measure import as_traced
from tfbert.model.forward import forward, forward_pretraining


def ticking(readings):
    """A clock that shows these seconds, one after the other."""
    return iter(readings).__next__


def step_clock(*arguments, clock, **options):
    made = measure.StepClock(*arguments, **options)
    made._clock = clock
    return made


def planned(examples, tokens, widths):
    return (
        (measure.Work(examples=e, tokens=t, squared_tokens=t * t), w)
        for e, t, w in zip(examples, tokens, widths, strict=True)
    )


@pytest.mark.parametrize("compiles_widths", [False, True])
def test_speeds_are_numpys(compiles_widths):
    rng = np.random.default_rng(0)
    n, warm_up = 40, 7
    seconds, examples, tokens = rng.random(n), rng.integers(1, 9, n), rng.integers(10, 90, n)
    widths = rng.integers(1, 6, n)
    clock = step_clock(
        planned(examples.tolist(), tokens.tolist(), widths.tolist()),
        warm_up=warm_up,
        compiles_widths=compiles_widths,
        clock=ticking(np.concatenate([[5.0], 5.0 + np.cumsum(seconds)]).tolist()),
    )
    clock.start()
    for _ in range(n):
        clock.tick()
    compiles = np.arange(n) == 0
    if compiles_widths:
        compiles[np.unique(widths, return_index=True)[1]] = True
    steady = (np.arange(n) >= warm_up) & ~compiles
    for speed, counted in ((clock.total, compiles | True), (clock.usual, ~compiles), (clock.steady, steady)):
        time_taken = seconds[counted].sum()
        assert (speed.steps, speed.seconds) == (counted.sum(), pytest.approx(time_taken))
        assert speed.examples_per_second == pytest.approx(examples[counted].sum() / time_taken)
        assert speed.tokens_per_second == pytest.approx(tokens[counted].sum() / time_taken)
        assert speed.work.squared_tokens == (tokens[counted] ** 2).sum()
    for percent in (50, 95):
        assert clock.percentile(percent) == pytest.approx(np.percentile(seconds[steady], percent))
    expected = (seconds[compiles] - np.median(seconds[steady])).sum()
    assert clock.compile_seconds() == pytest.approx(expected)


def test_pauses_do_not_count_and_stretches_add_up():
    clock = step_clock(planned([4] * 3, [8] * 3, [8] * 3), warm_up=1, clock=ticking([0.0, 2.0, 7.0, 8.0]))
    clock.start()
    clock.tick()
    clock.paused += 4.0  # An evaluation after the first update.
    clock.tick()
    first = clock.take_recent()
    clock.tick()
    assert (first.seconds, first.steps) == (3.0, 2)
    assert (clock.take_recent().seconds, clock.take_recent().steps) == (1.0, 0)
    assert (clock.total.seconds, clock.steady.seconds) == (4.0, 2.0)


def test_a_run_of_one_update_has_no_steady_speed():
    clock = step_clock(planned([4], [8], [8]), warm_up=0, clock=ticking([0.0, 2.0]))
    clock.start()
    clock.tick()
    assert clock.total.examples_per_second == 2.0
    assert all(math.isnan(x) for x in (clock.steady.examples_per_second, clock.percentile(50), clock.compile_seconds()))


@pytest.mark.parametrize("batching", ["length_grouped", "packed"])
@pytest.mark.parametrize("first_step", [0, 9])
def test_planned_steps_are_what_the_plans_say(first_step, batching):
    lengths = np.random.default_rng(0).integers(3, 30, 52)
    config = config_of(batching, batch=8)
    schedule = plan_run(config, len(lengths))
    schedule = type(schedule)(**{**vars(schedule), "first_step": first_step})
    batches = training_batches(config, lengths, schedule, num_replicas=1)
    plans = batches.plans
    steps = list(planned_steps(plans(), lengths))
    rows = np.concatenate([plan.rows for plan in plans()])
    assert len(steps) == schedule.total_steps - first_step == len(rows)
    for (work, width), row in zip(steps, rows, strict=True):
        chosen = lengths[row[row != FILL]]
        assert work == measure.Work(examples=len(chosen), tokens=chosen.sum(), squared_tokens=(chosen**2).sum())
        assert width == (batches.shape.width if batches.shape else chosen.max())
    if not first_step:
        assert sum((work for work, _ in steps), measure.Work()).tokens == 2 * lengths.sum()


_ADJOINT = {"MatMul": ("transpose_a",), "BatchMatMulV2": ("adj_x",)}


def products_of(compute, inputs):
    """The floating-point operations of the products in a graph, from the shapes in it."""
    graph = tf.function(compute).get_concrete_function(inputs).graph

    def product(node):
        """Twice the multiplications of a product."""
        out = int(np.prod(node.outputs[0].shape))
        inner = node.inputs[0].shape[-2 if node.get_attr(_ADJOINT[node.type][0]) else -1]
        return 2 * out * inner

    assert not [node for node in graph.get_operations() if node.type == "Einsum"]
    return sum(product(node) for node in graph.get_operations() if node.type in _ADJOINT)


def specs(width, **others):
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {n: tf.TensorSpec([1, w], tf.int32) for n, w in (dict.fromkeys(names, width) | others).items()}


def test_forward_flops_are_the_products_tensorflow_counts():
    """One text without padding: TensorFlow's profiler counts the same products, and some element-wise work."""
    model, width = tiny_bert(num_labels=3), 24
    found = products_of(lambda x: forward(model, x, training=False), specs(width))
    work = measure.Work(examples=1, tokens=width, squared_tokens=width**2)
    assert measure.forward_flops(model.config, work) == found
    assert measure.training_flops(model.config, work) == 3 * found


def test_forward_flops_of_masked_words_are_the_products_tensorflow_counts():
    model, width, masked = tiny_bert(num_labels=2, kind=TFBertForPreTraining), 12, 3
    inputs = specs(width, masked_lm_positions=masked)
    found = products_of(lambda x: forward_pretraining(model, x, training=False), inputs)
    work = measure.Work(examples=1, tokens=width, squared_tokens=width**2)
    assert measure.forward_flops(model.config, work, masked_share=masked / width) == pytest.approx(found)


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_data_clock_sees_a_slow_pipeline(replicas):
    strategy, pause, steps = strategy_of(replicas), 0.05, 5

    def slow():
        for number in itertools.count():
            time.sleep(pause)
            yield np.int32(number)

    def dataset(_):
        return tf.data.Dataset.from_generator(slow, output_signature=tf.TensorSpec([], tf.int32))

    def update(batch):
        return strategy.reduce("SUM", strategy.run(tf.identity, args=(batch,)), axis=None)

    def waited(data):
        batches, before = iter(data), clock.seconds
        for _ in range(steps):
            timed(batches).numpy()
        return clock.seconds - before

    with strategy.scope():
        clock = measure.DataClock()
    timed = clock.timed(update)
    # Each replica's batch takes a pause to make; what is made while the step runs need not be waited for.
    assert waited(strategy.distribute_datasets_from_function(dataset)) > 0.3 * pause * steps * replicas
    quick = tf.data.Dataset.range(100, output_type=tf.int32).prefetch(8)
    assert waited(strategy.distribute_datasets_from_function(lambda _: quick)) < 0.3 * pause * steps


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_batch_is_taken_only_after_its_time(replicas):
    """A machine with one core would otherwise read the clock after the step: 97% waiting in place of 0.4%."""
    strategy = strategy_of(replicas)
    data = tf.data.Dataset.from_tensors(({"ids": tf.ones([4, 2], tf.int32)}, tf.ones([4]))).repeat()

    @tf.function(autograph=False)
    def take(batches):
        batch, _ = measure.timed_next(batches, asked=measure.ASKED, arrived=measure.ARRIVED)
        return strategy.run(lambda inputs, labels: tf.reduce_sum(inputs["ids"]) + tf.cast(labels[0], tf.int32), batch)

    graph = take.get_concrete_function(iter(strategy.experimental_distribute_dataset(data))).graph
    made = {op.name: op for op in graph.get_operations() if op.type == "IteratorGetNext"}
    arrived, taken = graph.get_operation_by_name(measure.ARRIVED), []
    for op in graph.get_operations():
        sources = [made[tensor.op.name] for tensor in op.inputs if tensor.op.name in made]
        if sources:
            taken.append(op)
            assert arrived in op.control_inputs and op.type == "Identity"
            assert op.colocation_groups() == sources[0].colocation_groups(), "or all pass through the first device"
    assert len(made) == replicas and len(taken) == 2 * replicas


def is_off():
    return tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)


@pytest.mark.parametrize("dtype, without", [("bfloat16", True), ("float16", True), ("float32", False)])
def test_only_updates_in_16_bits_leave_it_out(optimised_graphs, dtype, without):
    seen = []
    as_traced(lambda: seen.append(is_off()), dtype)()
    assert seen == [without] and not is_off()


def test_it_is_back_after_an_error(optimised_graphs):
    with pytest.raises(ZeroDivisionError):
        as_traced(lambda: 1 / 0, "bfloat16")()
    assert not is_off()
