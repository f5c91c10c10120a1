"""How the weights are updated: the options of training. Imports nothing but the standard library.

`config` puts the dataclass into `Config`; `commandline` makes flags of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from tfbert.config.tables import METRICS, OF_CLASSES
from tfbert.config.types import TRAIN, Options, one_of, option

Optimizer = Literal["adamw", "lamb"]
HeadBias = Literal["prior", "zero"]
LrSchedule = Literal["linear", "cosine", "polynomial", "constant"]


@dataclasses.dataclass(frozen=True)
class OptimizerFacts:
    """What the configuration must know of an optimizer.

    Attributes:
        rate: The peak learning rate for pretrained weights, unless the user says.
        scratch_rate: Likewise for random weights.
        label: In front of the rate where a run says what it does.
    """

    rate: float
    scratch_rate: float
    label: str = ""


OPTIMIZERS: dict[Optimizer, OptimizerFacts] = {
    "adamw": OptimizerFacts(rate=5e-5, scratch_rate=5e-4),
    "lamb": OptimizerFacts(rate=5e-4, scratch_rate=5e-3, label="LAMB, "),
}
"""By the name of `--optimizer`; `step/keras3/fused` has the classes."""
LORA_TARGETS = ("query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense")
"""The dense layers of an encoder layer, by the ends of their names; "output.dense" means both that end so."""


def lora_targets(text: str) -> tuple[str, ...]:
    """What a text of `lora_targets` names, each kernel once, in their order."""
    if text == "all":
        return ("all",)
    names = [name.strip() for name in text.split(",")]
    named_twice = "attention.output.dense" if "output.dense" in names else ""
    return tuple(name for name in LORA_TARGETS if name in names and name != named_twice)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(Options):
    """How the weights are updated. A step is one optimizer update."""

    global_batch_size: int = option(32, resume="same", modes=TRAIN, least=1)
    """Examples of one update, over all replicas and micro-batches."""
    gradient_accumulation_steps: int | Literal["auto"] = option(1, resume="split", modes=TRAIN, least=1)
    """Micro-batches that each replica's share of a global batch is split into, computed one after the other. `auto`:
    as few as fit into memory, found once before training."""
    gradient_checkpointing: bool = option(False, resume="split", modes=TRAIN)
    """Recompute each encoder layer in the backward pass: less memory, the same gradients, a slower step."""
    num_train_epochs: float | None = option(None, resume="longer", modes=TRAIN, above=0)
    """Passes over the training data; may be a fraction. Default: 3, or as many as `max_steps` needs; 10 over the small
    built-in corpora of token_classification and question_answering, 8 over that of multiple_choice, 5 over that of
    multi_label_classification."""
    max_steps: int = option(0, resume="longer", modes=TRAIN, least=0)
    """Train for this many updates; with `num_train_epochs` as well, whichever ends first. 0: no limit."""
    optimizer: Optimizer = option("adamw", resume="same", modes=TRAIN)
    """`adamw` (Loshchilov & Hutter 2019), or `lamb` (You et al. 2020) for batches of thousands: it moves each variable
    by a share of its own norm, so its learning rates are far larger."""
    learning_rate: float | None = option(None, resume="same", modes=TRAIN, above=0, most=1)
    """Peak learning rate. Default: 5e-5 for pretrained weights, 5e-4 for `scratch/` ones and with `lora_rank`; ten
    times that with `lamb`."""
    lr_schedule: LrSchedule = option("linear", resume="same", modes=TRAIN)
    """After the warm-up: `linear`, `cosine` or `polynomial` down to 0 at the last step, or `constant`."""
    lr_power: float = option(1.0, resume="same", modes=TRAIN, needs="lr_schedule=polynomial", above=0)
    """The rate is the peak rate times the fraction of the steps remaining, raised to this power. 0.5 is usual with
    `lamb`."""
    warmup_ratio: float = option(0.1, resume="same", modes=TRAIN, least=0, below=1)
    """Share of all steps during which the rate rises linearly from 0."""
    warmup_steps: int = option(0, resume="same", modes=TRAIN, least=0)
    """Warm-up in steps; takes the place of `warmup_ratio` when above 0."""
    weight_decay: float = option(0.01, resume="same", modes=TRAIN, least=0)
    """Decoupled decay of the weights, as in AdamW and LAMB; never applied to biases and LayerNorm."""
    dropout: float | None = option(None, resume="same", modes=TRAIN, least=0, below=1)
    """Probability of dropout: of embeddings, layers, attention and what the classifier reads. Default: the model's own,
    0.1 for `scratch/` ones. 0 suits pre-training with few passes over the data (Geiping & Goldstein 2022)."""
    lora_rank: int = option(0, resume="same", modes=TRAIN, least=0)
    """Train low-rank updates of some of the encoder's kernels, of this rank, and the head; all else stays as it is
    (LoRA: Hu et al. 2021, who take 8). The saved model holds the updates in its kernels. 0: train all weights."""
    lora_alpha: float | None = option(None, resume="same", modes=TRAIN, needs="lora_rank", above=0)
    """Updates are multiplied by `lora_alpha / lora_rank`. Default: as `lora_rank`, so by 1, as in the paper's runs of
    BERT's kind and by PEFT's defaults (both 8)."""
    lora_targets: str = option("query,value", resume="same", modes=TRAIN, needs="lora_rank", joined=True)
    """The kernels with an update: among `query`, `key`, `value`, `attention.output.dense`, `intermediate.dense` and
    `output.dense` (the ends of names, as for PEFT), or `all`. The paper and PEFT take the default."""
    max_grad_norm: float = option(1.0, resume="same", modes=TRAIN, least=0)
    """Clip the global norm of the whole global batch's gradient to this. 0: no clipping."""
    max_skipped_steps: int = option(20, resume="free", modes=TRAIN, least=1)
    """Stop with an error after this many updates in a row whose gradients were not finite."""
    label_smoothing: float = option(0.0, resume="same", modes=TRAIN, tasks=OF_CLASSES, least=0, below=1)
    """Share of each label's weight spread evenly over all classes (Szegedy et al. 2016); of several labels a text, over
    having the label and not."""
    class_weights: tuple[float, ...] | Literal["", "balanced"] = option(
        "", resume="same", modes=TRAIN, tasks=OF_CLASSES, above=0
    )
    """A weight for each class in label order, or `balanced`: n / (num_classes x count). Of several labels a text, the
    weight of a label where a text has it; `balanced`: (n - count) / count. Where words are tagged, words are counted;
    with `label_all_tokens` their pieces, as in the loss. Empty: all 1."""
    head_bias: HeadBias = option("prior", resume="same", modes=TRAIN, tasks=(*OF_CLASSES, "regression", "pretraining"))
    """Where a new head starts. `prior`: at the frequencies of the training labels, weighted as in the loss, of masked
    words, or at the mean of numbers, so that the encoder need not learn them first (Lin et al. 2017); `zero`: at 0, as
    in Hugging Face's trainer. A head that the model's file has is never changed."""
    early_stopping_patience: int = option(0, resume="same", modes=("train",), least=0)
    """Stop after this many evaluations in a row without a better metric. 0: never."""
    metric_for_best_model: str = option("", resume="same", modes=TRAIN)
    """The evaluation metric that decides which weights are kept, with or without `eval_`; with several validation
    sets, the first one decides. Empty: accuracy, or pearson for regression, micro_f1 for several labels a text, f1 for
    entities and answers, loss for pre-training; GLUE's own for glue/cola (matthews_correlation), glue/mrpc and glue/qqp
    (f1)."""

    @property
    def is_auto(self) -> bool:
        """Whether the number of micro-batches is still to be found."""
        return self.gradient_accumulation_steps == "auto"

    def rules(self) -> Iterator[str]:
        """A line for each rule that it breaks."""
        if self.metric_for_best_model and self.metric_for_best_model.removeprefix("eval_") not in METRICS:
            yield one_of("metric_for_best_model", self.metric_for_best_model, METRICS)
        targets = [] if self.lora_targets == "all" else map(str.strip, self.lora_targets.split(","))
        yield from [one_of("lora_targets", t, (*LORA_TARGETS, "all")) for t in targets if t not in LORA_TARGETS]
