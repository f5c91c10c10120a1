"""What a task needs above BERT's encoder: new weights, what computes them, and the fields of `config.json` that
describe them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfbert.model.forward import forward, forward_spans, forward_tokens

if TYPE_CHECKING:
    import tensorflow as tf
    from transformers import BertConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """A head of one row of weights for each label.

    Attributes:
        architecture: transformers' class without `TF`, as `config.json` names it.
        forward: Computes model and head over a batch's inputs: see `forward.forward`.
        weights: What its layer is called.
        has_pooler: Whether it stands on BERT's pooler.
        labels: A name for each output.
        has_names: Whether the names mean something: a head from a file that has others is put in their order or left
            aside.
        problem_type: transformers' word for the loss; None where it has none.
    """

    architecture: str
    forward: Callable[..., tf.Tensor]
    weights: str = "classifier"
    has_pooler: bool = False
    labels: tuple[str, ...]
    has_names: bool
    problem_type: str | None = None

    @property
    def weight_names(self) -> tuple[str, str]:
        """Its weights, as PyTorch calls them."""
        return f"{self.weights}.weight", f"{self.weights}.bias"

    def describe_in(self, config: BertConfig) -> None:
        """Notes it in a model's configuration."""
        config.id2label = dict(enumerate(self.labels))  # num_labels follows from it.
        config.label2id = {label: i for i, label in enumerate(self.labels)}
        config.problem_type = self.problem_type


def sequence_head(labels: tuple[str, ...], *, has_names: bool, problem_type: str) -> Head:
    """`BertForSequenceClassification`'s: a row of logits for each text."""
    return Head(
        architecture="BertForSequenceClassification",
        forward=forward,
        has_pooler=True,
        labels=labels,
        has_names=has_names,
        problem_type=problem_type,
    )


def token_head(labels: tuple[str, ...]) -> Head:
    """`BertForTokenClassification`'s: a row of logits for each token."""
    return Head(architecture="BertForTokenClassification", forward=forward_tokens, labels=labels, has_names=True)


def span_head() -> Head:
    """`BertForQuestionAnswering`'s: for each token, how well a span starts there and ends there."""
    return Head(
        architecture="BertForQuestionAnswering",
        forward=forward_spans,
        weights="qa_outputs",
        labels=("LABEL_0", "LABEL_1"),
        has_names=False,
    )
