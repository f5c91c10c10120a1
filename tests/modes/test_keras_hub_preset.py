"""KerasHub as a destination: `--export_format=keras_hub` and `to_keras_hub` write what KerasHub loads."""

import json
import shutil

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import transformers
from scipy.special import softmax

import tfbert
from tests.support.served import export_of, random_model, save
from tests.support.texts import VOCAB
from tfbert.config.data import DataConfig
from tfbert.errors import UsageError
from tfbert.model.bert_config import record_inputs
from tfbert.model.keras_hub_writer import text_logits
from tfbert.model.load import load_config, save_pretrained
from tfbert.model.weights import get_weights_dict
from tfbert.tasks.answering.question_answering import QuestionAnswering
from tfbert.tasks.tagging.token_classification import TokenClassification
from tfbert.tasks.texts.classification import Classification
from tfbert.tasks.texts.regression import Regression
from tfbert.tokens.tokenizer import BertTokenizer

WORDS = [word for word in VOCAB if word]  # KerasHub has no empty tokens.
LABELS = ("bad", "fine", "good")


def trained(directory, task, *, casing=None, labels_in=None, **options):
    """A model with random weights, saved as training saves one."""
    tf_keras.utils.set_random_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
        **options,
    )
    task.head().describe_in(config)
    model = getattr(transformers, f"TF{task.head().architecture}")(config)
    model.build_in_name_scope()
    rng = np.random.default_rng(2)
    for variable in model.weights:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    record_inputs(model.config, num_texts=2, max_seq_length=24, **task.notes())
    save_pretrained(model, BertTokenizer(WORDS, **casing or {}), directory)
    return model


def pairs(rows=16, width=24):
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, width + 1, rows)
    mask = (np.arange(width) < lengths[:, None]).astype(np.int32)
    ids = (rng.integers(5, len(WORDS), mask.shape) * mask).astype(np.int32)
    second = ((np.arange(width) >= lengths[:, None] // 2) * mask).astype(np.int32)
    theirs = {"token_ids": ids, "padding_mask": mask, "segment_ids": second}
    return theirs, {"input_ids": ids, "attention_mask": mask, "token_type_ids": second}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A classifier whose arithmetic is KerasHub's, its preset, and what the export said."""
    directory = tmp_path_factory.mktemp("preset")
    model = trained(directory / "own", Classification(LABELS), hidden_act="gelu_new", classifier_dropout=0.2)
    return directory, model, export_of(directory, "own", directory / "preset", export_format="keras_hub")


def test_kerashub_computes_the_same_logits(made):
    directory, model, results = made
    loaded = keras_hub.models.BertTextClassifier.from_preset(str(directory / "preset"))
    theirs, ours = pairs()
    want = model(ours).logits.numpy()
    np.testing.assert_allclose(loaded(theirs), want, atol=1e-5)
    assert np.ptp(want, axis=0).max() > 0.5 and loaded.dropout == 0.2
    backbone = keras_hub.models.BertBackbone.from_preset(str(directory / "preset"))
    np.testing.assert_allclose(backbone(theirs)["pooled_output"], model.bert(ours).pooler_output, atol=1e-5)
    assert results.pop("largest_logit_error") < 1e-5
    assert results == {
        "format": "keras_hub",
        "max_seq_length": 24,
        "weights": "float32",
        "num_texts": 2,
        "label_names": list(LABELS),
    }
    assert results.items() < json.loads((directory / "preset" / "export_results.json").read_text()).items()


def test_text_becomes_the_same_ids(made):
    loaded = keras_hub.models.BertTextClassifier.from_preset(str(made[0] / "preset"))
    tokenizer = BertTokenizer(WORDS)
    first = ["The quick brown fox jumped.", "naïve café, 中文字!", "a " * 40, "", "b a"]
    second = ["Unbelievably good", "Ångström", "b " * 3, "the movie", "c " * 50]
    found, _ = loaded.preprocessor((tf.constant(first), tf.constant(second)), tf.zeros(5))
    ids, start = tokenizer(tf.constant(first), tf.constant(second), max_seq_length=24)
    np.testing.assert_array_equal(found["token_ids"], ids.to_tensor(0, [5, 24]))
    want = (np.arange(24) >= start.numpy()[:, None]) & (np.arange(24) < ids.row_lengths().numpy()[:, None])
    np.testing.assert_array_equal(found["segment_ids"], want)


def test_a_preset_is_the_model_again(made):
    directory, model, _ = made
    again = tfbert.load(directory / "preset")
    assert again.label_names == LABELS and again.max_seq_length == 24
    before, after = get_weights_dict(model), get_weights_dict(again._model.classifier)
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)
    assert again._model.num_texts == 2 and again._model.tokenizer == BertTokenizer(WORDS, strip_accents=True)
    kept = load_config(directory / "preset")
    assert kept.to_dict().items() >= {"hidden_act": "gelu_new", "classifier_dropout": 0.2}.items()
    pair = ("The quick fox", "a movie")
    assert again(pair) == tfbert.load(directory / "own")(pair)


def test_the_exact_gelu_differs_a_little_and_says_so(tmp_path, logged):
    model = trained(tmp_path / "own", Classification(LABELS))
    loaded = tfbert.load(tmp_path / "own")
    with pytest.raises(UsageError, match="must be new or empty"):
        loaded.to_keras_hub(tmp_path)
    results = loaded.to_keras_hub(tmp_path / "preset")
    assert "GELU by tanh, where the model has the exact one" in " ".join(logged())
    assert 1e-5 < results["largest_logit_error"] < 0.05
    assert load_config(tmp_path / "preset").hidden_act == "gelu", "here it stays what it was"
    loaded = keras_hub.models.BertTextClassifier.from_preset(str(tmp_path / "preset"))
    for layer in loaded.backbone.transformer_layers:  # As docs/after_training.md says.
        layer._feedforward_intermediate_dense.activation = keras.activations.gelu
    theirs, ours = pairs()
    np.testing.assert_allclose(loaded(theirs), model(ours).logits, atol=1e-5)
    # What KerasHub saves itself is KerasHub's arithmetic.
    loaded.save_to_preset(str(tmp_path / "preset"))
    assert load_config(tmp_path / "preset").hidden_act == "gelu_new"
    assert tfbert.load(tmp_path / "preset").label_names == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.slow
def test_evaluation_data_are_predicted_there_and_here(made, tmp_path):
    pairs = [("The quick fox", "a movie"), ("unbelievably", "the end"), ("", "x"), ("½ of it", "b")]
    rows = "".join(f"{a}\t{b}\t{LABELS[i % 3]}\n" for i, (a, b) in enumerate(pairs))
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tlabel\n" + rows)
    data = DataConfig(validation_file=str(tmp_path / "dev.tsv"))
    results = export_of(made[0], "own", tmp_path / "preset", export_format="keras_hub", data=data)
    found = tfbert.load(made[0] / "own")(pairs)
    right = np.mean([answer["label"] == LABELS[i % 3] for i, answer in enumerate(found)])
    assert results["eval_tfbert_accuracy"] == right and results["eval_samples"] == 4
    assert results["largest_logit_error"] < 1e-5 < results["eval_largest_logit_error"], "it makes three characters of ½"
    logits = text_logits(tmp_path / "preset", [["The quick fox"], ["a movie"]], batch_size=1)[0]
    assert LABELS[logits.argmax()] == found[0]["label"]
    assert abs(softmax(logits).max() - found[0]["score"]) < 1e-6


@pytest.mark.slow
def test_a_regression_stays_one(tmp_path):
    model = trained(tmp_path / "own", Regression(), hidden_act="gelu_new")
    export_of(tmp_path, "own", tmp_path / "preset", export_format="keras_hub")
    loaded = keras_hub.models.BertTextClassifier.from_preset(str(tmp_path / "preset"))
    theirs, ours = pairs()
    np.testing.assert_allclose(loaded(theirs), model(ours).logits, atol=1e-5)
    again, own = tfbert.load(tmp_path / "preset"), tfbert.load(tmp_path / "own")
    assert again.task == own.task and again(("a", "b")) == own(("a", "b"))


@pytest.mark.parametrize(
    "casing",
    [
        {"do_lower_case": True, "tokenize_chinese_chars": False},
        pytest.param({"do_lower_case": False}, marks=pytest.mark.slow),
    ],
)
def test_a_model_without_a_head_becomes_a_backbone(tmp_path, casing, logged):
    trained(tmp_path / "own", Classification(LABELS), casing=casing)
    config = json.loads((tmp_path / "own" / "config.json").read_text()) | {"architectures": ["BertModel"]}
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    strip_head(tmp_path / "own" / "model.safetensors")
    export_of(tmp_path, "own", tmp_path / "preset", export_format="keras_hub")
    assert "The model has no classifier: a backbone and a tokenizer are written." in logged()
    assert not (tmp_path / "preset" / "task.json").exists()
    loaded = keras_hub.models.BertTextClassifier.from_preset(str(tmp_path / "preset"), num_classes=5)
    texts = ["The 中文 Fox", "ÇA façade"]
    ids, _ = BertTokenizer(WORDS, **casing)(tf.constant(texts), max_seq_length=16)
    found = loaded.preprocessor(texts)["token_ids"][:, : ids.bounding_shape()[1]]
    np.testing.assert_array_equal(found, ids.to_tensor(0))


def strip_head(path):
    from safetensors.numpy import load_file, save_file

    save_file({name: v for name, v in load_file(path).items() if "classifier" not in name}, path)


def test_what_kerashub_cannot_hold_is_refused(tmp_path):
    tagger = random_model(TokenClassification(("O", "B-X", "I-X")), num_texts=None, max_seq_length=24)
    answerer = random_model(QuestionAnswering(), num_texts=None, max_seq_length=24)
    for name, model in {"tagger": tagger, "answerer": answerer}.items():
        save(model, tmp_path / name)
        with pytest.raises(UsageError, match="has a class for labels of texts alone. Received: a model for "):
            export_of(tmp_path, name, tmp_path / "preset", export_format="keras_hub")
    trained(tmp_path / "relu", Classification(LABELS), hidden_act="relu")
    with pytest.raises(UsageError, match="has GELU as its activation. Received: a model with hidden_act='relu'"):
        export_of(tmp_path, "relu", tmp_path / "preset", export_format="keras_hub")
    own = random_model(Classification(LABELS), num_texts=1, max_seq_length=24)  # Its vocabulary has an empty token.
    save(own, tmp_path / "empty")
    with pytest.raises(UsageError, match="without empty tokens. Received: '' as token 26"):
        export_of(tmp_path, "empty", tmp_path / "preset", export_format="keras_hub")
    assert not list(tmp_path.glob("*preset*")), "nothing is left"


def test_a_directory_is_new_or_an_earlier_export(made, tmp_path):
    shutil.copytree(made[0] / "preset", tmp_path / "preset")
    with pytest.raises(UsageError, match="must be new or empty"):
        export_of(made[0], "own", tmp_path / "preset", export_format="keras_hub")
    (tmp_path / "preset" / "task.json").unlink()
    export_of(made[0], "own", tmp_path / "preset", export_format="keras_hub", overwrite=True)
    assert (tmp_path / "preset" / "task.json").exists()
    with pytest.raises(UsageError, match="takes single texts and pairs: .* Received: text_column=a,b without"):
        export_of(made[0], "own", tmp_path / "p", export_format="keras_hub", data=DataConfig(text_column=("a", "b")))
