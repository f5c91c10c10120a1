"""Training from Python: the command's options as arguments, and what it shows, in a script or a notebook.

`tfbert.finetune`, `tfbert.pretrain` and `tfbert.evaluate` are a run as one call; `tfbert.sweep` the runs of a grid as
one call, each in a process of its own.

The command's options are their arguments: names, types, and the `Config` that they make; `train`, `validation` and
`test` are paths or data in memory.

What a user can cause, or asked for, is told without the way through this library.
"""

from __future__ import annotations

import functools
import gc
import inspect
import numbers
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tfbert.commandline import verb_of, what_is_meant
from tfbert.config.modes import Option, all_options
from tfbert.config.run import FINETUNE, PRETRAIN, Command, Config, command_of, sweep_text
from tfbert.config.types import ALIASES, Given, converted, did_you_mean, path_of, problem, shown
from tfbert.data.files import LABEL_NAMES, TAGS_NAMES, TEXT_NAMES, TEXT_PAIRS, WORDS_NAMES
from tfbert.data.in_memory import given_table, is_data
from tfbert.devices.process import imported_quietly, keep_freed_memory
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.output import logs, output_dir

if TYPE_CHECKING:
    from tfbert.launch import Signals
    from tfbert.modes.load import LoadedModel

_USUAL = {name for names in (*TEXT_PAIRS, TEXT_NAMES, *LABEL_NAMES, *WORDS_NAMES, *TAGS_NAMES) for name in names}
"""Names of columns, none of which a validation set is called."""
_SET_NAME = re.compile(r"[\w-]+")
OPTIONS = {"train": "train_file", "validation": "validation_file", "test": "test_file"}
"""The option that an argument stands for."""


def _given(argument: str, value: Any) -> Any:
    if isinstance(value, str | os.PathLike):
        if not os.fspath(value):  # As an option it would stand for the built-in data.
            raise UsageError(f"{argument} is rows or a path. Received: {argument}=''. Pass some, or leave it out.")
        return value
    if argument != "validation":
        return _one(argument, value)
    if isinstance(value, list | tuple) and value and all(isinstance(path, str | os.PathLike) for path in value):
        return value
    if isinstance(value, Mapping) and _are_sets(value):
        parts = []
        for name, part in value.items():
            if not isinstance(name, str) or not _SET_NAME.fullmatch(name):
                rule = "The name of a validation set has letters, digits, _ and -"
                raise UsageError(f"{rule}. Received: validation with {name!r}. Rename it.")
            parts.append(_one(f"validation_{name}", part))
        return Given(", ".join(parts), parts=tuple(parts))
    return _one(argument, value)


def _one(argument: str, value: Any) -> Given:
    if isinstance(value, str | os.PathLike):
        path = path_of(os.fspath(value), argument)
        return Given(f"{argument}={path}", path)
    table = given_table(argument, value)
    return Given(table.name, table)


def _are_sets(value: Mapping[Any, Any]) -> bool:
    """Whether a dictionary holds validation sets by name, rather than columns."""

    def is_set(part: Any) -> bool:
        return isinstance(part, str | os.PathLike) or is_data(part)

    def may_be_pairs(part: Any) -> bool:  # Or a column of words, where each sentence has two.
        return isinstance(part, list) and bool(part) and isinstance(part[0], tuple) and len(part[0]) == 2

    if not value or not all(is_set(part) or may_be_pairs(part) for part in value.values()):
        return False
    return any(map(is_set, value.values())) or not any(str(name).lower() in _USUAL for name in value)


TRAIN, EVALUATE = "train", "evaluate"
FUNCTIONS = {FINETUNE.word: "tfbert.finetune", PRETRAIN.word: "tfbert.pretrain"}
"""What trains, by the command's word."""
_OF_SEVERAL = ("seeds", "sweep")
_NOT_ARGUMENTS = {
    "mode": "tfbert.finetune and tfbert.pretrain train; of a saved model, tfbert.evaluate gives the scores, and "
    "tfbert.load returns a function.",
    "run_config": "Pass tfbert.Config.from_json(text) as the first argument.",
    "flagfile": "Presets are for the command; pass their flags as arguments.",
}
"""Flags that are no options of a run."""


def function_of(command: Command, mode: str) -> str:
    """What Python users call, for a command and what it does."""
    return FUNCTIONS[command.word] if mode == TRAIN else "tfbert.evaluate"


def options_of(command: Command, mode: str = TRAIN) -> dict[str, Option]:
    """The options that a command has in a mode, by name, but those of several runs."""
    options = {name: all_options()[name] for name in command.names() if name not in _OF_SEVERAL}
    return {name: option for name, option in options.items() if mode in option.field.metadata["modes"]}


def config_of(
    command: Command,
    config: Config | None,
    given: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    *,
    several: bool = False,
    mode: str = TRAIN,
) -> Config:
    """The configuration that arguments describe.

    Args:
        command: Whose options they are.
        config: What the arguments change; None for the defaults.
        given: The arguments, by name.
        data: `train`, `validation` and `test`, which stand for options; None where one was not given.
        several: Whether it may describe several runs: seeds, and a sweep.
        mode: What to do; of a given configuration it must be the mode.

    Raises:
        UsageError: naming all arguments that are unknown, of another type, or break a rule.
    """
    if config is not None and not isinstance(config, Config):
        todo = "Pass options by their names, such as train_file='train.tsv'."
        raise UsageError(f"The first argument must be a tfbert.Config. Received: {shown(config)}. {todo}")
    known = {*options_of(command, mode), *_OF_SEVERAL}
    sets = {argument: value for argument, value in (data or {}).items() if value is not None}
    found: dict[str, Any] = {}
    problems, given_as = [], {}
    for argument, value in (sets | dict(given)).items():
        name = ALIASES.get(argument, argument)
        if argument in sets:
            is_share = argument == "validation" and isinstance(value, numbers.Real) and not isinstance(value, bool)
            name = "validation_split" if is_share else OPTIONS[argument]
            try:
                value = value if is_share else _given(argument, value)
            except UsageError as error:
                problems.append(str(error))
                continue
        if name in given_as:
            rule = f"{given_as[name]} and {argument} are one option"
            problems.append(f"{rule}. Received: {argument}={shown(value)} beside it. Drop one.")
        elif name not in known:
            problems.append(_unknown(command, mode, name, value))
        elif name == "seed" and isinstance(value, list | tuple):
            todo = f"Pass seeds={value!r}." if several else f"Call it for each, or tfbert.sweep with seeds={value!r}."
            problems.append(f"seed is one value in a run. Received: seed={shown(value)}. {todo}")
        else:
            found[name], given_as[name] = value, argument
    if command.task and config is None:
        found["task"] = command.task
    base = config or Config()
    values, wrong = converted(found, {name: option[1:] for name, option in all_options().items()})
    if problems := problems + wrong:
        raise UsageError("\n".join(problems))
    config = base.changed(values, mode if config is None else config.mode)
    # What a call cannot do that a configuration can say.
    if config.mode != mode:
        rule = f"{function_of(command, mode)} {'trains' if mode == TRAIN else 'evaluates'}"
        raise UsageError(f"{rule}. Received: a configuration with mode={config.mode!r}. Pass mode={mode!r}.")
    if (other := command_of(config)) is not command:
        rule = "Pre-training has a function of its own"
        raise UsageError(f"{rule}. Received: task={config.data.task!r}. Call {FUNCTIONS[other.word]} instead.")
    if not several and (given := config.given(*_OF_SEVERAL)):
        raise UsageError(problem("A call is one run", "Call tfbert.sweep, or use the command.", **given))
    return config


def signature_of(command: Command, function: Any, mode: str = TRAIN) -> inspect.Signature:
    """A function's signature with every option in the place of `**options`, for editors and notebooks."""
    signature, names = inspect.signature(function), {alias: name for name, alias in ALIASES.items()}
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    keyword, taken = inspect.Parameter.KEYWORD_ONLY, {each.name for each in own}
    for name, option in options_of(command, mode).items():
        if (known := names.get(name, name)) not in taken:
            own.append(inspect.Parameter(known, keyword, default=option.field.default, annotation=option.kind))
    return signature.replace(parameters=own)


def _unknown(command: Command, mode: str, name: str, value: Any) -> str:
    """The line for an argument that is no option."""
    function, what = function_of(command, mode), "training" if mode == TRAIN else "an evaluation"
    if name in _NOT_ARGUMENTS:
        advice = _NOT_ARGUMENTS[name]
    elif name in command.names() or (name in OPTIONS and mode != TRAIN):
        advice = f"{name} is for another mode."
    elif name in OPTIONS:
        advice = "Pre-training reads records: make them with --mode=prepare, and pass train_records."
    elif command is FINETUNE and (near := did_you_mean(name, OPTIONS)):
        advice = near
    else:
        text = str(value) if isinstance(value, str | bool) else ""
        advice = what_is_meant(command, name, text) or f"See help({function})."
    return f"Every argument of {function} must be an option of {what}. Received: {name}={shown(value)}. {advice}"


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def frees_all(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Frees what a call leaves, whatever way it ends: a model is full of reference cycles, and an exception, of which a
    notebook keeps the last, holds all that its frames refer to."""

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except (UsageError, Preempted) as error:
            _clear_frames(error)
            raise error.with_traceback(None) from None
        except (RunError, KeyboardInterrupt) as error:
            _clear_frames(error)
            raise
        finally:
            gc.collect()

    return call


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class Results(dict[str, float]):
    """What a run ended with: the numbers of its `all_results.json`, by name.

    Attributes:
        directory: The run's output directory.
    """

    def __init__(self, numbers: Mapping[str, float], directory: pathlib.Path):
        super().__init__(numbers)
        self.directory = directory

    def load(self, **options: Any) -> LoadedModel:
        """The trained model as a function; `tfbert.load` of the directory, whose options it takes."""
        from tfbert.modes.load import load

        return load(self.directory, **options)


def finetune(
    config: Config | None = None,
    *,
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    callbacks: Sequence[logs.Callback] = (),
    quiet: bool = False,
    **options: Any,
) -> Results:
    """Trains, evaluates and saves a model; resumes where an earlier start of the same run stopped.

    Call it as often as you like: each run is as it would be in a process of its own. Only what TensorFlow settles at
    its first use of a device cannot change: GPUs or none, the number of CPU replicas (fewer may be used), the cluster.

    Args:
        config: The run as a `tfbert.Config`; the other arguments change it. None: the defaults.
        train: What to train on: a path, or data in memory, whose columns are found as a file's are: a DataFrame of
            pandas or polars, an Arrow table, a dictionary of columns, a list of records or of (text, label) pairs, or
            a `datasets.Dataset`.
        validation: What to evaluate on during training: the same, several sets in a dictionary by name, or a share of
            the training examples to hold out, such as 0.1.
        test: What to evaluate the final model on, likewise.
        callbacks: Told of the run: objects derived from `tfbert.callbacks.Callback`.
        quiet: Show nothing, warnings included. Otherwise the run shows what the command shows: what is about to run,
            progress, evaluations, what was saved.
        **options: Every option of the command `tfbert finetune --mode=train` by its name, such as `model`,
            `train_file`, `output_dir`, `num_train_epochs`: see docs/arguments.md. A path may be a string or a
            `pathlib.Path`; several values are a list.

    Returns:
        What `all_results.json` holds: `train_*`, `eval_*` of the weights that were kept, `test_*`; with `directory`,
        and `load()`, which returns the model as a function.

    Raises:
        UsageError: for anything given that cannot be used; nothing has been written then.
        RunError: for a run that failed, or a callback.
        Preempted: for a run that stopped because a signal or a callback asked it to, with a checkpoint.

    Examples:
        >>> run = tfbert.finetune(model="bert-base-uncased", train=frame, validation=0.1, output_dir="runs/mine")
        >>> run["eval_accuracy"]
        0.93
        >>> classify = run.load()
    """
    command = command_of(config) if isinstance(config, Config) else FINETUNE
    data = {"train": train, "validation": validation, "test": test}
    return _run(command, config, options, callbacks, quiet, data)


def pretrain(
    config: Config | None = None, *, callbacks: Sequence[logs.Callback] = (), quiet: bool = False, **options: Any
) -> Results:
    """Pre-trains a model on records; without records, on the built-in corpus, prepared beside `output_dir`.

    Args:
        config: As for `finetune`.
        callbacks: As for `finetune`.
        quiet: As for `finetune`.
        **options: Every option of the command `tfbert pretrain --mode=train` by its name, such as `train_records`.

    Returns:
        As `finetune`.

    Raises:
        UsageError, RunError, Preempted: as `finetune`.

    Examples:
        >>> run = tfbert.pretrain(model="scratch/mini", train_records="records", output_dir="runs/bert")
        >>> run.load()("Paris is the [MASK] of France.", top_k=1)
    """
    return _run(PRETRAIN, config, options, callbacks, quiet)


def evaluate(
    model: str | os.PathLike[str], *, validation: Any = None, test: Any = None, quiet: bool = False, **options: Any
) -> dict[str, Any]:
    """Evaluates a saved model of any task but pre-training, as `tfbert evaluate` does.

    Args:
        model: A run's output directory, or another model as `tfbert.load` takes it.
        validation: Labelled examples, as `finetune` takes them; their scores begin with `eval_`. Several sets in a
            dictionary have scores of their own.
        test: Others, whose scores begin with `test_`.
        quiet: As for `finetune`.
        **options: Every option of the command `tfbert evaluate` by its name, such as `output_dir`, where
            `eval_results.json` is written, `text_column` or `strategy`.

    Returns:
        What `eval_results.json` holds: the metrics, and for classes their table and the confusion matrix.

    Raises:
        UsageError, RunError: as `finetune`.

    Examples:
        >>> tfbert.evaluate("runs/mine", test=frame)["test_accuracy"]
        0.93
    """
    data = {"validation": validation, "test": test}
    return dict(_run(FINETUNE, None, {"model": model} | options, (), quiet, data, EVALUATE))


evaluate.__signature__ = signature_of(FINETUNE, evaluate, EVALUATE)
finetune.__signature__ = signature_of(FINETUNE, finetune)
pretrain.__signature__ = signature_of(PRETRAIN, pretrain)


@frees_all
def _run(
    command: Command,
    config: Config | None,
    options: Mapping[str, Any],
    callbacks: Sequence[logs.Callback],
    quiet: bool,
    data: Mapping[str, Any] | None = None,
    mode: str = TRAIN,
) -> Results:
    config = config_of(command, config, options, data, mode=mode)
    # A list, as they are read twice.
    callbacks = list(callbacks) if isinstance(callbacks, Iterable) else [] if callbacks is None else [callbacks]
    logs.all_callbacks(config.output.report_to, callbacks)  # TensorFlow takes seconds: what is wrong is told before.
    if config.runtime.keep_freed_memory:
        keep_freed_memory()
    with logs.shown(quiet), output_dir.one_start_time():
        with imported_quietly("" if quiet else "importing TensorFlow", silent=quiet):
            run = verb_of(config)
            from tfbert.devices.runtime import library_errors_as_run_errors
        with library_errors_as_run_errors(config):
            numbers = run(config, callbacks) if config.mode == TRAIN else run(config)
            return Results(numbers, output_dir.run_directory(config))


class SweepResults(list[dict[str, Any]]):
    """The rows of a sweep's table, the best first: the values that were varied, the mean of each metric, its standard
    deviation as `METRIC_std` where there are several seeds, and the run's `directory`.

    Attributes:
        directory: Where `sweep.html`, `sweep.md`, `sweep.json` and all runs are.
        decisive: The metric by which the rows are ranked; empty where nothing was evaluated.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], directory: pathlib.Path, decisive: str):
        super().__init__(map(dict, rows))
        self.directory, self.decisive = directory, decisive

    def load(self, **options: Any) -> LoadedModel:
        """The best run's model as a function; `tfbert.load` of its directory, whose options it takes."""
        from tfbert.modes.load import load

        return load(self[0]["directory"], **options)


@frees_all
def sweep(
    values: Mapping[str, Any],
    config: Config | None = None,
    *,
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    seeds: Sequence[int] = (),
    quiet: bool = False,
    **options: Any,
) -> SweepResults:
    """Trains once for each combination of values, and ranks the runs by the metric that decides.

    Each run is the command in a process of its own, in a directory of its own in `output_dir`; so what this process
    holds in the memory of a GPU is not theirs. The same call again trains what is missing, and resumes what was
    interrupted; values may be added.

    Args:
        values: For each option that is varied, by its name, a list of values.
        config: The run as a `tfbert.Config`; the other arguments change it. None: the defaults.
        train: As for `tfbert.finetune`, but not in memory: each run reads it from its file.
        validation: Likewise, or a share of the training examples; several paths are a list.
        test: Likewise.
        seeds: Train each combination with each of these, and rank by the means. Empty: once, with `seed`.
        quiet: Show nothing.
        **options: The other options, as for `tfbert.finetune`; for pre-training, those of `tfbert.pretrain`, with its
            configuration.

    Returns:
        The rows of the table, the best first.

    Raises:
        UsageError: for anything given that cannot be used, before anything runs; or if every run was refused.
        RunError: if a run failed; the others were trained, and the table has them.
        Preempted: if asked to stop, by a signal or by Ctrl-C; runs that are done are kept.

    Examples:
        >>> found = tfbert.sweep({"learning_rate": [1e-5, 3e-5]}, seeds=[1, 2], train_file="train.tsv",
        ...                      validation_file="dev.tsv", output_dir="runs/rates")
        >>> found[0]
        {'learning_rate': 3e-05, 'eval_accuracy': 0.93, 'eval_accuracy_std': 0.01, ...}
        >>> classify = found.load()
    """
    given, data = {"sweep": _text(values), "seeds": seeds}, {"train": train, "validation": validation, "test": test}
    command = command_of(config) if isinstance(config, Config) else FINETUNE
    config = config_of(command, config, {**options, **given}, data, several=True)
    if in_memory := [each for each in config.given(*OPTIONS.values()).values() if isinstance(each, Given)]:
        todo = "Write it to one, such as df.to_parquet('train.parquet'), and pass the path; several in a list."
        raise UsageError(f"The runs of a sweep read files. Received: {', '.join(in_memory)}. {todo}")
    directory = output_dir.run_directory(config)
    config = config.changed({"output_dir": str(directory)})
    with logs.shown(quiet):
        with imported_quietly("" if quiet else "importing TensorFlow", silent=quiet):
            from tfbert.modes.many import train_many
        if command is PRETRAIN:
            from tfbert.modes.pretrain import with_named_records

            config = with_named_records(config)
        found = train_many(config, functools.partial(_start, quiet))
    return SweepResults(found.rows(), directory, found.ranking.decisive)


def _text(values: Any) -> str:
    """The values as an option holds them.

    Raises:
        UsageError: for anything but lists by name.
    """
    found = values if isinstance(values, Mapping) else {}
    lists = {name: given.tolist() if hasattr(given, "tolist") else given for name, given in found.items()}
    if not lists or any(isinstance(v, str | bytes) or not isinstance(v, Sequence) for v in lists.values()):
        rule = "A sweep takes a dictionary: for each option, by its name, a list of values"
        raise UsageError(f"{rule}. Received: {values!r:.80}. Pass for example {{'learning_rate': [1e-5, 3e-5]}}.")
    return sweep_text({n: [v.item() if hasattr(v, "item") else v for v in given] for n, given in lists.items()})


def _start(quiet: bool, command: Sequence[str], _: Mapping[str, str], signals: Signals) -> int:
    """Runs a command to its end, and shows its output where this process shows its own: also in a notebook."""
    from tfbert.launch import run_to_its_end

    # What a child writes on its standard error arrives where this process's does, unless a notebook has replaced that.
    show = None if sys.stderr is sys.__stderr__ else _show
    # No variables: what this process was started as is not what its user typed. The run names itself.
    return run_to_its_end(command, {}, signals, on_text=(lambda line: None) if quiet else show)


def _show(line: str) -> None:
    """As one run is shown: warnings and errors on standard error, which notebooks colour red, the rest as text."""
    stream = sys.stderr if re.match(r"(\S+: )?(warning|error)\b", line, re.IGNORECASE) else sys.stdout
    print(line, end="", file=stream, flush=True)
