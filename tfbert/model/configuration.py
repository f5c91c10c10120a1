"""What describes a model: transformers' `BertConfig` and the like, without transformers."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

from tfbert.config.encoders import ENCODERS, model_type_of
from tfbert.config.parts import ModelConfig
from tfbert.errors import UsageError
from tfbert.model import bert_config
from tfbert.model.encoders import Bert, encoder_of
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
    """The size of a BERT, its rates and its labels, as `config.json` holds them; other encoders' derive from it.

    Args:
        **values: Any of the fields in transformers' `config.json`; `num_labels`, or the names of labels as `id2label`.
            Fields of other names are kept.

    Raises:
        UsageError: for values that describe no such model, or a decoder.
    """

    model_type = "bert"
    architectures: list[str] | None
    problem_type: str | None
    id2label: dict[int, str]

    def __init__(self, **values: Any):
        values = _with_labels(self.encoder.in_our_names(values))
        vars(self).update(self._checked(self._defaults() | values))

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return _DEFAULTS | encoder_of(cls.model_type).DEFAULTS

    @classmethod
    def _checked(cls, values: dict[str, Any]) -> dict[str, Any]:
        """A copy of values, checked as those of a file."""
        checked = bert_config.checked({"model_type": cls.model_type} | values, cls.__name__)
        return copy.deepcopy({name: value for name, value in checked.items() if name != "model_type"})

    def __getattr__(self, name: str) -> Any:
        """A field by the name that this encoder's `config.json` has for it."""
        ours = {theirs: ours for ours, theirs in self.encoder.FIELDS.items()}
        if name not in ours:
            raise AttributeError(f"{type(self).__name__} has no {name!r}.")
        return getattr(self, ours[name])

    def __setattr__(self, name: str, value: Any) -> None:
        """Likewise."""
        super().__setattr__(*self.encoder.in_our_names({name: value}), value)

    @property
    def encoder(self) -> Bert:
        """What differs between this encoder and others."""
        return encoder_of(self.model_type)

    @property
    def num_positions(self) -> int:
        """How many tokens a text may have."""
        return self.max_position_embeddings - (self.pad_token_id + 1 if self.encoder.COUNTS_FROM_PAD else 0)

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
        """The inverse of `to_dict`, with some values changed; of the class that `model_type` says."""
        kind = model_type_of({"model_type": cls.model_type} | values)
        if not kind:
            bert_config.checked(values, cls.__name__)  # Says so.
        values = {name: value for name, value in values.items() if name != "model_type"}
        if {"num_labels", "id2label"} & set(changed):
            values = {
                name: value for name, value in values.items() if name not in ("num_labels", "id2label", "label2id")
            }
        elif values.get("id2label") is not None:
            values.pop("num_labels", None)
        encoder = encoder_of(kind)
        return CONFIGS[kind](**encoder.in_our_names(values) | encoder.in_our_names(changed))

    @classmethod
    def of(cls, config: Any) -> BertConfig:
        """A configuration of ours from one, from transformers', or from a dictionary."""
        if isinstance(config, BertConfig):
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
        theirs = {self.encoder.FIELDS.get(name, name): value for name, value in vars(self).items()}
        return copy.deepcopy(theirs) | {"model_type": self.model_type}

    def to_diff_dict(self) -> dict[str, Any]:
        """The values that are not the usual ones."""
        kept, usual = [*list(_DEFAULTS)[:5], *self.encoder.DEFAULTS], self._defaults()
        unusual = {k: v for k, v in vars(self).items() if k in kept or k not in usual or v != usual[k]}
        values = self.to_dict()
        return {name: values[name] for name in map(lambda k: self.encoder.FIELDS.get(k, k), [*unusual, "model_type"])}

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
        return type(other) is type(self) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.to_json_string()}"


CONFIGS: dict[str, type[BertConfig]] = {
    kind: type(
        f"{row.classes}Config",
        (BertConfig,),
        {"model_type": kind, "__module__": __name__, "__doc__": BertConfig.__doc__},
    )
    for kind, row in ENCODERS.items()
} | {BertConfig.model_type: BertConfig}
"""Each encoder's class, by `model_type`."""
globals().update({made.__name__: made for made in CONFIGS.values()})


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
        count = bert_config.checked({**_DEFAULTS, "num_labels": 2 if count is None else count}, "BertConfig")[
            "num_labels"
        ]
        names = {i: f"LABEL_{i}" for i in range(count)}
    names = {int(number): name for number, name in names.items()} if isinstance(names, dict) else names
    if count is not None and len(names) != count:
        raise UsageError(
            f"Each label has a name. Received: num_labels={count} and id2label of {len(names)}. Leave out num_labels."
        )
    values["id2label"] = names
    values["label2id"] = {name: number for number, name in names.items()} if isinstance(names, dict) else None
    return values
