"""Tiny taggers and question answerers with random weights, exports, and a process that knows TensorFlow alone."""

import contextlib
import json
import os
import subprocess
import sys
import threading

import keras
import numpy as np
import tensorflow as tf

from tests.support.flag_values import configured
from tests.support.models import SIZES
from tests.support.processes import QUICK_START
from tests.support.texts import VOCAB
from tfbert.bert import models
from tfbert.model.files import BertConfig, record_inputs
from tfbert.model.head import save_pretrained
from tfbert.modes.export import export
from tfbert.tasks.prediction import TrainedModel
from tfbert.tokens.tokenizer import BertTokenizer

_CLEAN = """
import functools, json
import numpy as np, tensorflow as tf, tensorflow_text
assert tf.strings.lower("I", encoding="utf-8").numpy().decode() == "ı", "the locale should count here"
load = functools.cache(tf.saved_model.load)
for line in sys.stdin:
    job = json.loads(line)
    loaded = load(job["directory"])
    signature = loaded.signatures[job["signature"]]
    kind = tf.int32 if job["signature"] == "token_ids" else tf.string
    revive = (lambda v: v) if kind == tf.int32 else (lambda v: [text.encode("latin-1") for text in v])
    inputs = {name: tf.constant(revive(value), kind, job["shape"]) for name, value in job["inputs"].items()}
    outputs = {name: value.numpy() for name, value in signature(**inputs).items()}
    heavy = {"tfbert", "transformers", "keras_nlp", "torch"} & set(sys.modules)
    assert not heavy, heavy
    decode = np.vectorize(bytes.decode, otypes=[object])
    outputs = {k: (decode(v) if v.dtype == object else v).tolist() for k, v in outputs.items()}
    print(json.dumps({"signatures": sorted(loaded.signatures)} | outputs), flush=True)
"""
_SECONDS = 300.0
"""An answer may take; reads have no limit of their own."""


@contextlib.contextmanager
def clean_process(directory):
    """A function: exported models' answers, from a process that knows TensorFlow and tensorflow_text alone.

    Its locale is Turkish, which must not count: there, TensorFlow's own `lower` makes another letter of I.
    """

    def ask(model, signature="serving_default", **inputs):
        if signature != "token_ids":
            inputs = {name: [text.decode("latin-1") for text in texts] for name, texts in inputs.items()}
        shape = np.shape(next(iter(inputs.values())))
        job = {"directory": str(model), "signature": signature, "inputs": inputs, "shape": list(shape)}
        guard = threading.Timer(_SECONDS, process.kill)
        guard.start()
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            guard.cancel()
        assert answer, (directory / "errors").read_text()
        return json.loads(answer)

    with (directory / "errors").open("w") as errors:
        command, pipe = [sys.executable, "-I", "-c", QUICK_START + _CLEAN], subprocess.PIPE
        environment = os.environ | {"LC_ALL": "tr_TR.UTF-8", "CUDA_VISIBLE_DEVICES": ""}
        streams = {"stdin": pipe, "stdout": pipe, "stderr": errors, "text": True, "encoding": "utf-8"}
        process = subprocess.Popen(command, cwd=directory, env=environment, **streams)
    try:
        yield ask
    finally:
        process.kill()
        process.communicate()


def export_of(runs, model, directory, *, overwrite=False, **options):
    """Exports a model of `runs`, by its name, or one elsewhere, by its path."""
    output = {"output_dir": directory, "overwrite_output_dir": overwrite}
    return export(configured("export", model=runs / model, **output, **options))


def random_model(task, *, num_texts, max_seq_length, seed=1, tokens=VOCAB, **rates):
    """A 1-layer, hidden-32 model with random weights, large enough for its answers to differ, over `texts.VOCAB`."""
    keras.utils.set_random_seed(seed)
    sizes = SIZES | {"vocab_size": len(tokens), "num_hidden_layers": 1, "initializer_range": 0.3}
    config = BertConfig(**sizes, **rates)
    task.head().describe_in(config)
    model = models.class_of("bert", task.head().kind)(config)
    record_inputs(model.config, num_texts=num_texts, max_seq_length=max_seq_length, **task.notes())
    parts = {"classifier": model, "tokenizer": BertTokenizer(tokens), "task": task}
    return TrainedModel(name="random", num_texts=num_texts, max_seq_length=max_seq_length, **parts)


def answers_of(signature, **texts):
    """What a signature of an exported model, or a function of one that is to be exported, says of texts."""
    found = signature(**{name: tf.constant(values, tf.string) for name, values in texts.items()})
    return {name: values.numpy() for name, values in found.items()}


def random_ids():
    """Inputs of token ids: three rows of up to nine, over `texts.VOCAB`."""
    ids = np.random.default_rng(0).integers(5, len(VOCAB), (3, 9)).astype(np.int32)
    mask = (np.arange(9) < np.array([[9], [4], [1]])).astype(np.int32)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def save(model, directory):
    """As training saves one."""
    save_pretrained(model.classifier, model.tokenizer, directory)
    return directory
