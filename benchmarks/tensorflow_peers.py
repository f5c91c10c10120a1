"""What else a user of TensorFlow would pick: transformers' and KerasHub's models in plain `fit`, in turns with tfbert.

    python benchmarks/tensorflow_peers.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv --runs=runs/peers

Each side trains the same rows from the same weights, with AdamW, clipping and a linearly falling rate, scores the
validation file and predicts: each job in its own process, on the CPU, in tfbert's own environment with `datasets` and
`keras-hub` (`peers/tf_transformers.py`, `peers/keras_hub_fit.py`). A side is a library, how it pads, and whether it
compiles with XLA (`jit`). `longest` is what transformers' guide to text classification writes, `padded` what other
pages of its documentation write and what KerasHub's preprocessor does; batches of like length, `pools`, a user has to
write. Padding to `--max_seq_length` is slow where texts are short: such sides get `--padded_examples`, and only their
rates are compared.

Every seed is a turn; the order of the sides is reversed in every second one. Each side's run of each seed is a file in
`--runs`, `SIDE-SEED.json`; what is there is not run again: a measurement can be interrupted, or made in parts by
`--sides` and `--seeds`. A file in benchmarks/results/ is written after each run, of all that were made.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time

from machine import done
from results_page import beginning, default_output
from tasks_in_turns import own, write_examples
from tensorflow_peers_page import paragraphs

ROOT = pathlib.Path(__file__).parent.parent
_TRANSFORMERS, _KERAS_HUB = "tf_transformers.py", "keras_hub_fit.py"
_PADDED, _POOLS, _JIT = "--padding=max_length", "--padding=pools", "--jit_compile"
SIDES: dict[str, tuple[str, ...]] = {
    "tfbert": (),
    "transformers-longest": (_TRANSFORMERS, "--padding=longest"),
    "transformers-pools": (_TRANSFORMERS, _POOLS),
    "transformers-pools-jit": (_TRANSFORMERS, _POOLS, _JIT),
    "transformers-padded": (_TRANSFORMERS, _PADDED),
    "transformers-padded-jit": (_TRANSFORMERS, _PADDED, _JIT),
    "keras_hub-padded": (_KERAS_HUB, _PADDED),
    "keras_hub-padded-jit": (_KERAS_HUB, _PADDED, _JIT),
    "keras_hub-pools": (_KERAS_HUB, _POOLS),
    "keras_hub-pools-jit": (_KERAS_HUB, _POOLS, _JIT),
}
"""Each peer's script in peers/, and its options."""


def main() -> None:
    """Makes the runs that are missing, and writes the page after each."""
    args = arguments()
    args.runs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for number, seed in enumerate(args.seeds.split(",")):
            for side in args.sides.split(",")[:: -1 if number % 2 else 1]:
                kept = args.runs / f"{side}-{seed}.json"
                if not kept.exists():
                    started = time.time()
                    found = {"started": started} | run_of(side, args, pathlib.Path(scratch), int(seed))
                    kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                print(f"{side}, seed {seed}: {json.loads(kept.read_text(encoding='utf-8'))['train']}", flush=True)
                write_page(args)


def arguments() -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="a directory that keeps each run")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--seeds", default="42", help="one for each turn")
    parser.add_argument("--max_train_examples", type=int, default=3200)
    parser.add_argument("--padded_examples", type=int, default=640, help="of sides that pad to the maximum")
    parser.add_argument("--max_eval_examples", type=int, default=0)
    parser.add_argument("--predict_examples", type=int, default=2000, help="those of the validation file, repeated")
    parser.add_argument("--num_train_epochs", type=int, default=1)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--global_batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--output", type=pathlib.Path, default=default_output("tensorflow-peers"))
    args = parser.parse_args()
    if unknown := set(args.sides.split(",")) - set(SIDES):
        parser.error(f"--sides are some of {', '.join(SIDES)}. Received: {', '.join(sorted(unknown))}.")
    for name in ("max_train_examples", "padded_examples"):
        value = getattr(args, name)
        if value <= 0 or value % args.global_batch_size:
            parser.error(f"--{name} must fill batches of {args.global_batch_size}, or the sides differ in their rows. "
                         f"Received: {value}.")  # fmt: skip
    return args


def run_of(side: str, args: argparse.Namespace, scratch: pathlib.Path, seed: int) -> dict:
    """One side's run: `train`, `scores` (None if it had fewer rows) and `predict`."""
    directory = scratch / f"{side}-{seed}"
    if side == "tfbert":
        return of_tfbert(args, directory, seed)
    script, *options = SIDES[side]
    is_padded = _PADDED in options
    rows = args.padded_examples if is_padded else args.max_train_examples
    given = preset(args, scratch) if script == _KERAS_HUB else args.model

    def job(name: str, *more: str) -> dict:
        start = time.perf_counter()
        out, _, used = done(sys.executable, ROOT / "benchmarks" / "peers" / script, name, *options, *both, *more)
        whole = {"process_seconds": round(time.perf_counter() - start, 1)}
        return json.loads(out.splitlines()[-1]) | used | whole

    both = [f"--{name}={getattr(args, name)}" for name in ("max_seq_length", "global_batch_size")]
    train = [f"--{name}={getattr(args, name)}" for name in ("train_file", "num_train_epochs", "learning_rate")]
    train += [f"--model={given}", f"--max_train_examples={rows}", f"--seed={seed}", f"--output_dir={directory}"]
    found = {"rows": rows, "train": job("train", *train), "scores": None}
    model = f"--model={directory}"
    if rows == args.max_train_examples:
        limit = f"--max_eval_examples={args.max_eval_examples}"
        found["scores"] = job("evaluate", model, f"--validation_file={args.validation_file}", limit)
    examples = min(rows, args.predict_examples) if is_padded else args.predict_examples
    found["predict"] = job("predict", model, f"--input_file={examples_file(args, scratch, examples)}")
    return found | {"predicted": examples}


def of_tfbert(args: argparse.Namespace, directory: pathlib.Path, seed: int) -> dict:
    """Our run, by the command."""
    examples_file(args, directory.parent, args.predict_examples, name="in.jsonl")
    found = own(as_task(args, args.predict_examples), directory, seed)
    (found["predict"],) = found["predict"]
    return {"rows": args.max_train_examples, "predicted": args.predict_examples} | found


def as_task(args: argparse.Namespace, predict_examples: int) -> argparse.Namespace:
    """The options of `tasks_in_turns.py` that are the same."""
    own_options = {
        "task": "classification",
        "predict_examples": predict_examples,
        "batch_sizes": str(args.global_batch_size),
        "test_file": "",
        "label_names": "",
        "mixed_precision": False,
        "version_2_with_negative": False,
    }
    return argparse.Namespace(**vars(args) | own_options)


def examples_file(args: argparse.Namespace, scratch: pathlib.Path, count: int, name: str = "") -> pathlib.Path:
    """The examples to predict, as JSON lines."""
    path = scratch / (name or f"in-{count}.jsonl")
    if not path.exists():
        write_examples(as_task(args, count), path)
    return path


def preset(args: argparse.Namespace, scratch: pathlib.Path) -> pathlib.Path:
    """The model as a preset of KerasHub."""
    directory = scratch / "preset"
    if not directory.exists():
        done(sys.executable, ROOT / "benchmarks" / "keras_preset.py", args.model, directory)
    return directory


def write_page(args: argparse.Namespace) -> None:
    """Writes what is there of the runs, in the order of `SIDES`."""
    runs: dict[str, dict[str, dict]] = {}
    for side in SIDES:
        for seed in args.seeds.split(","):
            path = args.runs / f"{side}-{seed}.json"
            if path.exists():
                runs.setdefault(side, {})[seed] = json.loads(path.read_text(encoding="utf-8"))
    versions = {name: value for found in runs.values() for run in found.values()
                for name, value in run["train"].get("versions", {}).items()}  # fmt: skip
    words = [f"{name} {value}" for name, value in versions.items() if name not in ("tensorflow", "transformers")]
    told = argparse.Namespace(**vars(args) | {"runs": None})
    page = beginning("tfbert beside plain `fit` in TensorFlow", "tensorflow_peers.py", told, *words)
    args.output.write_text("\n\n".join(page + paragraphs(runs)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
