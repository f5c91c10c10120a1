"""No iterator of a run has tf.data's autotuner, whose thread can hold up the run's end."""

import queue
import types

import numpy as np
import pytest
from tensorflow.python.data.ops import multi_device_iterator_ops

from tests.support.batches import make_examples, plan_of
from tests.support.models import strategy_of
from tfbert.batches.pipeline import INPUTS, distribute_batches, make_dataset
from tfbert.batches.plan import BatchPlan
from tfbert.model.predictor import Predictor

EXAMPLES = make_examples(4)
PADDED = BatchPlan(rows=np.arange(4)[None], widths=np.array([20], np.int32))


@pytest.mark.parametrize("plan", [PADDED, plan_of(EXAMPLES)], ids=["padded", "packed"])
def test_the_training_data_has_none(plan):
    dataset = make_dataset(EXAMPLES, lambda: iter([plan]), range(1), 1, shape=plan.shape)
    assert dataset.options().autotune.enabled is False


def test_predictions_have_none():
    context = types.SimpleNamespace(num_input_pipelines=1, input_pipeline_id=0)
    dataset = Predictor(None, strategy_of(1))._dataset(queue.SimpleQueue(), INPUTS)(context)
    assert dataset.options().autotune.enabled is False


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_iterators_in_front_of_each_device_have_none(monkeypatch, replicas):
    """A replica that is alone has none."""
    made = []
    distributed = distribute_batches(strategy_of(replicas), EXAMPLES, lambda: iter([PADDED]))
    create = multi_device_iterator_ops._create_device_dataset

    def noting(*args, **kwargs):
        made.append(create(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(multi_device_iterator_ops, "_create_device_dataset", noting)
    assert len(list(distributed)) == 1
    assert [dataset.options().autotune.enabled for dataset in made] == [False] * (replicas if replicas > 1 else 0)
