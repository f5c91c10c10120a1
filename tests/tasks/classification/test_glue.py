"""GLUE's tasks: what its server takes, for a model trained on TensorFlow Datasets' labels or on those of the files."""

import pytest

from tests.support.refusals import refused
from tfbert.errors import UsageError
from tfbert.tasks.classification import glue

WRITTEN = [
    ("sst2", ("negative", "positive"), ["0", "1"]),
    ("sst2", ("0", "1"), ["0", "1"]),
    ("sst2", ("1", "0"), ["1", "0"]),
    ("wnli", ("LABEL_0", "LABEL_1"), ["0", "1"]),
    ("mnli-m", ("contradiction", "entailment", "neutral"), ["contradiction", "entailment", "neutral"]),
    ("rte", ("not_entailment", "entailment"), ["not_entailment", "entailment"]),
]


@pytest.mark.parametrize("task, names, written", WRITTEN)
def test_what_is_written_for_each_class_of_a_model(task, names, written):
    assert glue.TASKS[task].predictions(names) == written


UNNAMED = tuple(f"LABEL_{i}" for i in range(3))
REFUSED = [
    ("sst2", ("bad", "good"), "must be those of the task: .*Received: bad, good"),
    ("rte", ("0", "1"), "Received: 0, 1"),
    ("mnli-m", ("0", "1", "2"), "Received: 0, 1, 2"),
    # On the hub there are models of MNLI whose LABEL_0 is contradiction, and others.
    ("ax", UNNAMED, "Received: LABEL_0, LABEL_1.*id2label"),
    ("rte", UNNAMED[:2], "Received: LABEL_0, LABEL_1.*id2label"),
    ("cola", (), "Received: a model for regression"),
    ("mnli-mm", (), "Received: a model for regression"),
]


@pytest.mark.parametrize("task, names, message", REFUSED)
def test_other_labels_are_refused(task, names, message):
    with refused(message):
        glue.TASKS[task].predictions(names)


def test_the_task_of_a_split():
    assert glue.task_of_split("glue/mnli", "test_mismatched") == "mnli-mm"
    assert glue.task_of_split("glue/sst2:2.0.0", "test") == "sst2"
    with pytest.raises(UsageError, match="GLUE's tasks are"):
        glue.task_of_split("glue/sst3", "test")


def test_the_metric_that_decides():
    assert glue.decisive_metric("glue/cola:2.0.0") == "matthews_correlation"
    assert glue.decisive_metric("glue/mrpc") == glue.decisive_metric("glue/qqp") == "f1"
    assert glue.decisive_metric("glue/sst2") is glue.decisive_metric("cola") is None


def test_scores_stay_within_the_scale():
    assert [glue.score_text(score) for score in (-0.2, 2.34567, 7.0)] == ["0.000", "2.346", "5.000"]
