"""KerasHub's BERT -> configuration, vocabulary and tensors under transformers' and PyTorch's names.

A preset is a directory, as `save_to_preset` writes it: `config.json` (the backbone), `model.weights.h5` (or
`model.weights.json` with several files), and maybe `task.json` with `task.weights.h5`, and a tokenizer. A `.keras`
file, as `model.save` writes it, holds the same in an archive.

The files are read here, within bounds, and without KerasHub, whose import takes most of a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfbert.data.foreign_files import read_json_object
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.tokens.pretrained import Casing
    from tfbert.tokens.tokenizer import BertTokenizer

log = logging.getLogger("tfbert")

NOTE = "tfbert"
"""The key in `config.json` of a preset that version 1 exported: transformers' configuration of the same model, with
what KerasHub has no name for. KerasHub ignores it, and leaves it out of what it saves itself."""
WEIGHTS, SHARDED, TASK_WEIGHTS, ARCHIVE = "model.weights.h5", "model.weights.json", "task.weights.h5", ".keras"
VOCABULARY = "assets/tokenizer/vocabulary.txt"
ACTIVATION, EPSILON = "gelu_new", 1e-12
"""What KerasHub's BERT computes with: GELU by tanh, and LayerNorm's epsilon."""

JSON = "A KerasHub model's file must be readable JSON"
_LAYOUT = {
    "vocab_size": "vocabulary_size",
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_dim",
    "max_position_embeddings": "max_sequence_length",
    "type_vocab_size": "num_segments",
    "hidden_dropout_prob": "dropout",
}
"""transformers' names for the arguments of KerasHub's BERT."""
_DEFAULTS = {"dropout": 0.1, "max_sequence_length": 512, "num_segments": 2}
CLASSIFIERS, MASKED = ("BertTextClassifier", "BertClassifier"), "BertMaskedLM"
_TOKENIZER = {"split": True, "suffix_indicator": "##", "oov_token": "[UNK]", "special_tokens_in_strings": False}
"""What a tokenizer's configuration must say, if it says anything."""
_FINE_TUNER = "tfbert>FineTuner"
_NO_ACTIVATION = (None, "linear", "softmax")
"""Of a classifier's outputs: softmax changes neither the best class nor what its logits are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """What the JSON files of a preset or an archive say.

    Attributes:
        path: The directory, or the `.keras` file.
        backbone: The arguments of `BertBackbone`.
        task: The class above it; empty for a backbone alone.
        options: The arguments of that class.
        tokenizer: The arguments of its `BertTokenizer`; None without one.
        note: What is under `NOTE`.
        is_wrapped: Whether a `tfbert.FineTuner` is around the model, which saves what it trains as a layer.
    """

    path: pathlib.Path
    backbone: dict[str, Any]
    task: str
    options: dict[str, Any]
    tokenizer: dict[str, Any] | None
    note: dict[str, Any]
    is_wrapped: bool = False

    @property
    def config_file(self) -> pathlib.Path:
        """The file that describes the model, for messages."""
        return self.path if is_archive(self.path) else self.path / "config.json"

    def config(self) -> dict[str, Any]:
        """The model as transformers' `config.json` would describe it; not checked."""
        named = {**_DEFAULTS, **self.backbone}
        values = {own: named[name] for own, name in _LAYOUT.items() if name in named}
        dropout = values["hidden_dropout_prob"]
        values |= {"model_type": "bert", "attention_probs_dropout_prob": dropout}
        values |= {"hidden_act": ACTIVATION, "layer_norm_eps": EPSILON, "architectures": ["BertModel"]}
        arithmetic = ("hidden_act", "layer_norm_eps", "attention_probs_dropout_prob", "initializer_range")
        values |= {name: self.note[name] for name in arithmetic if name in self.note}
        if self.task == MASKED:
            values["architectures"] = ["BertForMaskedLM"]
        elif self.task in CLASSIFIERS:
            values |= self._classifier()
        return values

    def _classifier(self) -> dict[str, Any]:
        activation, rows = self.options.get("activation"), self.options.get("num_classes")
        has_several = activation == "sigmoid" and rows != 1
        if activation not in _NO_ACTIVATION and not has_several:  # Its outputs are no classes, or one of two.
            return {"architectures": [f"{self.task} with activation={activation!r}"]}
        values = {"architectures": ["BertForSequenceClassification"], "num_labels": rows}
        values |= {"problem_type": "multi_label_classification"} if has_several else {}
        values["classifier_dropout"] = self.options.get("dropout", 0.1)
        names = self.note.get("id2label")
        if isinstance(names, dict) and len(names) == rows:
            del values["num_labels"]
            values |= {name: self.note[name] for name in ("id2label", "label2id", "problem_type") if name in self.note}
        return values | {name: self.note[name] for name in (NOTE,) if name in self.note}

    def casing(self) -> Casing:
        """How its tokenizer treats letters; empty without one.

        Raises:
            UsageError: for a tokenizer that would give other ids than BERT's WordPiece.
        """
        if self.tokenizer is None:
            return {}
        unlike = {key: v for key, want in _TOKENIZER.items() if (v := self.tokenizer.get(key, want)) != want}
        casing = {
            "do_lower_case": self.tokenizer.get("lowercase", False),
            "strip_accents": self.tokenizer.get("strip_accents", False),
            "tokenize_chinese_chars": self.tokenizer.get("split_on_cjk", True),
        }
        unlike |= {key: value for key, value in casing.items() if not isinstance(value, bool)}
        if unlike:
            raise UsageError(
                "A model's tokenizer must be BERT's WordPiece. "
                f"Received: {', '.join(f'{key}={value!r}' for key, value in unlike.items())} in {self.path}. "
                "Use another model."
            )
        return casing

    @property
    def has_vocabulary(self) -> bool:
        """Whether there is a vocabulary to read."""
        return len(self._vocabularies()) == 1

    def _vocabularies(self) -> list[str]:
        with opened(self.path) as root:
            if not is_archive(self.path):
                return [VOCABULARY] if (root / VOCABULARY).is_file() else []
            # assets/preprocessor/tokenizer/vocabulary.txt, by the place of the tokenizer in the model.
            return [name for name in root.root.namelist() if re.fullmatch(r"assets/.*vocabulary\.txt", name)]

    def vocabulary(self) -> list[str]:
        """The tokens in the order of their ids.

        Raises:
            UsageError: without a vocabulary, or one that is unreadable.
        """
        from tfbert.tokens.vocabulary import read_vocab_file

        found = self._vocabularies()
        if len(found) == 1:
            with opened(self.path) as root:
                return read_vocab_file(root / found[0])
        raise UsageError(
            "A KerasHub model must hold the vocabulary of its tokenizer. "
            f"Received: {self.path} with {' and '.join(found) or f'no {VOCABULARY}'}. "
            "Save it with its preprocessor, or pass --vocab_file."
        )


def read_preset(path: pathlib.Path) -> Preset | None:
    """Reads the JSON files of a KerasHub preset or of a `.keras` file; None for any other model.

    Raises:
        UsageError: for a model of Keras that is not KerasHub's BERT, or files that cannot be read.
    """
    if not is_archive(path) and not (path / "config.json").is_file():
        return None
    with opened(path) as root:
        config = read_json_object(root / "config.json", "config.json must be readable JSON")
        if not is_archive(path) and not isinstance(config.get("class_name"), str):
            return None
        is_wrapped = is_archive(path) and config.get("registered_name") == _FINE_TUNER
        config = _object(_object(config, "config"), "model") if is_wrapped else config
        task = config if is_archive(path) else _optional(root, "task.json")
        tokenizer = None if is_archive(path) else _optional(root, "tokenizer.json")
    options, outer = _object(task, "config"), config
    if is_archive(path) and "backbone" in options:
        config = _object(options, "backbone")
    elif is_archive(path):
        task, options = {}, {}
    name = config.get("class_name")
    if name != "BertBackbone":
        found = outer.get("class_name") if name is None else name
        todo = "Pass a BERT model"
        if is_archive(path):  # Such as a model of the user's own around a backbone.
            todo += ": of a larger model, the directory that its backbone's save_to_preset writes"
        raise UsageError(
            "Of KerasHub's models, tfbert trains those of its BertBackbone. "
            f"Received: {str(found)[:100]} in {path}. {todo}."
        )
    backbone = _object(config, "config")
    if not _is_float(backbone.get("dtype")):
        raise UsageError(
            "The weights of a KerasHub model must be floating-point numbers. "
            f"Received: a quantized model in {path}. Pass the model that it was made from."
        )
    tokenizer = tokenizer or _object(_object(_object(options, "preprocessor"), "config"), "tokenizer") or None
    if tokenizer and tokenizer.get("class_name") != "BertTokenizer":
        raise UsageError(
            "A model's tokenizer must be BERT's WordPiece. "
            f"Received: {tokenizer.get('class_name')!r} in {path}. Use another model."
        )
    return Preset(
        path=path,
        backbone=backbone,
        task=str(task.get("class_name", "")),
        options=options,
        tokenizer=_object(tokenizer, "config") if tokenizer else None,
        note=_object(config, NOTE),
        is_wrapped=is_wrapped,
    )


def load_tokenizer(preset: Preset) -> BertTokenizer:
    """The tokenizer of a preset or a `.keras` file: its vocabulary and its casing.

    Raises:
        UsageError: without a vocabulary, or for a tokenizer that is not BERT's WordPiece.
    """
    from tfbert.tokens.pretrained import shown_by
    from tfbert.tokens.tokenizer import BertTokenizer

    tokens, casing = preset.vocabulary(), preset.casing()
    keeps_accents = casing.get("do_lower_case") and not casing["strip_accents"]
    if keeps_accents and not shown_by(tokens, {})[1]:
        log.warning(
            "Text is lower-cased and keeps its accents, as the tokenizer in %s says. Its vocabulary has hardly any "
            'accents, and BERT\'s own tokenizer drops them; "strip_accents": true does so here and in KerasHub.',
            preset.path,
        )
    try:
        return BertTokenizer(tokens, **casing or shown_by(tokens, {})[0])
    except UsageError as error:
        raise UsageError(f"{preset.path}: {error}") from None


def find_weights(preset: Preset) -> pathlib.Path | None:
    """The file that `open_weights` opens, or None."""
    if is_archive(preset.path):
        return preset.path
    files = (preset.path / name for name in (WEIGHTS, SHARDED))
    return next((file for file in files if file.is_file()), None)


def is_archive(path: pathlib.Path) -> bool:
    """Whether a path is that of a `.keras` file."""
    return path.suffix == ARCHIVE and path.is_file()


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[Any]:
    """A preset's directory, or the inside of an archive, which is used like one."""
    if not is_archive(path):
        yield path
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield zipfile.Path(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UsageError(
            f"A .keras file must be readable and whole. Received: {path}: {error}. Copy or download it again."
        ) from None


def _optional(root: Any, name: str) -> dict[str, Any]:
    return read_json_object(root / name, JSON) if (root / name).is_file() else {}


def _object(values: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under a key; empty where it is anything else."""
    value = values.get(key)
    return value if isinstance(value, dict) else {}


def _is_float(dtype: Any) -> bool:
    """Whether a layer's policy keeps its weights as floating-point numbers."""
    if isinstance(dtype, dict):
        name = _object(dtype, "config").get("name")
        return dtype.get("class_name") in ("DTypePolicy", "FloatDTypePolicy") and "float" in str(name)
    return dtype is None or "float" in str(dtype)
