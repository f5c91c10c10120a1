"""The command's own training step against PyTorch's bare one, in turns: for machines whose speed moves.

    python benchmarks/steps_in_turns.py --model=DIR --train_file=train.tsv --torch_python=peer/bin/python

Ours is the function that `model.fit` runs, with its input pipeline, on real batches of 32 grouped by length; PyTorch's
(`peers/torch_turns.py`: fused AdamW, clipping, no Trainer, no data to prepare) gets random tokens of the same widths. A
turn is `--steps` updates of one side, then of the other; the first third of them is left out. Prints one JSON line.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tfbert import runtime  # noqa: E402
from tfbert.config import Config, DataConfig, ModelConfig, OutputConfig, TrainingConfig  # noqa: E402
from tfbert.data.pipeline import distribute_batches  # noqa: E402
from tfbert.data_clock import DataClock  # noqa: E402
from tfbert.prepare import prepare  # noqa: E402
from tfbert.strategy import build_strategy  # noqa: E402

BATCH = 32


def main() -> None:
    """Turns of both sides, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "torch_python"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--turns", type=int, default=9)
    args = parser.parse_args()
    peer = subprocess.Popen(
        [args.torch_python, ROOT / "benchmarks" / "peers" / "torch_turns.py", f"--model={args.model}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert peer.stdout.readline() == "ready\n"
    with tempfile.TemporaryDirectory() as scratch:
        own, widths = own_step(args, scratch)
        own(args.steps)  # Traces and compiles.
        take(widths, args.steps)
        seconds = {"tfbert": [], "torch": []}
        for _ in range(args.turns):
            peer.stdin.write(",".join(map(str, take(widths, args.steps))) + "\n")
            peer.stdin.flush()
            seconds["torch"].append(float(peer.stdout.readline()))
            seconds["tfbert"].append(own(args.steps))
    peer.kill()
    kept = {name: values[args.turns // 3 :] for name, values in seconds.items()}
    speeds = {name: round(BATCH * args.steps * len(values) / sum(values), 1) for name, values in kept.items()}
    ratios = [round(torch / own, 3) for torch, own in zip(kept["torch"], kept["tfbert"], strict=True)]
    report = {"examples_per_second": speeds, "ratio": round(speeds["tfbert"] / speeds["torch"], 3), "ratios": ratios}
    print(json.dumps(report))


def take(items, count):
    """The next `count` items."""
    return list(itertools.islice(items, count))


def own_step(args, scratch):
    """(a function that makes so many updates and returns their seconds, an iterator of the widths of the updates)."""
    config = Config(
        model=ModelConfig(model_name_or_path=args.model),
        data=DataConfig(train_file=args.train_file, max_seq_length=args.max_seq_length),
        training=TrainingConfig(global_batch_size=BATCH),
        output=OutputConfig(output_dir=f"{scratch}/run"),
    ).resolved()
    runtime.set_up(config.runtime)
    run = prepare(config, build_strategy(config.runtime))
    with run.strategy.scope():
        clock = DataClock()
    clock.attach(run.model)
    batches = iter(distribute_batches(run.strategy, run.train, run.batches.plans, pad_id=run.tokenizer.pad_id))

    def make_updates(count):
        start = time.perf_counter()
        for _ in range(count):
            run.model.train_function(batches)
        run.model.progress.finite_steps.numpy()
        return time.perf_counter() - start

    return make_updates, (int(width) for plan in run.batches.plans() for width in plan.widths)


if __name__ == "__main__":
    main()
