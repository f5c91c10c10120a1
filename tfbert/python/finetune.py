"""`tfbert.finetune`, `tfbert.pretrain` and `tfbert.evaluate`: a run as one call, in a script or a notebook; and
`tfbert.sweep`: the runs of a grid as one call, each in a process of its own.

What a user can cause, or asked for, is told without the way through this library.

Data in memory is written to files for them: what these read is what the table holds.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tfbert.commandline.command import verb_of
from tfbert.config.data import DataConfig
from tfbert.config.run import FINETUNE, PRETRAIN, Command, Config, command_of, sweep_text
from tfbert.config.types import Given
from tfbert.data.reading import GivenTable
from tfbert.data.rows import JSON_COLUMNS
from tfbert.devices.process import imported_quietly, imports_whole, keep_freed_memory
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.output import output_dir
from tfbert.output.logs import Callback, all_callbacks, shown
from tfbert.python.keywords import EVALUATE, OPTIONS, TRAIN, config_of, signature_of

if TYPE_CHECKING:
    import pyarrow

    from tfbert.launch.launcher import Signals
    from tfbert.modes.load import LoadedModel


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
    callbacks: Sequence[Callback] = (),
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
    config: Config | None = None, *, callbacks: Sequence[Callback] = (), quiet: bool = False, **options: Any
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
    callbacks: Sequence[Callback],
    quiet: bool,
    data: Mapping[str, Any] | None = None,
    mode: str = TRAIN,
) -> Results:
    return _call(config_of(command, config, options, data, mode=mode), command, callbacks, quiet)


def _call(config: Config, command: Command, callbacks: Sequence[Callback], quiet: bool) -> Results:
    all_callbacks(config.output.report_to, callbacks)  # TensorFlow takes seconds: what is wrong is told before.
    if config.runtime.keep_freed_memory:
        keep_freed_memory()
    with shown(quiet), output_dir.one_start_time() as started_at:
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
            is_kept = is_plain and all(map(_are_equal, array.to_pylist(), values))
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
            is_kept = False
        if not is_kept:
            array = pyarrow.array([json.dumps(value, default=_no_word) for value in values])
            as_json.append(place)
        arrays.append(array)
    features = {column: {"names": list(names), "_type": "ClassLabel"} for column, names in table.label_names.items()}
    notes = {"huggingface": json.dumps({"info": {"features": features}})} if features else {}
    notes |= {JSON_COLUMNS: json.dumps(as_json)} if as_json else {}
    return pyarrow.Table.from_arrays(arrays, names=table.columns).replace_schema_metadata(notes or None)


def _are_equal(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # In type too, also within lists: 1 is not 1.0, nor true.


def _no_word(value: Any) -> dict[str, None]:
    """What stands in JSON for a value of another type, such as an image: nobody takes it for a text or a label."""
    return {type(value).__name__: None}


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
    with shown(quiet):
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

    shown = None if _is_own(sys.stderr) else _show
    # No variables: what this process was started as is not what its user typed. The run names itself.
    return run_to_its_end(command, {}, signals, on_text=(lambda line: None) if quiet else shown)


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
