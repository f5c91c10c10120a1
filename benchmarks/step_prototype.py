"""Training throughput of this trainer against its own first prototype, alternating in one process.

    python benchmarks/step_prototype.py --model=DIR --train_file=train.tsv

The prototype pads batches to a multiple of 8, updates with tf_keras's AdamW on plain operations, uses
`tf.nn.experimental.stateless_dropout` and computes the model as transformers does. Both train on the same batches of
real rows, grouped by length, in float32. The peak rate of a matrix product is measured as well.
"""

import pathlib
import statistics
import time

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import app, flags

from tfbert.batches.pipeline import EncodedExamples, make_dataset
from tfbert.batches.plan import plan_epoch
from tfbert.config.run import DataConfig, ModelConfig, RuntimeConfig, TrainingConfig
from tfbert.devices import runtime
from tfbert.model.forward import forward
from tfbert.model.load import build_model, load_tokenizer
from tfbert.step import dropout
from tfbert.step.finetuner import FineTuner
from tfbert.step.optimizer import NO_DECAY
from tfbert.tasks.examples import load_data
from tfbert.train.build import optimizer_of

flags.DEFINE_string("model", None, "Model directory.", required=True)
flags.DEFINE_string("train_file", None, "Training rows.", required=True)
flags.DEFINE_integer("steps", 40, "Updates in each turn.")
flags.DEFINE_integer("turns", 3, "Turns of each side.")
flags.DEFINE_bool("mixed_precision", False, "bfloat16.")
FLAGS = flags.FLAGS
BATCH = 32


def make_side(directory, tokenizer, examples, task, *, is_prototype):
    """A function that runs some updates and returns their seconds."""
    training = TrainingConfig(learning_rate=5e-5, num_train_epochs=1.0)
    classifier = build_model(
        ModelConfig(model_name_or_path=str(directory)),
        directory,
        tokenizer=tokenizer,
        head=task.head(),
        max_seq_length=128,
        seed=0,
    )
    model = FineTuner(classifier, max_grad_norm=1.0, forward=None if is_prototype else forward)
    optimizer = optimizer_of(training, 10_000, 1_000)
    if is_prototype:
        optimizer = keras.optimizers.AdamW(optimizer._learning_rate, weight_decay=0.01, jit_compile=False)
        optimizer.exclude_from_weight_decay(var_names=list(NO_DECAY))
    model.compile(optimizer=optimizer, loss=task.loss(training))
    model.create_variables()
    lengths = examples.tokens.lengths
    widths = np.arange(8, 136, 8) if is_prototype else np.arange(1, 129)
    plan = plan_epoch(lengths, global_batch_size=BATCH, seed=0, epoch=0, group_by_length=True, allowed_widths=widths)
    batches = iter(make_dataset(examples, lambda: iter([plan]), range(1), 1))
    step = tf.function(lambda iterator: model.train_step(next(iterator)))
    own_drop = dropout.drop
    if is_prototype:
        dropout.drop = lambda inputs, rate, stream, number, **_: tf.nn.experimental.stateless_dropout(
            inputs, rate, seed=tf.stack([tf.bitcast(stream.key[0], tf.int64), number])
        )
    step(batches)  # Traced here, with this side's dropout.
    dropout.drop = own_drop

    def run(steps):
        start = time.perf_counter()
        for _ in range(steps):
            loss = step(batches)["loss"]
        loss.numpy()
        return time.perf_counter() - start

    return run


def peak_gflops():
    """The best rate of a 2048 x 2048 float32 product."""
    a = tf.random.normal((2048, 2048))
    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        tf.matmul(a, a).numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * 2048**3 / min(seconds) / 1e9


def main(_):
    runtime.set_up(RuntimeConfig(mixed_precision=FLAGS.mixed_precision))
    directory = pathlib.Path(FLAGS.model)
    data = load_data(DataConfig(train_file=FLAGS.train_file, max_train_examples=16_000))
    tokenizer = load_tokenizer(ModelConfig(model_name_or_path=FLAGS.model), directory, training_texts=[])
    examples = EncodedExamples(
        tokens=tokenizer.encode(data.train.text, max_seq_length=128),
        labels=data.train.labels,
        weights=np.ones(len(data.train), np.float32),
    )
    sides = {
        name: make_side(directory, tokenizer, examples, data.task, is_prototype=name == "prototype")
        for name in ("prototype", "tfbert")
    }
    speeds = {name: [] for name in sides}
    for run in sides.values():
        run(3)
    for _ in range(FLAGS.turns):
        for name, run in sides.items():
            speeds[name].append(FLAGS.steps * BATCH / run(FLAGS.steps))
    for name, values in speeds.items():
        print(f"{name}: {statistics.median(values):.0f} examples/s ({', '.join(f'{v:.0f}' for v in values)})")
    print(f"ratio {statistics.median(speeds['tfbert']) / statistics.median(speeds['prototype']):.2f}")
    print(f"peak of a float32 matrix product {peak_gflops():.0f} GFLOP/s")


if __name__ == "__main__":
    app.run(main)
