"""The encoders that can be trained: a row for each `model_type` of `config.json`. Imports the standard library
only."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tfbert.errors import UsageError

_KINDS = (
    "Model",
    "SequenceClassification",
    "TokenClassification",
    "QuestionAnswering",
    "MultipleChoice",
    "MaskedLM",
    "PreTraining",
)
"""What a model's head is for, in transformers' words; one without is of the kind "Model"."""


class Encoder(NamedTuple):
    """A row.

    Attributes:
        classes: How transformers' classes begin.
        module: What there is to it, in `model/encoders`.
        without: Kinds of heads that it has not; "PreTraining" is on words and next sentences together.
    """

    classes: str
    module: str
    without: tuple[str, ...] = ("PreTraining",)


ENCODERS = {
    "bert": Encoder("Bert", "bert", without=()),
    "distilbert": Encoder("DistilBert", "distilbert"),
    "electra": Encoder("Electra", "electra", without=("MaskedLM", "PreTraining")),
    "roberta": Encoder("Roberta", "roberta"),
    "xlm-roberta": Encoder("XLMRoberta", "roberta"),
    "camembert": Encoder("Camembert", "roberta"),
    "modernbert": Encoder("ModernBert", "modernbert"),
}
"""By `model_type`."""


def kinds_of(model_type: str) -> tuple[str, ...]:
    """The kinds of models that an encoder has."""
    return tuple(kind for kind in _KINDS if kind not in ENCODERS[model_type].without)


def check_kind(model_type: str, kind: str) -> None:
    """Refuses a kind of models that an encoder has not.

    Raises:
        UsageError: naming those that it has.
    """
    known = kinds_of(model_type)
    if kind not in known:
        name = class_name(model_type, kind).removeprefix("TF")
        raise UsageError(
            f"A {model_type} model has no head for this. Received: {name}. "
            f"It has heads for {', '.join(known[1:])}: take another model."
        )


def class_name(model_type: str, kind: str) -> str:
    """transformers' name for the TensorFlow class of a kind of model: "Model", or what it is for."""
    return f"TF{ENCODERS[model_type].classes}{'' if kind == 'Model' else 'For'}{kind}"


def model_type_of(values: dict[str, Any]) -> str:
    """The `model_type` of a `config.json`; of one that does not say, as before 2020, by its classes, or a BERT's. Empty
    for none of ours."""
    found, names = values.get("model_type", "bert"), values.get("architectures")
    if "model_type" not in values and isinstance(names, list) and names:
        matching = [kind for kind, row in ENCODERS.items() for name in names if _is_of(row.classes, str(name))]
        return matching[0] if matching else ""
    return found if isinstance(found, str) and found in ENCODERS else ""


def _is_of(classes: str, name: str) -> bool:
    return re.match(rf"(TF|Flax)?{classes}(?![a-z])", name) is not None
