"""transformers 4's `TFAutoModel...`: the class by the task alone, since every model here is a BERT."""

from __future__ import annotations

from typing import Any

from tfbert.bert import models
from tfbert.errors import UsageError


class _Auto:
    """Makes models of one class by `from_pretrained` and `from_config`."""

    model_class: type

    def __new__(cls, *args: Any, **options: Any) -> Any:
        raise UsageError(
            f"{cls.__name__} chooses a class for files. Received: a call of it. "
            f"Write {cls.__name__}.from_pretrained(name), or {cls.model_class.__name__}(config)."
        )

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **options: Any) -> Any:
        """As that of the class."""
        return cls.model_class.from_pretrained(pretrained_model_name_or_path, **options)

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> Any:
        """A model with new weights."""
        return cls.model_class(config, **options)


class TFAutoModel(_Auto):
    """`TFBertModel`."""

    model_class = models.TFBertModel


class TFAutoModelForSequenceClassification(_Auto):
    """`TFBertForSequenceClassification`."""

    model_class = models.TFBertForSequenceClassification


class TFAutoModelForTokenClassification(_Auto):
    """`TFBertForTokenClassification`."""

    model_class = models.TFBertForTokenClassification


class TFAutoModelForQuestionAnswering(_Auto):
    """`TFBertForQuestionAnswering`."""

    model_class = models.TFBertForQuestionAnswering


class TFAutoModelForMultipleChoice(_Auto):
    """`TFBertForMultipleChoice`."""

    model_class = models.TFBertForMultipleChoice


class TFAutoModelForMaskedLM(_Auto):
    """`TFBertForMaskedLM`."""

    model_class = models.TFBertForMaskedLM


class TFAutoModelForPreTraining(_Auto):
    """`TFBertForPreTraining`."""

    model_class = models.TFBertForPreTraining
