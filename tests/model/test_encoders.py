"""Each encoder: beside a BERT with the same weights, beside NumPy, packed, in part, its files and what it refuses.

`test_encoders_torch` compares all of them with transformers in PyTorch.
"""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import tfbert
from tests.support.batches import make_examples, packed_batches, plain_batches, plan_of
from tests.support.bert import worst
from tests.support.cases import quick, slow
from tests.support.encoders import ALL, MASK, VOCAB, batch_of, config_of, make
from tests.support.models import VOCAB as VOCAB_OF_EXAMPLES
from tests.support.models import variables_of
from tests.support.refusals import assert_refused
from tfbert.bert.models import class_of
from tfbert.config.tables import ENCODERS
from tfbert.measure import Work, forward_flops
from tfbert.model.files import BertConfig, load_config
from tfbert.model.forward import Seen, encode, forward, forward_tokens
from tfbert.model.weights import get_weights_dict

OTHERS = [name for name in ENCODERS if name != "bert"]
QUICK = ("roberta", "modernbert")
"""Others share RoBERTa's class, or are like BERT."""


def test_modernbert_is_what_its_paper_says_in_numpy():
    """Two layers, the second of which attends to tokens at most four places away; float64."""
    model = make("modernbert", "TokenClassification", mlp_bias=True)
    inputs, w = batch_of(model), {name: value.astype(np.float64) for name, value in get_weights_dict(model).items()}
    heads, size = 2, 16

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"]

    def gelu(x):
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))

    def turned(x, theta):  # Each pair of numbers as one complex number, times e to the i angle.
        angle = np.arange(x.shape[1])[:, None] * theta ** (-np.arange(0, size, 2) / size)
        pairs = (x[..., : size // 2] + 1j * x[..., size // 2 :]) * np.exp(1j * angle)[None, :, None]
        return np.concatenate([pairs.real, pairs.imag], -1)

    x = norm(w["model.embeddings.tok_embeddings.weight"][inputs["input_ids"]], "model.embeddings.norm")
    for layer, theta in enumerate((160_000.0, 10_000.0)):
        p = f"model.layers.{layer}"
        before = norm(x, f"{p}.attn_norm") if layer else x
        projected = np.split(before @ w[f"{p}.attn.Wqkv.weight"].T, 3, -1)
        q, k, v = (each.reshape(*each.shape[:2], heads, size) for each in projected)
        scores = np.einsum("bqhd,bkhd->bhqk", turned(q, theta), turned(k, theta)) / np.sqrt(size)
        places = np.arange(MASK.shape[1])
        seen = (MASK > 0)[:, None, None] & ((np.abs(places[:, None] - places) <= 4) | (layer == 0))
        shares = np.exp(np.where(seen, scores, -np.inf) - scores.max())
        shares = np.nan_to_num(shares / np.maximum(shares.sum(-1, keepdims=True), 1e-300))
        x = x + np.einsum("bhqk,bkhd->bqhd", shares, v).reshape(x.shape) @ w[f"{p}.attn.Wo.weight"].T
        wide = norm(x, f"{p}.mlp_norm") @ w[f"{p}.mlp.Wi.weight"].T + w[f"{p}.mlp.Wi.bias"]
        inner, gate = np.split(wide, 2, -1)
        x = x + (gelu(inner) * gate) @ w[f"{p}.mlp.Wo.weight"].T + w[f"{p}.mlp.Wo.bias"]
    x = norm(gelu(norm(x, "model.final_norm") @ w["head.dense.weight"].T), "head.norm")
    expected = x @ w["classifier.weight"].T + w["classifier.bias"]
    assert worst(model(inputs).logits.numpy()[MASK > 0], expected[MASK > 0]) < 1e-5


def with_pads(examples, pad):
    """The same texts, in some of which the padding token is written."""
    flat = examples.tokens.flat.copy()
    flat[3::11] = pad
    return dataclasses.replace(examples, tokens=dataclasses.replace(examples.tokens, flat=flat))


@pytest.mark.parametrize("model_type", quick(OTHERS, *QUICK))  # Which attend as BERT does.
def test_packed_rows_and_parts_of_the_last_layer_give_what_whole_rows_give(model_type):
    pools = [{"classifier_pooling": pooling} for pooling in ("cls", "mean")]
    for values in pools if model_type == "modernbert" else [{}]:
        model = make(model_type, vocab_size=VOCAB_OF_EXAMPLES, max_position_embeddings=64, **values)
        pad = model.config.pad_token_id
        examples = with_pads(make_examples(19), pad)
        plan = plan_of(examples)
        packed, plain = packed_batches(examples, plan, pad_id=pad)[0], plain_batches(examples, plan)[0]
        is_real = (packed[2] > 0).numpy()
        expected = model({name: plain[0][name] for name in model.config.encoder.inputs}, output_hidden_states=True)
        assert worst(forward(model, packed[0], False)[is_real], expected.logits[is_real]) < 5e-6
        assert worst(forward(model, plain[0], False), expected.logits) < 5e-6
        for inputs in (packed[0], plain[0]):
            shape = inputs["input_ids"].shape
            firsts = inputs.get("cls_positions", tf.zeros(shape[:1], tf.int32))
            places = tf.stack([firsts, firsts + 1], axis=1)
            found = encode(model.bert, inputs, False, reads=places)
            every = encode(model.bert, inputs, False)
            flat = tf.reshape(every, [-1, every.shape[-1]])
            rows = 0 if "cls_positions" in inputs else tf.range(shape[0])[:, None] * shape[1]
            assert worst(found[is_real], tf.gather(flat, places + rows)[is_real]) < 5e-6


NEAR = [(0, 5, True, True), (4, 41, False, True)]
NEAR += [slow(1, 41, True, False), slow(4, 41, False, False), slow(4, 16, True, False)]


@pytest.mark.parametrize("xla", [False, slow(True)])
@pytest.mark.parametrize("window, width, is_packed, is_known", NEAR)
def test_near_attention_by_blocks_is_that_of_whole_rows(window, width, is_packed, is_known, xla):
    """Rows of a block, and of several the last of which is not full; padded and packed; in a graph that knows their
    width or not. Whole rows are computed where all shares of attention are kept."""
    ids = np.random.default_rng(0).integers(2, VOCAB, (3, width)).astype(np.int32)
    places = np.arange(width) - (np.arange(width) >= 13) * 13
    examples = ((np.arange(width) >= 13) + 1 + 2 * np.arange(3)[:, None]) * (np.arange(width) < [[width], [3], [30]])
    is_real = examples > 0
    inputs = {"input_ids": ids, "attention_mask": is_real.astype(np.int32)}
    if is_packed:
        inputs = {"input_ids": ids, "example_ids": examples, "position_ids": np.tile(places, (3, 1))}
    inputs = {name: tf.constant(value, tf.int32) for name, value in inputs.items()}
    kinds = ["full_attention", "sliding_attention"]
    values = {"local_attention": 2 * window, "layer_types": kinds, "num_hidden_layers": 2, "norm_bias": True}
    model = make("modernbert", "TokenClassification", max_position_embeddings=64, **values)

    def gradients(inputs, seen=None):
        with tf.GradientTape() as tape:
            logits = tf.where(is_real[..., None], forward_tokens(model, inputs, True, seen=seen), 0.0)
            loss = tf.reduce_mean(logits**2)
        return logits, [tf.convert_to_tensor(each) for each in tape.gradient(loss, variables_of(model))]

    spec = {name: tf.TensorSpec([None, width if is_known else None], tf.int32) for name in inputs}
    blocks = tf.function(gradients, [spec], autograph=False, jit_compile=xla)(inputs)
    logits, grads = gradients(inputs, seen := Seen([], []))
    assert {each.shape for each in seen.attentions} == {(3, 2, width, width)}
    largest = max(np.abs(each).max() for each in grads)
    distances = worst(blocks[0], logits) / np.abs(logits).max(), worst(blocks[1], grads) / largest
    # XLA rounds otherwise, in a row of one block too. Eight roundings of the largest logit are 4.8e-7 of it.
    assert distances[0] < (5e-6 if xla else 8 * 2**-24) and distances[1] < (5e-6 if xla else 1e-6), distances


NAMES = {
    "distilbert": "distilbert.transformer.layer.1.ffn.lin1.weight pre_classifier.bias classifier.weight",
    "electra": "electra.embeddings_project.weight electra.encoder.layer.1.attention.self.key.bias "
    "classifier.out_proj.weight",
    "roberta": "roberta.encoder.layer.1.output.LayerNorm.weight classifier.dense.weight classifier.out_proj.bias",
    "xlm-roberta": "roberta.embeddings.token_type_embeddings.weight classifier.dense.bias",
    "camembert": "roberta.embeddings.position_embeddings.weight classifier.out_proj.weight",
    "modernbert": "model.embeddings.tok_embeddings.weight model.layers.1.attn_norm.weight model.layers.0.mlp.Wi.weight "
    "model.final_norm.weight head.dense.weight head.norm.weight classifier.bias",
}
FIELDS = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "dropout": 0.0, "qa_dropout": 0.0},
    "electra": {"embedding_size": 16, "hidden_size": 32},
    "roberta": {"pad_token_id": 1, "max_position_embeddings": 26},
    "modernbert": {"local_attention": 8, "norm_eps": 1e-5, "attention_dropout": 0.0, "classifier_pooling": "mean"},
}


@pytest.mark.parametrize("model_type", quick(OTHERS, *QUICK))  # Read in `test_like_transformers` too.
def test_files_have_the_names_of_transformers_and_are_read_back_by_any_door(model_type, tmp_path):
    model = make(model_type)
    model.save_pretrained(tmp_path)
    tensors, values = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    assert {*NAMES[model_type].split()} <= {*tensors}
    assert values["architectures"] == [f"{ENCODERS[model_type].classes}ForSequenceClassification"]
    assert values.items() >= ({"model_type": model_type} | FIELDS.get(model_type, {})).items()
    for door in (type(model), tfbert.TFAutoModelForSequenceClassification):
        again = door.from_pretrained(tmp_path)
        assert type(again) is type(model) and worst(again.get_weights(), model.get_weights()) == 0
    assert again.config == load_config(tmp_path)
    before, after = model.config.to_dict(), again.config.to_dict()
    assert all(after[name] == value for name, value in before.items() if name != "architectures")
    model.save(tmp_path / "model.keras")
    kept = keras.models.load_model(tmp_path / "model.keras")
    assert type(kept) is type(model) and worst(kept.get_weights(), model.get_weights()) == 0
    # A new head above the same encoder; and the encoder alone, without its prefix, as transformers saves one.
    tagger = class_of(model_type, "TokenClassification")
    other = tagger.from_pretrained(tmp_path, num_labels=5, ignore_mismatched_sizes=True)
    assert worst(other.bert.weights[0], model.bert.weights[0]) == 0
    prefix = f"{model.config.encoder.PREFIX}."
    inner = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    save_file(inner, tmp_path / "model.safetensors")
    base = class_of(model_type, "QuestionAnswering").from_pretrained(tmp_path, num_labels=2)
    assert worst(base.bert.weights, [v for v in model.bert.weights if "pooler" not in v.path]) == 0


WITH_WORDS = [name for name in OTHERS if (name, "MaskedLM") in ALL]


@pytest.mark.parametrize("model_type", quick(WITH_WORDS, "distilbert", "modernbert"))
def test_words_are_read_from_the_table_and_resized_with_it(model_type, tmp_path):
    model = make(model_type, "MaskedLM")
    before = model(batch_of(model)).logits
    model.resize_token_embeddings(VOCAB + 9)
    assert worst(model(batch_of(model)).logits[..., :VOCAB], before) < 1e-6
    model.save_pretrained(tmp_path)
    seconds = ("decoder.weight", "projector.weight")
    assert not [name for name in load_file(tmp_path / "model.safetensors") if name.endswith(seconds)]
    assert worst(type(model).from_pretrained(tmp_path)(batch_of(model)).logits, model(batch_of(model)).logits) == 0


def test_settings_by_either_name_are_one_setting():
    config = tfbert.DistilBertConfig(dim=32, n_heads=2, n_layers=1, hidden_dim=64)
    assert (config.hidden_size, config.dim, config.num_hidden_layers) == (32, 32, 1)
    config.dropout = 0.3
    assert config.hidden_dropout_prob == config.to_dict()["dropout"] == 0.3
    assert type(BertConfig.from_dict(config.to_dict())) is tfbert.DistilBertConfig
    both = {"layer_norm_eps": 1e-3, "norm_eps": 1e-4, "model_type": "modernbert"}
    sizes = dict.fromkeys(("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"), 8)
    sizes["num_attention_heads"] = 2
    assert BertConfig.from_dict(both | sizes).layer_norm_eps == 1e-4  # transformers reads `norm_eps`.


YARN = {"full_attention": {"rope_type": "yarn", "factor": 2}}
REFUSED = {
    "token types": (lambda: make("roberta")(batch_of(make("bert"))), "roberta .*Received: token_type_ids"),
    "another configuration": (lambda: tfbert.TFBertModel(config_of("roberta")), "TFRobertaModel"),
    "next sentences": (lambda: class_of("roberta", "PreTraining"), "Received: RobertaForPreTraining"),
    "ELECTRA's generator": (lambda: class_of("electra", "MaskedLM"), "Received: ElectraForMaskedLM"),
    "a rate": (lambda: tfbert.DistilBertConfig(qa_dropout=1.5), "qa_dropout=1.5 in DistilBertConfig"),
    "a rate by its own name": (lambda: tfbert.DistilBertConfig(attention_dropout="x"), "give attention_dropout as"),
    "another summary": (lambda: tfbert.ElectraConfig(summary_type="last"), "summary_type='last'"),
    "no padding token": (lambda: tfbert.RobertaConfig(pad_token_id=None), "pad_token_id=None"),
    "another pooling": (lambda: tfbert.ModernBertConfig(classifier_pooling="max"), "classifier_pooling='max'"),
    "kinds of layers": (lambda: tfbert.ModernBertConfig(layer_types=["full_attention"]), "layer_types="),
    "a kind of layer": (lambda: tfbert.ModernBertConfig(layer_types=["linear_attention"] * 22), "layer_types="),
    "a base of positions": (lambda: tfbert.ModernBertConfig(local_rope_theta=0), "rope_theta=0"),
    "odd heads": (lambda: tfbert.ModernBertConfig(hidden_size=36, num_attention_heads=12), "an even share"),
    "other positions": (lambda: tfbert.ModernBertConfig(rope_parameters=YARN), "'yarn'"),
    "LoRA of no layer": (lambda: make("distilbert").enable_lora(2, targets="queries"), "value, .*q_lin, .*or all"),
}


@pytest.mark.parametrize("call, line", REFUSED.values(), ids=REFUSED)
def test_what_does_not_apply_is_refused_in_a_line(call, line):
    assert_refused(line, call, kind=ValueError)


def test_products_are_counted():
    work = Work.of(np.array([20, 20]))
    assert forward_flops(config_of("roberta"), work) == forward_flops(config_of("bert"), work)
    less, more = (config_of("modernbert", num_hidden_layers=3, local_attention=near) for near in (8, 60))
    assert forward_flops(more, work) - forward_flops(less, work) == 2 * (2 * 2 * 32 * 2 * 20 * (20 - 9))
    longer, plain = (config_of("electra", embedding_size=size) for size in (16, 32))
    assert forward_flops(longer, work) - forward_flops(plain, work) == 2 * 16 * 32 * 40
