"""What a run is: frozen dataclasses, their validation, and their JSON form; `--sweep`: options with several values each
-> the runs of their grid; and the commands: what each is called and which options it has. The standard library only.

Every option of the command lives here once; `commandline` reads names, defaults and help from here.

Texts about options, worded for those who call tfbert from Python: arguments in the place of flags.

Messages are written once, with flags: `Pass --global_batch_size=32, or drop --noheader.` In Python the same message is
`Pass global_batch_size=32, or drop header=False.`
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import pathlib
import re
import reprlib
import sys
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_origin

from tfbert.config.modes import Parts, all_options, mode_problems, one_output
from tfbert.config.tables import facts_of
from tfbert.config.tasks import PRETRAINING, TaskOptions, window_sizes
from tfbert.config.training import OPTIMIZERS, lora_targets
from tfbert.config.types import ALIASES, PATHS, Mode, did_you_mean, in_words, joined, of_text, problem, split
from tfbert.errors import UsageError

_EPOCHS = 3.0
UNTIL_STEP = "until_step"
"""The key of `run_config.json` beside the configuration: the values that options had up to an update of the run."""
CONTENTS = "contents_crc32"
"""Likewise: what the files that options name held when the run read them."""
EARLIER = "benchmark"
"""A part that configurations of version 1 have, without effect on a run."""
_OFF = ("keep_misaligned_answers", "skip_bad_records")
"""Options of earlier versions, which at false did what is done now."""


MAY_DIFFER = frozenset(
    {
        *PATHS,  # What the files hold is compared.
        # What the chief alone writes or tells, and how.
        *("output_format", "save_steps", "save_total_limit", "keep_optimizer"),
        *("logging_steps", "report_to", "push_to_hub", "hub_model_id", "hub_private_repo"),
        # Each process's own.
        *("cluster_timeout_seconds", "keep_freed_memory"),
    }
)
"""The options that may differ between the workers of a run: no other worker's computation depends on them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Parts):
    """A whole run. Construction checks every rule that needs neither data nor devices.

    Raises:
        UsageError: naming all problems at once.
    """

    def __post_init__(self):
        super().__post_init__()
        if self.mode == "train" and self.runtime.sweep:
            # The runs of the grid must be right: the configuration itself lacks the values that are varied.
            beside, rule = self.given(*points_of(self)[0].values), "sweep takes the place of {}"
            problems = [problem(rule.format(name), f"Drop --{name}.", **{name: beside[name]}) for name in beside]
            problems += one_output(self, "sweep")
        else:
            problems = self.problems() or mode_problems(self)
            problems += [line for part in self.parts() for line in part.problems()]
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
        parts = ("multi_label", "tagging", "answering", "choosing", "pretraining")
        return TaskOptions(**{part: getattr(self, part) for part in parts}, seed=self.runtime.seed)

    def resolved(self) -> Config:
        """The same training run with every default that depends on another option written out, and one name for each
        metric.

        Raises:
            UsageError: for sizes of windows that do not go with the length of rows.
        """
        facts, training, data, answering = facts_of(self.data.task), self.training, self.data, self.answering
        optimizer, epochs = OPTIMIZERS[training.optimizer], facts.demo_epochs if data.is_built_in else _EPOCHS
        rate = optimizer.scratch_rate if self.model.is_scratch or training.lora_rank else optimizer.rate
        given: dict[str, Any] = {
            "model_name_or_path": self.model.name,
            "metric_for_best_model": training.metric_for_best_model.removeprefix("eval_"),
            "num_train_epochs": training.num_train_epochs or (None if training.max_steps else epochs),
            "learning_rate": training.learning_rate or rate,
            "lora_alpha": training.lora_alpha or training.lora_rank or None,
            "lora_targets": ",".join(lora_targets(training.lora_targets)),
            "dataset": data.dataset if data.uses_files or facts.of_records else data.dataset or "demo",
            "max_seq_length": self.max_seq_length,
        }
        if facts.has_windows:
            answering.check_length(self.max_seq_length)
            sizes = window_sizes(self.max_seq_length, answering.doc_stride, answering.max_query_length)
            given |= dict(zip(("doc_stride", "max_query_length"), sizes, strict=True))
        config = dataclasses.replace(self, pretraining=self.pretraining.with_masking()) if facts.of_records else self
        return config.changed(given)

    def changed(self, values: Mapping[str, Any], mode: str = "") -> Config:
        """The same run with other values of some options, by name, and perhaps another mode."""
        parts: dict[str, dict[str, Any]] = {all_options()[name].part: {} for name in values}
        for name, value in values.items():
            parts[all_options()[name].part][name] = value
        made = {part: dataclasses.replace(getattr(self, part), **own) for part, own in parts.items()}
        return dataclasses.replace(self, mode=mode or self.mode, **made)

    def shared(self) -> dict[str, Any]:
        """The options that all workers of a run must share, by name, as JSON holds them."""
        return {"mode": self.mode} | {n: value for n, value in self.values().items() if n not in MAY_DIFFER}

    def accumulating(self, steps: int | Literal["auto"]) -> Config:
        """The same run with that many micro-batches."""
        return self.changed({"gradient_accumulation_steps": steps})

    def to_json(self) -> str:
        """The configuration as JSON text, one object a part."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Reads what `to_json` wrote, and the `run_config.json` of a run that was resumed with other settings.

        Raises:
            UsageError: for text that is not such an object, an unknown name, or a value of the wrong type.
        """
        parts = cls.classes()
        try:
            values = json.loads(text)
            if not isinstance(values, dict) or any(not isinstance(values.get(name, {}), dict) for name in parts):
                raise ValueError(reprlib.repr(values))
        except (ValueError, RecursionError) as error:
            rule = "A run configuration must be JSON, an object with an object for each part"
            raise UsageError(f"{rule}. Received: {error}. Repair the file.") from None
        known = {name: value for name, value in values.items() if name not in (UNTIL_STEP, CONTENTS, EARLIER)}
        for name in parts:
            own = values.get(name, {})
            known[name] = parts[name](**{key: own[key] for key in own if own[key] is not False or key not in _OFF})
        return cls(**known)


_FIXED = ("seed", "task", "strategy", "metric_for_best_model")
"""Options with other values of which runs could not be ranked; those of `resume="free"` decide nothing of a result."""
_LONGEST_NAME = 180
_OUTSIDE_QUOTES = re.compile(r';(?=(?:[^"]*"[^"]*")*[^"]*$)')
_FORM = "Write for example --sweep='learning_rate=1e-5,3e-5;global_batch_size=16,32'"


@dataclasses.dataclass(frozen=True)
class Point:
    """A run of the grid.

    Attributes:
        values: The value of each option that is varied, by its name.
        config: The run, perhaps with several seeds; it sweeps nothing itself.
    """

    values: Mapping[str, Any]
    config: Any

    @property
    def label(self) -> str:
        """What messages and tables call it: `learning_rate=1e-05, global_batch_size=16`."""
        return ", ".join(f"{name}={shown(value)}" for name, value in self.values.items())

    @property
    def directory(self) -> str:
        """The name of its directory: the same values have the same name, however they were written."""
        parts = [f"{name}={urllib.parse.quote(shown(value), safe='+')}" for name, value in self.values.items()]
        name = ",".join(parts)
        if len(name) <= _LONGEST_NAME:
            return name
        return f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def shown(value: Any) -> str:
    """A value as it may be typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return text if float(text := f"{value:g}") == value else repr(value)
    return str(value)


def sweep_text(values: Mapping[str, Sequence[Any]]) -> str:
    """What `--sweep` takes for these values of options."""
    return ";".join(f"{name}={joined(map(shown, given))}" for name, given in values.items())


def axes_of(text: str) -> dict[str, tuple[Any, ...]]:
    """The options that a sweep varies, with their values; in the order of `Config`, so that another order of the text
    is the same sweep.

    Args:
        text: As `RuntimeConfig.sweep` has it.

    Raises:
        UsageError: for text of another form; an unknown option, one that cannot vary, or one that is there twice; a
            value of another type, no value, or a value that is there twice.
    """
    found, known = {}, all_options()
    for item in filter(None, map(str.strip, _OUTSIDE_QUOTES.split(text))):
        given, equals, texts = item.partition("=")
        given = given.strip().removeprefix("--")
        name = ALIASES.get(given, given)
        if not equals:
            raise UsageError(f"A sweep is a list of NAME=VALUE,VALUE,... with ; between. Received: {item!r}. {_FORM}.")
        if name not in known:
            advice = did_you_mean(name, known) or "--help lists the options."
            raise UsageError(f"A sweep varies options by their names. Received: sweep={item!r}. {advice}")
        _, field, kind = known[name]
        if get_origin(kind) is tuple or field.metadata["resume"] in (None, "free") or name in _FIXED:
            todo = "Pass --seeds=1,2,3 beside the sweep." if name in ("seed", "seeds") else "Drop it."
            raise UsageError(f"A sweep cannot vary {name}. Received: sweep with {name}. {todo}")
        if name in found:
            raise UsageError(f"A sweep names each option once. Received: {name!r} twice. Put its values together.")
        try:
            values = [of_text(kind, word) for word in split(texts) or [""]]
        except ValueError:
            values = []
        if not all(value != "" and not isinstance(value, tuple) for value in values) or not values:
            rule = f"Each value of {name} in a sweep must be {in_words(kind, name)}"
            raise UsageError(f"{rule}. Received: sweep={item!r}. Repair or drop it.") from None
        if twice := [shown(value) for place, value in enumerate(values) if value in values[:place]]:
            raise UsageError(f"Each value of a sweep has one run. Received: {name}={twice[0]} twice. Drop one.")
        found[name] = tuple(values)
    if not found:
        raise UsageError(f"A sweep varies at least one option. Received: sweep={text!r}. {_FORM}, or drop --sweep.")
    return {name: found[name] for name in known if name in found}


def points_of(config: Config) -> list[Point]:
    """The runs of a configuration's sweep, the last option varying fastest.

    Raises:
        UsageError: as `axes_of`, and naming the rules that single runs break.
    """
    axes, points, problems = axes_of(config.runtime.sweep), [], []
    for chosen in itertools.product(*axes.values()):
        values = dict(zip(axes, chosen, strict=True))
        try:
            points.append(Point(values, config.changed(values | {"sweep": ""})))
        except UsageError as error:
            problems += str(error).splitlines()
    if problems:
        raise UsageError("\n".join(dict.fromkeys(problems)))
    return points


PROGRAMS = ("tfbert", "python -m tfbert")
"""The installed command, and its equivalent where it is not on the PATH."""
STARTED_AS = "TFBERT_STARTED_AS"
"""The environment variable by which a process that starts the installed command says what its user typed."""
_REPOSITORY = pathlib.Path(__file__).parents[2]
_OF_CORPORA = ("dataset", "text_column", "skip_bad_rows", "max_seq_length")
_OF_RECORDS = ("batching", "max_train_examples", "max_eval_examples")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Command:
    """A script at the top of the repository, and a word of the installed `tfbert`.

    Attributes:
        word: The word.
        script: The script's name.
        summary: What it does, in a line.
        examples: Its arguments in common uses, each with what they do.
        verbs: What it can do, by mode: the module of `modes/`, imported when it is needed, and the function.
        leaves_out: Parts of `Config` whose options it does not have.
        only: For a part, the options that it has; it has every option of a part that is not named here.
        task: The task that it trains; empty where its user chooses.
        texts: The help of an option, where its docstring is not about this command.
    """

    word: str
    script: str
    summary: str
    examples: tuple[tuple[str, str], ...]
    verbs: Mapping[Mode, str]
    leaves_out: tuple[str, ...]
    only: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    task: str = ""
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """What it can do."""
        return tuple(self.verbs)

    @property
    def typed(self) -> str:
        """What its user types to start it."""
        script = self.script if (_REPOSITORY / self.script).is_file() else f"tfbert {self.word}"
        verbs = [verb for verb, command in verb_commands().items() if command is self]
        return typed(self.word, script, also=verbs)

    @property
    def started(self) -> str:
        """`typed` as a shell takes it: a script with its Python in front."""
        return f"python {self.script}" if self.typed == self.script else self.typed

    def names(self) -> list[str]:
        """The names of its options."""
        options = {name: option.part for name, option in all_options().items() if option.part not in self.leaves_out}
        return [name for name, part in options.items() if name in self.only.get(part, (name,))]


def typed(word: str, otherwise: str, also: Collection[str] = ()) -> str:
    """How this process was started, for a word of the installed command.

    Args:
        word: The word.
        otherwise: What to return where a script, or a user's own Python code, started it.
        also: Other words that start the same; the one that was typed is kept.
    """
    # `__main__.main` puts what was typed there: `tfbert finetune`.
    program, _, said = sys.argv[0].rpartition(" ")
    return f"{program} {said if said in also else word}" if program in PROGRAMS else otherwise


FINETUNE = Command(
    word="finetune",
    script="run_finetune.py",
    summary="Fine-tunes BERT to classify texts, predict numbers, tag words, find or choose answers; evaluates, applies "
    "and exports the model.",
    examples=(
        ("--strategy=mirrored --mixed_precision", "the built-in data on all GPUs"),
        ("--model=bert-base-uncased --dataset=glue/sst2 --output_dir=runs/sst2", "a data set by name"),
        ("--flagfile=glue-rte --model=bert-base-cased --dataset=glue/rte --output_dir=runs/rte", "a preset"),
        ("--model=bert-base-uncased --train_file=train.tsv --validation_file=dev.tsv", "your own files"),
        ("--mode=predict --model=runs/sst2 --input_file=new.tsv", "label new texts"),
    ),
    verbs={
        "train": "many:train",
        "evaluate": "predict:evaluate_model",
        "predict": "predict:predict",
        "export": "export:export",
    },
    leaves_out=("corpus", "pretraining"),
    texts={
        "mode": "What to do: `train` a model; `evaluate` a saved one; `predict` labels with it; `export` it as a "
        "SavedModel."
    },
)
PRETRAIN = Command(
    word="pretrain",
    script="run_pretraining.py",
    summary="Pre-trains BERT and the like on your own text: makes records of a corpus, trains on them, evaluates.",
    examples=(
        ("", "the built-in corpus, from text to model"),
        ("--mode=prepare --input_files='corpus/*.jsonl.gz' --learn_vocab=30522 --output_dir=records", "make records"),
        ("--model=scratch/base --train_records=records --mixed_precision --output_dir=runs/bert", "train on them"),
        ("--flagfile=pretraining/bert-base-phase1 --train_records=records", "a preset (--help=presets)"),
    ),
    verbs={"train": "pretrain:pretrain", "evaluate": "predict:evaluate_model", "prepare": "pretrain:prepare"},
    leaves_out=("multi_label", "tagging", "answering", "choosing", "predict", "export"),
    only={"data": (*_OF_CORPORA, *_OF_RECORDS)},
    task=PRETRAINING,
    texts={
        "mode": "What to do: `prepare`: make records of a corpus; `train` a model on them; `evaluate` a saved one.",
        "dataset": "The corpus of `--mode=prepare` that is no files: `demo`, the built-in one. Empty: `input_files`, "
        "and `demo` where these are empty too.",
        "skip_bad_rows": "In `--mode=prepare`: leave out lines and rows of files that cannot be used, such as those "
        "without text, and count them, rather than stop at the first one.",
    },
)


def verb_commands() -> dict[str, Command]:
    """The modes that are words of the installed command, each with the command that it is a mode of: `tfbert predict`
    is `tfbert finetune --mode=predict`. What both have is that of fine-tuning."""
    own = {mode: FINETUNE for mode in FINETUNE.modes}
    return own | {mode: PRETRAIN for mode in PRETRAIN.modes if mode not in own}


def command_of(config: Config) -> Command:
    """The command that a configuration is for."""
    return PRETRAIN if config.data.task == PRETRAIN.task else FINETUNE


def option_words(config: Config, leave_out: Collection[str] = ()) -> list[str]:
    """The flags that make a configuration: one for each option that is not at its default.

    Args:
        config: A configuration.
        leave_out: Options to leave out.
    """
    words = []
    for name, value in config.given(*{*command_of(config).names()}.difference(leave_out)).items():
        if all_options()[name].field.metadata["repeats"]:
            words += [f"--{name}={item}" for item in value]
        elif isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no{name}")
        else:
            words.append(f"--{name}={joined(value) if isinstance(value, tuple) else value}")
    return words


_FLAG = re.compile(
    r"(?<![\w-])(?<!the command's )--(?P<name>[a-z]\w*)(?:=(?P<value>[^\s]*[^\s.,;:)]))?(?P<next>\s+(?=--[a-z]))?"
)
"""A flag, its value without the sentence's own punctuation, and whether another flag follows."""


def of_arguments(text: str) -> str:
    """A text with the arguments of `tfbert.finetune` in the place of the flags that it names."""
    return _FLAG.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value, comma = found["name"], found["value"], ", " if found["next"] else ""
    option = all_options().get(ALIASES.get(name, name))
    if name == "mode":
        return f"the command's --{name}={value}{comma}" if value else found[0]
    if not option:
        positive = all_options().get(name.removeprefix("no"))
        return f"{positive.field.name}=False{comma}" if positive and positive.kind is bool else found[0]
    if value is None:
        return f"{name}=True{comma}" if option.kind is bool else f"{name}{comma}"
    return f"{name}={_value(value, option.kind)}{comma}"


def _value(text: str, kind: Any) -> str:
    """The value of a flag as Python writes it; a word such as N in the place of a number stays."""
    text = text.strip("'\"")
    try:
        value = of_text(kind, text)
    except ValueError:
        return text
    return text if isinstance(value, float) else repr(list(value) if isinstance(value, tuple) else value)
