"""The picture in README: runs with one seed and one global batch, split in several ways, dropout on, draw one line.

    python benchmarks/one_line.py --work_dir=runs/one_line

Each split is a run of `run_finetune.py` on the built-in corpus. The picture shows the training loss of each update, and
below it how far the loss of each run is from the first run's. A file in benchmarks/results/ says how much losses and
weights differ. Existing runs are not made again.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np
from PIL import Image
from results_page import beginning, default_output, table
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "one_line.png"
SPLITS = {
    "1 device": ["--strategy=one_device"],
    "1 device, 4 micro-batches": ["--strategy=one_device", "--gradient_accumulation_steps=4"],
    "2 replicas": ["--strategy=mirrored", "--num_replicas=2"],
    "2 replicas, 4 micro-batches each": ["--strategy=mirrored", "--num_replicas=2", "--gradient_accumulation_steps=4"],
}


def main() -> None:
    """Makes the missing runs, draws them, and writes how much they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work_dir", type=pathlib.Path, required=True, help="where the runs are")
    parser.add_argument("--max_steps", type=int, default=300)
    parser.add_argument("--global_batch_size", type=int, default=32)
    parser.add_argument("--output", type=pathlib.Path, default=default_output("one-line"))
    args = parser.parse_args()
    runs = {name: args.work_dir / f"run-{i}" for i, name in enumerate(SPLITS)}
    for name, split in SPLITS.items():
        train(args, runs[name], split)
    losses = {name: losses_of(run) for name, run in runs.items()}
    draw(losses)
    args.output.write_text("\n\n".join(page(args, runs, losses)) + "\n")
    print(f"{PICTURE}\n{args.output}")


def train(args: argparse.Namespace, run: pathlib.Path, split: list[str]) -> None:
    """Makes one run, unless it exists."""
    if (run / "all_results.json").exists():
        return
    options = [f"--max_steps={args.max_steps}", f"--global_batch_size={args.global_batch_size}", "--logging_steps=1"]
    options += ["--eval_steps=100", f"--output_dir={run}", *split]
    subprocess.run([sys.executable, ROOT / "run_finetune.py", *options], check=True)


def losses_of(run: pathlib.Path) -> np.ndarray:
    """The training loss of each update: float64 `[updates]`."""
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return np.array([record["loss"] for record in records if record["kind"] == "train"])


def draw(losses: dict[str, np.ndarray]) -> None:
    """Draws the lines on top of each other, the first the widest, so that all can be seen; below, their differences."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    colors = ("#bcd3ea", "#e08a4f", "#2e7d4f", "#1c2733")
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True}
    with plt.rc_context(style | {"grid.color": "#e3e6ea"}):
        figure, (above, below) = plt.subplots(
            2, figsize=(7.2, 3.6), sharex=True, height_ratios=(3, 1), layout="constrained"
        )
        first, *_ = losses.values()
        for i, (name, values) in enumerate(losses.items()):
            updates = np.arange(1, len(values) + 1)
            line = {"color": colors[i], "linewidth": (7, 4, 2, 0.8)[i], "label": name}
            above.plot(updates, values, **line)
            if i:
                difference = np.abs(values - first)
                below.semilogy(
                    updates, np.where(difference > 0, difference, np.nan), ".", color=colors[i], markersize=3
                )
        above.set_ylabel("training loss")
        above.legend(frameon=False)
        below.set_ylabel("difference")
        below.set_ylim(1e-8, 1)
        below.set_xlabel("update")
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(PICTURE, dpi=110)
        plt.close(figure)
    with Image.open(PICTURE) as image:
        small = image.quantize(64)
    small.save(PICTURE, optimize=True)


def page(args: argparse.Namespace, runs: dict[str, pathlib.Path], losses: dict[str, np.ndarray]) -> list[str]:
    """The results file, one entry per paragraph."""
    (first, run), *others = runs.items()
    expected = load_file(run / "model.safetensors")
    moved = max(float(np.abs(values - values.mean()).max()) for values in expected.values())
    lines = []
    for name, other in others:
        found = load_file(other / "model.safetensors")
        weights = max(float(np.abs(found[key] - expected[key]).max()) for key in expected)
        loss = float(np.abs(losses[name] - losses[first]).max())
        lines.append([name, f"{loss:.1e}", f"{weights:.1e}"])
    return [
        *beginning("One line, however a batch is split", "one_line.py", args),
        f"`scratch/tiny` on the built-in corpus, float32, dropout on, {args.max_steps} updates of "
        f"{args.global_batch_size} examples. Largest difference from the run of {first}:",
        table(["run", "training loss of an update", "a weight at the end"], lines),
        f"Weights lie up to {moved:.2f} from their tensor's mean. `docs/images/one_line.png` shows the losses.",
    ]


if __name__ == "__main__":
    main()
