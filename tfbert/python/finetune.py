"""`tfbert.finetune`, `tfbert.pretrain` and `tfbert.evaluate`: a run as one call, in a script or a notebook.

What a user can cause, or asked for, is told without the way through this library.
"""

from __future__ import annotations

import functools
import gc
import os
import pathlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tfbert.commandline.command import verb_of
from tfbert.config.commands import FINETUNE, PRETRAIN, Command, command_of
from tfbert.config.run import Config
from tfbert.devices.quiet import imported_quietly, imports_whole, keep_freed_memory
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.output import output_dir
from tfbert.output.callback import Callback, all_callbacks
from tfbert.output.logs import shown
from tfbert.python.keywords import EVALUATE, TRAIN, config_of, signature_of

if TYPE_CHECKING:
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
