"""LoRA: what is trained, exact on any split, merged where it is saved; files of updates, ours and PEFT's."""

import functools
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.support.bert import CLASSES, IDS, KINDS, MASK, TEXTS, WITH_LABELS, kept_by_keras, make, tuned, worst
from tests.support.cases import SLOW, quick
from tests.support.models import randomize
from tests.support.refusals import assert_refused
from tfbert.model.forward import forward

flat = functools.partial(make, num_hidden_layers=1)


def fresh_lora(kind="TFBertForSequenceClassification", rank=4, targets="all", dropout=0.0, layers=2, **options):
    """A model with updates, which are 0."""
    model = make(kind, dropout, num_hidden_layers=layers)
    model.enable_lora(rank, targets=targets, seed=1, **options)
    return model


def with_lora(*args, **options):
    """A model with updates, which are not 0."""
    model = fresh_lora(*args, **options)
    randomize([v for v in model.trainable_variables if v.name == "lora_kernel_b"], seed=0, spread=0.1)
    return model


def by_path(model):
    """Its weights by their paths within it."""
    return {v.path.partition("/")[2]: v.numpy() for v in model.weights}


def trained_in(model):
    """The paths of what is trained."""
    return [v.path.partition("/")[2] for v in model.trainable_variables]


def merged(model):
    """A model without updates whose kernels hold them, computed here."""
    other = make(type(model).__name__)
    values = by_path(model)
    for v in other.weights:
        path = v.path.partition("/")[2]
        value, low = values[path], path.removesuffix("kernel") + "lora_kernel_"
        if f"{low}a" in values:
            value = value + model.lora.alpha / model.lora.rank * values[f"{low}a"] @ values[f"{low}b"]
        v.assign(value)
    return other


@pytest.mark.parametrize("kind", quick(KINDS, "TFBertForMultipleChoice"))
def test_updates_are_parts_of_their_kernels_wherever_the_model_is_saved(kind, tmp_path):
    model, inputs = with_lora(kind, alpha=8), KINDS[kind][1]
    expected = tuple(merged(model)(inputs))
    assert worst(tuple(model(inputs)), expected) < 5e-6 < 1e-3 < worst(expected, tuple(make(kind)(inputs)))
    model.save_pretrained(tmp_path)
    assert worst(tuple(type(model).from_pretrained(tmp_path)(inputs)), expected) < 5e-6  # Logits of words are about 5.
    model.resize_token_embeddings(70)
    assert worst([part[..., :60] for part in model(inputs)], expected) < 5e-6


def test_only_updates_and_the_head_are_trained_whatever_is_set():
    model = fresh_lora(targets=("query", "value"))
    assert worst(model(TEXTS).logits, make()(TEXTS).logits) == 0
    layers = [f"bert/encoder/layer_._{i}/attention/self/{name}" for i in (0, 1) for name in ("query", "value")]
    parts = {f"{layer}/lora_kernel_{part}" for layer in layers for part in "ab"}
    assert {*trained_in(model)} == parts | {"classifier/kernel", "classifier/bias"}
    assert model.num_parameters(only_trainable=True) == 2 * 2 * 2 * 32 * 4 + 33 * 3
    model.bert.encoder.trainable = True
    own = model.bert.encoder.layer[0].attention.self_attention
    assert not own.query.base_kernel.trainable and not own.query.bias.trainable and own.key.kernel.trainable


def test_no_product_of_a_kernels_size_is_computed():
    """That would be a kernel with its update, or the gradient of a frozen one."""
    model = with_lora()
    variables = [v.value for v in model.trainable_variables]

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(forward(model, {"input_ids": IDS, "attention_mask": MASK}, True) ** 2)
        return tape.gradient(loss, variables)

    needed, waiting = set(), [each.op for each in gradients.get_concrete_function().outputs]
    while waiting:  # The rest of a graph is not computed.
        op = waiting.pop()
        if op not in needed:
            needed.add(op)
            waiting += [*(each.op for each in op.inputs), *op.control_inputs]
    products = {tuple(op.outputs[0].shape) for op in needed if op.type == "MatMul"}
    assert products >= {(32, 4), (4, 32), (4, 64), (64, 4)} and not products & {(32, 32), (32, 64), (64, 32)}


SHIFTED = ("TFBertForQuestionAnswering", "TFBertForMultipleChoice")
"""Whose softmax is over places or choices, which a bias moves alike."""


@SLOW
@pytest.mark.parametrize("kind", WITH_LABELS)
def test_a_split_with_dropout_gives_the_weights_of_one_device(kind):
    (one, _), (split, _) = tuned(fresh_lora, kind, epochs=3), tuned(fresh_lora, kind, 2, 4, epochs=3)
    assert worst(one.get_weights(), split.get_weights()) < 1e-6
    before, trained = by_path(fresh_lora(kind, dropout=0.1)), trained_in(one)
    for path, value in by_path(one).items():
        change = worst(value, before[path])
        is_same = path not in trained or (kind in SHIFTED and path.endswith("/bias"))
        assert (change < 1e-6) if is_same else (change > 1e-4), path


def test_keras_saves_updates_as_they_are(tmp_path):
    lora = functools.partial(with_lora, layers=1, targets="query,output.dense")
    model, other = lora(alpha=8), flat(seed=1)
    loaded = kept_by_keras(model, keras.optimizers.SGD(0.1), tmp_path)
    assert loaded.lora == model.lora
    other.save_weights(tmp_path / "plain.weights.h5")
    for each in (other, lora(alpha=4), lora(rank=2)):
        each.load_weights(tmp_path / "m.weights.h5")
        assert worst(each(TEXTS).logits, model(TEXTS).logits) < 1e-6
    loaded.run_eagerly = True
    for each in (loaded, model):
        each.train_on_batch(TEXTS, CLASSES)
    assert worst(loaded.get_weights(), model.get_weights()) < 1e-6
    model.load_weights(tmp_path / "plain.weights.h5")
    assert worst(model(TEXTS).logits, flat(seed=1)(TEXTS).logits) < 1e-6
    assert np.ptp(model.bert.encoder.layer[0].attention.self_attention.query.lora_kernel_a.numpy()) > 0.1


def test_what_was_traced_before_is_forgotten():
    model = flat()
    before = model.predict(TEXTS, verbose=0).logits
    model.enable_lora(2)
    model.bert.encoder.layer[0].attention.self_attention.query.lora_kernel_b.assign_add(np.ones([2, 32]))
    assert worst(model.predict(TEXTS, verbose=0).logits, before) > 1e-3


@pytest.mark.parametrize("kind", ["TFBertModel", "TFBertForQuestionAnswering"])
def test_an_adapter_is_written_with_pefts_names_and_read_back(kind, tmp_path):
    model = with_lora(kind, alpha=8, targets=("query", "output.dense"))
    model.save_adapter(tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    values = json.loads((tmp_path / "adapter_config.json").read_text())
    prefix = "base_model.model." + ("" if kind == "TFBertModel" else "bert.")
    layers = ("attention.self.query", "attention.output.dense", "output.dense")
    names = [f"{prefix}encoder.layer.{i}.{layer}" for i in (0, 1) for layer in layers]
    head = [] if kind == "TFBertModel" else ["base_model.model.qa_outputs.bias", "base_model.model.qa_outputs.weight"]
    assert tensors.keys() == {*head, *(f"{name}.lora_{part}.weight" for name in names for part in "AB")}
    assert tensors[f"{names[2]}.lora_A.weight"].shape == (4, 64)
    assert tensors[f"{names[2]}.lora_B.weight"].shape == (32, 4)
    expected = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "output.dense"]}
    assert values.items() >= (expected | {"modules_to_save": ["qa_outputs"] if head else None}).items()
    other = make(kind)
    other.load_adapter(tmp_path)
    assert worst(other.get_weights(), model.get_weights()) == 0 and other.lora == model.lora


def test_a_pooler_that_no_file_gave_is_trained_and_is_in_the_adapter(tmp_path):
    """Frozen, it would stay at random, and whoever loads the adapter would have another one."""
    whole = flat()
    whole.save_pretrained(tmp_path / "base")
    file = tmp_path / "base" / "model.safetensors"
    save_file({name: each for name, each in load_file(file).items() if "pooler" not in name}, file)
    one, other = (type(whole).from_pretrained(tmp_path / "base", seed=seed) for seed in (1, 2))
    one.enable_lora(4)
    new = {f"{layer}/{part}" for layer in ("classifier", "bert/pooler/dense") for part in ("kernel", "bias")}
    assert {path for path in trained_in(one) if "lora" not in path} == new
    one.save_adapter(tmp_path / "adapter")
    values = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert values["modules_to_save"] == ["classifier", "pooler"]
    other.load_adapter(tmp_path / "adapter")
    assert worst(other(TEXTS).logits, one(TEXTS).logits) == 0
    assert trained_in(one) == trained_in(other)
    one.save(tmp_path / "one.keras")
    loaded = keras.models.load_model(tmp_path / "one.keras")
    assert loaded.num_parameters(only_trainable=True) == one.num_parameters(only_trainable=True)


def test_an_adapter_takes_the_place_of_another_one(tmp_path):
    """It is not added to it, and a head or pooler that it has is never left out."""
    one, other = with_lora(alpha=8, layers=1), with_lora(alpha=8, layers=1)
    other.classifier.bias.assign_add(np.ones(3))
    one.save_adapter(tmp_path / "one")
    for variable in other.trainable_variables:
        variable.assign_add(np.ones(variable.shape))
    other.load_adapter(tmp_path / "one")
    assert worst(other.get_weights(), one.get_weights()) == 0
    whole = added(added(tmp_path / "one", "pooler.dense.weight", shape=[32, 32]), "pooler.dense.bias")
    other.load_adapter(whole)
    assert other.bert.pooler.dense.kernel.numpy().mean() == other.bert.pooler.dense.bias.numpy().mean() == 1


NORM, WORDS = "encoder.layer.0.output.LayerNorm.weight", "embeddings.word_embeddings.lora_embedding_A"
REFUSED = {
    "a rank of 0": (lambda plain, path: plain.enable_lora(0), "lora_rank=0"),
    "no number": (lambda plain, path: plain.enable_lora(4, alpha=float("nan")), "lora_alpha=nan"),
    "an unknown layer": (lambda plain, path: plain.enable_lora(4, targets="query,pooler"), "Received: 'query,pooler'"),
    "no updates": (lambda plain, path: plain.save_adapter(path), "no enable_lora"),
    "other updates": (lambda plain, path: plain.load_adapter(changed(path, use_dora=True)), "use_dora=True"),
    "biases": (lambda plain, path: plain.load_adapter(changed(path, bias="all")), "bias='all'"),
    "another model": (lambda plain, path: flat("TFBertModel").load_adapter(path), "the same layers"),
    "a head of another size": (lambda plain, path: flat(num_labels=5).load_adapter(path), r"\[3, 32\] in place of"),
    # From here on it has updates, of another rank at last.
    "other weights": (lambda plain, path: plain.load_adapter(added(path, NORM)), "LayerNorm.weight in"),
    "updates of words": (lambda plain, path: plain.load_adapter(added(path, WORDS)), "embedding_A in"),
    "a second time": (lambda plain, path: plain.enable_lora(4), "a model with LoRA"),
    "another rank": (lambda plain, path: plain.load_adapter(changed(path, r=2)), "rank=2.*rank=4"),
    "a head of words": (lambda plain, path: with_lora("TFBertForMaskedLM").save_adapter(path), "head of words"),
}


def changed(path, **values):
    file = path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return path


def added(path, name, shape=32):
    file = path / "adapter_model.safetensors"
    save_file(load_file(file) | {f"base_model.model.bert.{name}": np.ones(shape, np.float32)}, file)
    return path


def test_what_does_not_fit_is_refused_in_a_line(tmp_path):
    with_lora(layers=1).save_adapter(tmp_path / "adapter")
    plain = flat()
    for what, (call, line) in REFUSED.items():
        shutil.copytree(tmp_path / "adapter", tmp_path / what)
        assert_refused(line, call, plain, tmp_path / what, kind=ValueError)


TASKS_OF_PEFT = ("SequenceClassification", "TokenClassification", "QuestionAnswering")


@SLOW
@pytest.mark.parametrize("kind", ["TFBertModel", *(f"TFBertFor{task}" for task in TASKS_OF_PEFT)])
def test_peft_loads_an_adapter_and_writes_one(kind, tmp_path):
    torch, peft, transformers = (pytest.importorskip(name) for name in ("torch", "peft", "transformers"))
    base, model = make(kind), with_lora(kind, alpha=8, targets=("query", "value", "intermediate.dense"))
    base.save_pretrained(tmp_path / "base")
    model.save_adapter(tmp_path / "adapter")
    inputs = {name: torch.tensor(value).long() for name, value in TEXTS.items()}

    def theirs(directory):
        plain = getattr(transformers, kind.removeprefix("TF")).from_pretrained(tmp_path / "base")
        return peft.PeftModel.from_pretrained(plain, directory).eval()

    def logits(other):
        with torch.no_grad():
            return [each.numpy() for each in other.base_model(**inputs).to_tuple()]  # The wrapper forgets token types.

    assert worst(logits(theirs(tmp_path / "adapter")), tuple(model(TEXTS))) < 5e-6
    theirs(tmp_path / "adapter").save_pretrained(tmp_path / "again")
    other = make(kind)
    other.load_adapter(tmp_path / "again")
    assert worst(tuple(other(TEXTS)), tuple(model(TEXTS))) < 1e-6
