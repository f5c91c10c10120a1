"""The parts of a run's configuration that have no file of their own, all parts together, and the rules about which
options each mode takes. Imports nothing but the standard library.

Every option of the command lives in one part; `commandline` reads names, defaults and help from there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from tfbert.config import tasks
from tfbert.config.data import DataConfig
from tfbert.config.tables import OF_ROWS, TASKS, facts_of, listed
from tfbert.config.training import TrainingConfig
from tfbert.config.types import (
    COMPUTE,
    EVALUATE,
    EVERY,
    OF_MODELS,
    SEED,
    STANDARD_STREAM,
    TRAIN,
    Given,
    Mode,
    Options,
    architecture_problem,
    field_types,
    is_pipe,
    one_of,
    option,
    problem,
)

MixedPrecisionDtype = Literal["auto", "float16", "bfloat16"]
Device = Literal["auto", "gpu", "cpu"]

SCRATCH_PREFIX = "scratch/"
_NAMED = {
    "tiny": (2, 128, 2, 4_000),
    "mini": (4, 256, 4, 8_000),
    "small": (4, 512, 8, 16_000),
    "medium": (8, 512, 8, 16_000),
    "base": (12, 768, 12, 30_000),
    "large": (24, 1024, 16, 30_000),
}
SCRATCH_LAYOUTS = _NAMED | {
    f"L-{layers}_H-{hidden}": (layers, hidden, hidden // 64, 30_000)
    for layers in (2, 4, 6, 8, 10, 12)
    for hidden in (128, 256, 512, 768)
}
"""Layers, hidden size, attention heads, and the size of the vocabulary that is learned. `L-4_H-256` and the like are
Google's 24 miniatures (Turc et al. 2019), of which tiny, mini, small and medium are four by name."""
_MOST_OF_CONFIG = 1 << 24
"""Bytes of a model's `config.json`, beyond which it is none."""
OF_BUILT_IN = "scratch/tiny"
"""The model of the built-in data, unless another is named."""
MAX_COMPILED_SHAPES = 6
OutputFormat = Literal["auto", "tsv", "csv", "jsonl", "conll", "squad"]
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

    def rules(self) -> Iterator[str]:
        """A line for each rule that it breaks."""
        if self.is_scratch and self.name.removeprefix(SCRATCH_PREFIX) not in SCRATCH_LAYOUTS:
            rule = f"A scratch model has one of the sizes {', '.join(_NAMED)}, or L-2_H-128 to L-12_H-768"
            yield problem(rule, "Pass for example scratch/tiny.", model_name_or_path=self.name)
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # Said where it is read.
            path = pathlib.Path(self.model_name_or_path).expanduser() / "config.json"
            if path.is_file() and path.stat().st_size < _MOST_OF_CONFIG:
                yield from filter(None, [architecture_problem(json.loads(path.read_text(encoding="utf-8")), path)])
        if self.vocab_file.endswith((".json", ".model")):
            rule = "vocab_file is a WordPiece vocabulary, one token per line"
            yield problem(rule, "Pass --model for its own tokenizer.", vocab_file=self.vocab_file)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeConfig(Options):
    """On what, and in which precision, the run computes."""

    strategy: Literal["one_device", "mirrored", "multi_worker"] = option("one_device", resume="split", modes=COMPUTE)
    """`one_device`; `mirrored`: all GPUs of this machine; `multi_worker`: all workers named in TF_CONFIG
    or started by SLURM's srun."""
    device: Device = option("auto", resume="split")
    """`auto`: GPUs where there are any, else the CPU; `gpu`: fail where there is none; `cpu`: do not use GPUs."""
    num_replicas: int = option(0, resume="split", modes=COMPUTE, least=0)
    """Replicas on this machine. 0: all GPUs with `mirrored` and `multi_worker`, or one CPU replica where there is no
    GPU. On a CPU, more than one are logical devices that share the cores: for trying things out."""
    cluster_timeout_seconds: int = option(300, resume="free", modes=COMPUTE, least=1)
    """How long a worker of `multi_worker` waits for the others to start before it fails."""
    all_reduce_dtype: Literal["float32", "bfloat16"] = option("float32", resume="same", modes=TRAIN)
    """What gradients are rounded to before they are summed over replicas. `bfloat16`: half as much to send, for workers
    whose network is slow; it rounds to three digits."""
    mixed_precision: bool = option(False, resume="same", modes=COMPUTE)
    """Compute in 16 bits, keep the weights in float32."""
    mixed_precision_dtype: MixedPrecisionDtype = option("auto", resume="same", modes=COMPUTE, needs="mixed_precision")
    """`float16` (with dynamic loss scaling) or `bfloat16`. `auto`: float16 on a GPU, bfloat16 on a CPU."""
    per_device_eval_batch_size: int | None = option(None, resume="split", modes=COMPUTE, least=1)
    """Rows that each replica evaluates or predicts at a time. Default: as many as have 16,384 tokens together on a GPU,
    2,048 where one CPU computes alone, and else 32."""
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
    decides. The same command resumes. With `max_train_examples=100,300,1000` the table is a learning curve.
    Empty: train once."""
    deterministic: bool = option(False, resume="split", modes=COMPUTE)
    """Use deterministic kernels only (slower on a GPU), so that the same command gives the same bits."""
    keep_freed_memory: bool = option(True, resume="free", modes=EVERY)
    """Set glibc's malloc, before TensorFlow is imported, so that freed memory is reused rather than returned to the
    kernel at every step. Where MALLOC_ARENA_MAX and the like, or GLIBC_TUNABLES, set something, nothing is."""

    def rules(self) -> Iterator[str]:
        """A line for each rule that it breaks."""
        if self.strategy == "one_device" and self.num_replicas > 1:
            todo = "Pass --strategy=mirrored or drop --num_replicas."
            yield problem("one_device has one replica", todo, num_replicas=self.num_replicas)
        if len(set(self.seeds)) < len(self.seeds):
            yield problem("Each seed trains once", "List each once.", seeds=self.seeds)
        if self.seeds and self.seed != SEED:
            yield problem("seeds takes the place of seed", "Drop --seed.", seed=self.seed, seeds=self.seeds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputConfig(Options):
    """What a run writes, where and how often."""

    output_dir: str = option("", resume="free", modes=EVERY)
    """Where the model and the logs go. Empty: a new directory `runs/DATA-MODEL-TIME`."""
    overwrite_output_dir: bool = option(False, resume="free", modes=(*EVALUATE, "export", "prepare"))
    """Write into a directory that holds an earlier run's files, replacing them."""
    resume: Literal["auto", "never"] = option("auto", resume="free", modes=("train",))
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
    keep_adapter: bool = option(False, resume="free", modes=("train",), tasks=OF_ROWS, needs="lora_rank")
    """Also write the updates and the head as PEFT does, to `output_dir/adapter`."""
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

    def rules(self) -> Iterator[str]:
        """A line for each rule that it breaks."""
        steps = self.profile_steps
        if steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
            rule = "profile_steps takes the first and the last update, counted from 1"
            yield problem(rule, "Pass for example --profile_steps=10,15.", profile_steps=steps)
        yield from [one_of("report_to", name, REPORT_TO) for name in self.report_to if name not in REPORT_TO]
        if len(set(self.report_to)) < len(self.report_to):
            yield problem("Each tracker is told once", "List each once.", report_to=self.report_to)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(Options):
    """What `--mode=export` writes."""

    export_format: Literal["saved_model", "onnx", "tflite"] = option("saved_model", modes=("export",))
    """`saved_model`: a SavedModel, with a tokenizer of WordPiece inside; of multiple choice it takes token ids. `onnx`,
    `tflite`: a file that takes token ids, of any task but pre-training, with the tokenizer's files beside it
    (`pip install -e '.[onnx]'` or `'.[tflite]'` in the clone). KerasHub needs no export: it reads a run's directory."""
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
    multi_label: tasks.MultiLabelConfig = dataclasses.field(default_factory=tasks.MultiLabelConfig)
    tagging: tasks.TaggingConfig = dataclasses.field(default_factory=tasks.TaggingConfig)
    answering: tasks.AnsweringConfig = dataclasses.field(default_factory=tasks.AnsweringConfig)
    choosing: tasks.ChoosingConfig = dataclasses.field(default_factory=tasks.ChoosingConfig)
    corpus: tasks.CorpusConfig = dataclasses.field(default_factory=tasks.CorpusConfig)
    pretraining: tasks.PretrainingConfig = dataclasses.field(default_factory=tasks.PretrainingConfig)
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

    def values(self) -> dict[str, Any]:
        """Every option's value by its name."""
        return {name: getattr(getattr(self, option.part), name) for name, option in all_options().items()}

    def given(self, *names: str) -> dict[str, Any]:
        """Those of some options, or of all, that are not at their default, by name."""
        asked = {name: value for name, value in self.values().items() if not names or name in names}
        return {name: value for name, value in asked.items() if value != all_options()[name].field.default}

    def parts(self) -> list[Any]:
        """The parts, in their order."""
        return [part for part in vars(self).values() if dataclasses.is_dataclass(part)]


class Option(NamedTuple):
    """An option of a run: the part of `Config` that holds it, its field there, and its type."""

    part: str
    field: dataclasses.Field[Any]
    kind: Any


@functools.cache
def all_options() -> dict[str, Option]:
    """Every option by its name, in the order of `Config`."""
    parts = Parts.classes().items()
    fields = [(part, kind, field) for part, kind in parts for field in dataclasses.fields(kind)]
    return {field.name: Option(part, field, field_types(kind)[field.name]) for part, kind, field in fields}


def mode_problems(config: Parts) -> list[str]:
    """Options that do not fit the mode, a line each: options without an effect in it, and options that it lacks."""
    rules = {"train": _train, "evaluate": _evaluate, "predict": _predict, "export": _export, "prepare": _prepare}
    return [*_without_effect(config), *_of_any_mode(config), *rules[config.mode](config)]


def _drop(name: str, value: Any) -> str:
    return f"Drop --{f'no{name}' if value is False else name}"


def _without_effect(config: Parts) -> Iterator[str]:
    """A line for each option that was changed from its default and that the mode would ignore."""
    values = config.values()
    for name, value in config.given().items():
        about, todo, task = all_options()[name].field.metadata, _drop(name, value), config.data.task
        modes, tasks, needs = about["modes"], about["tasks"] or TASKS, about["needs"]
        needed, _, word = needs.partition("=")
        if needs and not (values[needed] == word if word else values[needed]):
            yield problem(f"{name} takes effect with {needs} only", f"Add --{needs}.", **{name: value})
        if config.mode not in modes and not (name == "task" and facts_of(task).of_records):  # Which the command sets.
            if (name, config.mode) == ("input_files", "train"):
                todo = "Make records of them with --mode=prepare, and train with --train_records=DIRECTORY"
            elif config.mode == "train" and len(modes) == 1:
                todo += f", or add --mode={modes[0]}"
            yield problem(f"{name} has no effect with mode={config.mode}", f"{todo}.", **{name: value})
        elif task in TASKS and task not in tasks:
            yield problem(f"{name} is for {listed([*tasks])}", f"{todo}.", task=task, **{name: value})


def _of_any_mode(config: Parts) -> Iterator[str]:
    """What concerns the files that are read, and the model, in more than one mode."""
    data, mode, predict = config.data, config.mode, config.predict
    of_records = facts_of(data.task).of_records
    given = [each for each in (data.train_file, *data.validation_files, data.test_file) if each]
    if mode == "export":
        pass  # It reads none.
    elif not data.uses_files and not predict.input_file and not config.corpus.input_files:
        yield from idle(config, "files", "input_format", "delimiter", "skip_bad_rows")
    elif given and all(isinstance(each, Given) and not isinstance(each.source, pathlib.Path) for each in given):
        yield from idle(config, "files", "input_format", "delimiter", "header")
    elif data.input_format == "text" and mode != "predict":
        yield problem("Plain text has no labels", "Pass another format, or --mode=predict.", input_format="text")
    for name, file in config.given("input_file", "test_file").items():
        if is_pipe(file) and config.runtime.strategy == "multi_worker":
            rule = "Every worker reads the input, but only one has standard input or a pipe"
            yield problem(rule, "Pass a file that all workers see.", strategy="multi_worker", **{name: file})
        # Texts of standard input are taken for plain text.
        knows = data.input_format != "auto" or pathlib.Path(file).suffix or (name, file) == ("input_file", "-")
        if is_pipe(file) and not knows and mode in ("evaluate", "predict"):
            rule, todo = "A pipe has no ending that tells its format", "Pass --input_format, such as jsonl or tsv."
            yield problem(rule, todo, **{name: file})
    if of_records and mode in EVALUATE:
        for name, value in config.given("dataset", "data_dir", "text_column").items():
            if value != "demo":
                todo = "Make records of it with --mode=prepare, and pass --train_records."
                yield problem("Pre-training reads prepared records", todo, **{name: value})
    elif mode in COMPUTE and not data.header and not predict.text:  # And so there are no names.
        for name in ("text_column", "label_column") if mode in EVALUATE else ("text_column",):
            value = getattr(data, name)
            values = value.split(",") if isinstance(value, str) else value
            if not values or not all(index.isdigit() for index in values):
                rule = f"Without a header, {name} must be given as indexes from 0"
                yield problem(rule, f"Pass for example --{name}=0.", **{name: value})
    if mode in OF_MODELS and mode != "train" and config.model.is_scratch:
        rule, name = f"mode={mode} needs a trained model", config.model.model_name_or_path
        yield problem(rule, "Pass a run's output directory as --model.", model_name_or_path=name)


def idle(config: Parts, needs: str, *names: str) -> Iterator[str]:
    """A line for each of some options that was given but has no effect for want of something."""
    for name, value in config.given(*names).items():
        yield problem(f"{name} takes effect with {needs} only", f"{_drop(name, value)}.", **{name: value})


def one_output(config: Parts, what: str) -> Iterator[str]:
    """What does not go with several runs: an upload, and several workers."""
    if config.hub.push_to_hub:
        rule = f"An upload is one model, and with {what} there are several"
        yield problem(rule, "Drop --push_to_hub, and upload the best model by hand.", push_to_hub=True)
    if config.runtime.strategy == "multi_worker":
        todo = "Start the workers once for each run, and compare the runs: tfbert report RUN_DIR RUN_DIR."
        yield problem(f"With {what}, each run is a single process", todo, strategy="multi_worker")


def _train(config: Parts) -> Iterator[str]:
    records, data = config.pretraining.train_records, config.data
    if not config.model.model_name_or_path and (records or not data.is_built_in):
        # Random weights would learn little, and nobody would know.
        todo = "Pass --model=bert-base-uncased or another pretrained one; --model=scratch/tiny has random weights."
        received: dict[str, Any] = {"model_name_or_path": "", "data": records or data.source}
        yield problem("Data of your own needs a model to start from", todo, **received)
    if config.runtime.seeds:
        yield from one_output(config, "seeds")
    if config.output.keep_adapter and config.model.is_scratch:
        rule = "An adapter is read beside the model that it began with, and random weights are not kept"
        todo = "Drop --keep_adapter: the trained model is whole."
        yield problem(rule, todo, keep_adapter=True, model_name_or_path=config.model.name)
    if facts_of(data.task).of_records:
        is_unevaluated, todo = records and not config.pretraining.validation_records, "Pass --validation_records."
        if config.pretraining.validation_records and not records:
            rule = "With validation_records, training needs train_records too"
            yield problem(rule, "Pass --train_records.", train_records="")
    else:
        todo = "Pass --validation_file or --validation_split."
        is_unevaluated = data.uses_files and not data.has_validation_data
        if data.test_file == STANDARD_STREAM:
            rule = "Standard input is for mode=evaluate and mode=predict"
            yield problem(rule, "Pass a file, or --mode=evaluate later.", test_file="-")
        if data.uses_files and not data.train_file:
            yield problem("Training from files needs a training file", "Pass --train_file.", train_file="")
    unused = evaluation_options(config) if is_unevaluated else {}
    for name, value in unused.items():
        yield problem(f"{name} needs data to evaluate on during training", todo, **{name: value})


def evaluation_options(config: Parts) -> dict[str, int | str]:
    """Of the options that concern evaluation during training, those that were given, by name."""
    return config.given("early_stopping_patience", "metric_for_best_model", "eval_steps")


def _evaluate(config: Parts) -> Iterator[str]:
    data = config.data
    if facts_of(data.task).of_records:
        if not config.pretraining.validation_records:
            yield problem("Evaluation needs records", "Pass --validation_records.", validation_records="")
    elif not data.dataset and not data.uses_files:
        todo = "Pass --dataset=NAME, --validation_file or --test_file."
        yield problem("Evaluation needs labelled examples", todo, validation_file="")


def _predict(config: Parts) -> Iterator[str]:
    predict, dataset = config.predict, config.data.dataset
    sources = config.given("text", "input_file", "dataset")
    if len(sources) != 1:
        todo = "Pass --input_file, --text='a text', or a GLUE task with --dataset."
        yield problem("Prediction needs one source of texts", todo, **(sources or {"input_file": ""}))
    if dataset and not dataset.startswith("glue/"):
        rule = "Of the data sets, only GLUE's test sets can be predicted"
        yield problem(rule, "Pass --dataset=glue/NAME, or a file with --input_file.", dataset=dataset)
    if predict.text:
        yield from idle(config, "input_file", "glue_task", "id_column", "text_column", "header")
        if len(predict.text_pair) not in (0, len(predict.text)):
            rule = "Each text of a pair has its second text"
            yield problem(rule, "Pass as many of both.", text=len(predict.text), text_pair=len(predict.text_pair))
    elif dataset:
        yield from idle(config, "input_file", "glue_task", "id_column")
    is_glue = bool(predict.glue_task or dataset)
    if is_glue and (own := config.given("output_file", "output_format")):
        rule = "GLUE's submission files have names and a format of their own"
        yield problem(rule, "Pass --output_dir instead.", **own)
    if config.output.output_dir and not is_glue:
        rule = "Predictions go to output_file; output_dir is for GLUE's submission files"
        yield problem(rule, "Pass --output_file.", output_dir=config.output.output_dir)


def _export(config: Parts) -> Iterator[str]:
    if not config.output.output_dir:
        yield problem("An export needs a directory", "Pass --output_dir.", output_dir="")
    export_format, columns = config.export.export_format, config.data.text_column
    if export_format in ("onnx", "tflite") and columns:
        rule = f"export_format={export_format} writes a model of token ids, which takes no texts"
        yield problem(rule, "Drop --text_column.", text_column=columns)


def _prepare(config: Parts) -> Iterator[str]:
    files, columns = config.corpus.input_files, config.data.text_column
    if not config.output.output_dir:
        yield problem("Records need a directory", "Pass --output_dir.", output_dir="")
    if files and config.data.dataset:
        rule = "A corpus comes from files or from a data set, not both"
        yield problem(rule, "Drop one.", input_files=files, dataset=config.data.dataset)
    sources = config.given("model_name_or_path", "vocab_file", "learn_vocab")
    if config.model.model_name_or_path and config.model.is_scratch:
        rule, todo = "A scratch model has no vocabulary yet", "Pass --learn_vocab, or --vocab_file."
        yield problem(rule, todo, model_name_or_path=config.model.name)
    elif len(sources) != 1:
        rule = "Preparing a corpus takes a model's tokenizer, a vocabulary from a file, or learns one from the corpus"
        todo = "Pass one of --model, --vocab_file and --learn_vocab."
        yield problem(rule, todo, **(sources or {"model_name_or_path": ""}))
    if len(columns) > 1:
        yield problem("A document is the text of one column", "Name one.", text_column=columns)
