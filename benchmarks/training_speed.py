"""Whole training runs of this trainer and of its peer in turns: examples/s, accuracy, seconds to the first update.

    python benchmarks/training_speed.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv \\
        --torch_python=peer/bin/python [--mixed_precision]

Each run has its own process: one epoch on the same rows with the same batch size, learning rate and weight decay; each
turn has its own seed. Examples/s are those of the whole training, including tracing and compiling but not evaluation
and loading; `steady` excludes tracing and compiling too. Seconds to the first update count from the process's start.
The peer is Hugging Face's PyTorch Trainer at its best settings (`peers/classification.py`); for peers in TensorFlow see
`tensorflow_peers.py`. Prints one JSON document with the machine, the ratio to the peer's best run, both sides' mean
accuracy, and the CPU seconds (those in the kernel apart) and peak memory of each training process.
`--no-keep_freed_memory` leaves our side's glibc malloc at its defaults.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from machine import machine, wait

ROOT = pathlib.Path(__file__).parent.parent


def main() -> None:
    """Runs the turns of all sides, and reports their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file", "torch_python"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max_train_examples", type=int, default=16_000)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--seed", type=int, default=42, help="seed of the first turn; each turn adds 1")
    parser.add_argument("--mixed_precision", action="store_true", help="both sides in bfloat16")
    parser.add_argument("--keep_freed_memory", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    runs = {"tfbert": [], "hf_trainer": []}
    for turn in range(args.turns):
        seed = args.seed + turn
        runs["hf_trainer"].append(hf_trainer(args, args.max_train_examples, seed))
        runs["tfbert"].append(own(args, args.max_train_examples, seed))
    report = {"machine": machine(), "max_seq_length": args.max_seq_length} | compared(args.max_train_examples, runs)
    print(json.dumps(report, indent=1))


def compared(examples: int, runs: dict[str, list[dict]]) -> dict:
    """Our runs and a peer's, all on the same number of rows."""
    best = {name: max(run["examples_per_second"] for run in found) for name, found in runs.items()}
    first = {name: min(run["seconds_to_first_update"] for run in found) for name, found in runs.items()}
    accuracies = {name: [run["eval_accuracy"] for run in found] for name, found in runs.items()}
    report = {"examples": examples, "runs": runs}
    report["mean accuracy"] = {name: round(statistics.fmean(found), 4) for name, found in accuracies.items()}
    for name in runs.keys() - {"tfbert"}:
        report[f"speed over {name}"] = round(best["tfbert"] / best[name], 3)
        report[f"seconds to the first update over {name}"] = round(first["tfbert"] / first[name], 3)
    return report


def hf_trainer(args: argparse.Namespace, examples: int, seed: int) -> dict:
    """The run of Hugging Face's Trainer, as its script reports it; like ours, it is evaluated when it is over."""
    command = [args.torch_python, ROOT / "benchmarks" / "peers" / "classification.py"]
    data = [flag for flag in data_flags(args, examples, seed) if "validation_file" not in flag]
    train = [*data, "--num_train_epochs=1", *(["--bf16"] if args.mixed_precision else [])]
    with tempfile.TemporaryDirectory() as scratch:
        lines, seconds, used = timed([*command, "train", *train, f"--output_dir={scratch}"], "first update done")
        evaluate = [f"--model={scratch}", f"--validation_file={args.validation_file}"]
        scores, *_ = timed([*command, "evaluate", *evaluate, f"--max_seq_length={args.max_seq_length}"], "")
    results = json.loads(lines[-1])
    return {
        "examples_per_second": results["rows_per_second"],
        "steady": results["rows_per_second_steady"],
        "eval_accuracy": json.loads(scores[-1])["eval_accuracy"],
        "torch": results["torch"],
        "seconds_to_first_update": seconds,
    } | used


def own(args: argparse.Namespace, examples: int, seed: int) -> dict:
    """Our run, as the command reports it; like the peer's, it is evaluated when it is over.

    A separate start, of two updates, measures the time to the first update.
    """
    command = [sys.executable, ROOT / "run_finetune.py"]
    data = [flag for flag in data_flags(args, examples, seed) if "validation_file" not in flag]
    train = [*command, *data, "--num_train_epochs=1", "--save_steps=0"]
    train += ["--mixed_precision"] if args.mixed_precision else []
    train += [] if args.keep_freed_memory else ["--nokeep_freed_memory"]
    with tempfile.TemporaryDirectory() as scratch:
        _, seconds, _ = timed([*train, f"--output_dir={scratch}/two", "--max_steps=2", "--logging_steps=1"], "step 1/")
        *_, used = timed([*train, f"--output_dir={scratch}/run"], "")
        evaluate = ["--mode=evaluate", f"--model={scratch}/run", f"--output_dir={scratch}/evaluated"]
        timed([*command, *evaluate, f"--validation_file={args.validation_file}"], "")
        results = json.loads(pathlib.Path(scratch, "run", "all_results.json").read_text())
        scores = json.loads(pathlib.Path(scratch, "evaluated", "eval_results.json").read_text())
    return {
        "examples_per_second": results["train_samples_per_second"],
        "steady": results["train_examples_per_second_steady"],
        "eval_accuracy": scores["eval_accuracy"],
        "compile_seconds": results["compile_seconds"],
        "data_wait_share": results["data_wait_share"],
        "seconds_to_first_update": seconds,
    } | used


def data_flags(args: argparse.Namespace, examples: int, seed: int) -> list[str]:
    """The data options of all sides."""
    values = {name: getattr(args, name) for name in ("model", "train_file", "validation_file", "max_seq_length")}
    values |= {"max_train_examples": examples, "seed": seed}
    return [f"--{name}={value}" for name, value in values.items()]


def timed(command: list, sign: str) -> tuple[list[str], float | None, dict[str, float]]:
    """A process's lines, the seconds from its start to the first line that holds `sign`, and its CPU time and memory.
    The process must succeed."""
    started, lines, seconds = time.perf_counter(), [], None
    words = [str(word) for word in command]
    process = subprocess.Popen(words, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for line in process.stdout:
        if sign in line and seconds is None:
            seconds = round(time.perf_counter() - started, 1)
        lines.append(line.rstrip("\n"))
    used = wait(process)
    if process.returncode:
        sys.exit("\n".join([f"{' '.join(words)} failed:", *lines[-20:]]))
    return lines, seconds, used


if __name__ == "__main__":
    main()
