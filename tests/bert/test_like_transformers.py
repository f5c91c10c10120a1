"""Each class beside transformers 4.54's TensorFlow class of the same name: outputs, losses, gradients, files."""

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.support import encoders
from tests.support.bert import CLASSES as LABELS_OF_TEXTS
from tests.support.bert import KINDS, SIZES, TEXTS, worst
from tests.support.cases import slow
from tests.support.models import randomize
from tests.support.transformers_4 import transformers_4
from tfbert.bert import models
from tfbert.bert.models import CLASSES
from tfbert.model.weights import pytorch_name

ANOTHER = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}
REGRESSION = (ANOTHER | {"num_labels": 1}, TEXTS, {"labels": LABELS_OF_TEXTS.astype(np.float32) / 2})


def flat(kind):
    """One layer, for what no depth changes."""
    values, *rest = KINDS[kind]
    return kind, kind, (values | {"num_hidden_layers": 1}, *rest)


CASES = [
    *(flat(kind) for kind in KINDS if kind not in ("TFBertModel", "TFBertForMaskedLM")),
    slow(*flat("TFBertForMaskedLM")),  # TFBertForPreTraining has its head too.
    ("another activation and epsilon", "TFBertModel", (ANOTHER, TEXTS, {})),
    slow("regression", "TFBertForSequenceClassification", REGRESSION),
]
for name in ("gelu_fast", "gelu_10", "quick_gelu", "relu"):
    CASES.append(slow(name, "TFBertModel", (ANOTHER | {"hidden_act": name}, TEXTS, {})))


def theirs(kind, config):
    model = transformers_4(kind)(config)
    model.build_in_name_scope()
    randomize(model.weights, seed=1)
    return model


def differentiated(model, inputs, variables):
    """Outputs, and gradients of their mean loss by name; of a model without one, of its outputs' squares."""
    with tf.GradientTape() as tape:
        outputs = model(inputs, output_hidden_states=True, output_attentions=True)
        own = getattr(outputs, "loss", None)
        loss = tf.reduce_mean(outputs[0] ** 2 if own is None else own)
    named = zip(variables, tape.gradient(loss, list(variables.values())), strict=True)
    return outputs, {name: tf.convert_to_tensor(grad).numpy() for name, grad in named if grad is not None}


@pytest.mark.parametrize("name, kind, case", CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_outputs_losses_gradients_and_files_are_those_of_transformers(name, kind, case, tmp_path):
    values, inputs, labels = case
    before = theirs(kind, transformers.BertConfig(**SIZES | values))
    before.save_pretrained(tmp_path / "theirs")  # tf_model.h5.
    model = getattr(models, kind).from_pretrained(tmp_path / "theirs")

    variables = {pytorch_name(v.name.partition("/")[2])[0]: v for v in before.trainable_variables}
    expected, expected_grads = differentiated(before, inputs | labels, variables)
    variables = {pytorch_name(v.path.partition("/")[2])[0]: v.value for v in model.trainable_variables}
    found, grads = differentiated(model, inputs | labels, variables)
    assert tuple(expected.keys()) == found.keys()
    for part in found.keys():  # noqa: SIM118 (it is no dict)
        assert worst(found[part], expected[part]) < 2e-6, part
    assert np.shape(found[0]) == np.shape(expected[0])
    assert grads.keys() == expected_grads.keys()
    for part, grad in grads.items():
        np.testing.assert_allclose(grad, expected_grads[part], atol=1e-6, err_msg=part)

    model.save_pretrained(tmp_path / "ours")
    after = transformers_4(kind).from_pretrained(tmp_path / "ours")
    without = model(inputs)  # Only the part of the last layer that is read.
    assert worst(tuple(without), tuple(after(inputs).to_tuple())) < 2e-6
    assert worst(type(model).from_pretrained(tmp_path / "ours").get_weights(), model.get_weights()) == 0


QUICK = [("electra", "SequenceClassification"), ("distilbert", "MaskedLM"), ("roberta", "MaskedLM")]
OF_H5 = [slow("electra", "SequenceClassification", {"embedding_size": 32})]
for each in CLASSES:
    if each[0] not in ("bert", "modernbert") and each[1] in ("SequenceClassification", "MaskedLM"):
        OF_H5.append((*each, {}) if each in QUICK else slow(*each, {}))


@pytest.mark.parametrize("model_type, kind, values", OF_H5)
def test_other_encoders_read_what_transformers_saved_in_tensorflow(model_type, kind, values, tmp_path):
    ours = encoders.make(model_type, kind, **values)
    own = ours.config.to_dict() | {"classifier_dropout": None}  # Another ends in an AttributeError of their ELECTRA.
    config = getattr(transformers, type(ours.config).__name__).from_dict(own)
    before = theirs(type(ours).__name__, config)
    before.save_pretrained(tmp_path)  # tf_model.h5.
    inputs = encoders.batch_of(ours)
    found, expected = type(ours).from_pretrained(tmp_path)(inputs).logits, before(inputs).logits
    assert worst(encoders.real(ours, found), encoders.real(ours, expected)) < 5e-6
