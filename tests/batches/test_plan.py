"""The plan of batches, as a whole, packed or of each pool by itself: each example once, a pure function of (seed,
epoch), widths that hold, least padding; packed, a place of its own for each, and little waste."""

import functools
import itertools

import numpy as np
import pytest

from tests.support.batches import lengths_like_sst2, packed_plan
from tests.support.refusals import refused
from tfbert.batches import plan as plans
from tfbert.batches.plan import FILL, PackedShape, balanced_batches, place, split_balanced
from tfbert.data.permutation import permuted

WIDTHS = np.arange(1, 65)


def lengths_of(count, longest=40, seed=0):
    return np.random.default_rng(seed).integers(2, longest + 1, count).astype(np.int32)


def plan(lengths, batch=8, seed=1, epoch=0, grouped=True, widths=None):
    options = {"global_batch_size": batch, "seed": seed, "epoch": epoch, "group_by_length": grouped}
    widths = np.arange(1, max(lengths) + 1) if widths is None else np.array(widths)
    return plans.plan_epoch(lengths, **options, allowed_widths=widths)


def plans_of(lengths, batch=4, *, first_batch=0, grouped=True):
    options = {"global_batch_size": batch, "seed": 3, "epoch": 1, "group_by_length": grouped}
    return list(plans.plan_pools(lengths, **options, allowed_widths=WIDTHS, first_batch=first_batch))


def first_pool(*given):
    return plans_of(*given)[0]


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("count, batch", [(1, 1), (1, 8), (7, 8), (8, 8), (9, 8), (37, 16), (64, 8), (1003, 4)])
def test_each_example_is_visited_once_and_the_last_batch_is_filled(count, batch, grouped):
    lengths = lengths_of(count)
    result = plan(lengths, batch, grouped=grouped)
    assert result.rows.shape == (plans.steps_per_epoch(count, batch), batch) == (-(-count // batch), batch)
    flat = result.rows.reshape(-1)
    np.testing.assert_array_equal(np.sort(flat[:count]), np.arange(count))
    assert (flat[count:] == FILL).all()


PLANNERS = {"grouped": plan, "in any order": functools.partial(plan, grouped=False)}
PLANNERS |= {"packed": functools.partial(packed_plan, batch=8, epochs=4)}


@pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)
def test_the_order_is_a_function_of_seed_and_epoch_alone(planner):
    lengths = lengths_of(100)
    first = planner(lengths, seed=3, epoch=2)
    np.random.seed(0)
    np.random.permutation(10)
    again = planner(lengths.copy(), seed=3, epoch=2)
    np.testing.assert_array_equal(first.rows, again.rows)
    np.testing.assert_array_equal(first.widths, again.widths)
    for seed, epoch in [(3, 0), (3, 1), (3, 3), (2, 2), (2, 3), (4, 2)]:
        assert (planner(lengths, seed=seed, epoch=epoch).rows != first.rows).any(), (seed, epoch)


@pytest.mark.parametrize("planner", [plan, first_pool], ids=["whole", "pools"])
@pytest.mark.parametrize("count", [1, 3, 6, 7, 8, 9])
def test_few_examples_have_the_same_order_however_a_batch_is_split(count, planner):
    """A batch has fewer rows where that divides: with 6 examples of 8, 6 rows in two parts and 8 in four."""
    lengths = lengths_of(count)
    orders = [planner(lengths, plans.batch_rows(8, count, parts)).rows.reshape(-1) for parts in (1, 2, 4, 8)]
    for order in orders:
        np.testing.assert_array_equal(order[order != FILL], orders[0][orders[0] != FILL])


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("widths", [None, [10, 20, 40], [40], [64]])
def test_each_width_is_the_smallest_allowed_that_holds_the_batch(widths, grouped):
    lengths = lengths_of(101)
    allowed = np.arange(1, max(lengths) + 1) if widths is None else widths
    result = plan(lengths, grouped=grouped, widths=widths)
    assert result.widths.dtype == np.int32
    for rows, width in zip(result.rows, result.widths, strict=True):
        longest = max(lengths[row] for row in rows if row != FILL)
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
    rest = order[whole:] + [FILL] * (-len(order) % batch)
    np.testing.assert_array_equal(plan(lengths, batch, seed, epoch).rows, [*batches, rest])


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_evaluation_goes_from_long_to_short_and_keeps_the_order_of_equals(dtype):
    lengths = np.array([3, 9, 3, 5, 9, 1, 3], dtype)
    result = plans.plan_longest_first(lengths, lambda width: 3, 2)
    assert [rows.tolist() for rows in result.rows] == [[1, 4, 3, 0, 2, 6], [5, FILL]]
    np.testing.assert_array_equal(result.widths, [9, 1])


def test_batches_by_tokens_are_as_large_as_they_may_be():
    lengths = np.array([3, 9, 3, 5, 9, 1, 3])
    found = plans.plan_longest_first(lengths, lambda width: 10 // width)
    assert [rows.tolist() for rows in found.rows] == [[1], [4], [3, 0], [2, 6, 5]]
    np.testing.assert_array_equal(found.widths, [9, 9, 5, 3])
    alone = plans.plan_longest_first(lengths, lambda width: 1 // width).rows  # Each row is computed, however long.
    assert [len(rows) for rows in alone] == [1] * 7
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 129, 500).astype(np.uint16)
    found = plans.plan_longest_first(lengths, lambda width: 2048 // width)
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


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("count, batch", [(1, 4), (3, 4), (4, 4), (9, 8), (203, 8), (1000, 16)])
def test_each_example_is_visited_once_on_places_of_its_own(count, batch, parts):
    lengths = lengths_like_sst2(count)
    result = packed_plan(lengths, batch, parts)
    shape = result.shape
    assert (shape.num_parts, shape.num_examples) == (parts, batch // parts)
    assert result.rows.shape == result.starts.shape == (-(-count // batch), batch)
    flat = result.rows.reshape(-1)
    np.testing.assert_array_equal(np.sort(flat[flat != FILL]), np.arange(count))
    whole = count // batch
    assert (result.rows[:whole] != FILL).all(), "only the last batch is short"
    for rows, starts in zip(result.rows, result.starts, strict=True):
        for part_rows, part_starts in zip(rows.reshape(parts, -1), starts.reshape(parts, -1), strict=True):
            taken = np.zeros((shape.num_rows, shape.width), int)
            for row, start in zip(part_rows, part_starts, strict=True):
                if row == FILL:
                    assert start == 0
                    continue
                line, first = divmod(start, shape.width)
                assert first + lengths[row] <= shape.width, "an example ends in the row it begins in"
                taken[line, first : first + lengths[row]] += 1
            assert taken.max() <= 1


def test_which_examples_meet_does_not_depend_on_the_split():
    lengths = lengths_like_sst2(203)
    whole, split = packed_plan(lengths, parts=1), packed_plan(lengths, parts=8)
    np.testing.assert_array_equal(np.sort(whole.rows, axis=1), np.sort(split.rows, axis=1))


@pytest.mark.parametrize("lengths", [lengths_like_sst2(256), np.arange(10, 266), np.full(256, 7)])
def test_epochs_differ_in_which_examples_meet(lengths):
    epochs = [balanced_batches(lengths, global_batch_size=8, seed=1, epoch=epoch) for epoch in (0, 1)]
    pairs = [{p for row in rows.tolist() for p in itertools.combinations(sorted(row), 2)} for rows in epochs]
    assert len(pairs[0] & pairs[1]) < len(pairs[0]) / 4


def test_batches_and_parts_have_about_equally_many_tokens():
    lengths = lengths_like_sst2(16 * 50 + 9)
    rows = balanced_batches(lengths, global_batch_size=16, seed=1, epoch=0)
    totals = lengths[rows[:-1]].sum(axis=1)
    free = lengths[np.random.default_rng(0).permutation(len(lengths))[: 16 * 50].reshape(50, 16)].sum(axis=1)
    assert np.ptp(totals) < 0.05 * totals.mean() < np.ptp(free) / 5
    # The short batch holds its share of long texts, no more.
    rest = lengths[rows[-1][rows[-1] != FILL]]
    assert len(rest) == 9 and abs(rest.mean() - lengths.mean()) < 0.25 * lengths.mean()
    parts = split_balanced(rows[:-1], lengths, 4)
    np.testing.assert_array_equal(np.sort(parts.reshape(50, 16), axis=1), np.sort(rows[:-1], axis=1))
    by_part = lengths[parts].sum(axis=2)
    assert (by_part.max(axis=1) <= np.maximum(lengths[parts].max(axis=(1, 2)) + 16, 1.3 * by_part.mean(axis=1))).all()


def best_fit_decreasing(lengths, num_rows, width):
    """One micro-batch, an example at a time."""
    free = [width] * num_rows
    starts = []
    for length in lengths:
        if not length:
            starts.append(0)
            continue
        holding = [row for row in range(num_rows) if free[row] >= length]
        if not holding:
            return None
        row = min(holding, key=lambda row: free[row])
        starts.append(row * width + width - free[row])
        free[row] -= length
    return starts


@pytest.mark.parametrize("seed", range(20))
def test_places_are_those_of_best_fit_decreasing(seed):
    rng = np.random.default_rng(seed)
    lengths = -np.sort(-rng.integers(0, 12, (5, 8)), axis=1)
    num_rows, width = int(rng.integers(2, 7)), int(rng.integers(11, 20))
    expected = [best_fit_decreasing(line, num_rows, width) for line in lengths.tolist()]
    found, misfit = place(lengths, num_rows, width)
    if misfit is not None:
        assert expected[lengths.tolist().index(misfit.tolist())] is None
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", range(5))
def test_the_shape_is_the_cheapest_that_holds_all(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 12, 60)
    own = {"global_batch_size": 6, "seed": seed}
    found = plans.choose_packed_shape(lengths, **own, epochs=range(2), num_parts=2, max_width=20)
    assert (found.num_parts, found.num_examples) == (2, 3)
    found = found.num_rows, found.width
    parts = [split_balanced(balanced_batches(lengths, **own, epoch=epoch), lengths, 2) for epoch in range(2)]

    def holds(num_rows, width):
        lines = np.concatenate([lengths[p].reshape(-1, 3) for p in parts])
        return all(best_fit_decreasing(line, num_rows, width) is not None for line in lines.tolist())

    options = [(rows, width) for rows in range(1, 4) for width in range(lengths.max(), 21) if holds(rows, width)]
    assert found in options
    cost = {(rows, width): rows * width * (1 + width / 2000) for rows, width in options}
    assert cost[found] == min(cost.values())


def test_part_takes_up_a_plan_in_its_middle():
    whole = packed_plan(lengths_like_sst2(100))
    rest = whole.part(slice(3, None))
    np.testing.assert_array_equal(rest.rows, whole.rows[3:])
    np.testing.assert_array_equal(rest.starts, whole.starts[3:])
    assert len(rest) == len(whole) - 3 and rest.shape == whole.shape == PackedShape(**vars(whole.shape))


@pytest.mark.parametrize("batch, parts, least", [(32, 1, 0.96), (64, 1, 0.97), (32, 2, 0.95)])
def test_almost_all_tokens_are_real(batch, parts, least):
    lengths = lengths_like_sst2(32 * 400)
    result = packed_plan(lengths, batch, parts, epochs=3)
    assert result.shape.width <= 128
    assert lengths.sum() / (len(result) * result.shape.num_tokens) >= least


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 1000, 4096, 4097])
def test_every_number_comes_once(count):
    order = permuted(np.arange(count), count, seed=1, epoch=2)
    np.testing.assert_array_equal(np.sort(order), np.arange(count))
    backwards = permuted(np.arange(count)[::-1], count, seed=1, epoch=2)
    np.testing.assert_array_equal(backwards[::-1], order, err_msg="a place's number depends on no other place")


def test_the_order_is_a_function_of_seed_and_epoch():
    orders = [permuted(np.arange(500), 500, seed=seed, epoch=epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    np.testing.assert_array_equal(orders[0], permuted(np.arange(500), 500, seed=1, epoch=0))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (orders[first] == orders[second]).sum() < 10  # 1 is expected.
    # The same on every machine and in every version: a run that goes on depends on it.
    assert permuted(np.arange(5), 1000, seed=42, epoch=3).tolist() == [384, 42, 721, 754, 784]


def test_orders_pass_for_random():
    count, epochs = 61, 300
    orders = np.stack([permuted(np.arange(count), count, seed=0, epoch=epoch) for epoch in range(epochs)])
    # Chi-squared over (place, number) and over (number, number after it), far from 4 standard deviations.
    for pairs in (np.arange(count) * count + orders, orders[:, :-1] * count + orders[:, 1:]):
        seen = np.bincount(pairs.reshape(-1), minlength=count**2)
        expected = pairs.size / count**2
        statistic = ((seen - expected) ** 2 / expected).sum()
        assert abs(statistic - count**2) < 5 * np.sqrt(2) * count
    displaced = np.abs(orders - np.arange(count)).mean()
    assert abs(displaced - count / 3) < 0.6


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("count", [3, 16, 17, 200, 202, 450, 600, 801])
def test_an_epoch_visits_every_record_once(count, grouped):
    lengths = lengths_of(count, longest=64)
    pools = plans_of(lengths, grouped=grouped)
    assert [len(pool) for pool in pools[:-1]] == [plans.batches_of_a_pool(count, 4)] * (len(pools) - 1)
    rows = np.concatenate([pool.rows for pool in pools])
    assert len(rows) == -(-count // 4) and all(pool.epoch == 1 for pool in pools)
    np.testing.assert_array_equal(np.sort(rows[rows != FILL]), np.arange(count))
    is_fill = rows == FILL
    assert is_fill.sum() == -count % 4 and not is_fill[:-1].any(), "the short batch is the last one"
    widths = np.concatenate([pool.widths for pool in pools])
    np.testing.assert_array_equal(widths, np.where(is_fill, 0, lengths[rows]).max(axis=1))


@pytest.mark.parametrize("first", [0, 1, 49, 50, 51, 120, 149])
def test_a_run_goes_on_at_any_batch(first):
    lengths = lengths_of(598, longest=64)
    whole, rest = (np.concatenate([pool.rows for pool in plans_of(lengths, first_batch=start)]) for start in (0, first))
    np.testing.assert_array_equal(rest, whole[first:])


def test_batches_hold_records_of_like_lengths_at_random_times():
    lengths = lengths_of(4000, longest=64)
    grouped, free = (plans_of(lengths, 16, grouped=is_grouped) for is_grouped in (True, False))
    padded = [sum(int(pool.widths.sum()) * 16 for pool in pools) for pools in (grouped, free)]
    real = int(lengths.sum())
    assert padded[0] < 1.05 * real < 1.5 * real < padded[1]
    widths = grouped[0].widths.astype(float)
    assert abs(np.corrcoef(widths[:-1], widths[1:])[0, 1]) < 0.5, "pools are not in order of length"


def test_a_pool_looks_only_at_its_own_records():
    class Watched:
        asked = 0

        def __len__(self):
            return 10**9

        def __getitem__(self, indices):
            self.asked += np.size(indices)
            return np.asarray(indices) % 60 + 5

    lengths = Watched()
    options = {"global_batch_size": 8, "seed": 0, "epoch": 0, "group_by_length": True, "allowed_widths": WIDTHS}
    pool = next(plans.plan_pools(lengths, **options, first_batch=2_000_000 * plans.GROUP_BATCHES))
    assert len(pool) == plans.GROUP_BATCHES and lengths.asked == plans.GROUP_BATCHES * 8
    assert np.ptp(pool.rows) > 10**9 / 2, "from all over the corpus"
