"""Does pre-training help? The same small BERT fine-tuned on few labels: pre-trained first, and from scratch.

    python benchmarks/pretraining_helps.py --corpus=train.jsonl.gz --validation_corpus=test.jsonl.gz \\
        --data=imdb=train.jsonl.gz,test.jsonl.gz --data=sst2=train.tsv,dev.tsv --work_dir=runs/helps

The model is pre-trained on the corpus' texts alone, with a vocabulary learned from them. Then it is fine-tuned, for
each data set, number of labels and seed, in arms that differ only in what is named:

- `pretrained`: the pre-trained weights;
- `scratch`: random weights of the same size and vocabulary;
- `scratch, 10 times`: with ten times the updates;
- `..., own rate`: with the higher learning rate that suits random weights, and small models. Each arm is compared with
  the pre-trained weights at the same rate.

Every row is a run of `run_finetune.py`, evaluated once, at its end, so nothing is chosen by the scores that are shown.
The labelled examples are the same for all seeds and arms. The baselines of pre-training are computed from the words
that the evaluation masks: the share of the most frequent word, and the entropy of their frequencies, which is the
smallest loss of any guess that ignores the context.

A file in benchmarks/results/ is written after every part and row, with its minutes. Finished parts are kept in
`--work_dir` and not made again, so the same command continues where it was stopped. It may then name more data sets,
arms, labels and seeds, and other settings of fine-tuning while no row is made; other changes of settings are refused.
"""

import argparse
import gzip
import itertools
import json
import math
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from results_page import beginning, default_output, table  # noqa: E402

from tfbert.output.output_dir import write_json  # noqa: E402

ARMS = {
    "pretrained": {"pretrained": True, "times": 1, "own_rate": False},
    "scratch": {"pretrained": False, "times": 1, "own_rate": False},
    "scratch, 10 times": {"pretrained": False, "times": 10, "own_rate": False},
    "pretrained, own rate": {"pretrained": True, "times": 1, "own_rate": True},
    "scratch, own rate": {"pretrained": False, "times": 1, "own_rate": True},
    "scratch, 10 times, own rate": {"pretrained": False, "times": 10, "own_rate": True},
}
_MAY_GROW = ("arms", "labels", "seeds", "work_dir", "output", "data")
_OF_ROWS = ("fine_tuning_epochs", "fine_tuning_batch_size", "learning_rate", "dropout", "own_rate", "max_eval_examples")
_SECONDS_BETWEEN_NOTES = 20.0


def main() -> None:
    """Pre-trains, then makes all rows that are missing."""
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that running children are stopped as well.
    state = State(args)
    pretrain(args, state)
    datasets = {name: files.split(",") for name, _, files in (given.partition("=") for given in args.data)}
    combinations = itertools.product(args.seeds.split(","), datasets, args.labels.split(","), args.arms.split(";"))
    for seed, name, labels, arm in combinations:  # Everything with one seed before the next seed.
        key = f"{name}; {labels}; {seed}; {arm}"
        if key not in state.rows:
            state.add_row(key, fine_tune(args, state, arm, *datasets[name], int(labels), int(seed)))
    print(f"see {state.output}", file=sys.stderr)


def arguments() -> argparse.Namespace:
    """The command's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="JSON lines, one text per line; may be .gz")
    parser.add_argument("--validation_corpus", required=True, help="as for --corpus")
    parser.add_argument(
        "--data", default=[], action="append", help="NAME=TRAIN_FILE,VALIDATION_FILE; may be repeated; none: pre-train"
    )
    parser.add_argument("--work_dir", required=True, help="directory for records, weights and finished parts")
    parser.add_argument("--max_documents", type=int, default=0, help="documents of the corpus; 0: all")
    parser.add_argument("--max_validation_documents", type=int, default=1000)
    parser.add_argument("--learn_vocab", type=int, default=8192)
    parser.add_argument("--model", default="scratch/mini")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--mixed_precision", action="store_true", help="in pre-training and fine-tuning")
    parser.add_argument("--pretraining_epochs", type=float, default=10)
    parser.add_argument("--pretraining_batch_size", type=int, default=64)
    parser.add_argument("--pretraining_learning_rate", type=float, default=5e-4)
    parser.add_argument("--pretraining_dropout", type=float, default=0.0)
    parser.add_argument("--no_next_sentence", action="store_true", help="masked words alone, a record of one text each")
    parser.add_argument("--masked_lm_prob", type=float, default=0.15)
    parser.add_argument("--fine_tuning_epochs", type=float, default=4)
    parser.add_argument("--fine_tuning_batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=1e-4, help="in fine-tuning")
    parser.add_argument("--dropout", type=float, default=0.1, help="in fine-tuning")
    parser.add_argument("--own_rate", type=float, default=5e-4, help="learning rate of the arms named `own rate`")
    parser.add_argument("--max_eval_examples", type=int, default=5000)
    parser.add_argument("--labels", default="1000,4000")
    parser.add_argument("--seeds", default="42,43,44")
    parser.add_argument("--arms", default=";".join(ARMS), help="separated by semicolons")
    parser.add_argument("--output", default="", help="file for the results; default: a new file in benchmarks/results/")
    args = parser.parse_args()
    if unknown := set(args.arms.split(";")) - ARMS.keys():
        parser.error(f"no such arms: {', '.join(sorted(unknown))}")
    return args


class State:
    """The finished parts, in a file that is written after each part, and the page that is made from it.

    Attributes:
        directory: For the files of the parts.
        output: The page.
        parts: By name, the minutes and the results.
        rows: Rows of fine-tuning, by data set, labels, seed and arm.
    """

    def __init__(self, args: argparse.Namespace):
        self._args = args
        self.directory = pathlib.Path(args.work_dir).absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._file = self.directory / "state.json"
        settings = {name: value for name, value in vars(args).items() if name not in _MAY_GROW}
        found = json.loads(self._file.read_text()) if self._file.exists() else {}
        if found and found["settings"] != settings:
            differing = [name for name, value in settings.items() if found["settings"].get(name) != value]
            if found["rows"] or not set(differing) <= set(_OF_ROWS):
                sys.exit(f"{self._file} is of other settings ({', '.join(differing)}): pass another --work_dir.")
        # A run that takes days writes one page only.
        self.output = pathlib.Path(args.output or found.get("output") or default_output("pretraining-helps"))
        if not found and self.output.exists():
            sys.exit(f"{self.output} exists: pass another --output, or move it away.")
        self._settings = settings
        self.parts, self.rows = found.get("parts", {}), found.get("rows", {})

    def add_row(self, key: str, row: dict) -> None:
        """Adds a row, and writes both files."""
        self.rows[key] = row
        print(f"{time.strftime('%H:%M:%S')} {key}: {row}", file=sys.stderr, flush=True)
        self.write()

    def write(self) -> None:
        """Writes both files."""
        values = {"settings": self._settings, "output": str(self.output), "parts": self.parts, "rows": self.rows}
        write_json(self._file, values)
        self.output.write_text(page(self._args, self.parts, self.rows), encoding="utf-8")

    def run(self, name: str, *words: object) -> None:
        """Runs a command that continues by itself where it was stopped; adds up its minutes over all starts."""
        part = self.parts.setdefault(name, {"minutes": 0.0})
        before, start, noted = part["minutes"], time.monotonic(), time.monotonic()
        log = self.directory / f"{name}.log"
        with log.open("a") as file:
            process = subprocess.Popen([str(word) for word in words], stdout=file, stderr=subprocess.STDOUT)
            try:
                while process.poll() is None:
                    time.sleep(0.5)
                    part["minutes"] = round(before + (time.monotonic() - start) / 60, 2)
                    if time.monotonic() - noted > _SECONDS_BETWEEN_NOTES:
                        noted = time.monotonic()
                        self.write()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if process.returncode:
            self.write()
            sys.exit(f"{name} ended with {process.returncode}, see {log}:\n{log.read_text()[-2000:]}")


def pretrain(args: argparse.Namespace, state: State) -> None:
    """Makes records, weights and baselines, each unless it exists."""
    command, directory = [sys.executable, ROOT / "run_pretraining.py"], state.directory
    names = {
        "train": (args.corpus, args.max_documents),
        "validation": (args.validation_corpus, args.max_validation_documents),
    }
    for name, (corpus, limit) in names.items():
        if "totals" in state.parts.get(f"prepare-{name}", {}):
            continue
        texts, records = directory / f"{name}.jsonl", directory / f"records-{name}"
        write_texts(pathlib.Path(corpus), texts, limit)
        vocab = f"--learn_vocab={args.learn_vocab}" if name == "train" else f"--vocab_file={vocab_file(state)}"
        options = [f"--input_files={texts}", vocab, f"--max_seq_length={args.max_seq_length}"]
        options += ["--norandom_next_sentence"] * args.no_next_sentence
        state.run(f"prepare-{name}", *command, "--mode=prepare", *options, f"--output_dir={records}")
        manifest = json.loads((records / "manifest.json").read_text())
        state.parts[f"prepare-{name}"]["totals"] = manifest["totals"]
        state.write()
    if "results" not in state.parts.get("pretrain", {}):
        options = [f"--{name}_records={directory / f'records-{name}'}" for name in names]
        options += [f"--model={args.model}", f"--num_train_epochs={args.pretraining_epochs}"]
        options += [f"--global_batch_size={args.pretraining_batch_size}", "--logging_steps=100"]
        options += [f"--learning_rate={args.pretraining_learning_rate}", f"--output_dir={directory / 'pretrained'}"]
        options += [f"--dropout={args.pretraining_dropout}", *["--nonext_sentence"] * args.no_next_sentence]
        options += [f"--masked_lm_prob={args.masked_lm_prob}"]
        state.run("pretrain", *command, *options, *["--mixed_precision"] * args.mixed_precision)
        results = json.loads((directory / "pretrained" / "all_results.json").read_text())
        state.parts["pretrain"]["results"] = results
        state.write()
    if "baselines" not in state.parts:
        state.parts["baselines"] = baselines(directory / "records-validation", args)
        state.write()


def vocab_file(state: State) -> pathlib.Path:
    """The vocabulary of all models."""
    return state.directory / "records-train" / "vocab.txt"


def write_texts(corpus: pathlib.Path, output: pathlib.Path, limit: int) -> None:
    """Writes only the texts, without labels; with a limit, evenly spaced ones, as a corpus may be sorted by class."""
    with gzip.open(corpus, "rt") if corpus.suffix == ".gz" else corpus.open() as file:
        lines = [line for line in file if line.strip()]
    count = min(limit or len(lines), len(lines))
    kept = (lines[number * len(lines) // count] for number in range(count))
    partial = output.with_suffix(".part")
    partial.write_text("".join(json.dumps({"text": json.loads(line)["text"]}) + "\n" for line in kept))
    if not output.exists() or output.read_bytes() != partial.read_bytes():
        partial.replace(output)
    partial.unlink(missing_ok=True)


def baselines(records: pathlib.Path, args: argparse.Namespace) -> dict[str, float]:
    """The best results without any context, for the words that the evaluation of these records masks."""
    import numpy as np

    from tfbert.config.tasks import PretrainingConfig
    from tfbert.corpus.records import open_records
    from tfbert.tasks.pretraining import Pretraining
    from tfbert.tokens.tokenizer import BertTokenizer
    from tfbert.tokens.vocabulary import read_vocab_file

    tokenizer = BertTokenizer(read_vocab_file(records / "vocab.txt"))
    task = Pretraining(options=PretrainingConfig(masked_lm_prob=args.masked_lm_prob))
    encoded = task.encode(open_records([str(records)]), tokenizer, args.max_seq_length)
    counts = sum(np.bincount(c.labels[c.weights > 0], minlength=tokenizer.vocab_size) for c in encoded.chunks())
    shares = counts[counts > 0] / counts.sum()
    found = {
        "masked words": int(counts.sum()),
        "word": tokenizer.vocab[int(counts.argmax())],
        "share": float(shares.max()),
        "entropy": float(-(shares * np.log(shares)).sum()),
    }
    if not args.no_next_sentence:
        found["pairs random"] = float(np.concatenate([c.next_sentence for c in encoded.chunks()]).mean())
    return found


def fine_tune(args, state: State, arm: str, train_file: str, validation_file: str, labels: int, seed: int) -> dict:
    """Makes one row."""
    how, directory = ARMS[arm], state.directory / "row"
    shutil.rmtree(directory, ignore_errors=True)
    words = [sys.executable, ROOT / "run_finetune.py", f"--output_dir={directory}", f"--seed={seed}"]
    words += [f"--train_file={train_file}", f"--validation_file={validation_file}", "--save_steps=0"]
    words += [f"--max_train_examples={labels}", f"--max_eval_examples={args.max_eval_examples}"]
    words += [f"--max_seq_length={args.max_seq_length}", f"--global_batch_size={args.fine_tuning_batch_size}"]
    words += [f"--num_train_epochs={args.fine_tuning_epochs * how['times']}", "--logging_steps=100"]
    words += [f"--learning_rate={args.own_rate if how['own_rate'] else args.learning_rate}", "--eval_steps=1000000000"]
    words += [f"--dropout={args.dropout}", *["--mixed_precision"] * args.mixed_precision]
    if how["pretrained"]:
        words += [f"--model={state.directory / 'pretrained'}"]
    else:
        words += [f"--model={args.model}", f"--vocab_file={vocab_file(state)}"]
    start = time.monotonic()
    state.parts.pop("row", None)
    state.run("row", *words)
    state.parts.pop("row")
    results = json.loads((directory / "all_results.json").read_text())
    shutil.rmtree(directory)
    (state.directory / "row.log").unlink()
    return {
        "accuracy": results["eval_accuracy"],
        "updates": results["global_step"],
        "minutes": round((time.monotonic() - start) / 60, 2),
    }


def page(args: argparse.Namespace, parts: dict, rows: dict) -> str:
    """The results so far."""
    minutes = [[name, f"{part['minutes']:.1f}"] for name, part in parts.items() if "minutes" in part and name != "row"]
    minutes.append([f"fine-tuning, {len(rows)} rows", f"{sum(row['minutes'] for row in rows.values()):.1f}"])
    out = [*beginning("Does pre-training help?", "pretraining_helps.py", args), "## Minutes", table(["", ""], minutes)]
    if "baselines" in parts:
        out += ["## Pre-training", *_pretraining(args, parts)]
    if rows:
        out += ["## Fine-tuning", *_fine_tuning(rows)]
    return "\n\n".join(out) + "\n"


def _pretraining(args: argparse.Namespace, parts: dict) -> list[str]:
    found, known, totals = parts["pretrain"]["results"], parts["baselines"], parts["prepare-train"]["totals"]
    lines = [
        ["masked accuracy", f"{found['eval_masked_accuracy']:.4f}", f"{known['share']:.4f} (always `{known['word']}`)"],
        ["masked loss, nats", f"{math.log(found['eval_perplexity']):.3f}", f"{known['entropy']:.3f} (unigram entropy)"],
        ["perplexity", f"{found['eval_perplexity']:.1f}", f"{math.exp(known['entropy']):.1f}"],
    ]
    if "eval_next_sentence_accuracy" in found:
        score = f"{found['eval_next_sentence_accuracy']:.4f}"
        guess = max(known["pairs random"], 1 - known["pairs random"])
        lines.append(["next sentence", score, f"{guess:.4f} (always the same answer)"])
    text = (
        f"{args.model}, {totals['records']:,} records of at most {args.max_seq_length} tokens, {totals['documents']:,} "
        f"documents; {found['global_step']:,} updates of {args.pretraining_batch_size}, "
        f"{found.get('train_examples_per_second_steady', math.nan):.0f} sequences/s. Evaluated on "
        f"{parts['prepare-validation']['totals']['records']:,} records, {known['masked words']:,} masked words."
    )
    return [text, table(["", "model", "without context"], lines)]


def _fine_tuning(rows: dict) -> list[str]:
    by_data: dict[tuple[str, int], dict[str, dict[int, dict]]] = {}
    for key, row in rows.items():
        name, labels, seed, arm = key.split("; ")
        by_data.setdefault((name, int(labels)), {}).setdefault(arm, {})[int(seed)] = row
    lines = []
    for (name, labels), arms in sorted(by_data.items()):
        for arm in (arm for arm in ARMS if arm in arms):
            found, rival = arms[arm], "pretrained, own rate" if ARMS[arm]["own_rate"] else "pretrained"
            scores = [100 * row["accuracy"] for row in found.values()]
            spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            gains = [
                100 * (arms[rival][seed]["accuracy"] - row["accuracy"])
                for seed, row in found.items()
                if seed in arms.get(rival, {})
            ]
            gain = f"{statistics.fmean(gains):+.1f}" if gains and arm != rival else ""
            updates = "; ".join(sorted({f"{row['updates']:,}" for row in found.values()}))
            each = ", ".join(f"{seed}: {100 * row['accuracy']:.1f}" for seed, row in sorted(found.items()))
            spent = sum(row["minutes"] for row in found.values())
            lines.append([name, f"{labels:,}", arm, updates, each, f"{statistics.fmean(scores):.1f}{spread}", gain])
            lines[-1].append(f"{spent:.1f}")
    head = ["data", "labels", "arm", "updates", "accuracy by seed, %", "mean ± deviation", "pretrained is better by"]
    return [table([*head, "minutes"], lines)]


if __name__ == "__main__":
    main()
