"""Encoders, a module each: what differs, over arithmetic and files that they share. None imports TensorFlow."""

from __future__ import annotations

import importlib

from tfbert.config.tables import ENCODERS
from tfbert.model.encoders.bert import Bert


def encoder_of(model_type: str) -> Bert:
    """The encoder of a `config.json`'s `model_type`."""
    return importlib.import_module(f"{__name__}.{ENCODERS[model_type].module}").ENCODER
