"""Workers that are not of the same run are refused, each with what differs and the values of all."""

import dataclasses
import json
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import processes_of
from tests.support.refusals import refused
from tfbert.config.run import MAY_DIFFER, Config
from tfbert.devices import workers
from tfbert.errors import RunError, UsageError
from tfbert.launch import worker_environments

LONG = [f"label {place}" for place in range(20)]


@pytest.mark.parametrize(
    "found, expected",
    [
        ([{"seed": 1}, {"seed": 2}], "seed=1 on 0 and 2 on 1"),
        ([{"a": False, "b": 0.5}, {"a": True, "b": None}], "a=False on 0 and True on 1; b=0.5 on 0 and None on 1"),
        ([{"task": "a"}, {"task": "a"}, {"task": "b"}], "task='a' on 0, 1 and 'b' on 2"),
        ([{"n": 1}] * 4 + [{"n": 2}], "n=1 on 0 and 3 others and 2 on 4"),
        ([{}, {"new": 3}], "new=nothing on 0 and 3 on 1"),
        ([{"loss": {"of": "A", "by": [1]}}, {"loss": {"of": "A", "by": []}}], "loss.by=[1] on 0 and [] on 1"),
        (
            [{"labels": LONG}, {"labels": [*LONG[:-1], "z"]}],
            "labels=...l 17', 'label 18', 'label 19'] on 0 and ...l 17', 'label 18', 'z'] on 1",
        ),
        ([{"path": "x" * 99}, {"path": ""}], f"path='{'x' * 59}... on 0 and '' on 1"),
        ([{"a": "x" * 99 + "y"}, {"a": "x" * 99 + "z"}], f"a=...{'x' * 20}y' on 0 and ...{'x' * 20}z' on 1"),
        ([dict.fromkeys("abcdefgh", 0), dict.fromkeys("abcdefgh", 1)], "e=0 on 0 and 1 on 1; 3 more"),
    ],
)
def test_differences_name_facts_values_and_workers(found, expected):
    line = workers.differences({str(place): facts for place, facts in enumerate(found)})
    assert line.endswith(expected)


def test_every_option_is_compared_or_named_as_free():
    fields = {field.name: field for part in Config().parts() for field in dataclasses.fields(part)}
    shared = Config().shared()
    assert set(shared) == {"mode", *fields} - MAY_DIFFER and fields.keys() >= MAY_DIFFER
    assert json.dumps(shared)
    # What decides an update is none of these, but for the model, whose files are compared.
    kinds = {fields[name].metadata["resume"] for name in MAY_DIFFER - {"model_name_or_path"}}
    assert kinds <= {"free", "content", None}


@pytest.mark.parametrize(
    "one, other",
    [
        (np.zeros(3, np.float32), np.zeros(3, np.float64)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.array(["a", "b"]), np.array(["a", "c"])),
        (np.array(["a", None], object), np.array(["a", ""], object)),
        (np.arange(4)[::2], np.arange(2)),
        (np.zeros(0, np.int32), np.zeros(1, np.int32)),
    ],
)
def test_checksums_tell_arrays_apart(one, other):
    assert workers.checksum(one) == workers.checksum(one.copy()) != workers.checksum(other)


class TwoWorkers(tf.distribute.MultiWorkerMirroredStrategy):
    """The first of two workers; the other one's facts are given."""

    def __init__(self):
        spec = tf.train.ClusterSpec({"worker": ["a:1", "b:1"]})
        self.resolver = types.SimpleNamespace(task_type="worker", task_id=0, cluster_spec=lambda: spec)

    cluster_resolver = property(lambda self: self.resolver)


@pytest.fixture
def beside(monkeypatch):
    """A strategy whose other worker has these facts."""

    def beside(facts):
        texts = {}
        consensus = types.SimpleNamespace(is_same=lambda number: number == workers.zlib.crc32(text.encode()))
        text = json.dumps(facts, sort_keys=True)
        monkeypatch.setattr(workers, "_consensus_of", lambda strategy: consensus)
        monkeypatch.setattr(workers, "publish", texts.__setitem__)
        monkeypatch.setattr(workers, "published", lambda name, _: texts.get(name, text if name.endswith("1") else ""))
        return TwoWorkers()

    return beside


def test_a_difference_is_a_refusal_that_all_workers_have(beside):
    workers.check_same(lambda: {"b": 1, "a": 2}, beside({"a": 2, "b": 1}))
    with refused(r"same run\. Received: a=2 on worker 0 and 3 on worker 1\. Give all") as refusal:
        workers.check_same(lambda: {"a": 2}, beside({"a": 3}))
    assert refusal.value.others_know
    with pytest.raises(RunError, match=r"^Rule\. Received: a='x' on .* 'y' on worker 1\. Do\.$"):
        workers.check_same(lambda: {"a": "x"}, beside({"a": "y"}), rule="Rule", way_out="Do", error=RunError)


def test_one_process_computes_no_facts():
    workers.check_same(lambda: pytest.fail("computed"))
    workers.check_same(lambda: pytest.fail("computed"), tf.distribute.MirroredStrategy(["CPU:0"]))


@pytest.mark.parametrize(
    "error, message, line",
    [
        (
            tf.errors.InternalError,
            "Collective instance 305 expected type 0 and data_type 1 but got type 0 and data_type 9\nAdditional GRPC",
            r"that differ, expected type 0 and data_type 1 but got type 0 and data_type 9\. Give all the same",
        ),
        (
            tf.errors.InvalidArgumentError,
            "{{function_node __wrapped__CollectiveBcastRecv}} Collective ops is aborted by: Shape mismatch in the "
            "collective instance 113. Op at device /job:worker/replica:0/task:0/device:CPU:0 expected shape [446,128] "
            "but another member in the group expected shape [11,128]. This is likely due to different input shapes.",
            r"differ, expected shape \[446,128\] but another member in the group expected shape \[11,128\]\. Give all",
        ),
        (
            tf.errors.AbortedError,
            "Collective ops is aborted by: Error reported from /job:worker/task:1: [tfbert] The line. Received: 2\n"
            "more. [/tfbert]\nThe error could be from a previous operation.",
            "^The line. Received: 2\nmore.$",
        ),
    ],
)
def test_what_is_no_fault_of_the_network_is_not_said_to_be(error, message, line):
    with pytest.raises(RunError, match=line) as raised, workers.peer_failures_as_run_errors():
        raise error(None, None, message)
    assert "network" not in str(raised.value) and "contact" not in str(raised.value)


def test_a_command_that_fails_tells_the_other_workers(monkeypatch):
    told = []
    monkeypatch.setattr(workers, "is_command", lambda: True)
    monkeypatch.setattr(workers, "_tell_others", told.append)
    for error in (UsageError("No.\nMore."), KeyError("bug")):
        with pytest.raises(type(error)), workers.peer_failures_as_run_errors():
            raise error
    error = UsageError("Of all.")
    error.others_know = True
    with pytest.raises(UsageError), workers.peer_failures_as_run_errors():
        raise error
    assert len(told) == 2 and "which ended: No. Mend that, and start all workers" in told[0] and "'bug'" in told[1]


WORKER = """\
import sys
from tfbert.config.modes import RuntimeConfig
from tfbert.devices.workers import check_same, peer_failures_as_run_errors
from tfbert.devices.runtime import build_strategy
import tensorflow as tf
strategy = build_strategy(RuntimeConfig(strategy="multi_worker"))
own = strategy.cluster_resolver.task_id
check_same(lambda: {"seed": 1, "rates": [1e-5, None]}, strategy)
for facts in ({"seed": own}, {"long": "x" * 10**6 + str(own)}, {"seed": 7, "of one alone" * own: 1}):
    try:
        check_same(lambda: facts, strategy)
    except ValueError as error:
        print(error)
check_same(lambda: {"seed": 1}, strategy)
reduce = lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.zeros([], tf.float64 if own else tf.int32))
try:
    with peer_failures_as_run_errors():
        strategy.run(reduce)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.slow  # By default test_cluster.py has two that differ in one fact.
@pytest.mark.multi_worker
def test_two_workers_say_the_same_and_go_on():
    with processes_of([WORKER], worker_environments(2)) as processes:
        outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    first, second = (out.splitlines() for out, _ in outputs)
    assert first[:3] == second[:3] and len(first) == len(second) == 4
    assert "seed=0 on worker 0 and 1 on worker 1" in first[0] and "xx0' on worker 0 and ...xx" in first[1]
    for line in (first[3], second[3]):
        assert line.startswith("All workers must compute the same, in the same order. Received: collective"), line
