"""The table over seeds as files: `seeds.json`, `seeds.md`, and the comparison of the runs."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

from tfbert.output.output_dir import write_json, write_text
from tfbert.report.compare import HTML, MARKDOWN, markdown_table, write_comparison
from tfbert.report.run_files import RunFiles
from tfbert.report.seeds import OverSeeds, over_seeds, seed_rows

JSON, TABLE = "seeds.json", "seeds.md"
SEED_FILES = (JSON, TABLE, HTML, MARKDOWN)


def write_seeds(runs: list[RunFiles], failed: Mapping[int, str], directory: pathlib.Path) -> OverSeeds:
    """Writes the files.

    Args:
        runs: Those that are done, one or more.
        failed: The other seeds, and why they have no run.
        directory: Where to write them.

    Raises:
        RunError: if they cannot be written.
    """
    found = over_seeds(runs)
    values = dataclasses.asdict(found) | {"directories": [run.name for run in runs]}
    values["best"], values["equal"] = None, [found.seeds[index] for index in found.equal]
    if found.best is not None:
        values["best"] = {"seed": found.seeds[found.best], "directory": runs[found.best].name}
    write_json(directory / JSON, values | {"failed": {str(seed): reason for seed, reason in failed.items()}})
    names, rows = seed_rows(found, labels(found))
    lines = [markdown_table(names, rows, names[1:]), *(f"{line}\n" for line in closing_lines(found, runs, failed))]
    write_text(directory / TABLE, "\n".join(lines))
    if len(runs) > 1:
        write_comparison(runs, directory)
    return found


def labels(found: OverSeeds) -> list[str]:
    """What each run is called in the table."""
    return [f"seed {seed}" for seed in found.seeds]


def closing_lines(found: OverSeeds, runs: list[RunFiles], failed: Mapping[int, str]) -> list[str]:
    """What stands below the table: seeds without a run, and where the best is."""
    out = [f"Seed {seed} is missing: {reason}." for seed, reason in failed.items()]
    if words := found.best_in_words([run.name for run in runs]):
        out.append(words[0].upper() + words[1:])
    return out
