"""The all-reduce's share of a step on 1 to 4 hosts, at several speeds of their links, beside what is predicted.

    python benchmarks/network_all_reduce.py

Root and Linux only; elsewhere it says so in one line and does nothing. The hosts are network namespaces
(`network_hosts.py`) that share this machine's cores, so the time of a step's arithmetic would say nothing here. What is
timed is the all-reduce alone, of as many bytes as a model's gradients, as `devices.py` times it; its share is of
a step with `--arithmetic_ms` besides. What `docs/scaling.md` predicts is a ring over links of the speed that `tc` was
told. Writes a file to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from network_hosts import Hosts, NotAllowed, check_allowed, ended_by_signals
from results_page import beginning, default_output, table
from ring import ring_seconds

ROOT = pathlib.Path(__file__).resolve().parent.parent
PORT, _PATIENCE_SECONDS, _POLL_SECONDS = 2222, 900.0, 0.05
_STREAM_BYTES, _STREAM_SECONDS = 1 << 20, 3.0
_STREAM = f"""\
import socket, sys, time
if sys.argv[1] == "receive":
    with socket.create_server(("", 5000)) as server:
        connection, _ = server.accept()
        start, received = time.perf_counter(), 0
        while data := connection.recv({_STREAM_BYTES}):
            received += len(data)
        print(received / (time.perf_counter() - start))
else:
    time.sleep(1)
    with socket.create_connection((sys.argv[2], 5000)) as connection:
        until = time.perf_counter() + {_STREAM_SECONDS}
        while time.perf_counter() < until:
            connection.sendall(bytes({_STREAM_BYTES}))
"""
"""How fast one plain TCP connection is."""


def main() -> None:
    """Measures each number of hosts at each speed, and writes the page; or is one worker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--mbit", default="100,1000,10000", help="speeds of each link, in Mbit/s")
    parser.add_argument("--megabytes", type=float, default=90.9, help="of float32 gradients: MiniLM's 22.7 million")
    parser.add_argument("--arithmetic_ms", type=float, default=286, help="of a step: MiniLM, 32 rows, 112 rows/s")
    parser.add_argument("--output", type=pathlib.Path, default=default_output("network-all-reduce"))
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(int(1e6 * args.megabytes), pathlib.Path(args.worker))
        return
    try:
        check_allowed()
    except NotAllowed as reason:
        print(f"skipped: {reason}")
        return
    rows = []
    with ended_by_signals():
        for count in map(int, args.hosts.split(",")):
            rows += measured(args, count)
    args.output.write_text("\n\n".join(page(args, rows)) + "\n", encoding="utf-8")
    print(args.output.read_text(encoding="utf-8"))


def work(num_bytes: int, directory: pathlib.Path) -> None:
    """One worker: for each speed that it is told of, the chief writes the seconds of an all-reduce to a file."""
    from peaks import measure_all_reduce

    import tfbert
    from tfbert.devices.runtime import is_chief

    strategy = tfbert.build_strategy(tfbert.RuntimeConfig(strategy="multi_worker", device="cpu"))
    for number in itertools.count():
        while not (directory / f"{number}.now").exists():
            time.sleep(_POLL_SECONDS)
        if not (directory / f"{number}.now").read_text():
            return
        seconds = measure_all_reduce(strategy, num_bytes)
        if is_chief(strategy):
            (directory / f"{number}.part").write_text(json.dumps(seconds))
            (directory / f"{number}.part").rename(directory / f"{number}.json")


def measured(args: argparse.Namespace, count: int) -> list[dict[str, float]]:
    """Seconds of an all-reduce and bytes a second of a plain connection, over links of each speed."""
    rows = []
    with Hosts(count) as hosts, tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        processes = start(args, hosts, directory)
        for number, mbit in enumerate(map(int, args.mbit.split(","))):
            hosts.limit_sending(mbit)
            stream = plain_stream(hosts, directory)
            tell(directory, number, "measure")
            until = time.monotonic() + _PATIENCE_SECONDS
            while not (directory / f"{number}.json").exists():
                if time.monotonic() > until or any(process.poll() is not None for process in processes):
                    sys.exit(f"no result: {[log.read_text()[-2000:] for log in directory.glob('host*.txt')]}")
                time.sleep(_POLL_SECONDS)
            seconds = json.loads((directory / f"{number}.json").read_text())
            load = os.getloadavg()[0]
            rows.append({"hosts": count, "mbit": mbit, "seconds": seconds, "stream": stream, "load": load})
            print(rows[-1], flush=True)
        tell(directory, len(rows), "")
        for process in processes:
            process.wait()
    return rows


def start(args: argparse.Namespace, hosts: Hosts, directory: pathlib.Path) -> list[subprocess.Popen]:
    """A worker on each host."""
    addresses = [f"{hosts.address(i)}:{PORT}" for i in range(hosts.count)]
    command = [sys.executable, pathlib.Path(__file__).resolve(), f"--megabytes={args.megabytes}"]
    processes = []
    for i in range(hosts.count):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
        environment = {"TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": "-1"}
        processes.append(hosts.start(i, [*command, f"--worker={directory}"], environment, directory / f"host{i}.txt"))
    return processes


def tell(directory: pathlib.Path, number: int, what: str) -> None:
    """Writes what the workers wait for: that the links have their speed, or that there are no more."""
    (directory / "now.part").write_text(what)
    (directory / "now.part").rename(directory / f"{number}.now")


def plain_stream(hosts: Hosts, directory: pathlib.Path) -> float:
    """Bytes a second from host 1 to host 0 by TCP."""
    (directory / "stream.txt").unlink(missing_ok=True)
    receive = hosts.start(0, [sys.executable, "-c", _STREAM, "receive"], {}, directory / "stream.txt")
    hosts.start(1, [sys.executable, "-c", _STREAM, "send", hosts.address(0)], {}, directory / "send.txt")
    guard = threading.Timer(60, receive.kill)
    guard.start()
    receive.wait()
    guard.cancel()
    return float((directory / "stream.txt").read_text())


def page(args: argparse.Namespace, rows: list[dict[str, float]]) -> list[str]:
    """The results as Markdown, one paragraph each."""
    num_bytes, arithmetic = 1e6 * args.megabytes, args.arithmetic_ms / 1000
    lines = [["1", "", "", "0", "0", "", "", "0%", "0%"]]
    for row in rows:
        predicted = ring_seconds(num_bytes, int(row["hosts"]), row["mbit"] * 1e6 / 8)
        shares = [each / (each + arithmetic) for each in (row["seconds"], predicted)]
        lines.append(
            [
                f"{row['hosts']:.0f}",
                f"{row['mbit']:,.0f}",
                f"{8 * row['stream'] / 1e6:,.0f}",
                f"{1000 * row['seconds']:,.0f}",
                f"{1000 * predicted:,.0f}",
                f"{row['seconds'] / predicted:.2f}",
                f"{row['load']:.0f}",
                *(f"{share:.0%}" for share in shares),
            ]
        )
    head = ["hosts", "link, Mbit/s", "one TCP stream, Mbit/s", "all-reduce, ms", "predicted, ms", "ratio", "load"]
    head += ["share of a step", "predicted share"]
    return [
        *beginning("The all-reduce between hosts", "network_all_reduce.py", args),
        f"All-reduce of {args.megabytes:g} MB of float32 numbers in pieces of 4 MB, with nothing else to do: the "
        "quickest of five. Hosts are network namespaces that share this machine's cores: "
        "the load is how many threads wanted them. `tc` limits what each host sends. **The share is "
        "computed**: two cores cannot do the arithmetic of several hosts, so that a step is taken to be "
        f"{args.arithmetic_ms:g} ms of arithmetic on each host, and the all-reduce. Predicted: a ring, as in "
        "docs/scaling.md, without latency and without the work of the CPU.",
        table(head, lines),
    ]


if __name__ == "__main__":
    main()
