"""Models, tokenizers and `FineTuner` in other processes: forked, they say that they cannot; pickled, those compute that
can be."""

import copy
import os
import pickle
import signal

import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.either_keras import Either
from tests.support.models import random_batch
from tests.support.refusals import refused
from tests.support.runs import TOKENS, make_config

TEXTS = ["good film", "the plot was bad and very slow", ""]


def in_a_fork(function):
    """What the function raises in a forked process, as `Type: message`; what it returns otherwise."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)  # Else one that hangs would outlive the tests.
        try:
            said = repr(function())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return said


@pytest.fixture(scope="module")
def loaded(runs):
    model = tfbert.load(runs / "single")
    model(TEXTS)
    return model


def fine_tuner(either):
    options = {"gradient_accumulation_steps": 2, "optimizer": lambda: either.keras.optimizers.Adam(1e-3)}
    return either.build(lambda: either.bert(num_hidden_layers=1, dropout=0.1), **options)


def test_whatever_computes_says_at_once_that_it_was_forked(loaded, runs, corpus):
    tokenizer, model = tfbert.BertTokenizer(TOKENS), fine_tuner(Either("keras"))
    inputs, labels, _ = random_batch(4)
    calls = [
        lambda: loaded("good film"),
        lambda: tfbert.load(runs / "single"),
        lambda: tokenizer.encode(TEXTS, max_seq_length=8),
        lambda: tokenizer.encode_with_offsets(TEXTS),
        lambda: model.fit(inputs, labels, verbose=0),
        lambda: model.evaluate(inputs, labels, verbose=0),
        lambda: model.predict(inputs, verbose=0),
        lambda: tfbert.finetune(make_config(corpus, "out")),
        lambda: in_a_fork(lambda: loaded("good film")),
    ]
    for call in calls:
        said = in_a_fork(call)
        assert "UsageError: TensorFlow cannot compute in a process forked from one that has used it." in said, said
        assert 'get_context("spawn")' in said
    assert loaded("good film")["label"] in ("0", "1")  # Here it still can.


def test_a_copy_of_a_loaded_model_is_the_model_and_none_is_pickled(loaded):
    with refused(r"is not pickled\. Received: LoadedModel\(.*Pass its directory, and call tfbert"):
        pickle.dumps(loaded)
    assert copy.copy(loaded) is loaded
    assert copy.deepcopy({"a": loaded})["a"] is loaded


def test_a_tokenizer_that_was_used_is_pickled_and_copied():
    tokenizer = tfbert.BertTokenizer(TOKENS, do_lower_case=False, strip_accents=True, tokenize_chinese_chars=False)
    expected = tokenizer.encode(TEXTS, max_seq_length=8).flat
    tokenizer.encode_with_offsets(TEXTS)
    for other in (pickle.loads(pickle.dumps(tokenizer)), copy.copy(tokenizer), copy.deepcopy(tokenizer)):
        assert other == tokenizer and other.casing == tokenizer.casing
        np.testing.assert_array_equal(other.encode(TEXTS, max_seq_length=8).flat, expected)


@pytest.mark.slow
@pytest.mark.parametrize("is_fitted", [False, True])
@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_a_copied_fine_tuner_trains_as_the_original(name, is_fitted):
    inputs, labels, _ = random_batch(8)
    data = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(4)
    model = fine_tuner(Either(name))
    if is_fitted:
        model.fit(data, verbose=0)
    copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    losses = [each.fit(data, verbose=0).history["loss"] for each in (model, *copies)]
    assert losses[1:] == [pytest.approx(losses[0], rel=1e-6)] * 2
    for other in copies:
        for value, expected in zip(other.model.get_weights(), model.model.get_weights(), strict=True):
            np.testing.assert_allclose(value, expected, atol=1e-6)
