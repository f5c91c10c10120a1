"""A model's `config.json`: read, and checked against one table of rules."""

from __future__ import annotations

import pathlib
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfbert.config.encoders import model_type_of
from tfbert.config.rules import architecture_problem
from tfbert.data.foreign_files import read_json_object
from tfbert.errors import UsageError
from tfbert.model.encoders import Bert, encoder_of

OWN_FIELD = "tfbert"
"""The field in which training records what transformers has no name for: `num_texts`, `max_seq_length`, `columns`."""

_LAYOUT_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")

Rule = tuple[str, Callable[[Any], bool]]
"""What a value must be: in words, and as a function."""


def _whole(low: int, high: int) -> Rule:
    # To Python a bool is an int; and 768.0 is no size.
    return f"a whole number from {low:,} to {high:,}", lambda value: type(value) is int and low <= value <= high


def _fraction(*, below_one: bool) -> Rule:
    def holds(value: Any) -> bool:
        return type(value) in (int, float) and 0 <= value <= 1 and not (below_one and value == 1)  # NaN is not.

    return f"a number from 0 to {'below ' if below_one else ''}1", holds


def _or_null(rule: Rule) -> Rule:
    return f"{rule[0]}, or null", lambda value: value is None or rule[1](value)


def _is_own_field(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _or_null(_whole(1, 2))[1](value.get("num_texts"))
        and _or_null(_whole(2, 1 << 20))[1](value.get("max_seq_length"))
        and _is_columns(value.get("columns", {}))
    )


def _is_columns(value: Any) -> bool:
    """Whether a value is lists of names by name."""
    lists = value.values() if isinstance(value, dict) else [None]
    return all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists)


# The limits are far above every BERT, and low enough that nothing here takes a minute or fills the memory.
_RULES: dict[str, Rule] = {
    "vocab_size": _whole(1, 10_000_000),
    "hidden_size": _whole(1, 1 << 16),
    "num_hidden_layers": _whole(1, 1000),
    "num_attention_heads": _whole(1, 1 << 16),
    "intermediate_size": _whole(1, 1 << 20),
    "max_position_embeddings": _whole(1, 1 << 20),
    "type_vocab_size": _whole(1, 1 << 16),
    "num_labels": _whole(1, 1 << 20),
    "pad_token_id": _or_null(("a whole number", lambda value: type(value) is int)),
    "classifier_dropout": _or_null(_fraction(below_one=True)),
    "layer_norm_eps": _fraction(below_one=False),
    "initializer_range": _fraction(below_one=False),
    "hidden_act": ("the name of a function", lambda value: isinstance(value, str)),
    "problem_type": _or_null((f"one of {', '.join(_PROBLEM_TYPES)}", lambda value: value in _PROBLEM_TYPES)),
    "architectures": _or_null(
        ("a list of names", lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value))
    ),
    "label2id": _or_null(("an object", lambda value: isinstance(value, dict))),
    "pruned_heads": _or_null(("an object without any, as all heads are computed", lambda value: value == {})),
    "quantization_config": _or_null(("an object", lambda value: isinstance(value, dict))),
    OWN_FIELD: _or_null(("an object with num_texts (1 or 2), max_seq_length (2 or more), columns", _is_own_field)),
}


def read_values(path: pathlib.Path) -> dict[str, Any]:
    """What `config.json` holds, not checked."""
    return read_json_object(path, "config.json must be readable JSON")


def _rules_of(encoder: Bert) -> dict[str, Rule]:
    """Those of all encoders, and those of this one."""
    choices = {
        name: (f"one of {', '.join(map(repr, values))}", lambda value, values=values: value in values)
        for name, values in encoder.CHOICES.items()
    }
    sizes = {name: _whole(least, 10_000_000) for name, least in encoder.SIZES.items()}
    rates = dict.fromkeys(encoder.RATES, _fraction(below_one=True))
    return _RULES | sizes | rates | choices


def checked(values: dict[str, Any], path: pathlib.Path | str) -> dict[str, Any]:
    """The values of a configuration by our names, with labels that have names; `id2label` names those of a fine-tuned
    model.

    Args:
        values: As in `config.json`.
        path: The file, or what else holds them, for messages.

    Raises:
        UsageError: where they describe no encoder that is here.
    """
    if problem := architecture_problem(values, path):
        raise UsageError(problem)
    encoder = encoder_of(model_type_of(values))
    values = encoder.in_our_names(values) | {"model_type": model_type_of(values)}
    if absent := [encoder.FIELDS.get(key, key) for key in _LAYOUT_KEYS if key not in values]:
        raise UsageError(f"config.json must describe a model. Received: {path} without {', '.join(absent)}. Add them.")
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise UsageError(
            "The TensorFlow BERT has absolute positions only. Received: "
            f"{_shown('position_embedding_type', values, path)}. Pass another model."
        )
    for option in ("is_decoder", "add_cross_attention"):
        if values.get(option):
            raise UsageError(
                "config.json must describe an encoder, in which every token attends to all others. "
                f"Received: {_shown(option, values, path)}. Pass another model."
            )
    for key, (what, holds) in _rules_of(encoder).items():
        if key in values and not holds(values[key]):
            theirs = encoder.FIELDS.get(key, key)
            shown = _shown(theirs, {theirs: values[key]}, path)
            raise UsageError(f"config.json must give {theirs} as {what}. Received: {shown}. Repair it.")
    if problem := encoder.problem(values):
        raise UsageError(
            f"config.json must describe a model that is here. Received: {problem}, in {path}. Pass another."
        )
    if values["hidden_size"] % values["num_attention_heads"]:
        raise UsageError(
            "hidden_size must be a multiple of num_attention_heads. Received: "
            f"hidden_size={values['hidden_size']}, {_shown('num_attention_heads', values, path)}. Repair it."
        )
    if values.get("id2label") is not None:
        values = values | {"id2label": _label_names(values, path)}
    return values


def _label_names(values: dict[str, Any], path: pathlib.Path | str) -> dict[int, str]:
    """`id2label` with names that are strings: some files number the labels, `{"0": 0, "1": 1}`."""
    id2label = values["id2label"]
    try:
        names = {int(key): str(name) for key, name in id2label.items() if isinstance(name, (str, int, float))}
        "".join(names.values()).encode()  # Half a surrogate pair cannot be written anywhere.
    except (AttributeError, ValueError):
        names = {}
    if not names or len(names) != len(id2label):
        raise UsageError(
            f"id2label must name each label under its number. Received: {_shown('id2label', values, path)}. Repair it."
        )
    return names


def _shown(key: str, values: dict[str, Any], path: pathlib.Path | str) -> str:
    return f"{key}={reprlib.repr(values[key])} in {path}"


def record_inputs(
    config: Any,
    *,
    num_texts: int | None,
    max_seq_length: int | None,
    columns: Mapping[str, Sequence[str]] | None = None,
    **others: Any,
) -> None:
    """Records in a model's configuration, and so in its `config.json`, what inputs it is trained on.

    Args:
        config: The model's.
        num_texts: 1 for single texts, 2 for pairs; None if unknown.
        max_seq_length: Longest input in tokens.
        columns: Those of the training data, by the options that name them.
        **others: Anything that JSON can hold.

    Raises:
        UsageError: for pairs on a model that cannot tell the second text from the first.
    """
    check_token_types(config, num_texts or 1)
    read = {"columns": {option: [*names] for option, names in columns.items()}} if columns else {}
    setattr(config, OWN_FIELD, {"num_texts": num_texts, "max_seq_length": max_seq_length, **read, **others})


def check_token_types(config: Any, num_texts: int) -> None:
    """Refuses pairs on a model without a second token type.

    Reading a row that the embedding table lacks fails on a CPU, and gives zeros on a GPU.

    Raises:
        UsageError: for such pairs.
    """
    if config.encoder.TOKEN_TYPES and num_texts > config.type_vocab_size:
        raise UsageError(
            "Pairs of texts need a model with two token types. "
            f"Received: pairs with type_vocab_size={config.type_vocab_size} in the model's config.json. "
            "Pass another model, or one column with --text_column."
        )
