"""`tfbert WORD ...`, or `python -m tfbert WORD ...`: the installed command, with all that the scripts have."""

from __future__ import annotations

import os
import pathlib
import sys

from tfbert.config.run import FINETUNE, PRETRAIN, PROGRAMS, STARTED_AS, verb_commands
from tfbert.config.types import called_elsewhere, did_you_mean, elsewhere
from tfbert.devices.process import run_program

_USAGE = f"""{{program}}: distributed fine-tuning and pre-training of BERT in TensorFlow.

  {{program}} finetune FLAGS   {FINETUNE.summary}
  {{program}} pretrain FLAGS   {PRETRAIN.summary}
  {{program}} train, evaluate, predict, export FLAGS
                          The same as finetune with this --mode.
  {{program}} prepare FLAGS    The same as pretrain --mode=prepare.
  {{program}} launch --num_workers=N -- {{program}} finetune FLAGS
                          Starts many workers on this machine, and restarts them.
  {{program}} report RUN_DIR ...
                          Rewrites a run's report, or compares several runs.

{{program}} finetune without flags trains on built-in data.
{{program}} WORD --help lists the flags of a command; {{program}} --version.
"""
_WORDS = (FINETUNE.word, PRETRAIN.word, *verb_commands(), "launch", "report")


def main(argv: list[str] | None = None) -> int:
    """Does what a word asks for.

    Args:
        argv: The command line, the program's path first; None: that of this process, which SIGTERM ends with status
            75.

    Returns:
        The exit status: 2 for an unknown word, else that of the word.
    """
    if argv is None:
        return run_program(_program(sys.argv), lambda: main(sys.argv))
    program = _program(argv)
    word, rest = argv[1] if len(argv) > 1 else "--help", argv[2:]
    if word in ("--help", "-h", "-help", "help"):
        print(_USAGE.format(program=program), end="")
        return 0
    if word == "--version":
        from tfbert import __version__

        print(f"tfbert {__version__}")
        return 0
    if word not in _WORDS:
        known = called_elsewhere(elsewhere()["words"], word)
        advice = f"Here it is {known}." if known else did_you_mean(word, _WORDS) or "See --help."
        print(
            f"{program}: error: The first argument must be one of {', '.join(_WORDS)}. Received: {word!r}. {advice}",
            file=sys.stderr,
        )
        return 2
    # A run's log, report and messages name the command as it was typed.
    sys.argv = [os.environ.pop(STARTED_AS, None) or f"{program} {word}", *rest]
    if word == "launch":
        from tfbert.launch import main as launch

        return launch(rest)
    if word == "report":
        from tfbert.report.__main__ import main as report

        return report(rest)
    from tfbert.commandline import run_command

    commands = {command.word: command for command in (FINETUNE, PRETRAIN)}
    return run_command(commands.get(word) or verb_commands()[word], sys.argv, "" if word in commands else word)


def _program(argv: list[str]) -> str:
    return PROGRAMS[pathlib.Path(argv[0]).stem != "tfbert"]


if __name__ == "__main__":
    sys.exit(main())
