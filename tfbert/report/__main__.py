"""python -m tfbert.report RUN_DIR...: rewrites a run's report, or compares several runs."""

from __future__ import annotations

import argparse
import pathlib
import sys

from tfbert.config.run import typed
from tfbert.devices.process import run_program, told
from tfbert.errors import RunError, UsageError
from tfbert.output.output_dir import check_writable, make
from tfbert.report.compare import COMPARISON, comparison
from tfbert.report.pages import write_report
from tfbert.report.run_files import read_run


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    name = typed("report", "python -m tfbert.report")
    parser = argparse.ArgumentParser(
        prog=name,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="With one run, rewrites its report.html. With several, compares them: prints "
        "tables,\nthe best run first, and writes comparison.html and comparison.md.",
        epilog=f"examples:\n  {name} runs/sst2\n  {name} runs/one runs/two --output_dir=runs/compared\n"
        f"  {name} runs/1gpu runs/2gpus runs/4gpus   time, speed-up and score by the number of GPUs\n"
        f"  {name} runs/sst2/seed-*   adds mean, standard deviation and best: only the seed differs",
    )
    parser.add_argument("run_dir", nargs="+", help="output directory of a finished run")
    parser.add_argument(
        "--output_dir", help="where the comparison goes, created if need be (default: the current directory)"
    )
    options = parser.parse_args(argv)
    pages = [
        path for path in options.run_dir if path.endswith((".html", ".json", ".md")) and pathlib.Path(path).is_file()
    ]
    runs = [path for path in options.run_dir if path not in pages] or options.run_dir
    if len(runs) < len(options.run_dir):  # runs/sweep/* matches the sweep's own pages, too.
        print(f"left out, as a run is a directory: {', '.join(pages)}", file=sys.stderr)
    try:
        if len(runs) > 1:
            _compare(runs, pathlib.Path(options.output_dir or "."))
        elif options.output_dir is None:
            print(write_report(runs[0]))
        else:
            rule = "output_dir is for a comparison"
            raise UsageError(f"{rule}. Received: one RUN_DIR. Pass several, or drop --output_dir.")
    except (UsageError, RunError) as error:
        return told(typed("report", "tfbert.report"), error)
    return 0


def _compare(paths: list[str], directory: pathlib.Path) -> None:
    check_writable(directory)
    runs, problems = [], []
    for path in paths:
        try:
            runs.append(read_run(path))
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n".join(problems))
    make(directory)
    page = comparison(runs)
    print(page.text() if sys.stdout.isatty() else page.markdown())
    print(*page.write(directory, COMPARISON), sep="\n")


if __name__ == "__main__":
    sys.exit(run_program("tfbert.report", main))
