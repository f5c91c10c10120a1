"""Predicts speed, time and cost of training BERT on 1 to 256 GPUs, from the speed that one GPU was measured to have.

    python benchmarks/scaling.py --size=large --examples_per_second=486 --global_batch_size=65536 --examples=461e6

Prints a table: the time of an update's arithmetic and of its all-reduce, and what follows. `docs/scaling.md` says how
it is computed and what is assumed; the tables there are made by the commands above them.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from results_page import table  # noqa: E402
from ring import GRADIENT_BYTES, Network, all_reduce_seconds  # noqa: E402

from tfbert.model.files import SCRATCH_LAYOUTS  # noqa: E402

VOCABULARY, POSITIONS = 30522, 512
_BATCHES = ("examples_per_gpu", "global_batch_size")


def main(argv: list[str] | None = None) -> str:
    """Prints the table, and returns it."""
    args = arguments(argv)
    num_bytes = args.gradient_bytes or GRADIENT_BYTES[args.all_reduce_dtype] * num_parameters(args.size)
    network = Network(
        devices_per_node=args.gpus_per_node, intra_node=args.intra_node * 1e9, inter_node=args.inter_node * 1e9
    )
    lines = []
    for gpus in args.gpus:
        batch = args.global_batch_size or gpus * (args.examples_per_gpu or 32)
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
                *([f"{hours * gpus * args.price:,.2f}"] if args.price else []),
            ]
        )
    head = ["GPUs", "batch", "arithmetic, ms", "all-reduce, ms", "examples/s", "efficiency"]
    head += ["hours"] * bool(args.examples) + ["cost"] * bool(args.price)
    text = table(head, lines)
    print(text)
    return text


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["base", "large"], default="base")
    parser.add_argument("--gradient_bytes", type=int, help="of another model, as devices.py says")
    parser.add_argument("--all_reduce_dtype", choices=list(GRADIENT_BYTES), default="float32")
    parser.add_argument(
        "--examples_per_second", type=float, required=True, help="of one GPU, as devices.py or anybody measured"
    )
    parser.add_argument("--examples_per_gpu", type=int, help="weak scaling: the batch grows with the GPUs (32)")
    parser.add_argument("--global_batch_size", type=int, help="strong scaling: a batch that does not grow")
    parser.add_argument("--examples", type=float, default=0, help="of the whole run: adds its hours")
    parser.add_argument("--price", type=float, default=0, help="of a GPU for an hour: adds the cost of the whole run")
    parser.add_argument("--gpus", type=_numbers, default="1,2,4,8,16,32,64,128,256")
    parser.add_argument("--gpus_per_node", type=int, default=8)
    parser.add_argument("--intra_node", type=float, default=230, help="GB/s that a GPU sends to another of its machine")
    parser.add_argument("--inter_node", type=float, default=11, help="GB/s that a machine sends to another")
    args = parser.parse_args(argv)
    for name in ("examples_per_second", "gpus_per_node", "intra_node", "inter_node", *_BATCHES):
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            parser.error(f"{name} must be above 0 and finite. Received: {name}={value}. Pass a positive number.")
    for name in ("examples", "price"):
        if not 0 <= getattr(args, name) < math.inf:
            parser.error(f"{name} must be 0 or more. Received: {name}={getattr(args, name)}. Pass a number.")
    if args.price and not args.examples:
        parser.error(f"A cost needs a number of examples. Received: price={args.price}. Add --examples.")
    if args.examples_per_gpu and args.global_batch_size:
        given = " and ".join(f"{name}={getattr(args, name)}" for name in _BATCHES)
        parser.error(f"The batch either grows with the GPUs or does not. Received: {given}. Pass one.")
    for gpus in args.gpus:
        if gpus > args.gpus_per_node and gpus % args.gpus_per_node:
            parser.error(
                f"GPUs must fill whole machines. Received: {gpus} with gpus_per_node={args.gpus_per_node}. "
                "Pass fewer than that, or multiples."
            )
        if args.global_batch_size and args.global_batch_size % gpus:
            parser.error(
                f"A batch must divide among the GPUs. Received: global_batch_size={args.global_batch_size} for {gpus} "
                "GPUs. Pass another batch, or other --gpus."
            )
    return args


def _numbers(text: str) -> list[int]:
    numbers = [int(number) for number in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"Numbers of GPUs must be 1 or more. Received: {text!r}. Pass 1,2,4 or so.")
    return numbers


def num_parameters(size: str) -> int:
    """Numbers of BERT's encoder and pooler, with an MLP of four times the hidden size."""
    layers, hidden, *_ = SCRATCH_LAYOUTS[size]
    embeddings = (VOCABULARY + POSITIONS + 2) * hidden + 2 * hidden
    attention = 4 * (hidden * hidden + hidden) + 2 * hidden
    mlp = 2 * hidden * 4 * hidden + 4 * hidden + hidden + 2 * hidden
    return embeddings + layers * (attention + mlp) + hidden * hidden + hidden


if __name__ == "__main__":
    main()
