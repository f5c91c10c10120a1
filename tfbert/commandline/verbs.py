"""For each mode of each command, the module and the function that do it, imported only when needed."""

from __future__ import annotations

from collections.abc import Mapping

from tfbert.config.commands import FINETUNE, PRETRAIN

VERBS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    FINETUNE.word: {
        "train": ("tfbert.modes.seeds", "train"),
        "evaluate": ("tfbert.modes.evaluate", "evaluate_model"),
        "predict": ("tfbert.modes.predict", "predict"),
        "export": ("tfbert.modes.export", "export"),
    },
    PRETRAIN.word: {
        "prepare": ("tfbert.modes.prepare", "prepare"),
        "train": ("tfbert.modes.pretrain", "pretrain"),
        "evaluate": ("tfbert.modes.evaluate", "evaluate_model"),
    },
}
"""By the command's word, then by mode."""
