"""Orders of records that are computed where they are asked for: permutations, and plans of each pool by itself."""

import numpy as np
import pytest

from tfbert.batches.plan import FILL, GROUP_BATCHES, batch_rows, batches_of_a_pool, plan_pools
from tfbert.data.permutation import permuted

WIDTHS = np.arange(1, 65)


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


def lengths_of(count, seed=0):
    return np.random.default_rng(seed).integers(5, 65, count)


def plans_of(lengths, batch=4, *, first_batch=0, grouped=True, epoch=1):
    options = {"global_batch_size": batch, "seed": 3, "epoch": epoch, "allowed_widths": WIDTHS}
    return list(plan_pools(lengths, **options, group_by_length=grouped, first_batch=first_batch))


@pytest.mark.parametrize("count", [1, 3, 6, 7, 8, 9])
def test_few_records_have_the_same_order_however_a_batch_is_split(count):
    lengths = lengths_of(count)
    orders = [plans_of(lengths, batch_rows(8, count, parts))[0].rows.reshape(-1) for parts in (1, 2, 4, 8)]
    for order in orders:
        np.testing.assert_array_equal(order[order != FILL], orders[0][orders[0] != FILL])


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("count", [3, 16, 17, 200, 202, 450, 600, 801])
def test_an_epoch_visits_every_record_once(count, grouped):
    lengths = lengths_of(count)
    plans = plans_of(lengths, grouped=grouped)
    assert [len(plan) for plan in plans[:-1]] == [batches_of_a_pool(count, 4)] * (len(plans) - 1)
    rows = np.concatenate([plan.rows for plan in plans])
    assert len(rows) == -(-count // 4) and all(plan.epoch == 1 for plan in plans)
    np.testing.assert_array_equal(np.sort(rows[rows != FILL]), np.arange(count))
    is_fill = rows == FILL
    assert is_fill.sum() == -count % 4 and not is_fill[:-1].any(), "the short batch is the last one"
    widths = np.concatenate([plan.widths for plan in plans])
    np.testing.assert_array_equal(widths, np.where(is_fill, 0, lengths[rows]).max(axis=1))


@pytest.mark.parametrize("first", [0, 1, 49, 50, 51, 120, 149])
def test_a_run_goes_on_at_any_batch(first):
    lengths = lengths_of(598)
    whole, rest = (np.concatenate([plan.rows for plan in plans_of(lengths, first_batch=start)]) for start in (0, first))
    np.testing.assert_array_equal(rest, whole[first:])


def test_batches_hold_records_of_like_lengths_at_random_times():
    lengths = lengths_of(4000)
    grouped, free = (plans_of(lengths, 16, grouped=is_grouped) for is_grouped in (True, False))
    padded = [sum(int(plan.widths.sum()) * 16 for plan in plans) for plans in (grouped, free)]
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
    plan = next(plan_pools(lengths, **options, first_batch=2_000_000 * GROUP_BATCHES))
    assert len(plan) == GROUP_BATCHES and lengths.asked == GROUP_BATCHES * 8
    assert np.ptp(plan.rows) > 10**9 / 2, "from all over the corpus"
