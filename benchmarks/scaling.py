"""Predicts speed, time and cost of training BERT on 1 to 256 GPUs, from the speed that one GPU was measured to have.

    python benchmarks/scaling.py --size=large --examples_per_second=486 --global_batch_size=65536 --examples=461e6

Prints a table: the time of an update's arithmetic and of its all-reduce, and what follows. `docs/scaling.md` says how
it is computed and what is assumed; the tables there are made by the commands above them.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from results_page import table  # noqa: E402

from tfbert.measure.scaling import GRADIENT_BYTES, Network, all_reduce_seconds  # noqa: E402

LAYOUTS = {"base": (12, 768), "large": (24, 1024)}
"""Layers and hidden size."""
VOCABULARY, POSITIONS = 30522, 512


def main(argv: list[str] | None = None) -> str:
    """Prints the table, and returns it."""
    args = arguments(argv)
    num_bytes = GRADIENT_BYTES * num_parameters(*LAYOUTS[args.size])
    network = Network(devices_per_node=args.gpus_per_machine, inside=args.inside * 1e9, between=args.between * 1e9)
    lines = []
    for gpus in map(int, args.gpus.split(",")):
        batch = args.global_batch_size or gpus * args.examples_per_gpu
        if batch % gpus:
            sys.exit(
                f"A batch must divide among the GPUs. Received: {args.global_batch_size} for {gpus}. Pass another "
                "--global_batch_size, or other --gpus."
            )
        arithmetic = batch / gpus / args.examples_per_second
        reducing = all_reduce_seconds(num_bytes, gpus, network)
        seconds = arithmetic + reducing
        hours = args.examples / batch * seconds / 3600
        lines.append(
            [
                f"{gpus}",
                f"{batch:,}",
                f"{1000 * arithmetic:,.1f}",
                f"{1000 * reducing:,.1f}",
                f"{batch / seconds:,.0f}",
                f"{arithmetic / seconds:.1%}",
                *([f"{hours:,.2f}"] if args.examples else []),
                *([f"{hours * gpus * args.price:,.2f}"] if args.examples and args.price else []),
            ]
        )
    head = ["GPUs", "batch", "arithmetic, ms", "all-reduce, ms", "examples/s", "efficiency"]
    head += ["hours"] * bool(args.examples) + ["cost"] * bool(args.examples and args.price)
    text = table(head, lines)
    print(text)
    return text


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=LAYOUTS, default="base")
    parser.add_argument(
        "--examples_per_second", type=float, required=True, help="of one GPU, as --mode=benchmark or anybody measured"
    )
    parser.add_argument("--examples_per_gpu", type=int, default=32, help="of an update; the batch grows with the GPUs")
    parser.add_argument("--global_batch_size", type=int, default=0, help="a batch that does not grow with the GPUs")
    parser.add_argument("--examples", type=float, default=0, help="of the whole run: adds its hours")
    parser.add_argument("--price", type=float, default=0, help="of a GPU for an hour: adds the cost of the whole run")
    parser.add_argument("--gpus", default="1,2,4,8,16,32,64,128,256")
    parser.add_argument("--gpus_per_machine", type=int, default=8)
    parser.add_argument("--inside", type=float, default=230, help="GB/s that a GPU sends to another of its machine")
    parser.add_argument("--between", type=float, default=11, help="GB/s that a machine sends to another")
    args = parser.parse_args(argv)
    for name in ("examples_per_second", "examples_per_gpu", "gpus_per_machine", "inside", "between"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name} must be above 0. Received: {getattr(args, name)}.")
    return args


def num_parameters(layers: int, hidden: int) -> int:
    """Numbers of BERT's encoder and pooler, with an MLP of four times the hidden size."""
    embeddings = (VOCABULARY + POSITIONS + 2) * hidden + 2 * hidden
    attention = 4 * (hidden * hidden + hidden) + 2 * hidden
    mlp = 2 * hidden * 4 * hidden + 4 * hidden + hidden + 2 * hidden
    return embeddings + layers * (attention + mlp) + hidden * hidden + hidden


if __name__ == "__main__":
    main()
