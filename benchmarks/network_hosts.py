"""Hosts on one switch, made of network namespaces of this machine, between which packets can be lost, late or few.

Linux and root only. Each host has a namespace, an address on `eth0` and its own loopback; the switch is a bridge in a
namespace of its own, so that the machine's network is not touched. Cables are veth pairs, or `network_cable.py`, which
can lose and delay what it carries: many kernels have no netem. Leaving the `with` block kills what runs in the hosts
and removes them; what a killed benchmark left is removed by the next.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from network_cable import Cable

_PREFIX = "tfbert-hosts"
_NETWORK = "10.77.0"


class NotAllowed(Exception):
    """This machine, or this user, cannot make network namespaces; the message is one line."""


class Hosts:
    """So many hosts, all on one switch; a context manager.

    Args:
        count: Of hosts, which are numbered from 0.
        bad_cables: Whether their cables are slow ones that can lose and delay what they carry.
    """

    def __init__(self, count: int, *, bad_cables: bool = False):
        self.count = count
        self._bad_cables = bad_cables
        self._cables: list[Cable] = []
        self._names = [f"{_PREFIX}-{os.getpid()}-{i}" for i in range(count)]
        self._switch = f"{_PREFIX}-{os.getpid()}-switch"
        self._processes: list[subprocess.Popen] = []

    def __enter__(self) -> Hosts:
        try:
            _run("netns", "add", self._switch)
            _run("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _run("-n", self._switch, "link", "set", "bridge", "up")
            for i, name in enumerate(self._names):
                _run("netns", "add", name)
                self._plug_in(i)
                _run("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for cable in self._cables:
            cable.close()
        for name in [*self._names, self._switch]:
            _remove(name)

    def _plug_in(self, host: int) -> None:
        """Gives a host a cable to the switch, and its address."""
        name, port = self._names[host], f"port{host}"
        if self._bad_cables:
            cable = Cable(f"tfb{os.getpid()}c{host}")
            self._cables.append(cable)
            for end, (namespace, device) in zip(cable.ends, ((name, "eth0"), (self._switch, port)), strict=True):
                _run("link", "set", end, "netns", namespace, "name", device)
        else:
            cable = ("type", "veth", "peer", "name", "eth0", "netns", name)
            _run("-n", self._switch, "link", "add", port, *cable)
        _run("-n", self._switch, "link", "set", port, "master", "bridge", "up")
        _run("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        _run("-n", name, "link", "set", "eth0", "up")

    def address(self, host: int) -> str:
        """An IPv4 address."""
        return f"{_NETWORK}.{host + 1}"

    def start(
        self, host: int, command: Sequence[object], environment: Mapping[str, str], log: pathlib.Path
    ) -> subprocess.Popen:
        """Starts a process on a host; its output is appended to a file. What it mounts, it alone sees."""
        return self._start(["ip", "netns", "exec", self._names[host], *map(str, command)], environment, log)

    def mount(self, host: int, command: Sequence[object], log: pathlib.Path) -> subprocess.Popen:
        """Starts a process that mounts a directory over a host's network; what starts later sees it, on all hosts."""
        return self._start(["nsenter", f"--net=/run/netns/{self._names[host]}", *map(str, command)], {}, log)

    def _start(self, words: Sequence[str], environment: Mapping[str, str], log: pathlib.Path) -> subprocess.Popen:
        with log.open("ab") as out:
            process = subprocess.Popen(words, env={**os.environ, **environment}, stdout=out, stderr=out)
        self._processes.append(process)
        return process

    def cut(self, host: int) -> None:
        """No packet leaves or reaches a host any more, and nobody is told."""
        _run("-n", self._switch, "link", "set", f"port{host}", "nomaster")

    def join(self, host: int) -> None:
        """Undoes `cut`."""
        _run("-n", self._switch, "link", "set", f"port{host}", "master", "bridge")

    def lose_outgoing(self, host: int) -> None:
        """A host with a bad cable hears the others, who hear nothing of it."""
        self._cables[host].lost = (1.0, 0.0)

    def lose_incoming(self, host: int) -> None:
        """A host with a bad cable is heard by the others, of whom it hears nothing."""
        self._cables[host].lost = (0.0, 1.0)

    def every_cable(self, *, lost: float = 0.0, delay_seconds: float = 0.0) -> None:
        """Makes all bad cables lose a share of what goes from one host to another, or delay it: half in each cable."""
        for cable in self._cables:
            cable.lost, cable.delay_seconds = (lost / 2, lost / 2), delay_seconds / 2

    def limit_sending(self, mbit: float) -> None:
        """Limits what each host sends to so many Mbit/s."""
        # A bucket must hold what is sent between two ticks of the kernel, and a large packet.
        burst = max(64_000, int(mbit * 1e6 / 8 / 100))
        for name in self._names:
            bucket = ("tbf", "rate", f"{mbit:g}mbit", "burst", str(burst), "latency", "50ms")
            _run("-n", name, "qdisc", "replace", "dev", "eth0", "root", *bucket, program="tc")

    def remove_interface(self, host: int) -> None:
        """A host has no network any more."""
        _run("-n", self._names[host], "link", "delete", "eth0")


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """In the block SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt: hosts are removed."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_allowed() -> None:
    """Removes what killed benchmarks left, and tries everything that hosts need once.

    Raises:
        NotAllowed: where they cannot be made.
    """
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        raise NotAllowed(f"hosts need iproute2. Received: no {' and no '.join(missing)}.")
    if os.geteuid():
        raise NotAllowed(f"only root makes network namespaces. Received: user {os.geteuid()}.")
    for name in pathlib.Path("/run/netns").glob(f"{_PREFIX}-*"):
        if not pathlib.Path("/proc", name.name.split("-")[2]).exists():
            _remove(name.name)
    try:
        with Hosts(1) as hosts:
            hosts.limit_sending(10)
        with Hosts(1, bad_cables=True):
            pass
    except (RuntimeError, OSError) as error:
        raise NotAllowed(f"network namespaces are not allowed here. Received: {error}.") from None


def _remove(name: str) -> None:
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _run(*words: str, program: str = "ip") -> None:
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(words)}: {' '.join(done.stderr.split())}")
