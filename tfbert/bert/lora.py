"""Low-rank updates of frozen kernels (Hu et al. 2021), and files of them as PEFT writes them."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tfbert.bert.layers import Dense
from tfbert.config.training import LORA_TARGETS
from tfbert.data.reading import read_json_object
from tfbert.errors import UsageError
from tfbert.model import weights
from tfbert.model.encoders.bert import Bert
from tfbert.output import output_dir
from tfbert.private import layers_of

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
    def of(cls, rank: int, alpha: float | None, targets: str | Sequence[str], encoder: Bert) -> Lora:
        """From what a user gives: "all", "query,value", or a sequence, of the encoder's names or of BERT's for the same
        layers; without `alpha`, the rank.

        Raises:
            UsageError: for what is no rank, no number above 0, or no layer.
        """
        text = targets if isinstance(targets, str) else ",".join(map(str, targets))
        names = encoder.LORA if text == "all" else [name.strip() for name in text.split(",")]
        theirs = dict(zip(LORA_TARGETS, encoder.LORA, strict=True))
        known = tuple(dict.fromkeys((*LORA_TARGETS, *encoder.LORA)))
        if any(name not in known for name in names):
            rule = f"lora_targets are among {', '.join(known)}, or all"
            raise UsageError(f"{rule}. Received: {targets!r}. Pass ('query', 'value').")
        if "output.dense" in names:  # Both that end so in a BERT.
            names = [*names, "attention.output.dense"]
        own = {name if name in encoder.LORA else theirs[name] for name in names}
        own = {name for name in own if not any(name.endswith(f".{other}") for other in own)}
        alpha = rank if alpha is None else alpha
        is_rank = type(rank) is int and rank > 0
        if not is_rank or type(alpha) not in (int, float) or not 0 < alpha < float("inf"):
            rule = "lora_rank is a whole number, and lora_alpha a number, above 0"
            raise UsageError(f"{rule}. Received: lora_rank={rank!r}, lora_alpha={alpha!r}. Pass 8.")
        return cls(rank=rank, alpha=alpha, targets=tuple(name for name in dict.fromkeys(encoder.LORA) if name in own))


def enable(model: Any, lora: Lora, seed: int) -> None:
    """Freezes an encoder, and gives kernels in it an update, which is 0 at first: see `PreTrainedModel.enable_lora`.

    A pooler that no file gave is trained with the head, whose first layer it is: frozen, it would stay at random.
    """
    if weights.low_rank_layers(model):
        raise UsageError("A kernel has one update. Received: a model with LoRA. Load it again for another.")
    model.bert.trainable = False
    if any(name.startswith(f"{_own(model)}pooler.") for name in model.new_weights):
        model.bert.pooler.trainable = True
    with model.distribute_strategy.scope():
        for name, layer in _targeted(model, lora.targets).items():
            of_name = zlib.crc32(f"{seed} {name}".encode())
            draw = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform", seed=of_name)  # As PEFT.
            layer.trainable = True
            layer.enable_lora(lora.rank, lora_alpha=lora.alpha, a_initializer=draw)
    model.lora = lora
    model.train_function = model.test_function = model.predict_function = None  # Traced without.


def _targeted(model: Any, targets: Sequence[str]) -> dict[str, Dense]:
    """Dense layers of the encoder by their names in PyTorch, chosen by the ends of these."""
    found = {}
    for layer in layers_of(model.bert):
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


def get_trained(model: Any) -> dict[str, np.ndarray]:
    """What training changes: all weights by PyTorch name; of a model with LoRA, its updates and the weights that are
    trained whole (the head, and a new pooler), by PEFT's names."""
    if model.lora is None:
        return weights.get_weights_dict(model)
    return {name: (v.numpy().T if is_transposed else v.numpy()) for name, v, is_transposed in _trained(model)}


def set_trained(model: Any, tensors: Mapping[str, np.ndarray]) -> None:
    """Assigns what `get_trained` returned.

    Raises:
        UsageError: if something is missing or has another shape; nothing is assigned then.
    """
    if model.lora is None:
        weights.set_weights_dict(model, tensors)
    else:
        weights.assign(_trained(model), tensors)


def _trained(model: Any) -> Iterator[weights.Named]:
    """PEFT's name of what is trained, the variable, and whether it is transposed in PyTorch; of a frozen head, too."""
    for name, variable, is_transposed in weights.named_variables(model):
        if variable.trainable or not name.startswith(_own(model)):
            yield _peft_name(model, name), variable, is_transposed
    for name, layer in _targeted(model, model.lora.targets).items():
        for part, variable in (("lora_A", layer.lora_kernel_a), ("lora_B", layer.lora_kernel_b)):
            yield f"{_peft_name(model, name)}.{part}.weight", variable, True


def write_adapter(model: Any, path: pathlib.Path) -> None:
    """Writes what is trained of a model with LoRA. A directory with the configuration is complete."""
    tensors = get_trained(model)
    whole = {name.removeprefix(_PREFIX).removeprefix(_own(model)) for name in tensors if ".lora_" not in name}
    values = {
        "peft_type": "LORA",
        "task_type": _TASKS.get(model.KIND),
        "base_model_name_or_path": model.name_or_path,
        "r": model.lora.rank,
        "lora_alpha": int(model.lora.alpha) if model.lora.alpha == int(model.lora.alpha) else model.lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(model.lora.targets),
        "modules_to_save": sorted({name.partition(".")[0] for name in whole}) or None,
        "bias": "none",
        "inference_mode": True,
    }
    output_dir.make(path)
    weights.write_weights(tensors, path / _WEIGHTS)
    output_dir.write_json(path / _CONFIG, values)


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
    layers = {_peft_name(model, name) for name in _targeted(model, lora.targets)}
    if layers != ends:
        rule = "An adapter updates the same layers everywhere in the encoder"
        received = f"{weights.list_names(sorted(ends ^ layers))} in {path}"
        raise UsageError(f"{rule}. Received: {received}. Merge it in PyTorch.")
    if model.lora is None:
        enable(model, lora, seed=0)
    elif model.lora != lora:
        raise UsageError(f"An adapter fits its model. Received: {lora}, and {model.lora}. Load the model again.")
    pooler = _peft_name(model, f"{_own(model)}pooler.")
    if model.KIND in encoder.POOLED and any(name.startswith(pooler) for name in tensors):
        model.bert.pooler.trainable = True
    known = {name for name, *_ in _trained(model)}
    if unknown := sorted(tensors.keys() - known):
        rule = "An adapter has updates of the encoder's layers, a head and a pooler"
        raise UsageError(f"{rule}. Received: {weights.list_names(unknown)} in {path}. Merge it in PyTorch.")
    if missing := sorted(known - tensors.keys()):
        log.warning("The adapter has no weights for these, which stay as they are: %s.", ", ".join(missing))
    set_trained(model, get_trained(model) | tensors)
