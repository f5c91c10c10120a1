"""Low-rank updates of frozen kernels (Hu et al. 2021), and files of them as PEFT writes them."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
from collections.abc import Sequence
from typing import Any

import keras

from tfbert.bert.layers import Dense
from tfbert.data.foreign_files import read_json_object
from tfbert.errors import UsageError
from tfbert.model import weights
from tfbert.model.encoders.bert import WORDS, Bert
from tfbert.step.keras3.private import layers_of

log = logging.getLogger("tfbert")

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_TASKS = {
    "Model": "FEATURE_EXTRACTION",
    "SequenceClassification": "SEQ_CLS",
    "TokenClassification": "TOKEN_CLS",
    "QuestionAnswering": "QUESTION_ANS",
}
_PREFIX = "base_model.model."
_OTHER_KINDS = ("use_dora", "use_rslora", "fan_in_fan_out", "lora_bias", "rank_pattern", "alpha_pattern")
"""What PEFT's configuration may say of updates that are computed in another way."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lora:
    """Which kernels have an update.

    Attributes:
        rank: Of each.
        alpha: The update is multiplied by `alpha / rank`.
        targets: Ends of names of the layers, among the encoder's `LORA`; each means all that end so.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]

    @classmethod
    def of(cls, rank: int, alpha: float | None, targets: str | Sequence[str] | None, encoder: Bert) -> Lora:
        """From what a user gives: "all", "query,value", a sequence, or None for these two; without `alpha`, the rank.

        Raises:
            UsageError: for what is no rank, no number above 0, or no layer.
        """
        known, usual = encoder.LORA, encoder.LORA_USUAL
        targets = usual if targets is None else targets
        named = known if targets == "all" else targets.split(",") if isinstance(targets, str) else targets
        if not named or any(name not in known for name in named):
            raise UsageError(f"lora_targets are among {', '.join(known)}, or all. Received: {targets!r}. Pass {usual}.")
        alpha = rank if alpha is None else alpha
        for name, value, kinds in (("lora_rank", rank, (int,)), ("lora_alpha", alpha, (int, float))):
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < float("inf"):
                kind = "whole number" if kinds == (int,) else "number"
                raise UsageError(f"{name} is a {kind} above 0. Received: {name}={value!r}. Pass 8.")
        left_out = {name for name in named for other in named if name.endswith(f".{other}")}
        return cls(
            rank=rank, alpha=alpha, targets=tuple(name for name in known if name in named and name not in left_out)
        )


def enable(model: Any, lora: Lora, seed: int) -> None:
    """Freezes an encoder, and gives kernels in it an update, which is 0 at first: see `PreTrainedModel.enable_lora`."""
    if weights.low_rank_layers(model):
        raise UsageError("A kernel has one update. Received: a model with LoRA. Load it again for another.")
    model.bert.trainable = False
    with model.distribute_strategy.scope():
        for number, layer in enumerate(_targeted(model, lora.targets).values()):
            draw = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform", seed=seed + number)  # As PEFT.
            layer.trainable = True
            layer.enable_lora(lora.rank, lora_alpha=lora.alpha, a_initializer=draw)
    model.lora = lora
    model.train_function = model.test_function = model.predict_function = None  # Traced without.


def _targeted(model: Any, targets: Sequence[str]) -> dict[str, Dense]:
    """Dense layers of the encoder by their names in PyTorch, chosen by the ends of these."""
    found = {}
    for layer in [each for part in model.config.encoder.layers(model.bert) for each in layers_of(part)]:
        if isinstance(layer, Dense):
            name, _ = weights.pytorch_name(f"{layer.path.removeprefix(f'{model.path}/')}/kernel:0")
            found[name.removesuffix(".weight")] = layer
    return {name: layer for name, layer in found.items() if name.endswith(tuple(f".{each}" for each in targets))}


def _peft_name(model: Any, name: str) -> str:
    """PEFT's name for what PyTorch's whole model calls so: without a head, PyTorch's has no `bert.`."""
    return _PREFIX + (name if model.LABELS else name.removeprefix(_own(model)))


def _own(model: Any) -> str:
    """How the names of the encoder's weights begin."""
    return f"{model.config.encoder.PREFIX}."


def save_adapter(model: Any, directory: str | pathlib.Path) -> None:
    """See `PreTrainedModel.save_adapter`."""
    if model.lora is None or model.KIND in WORDS:
        what = "a head of words, which PEFT ties otherwise" if model.lora else "no enable_lora"
        raise UsageError(f"An adapter is LoRA's, and a head's. Received: {what}. Call save_pretrained(directory).")
    head = {name: value for name, value in weights.get_weights_dict(model).items() if not name.startswith(_own(model))}
    tensors = {_peft_name(model, name): value for name, value in head.items()}
    for name, layer in _targeted(model, model.lora.targets).items():
        for part, variable in (("lora_A", layer.lora_kernel_a), ("lora_B", layer.lora_kernel_b)):
            tensors[f"{_peft_name(model, name)}.{part}.weight"] = variable.numpy().T
    values = {
        "peft_type": "LORA",
        "task_type": _TASKS.get(model.KIND),
        "base_model_name_or_path": model.name_or_path,
        "r": model.lora.rank,
        "lora_alpha": model.lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(model.lora.targets),
        "modules_to_save": sorted({name.partition(".")[0] for name in head}) or None,
        "bias": "none",
        "inference_mode": True,
    }
    path = pathlib.Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    weights.write_weights(tensors, path / _WEIGHTS)
    (path / _CONFIG).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def load_adapter(model: Any, directory: str | pathlib.Path) -> None:
    """See `PreTrainedModel.load_adapter`."""
    path = pathlib.Path(directory)
    values = read_json_object(path / _CONFIG, "An adapter has a configuration")
    others = {name: values[name] for name in _OTHER_KINDS if values.get(name)}
    if values.get("peft_type") != "LORA" or values.get("bias", "none") != "none" or others:
        given = ", ".join(f"{name}={values.get(name)!r}" for name in ("peft_type", "bias", *others))
        raise UsageError(f"An adapter is plain LoRA, without biases. Received: {given} in {path}. Merge it in PyTorch.")
    tensors = weights.read_weights(path / _WEIGHTS)
    ends = {name.removesuffix(".lora_A.weight") for name in tensors if name.endswith(".lora_A.weight")}
    encoder = model.config.encoder
    targets = [each for each in encoder.LORA if any(name.endswith(f".{each}") for name in ends)]
    lora = Lora.of(values.get("r"), values.get("lora_alpha"), targets, encoder)
    layers = {_peft_name(model, name): layer for name, layer in _targeted(model, lora.targets).items()}
    if layers.keys() != ends:
        raise UsageError(
            "An adapter updates the same layers everywhere in the encoder. "
            f"Received: {weights.list_names(sorted(ends ^ layers.keys()))} in {path}. Merge it in PyTorch."
        )
    if model.lora is None:
        enable(model, lora, seed=0)
    elif model.lora != lora:
        raise UsageError(f"An adapter fits its model. Received: {lora}, and {model.lora}. Load the model again.")
    whole = weights.get_weights_dict(model)
    head = {name: tensors.get(_peft_name(model, name)) for name in whole if not name.startswith(_own(model))}
    if new := [name for name, value in head.items() if value is None]:
        log.warning("The adapter has no weights for these, which stay as they are: %s.", ", ".join(new))
    weights.set_weights_dict(model, whole | {name: value for name, value in head.items() if value is not None})
    for name, layer in layers.items():
        for part, variable in (("lora_A", layer.lora_kernel_a), ("lora_B", layer.lora_kernel_b)):
            value = tensors[f"{name}.{part}.weight"].T
            if value.shape != tuple(variable.shape):
                raise UsageError(f"An adapter fits its model. Received: {name} of {value.shape}. Load another model.")
            variable.assign(value)
