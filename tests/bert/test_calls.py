"""The ways in which scripts call a model, and what they do with its outputs; what is refused by name."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.bert import CLASSES, IDS, MASK, TEXTS, WIDTH, make, worst
from tests.support.processes import output_of
from tests.support.refusals import assert_refused

TYPES = TEXTS["token_type_ids"]


@pytest.fixture(scope="module")
def model():
    return make(num_hidden_layers=1)


def embedded(model):
    rest = {name: value for name, value in TEXTS.items() if name != "input_ids"}
    return {"inputs_embeds": tf.gather(model.bert.embeddings.weight.value, IDS)} | rest


CALLS = {
    "a dictionary": lambda model: model(TEXTS).logits,
    "a BatchEncoding": lambda model: model(collections.UserDict(TEXTS))["logits"],
    "keywords": lambda model: model(**TEXTS)[0],
    "by place": lambda model: model(IDS, MASK, TYPES)[0],
    "a tensor and keywords": lambda model: model(tf.constant(IDS), attention_mask=MASK, token_type_ids=TYPES)[0],
    "a list": lambda model: model([IDS, MASK, TYPES])[0],
    "a tuple": lambda model: model((IDS, tf.constant(MASK), TYPES))[0],
    "lists of numbers": lambda model: model(**{name: value.tolist() for name, value in TEXTS.items()}).logits,
    "a plain tuple back": lambda model: model(TEXTS, return_dict=False)[0],
    "unpacked, with labels": lambda model: [*model(TEXTS | {"labels": CLASSES})][1],
    "64 bits": lambda model: model({name: value.astype(np.int64) for name, value in TEXTS.items()}).logits,
    "a mask of truth values": lambda model: model(TEXTS | {"attention_mask": MASK > 0}).logits,
    "a mask of floats": lambda model: model(TEXTS | {"attention_mask": MASK.astype(np.float32)}).logits,
    "positions": lambda model: model(**TEXTS, position_ids=np.tile(np.arange(WIDTH), (len(IDS), 1))).logits,
    "embeddings": lambda model: model(embedded(model)).logits,
    "a dictionary by name": lambda model: model(input_ids=TEXTS).logits,
    "without __call__": lambda model: model.call(IDS, attention_mask=MASK, token_type_ids=TYPES).logits,
    "traced": lambda model: tf.function(model)(TEXTS).logits,
    "predict": lambda model: model.predict(collections.UserDict(TEXTS), verbose=0).logits,
    "in a functional model": lambda model: functional(model)([IDS, MASK, TYPES]),
}


def functional(model):
    inputs = [keras.Input([WIDTH], dtype="int32") for _ in TEXTS]
    return keras.Model(inputs, model(inputs[0], attention_mask=inputs[1], token_type_ids=inputs[2])[0])


@pytest.mark.parametrize("how", CALLS)
def test_a_model_is_called_in_any_way(model, how):
    assert worst(CALLS[how](model), model(TEXTS).logits) < 1e-6


def test_an_output_is_named_and_has_places_for_what_there_is(model):
    plain, more = model(TEXTS), model(TEXTS | {"labels": CLASSES}, output_hidden_states=True)
    assert plain.keys() == ("logits",) and more.keys() == ("loss", "logits", "hidden_states")
    assert plain.loss is None and plain.get("loss") is None and "loss" not in plain and "loss" in more
    assert len(more.hidden_states) == 2 and more.to_tuple()[1] is more["logits"] is more[1]
    assert dict(more).keys() == {*more.keys()} and worst(more[:2], (more.loss, more.logits)) == 0
    with pytest.raises(AttributeError, match="no 'logit'; it has logits"):
        _ = plain.logit


def test_the_inner_layer_is_called_as_the_model(model):
    bert = make("TFBertModel", num_hidden_layers=1)
    by_name = bert.bert(IDS, attention_mask=MASK, token_type_ids=TYPES)
    for outputs in (bert.bert(TEXTS), by_name, bert([IDS, MASK, TYPES])):
        assert worst(tuple(outputs), tuple(bert(TEXTS))) == 0
    assert model.bert.get_input_embeddings() is model.get_input_embeddings() and model.num_labels == 3
    assert bert.config.hidden_size == 32 and bert.base_model is bert.bert
    assert [layer.name for layer in model.layers] == ["bert", "dropout", "classifier"]
    assert model.bert.encoder.layer[0].attention.self_attention.query.kernel.shape == (32, 32)


REFUSED = {
    "head_mask": (lambda model: model(IDS, head_mask=np.ones([2, 2])), "Received: head_mask"),
    "past": (lambda model: model(TEXTS | {"past_key_values": IDS}), "Received: past_key_values"),
    "an unknown keyword": (lambda model: model(IDS, mask=MASK), "Received: mask. Leave it out"),
    "one row": (lambda model: model(IDS[0]), r"input_ids of shape \(9,\). Add a dimension: input_ids\[None\]"),
    "ragged": (lambda model: model([[1, 2], [3]]), "Tokenize and pad texts"),
    "a text": (lambda model: model([["a film"]]), "Tokenize and pad texts"),
    "a text alone": (lambda model: model("a film"), "Tokenize and pad texts"),
    "both": (lambda model: model(IDS, inputs_embeds=np.zeros([12, 9, 32])), "Received: input_ids, inputs_embeds"),
    "nothing": (lambda model: model(attention_mask=MASK), "Received: attention_mask. Pass one"),
    "a tokenizer's arguments": (
        lambda model: tfbert.BertTokenizer.from_pretrained("x", do_lower_case=True),
        "transformers",
    ),
    "a mask of pairs": (lambda model: model(IDS, np.ones([12, 9, 9])), "a shape of 3 dimensions"),
}


@pytest.mark.parametrize("call, line", REFUSED.values(), ids=REFUSED)
def test_what_is_not_carried_over_is_refused_by_name(model, call, line):
    assert_refused(line, call, model, kind=ValueError)


@pytest.mark.parametrize("is_lambda", [True, False])
def test_a_layer_of_tf_keras_which_would_not_train_the_model_is_refused(is_lambda):
    layers = pytest.importorskip("tf_keras").layers
    bert = make("TFBertModel", num_hidden_layers=1)

    class Within(layers.Layer):
        def call(self, ids):
            return bert.bert(ids)[0]

    layer = layers.Lambda(lambda ids: bert(ids)[1]) if is_lambda else Within()
    with pytest.raises(ValueError, match="called by a layer of tf_keras, which would leave it as it is. Write `import"):
        layer(IDS)


def test_columns_that_are_no_inputs_are_said_to_be_unused(model):
    with pytest.warns(match="offset_mapping") as caught:
        logits = model(TEXTS | {"offset_mapping": IDS}).logits
    assert len(caught) == 1
    assert worst(logits, model(TEXTS).logits) == 0


NAMES = {
    "BertTokenizerFast": "import BertTokenizerFast` and tokenizer",
    "DataCollatorForSeq2Seq": 'DataCollatorForSeq2Seq\\(..., return_tensors="np"\\)',
    "TFBertMainLayer": "`model.bert`",
    "TFDistilBertMainLayer": "`model.distilbert`",
    "TFElectraForPreTraining": "not its pre-training",
    "TFBertLayer": "`model.bert.encoder`",
    "TFBertLMHeadModel": "no decoder",
    "TFAutoModelWithLMHead": "TFAutoModelForMaskedLM",
    "TFBaseModelOutputWithPooling": "output.logits",
    "TFAlbertModel": "These encoders are here",
    "TFBertForSequenceClasification": "Did you mean TFBertForSequenceClassification",
    "shape_list": "tf.shape",
    "AutoModelForTokenClassification": "`from transformers import AutoModelForTokenClassification`",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_transformers_that_is_not_here_says_what_to_write(name):
    with pytest.raises(ImportError, match=f"Received: tfbert.{name}. .*{NAMES[name]}"):
        exec(f"from tfbert import {name}")
    assert name not in tfbert.__all__


@pytest.mark.slow
def test_nothing_of_transformers_or_tf_keras_is_imported(tmp_path):
    """Loading, a call, training, saving, exporting."""
    code = """
import sys
sys.modules |= dict.fromkeys(("transformers", "tf_keras"))
import tfbert
assert "tensorflow" not in sys.modules
from tests.support.bert import CLASSES, TEXTS, make
make(dropout=0.1).save_pretrained("saved")
model = tfbert.TFAutoModelForSequenceClassification.from_pretrained("saved")
tuner = tfbert.FineTuner(model, gradient_accumulation_steps=2)
tuner.compile(tfbert.AdamW(1e-3))
tuner.fit(TEXTS, CLASSES, verbose=0)
model.export("exported")
assert "torch" not in sys.modules
"""
    output_of(code, tmp_path, TF_USE_LEGACY_KERAS="0")  # transformers sets it where it was imported before.
