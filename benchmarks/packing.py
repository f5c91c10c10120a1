"""How full batches are under `--batching=packed`, and under the other two: counted from plans, without training.

    python benchmarks/packing.py --vocab_file=vocab.txt --train_file=train.tsv --parts=1,2,4

For each number of micro-batches that a global batch is split into, the shape that all packed micro-batches have and the
share of its positions that hold a token. Beside it, what a static shape would have to hold if batches were drawn at
random. All epochs of the run are planned.
"""

import argparse
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from results_page import beginning, default_output, table  # noqa: E402

from tfbert.batches.plan import balanced_batches  # noqa: E402
from tfbert.batches.schedule import plan_run, training_batches  # noqa: E402
from tfbert.config.data import DataConfig  # noqa: E402
from tfbert.config.modes import ModelConfig  # noqa: E402
from tfbert.config.run import Config  # noqa: E402
from tfbert.config.training import TrainingConfig  # noqa: E402
from tfbert.model.files import load_tokenizer, resolve_model  # noqa: E402
from tfbert.tasks.tables import load_data  # noqa: E402


def main() -> None:
    """Plans the runs, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--max_train_examples", type=int, default=0)
    parser.add_argument("--global_batch_size", type=int, default=32)
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--parts", default="1,2,4", help="replicas x micro-batches, separated by commas")
    parser.add_argument("--output", default="", help="file for the results; default: a new file in benchmarks/results/")
    args = parser.parse_args()
    output = pathlib.Path(args.output or default_output(f"packing-{pathlib.Path(args.train_file).parent.name}"))
    if output.exists():
        sys.exit(f"{output} exists: pass another --output, or move it away.")
    lengths = lengths_of(args)
    text = "\n\n".join([*beginning("Packing", "packing.py", args), *about(args, lengths), shares(args, lengths)]) + "\n"
    output.write_text(text, encoding="utf-8")
    print(f"{text}\nsaved to {output}")


def config_of(args: argparse.Namespace, batching: str, parts: int = 1) -> Config:
    """The run that is planned."""
    return Config(
        model=ModelConfig(model_name_or_path="scratch/tiny", vocab_file=args.vocab_file),
        data=DataConfig(
            train_file=args.train_file,
            validation_file=args.train_file,
            max_seq_length=args.max_seq_length,
            max_train_examples=args.max_train_examples,
            batching=batching,
        ),
        training=TrainingConfig(
            global_batch_size=args.global_batch_size,
            num_train_epochs=args.num_train_epochs,
            gradient_accumulation_steps=parts,
        ),
    ).resolved()


def lengths_of(args: argparse.Namespace) -> np.ndarray:
    """Tokens of each training example, `[CLS]` and `[SEP]` included."""
    config = config_of(args, "packed")
    data = load_data(config.data, config.task_options)
    tokenizer = load_tokenizer(config.model, resolve_model(config.model), training_texts=())
    return data.task.encode(data.train, tokenizer, args.max_seq_length, config.training).lengths


def about(args: argparse.Namespace, lengths: np.ndarray) -> list[str]:
    """The lengths, and the tokens of batches that are drawn at random and of those that are dealt."""
    size, drawn, dealt = args.global_batch_size, [], []
    whole = len(lengths) // size
    for epoch in range(args.num_train_epochs):
        order = np.random.default_rng([0, epoch]).permutation(len(lengths))[: whole * size]
        drawn.append(lengths[order].reshape(whole, size).sum(axis=1))
        rows = balanced_batches(lengths, global_batch_size=size, seed=42, epoch=epoch)[:whole]
        dealt.append(lengths[rows].sum(axis=1))
    drawn, dealt = np.concatenate(drawn), np.concatenate(dealt)
    full = (lengths == args.max_seq_length).mean()
    return [
        f"{len(lengths):,} examples: median {np.median(lengths):.0f} tokens, {full:.1%} of them fill all "
        f"{args.max_seq_length}. Tokens of a global batch, whole batches of {args.num_train_epochs} epochs: drawn at "
        f"random {drawn.mean():.0f} on average and {drawn.max()} in the largest; dealt by length {dealt.min()} to "
        f"{dealt.max()}."
    ]


def shares(args: argparse.Namespace, lengths: np.ndarray) -> str:
    """The table of shapes and shares."""
    lines = []
    for batching in ("packed", "length_grouped", "padded"):
        for parts in map(int, args.parts.split(",")) if batching == "packed" else [1]:
            config = config_of(args, batching, parts)
            found = training_batches(config, lengths, plan_run(config, len(lengths)), num_replicas=1)
            examples = str(args.global_batch_size // parts) if batching == "packed" else "any number"
            shape = found.shape
            rows = f"{shape.num_rows} x {shape.width}" if shape else ""
            lines.append([batching, examples, rows, found.description.rpartition(": ")[2]])
    return table(["batching", "examples of a micro-batch", "its rows x tokens", "positions with a token"], lines)


if __name__ == "__main__":
    main()
