"""The parts of a run's configuration that have no file of their own, and all parts together. Imports nothing but the
standard library.

Every option of the command lives in one part; `commandline` reads names, defaults and help from there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from typing import Any, Literal

from tfbert.config.data import DataConfig, is_pipe
from tfbert.config.pretraining import CorpusConfig, PretrainingConfig
from tfbert.config.rules import COMPUTE, EVALUATE, EVERY, SEED, TRAIN, Mode, architecture_problem, one_of, option
from tfbert.config.task_table import OF_ROWS
from tfbert.config.tasks import AnsweringConfig, ChoosingConfig, MultiLabelConfig, TaggingConfig
from tfbert.config.training import TrainingConfig
from tfbert.config.types import Options, field_types

StrategyName = Literal["one_device", "mirrored", "multi_worker"]
Device = Literal["auto", "gpu", "cpu"]
Resume = Literal["auto", "never"]
MixedPrecisionDtype = Literal["auto", "float16", "bfloat16"]
AllReduceDtype = Literal["float32", "bfloat16"]

SCRATCH_PREFIX = "scratch/"
_NAMED_SIZES = ("tiny", "mini", "small", "medium", "base", "large")
SCRATCH_SIZES = (
    *_NAMED_SIZES,
    *(f"L-{layers}_H-{hidden}" for layers in (2, 4, 6, 8, 10, 12) for hidden in (128, 256, 512, 768)),
)
_MOST_OF_CONFIG = 1 << 24
"""Bytes of a model's `config.json`, beyond which it is none."""
OF_BUILT_IN = "scratch/tiny"
"""The model of the built-in data, unless another is named."""
MAX_COMPILED_SHAPES = 6
OutputFormat = Literal["auto", "tsv", "csv", "jsonl", "conll", "squad"]
ExportFormat = Literal["saved_model", "onnx", "tflite"]
REPORT_TO = ("tensorboard", "wandb", "mlflow")
GlueTaskName = Literal["", "cola", "sst2", "mrpc", "stsb", "qqp", "mnli-m", "mnli-mm", "qnli", "rte", "wnli", "ax"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Options):
    """Which weights to start from."""

    model_name_or_path: str = option("", resume="same", modes=EVERY)
    """A Hugging Face hub name, a local directory, a KerasHub preset's name or `.keras` file, or `scratch/SIZE` (tiny,
    mini, small, medium, base, large, or one of the 24 miniatures, L-2_H-128 to L-12_H-768) for random weights and a
    vocabulary learned from the training text. Empty: `scratch/tiny`, with the built-in data alone."""
    vocab_file: str = option("", resume="content", modes=EVERY)
    """A WordPiece vocabulary, one token per line. Empty: the model's own; for `scratch/`, one learned from the text."""

    @property
    def name(self) -> str:
        """`model_name_or_path`, or what it is where it is empty."""
        return self.model_name_or_path or OF_BUILT_IN

    @property
    def is_scratch(self) -> bool:
        """Whether the weights start random rather than pretrained."""
        return self.name.startswith(SCRATCH_PREFIX)

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = []
        size = self.name.removeprefix(SCRATCH_PREFIX)
        if self.is_scratch and size not in SCRATCH_SIZES:
            rule = f"A scratch model has one of the sizes {', '.join(_NAMED_SIZES)}, or L-2_H-128 to L-12_H-768"
            todo = "Pass for example scratch/tiny."
            out.append(f"{rule}. Received: model_name_or_path={self.model_name_or_path!r}. {todo}")
        path = pathlib.Path(self.model_name_or_path).expanduser() / "config.json"
        with contextlib.suppress(OSError, ValueError, RecursionError):  # Said where it is read.
            if path.is_file() and path.stat().st_size < _MOST_OF_CONFIG:
                problem = architecture_problem(json.loads(path.read_text(encoding="utf-8")), path)
                out += [problem] if problem else []
        if self.vocab_file and not pathlib.Path(self.vocab_file).is_file():
            out.append(f"vocab_file must be a file. Received: vocab_file={self.vocab_file!r}. Check the path.")
        elif self.vocab_file.endswith((".json", ".model")):
            rule = "vocab_file is a WordPiece vocabulary, one token per line"
            out.append(f"{rule}. Received: vocab_file={self.vocab_file!r}. Pass --model for its own tokenizer.")
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeConfig(Options):
    """On what, and in which precision, the run computes."""

    strategy: StrategyName = option("one_device", resume="split", modes=COMPUTE)
    """`one_device`; `mirrored`: all GPUs of this machine; `multi_worker`: all workers named in TF_CONFIG
    or started by SLURM's srun."""
    device: Device = option("auto", resume="split")
    """`auto`: GPUs where there are any, else the CPU; `gpu`: fail where there is none; `cpu`: do not use GPUs."""
    num_replicas: int = option(0, resume="split", modes=COMPUTE, least=0)
    """Replicas on this machine. 0: all GPUs with `mirrored` and `multi_worker`, or one CPU replica where there is no
    GPU. On a CPU, more than one are logical devices that share the cores: for trying things out."""
    cluster_timeout_seconds: int = option(300, resume="free", modes=COMPUTE, least=1)
    """How long a worker of `multi_worker` waits for the others to start before it fails."""
    all_reduce_dtype: AllReduceDtype = option("float32", resume="same", modes=TRAIN)
    """What gradients are rounded to before they are summed over replicas. `bfloat16`: half as much to send, for workers
    whose network is slow; it rounds to three digits."""
    mixed_precision: bool = option(False, resume="same", modes=COMPUTE)
    """Compute in 16 bits, keep the weights in float32."""
    mixed_precision_dtype: MixedPrecisionDtype = option("auto", resume="same", modes=COMPUTE, needs="mixed_precision")
    """`float16` (with dynamic loss scaling) or `bfloat16`. `auto`: float16 on a GPU, bfloat16 on a CPU."""
    per_device_eval_batch_size: int | None = option(None, resume="split", modes=COMPUTE, least=1)
    """Rows that each replica evaluates or predicts at a time. Default: 32; where one CPU computes alone, as many as
    have 2,048 tokens together."""
    xla: bool = option(False, resume="split", modes=TRAIN)
    """Compile each replica's forward and backward pass with XLA."""
    max_compiled_shapes: int = option(MAX_COMPILED_SHAPES, resume="split", modes=TRAIN, needs="xla", least=1)
    """Batches are padded to this many widths at most, chosen from the data: each is compiled once."""
    seed: int = option(SEED, resume="same", modes=(*TRAIN, "prepare"), least=0, below=2**31)
    """Decides initial weights, data order and dropout."""
    seeds: tuple[int, ...] = option((), resume="free", modes=("train",), least=0, below=2**31)
    """Train with each of these in turn, as `1,2,3`, in `output_dir/seed-N`, each in a process of its own, and report
    mean, standard deviation and the best. The same command resumes. Empty: train once, with `seed`."""
    sweep: str = option("", resume="free", modes=("train",))
    """Train once for each combination of these values, as `learning_rate=1e-5,3e-5;global_batch_size=16,32`, with each
    of `seeds` where there are any, each run in a directory of its own in `output_dir`, and rank them by the metric that
    decides. The same command resumes. A curve is drawn over the option with most values: with
    `max_train_examples=100,300,1000` it is a learning curve. Empty: train once."""
    deterministic: bool = option(False, resume="split", modes=COMPUTE)
    """Use deterministic kernels only (slower on a GPU), so that the same command gives the same bits."""
    keep_freed_memory: bool = option(True, resume="free", modes=EVERY)
    """Set glibc's malloc, before TensorFlow is imported, so that freed memory is reused rather than returned to the
    kernel at every step. What MALLOC_ARENA_MAX and the like or GLIBC_TUNABLES set is left as it is."""

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = []
        if self.strategy == "one_device" and self.num_replicas > 1:
            rule = "one_device has one replica"
            todo = "Pass --strategy=mirrored or drop --num_replicas."
            out.append(f"{rule}. Received: num_replicas={self.num_replicas}. {todo}")
        if len(set(self.seeds)) < len(self.seeds):
            out.append(f"Each seed trains once. Received: seeds={','.join(map(str, self.seeds))}. List each once.")
        if self.seeds and self.seed != SEED:
            out.append(f"seeds takes the place of seed. Received: seed={self.seed} beside it. Drop --seed.")
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputConfig(Options):
    """What a run writes, where and how often."""

    output_dir: str = option("", resume="free", modes=EVERY)
    """Where the model and the logs go. Empty: a new directory `runs/DATA-MODEL-TIME`."""
    overwrite_output_dir: bool = option(False, resume="free", modes=(*EVALUATE, "export", "prepare"))
    """Write into a directory that holds an earlier run's files, replacing them."""
    resume: Resume = option("auto", resume="free", modes=("train",))
    """`auto` resumes from the newest intact checkpoint of an unfinished run in `output_dir`, with the settings that it
    began with; `never` refuses a directory that holds one."""
    save_steps: int = option(500, resume="free", modes=("train",), least=0)
    """Write a checkpoint every this many updates. 0: only when asked to stop by SIGTERM or SIGINT."""
    save_total_limit: int = option(2, resume="free", modes=("train",), least=0)
    """How many of the newest checkpoints to keep until the run is done; the best weights are kept separately. 0: keep
    all, and after the run as models; with `lora_rank` as adapters."""
    keep_optimizer: bool = option(False, resume="free", modes=("train",))
    """Keep the state of training when the run is done, about three times what is trained: with it, the same command
    with more `num_train_epochs` or `max_steps` trains on."""
    keep_adapter: bool = option(False, resume="free", modes=("train",), tasks=OF_ROWS)
    """With `lora_rank`: also write the updates and the head as PEFT does, to `output_dir/adapter`."""
    eval_steps: int = option(0, resume="same", modes=("train",), least=0)
    """Evaluate every this many updates. 0: after each epoch."""
    logging_steps: int = option(10, resume="free", modes=("train",), least=1)
    """Write loss, learning rate and speed to `log.jsonl` and the screen every this many updates."""
    report_to: tuple[str, ...] = option((), resume="free", modes=("train",))
    """Also report what `log.jsonl` holds to these trackers: `tensorboard` (files in `output_dir/tensorboard`), `wandb`,
    `mlflow`; `all` is all three, `none` none. A run that resumes goes on in the same run there."""
    profile_steps: tuple[int, ...] = option((), resume="free", modes=("train",))
    """First and last update to profile, as `10,15`: a TensorBoard profile goes to `output_dir/profile`, which says
    where a step's time goes. Empty: no profile."""

    def __post_init__(self):
        super().__post_init__()
        if self.report_to in (("none",), ("all",)):  # As Hugging Face's Trainer has them.
            object.__setattr__(self, "report_to", REPORT_TO if self.report_to == ("all",) else ())

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = []
        steps = self.profile_steps
        if steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            rule = "profile_steps takes the first and the last update, counted from 1"
            todo = "Pass for example --profile_steps=10,15."
            out.append(f"{rule}. Received: profile_steps={','.join(map(str, steps))}. {todo}")
        out += [one_of("report_to", name, REPORT_TO) for name in self.report_to if name not in REPORT_TO]
        if len(set(self.report_to)) < len(self.report_to):
            out.append(f"Each tracker is told once. Received: report_to={','.join(self.report_to)}. List each once.")
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictConfig(Options):
    """What `--mode=predict` labels, and where the predictions go."""

    input_file: str = option("", modes=("predict",))
    """Texts to label: .tsv, .csv, .jsonl, .parquet or .txt (one text a line); all but .parquet may be .gz. A tagger
    also reads CoNLL and lists of words. A model that answers questions reads tables of questions and contexts, and
    SQuAD's JSON; one of multiple choice tables of questions with their choices. `-`: standard input. A named pipe,
    such as the shell's `<(...)`, needs `input_format` unless its name has an ending."""
    text: tuple[str, ...] = option((), modes=("predict",), repeats=True)
    """A text to label, in place of `input_file`: its prediction is printed as a line of JSON. May be given several
    times. For a model that answers questions, the question."""
    text_pair: tuple[str, ...] = option((), modes=("predict",), needs="text", repeats=True)
    """The second text of a pair, as often as `text`. For a model that answers questions, the context."""
    output_file: str = option("-", modes=("predict",))
    """Predictions, in the order of the input: .tsv, .csv or .jsonl; for tagged words also .conll, for answers also
    .json in SQuAD's form; all may be .gz. The file must not exist yet. `-`: standard output."""
    output_format: OutputFormat = option("auto", modes=("predict",))
    """Format of `output_file`, whatever its name. `auto`: by its ending; for standard output tsv, but for tagged words
    the input's format, and for entities, answers, choices and `text` jsonl."""
    id_column: str = option("", modes=("predict",))
    """The column with each row's id in the output. Empty: a column called id, idx, index or guid, else the row's
    number from 0."""
    glue_task: GlueTaskName = option("", modes=("predict",))
    """Write GLUE's submission file for this task, in GLUE's name and format, into `output_dir`."""

    def problems(self) -> list[str]:
        """Every rule this part breaks, one line each."""
        out = []
        path = pathlib.Path(self.input_file)
        if self.input_file and not is_pipe(self.input_file) and not (path.is_file() or path.is_dir()):
            out.append(f"input_file must be a file. Received: input_file={self.input_file!r}. Check the path.")
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(Options):
    """What `--mode=export` writes."""

    export_format: ExportFormat = option("saved_model", modes=("export",))
    """`saved_model`: a SavedModel with the tokenizer inside. `onnx`, `tflite`: a file that takes token ids and gives
    logits, of any task but pre-training, with the tokenizer's files beside it (`pip install -e '.[onnx]'` or
    `'.[tflite]'` in the clone). KerasHub needs no export: it reads a run's directory."""
    export_float16: bool = option(False, modes=("export",), needs="export_format=saved_model")
    """Store the weights in float16, half as large; computation stays in float32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubConfig(Options):
    """Whether a trained model is uploaded to the Hugging Face hub, and where."""

    push_to_hub: bool = option(False, resume="free", modes=("train",))
    """Upload the model to the Hugging Face hub when training is done, with the token that `hf auth login` stored."""
    hub_model_id: str = option("", resume="free", modes=("train",), needs="push_to_hub")
    """The repository to upload to, `OWNER/NAME` or `NAME`. Empty: the name of `output_dir`."""
    hub_private_repo: bool = option(False, resume="free", modes=("train",), needs="push_to_hub")
    """If the repository does not exist yet, create it as private."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts(Options):
    """All parts of a run's configuration; `config.run.Config` checks them."""

    mode: Mode = "train"
    """What to do: `train` a model; `evaluate` a saved one. After fine-tuning: `predict` labels with a saved model;
    `export` it as a SavedModel. Before pre-training: `prepare`, make records of a corpus. The help of each
    command is in `Command.texts`."""
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    multi_label: MultiLabelConfig = dataclasses.field(default_factory=MultiLabelConfig)
    tagging: TaggingConfig = dataclasses.field(default_factory=TaggingConfig)
    answering: AnsweringConfig = dataclasses.field(default_factory=AnsweringConfig)
    choosing: ChoosingConfig = dataclasses.field(default_factory=ChoosingConfig)
    corpus: CorpusConfig = dataclasses.field(default_factory=CorpusConfig)
    pretraining: PretrainingConfig = dataclasses.field(default_factory=PretrainingConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    runtime: RuntimeConfig = dataclasses.field(default_factory=RuntimeConfig)
    output: OutputConfig = dataclasses.field(default_factory=OutputConfig)
    predict: PredictConfig = dataclasses.field(default_factory=PredictConfig)
    export: ExportConfig = dataclasses.field(default_factory=ExportConfig)
    hub: HubConfig = dataclasses.field(default_factory=HubConfig)

    @classmethod
    def classes(cls) -> dict[str, type[Any]]:
        """The class of each part, by its name, in their order."""
        return {field.name: field_types(cls)[field.name] for field in dataclasses.fields(cls) if field.name != "mode"}

    def given(self, *names: str) -> dict[str, Any]:
        """Those of some options, or of all, that are not at their default, by name."""
        return {
            field.name: value
            for part in self.parts()
            for field in dataclasses.fields(part)
            if (value := getattr(part, field.name)) != field.default and (not names or field.name in names)
        }

    def parts(self) -> list[Any]:
        """The parts, in their order."""
        return [part for part in vars(self).values() if dataclasses.is_dataclass(part)]
