"""Updates of pre-training, in turns: this trainer's own step against Hugging Face's PyTorch BERT, and against Keras.

    python benchmarks/pretraining_speed.py --model=scratch/small --train_records=records-128 \\
        --torch_python=peer/bin/python --global_batch_size=32

Ours is the function that `model.fit` runs, with its input pipeline, which reads the records and draws their masks. The
batches that it will read are written beforehand for the peers (`peers/pretraining.py`, each in its own process): the
same records, masks, order and widths, already in memory. The peers in TensorFlow are plain `fit`; they read the same
rows, masked once, with Google's input pipeline (`peers/tf_pretraining.py`). A turn is `--steps` updates of each side;
the first third of the turns is left out. Matrix peak is the best rate of a large matrix product, measured between
turns. Work counts only real tokens and masked words, whatever else a side computes. Writes a file in
benchmarks/results/ after every turn; if the file exists, a section is added, so that several lengths share one file.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from results_page import beginning, default_output, flags_said, table  # noqa: E402
from steps_in_turns import own_step  # noqa: E402

from tfbert import Config, DataConfig, ModelConfig, OutputConfig, RuntimeConfig, TrainingConfig  # noqa: E402
from tfbert.config.tasks import PRETRAINING, PretrainingConfig  # noqa: E402
from tfbert.devices.process import choose_kernels, keep_freed_memory  # noqa: E402
from tfbert.modes.pretrain import with_records  # noqa: E402

IN_TENSORFLOW = ("google", "transformers", "keras_hub")
KINDS = ("pretraining", "masked_lm", "gathered", *IN_TENSORFLOW)


def main() -> None:
    """Runs the turns of all sides, and reports their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="scratch/small", help="the peers always have random weights")
    for name in ("train_records", "torch_python"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument(
        "--peers", default=",".join(KINDS), help="pretraining, masked_lm, gathered: PyTorch; the others: TensorFlow"
    )
    parser.add_argument("--torch_threads", default="", help="numbers to try; default: half the cores, and all")
    parser.add_argument("--global_batch_size", type=int, default=32)
    parser.add_argument(
        "--mixed_precision", action="store_true", help="all sides in bfloat16; only fair on a CPU that supports it"
    )
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", default="", help="file for the results; default: today's, in benchmarks/results/")
    args = parser.parse_args()
    output = pathlib.Path(args.output or default_output("pretraining-speed"))
    before = output.read_text(encoding="utf-8") if output.exists() else ""
    peers = {}
    try:
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            own, run, config = own_side(args, scratch)
            works = write_batches(run, args.steps * (args.turns + 1), scratch / "batches.npz")
            run.classifier.config.to_json_file(scratch / "config.json", use_diff=False)
            reading = reading_alone(run)
            peers = {kind: Peer(args, kind, scratch) for kind in args.peers.split(",")}
            own(args.steps)  # Traces and compiles.
            turns = []
            for turn in range(1, args.turns + 1):
                first, last = turn * args.steps, (turn + 1) * args.steps
                times = {"tfbert": own(args.steps)} | {kind: peer.updates(first, last) for kind, peer in peers.items()}
                turns.append({"work": sum(works[first + 1 : last], works[first]), "peak": peak(config), "times": times})
                output.write_text(
                    before + page(args, run, peers, turns, reading, is_first=not before), encoding="utf-8"
                )
                print(f"turn {turn}: {times}", file=sys.stderr, flush=True)
    finally:
        for peer in peers.values():
            peer.process.kill()
    print(f"see {output}", file=sys.stderr)


def own_side(args: argparse.Namespace, scratch: pathlib.Path):
    """A function that makes a number of updates, the `Run`, and its configuration."""
    choose_kernels()
    keep_freed_memory()
    config = Config(
        model=ModelConfig(model_name_or_path=args.model),
        data=DataConfig(task=PRETRAINING),
        pretraining=PretrainingConfig(train_records=(args.train_records,)),
        training=TrainingConfig(global_batch_size=args.global_batch_size, num_train_epochs=100),
        runtime=RuntimeConfig(device="cpu", mixed_precision=args.mixed_precision),
        output=OutputConfig(output_dir=str(scratch / "run")),
    )
    config = with_records(config).resolved()
    return *own_step(config), config


def write_batches(run, count: int, path: pathlib.Path) -> list:
    """Writes the run's first batches as arrays; returns the `Work` of each, for its real tokens only."""
    import numpy as np

    from tfbert.batches.plan import FILL
    from tfbert.measure import Work

    arrays, works = {"count": np.array(count)}, []
    planned = (
        (plan, rows, width) for plan in run.batches.plans() for rows, width in zip(plan.rows, plan.widths, strict=True)
    )
    for number, (plan, rows, width) in zip(range(count), planned, strict=False):
        is_real = rows != FILL  # The last batch of an epoch need not be full.
        inputs, labels, weights = run.train.rows(rows, int(width), plan.epoch)
        values = {
            "ids": inputs["input_ids"],
            "mask": inputs["attention_mask"],
            "segments": inputs["token_type_ids"],
            "positions": inputs["masked_lm_positions"],
            "labels": labels["masked_lm"],
            "weights": weights["masked_lm"],
            "next_sentence": labels["next_sentence"],
        }
        values = {name: value[is_real] for name, value in values.items()}
        arrays |= {f"{name}_{number}": value for name, value in values.items()}
        works.append(Work.of(values["mask"].sum(axis=1)))
    np.savez(path, **arrays)
    return works


class Peer:
    """A peer's process.

    Args:
        args: The command's.
        kind: Which peer.
        scratch: The directory of its files.
    """

    def __init__(self, args: argparse.Namespace, kind: str, scratch: pathlib.Path):
        is_ours = kind in IN_TENSORFLOW
        python, script = (sys.executable, "tf_pretraining.py") if is_ours else (args.torch_python, "pretraining.py")
        words = [python, ROOT / "benchmarks" / "peers" / script, f"--kind={kind}"]
        words += [f"--config={scratch / 'config.json'}", f"--batches={scratch / 'batches.npz'}"]
        words += [f"--threads={args.torch_threads}"] * (bool(args.torch_threads) and not is_ours)
        words += ["--bfloat16"] * args.mixed_precision
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready, _, chosen = self.process.stdout.readline().partition(" ")
        assert ready == "ready", f"the peer {kind} did not start"
        self.chosen = json.loads(chosen)

    def updates(self, first: int, last: int) -> tuple[float, ...]:
        """Makes updates on these batches; returns their seconds (wall, user, kernel)."""
        self.process.stdin.write(f"{first} {last}\n")
        self.process.stdin.flush()
        return tuple(map(float, self.process.stdout.readline().split()))


def peak(config: Config) -> float:
    """Floating-point operations per second of a large matrix product, now."""
    from peaks import measure_peak

    return measure_peak(config.runtime.mixed_precision_dtype if config.runtime.mixed_precision else "float32")


def page(
    args: argparse.Namespace, run, peers: dict[str, Peer], turns: list[dict], reading: int, *, is_first: bool
) -> str:
    """The section of this run, below the title if it is the first."""
    from tfbert.measure import training_flops

    kept = turns[len(turns) // 3 :]
    task = run.data.task
    read = {"reads_tokens": task.reads_tokens, "masked_share": task.masked_share}
    flops = sum(training_flops(run.classifier.config, turn["work"], **read) for turn in kept)
    rows, tokens = (sum(getattr(turn["work"], name) for turn in kept) for name in ("examples", "tokens"))
    best = max(turn["peak"] for turn in turns)
    own = sum(turn["times"]["tfbert"][0] for turn in kept)
    lines = []
    for side in ("tfbert", *peers):
        seconds, user, kernel = (sum(turn["times"][side][place] for turn in kept) for place in range(3))
        line = [side, f"{rows / seconds:.1f}", f"{tokens / seconds:,.0f}", f"{user:.1f}, {kernel:.1f}"]
        line += [f"{flops / seconds / 1e9:.1f}", f"{100 * flops / seconds / best:.0f}%"]
        if side == "tfbert":
            lines.append([*line, "", ""])
            continue
        ratios = sorted(turn["times"][side][0] / turn["times"]["tfbert"][0] for turn in kept)
        median = statistics.median(ratios)
        lines.append([*line, f"{seconds / own:.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}, median {median:.2f}"])
    width = run.train.records.schema.max_seq_length
    config = run.classifier.config
    head = ["", "sequences/s", "tokens/s", "CPU seconds: program, kernel", "GFLOP/s asked for", "of the matrix peak"]
    parts = [
        *(beginning("Updates of pre-training against peers", "pretraining_speed.py", args) if is_first else ()),
        f"## {width} tokens, {args.model}, {'bfloat16' if args.mixed_precision else 'float32'}",
        *(() if is_first else (f"`python benchmarks/pretraining_speed.py {' '.join(flags_said(args))}`",)),
        table([*head, "tfbert over it", "in turns"], lines),
        f"{config.num_hidden_layers} layers of {config.hidden_size}, {config.vocab_size:,} words, batches of "
        f"{args.global_batch_size}, {tokens / rows:.0f} real tokens a sequence; {len(kept)} turns of {args.steps} "
        f"updates, after {len(turns) - len(kept)} that are left out. Matrix peak {best / 1e9:.0f} GFLOP/s, the best of "
        f"all turns.{facts(peers)}",
        f"Reading alone, rows a second: tfbert, which draws masks anew, {reading:,}"
        + "".join(f", {kind} {peer.chosen['reading_alone']:,}" for kind, peer in peers.items() if kind in IN_TENSORFLOW)
        + ".",
    ]
    return ("" if is_first else "\n") + "\n\n".join(parts) + "\n"


def facts(peers: dict[str, Peer]) -> str:
    """What the peers in PyTorch chose, and their versions."""
    told = {kind: peer.chosen for kind, peer in peers.items() if kind not in IN_TENSORFLOW}
    if not told:
        return ""
    one = next(iter(told.values()))
    threads = ", ".join(f"{kind} {chosen['threads']}" for kind, chosen in told.items())
    versions = f"PyTorch {one['torch']}, transformers {one['transformers']}, attention {one['attention']}"
    return f" {versions}; threads: {threads}."


def reading_alone(run, batches: int = 200) -> int:
    """Rows a second of our input pipeline, with nothing else to do."""
    from tfbert.batches.pipeline import distribute_batches

    iterator = iter(distribute_batches(run.strategy, run.train, run.batches.plans))
    next(iterator)
    start, rows = time.perf_counter(), 0
    for _ in range(batches):
        rows += next(iterator)[0]["input_ids"].shape[0]
    return round(rows / (time.perf_counter() - start))


if __name__ == "__main__":
    main()
