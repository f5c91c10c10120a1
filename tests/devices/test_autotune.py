"""No iterator of a run has tf.data's autotuner, whose thread can hold up the run's end."""

import queue

import numpy as np
import pytest
from tensorflow.python.data.ops import multi_device_iterator_ops

from tests.support.models import strategy_of
from tfbert.batches.pipeline import INPUTS, EncodedExamples, distribute_batches, make_dataset
from tfbert.batches.plan import choose_packed_shape, exact_widths, plan_epoch, plan_packed_epoch
from tfbert.model.predictor import Predictor
from tfbert.tokens.tokenizer import TokenIds

LENGTHS = np.array([3, 5, 4, 6])


def examples():
    flat = np.arange(LENGTHS.sum(), dtype=np.int32)
    tokens = TokenIds(flat=flat, row_splits=np.append(0, np.cumsum(LENGTHS)), second_start=LENGTHS.astype(np.int32))
    return EncodedExamples(tokens=tokens, labels=np.zeros(4, np.int32), weights=np.ones(4, np.float32))


def a_plan(packed):
    options = {"global_batch_size": 4, "seed": 0, "epoch": 0}
    if not packed:
        return plan_epoch(LENGTHS, **options, group_by_length=True, allowed_widths=exact_widths(LENGTHS)), None
    shape = choose_packed_shape(LENGTHS, global_batch_size=4, seed=0, epochs=range(1), num_parts=1, max_width=8)
    return plan_packed_epoch(LENGTHS, **options, shape=shape), shape


@pytest.mark.parametrize("packed", [False, True])
def test_the_training_data_has_none(packed):
    plan, shape = a_plan(packed)
    dataset = make_dataset(examples(), lambda: iter([plan]), range(1), 1, shape=shape)
    assert dataset.options().autotune.enabled is False


def test_predictions_have_none():
    strategy = strategy_of(1)
    predictor = Predictor(None, strategy)
    context = type("Context", (), {"num_input_pipelines": 1, "input_pipeline_id": 0})()
    assert predictor._dataset(queue.SimpleQueue(), INPUTS)(context).options().autotune.enabled is False


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_iterators_in_front_of_each_device_have_none(monkeypatch, replicas):
    """A replica that is alone has none."""
    made = []
    plan, _ = a_plan(False)
    distributed = distribute_batches(strategy_of(replicas), examples(), lambda: iter([plan]))
    create = multi_device_iterator_ops._create_device_dataset

    def noting(*args, **kwargs):
        made.append(create(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(multi_device_iterator_ops, "_create_device_dataset", noting)
    assert len(list(distributed)) == 1
    assert [dataset.options().autotune.enabled for dataset in made] == [False] * (replicas if replicas > 1 else 0)
