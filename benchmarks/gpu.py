"""All there is to measure on a GPU, in one go: training BERT-base and BERT-large, against PyTorch on the same GPU.

    python benchmarks/gpu.py --torch_python=peer/bin/python --output_dir=runs/gpu

{base, large} x {128, 384 tokens} x {float32, float16, bfloat16} x {XLA off, on}, 32 examples an update, full rows,
weights from scratch: speed does not depend on them. Ours comes from `--mode=benchmark` (`base/` and `large/` in the
output directory hold its tables), PyTorch's from `benchmarks/peers/torch_step.py`. Writes `gpu.md` and `gpu.json`; the
same command goes on after an interruption. `--sizes=tiny --seq_lengths=16 --device=cpu` tries it out without a GPU.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys

from tfbert.model_files import SCRATCH_LAYOUTS

ROOT = pathlib.Path(__file__).parent.parent
VOCABULARY = 30522


def main() -> None:
    """Both sides of every row, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch_python", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--sizes", default="base,large")
    parser.add_argument("--seq_lengths", default="128,384")
    parser.add_argument("--precisions", default="float32,float16,bfloat16")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    args = parser.parse_args()
    directory = pathlib.Path(args.output_dir).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    write_corpus(directory, longest=max(map(int, args.seq_lengths.split(","))))
    rows = []
    for size in args.sizes.split(","):
        peers = {}
        for row in own_rows(args, directory, size):
            setting = (row["seq_length"], row["precision"])
            if setting not in peers:
                peers[setting] = peer(args, size, *setting)
            rows.append({"model": size, **row, "torch": peers[setting]})
            write(directory, rows)
    print((directory / "gpu.md").read_text())


def write_corpus(directory: pathlib.Path, longest: int) -> None:
    """Rows that fill every length asked for, and a vocabulary of BERT's size."""
    rng = random.Random(0)
    words = [f"word{i}" for i in range(1000)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokens += [f"[unused{i}]" for i in range(VOCABULARY - len(tokens))]
    (directory / "vocab.txt").write_text("\n".join(tokens) + "\n")
    for name, count in (("train.tsv", 512), ("dev.tsv", 32)):
        rows = [f"{i % 2}\t{' '.join(rng.choices(words, k=longest))}" for i in range(count)]
        (directory / name).write_text("\n".join(["label\tsentence", *rows]) + "\n")


def own_rows(args: argparse.Namespace, directory: pathlib.Path, size: str) -> list[dict]:
    """The rows of `--mode=benchmark`, failed ones included."""
    options = {
        "mode": "benchmark",
        "model": f"scratch/{size}",
        "vocab_file": directory / "vocab.txt",
        "train_file": directory / "train.tsv",
        "validation_file": directory / "dev.tsv",
        "output_dir": directory / size,
        "device": args.device,
        "batching": "padded",
        "global_batch_size": args.batch_size,
        "benchmark_steps": args.steps,
        "benchmark_precisions": args.precisions,
        "benchmark_xla": "off,on",
        "benchmark_seq_lengths": args.seq_lengths,
    }
    command = [sys.executable, str(ROOT / "run_finetune.py"), *(f"--{name}={value}" for name, value in options.items())]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return json.loads((directory / size / "benchmark.json").read_text())["rows"]


def peer(args: argparse.Namespace, size: str, seq_length: int, precision: str) -> dict:
    """PyTorch's figures, in a process of its own."""
    layers, hidden, heads, _ = SCRATCH_LAYOUTS[size]
    options = {"hidden": hidden, "layers": layers, "heads": heads, "seq_length": seq_length, "dtype": precision}
    options |= {"vocab": VOCABULARY, "batch_size": args.batch_size, "steps": args.steps}
    options |= {"device": "cuda" if args.device == "gpu" else "cpu"}
    command = [args.torch_python, str(ROOT / "benchmarks" / "peers" / "torch_step.py")]
    command += [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def write(directory: pathlib.Path, rows: list[dict]) -> None:
    """The table so far."""
    (directory / "gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        "| model | tokens | precision | XLA | examples/s | PyTorch eager | PyTorch compiled | ratio to the best |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        speeds = row["torch"]["examples_per_second"]
        own = row.get("examples_per_second")
        ratio = f"{own / max(speeds.values()):.2f}" if own and speeds else ""
        cells = [row["model"], row["seq_length"], row["precision"], row["xla"], f"{own:.1f}" if own else row["reason"]]
        cells += [speeds.get("eager", "failed"), speeds.get("compiled", "failed"), ratio]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    (directory / "gpu.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
