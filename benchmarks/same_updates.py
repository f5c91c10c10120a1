"""Whole runs beside PyTorch, update by update: are these the updates that the definitions ask for?

    python benchmarks/same_updates.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv \\
        --torch_python=peer/bin/python --work_dir=runs/same_updates

Of a run, only its random numbers cannot be shared by two libraries. So there are two comparisons. Without dropout, from
the same weights and on the same batches, `run_finetune.py` and a plain PyTorch loop (`peers/plain_updates.py`) must
have the same losses, gradient norms and rates, as long as rounding has not grown, and much the same weights and scores
at the end. With dropout, at fixed weights, the loss and the gradient's norm of one batch, drawn many times, must have
the same mean and deviation: a place without dropout, or with another rate, would change them. Jobs that are done are
not done again. Writes a file to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

import numpy as np
from machine import done
from results_page import beginning, default_output, table
from safetensors.numpy import load_file

from tfbert.data.files import read_file

ROOT = pathlib.Path(__file__).parent.parent
_ROWS = 32
_MEASURED = ("loss", "grad_norm", "learning_rate")
_DROPOUT = 0.1


def main() -> None:
    """Makes what is missing of the runs, and writes how they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file", "torch_python"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--work_dir", type=pathlib.Path, required=True, help="where the runs are")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--label_names", default="", help="a file: several labels a text, in GoEmotions' form")
    parser.add_argument("--draws", type=int, default=400, help="gradients of one batch, with other dropout; 0: none")
    parser.add_argument("--output", type=pathlib.Path, default=default_output("same-updates"))
    args = parser.parse_args()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    epochs, files = f"--num_train_epochs={args.num_train_epochs}", f"--train_file={args.train_file}"
    start = peer(args, "start", f"--model={args.model}", files)
    theirs = peer(args, "train", f"--model={start}", files, epochs)
    ours = own(args, "tfbert", f"--model={start}", files, epochs)
    paragraphs = [*beginning("Whole runs beside PyTorch, update by update", "same_updates.py", args)]
    paragraphs += without_dropout(args, start, theirs, ours)
    if args.draws:
        paragraphs += with_dropout(args, *drawn(args, theirs))
    args.output.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    print(args.output)


def drawn(args: argparse.Namespace, theirs: pathlib.Path) -> list[dict[str, np.ndarray]]:
    """What either side measured of one batch's gradients, with dropout, at the weights of a run of the peer."""
    files = f"--train_file={write_few(args)}"
    of_peer = peer(args, "draw", f"--model={theirs}", files, f"--draws={args.draws}", f"--dropout={_DROPOUT}")
    repeated = [f"--num_train_epochs={args.draws}", f"--max_steps={args.draws}", f"--dropout={_DROPOUT}"]
    # So small a rate changes no weight.
    of_own = own(args, "tfbert-draws", f"--model={theirs}", files, "--learning_rate=1e-30", *repeated)
    return [updates_of(of_peer), updates_of(of_own)]


def write_few(args: argparse.Namespace) -> pathlib.Path:
    """Writes one batch of examples: the first of at most median length."""
    found = read_file(args.train_file)
    rows = list(zip(*filter(None, [found.text, found.text_pair, found.labels]), strict=True))
    lengths = np.array([sum(map(len, row)) for row in rows])
    names = [*found.text_columns, "label"]
    kept = np.flatnonzero(lengths <= np.median(lengths))[:_ROWS]
    path = args.work_dir / "few.jsonl"
    path.write_text("".join(json.dumps(dict(zip(names, rows[i], strict=True))) + "\n" for i in kept), encoding="utf-8")
    return path


def peer(args: argparse.Namespace, job: str, *options: str) -> pathlib.Path:
    """A job of the peer, unless it was done. Returns its directory."""
    directory = args.work_dir / f"pytorch-{job}"
    script = [args.torch_python, ROOT / "benchmarks" / "peers" / "plain_updates.py", job]
    common = [f"--seed={args.seed}", f"--max_seq_length={args.max_seq_length}", f"--output_dir={directory}"]
    common += [f"--label_names={args.label_names}"] * bool(args.label_names)
    return once(directory, *script, *common, *options)


def own(args: argparse.Namespace, name: str, *options: str) -> pathlib.Path:
    """A run of the command, unless it was made. Returns its directory."""
    directory = args.work_dir / name
    common = [f"--seed={args.seed}", f"--max_seq_length={args.max_seq_length}", f"--output_dir={directory}"]
    more = ["--device=cpu", "--save_steps=0", "--logging_steps=1"]
    more += ["--task=multi_label_classification", *form(args)] if args.label_names else ["--task=classification"]
    return once(directory, sys.executable, ROOT / "run_finetune.py", *common, *more, *options)


def form(args: argparse.Namespace) -> list[str]:
    """How the command reads GoEmotions' own files."""
    return ["--noheader", "--text_column=0", "--label_column=1", f"--label_names={args.label_names}"]


def once(directory: pathlib.Path, *command: object) -> pathlib.Path:
    """Runs a command, unless it was run. Returns its directory."""
    mark = directory / "done"
    if not mark.exists():
        print(*command, file=sys.stderr)
        done(*command)
        mark.touch()
    return directory


def updates_of(run: pathlib.Path) -> dict[str, np.ndarray]:
    """What either side wrote of each update: float64 `[updates]` by name."""
    if (run / "updates.json").exists():
        records = json.loads((run / "updates.json").read_text())
    else:
        lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
        records = [record for record in lines if record["kind"] == "train"]
    return {name: np.array([record[name] for record in records]) for name in _MEASURED if name in records[0]}


def scores(args: argparse.Namespace, run: pathlib.Path) -> dict[str, float]:
    """The scores of a model on the validation file, by tfbert's own evaluation."""
    directory = args.work_dir / f"{run.name}-evaluated"
    options = [f"--model={run}", f"--validation_file={args.validation_file}", f"--output_dir={directory}"]
    options += form(args) if args.label_names else []
    once(directory, sys.executable, ROOT / "run_finetune.py", "--mode=evaluate", "--device=cpu", *options)
    return json.loads((directory / "eval_results.json").read_text())


def without_dropout(
    args: argparse.Namespace, start: pathlib.Path, theirs: pathlib.Path, ours: pathlib.Path
) -> list[str]:
    """The first comparison, one entry per paragraph."""
    expected, found = updates_of(theirs), updates_of(ours)
    count = len(expected["loss"])
    ends = [end for end in (1, 10, 50, 100, 200, 500, 1000) if end < count] + [count]
    lines = [
        [f"1 to {end}", *(f"{np.abs(found[name] - values)[:end].max():.1e}" for name, values in expected.items())]
        for end in ends
    ]
    before, after, other = (load_file(run / "model.safetensors") for run in (start, theirs, ours))
    moved = distance(after, before)
    both = [scores(args, run) for run in (theirs, ours)]
    ends = ", ".join(
        f"{name.removeprefix('eval_')} {both[0][name]:.4f} (PyTorch) and {both[1][name]:.4f}"
        for name in ("eval_micro_f1" if args.label_names else "eval_accuracy", "eval_loss")
    )
    return [
        "## Without dropout, the same weights and batches",
        f"{count} updates of {_ROWS} examples. Losses lie between {expected['loss'].min():.3f} and "
        f"{expected['loss'].max():.3f}, norms between {expected['grad_norm'].min():.2f} and "
        f"{expected['grad_norm'].max():.2f}. Largest differences:",
        table(["updates", "loss", "norm of the gradient", "learning rate"], lines),
        f"The weights at the end lie {distance(other, after) / moved:.1e} of the way that they moved from each other "
        f"(Euclidean, of all weights). At the end: {ends}.",
    ]


def distance(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> float:
    """The Euclidean distance of two models' weights."""
    assert first.keys() == second.keys(), first.keys() ^ second.keys()
    return float(np.sqrt(sum(np.square(first[name].astype(np.float64) - second[name]).sum() for name in first)))


def with_dropout(args: argparse.Namespace, *both: dict[str, np.ndarray]) -> list[str]:
    """The second comparison, one entry per paragraph."""
    lines = []
    for name, title in {"loss": "loss", "grad_norm": "norm of the gradient"}.items():
        expected, found = (side[name] for side in both)
        errors = [values.std(ddof=1) / np.sqrt(len(values)) for values in (expected, found)]
        apart = (found.mean() - expected.mean()) / np.hypot(*errors)
        # The standard error of a deviation depends on the fourth moment (Rao 1973, 6h).
        spread = [values.std(ddof=1) for values in (expected, found)]
        wide = (np.log(spread[1]) - np.log(spread[0])) / np.hypot(*map(log_deviation_error, (expected, found)))
        said = [f"{values.mean():.4f} +- {error:.4f}" for values, error in zip((expected, found), errors, strict=True)]
        lines.append([title, *said, f"{apart:+.1f}", *(f"{value:.4f}" for value in spread), f"{wide:+.1f}"])
    head = ["of a draw", "mean, PyTorch", "mean, tfbert", "apart, in standard errors"]
    head += ["deviation, PyTorch", "deviation, tfbert", "apart, in standard errors"]
    return [
        f"## With dropout of {_DROPOUT}, fixed weights",
        f"The weights that PyTorch's run ended with, one batch of {_ROWS} examples, {args.draws} draws a side.",
        table(head, lines),
    ]


def log_deviation_error(values: np.ndarray) -> float:
    """The standard error of the logarithm of a sample's standard deviation."""
    centred = values - values.mean()
    kurtosis = np.mean(centred**4) / np.mean(centred**2) ** 2
    return float(np.sqrt((kurtosis - 1) / (4 * len(values))))


if __name__ == "__main__":
    main()
