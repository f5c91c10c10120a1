"""Which cluster a process is in, waiting for its peers, and what happens when one is lost."""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.support import two_workers
from tests.support.flag_values import parsed
from tests.support.processes import QUICK_START, ROOT, processes_of, tf_config, write_program
from tests.support.refusals import refused
from tfbert import RunError, RuntimeConfig, UsageError
from tfbert.devices import cluster as clusters
from tfbert.devices.cluster import Cluster, current_cluster, split_address, wait_for_peers
from tfbert.devices.runtime import _own_gpus, build_strategy, is_chief
from tfbert.devices.workers import is_peer_failure, peer_failures_as_run_errors
from tfbert.launch import worker_environments


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    """Each test starts outside of any cluster, even where the tests themselves run under SLURM."""
    for name in list(os.environ):
        if name.startswith("SLURM") or name == "TF_CONFIG":
            monkeypatch.delenv(name)


def two_on_loopback(*ports) -> Cluster:
    return Cluster(jobs={"worker": tuple(f"127.0.0.1:{port}" for port in ports)}, job="worker", index=0)


@contextlib.contextmanager
def taken_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def free_port() -> int:
    with taken_port() as port:
        return port


# --- TF_CONFIG


def test_a_chief_and_workers():
    """An index may be a string, as some operators write it."""
    text = tf_config({"worker": ["b:1", "[::1]:2"], "chief": ["a:1"]}, index="1")
    cluster = clusters.cluster_from_tf_config(text)
    assert (cluster.size, cluster.address) == (3, "[::1]:2")
    assert cluster.peers == {"chief 0": "a:1", "worker 0": "b:1"}
    assert split_address(cluster.address) == ("::1", 2)


ALONE = {"worker": ["a:1"]}
WRONG_ADDRESSES = ("a", "a:0", "a:65536", "a:x", ":1", "::1:2222", "http://a:1")
WRONG_INDICES = (("\u00b2", r'"\u00b2"'), (-1, "-1"), (None, "null"), (True, "true"))


@pytest.mark.parametrize(
    "text, message",
    [
        *((text, f"TF_CONFIG='{text}'") for text in ("{", "[1]", "{}")),
        (json.dumps({"cluster": ALONE}), "TF_CONFIG='{"),
        (tf_config({"worker": ["a:1"], "ps": ["b:1"]}), 'ps: ["b:1"]'),
        (tf_config({"worker": "a:1"}), 'worker: "a:1"'),
        *((tf_config({"worker": [address]}), f"address '{address}'") for address in WRONG_ADDRESSES),
        (tf_config({"worker": [1]}), "address 1."),
        (tf_config({"worker": ["a:1", "a:1"]}), "address 'a:1' twice"),
        (tf_config({"worker": ["a:1"], "chief": ["a:1"]}), "address 'a:1' twice"),
        (tf_config({"chief": ["a:1", "b:1"]}, "chief"), 'chief: ["a:1", "b:1"]'),
        (tf_config(ALONE, index=1), 'task {"type": "worker", "index": 1} with jobs {worker: 1}'),
        *((tf_config(ALONE, index=i), f'task {{"type": "worker", "index": {said}}}') for i, said in WRONG_INDICES),
        (tf_config(ALONE, ["worker"]), 'task {"type": ["worker"]'),
        (tf_config(ALONE, "chief"), 'task {"type": "chief"'),
        (tf_config({"worker": []}), 'task {"type": "worker", "index": 0} with jobs {worker: 0}'),
    ],
)
def test_a_wrong_tf_config_is_one_clear_line(text, message):
    with refused(rf"^TF_CONFIG must list addresses.*\. Received: {re.escape(message)}"):
        clusters.cluster_from_tf_config(text)


def test_neither_tf_config_nor_slurm():
    with pytest.raises(UsageError, match="multi_worker needs TF_CONFIG or SLURM's variables .* Received: neither."):
        build_strategy(RuntimeConfig(strategy="multi_worker"))


def test_workers_must_not_train_alone(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": ["a:1", "b:1"]}))
    with pytest.raises(UsageError, match="Received: strategy='mirrored' with 2 workers in TF_CONFIG"):
        build_strategy(RuntimeConfig(strategy="mirrored"))


# --- SLURM


def slurm_task(nodes="node[9-10]", tasks="2(x2)", node="node9", local=0, rank=0, count=4, job=7):
    """The variables of one task, as srun sets them."""
    step = {"NUM_TASKS": count, "NODELIST": nodes, "TASKS_PER_NODE": tasks}
    values = {"SLURM_JOB_ID": job, "SLURM_PROCID": rank, "SLURM_LOCALID": local, "SLURMD_NODENAME": node}
    values |= {f"SLURM_STEP_{name}": value for name, value in step.items()}
    return {name: str(value) for name, value in values.items()}


def slurm(monkeypatch, **options):
    for name, value in slurm_task(**options).items():
        monkeypatch.setenv(name, value)


def test_every_slurm_task_sees_the_same_cluster_and_its_own_place(monkeypatch):
    """No two nodes are in the same order by name and by SLURM's rank; ranks are dealt out cyclically."""
    seen = []
    for rank, (node, local) in enumerate([("node9", 0), ("node10", 0), ("node9", 1), ("node10", 1)]):
        slurm(monkeypatch, node=node, local=local, rank=rank)
        cluster = current_cluster()
        host, port = split_address(cluster.address)
        assert (host, port - 13000 - 7 * 16) == (node, local)
        assert (cluster.local_index, cluster.num_local) == (local, 2)
        seen.append((cluster.index, cluster.jobs))
    assert sorted(index for index, _ in seen) == [0, 1, 2, 3]
    assert all(jobs == seen[0][1] for _, jobs in seen)


def test_slurm_needs_neither_scontrol_nor_nvidia_smi(monkeypatch, tmp_path):
    for name in ("scontrol", "nvidia-smi"):
        write_program(tmp_path / name, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm(monkeypatch, nodes="a,b[01-02]", tasks="1(x3)", node="b02", rank=2, count=3)
    assert clusters.cluster_from_slurm().jobs == {"worker": ("a:13112", "b01:13112", "b02:13112")}


def test_slurm_jobs_of_one_node_use_ports_of_their_own(monkeypatch):
    ports = set()
    for job in range(30_000_000, 30_000_100):
        slurm(monkeypatch, nodes="a", tasks="1", node="a", count=1, job=job)
        ports.add(split_address(clusters.cluster_from_slurm().address)[1])
    assert len(ports) == 100
    assert min(ports) >= 13000 and max(ports) + 16 <= 32768


def test_tf_config_comes_before_slurm(monkeypatch):
    slurm(monkeypatch)
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": ["x:1"]}))
    assert current_cluster().address == "x:1"


def test_a_batch_script_without_srun(monkeypatch):
    slurm(monkeypatch)
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"):
        monkeypatch.delenv(name)
    with pytest.raises(UsageError, match="Received: no SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST .* Put srun in front"):
        current_cluster()


@pytest.mark.parametrize("wrong", [{"node": "other"}, {"local": 2}, {"count": 5}, {"nodes": "n[1"}, {"tasks": "two"}])
def test_contradicting_slurm_variables(monkeypatch, wrong):
    slurm(monkeypatch, **wrong)
    with pytest.raises(UsageError, match="SLURM's variables must describe one step. Received: SLURM_PROCID=0"):
        current_cluster()


@pytest.mark.parametrize("status", [1, 75])
@pytest.mark.parametrize("script", sorted((ROOT / "docs" / "slurm").glob("*.sbatch")), ids=lambda path: path.stem)
def test_batch_scripts_pass_flags_that_exist_and_requeue_what_was_preempted(tmp_path, script, status):
    write_program(tmp_path / "srun", f'printf "%s\\n" "$@" > srun.args; exit {status}')
    write_program(tmp_path / "scontrol", 'echo "$@" > scontrol.args')
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).touch()
    env = dict.fromkeys(("SLURM_SUBMIT_DIR", "MODEL", "DATA"), str(tmp_path))
    env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "8"}
    done = subprocess.run(["bash", script, "--seed=3"], env=env, cwd=tmp_path, timeout=20)
    assert done.returncode == status
    requeued = tmp_path / "scontrol.args"
    assert (requeued.read_text() if requeued.exists() else "") == ("requeue 7\n" if status == 75 else "")
    arguments = (tmp_path / "srun.args").read_text().splitlines()
    assert arguments[:3] == ["--kill-on-bad-exit=0", "python", "run_finetune.py"]
    config = parsed(*arguments[3:])
    assert (config.runtime.seed, config.output.output_dir) == (3, "runs/7")


# --- waiting for peers


def test_an_absent_peer_is_named():
    own, absent = free_port(), free_port()
    said = r"^All 3 workers must be reachable within cluster_timeout_seconds=0\.2\. "
    said += rf"Received: no answer from worker 2 \(127\.0\.0\.1:{absent}\)\. Start every worker"
    with taken_port() as there, pytest.raises(RunError, match=said):
        wait_for_peers(two_on_loopback(own, there, absent), 0.2)


def test_a_host_that_does_not_resolve_is_no_answer():
    cluster = Cluster(jobs={"worker": (f"127.0.0.1:{free_port()}", "no-such-host.invalid:1")}, job="worker", index=0)
    with pytest.raises(RunError, match=r"no answer from worker 1 \(no-such-host.invalid:1\)"):
        wait_for_peers(cluster, 0.1)


def test_waiting_is_not_silent(monkeypatch, capsys):
    monkeypatch.setattr(clusters, "_FIRST_REPORT_SECONDS", 0)
    monkeypatch.setattr(clusters, "_REPORT_SECONDS", 1000)
    ports = (free_port(), free_port())
    with pytest.raises(RunError):
        wait_for_peers(two_on_loopback(*ports), 0.2)
    assert capsys.readouterr().err == f"worker 0 has waited 0 s for worker 1 (127.0.0.1:{ports[1]})\n"


def test_peers_find_each_other_and_leave_the_ports_free():
    ports = free_port(), free_port()

    def worker(index):
        wait_for_peers(dataclasses.replace(two_on_loopback(*ports), index=index), 20)
        # As TensorFlow's server does next: the other may look for this worker only now.
        return socket.create_server(("0.0.0.0", ports[index]))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for server in [*pool.map(worker, range(2))]:
            assert clusters.answers(f"127.0.0.1:{server.getsockname()[1]}")
            server.close()


def test_a_worker_answers_under_both_kinds_of_address():
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    port = free_port()
    with clusters._listening(f"localhost:{port}"):
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=5).close()


def test_a_taken_port():
    with taken_port() as port, pytest.raises(RunError, match=f"Received: port {port} of 127.0.0.1:{port} is taken"):
        wait_for_peers(two_on_loopback(port, free_port()), 5)


def test_a_lone_worker_waits_for_nobody():
    wait_for_peers(two_on_loopback(1), 0)


# --- GPUs


@pytest.mark.parametrize(
    "value, ids", [("", []), ("-1", []), ("0, 2", ["0", "2"]), ("1,-1,2", ["1"]), ("GPU-8,MIG-1", ["GPU-8", "MIG-1"])]
)
def test_cuda_visible_devices(monkeypatch, value, ids):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert clusters.visible_gpus() == ids


def test_a_machine_without_nvidia_smi_has_no_gpus(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert clusters.visible_gpus() == []


def test_gpus_are_divided_evenly():
    assert clusters.divide_gpus([], 2) == [[], []]
    assert clusters.divide_gpus(["0", "1", "2", "3", "4"], 2) == [["0", "1"], ["2", "3"]]
    with pytest.raises(UsageError, match="Received: 3 workers on a machine with 2 visible"):
        clusters.divide_gpus(["0", "1"], 3)


def test_slurm_tasks_of_a_node_divide_its_gpus_unless_slurm_has(monkeypatch):
    gpus = ["0", "1", "2", "3"]
    cluster = Cluster(jobs={"worker": ("a:1", "a:2")}, job="worker", index=1, local_index=1, num_local=2)
    assert _own_gpus(cluster, gpus) == ["2", "3"]
    assert _own_gpus(cluster, ["0"]) == ["0"]
    assert _own_gpus(dataclasses.replace(cluster, local_index=0, num_local=1), gpus) == gpus
    assert _own_gpus(dataclasses.replace(cluster, num_local=5), gpus) == gpus, "a script around the command chose them"
    for name in ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "4")
            assert _own_gpus(cluster, gpus) == gpus


PEERS, WITH_CHIEF = {"worker": ["a:1", "b:1"]}, {"chief": ["a:1"], "worker": ["b:1"]}


@pytest.mark.parametrize(
    "jobs, job, index, expected",
    [
        (PEERS, "worker", 0, True),
        (PEERS, "worker", 1, False),
        (WITH_CHIEF, "worker", 0, False),
        (WITH_CHIEF, "chief", 0, True),
    ],
)
def test_the_chief_under_any_resolver(jobs, job, index, expected):
    spec = tf.train.ClusterSpec(jobs)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, task_type=job, task_id=index)
    strategy = mock.Mock(spec=tf.distribute.MultiWorkerMirroredStrategy, cluster_resolver=resolver)
    assert is_chief(strategy) is expected


# --- what a lost peer looks like


PEER_MESSAGE = (
    "Graph execution error:\n\nCollective ops is aborted by: Socket closed\nremote target /job:worker/replica:0/task:1"
)

STRANGER_MESSAGE = (
    "Collective ops is aborted by: Task with task_name=/job:worker/replica:0/task:2 must be registered before sending "
    "heartbeat messages. The service might have restarted.\n\nRPC: /tensorflow.CoordinationService/Heartbeat"
)
"""On a worker whose first worker has been started again before it noticed."""


@pytest.mark.parametrize(
    "kind, message, expected",
    [
        (tf.errors.UnavailableError, PEER_MESSAGE, True),
        (tf.errors.DeadlineExceededError, "Collective ops is aborted by: Deadline Exceeded", True),
        (tf.errors.InternalError, "from remote target /job:worker/replica:0/task:0 while calling RecvBuf", True),
        (tf.errors.UnavailableError, "could not reach storage.googleapis.com", False),
        (tf.errors.InvalidArgumentError, "assertion failed", False),
        (tf.errors.InvalidArgumentError, PEER_MESSAGE, False),
        (tf.errors.InvalidArgumentError, STRANGER_MESSAGE, True),
        (tf.errors.ResourceExhaustedError, PEER_MESSAGE, False),
        (lambda _, __, message: ValueError(message), PEER_MESSAGE, False),
    ],
)
def test_peer_failures_are_told_from_ones_own(kind, message, expected):
    error = kind(None, None, message)
    assert is_peer_failure(error) is expected
    with pytest.raises(RunError if expected else type(error)) as caught, peer_failures_as_run_errors():
        raise error
    if message == STRANGER_MESSAGE:
        assert "lost contact with the first worker, which has been started again. " in str(caught.value)


@pytest.mark.parametrize(
    "message, lost",
    [
        ("Error reported from /job:worker/task:13: unhealthy:\n/job:worker/replica:0/task:13", "worker 13"),
        ("Deadline Exceeded\n\nRPC: /tensorflow.CoordinationService/Heartbeat", "the first worker, which takes all"),
        ("Socket closed", "another worker"),
        ("Socket closed\nremote target /job:worker/replica:0/task:12", "worker 12"),
    ],
)
def test_a_worker_never_says_that_it_lost_itself(message, lost):
    """An operation that runs by itself, as those of Keras 3's metrics, has its own device in the message."""
    own = "{{function_node __wrapped__CollectiveReduceV2_device_/job:worker/replica:0/task:10/device:CPU:0}} "
    error = tf.errors.UnavailableError(None, None, f"{own}Collective ops is aborted by: {message}")
    with pytest.raises(RunError, match=f"lost contact with {lost}") as caught, peer_failures_as_run_errors():
        raise error
    line = str(caught.value)
    assert "worker 1," not in line and "worker 10" not in line and "\n" not in line


def test_a_worker_that_was_given_up_says_so(monkeypatch):
    """As one does that was frozen, and goes on when the others have ended."""
    error = tf.errors.AbortedError(
        None, None, "Collective ops is aborted by: /job:worker/replica:0/task:1 is not known"
    )
    for index, said in ((1, "the other workers, whose error names this one. See"), (0, "worker 1. See")):
        monkeypatch.setenv("TF_CONFIG", tf_config(PEERS, index=index))
        with pytest.raises(RunError, match=f"lost contact with {said}"), peer_failures_as_run_errors():
            raise error


# --- real workers


WORKER = """\
import os, sys, time
from tfbert.config.modes import RuntimeConfig
from tfbert.errors import RunError
from tfbert.devices.workers import peer_failures_as_run_errors
from tfbert.devices.runtime import build_strategy, describe, is_chief
import tensorflow as tf
try:
    strategy = build_strategy(RuntimeConfig(strategy="multi_worker"), cluster_timeout_seconds=float(sys.argv[1]))
    step = tf.function(
        lambda: strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([])))
    )
    with peer_failures_as_run_errors():
        print("sum", int(step()), "chief" if is_chief(strategy) else "not chief", describe(strategy), flush=True)
        for _ in range(int(sys.argv[2])):
            step()
            time.sleep(0.01)
except RunError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


TRAINER = f"""\
{QUICK_START}
import json, os
import numpy as np
from tfbert.config.modes import RuntimeConfig
from tfbert.devices.runtime import build_strategy, describe, is_chief
from tfbert.devices.workers import check_same
from tests.support.two_workers import train
child = os.fork()  # Two workers for the imports of one; AutoGraph converts what it does for users.
os.environ |= json.loads(sys.argv[2])[0 if child else 1]
strategy = build_strategy(RuntimeConfig(strategy="multi_worker"), cluster_timeout_seconds=60.0)
print("chief" if is_chief(strategy) else "not chief", describe(strategy), flush=True)
check_same(lambda: {{"seed": 1}}, strategy)
try:
    check_same(lambda: {{"seed": strategy.cluster_resolver.task_id}}, strategy)
except ValueError as error:
    print(error)
weights = train(strategy, micro_batches=2)
if is_chief(strategy):
    np.savez(sys.argv[1], *weights)
    sys.exit(os.waitpid(child, 0)[1] != 0)
"""


@pytest.mark.multi_worker
def test_two_workers_train_as_one_device_does(tmp_path):
    """The quick one of many: most are in tests/train/test_invariance_commands.py, of workers that differ in
    test_same_run.py."""
    path = tmp_path / "weights.npz"
    step = {"nodes": "localhost", "node": "localhost", "tasks": 2, "count": 2, "job": random.randrange(10**6)}
    tasks = [slurm_task(**step, rank=place, local=place) for place in range(2)]
    with processes_of([TRAINER, str(path), json.dumps(tasks)], [{}]) as (process,):
        expected = two_workers.train(tf.distribute.OneDeviceStrategy("CPU:0"), micro_batches=1)
        out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert (out.count("chief"), out.count("not chief")) == (2, 1)
    assert out.count("2 replicas on CPU, 2 workers") == out.count("seed=0 on worker 0 and 1 on worker 1. ") == 2
    with np.load(path) as found:
        for name, value in zip(found.files, expected, strict=True):
            np.testing.assert_allclose(found[name], value, atol=1e-6)


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_peer_that_answers_but_never_joins(frozen):
    """Its port is open, as that of a process frozen at start; TensorFlow alone would wait for ever."""
    with taken_port() as port:
        addresses = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
        addresses[frozen] = f"127.0.0.1:{port}"
        environment = {"TF_CONFIG": tf_config({"worker": addresses}, index=1 - frozen)}
        with processes_of([WORKER, "5", "0"], [environment]) as (process,):
            _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "All 2 workers must join the cluster within cluster_timeout_seconds=5. Received: DeadlineExceeded" in err
    (line,) = (line for line in err.splitlines() if line.startswith("All 2 workers must join"))
    whole = ("Deadline Exceeded", "too early or too slowly")[frozen]
    assert f"{whole}. See the other workers' output for the cause" in line


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_worker_makes_the_other_fail_within_a_minute(victim, number):
    with processes_of([WORKER, "60", "1000000"], worker_environments(2)) as processes:
        for process in processes:
            assert process.stdout.readline().startswith("sum 2")
        processes[victim].send_signal(number)
        start = time.monotonic()
        _, err = processes[1 - victim].communicate(timeout=60)
        seconds = time.monotonic() - start
    print(f"{signal.Signals(number).name} of worker {victim}: the other failed after {seconds:.1f} s")
    assert processes[1 - victim].returncode == 1
    assert "All workers must stay up and reachable. Received: " in err
