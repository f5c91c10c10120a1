"""What the files in benchmarks/results/ share: their names, their beginning and their tables."""

from __future__ import annotations

import argparse
import datetime
import pathlib
import shlex

from machine import machine

from tfbert.report.run_files import environment

RESULTS = pathlib.Path(__file__).parent / "results"


def default_output(name: str) -> pathlib.Path:
    """The path of a file in benchmarks/results/ with today's date."""
    return RESULTS / f"{datetime.date.today()}-{name}.md"


def table(head: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def beginning(title: str, script: str, args: argparse.Namespace, *more: str) -> list[str]:
    """Title, machine and command, one paragraph each.

    Args:
        title: The page's title.
        script: The script's file name.
        args: The script's options; of paths, the page shows only the last part.
        more: Other software, such as `PyTorch 2.13`.
    """
    about = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine().items())
    versions = environment()["versions"]
    software = [f"{name} {versions[name]}" for name in ("tensorflow", "transformers") if name in versions]
    return [
        f"# {title} ({datetime.date.today()})",
        f"{about}. {', '.join([*software, *more])}.",
        f"`python benchmarks/{script} {' '.join(flags_said(args))}`",
    ]


def flags_said(args: argparse.Namespace) -> list[str]:
    """Options as on a command line, without those that are not set."""
    out = []
    for name, value in vars(args).items():
        if value is None or value is False or value in ("", []) or name == "output":
            continue
        for item in value if isinstance(value, list) else [value]:
            text = f"--{name}" if item is True else f"--{name}={_without_directories(name, str(item))}"
            out.append(shlex.quote(text))
    return out


def _without_directories(name: str, value: str) -> str:
    if name.endswith("_python"):
        return "peer/bin/python"
    if name == "work_dir":
        return f"runs/{pathlib.Path(value).name}"
    head, mark, files = value.rpartition("=")
    short = [pathlib.Path(file).name if file.startswith(("/", ".")) else file for file in files.split(",")]
    return head + mark + ",".join(short)
