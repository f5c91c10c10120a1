"""Whole runs: a small corpus and its configuration, what a run leaves, and ways to disturb it."""

import contextlib
import dataclasses
import functools
import gc
import json
import os
import pathlib
import signal
import tempfile
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file
from tensorflow.python.framework.func_graph import FuncGraph

from tests.support.flag_values import configured
from tests.support.models import VOCAB, tiny_bert
from tfbert import Preempted
from tfbert.model.head import save_pretrained
from tfbert.model.weights import write_weights
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.train.checkpoint import MODEL, Checkpoints, RunState
from tfbert.train.fit import Progress
from tfbert.train.run import finetune

WORDS = ["good", "bad", "not", "very", "dull", "fine", "plot", "cast", "the", "a", "was", "film", "slow", "bright"]


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def tokenizer_of(tokens):
    """As many tokens as small models have, these first."""
    return BertTokenizer(tokens + [f"[unused{i}]" for i in range(VOCAB - len(tokens))])


def save_encoder(tokens, directory):
    """A pretrained BERT for these tokens: 1 layer, for what no depth changes; no head yet."""
    save_pretrained(tiny_bert(dropout=0.1, num_hidden_layers=1), tokenizer_of(tokens), directory)
    encoder = {name: value for name, value in weights(directory).items() if name.startswith("bert.")}
    write_weights(encoder, directory / MODEL)


@functools.cache
def _encoder_files():
    """Its files for WORDS, name -> content."""
    with tempfile.TemporaryDirectory() as name:
        save_encoder(TOKENS, pathlib.Path(name))
        return {path.name: path.read_bytes() for path in pathlib.Path(name).iterdir()}


def write_corpus(directory):
    """Files of 44 training and 12 validation rows, a vocabulary, and a small `model` to begin with."""
    rng = np.random.default_rng(0)
    for name, rows in (("train.tsv", 44), ("dev.tsv", 12)):
        lines = ["label\tsentence"]
        lines += [f"{i % 2}\t{' '.join(rng.choice(WORDS, rng.integers(3, 9)))}" for i in range(rows)]
        (directory / name).write_text("\n".join(lines) + "\n")
    (directory / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    (directory / "model").mkdir()
    for name, content in _encoder_files().items():
        (directory / "model" / name).write_bytes(content)


def make_config(corpus, name, **runtime):
    """Two epochs of 6 updates: mid-epoch at every odd place, dropout on, the last batch of an epoch short."""
    files = {"model": corpus / "model", "train_file": corpus / "train.tsv", "validation_file": corpus / "dev.tsv"}
    sizes = {"max_seq_length": 16, "global_batch_size": 8, "num_train_epochs": 2, "gradient_accumulation_steps": 2}
    steps = {"learning_rate": 5e-4, "save_steps": 3, "eval_steps": 2, "logging_steps": 1}
    return configured(output_dir=corpus / name, **files, **sizes, **steps, **runtime)


TIMES = ("train_runtime", "train_s", "train_examples", "train_tokens", "train_model", "step_seconds", "compile_seconds")
TIMES += ("data_wait_share", "peak_memory", "checkpoint", "train_user", "train_kernel", "eval_runtime", "eval_s")
"""How results begin that are times, or follow from them."""


def weights(directory):
    return load_file(pathlib.Path(directory) / "model.safetensors")


def assert_same_bits(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value.view(np.uint8), second[name].view(np.uint8), err_msg=name)


def stop_at(monkeypatch, step):
    """Sends this process a real signal while the run is at `step`."""
    original = Progress.on_step

    def on_step(self, now):
        original(self, now)
        if now == step:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Progress, "on_step", on_step)


def run_to(step, config, monkeypatch):
    """Runs until a signal stops it at `step`; returns what is said then."""
    with monkeypatch.context() as patch:
        stop_at(patch, step)
        with pytest.raises(Preempted, match=f"after step {step} of ") as stopped:
            finetune(config)
    return str(stopped.value)


def checkpoints_in(tmp_path, keep=0):
    """Checkpoints of hardly anything, and a function that saves one."""

    def save_model(path):
        write_weights({"w": np.ones(3, np.float32)}, path / MODEL)

    checkpoints = Checkpoints(directory=tmp_path / "checkpoints", is_writer=True, keep=keep, save_model=save_model)
    optimizer = types.SimpleNamespace(variables=[tf.Variable(1.0)])
    model = types.SimpleNamespace(optimizer=optimizer, counters=types.SimpleNamespace())

    def save(step, best_step=0, identity=None, without_better=0):
        best = {"eval_loss": 1.0} if best_step else {}
        of_evaluation = {"best": best, "best_step": best_step, "without_better": without_better}
        state = RunState(step=step, identity=identity or {}, **of_evaluation)
        return checkpoints.save(model, state)

    return checkpoints, save


def traced():
    """The graphs of this process that hold a variable."""
    while gc.collect():  # What one pass finalises may leave garbage for the next.
        pass
    graphs = [found for found in gc.get_objects() if isinstance(found, FuncGraph)]
    return sum(1 for graph in graphs if any(tensor.dtype == tf.resource for tensor in graph.external_captures))


@contextlib.contextmanager
def nothing_kept():
    """What happens in the block leaves no graph."""
    before = traced()
    yield
    assert traced() <= before, "fewer where an earlier test's garbage went meanwhile"


def flipped(path, every=1):
    """The file with each of its bytes, or every so many, changed in turn."""
    original = path.read_bytes()
    for place in range(0, len(original), every):
        path.write_bytes(original[:place] + bytes([original[place] ^ 1 << place % 8]) + original[place + 1 :])
        yield place
    path.write_bytes(original)


def undrawn(write=lambda directory, results: None):
    """Runs of this process draw no report, which takes seconds; all else that they leave is there."""
    return mock.patch("tfbert.report.pages.write_report", write)


def sketched():
    """Runs of this process leave an empty page where and when they would draw a report."""
    return undrawn(lambda directory, results: (directory / "report.html").touch())


def changed(config, **parts):
    """`config` with fields replaced: `training={"max_steps": 2}`."""
    replaced = {name: dataclasses.replace(getattr(config, name), **values) for name, values in parts.items()}
    return dataclasses.replace(config, **replaced)


def steps_logged(directory):
    """The last update in the log; 0 before the first."""
    try:
        return max((json.loads(line)["step"] for line in (directory / "log.jsonl").read_text().splitlines()), default=0)
    except (OSError, ValueError):  # Not there yet, or a line half written.
        return 0


def log_of(directory, kind):
    """The records of a kind in the log, in order."""
    records = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == kind]


def limit_memory(patch, tokens, tries=None):
    """Makes a step fail that computes a micro-batch of more tokens; TensorFlow raises ResourceExhaustedError for it."""
    original = FineTuner._accumulate

    def allocate(shape):
        if tries is not None:
            tries.append(tuple(shape.numpy().tolist()))
        if np.prod(shape) > tokens:
            raise MemoryError("no room")
        return 0

    def accumulate(self, inputs, *others):
        ids = inputs["input_ids"]
        with tf.control_dependencies([tf.py_function(allocate, [tf.shape(ids)[-2:]], tf.int32)]):
            inputs = inputs | {"input_ids": tf.identity(ids)}
        return original(self, inputs, *others)

    patch.setattr(FineTuner, "_accumulate", accumulate)
