"""Each class beside transformers 4.54's TensorFlow class of the same name: outputs, losses, gradients, files."""

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.support import encoders
from tests.support.bert import CLASSES as LABELS_OF_TEXTS
from tests.support.bert import KINDS, SIZES, TEXTS, worst
from tests.support.transformers_4 import transformers_4
from tfbert.bert import models
from tfbert.bert.models import CLASSES
from tfbert.model.weights import pytorch_name

SLOW = pytest.mark.slow
ANOTHER = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}
REGRESSION = (ANOTHER | {"num_labels": 1}, TEXTS, {"labels": LABELS_OF_TEXTS.astype(np.float32) / 2})


def flat(kind):
    """One layer, for what no depth changes."""
    values, *rest = KINDS[kind]
    return kind, kind, (values | {"num_hidden_layers": 1}, *rest)


CASES = [
    *(flat(kind) for kind in KINDS if kind not in ("TFBertModel", "TFBertForMaskedLM")),
    pytest.param(*flat("TFBertForMaskedLM"), marks=SLOW),  # TFBertForPreTraining has its head too.
    ("another activation and epsilon", "TFBertModel", (ANOTHER, TEXTS, {})),
    pytest.param("regression", "TFBertForSequenceClassification", REGRESSION, marks=SLOW),
    *(
        pytest.param(name, "TFBertModel", (ANOTHER | {"hidden_act": name}, TEXTS, {}), marks=SLOW)
        for name in ("gelu_fast", "gelu_10", "quick_gelu", "relu")
    ),
]


def theirs(kind, values):
    model = transformers_4(kind)(transformers.BertConfig(**SIZES | values))
    model.build_in_name_scope()
    rng = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(rng.normal(0, 0.2, variable.shape).astype(np.float32))
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
    before = theirs(kind, values)
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
    again = getattr(models, kind).from_pretrained(tmp_path / "ours")
    assert worst(again.get_weights(), model.get_weights()) == 0


OF_H5 = [("electra", "SequenceClassification", {}), ("distilbert", "MaskedLM", {}), ("roberta", "MaskedLM", {})]


@pytest.mark.parametrize(
    "model_type, kind, values",
    [*OF_H5, pytest.param("electra", "SequenceClassification", {"embedding_size": 32}, marks=SLOW)]
    + [
        pytest.param(name, kind, {}, marks=SLOW)
        for name in ("distilbert", "electra", "roberta", "xlm-roberta", "camembert")
        for kind in ("SequenceClassification", "MaskedLM")
        if (name, kind) in CLASSES and (name, kind, {}) not in OF_H5
    ],
)
def test_other_encoders_read_what_transformers_saved_in_tensorflow(model_type, kind, values, tmp_path):
    ours = encoders.make(model_type, kind, **values)
    config = getattr(transformers, type(ours.config).__name__).from_dict(
        ours.config.to_dict() | {"classifier_dropout": None}  # Another ends in an AttributeError of their ELECTRA.
    )
    before = transformers_4(type(ours).__name__)(config)
    before.build_in_name_scope()
    rng = np.random.default_rng(1)
    for variable in before.weights:
        variable.assign(rng.normal(0, 0.2, variable.shape).astype(np.float32))
    before.save_pretrained(tmp_path)  # tf_model.h5.
    inputs = encoders.batch_of(ours)
    found, expected = type(ours).from_pretrained(tmp_path)(inputs).logits, before(inputs).logits
    assert worst(encoders.real(ours, found), encoders.real(ours, expected)) < 5e-6
