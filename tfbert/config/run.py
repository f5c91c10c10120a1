"""What a run is: frozen dataclasses, their validation, and their JSON form. Imports nothing but the standard library.

Every option of the command lives here once; `commandline` reads names, defaults and help from here.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Literal

from tfbert.config.benchmark import BenchmarkConfig
from tfbert.config.data import DataConfig
from tfbert.config.modes import ExportConfig, HubConfig, PredictConfig, mode_problems
from tfbert.config.pretraining import CorpusConfig, PretrainingConfig
from tfbert.config.rules import (
    COMPUTE,
    EVALUATE,
    EVERY,
    TRAIN,
    Mode,
    at_least,
    choice_problems,
    field_types,
    option,
    part_from_dict,
    refuse_unknown,
    unmet_needs,
)
from tfbert.config.task_table import facts_of
from tfbert.config.tasks import (
    AnsweringConfig,
    TaggingConfig,
    TaskOptions,
    window_sizes,
)
from tfbert.config.training import OPTIMIZERS, TrainingConfig
from tfbert.errors import UsageError

StrategyName = Literal["one_device", "mirrored", "multi_worker"]
Device = Literal["auto", "gpu", "cpu"]
Resume = Literal["auto", "never"]
MixedPrecisionDtype = Literal["auto", "float16", "bfloat16"]

SCRATCH_PREFIX = "scratch/"
_NAMED_SIZES = ("tiny", "mini", "small", "medium", "base", "large")
SCRATCH_SIZES = (
    *_NAMED_SIZES,
    *(f"L-{layers}_H-{hidden}" for layers in (2, 4, 6, 8, 10, 12) for hidden in (128, 256, 512, 768)),
)
MAX_COMPILED_SHAPES = 6
SEED = 42
_EPOCHS = 3.0
_ONCE_OF_PREDICT = {"input_format", "skip_bad_rows"}  # In run_config.json files of earlier versions.
UNTIL_STEP = "until_step"
"""The key of `run_config.json` beside the configuration: the values that options had up to an update of the run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which weights to start from."""

    model_name_or_path: str = option("scratch/tiny", resume="same")
    """A Hugging Face hub name, a local directory, or `scratch/SIZE` (tiny, mini, small, medium, base, large, or one of
    the 24 miniatures, L-2_H-128 to L-12_H-768) for random weights and a vocabulary learned from the training text."""
    vocab_file: str = option("", resume="content", modes=EVERY)
    """A WordPiece vocabulary, one token per line. Empty: the model's own; for `scratch/`, one learned from the text."""

    @property
    def is_scratch(self) -> bool:
        """Whether the weights start random rather than pretrained."""
        return self.model_name_or_path.startswith(SCRATCH_PREFIX)

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = []
        if not self.model_name_or_path:
            out.append(
                "A model is needed. Received: model_name_or_path=''. Pass a hub name, a directory, or scratch/tiny."
            )
        size = self.model_name_or_path.removeprefix(SCRATCH_PREFIX)
        if self.is_scratch and size not in SCRATCH_SIZES:
            out.append(
                f"A scratch model has one of the sizes {', '.join(_NAMED_SIZES)}, or L-2_H-128 to L-12_H-768. "
                f"Received: model_name_or_path={self.model_name_or_path!r}. Pass for example scratch/tiny."
            )
        if self.vocab_file and not pathlib.Path(self.vocab_file).is_file():
            out.append(f"vocab_file must be a file. Received: vocab_file={self.vocab_file!r}. Check the path.")
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """On what, and in which precision, the run computes."""

    strategy: StrategyName = option("one_device", resume="split", modes=COMPUTE)
    """`one_device`; `mirrored`: all GPUs of this machine; `multi_worker`: all workers named in TF_CONFIG
    or started by SLURM's srun."""
    device: Device = option("auto", resume="split")
    """`auto`: GPUs where there are any, else the CPU; `gpu`: fail where there is none; `cpu`: do not use GPUs."""
    num_replicas: int = option(0, resume="split", modes=COMPUTE)
    """Replicas on this machine. 0: all GPUs with `mirrored` and `multi_worker`, or one CPU replica where there is no
    GPU. On a CPU, more than one are logical devices that share the cores: for trying things out."""
    cluster_timeout_seconds: int = option(300, resume="free", modes=COMPUTE)
    """How long a worker of `multi_worker` waits for the others to start before it fails."""
    mixed_precision: bool = option(False, resume="same", modes=COMPUTE)
    """Compute in 16 bits, keep the weights in float32."""
    mixed_precision_dtype: MixedPrecisionDtype = option("auto", resume="same", modes=COMPUTE, needs="mixed_precision")
    """`float16` (with dynamic loss scaling) or `bfloat16`. `auto`: float16 on a GPU, bfloat16 on a CPU."""
    per_device_eval_batch_size: int = option(32, resume="split")
    """Rows that each replica evaluates or predicts at a time."""
    xla: bool = option(False, resume="split", modes=TRAIN)
    """Compile each replica's forward and backward pass with XLA."""
    max_compiled_shapes: int = option(MAX_COMPILED_SHAPES, resume="split", modes=TRAIN, needs="xla")
    """Batches are padded to this many widths at most, chosen from the data: each is compiled once."""
    seed: int = option(SEED, resume="same", modes=(*TRAIN, "prepare"))
    """Decides initial weights, data order and dropout."""
    seeds: tuple[int, ...] = option((), resume="free", modes=("train",))
    """Train with each of these in turn, as `1,2,3`, in `output_dir/seed-N`, each in a process of its own, and report
    mean, standard deviation and the best. The same command resumes. Empty: train once, with `seed`."""
    deterministic: bool = option(False, resume="split", modes=COMPUTE)
    """Use deterministic kernels only (slower on a GPU), so that the same command gives the same bits."""
    keep_freed_memory: bool = option(True, resume="free", modes=EVERY)
    """Set glibc's malloc, before TensorFlow is imported, so that freed memory is reused rather than returned to the
    kernel at every step. What MALLOC_ARENA_MAX and the like or GLIBC_TUNABLES set is left as it is."""

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = at_least("num_replicas", self.num_replicas, 0)
        for name in ("cluster_timeout_seconds", "per_device_eval_batch_size", "max_compiled_shapes"):
            out += at_least(name, getattr(self, name), 1)
        if self.strategy == "one_device" and self.num_replicas > 1:
            out.append(
                "one_device has one replica. "
                f"Received: num_replicas={self.num_replicas}. Pass --strategy=mirrored or drop --num_replicas."
            )
        out += [
            f"{name} must be at least 0 and below 2**31. Received: {name}={value}. Pass another."
            for name, value in (("seed", self.seed), *(("seeds", seed) for seed in self.seeds))
            if not 0 <= value < 2**31
        ]
        if len(set(self.seeds)) < len(self.seeds):
            out.append(f"Each seed trains once. Received: seeds={','.join(map(str, self.seeds))}. List each once.")
        if self.seeds and self.seed != SEED:
            out.append(f"seeds takes the place of seed. Received: seed={self.seed} beside it. Drop --seed.")
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputConfig:
    """What a run writes, where and how often."""

    output_dir: str = option("", resume="free", modes=EVERY)
    """Where the model and the logs go. Empty: a new directory `runs/DATA-MODEL-TIME`."""
    overwrite_output_dir: bool = option(False, resume="free", modes=(*EVALUATE, "prepare"))
    """Write into a directory that holds an earlier run's files, replacing them."""
    resume: Resume = option("auto", resume="free", modes=("train",))
    """`auto` resumes from the newest intact checkpoint of an unfinished run in `output_dir`, with the settings that it
    began with; `never` refuses a directory that holds one."""
    save_steps: int = option(500, resume="free", modes=("train",))
    """Write a checkpoint every this many updates. 0: only when asked to stop by SIGTERM or SIGINT."""
    save_total_limit: int = option(2, resume="free", modes=("train",))
    """How many of the newest checkpoints to keep until the run is done; the best weights are kept separately. 0: keep
    all, and after the run as models."""
    eval_steps: int = option(0, resume="same", modes=("train",))
    """Evaluate every this many updates. 0: after each epoch."""
    logging_steps: int = option(10, resume="free", modes=("train",))
    """Write loss, learning rate and speed to `log.jsonl` and the screen every this many updates."""
    tensorboard: bool = option(False, resume="free", modes=("train",))
    """Also write TensorBoard event files to `output_dir/tensorboard`."""
    profile_steps: tuple[int, ...] = option((), resume="free", modes=("train",))
    """First and last update to profile, as `10,15`: a TensorBoard profile goes to `output_dir/profile`, and where a
    step's time goes into the report. Empty: no profile."""

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = at_least("logging_steps", self.logging_steps, 1)
        steps = self.profile_steps
        if steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            out.append(
                "profile_steps takes the first and the last update, counted from 1. "
                f"Received: profile_steps={','.join(map(str, steps))}. Pass for example --profile_steps=10,15."
            )
        for name in ("eval_steps", "save_steps", "save_total_limit"):
            out += at_least(name, getattr(self, name), 0)
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. Construction checks every rule that needs neither data nor devices.

    Raises:
        UsageError: naming all problems at once.
    """

    mode: Mode = "train"
    """What to do: `train` a model; `evaluate` a saved one; `benchmark`: measure a grid of runs. After fine-tuning:
    `predict` labels with a saved model; `export` it as a SavedModel. Before pre-training: `prepare`, make records of a
    corpus. The help of each command is in `Command.texts`."""
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    tagging: TaggingConfig = dataclasses.field(default_factory=TaggingConfig)
    answering: AnsweringConfig = dataclasses.field(default_factory=AnsweringConfig)
    corpus: CorpusConfig = dataclasses.field(default_factory=CorpusConfig)
    pretraining: PretrainingConfig = dataclasses.field(default_factory=PretrainingConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    runtime: RuntimeConfig = dataclasses.field(default_factory=RuntimeConfig)
    output: OutputConfig = dataclasses.field(default_factory=OutputConfig)
    predict: PredictConfig = dataclasses.field(default_factory=PredictConfig)
    export: ExportConfig = dataclasses.field(default_factory=ExportConfig)
    hub: HubConfig = dataclasses.field(default_factory=HubConfig)
    benchmark: BenchmarkConfig = dataclasses.field(default_factory=BenchmarkConfig)

    def __post_init__(self):
        parts = [part for part in vars(self).values() if dataclasses.is_dataclass(part)]
        problems = choice_problems(self)
        if not problems:
            problems += mode_problems(self)
        for part in parts:
            problems += [*choice_problems(part), *part.problems(), *unmet_needs(part)]
        if problems:
            raise UsageError("\n".join(problems))

    @property
    def max_seq_length(self) -> int:
        """The longest input of a training run in tokens: as asked for, else the default of its task."""
        return self.data.max_seq_length or facts_of(self.data.task).max_seq_length

    @property
    def source(self) -> str:
        """What the data is called in logs: records, else as `DataConfig` has it."""
        records = self.pretraining.train_records or self.pretraining.validation_records
        return ",".join(records) or self.data.source

    @property
    def task_options(self) -> TaskOptions:
        """The options of single tasks."""
        return TaskOptions(
            tagging=self.tagging, answering=self.answering, pretraining=self.pretraining, seed=self.runtime.seed
        )

    def resolved(self) -> Config:
        """The same training run with every default that depends on another option written out, and one name for each
        metric.

        Raises:
            UsageError: for sizes of windows that do not go with the length of rows.
        """
        is_demo = not self.data.uses_files and self.data.dataset in ("", "demo")
        facts = facts_of(self.data.task)
        epochs = facts.demo_epochs if is_demo else _EPOCHS
        optimizer = OPTIMIZERS[self.training.optimizer]
        training = dataclasses.replace(
            self.training,
            metric_for_best_model=self.training.metric_for_best_model.removeprefix("eval_"),
            num_train_epochs=self.training.num_train_epochs or (None if self.training.max_steps else epochs),
            learning_rate=self.training.learning_rate
            or (optimizer.scratch_rate if self.model.is_scratch else optimizer.rate),
        )
        data = dataclasses.replace(
            self.data,
            dataset=self.data.dataset if self.data.uses_files or facts.of_records else self.data.dataset or "demo",
            max_seq_length=self.max_seq_length,
        )
        answering = self.answering
        if facts.has_windows:
            answering.check_length(self.max_seq_length)
            sizes = window_sizes(self.max_seq_length, answering.doc_stride, answering.max_query_length)
            answering = dataclasses.replace(answering, doc_stride=sizes[0], max_query_length=sizes[1])
        pretraining = self.pretraining.with_masking() if facts.of_records else self.pretraining
        return dataclasses.replace(self, training=training, data=data, answering=answering, pretraining=pretraining)

    def accumulating(self, steps: int | Literal["auto"]) -> Config:
        """The same run with that many micro-batches."""
        return dataclasses.replace(self, training=dataclasses.replace(self.training, gradient_accumulation_steps=steps))

    def to_json(self) -> str:
        """The configuration as JSON text, one object a part."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Reads what `to_json` wrote, and the `run_config.json` of a run that was resumed with other settings.

        Raises:
            UsageError: for text that is not such an object, an unknown name, or a value of the wrong type.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"A run configuration must be JSON. Received: {error}. Repair the file.") from None
        parts = field_types(cls)
        if isinstance(values, dict):
            values.pop(UNTIL_STEP, None)
        refuse_unknown("the configuration", values, parts)
        data, predict = values.get("data"), values.get("predict")
        if isinstance(data, dict) and isinstance(predict, dict):
            for name in _ONCE_OF_PREDICT & predict.keys():
                data.setdefault(name, predict.pop(name))
        return cls(**{n: v if n == "mode" else part_from_dict(parts[n], v) for n, v in values.items()})
