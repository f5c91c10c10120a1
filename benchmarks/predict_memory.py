"""Peak memory of `--mode=predict` on few and on many texts: does it grow?

    python benchmarks/predict_memory.py --model=RUN --few=10000 --many=1000000

Each runs in its own process (`ru_maxrss`, in kB on Linux). Each text has 3 to 12 words, from a small set of words.
Prints one JSON line; the exit status is 1 if the many texts take over 500 MB more than the few.
"""

import argparse
import json
import pathlib
import random
import sys
import tempfile
import time

from machine import done

ROOT = pathlib.Path(__file__).parent.parent
WORDS = [
    "a",
    "the",
    "film",
    "plot",
    "cast",
    "was",
    "is",
    "good",
    "bad",
    "fine",
    "dull",
    "slow",
    "bright",
    "not",
    "very",
    "and",
    "of",
    "its",
    "story",
    "scene",
    "actor",
    "ending",
]
LIMIT_MB = 500


def main() -> int:
    """Makes both runs, and prints the difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--per_device_eval_batch_size", type=int, default=32)
    args = parser.parse_args()
    found = {}
    for count in (args.few, args.many):
        with tempfile.TemporaryDirectory() as scratch:
            found[count] = peak_of(args, count, pathlib.Path(scratch))
    growth = found[args.many]["peak_mb"] - found[args.few]["peak_mb"]
    print(json.dumps({"runs": found, "growth_mb": round(growth, 1), "limit_mb": LIMIT_MB}))
    return 0 if growth <= LIMIT_MB else 1


def peak_of(args: argparse.Namespace, count: int, scratch: pathlib.Path) -> dict:
    """Predicts `count` texts in a new process."""
    rng = random.Random(0)
    with (scratch / "in.txt").open("w") as file:
        for _ in range(count):
            file.write(" ".join(rng.choices(WORDS, k=rng.randint(3, 12))) + "\n")
    command = [sys.executable, ROOT / "run_finetune.py", "--mode=predict", f"--model={args.model}"]
    command += [f"--input_file={scratch / 'in.txt'}", f"--output_file={scratch / 'out.tsv'}"]
    command += [f"--per_device_eval_batch_size={args.per_device_eval_batch_size}"]
    start = time.perf_counter()
    _, _, used = done(*command)
    seconds = time.perf_counter() - start
    with (scratch / "out.tsv").open() as file:
        lines = sum(1 for _ in file) - 1
    if lines != count:
        sys.exit(f"{count} texts: {lines} predictions")
    return {"peak_mb": used["peak_mb"], "seconds": round(seconds, 1)}


if __name__ == "__main__":
    sys.exit(main())
