"""Measures runs on 1, 2, 4 devices, with and without mixed precision, or over any other options, as one table.

    python benchmarks/devices.py --devices=1,2,4 --precisions=float32,float16 --output_dir=runs/devices \\
        --model=bert-base-uncased --dataset=glue/sst2 --global_batch_size=64

A row is a run of the ordinary command in a process of its own, which gets every option that this script does not have.
Each axis makes rows of all its values: `--devices`, or `--workers` for processes on this machine; `--precisions`; and
`--vary=NAME=VALUE,VALUE`, any number of times, for other options of the command, such as `--vary=xla=false,true`. The
table is written after each row. A row that fails is reported, and the others go on; the same command again measures
only what is not done. Exit status 1: no row is done. `docs/benchmark.md` says what the numbers are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ring import ring_bytes_per_second  # noqa: E402

from tfbert.config.types import counted  # noqa: E402
from tfbert.launch import end_child, start_child  # noqa: E402
from tfbert.output.output_dir import write_json, write_text  # noqa: E402
from tfbert.report.pages import (  # noqa: E402
    Table,
    line_plot,
    markdown_text,
    memory,
    render,  # noqa: E402
    table_of,
)
from tfbert.report.run_files import environment, read_run  # noqa: E402

COLUMNS = {
    "seconds": ("time, s", "{:,.1f}"),
    "examples_per_second": ("examples/s", "{:,.1f}"),
    "tokens_per_second": ("real tokens/s", "{:,.0f}"),
    "speed_up": ("speed-up", "{:.2f}"),
    "efficiency": ("efficiency", "{:.1%}"),
    "all_reduce_ms": ("all-reduce, ms", "{:,.1f}"),
    "predicted_examples_per_second": ("predicted examples/s", "{:,.1f}"),
    "score": ("score", "{:.4f}"),
    "cost": ("cost of 1e6 examples", "{:.4g}"),
    "reason": ("reason", str),
}
"""What rows are compared by: the table's name of each, and how it is shown."""
INSIDE = {
    "examples_per_second_with_warmup": ("examples/s with warm-up", "{:,.1f}"),
    "step_ms_p50": ("step p50, ms", "{:,.1f}"),
    "step_ms_p95": ("step p95, ms", "{:,.1f}"),
    "compile_seconds": ("compile, s", "{:.1f}"),
    "data_wait_share": ("waiting for data", "{:.1%}"),
    "user_seconds": ("CPU, s", "{:,.1f}"),
    "kernel_seconds": ("kernel, s", "{:,.1f}"),
    "peak_memory_bytes": ("peak memory", memory),
    "peak_share": ("share of peak", "{:.1%}"),
}
"""Where a row's time and memory went."""
_OWN_FLAGS = ("output_dir", "overwrite_output_dir", "max_steps", "logging_steps", "save_steps", "eval_steps", "mode")
_OWN_FLAGS += ("strategy", "num_replicas", "mixed_precision", "mixed_precision_dtype")
_OUT_OF_MEMORY = re.compile(r"ResourceExhausted|OOM when|out of memory|bad_alloc|MemoryError|Cannot allocate", re.I)

_DEVICES = ("devices", "workers")

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> list[Row]:
    """Measures what is missing, and writes the table after each row; returns the rows."""
    args, given = arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))  # Ends the row too.
    directory = pathlib.Path(args.output_dir)
    rows, axes = [], axes_of(args)
    for number, point in enumerate(itertools.product(*axes.values()), 1):
        settings = {name: value for name, (value, _) in zip(axes, point, strict=True)}
        flags = [flag for _, flags in point for flag in flags]
        numbers = measured(args, settings, [*given, *flags], directory / f"{number:03}")
        rows.append({"row": number, "status": "failed" if "reason" in numbers else "done", **settings, **numbers})
        write(directory, axes, compared(rows, axes))
        print(f"row {number}: {rows[-1].get('reason') or rows[-1]['examples_per_second']}", file=sys.stderr, flush=True)
    print((directory / "benchmark.md").read_text(encoding="utf-8"))
    return compared(rows, axes)


def arguments(argv: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """This script's options, and those of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--devices", default="", help="numbers of replicas, such as 1,2,4")
    parser.add_argument("--workers", default="", help="in their place: numbers of processes on this machine")
    parser.add_argument("--precisions", default="", help="of float32, float16, bfloat16")
    parser.add_argument("--vary", action="append", default=[], help="NAME=VALUE,VALUE of the command; may be repeated")
    parser.add_argument("--examples_per_device", type=int, help="of an update: the batch grows with the devices")
    parser.add_argument("--steps", type=int, default=50, help="updates that are measured")
    parser.add_argument("--warmup_steps", type=int, default=10, help="before them")
    parser.add_argument("--whole_run", action="store_true", help="train to the end instead, and add its score")
    parser.add_argument("--inference", action="store_true", help="measure the second of two evaluations instead")
    parser.add_argument("--price_per_hour", type=float, default=0.0, help="of the machine: adds the cost")
    parser.add_argument("--command", choices=["finetune", "pretrain"], default="finetune")
    args, given = parser.parse_known_args(argv)
    if args.devices and args.workers:
        parser.error("Rows differ in devices or in workers. Received: both. Pass --devices or --workers.")
    if not 0 < args.warmup_steps <= args.steps:  # At most half of a run counts as warm-up.
        parser.error(
            f"The warm-up is 1 update or more, and at most the measured ones. Received: warmup_steps="
            f"{args.warmup_steps} with steps={args.steps}. Lower it, or raise --steps."
        )
    taken = {text.partition("=")[0] for text in args.vary} | {*_OWN_FLAGS}
    taken -= {"max_steps", "eval_steps", "logging_steps"} if args.whole_run else set()
    for word in given:
        if (name := word.lstrip("-").partition("=")[0].removeprefix("no")) in taken:
            parser.error(f"The rows' {name} are set by this script. Received: {word}. Drop it; see --help.")
    return args, given


def axes_of(args: argparse.Namespace) -> dict[str, list[tuple[Any, list[str]]]]:
    """By axis, its values and the flags of the command for each."""
    axis = "workers" if args.workers else "devices"
    axes: dict[str, list[tuple[Any, list[str]]]] = {axis: []}
    for number in map(int, (args.workers or args.devices or "1").split(",")):
        flags = ["--strategy=multi_worker"] if args.workers else ["--strategy=mirrored", f"--num_replicas={number}"]
        flags = flags if number > 1 else ["--strategy=one_device"]
        if args.examples_per_device:
            flags = [*flags, f"--global_batch_size={args.examples_per_device * number}"]
        axes[axis].append((number, flags))
    if args.precisions:
        axes["precision"] = [
            (name, ["--mixed_precision", f"--mixed_precision_dtype={name}"] if name != "float32" else [])
            for name in args.precisions.split(",")
        ]
    for text in args.vary:
        name, _, values = text.partition("=")
        axes[name] = [(value, [f"--{name}={value}"]) for value in values.split(",")]
    return axes


def measured(args: argparse.Namespace, settings: Row, flags: list[str], directory: pathlib.Path) -> Row:
    """What a row measures, or why it cannot; a row of the same command that is done is not measured again."""
    workers, devices = settings.get("workers", 1), devices_of(settings)
    words = [*flags, f"--output_dir={directory}", "--overwrite_output_dir", "--save_steps=0"]
    if args.inference:  # The first evaluation traces, the second is measured; updates are as small as can be.
        words += ["--max_steps=2", "--eval_steps=1", f"--global_batch_size={devices}"]
    elif not args.whole_run:
        words += [f"--max_steps={args.warmup_steps + args.steps}", f"--logging_steps={args.warmup_steps}"]
        words += ["--max_eval_examples=1"]  # Evaluation cannot be left out.
        words += ["--validation_file=", "--test_file="] if args.command == "finetune" else []
    note = directory.with_suffix(".json")
    if note.exists() and (kept := json.loads(note.read_text(encoding="utf-8")))["flags"] == words:
        return kept["numbers"]
    shutil.rmtree(directory, ignore_errors=True)
    log = directory.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    if reason := run(workers, ["tfbert", args.command, *words], log):
        return {"reason": reason}
    try:
        numbers = numbers_of(directory, args, devices)
        numbers |= peaks_of(numbers, args, settings, log)
    except (OSError, KeyError, ValueError) as error:
        return {"reason": f"the run left no numbers: {error!r}"}
    write_json(note, {"flags": words, "numbers": numbers})
    for path in directory.glob("*.safetensors"):  # Dozens of models would fill the disk.
        path.unlink()
    return numbers


def run(workers: int, command: list[str], log: pathlib.Path) -> str:
    """Runs a command, with several workers by the launcher; returns why it failed, or nothing."""
    python = [sys.executable, "-m"] if command[0] == "tfbert" else [sys.executable]
    if workers > 1:
        python = [sys.executable, "-m", "tfbert.launch", f"--num_workers={workers}", "--"]
    with log.open("w", encoding="utf-8") as file:
        child = start_child([*python, *command], stdout=file, stderr=subprocess.STDOUT)
        try:
            status = child.wait()
        finally:
            end_child(child)
    text = log.read_text(encoding="utf-8", errors="replace")
    if status and _OUT_OF_MEMORY.search(text):
        return "out of memory"
    if status == -signal.SIGKILL:
        return "killed by the system, most likely for lack of memory"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error: " in line] or lines or ["no message"]
    return f"exit status {status}: {errors[-1]}" if status else ""


def numbers_of(directory: pathlib.Path, args: argparse.Namespace, devices: int) -> Row:
    """The numbers of a run that is done, from the files that it left."""
    files = read_run(directory)
    numbers = {name: files.results[name] for name in ("peak_memory_bytes", "gradient_bytes")}
    numbers |= {"devices_used": files.facts["devices"], "dtype": files.facts["precision"].removeprefix("mixed_")}
    numbers["micro_batches"] = files.options["gradient_accumulation_steps"]
    if args.inference:
        first, found = [record for record in files.records if record["kind"] == "eval"][:2]
        numbers["batch"] = (files.options["per_device_eval_batch_size"] or 32) * devices
        numbers["examples_per_second"] = found["eval_samples_per_second"]
        numbers["examples_per_second_with_warmup"] = first["eval_samples_per_second"]
        numbers["tokens_per_second"] = found["eval_tokens_per_second"]
        numbers["compile_seconds"] = max(0.0, first["eval_runtime"] - found["eval_runtime"])
        begin, step, wait = "eval_", "eval_batch_seconds", "eval_data_wait_share"
    else:
        found = files.results
        numbers["batch"] = files.options["global_batch_size"]
        numbers["examples_per_second"] = found["train_examples_per_second_steady"]
        numbers["examples_per_second_with_warmup"] = found["train_examples_per_second_with_warmup"]
        numbers["tokens_per_second"] = found["train_tokens_per_second_steady"]
        numbers["compile_seconds"] = found["compile_seconds"]
        begin, step, wait = "train_", "step_seconds", "data_wait_share"
        if args.whole_run and files.decisive:
            numbers["score"] = files.results[files.decisive]
    numbers["data_wait_share"], numbers["seconds"] = found[wait], found[f"{begin}runtime"]
    numbers |= {name: found[f"{begin}{name}"] for name in ("user_seconds", "kernel_seconds")}
    numbers |= {f"step_ms_{p}": 1000 * found[f"{step}_{p}"] for p in ("p50", "p95")}
    numbers["flops"] = 1e9 * found.get(f"{begin}model_gflops_per_second", 0)
    if args.price_per_hour:
        numbers["cost"] = 1e6 / numbers["examples_per_second"] / 3600 * args.price_per_hour
    return numbers


def peaks_of(numbers: Row, args: argparse.Namespace, settings: Row, log: pathlib.Path) -> Row:
    """The share of what the machine's matrix products reach, and the time of the all-reduce alone."""
    workers, output = settings.get("workers", 1), log.with_suffix(".peaks")
    words = [f"--num_bytes={numbers['gradient_bytes']}", f"--dtype={numbers['dtype']}", f"--output={output}"]
    words += ["--strategy=multi_worker"] if workers > 1 else [f"--replicas={settings.get('devices', 1)}"]
    words += [] if "GPU" in numbers["devices_used"] else ["--device=cpu"]
    if reason := run(workers, [str(ROOT / "benchmarks" / "peaks.py"), *words], log.with_suffix(".peaks.log")):
        raise ValueError(f"peaks.py: {reason}")
    found = json.loads(output.read_text(encoding="utf-8"))
    # GPUs add up; replicas and workers on CPUs share the machine's.
    numbers = {"peak_share": numbers["flops"] / found["peak_flops"] / own_devices(numbers, settings)}
    seconds = found["all_reduce_seconds"]
    return numbers | ({"all_reduce_ms": 1000 * seconds} if seconds and not args.inference else {})


def own_devices(numbers: Row, settings: Row) -> int:
    """How many devices compute at the same time without sharing anything."""
    return devices_of(settings) if "GPU" in numbers["devices_used"] else 1


def devices_of(row: Row) -> int:
    """Devices of a row, over all workers."""
    return row.get("workers") or row["devices"]


def compared(rows: list[Row], axes: Any) -> list[Row]:
    """The rows beside the one of fewest devices that is alike in all other axes: speed-up, efficiency, and for one
    device what its speed and the all-reduce predict, in proportion to the examples and with nothing hidden."""
    out = []
    for row in rows:
        alike = [r for r in rows if "reason" not in r and all(r[a] == row[a] for a in axes if a not in _DEVICES)]
        if "reason" not in row:
            least = min(alike, key=devices_of)
            speed_up = row["examples_per_second"] / least["examples_per_second"]
            row = row | {"speed_up": speed_up, "efficiency": speed_up * devices_of(least) / devices_of(row)}
            if "all_reduce_ms" in row and devices_of(least) == 1:
                seconds = row["batch"] / own_devices(row, row) / least["examples_per_second"]
                row["predicted_examples_per_second"] = row["batch"] / (seconds + row["all_reduce_ms"] / 1000)
        out.append(row)
    return out


def write(directory: pathlib.Path, axes: Any, rows: list[Row]) -> None:
    """The rows as JSON, as Markdown and as a page with plots over the devices."""
    axis = next(iter(axes))
    done = [row for row in rows if row["status"] == "done"]
    facts = environment()
    write_json(directory / "benchmark.json", facts | {"rows": rows})
    tables = [table("Speed", COLUMNS, rows, axes), table("Where time and memory go", INSIDE, done, axes)]
    devices = "; ".join(dict.fromkeys(row["devices_used"] for row in done)) or "no row is done"
    notes = [f"{devices}; {facts['machine']}.", f"Command: {facts['command']}", EXPLAINED, *on_paper(done)]
    text = "".join(f"## {each.title}\n\n{each.markdown()}\n" for each in tables)
    write_text(directory / "benchmark.md", text + "\n\n".join(map(markdown_text, notes)) + "\n")
    curves = [
        (title, line_plot(lines, x_label=axis, y_label=unit, marked=lines, from_zero=True))
        for name, title, unit, scale in PLOTS
        if (lines := lines_of(done, axes, name, scale))
    ]
    values = {"title": "Benchmark", "directory": str(directory), "lines": [], "notes": notes, "plots": curves}
    write_text(directory / "benchmark.html", render("page.html", tables=tables, **values))


def lines_of(done: list[Row], axes: Any, name: str, scale: float) -> dict[str, tuple[list[float], list[float]]]:
    """A line over the devices for each combination of the other axes."""
    groups: dict[str, list[Row]] = {}
    others = [axis for axis in axes if axis not in _DEVICES]
    for row in sorted(done, key=devices_of):
        groups.setdefault(name_of(row, others).partition(": ")[2], []).append(row)
    return {
        label: ([devices_of(row) for row in rows], [scale * row[name] for row in rows])
        for label, rows in groups.items()
    }


def on_paper(done: list[Row]) -> list[str]:
    """The command that computes what more GPUs would give, from the row of most that has an all-reduce. Replicas on
    CPUs have links of memory, which say nothing of a network."""
    rows = [row for row in done if "all_reduce_ms" in row and "GPU" in row["devices_used"]]
    if not rows:
        return []
    row = max(rows, key=devices_of)
    links = ring_bytes_per_second(row["gradient_bytes"], devices_of(row), row["all_reduce_ms"] / 1000)
    return [
        f"More GPUs, on paper: python benchmarks/scaling.py --gradient_bytes={row['gradient_bytes']} "
        f"--examples_per_second={row['examples_per_second'] / row['speed_up']:.1f} "
        f"--examples_per_gpu={row['batch'] // devices_of(row)} --intra_node={links / 1e9:.3g}"
    ]


PLOTS = (
    ("examples_per_second", "Throughput", "examples/s", 1.0),
    ("speed_up", "Speed-up", "times", 1.0),
    ("peak_memory_bytes", "Peak memory", "GiB", 2.0**-30),
    ("peak_share", "Share of the measured peak matrix rate", "percent", 100.0),
)
EXPLAINED = (
    "Speeds leave out the warm-up and the updates that compiled, except where they say so. Speed-up and efficiency are "
    "over the row of fewest devices that is alike in everything else. A predicted speed is that of one device, in "
    "proportion to the examples, with the time of the all-reduce alone added to each update. The share of the peak is "
    "the model's arithmetic for real tokens over the rate of a large matrix product in the same precision."
)


def table(title: str, columns: dict[str, Any], rows: list[Row], axes: Any) -> Table:
    """Rows with the columns that have a value."""
    shown = [(called, [row.get(name) for row in rows], pattern) for name, (called, pattern) in columns.items()]
    names = ("row", [name_of(row, axes) for row in rows], "{}")
    return table_of([names, *shown], title=title, texts=("row", "reason"))


def name_of(row: Row, axes: Any) -> str:
    """A row's number and its value of each axis: `2: 2 devices, float16, xla=true`."""
    words = [counted(row[name], name.removesuffix("s")) if name in _DEVICES else f"{name}={row[name]}" for name in axes]
    return f"{row['row']}: {', '.join(words)}".replace("precision=", "")


if __name__ == "__main__":
    sys.exit(0 if any("reason" not in row for row in main()) else 1)
