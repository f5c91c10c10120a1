"""Weights and configurations read, changed, written; Keras's own saving; what is refused."""

import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
import transformers

import tfbert
from tests.support.bert import CLASSES, KINDS, SIZES, TEXTS, WORDS, kept_by_keras, make, worst
from tests.support.cases import slow
from tests.support.refusals import assert_refused
from tests.support.transformers_4 import transformers_4
from tfbert import BertConfig, TFBertForMaskedLM, TFBertForSequenceClassification, TFBertModel


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A classifier's directory, with names for its labels, and the classifier."""
    directory = tmp_path_factory.mktemp("saved")
    model = make(id2label={0: "bad", 1: "good", 2: "so-so"}, num_labels=None, num_hidden_layers=1)
    model.save_pretrained(directory)
    return directory, model


def test_a_configuration_holds_what_transformers_holds(saved, tmp_path):
    directory, _ = saved
    theirs, ours = transformers.BertConfig.from_pretrained(directory), BertConfig.from_pretrained(directory)
    for name in (*SIZES, "id2label", "label2id", "num_labels", "hidden_dropout_prob", "layer_norm_eps", "problem_type"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert BertConfig.of(theirs).id2label == ours.id2label and BertConfig.from_dict(ours.to_dict()) == ours
    ours.update({"num_labels": 2})
    assert ours.id2label == {0: "LABEL_0", 1: "LABEL_1"} and ours.label2id == {"LABEL_0": 0, "LABEL_1": 1}
    ours.save_pretrained(tmp_path)
    assert BertConfig.from_pretrained(tmp_path).to_dict() == ours.to_dict()
    assert BertConfig().to_dict().items() >= {"vocab_size": 30522, "num_hidden_layers": 12}.items()


def test_what_is_new_and_what_is_unused_is_said_in_a_line_each(saved, logged):
    directory, model = saved
    loaded = TFBertForMaskedLM.from_pretrained(directory)
    new, unused = logged()
    assert new.startswith("New weights, to be trained: cls.predictions.bias, ") and "no masked-word head" in new
    parts = "bert.pooler.* (2), classifier.bias, classifier.weight"
    assert unused == f"Weights in the file that this model does not use: {parts}."
    assert worst(loaded.bert.embeddings.weight, model.bert.embeddings.weight) == 0
    assert worst(TFBertForSequenceClassification.from_pretrained(directory).get_weights(), model.get_weights()) == 0
    assert not logged()


def test_a_head_keeps_what_its_rows_mean(saved):
    directory, model = saved
    expected = model(TEXTS).logits.numpy()
    reordered = TFBertForSequenceClassification.from_pretrained(directory, id2label={0: "good", 1: "so-so", 2: "bad"})
    assert worst(reordered(TEXTS).logits, expected[:, [1, 2, 0]]) < 1e-6
    written = TFBertForSequenceClassification.from_pretrained(directory, id2label={2: "so-so", 1: "good", 0: "bad"})
    assert worst(written(TEXTS).logits, expected) == 0 and [*written.config.id2label] == [0, 1, 2]
    renamed = TFBertForSequenceClassification.from_pretrained(directory, id2label={0: "x", 1: "y", 2: "z"})
    assert worst(renamed(TEXTS).logits, expected) == 0 and renamed.config.label2id == {"x": 0, "y": 1, "z": 2}
    with pytest.raises(ValueError, match="num_labels=5 for .* head has 3 labels.*ignore_mismatched_sizes=True"):
        TFBertForSequenceClassification.from_pretrained(directory, num_labels=5)
    options = {"num_labels": 5, "ignore_mismatched_sizes": True, "seed": 1}
    other = TFBertForSequenceClassification.from_pretrained(directory, **options)
    options |= {"pretrained_model_name_or_path": directory, "name": "other"}
    again = tfbert.TFAutoModelForSequenceClassification.from_pretrained(**options)
    assert other(TEXTS).logits.shape == (12, 5) and worst(other.get_weights(), again.get_weights()) == 0
    assert again.name == "other" and again.config.num_labels == 5


def test_new_weights_follow_the_seed_of_keras(saved):
    def head(seed):
        keras.utils.set_random_seed(seed)
        options = {"num_labels": 4, "ignore_mismatched_sizes": True}
        return TFBertForSequenceClassification.from_pretrained(saved[0], **options).classifier.kernel.numpy()

    assert worst(head(1), head(1)) == 0 and worst(head(1), head(2)) > 0.1


REFUSED = {
    "an unknown option": (lambda directory: TFBertModel.from_pretrained(directory, info=True), "Received: info"),
    "a decoder": (lambda directory: TFBertModel.from_pretrained(directory, is_decoder=True), "Received: is_decoder"),
    "cross-attention": (lambda directory: BertConfig(add_cross_attention=True), "add_cross_attention=True"),
    "other positions": (lambda directory: BertConfig(position_embedding_type="relative_key"), "relative_key"),
    "another's type": (lambda directory: BertConfig(model_type="roberta"), "Received: model_type='roberta'. Use Rob"),
    "heads that do not divide": (lambda directory: BertConfig(num_attention_heads=5), "num_attention_heads=5"),
    "names that are too few": (
        lambda directory: BertConfig(num_labels=3, id2label=["a", "b"]),
        "num_labels=3 and id2label of 2",
    ),
    "an unknown activation": (lambda directory: make(hidden_act="gelu2"), "hidden_act='gelu2'"),
    "another architecture": (lambda directory: BertConfig.from_dict({"model_type": "gpt2"}), "model_type='gpt2'"),
    "scratch": (lambda directory: TFBertModel.from_pretrained("scratch/tiny"), "Received: scratch/tiny"),
    "no configuration": (lambda directory: TFBertModel("bert-base-uncased"), "Received: str"),
    "an automatic class": (lambda directory: tfbert.TFAutoModel(BertConfig(**SIZES)), "TFAutoModel.from_pretrained"),
    "TensorFlow's layout": (lambda directory: make().save_pretrained(directory, saved_model=True), "model.export"),
}


@pytest.mark.parametrize("call, line", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_in_a_line(call, line, saved):
    assert_refused(line, call, saved[0], kind=ValueError)


def test_keras_saves_all_that_training_needs(tmp_path):
    model = make(dropout=0.1, num_hidden_layers=1)
    model.bert.embeddings.trainable = model.bert.encoder.trainable = False
    loaded = kept_by_keras(model, tfbert.AdamW(1e-2, no_decay=["bias"]), tmp_path)
    other = make(seed=1, num_hidden_layers=1)
    other.load_weights(tmp_path / "m.weights.h5")
    for each in (loaded, other):
        assert worst(each.get_weights(), model.get_weights()) == worst(each(TEXTS).logits, model(TEXTS).logits) == 0
    assert loaded.config == model.config
    states = [[variable.numpy() for variable in each.optimizer.variables] for each in (loaded, model)]
    assert worst(*states) == 0
    assert loaded.optimizer.get_config() == model.optimizer.get_config()


def test_weights_that_transformers_saved_by_keras_are_loaded_by_name(tmp_path):
    """Their order is another one."""
    theirs = transformers_4("TFBertForSequenceClassification")(transformers.BertConfig(**SIZES, num_labels=3))
    theirs.build_in_name_scope()
    theirs.save_weights(tmp_path / "w.h5")
    model = make()
    model.load_weights(tmp_path / "w.h5")
    assert worst(model(TEXTS).logits, theirs(TEXTS).logits) < 1e-6
    assert_refused("no cls.predictions.bias", make("TFBertForMaskedLM").load_weights, str(tmp_path / "w.h5"))


class WithLayer(TFBertForSequenceClassification):
    """As people derive from transformers' classes: another signature, layers after the constructor, an own `call`."""

    def __init__(self, config, *args, name=None):
        super().__init__(config, *args, name=name)
        self.second = keras.layers.Dense(3, name="second")

    def call(self, input_ids=None, attention_mask=None, token_type_ids=None, training=False):
        hidden = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, training=training)
        return self.second(hidden[1])


@pytest.mark.parametrize("tuned", [False, True])
def test_a_class_that_derives_from_ours_may_have_layers_of_its_own(saved, tuned):
    model = WithLayer.from_pretrained(saved[0], output_attentions=None)
    trained = tfbert.FineTuner(model, gradient_accumulation_steps=2) if tuned else model
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trained.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], run_eagerly=True)
    trained.fit(TEXTS, CLASSES, verbose=0)
    assert model(TEXTS).shape == (12, 3) and np.abs(model.second.bias.numpy()).max() > 1e-3
    assert worst(model.bert.embeddings.weight, saved[1].bert.embeddings.weight) > 1e-5


@pytest.mark.parametrize("kind", ["TFBertForSequenceClassification", slow("TFBertModel"), slow("TFBertForMaskedLM")])
def test_a_functional_model_is_trained_and_saved_with_the_encoder_in_it(kind, tmp_path):
    inputs, own = [keras.Input([9], dtype="int32") for _ in range(2)], make(kind)
    part = own if kind == "TFBertModel" else own.bert
    hidden = part(inputs, output_hidden_states=True).hidden_states
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Concatenate()(hidden[-2:])))
    x, before = [TEXTS["input_ids"], TEXTS["attention_mask"]], part.get_weights()
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    model.fit(x, np.ones([12, 9, 2]), batch_size=12, verbose=0)
    assert min(worst(*each) for each in zip(part.get_weights()[:5], before[:5], strict=True)) > 0
    model.save(tmp_path / "model.keras")
    assert worst(keras.models.load_model(tmp_path / "model.keras")(x), model(x)) == 0


def test_an_exported_model_gives_the_same(tmp_path):
    kind = "TFBertForMultipleChoice"
    model, inputs = make(kind, num_hidden_layers=1), KINDS[kind][1]
    model.export(tmp_path / "exported")
    loaded = tf.saved_model.load(tmp_path / "exported")
    served = loaded.serve(inputs)
    assert served.keys() == {"logits"} and worst(served["logits"], model(inputs).logits) < 1e-6
    signature = loaded.signatures["serving_default"]
    named = signature(**{name: tf.constant(value, tf.int32) for name, value in inputs.items()})
    assert worst(named["logits"], served["logits"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TFBertForTokenClassification", "TFBertForQuestionAnswering"])
def test_an_export_is_converted_to_tflite_by_the_names_of_its_inputs(kind, tmp_path):
    model = make(kind)
    model.export(tmp_path / "export")
    content = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "export")).convert()
    runner = tf.lite.Interpreter(model_content=content).get_signature_runner()
    found, wanted = runner(**{name: value.astype(np.int32) for name, value in TEXTS.items()}), model(TEXTS)
    assert found.keys() == set(wanted.keys())
    assert max(worst(found[name], wanted[name]) for name in found) < 2e-6


def test_words_are_added_and_taken_away(tmp_path):
    model = make("TFBertForMaskedLM", num_hidden_layers=1)
    before = model(TEXTS).logits
    assert model.resize_token_embeddings(70) is model.get_input_embeddings() and model.config.vocab_size == 70
    assert worst(model(TEXTS).logits[..., :60], before) == 0 and model(TEXTS).logits.shape[-1] == 70
    assert model.mlm.predictions.bias.shape == (70,) and np.ptp(model.bert.embeddings.weight.numpy()[60:]) > 0.1
    model.predict(TEXTS, verbose=0)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["vocab_size"] == 70
    assert worst(TFBertForMaskedLM.from_pretrained(tmp_path)(TEXTS).logits, model(TEXTS).logits) == 0
    model.resize_token_embeddings(65)
    assert model.predict(TEXTS, verbose=0).logits.shape[-1] == 65  # Traced anew.
    model.compile(keras.optimizers.SGD(1e-3), run_eagerly=True)
    assert np.isfinite(model.fit(TEXTS, WORDS, batch_size=12, verbose=0).history["loss"]).all()


def test_a_model_is_uploaded_whole(monkeypatch, tmp_path):
    uploaded = {}

    def create_repo(name, **options):
        uploaded.update(options, name=name)
        return types.SimpleNamespace(repo_id=name)

    def upload_folder(*, folder_path, **options):
        uploaded["files"] = sorted(path.name for path in folder_path.iterdir())
        return types.SimpleNamespace(commit_url="commit")

    def hub(token=None):
        uploaded["token"] = token
        return types.SimpleNamespace(whoami=lambda: {}, create_repo=create_repo, upload_folder=upload_folder)

    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    model = make(num_hidden_layers=1)
    assert model.push_to_hub("me/mine", private=True, token="secret") == "commit"
    expected = {"token": "secret", "name": "me/mine", "private": True, "files": ["config.json", "model.safetensors"]}
    assert uploaded.items() >= expected.items()
    model.save_pretrained(tmp_path / "named", push_to_hub=True)
    assert uploaded["name"] == "named"


def test_prepared_batches_have_what_the_model_reads():
    """Of what has the methods of a `datasets.Dataset` that are called."""

    class Rows:
        column_names = ["sentence", "label", "idx", "input_ids", "attention_mask"]

        def select_columns(self, names):
            self.selected = names
            return self

        def to_tf_dataset(self, **options):
            return options

    rows, model = Rows(), make(num_hidden_layers=1)
    options = model.prepare_tf_dataset(rows, batch_size=4, shuffle=False)
    assert rows.selected == ["label", "input_ids", "attention_mask"]
    assert options["columns"] == ["input_ids", "attention_mask"] and options["label_cols"] == "labels"
    assert (options["batch_size"], options["shuffle"], options["drop_remainder"]) == (4, False, False)
    made = options["collate_fn"]([{"label": 1, "input_ids": [1, 2]}, {"label": 0, "input_ids": [3, 4]}])
    assert made["labels"].tolist() == [1, 0] and made["input_ids"].tolist() == [[1, 2], [3, 4]]
    assert_refused("Received: dict", model.prepare_tf_dataset, TEXTS)


def test_config_json_has_all_sizes_also_usual_ones():
    """KerasHub, for one, takes no default for them."""
    own = {tfbert.BertConfig: {"hidden_dropout_prob", "type_vocab_size"}, tfbert.DistilBertConfig: {"dropout"}}
    for kind, names in (own | {tfbert.RobertaConfig: {"hidden_dropout_prob"}}).items():
        assert json.loads(kind().to_json_string()).keys() >= {"max_position_embeddings", "vocab_size", *names}
