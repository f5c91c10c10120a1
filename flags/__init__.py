"""The command line: an absl flag for each field of `Config`, and the `Config` that they make."""

import dataclasses
import pathlib

from absl import flags

from flags.fields import define_field, define_part, part_from_flags
from tfbert.config.run import Config
from tfbert.errors import UsageError

_PARTS = {
    field.name: field.default_factory
    for field in dataclasses.fields(Config)
    if field.default_factory is not dataclasses.MISSING
}
"""The dataclasses whose fields are flags, by their name in `Config`."""
_ALIASES = {"model": "model_name_or_path"}


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Declares every flag of the command."""
    others = set(flag_values)
    define_field(Config, "mode", flag_values)
    for part in _PARTS.values():
        define_part(part, flag_values)
    for alias, name in _ALIASES.items():
        flags.DEFINE_alias(alias, name, flag_values=flag_values)
    flags.DEFINE_string(
        "run_config",
        "",
        "Repeat the run whose run_config.json this is; flags given beside it replace its values.",
        flag_values=flag_values,
    )
    # absl counts them to the modules that called it; --help shows those of one module.
    for name in set(flag_values) - others:
        flags.declare_key_flag(name, flag_values=flag_values)


def config_from_flags(flag_values: flags.FlagValues = flags.FLAGS) -> Config:
    """The configuration that parsed flags describe.

    Raises:
        UsageError: naming every rule that is broken.
    """
    path = flag_values["run_config"].value
    if not path:
        parts = {name: part_from_flags(part(), flag_values, only_given=False) for name, part in _PARTS.items()}
        return Config(mode=flag_values["mode"].value, **parts)
    try:
        text = pathlib.Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"run_config must be a file. Received: run_config={path!r} ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise UsageError(f"run_config must be UTF-8 text. Received: run_config={path!r}. Check the path.") from None
    base = Config.from_json(text)
    parts = {name: part_from_flags(getattr(base, name), flag_values, only_given=True) for name in _PARTS}
    mode = flag_values["mode"].value if flag_values["mode"].present else base.mode
    return dataclasses.replace(base, mode=mode, **parts)
