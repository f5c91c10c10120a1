"""The training of a run: `FineTuner`'s updates over its batches, with the callbacks that run beside them; and what the
run reports: the banner at its start, its results, the lines at its end.

What happens beside the updates of a run: progress, evaluation, the best weights, early stopping, checkpoints, a
profile.

A run is one pass over all its updates, so that it can start and stop anywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, get_args

import keras
import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import distribute_batches
from tfbert.batches.plan import micro_batch_size
from tfbert.batches.schedule import planned_steps
from tfbert.bert.lora import get_trained
from tfbert.config.tables import listed
from tfbert.config.training import OPTIMIZERS
from tfbert.config.types import OnResume, counted, rate_text
from tfbert.corpus.records import RecordLengths
from tfbert.devices.process import is_watched, log_if_slow
from tfbert.devices.runtime import describe, emulates_bfloat16, peak_memory_bytes, tell
from tfbert.devices.workers import StopRequest
from tfbert.errors import Preempted, RunError
from tfbert.measure import DataClock, StepClock, Work, as_traced, cpu_seconds, cpu_since, forward_flops, training_flops
from tfbert.output.logs import Record, Reports, RunInfo, RunLog, clock_text
from tfbert.private import rate_of
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.step.keras3.parts import inner_of
from tfbert.tasks.base import TRAINING_WAY_OUT, Task, eval_prefix
from tfbert.tasks.metrics import decided_by
from tfbert.train.build import Run
from tfbert.train.checkpoint import RunState
from tfbert.train.resume import how_to_resume, settings

log = logging.getLogger("tfbert")


class Progress:
    """Loss, learning rate, gradient norm, speed and time left, every `logging_steps` updates.

    The first loss that a resumed run logs covers updates before its checkpoint too, as in a run that was not stopped.

    Args:
        run: Its model and schedule.
        run_log: Where the numbers go.
        steps: Read after each update.
        data: Attached to the model; says how long updates waited for data.

    Attributes:
        steps: As above.
        logged: The model's counters when the loss was last logged.
    """

    def __init__(self, run: Run, run_log: RunLog, steps: StepClock, data: DataClock):
        self._run, self._model, self._schedule, self._run_log = run, run.model, run.schedule, run_log
        self.steps, self._data = steps, data
        self._data_seconds, self._warm = 0.0, (0.0, 0.0)
        self.logged = dict(run.resumed.logged) if run.resumed and run.resumed.logged else self._counted()

    @property
    def data_wait_share(self) -> float:
        """Share of the training time in which updates waited for data. NaN before the first update.

        The first logged stretch is left out if there are more: its tracing and compiling make the share look small.
        """
        waited, seconds = self._warm if self.steps.total.seconds > self._warm[1] else (0.0, 0.0)
        seconds = self.steps.total.seconds - seconds
        return (self._data.seconds - waited) / seconds if seconds else float("nan")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Around what is no part of an update: not its time, and not its work, which a GPU may still do before."""
        self._model.counters.finite_steps.numpy()
        start = time.perf_counter()
        yield
        self.steps.paused += time.perf_counter() - start

    def _counted(self) -> dict[str, float]:
        names = ("loss_sum", "finite_steps", "skipped_steps")
        return {name: getattr(self._model.counters, name).numpy().item() for name in names}

    def on_step(self, step: int) -> None:
        """Called after update number `step`."""
        self.steps.tick()
        if self._schedule.is_due(step, self._schedule.logging_steps):
            self.log(step)
        elif step == self._schedule.first_step + 1 and is_watched():  # The next report may be minutes away.
            self._run_log.advance(step, f"first update after {self.steps.total.seconds:.1f} s")

    def log(self, step: int) -> None:
        """Logs what there was since the last call, and looks whether gradients stay non-finite; raises as
        `check_finite`."""
        now, before = self._counted(), self.logged
        new = {name: value - before[name] for name, value in now.items()}
        recent, data_seconds = self.steps.take_recent(), self._data.seconds
        known = next((s for s in (self.steps.steady, self.steps.usual) if s.steps), recent)
        left = (self._schedule.total_steps - step) * known.seconds / known.steps
        numbers = {
            "loss": new["loss_sum"] / new["finite_steps"] if new["finite_steps"] else float("nan"),
            "learning_rate": float(rate_of(inner_of(self._model.optimizer))(tf.constant(step - 1))),
            "grad_norm": float(self._model.counters.gradient_norm.numpy()),
            "epoch": self._schedule.epoch_at(step),
            "examples_per_second": round(recent.examples_per_second, 1),
            "tokens_per_second": round(recent.tokens_per_second, 1),
            "data_wait_share": round((data_seconds - self._data_seconds) / recent.seconds, 5),
            "skipped_steps": now["skipped_steps"],
        }
        told = self._run_log.record(step, "train", {k: v for k, v in numbers.items() if np.isfinite(v)})
        self.steps.paused += told
        self._run_log.advance(
            step,
            f"step {step}/{self._schedule.total_steps}  epoch {numbers['epoch']:.2f}  loss {numbers['loss']:.4f}  "
            f"lr {numbers['learning_rate']:.2e}  {rate_text(recent.examples_per_second)} examples/s  "
            f"{clock_text(left)} left",
        )
        if new["skipped_steps"]:
            since = sum(new[name] for name in ("finite_steps", "skipped_steps"))
            log.info("%d of the last %d steps skipped: gradients not finite", new["skipped_steps"], since)
        if not self._warm[1]:
            self._warm = data_seconds, self.steps.total.seconds
        self._data_seconds, self.logged = data_seconds, now
        check_finite(self._run, step)


class Evaluate:
    """Evaluates, keeps the best weights, stops early; every worker makes the same decisions.

    Args:
        run: Its metric on its first validation set decides which weights are best, and where that is equal, the loss;
            its checkpoints keep them.
        run_log: Where the metrics go.
        progress: Told how long evaluation took, so that it does not count as training.

    Attributes:
        best: All metrics of the best evaluation.
        best_step: The step of that evaluation.
        best_weights: What is trained of the model at that step, as `get_trained` has it.
        decisive: Name of the number that decides: `eval_accuracy`, or `eval_matched_accuracy` of MNLI's first set.
        without_better: Evaluations since the last one that was better than all before it.
        before_the_end: The `state` before the evaluation that came only because the run ends; None before that.
    """

    def __init__(self, run: Run, run_log: RunLog, progress: Progress):
        self._run, self._run_log, self._progress, self._predictor = run, run_log, progress, run.predictor
        self._task, self._examples = run.data.task, run.data.validation
        self._sets = {name: run.encode(part) for name, part in self._examples.items()}
        self._first = next(iter(self._sets))
        self.decisive = f"{eval_prefix(self._first)}_{run.metric}"
        self.best: dict[str, float] = {}
        self.best_step = self.without_better = 0
        self.best_weights: dict[str, np.ndarray] = {}
        self._best_predictions: Any = None
        self.before_the_end: dict[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of evaluation."""
        return {"best": self.best, "best_step": self.best_step, "without_better": self.without_better}

    def restore(self, state: RunState) -> None:
        """Restores the state of evaluation from a checkpoint."""
        self.best = dict(state.best)
        self.best_step, self.without_better = state.best_step, state.without_better
        if state.best:
            self.best_weights = self._run.checkpoints.read_best(state.best_step)

    def kept(self) -> tuple[Task, Any]:
        """The task with what its predictions for the first set decide, and these, by the best weights, which the model
        must hold.

        They are computed again if an earlier start made the best evaluation, so every worker must call this.
        """
        if self._best_predictions is None:
            self._best_predictions = self._predict(self._first)
        return self._tuned(self._best_predictions), self._best_predictions

    def _tuned(self, predictions: Any) -> Task:
        return self._task.tuned(predictions, self._examples[self._first], self._run.metric)

    def _predict(self, name: str) -> Any:
        return self._task.predict(self._predictor, self._sets[name], self._examples[name].name)

    def on_step(self, step: int) -> None:
        """Called after update number `step`."""
        schedule = self._run.schedule
        if schedule.is_due(step, schedule.eval_steps):
            self.before_the_end = self.state() if step % schedule.eval_steps else None
            with self._progress.paused():
                self._evaluate(step)
            if self._run.model.stop_training and not schedule.is_due(step, schedule.logging_steps):
                self._progress.log(step)  # As after the last update of any run.

    def _evaluate(self, step: int) -> None:
        found: dict[str, float] = {}
        self._predictor.reset_clock()
        start, cpu = time.perf_counter(), cpu_seconds()
        predictions = {name: self._predict(name) for name in self._sets}
        task = self._tuned(predictions[self._first])
        for name, examples in self._examples.items():
            prefix = eval_prefix(name)
            found |= task.metrics(predictions[name], examples, prefix=prefix, way_out=TRAINING_WAY_OUT)
        speeds = self._speeds(time.perf_counter() - start) | cpu_since(cpu, "eval")
        order, by = decided_by(self.decisive, found, self.best)
        # Without a loss nothing tells equal evaluations apart: the weights that were trained longer are kept then, but
        # nothing has improved.
        is_kept = order > 0 or (order == 0 and not any(name.endswith("_loss") for name in found))
        numbers = found | speeds | {"epoch": self._run.schedule.epoch_at(step)}
        self._run_log.record(step, "eval", numbers)
        shown = task.metrics_line(found, self.decisive)
        why = "" if by == self.decisive else f": {by or 'nothing'} decides among equals"
        log.info("evaluation at step %d  %s%s", step, shown, f"  (best{why})" if is_kept else "")
        for name, examples in self._examples.items():
            for line in task.remarks(predictions[name], examples):
                log.warning("%s", line)
        self.without_better = 0 if order > 0 else self.without_better + 1
        if is_kept:
            self.best, self.best_step = found, step
            self.best_weights = get_trained(self._run.classifier)
            self._best_predictions = predictions[self._first]
            self._run.checkpoints.save_best(self.best_weights, step)
        patience = self._run.config.training.early_stopping_patience
        if patience and self.without_better >= patience:
            best = f"{self.decisive} has not improved on {self.best[self.decisive]:.4f} (step {self.best_step})"
            log.info("stopped early: %s in %d evaluations", best, self.without_better)
            self._run.model.stop_training = True

    def _speeds(self, seconds: float) -> dict[str, float]:
        """The speeds of an evaluation of all sets that took `seconds`, metrics included."""
        longest = self._run.config.data.max_seq_length
        work = sum((Work.of(examples.lengths, longest) for examples in self._sets.values()), Work())
        predictor, batches = self._predictor, np.array(self._predictor.batch_seconds)
        read = {"reads_tokens": self._task.reads_tokens, "masked_share": self._task.masked_share}
        flops = forward_flops(self._run.classifier.config, work, **read)
        return {
            "eval_runtime": round(seconds, 3),
            "eval_samples_per_second": round(work.examples / predictor.seconds, 2),
            "eval_tokens_per_second": round(work.tokens / predictor.seconds, 1),
            "eval_model_gflops_per_second": round(flops / predictor.seconds / 1e9, 2),
            "eval_batch_seconds_p50": round(float(np.percentile(batches, 50)), 5),
            "eval_batch_seconds_p95": round(float(np.percentile(batches, 95)), 5),
            "eval_data_wait_share": round(predictor.waiting_seconds / predictor.seconds, 5),
        }


def check_finite(run: Run, step: int) -> None:
    """Looks whether gradients stay non-finite, whenever updates are logged.

    Raises:
        RunError: after `max_skipped_steps` updates in a row that were skipped.
    """
    in_a_row = int(run.model.counters.skipped_in_a_row.numpy())
    if in_a_row >= run.config.training.max_skipped_steps:
        rule = f"Gradients must stay finite; the last {in_a_row} updates up to step {step} were skipped"
        raise RunError(f"{rule}. Lower --learning_rate, raise --warmup_ratio, or train without --mixed_precision.")


def check_trained(run: Run) -> None:
    """Checks after the last update that one was finite: a short run can end before `check_finite` ends it, and its
    model, which is unchanged, must not pass for a trained one.

    Raises:
        RunError: where none was, unless all went into finding a loss scale.
    """
    if int(run.model.counters.finite_steps.numpy()):
        return
    skipped = int(run.model.counters.skipped_steps.numpy())
    updates, limit = counted(skipped, "update"), run.config.training.max_skipped_steps
    if isinstance(run.model.optimizer, keras.optimizers.LossScaleOptimizer) and skipped < limit:
        log.warning("nothing was trained: %s went into finding a loss scale; train longer", updates)
        return
    todo = "Lower --learning_rate, or train without --mixed_precision."
    raise RunError(f"Gradients must be finite. Received: none that are, in {updates}. {todo}")


_UPDATES_BETWEEN_QUESTIONS = 5


class Save:
    """Writes checkpoints, on schedule and when the run is asked to stop. Comes after `Evaluate`, whose state it saves.

    Args:
        run: Its identity, how often it is saved, and how it is resumed.
        progress: Told how long saving took.
        evaluation: Whose state is saved; None without evaluation.
        stop: Whether a signal asked this worker to stop. Several workers check together, and only every few updates,
            because each check waits for all of them.
        reports: Told of each checkpoint; a user's callbacks, too, may end the run.

    Attributes:
        evaluation: As above.
        costs: How many checkpoints this start wrote, their mean seconds and the bytes of the last; empty if none.
    """

    def __init__(self, run: Run, progress: Progress, evaluation: Evaluate | None, stop: StopRequest, reports: Reports):
        self._run, self._progress, self.evaluation = run, progress, evaluation
        self._stop, self._reports = stop, reports
        self._seconds: list[float] = []
        self.costs: dict[str, float] = {}

    def on_step(self, step: int) -> None:
        """Called after update number `step`.

        Raises:
            Preempted: if the run was asked to stop.
            RunError: if a callback failed. There is a checkpoint then, too.
        """
        run, reports, total = self._run, self._reports, self._run.schedule.total_steps
        if step == total or run.model.stop_training:
            return
        asks = not run.consensus.has_peers or step % _UPDATES_BETWEEN_QUESTIONS == 0
        is_stopping = asks and run.consensus.any(self._stop.is_set or reports.asks_to_end)
        has_failed = is_stopping and run.consensus.any(reports.failed is not None)
        every = run.config.output.save_steps
        if is_stopping or (every and step % every == 0):
            with self._progress.paused():
                start = time.perf_counter()
                size = run.checkpoints.save(run.model, self._state(step))
                self._seconds.append(time.perf_counter() - start)
                reports.saved(step, {"checkpoint_seconds": self._seconds[-1], "checkpoint_bytes": float(size)})
            mean = round(statistics.fmean(self._seconds), 3)
            self.costs = {"checkpoints": len(self._seconds), "checkpoint_seconds": mean, "checkpoint_bytes": size}
        if not is_stopping:
            return
        how = f"checkpoint saved; {how_to_resume(run.config, run.directory)}"
        if has_failed:
            raise reports.error(f"The run ended after step {step} of {total}; {how}")
        who = f" by {reports.who_asks}" if reports.who_asks else ""
        raise Preempted(f"stopped after step {step} of {total}{who}; {how}")

    def save_last(self) -> None:
        """Writes the state after the last update, from which a longer run goes on: that evaluates where this one ends
        only if that is due there."""
        step = int(self._run.model.optimizer.iterations.numpy())
        before = self.evaluation and self.evaluation.before_the_end
        self._run.checkpoints.save_last(self._run.model, dataclasses.replace(self._state(step), **before or {}))

    def _state(self, step: int) -> RunState:
        evaluated = self.evaluation.state() if self.evaluation else {}
        identity = dataclasses.asdict(self._run.identity)
        return RunState(step=step, identity=identity, logged=self._progress.logged, **evaluated)


def profiled(
    steps: Iterable[int], asked: tuple[int, int], directory: pathlib.Path, pause: Callable[[], AbstractContextManager]
) -> Generator[int]:
    """Passes on the numbers of updates, and profiles those from `asked[0]` to `asked[1]`, and nothing beside them.

    What callbacks that evaluate or save do between the profiled updates counts as `other`, and what they do before the
    first one is not in the profile.

    Args:
        steps: All updates of this start.
        asked: First and last update to profile, counted from 1; 0 for none.
        directory: Where the profile goes; made if needed.
        pause: Makes a block of what is no update: starting the profiler and writing its files.
    """
    first, last = asked
    is_running = False
    try:
        for step in steps:
            if step == first:
                with pause():
                    tf.profiler.experimental.start(str(directory))
                is_running = True
            yield step
            if is_running and step == last:
                is_running = False  # Also where its files cannot be written.
                with pause():
                    tf.profiler.experimental.stop()
    finally:
        if is_running:  # The run was ended inside the profiled steps: a process has only one profiler.
            tf.profiler.experimental.stop()


def fit(run: Run, stop: StopRequest, started: float, reports: Reports) -> tuple[Save, dict[str, float]]:
    """Trains a run to its end.

    Args:
        run: As `build_run` returns it.
        stop: Whether the run was asked to stop; already listening for signals.
        started: When preparation began, on `time.perf_counter`.
        reports: Told of the run.

    Returns:
        What wrote checkpoints, with the evaluation that has the best weights; and `train_results`, with the CPU time of
        all updates.

    Raises:
        Preempted: if it was asked to stop; it has saved a checkpoint.
        RunError: for training that diverged, or records that can no longer be read.
    """
    config, schedule, model = run.config, run.schedule, run.model
    first, total = schedule.first_step, schedule.total_steps
    tell(banner(run))
    run_log = RunLog(run.directory if run.chief else None, total_steps=total, first_step=first, reports=reports)
    with run.strategy.scope():
        data_clock = DataClock()
    step_clock = StepClock(
        planned_steps(run.batches.plans(), run.train.lengths, config.data.max_seq_length),
        warm_up=min(config.output.logging_steps, (total - first) // 2),
        compiles_widths=config.runtime.xla,
    )
    progress = Progress(run, run_log, step_clock, data_clock)
    evaluation = Evaluate(run, run_log, progress) if run.data.validation else None
    if run.resumed and evaluation:
        evaluation.restore(run.resumed)
    saving = Save(run, progress, evaluation, stop, reports)
    after = [progress.on_step, *([evaluation.on_step] if evaluation else [])]

    asked = config.output.profile_steps
    model.marks_steps = bool(asked) and not tf.config.list_logical_devices("GPU")
    if asked and asked[0] <= first:
        log.info("steps %s to %s lie before the checkpoint and are not profiled again", *asked)
    asked = asked if asked and run.chief else (0, 0)
    steps = profiled(range(first + 1, total + 1), asked, run.directory / "profile", progress.paused)
    batches = iter(distribute_batches(run.strategy, run.train, run.batches.plans, shape=run.batches.shape))
    update = as_traced(data_clock.timed(model.update), keras.config.dtype_policy().compute_dtype)
    log.info("ready after %.1f s", time.perf_counter() - started)
    began, cpu = time.perf_counter(), cpu_seconds()
    try:
        _start_reports(run, reports, run_log.logged)
        model.check_same_start()
        model.stop_training = False
        step_clock.start()
        make_updates(model, functools.partial(update, batches), steps, [*after, saving.on_step])
        check_trained(run)
    except (tf.errors.OpError, RunError):  # The first as it is, or as that of a lost worker.
        run.train.check_read()
        raise
    finally:
        run_log.close()
        steps.close()
    return saving, train_results(run, progress, time.perf_counter() - began) | cpu_since(cpu, "train")


def make_updates(
    model: FineTuner, update: Callable[[], tf.Tensor], steps: Iterable[int], after: Sequence[Callable[[int], None]]
) -> None:
    """Makes all updates, or fewer where the model is told to stop.

    Not by `model.fit`: Keras would wait for each update before it calls back.

    Args:
        model: What is trained.
        update: Makes the next one; what it returns is there once the update is made.
        steps: The updates' numbers.
        after: Called with each, once it is made.
    """
    before = tf.constant(0)
    with contextlib.ExitStack() as first_update:
        first_update.enter_context(log_if_slow("tracing and compiling the first update"))
        for step in steps:
            with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
                done = update()
                # A GPU computes while Python runs ahead. Waiting for the previous update here makes each clock reading
                # follow the device's updates, and never leaves the device without work.
                before.numpy()
                before = done
                first_update.close()
                for call in after:
                    call(step)
            if model.stop_training:
                break


def _start_reports(run: Run, reports: Reports, logged: Sequence[Record]) -> None:
    """Tells callbacks that the run starts; every worker must call.

    Raises:
        RunError: on all workers, where one of them fails.
    """
    schedule, data = run.schedule, run.data
    numbers = {
        "total_steps": schedule.total_steps,
        "steps_per_epoch": schedule.steps_per_epoch,
        "warmup_steps": schedule.warmup_steps,
        "global_batch_size": run.config.training.global_batch_size,
        "num_replicas": run.strategy.num_replicas_in_sync,
        "train_examples": len(data.train),
        "eval_examples": sum(len(part) for part in data.validation.values()),
        "parameters": run.classifier.num_parameters(),
        "trained_parameters": run.classifier.num_parameters(only_trainable=True),
    }
    info = RunInfo(
        directory=run.directory,
        options=settings(run.config, *get_args(OnResume)),
        first_step=schedule.first_step,
        total_steps=schedule.total_steps,
    )
    reports.start(info, {name: float(value) for name, value in numbers.items()}, logged)
    if run.consensus.any(reports.failed is not None):
        raise reports.error("Nothing was trained. Repair it, and start again.")


_FEW_UPDATES = 500
"""With fewer, XLA hardly pays on a GPU: compiling takes 12 s for each width, and an update of BERT-base 20 ms less."""


def banner(run: Run) -> list[str]:
    """What is about to run, a line each.

    Args:
        run: The run.
    """
    config, data, schedule, task = run.config, run.data, run.schedule, run.data.task
    training, runtime, every = config.training, config.runtime, config.output.save_steps
    size, pieces = training.global_batch_size, training.gradient_accumulation_steps
    replicas = run.strategy.num_replicas_in_sync
    total, epoch, left = schedule.total_steps, schedule.steps_per_epoch, schedule.total_steps - schedule.first_step
    micro_batch = micro_batch_size(size, replicas, pieces)

    lines = [*data.notes]
    if runtime.xla and tf.config.list_logical_devices("GPU") and left < _FEW_UPDATES:
        lines.append(
            f"warning: --xla compiles each width of batches for 12 s or more, which {left:,} updates hardly win back "
            "on a GPU; a run as short may be faster without"
        )
    if run.head_start and not run.resumed:
        lines.append(run.head_start)

    model = config.model.name + (" with random weights" if config.model.is_scratch else "")
    model += f", {run.classifier.num_parameters():,} parameters"
    if training.lora_rank:
        count, targets = run.classifier.num_parameters(only_trainable=True), listed(run.classifier.lora.targets)
        model += f", {count:,} of them trained: LoRA of rank {training.lora_rank} of {targets}, and the head"
    lines.append(f"model      {model}")

    sets = {eval_prefix(name): len(part) for name, part in data.validation.items()}
    if data.test is not None:
        sets["test"] = len(data.test)
    others = "".join(f", {name} {count:,}" for name, count in sets.items()) or ", nothing to evaluate on"
    labels = task.label_names
    kind = f"{len(labels)} {task.label_word}: {', '.join(labels[:8])}" if labels else task.kind
    lines.append(f"data       {config.source}: train {len(data.train):,}{others}; {kind}")

    lengths, length = run.train.lengths, config.data.max_seq_length
    # Of examples, or of the sequences of examples that have several.
    counts = lengths.counts if isinstance(lengths, RecordLengths) else np.bincount(lengths[lengths > 0])
    median = int(np.quantile(np.arange(len(counts)), 0.5, weights=counts, method="inverted_cdf"))
    has_windows = config.data.long_texts == "windows"
    longer = int(counts[length + 1 if has_windows else length :].sum()) if run.train.may_be_cut else 0
    tokens = f"median {median}, longest {len(counts) - 1}"
    if task.reads_tokens:  # An example longer than a row takes several.
        tokens += f", in {len(run.train):,} rows" if len(run.train) != len(data.train) else ""
    elif longer and has_windows:
        most = -(-(len(counts) - 1) // length)
        tokens += f"; {counted(longer, 'text')} in up to {most} windows"
        tokens += f", up to {most * micro_batch:,} in a micro-batch" if run.batches.shape is None else ""
    elif longer:
        tokens += f"; {longer:,} text{'s fill' if longer > 1 else ' fills'} all {length} and may be cut"
    lines.append(f"tokens     {tokens}")

    split = f"{counted(replicas, 'replica')} x {counted(pieces, 'micro-batch', 'micro-batches')} x {micro_batch}"
    above = ", above the number of examples: each update takes all" if len(run.train) < size else ""
    lines += [f"batch      {size} = {split}{above}", f"batches    {run.batches.description}"]

    updates = f"{total:,} ({total / epoch:.4g} epoch{'' if total == epoch else 's'} of {epoch:,})"
    if data.validation:
        often = f"every {schedule.eval_steps:,}" if schedule.eval_steps < total else "at the end"
        updates += f", evaluation {often}"
    rate = f"{OPTIMIZERS[training.optimizer].label}{training.learning_rate:g}, {training.lr_schedule}"
    rate += f" of power {training.lr_power:g}" if training.lr_schedule == "polynomial" else ""
    lines += [f"updates    {updates}", f"rate       {rate}, {counted(schedule.warmup_steps, 'update')} of warm-up"]

    precision = keras.config.dtype_policy().name
    if precision == "mixed_bfloat16" and emulates_bfloat16():
        precision += " (this CPU has no bfloat16 instructions: float32 is faster)"
    precision += ", XLA" if runtime.xla else ""
    precision += ", gradient checkpointing" if training.gradient_checkpointing else ""
    devices, dtype = describe(run.strategy), runtime.all_reduce_dtype
    if dtype != "float32":
        summed = f"gradients summed in {dtype}" if replicas > 1 else f"no gradients to sum in {dtype}: one replica"
        devices += f", {summed}"
    lines += [f"precision  {precision}", f"devices    {devices}", f"output     {run.directory}"]
    if not every or every >= left:
        first = f"a killed run begins at step {schedule.first_step:,} again"
        lines.append(f"no checkpoint before the end (save_steps={every:,}): {first}")
    return lines


def train_results(run: Run, progress: Progress, seconds: float) -> dict[str, float]:
    """The training part of `all_results.json`, under Hugging Face's names where it has one.

    Speeds are those of the updates of this start. Hugging Face's `train_samples_per_second` is over the whole of `fit`;
    `train_examples_per_second_with_warmup` is over all updates, without evaluation and checkpoints; `steady` speeds
    also leave out the warm-up and updates that compiled. A number that does not exist is left out, such as a steady
    speed in a run of one update.

    Args:
        run: Trained.
        progress: Of the whole run.
        seconds: From the call of `fit` to its end.
    """
    counters, steps = run.model.counters, progress.steps
    step = int(run.model.optimizer.iterations.numpy())
    finite = int(counters.finite_steps.numpy())
    steady = steps.steady
    read = {"reads_tokens": run.data.task.reads_tokens, "masked_share": run.data.task.masked_share}
    flops = training_flops(run.classifier.config, steady.work, is_frozen=run.classifier.lora is not None, **read)
    numbers = {
        "train_loss": float(counters.loss_sum.numpy()) / finite if finite else math.nan,
        "train_runtime": round(seconds, 2),
        "train_samples_per_second": round(steps.total.work.examples / seconds, 2),
        "train_steps_per_second": round(steps.total.steps / seconds, 3),
        "train_examples_per_second_with_warmup": round(steps.total.examples_per_second, 2),
        "train_examples_per_second_steady": round(steady.examples_per_second, 2),
        "train_tokens_per_second_steady": round(steady.tokens_per_second, 1),
        "train_model_gflops_per_second": round(flops / steady.seconds / 1e9, 2) if steady.steps else math.nan,
        "step_seconds_p50": round(steps.percentile(50), 5),
        "step_seconds_p95": round(steps.percentile(95), 5),
        "compile_seconds": round(steps.compile_seconds(), 2),
        "data_wait_share": round(progress.data_wait_share, 5),
        "peak_memory_bytes": peak_memory_bytes(),
        "num_replicas": run.strategy.num_replicas_in_sync,
        "gradient_bytes": tf.as_dtype(run.model.all_reduce_dtype).size
        * sum(math.prod(variable.shape) for variable in run.model.trainable_variables),
        "parameters": run.classifier.num_parameters(),
        "trained_parameters": run.classifier.num_parameters(only_trainable=True),
        "skipped_steps": int(counters.skipped_steps.numpy()),
    }
    if run.schedule.first_step:
        numbers["resumed_at_step"] = run.schedule.first_step
    known = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return {"epoch": run.schedule.epoch_at(step), "global_step": step} | known


def summary(results: dict[str, float], directory: pathlib.Path, task: Task, decisive: str) -> list[str]:
    """The end of a run on the screen."""
    found = {name: value for name, value in results.items() if name.startswith(("eval_", "test_"))}
    speed = rate_text(results["train_samples_per_second"])
    trained, all_weights = results["trained_parameters"], results["parameters"]
    of = f" ({trained:,} of {all_weights:,} parameters)" if trained < all_weights else ""
    since = f" since step {results['resumed_at_step']:,}" if "resumed_at_step" in results else ""
    lines = ["", f"trained{of} in {clock_text(results['train_runtime'])}{since}, {speed} examples/s"]
    if found:
        at = f" (step {results['best_step']})" if "best_step" in results else ""
        lines.append(f"kept weights{at}: {task.metrics_line(found, decisive)}")
    if results.get("checkpoint_bytes"):
        number, each = results["checkpoints"], results["checkpoint_seconds"]
        share = number * each / results["train_runtime"]
        size = results["checkpoint_bytes"] / 1e6
        lines.append(
            f"checkpoints written: {number}, {each:.1f} s and {size:,.0f} MB each, {share:.1%} of the training time"
        )
    return [*lines, f"saved to {directory}"]
