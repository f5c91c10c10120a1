"""KerasHub's BERT, read by KerasHub itself -> a directory as transformers writes it, from which all else is read.

A preset is a directory, as `save_to_preset` writes it; a `.keras` file, as `model.save` does, also that of a
`FineTuner`. KerasHub, whose import takes most of a second, is imported only where one of these is named.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import logging
import operator
import pathlib
import re
import tempfile
import zipfile
from typing import Any

import numpy as np

from tfbert.config.types import architecture_problem
from tfbert.data.reading import read_json_object
from tfbert.errors import UsageError, first_line

log = logging.getLogger("tfbert")

ARCHIVE = ".keras"
_KAGGLE = "kaggle://"
_WEIGHTS, _TASK_WEIGHTS = ("model.weights.h5", "model.weights.json"), "task.weights.h5"
_LAYOUT = {
    "vocab_size": "vocabulary_size",
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_dim",
    "max_position_embeddings": "max_sequence_length",
    "type_vocab_size": "num_segments",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "dropout",
}
"""transformers' names for the attributes of KerasHub's BERT."""
_NOTE = "tfbert"
"""The key in `config.json` of a preset that version 1 exported: transformers' configuration of the same model, with
what KerasHub has no name for."""
_BLOCK = {
    "attention.self.query": "_self_attention_layer.query_dense",
    "attention.self.key": "_self_attention_layer.key_dense",
    "attention.self.value": "_self_attention_layer.value_dense",
    "attention.output.dense": "_self_attention_layer.output_dense",
    "attention.output.LayerNorm": "_self_attention_layer_norm",
    "intermediate.dense": "_feedforward_intermediate_dense",
    "output.dense": "_feedforward_output_dense",
    "output.LayerNorm": "_feedforward_layer_norm",
}
_HEAD = {
    "cls.predictions.transform.dense": "_intermediate_dense",
    "cls.predictions.transform.LayerNorm": "_intermediate_layer_norm",
}
_WEIGHT = ("kernel", "gamma", "embeddings", "position_embeddings")
_JSON = "A KerasHub model's file must be readable JSON"
_CASING = {"do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "split_on_cjk"}
_TOKENIZER = {"split": True, "suffix_indicator": "##", "oov_token": "[UNK]", "special_tokens_in_strings": False}


def may_be_built_in(name: str) -> bool:
    """Whether a model's name looks like one of KerasHub's, such as `bert_base_en`: those of the Hugging Face hub
    that have no owner have hyphens."""
    return re.fullmatch(r"[a-z0-9.]+(_[a-z0-9.]+)+", name) is not None and not name.endswith(ARCHIVE)


def is_archive(path: pathlib.Path) -> bool:
    """Whether a path is that of a `.keras` file."""
    return path.suffix == ARCHIVE and path.is_file()


def download(name: str) -> pathlib.Path | None:
    """Downloads a preset from Kaggle, unless it is in kagglehub's cache.

    Args:
        name: One of KerasHub's names, or `kaggle://OWNER/MODEL/keras/VARIANT`.

    Returns:
        The directory that holds it; None for any other name.

    Raises:
        UsageError: for a preset that is no BERT, where there is none, or Kaggle cannot be reached.
    """
    if not name.startswith(_KAGGLE) and not may_be_built_in(name):
        return None
    import kagglehub
    import keras_hub
    import requests

    known, handle = keras_hub.models.Backbone.presets, name
    if name in known:
        handle = known[name]["kaggle_handle"]
        if name not in keras_hub.models.BertBackbone.presets:
            raise UsageError(architecture_problem({"class_name": name}, pathlib.Path(handle)))
    if not handle.startswith(_KAGGLE):
        return None
    try:
        return pathlib.Path(kagglehub.model_download(handle.removeprefix(_KAGGLE)))
    except (requests.ConnectionError, requests.Timeout):
        what = "Kaggle cannot be reached, and the preset is not in kagglehub's cache"
    except Exception as error:  # Its own errors have no common class.
        what = first_line(error)
    rule = "A model of KerasHub must be a local preset or on Kaggle"
    raise UsageError(f"{rule}. Received: model={name!r}: {what}. Pass a directory that save_to_preset has written.")


def plain(path: pathlib.Path) -> pathlib.Path:
    """A model's directory itself; for a preset or a `.keras` file, another with the same model in PyTorch's layout,
    which stays until this process ends.

    Raises:
        UsageError: for a model that is not KerasHub's BERT, or that KerasHub cannot read.
    """
    config = path / "config.json"
    if not is_archive(path):
        values = read_json_object(config, "config.json must be readable JSON") if config.is_file() else {}
        if not isinstance(values.get("class_name"), str):
            return path
        if problem := architecture_problem(values, path):
            raise UsageError(problem)
    files = sorted(file for file in [path, *path.rglob("*")] if file.is_file())
    stamp = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return pathlib.Path(_converted(path.absolute(), stamp).name)


@functools.lru_cache
def _converted(path: pathlib.Path, stamp: Any) -> tempfile.TemporaryDirectory:
    made = tempfile.TemporaryDirectory(prefix=f"{path.stem}-")
    try:
        # In a thread of its own there is no strategy's scope, no policy of the user's, and no count of layers' names.
        with concurrent.futures.ThreadPoolExecutor(1) as alone:
            alone.submit(_convert, path, pathlib.Path(made.name)).result()
    except UsageError:
        raise
    except Exception as error:  # On a damaged file, any library can raise anything.
        rule = "A KerasHub model must be readable and whole"
        received = f"{path}: {' '.join(str(error).split())[:300]}"
        raise UsageError(f"{rule}. Received: {received}. Copy or download it again.") from None
    return made


def _convert(path: pathlib.Path, directory: pathlib.Path) -> None:
    """Writes a model into a directory: its configuration, its weights if it has any, and its vocabulary."""
    import keras
    from keras_hub import models
    from safetensors.numpy import save_file

    from tfbert.step.keras3.finetuner import FineTuner  # Keras finds it by its name in a file.

    is_whole = is_archive(path)
    described = zipfile.ZipFile(path).read("config.json") if is_whole else (path / "config.json").read_bytes()
    if b"QuantizedDTypePolicy" in described:
        rule = "The weights of a KerasHub model must be floating-point numbers"
        raise UsageError(f"{rule}. Received: a quantized model in {path}. Pass the model that it was made from.")
    has_weights = is_whole or any((path / name).is_file() for name in _WEIGHTS)
    with keras.device("cpu:0"):
        if is_whole:
            model: Any = keras.saving.load_model(path, compile=False)
            model = model.model if isinstance(model, FineTuner) else model
            tokenizer = getattr(getattr(model, "preprocessor", None), "tokenizer", None)
        else:
            kind, without = models.BertBackbone, {}
            if (path / _TASK_WEIGHTS).is_file():
                task = read_json_object(path / "task.json", _JSON).get("class_name")
                if task in ("BertTextClassifier", "BertClassifier", "BertMaskedLM"):
                    kind, without = getattr(models, task), {"preprocessor": None}
            model = kind.from_preset(str(path), load_weights=has_weights, **without)
            has_vocabulary = any(path.glob("assets/tokenizer/*"))
            tokenizer = models.Tokenizer.from_preset(str(path)) if has_vocabulary else None
    _check(path, model, tokenizer)
    values, taken = _values_of(model)
    note = json.loads(described).get(_NOTE, {})
    values |= {name: note[name] for name in taken if name in note}
    (directory / "config.json").write_text(json.dumps(values), encoding="utf-8")
    if has_weights:
        save_file(_tensors_of(model), directory / "model.safetensors")
    if tokenizer is not None:
        text = "\n".join(tokenizer.vocabulary) + "\n"
        (directory / "vocab.txt").write_text(text, encoding="utf-8", newline="\n")
        casing = {name: getattr(tokenizer, attribute) for name, attribute in _CASING.items()}
        (directory / "tokenizer_config.json").write_text(json.dumps(casing), encoding="utf-8")


def _check(path: pathlib.Path, model: Any, tokenizer: Any) -> None:
    """Refuses what is no BERT, or not whole, or whose tokenizer would give other ids than BERT's WordPiece."""
    import h5py
    from keras_hub import models

    from tfbert.tokens.vocabulary import FEW_ACCENTS, share_of_accents

    backbone, sizes = getattr(model, "backbone", model), []
    if not isinstance(backbone, models.BertBackbone):
        raise UsageError(
            f"{architecture_problem({'class_name': type(model).__name__}, path).removesuffix('.')}: of a larger model, "
            "the directory that its backbone's save_to_preset writes."
        )
    for file in path.glob("model*.weights.h5"):
        with h5py.File(file, "r") as opened:
            opened.visititems(lambda name, item: sizes.append(getattr(item, "size", 0)))  # A group has none.
    if sum(sizes) not in (0, backbone.count_params()):  # KerasHub leaves out what the configuration has no place for.
        rule = "A KerasHub model's weights must be those that config.json describes"
        received = f"{path} with {sum(sizes):,} numbers for {backbone.count_params():,}"
        raise UsageError(f"{rule}. Received: {received}. Repair config.json, or download the model again.")
    if tokenizer is None:
        return
    own = _TOKENIZER if isinstance(tokenizer, models.BertTokenizer) else {}
    unlike = [f"{name}={v!r}" for name, wanted in own.items() if (v := getattr(tokenizer, name)) != wanted]
    if unlike or not own:
        received = f"{', '.join(unlike) or type(tokenizer).__name__} in {path}"
        raise UsageError(f"A model's tokenizer must be BERT's WordPiece. Received: {received}. Use another model.")
    keeps_accents = tokenizer.lowercase and not tokenizer.strip_accents
    if keeps_accents and share_of_accents(tokenizer.vocabulary) <= FEW_ACCENTS:
        log.warning(
            "Text is lower-cased and keeps its accents, as the tokenizer in %s says. Its vocabulary has hardly any "
            'accents, and BERT\'s own tokenizer drops them; "strip_accents": true does so here and in KerasHub.',
            path,
        )


def _values_of(model: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What `config.json` says of a model, and what `_NOTE` may say of it beside."""
    import keras
    from keras_hub import models

    # KerasHub computes GELU by tanh.
    values = {own: getattr(getattr(model, "backbone", model), name) for own, name in _LAYOUT.items()}
    values |= {"model_type": "bert", "hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "architectures": ["BertModel"]}
    taken = ("hidden_act", "layer_norm_eps", "attention_probs_dropout_prob", "initializer_range")
    if isinstance(model, models.BertMaskedLM):
        values["architectures"] = ["BertForMaskedLM"]
    if not isinstance(model, models.BertTextClassifier):
        return values, taken
    activation, rows = keras.activations.serialize(model.activation), model.num_classes
    has_several = activation == "sigmoid" and rows != 1
    if activation in ("linear", "softmax") or has_several:
        values["architectures"] = ["BertForSequenceClassification"]
        values |= {"num_labels": rows, "classifier_dropout": model.dropout}
        values |= {"problem_type": "multi_label_classification"} if has_several else {}
    else:  # Its outputs are no classes, or one of two.
        values["architectures"] = [f"{type(model).__name__} with activation={activation!r}"]
    return values, (*taken, "id2label", "label2id", "problem_type", _NOTE)


def _tensors_of(model: Any) -> dict[str, np.ndarray]:
    """The weights of a model by PyTorch name."""
    from keras_hub import models

    backbone, tensors = getattr(model, "backbone", model), {}
    layers = {
        "bert.embeddings.word_embeddings": backbone.token_embedding,
        "bert.embeddings.position_embeddings": backbone.position_embedding,
        "bert.embeddings.token_type_embeddings": backbone.segment_embedding,
        "bert.embeddings.LayerNorm": backbone.embeddings_layer_norm,
        "bert.pooler.dense": backbone.pooled_dense,
    }
    for number, block in enumerate(backbone.transformer_layers):
        for name, attribute in _BLOCK.items():
            layers[f"bert.encoder.layer.{number}.{name}"] = operator.attrgetter(attribute)(block)
    if isinstance(model, models.BertTextClassifier):
        layers["classifier"] = model.output_dense
    if isinstance(model, models.BertMaskedLM):
        layers |= {name: operator.attrgetter(attribute)(model.masked_lm_head) for name, attribute in _HEAD.items()}
        tensors["cls.predictions.bias"] = _float32(operator.attrgetter("_bias")(model.masked_lm_head))
    for name, layer in layers.items():
        bias = [_float32(getattr(layer, each)).ravel() for each in ("bias", "beta") if hasattr(layer, each)]
        weight = next(getattr(layer, each) for each in _WEIGHT if hasattr(layer, each))
        if bias:
            tensors[f"{name}.bias"] = bias[0]
        # Heads are an axis of their own in KerasHub, and kernels are transposed.
        matrix = _float32(weight).reshape(-1, bias[0].size).T if hasattr(layer, "kernel") else _float32(weight)
        tensors[f"{name}.weight"] = np.ascontiguousarray(matrix)
    return tensors


def _float32(variable: Any) -> np.ndarray:
    return np.asarray(variable).astype(np.float32)
