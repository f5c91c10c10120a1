"""Each encoder beside transformers 5 in PyTorch, from the same files: outputs, gradients, and files back again.

PyTorch computes in float64, as both sides' float32 rounds: of weights as large as these by up to 1e-5 each. Needs
PyTorch, transformers 5 and TensorFlow in one environment.
"""

import numpy as np
import pytest

from tests.support.batches import make_examples, packed_batches, plain_batches, plan_of
from tests.support.bert import worst
from tests.support.encoders import ALL, MASK, batch_of, gradients, make, real
from tests.support.models import VOCAB
from tfbert.bert.models import class_of
from tfbert.config.tables import ENCODERS
from tfbert.model.forward import forward, forward_tokens

pytestmark = pytest.mark.slow
MORE = [
    ("modernbert", {"classifier_pooling": "cls", "norm_bias": True, "attention_bias": True, "mlp_bias": True}),
    ("modernbert", {"num_hidden_layers": 5, "layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 2}),
    ("modernbert", {"hidden_activation": "silu", "classifier_activation": "relu", "classifier_bias": True}),
    ("electra", {"embedding_size": 32}),
    ("roberta", {"type_vocab_size": 1, "pad_token_id": 0}),
    ("distilbert", {"activation": "relu"}),
]


def theirs_of(model, directory):
    """transformers' model of the files that ours writes, in float64."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    torch.set_num_threads(1)
    model.save_pretrained(directory)
    theirs = getattr(transformers, type(model).__name__.removeprefix("TF"))
    other, said = theirs.from_pretrained(directory, output_loading_info=True)
    assert not any(said[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    return other.eval().double()


def outputs_of(other, inputs):
    import torch

    return other(**{name: torch.tensor(np.asarray(value)).long() for name, value in inputs.items()}).to_tuple()


def compared(model, tmp_path):
    """Outputs, gradients, each relative to the largest of a weight, and files."""
    other = theirs_of(model, tmp_path / "ours")
    inputs = batch_of(model)
    found, own_gradients = gradients(model, inputs)
    outputs = outputs_of(other, inputs)
    kept = [each[MASK > 0] if tuple(each.shape[:2]) == MASK.shape else each for each in outputs]
    sum((each**2).mean() for each in kept).backward()
    assert worst(real(model, found), real(model, [each.detach().numpy() for each in outputs])) < 1e-5
    prefix = f"{model.config.encoder.PREFIX}." if model.KIND == "Model" else ""
    named = {f"{prefix}{name}": each for name, each in other.named_parameters(remove_duplicate=False)}
    named = {name: each for name, each in named.items() if each.grad is not None}
    assert {id(each) for each in named.values()} == {id(named[name]) for name in own_gradients if name in named}
    named = {name: each.grad.numpy() for name, each in named.items()}
    for name, value in own_gradients.items():
        np.testing.assert_allclose(value, named.get(name, 0), atol=1e-5 * max(1, np.abs(value).max()), err_msg=name)
    other.float()
    for part, directory in ((other, "theirs"), (other.base_model, "base")):
        part.save_pretrained(tmp_path / directory)
    assert worst(type(model).from_pretrained(tmp_path / "theirs").get_weights(), model.get_weights()) == 0
    base = class_of(model.MODEL_TYPE, "Model").from_pretrained(tmp_path / "base")

    def shared(one):
        return [v for v in one.bert.weights if "token_embeddings" not in v.path and "pooler" not in v.path]

    assert worst(shared(base), shared(model)) == 0


@pytest.mark.parametrize("size", ["small", "other"])
@pytest.mark.parametrize("model_type, kind", ALL, ids=["-".join(each) for each in ALL])
def test_outputs_gradients_and_files_are_those_of_transformers(model_type, kind, size, tmp_path):
    compared(make(model_type, kind, size), tmp_path)


@pytest.mark.parametrize("kind", ["SequenceClassification", "MaskedLM", "MultipleChoice"])
@pytest.mark.parametrize("model_type, values", MORE)
def test_other_configurations_too(model_type, values, kind, tmp_path):
    if (model_type, kind) not in ALL:
        pytest.skip("there is no such class")
    compared(make(model_type, kind, **values), tmp_path)


LONG = [(name, {}) for name in ENCODERS] + [("modernbert", {"classifier_pooling": "cls", "local_attention": 128})]


@pytest.mark.parametrize("kind", ["SequenceClassification", "TokenClassification"])
@pytest.mark.parametrize("model_type, values", LONG)
def test_long_texts_padded_or_packed_are_each_alone(model_type, values, kind, tmp_path):
    """Texts of 3 to 300 tokens, several of them in a row: beside transformers' outputs of each text by itself."""
    model = make(model_type, kind, vocab_size=VOCAB, max_position_embeddings=302, **values)
    examples = make_examples(12, lengths=(300, 3, 130, 64, 65, 7, 128, 129, 200, 33, 4, 290))
    plan = plan_of(examples, max_width=300)
    compute = forward if kind == "SequenceClassification" else forward_tokens
    other, kept = theirs_of(model, tmp_path), 0
    pad = model.config.pad_token_id
    for packed, plain in zip(packed_batches(examples, plan, pad_id=pad), plain_batches(examples, plan), strict=True):
        rows, alone = compute(model, packed[0], False).numpy(), compute(model, plain[0], False).numpy()
        flat = rows.reshape(-1, rows.shape[-1])
        for i in np.flatnonzero(packed[2] > 0):
            length, place = int(plain[0]["attention_mask"][i].numpy().sum()), int(packed[0]["cls_positions"][i])
            inputs = {name: plain[0][name][i : i + 1, :length] for name in model.config.encoder.inputs}
            expected = outputs_of(other, inputs)[0].detach().numpy()[0]
            in_row = rows[i] if kind == "SequenceClassification" else flat[place : place + length]
            assert worst(in_row, expected) < 1e-5
            assert worst(alone[i] if kind == "SequenceClassification" else alone[i, :length], expected) < 1e-5
            kept += 1
    assert kept == 12 and packed[0]["input_ids"].shape[0] < 8
