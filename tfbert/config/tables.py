"""What the configuration must know of each task, and of each encoder: a row each. Imports nothing but the standard
library."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from tfbert.errors import UsageError

TaskName = Literal[
    "auto",
    "classification",
    "regression",
    "multi_label_classification",
    "token_classification",
    "question_answering",
    "multiple_choice",
    "pretraining",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """A task.

    Attributes:
        metrics: Those that can decide which weights are kept, some only for some data.
        shown_metrics: The metrics of an evaluation's line on the screen; empty: all.
        max_seq_length: Longest input in tokens, unless the user says.
        demo_epochs: Epochs on the built-in data, whose models may start from random weights.
        has_classes: Whether it gives classes, which can be named and weighted.
        has_windows: Whether long inputs are cut into windows, whose sizes go with the length of rows.
        of_records: Whether it trains on records of a corpus, by a command of its own.
    """

    metrics: tuple[str, ...]
    shown_metrics: tuple[str, ...] = ()
    max_seq_length: int = 128
    demo_epochs: float = 3.0
    has_classes: bool = False
    has_windows: bool = False
    of_records: bool = False


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TASKS = {
    "classification": TaskFacts(metrics=_names("accuracy macro_f1 f1 matthews_correlation loss"), has_classes=True),
    "regression": TaskFacts(metrics=_names("pearson spearmanr mse loss")),
    "multi_label_classification": TaskFacts(
        metrics=_names(
            "micro_f1 macro_f1 sample_f1 micro_precision micro_recall macro_precision macro_recall "
            "subset_accuracy roc_auc average_precision loss"
        ),
        shown_metrics=_names("micro_f1 macro_f1 subset_accuracy roc_auc threshold loss"),
        demo_epochs=5.0,
        has_classes=True,
    ),
    "token_classification": TaskFacts(
        metrics=_names("f1 precision recall accuracy loss"), demo_epochs=10.0, has_classes=True
    ),
    "question_answering": TaskFacts(
        metrics=_names("f1 exact_match exact best_f1 best_exact"),
        max_seq_length=384,
        demo_epochs=10.0,
        has_windows=True,
    ),
    "multiple_choice": TaskFacts(
        metrics=_names("accuracy mean_reciprocal_rank loss"), max_seq_length=256, demo_epochs=8.0
    ),
    "pretraining": TaskFacts(
        metrics=_names("loss masked_accuracy perplexity next_sentence_accuracy masked_lm_loss next_sentence_loss"),
        of_records=True,
    ),
}
"""By the name of `--task`."""
OF_CLASSES = tuple(name for name, facts in TASKS.items() if facts.has_classes)
OF_ROWS = tuple(name for name, facts in TASKS.items() if not facts.of_records)
METRICS = tuple(dict.fromkeys(name for facts in TASKS.values() for name in facts.metrics))


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def facts_of(task: str) -> TaskFacts:
    """A task's row; while it is not decided (`auto`), or not checked, that of classification."""
    return TASKS.get(task, TASKS["classification"])


_KINDS = ("Model", "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
_KINDS += ("MaskedLM", "PreTraining")
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
        rule = f"A {model_type} model has no head for this"
        raise UsageError(f"{rule}. Received: {name}. It has heads for {', '.join(known[1:])}: take another model.")


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
