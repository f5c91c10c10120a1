"""One worker against two on this machine, a killed worker, and the cost of checkpoints, on your own data and model.

    python benchmarks/many_workers.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv --output_dir=runs/w

Three runs of `tfbert.launch`, one after the other: one worker; two workers; and two workers, one of which is killed
with SIGKILL after `--kill_at` updates, so that both start again by themselves. The last two runs must end in the same
weights, to the bit. Workers share the machine's cores, so two of them cannot be twice as fast on a CPU. Prints one JSON
line; the exit status is 1 if the weights differ.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
from safetensors.numpy import load_file

from tfbert.config.modes import OutputConfig

ROOT = pathlib.Path(__file__).parent.parent


def main() -> int:
    """Makes the three runs, and prints their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file", "output_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save_steps", type=int, default=30)
    parser.add_argument("--kill_at", type=int, default=45)
    args = parser.parse_args()
    one, two, killed = (pathlib.Path(args.output_dir).absolute() / name for name in ("one", "two", "killed"))
    finish(start(args, one, workers=1))
    finish(start(args, two, workers=2))
    launcher = start(args, killed, workers=2, restarts=2)
    lost_at = kill_one(launcher, killed / "log.jsonl", args.kill_at)
    finish(launcher)

    results = {path.name: json.loads((path / "all_results.json").read_text()) for path in (one, two, killed)}
    weights = [load_file(path / "model.safetensors") for path in (two, killed)]
    differing = [name for name, value in weights[0].items() if not np.array_equal(value, weights[1][name])]
    speeds = {name: results[name]["train_examples_per_second_steady"] for name in ("one", "two")}
    seconds, step = results["one"]["checkpoint_seconds"], results["one"]["step_seconds_p50"]
    report = {
        "killed_at_step": lost_at,
        "tensors": len(weights[0]),
        "differing_tensors": differing,
        "eval_accuracy": {name: found.get("eval_accuracy") for name, found in results.items()},
        "examples_per_second": speeds,
        "two_over_one": round(speeds["two"] / speeds["one"], 3),
        "checkpoint_seconds": {name: found["checkpoint_seconds"] for name, found in results.items()},
        "checkpoint_bytes": results["one"]["checkpoint_bytes"],
        "checkpoint_share_at_default_save_steps": round(seconds / (seconds + OutputConfig().save_steps * step), 4),
    }
    print(json.dumps(report))
    return 1 if differing else 0


def start(args: argparse.Namespace, directory: pathlib.Path, *, workers: int, restarts: int = 0) -> subprocess.Popen:
    """Starts `tfbert.launch` with output directory `directory`; its output goes to this process's standard error."""
    launch = [sys.executable, "-m", "tfbert.launch", f"--num_workers={workers}", f"--max_restarts={restarts}", "--"]
    options = {name: getattr(args, name) for name in ("model", "train_file", "validation_file", "save_steps")}
    options |= {"strategy": "multi_worker", "max_steps": args.steps, "output_dir": directory, "logging_steps": 5}
    command = [*launch, str(ROOT / "run_finetune.py"), *(f"--{name}={value}" for name, value in options.items())]
    return subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr)


def finish(launcher: subprocess.Popen) -> None:
    """Waits for the end of a run that must succeed."""
    if status := launcher.wait():
        sys.exit(f"exit status {status}: {' '.join(launcher.args)}")


def kill_one(launcher: subprocess.Popen, log: pathlib.Path, step: int) -> int:
    """Kills the last worker when the log has reached `step`; returns the step that it had reached."""
    while launcher.poll() is None:
        lines = log.read_text().splitlines() if log.exists() else []
        done = max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)
        if done >= step:
            children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
            os.kill(int(children[-1]), signal.SIGKILL)
            return done
        time.sleep(0.05)
    sys.exit(f"the run ended before step {step}")


if __name__ == "__main__":
    sys.exit(main())
