"""What workers on several hosts do when the network fails: how soon each ends, how, and what a new start makes of it.

    python benchmarks/network_failures.py --work_dir=runs/network

Root and Linux only; elsewhere it says so in one line and does nothing. The hosts are network namespaces
(`network_hosts.py`). On each runs one worker with a TF_CONFIG of the hosts' addresses, all with one output directory:
`run_finetune.py --strategy=multi_worker` or a script of Keras 3's `fit` (`network_keras3.py`). In the
middle of training something fails. Noted is after how many seconds each process has ended, with which status and last
line; then all are started again, and the weights at the end are compared with those of a run that nothing disturbed.
Trials that are done are not done again. Writes a file to benchmarks/results/; exit status 1 if a trial was not as it
must be: every process ends within `--limit` seconds, with a status other than 0, and the new run has the same bits.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from network_hosts import Hosts, NotAllowed, check_allowed, ended_by_signals
from network_page import page
from results_page import default_output

ROOT = pathlib.Path(__file__).resolve().parent.parent
PORT, AT_STEP, STEPS, FEW_STEPS = 2222, 25, 60, 30
_POLL_SECONDS, _PATIENCE_SECONDS = 0.05, 900.0
_KERAS3_STEPS = 10


@dataclasses.dataclass
class Trial:
    """Workers of one run, each on its host.

    Attributes:
        hosts: With the network.
        side: `command`, `keras3` or `keras3-plain`.
        directory: The run's output, and each process's in a file of its own.
        steps: Updates of the whole run.
        processes: The newest of each host.
    """

    hosts: Hosts
    side: str
    directory: pathlib.Path
    steps: int
    processes: list[subprocess.Popen] = dataclasses.field(default_factory=list)

    @property
    def workers(self) -> int:
        """How many hosts have a worker."""
        return self.hosts.count

    def output_dir(self, host: int) -> pathlib.Path:
        """Where a host finds the run's output."""
        return self.directory / "run"

    def start(self, host: int) -> subprocess.Popen:
        """Starts a host's worker."""
        addresses = [f"{self.hosts.address(i)}:{PORT}" for i in range(self.workers)]
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": host}}
        environment = {"TF_CONFIG": json.dumps(config), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}
        if self.side == "command":
            flags = {"strategy": "multi_worker", "max_steps": self.steps, "save_steps": 10, "logging_steps": 1}
            flags |= {"max_train_examples": 1000, "max_eval_examples": 64, "max_seq_length": 32}
            flags |= {"global_batch_size": 16, "output_dir": self.output_dir(host)}
            command = ["run_finetune.py", *(f"--{name}={value}" for name, value in flags.items())]
        else:
            environment |= {"KERAS_BACKEND": "tensorflow"}
            (self.directory / "run").mkdir(exist_ok=True)
            kind = "plain" if self.side.endswith("plain") else "tfbert"
            sizes = (self.steps // _KERAS3_STEPS, _KERAS3_STEPS)
            command = ["benchmarks/network_keras3.py", self.directory / "run", *sizes, kind]
        words = [sys.executable, ROOT / command[0], *command[1:]]
        return self.hosts.start(host, words, environment, self.log(host))

    def start_all(self) -> None:
        """Starts all hosts' workers."""
        self.processes = [self.start(host) for host in range(self.workers)]

    def log(self, host: int) -> pathlib.Path:
        """What a host's processes wrote to the screen."""
        return self.directory / f"host{host}.txt"

    def step(self) -> int:
        """How many updates are done."""
        path = self.directory / "run" / ("log.jsonl" if self.side == "command" else "steps")
        lines = path.read_text().splitlines() if path.exists() else []
        if self.side != "command":
            return int(lines[-1]) if lines else 0
        return max((json.loads(line).get("step", 0) for line in lines if line.endswith("}")), default=0)

    def wait_for_step(self, step: int) -> None:
        """Returns in the middle of a later update."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while self.step() < step:
            if time.monotonic() > until or any(process.poll() is not None for process in self.processes):
                raise RuntimeError(f"{self.directory}: no step {step}. See host0.txt there.")
            time.sleep(_POLL_SECONDS)
        time.sleep(random.uniform(0, 0.1))

    def wait_for_ends(self, seconds: float, of: list[int] | None = None) -> list[dict]:
        """Waits for processes, of all hosts or some: what became of each. One that does not end is killed."""
        start = time.monotonic()
        running = dict.fromkeys(range(self.workers) if of is None else of, None)
        ended: dict[int, float] = {}
        while len(ended) < len(running) and time.monotonic() < start + seconds:
            for host in running:
                if host not in ended and self.processes[host].poll() is not None:
                    ended[host] = round(time.monotonic() - start, 1)
            time.sleep(_POLL_SECONDS)
        for host in running:
            if host not in ended:
                self.processes[host].kill()
                self.processes[host].wait()
        return [
            {
                "host": host,
                "seconds": ended.get(host),
                "status": self.processes[host].returncode if host in ended else None,
                "line": last_line(self.log(host)),
            }
            for host in running
        ]


def last_line(path: pathlib.Path) -> str:
    """The last line of a file that says something."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def simple(action: str) -> Callable[[Trial, int, float], list[dict]]:
    """A failure that is one method of `Hosts`."""

    def fail(trial: Trial, host: int, limit: float) -> list[dict]:
        getattr(trial.hosts, action)(host)
        return trial.wait_for_ends(limit)

    return fail


def lose_power(trial: Trial, host: int, limit: float) -> list[dict]:
    """The others' connections stay open, and nobody is at their other end."""
    trial.hosts.cut(host)
    trial.processes[host].kill()
    return trial.wait_for_ends(limit, [i for i in range(trial.workers) if i != host])


def freeze(trial: Trial, host: int, limit: float) -> list[dict]:
    """The kernel acknowledges what the process never reads; when the others have ended, it goes on."""
    trial.processes[host].send_signal(signal.SIGSTOP)
    others = trial.wait_for_ends(limit, [i for i in range(trial.workers) if i != host])
    trial.processes[host].send_signal(signal.SIGCONT)
    return [*others, *trial.wait_for_ends(limit, [host])]


def again_by_hosts(disturb: Callable[[Trial, int], None]) -> Callable[[Trial, int, float], list[dict]]:
    """A failure after which each host starts its own worker again, a second after it has ended."""

    def fail(trial: Trial, host: int, limit: float) -> list[dict]:
        start, starts = time.monotonic(), [1] * trial.workers
        ends: dict[int, dict] = {}
        disturb(trial, host)
        while time.monotonic() < start + _PATIENCE_SECONDS and any(p.poll() != 0 for p in trial.processes):
            for i, process in enumerate(trial.processes):
                if process.poll():
                    said = {"status": process.returncode, "line": last_line(trial.log(i))}
                    ends.setdefault(i, {"host": i, "seconds": round(time.monotonic() - start, 1), **said})
                    time.sleep(1)
                    trial.processes[i], starts[i] = trial.start(i), starts[i] + 1
            time.sleep(_POLL_SECONDS)
        for i, process in enumerate(trial.processes):
            said = {"starts": starts[i], "at_last": process.poll(), "done": round(time.monotonic() - start, 1)}
            ends[i] = ends.get(i, {"host": i, "seconds": None, "status": None, "line": ""}) | said
        return [ends[i] for i in sorted(ends)]

    return fail


def killed(trial: Trial, host: int) -> None:
    """The others' connections are closed."""
    trial.processes[host].kill()


def off_for_three_seconds(trial: Trial, host: int) -> None:
    """Back before the others have noticed."""
    trial.hosts.cut(host)
    trial.processes[host].kill()
    time.sleep(3)
    trial.hosts.join(host)


def cut_for_half_a_minute(trial: Trial, host: int) -> None:
    """Longer than it takes to notice."""
    trial.hosts.cut(host)
    time.sleep(30)
    trial.hosts.join(host)


def cut_for_five_seconds(trial: Trial, host: int) -> None:
    """Shorter than it takes to notice."""
    trial.hosts.cut(host)
    time.sleep(5)
    trial.hosts.join(host)


FAILURES = {
    "link cut, both directions": simple("cut"),
    "what it sends is lost": simple("lose_outgoing"),
    "what is sent to it is lost": simple("lose_incoming"),
    "network interface removed": simple("remove_interface"),
    "power lost: connections half open": lose_power,
    "process frozen, later goes on": freeze,
}
"""All processes must end; those that were killed are not waited for."""
OF_LINKS = ("link cut, both directions", "what it sends is lost", "what is sent to it is lost")
"""The same for both, where two hosts are all."""
STARTED_AGAIN = {
    "link cut for 5 s": again_by_hosts(cut_for_five_seconds),
    "link cut for 30 s": again_by_hosts(cut_for_half_a_minute),
    "worker killed": again_by_hosts(killed),
    "power lost, back after 3 s": again_by_hosts(off_for_three_seconds),
}
"""Each host starts its own worker again, until all are done."""
LASTING = {
    "2% of packets lost": lambda hosts: hosts.every_cable(lost=0.02),
    "50 ms later": lambda hosts: hosts.every_cable(delay_seconds=0.05),
    "10 Mbit/s": lambda hosts: hosts.limit_sending(10),
}
"""On every link, from before the start to the end."""
NEED_BAD_CABLES = ("what it sends is lost", "what is sent to it is lost", "2% of packets lost", "50 ms later")


def main() -> int:
    """Makes the trials that are missing, and writes the page of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work_dir", type=pathlib.Path, required=True, help="where the runs are, and what was found")
    parser.add_argument("--sides", default="command,keras3", help="of command, keras3, keras3-plain")
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--only", default="", help="trials that have this in `NAME, host N`")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds until each process must have ended")
    parser.add_argument("--output", type=pathlib.Path, default=default_output("network-failures"))
    args = parser.parse_args()
    try:
        check_allowed()
    except NotAllowed as reason:
        print(f"skipped: {reason}")
        return 0
    args.work_dir.mkdir(parents=True, exist_ok=True)
    found = args.work_dir / "trials.jsonl"
    with ended_by_signals():
        for side in args.sides.split(","):
            for workers in map(int, args.workers.split(",")):
                every(args, found, side, workers)
    rows = [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []
    args.output.write_text("\n\n".join(page(args, rows)) + "\n", encoding="utf-8")
    print(args.output.read_text(encoding="utf-8"))
    return 0 if all(row["good"] for row in rows) else 1


def every(args: argparse.Namespace, found: pathlib.Path, side: str, workers: int) -> None:
    """Makes each trial of a side and a number of workers, unless it was made."""
    done = {tuple(json.loads(line)["key"]) for line in found.read_text().splitlines()} if found.exists() else set()
    cells = [(name, host) for name in (*FAILURES, *STARTED_AGAIN) for host in (0, workers - 1)]
    cells = [cell for cell in cells if workers > 2 or cell[1] or cell[0] not in OF_LINKS]
    cells += [(name, -1) for name in LASTING]
    for name, host in cells:
        if (side, workers, name, host) in done or args.only not in f"{name}, host {host}":
            continue
        row = {"key": (side, workers, name, host), **one_trial(args, side, workers, name, host)}
        print(json.dumps(row), flush=True)
        with found.open("a") as out:
            out.write(json.dumps(row) + "\n")


def one_trial(args: argparse.Namespace, side: str, workers: int, name: str, host: int) -> dict:
    """Disturbs a run, starts it again if it failed, and compares its weights."""
    steps = FEW_STEPS if name in LASTING else STEPS
    reference = undisturbed(args, side, workers, steps)
    words = "".join(each if each.isalnum() else "_" for each in name)
    directory = emptied(args.work_dir / f"{side}-{workers}-{words}-{host}")
    result: dict = {}
    with Hosts(workers, bad_cables=name in NEED_BAD_CABLES) as hosts:
        trial = Trial(hosts, side, directory, steps)
        if name in LASTING:
            LASTING[name](hosts)
        started = time.monotonic()
        trial.start_all()
        if name in LASTING:
            ends = trial.wait_for_ends(_PATIENCE_SECONDS)
        else:
            trial.wait_for_step(AT_STEP)
            result["step"] = trial.step()
            # Beyond the limit for a while, so that the page can say how long it takes.
            ends = (FAILURES | STARTED_AGAIN)[name](trial, host, 3 * args.limit)
        result |= {"seconds": round(time.monotonic() - started, 1), "load": round(os.getloadavg()[0], 1)}
    if name in FAILURES:
        good = all(one["seconds"] is not None and one["seconds"] <= args.limit and one["status"] for one in ends)
        with Hosts(workers) as hosts:
            again = Trial(hosts, side, directory, steps)
            again.start_all()
            resumed = again.wait_for_ends(_PATIENCE_SECONDS)
            result["resumed"] = [one["status"] for one in resumed]
            good = good and not any(result["resumed"])
    else:
        good = all(one.get("at_last", one["status"]) == 0 for one in ends)
    result["difference"] = difference(side, reference, directory)
    result["undisturbed_seconds"] = json.loads((reference / "seconds.json").read_text())
    return result | {"ends": ends, "good": good and result["difference"] == 0}


def undisturbed(args: argparse.Namespace, side: str, workers: int, steps: int) -> pathlib.Path:
    """The directory of a run that nothing disturbs, made if needed; with `seconds.json`."""
    directory = args.work_dir / f"{side}-{workers}-undisturbed-{steps}"
    if not (directory / "seconds.json").exists():
        with Hosts(workers) as hosts:
            trial, start = Trial(hosts, side, emptied(directory), steps), time.monotonic()
            trial.start_all()
            ends = trial.wait_for_ends(_PATIENCE_SECONDS)
            if any(one["status"] != 0 for one in ends):
                sys.exit(f"{directory}: a run that nothing disturbed failed: {ends}")
            (directory / "seconds.json").write_text(json.dumps(round(time.monotonic() - start, 1)))
    return directory


def emptied(directory: pathlib.Path) -> pathlib.Path:
    """A directory without what was in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def difference(side: str, one: pathlib.Path, other: pathlib.Path) -> float | None:
    """The largest difference of two runs' weights, 0 for the same bits; None where one has none."""
    import numpy as np
    from safetensors.numpy import load_file

    names = ["model.safetensors"] if side == "command" else [path.name for path in (one / "run").glob("*.npz")]
    largest = 0.0
    for name in names:
        paths = [directory / "run" / name for directory in (one, other)]
        if not all(path.exists() for path in paths):
            return None
        first, second = (load_file(path) if side == "command" else dict(np.load(path)) for path in paths)
        for key, value in first.items():
            if value.tobytes() != second[key].tobytes():
                largest = max(largest, float(np.abs(value - second[key]).max()))
    return largest


if __name__ == "__main__":
    sys.exit(main())
