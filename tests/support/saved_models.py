"""Small models trained for a few steps, and the reference predictions of the modes that use a saved model."""

import contextlib
import functools
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.support.flag_values import configured
from tests.support.models import tiny_bert
from tests.support.runs import TOKENS, WORDS, tokenizer_of, undrawn
from tfbert.bert import models
from tfbert.model.files import record_inputs
from tfbert.model.head import save_pretrained
from tfbert.modes import load as saved_model
from tfbert.modes.predict import predict
from tfbert.tasks.classification.classification import Classification, Regression
from tfbert.tasks.prediction import TrainedModel
from tfbert.train.run import finetune


def make_runs(directory):
    """Trains `single` (labels 0, 1) in `directory`, breaks copies of it, and saves `pairs` (words) and `scores` with
    random weights."""
    rng = np.random.default_rng(0)

    def text():
        return " ".join(rng.choice(WORDS, rng.integers(1, 22)))

    def write(name, header, rows):
        (directory / name).write_text("\n".join(["\t".join(header), *("\t".join(row) for row in rows)]) + "\n")

    single, pair = ("label", "sentence"), ("sentence1", "sentence2", "label")
    for name, rows in (("train.tsv", 40), ("dev.tsv", 21)):
        write(name, single, [(str(i % 2), text()) for i in range(rows)])
    for name, rows in (("pairs.tsv", 24), ("more.tsv", 9)):
        write(name, pair, [(text(), text(), ("same", "other")[i % 2]) for i in range(rows)])
    write("scores.tsv", single, [(f"{rng.random() * 5:.2f}", text()) for i in range(24)])
    write("odd.tsv", single, [("1", "good"), ("7", "bad")])
    write("words.tsv", single, [("low", "good"), ("high", "bad")])
    write("unlabelled.tsv", ("sentence",), [("good film",), ("bad film",)])
    (directory / "vocab.txt").write_text("\n".join(TOKENS) + "\n")

    save_random(directory / "base", ["0", "1"], num_texts=1)
    files = {"train_file": directory / "train.tsv", "validation_file": directory / "dev.tsv"}
    options = {"max_seq_length": 16, "global_batch_size": 8, "max_steps": 6, "learning_rate": 5e-3}
    with undrawn():
        finetune(configured(model=directory / "base", output_dir=directory / "single", **files, **options))
    save_random(directory / "pairs", ["other", "same"], num_texts=2)
    save_random(directory / "scores", [], num_texts=1)
    copy_with(directory / "single", directory / "holed", {"bert.encoder.layer.0.output.dense.weight": None})
    copy_with(directory / "single", directory / "misshapen", {"bert.pooler.dense.bias": np.zeros(3, np.float32)})
    return directory


def copy_with(source, directory, changed):
    """A copy of a model with these tensors, by their names; None leaves one out."""
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns("checkpoints"))
    tensors = load_file(source / "model.safetensors") | changed
    tensors = {name: value for name, value in tensors.items() if value is not None}
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})


def save_random(directory, names, num_texts):
    """A 1-layer, hidden-32 model with random weights, as training saves one; no names for regression."""
    model = tiny_bert(num_labels=max(1, len(names)), num_hidden_layers=1, max_position_embeddings=160)
    model.config.problem_type = "single_label_classification" if names else "regression"
    model.config.id2label = dict(enumerate(names or ["LABEL_0"]))
    record_inputs(model.config, num_texts=num_texts, max_seq_length=16)
    save_pretrained(model, tokenizer_of(TOKENS), directory)


def save_with_nan(source, directory, word):
    """A copy of a model in which one word of WORDS is NaN."""
    name = "bert.embeddings.word_embeddings.weight"
    table = load_file(source / "model.safetensors")[name]
    table[(source / "vocab.txt").read_text(encoding="utf-8").splitlines().index(word)] = np.nan
    copy_with(source, directory, {name: table})


def reference_logits(model_directory, path, max_seq_length=16):
    """(labels, logits): transformers' own tokenizer and model on each row of a TSV file alone, cut as in training."""
    header, *rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    columns = [name for name in header if name.startswith("sentence")]
    texts = [[row[header.index(name)] for row in rows] for name in columns]
    labels = [row[header.index("label")] for row in rows] if "label" in header else None
    labels = [int(label) if label.isdigit() else label for label in labels] if labels else None
    return labels, reference_logits_of(model_directory, *texts, max_seq_length=max_seq_length)


@functools.cache
def reference_model(model_directory):
    """transformers' own tokenizer, and its model as a function; loaded once. The model is ours where transformers 5 is
    installed, which has none: tests/bert compares both."""
    import transformers

    library = transformers if hasattr(transformers, "TFBertMainLayer") else models
    model = library.TFBertForSequenceClassification.from_pretrained(model_directory)
    forward = tf.function(lambda inputs: model(inputs).logits, reduce_retracing=True, autograph=False)
    return transformers.BertTokenizerFast.from_pretrained(model_directory), forward


def reference_logits_of(model_directory, *texts, max_seq_length=16):
    """float32 `[n, num_labels]`: transformers' own tokenizer and model on each text or pair alone."""
    tokenizer, forward = reference_model(model_directory)
    out = []
    for row in zip(*texts, strict=True):
        encoded = tokenizer(*row, truncation=True, max_length=max_seq_length, return_tensors="np")
        out.append(forward({name: tf.constant(value, tf.int32) for name, value in encoded.items()}).numpy()[0])
    return np.array(out)


def label_names(model_directory):
    """In the order of the logits."""
    names = json.loads((model_directory / "config.json").read_text())["id2label"]
    return [names[str(i)] for i in range(len(names))]


def read_json(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


HOSTILE = [
    b"",
    b"   ",
    b"good " * 200_000,
    b"g\x00o\x01od\x7f \x1b[31mfilm",
    b"[SEP] good [CLS] film [PAD][UNK][MASK]",
    "👍🏽 good 🏳️‍🌈 film 👨‍👩‍👧".encode(),
    "good фильм 映画 영화 فيلم सिनेमा ภาพยนตร์".encode(),
    b"g\xffood \xc3( \xe4\xbd film\xf0\x9f",
    "go\u0301od ﬁlm \u202egood\u202c \u200bfilm \ufeff".encode(),
    b"x" * 5000,
]


_KEPT = {}
"""Models by the files that they are of, and what runs them on one device by model and batch."""


@contextlib.contextmanager
def kept_models():
    """Files that this process has loaded before, and traced, are not loaded and traced again."""
    build, predictor = saved_model.build_model, TrainedModel.predictor

    def kept_build(config, directory, *, head, max_seq_length, **options):
        call = functools.partial(build, config, directory, head=head, max_seq_length=max_seq_length, **options)
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            return call()  # Its variables are of a strategy that does not come again.
        files = tuple((p.name, p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(directory.iterdir()))
        key = (str(directory), files, head.kind, max_seq_length, keras.config.dtype_policy().name)
        if key not in _KEPT:
            _KEPT[key] = call()
        return _KEPT[key]

    def kept_predictor(model, strategy, rows_per_replica):
        key = (id(model.classifier), rows_per_replica)  # Of a model that is kept, so that its id is no other's.
        if not any(model.classifier is value for value in _KEPT.values()):
            return predictor(model, strategy, rows_per_replica)
        if key not in _KEPT:
            _KEPT[key] = predictor(model, strategy, rows_per_replica)
        return _KEPT[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "build_model", kept_build)
        patch.setattr(TrainedModel, "predictor", kept_predictor)
        yield


def predict_with(runs, model="single", *, data=None, **options):
    """`--mode=predict` of a model of `runs`, with the options by their names, and all those of `data`."""
    with kept_models():
        return predict(configured("predict", model=runs / model, **(vars(data) if data else {}), **options))


def model_with(label_names, task="classification", num_texts=1):
    """A model of which only the task matters."""
    task = Classification(tuple(label_names)) if task == "classification" else Regression()
    parts = {"classifier": None, "tokenizer": None, "task": task}
    return TrainedModel(name="model", num_texts=num_texts, max_seq_length=16, **parts)
