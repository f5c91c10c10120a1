"""Measures everything on a GPU with one command: training BERT-base and BERT-large, against PyTorch on the same GPU.

    timeout 560 python benchmarks/gpu.py --torch_python=peer/bin/python --output_dir=runs/gpu

{base, large} x {128, 384 tokens} x {float32, float16, bfloat16} x {XLA off, on}, 32 examples per update, full rows,
random weights: speed does not depend on them. Our figures come from `--mode=benchmark`, PyTorch's from
`benchmarks/peers/torch_step.py`. Then, for each size, the peak memory with gradient checkpointing and the largest
micro-batch that fits. Rewrites `gpu.md` and `gpu.json` after each part.

After an interruption, the same command continues: what `gpu.json` holds is not measured again (that file alone is
enough on another machine with the same GPU), and what failed is tried again after everything else. End it with SIGTERM,
as `timeout` does, not with SIGKILL, which would leave a row running. `--sizes=tiny --seq_lengths=16 --device=cpu` tries
it out without a GPU.
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

from tfbert.model.files import SCRATCH_LAYOUTS  # noqa: E402
from tfbert.output.output_dir import write_json, write_text  # noqa: E402
from tfbert.report.facts import processor  # noqa: E402

VOCABULARY = 30522
# Runs in its own process, so that this one holds no GPU memory.
LOOK = """
import json, tensorflow as tf
details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
gpus = [found.get("device_name", "unknown") for found in details]
print(json.dumps({"tensorflow": tf.__version__, "gpus": gpus}))
"""


def main() -> None:
    """Measures what is missing, setting by setting, and writes the tables after each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch_python", required=True, help="runs without PYTHONPATH, LD_LIBRARY_PATH and TF_*")
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--sizes", default="base,large")
    parser.add_argument("--seq_lengths", default="128,384")
    parser.add_argument("--precisions", default="float32,float16,bfloat16")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--auto_batch_size", type=int, default=4096, help="global batch for accumulation_steps=auto")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--torch_timeout", type=float, default=240, help="most seconds for PyTorch's side of a setting")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    directory = pathlib.Path(args.output_dir).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    document = begin(directory, look(args.device))
    parts = [(setting, part) for setting in settings(args) for part in setting["parts"]]
    entries = [entry_of(document, setting) for setting, _ in parts]
    write_corpus(directory, longest=max(map(int, args.seq_lengths.split(","))), rows=max(512, args.auto_batch_size))
    todo = [(part, entry) for (_, part), entry in zip(parts, entries, strict=True) if not is_done(entry.get(part))]
    for part, entry in sorted(todo, key=lambda item: item[0] in item[1]):  # Parts that failed before come last.
        print(f"--- {name_of(entry)}: {part}", file=sys.stderr, flush=True)
        entry[part] = PARTS[part](args, directory, entry)
        write(directory, document)
    write(directory, document)
    print((directory / "gpu.md").read_text())


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


def begin(directory: pathlib.Path, machine: dict) -> dict:
    """The results of an earlier start on the same GPU, or an empty document."""
    document = {"settings": []}
    if (directory / "gpu.json").exists():
        document = json.loads((directory / "gpu.json").read_text())
        if document["gpu"] != machine["gpu"]:
            sys.exit(f"{directory} holds figures of another GPU, {document['gpu']}. Pass another --output_dir.")
    return {"command": shlex.join(["python", *sys.argv]), **machine, "settings": document["settings"]}


def settings(args: argparse.Namespace) -> Iterator[dict]:
    """The settings to measure, in the order of the table, each with its parts."""
    lengths, precisions = list(map(int, args.seq_lengths.split(","))), args.precisions.split(",")
    for size in args.sizes.split(","):
        setting = {"model": size, "batch_size": args.batch_size, "steps": args.steps, "device": args.device}
        for length in lengths:
            for precision in precisions:
                yield setting | {"seq_length": length, "precision": precision, "parts": ["tfbert", "torch"]}
        precision = "float16" if "float16" in precisions else precisions[0]
        setting |= {"seq_length": max(lengths), "precision": precision}
        yield setting | {"parts": ["checkpointing"]}
        yield setting | {"batch_size": args.auto_batch_size, "steps": 3, "parts": ["auto"]}


def entry_of(document: dict, setting: dict) -> dict:
    """The document's entry for a setting; added if there is none."""
    name = name_of(setting)
    for entry in document["settings"]:
        if name_of(entry) == name:
            return entry
    document["settings"].append({key: value for key, value in setting.items() if key != "parts"})
    return document["settings"][-1]


def name_of(setting: dict) -> str:
    """A short name for a setting, also used for its files."""
    return "{model}-{seq_length}-{precision}-batch{batch_size}-steps{steps}-{device}".format(**setting)


def is_done(found: list[dict] | dict | None) -> bool:
    """Whether a part was measured without a failure that should be tried again."""
    if isinstance(found, list):
        return all(row["status"] == "done" for row in found)
    return found is not None and ("failed" not in found or bool(found.get("examples_per_second")))


def write_corpus(directory: pathlib.Path, longest: int, rows: int) -> None:
    """Writes rows that fill every requested length, and a vocabulary of BERT's size."""
    rng = random.Random(0)
    words = [f"word{i}" for i in range(1000)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokens += [f"[unused{i}]" for i in range(VOCABULARY - len(tokens))]
    (directory / "vocab.txt").write_text("\n".join(tokens) + "\n")
    lines = [f"{i % 2}\t{' '.join(rng.choices(words, k=longest))}" for i in range(rows)]
    (directory / "train.tsv").write_text("\n".join(["label\tsentence", *lines]) + "\n")


def own_rows(args: argparse.Namespace, directory: pathlib.Path, entry: dict) -> list[dict]:
    """Our rows, XLA off and on."""
    return benchmark(directory / name_of(entry), entry, [False, True])


def checkpointing(args: argparse.Namespace, directory: pathlib.Path, entry: dict) -> list[dict]:
    """Our row with gradient checkpointing."""
    return benchmark(directory / f"{name_of(entry)}-checkpointing", entry, [False], gradient_checkpointing=True)


def benchmark(output_dir: pathlib.Path, entry: dict, xla: list[bool], **options) -> list[dict]:
    """The rows of `--mode=benchmark`, which continues by itself in its directory; failed rows say why."""
    options |= {"benchmark_precisions": entry["precision"], "benchmark_steps": entry["steps"]}
    options |= {"mode": "benchmark", "benchmark_xla": ",".join("on" if on else "off" for on in xla)}
    status = run([sys.executable, ROOT / "run_finetune.py", *flags(output_dir, entry, options)], stdout=sys.stderr)
    try:
        rows = {row["xla"]: row for row in json.loads((output_dir / "benchmark.json").read_text())["rows"]}
    except (OSError, ValueError):
        rows = {}
    missing = {"status": "failed", "reason": f"exit status {status} of run_finetune.py"}
    return [rows.get(on, missing | {"xla": on}) for on in xla]


def auto(args: argparse.Namespace, directory: pathlib.Path, entry: dict) -> dict:
    """The micro-batch that `--gradient_accumulation_steps=auto` chooses, in an ordinary run of a few updates."""
    output_dir = directory / f"{name_of(entry)}-auto"
    options = {"gradient_accumulation_steps": "auto", "max_steps": entry["steps"], "save_steps": 0}
    options |= {"overwrite_output_dir": True, "mixed_precision": entry["precision"] != "float32"}
    options |= {"mixed_precision_dtype": entry["precision"]} if options["mixed_precision"] else {}
    status = run([sys.executable, ROOT / "run_finetune.py", *flags(output_dir, entry, options)], stdout=sys.stderr)
    for file in output_dir.glob("*.safetensors"):
        file.unlink()
    if status:
        return {"failed": f"exit status {status} of run_finetune.py"}
    steps = json.loads((output_dir / "run_config.json").read_text())["training"]["gradient_accumulation_steps"]
    results = json.loads((output_dir / "all_results.json").read_text())
    speed = round(results["train_samples_per_second"], 1)
    return {"micro_batch_size": entry["batch_size"] // steps, "examples_per_second": speed}


def flags(output_dir: pathlib.Path, entry: dict, options: dict) -> list[str]:
    """The flags for each run of the command here."""
    files = output_dir.parent
    shared = {"model": f"scratch/{entry['model']}", "vocab_file": files / "vocab.txt", "output_dir": output_dir}
    shared |= {"train_file": files / "train.tsv", "batching": "padded", "max_seq_length": entry["seq_length"]}
    shared |= {"global_batch_size": entry["batch_size"], "device": entry["device"]}
    return [f"--{name}={value}" for name, value in (shared | options).items()]


def peer(args: argparse.Namespace, directory: pathlib.Path, entry: dict) -> dict:
    """PyTorch's figures, measured in another process; `failed` says why figures are missing."""
    layers, hidden, heads, _ = SCRATCH_LAYOUTS[entry["model"]]
    options = {"hidden": hidden, "layers": layers, "heads": heads, "vocab": VOCABULARY, "dtype": entry["precision"]}
    options |= {name: entry[name] for name in ("seq_length", "batch_size", "steps")}
    options |= {"device": "cuda" if entry["device"] == "gpu" else "cpu"}
    command = [args.torch_python, ROOT / "benchmarks" / "peers" / "torch_step.py"]
    command += [f"--{name}={value}" for name, value in options.items()]
    # TensorFlow's packages and libraries may be on these paths, and would take the place of PyTorch's.
    drop = ("PYTHONPATH", "LD_LIBRARY_PATH", "XLA_FLAGS")
    environ = {name: value for name, value in os.environ.items() if name not in drop and not name.startswith("TF_")}
    out, err = (directory / f"{name_of(entry)}-torch.{end}" for end in ("out", "err"))
    failure = ""
    with out.open("w") as out_file, err.open("w") as err_file:
        try:
            status = run(command, args.torch_timeout, stdout=out_file, stderr=err_file, env=environ)
            if status:
                failure = f"exit status {status}: {last_line(err.read_text())}"
        except subprocess.TimeoutExpired:
            failure = f"not done after {args.torch_timeout:g} s"
        except OSError as error:
            failure = str(error)
    # It prints a line after each measurement: the last one holds them all.
    lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
    found = json.loads(lines[-1]) if lines else {"examples_per_second": {}}
    if not failure and not found["examples_per_second"]:
        failure = found["eager failed"]
    return found | ({"failed": failure} if failure else {})


PARTS = {"tfbert": own_rows, "torch": peer, "checkpointing": checkpointing, "auto": auto}
"""The parts of a setting, and the functions that measure them."""


def run(command: list, timeout: float | None = None, **options) -> int:
    """Runs a process; returns its exit status. It gets SIGTERM at the timeout, and when this process does."""
    with subprocess.Popen([str(word) for word in command], **options) as process:
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
    measured = document["settings"]
    torch = next((entry["torch"] for entry in measured if "torch" in entry.get("torch", {})), {})
    versions = f"TensorFlow {document['tensorflow']}, PyTorch {torch.get('torch', 'not run')}"
    lines = [
        f"GPU: {document['gpu']}, driver {document['driver']}; {document['processor']}; {versions}.\n",
        f"`{document['command']}`\n",
        "Examples/s in training, after the warm-up; peak memory in GiB.\n",
    ]
    heads = ["model", "tokens", "precision", "batch"]
    rows = [speed_cells(entry, row) for entry in measured for row in entry.get("tfbert", [])]
    more = ["XLA", "examples/s", "peak memory", "PyTorch eager", "PyTorch compiled", "ratio to the best"]
    lines += table([*heads, *more], rows)
    rows = [[*setting_cells(entry), *row_cells(row)] for entry in measured for row in entry.get("checkpointing", [])]
    lines += table([*heads, "examples/s with gradient checkpointing", "peak memory"], rows)
    found = [(entry, entry["auto"]) for entry in measured if "auto" in entry]
    rows = [[*setting_cells(entry), auto.get("micro_batch_size") or failure(auto)] for entry, auto in found]
    lines += table([*heads, "micro-batch that `auto` finds"], rows)
    write_text(directory / "gpu.md", "\n".join(lines))


def table(heads: list[str], rows: list[list]) -> list[str]:
    """Lines of Markdown; none without rows."""
    lines = [heads, ["---"] * len(heads), *rows] if rows else []
    return [*(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines), ""]


def setting_cells(entry: dict) -> list:
    """The cells that name a row's setting."""
    return [entry[name] for name in ("model", "seq_length", "precision", "batch_size")]


def row_cells(row: dict) -> list[str]:
    """Speed and memory of a row of `--mode=benchmark`."""
    if row["status"] != "done":
        return [f"failed: {row['reason']}", ""]
    return [f"{row['examples_per_second']:.1f}", f"{row['peak_memory_bytes'] / 2**30:.2f}"]


def speed_cells(entry: dict, row: dict) -> list:
    """A row with the speeds of both sides."""
    torch = entry.get("torch", {"failed": "not measured yet"})
    speeds, own = torch.get("examples_per_second", {}), row.get("examples_per_second")
    peers = [speeds.get(way) or failure(torch, f"{way} failed") for way in ("eager", "compiled")]
    ratio = f"{own / max(speeds.values()):.2f}" if own and speeds else ""
    return [*setting_cells(entry), "on" if row["xla"] else "off", *row_cells(row), *peers, ratio]


def failure(found: dict, name: str = "failed") -> str:
    """Why a figure is missing."""
    return f"failed: {found.get(name) or found['failed']}"


if __name__ == "__main__":
    main()
