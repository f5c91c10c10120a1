"""Examples of token ids, and their batches: packed, or one a row."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.support.flag_values import configured
from tests.support.models import VOCAB, strategy_of
from tfbert.batches.pipeline import EncodedExamples, distribute_batches, make_dataset
from tfbert.batches.plan import BatchPlan, choose_packed_shape, plan_packed_epoch
from tfbert.tokens.tokenizer import TokenIds

BATCH = 8


def make_examples(count=37, seed=0, labels=None, lengths=None):
    """Texts of 3 to 20 tokens, every second one a pair; example 0 is padding's own id throughout."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 21, count) if lengths is None else np.array(lengths)
    flat = rng.integers(5, VOCAB, lengths.sum()).astype(np.int32)
    second = np.where(np.arange(count) % 2, np.maximum(lengths - 2, 1), lengths).astype(np.int32)
    tokens = TokenIds(flat=flat, row_splits=np.concatenate([[0], np.cumsum(lengths)]), second_start=second)
    labels = rng.integers(0, 3, count).astype(np.int32) if labels is None else labels
    return EncodedExamples(tokens=tokens, labels=labels, weights=rng.uniform(0.5, 1.5, count).astype(np.float32))


def config_of(
    batching="length_grouped", *, xla=False, shapes=6, epochs=2.0, max_steps=0, batch=16, accumulation=1, **data
):
    """A run's configuration, resolved; `data` are more options of its data."""
    steps = {"num_train_epochs": epochs, "max_steps": max_steps, "gradient_accumulation_steps": accumulation}
    batches = {"batching": batching, "xla": xla, "max_compiled_shapes": shapes, "global_batch_size": batch}
    return configured(**steps, **batches, **data).resolved()


def lengths_like_sst2(count=2000, seed=0, longest=66):
    """Many short texts and a long tail."""
    return np.clip(np.random.default_rng(seed).gamma(2.0, 5.7, count).astype(np.int32) + 2, 3, longest)


def assert_shares_make_up(whole, shares, num_replicas):
    """The batches of all replicas, one after the other, are those of the global batch in its order."""
    assert len(shares) == num_replicas * len(whole)
    for step, batch in enumerate(whole):
        parts = shares[num_replicas * step : num_replicas * (step + 1)]
        joined = tf.nest.map_structure(lambda *columns: np.concatenate(columns), *parts)
        tf.nest.map_structure(np.testing.assert_array_equal, joined, batch)


def assert_replicas_get_the_same(examples, plans):
    """Two replicas together what one has, of a plan; returns how many batches there are."""
    batches = []
    for strategy in (strategy_of(1), strategy_of(2)):
        out = []
        for batch in distribute_batches(strategy, examples, plans):
            local = [strategy.experimental_local_results(part) for part in tf.nest.flatten(batch)]
            out.append([np.concatenate([replica.numpy() for replica in part]) for part in local])
        batches.append(out)
    tf.nest.map_structure(np.testing.assert_array_equal, batches[1], batches[0])
    return len(batches[0])


def packed_plan(lengths, batch=16, parts=1, *, seed=1, epoch=0, epochs=2, max_width=128):
    own = {"global_batch_size": batch, "seed": seed}
    shape = choose_packed_shape(lengths, **own, epochs=range(epochs), num_parts=parts, max_width=max_width)
    return plan_packed_epoch(lengths, **own, epoch=epoch, shape=shape)


def plan_of(examples, parts=1, epoch=0, max_width=2 * 20):
    return packed_plan(examples.tokens.lengths, BATCH, parts, seed=3, epoch=epoch, max_width=max_width)


def packed_batches(examples, plan, replicas=1, pad_id=0):
    examples = dataclasses.replace(examples, tokens=dataclasses.replace(examples.tokens, pad_id=pad_id))
    return list(make_dataset(examples, lambda: iter([plan]), range(replicas), replicas, shape=plan.shape))


def distributed(examples, plan, replicas):
    """The packed batches as a strategy hands them to its replicas."""
    return strategy_of(replicas).distribute_datasets_from_function(
        lambda _: make_dataset(examples, lambda: iter([plan]), range(replicas), replicas, shape=plan.shape)
    )


def plain_batches(examples, plan):
    """The same examples in the same order, one a row."""
    widths = np.full(len(plan), examples.tokens.lengths.max(), np.int32)
    return list(make_dataset(examples, lambda: iter([BatchPlan(rows=plan.rows, widths=widths)]), range(1), 1))
