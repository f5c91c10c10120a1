"""What describes a BERT: transformers' `BertConfig`, without transformers."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

from tfbert.config.parts import ModelConfig
from tfbert.errors import UsageError
from tfbert.model import bert_config
from tfbert.model.files import load_values, resolve_model

_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "classifier_dropout": None,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "problem_type": None,
    "architectures": None,
    "output_hidden_states": False,
    "output_attentions": False,
    "return_dict": True,
}
HUB_OPTIONS = ("revision", "token", "cache_dir", "force_download", "local_files_only")
"""What `from_pretrained` passes on to the hub."""


class BertConfig:
    """The size of a BERT, its rates and its labels, as `config.json` holds them.

    Args:
        **values: Any of the fields in transformers' `config.json`; `num_labels`, or the names of labels as `id2label`.
            Fields of other names are kept.

    Raises:
        UsageError: for values that describe no BERT, or a decoder.
    """

    model_type = "bert"
    architectures: list[str] | None
    problem_type: str | None
    id2label: dict[int, str]

    def __init__(self, **values: Any):
        values = _with_labels(values)
        vars(self).update(copy.deepcopy(bert_config.checked(_DEFAULTS | values, "BertConfig")))

    @property
    def num_labels(self) -> int:
        """How many labels there are; assign a number to name them `LABEL_0` and so on."""
        return len(self.id2label)

    @num_labels.setter
    def num_labels(self, count: int) -> None:
        vars(self).update(_with_labels({"num_labels": count}))

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | pathlib.Path, **values: Any) -> BertConfig:
        """The configuration of a model by its directory or its name on the hub, with some values changed."""
        options = {option: values.pop(option) for option in HUB_OPTIONS if option in values}
        name = str(pretrained_model_name_or_path)
        directory = resolve_model(ModelConfig(model_name_or_path=name), needs_weights=False, **options)
        if directory is None:
            raise UsageError(
                f"A model must have files. Received: {name}. Pass a directory, or BertConfig(...) for none."
            )
        return cls.from_dict(load_values(directory), **values)

    @classmethod
    def from_dict(cls, values: dict[str, Any], **changed: Any) -> BertConfig:
        """The inverse of `to_dict`, with some values changed."""
        values = {name: value for name, value in values.items() if name != "model_type" or value != "bert"}
        if {"num_labels", "id2label"} & set(changed):
            values = {
                name: value for name, value in values.items() if name not in ("num_labels", "id2label", "label2id")
            }
        elif values.get("id2label") is not None:
            values.pop("num_labels", None)
        return cls(**values | changed)

    @classmethod
    def of(cls, config: Any) -> BertConfig:
        """A configuration of ours from one, from transformers', or from a dictionary."""
        if isinstance(config, cls):
            return config
        for name in ("to_diff_dict", "to_dict"):
            if hasattr(config, name):
                return cls.from_dict(getattr(config, name)())
        if isinstance(config, dict):
            return cls.from_dict(config)
        raise UsageError(
            f"A model is described by a BertConfig. Received: {type(config).__name__}. "
            "Pass BertConfig(...), or call from_pretrained for a model that exists."
        )

    def to_dict(self) -> dict[str, Any]:
        """All values, as `config.json` may hold them."""
        return copy.deepcopy(vars(self)) | {"model_type": self.model_type}

    def to_diff_dict(self) -> dict[str, Any]:
        """The values that are not the usual ones."""
        sizes = list(_DEFAULTS)[:5]
        kept = {k: v for k, v in self.to_dict().items() if k in sizes or k not in _DEFAULTS or v != _DEFAULTS[k]}
        return kept

    def to_json_string(self) -> str:
        """`config.json` as a text."""
        return json.dumps(self.to_diff_dict(), indent=2, sort_keys=True) + "\n"

    def save_pretrained(self, directory: str | pathlib.Path) -> None:
        """Writes `config.json`; a model's `save_pretrained` does so too."""
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(directory) / "config.json").write_text(self.to_json_string(), encoding="utf-8")

    def update(self, values: dict[str, Any]) -> None:
        """Changes some values."""
        vars(self).update(vars(self.from_dict(self.to_dict(), **values)))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, BertConfig) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"BertConfig {self.to_json_string()}"


def load_config(directory: pathlib.Path) -> BertConfig:
    """The configuration of a model by its directory, checked."""
    return BertConfig.from_dict(load_values(directory))


def _with_labels(values: dict[str, Any]) -> dict[str, Any]:
    """The values with `id2label` and `label2id` in place of a number of labels, of which there are 2 by default."""
    count, names = values.get("num_labels"), values.get("id2label")
    values = {name: value for name, value in values.items() if name != "num_labels"}
    if isinstance(names, (list, tuple)):
        names = dict(enumerate(names))
    if names is None:
        checked = bert_config.checked({**_DEFAULTS, "num_labels": 2 if count is None else count}, "BertConfig")
        names = {i: f"LABEL_{i}" for i in range(checked["num_labels"])}
    names = {int(number): name for number, name in names.items()} if isinstance(names, dict) else names
    if count is not None and len(names) != count:
        raise UsageError(
            f"Each label has a name. Received: num_labels={count} and id2label of {len(names)}. Leave out num_labels."
        )
    values["id2label"] = names
    values["label2id"] = {name: number for number, name in names.items()} if isinstance(names, dict) else None
    return values
