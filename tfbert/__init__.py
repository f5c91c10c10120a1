"""Distributed pre-training and fine-tuning of BERT in TensorFlow: classifiers, taggers, models of answers and choices.

import keras, tfbert
with strategy.scope():
    model = tfbert.FineTuner(classifier, gradient_accumulation_steps=4, max_grad_norm=1.0)
    model.compile(optimizer=..., loss=..., metrics=[...])
model.fit(train_ds, epochs=3)
"""

import difflib
import importlib
import re
from typing import TYPE_CHECKING

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
from tfbert.config.types import elsewhere
from tfbert.devices.process import imported_quietly, interrupted_later, keep_freed_memory
from tfbert.errors import Preempted, RunError, UsageError, speak_to_python

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
    from tfbert.python import Results, SweepResults, evaluate, finetune, pretrain, sweep
    from tfbert.step.keras3.fused import LAMB, AdamW, WarmupSchedule, create_optimizer
    from tfbert.tasks.losses import base_rate
    from tfbert.tokens.tokenizer import BertTokenizer

__version__ = "2.0.0"

speak_to_python(of_arguments)

# TensorFlow takes seconds to import; a configuration needs none of it.
_IN_MODULES = {
    "tfbert.finetuner": "FineTuner",
    "tfbert.python": "Results SweepResults evaluate finetune pretrain sweep",
    "tfbert.modes.load": "load",
    "tfbert.tasks.losses": "base_rate",
    "tfbert.devices.runtime": "build_strategy",
    "tfbert.tokens.tokenizer": "BertTokenizer",
    "tfbert.model.files": "BertConfig",
    "tfbert.step.keras3.fused": "AdamW LAMB WarmupSchedule create_optimizer",
}
_LAZY = {name: module for module, names in _IN_MODULES.items() for name in names.split()}
for _kind in kinds_of("bert"):
    _auto = f"TFAutoModel{'' if _kind == 'Model' else f'For{_kind}'}"
    _LAZY |= dict.fromkeys((class_name("bert", _kind), _auto), "tfbert.bert.models")
_CONFIGS = {f"{row.classes}Config": "tfbert.model.files" for row in ENCODERS.values()}
_OF_ENCODERS = _CONFIGS | {class_name(each, kind): "tfbert.bert.models" for each in ENCODERS for kind in kinds_of(each)}
"""The same classes for each encoder; editors see BERT's."""
_NO_TENSORFLOW = ("Results", "evaluate", "finetune", "pretrain", "sweep", "SweepResults", "base_rate", *_CONFIGS)

__all__ = ["AdamW", "AnsweringConfig", "BertConfig", "BertTokenizer", "ChoosingConfig", "Config", "CorpusConfig"]
__all__ += ["DataConfig", "ExportConfig", "FineTuner", "HubConfig", "LAMB", "ModelConfig", "MultiLabelConfig"]
__all__ += ["OutputConfig", "PredictConfig", "Preempted", "PretrainingConfig", "Results", "RunError", "RuntimeConfig"]
__all__ += ["SweepResults", "TFAutoModel", "TFAutoModelForMaskedLM", "TFAutoModelForMultipleChoice"]
__all__ += ["TFAutoModelForPreTraining", "TFAutoModelForQuestionAnswering", "TFAutoModelForSequenceClassification"]
__all__ += ["TFAutoModelForTokenClassification", "TFBertForMaskedLM", "TFBertForMultipleChoice", "TFBertForPreTraining"]
__all__ += ["TFBertForQuestionAnswering", "TFBertForSequenceClassification", "TFBertForTokenClassification"]
__all__ += ["TFBertModel", "TaggingConfig", "TrainingConfig", "UsageError", "WarmupSchedule", "base_rate"]
__all__ += ["build_strategy", "create_optimizer", "evaluate", "finetune", "keep_freed_memory", "load", "pretrain"]
__all__ += ["sweep"]


def __getattr__(name: str):
    module = _LAZY.get(name) or _OF_ENCODERS.get(name, "")
    if name != "callbacks" and not module:
        if error := _error_for(name):
            raise error
        raise AttributeError(f"module 'tfbert' has no attribute {name!r}")
    # An import of NumPy that was broken off cannot be made again, either.
    with interrupted_later() if name in ("callbacks", *_NO_TENSORFLOW) else imported_quietly():
        if name == "callbacks":  # A module of its own, which a mere `import tfbert` has too.
            return importlib.import_module("tfbert.callbacks")
        return getattr(importlib.import_module(module), name)


def _error_for(name: str) -> ImportError | None:
    """What `from tfbert import NAME` raises for a name of transformers 4. (The line of an AttributeError would be
    lost.)"""
    encoders = f"({'|'.join(row.classes for row in ENCODERS.values())})"
    is_class = re.match(f"TF({encoders}|Auto)", name)
    if is_class and (near := difflib.get_close_matches(name, __dir__(), n=1, cutoff=0.95)):
        return ImportError(f"tfbert has no class of this name. Received: tfbert.{name}. Did you mean {near[0]}?")
    for pattern, todo in elsewhere()["names"].items():
        if re.fullmatch(pattern.replace("{encoder}", encoders), name):
            todo = todo.replace("{name}", name)
            return ImportError(f"{name} of transformers is not in tfbert. Received: tfbert.{name}. {todo}.")
    return None


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_OF_ENCODERS, "callbacks"})
