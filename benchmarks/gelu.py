"""GELU forward and backward: gradient written out by hand against TensorFlow's own, alternating in one process.

    python benchmarks/gelu.py

Shapes are those of batches of 32 texts of 16 and of 128 tokens in MiniLM (4 x 384 wide) and BERT-base (4 x 768).
"""

import statistics
import time

import tensorflow as tf
from absl import app, flags

from tfbert.devices.allocator import keep_freed_memory
from tfbert.model.ops import gelu

flags.DEFINE_integer("turns", 9, "Turns of each side.")
FLAGS = flags.FLAGS


def make_side(function, x):
    """A function that computes values and gradients once and returns its seconds."""

    @tf.function
    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        # The sum stands for the matrix products that read both.
        return tf.reduce_sum(y), tf.reduce_sum(tape.gradient(y, x, output_gradients=x))

    def run():
        start = time.perf_counter()
        for part in compute(x):
            part.numpy()
        return time.perf_counter() - start

    return run


def main(_):
    keep_freed_memory()
    for dtype in ("float32", "bfloat16"):
        for shape in ((32 * 16, 1536), (32 * 128, 1536), (32 * 128, 3072)):
            x = tf.cast(tf.random.stateless_normal(shape, [1, 2]), dtype)
            sides = {"derived": make_side(tf.nn.gelu, x), "written out": make_side(gelu, x)}
            for run in sides.values():
                run()
            seconds = {name: [] for name in sides}
            for _ in range(FLAGS.turns):
                for name, run in sides.items():
                    seconds[name].append(run())
            medians = {name: 1000 * statistics.median(values) for name, values in seconds.items()}
            shown = ", ".join(f"{name} {value:.2f} ms" for name, value in medians.items())
            print(f"{dtype} {shape}: {shown}, ratio {medians['derived'] / medians['written out']:.2f}")


if __name__ == "__main__":
    app.run(main)
