"""Which workers train together: TF_CONFIG or SLURM's variables -> Cluster; waiting for all of them to be there.

Standard library only, so that `tfbert.launch` starts fast; TensorFlow's SLURM resolver is imported where it is used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tfbert.errors import RunError, UsageError

PREEMPTED_STATUS = 75
"""A trainer's exit status after SIGTERM or SIGINT made it stop and save (EX_TEMPFAIL of sysexits.h: start it again)."""

USAGE_STATUS = 2
"""A command's exit status for a bad flag or configuration, which starting again cannot repair."""

_TF_CONFIG_ADVICE = (
    'Set it like {"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}.'
)
_SLURM_VARIABLES = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")
_SLURM_VARIABLES += ("SLURM_STEP_TASKS_PER_NODE", "SLURMD_NODENAME")
# Above the ports that SLURM is often told to use for MPI, below those that the kernel hands out to clients.
_FIRST_SLURM_PORT, _NUM_SLURM_PORTS, _PORTS_PER_SLURM_JOB = 13000, 19200, 16
_FIRST_REPORT_SECONDS, _REPORT_SECONDS = 10.0, 60.0
_PROBE_SECONDS, _PAUSE_SECONDS = 2.0, 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """All workers of a run, and which of them this process is.

    Attributes:
        jobs: The addresses (`host:port`) of each job, `chief` (at most one) or `worker`.
        job: This process's job.
        index: This process's place in its job.
        local_index: This process's place among the workers of its machine that share its GPUs.
        num_local: Workers on this machine that share its GPUs.
    """

    jobs: dict[str, tuple[str, ...]]
    job: str
    index: int
    local_index: int = 0
    num_local: int = 1

    @property
    def address(self) -> str:
        """Where this process will listen."""
        return self.jobs[self.job][self.index]

    @property
    def size(self) -> int:
        """Workers in all, a chief included."""
        return sum(map(len, self.jobs.values()))

    @property
    def peers(self) -> dict[str, str]:
        """All other workers: name (`worker 1`) -> address."""
        named = {(job, i): address for job in sorted(self.jobs) for i, address in enumerate(self.jobs[job])}
        return {f"{job} {i}": address for (job, i), address in named.items() if (job, i) != (self.job, self.index)}


def current_cluster() -> Cluster:
    """The cluster this process's environment describes: TF_CONFIG, or, without it, a SLURM step.

    Raises:
        UsageError: if there is neither, or it cannot be right.
    """
    if os.environ.get("TF_CONFIG"):
        return cluster_from_tf_config(os.environ["TF_CONFIG"])
    if "SLURM_JOB_ID" in os.environ or "SLURM_PROCID" in os.environ:
        return cluster_from_slurm()
    todo = "Start the command with python -m tfbert.launch --num_workers=N -- COMMAND, with srun, or set TF_CONFIG."
    raise UsageError(f"multi_worker needs TF_CONFIG or SLURM's variables in the environment. Received: neither. {todo}")


def cluster_from_tf_config(text: str) -> Cluster:
    """Reads TF_CONFIG and checks it first, since TensorFlow would hang or crash on most mistakes.

    Args:
        text: The environment variable's value.

    Raises:
        UsageError: naming what is wrong.
    """

    def refuse(received: object) -> UsageError:
        rule = "TF_CONFIG must list addresses, host:port, each once, of jobs worker and chief (one), and name a task"
        return UsageError(f"{rule}. Received: {received}. {_TF_CONFIG_ADVICE}")

    try:
        value = json.loads(text)
        cluster, task = dict(value["cluster"]), dict(value["task"])
    except (ValueError, TypeError, KeyError):
        raise refuse(f"TF_CONFIG={text[:200]!r}") from None
    for job, hosts in cluster.items():
        if job not in ("chief", "worker") or not isinstance(hosts, list) or (job == "chief" and len(hosts) > 1):
            raise refuse(f"{job}: {json.dumps(hosts)}")
    addresses = [address for hosts in cluster.values() for address in hosts]
    for address in addresses:
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        is_plain = ":" not in host or (host.startswith("[") and host.endswith("]"))
        is_port = port.isdecimal() and 0 < int(port) < 65536
        if not (host and is_plain and is_port) or set(host) & set("/ ") or addresses.count(address) > 1:
            raise refuse(f"address {address!r}{' twice' if addresses.count(address) > 1 else ''}")
    job, index = task.get("type"), task.get("index")
    if isinstance(index, str) and index.isdecimal():  # TensorFlow takes it too, and some operators write it so
        index = int(index)
    if not isinstance(job, str) or job not in cluster or type(index) is not int or not 0 <= index < len(cluster[job]):
        sizes = ", ".join(f"{name}: {len(hosts)}" for name, hosts in cluster.items())
        raise refuse(f"task {json.dumps(task)} with jobs {{{sizes}}}")
    return Cluster(jobs={name: tuple(hosts) for name, hosts in cluster.items() if hosts}, job=job, index=index)


def cluster_from_slurm() -> Cluster:
    """Reads the variables that `srun` sets in each task, through TensorFlow's `SlurmClusterResolver`.

    The resolver lists the addresses, sorted by host name. It finds this process's own by SLURM_PROCID. Here it is found
    by node name and local id instead: SLURM ranks nodes in its own order (node9 before node10) and may deal tasks out
    cyclically, and each worker would then wait at another's address.

    Raises:
        UsageError: outside a step started by srun, or if the variables contradict each other.
    """
    if missing := [name for name in _SLURM_VARIABLES if not os.environ.get(name)]:
        rule = "Under SLURM, multi_worker must run in a step that srun started"
        todo = "Put srun in front of the command."
        raise UsageError(f"{rule}. Received: no {', '.join(missing)} in the environment. {todo}")
    import tensorflow as tf

    # Jobs that share a node get ports of their own.
    job_id = int(os.environ.get("SLURM_JOB_ID") or 0)
    port = _FIRST_SLURM_PORT + job_id * _PORTS_PER_SLURM_JOB % _NUM_SLURM_PORTS
    node, local_index = os.environ["SLURMD_NODENAME"], int(os.environ["SLURM_LOCALID"])
    try:
        # The resolver would ask nvidia-smi for the GPUs and fails without any; it needs as many as tasks to list all.
        num_tasks = int(os.environ["SLURM_STEP_NUM_TASKS"])
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            port_base=port, gpus_per_node=num_tasks, gpus_per_task=1, auto_set_gpu=False
        )
        addresses = tuple(resolver.cluster_spec().as_dict()["worker"])
        index = addresses.index(f"{node}:{port + local_index}")
    except (ValueError, RuntimeError) as error:
        received = ", ".join(f"{name}={os.environ[name]}" for name in _SLURM_VARIABLES)
        rule = "SLURM's variables must describe one step"
        raise UsageError(f"{rule}. Received: {received} ({error}). Let srun set them, or set TF_CONFIG.") from None
    num_local = sum(address.rpartition(":")[0] == node for address in addresses)
    return Cluster(jobs={"worker": addresses}, job="worker", index=index, local_index=local_index, num_local=num_local)


def wait_for_peers(cluster: Cluster, timeout_seconds: float) -> None:
    """Returns once every other worker answers at its address; until then this worker listens at its own. The missing
    ones are named on stderr after 10 s, and then once a minute.

    TensorFlow's own start waits without a limit, and holds Python's lock meanwhile, so that neither Ctrl-C nor a
    watchdog thread gets through. Call this just before building the strategy, whose server takes over the port.

    Args:
        cluster: Whose workers to wait for.
        timeout_seconds: How long to wait.

    Raises:
        RunError: naming the peers that did not answer in time, or this worker's own port if it is taken.
    """
    if not cluster.peers:
        return
    with _listening(cluster.address):
        start = time.monotonic()
        next_report = start + _FIRST_REPORT_SECONDS
        missing = cluster.peers
        while True:
            missing = {name: address for name, address in missing.items() if not answers(address)}
            if not missing:
                return
            now = time.monotonic()
            waiting_for = ", ".join(f"{name} ({address})" for name, address in missing.items())
            if now - start >= timeout_seconds:
                within = f"cluster_timeout_seconds={timeout_seconds:g}"
                ways = "check the addresses and firewalls, or pass a longer --cluster_timeout_seconds"
                rule = f"All {cluster.size} workers must be reachable within {within}"
                raise RunError(f"{rule}. Received: no answer from {waiting_for}. Start every worker, {ways}.")
            if now >= next_report:
                waited = f"{cluster.job} {cluster.index} has waited {now - start:.0f} s for {waiting_for}"
                print(waited, file=sys.stderr, flush=True)
                next_report += _REPORT_SECONDS
            time.sleep(_PAUSE_SECONDS)


def answers(address: str) -> bool:
    """Whether something listens at `host:port`; a name that does not resolve (yet) is no answer."""
    host, port = split_address(address)
    try:
        socket.create_connection((host, port), timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def visible_gpus() -> list[str]:
    """The ids CUDA will accept: those of CUDA_VISIBLE_DEVICES, else one for each line of `nvidia-smi -L`."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        ids = [part.strip() for part in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
        ends = [i for i, gpu in enumerate(ids) if gpu in ("", "-1")]  # CUDA ignores what follows an invalid id
        return ids[: ends[0]] if ends else ids
    try:
        result = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(i) for i, _ in enumerate(line for line in result.stdout.splitlines() if line.startswith("GPU "))]


def divide_gpus(gpus: Sequence, num_workers: int) -> list[list]:
    """The same number of GPUs for each worker, as MultiWorkerMirroredStrategy assumes; a remainder stays unused.

    Raises:
        UsageError: if there are GPUs, but fewer than workers.
    """
    if 0 < len(gpus) < num_workers:
        rule = "Each worker needs a GPU of its own"
        todo = f"Start {len(gpus)} or fewer workers, or hide the GPUs with CUDA_VISIBLE_DEVICES=-1."
        raise UsageError(f"{rule}. Received: {num_workers} workers on a machine with {len(gpus)} visible. {todo}")
    share = len(gpus) // num_workers
    return [list(gpus[i * share : (i + 1) * share]) for i in range(num_workers)]


def split_address(address: str) -> tuple[str, int]:
    """`host:port` -> (host, port); an IPv6 host loses its brackets."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


@contextlib.contextmanager
def _listening(address: str) -> Iterator[None]:
    """Answers at this process's port on all interfaces, as TensorFlow's server will."""
    port = split_address(address)[1]
    is_dual = socket.has_dualstack_ipv6()  # A name may stand for an address of either kind.
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    try:
        # The kernel completes connections by itself; nothing needs to be accepted.
        server = socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=is_dual)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            rule = "Each worker needs a free port"
            todo = "End the process that holds it (often an earlier run's worker), or use another port."
            raise RunError(f"{rule}. Received: port {port} of {address} is taken. {todo}") from None
        rule, received = "A worker must be allowed to listen at its port", f"{address}: {error.strerror}"
        raise UsageError(f"{rule}. Received: {received}. Use a port above 1023.") from None
    with server:
        yield
