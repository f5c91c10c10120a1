"""What a user's code hears of a run: `Callback`, with each value that is logged, and when the run starts and ends."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

Outcome = Literal["", "finished", "stopped", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The run that a callback hears of.

    Attributes:
        directory: Its output directory.
        options: Its options, by their names.
        first_step: Updates made by earlier starts of the run; 0 where it begins.
        total_steps: Updates of the whole run.
    """

    directory: pathlib.Path
    options: Mapping[str, Any]
    first_step: int
    total_steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A line of `log.jsonl`.

    Attributes:
        step: Updates made so far.
        kind: `train` or `eval`.
        time: When it was logged, in ISO 8601.
        values: By name.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("train", "eval")

    step: int
    kind: str
    time: str
    values: Mapping[str, float]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Record:
        """The record of a line that `is_one`."""
        values = {k: float(v) for k, v in entry.items() if isinstance(v, (int, float)) and k != "step"}
        return cls(step=entry["step"], kind=entry["kind"], time=entry["time"], values=values)

    @classmethod
    def is_one(cls, entry: Mapping[str, Any]) -> bool:
        """Whether a line that was read is a record."""
        return entry.get("kind") in cls.KINDS and isinstance(entry.get("time"), str)

    @property
    def place(self) -> tuple[int, int]:
        """Its place among the records of a run."""
        return self.step, self.KINDS.index(self.kind)


class Callback:
    """Hears of a run: pass some to `tfbert.finetune(callbacks=[...])`, and override what you need.

    All methods are called on the chief alone, the process that writes the files, in the thread that trains: training
    waits for them. `step` counts optimizer updates of the whole run, and all values are floats.

    Each value of `log.jsonl` is passed once in the life of a run, however often that is killed and resumes; what the
    last start logged and did not pass on comes first. (If a kill falls between a call and the note of it in
    `callbacks.json`, that one call comes again.) A callback that was not there when the run began hears what was logged
    before. It is recognised by its `name`.

    An exception ends the run, on all workers, as a `RunError` that names the callback and has the exception as its
    cause; a checkpoint is written first, so that the same call resumes. After the last update, the run is finished
    before.

    Attributes:
        name: Tells the callbacks of a run apart; the class's name unless it is set.
        run: The run; set before `on_start`.
        outcome: How the run ended, set before `on_end`: `finished`; `stopped` by a signal or a callback, with a
            checkpoint; `failed`.

    Example:
        >>> class StopAtHalf(tfbert.callbacks.Callback):
        ...     def on_evaluate(self, step, values):
        ...         if values["eval_loss"] < 0.5:
        ...             self.stop()
        >>> tfbert.finetune(train_file="train.tsv", validation_file="dev.tsv", callbacks=[StopAtHalf()])
    """

    name: str = ""
    run: RunInfo
    outcome: Outcome = ""
    _asks_to_stop = False
    _needs_note = True  # False: its own store says what it was told.
    _memory: dict[str, Any]  # JSON that a run's later starts find again; its `id` from before `on_start` on.

    def on_start(self, step: int, values: Mapping[str, float]) -> None:
        """At each start of the run, before its first update; `step` is above 0 where it resumes.

        Args:
            step: Updates made by earlier starts.
            values: `total_steps`, `steps_per_epoch`, `warmup_steps`, `global_batch_size`, `num_replicas`,
                `train_examples`, `eval_examples`, `parameters`.
        """

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        """Every `logging_steps` updates, and at the last one.

        Args:
            step: Updates made.
            values: `loss`, the mean since the last call; `learning_rate`, `grad_norm` of this update; `epoch`;
                `skipped_steps` so far; `examples_per_second`, `tokens_per_second`, `data_wait_share` since the last
                call. One that is not finite is left out.
        """

    def on_evaluate(self, step: int, values: Mapping[str, float]) -> None:
        """After each evaluation.

        Args:
            step: Updates made.
            values: The metrics, `eval_loss` and so on; `eval_runtime` and the speeds of the evaluation; `epoch`.
        """

    def on_save(self, step: int, values: Mapping[str, float]) -> None:
        """After each checkpoint, which is in `run.directory / "checkpoints" / f"step-{step:08}"`.

        Args:
            step: Updates made.
            values: `checkpoint_seconds`, `checkpoint_bytes`.
        """

    def on_end(self, step: int, values: Mapping[str, float]) -> None:
        """When this start of the run ends, however it does: see `outcome`. All files are written then.

        Args:
            step: Updates made.
            values: What `all_results.json` holds of a finished run; empty for any other.
        """

    def stop(self) -> None:
        """Asks the run to stop after this update, on all workers (several of them look every 5 updates).

        It writes a checkpoint and raises `tfbert.Preempted`; the same call resumes. After the last update, it finishes.
        """
        self._asks_to_stop = True

    def _finish(self, step: int, values: Mapping[str, float]) -> None:
        """Before `all_results.json` of a finished run is written: after a kill in between, the run is not finished."""

    def _missing(self, logged: Sequence[Record], last: tuple[int, int]) -> list[Record]:
        """What of a run's earlier records this callback has not heard.

        Args:
            logged: All of them, in order.
            last: The place of the last one that it was told.
        """
        return [record for record in logged if record.place > last]

    def _receive(self, record: Record) -> None:
        (self.on_log if record.kind == "train" else self.on_evaluate)(record.step, dict(record.values))
