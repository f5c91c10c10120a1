"""Examples of token ids, and their batches: packed, or one a row."""

import dataclasses

import numpy as np

from tests.support.models import VOCAB
from tfbert.batches.pipeline import EncodedExamples, make_dataset
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


def plan_of(examples, parts=1, epoch=0, max_width=2 * 20):
    lengths, options = examples.tokens.lengths, {"global_batch_size": BATCH, "seed": 3}
    shape = choose_packed_shape(lengths, **options, epochs=range(2), num_parts=parts, max_width=max_width)
    return plan_packed_epoch(lengths, **options, epoch=epoch, shape=shape)


def packed_batches(examples, plan, replicas=1, pad_id=0):
    examples = dataclasses.replace(examples, tokens=dataclasses.replace(examples.tokens, pad_id=pad_id))
    return list(make_dataset(examples, lambda: iter([plan]), range(replicas), replicas, shape=plan.shape))


def plain_batches(examples, plan):
    """The same examples in the same order, one a row."""
    widths = np.full(len(plan), examples.tokens.lengths.max(), np.int32)
    return list(make_dataset(examples, lambda: iter([BatchPlan(rows=plan.rows, widths=widths)]), range(1), 1))
