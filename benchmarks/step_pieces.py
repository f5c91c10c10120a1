"""Where a step on a CPU loses against PyTorch: the pieces of an encoder layer, forward and backward, in turns.

    python benchmarks/step_pieces.py --model=DIR --torch_python=peer/bin/python --rows=32 --width=13 --mixed_precision

Each piece has the sizes of the model's layers and a gradient for everything that has one, dropout on. Ours are the
functions that a step calls, `--copies` of them one after the other in one graph, as they are in a step; PyTorch's are
its own functions in a loop (`peers/torch_pieces.py`). A product of 8 x 8 shows the price of an operation that computes
nothing; the update of all weights is there once. Milliseconds are medians over the turns. Writes a file to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from results_page import beginning, default_output, table

from tfbert import keep_freed_memory
from tfbert.devices.process import choose_kernels

PIECES = {
    "nothing": "a product of 8 x 8, forward",
    "projection": "a product and a bias, hidden to hidden",
    "middle": "a product and a bias, hidden to intermediate",
    "output": "a product and a bias, intermediate to hidden",
    "attention": "attention without its products with weights; ours with the change of order of heads and tokens",
    "gelu": "GELU",
    "dropout": "dropout of hidden",
    "norm": "sum and layer normalisation",
    "layer": "a whole layer",
    "update": "clipping and AdamW, all weights of the model",
}
"""Names, and what they are."""
A_LAYER = {"projection": 4, "attention": 1, "middle": 1, "gelu": 1, "output": 1, "dropout": 2, "norm": 2}
"""How often a layer has each piece."""


def main() -> None:
    """Runs the turns of both sides, and writes their times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--torch_python", required=True)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--width", type=int, default=13)
    parser.add_argument("--mixed_precision", action="store_true", help="bfloat16")
    parser.add_argument("--copies", type=int, default=24)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--output", type=pathlib.Path, default=default_output("step-pieces"))
    args = parser.parse_args()
    choose_kernels()
    keep_freed_memory()
    peer = pathlib.Path(__file__).parent / "peers" / "torch_pieces.py"
    options = [f"--{name}={getattr(args, name)}" for name in ("model", "rows", "width", "copies")]
    command = [args.torch_python, peer, *options, *["--mixed_precision"] * args.mixed_precision]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as torch:
        found = {name: in_turns(piece, name, torch, args.turns) for name, piece in own_pieces(args)}
        torch.stdin.close()
    args.output.write_text("\n\n".join(page(args, found)) + "\n", encoding="utf-8")
    print(args.output)


def in_turns(piece: Callable[[], float], name: str, torch: subprocess.Popen, turns: int) -> tuple[float, float]:
    """Milliseconds of one copy of a piece, ours and PyTorch's: the median over all turns but the first."""
    times = []
    for _ in range(turns + 1):
        torch.stdin.write(f"{name}\n")
        torch.stdin.flush()
        times.append((piece(), float(torch.stdout.readline())))
    own, others = np.median(times[1:], axis=0)
    return float(own), float(others)


def own_pieces(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], float]]]:
    """Names, and functions that run all copies of a piece once and return the milliseconds of one."""
    import keras
    import tensorflow as tf

    from tfbert.bert.models import TFBertModel
    from tfbert.model import ops
    from tfbert.model.encoders import encoder_of
    from tfbert.model.files import BertConfig
    from tfbert.model.ops import Pass
    from tfbert.step.keras3.fused import AdamW
    from tfbert.step.keras3.parts import KeyedRandom
    from tfbert.step.noise import Rows, noise_key

    keras.config.set_dtype_policy("mixed_bfloat16" if args.mixed_precision else "float32")
    config = BertConfig.from_pretrained(args.model)
    whole = TFBertModel(config)
    config = BertConfig.from_pretrained(args.model, num_hidden_layers=args.copies)
    model = TFBertModel(config)
    dropout = KeyedRandom(model, 1)
    tokens, dtype = args.rows * args.width, keras.config.dtype_policy().compute_dtype
    hidden, middle = (tokens, config.hidden_size), (tokens, config.intermediate_size)
    mask = tf.ones([args.rows, args.width], tf.int32)

    def run_of(x):
        return Pass(config, {"attention_mask": mask}, tf.reshape(x, [args.rows, args.width, -1]), True)

    def dense(x, layer):
        return ops.dense(x, layer.kernel, layer.bias)

    def norm(layer, x, y):
        own = layer.bert_output.LayerNorm
        return ops.layer_norm(x + y, own.gamma, own.beta, own.epsilon)

    pieces = {
        "nothing": (lambda layer, x, y: x @ y, [(8, 8)] * 2),
        "projection": (lambda layer, x: dense(x, layer.attention.self_attention.query), [hidden]),
        "middle": (lambda layer, x: dense(x, layer.intermediate.dense), [hidden]),
        "output": (lambda layer, x: dense(x, layer.bert_output.dense), [middle]),
        "attention": (
            lambda layer, *parts: run_of(parts[0]).attend(*parts, layer.attention.self_attention.dropout),
            [hidden] * 3,
        ),
        "gelu": (lambda layer, x: ops.gelu(x), [middle]),
        "dropout": (lambda layer, x: layer.bert_output.dropout(inputs=x, training=True), [hidden]),
        "norm": (norm, [hidden] * 2),
        "layer": (lambda layer, x: encoder_of("bert").layer(layer, x, run_of(x), 0), [hidden]),
    }

    def timed(name: str) -> Callable[[], float]:
        compute, shapes = pieces[name]
        inputs = [[tf.cast(tf.random.normal(shape), dtype) for shape in shapes] for _ in range(args.copies)]

        @tf.function
        @tf.autograph.experimental.do_not_convert
        def run(inputs, step):
            before, kept = tf.no_op(), []  # What is returned is computed; the rest would be left out.
            with dropout.keyed(noise_key(0, step), Rows(0, args.rows)):
                for layer, own in zip(model.bert.encoder.layer, inputs, strict=True):
                    with tf.control_dependencies([before]):
                        own = [tf.identity(value) for value in own]
                    of_layer = [variable.value for variable in layer.trainable_variables]
                    with tf.GradientTape() as tape:
                        tape.watch(own)
                        result = compute(layer, *own)
                    out = [result]
                    if name != "nothing":
                        found = tape.gradient(result, [own, of_layer], output_gradients=result)
                        out += [value for value in tf.nest.flatten(found) if value is not None]
                    with tf.control_dependencies(out):
                        before = tf.no_op()
                    kept += map(tf.convert_to_tensor, out)
            return kept

        step = tf.constant(0, tf.int64)

        def once() -> float:
            start = time.perf_counter()
            run(inputs, step)
            return 1000 * (time.perf_counter() - start) / args.copies

        return once

    def timed_update() -> Callable[[], float]:
        variables, optimizer = whole.trainable_variables, AdamW(5e-5, 0.01)
        optimizer.build(variables)

        @tf.function
        def run(gradients):
            size = tf.linalg.global_norm(gradients)
            with optimizer.given(tf.minimum(1.0, 1 / size), tf.math.is_finite(size)):
                optimizer.apply(gradients, variables)

        gradients = [tf.random.normal(variable.shape) for variable in variables]

        def once() -> float:
            start = time.perf_counter()
            run(gradients)
            return 1000 * (time.perf_counter() - start)

        return once

    for name in PIECES:
        yield name, timed_update() if name == "update" else timed(name)


def page(args: argparse.Namespace, found: dict[str, tuple[float, float]]) -> list[str]:
    """The results as Markdown, one paragraph each."""

    def line(name: str, own: float, others: float, count: str = "") -> list[str]:
        return [name, count, f"{own:.3f}", f"{others:.3f}", f"{others / own:.2f}"]

    lines = [line(PIECES[name], *times, str(A_LAYER.get(name, ""))) for name, times in found.items()]
    sums = (sum(count * found[name][side] for name, count in A_LAYER.items()) for side in (0, 1))
    lines.insert(-2, line("the pieces of a layer together", *sums))
    precision = "bfloat16" if args.mixed_precision else "float32"
    return [
        *beginning("The pieces of a step, beside PyTorch's", "step_pieces.py", args),
        f"{args.rows} rows of {args.width} tokens in {precision}, forward and backward, dropout on. Milliseconds of "
        "one; a ratio above 1 means that tfbert is faster.",
        table(["piece", "in a layer", "tfbert", "PyTorch", "ratio"], lines),
    ]


if __name__ == "__main__":
    sys.exit(main())
