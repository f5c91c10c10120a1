"""Distributed pre-training and fine-tuning of BERT in TensorFlow: classifiers, taggers, models of answers and choices.

import keras, tfbert
with strategy.scope():
    model = tfbert.FineTuner(classifier, gradient_accumulation_steps=4, max_grad_norm=1.0)
    model.compile(optimizer=..., loss=..., metrics=[...])
model.fit(train_ds, epochs=3)
"""

import contextlib
import importlib
import warnings
from typing import TYPE_CHECKING

from tfbert.bert.elsewhere import error_for
from tfbert.config.data import DataConfig
from tfbert.config.modes import ExportConfig, HubConfig, ModelConfig, OutputConfig, PredictConfig, RuntimeConfig
from tfbert.config.run import Config, of_arguments
from tfbert.config.tables import ENCODERS, class_name, kinds_of
from tfbert.config.tasks import (
    AnsweringConfig,
    ChoosingConfig,
    CorpusConfig,
    MultiLabelConfig,
    PretrainingConfig,
    TaggingConfig,
)
from tfbert.config.training import TrainingConfig
from tfbert.devices.process import imported_quietly, imports_whole, keep_freed_memory
from tfbert.errors import Preempted, RunError, UsageError, other_project, speak_to_python

if TYPE_CHECKING:  # What `__getattr__` imports when it is asked for, so that editors see it.
    from tfbert import callbacks as callbacks
    from tfbert.bert.models import (
        TFAutoModel,
        TFAutoModelForMaskedLM,
        TFAutoModelForMultipleChoice,
        TFAutoModelForPreTraining,
        TFAutoModelForQuestionAnswering,
        TFAutoModelForSequenceClassification,
        TFAutoModelForTokenClassification,
        TFBertForMaskedLM,
        TFBertForMultipleChoice,
        TFBertForPreTraining,
        TFBertForQuestionAnswering,
        TFBertForSequenceClassification,
        TFBertForTokenClassification,
        TFBertModel,
    )
    from tfbert.devices.runtime import build_strategy
    from tfbert.finetuner import FineTuner
    from tfbert.model.files import BertConfig
    from tfbert.modes.load import load
    from tfbert.python.finetune import Results, SweepResults, evaluate, finetune, pretrain, sweep
    from tfbert.step.keras3.fused import LAMB, AdamW, WarmupSchedule, create_optimizer
    from tfbert.tasks.losses import base_rate
    from tfbert.tokens.tokenizer import BertTokenizer

__version__ = "2.0.0"

speak_to_python(of_arguments)
if _other := other_project():
    warnings.warn(_other, stacklevel=2)

# TensorFlow takes seconds to import; a configuration needs none of it.
_LAZY = {
    "FineTuner": "tfbert.finetuner",
    "Results": "tfbert.python.finetune",
    "evaluate": "tfbert.python.finetune",
    "finetune": "tfbert.python.finetune",
    "pretrain": "tfbert.python.finetune",
    "sweep": "tfbert.python.finetune",
    "SweepResults": "tfbert.python.finetune",
    "load": "tfbert.modes.load",
    "base_rate": "tfbert.tasks.losses",
    "build_strategy": "tfbert.devices.runtime",
    "BertTokenizer": "tfbert.tokens.tokenizer",
    "BertConfig": "tfbert.model.files",
    "TFBertModel": "tfbert.bert.models",
    "TFBertForSequenceClassification": "tfbert.bert.models",
    "TFBertForTokenClassification": "tfbert.bert.models",
    "TFBertForQuestionAnswering": "tfbert.bert.models",
    "TFBertForMultipleChoice": "tfbert.bert.models",
    "TFBertForMaskedLM": "tfbert.bert.models",
    "TFBertForPreTraining": "tfbert.bert.models",
    "TFAutoModel": "tfbert.bert.models",
    "TFAutoModelForSequenceClassification": "tfbert.bert.models",
    "TFAutoModelForTokenClassification": "tfbert.bert.models",
    "TFAutoModelForQuestionAnswering": "tfbert.bert.models",
    "TFAutoModelForMultipleChoice": "tfbert.bert.models",
    "TFAutoModelForMaskedLM": "tfbert.bert.models",
    "TFAutoModelForPreTraining": "tfbert.bert.models",
    "AdamW": "tfbert.step.keras3.fused",
    "LAMB": "tfbert.step.keras3.fused",
    "WarmupSchedule": "tfbert.step.keras3.fused",
    "create_optimizer": "tfbert.step.keras3.fused",
}
_CONFIGS = {f"{row.classes}Config": "tfbert.model.files" for row in ENCODERS.values()}
_OF_ENCODERS = _CONFIGS | {class_name(each, kind): "tfbert.bert.models" for each in ENCODERS for kind in kinds_of(each)}
"""The same classes for each encoder; editors see BERT's."""
_NO_TENSORFLOW = ("Results", "evaluate", "finetune", "pretrain", "sweep", "SweepResults", "base_rate", *_CONFIGS)

__all__ = [
    "AdamW",
    "AnsweringConfig",
    "BertConfig",
    "BertTokenizer",
    "ChoosingConfig",
    "Config",
    "CorpusConfig",
    "DataConfig",
    "ExportConfig",
    "FineTuner",
    "HubConfig",
    "LAMB",
    "ModelConfig",
    "MultiLabelConfig",
    "OutputConfig",
    "PredictConfig",
    "Preempted",
    "PretrainingConfig",
    "Results",
    "RunError",
    "RuntimeConfig",
    "SweepResults",
    "TFAutoModel",
    "TFAutoModelForMaskedLM",
    "TFAutoModelForMultipleChoice",
    "TFAutoModelForPreTraining",
    "TFAutoModelForQuestionAnswering",
    "TFAutoModelForSequenceClassification",
    "TFAutoModelForTokenClassification",
    "TFBertForMaskedLM",
    "TFBertForMultipleChoice",
    "TFBertForPreTraining",
    "TFBertForQuestionAnswering",
    "TFBertForSequenceClassification",
    "TFBertForTokenClassification",
    "TFBertModel",
    "TaggingConfig",
    "TrainingConfig",
    "UsageError",
    "WarmupSchedule",
    "base_rate",
    "build_strategy",
    "create_optimizer",
    "evaluate",
    "finetune",
    "keep_freed_memory",
    "load",
    "pretrain",
    "sweep",
]


def __getattr__(name: str):
    module = _LAZY.get(name) or _OF_ENCODERS.get(name, "")
    if name != "callbacks" and not module:
        if error := error_for(name, __dir__()):
            raise error
        raise AttributeError(f"module 'tfbert' has no attribute {name!r}")
    with imports_whole(), contextlib.nullcontext() if name in ("callbacks", *_NO_TENSORFLOW) else imported_quietly():
        if name == "callbacks":  # A module of its own, which a mere `import tfbert` has too.
            return importlib.import_module("tfbert.callbacks")
        return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_OF_ENCODERS, "callbacks"})
