"""The plan of packed batches: each example once, equal counts, balanced tokens, a place of its own, little waste."""

import itertools

import numpy as np
import pytest

from tests.support.batches import lengths_like_sst2
from tests.support.batches import packed_plan as plan
from tfbert.batches.plan import FILL, PackedShape, balanced_batches, choose_packed_shape, place, split_balanced


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("count, batch", [(1, 4), (3, 4), (4, 4), (9, 8), (203, 8), (1000, 16)])
def test_each_example_is_visited_once_on_places_of_its_own(count, batch, parts):
    lengths = lengths_like_sst2(count)
    result = plan(lengths, batch, parts)
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
    whole, split = plan(lengths, parts=1), plan(lengths, parts=8)
    np.testing.assert_array_equal(np.sort(whole.rows, axis=1), np.sort(split.rows, axis=1))


def test_the_order_is_a_function_of_seed_and_epoch_alone():
    lengths = lengths_like_sst2(100)
    first = balanced_batches(lengths, global_batch_size=8, seed=3, epoch=2)
    np.random.seed(0)
    np.random.permutation(10)
    np.testing.assert_array_equal(first, balanced_batches(lengths.copy(), global_batch_size=8, seed=3, epoch=2))
    for seed, epoch in [(3, 0), (3, 1), (2, 2)]:
        assert (balanced_batches(lengths, global_batch_size=8, seed=seed, epoch=epoch) != first).any()


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
    found = choose_packed_shape(lengths, **own, epochs=range(2), num_parts=2, max_width=20)
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
    whole = plan(lengths_like_sst2(100))
    rest = whole.part(slice(3, None))
    np.testing.assert_array_equal(rest.rows, whole.rows[3:])
    np.testing.assert_array_equal(rest.starts, whole.starts[3:])
    assert len(rest) == len(whole) - 3 and rest.shape == whole.shape == PackedShape(**vars(whole.shape))


@pytest.mark.parametrize("batch, parts, least", [(32, 1, 0.96), (64, 1, 0.97), (32, 2, 0.95)])
def test_almost_all_tokens_are_real(batch, parts, least):
    lengths = lengths_like_sst2(32 * 400)
    result = plan(lengths, batch, parts, epochs=3)
    assert result.shape.width <= 128
    assert lengths.sum() / (len(result) * result.shape.num_tokens) >= least
