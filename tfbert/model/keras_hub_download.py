"""KerasHub's names for models, and their files from Kaggle, through what KerasHub itself downloads them with."""

from __future__ import annotations

import pathlib
import re
from typing import Any

from tfbert.errors import UsageError, first_line

_SCHEME = "kaggle://"


def may_be_built_in(name: str) -> bool:
    """Whether a model's name looks like one of KerasHub's, such as `bert_base_en`: those of the Hugging Face hub
    that have no owner have hyphens."""
    return re.fullmatch(r"[a-z0-9.]+(_[a-z0-9.]+)+", name) is not None


def find_handle(name: str) -> str:
    """Kaggle's handle for a name of KerasHub's, `kaggle://OWNER/MODEL/keras/VARIANT`; empty for any other name.

    Raises:
        UsageError: for a preset of KerasHub's that is no BERT.
    """
    if name.startswith(_SCHEME) or not may_be_built_in(name):
        return name if name.startswith(_SCHEME) else ""
    try:
        import keras_hub  # Keras 3 with it, which takes seconds: only to look up a name.
    except Exception as error:  # Keras 3 whose backend, as its own file or KERAS_BACKEND names it, is not installed.
        raise _usage(name, f"KerasHub, which knows such names, cannot be imported: {first_line(error)}") from None
    models: Any = keras_hub.models
    if name in models.BertBackbone.presets:
        return models.BertBackbone.presets[name]["kaggle_handle"]
    if name in models.Backbone.presets:
        raise UsageError(
            "Of KerasHub's models, tfbert trains those of its BertBackbone. "
            f"Received: model_name_or_path={name!r}, which is another. Pass a BERT model, such as bert_base_en."
        )
    return ""


def download(name: str, handle: str) -> pathlib.Path:
    """Downloads a preset, unless it is in kagglehub's cache.

    Args:
        name: The model's name, for messages.
        handle: What `find_handle` found.

    Returns:
        The directory that holds it.

    Raises:
        UsageError: where there is no such preset, or Kaggle cannot be reached.
    """
    import kagglehub
    import requests

    try:
        return pathlib.Path(kagglehub.model_download(handle.removeprefix(_SCHEME)))
    except (requests.ConnectionError, requests.Timeout):
        raise _usage(name, "Kaggle cannot be reached, and the preset is not in kagglehub's cache") from None
    except Exception as error:  # Its own errors have no common class.
        raise _usage(name, first_line(error)) from None


def _usage(name: str, what: str) -> UsageError:
    return UsageError(
        "A model of KerasHub must be a local preset or on Kaggle. "
        f"Received: model_name_or_path={name!r}: {what}. Pass a directory that save_to_preset has written."
    )
