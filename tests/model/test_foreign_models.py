"""Model files that are damaged, of another model or made to do harm: one line in good time, and no file outside."""

import contextlib
import json
import os
import struct
import time

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.bert_files import FINE_TUNED, HIDDEN, SPECIALS, build, pytorch_tensors, write
from tests.support.refusals import assert_refused, refused
from tfbert import Config, ModelConfig, PredictConfig
from tfbert.data import reading
from tfbert.model import weights
from tfbert.model.files import load_config, load_tokenizer
from tfbert.modes.load import load_trained_model
from tfbert.tokens.tokenizer import BertTokenizer

PREDICT = PredictConfig(input_file="-")
NOT_SIZES = [None, "32", [], {}, True, -1, 0, 1.5, 32.0, 2**40, 10**300]
NOT_SHARES = [None, "0.1", True, -0.1, 1.0, 2, float("nan"), float("inf"), -float("inf"), 1e999]
WHAT_HAS_A_SIZE = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
BAD_VALUES = dict.fromkeys((*WHAT_HAS_A_SIZE, "type_vocab_size", "num_labels"), NOT_SIZES)
BAD_VALUES |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), NOT_SHARES)
BAD_VALUES |= {
    "num_hidden_layers": [*NOT_SIZES, 10**9],
    "pad_token_id": ["0", 1.5, []],
    "classifier_dropout": NOT_SHARES[1:],
    "layer_norm_eps": ["1e-12", None, float("nan"), -1e-12, True],
    "initializer_range": ["0.02", None, float("inf"), -0.02, 1e308],
    "hidden_act": [None, 1, ["gelu"]],
    "problem_type": ["both", 1, []],
    "architectures": ["BertModel", [1], {}],
    "model_type": [None, ["bert"], 1],
    "position_embedding_type": [["absolute"], 1],
    "id2label": [[], ["a", "b"], {}, "x", {"0": ["a"]}, {"x": "a"}, {"0": "\ud800"}, {"9" * 5000: "a"}],
    "label2id": ["x", 1],
    "pruned_heads": [[1], "x"],
    "quantization_config": [1],
    "tfbert": ["x", {"num_texts": 3}, {"num_texts": True}, {"max_seq_length": -5}, {"max_seq_length": "16"}],
}


@pytest.fixture(autouse=True)
def in_good_time():
    """Nothing of this may take long, whatever the files say."""
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("key", BAD_VALUES)
def test_a_value_that_no_bert_has_is_named(tmp_path, key):
    for value in BAD_VALUES[key]:
        (tmp_path / "config.json").write_text(json.dumps(FINE_TUNED | {key: value}))
        text = assert_refused(None, load_config, tmp_path)
        assert key in text or key in ("pruned_heads", "quantization_config"), text
        assert str(tmp_path) in text


def test_usual_values_are_taken(tmp_path):
    usual = {"classifier_dropout": None, "problem_type": None, "hidden_dropout_prob": 0, "pad_token_id": None}
    usual |= {"tfbert": {"num_texts": None, "max_seq_length": 128}, "architectures": None, "layer_norm_eps": 1e-12}
    (tmp_path / "config.json").write_text(json.dumps(FINE_TUNED | usual))
    assert load_config(tmp_path).hidden_size == HIDDEN
    (tmp_path / "config.json").write_text('{"hidden_size": 32}')
    assert_refused("without vocab_size, num_hidden_layers", load_config, tmp_path)


def test_labels_of_one_name_are_not_told_apart(tmp_path):
    """A JSON object of probabilities would lose one of them."""
    write(tmp_path, pytorch_tensors(), FINE_TUNED | {"id2label": {"0": "good", "1": "good"}})
    config = Config(mode="predict", model=ModelConfig(model_name_or_path=str(tmp_path)), predict=PREDICT)
    assert_refused("Received: 'good' more than once in id2label", load_trained_model, config)


BAD_JSON = {
    "empty": b"",
    "cut": b'{"a": ',
    "another type": b"[]",
    "not UTF-8": b'{"a": "\xff"}',
    "deep": b"[" * 1_000_000,
    "deep, but parsed": b'{"a": ' + b"[" * 400 + b"]" * 400 + b"}",
    "a number without end": b'{"a": ' + b"9" * 10_000 + b"}",
    "NUL": b"\0" * 100,
}


READERS = dict.fromkeys(("tokenizer.json", "tokenizer_config.json", "added_tokens.json"), BertTokenizer.from_pretrained)
READERS |= {"config.json": load_config, "index": weights.read_weights}


@pytest.mark.parametrize("case", BAD_JSON)
@pytest.mark.parametrize("name", READERS)
def test_json_that_is_none(tmp_path, name, case):
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIALS))
    path = tmp_path / (weights.SAFETENSORS_INDEX if name == "index" else name)
    path.write_bytes(BAD_JSON[case])
    assert str(path) in assert_refused(None, READERS[name], path if name == "index" else tmp_path)


def test_files_have_bounds_and_a_directory_is_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 1 << 20)
    (tmp_path / "config.json").write_bytes(b" " * (1 << 20) + b"{}")
    assert_refused("larger than 1 MiB", load_config, tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to("/dev/zero")
    assert_refused("larger than 1 MiB", load_config, tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    assert_refused("config.json: Is a directory", load_config, tmp_path)
    assert_refused("Is a directory", BertTokenizer.from_vocab_file, tmp_path / "config.json")


WHOLE = {"model": {"type": "WordPiece"}, "pre_tokenizer": {"type": "BertPreTokenizer"}}
BAD_TOKENIZERS = [
    ("tokenizer.json", {"normalizer": "x"}, "normalizer"),
    ("tokenizer.json", WHOLE | {"normalizer": {"type": "BertNormalizer", "lowercase": "yes"}}, "lowercase='yes'"),
    ("tokenizer.json", {"model": [1]}, "model"),
    ("tokenizer.json", {"added_tokens": {"a": 1}}, "added_tokens"),
    ("tokenizer.json", {"added_tokens": [7]}, "token=7"),
    ("tokenizer.json", {"added_tokens": [{"content": ["x"]}]}, "content"),
    ("tokenizer_config.json", {"tokenizer_class": ["BertTokenizer"]}, "tokenizer_class"),
    ("tokenizer_config.json", {"do_lower_case": "no"}, "do_lower_case='no'"),
    ("tokenizer_config.json", {"added_tokens_decoder": [1]}, "added_tokens_decoder"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"9": {"content": "<e1>"}}}, "added_tokens=['<e1>']"),
    ("added_tokens.json", {"<e2>": 99}, "added_tokens=['<e2>']"),
    ("tokenizer.json", {"model": {"type": "BPE"}}, "model.type='BPE', normalizer.type=None"),
]


@pytest.mark.parametrize("name, values, message", BAD_TOKENIZERS)
def test_a_tokenizers_file_of_another_shape(tmp_path, name, values, message):
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIALS))
    (tmp_path / name).write_text(json.dumps(values))
    text = assert_refused(None, BertTokenizer.from_pretrained, tmp_path)
    assert message in text and (name in text or "added_tokens=" in text or "BPE" in text)


BAD_VOCABS = [None, [], {}, {"a": "0"}, {"a": [0]}, {"a": 5}, {"a": True}, {"\ud800": 0}, {"a\0": 0}, {"a\nb": 0}]


@pytest.mark.parametrize("vocab", BAD_VOCABS)
def test_a_vocabulary_in_json_that_is_none(tmp_path, vocab):
    BertTokenizer(SPECIALS).save(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    values = json.loads((tmp_path / "tokenizer.json").read_text())
    values["model"]["vocab"] = vocab
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    assert str(tmp_path) in assert_refused(None, BertTokenizer.from_pretrained, tmp_path)


def test_vocabularies_that_are_none(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    whole = "\n".join(SPECIALS) + "\n"
    for content, message in [
        (whole + "\n\n", r"2 blank lines at its end, from line 6\. Remove them"),
        (whole + "\r\n" * 3, r"3 blank lines at its end, from line 6\. Remove them"),
        (whole + "a" * 257, "at most 256 bytes"),
        (whole + "the\nthe\n", "'the' as token 6 .*, first seen as token 5"),
        ("", r"1 tokens without \[PAD\]"),
        ("[PAD]\n[UNK]\n[CLS]\nthe\n", r"4 tokens without \[SEP\] \[MASK\]"),
        ("[PAD]\n\udcff\n", "not UTF-8, invalid start byte at byte 6"),
        (whole + "a\0b", "valid Unicode"),
        ("[PAD]\n\n\n[UNK]\n", "'' as token 2"),
    ]:
        path.write_bytes(content.encode(errors="surrogateescape"))
        assert str(path) in assert_refused(message, BertTokenizer.from_vocab_file, path)
    path.write_text(whole + "##" + "a" * 256 + "\n\n")  # One blank line is a token.
    assert BertTokenizer.from_vocab_file(path).vocab_size == 7
    path.unlink()
    assert_refused("No such file", BertTokenizer.from_vocab_file, path)
    monkeypatch.setattr("tfbert.tokens.tokenizer._MAX_TOKENS", 10)
    assert_refused("at most 10 tokens. Received: 11", BertTokenizer, [*SPECIALS, *"abcdef"])


def test_a_vocabulary_file_beside_broken_files(tmp_path):
    """`--vocab_file` reads the model's tokenizer_config.json for the casing."""
    (tmp_path / "tokenizer_config.json").write_bytes(BAD_JSON["deep"])
    (tmp_path / "v.txt").write_text("\n".join(SPECIALS))
    config = ModelConfig(model_name_or_path=str(tmp_path), vocab_file=str(tmp_path / "v.txt"))
    assert_refused("tokenizer_config.json: nested too deeply", load_tokenizer, config, tmp_path, training_texts=[])


# Weights.


def write_shards(directory, weight_map):
    write(directory)
    (directory / weights.SAFETENSORS_INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return directory / weights.SAFETENSORS_INDEX


def shard(path, **tensors):
    path.parent.mkdir(exist_ok=True, parents=True)
    save_file(tensors or {"x": np.ones(3, np.float32)}, path)
    return path


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "{tmp}/secret.safetensors", "a/../../secret.safetensors", "../../etc/passwd"]
    + ["", ".", "..", "a\0b", "x" * 5000, "sub/inside.safetensors", "model.safetensors.index.json/", "absent"]
)  # fmt: skip
def test_an_index_names_files_beside_it_and_nothing_else(tmp_path, name):
    shard(tmp_path / "secret.safetensors")
    shard(tmp_path / "model" / "sub" / "inside.safetensors")
    (tmp_path / "model" / "a").mkdir()
    index = write_shards(tmp_path / "model", {"x": name.format(tmp=tmp_path)})
    assert_refused("must exist beside it", weights.read_weights, index)


def test_an_index_of_another_shape(tmp_path):
    for listed in (None, [], "x", {"x": 1}, {"x": None}, {"x": ["a"]}):
        assert_refused("without a weight_map", weights.read_weights, write_shards(tmp_path, listed))


def test_links_lead_where_the_hubs_cache_leads_and_not_out_of_the_directory(tmp_path):
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / "abc"
    index = write_shards(snapshot, {"x": "model-1.safetensors"})
    link = snapshot / "model-1.safetensors"
    link.symlink_to(os.path.relpath(shard(repository / "blobs" / "123"), snapshot))
    (tmp_path / "elsewhere").symlink_to(snapshot)  # And the directory itself may be a link.
    for path in (index, tmp_path / "elsewhere" / index.name):
        np.testing.assert_array_equal(weights.read_weights(path)["x"], np.ones(3))

    for target in (shard(tmp_path / "out"), shard(repository / "other"), shard(repository / "blobs" / "a" / "b")):
        link.unlink()
        link.symlink_to(target)
        assert_refused("must be in its directory. .*a link to", weights.read_weights, index)
    outside = write_shards(tmp_path / "model", {"x": "model-1.safetensors"})
    (tmp_path / "model" / "model-1.safetensors").symlink_to(repository / "blobs" / "123")
    assert_refused("must be in its directory", weights.read_weights, outside)
    (tmp_path / "model" / "model-1.safetensors").unlink()
    shard(tmp_path / "model" / "deeper" / "file")
    (tmp_path / "model" / "model-1.safetensors").symlink_to("deeper/file")
    assert "x" in weights.read_weights(outside)


def header(values, size=None, body=b""):
    content = json.dumps(values).encode()
    return struct.pack("<Q", len(content) if size is None else size) + content + body


def tensor(shape, offsets, dtype="F32"):
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 8,
        header({}, size=2**63),
        header({}, size=10**8),
        header(tensor([2**40], [0, 2**42])),
        header(tensor([2**62, 2**62], [0, 8]), body=b"\0" * 8),
        header(tensor([1], [8, 4]), body=b"\0" * 8),
        header(tensor([-1], [0, 4]), body=b"\0" * 4),
        header(tensor([1], [0, 4], "F1000"), body=b"\0" * 4),
        header(tensor([1], [0, 1], "F8_E4M3"), body=b"\0"),
        header(tensor([1], [0, 8], "I64"), body=b"\0" * 8),
        header(tensor("x", "y")),
        header([1]),
        header({"x": {}}),
    ],
)
def test_safetensors_that_lie(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    assert_refused("must be readable and whole", weights.read_weights, tmp_path / "model.safetensors")


def test_a_weight_under_two_names_must_be_one(tmp_path):
    path, weight = tmp_path / "model.safetensors", {"bert.pooler.dense.bias": np.zeros(2, np.float32)}
    for value in (0, 1):
        save_file(weight | {"pooler.dense.bias": np.full(2, value, np.float32)}, path)
        same = contextlib.nullcontext() if value == 0 else refused("two weights that are bert.pooler.dense.bias, which")
        with same, weights.open_weights(path, "bert", ("pooler",)) as found:
            assert found["bert.pooler.dense.bias"].read().tolist() == [0, 0]


def test_hdf5_reads_no_other_file(tmp_path):
    (tmp_path / "secret").write_bytes(b"\0" * 40)
    other = h5py.File(tmp_path / "other.h5", "w")
    other["x"] = np.ones(10)
    other.close()
    for kind in ("external", "virtual"):
        with h5py.File(tmp_path / "tf_model.h5", "w") as file:
            if kind == "external":
                external = [(str(tmp_path / "secret"), 0, 40)]
                file.create_dataset("a/b/x:0", (10,), np.float32, external=external)
            else:
                layout = h5py.VirtualLayout((10,), np.float64)
                layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", (10,))
                file.create_virtual_dataset("a/b/x:0", layout)
        assert_refused("stored in another file", weights.read_weights, tmp_path / "tf_model.h5")


@pytest.mark.parametrize("name", ["bert/m/bert/embeddings/word_embeddings/weight:0", "bert/m/cls/unused:0"])
def test_terabytes_in_a_few_bytes_are_not_read(tmp_path, name, logged):
    """A tensor of HDF5 without data takes no room in the file, and its full size in memory."""
    tensors = pytorch_tensors()
    with h5py.File(write(tmp_path) / "tf_model.h5", "w") as file:
        for key, array in tensors.items():
            parts = key.removesuffix(".weight").split(".")
            if "word" in key and "word" in name:
                continue
            leaf = parts.pop() + ":0" if key.endswith(".bias") else ("kernel:0" if "dense" in key else "weight:0")
            file.create_dataset("/".join(["a", "b", *parts, leaf]), data=array.T if leaf == "kernel:0" else array)
        file.create_dataset(name, (2**20, 2**20), np.float32, chunks=(1024, 1024))
    if "word" in name:
        assert_refused(r"word_embeddings.weight \[1048576, 1048576\] in place of \[40, 32\]", build, tmp_path)
    else:
        build(tmp_path)
        assert logged() == ["Weights in the file that this model does not use: cls.unused."]


GIANTS = [{"hidden_size": 65536}, {"num_hidden_layers": 1000}, {"intermediate_size": 1 << 20}]


@pytest.mark.parametrize("change", GIANTS)
def test_a_config_of_a_giant_beside_small_weights_is_found_before_it_is_built(tmp_path, change):
    assert_refused("those that config.json describes", build, write(tmp_path, pytorch_tensors(), FINE_TUNED | change))


def test_a_head_of_another_width_and_weights_that_are_no_numbers(tmp_path):
    tensors = pytorch_tensors()
    head = {"classifier.weight": np.ones([2, 9], np.float32)}
    assert_refused(r"classifier.weight \[2, 9\] in place of \[2, 32\]", build, write(tmp_path, tensors | head))
    whole = {"bert.pooler.dense.bias": np.ones(HIDDEN, np.int64)}
    assert_refused("it holds int64 in place of floating-point numbers", build, write(tmp_path, tensors | whole))


def test_the_shapes_that_are_expected_are_those_of_the_model(tmp_path):
    model = build(write(tmp_path, pytorch_tensors()))
    built = weights.get_shapes(weights.named_variables(model))
    del built["classifier.weight"], built["classifier.bias"]
    assert model.config.encoder.shapes(model.config) == built
