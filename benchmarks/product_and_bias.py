"""A dense layer's product and bias in bfloat16: joined by TensorFlow's graph optimiser, and apart as a step has them.

    python benchmarks/product_and_bias.py
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python benchmarks/product_and_bias.py   # without a CPU's matrix unit

`--copies` layers, each with weights of its own, are in one graph; the forms take turns. Milliseconds of one layer are
medians over the turns. Writes a file to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import time

from results_page import beginning, default_output, table

from tfbert import keep_freed_memory
from tfbert.devices.process import choose_kernels

SIZES = ((384, 384), (384, 1536), (1536, 384), (768, 3072))
ROWS = (128, 416, 1440)


def main() -> None:
    """Runs the turns of each size, and writes their times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=24)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--output", type=pathlib.Path, default=default_output("product-and-bias"))
    args = parser.parse_args()
    choose_kernels()
    keep_freed_memory()
    lines = [line for size in SIZES for line in of_size(*size, args.copies, args.turns)]
    text = [
        *beginning("Product and bias in bfloat16", "product_and_bias.py", args),
        f"ONEDNN_MAX_CPU_ISA: {os.environ.get('ONEDNN_MAX_CPU_ISA', 'not set')}. Milliseconds of one.",
        table(["rows", "in, out", "joined", "apart", "product alone"], lines),
    ]
    args.output.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    print(args.output)


def of_size(inputs: int, outputs: int, copies: int, turns: int) -> list[list[str]]:
    """A line of the table for each number of rows."""
    import tensorflow as tf

    from tfbert.model.ops import dense

    kernels = [tf.Variable(tf.random.normal([inputs, outputs], stddev=0.02, dtype=tf.bfloat16)) for _ in range(copies)]
    bias = tf.Variable(tf.random.normal([outputs], dtype=tf.bfloat16))
    forms = {
        "joined": lambda x, kernel: tf.nn.bias_add(tf.matmul(x, kernel), bias),
        "apart": lambda x, kernel: dense(x, kernel, bias),
        "alone": lambda x, kernel: tf.matmul(x, kernel),
    }
    signature = [tf.TensorSpec([None, inputs], tf.bfloat16)]

    def in_one_graph(form):
        return tf.function(lambda x: [form(x, kernel) for kernel in kernels], signature, autograph=False)

    graphs = {name: in_one_graph(form) for name, form in forms.items()}
    lines = []
    for rows in ROWS:
        x = tf.random.normal([rows, inputs], dtype=tf.bfloat16)
        times = {name: [] for name in graphs}
        for turn in range(-2, turns):
            for name, graph in graphs.items():
                start = time.perf_counter()
                graph(x)
                if turn >= 0:
                    times[name].append(1000 * (time.perf_counter() - start) / copies)
        medians = [f"{statistics.median(found):.3f}" for found in times.values()]
        lines.append([str(rows), f"{inputs}, {outputs}", *medians])
    return lines


if __name__ == "__main__":
    sys.exit(main())
