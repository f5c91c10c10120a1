"""Two replicas, accumulation: which updates do transformers' and KerasHub's models make in plain `fit`?

    python benchmarks/tensorflow_updates.py

A small BERT of each library trains without dropout on one device, one batch for each update. The same rows are then
split: into micro-batches, over the two replicas of a MirroredStrategy (logical CPUs), both, and so on; in plain `fit`
with what the library has for it, and in a FineTuner over the same model. Splits must not change the weights. What they
change is the distance of the weights from those of the one batch, over the way that these moved (Euclidean, all
weights); or it raises. tf_keras and Keras 3 have a process each. Writes a file to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
from results_page import beginning, default_output, table

ROWS, VOCABULARY, WIDTH, CLASSES = 32, 60, 12, 3
KINDS = {"tf_keras": "transformers in tf_keras", "keras": "KerasHub in Keras 3"}
OPTIMIZERS = ("SGD", "AdamW, clipped")
_RATES = dict(zip(OPTIMIZERS, (0.1, 1e-3), strict=True))
_DECAY, _EPSILON, _CLIP = 0.01, 1e-8, 0.1
_LONGEST = 320
"""Characters of a message."""


@dataclasses.dataclass(frozen=True)
class Split:
    """How the rows of an update are split.

    Attributes:
        replicas: Of the strategy.
        parts: Micro-batches of each replica.
        last: Rows of the last batch.
        jit_compile: Whether XLA compiles the step.
    """

    replicas: int = 1
    parts: int = 1
    last: int = ROWS
    jit_compile: bool = False


SPLITS = {
    "one device, 4 micro-batches": Split(parts=4),
    "two replicas": Split(replicas=2),
    "two replicas, 4 micro-batches": Split(replicas=2, parts=4),
    "two replicas, the last batch of 7 rows": Split(replicas=2, last=7),
    "two replicas, 4 micro-batches, the last batch of 7 rows": Split(replicas=2, parts=4, last=7),
    "two replicas, XLA": Split(replicas=2, jit_compile=True),
}


def main() -> None:
    """Measures one library, or starts a process for each and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--runs", type=pathlib.Path, help="a directory for each library's; what is there is not run")
    parser.add_argument("--output", type=pathlib.Path, default=default_output("tensorflow-updates"))
    parser.add_argument("--measure", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measured(args)))
        return
    found = {}
    for kind in KINDS:
        kept = args.runs and args.runs / f"{kind}.json"
        if kept and kept.exists():
            found[kind] = json.loads(kept.read_text(encoding="utf-8"))
            continue
        env = os.environ | {"TF_USE_LEGACY_KERAS": str(int(kind == "tf_keras")), "KERAS_BACKEND": "tensorflow"}
        command = [sys.executable, __file__, *sys.argv[1:], f"--measure={kind}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
        found[kind] = json.loads(done.stdout.splitlines()[-1])
        if kept:
            args.runs.mkdir(parents=True, exist_ok=True)
            kept.write_text(done.stdout.splitlines()[-1] + "\n", encoding="utf-8")
    args.output.write_text("\n\n".join(page(args, found)) + "\n", encoding="utf-8")
    print(args.output.read_text(encoding="utf-8"))


def measured(args: argparse.Namespace) -> dict[str, dict[str, dict[str, float | str]]]:
    """By optimizer and by split: how far plain `fit` and FineTuner are from one batch, or what was raised."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategies = {1: tf.distribute.OneDeviceStrategy("CPU:0"), 2: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])}
    side = TfKeras(args) if args.measure == "tf_keras" else Keras3(args)
    found = {}
    for optimizer in OPTIMIZERS:

        def run(split: Split, tuned: bool, optimizer: str = optimizer) -> tuple[np.ndarray, np.ndarray] | str:
            try:
                with strategies[split.replicas].scope():
                    return trained(args, side, optimizer, split, tuned)
            except Exception as error:  # That it raises is what is measured.
                return f"{type(error).__name__}: {error}"

        plain, tuned = ({last: run(Split(last=last), way) for last in (ROWS, 7)} for way in (False, True))
        lines = {"one device, one batch: `fit` from FineTuner": {"fit": apart(plain[ROWS], tuned[ROWS])}}
        for name, split in SPLITS.items():
            ends = {"fit": (run(split, False), plain), "FineTuner": (run(split, True), tuned)}
            lines[name] = {way: apart(end, expected[split.last]) for way, (end, expected) in ends.items()}
            print(optimizer, name, lines[name], file=sys.stderr, flush=True)
        found[optimizer] = lines
    return found


def trained(args: argparse.Namespace, side: TfKeras | Keras3, optimizer: str, split: Split, tuned: bool):
    """The weights before and after training, as one vector each."""
    import tensorflow as tf

    import tfbert

    clip = _CLIP if "clipped" in optimizer else None
    model = trainable = side.model()
    if tuned:
        options = {"gradient_accumulation_steps": split.parts, "jit_compile": split.jit_compile}
        trainable = tfbert.FineTuner(model, **options, max_grad_norm=clip or 0.0)
        trainable.compile(optimizer=side.optimizer(optimizer), loss=side.loss())
    else:
        side.compile(model, side.own_optimizer(optimizer, clip, split.parts), split.jit_compile)
    size = ROWS if tuned else ROWS // split.parts
    before = flat(model)
    rows = tf.data.Dataset.from_tensor_slices(side.rows((args.updates - 1) * ROWS + split.last)).batch(size)
    trainable.fit(rows, epochs=1, verbose=0)
    return before, flat(model)


def flat(model) -> np.ndarray:
    """All weights as one vector."""
    return np.concatenate([np.ravel(weight).astype(np.float64) for weight in model.get_weights()])


def apart(found, expected) -> float | str:
    """The distance of two ends over the way to the expected one; what was raised, if anything was."""
    for each in (found, expected):
        if isinstance(each, str):
            return each
    return float(np.linalg.norm(found[1] - expected[1]) / np.linalg.norm(expected[1] - expected[0]))


class TfKeras:
    """transformers' model.

    Args:
        args: The command's.
    """

    names = ("input_ids", "attention_mask", "token_type_ids")
    no_decay = ("bias", "LayerNorm")

    def __init__(self, args: argparse.Namespace):
        import tf_keras

        self.args, self.keras = args, tf_keras

    def model(self):
        """With the same random weights each time."""
        from transformers import BertConfig, TFBertForSequenceClassification

        self.keras.utils.set_random_seed(1)
        sizes = {"hidden_size": 32, "num_hidden_layers": self.args.layers, "num_attention_heads": 2}
        sizes |= {"intermediate_size": 64, "max_position_embeddings": WIDTH, "vocab_size": VOCABULARY}
        dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        config = BertConfig(**sizes, **dropout, num_labels=CLASSES, initializer_range=0.2)
        model = TFBertForSequenceClassification(config)
        model.build_in_name_scope()
        return model

    def optimizer(self, name: str, **options):
        """This Keras's."""
        if name == "SGD":
            return self.keras.optimizers.SGD(_RATES[name], **options)
        optimizer = self.keras.optimizers.AdamW(_RATES[name], weight_decay=_DECAY, epsilon=_EPSILON, **options)
        optimizer.exclude_from_weight_decay(var_names=[*self.no_decay])
        return optimizer

    def own_optimizer(self, name: str, clip: float | None, parts: int):
        """transformers' AdamW for AdamW; neither it nor tf_keras's optimizers accumulate."""
        from transformers import AdamWeightDecay

        accumulated = {"gradient_accumulation_steps": parts} if parts > 1 else {}
        if name == "SGD":
            return self.optimizer(name, **accumulated)
        options = {"weight_decay_rate": _DECAY, "epsilon": _EPSILON, "global_clipnorm": clip}
        return AdamWeightDecay(_RATES[name], exclude_from_weight_decay=[*self.no_decay], **options, **accumulated)

    def compile(self, model, optimizer, jit_compile: bool) -> None:
        """With the model's own loss."""
        model.compile(optimizer=optimizer, jit_compile=jit_compile)

    def loss(self):
        """The same, for FineTuner."""
        return self.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def rows(self, count: int):
        """Texts of several lengths in which most tokens occur several times, and classes."""
        rng = np.random.default_rng(0)
        mask = (np.arange(WIDTH) < rng.integers(3, WIDTH + 1, [count, 1])).astype(np.int32)
        ids = rng.integers(1, VOCABULARY, (count, WIDTH)).astype(np.int32) * mask
        inputs = dict(zip(self.names, (ids, mask, ids * 0), strict=True))
        return inputs, rng.integers(0, CLASSES, count).astype(np.int64)


class Keras3(TfKeras):
    """KerasHub's model.

    Args:
        args: The command's.
    """

    names = ("token_ids", "padding_mask", "segment_ids")
    no_decay = ("bias", "gamma", "beta")

    def __init__(self, args: argparse.Namespace):
        import keras

        self.args, self.keras = args, keras

    def model(self):
        """With the same random weights each time."""
        import keras_hub

        self.keras.utils.set_random_seed(1)
        backbone = keras_hub.models.BertBackbone(
            vocabulary_size=VOCABULARY,
            num_layers=self.args.layers,
            num_heads=2,
            hidden_dim=32,
            intermediate_dim=64,
            max_sequence_length=WIDTH,
            dropout=0.0,
        )
        return keras_hub.models.BertTextClassifier(backbone, num_classes=CLASSES, preprocessor=None, dropout=0.0)

    def own_optimizer(self, name: str, clip: float | None, parts: int):
        """Keras's, with its accumulation."""
        accumulated = {"gradient_accumulation_steps": parts} if parts > 1 else {}
        return self.optimizer(name, global_clipnorm=clip, **accumulated)

    def compile(self, model, optimizer, jit_compile: bool) -> None:
        """With the loss that KerasHub chooses."""
        model.compile(optimizer=optimizer, jit_compile=jit_compile or "auto")


def page(args: argparse.Namespace, found: dict) -> list[str]:
    """The results as Markdown, one paragraph each."""
    import importlib.metadata

    del args.measure, args.runs
    words = [f"{name} {importlib.metadata.version(name)}" for name in ("tf-keras", "keras", "keras-hub")]
    head = ["split", *(f"{optimizer}: {way}" for optimizer in OPTIMIZERS for way in ("`fit`", "FineTuner"))]
    raised: list[str] = []
    sections = []
    for kind, title in KINDS.items():
        lines = []
        for name in found[kind][OPTIMIZERS[0]]:
            values = [found[kind][each][name].get(way) for each in OPTIMIZERS for way in ("fit", "FineTuner")]
            lines.append([name, *(said(value, raised) for value in values)])
        sections += [f"## {title}", table(head, lines)]
    return [
        *beginning("Updates over two replicas with accumulation", "tensorflow_updates.py", args, *words),
        f"{args.updates} updates of {ROWS} rows; a BERT 32 wide, `--layers` deep, without dropout. Numbers are the "
        "distance of the weights at the end from those after one batch an update on one device (the first line: of "
        "`fit` from FineTuner), over the way that these moved. Float32 rounding is 1e-7 of each number. Clipped: by "
        f"global norm, at {_CLIP}.",
        *sections,
        "Raised:",
        "\n".join(f"{number}. `{text}`" for number, text in enumerate(raised, 1)),
    ]


def said(value: float | str | None, raised: list[str]) -> str:
    """A number, or the number of the message in `raised`, to which a new one is added."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return f"{value:.0e}" if value < 0.01 else f"{value:.2f}"
    text = told(value)
    if text not in raised:
        raised.append(text)
    return f"raises ({raised.index(text) + 1})"


def told(error: str) -> str:
    """A message without what differs from run to run: colours, the stack, places of files, names of variables."""
    lines = re.sub(r"\x1b\[\d*m|\(defined @ [^)]*\) ", "", error).splitlines()
    lines = [
        line.strip() for line in lines if not line.strip().startswith(("File ", "Detected at node", "[[{{", "Cf. "))
    ]
    text = re.sub(r"resource \S+ ", "resource ... ", " ".join(filter(None, lines)))
    text = text.replace("`", "'")
    return text if len(text) < _LONGEST else text[:_LONGEST].rpartition(" ")[0] + " ..."


if __name__ == "__main__":
    main()
