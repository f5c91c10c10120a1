"""Two workers whose output directory is on a file server, on a host and over a network that fail.

    python benchmarks/network_shared_directory.py --work_dir=runs/shared

Root and Linux only, with GlusterFS's `glusterfsd` and `glusterfs`: its client needs FUSE alone, NFS's is a part of some
kernels. Elsewhere it says so in one line and does nothing. Hosts 0 and 1 (`network_hosts.py`) have a worker of
`run_finetune.py --strategy=multi_worker` each and mount what host 2 serves; they remember names and sizes of files for
`--remember_seconds`, as NFS does by default. In the middle of training something fails, and each host starts its own
worker again until the run is done; its weights are compared with those of a run in a local directory. In a trial more,
a second run starts in the directory, on the other host. Writes a file to benchmarks/results/; exit status 1 if a trial
was not as it must be.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from network_failures import (
    AT_STEP,
    ROOT,
    STEPS,
    Trial,
    again_by_hosts,
    difference,
    emptied,
    killed,
    last_line,
    undisturbed,
)
from network_hosts import Hosts, NotAllowed, check_allowed, ended_by_signals
from network_page import shortened
from results_page import beginning, default_output, table

WORKERS, SERVER, PORT = 2, 2, 24100
_PROGRAMS = ("glusterfsd", "glusterfs", "nsenter", "umount")
_SERVED = """\
volume disk
    type storage/posix
    option directory {directory}
end-volume
volume locks
    type features/locks
    subvolumes disk
end-volume
volume server
    type protocol/server
    option transport-type tcp
    option transport.socket.listen-port {port}
    option auth.addr.locks.allow *
    subvolumes locks
end-volume
"""
_MOUNTED = """\
volume client
    type protocol/client
    option transport-type tcp
    option remote-host {address}
    option remote-port {port}
    option remote-subvolume locks
    option ping-timeout {patience}
end-volume
"""
_PATIENCE_SECONDS = 42
"""Until a client takes a server that does not answer for lost: GlusterFS's default."""


@dataclasses.dataclass
class SharedTrial(Trial):
    """Workers that see one directory of another host.

    Attributes:
        remember_seconds: How long clients trust what they know of names and sizes.
        server: Its process.
    """

    remember_seconds: int = 1
    server: subprocess.Popen | None = None

    @property
    def workers(self) -> int:
        return WORKERS

    def output_dir(self, host: int) -> pathlib.Path:
        return self.mounted(host) / "run"

    def mounted(self, host: int) -> pathlib.Path:
        """Where a host sees the directory."""
        return self.directory.with_name(f"{self.directory.name}-on-host-{host}")

    def serve(self) -> None:
        """Starts the server."""
        settings = self.directory.with_name("served.vol")
        settings.write_text(_SERVED.format(directory=self.directory, port=PORT))
        words = ["glusterfsd", "--no-daemon", f"--volfile={settings}", "--log-file=/dev/stderr"]
        self.server = self.hosts.start(SERVER, words, {}, self.directory.with_name("server.txt"))

    def mount_all(self) -> None:
        """Mounts the directory on the workers' hosts."""
        settings = self.directory.with_name("mounted.vol")
        settings.write_text(_MOUNTED.format(address=self.hosts.address(SERVER), port=PORT, patience=_PATIENCE_SECONDS))
        remember = [f"--{name}-timeout={self.remember_seconds}" for name in ("attribute", "entry")]
        for host in range(WORKERS):
            self.mounted(host).mkdir(exist_ok=True)
            words = ["glusterfs", "--no-daemon", f"--volfile={settings}", "--log-file=/dev/stderr", *remember]
            log = self.directory.with_name(f"mount{host}.txt")
            self.hosts.mount(host, [*words, self.mounted(host)], log)
            until = time.monotonic() + 30
            while not is_mounted(self.mounted(host)):
                if time.monotonic() > until:
                    raise RuntimeError(f"{self.mounted(host)} is not mounted: {last_line(log)}")
                time.sleep(0.1)

    def unmount_all(self) -> None:
        """Undoes `mount_all`."""
        for host in range(WORKERS):
            subprocess.run(["umount", "--lazy", self.mounted(host)], capture_output=True)
            with contextlib.suppress(FileNotFoundError):
                self.mounted(host).rmdir()


def is_mounted(path: pathlib.Path) -> bool:
    """Whether a directory is mounted there that can be read: the client answers with errors until it is connected."""
    try:
        list(path.iterdir())
        return path.is_mount()
    except OSError:
        return False


def nothing(trial: Trial, host: int) -> None:
    """The run is as it is."""


def cut_server(seconds: float) -> Callable[[Trial, int], None]:
    """The file server cannot be reached for a while, and nobody is told."""

    def disturb(trial: Trial, host: int) -> None:
        trial.hosts.cut(SERVER)
        time.sleep(seconds)
        trial.hosts.join(SERVER)

    return disturb


def server_started_again(trial: Trial, host: int) -> None:
    """The file server's process is killed; its disk has what it had."""
    assert isinstance(trial, SharedTrial) and trial.server is not None
    trial.server.kill()
    trial.server.wait()
    time.sleep(3)
    trial.serve()


def power_lost(trial: Trial, host: int) -> None:
    """A worker's host is away for 3 s; what it mounted is there when it is back."""
    trial.hosts.cut(host)
    trial.processes[host].kill()
    time.sleep(3)
    trial.hosts.join(host)


TRIALS: dict[str, tuple[Callable[[Trial, int], None], int]] = {
    "nothing": (nothing, 0),
    "worker 0, which writes, killed": (killed, 0),
    "worker 1 killed": (killed, 1),
    "power of host 0 lost, back after 3 s": (power_lost, 0),
    "file server cut off for 5 s": (cut_server(5), SERVER),
    "file server cut off for 30 s": (cut_server(30), SERVER),
    "file server cut off for 90 s": (cut_server(90), SERVER),
    "file server killed, started again after 3 s": (server_started_again, SERVER),
}


def main() -> int:
    """Makes all trials, and writes their page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work_dir", type=pathlib.Path, required=True, help="where the runs are, and what was found")
    parser.add_argument("--remember_seconds", default="1,30")
    parser.add_argument("--only", default="", help="trials that have this in their name")
    parser.add_argument("--output", type=pathlib.Path, default=default_output("network-shared-directory"))
    args = parser.parse_args()
    args.work_dir = args.work_dir.absolute()
    try:
        check_allowed()
        if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
            raise NotAllowed(f"a shared directory needs GlusterFS. Received: no {' and no '.join(missing)}.")
        if not pathlib.Path("/dev/fuse").exists():
            raise NotAllowed("a shared directory needs FUSE. Received: no /dev/fuse.")
        args.work_dir.mkdir(parents=True, exist_ok=True)
        with ended_by_signals():
            remembered = [int(seconds) for seconds in args.remember_seconds.split(",")]
            twice = [started_twice(args, seconds) for seconds in remembered if not args.only]
            cells = [(name, seconds) for seconds in remembered for name in TRIALS if args.only in name]
            rows = [one_trial(args, *cell) for cell in cells]
    except NotAllowed as reason:
        print(f"skipped: {reason}")
        return 0
    args.output.write_text("\n\n".join(page(args, rows, twice)) + "\n", encoding="utf-8")
    print(args.output.read_text(encoding="utf-8"))
    return 0 if all(row["good"] for row in rows) and all(one["status"] == 1 for one in twice) else 1


@contextlib.contextmanager
def running(args: argparse.Namespace, name: str, remember_seconds: int, steps: int) -> Iterator[SharedTrial]:
    """A run in a shared directory; nothing runs and nothing is mounted after the block."""
    words = "".join(each if each.isalnum() else "_" for each in name)
    directory = emptied(args.work_dir / f"{words}-{remember_seconds}") / "served"
    directory.mkdir()
    with Hosts(WORKERS + 1) as hosts:
        trial = SharedTrial(hosts, "command", directory, steps, remember_seconds=remember_seconds)
        trial.serve()
        try:
            trial.mount_all()
            trial.start_all()
            trial.wait_for_step(AT_STEP)
            yield trial
        finally:
            for process in trial.processes:
                process.kill()
                process.wait()
            trial.unmount_all()


def one_trial(args: argparse.Namespace, name: str, remember_seconds: int) -> dict:
    """Disturbs a run whose directory is shared, and compares its weights with those of a run in a local one."""
    reference = undisturbed(args, "command", WORKERS, STEPS)
    disturb, host = TRIALS[name]
    with running(args, name, remember_seconds, STEPS) as trial:
        ends = again_by_hosts(disturb)(trial, host, 0)
    row = {"name": name, "remember_seconds": remember_seconds, "ends": ends}
    row |= {"difference": difference("command", reference, trial.directory)}
    row["good"] = all(one["at_last"] == 0 for one in ends) and row["difference"] == 0
    print(json.dumps(row), flush=True)
    return row


def started_twice(args: argparse.Namespace, remember_seconds: int) -> dict:
    """What a process on host 1 says that would write to the directory of a run, whose writer is on host 0."""
    with running(args, "started twice", remember_seconds, 100 * STEPS) as trial:
        log = trial.directory.with_name("second.txt")
        words = [ROOT / "run_finetune.py", "--device=cpu", "--max_steps=1", f"--output_dir={trial.output_dir(1)}"]
        process = trial.hosts.start(1, [sys.executable, *words], {"CUDA_VISIBLE_DEVICES": "-1"}, log)
        row = {"status": process.wait(), "line": last_line(log), "first": [one.poll() for one in trial.processes]}
    print(json.dumps(row), flush=True)
    return row


def page(args: argparse.Namespace, rows: list[dict], twice: list[dict]) -> list[str]:
    """The results as Markdown, one paragraph each."""
    head = ["what fails", "names remembered, s", "statuses at first", "after, s", "starts", "done after, s", "weights"]
    lines = [[row["name"], str(row["remember_seconds"]), *_cells(row)] for row in rows]
    ended = [one for row in rows for one in row["ends"] if one["status"] not in (None, -signal.SIGKILL)]
    said = {short(args, one["line"]) for one in ended}
    second = sorted({f"status {one['status']}: `{short(args, one['line'])}`" for one in twice})
    return [
        *beginning("An output directory on a file server", "network_shared_directory.py", args),
        "GlusterFS's server on a third host, its FUSE client on the workers' two; all three are network namespaces of "
        f"this machine. A client takes the server for lost after {_PATIENCE_SECONDS} s. Seconds are since the failure.",
        table(head, lines),
        f"A second run in the directory, on host 1, while the first trained: {'; '.join(second) or 'not tried'}.",
        "Last lines of the workers that ended:\n\n" + "\n".join(f"- `{line}`" for line in sorted(said)),
    ]


def short(args: argparse.Namespace, line: str) -> str:
    """A last line, without directories of this machine."""
    return shortened(re.sub(rf"{re.escape(str(args.work_dir))}/[^/]*/served-on-host-\d", "mounted", line))


def _cells(row: dict) -> list[str]:
    ends = row["ends"]
    is_done = all(one["at_last"] == 0 for one in ends)
    weights = {None: "none", 0: "same bits"}.get(row["difference"]) or f"differ by {row['difference']:.1g}"
    return [
        ", ".join("none" if one["status"] is None else str(one["status"]) for one in ends),
        ", ".join("" if one["seconds"] is None else f"{one['seconds']:.0f}" for one in ends).strip(", "),
        ", ".join(str(one["starts"]) for one in ends),
        f"{ends[0]['done']:.0f}" if is_done else "not done",
        weights,
    ]


if __name__ == "__main__":
    sys.exit(main())
