"""Measures everything on a GPU with one command: training and predicting with BERT, against PyTorch on the same GPU.

    timeout 560 python benchmarks/gpu.py --torch_python=peer/bin/python --output_dir=runs/gpu
    timeout 560 python benchmarks/gpu.py ... --passes=inference --sizes=base --precisions=float16 --batch_sizes=32

{base, large} x {128, 384 tokens} x {float32, float16, bfloat16}, full rows, random weights: speed does not depend on
them. Four passes: `training` and `inference`, for each batch size until memory does not suffice; `auto`, the
micro-batch that `--gradient_accumulation_steps=auto` finds; `checkpointing`, training that recomputes activations, for
the first batch size only. All settings are measured with the first batch size, then with the second, and so on. Our
figures come from `devices.py`, PyTorch's from `peers/torch_passes.py`. `gpu.md` and `gpu.json` are rewritten
after each part.

The options choose parts; the tables hold all parts so far. What `gpu.json` holds is not measured again: after an
interruption, the same command continues (that file alone is enough on another machine with the same GPU). "out of
memory" is a result: larger batches of that setting are not tried. Other failures are tried again, after everything
else. End it with SIGTERM, as `timeout` does, not with SIGKILL, which would leave a row running. Without a GPU, try
`--device=cpu --sizes=tiny --seq_lengths=16 --precisions=float32 --batch_sizes=8,16 --auto_batch_size=16`.
"""

import argparse
import json
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpu_page import OUT_OF_MEMORY, WAYS, page, row_of, setting_of  # noqa: E402

from tfbert.model.files import SCRATCH_LAYOUTS  # noqa: E402
from tfbert.output.output_dir import write_json, write_text  # noqa: E402
from tfbert.report.run_files import processor  # noqa: E402

VOCABULARY = 30522
MOST_BATCHES = "32,64,128,256,512,1024,2048"
# Runs in its own process, so that this one holds no GPU memory.
LOOK = """
import json, tensorflow as tf
details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
gpus = [found.get("device_name", "unknown") for found in details]
print(json.dumps({"tensorflow": tf.__version__, "gpus": gpus}))
"""
FIGURES = ("status", "reason", "examples_per_second", "peak_memory_bytes", "step_ms_p50", "compile_seconds")
FIGURES += ("data_wait_share", "user_seconds", "kernel_seconds", "peak_share", "micro_batches")


def main() -> None:
    """Measures what is missing, part by part, and writes the tables after each."""
    args = arguments()
    signal.signal(signal.SIGTERM, stop)
    directory = pathlib.Path(args.output_dir).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    document = begin(directory, look(args.device), args.torch_python)
    rows = document["rows"]
    write_corpus(directory, args)
    parts = [(part, missing) for part in parts_of(args) if (missing := missing_ways(rows, part))]
    for part, ways in sorted(parts, key=lambda item: has_failed(rows, *item)):  # What failed before comes last.
        print(f"--- {name_of(part)}: {part['side']} {', '.join(ways)}", file=sys.stderr, flush=True)
        found = {way: beyond_memory(rows, part, way) for way in ways}
        if left := [way for way in ways if not found[way]]:
            found |= SIDES[part["side"]](args, directory, part, left)
        for way, numbers in found.items():
            keep(rows, part | {"way": way} | numbers)
            print(f"{way}: {numbers.get('reason') or numbers['examples_per_second']}", file=sys.stderr, flush=True)
        write(directory, document)
    write(directory, document)
    print((directory / "gpu.md").read_text())


def arguments() -> argparse.Namespace:
    """The command's, with lists as tuples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch_python", default="", help="runs without PYTHONPATH, LD_LIBRARY_PATH and TF_*")
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--sizes", type=words, default="base,large")
    parser.add_argument("--seq_lengths", type=numbers, default="128,384")
    parser.add_argument("--precisions", type=words, default="float32,float16,bfloat16")
    parser.add_argument("--passes", type=words, default=",".join(WAYS))
    parser.add_argument("--sides", type=words, default="tfbert,torch")
    parser.add_argument("--batch_sizes", type=numbers, default=MOST_BATCHES, help="from small to large")
    parser.add_argument("--auto_batch_size", type=int, default=4096, help="global batch of the pass auto")
    parser.add_argument("--steps", type=int, default=50, help="updates, or PyTorch's predicted batches, of a row")
    parser.add_argument("--inference_examples", type=int, default=4096, help="that we predict; at least 8 batches")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--part_timeout", type=float, default=240, help="most seconds for one side of a setting")
    args = parser.parse_args()
    for name, known in (("sizes", SCRATCH_LAYOUTS), ("passes", WAYS), ("sides", SIDES)):
        if wrong := [word for word in getattr(args, name) if word not in known]:
            parser.error(f"{name} must be of {', '.join(known)}. Received: {', '.join(wrong)}.")
    if "torch" in args.sides and not args.torch_python:
        parser.error("PyTorch's side needs --torch_python. Pass it, or --sides=tfbert.")
    if list(args.batch_sizes) != sorted(set(args.batch_sizes)):
        parser.error(f"batch_sizes must ascend: memory ends the list. Received: {args.batch_sizes}.")
    return args


def words(text: str) -> tuple[str, ...]:
    """The words between commas."""
    return tuple(text.split(","))


def numbers(text: str) -> tuple[int, ...]:
    """The numbers between commas."""
    return tuple(map(int, text.split(",")))


def stop(*_) -> None:
    """Ends this process and the processes that it started, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("stopped; run the same command to continue")


def look(device: str) -> dict:
    """The machine and its TensorFlow; exits if the requested device is missing."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"TensorFlow cannot be imported by {sys.executable}: {last_line(done.stderr)}")
    found = json.loads(done.stdout.splitlines()[-1])
    if device == "gpu" and not found["gpus"]:
        sys.exit("TensorFlow sees no GPU. See its messages with TF_CPP_MIN_LOG_LEVEL=0, or pass --device=cpu.")
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    gpu = found["gpus"][0] if device == "gpu" else "none"
    return {"gpu": gpu, "driver": driver, "processor": processor(), "tensorflow": found["tensorflow"]}


def begin(directory: pathlib.Path, machine: dict, torch_python: str) -> dict:
    """The results of earlier commands on the same GPU, or an empty document; with this command."""
    document = {"commands": [], "rows": []}
    if (directory / "gpu.json").exists():
        document = json.loads((directory / "gpu.json").read_text())
        if document["gpu"] != machine["gpu"]:
            sys.exit(f"{directory} holds figures of another GPU, {document['gpu']}. Pass another --output_dir.")
    command = shlex.join(["python", *sys.argv]).replace(torch_python or "peer/bin/python", "peer/bin/python")
    commands = document["commands"] + [command] * (command not in document["commands"])
    return machine | {"commands": commands, "rows": document["rows"]}


def parts_of(args: argparse.Namespace) -> Iterator[dict]:
    """What to measure, in this order: for each part, its setting and its side."""
    for batch in args.batch_sizes:
        for name in args.passes:
            if name in ("auto", "checkpointing") and batch != args.batch_sizes[0]:
                continue
            shared = {"pass": name, "batch_size": batch, "steps": args.steps, "device": args.device}
            if name == "auto":
                shared |= {"batch_size": args.auto_batch_size, "steps": 3}
            for size in args.sizes:
                for length in args.seq_lengths:
                    for precision in args.precisions:
                        setting = {"model": size, "seq_length": length, "precision": precision}
                        yield from (shared | setting | {"side": side} for side in args.sides if side in WAYS[name])


def missing_ways(rows: list[dict], part: dict) -> list[str]:
    """The ways of a part that were not measured, or failed for another reason than memory."""
    ways = [way for way in WAYS[part["pass"]][part["side"]] if way != "cast" or part["precision"] != "float32"]
    return [way for way in ways if not is_done(row_of(rows, part | {"way": way}))]


def is_done(row: dict | None) -> bool:
    """Whether a row was measured; that memory does not suffice is a result too."""
    return row is not None and (row["status"] == "done" or row["reason"] == OUT_OF_MEMORY)


def has_failed(rows: list[dict], part: dict, ways: list[str]) -> bool:
    """Whether a part was tried before."""
    return any(row_of(rows, part | {"way": way}) for way in ways)


def beyond_memory(rows: list[dict], part: dict, way: str) -> dict:
    """The numbers of a row without a run, if a smaller batch of the same setting ran out of memory; else nothing."""
    wanted = setting_of(part | {"way": way, "batch_size": 0})
    for row in rows:
        too_large = row["status"] == "failed" and row["reason"] == OUT_OF_MEMORY
        if too_large and row["batch_size"] < part["batch_size"] and setting_of(row | {"batch_size": 0}) == wanted:
            return {"status": "failed", "reason": OUT_OF_MEMORY, "tried": False}
    return {}


def keep(rows: list[dict], row: dict) -> None:
    """Adds a row, in the place of an earlier one of the same setting."""
    if earlier := row_of(rows, row):
        rows.remove(earlier)
    rows.append(row)


def name_of(setting: dict) -> str:
    """A short name for a setting, also used for its files."""
    return "{pass}-{model}-{seq_length}-{precision}-batch{batch_size}-steps{steps}-{device}".format(**setting)


def write_corpus(directory: pathlib.Path, args: argparse.Namespace) -> None:
    """Writes a vocabulary of BERT's size, and rows that fill every requested length, to train on and to predict."""
    rng = random.Random(0)
    known = [f"word{i}" for i in range(1000)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *known]
    tokens += [f"[unused{i}]" for i in range(VOCABULARY - len(tokens))]
    (directory / "vocab.txt").write_text("\n".join(tokens) + "\n")
    texts = [" ".join(rng.choices(known, k=max(args.seq_lengths))) for _ in range(512)]
    training = max(512, *args.batch_sizes, args.auto_batch_size if "auto" in args.passes else 0)
    for name, rows in (("train", training), ("dev", predicted_examples(args, max(args.batch_sizes)))):
        lines = [f"{i % 2}\t{texts[i % len(texts)]}" for i in range(rows)]
        (directory / f"{name}.tsv").write_text("\n".join(["label\tsentence", *lines]) + "\n")


def predicted_examples(args: argparse.Namespace, batch_size: int) -> int:
    """How many examples our side predicts in an inference row: whole batches."""
    return batch_size * max(8, args.inference_examples // batch_size)


def own(args: argparse.Namespace, directory: pathlib.Path, part: dict, ways: list[str]) -> dict[str, dict]:
    """Our numbers for each way, from `devices.py`, which continues by itself in its directory."""
    output_dir = directory / "-".join([name_of(part), *(way.replace(" ", "-") for way in ways)])
    options = {"model": f"scratch/{part['model']}", "vocab_file": directory / "vocab.txt"}
    options |= {"output_dir": output_dir, "device": part["device"], "max_seq_length": part["seq_length"]}
    options |= {"precisions": part["precision"], "train_file": directory / "train.tsv"}
    if part["pass"] == "inference":
        examples = predicted_examples(args, part["batch_size"])
        options |= {"max_train_examples": 64, "max_eval_examples": examples, "validation_file": directory / "dev.tsv"}
        options |= {"per_device_eval_batch_size": part["batch_size"]}
    else:
        options |= {"vary": f"xla={','.join(way.removeprefix('XLA ') for way in ways)}", "batching": "padded"}
        options |= {"steps": part["steps"], "warmup_steps": min(10, part["steps"])}
        options |= {"global_batch_size": part["batch_size"]}
    options |= {"gradient_accumulation_steps": "auto"} if part["pass"] == "auto" else {}
    options |= {"gradient_checkpointing": True} if part["pass"] == "checkpointing" else {}
    command = [sys.executable, ROOT / "benchmarks" / "devices.py"]
    command += ["--inference"] if part["pass"] == "inference" else []
    command += [f"--{name}={value}" for name, value in options.items()]
    failure, _ = run(command, output_dir, args.part_timeout)
    try:
        measured = json.loads((output_dir / "benchmark.json").read_text())["rows"]
    except (OSError, ValueError):
        measured = []
    found = {f"XLA {row.get('xla', 'off')}": {k: row[k] for k in FIGURES if k in row} for row in measured}
    return with_failures(found, ways, failure)


def peer(args: argparse.Namespace, directory: pathlib.Path, part: dict, ways: list[str]) -> dict[str, dict]:
    """PyTorch's numbers for each way, measured in another process."""
    layers, hidden, heads, _ = SCRATCH_LAYOUTS[part["model"]]
    options = {"hidden": hidden, "layers": layers, "heads": heads, "vocab": VOCABULARY, "dtype": part["precision"]}
    options |= {name: part[name] for name in ("pass", "seq_length", "batch_size", "steps")}
    options |= {"ways": ",".join(ways), "device": "cuda" if part["device"] == "gpu" else "cpu"}
    command = [args.torch_python, ROOT / "benchmarks" / "peers" / "torch_passes.py"]
    command += [f"--{name}={value}" for name, value in options.items()]
    # TensorFlow's packages and libraries may be on these paths, and would take the place of PyTorch's.
    drop = ("PYTHONPATH", "LD_LIBRARY_PATH", "XLA_FLAGS")
    environ = {name: value for name, value in os.environ.items() if name not in drop and not name.startswith("TF_")}
    failure, text = run(command, directory / f"{name_of(part)}-torch", args.part_timeout, env=environ)
    found = map(json.loads, (line for line in text.splitlines() if line.startswith("{")))
    return with_failures({row.pop("way"): row for row in found}, ways, failure)


SIDES = {"tfbert": own, "torch": peer}
"""The functions that measure ways of a part."""


def with_failures(found: dict[str, dict], ways: list[str], failure: str) -> dict[str, dict]:
    """Numbers for all ways; those that left none failed."""
    missing = {"status": "failed", "reason": failure or "the run left no numbers"}
    return {way: found.get(way, missing) for way in ways}


def run(command: list, stem: pathlib.Path, timeout: float, **options) -> tuple[str, str]:
    """Runs a process. It gets SIGTERM at the timeout, and when this process does.

    Args:
        command: Words.
        stem: Of the two files that get its output: with `.out` and `.err` added.
        timeout: In seconds.
        options: Of `subprocess.Popen`.

    Returns:
        Why it failed, empty if it did not; and what it wrote to stdout.
    """
    out, err = (stem.with_name(f"{stem.name}.{end}") for end in ("out", "err"))
    with out.open("w") as out_file, err.open("w") as err_file:
        try:
            status = wait([str(word) for word in command], timeout, stdout=out_file, stderr=err_file, **options)
            failure = f"exit status {status}: {last_line(err.read_text())}" if status else ""
        except subprocess.TimeoutExpired:
            failure = f"not done after {timeout:g} s"
        except OSError as error:
            failure = str(error)
    return failure, out.read_text()


def wait(command: list[str], timeout: float, **options) -> int:
    """The exit status of a process, which is ended whatever happens."""
    with subprocess.Popen(command, **options) as process:
        try:
            return process.wait(timeout)
        finally:
            if process.poll() is None:
                process.terminate()


def last_line(text: str) -> str:
    """The last line that is not blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def write(directory: pathlib.Path, document: dict) -> None:
    """Writes all figures so far, and their tables."""
    write_json(directory / "gpu.json", document)
    write_text(directory / "gpu.md", page(document))


if __name__ == "__main__":
    main()
