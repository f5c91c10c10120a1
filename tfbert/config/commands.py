"""The commands: what each is called and which options it has.

Texts about options, worded for those who call tfbert from Python: arguments in the place of flags.

Messages are written once, with flags: `Pass --global_batch_size=32, or drop --noheader.` In Python the same message is
`Pass global_batch_size=32, or drop header=False.`
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import sys
from collections.abc import Collection, Mapping
from typing import Any

from tfbert.config.pretraining import PRETRAINING
from tfbert.config.rules import Mode
from tfbert.config.run import Config
from tfbert.config.types import ALIASES, field_types, joined, of_text

PROGRAMS = ("tfbert", "python -m tfbert")
"""The installed command, and its equivalent where it is not on the PATH."""
STARTED_AS = "TFBERT_STARTED_AS"
"""The environment variable by which a process that starts the installed command says what its user typed."""
_REPOSITORY = pathlib.Path(__file__).parents[2]
_OF_CORPORA = ("dataset", "data_dir", "text_column", "skip_bad_rows", "max_seq_length")
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

    def options(self) -> dict[str, tuple[str, ...]]:
        """The names of its options, by the part of `Config` that they belong to."""
        return {
            name: self.only.get(name, tuple(field.name for field in dataclasses.fields(part)))
            for name, part in Config.classes().items()
            if name not in self.leaves_out
        }


def typed(word: str, otherwise: str, also: Collection[str] = ()) -> str:
    """How this process was started, for a word of the installed command.

    Args:
        word: The word.
        otherwise: What to return where a script, or a user's own Python code, started it.
        also: Other words that start the same; the one that was typed is kept.
    """
    # `words.main` puts what was typed there: `tfbert finetune`.
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
        "evaluate": "evaluate:evaluate_model",
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
    verbs={"train": "pretrain:pretrain", "evaluate": "evaluate:evaluate_model", "prepare": "prepare:prepare"},
    leaves_out=("multi_label", "tagging", "answering", "choosing", "predict", "export"),
    only={"data": (*_OF_CORPORA, *_OF_RECORDS)},
    task=PRETRAINING,
    texts={
        "mode": "What to do: `prepare`: make records of a corpus; `train` a model on them; `evaluate` a saved one.",
        "dataset": "The corpus of `--mode=prepare`: a TensorFlow Datasets name such as `imdb_reviews`, or `demo`, the "
        "built-in one. Empty: `input_files`, and `demo` where these are empty too.",
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
    for name, options in command_of(config).options().items():
        part = getattr(config, name)
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if field.name not in options or value == field.default or field.name in leave_out:
                continue
            if field.metadata["repeats"]:
                words += [f"--{field.name}={item}" for item in value]
            elif isinstance(value, bool):
                words.append(f"--{field.name}" if value else f"--no{field.name}")
            else:
                words.append(f"--{field.name}={joined(value) if isinstance(value, tuple) else value}")
    return words


_FLAG = re.compile(
    r"(?<![\w-])(?<!the command's )--(?P<name>[a-z]\w*)(?:=(?P<value>[^\s]*[^\s.,;:)]))?(?P<next>\s+(?=--[a-z]))?"
)
"""A flag, its value without the sentence's own punctuation, and whether another flag follows."""


def of_arguments(text: str) -> str:
    """A text with the arguments of `tfbert.finetune` in the place of the flags that it names."""
    return _FLAG.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value, kinds = found["name"], found["value"], _kinds()
    comma = ", " if found["next"] else ""
    if name == "mode":
        return f"the command's --{name}={value}{comma}" if value else found[0]
    if name not in kinds:
        positive = name.removeprefix("no")
        return f"{positive}=False{comma}" if kinds.get(positive) is bool else found[0]
    if value is None:
        return f"{name}=True{comma}" if kinds[name] is bool else f"{name}{comma}"
    return f"{name}={_value(value, kinds[name])}{comma}"


def _value(text: str, kind: Any) -> str:
    """The value of a flag as Python writes it; a word such as N in the place of a number stays."""
    text = text.strip("'\"")
    try:
        value = of_text(kind, text)
    except ValueError:
        return text
    return text if isinstance(value, float) else repr(list(value) if isinstance(value, tuple) else value)


@functools.cache
def _kinds() -> dict[str, Any]:
    """The type of each option."""
    found = {name: kind for part in Config.classes().values() for name, kind in field_types(part).items()}
    return found | {alias: found[name] for alias, name in ALIASES.items()}
