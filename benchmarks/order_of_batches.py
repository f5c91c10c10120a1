"""Does the order of batches decide about scores? One PyTorch loop, two or three orders.

    python benchmarks/order_of_batches.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv \\
        --torch_python=peer/bin/python --work_dir=runs/order --seeds=42,43,44

All orders shuffle the examples, cut them into pools and sort each pool by length. tfbert goes through the pools one
after the other and shuffles the batches of each; Hugging Face's Trainer takes each pool from long to short; the third
order shuffles the batches of all pools, as tfbert did until November 2026. Everything else is the same in the runs of a
seed (`peers/plain_updates.py`): the classifier's first weights, the updates, the evaluation. `--jobs` runs at a time
share the cores: there are no speeds here. What is done is not done again. Writes a file to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from machine import done
from results_page import beginning, default_output, table

PEERS = pathlib.Path(__file__).parent / "peers"
ORDERS = {"tfbert": "tfbert's order", "trainer": "the Trainer's", "shuffled": "all batches shuffled"}
_DROPOUT = 0.1


def main() -> None:
    """Makes what is missing of the runs, and writes the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file", "torch_python"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--work_dir", type=pathlib.Path, required=True, help="where the scores of runs are kept")
    parser.add_argument("--seeds", default="42,43,44,45,46,47,48,49,50,51")
    parser.add_argument("--orders", default=",".join(ORDERS), help="of tfbert, trainer, shuffled; tfbert is the first")
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--output", type=pathlib.Path, default=default_output("order-of-batches"))
    args = parser.parse_args()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = str(max(os.cpu_count() // args.jobs, 1))
    seeds, orders = [int(seed) for seed in args.seeds.split(",")], args.orders.split(",")
    with ThreadPoolExecutor(args.jobs) as threads:
        found = list(threads.map(lambda job: run(args, *job), itertools.product(seeds, orders)))
    scores = {name: [each for each in found if each["order"] == name] for name in orders}
    args.output.write_text("\n\n".join(page(args, seeds, scores)) + "\n", encoding="utf-8")
    print(args.output)


def run(args: argparse.Namespace, seed: int, order: str) -> dict:
    """One run's scores, from its file if there is one."""
    kept = args.work_dir / f"{order}-{seed}.json"
    if not kept.exists():
        scratch = args.work_dir / f"{order}-{seed}"
        common = [f"--seed={seed}", f"--max_seq_length={args.max_seq_length}"]
        data = [f"--train_file={args.train_file}", f"--num_train_epochs={args.num_train_epochs}"]
        start, trained = scratch / "start", scratch / "trained"
        plain = [args.torch_python, PEERS / "plain_updates.py"]
        done(*plain, "start", f"--model={args.model}", *data, *common, f"--dropout={_DROPOUT}", f"--output_dir={start}")
        done(*plain, "train", f"--model={start}", *data, *common, f"--order={order}", f"--output_dir={trained}")
        evaluate = [f"--model={trained}", f"--validation_file={args.validation_file}"]
        evaluate += [f"--max_seq_length={args.max_seq_length}"]
        out, _, _ = done(args.torch_python, PEERS / "classification.py", "evaluate", *evaluate)
        updates = len(json.loads((trained / "updates.json").read_text()))
        scores = {"seed": seed, "order": order, "updates": updates} | json.loads(out.splitlines()[-1])
        kept.write_text(json.dumps(scores) + "\n")
        shutil.rmtree(scratch)
        print(scores, file=sys.stderr, flush=True)
    return json.loads(kept.read_text())


def page(args: argparse.Namespace, seeds: list[int], scores: dict[str, list[dict]]) -> list[str]:
    """The results as Markdown, one paragraph each."""
    values = {
        name: {order: np.array([run[f"eval_{name}"] for run in runs]) for order, runs in scores.items()}
        for name in ("accuracy", "loss")
    }
    accuracy, loss = (values[name] for name in ("accuracy", "loss"))
    lines = [
        [str(seed), *(f"{100 * accuracy[order][i]:.2f}, {loss[order][i]:.4f}" for order in scores)]
        for i, seed in enumerate(seeds)
    ]
    mean = [f"{said(100 * accuracy[order], 2)}; {said(loss[order], 4)}" for order in scores]
    lines.append(["mean, its standard error", *mean])
    apart = [
        f"tfbert's order less {ORDERS[other]}, seed by seed: {said(100 * (accuracy['tfbert'] - accuracy[other]), 2)} "
        f"points of accuracy, {said(loss['tfbert'] - loss[other], 4)} of loss."
        for other in list(scores)[1:]
    ]
    return [
        *beginning("The order of batches, in one PyTorch loop", "order_of_batches.py", args),
        f"{scores['tfbert'][0]['updates']} updates a run of `benchmarks/peers/plain_updates.py`, dropout {_DROPOUT}, "
        "the weights after the last one. Runs shared the cores, so there are no speeds here. Accuracy in percent, and "
        "loss:",
        table(["seed", *(ORDERS[order] for order in scores)], lines),
        *apart,
    ]


def said(values: np.ndarray, places: int) -> str:
    """A mean and its standard error."""
    return f"{values.mean():.{places}f} +- {values.std(ddof=1) / np.sqrt(len(values)):.{places}f}"


if __name__ == "__main__":
    main()
