"""BERT's own heads: their logits where words are masked, against transformers' model; their weights in every format."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from tests.support.batches import make_examples, packed_batches, plain_batches, plan_of
from tests.support.bert_files import CONFIG, HIDDEN, VOCAB, Vocabulary, pytorch_tensors, write
from tests.support.models import tiny_bert
from tfbert.batches.plan import FILL
from tfbert.bert.models import TFBertForMaskedLM, TFBertForPreTraining, build_model
from tfbert.config.modes import SCRATCH_LAYOUTS, ModelConfig
from tfbert.errors import UsageError
from tfbert.model import weights
from tfbert.model.files import load_config
from tfbert.model.forward import forward_pretraining
from tfbert.model.head import Head

KINDS = {True: TFBertForPreTraining, False: TFBertForMaskedLM}
PREDICTIONS = 3


def build_pretraining(directory=None, *, next_sentence=True, seed=0, **options):
    config = ModelConfig(model_name_or_path=str(directory or "scratch/tiny"))
    head = Head(kind="PreTraining" if next_sentence else "MaskedLM")
    options = {"tokenizer": Vocabulary(), "head": head, "max_seq_length": 16} | options
    return build_model(config, directory, seed=seed, **options)


def masked_positions(lengths):
    """Places of each example, int32 `[n, PREDICTIONS]`."""
    rng = np.random.default_rng(4)
    return rng.integers(0, np.asarray(lengths)[:, None], (len(lengths), PREDICTIONS)).astype(np.int32)


@pytest.mark.parametrize("next_sentence", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "policy, tolerance", [("float32", 2e-5), pytest.param("mixed_bfloat16", 0.15, marks=pytest.mark.slow)]
)
def test_packed_logits_are_those_of_one_example_a_row_and_of_all_places(policy, tolerance, next_sentence):
    keras.config.set_dtype_policy(policy)
    model, examples = tiny_bert(kind=KINDS[next_sentence]), make_examples()
    plan = plan_of(examples)
    for rows, (inputs, _, _), (plain, _, _) in zip(
        plan.rows, packed_batches(examples, plan), plain_batches(examples, plan), strict=True
    ):
        positions = masked_positions(plain["attention_mask"].numpy().sum(axis=1))
        is_real = rows != FILL
        through = np.where(is_real[:, None], inputs["cls_positions"][:, None] + positions, 0)
        # Predictions that a record lacks read the first place of the micro-batch.
        through[::2, -1] = 0
        counts = np.ones(positions.shape, bool)
        counts[::2, -1] = False
        found = forward_pretraining(model, inputs | {"masked_lm_positions": tf.constant(through, tf.int32)}, False)
        expected = forward_pretraining(model, plain | {"masked_lm_positions": tf.constant(positions)}, False)
        assert found.keys() == expected.keys()
        assert all(np.isfinite(value.numpy().astype(np.float32)).all() for value in found.values())
        counted = counts & is_real[:, None]
        words = [tf.cast(outputs["masked_lm"], tf.float32).numpy()[counted] for outputs in (found, expected)]
        np.testing.assert_allclose(*words, atol=tolerance)
        if next_sentence:
            pairs = [tf.cast(outputs["next_sentence"], tf.float32).numpy()[is_real] for outputs in (found, expected)]
            np.testing.assert_allclose(*pairs, atol=tolerance)
        every = forward_pretraining(model, plain, False)
        at_places = tf.gather(every.pop("masked_lm"), positions, batch_dims=1)
        np.testing.assert_allclose(tf.cast(at_places, tf.float32).numpy()[counted], words[1], atol=tolerance)
        assert all(np.allclose(tf.cast(every[name] - expected[name], tf.float32), 0, atol=tolerance) for name in every)


# Weights.


def head_tensors():
    """Random weights of the heads as PyTorch has them, without the decoder's."""
    rng = np.random.default_rng(5)
    stem = "cls.predictions"
    shapes = {
        f"{stem}.bias": [VOCAB],
        f"{stem}.transform.dense.weight": [HIDDEN, HIDDEN],
        f"{stem}.transform.dense.bias": [HIDDEN],
        f"{stem}.transform.LayerNorm.weight": [HIDDEN],
        f"{stem}.transform.LayerNorm.bias": [HIDDEN],
        "cls.seq_relationship.weight": [2, HIDDEN],
        "cls.seq_relationship.bias": [2],
    }
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def assert_weights(model, tensors):
    found = weights.get_weights_dict(model)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_weights_of_pytorch_with_their_decoder(tmp_path, logged):
    tensors = pytorch_tensors(num_labels=0) | head_tensors()
    table = tensors["bert.embeddings.word_embeddings.weight"]
    second = {"cls.predictions.decoder.weight": table, "cls.predictions.decoder.bias": tensors["cls.predictions.bias"]}
    write(tmp_path, tensors | second, CONFIG | {"architectures": ["BertForPreTraining"]})
    assert_weights(build_pretraining(tmp_path), tensors)
    assert logged() == []

    # The bias by its second name alone, as some versions of transformers left it.
    renamed = {name: value for name, value in (tensors | second).items() if name != "cls.predictions.bias"}
    assert_weights(build_pretraining(write(tmp_path / "renamed", renamed, CONFIG)), tensors)


def test_a_decoder_of_its_own_is_left_aside(tmp_path, logged):
    tensors = pytorch_tensors(num_labels=0) | head_tensors()
    own = {"cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"] + 1}
    model = build_pretraining(write(tmp_path, tensors | own, CONFIG))
    new, *_ = logged()
    assert new.startswith("New weights, to be trained: cls.predictions.") and "seq_relationship" not in new
    assert new.endswith("(the decoder of the file's masked-word head is not its table of embeddings).")
    kept = weights.get_weights_dict(model)["cls.seq_relationship.weight"]
    np.testing.assert_array_equal(kept, tensors["cls.seq_relationship.weight"])


@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_missing_heads_are_new_and_said(tmp_path, prefix, logged):
    write(tmp_path, pytorch_tensors(num_labels=2, prefix=prefix) if prefix else pytorch_tensors(0, prefix=""), CONFIG)
    model = build_pretraining(tmp_path)
    new, *unused = logged()
    assert new.startswith("New weights, to be trained: ") and new.count("cls.") == 7
    assert new.endswith("(the file has no masked-word head; the file has no next-sentence head).")
    assert len(unused) == bool(prefix)
    found = weights.get_weights_dict(model)
    assert not found["cls.predictions.bias"].any()
    np.testing.assert_array_equal(found["cls.predictions.transform.LayerNorm.weight"], 1)
    assert found["cls.predictions.transform.dense.weight"].std() == pytest.approx(0.02, rel=0.1)
    with pytest.raises(UsageError, match="without a trained"):
        build_pretraining(tmp_path, require_head=True)


def test_a_head_of_another_vocabulary_is_refused(tmp_path):
    tensors = pytorch_tensors(num_labels=0) | head_tensors() | {"cls.predictions.bias": np.zeros(VOCAB - 1, np.float32)}
    with pytest.raises(UsageError, match=r"another shape of cls.predictions.bias \[39\] in place of \[40\]"):
        build_pretraining(write(tmp_path, tensors, CONFIG))


def test_masked_words_alone_need_no_pooler(tmp_path, logged):
    tensors = pytorch_tensors(num_labels=0) | head_tensors()
    encoder = {name: value for name, value in tensors.items() if "pooler" not in name and "seq_rel" not in name}
    model = build_pretraining(write(tmp_path, tensors, CONFIG), next_sentence=False)
    assert_weights(model, encoder)
    (unused,) = logged()
    assert "bert.pooler.* (2)" in unused and "cls.seq_relationship.* (2)" in unused
    # And back: what such a model lacks is new.
    model.save_pretrained(tmp_path / "masked_lm")
    assert load_config(tmp_path / "masked_lm").architectures == ["BertForMaskedLM"]
    assert not any("decoder" in name for name in load_file(tmp_path / "masked_lm" / "model.safetensors"))
    build_pretraining(tmp_path / "masked_lm")
    (new,) = logged()
    assert "bert.pooler.dense.weight" in new and new.endswith("(the file has no next-sentence head).")


def test_labels_of_a_classifier_are_not_kept(tmp_path):
    names = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}
    tensors = pytorch_tensors(num_labels=3)
    config = build_pretraining(write(tmp_path, tensors, CONFIG | names | {"tie_word_embeddings": False})).config
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1"} and config.num_labels == 2 and config.tie_word_embeddings


def test_the_24_miniatures_have_layouts():
    assert len(SCRATCH_LAYOUTS) == 6 + 24
    # Of Turc et al. 2019, table 1: 64 to a head.
    for name, (layers, hidden) in {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512)}.items():
        expected = (layers, hidden, hidden // 64)
        assert SCRATCH_LAYOUTS[f"L-{layers}_H-{hidden}"][:3] == expected == SCRATCH_LAYOUTS[name][:3]
    assert SCRATCH_LAYOUTS["L-12_H-768"][:3] == SCRATCH_LAYOUTS["base"][:3]
    (problem,) = ModelConfig(model_name_or_path="scratch/L-3_H-128").problems()
    assert "L-2_H-128 to L-12_H-768" in problem
