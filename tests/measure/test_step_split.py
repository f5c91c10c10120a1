"""A step's split: against NumPy on a grid of instants, and on profiles made by hand and by a real run."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.support.clocks import schedule
from tests.support.runs import changed, make_config, stop_at
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.measure.step_split import OTHER, PARTS, _events, read_split, split
from tfbert.train.profiling import Profile


def make_profile(directory, planes):
    """Writes a profile: plane -> line -> [(name, start, end, operation)], times in microseconds."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    for plane_name, plane_lines in planes.items():
        plane = space.planes.add(name=plane_name)
        plane.stat_metadata[1].name = "tf_op"
        for line_name, events in plane_lines.items():
            line = plane.lines.add(name=line_name, timestamp_ns=1000)
            for name, start, end, operation in events:
                key = len(plane.event_metadata) + 1
                plane.event_metadata[key].name = name
                event = line.events.add(metadata_id=key, offset_ps=start * 10**6, duration_ps=(end - start) * 10**6)
                event.stats.add(metadata_id=1, str_value=operation)
    path = directory / "plugins" / "profile" / "now"
    path.mkdir(parents=True)
    (path / "vm.xplane.pb").write_bytes(space.SerializeToString())
    return directory


def test_overlaps_count_once_and_all_adds_up():
    rng = np.random.default_rng(0)
    steps = [(10, 200), (200, 390), (400, 600)]
    intervals = {}
    for part in PARTS:
        starts = rng.integers(0, 600, 12)
        intervals[part] = [(int(s), int(s + rng.integers(1, 40))) for s in starts]
    found = split(steps, intervals)
    instants = np.arange(700)
    free = np.zeros(700, bool)
    for start, end in steps:
        free |= (instants >= start) & (instants < end)
    total = free.sum()
    for part in PARTS:
        runs = np.zeros(700, bool)
        for start, end in intervals[part]:
            runs |= (instants >= start) & (instants < end)
        assert found[part] == pytest.approx((free & runs).sum() / 3 / 1e12)
        free &= ~runs
    assert found[OTHER] == pytest.approx(free.sum() / 3 / 1e12)
    assert sum(found.values()) == pytest.approx(total / 3 / 1e12)


def marks(prefix="", rows=25, gradients=80, reduced=85, updated=95):
    named = {"mark_rows": rows, "mark_gradients": gradients, "mark_reduced": reduced, "mark_updated": updated}
    return [(f"{prefix}{name}:Timestamp", at, at + 1, "") for name, at in named.items()]


XLA_RUN = "CpuExecutable::ExecuteAsyncOnStream"
DATA = [("data_asked:Timestamp", 5, 6, ""), ("data_arrived:Timestamp", 20, 21, "")]


@pytest.mark.parametrize(
    "more, expected",
    [
        ([], {"forward and backward": 60, "update": 10, "all-reduce": 5, "data": 15}),
        # The second replica computes until 90: only where neither computes is the all-reduce seen.
        (
            marks("replica_1/", rows=24, gradients=90, reduced=93, updated=96),
            {"forward and backward": 66, "update": 6, "all-reduce": 4, "data": 15},
        ),
    ],
    ids=["one replica", "two replicas"],
)
def test_marks_of_a_cpu(tmp_path, more, expected):
    planes = {"/host:CPU": {"python": [("train", 0, 100, "")], "tf_Compute": [*DATA, *marks(), *more]}}
    found = read_split(make_profile(tmp_path, planes))
    if more:  # 85 to 90 is an update of the first replica, while the second still computes.
        assert found["forward and backward"] == pytest.approx((90 - 24) / 1e6)
    for part, microseconds in expected.items():
        assert found[part] == pytest.approx(microseconds / 1e6), part
    assert sum(found.values()) == pytest.approx(100e-6)


def test_kernels_of_a_gpu(tmp_path):
    kernels = [
        ("gemm", 30, 50, "fine_tuner/forward_backward/MatMul:MatMul"),
        ("gemm", 50, 70, "gradient_tape/forward_backward/MatMul:MatMul"),
        ("ncclDevKernel_AllReduce_Sum_f32", 60, 80, ""),
        ("fusion", 80, 90, "update/cond/StatefulPartitionedCall:XlaLaunch"),
        ("MemcpyH2D", 90, 95, ""),
    ]
    planes = {
        "/host:CPU": {"python": [("train", 0, 100, "")], "tf_Compute": DATA},
        "/device:GPU:0": {"Stream #1(Compute)": kernels, "XLA Modules": [("forward_backward", 0, 100, "")]},
    }
    found = read_split(make_profile(tmp_path, planes))
    expected = {"forward and backward": 40, "update": 10, "all-reduce": 10, "data": 15, OTHER: 25}
    assert found == pytest.approx({part: microseconds / 1e6 for part, microseconds in expected.items()})


def test_a_profile_without_steps_says_so(tmp_path):
    with pytest.raises(RunError, match="Received: "):
        read_split(tmp_path)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_marks_of_an_update_enclose_it(tmp_path, replicas):
    import keras
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
    from tfbert.step.fused import FusedAdamW

    from tfbert import FineTuner

    with tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)]).scope():
        layers = [keras.layers.Dense(300, input_shape=(300,)), keras.layers.Dense(300), keras.layers.Dense(2)]
        model = FineTuner(keras.Sequential(layers))
        model.compile(FusedAdamW(learning_rate=0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.marks_steps = True
    rng = np.random.default_rng(0)
    data = tf.data.Dataset.from_tensors((rng.standard_normal((4, 300), np.float32), np.zeros(4, np.int64))).repeat(3)
    model.fit(data, verbose=0)
    with tf.profiler.experimental.Profile(str(tmp_path)):
        model.fit(data, verbose=0)

    space = xplane_pb2.XSpace()
    (path,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    space.ParseFromString(path.read_bytes())
    events = list(_events(space, "/host:CPU"))
    updates = [(start, end) for _, name, _, start, end in events if name == XLA_RUN]
    reduced, updated = (
        sorted(s for _, n, _, s, _ in events if n.endswith(f"{mark}:Timestamp"))
        for mark in ("mark_reduced", "mark_updated")
    )
    assert len(reduced) == len(updated) == 3 * replicas and len(updates) == 6 * 3 * replicas
    for step in range(3):
        share = slice(step * replicas, (step + 1) * replicas)
        begun, ended = reduced[share], updated[share]
        inside = [start for start, end in updates if begun[0] <= start and end <= ended[-1]]
        assert len(inside) == 6 * replicas


@pytest.mark.slow
def test_a_run_is_profiled_and_its_split_adds_up_to_its_steps(corpus):
    config = changed(make_config(corpus, "out"), output={"profile_steps": (7, 9), "eval_steps": 0, "save_steps": 0})
    from tfbert.train.run import finetune

    finetune(config)
    assert list((corpus / "out" / "profile").glob("plugins/profile/*/*.xplane.pb"))
    profile = json.loads((corpus / "out" / "report.json").read_text())["profile"]
    assert (profile["first_step"], profile["last_step"]) == (7, 9)
    parts = profile["parts"]
    assert all(parts[part] > 0 for part in ("forward and backward", "update", "data"))
    assert parts["forward and backward"] > parts["update"]
    # Counted by Keras from the beginning of step 7 to the end of step 9; the log has the same steps by another clock.
    records = [json.loads(line) for line in (corpus / "out" / "log.jsonl").read_text().splitlines()]
    speeds = {r["step"]: r["examples_per_second"] for r in records if r["kind"] == "train"}
    seconds = np.mean([8 / speeds[8], 8 / speeds[9]])
    assert 0.3 * seconds < sum(parts.values()) < 3 * seconds
    assert "Where a step" in (corpus / "out" / "report.html").read_text()


def test_a_run_stopped_while_it_is_profiled_leaves_no_profiler_behind(corpus, monkeypatch):
    from tfbert.train.run import finetune

    with monkeypatch.context() as patched, pytest.raises(Preempted):
        stop_at(patched, 5)
        finetune(changed(make_config(corpus, "stopped"), output={"profile_steps": (3, 9)}))
    assert list((corpus / "stopped" / "profile").rglob("*.xplane.pb"))
    tf.profiler.experimental.start(str(corpus / "another"))  # A process has one.
    tf.profiler.experimental.stop(save=False)


def test_what_an_earlier_start_profiled_is_reported(tmp_path):
    planes = {"/host:CPU": {"python": [("train", 0, 100, "")], "tf_Compute": [*DATA, *marks()]}}
    path = make_profile(tmp_path, planes)
    facts = {first: Profile(schedule(first=first), (3, 9), path, None).facts() for first in (0, 5, 9)}
    assert facts[0] is facts[5] is None  # Nothing yet, or not all of it.
    assert facts[9] == {"first_step": 3, "last_step": 9, "parts": read_split(path)}
    assert Profile(schedule(first=9), (3, 9), tmp_path / "none", None).facts() is None


@pytest.mark.parametrize("steps", [(3,), (0, 4), (5, 4), (1, 2, 3)])
def test_steps_that_make_no_sense(corpus, steps):
    with pytest.raises(UsageError, match="profile_steps takes"):
        changed(make_config(corpus, "out"), output={"profile_steps": steps})


def test_steps_beyond_the_run_are_refused_before_anything_is_written(corpus):
    from tfbert.train.run import finetune

    with pytest.raises(UsageError, match="profile_steps must lie within the run's 12 updates"):
        finetune(changed(make_config(corpus, "out"), output={"profile_steps": (10, 13)}))
    assert not (corpus / "out").exists()
