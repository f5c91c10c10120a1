"""`tfbert.finetune`, `tfbert.pretrain` and `tfbert.evaluate`: a run as one call, in a script or a notebook; and
`tfbert.sweep`: the runs of a grid as one call, each in a process of its own.

The command's options are their arguments: names, types, and the `Config` that they make; `train`, `validation` and
`test` are paths or data in memory.

What a user can cause, or asked for, is told without the way through this library.

Data in memory is written to files for the runs of a sweep: what these read is what the table holds.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import gc
import inspect
import json
import numbers
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tfbert.commandline.command import verb_of, what_is_meant
from tfbert.config.data import DataConfig
from tfbert.config.run import FINETUNE, PRETRAIN, Command, Config, command_of, sweep_text, way_to_vary
from tfbert.config.types import ALIASES, Given, converted, field_types, is_path, path_of, shown
from tfbert.data.files import LABEL_NAMES, TAGS_NAMES, TEXT_NAMES, TEXT_PAIRS, WORDS_NAMES
from tfbert.data.in_memory import given_table, is_data
from tfbert.data.reading import GivenTable
from tfbert.data.rows import JSON_COLUMNS
from tfbert.devices.process import imported_quietly, imports_whole, keep_freed_memory
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.output import logs, output_dir

if TYPE_CHECKING:
    import pyarrow

    from tfbert.launch.launcher import Signals
    from tfbert.modes.load import LoadedModel

_USUAL = {name for names in (*TEXT_PAIRS, TEXT_NAMES, *LABEL_NAMES, *WORDS_NAMES, *TAGS_NAMES) for name in names}
"""Names of columns, none of which a validation set is called."""
_SET_NAME = re.compile(r"[\w-]+")
OPTIONS = {"train": "train_file", "validation": "validation_file", "test": "test_file"}
"""The option that an argument stands for."""


def data_options(given: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options that `train`, `validation` and `test` stand for.

    Args:
        given: The other arguments, by name.
        data: These, by name; None where one was not given.

    Returns:
        Values by the options' names, and a line for each argument that cannot be used.
    """
    options, problems = {}, []
    for argument, value in data.items():
        if value is None:
            continue
        option = OPTIONS[argument]
        is_share = argument == "validation" and isinstance(value, numbers.Real) and not isinstance(value, bool)
        option = "validation_split" if is_share else option
        if is_share and not 0 < float(value) < 1:
            rule = "A number as validation is a share of the training examples, above 0 and below 1"
            problems.append(f"{rule}. Received: validation={value}. Pass for example validation=0.1, or a table.")
            continue
        if option in given:
            rule = f"{argument} and {option} are one option"
            problems.append(f"{rule}. Received: {option}={shown(given[option])} beside it. Drop one.")
            continue
        try:
            options[option] = value if is_share else _given(argument, value)
        except UsageError as error:
            problems.append(str(error))
    return options, problems


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
_OF_SEVERAL = {
    "seeds": "A call trains one seed: call it for each with seed=, call tfbert.sweep, or use the command.",
    "sweep": "A call trains one run: call tfbert.sweep, or use the command.",
}
"""Options of several runs."""
_NOT_ARGUMENTS = _OF_SEVERAL | {
    "mode": "tfbert.finetune and tfbert.pretrain train; of a saved model, tfbert.evaluate gives the scores, and "
    "tfbert.load returns a function.",
    "run_config": "Pass tfbert.Config.from_json(text) as the first argument.",
    "flagfile": "Presets are for the command; pass their flags as arguments.",
}
"""Flags that are no options of a run."""
_OF_DATA = ("_df", "_data", "_dataset", "_table")
_VALIDATION = ("val", "valid", "eval", "dev")
_NEAR = 0.8  # How similar a name must be to that of an argument that is no option.


def function_of(command: Command, mode: str) -> str:
    """What Python users call, for a command and what it does."""
    return FUNCTIONS[command.word] if mode == TRAIN else "tfbert.evaluate"


def options_of(
    command: Command, mode: str = TRAIN, *, several: bool = False
) -> dict[str, dict[str, dataclasses.Field]]:
    """The options that a command has in a mode, by the part of `Config` that they belong to and by name; those of
    several runs only where these are asked for."""
    parts, without = Config.classes(), _NOT_ARGUMENTS.keys() - (_OF_SEVERAL if several else ())
    return {
        part: {
            field.name: field
            for field in dataclasses.fields(parts[part])
            if field.name in names and field.name not in without and mode in field.metadata["modes"]
        }
        for part, names in command.options().items()
    }


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
    options, given, problems = options_of(command, mode, several=several), dict(given), []
    for alias, name in ALIASES.items():
        if alias in given and name in given:
            both = f"{alias}={shown(given.pop(alias))} beside it"
            problems.append(f"{alias} and {name} are one option. Received: {both}. Drop one.")
        elif alias in given:
            given[name] = given.pop(alias)
    base, parts = config or Config(), {}
    found, wrong = data_options(given, data or {})
    given, problems = given | found, problems + wrong
    known = {name for names in options.values() for name in names}
    problems += [_unknown(command, mode, name, given[name]) for name in given if name not in known]
    for name in [name for name in given if _are_swept(name, given[name])]:
        values = given.pop(name)
        todo = f"Call tfbert.sweep({{{name!r}: {values!r}}}, ...)."
        if name == "seed":
            todo = f"Pass seeds={values!r}." if several else f"Call it for each, or tfbert.sweep with seeds={values!r}."
        problems.append(f"{name} is one value in a run. Received: {name}={shown(values)}. {todo}")
    for part, names in options.items():
        own = {name: given[name] for name in names if name in given}
        parts[part], wrong = converted(type(getattr(base, part)), own)
        problems += wrong
    if problems:
        raise UsageError("\n".join(problems))
    changed = {part: dataclasses.replace(getattr(base, part), **values) for part, values in parts.items() if values}
    if command.task and config is None:
        changed["data"] = dataclasses.replace(changed.get("data", base.data), task=command.task)
    config = dataclasses.replace(base, mode=mode if config is None else config.mode, **changed)
    # What a call cannot do that a configuration can say.
    if config.mode != mode:
        rule = f"{function_of(command, mode)} {'trains' if mode == TRAIN else 'evaluates'}"
        raise UsageError(f"{rule}. Received: a configuration with mode={config.mode!r}. Pass mode={mode!r}.")
    if (other := command_of(config)) is not command:
        rule = "Pre-training has a function of its own"
        raise UsageError(f"{rule}. Received: task={config.data.task!r}. Call {FUNCTIONS[other.word]} instead.")
    for name, todo in _OF_SEVERAL.items():
        if not several and (value := getattr(config.runtime, name)):
            raise UsageError(f"A call is one run. Received: {name}={value!r}. {todo}")
    return config


def _are_swept(name: str, value: Any) -> bool:
    """Whether an option was given several values, with each of which one could train; a path may be meant as one of
    several files."""
    if not isinstance(value, list | tuple) or len(value) < 2 or is_path(name):
        return False
    is_plain = all(isinstance(item, str | int | float) for item in value)
    return is_plain and bool(way_to_vary(name, ",".join(map(str, value))))


def signature_of(command: Command, function: Any, mode: str = TRAIN) -> inspect.Signature:
    """A function's signature with every option in the place of `**options`, for editors and notebooks."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    base = Config()
    names = {alias: name for name, alias in ALIASES.items()}
    parameters = [
        inspect.Parameter(
            names.get(name, name),
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=field_types(type(getattr(base, part)))[name],
        )
        for part, fields in options_of(command, mode).items()
        for name, field in fields.items()
        if names.get(name, name) not in {parameter.name for parameter in own}
    ]
    return inspect.Signature([*own, *parameters], return_annotation=inspect.signature(function).return_annotation)


def _unknown(command: Command, mode: str, name: str, value: Any) -> str:
    """The line for an argument that is no option."""
    function, what = function_of(command, mode), "training" if mode == TRAIN else "an evaluation"
    stem = name.partition("_")[0]
    meant = "validation" if stem in _VALIDATION else stem
    if name in _NOT_ARGUMENTS:
        advice = _NOT_ARGUMENTS[name]
    elif any(name in names for names in command.options().values()):
        advice = f"{name} is for the command, in another mode." if mode == TRAIN else f"{name} is for training."
    elif name in OPTIONS and mode != TRAIN:
        advice = f"{name} is for training."
    elif name in OPTIONS:
        advice = "Pre-training reads records: make them with --mode=prepare, and pass train_records."
    elif command is FINETUNE and (near := difflib.get_close_matches(name, OPTIONS, 1, _NEAR)):
        advice = f"Did you mean {near[0]}?"
    elif command is FINETUNE and meant in OPTIONS and (name == stem or name.endswith(_OF_DATA)):
        advice = f"Did you mean {meant}?"
    else:
        text = str(value) if isinstance(value, str | bool) else ""
        advice = what_is_meant(command, name, text) or f"See help({function})."
        for other in (FINETUNE, PRETRAIN):
            advice = advice.replace(f"a flag of {other.typed}", f"an argument of {FUNCTIONS[other.word]}")
            advice = advice.replace(f"In {other.typed} ", f"In {FUNCTIONS[other.word]} ")
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

    def __reduce__(self):
        return Results, (dict(self), self.directory)


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
            pandas or polars, an Arrow table, a dictionary of columns, a list of records or of (text, label) pairs, a
            finite `tf.data.Dataset`, or a `datasets.Dataset`.
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


@imports_whole()
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
    return _call(config_of(command, config, options, data, mode=mode), command, callbacks, quiet)


def _call(config: Config, command: Command, callbacks: Sequence[logs.Callback], quiet: bool) -> Results:
    logs.all_callbacks(config.output.report_to, callbacks)  # TensorFlow takes seconds: what is wrong is told before.
    if config.runtime.keep_freed_memory:
        keep_freed_memory()
    with logs.shown(quiet), output_dir.one_start_time() as started_at:
        with imported_quietly("" if quiet else "importing TensorFlow", silent=quiet):
            run = verb_of(command, config.mode)
            from tfbert.devices.runtime import library_errors_as_run_errors
        with library_errors_as_run_errors(config):
            numbers = run(config, callbacks) if config.mode == TRAIN else run(config)
            return Results(numbers, output_dir.run_directory(config, started_at))


def on_disk(data: DataConfig, directory: pathlib.Path, runs: Sequence[pathlib.Path]) -> DataConfig:
    """The same data, with files in the place of tables in memory.

    Args:
        data: Its paths may be `Given`.
        directory: Where to write them, as Parquet; made if need be.
        runs: The directories of earlier runs that read them, and are not trained again from the beginning.

    Raises:
        UsageError: for a row that cannot be read, and for other data than that of these runs: nothing is written then.
        RunError: where a file cannot be written.
    """
    paths, changed = {}, {}
    for option in OPTIONS.values():
        given = getattr(data, option)
        if not isinstance(given, Given):
            continue
        own = []
        for part in given.parts or (given,):
            own.append(part.source)
            if isinstance(part.source, GivenTable):
                own[-1] = path = directory / f"{part.argument.removeprefix('validation_')}.parquet"
                table = _as_arrow(part.source, keeps_bad_rows=data.skip_bad_rows)
                if _holds(path, table):
                    continue
                changed[path] = table
                for run in runs:
                    read = output_dir.read_run_config(run).get("data", {}).get(option, "")
                    if path.exists() or str(path) not in read:
                        rule = "All runs of a sweep have the same data"
                        received = f"{part} and {str(run)!r}, a run with other data"
                        todo = "Pass the same, or another --output_dir; --overwrite_output_dir trains all runs again."
                        raise UsageError(f"{rule}. Received: {received}. {todo}")
        paths[option] = ",".join(map(str, own))
    for path, table in changed.items():
        _write(table, path)
    return dataclasses.replace(data, **paths)


def _as_arrow(table: GivenTable, *, keeps_bad_rows: bool) -> pyarrow.Table:
    """The table, with each column as JSON that Arrow might not give back as it is: all but texts, numbers of one type,
    and lists of these.

    The names of classes are where `datasets` writes them. Beside ids they would name these; the values are names.
    """
    import pyarrow
    from pyarrow import types

    rows = []
    for _, row in table.read(table.columns):
        if isinstance(row, UsageError) and not keeps_bad_rows:
            raise row
        rows.append([None] * len(table.columns) if isinstance(row, UsageError) else row)
    arrays, as_json = [], []
    for place, values in enumerate(zip(*rows, strict=True)):
        try:
            array = pyarrow.array(values)
            kind = array.type.value_type if types.is_list(array.type) else array.type
            is_plain = (
                types.is_string(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
            )
            # In type too, also within lists: 1 is not 1.0, nor true.
            is_kept = is_plain and repr(array.to_pylist()) == repr(list(values))
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
            is_kept = False
        if not is_kept:
            # What JSON does not have, such as an image, becomes something that nobody takes for a text or a label.
            texts = [json.dumps(value, default=lambda other: {type(other).__name__: None}) for value in values]
            array = pyarrow.array(texts)
            as_json.append(place)
        arrays.append(array)
    features = {column: {"names": list(names), "_type": "ClassLabel"} for column, names in table.label_names.items()}
    notes = {"huggingface": json.dumps({"info": {"features": features}})} if features else {}
    notes |= {JSON_COLUMNS: json.dumps(as_json)} if as_json else {}
    return pyarrow.Table.from_arrays(arrays, names=table.columns).replace_schema_metadata(notes or None)


def _holds(path: pathlib.Path, table: pyarrow.Table) -> bool:
    """Whether there is a file that holds this very table."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            before = file.read()
    except (pyarrow.ArrowException, OSError):
        return False
    return before.equals(table) and before.schema.metadata == table.schema.metadata


def _write(table: pyarrow.Table, path: pathlib.Path) -> None:
    from pyarrow import parquet

    output_dir.make(path.parent)
    partial = path.with_name(f".{path.name}.partial")
    try:
        parquet.write_table(table, partial)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        rule = "Output must be writable"
        todo = "Check free space and permissions there."
        raise RunError(f"{rule}. Received: {str(path)!r} ({error.strerror}). {todo}") from None


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

    def __reduce__(self):
        return SweepResults, (list(self), self.directory, self.decisive)


@imports_whole()
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
        train: As for `tfbert.finetune`. Data in memory is written to `output_dir/data`, where the runs read it. Where
            there are runs, it must be theirs.
        validation: Likewise.
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
    directory = output_dir.run_directory(config, output_dir.start_time())
    config = dataclasses.replace(config, output=dataclasses.replace(config.output, output_dir=str(directory)))
    if config.runtime.keep_freed_memory:
        keep_freed_memory()
    with logs.shown(quiet):
        with imported_quietly("" if quiet else "importing TensorFlow", silent=quiet):
            from tfbert.modes.many import DATA, check_directory, has_trained, train_many
            from tfbert.report.compare import Swept
        check_directory(directory)
        if command is PRETRAIN:
            from tfbert.modes.pretrain import with_named_records

            config = with_named_records(config)
        runs = [] if config.output.overwrite_output_dir else filter(has_trained, sorted(directory.glob("*")))
        config = dataclasses.replace(config, data=on_disk(config.data, directory / DATA, [*runs]))
        found = train_many(config, functools.partial(_start, quiet))
    assert isinstance(found, Swept)
    return SweepResults(found.rows(), directory, found.ranking.decisive)


def _text(values: Any) -> str:
    """The values as an option holds them.

    Raises:
        UsageError: for anything but lists by name.
    """
    if not isinstance(values, Mapping) or not values:
        rule = "A sweep takes a dictionary: for each option, by its name, a list of values"
        raise UsageError(f"{rule}. Received: {values!r:.80}. Pass for example {{'learning_rate': [1e-5, 3e-5]}}.")
    lists = {}
    for name, given in values.items():
        given = given.tolist() if hasattr(given, "tolist") else given
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
            rule = "Each option of a sweep has a list of values"
            raise UsageError(f"{rule}. Received: {name}={given!r:.80}. Pass {name}=[...].")
        lists[name] = [value.item() if hasattr(value, "item") else value for value in given]
    return sweep_text(lists)


def _start(quiet: bool, command: Sequence[str], _: Mapping[str, str], signals: Signals) -> int:
    """Runs a command to its end, and shows its output where this process shows its own: also in a notebook."""
    from tfbert.launch.launcher import run_to_its_end

    show = None if _is_own(sys.stderr) else _show
    # No variables: what this process was started as is not what its user typed. The run names itself.
    return run_to_its_end(command, {}, signals, on_text=(lambda line: None) if quiet else show)


def _is_own(stream: Any) -> bool:
    """Whether what a child writes on its standard error arrives where this stream does."""
    try:
        return stream.fileno() == 2
    except (AttributeError, OSError, ValueError):
        return False


def _show(line: str) -> None:
    """As one run is shown: warnings and errors on standard error, which notebooks colour red, the rest as text."""
    stream = sys.stderr if re.match(r"(\S+: )?(warning|error)\b", line, re.IGNORECASE) else sys.stdout
    stream.write(line)
    stream.flush()
