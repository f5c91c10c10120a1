"""Seconds until the first update of a classifier with random weights, part by part.

    python benchmarks/first_update.py --layers=12 --hidden_size=768 [--turns=3 --against=DIR]

The parts are imports, the model, tracing the step, its first call (TensorFlow's graph passes and XLA's compilation),
and later calls. Each measurement runs in its own process; `--against` names another checkout, whose turns alternate
with this one's. Prints a table of each part's smallest wall and CPU seconds.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent


def main() -> None:
    """Runs the turns of each checkout, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden_size", type=int, default=384)
    parser.add_argument("--mixed_precision", action="store_true", help="bfloat16")
    parser.add_argument("--metrics", default="", help="of compile, by names with commas: accuracy")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--against", default="", help="another checkout")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measured(args.layers, args.hidden_size, args.mixed_precision, args.metrics)))
        return
    from machine import machine  # Not in a measuring process: it puts this checkout first on the path.

    checkouts = {"this": str(ROOT)} | ({"other": str(pathlib.Path(args.against).resolve())} if args.against else {})
    found = {name: [] for name in checkouts}
    for _ in range(args.turns):
        for name, checkout in checkouts.items():
            options = [f"--layers={args.layers}", f"--hidden_size={args.hidden_size}", f"--metrics={args.metrics}"]
            options += ["--mixed_precision"] * args.mixed_precision
            run = subprocess.run(
                [sys.executable, __file__, "--measure", *options],
                env=os.environ | {"PYTHONPATH": checkout},
                cwd=checkout,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            found[name].append(json.loads(run.stdout.splitlines()[-1]))
    print(json.dumps(machine()))
    print(f"{'part':<12}" + "".join(f"{name + ' wall':>12}{'cpu':>8}" for name in checkouts))
    for part in found["this"][0]:
        best = [[min(run[part][i] for run in runs) for i in (0, 1)] for runs in found.values()]
        print(f"{part:<12}" + "".join(f"{wall:>12.2f}{cpu:>8.2f}" for wall, cpu in best))


def measured(layers: int, hidden_size: int, is_mixed: bool, metrics: str) -> dict[str, list[float]]:
    """Wall and CPU seconds of each part, in this process."""
    parts, before = {}, [time.perf_counter(), _cpu()]

    def done(name: str) -> None:
        now = [time.perf_counter(), _cpu()]
        parts[name] = [now[0] - before[0], now[1] - before[1]]
        before[:] = now

    import tfbert

    assert pathlib.Path(tfbert.__file__).is_relative_to(pathlib.Path.cwd()), tfbert.__file__
    tfbert.keep_freed_memory()
    import keras
    import numpy as np
    import tensorflow as tf

    from tfbert.bert.models import TFBertForSequenceClassification
    from tfbert.classifier import forward
    from tfbert.finetuner import FineTuner

    keras.config.set_dtype_policy("mixed_bfloat16" if is_mixed else "float32")
    done("import")
    config = tfbert.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden_size,
        num_attention_heads=hidden_size // 32,
        intermediate_size=4 * hidden_size,
    )
    model = TFBertForSequenceClassification(config)
    trained = FineTuner(model, forward=forward, max_grad_norm=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = metrics.split(",") if metrics else None
    trained.compile(optimizer=tfbert.AdamW(1e-5), loss=loss, metrics=metrics)
    trained.create_variables()
    done("model")
    words = np.random.default_rng(0).integers(5, 30_000, (32, 32), np.int32)
    inputs = {"input_ids": words, "attention_mask": np.ones_like(words), "token_type_ids": np.zeros_like(words)}
    batch = tf.nest.map_structure(tf.constant, (inputs, np.zeros(32, np.int32)))
    signature = tf.nest.map_structure(lambda tensor: tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype), batch)
    step = tf.function(trained.train_step, input_signature=[signature], autograph=False)
    step.get_concrete_function()
    done("trace")
    for name in ("first call", "second", "third"):
        step(batch)
        done(name)
    return parts


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
