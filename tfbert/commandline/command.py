"""What every command does: flags -> Config -> one verb of tfbert; errors -> a line each and an exit status."""

from __future__ import annotations

import difflib
import importlib
import sys

from absl import app
from absl import flags as absl_flags

from tfbert.commandline import options
from tfbert.commandline.config_file import config_arguments, take_config
from tfbert.commandline.foreign_flags import foreign_flag, wrong_value
from tfbert.commandline.help import help_topic, show_help
from tfbert.commandline.presets import expand_flagfiles
from tfbert.commandline.verbs import VERBS
from tfbert.config.commands import FINETUNE, PRETRAIN, Command, verb_commands
from tfbert.config.run import Config
from tfbert.devices import termination
from tfbert.devices.allocator import keep_freed_memory
from tfbert.devices.imports import without_collections
from tfbert.devices.onednn import use_onednn
from tfbert.devices.quiet import silence_libraries, stderr_held_back
from tfbert.errors import EXPECTED, Preempted, UsageError, in_command


@in_command()
def run_command(command: Command, argv: list[str], mode: str = "") -> int:
    """Does what a command line asks for.

    Args:
        command: Its options.
        argv: The command line.
        mode: The mode that the command's own word says; empty where `--mode` does.

    Returns:
        The exit status.
    """
    try:
        topic = help_topic(argv[1:])
        if topic is not None:
            return show_help(command, topic, mode)
        config = parse(command, argv, mode)
        silence_libraries()
        use_onednn()
        if config.runtime.keep_freed_memory:
            keep_freed_memory()
        with without_collections(), stderr_held_back("importing TensorFlow"):
            import tensorflow as tf  # Takes seconds; a wrong flag is reported before.

            module, verb = VERBS[command.word][config.mode]
            run = getattr(importlib.import_module(module), verb)
            tf.config.list_physical_devices("GPU")
            from tfbert.devices.runtime import out_of_memory_as_run_error

        termination.check()
        with out_of_memory_as_run_error(config):
            run(config)
    except EXPECTED as error:
        return _fail(command, error, error.status, kind="" if isinstance(error, Preempted) else "error: ")
    except termination.Terminated as stop:
        return _fail(command, stop, stop.status, kind="")
    except KeyboardInterrupt:  # Before training began, or in another mode: there is nothing to resume from.
        return _fail(command, RuntimeError("stopped by Ctrl-C"), status=130, kind="")
    return 0


def parse(command: Command, argv: list[str], mode: str = "") -> Config:
    """The configuration that a command line describes: what it says itself replaces what a file of options says.

    Args:
        command: Its options.
        argv: The command line.
        mode: As for `run_command`.

    Raises:
        UsageError: for flags that the command does not have, and rules that are broken.
    """
    options.define_flags(absl_flags.FLAGS, command)
    app.define_help_flags()
    path, given = take_config(expand_flagfiles(argv[1:]))
    of_file = config_arguments(path, command, lambda name: what_is_meant(command, name)) if path else []
    said = [f"--mode={mode}"] * bool(mode)
    try:
        rest = absl_flags.FLAGS([argv[0], *expand_flagfiles(of_file), *said, *given])[1:]
    except absl_flags.UnrecognizedFlagError as error:
        raise UsageError(_unknown(command, error.flagname)) from None
    except absl_flags.Error as error:
        raise UsageError(wrong_value(str(error)) or f"{str(error).rstrip('.')}. See --help.") from None
    if rest:
        raise UsageError(f"Every argument must be a flag. Received: {' '.join(rest)}. Write --name=value; see --help.")
    if mode and (other := str(absl_flags.FLAGS["mode"].value)) != mode:
        word = other if verb_commands()[other] is command else f"{command.word} --mode={other}"
        raise UsageError(
            f"{command.typed} says the mode itself. Received: mode={other!r} beside it. "
            f"Drop --mode, or use {command.typed.removesuffix(mode)}{word}."
        )
    return options.config_from_flags(absl_flags.FLAGS, command)


def _unknown(command: Command, name: str) -> str:
    """The message for a flag that the command does not have, with what may be meant."""
    return " ".join(filter(None, (f"Unknown command line flag '{name}'.", what_is_meant(command, name), "See --help.")))


def what_is_meant(command: Command, name: str) -> str:
    """What may be meant by a flag that a command does not have, in a sentence; empty where nothing is like it."""
    return foreign_flag(command, name) or _flag_of_another(command, name) or _nearest(command, name)


def _flag_of_another(command: Command, name: str) -> str:
    others = (other for other in (FINETUNE, PRETRAIN) if other is not command and name in options.flag_names(other))
    return next((f"It is a flag of {other.typed}." for other in others), "")


def _nearest(command: Command, name: str) -> str:
    own = options.flag_names(command)
    near = [option for option in own if f"_{name}_" in f"_{option}_"]  # `epochs`, `batch_size`.
    near = near or difflib.get_close_matches(name, own, n=3, cutoff=0.75)
    return f"Did you mean {' or '.join(f'--{option}' for option in near[:3])}?" if near else ""


def _fail(command: Command, error: BaseException, status: int, kind: str) -> int:
    """One line for each thing that is wrong."""
    for line in str(error).splitlines():
        print(f"{command.typed}: {kind}{line}", file=sys.stderr)
    return status
