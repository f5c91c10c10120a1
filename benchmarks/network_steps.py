"""Updates of the command on several hosts over slow links: in float32, with 16 bits sent, with LoRA, with accumulation.

    python benchmarks/network_steps.py --model=MINILM --train_file=train.tsv --mbit=100,1000 --hosts=2,4 --before=DIR

Root and Linux only; elsewhere it says so in one line and does nothing. The hosts are network namespaces
(`network_hosts.py`) that share this machine's cores; `tc` limits what each sends. `--before` is a checkout of another
version, which runs in turns with this one. Writes a file to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile

from network_hosts import Hosts, NotAllowed, check_allowed, ended_by_signals
from results_page import beginning, default_output, table

ROOT = pathlib.Path(__file__).resolve().parent.parent
PORT = 2222
WAYS = {
    "float32": [],
    "bfloat16": ["--all_reduce_dtype=bfloat16"],
    "LoRA": ["--lora_rank=8"],
    "LoRA and bfloat16": ["--lora_rank=8", "--all_reduce_dtype=bfloat16"],
    "4 micro-batches": ["--gradient_accumulation_steps=4"],
}
"""Flags of each way to train; with micro-batches, a batch has four times as many rows."""


def main() -> None:
    """Trains in each way, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--train_file", type=pathlib.Path, required=True)
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--mbit", default="100,1000,0", help="of each link; 0: as fast as this machine")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rows", type=int, default=32, help="of each worker and micro-batch")
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--before", type=pathlib.Path, help="a checkout to compare with, which trains in float32")
    parser.add_argument("--output", type=pathlib.Path, default=default_output("network-steps"))
    args = parser.parse_args()
    try:
        check_allowed()
    except NotAllowed as reason:
        print(f"skipped: {reason}")
        return
    lines = []
    with ended_by_signals():
        for count in map(int, args.hosts.split(",")):
            for mbit in map(int, args.mbit.split(",")):
                cells = [(ROOT, way) for way in args.ways.split(",")]
                for checkout, way in [*([(args.before, "float32")] if args.before else []), *cells]:
                    results = trained(args, checkout, count, mbit, WAYS[way])
                    lines.append(line(count, mbit, "float32, before" if checkout != ROOT else way, results))
                    print(lines[-1], flush=True)
    args.output.write_text("\n\n".join(page(args, lines)) + "\n", encoding="utf-8")
    print(args.output.read_text(encoding="utf-8"))


def trained(args: argparse.Namespace, checkout: pathlib.Path, count: int, mbit: int, flags: list[str]) -> dict:
    """The results of a run of so many workers."""
    parts = 4 if flags == WAYS["4 micro-batches"] else 1
    with Hosts(count) as hosts, tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        if mbit:
            hosts.limit_sending(mbit)
        addresses = [f"{hosts.address(i)}:{PORT}" for i in range(count)]
        words = [
            sys.executable,
            checkout / "run_finetune.py",
            "--strategy=multi_worker",
            "--device=cpu",
            "--save_steps=0",
        ]
        words += [f"--model={args.model}", f"--train_file={args.train_file}", f"--output_dir={directory / 'out'}"]
        words += [f"--max_steps={args.updates}", f"--global_batch_size={args.rows * count * parts}", *flags]
        processes = []
        for i in range(count):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            environment = {"TF_CONFIG": json.dumps(config), "PYTHONPATH": str(checkout), "CUDA_VISIBLE_DEVICES": "-1"}
            processes.append(hosts.start(i, words, environment, directory / f"host{i}.txt"))
        if any([process.wait() for process in processes]):
            sys.exit("\n".join(log.read_text()[-2000:] for log in directory.glob("host*.txt")))
        return json.loads((directory / "out" / "all_results.json").read_text()) | {"load": os.getloadavg()[0]}


def line(count: int, mbit: int, way: str, results: dict) -> list[str]:
    """A row of the table."""
    seconds = results["step_seconds_p50"]
    return [
        str(count),
        f"{mbit:,}" if mbit else "no limit",
        way,
        f"{results['gradient_bytes'] / 1e6:.1f}",
        f"{1000 * seconds:,.0f}",
        f"{results['train_examples_per_second_steady']:.1f}",
        f"{results['load']:.0f}",
    ]


def page(args: argparse.Namespace, lines: list[list[str]]) -> list[str]:
    """The results as Markdown, one paragraph each."""
    head = ["hosts", "link, Mbit/s", "way", "gradients, MB", "update, ms", "examples/s", "load"]
    return [
        *beginning("Updates over slow links", "network_steps.py", args),
        f"{args.rows} rows of each worker and micro-batch, {args.updates} updates of a whole run of the command: the "
        "median update, and examples a second without the first ones. Hosts are network namespaces that share this "
        "machine's cores, so that arithmetic of several takes as many times as long as that of one; the load is how "
        "many threads wanted them. `tc` limits what each host sends.",
        table(head, lines),
    ]


if __name__ == "__main__":
    main()
