"""Each task of fine-tuning: whole runs of this trainer and its PyTorch peer in turns, scores and speeds.

    python benchmarks/tasks_in_turns.py --task=classification --model=DIR --train_file=train.tsv \\
        --validation_file=dev.tsv --torch_python=peer/bin/python
    python benchmarks/tasks_in_turns.py --task=token_classification --model=DIR --train_file=train.txt \\
        --validation_file=dev.txt --test_file=test.txt --torch_python=peer/bin/python
    python benchmarks/tasks_in_turns.py --task=question_answering --model=DIR --train_file=train.json \\
        --validation_file=dev.json --seeds=42 --torch_python=peer/bin/python
    python benchmarks/tasks_in_turns.py --task=multi_label_classification --model=DIR --train_file=train.tsv \\
        --validation_file=dev.tsv --test_file=test.tsv --label_names=labels.txt --torch_python=peer/bin/python
    python benchmarks/tasks_in_turns.py --task=multiple_choice --model=DIR --train_file=train.json.gz \\
        --validation_file=dev.json.gz --test_file=test.json.gz --torch_python=peer/bin/python

The peer is `peers/TASK.py`: Hugging Face's Trainer at the same settings. Every seed is a turn; the side that comes
first alternates. A side trains, is evaluated with its final weights, and predicts `--predict_examples` examples once
for each of `--batch_sizes`: each in its own process, on the CPU. The peer predicts in two ways: by Trainer.predict, as
transformers' own scripts do, and by a bare loop over rows sorted by length, which its users would have to write. After
every turn, the results so far are written to a file in benchmarks/results/; at the end, everything is printed as JSON.

With --runs=DIR each side's run of each seed is a file in DIR, `SIDE-SEED.json`, and what is there is not run again: a
measurement can be interrupted, or made in parts by `--sides` and `--seeds`; the results are written of the seeds that
both sides have run.
"""

import argparse
import datetime
import itertools
import json
import pathlib
import re
import sys
import tempfile
import time

from machine import done, machine
from turns_report import turns_report

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tfbert.config.data import DataConfig  # noqa: E402
from tfbert.data.files import read_file  # noqa: E402
from tfbert.data.rows import file_format, open_rows  # noqa: E402
from tfbert.report.run_files import environment  # noqa: E402
from tfbert.tasks.multiple_choice import read_choices  # noqa: E402
from tfbert.tasks.question_answering.squad import read_questions  # noqa: E402
from tfbert.tasks.token_classification.tagged import read_sentences  # noqa: E402

_EPOCHS = {
    "classification": 3.0,
    "multi_label_classification": 3.0,
    "token_classification": 3.0,
    "question_answering": 2.0,
    "multiple_choice": 3.0,
}
_LENGTHS = {
    "classification": 128,
    "multi_label_classification": 64,
    "token_classification": 128,
    "question_answering": 256,
    "multiple_choice": 256,
}


def main() -> None:
    """Runs the turns of both sides, and reports their ratios."""
    args = arguments()
    output = pathlib.Path(args.output or ROOT / "benchmarks" / "results" / f"{datetime.date.today()}-{args.task}.md")
    if output.exists():
        sys.exit(f"{output} exists: pass another --output, or move it away.")
    about = {"machine": machine(), "settings": settings(args)}
    turns = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        write_examples(args, scratch / "in.jsonl")
        for number, seed in enumerate(map(int, args.seeds.split(","))):
            order = args.sides.split(",")[:: -1 if number % 2 else 1]
            runs = {name: run_of(name, args, scratch, seed) for name in order}
            print(f"seed {seed} is done", file=sys.stderr, flush=True)
            if len(runs) < len(SIDES):
                continue
            updates = {name: run["train"]["global_step"] for name, run in runs.items()}
            assert len(set(updates.values())) == 1, f"the sides differ in their rows: {updates}"
            turns.append({"seed": seed, "first": min(runs, key=lambda name: runs[name]["started"]), **runs})
            output.write_text(turns_report(args.task, about, args.predict_examples, turns), encoding="utf-8")
    print(json.dumps(about | {"turns": turns}, indent=1))


def run_of(side: str, args: argparse.Namespace, scratch: pathlib.Path, seed: int) -> dict:
    """One side's run, from its file if there is one."""
    kept = pathlib.Path(args.runs) / f"{side}-{seed}.json" if args.runs else None
    if kept and kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    started = time.time()
    run = {"started": started, "settings": settings(args)} | SIDES[side](args, scratch / f"{side}-{seed}", seed)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    return run


def arguments() -> argparse.Namespace:
    """The command's arguments, with defaults that depend on the task filled in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True, choices=list(_EPOCHS))
    for name in ("model", "train_file", "validation_file", "torch_python"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--test_file", default="")
    parser.add_argument("--label_names", default="", help="a file; for several labels a text")
    parser.add_argument("--seeds", default="42,43,44")
    parser.add_argument("--sides", default="pytorch,tfbert", help="one of them runs it without the other")
    parser.add_argument("--runs", default="", help="a directory that keeps each run; what is there is not run again")
    parser.add_argument("--num_train_epochs", type=float, default=None, help="default: 2 for answers, else 3")
    parser.add_argument("--max_seq_length", type=int, default=None, help="default: by task, 64 to 256")
    parser.add_argument("--global_batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--max_train_examples", type=int, default=0)
    parser.add_argument("--max_eval_examples", type=int, default=0)
    parser.add_argument("--version_2_with_negative", action="store_true", help="some questions have no answer")
    parser.add_argument("--mixed_precision", action="store_true", help="both sides train in bfloat16")
    parser.add_argument("--predict_examples", type=int, default=2000, help="those of the last file, repeated")
    parser.add_argument("--batch_sizes", default="8,32", help="of prediction, tried on both sides; empty: none")
    parser.add_argument("--output", default="", help="file for the results; default: a new file in benchmarks/results/")
    args = parser.parse_args()
    args.num_train_epochs = args.num_train_epochs or _EPOCHS[args.task]
    args.max_seq_length = args.max_seq_length or _LENGTHS[args.task]
    if unknown := set(args.sides.split(",")) - set(SIDES):
        parser.error(f"--sides are pytorch and tfbert. Received: {', '.join(sorted(unknown))}.")
    return args


_OF_NO_RESULT = {"output", "runs", "sides"}
"""Options that say where results go, or which are made now."""


def settings(args: argparse.Namespace) -> list[str]:
    """The command's options as the results show them; of paths, only the names."""
    shown = vars(args).keys() - _OF_NO_RESULT
    values = {name: value for name, value in vars(args).items() if name in shown and value not in ("", 0, False)}
    values["torch_python"] = "peer/bin/python"
    for name in ("model", "train_file", "validation_file", "test_file", "label_names"):
        if name in values:
            values[name] = pathlib.Path(values[name]).name
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in values.items()]


def write_examples(args: argparse.Namespace, path: pathlib.Path) -> None:
    """Writes the examples that both sides predict, as JSON lines: those of the last file, as often as needed."""
    source = args.test_file or args.validation_file
    if args.task == "classification":
        table = read_file(source)
        texts = zip(*filter(None, [table.text, table.text_pair]), strict=True)
        rows = [dict(zip(table.text_columns, row, strict=True)) for row in texts]
    elif args.task == "multi_label_classification":
        table = open_rows(pathlib.Path(source), file_format(pathlib.Path(source)), header=False)
        rows = [{"text": text} for _, (text,) in table.read(["0"])]
    elif args.task == "token_classification":
        rows = [{"tokens": words} for words in read_sentences(source).words]
    elif args.task == "multiple_choice":
        asked = read_choices(source, DataConfig()).asked
        rows = [{"context": one.context, "question": one.question, "choices": one.choices} for one in asked]
    else:
        table = read_questions(source, version_2_with_negative=args.version_2_with_negative)
        rows = [{"question": asked, "context": table.context(i)} for i, asked in enumerate(table.questions)]
    rows = itertools.islice(itertools.cycle(rows), args.predict_examples)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def flags(args: argparse.Namespace, *names: str) -> list[str]:
    """Options that have the same name on both sides, without those that are not set."""
    values = {name: getattr(args, name) for name in names}
    return [f"--{name}={value}" for name, value in values.items() if value not in ("", 0, False)]


_TRAIN = ("train_file", "num_train_epochs", "max_seq_length", "global_batch_size", "learning_rate")
_EVALUATE = ("validation_file", "test_file", "max_eval_examples")


def peer(args: argparse.Namespace, directory: pathlib.Path, seed: int) -> dict:
    """The peer's turn."""
    script = [args.torch_python, ROOT / "benchmarks" / "peers" / f"{args.task}.py"]
    both = flags(args, "max_seq_length", "label_names") + ["--version_2_with_negative"] * args.version_2_with_negative

    def job(name: str, *options: str) -> dict:
        started = time.perf_counter()
        out, _, used = done(*script, name, *both, *options)
        whole = {"process_seconds": round(time.perf_counter() - started, 1)}
        return json.loads(out.splitlines()[-1]) | used | whole

    train = flags(args, *_TRAIN, "max_train_examples") + ["--bf16"] * args.mixed_precision
    found = {"train": job("train", f"--model={args.model}", f"--output_dir={directory}", f"--seed={seed}", *train)}
    found["scores"] = job("evaluate", f"--model={directory}", *flags(args, *_EVALUATE))
    files = [f"--model={directory}", f"--input_file={directory.parent}/in.jsonl"]
    for name, way in {"predict": [], "trainer_predict": ["--trainer"]}.items():
        found[name] = [
            {"batch_size": size} | job("predict", f"--batch_size={size}", *files, *way) for size in batch_sizes(args)
        ]
    return found


def own(args: argparse.Namespace, directory: pathlib.Path, seed: int) -> dict:
    """Our turn, as the command reports it."""
    command = [sys.executable, ROOT / "run_finetune.py", "--device=cpu"]
    version_2, form = ["--version_2_with_negative"] * args.version_2_with_negative, []
    if args.task == "multi_label_classification":  # GoEmotions' own form.
        form = ["--noheader", "--text_column=0", "--label_column=1", *flags(args, "label_names")]

    def job(*options: object) -> tuple[str, dict]:
        started = time.perf_counter()
        _, lines, used = done(*command, *options)
        return lines, used | {"process_seconds": round(time.perf_counter() - started, 1)}

    train = flags(args, *_TRAIN, "max_train_examples", "mixed_precision") + version_2 + form
    train += [f"--model={args.model}", f"--output_dir={directory}", f"--seed={seed}", "--save_steps=0"]
    _, used = job(f"--task={args.task}", *train)
    results = json.loads((directory / "all_results.json").read_text())
    found = {
        "train": {
            "global_step": results["global_step"],
            "seconds": results["train_runtime"],
            "rows_per_second": results["train_samples_per_second"],
            "rows_per_second_steady": results.get("train_examples_per_second_steady"),
            "compile_seconds": results.get("compile_seconds"),
            "data_wait_share": results.get("data_wait_share"),
        }
        | used
        | environment()["versions"]
    }
    evaluated = directory / "evaluated"
    evaluate = [*flags(args, *_EVALUATE), *form]
    _, used = job("--mode=evaluate", f"--model={directory}", f"--output_dir={evaluated}", *evaluate)
    found["scores"] = json.loads((evaluated / "eval_results.json").read_text()) | used
    found["predict"] = []
    for size in batch_sizes(args):
        files = [f"--input_file={directory.parent}/in.jsonl", f"--output_file={directory}/out-{size}.jsonl"]
        lines, used = job("--mode=predict", f"--model={directory}", f"--per_device_eval_batch_size={size}", *files)
        found["predict"].append({"batch_size": size, "examples_per_second": speed_said(lines)} | used)
    return found


SIDES = {"pytorch": peer, "tfbert": own}


def batch_sizes(args: argparse.Namespace) -> list[int]:
    """Those to predict with."""
    return [int(size) for size in args.batch_sizes.split(",") if size]


def speed_said(lines: str) -> float:
    """Examples per second from what `--mode=predict` logs: whole seconds, and examples per second in two digits
    or whole numbers. The larger of these two numbers is the more precise one."""
    ((count, clock, speed),) = re.findall(r"predicted ([\d,]+) examples in ([\d:]+), ([\d,.]+) a second", lines)
    seconds = sum(int(part) * 60**place for place, part in enumerate(reversed(clock.split(":"))))
    count, speed = (float(text.replace(",", "")) for text in (count, speed))
    return round(count / seconds, 1) if seconds > speed else float(speed)


if __name__ == "__main__":
    main()
