"""The pictures of a run in README: the first command as a terminal shows it, and the report of its run. And a plot.

    python benchmarks/pictures.py --work_dir=runs/pictures
    python benchmarks/pictures.py --head_bias PRIOR_RUN ZERO_RUN

The command runs in a pseudo terminal, in an empty directory. What it prints is drawn as it came, by rich, which Keras
brings; the report is opened by a Chromium, whose program `--browser` names. A run that exists is not made again.
The plot is of the evaluations of two runs of several labels, alike but for `--head_bias`.
"""

import argparse
import io
import json
import os
import pathlib
import pty
import re
import shlex
import subprocess
import sys
import termios

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = pathlib.Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
TERMINAL, REPORT, HEAD_BIAS = IMAGES / "terminal.svg", IMAGES / "report.png", IMAGES / "head_bias.svg"
COMMAND = "python run_finetune.py --strategy=mirrored --mixed_precision --output_dir=runs/first"
COLUMNS, REPORT_SIZE = 110, (1100, 745)
FONT = 'font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace;'


def main() -> None:
    """Makes the run, unless it is there, and draws both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--work_dir", type=pathlib.Path, help="where the command runs")
    what.add_argument("--head_bias", type=pathlib.Path, nargs=2, metavar=("PRIOR_RUN", "ZERO_RUN"))
    parser.add_argument("--browser", default="chromium", help="a Chromium or Chrome")
    args = parser.parse_args()
    if args.head_bias:
        draw_evaluations(*args.head_bias)
        return
    args.work_dir.mkdir(parents=True, exist_ok=True)
    recorded = args.work_dir / "terminal.txt"
    if not recorded.exists():
        recorded.write_bytes(in_terminal(COMMAND, args.work_dir))
    draw_terminal(recorded.read_bytes().decode())
    draw_report(args.browser, args.work_dir / "runs" / "first" / "report.html")
    for path in (TERMINAL, REPORT):
        print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


def draw_evaluations(prior: pathlib.Path, zero: pathlib.Path) -> None:
    """The micro F1 of each evaluation of two runs, over their updates."""
    sys.path.insert(0, str(ROOT))
    from tfbert.report.pages import line_plot

    lines = {}
    for label, run in (("--head_bias=prior", prior), ("--head_bias=zero", zero)):
        records = map(json.loads, (run / "log.jsonl").read_text().splitlines())
        points = [(record["step"], record["eval_micro_f1"]) for record in records if record["kind"] == "eval"]
        lines[label] = tuple(zip(*points, strict=True))
    HEAD_BIAS.write_text(line_plot(lines, x_label="updates", y_label="micro F1", marked=lines, from_zero=True) + "\n")


def in_terminal(command: str, directory: pathlib.Path) -> bytes:
    """All bytes that a command writes to a terminal of `COLUMNS` columns."""
    words = [
        {"python": sys.executable, "run_finetune.py": str(ROOT / "run_finetune.py")}.get(word, word)
        for word in shlex.split(command)
    ]
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, COLUMNS))
    process = subprocess.Popen(words, cwd=directory, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    written = b""
    try:
        while part := os.read(master, 65536):
            written += part
    except OSError:  # Linux's way to say that the terminal has no writer left.
        pass
    if process.wait():
        sys.exit(f"{command}\n{written.decode()}")
    return written


def draw_terminal(written: str) -> None:
    """An SVG of the terminal when the command has ended; needs no font from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {COMMAND}", style="bold"))
    for line in written.replace("\r\n", "\n").rstrip("\n").split("\n"):
        console.print(Text.from_ansi(last_state(line)))
    svg = console.export_svg(title="", theme=MONOKAI, unique_id="tfbert")
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)
    TERMINAL.write_text(re.sub(r"font-family: [^;]*;", FONT, svg))


def last_state(line: str) -> str:
    """A line after its carriage returns: what was written last, over what was there."""
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown.rstrip()


def draw_report(browser: str, report: pathlib.Path) -> None:
    """The upper part of a report as a browser shows it."""
    size = ",".join(map(str, REPORT_SIZE))
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={size}", f"--screenshot={REPORT}"]
    subprocess.run([browser, *options, report.resolve().as_uri()], check=True, stderr=subprocess.DEVNULL)
    with Image.open(REPORT) as picture:
        picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(REPORT, optimize=True)


if __name__ == "__main__":
    main()
