"""What a task needs above an encoder: new weights, what computes them, and the fields of `config.json` that describe
them."""

from __future__ import annotations

import abc
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.model.forward import forward, forward_choices, forward_spans, forward_tokens
from tfbert.model.layout import Shapes, shapes_of
from tfbert.model.weights import Stored, list_names

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig

log = logging.getLogger("tfbert")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head(abc.ABC):
    """What stands above an encoder.

    Attributes:
        kind: The kind of model: see `encoders.bert.Bert`.
        forward: Computes model and head over a batch's inputs: see `forward.forward`.
    """

    kind: str
    forward: Callable[..., Any]

    def second_names(self, config: BertConfig) -> tuple[str, ...]:
        """Names under which files hold some weights a second time."""
        return ()

    @abc.abstractmethod
    def bias_name(self, config: BertConfig) -> str:
        """The name in PyTorch of the bias of its labels or words."""

    @abc.abstractmethod
    def describe_in(self, config: BertConfig) -> None:
        """Describes the head in a model's configuration."""

    @abc.abstractmethod
    def shapes(self, stored: Mapping[str, Stored], config: BertConfig) -> Shapes:
        """The shapes that a file's weights of this head must have; without weights whose shape is free.

        Args:
            stored: The file's weights.
            config: The model's configuration.
        """

    @abc.abstractmethod
    def read(self, stored: Mapping[str, Stored], saved: BertConfig) -> tuple[dict[str, np.ndarray], str]:
        """A file's weights of this head, as far as they mean the same here.

        Args:
            stored: The file's weights.
            saved: The file's configuration.

        Returns:
            The weights, and why some were left out; empty if none were, or the file has none.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelHead(Head):
    """A head of one row of weights for each label.

    Attributes:
        labels: A name for each output.
        has_names: Whether the names mean something: a file's head is then put in their order, or left out if it has
            other names.
        problem_type: transformers' word for the loss; None where it has none.
    """

    labels: tuple[str, ...]
    has_names: bool
    problem_type: str | None = None

    def weight_names(self, config: BertConfig) -> tuple[str, str]:
        """The names of its weights in PyTorch: a row and a number for each label."""
        layer = config.encoder.OUTPUTS[self.kind]
        return f"{layer}.weight", f"{layer}.bias"

    def bias_name(self, config: BertConfig) -> str:
        return self.weight_names(config)[1]

    def describe_in(self, config: BertConfig) -> None:
        config.id2label = dict(enumerate(self.labels))  # num_labels follows from it.
        config.label2id = {label: i for i, label in enumerate(self.labels)}
        config.problem_type = self.problem_type

    def shapes(self, stored: Mapping[str, Stored], config: BertConfig) -> Shapes:
        weight, bias = self.weight_names(config)
        shapes = shapes_of(config.encoder.head(config, self.kind, len(self.labels)))
        inner = {name: shape for name, shape in shapes.items() if name not in (weight, bias)}
        if weight not in stored or bias not in stored:
            return inner
        rows = stored[weight].shape[:1]  # One for each label; config.json need not give their number.
        return inner | {weight: (*rows, *shapes[weight][1:]), bias: rows}

    def read(self, stored: Mapping[str, Stored], saved: BertConfig) -> tuple[dict[str, np.ndarray], str]:
        """The weights in the order of the task's labels; a head that means something else is left out."""
        own = self.weight_names(saved)
        inner = {name: stored[name].read() for name in self.shapes({}, saved) if name in stored}
        if not all(name in stored for name in own):
            return inner, ""
        rows = stored[own[0]].shape[0]
        owners, labels = saved.architectures or [self.kind], list(self.labels)
        order = list(range(rows)) if rows == len(labels) else []
        names = [saved.id2label.get(i, "") for i in order]
        unnamed = names == [f"LABEL_{i}" for i in order] or saved.num_labels != rows
        places = {name.casefold(): row for row, name in enumerate(names)}
        wanted = [label.casefold() for label in labels]
        if not any(owner.endswith(self.kind) for owner in owners):
            return inner, f"the file's head is that of {owners[0]}"
        if rows != len(labels):
            return inner, f"the file's head has {rows} labels, this task {len(labels)}"
        if not self.has_names or names == labels:
            pass
        elif sorted(places) == sorted(wanted) and len(places) == rows:
            order = [places[label] for label in wanted]
            log.info("The head's labels (%s) are put in the data's order: %s.", ", ".join(names), ", ".join(labels))
        elif unnamed:
            log.info("The file does not name its head's labels; these are assumed, in order: %s.", ", ".join(labels))
        else:
            return inner, f"the file's head is for other labels: {list_names(names)}"
        return inner | {name: stored[name].read()[order] for name in own}, ""


def sequence_head(labels: tuple[str, ...], *, has_names: bool, problem_type: str) -> LabelHead:
    """The head of `...ForSequenceClassification`: a row of logits for each text."""
    return LabelHead(
        kind="SequenceClassification",
        forward=forward,
        labels=labels,
        has_names=has_names,
        problem_type=problem_type,
    )


def token_head(labels: tuple[str, ...]) -> LabelHead:
    """The head of `...ForTokenClassification`: a row of logits for each token."""
    return LabelHead(kind="TokenClassification", forward=forward_tokens, labels=labels, has_names=True)


def span_head() -> LabelHead:
    """The head of `...ForQuestionAnswering`: logits of a span's start and end for each token."""
    return LabelHead(
        kind="QuestionAnswering",
        forward=forward_spans,
        labels=("LABEL_0", "LABEL_1"),
        has_names=False,
    )


def choice_head() -> LabelHead:
    """The head of `...ForMultipleChoice`: one logit for each choice, which is a row of its own."""
    return LabelHead(
        kind="MultipleChoice",
        forward=forward_choices,
        labels=("LABEL_0",),
        has_names=False,
    )
