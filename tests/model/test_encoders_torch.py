"""Each encoder beside transformers 5 in PyTorch, from the same files: outputs, gradients, and files back again."""

import numpy as np
import pytest

from tests.support.bert import worst
from tests.support.encoders import ALL, MASK, batch_of, gradients, make, real
from tfbert.bert.models import class_of

pytestmark = pytest.mark.slow
MORE = [
    ("modernbert", {"classifier_pooling": "cls", "norm_bias": True, "attention_bias": True, "mlp_bias": True}),
    ("modernbert", {"num_hidden_layers": 5, "layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 2}),
    ("modernbert", {"hidden_activation": "silu", "classifier_activation": "relu", "classifier_bias": True}),
    ("electra", {"embedding_size": 32}),
    ("roberta", {"type_vocab_size": 1, "pad_token_id": 0}),
    ("distilbert", {"activation": "relu"}),
]


def compared(model, tmp_path):
    """The largest differences of outputs and of gradients, relative to the largest of both."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    torch.set_num_threads(1)
    model.save_pretrained(tmp_path / "ours")
    theirs = getattr(transformers, type(model).__name__.removeprefix("TF"))
    other, said = theirs.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(said[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    inputs = batch_of(model)
    found, own_gradients = gradients(model, inputs)
    outputs = other.eval()(**{name: torch.tensor(value).long() for name, value in inputs.items()}).to_tuple()
    is_token = torch.tensor(MASK > 0)
    kept = [each[is_token] if tuple(each.shape[:2]) == MASK.shape else each for each in outputs]
    sum((each**2).mean() for each in kept).backward()
    expected = [each.detach().numpy() for each in outputs]
    assert worst(real(model, found), real(model, expected)) < 1e-5
    prefix = f"{model.config.encoder.PREFIX}." if model.KIND == "Model" else ""
    named = {f"{prefix}{name}": each for name, each in other.named_parameters(remove_duplicate=False)}
    named = {name: each for name, each in named.items() if each.grad is not None}
    assert {id(each) for each in named.values()} == {id(named[name]) for name in own_gradients if name in named}
    named = {name: each.grad.numpy() for name, each in named.items()}
    for name, value in own_gradients.items():
        np.testing.assert_allclose(value, named.get(name, 0), atol=1e-5 * max(1, np.abs(value).max()), err_msg=name)
    for part, directory in ((other, "theirs"), (other.base_model, "base")):
        part.save_pretrained(tmp_path / directory)
    again = type(model).from_pretrained(tmp_path / "theirs")
    assert worst(again.get_weights(), model.get_weights()) == 0
    base = class_of(model.MODEL_TYPE, "Model").from_pretrained(tmp_path / "base")
    parts = ("token_embeddings", "pooler")
    assert (
        worst(
            [v for v in base.bert.weights if not any(part in v.path for part in parts)],
            [v for v in model.bert.weights if not any(part in v.path for part in parts)],
        )
        == 0
    )


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
