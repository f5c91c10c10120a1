"""`--mode=train`: one run; with `--seeds`, the same run with each of several seeds, in `OUTPUT_DIR/seed-N`, and the
table over them; with `--sweep`, see `sweep`."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Mapping, Sequence

from tfbert.config.run import Config
from tfbert.modes.child import run_to_its_end
from tfbert.modes.many import (
    Kind,
    Starter,
    check_all_trained,
    check_same_data,
    directory_of,
    is_chief_of,
    run_in,
    train_all,
)
from tfbert.modes.sweep import train_sweep
from tfbert.output import output_dir
from tfbert.output.callback import Callback
from tfbert.output.trackers import all_callbacks
from tfbert.report.compare import write_comparison
from tfbert.report.many import SEED_FILES, OverSeeds, Swept, seeds_lines, seeds_table, write_seeds
from tfbert.report.run_files import read_run
from tfbert.train.run import finetune

log = logging.getLogger("tfbert")

_KIND = Kind(
    one="seed",
    several="several seeds",
    compared="Seeds are compared with everything else equal.",
    ends_at_refusal=True,
    pattern=r"seed-\d+",
    files=SEED_FILES,
)


def train(config: Config, callbacks: Sequence[Callback] = ()) -> dict[str, float] | OverSeeds | Swept | None:
    """What the mode does: `finetune`, with several seeds `train_seeds`, with a sweep `train_sweep`. The processes of
    these have no callbacks but the trackers of `report_to`."""
    all_callbacks(config.output.report_to, callbacks)  # What is missing is missing in every process.
    if config.runtime.sweep:
        return train_sweep(config)
    return train_seeds(config) if config.runtime.seeds else finetune(config, callbacks=callbacks)


def train_seeds(config: Config, start: Starter = run_to_its_end) -> OverSeeds | None:
    """Trains each of `seeds`, one after the other, and writes the table over those that are done.

    The same command resumes: a seed that is done is not trained again, and one that was interrupted resumes.

    Args:
        config: The run, with `seeds`.
        start: As for `train_all`.

    Returns:
        The content of `seeds.json`; None on a worker that is not the chief.

    Raises:
        UsageError: for a directory that holds something else, a seed that is done with other settings, and whatever a
            seed's run refuses.
        RunError: if a seed failed; the others were trained, and the table has them. If the process of one of several
            workers was killed, that worker ends at once: all workers must start again together.
        Preempted: if asked to stop.
        KeyboardInterrupt: if asked a second time by SIGINT.
    """
    directory, seeds = output_dir.run_directory(config, output_dir.start_time()), config.runtime.seeds
    names = {f"seed {seed}": seed for seed in seeds}
    runs = {name: run_in(config, directory / f"seed-{seed}", seed) for name, seed in names.items()}
    trained = train_all(config, directory, runs, _KIND, start)
    failed = {names[name]: reason for name, reason in trained.failed.items()}
    found = _report(directory, [*trained.done.values()], failed) if is_chief_of(config) and trained.done else None
    check_all_trained(trained, config, directory, _KIND, len(seeds))
    return found


def _report(directory: pathlib.Path, done: list[Config], failed: Mapping[int, str]) -> OverSeeds:
    """Writes the table and shows it."""
    runs = [read_run(directory_of(run)) for run in done]
    check_same_data(runs, _KIND)
    found = write_seeds(runs, failed, directory)
    if len(runs) > 1:
        write_comparison(runs, directory)
    log.info("")
    for line in [*seeds_table(found).plain(), *seeds_lines(found, runs, failed)]:
        log.info("%s", line)
    log.info("saved to %s", directory)
    return found
