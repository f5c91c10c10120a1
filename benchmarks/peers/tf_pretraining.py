"""The TensorFlow peers of `pretraining_speed.py`: plain Keras `fit` on Google's records, read as Google's script reads.

    python benchmarks/peers/tf_pretraining.py --kind=google --config=config.json --batches=batches.npz

In tfbert's own environment. The given batches' rows become records in the schema of google-research/bert: one width,
masked once. They are read as its script does, written from what it does, not copied: files interleaved, a buffer of 100
records shuffled, each record parsed by itself, full batches. All kinds have random weights, dropout, AdamW and clipping
by global norm. `google` is transformers' encoder in tf_keras with a head that scores the masked words only, as
Google's does; `transformers` is TFBertForPreTraining with its own loss, which scores every word at every position;
`keras_hub` is BertMaskedLM over Keras 3, without pairs.

Prints `ready` and the speed of reading alone. Then as `peers/pretraining.py`: lines `FIRST LAST`, and the seconds of
LAST - FIRST updates, which are of other rows than the numbers say: they are shuffled.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable

os.environ["TF_USE_LEGACY_KERAS"] = "0" if "--kind=keras_hub" in sys.argv else "1"
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

keras = tf.keras
_IGNORED = -100
_FILES, _SHUFFLED, _WARM_UP = 4, 100, 4


def main() -> None:
    """Answers requests until its input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", required=True, choices=tuple(BUILDERS))
    parser.add_argument("--config", required=True, help="the model's config.json")
    parser.add_argument("--batches", required=True, help="file of batches that pretraining_speed.py writes")
    parser.add_argument("--bfloat16", action="store_true")
    args = parser.parse_args()
    if args.bfloat16:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    keras.utils.set_random_seed(0)
    config = json.loads(pathlib.Path(args.config).read_text())
    build, prepared = BUILDERS[args.kind]
    with tempfile.TemporaryDirectory() as scratch:
        shape = write_records(args.batches, pathlib.Path(scratch))
        rows = pipeline(pathlib.Path(scratch), *shape).map(prepared, num_parallel_calls=4).prefetch(tf.data.AUTOTUNE)
        model = build(config, shape)
        chosen = {
            "reading_alone": reading_alone(rows, shape[0]),
            "tensorflow": tf.__version__,
            "threads": "TensorFlow's",
        }
        model.fit(rows, steps_per_epoch=_WARM_UP, verbose=0)
        print("ready", json.dumps(chosen), flush=True)
        model.fit(rows, steps_per_epoch=10**9, verbose=0, callbacks=[on_request()])


def write_records(batches: str, directory: pathlib.Path) -> tuple[int, int, int]:
    """Writes the rows of all batches to some files; returns the rows of a batch, the width of a row, and the most words
    to predict."""
    with np.load(batches) as stored:
        count = int(stored["count"])
        arrays = [{name: stored[f"{name}_{i}"] for name in NAMES} for i in range(count)]
    width = max(batch["ids"].shape[1] for batch in arrays)
    most = max(batch["positions"].shape[1] for batch in arrays)
    writers = [tf.io.TFRecordWriter(str(directory / f"{i}.tfrecord")) for i in range(_FILES)]
    number = 0
    for batch in arrays:
        for row in zip(*(batch[name] for name in NAMES), strict=True):
            features = {}
            for (name, is_word), values in zip(NAMES.values(), row, strict=True):
                room = {None: 1, False: width, True: most}[is_word]
                values = np.pad(np.atleast_1d(values), (0, room - np.atleast_1d(values).size))
                if name == "masked_lm_weights":
                    features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
                else:
                    features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            record = tf.train.Example(features=tf.train.Features(feature=features))
            writers[number % _FILES].write(record.SerializeToString())
            number += 1
    for writer in writers:
        writer.close()
    return len(arrays[0]["ids"]), width, most


NAMES = {
    "ids": ("input_ids", False),
    "mask": ("input_mask", False),
    "segments": ("segment_ids", False),
    "positions": ("masked_lm_positions", True),
    "labels": ("masked_lm_ids", True),
    "weights": ("masked_lm_weights", True),
    "next_sentence": ("next_sentence_labels", None),
}
"""Of arrays in the file of batches: the feature's name in a record, and whether it has a number for each word to
predict; None: one number."""


def pipeline(directory: pathlib.Path, batch_size: int, width: int, most: int) -> tf.data.Dataset:
    """Batches for ever, as Google's script reads them: int32, and float32 weights."""
    room = {None: 1, False: width, True: most}
    schema = {
        name: tf.io.FixedLenFeature([room[is_word]], tf.float32 if name == "masked_lm_weights" else tf.int64)
        for name, is_word in NAMES.values()
    }

    def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
        found = tf.io.parse_single_example(record, schema)
        return {name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value for name, value in found.items()}

    files = tf.data.Dataset.from_tensor_slices(sorted(map(str, directory.glob("*.tfrecord")))).repeat()
    records = files.shuffle(_FILES).interleave(
        tf.data.TFRecordDataset, cycle_length=_FILES, num_parallel_calls=_FILES, deterministic=False
    )
    parsed = records.shuffle(_SHUFFLED).map(parse, num_parallel_calls=4)
    return parsed.batch(batch_size, drop_remainder=True)


def reading_alone(rows: tf.data.Dataset, batch_size: int, batches: int = 200) -> float:
    """Rows a second, with nothing else to do."""
    iterator = iter(rows)
    next(iterator)
    start = time.perf_counter()
    for _ in range(batches):
        next(iterator)
    return round(batches * batch_size / (time.perf_counter() - start))


def on_request() -> keras.callbacks.Callback:
    """Stops between updates until a line asks for more; says how long they took; ends the process with the lines."""
    left, start, before = 0, 0.0, resource.getrusage(resource.RUSAGE_SELF)

    def begin(batch, logs=None):
        nonlocal left, start, before
        if left:
            return
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        first, last = map(int, line.split())
        left, start, before = last - first, time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)

    def end(batch, logs=None):
        nonlocal left
        left -= 1
        if not left:
            after = resource.getrusage(resource.RUSAGE_SELF)
            user, kernel = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
            print(time.perf_counter() - start, user, kernel, flush=True)

    return keras.callbacks.LambdaCallback(on_train_batch_begin=begin, on_train_batch_end=end)


def transformers_model(config: dict, shape: tuple[int, int, int]) -> keras.Model:
    """TFBertForPreTraining, whose loss is its own."""
    from transformers import BertConfig, TFBertForPreTraining

    model = TFBertForPreTraining(BertConfig(**config))
    model.compile(optimizer=tf_keras_optimizer())
    return model


def for_transformers(record: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Its inputs, with labels at every position."""
    ids, weights = record["input_ids"], record["masked_lm_weights"]
    row = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, None], tf.shape(weights))
    where = tf.boolean_mask(tf.stack([row, record["masked_lm_positions"]], axis=-1), weights > 0)
    labels = tf.tensor_scatter_nd_update(
        tf.fill(tf.shape(ids), _IGNORED), where, tf.boolean_mask(record["masked_lm_ids"], weights > 0)
    )
    inputs = {"input_ids": ids, "attention_mask": record["input_mask"], "token_type_ids": record["segment_ids"]}
    return inputs | {"labels": labels, "next_sentence_label": record["next_sentence_labels"][:, 0]}


def google_model(config: dict, shape: tuple[int, int, int]) -> keras.Model:
    """transformers' encoder and heads, whose words' head gets the masked positions only."""
    from transformers import BertConfig, TFBertForPreTraining

    inner = TFBertForPreTraining(BertConfig(**config))

    class Model(keras.Model):
        def call(self, inputs, training=False):
            found = inner.bert(
                inputs["input_ids"],
                attention_mask=inputs["input_mask"],
                token_type_ids=inputs["segment_ids"],
                training=training,
            )
            masked = tf.gather(found.last_hidden_state, inputs["masked_lm_positions"], batch_dims=1)
            scores = inner.mlm(masked, training=training)
            return {"words": scores, "pairs": inner.nsp(found.pooler_output, training=training)}

    model = Model()
    inner.build()
    model.inner = inner
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf_keras_optimizer(), loss={"words": loss, "pairs": loss})
    return model


def for_google(record: dict[str, tf.Tensor]):
    """Inputs, labels and weights."""
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    labels = {"words": record["masked_lm_ids"], "pairs": record["next_sentence_labels"]}
    ones = tf.ones_like(record["next_sentence_labels"][:, 0], tf.float32)
    return {name: record[name] for name in names}, labels, {"words": record["masked_lm_weights"], "pairs": ones}


def tf_keras_optimizer() -> keras.optimizers.Optimizer:
    """AdamW as transformers has it for TensorFlow."""
    from transformers import create_optimizer

    return create_optimizer(1e-4, 10**6, 10**4, weight_decay_rate=0.01, adam_global_clipnorm=1.0)[0]


def keras_hub_model(config: dict, shape: tuple[int, int, int]) -> keras.Model:
    """BertMaskedLM, without its preprocessor."""
    import keras_hub

    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        dropout=config["hidden_dropout_prob"],
        max_sequence_length=config["max_position_embeddings"],
    )
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    optimizer = keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, weighted_metrics=[], jit_compile=False)
    return model


def for_keras_hub(record: dict[str, tf.Tensor]):
    """Inputs, labels and weights."""
    names = {"token_ids": "input_ids", "padding_mask": "input_mask", "segment_ids": "segment_ids"}
    names |= {"mask_positions": "masked_lm_positions"}
    inputs = {name: record[feature] for name, feature in names.items()}
    return inputs, record["masked_lm_ids"], record["masked_lm_weights"]


BUILDERS: dict[str, tuple[Callable, Callable]] = {
    "google": (google_model, for_google),
    "transformers": (transformers_model, for_transformers),
    "keras_hub": (keras_hub_model, for_keras_hub),
}
"""A kind's model, and what it is given of a record."""


if __name__ == "__main__":
    main()
