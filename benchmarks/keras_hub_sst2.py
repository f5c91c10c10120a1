"""The command and FineTuner over KerasHub's BERT, update by update: the same losses from the same weights and batches?

    python benchmarks/keras_hub_sst2.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv --work_dir=runs/hub

A BERT becomes a preset of KerasHub, saved anew by KerasHub itself so that both compute GELU as KerasHub does. Without
dropout, `run_finetune.py --model=PRESET` and `tfbert.FineTuner(keras_hub.models.BertTextClassifier)` with Keras 3's
AdamW train from the same weights, the new head included, on the same batches. Then FineTuner and plain Keras 3's `fit`
train the same KerasHub model in turns, in one process, for their speed. Writes a file to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from keras_preset import write_preset  # noqa: E402
from machine import done  # noqa: E402
from results_page import beginning, default_output, table  # noqa: E402

import tfbert  # noqa: E402

tfbert.keep_freed_memory()

import keras  # noqa: E402
import keras_hub  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfbert.batches.pipeline import distribute_batches  # noqa: E402
from tfbert.batches.schedule import Schedule, plan_run, training_batches  # noqa: E402
from tfbert.bert.models import build_model  # noqa: E402
from tfbert.model.files import load_tokenizer, resolve_model  # noqa: E402
from tfbert.model.weights import get_weights_dict  # noqa: E402
from tfbert.step.keras3.fused import WarmupSchedule  # noqa: E402
from tfbert.tasks.tables import load_data  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent
_INPUTS = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
_NO_DECAY = ("bias", "gamma", "beta")
_WARM_UP = 5
"""Updates of a turn that are not timed."""

Batch = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


def main() -> None:
    """Trains both, then in turns, and writes what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train_file", "validation_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--work_dir", type=pathlib.Path, required=True, help="where preset and run are")
    parser.add_argument("--num_train_epochs", type=int, default=1)
    parser.add_argument("--max_steps", type=int, default=0)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--turns", type=int, default=3, help="how often each trains for its speed")
    parser.add_argument("--turn_steps", type=int, default=30)
    parser.add_argument("--output", type=pathlib.Path, default=default_output("keras-hub-sst2"))
    args = parser.parse_args()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    preset = make_preset(args)
    config = configuration(args, preset)
    command = run_command(args, preset)
    batches, schedule, evaluation, head = prepare(config)
    found, scores = train_in_keras(config, schedule, preset, head, batches, evaluation)
    words = ["KerasHub " + importlib.metadata.version("keras-hub"), f"Keras {keras.__version__}"]
    page = beginning("The command and FineTuner over KerasHub's BERT", "keras_hub_sst2.py", args, *words)
    page += compared(command, found, scores) + speeds(args, config, schedule, preset, head, batches)
    args.output.write_text("\n\n".join(page) + "\n", encoding="utf-8")
    print(args.output.read_text(encoding="utf-8"))


def make_preset(args: argparse.Namespace) -> pathlib.Path:
    """The model as KerasHub saves it, without dropout."""
    preset = args.work_dir / "preset"
    if not preset.exists():
        write_preset(args.model, preset, dropout=0.0)
    return preset


def configuration(args: argparse.Namespace, preset: pathlib.Path) -> tfbert.Config:
    """The run that both are."""
    return tfbert.Config(
        model=tfbert.ModelConfig(model_name_or_path=str(preset)),
        data=tfbert.DataConfig(train_file=args.train_file, validation_file=args.validation_file, max_seq_length=128),
        training=tfbert.TrainingConfig(
            learning_rate=args.learning_rate,
            num_train_epochs=args.num_train_epochs,
            max_steps=args.max_steps,
            dropout=0.0,
        ),
        runtime=tfbert.RuntimeConfig(seed=args.seed),
    )


def run_command(args: argparse.Namespace, preset: pathlib.Path) -> list[dict]:
    """The log of the command's run."""
    directory = args.work_dir / "command"
    if not (directory / "config.json").exists():
        done(
            *(sys.executable, ROOT / "run_finetune.py", f"--model={preset}", f"--output_dir={directory}"),
            *(f"--train_file={args.train_file}", f"--validation_file={args.validation_file}", "--max_seq_length=128"),
            *(f"--learning_rate={args.learning_rate}", f"--num_train_epochs={args.num_train_epochs}"),
            *(f"--max_steps={args.max_steps}", "--dropout=0", f"--seed={args.seed}", "--logging_steps=1"),
            *("--save_steps=0", "--overwrite_output_dir"),
        )
    return [json.loads(line) for line in (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def prepare(config: tfbert.Config) -> tuple[list[Batch], Schedule, list[Batch], dict[str, np.ndarray]]:
    """The batches of the command's run, its durations, its evaluation set in batches, and its new head."""
    directory = resolve_model(config.model)
    data = load_data(config.data, config.task_options)
    tokenizer = load_tokenizer(config.model, directory, training_texts=())
    length = config.data.max_seq_length
    model = build_model(
        config.model,
        directory,
        tokenizer=tokenizer,
        head=data.task.head(),
        max_seq_length=length,
        seed=config.runtime.seed,
        dropout=0.0,
    )
    head = {name: value for name, value in get_weights_dict(model).items() if name.startswith("classifier.")}
    train = data.task.encode(data.train, tokenizer, length, config.training)
    schedule = plan_run(config, len(train))
    planned = training_batches(config, train.lengths, schedule, num_replicas=1)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    batches = []
    for inputs, labels, weights in distribute_batches(strategy, train, planned.plans, shape=planned.shape):
        inputs = {name: inputs[own].numpy().astype(np.int32) for name, own in _INPUTS.items()}
        batches.append((inputs, labels.numpy(), weights.numpy()))
    evaluation = []
    (examples,) = data.sets.values()
    for start in range(0, len(examples), 32):
        part = examples.take(range(start, min(start + 32, len(examples))))
        ids, _ = tokenizer(tf.constant(part.text), max_seq_length=length)
        mask = tf.ones_like(ids).to_tensor().numpy()
        inputs = {"token_ids": ids.to_tensor(tokenizer.pad_id).numpy(), "padding_mask": mask, "segment_ids": mask * 0}
        evaluation.append((inputs, part.labels, np.ones(len(part), np.float32)))
    return batches[: schedule.total_steps], schedule, evaluation, head


def task_of(preset: pathlib.Path, head: dict[str, np.ndarray]) -> keras.Model:
    """KerasHub's classifier with the weights that the command starts from."""
    task = keras_hub.models.BertTextClassifier.from_preset(
        str(preset), num_classes=len(head["classifier.bias"]), dropout=0.0, preprocessor=None
    )
    task.output_dense.kernel.assign(head["classifier.weight"].T)
    task.output_dense.bias.assign(head["classifier.bias"])
    return task


def compiled(model: keras.Model, config: tfbert.Config, schedule: Schedule, **options: object) -> keras.Model:
    """With the command's optimizer in Keras 3."""
    training = config.training
    rate = WarmupSchedule(
        peak=training.learning_rate,
        schedule=training.lr_schedule,
        warmup_steps=schedule.warmup_steps,
        total_steps=schedule.total_steps,
    )
    optimizer = keras.optimizers.AdamW(rate, weight_decay=training.weight_decay, epsilon=1e-8, **options)
    optimizer.exclude_from_weight_decay(var_names=[*_NO_DECAY])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, weighted_metrics=["accuracy"])
    return model


class _Losses(keras.callbacks.Callback):
    """The loss of each update by itself, and when it ended."""

    def __init__(self):
        super().__init__()
        self.losses, self.ended = [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        self.ended.append(time.perf_counter())


def dataset(batches: list[Batch]) -> tf.data.Dataset:
    """Batches of several widths."""

    def all_of_them() -> Iterator[Batch]:
        yield from batches

    ints = tf.TensorSpec([None, None], tf.int32)
    spec = ({name: ints for name in _INPUTS}, tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.float32))
    return tf.data.Dataset.from_generator(all_of_them, output_signature=spec)


def train_in_keras(
    config: tfbert.Config,
    schedule: Schedule,
    preset: pathlib.Path,
    head: dict[str, np.ndarray],
    batches: list[Batch],
    evaluation: list[Batch],
) -> tuple[list[float], dict[str, float]]:
    """The losses of FineTuner's updates, and what the evaluation set gives after them."""
    tuner = tfbert.FineTuner(task_of(preset, head), max_grad_norm=config.training.max_grad_norm)
    compiled(tuner, config, schedule)
    losses = _Losses()
    tuner.fit(dataset(batches), epochs=1, verbose=0, callbacks=[losses])
    return losses.losses, tuner.evaluate(dataset(evaluation), verbose=0, return_dict=True)


def compared(log: list[dict], found: list[float], scores: dict[str, float]) -> list[str]:
    """How far the two runs are apart."""
    own = [line["loss"] for line in log if line["kind"] == "train"]
    last = [line for line in log if line["kind"] != "train" and "eval_accuracy" in line][-1]
    apart = np.abs(np.subtract(own, found))
    lines = [
        [str(step + 1), f"{own[step]:.7f}", f"{found[step]:.7f}", f"{apart[step]:.1e}"]
        for step in sorted({0, 1, 9, len(own) // 2, len(own) - 1} & {*range(len(own))})
    ]
    return [
        f"Losses of {len(own)} updates of 32 rows, without dropout. Largest difference: {apart.max():.1e}, in the "
        f"first ten updates {apart[:10].max():.1e}.",
        table(["update", "command", "FineTuner over KerasHub", "difference"], lines),
        f"On the evaluation set: command accuracy {last['eval_accuracy']:.4f}, loss {last['eval_loss']:.6f}; FineTuner "
        f"over KerasHub accuracy {scores['accuracy']:.4f}, loss {scores['loss']:.6f}.",
    ]


def speeds(
    args: argparse.Namespace,
    config: tfbert.Config,
    schedule: Schedule,
    preset: pathlib.Path,
    head: dict[str, np.ndarray],
    batches: list[Batch],
) -> list[str]:
    """FineTuner and plain Keras 3 in turns, over the same batches."""
    norm = config.training.max_grad_norm
    models = {
        "FineTuner": compiled(tfbert.FineTuner(task_of(preset, head), max_grad_norm=norm), config, schedule),
        "Keras 3 `fit`": compiled(task_of(preset, head), config, schedule, global_clipnorm=norm),
    }
    part = batches[: args.turn_steps + _WARM_UP]
    rows = sum(len(labels) for _, labels, _ in part[_WARM_UP:])
    found: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(args.turns):
        for name, model in models.items():
            clock = _Losses()
            model.fit(dataset(part), epochs=1, verbose=0, callbacks=[clock])
            found[name].append(rows / (clock.ended[-1] - clock.ended[_WARM_UP - 1]))
    lines = [[name, *(f"{value:.1f}" for value in values)] for name, values in found.items()]
    ratio = statistics.median(a / b for a, b in zip(*found.values(), strict=True)) if args.turns else 0
    if not args.turns:
        return []
    return [
        f"Examples a second over {len(part) - _WARM_UP} updates, one after the other in one process; FineTuner is "
        f"{ratio:.2f} times as fast (median of the turns).",
        table(["", *(f"turn {turn + 1}" for turn in range(args.turns))], lines),
    ]


if __name__ == "__main__":
    main()
