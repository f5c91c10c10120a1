"""A step's split: against NumPy on a grid of instants, and on profiles made by hand and of a real step."""

import numpy as np
import pytest
from profile_split import OTHER, PARTS, _events, read_split, split


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
    intervals = {
        part: [(int(start), int(start + rng.integers(1, 40))) for start in rng.integers(0, 600, 12)] for part in PARTS
    }
    found = split(steps, intervals)

    def within(spans):
        instants = np.zeros(700, bool)
        for start, end in spans:
            instants[start:end] = True
        return instants

    free = within(steps)
    total = free.sum()
    for part in PARTS:
        runs = within(intervals[part])
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
        ([], (60, 10, 5, 15)),
        # The second replica computes until 90: only where neither computes is the all-reduce seen, and 85 to 90 is an
        # update of the first replica.
        (marks("replica_1/", rows=24, gradients=90, reduced=93, updated=96), (66, 6, 4, 15)),
    ],
    ids=["one replica", "two replicas"],
)
def test_marks_of_a_cpu(tmp_path, more, expected):
    planes = {"/host:CPU": {"python": [("train", 0, 100, "")], "tf_Compute": [*DATA, *marks(), *more]}}
    found = read_split(make_profile(tmp_path, planes))
    assert [found[part] for part in PARTS] == pytest.approx([microseconds / 1e6 for microseconds in expected])
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
    with pytest.raises(ValueError, match="Received: "):
        read_split(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_the_marks_of_an_update_enclose_it(tmp_path, replicas):
    import keras
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    from tfbert import AdamW, FineTuner

    with tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)]).scope():
        layers = [keras.Input([300]), keras.layers.Dense(300), keras.layers.Dense(300), keras.layers.Dense(2)]
        model = FineTuner(keras.Sequential(layers))
        model.compile(AdamW(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
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
