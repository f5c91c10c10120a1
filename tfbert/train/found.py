"""What an output directory holds, read once, before it is decided how a run starts in it."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any

from tfbert.errors import UsageError
from tfbert.output import output_dir
from tfbert.report.facts import changed_file
from tfbert.train import launch_mark
from tfbert.train.saved_state import STATE, RunState, newest_intact

CHECKPOINTS = "checkpoints"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What an output directory holds. What takes long to read, or may be damaged, is read when it is first asked for.

    Attributes:
        directory: The output directory.
        names: The sorted names of its files and directories.
        run_config: Its `run_config.json`; empty without a whole one.
        is_finished: Whether it holds results.
        is_restart: Whether an earlier start of this launch wrote it.
    """

    directory: pathlib.Path
    names: list[str]
    run_config: dict[str, Any]
    is_finished: bool
    is_restart: bool

    @property
    def holds_run(self) -> bool:
        """Whether it is that of a training run, by any version."""
        return self.run_config.get("mode") == "train"

    @functools.cached_property
    def checkpoint(self) -> RunState | None:
        """The state of the newest intact checkpoint; of a finished run, None where its checkpoints are mere models."""
        checkpoints = self.directory / CHECKPOINTS
        if self.is_finished and not any(checkpoints.glob(f"step-*/{STATE}")):
            return None
        return newest_intact(checkpoints)

    @property
    def _facts(self) -> dict[str, Any]:
        try:
            return output_dir.read_json(self.directory / output_dir.FACTS)
        except (OSError, ValueError):
            return {}  # Without its report a run is as finished.

    @functools.cached_property
    def results(self) -> dict[str, Any]:
        """The results of a finished run.

        Raises:
            UsageError: if they are not whole.
        """
        path = self.directory / output_dir.RESULTS
        try:
            results = output_dir.read_json(path)
            if changed_file(self.directory, self._facts, results) == output_dir.RESULTS:
                raise ValueError("changed after the run had written it")
            return results
        except (OSError, ValueError) as error:
            raise UsageError(
                f"A finished run's results must be whole. Received: {str(path)!r} ({error}). Remove the file."
            ) from None


def inspect(directory: pathlib.Path) -> Found:
    """Finds out what a directory holds; changes nothing.

    Raises:
        UsageError: where this process belongs to a launch, and the directory's mark is damaged.
    """
    return Found(
        directory=directory,
        names=output_dir.contents(directory),
        run_config=output_dir.read_run_config(directory),
        is_finished=(directory / output_dir.RESULTS).exists(),
        is_restart=launch_mark.is_restart(directory),
    )
