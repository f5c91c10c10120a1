"""What a task needs above BERT's encoder: new weights, and the fields of `config.json` that describe them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import BertConfig

SEQUENCE_CLASSIFICATION = "BertForSequenceClassification"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """A head of one row of weights for each label.

    Attributes:
        architecture: transformers' class without `TF`, as `config.json` names it.
        labels: A name for each output.
        has_names: Whether the names mean something: a head from a file that has others is put in their order or left
            aside.
        problem_type: transformers' word for the loss; None where it has none.
    """

    architecture: str = SEQUENCE_CLASSIFICATION
    labels: tuple[str, ...]
    has_names: bool
    problem_type: str | None

    def describe_in(self, config: BertConfig) -> None:
        """Notes it in a model's configuration."""
        config.id2label = dict(enumerate(self.labels))  # num_labels follows from it.
        config.label2id = {label: i for i, label in enumerate(self.labels)}
        config.problem_type = self.problem_type
