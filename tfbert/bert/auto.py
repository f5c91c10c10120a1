"""transformers 4's `TFAutoModel...`: the class by the task, and by the `model_type` of the files."""

from __future__ import annotations

from typing import Any, ClassVar

from tfbert.bert.models import class_of
from tfbert.config.encoders import class_name
from tfbert.errors import UsageError
from tfbert.model.configuration import HUB_OPTIONS, BertConfig


class _Auto:
    """Makes models of one kind by `from_pretrained` and `from_config`."""

    KIND: ClassVar[str]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        raise UsageError(
            f"{cls.__name__} chooses a class for files. Received: a call of it. "
            f"Write {cls.__name__}.from_pretrained(name), or {class_name('bert', cls.KIND)}(config)."
        )

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **options: Any) -> Any:
        """As that of the class."""
        of_hub = {option: options[option] for option in HUB_OPTIONS if option in options}
        config = BertConfig.from_pretrained(pretrained_model_name_or_path, **of_hub)
        return class_of(config.model_type, cls.KIND).from_pretrained(pretrained_model_name_or_path, **options)

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> Any:
        """A model with new weights."""
        config = BertConfig.of(config)
        return class_of(config.model_type, cls.KIND)(config, **options)


class TFAutoModel(_Auto):
    """`TFBertModel`, or the like of another encoder."""

    KIND = "Model"


class TFAutoModelForSequenceClassification(_Auto):
    """`TFBertForSequenceClassification`, or the like of another encoder."""

    KIND = "SequenceClassification"


class TFAutoModelForTokenClassification(_Auto):
    """`TFBertForTokenClassification`, or the like of another encoder."""

    KIND = "TokenClassification"


class TFAutoModelForQuestionAnswering(_Auto):
    """`TFBertForQuestionAnswering`, or the like of another encoder."""

    KIND = "QuestionAnswering"


class TFAutoModelForMultipleChoice(_Auto):
    """`TFBertForMultipleChoice`, or the like of another encoder."""

    KIND = "MultipleChoice"


class TFAutoModelForMaskedLM(_Auto):
    """`TFBertForMaskedLM`, or the like of another encoder."""

    KIND = "MaskedLM"


class TFAutoModelForPreTraining(_Auto):
    """`TFBertForPreTraining`, or the like of another encoder."""

    KIND = "PreTraining"
