"""The plan of batches: each example once, a pure function of (seed, epoch), widths that hold, and least padding."""

import itertools

import numpy as np
import pytest

from tests.support.refusals import refused
from tfbert.batches import plan as plans


def lengths_of(count, longest=40, seed=0):
    return np.random.default_rng(seed).integers(2, longest + 1, count).astype(np.int32)


def plan(lengths, batch=8, seed=1, epoch=0, grouped=True, widths=None):
    options = {"global_batch_size": batch, "seed": seed, "epoch": epoch, "group_by_length": grouped}
    widths = plans.exact_widths(lengths) if widths is None else np.array(widths)
    return plans.plan_epoch(lengths, **options, allowed_widths=widths)


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("count, batch", [(1, 1), (1, 8), (7, 8), (8, 8), (9, 8), (37, 16), (64, 8), (1003, 4)])
def test_each_example_is_visited_once_and_the_last_batch_is_filled(count, batch, grouped):
    lengths = lengths_of(count)
    result = plan(lengths, batch, grouped=grouped)
    assert result.rows.shape == (plans.steps_per_epoch(count, batch), batch) == (-(-count // batch), batch)
    flat = result.rows.reshape(-1)
    np.testing.assert_array_equal(np.sort(flat[flat != plans.FILL]), np.arange(count))
    is_filled = flat == plans.FILL
    assert is_filled.sum() == len(flat) - count
    np.testing.assert_array_equal(np.flatnonzero(is_filled), np.arange(count, len(flat)))


@pytest.mark.parametrize("grouped", [True, False])
def test_the_order_is_a_function_of_seed_and_epoch_alone(grouped):
    lengths = lengths_of(100)
    first = plan(lengths, seed=3, epoch=2, grouped=grouped)
    np.random.seed(0)
    np.random.permutation(10)
    again = plan(lengths.copy(), seed=3, epoch=2, grouped=grouped)
    np.testing.assert_array_equal(first.rows, again.rows)
    np.testing.assert_array_equal(first.widths, again.widths)
    for seed, epoch in [(3, 0), (3, 1), (3, 3), (2, 2), (2, 3), (4, 2)]:
        assert (plan(lengths, seed=seed, epoch=epoch, grouped=grouped).rows != first.rows).any(), (seed, epoch)


@pytest.mark.parametrize("count", [1, 3, 6, 7, 8, 9])
def test_few_examples_have_the_same_order_however_a_batch_is_split(count):
    """A batch has fewer rows where that divides: with 6 examples of 8, 6 rows in two parts and 8 in four."""
    lengths = lengths_of(count)
    orders = [plan(lengths, plans.batch_rows(8, count, parts)).rows.reshape(-1) for parts in (1, 2, 4, 8)]
    for order in orders:
        np.testing.assert_array_equal(order[order != plans.FILL], orders[0][orders[0] != plans.FILL])


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("widths", [None, [10, 20, 40], [40], [64]])
def test_each_width_is_the_smallest_allowed_that_holds_the_batch(widths, grouped):
    lengths = lengths_of(101)
    allowed = plans.exact_widths(lengths) if widths is None else widths
    result = plan(lengths, grouped=grouped, widths=widths)
    assert result.widths.dtype == np.int32
    for rows, width in zip(result.rows, result.widths, strict=True):
        longest = max(lengths[row] for row in rows if row != plans.FILL)
        assert width == min(w for w in allowed if w >= longest)


@pytest.mark.parametrize("count, size", [(5, 1), (15, 1), (17, 2), (207, 25), (399, 49), (401, 50), (1007, 50)])
def test_grouping_sorts_pools_of_shuffled_examples(count, size):
    """The definition once more, as a loop."""
    lengths, batch, seed, epoch = lengths_of(count, seed=5), 2, 9, 4
    rng = np.random.Generator(np.random.PCG64([seed, epoch]))
    order = list(rng.permutation(len(lengths)))
    whole = len(order) // batch * batch
    batches = []
    for start in range(0, whole, size * batch):
        pool = sorted(order[start : min(start + size * batch, whole)], key=lambda row: lengths[row])
        pool = [pool[i : i + batch] for i in range(0, len(pool), batch)]
        batches += [pool[i] for i in rng.permutation(len(pool))]
    rest = order[whole:] + [plans.FILL] * (-len(order) % batch)
    np.testing.assert_array_equal(plan(lengths, batch, seed, epoch).rows, [*batches, rest])


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_evaluation_goes_from_long_to_short_and_keeps_the_order_of_equals(dtype):
    lengths = np.array([3, 9, 3, 5, 9, 1, 3], dtype)
    result = plans.plan_in_order_of_length(lengths, global_batch_size=3, allowed_widths=plans.exact_widths(lengths))
    np.testing.assert_array_equal(result.rows, [[1, 4, 3], [0, 2, 6], [5, plans.FILL, plans.FILL]])
    np.testing.assert_array_equal(result.widths, [9, 3, 1])


def test_batches_by_tokens_are_as_large_as_they_may_be():
    lengths = np.array([3, 9, 3, 5, 9, 1, 3])
    found = plans.plan_by_tokens(lengths, 10)
    assert [rows.tolist() for rows in found.rows] == [[1], [4], [3, 0], [2, 6, 5]]
    np.testing.assert_array_equal(found.widths, [9, 9, 5, 3])
    alone = plans.plan_by_tokens(lengths, 1).rows  # Each row is computed, however long.
    assert [len(rows) for rows in alone] == [1] * 7
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 129, 500).astype(np.uint16)
    found = plans.plan_by_tokens(lengths, 2048)
    np.testing.assert_array_equal(np.concatenate(found.rows), np.argsort(-lengths.astype(int), kind="stable"))
    for rows, width in zip(found.rows[:-1], found.widths, strict=False):
        assert width == max(lengths[rows]) and len(rows) == 2048 // width


def test_micro_batch_size():
    for *sizes, expected in ((32, 1, 1, 32), (32, 2, 4, 4), (6, 2, 3, 1), (48, 4, 3, 4)):
        assert plans.micro_batch_size(*sizes) == expected


@pytest.mark.parametrize(
    "batch, replicas, accumulation, nearest",
    [
        (33, 2, 2, "--global_batch_size=32 or 36"),
        (30, 4, 1, "--global_batch_size=28 or 32"),
        (5, 4, 2, "--global_batch_size=8,"),
        (1, 1, 2, "--global_batch_size=2,"),
    ],
)
def test_a_batch_that_does_not_split_names_the_nearest_that_do(batch, replicas, accumulation, nearest):
    with refused(rf"global_batch_size={batch}\..*{nearest}"):
        plans.micro_batch_size(batch, replicas, accumulation)


def padding(lengths, widths):
    return sum(min(w for w in widths if w >= length) - length for length in lengths)


@pytest.mark.parametrize("max_widths", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("seed", range(4))
def test_few_widths_pad_least_of_all_choices(seed, max_widths):
    rng = np.random.default_rng(seed)
    lengths = rng.choice(rng.integers(1, 60, 8), rng.integers(1, 40))
    chosen = plans.few_widths(lengths, max_widths)
    assert len(chosen) <= max_widths
    assert chosen[-1] == lengths.max() and (np.diff(chosen) > 0).all()
    values = sorted(set(lengths.tolist()))
    least = min(
        padding(lengths, (*some, values[-1]))
        for size in range(min(max_widths, len(values)))
        for some in itertools.combinations(values[:-1], size)
    )
    assert padding(lengths, chosen) == least
