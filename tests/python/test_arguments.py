"""`docs/arguments.md`: an item for each argument of `tfbert.finetune` and `tfbert.pretrain`.

It is made of the options: `python -m tests.python.test_arguments` writes it anew.
"""

import inspect
import pathlib
from typing import Literal, get_args, get_origin

from tfbert.commandline import field_docs
from tfbert.config.modes import all_options
from tfbert.config.run import FINETUNE, PRETRAIN, Config, of_arguments
from tfbert.python import options_of

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "arguments.md"
HEAD = """# Arguments

The options of the command, by the flags' names, as arguments of `tfbert.finetune` and `tfbert.pretrain`. What else
these take, such as data in memory: [From Python](python.md).
"""


def kind(annotation):
    """An annotation in words."""
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{word!r}`" for word in get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"list of {get_args(annotation)[0].__name__}"
    if members := get_args(annotation):
        return " or ".join(kind(member) for member in members)
    return {type(None): "None"}.get(annotation, getattr(annotation, "__name__", str(annotation)))


def page():
    """The page as it must be."""
    finetune, pretrain, text = options_of(FINETUNE), options_of(PRETRAIN), HEAD
    for part, owner in Config.classes().items():
        own, others = ([n for n, option in of.items() if option.part == part] for of in (finetune, pretrain))
        of = {(True, False): " Of `finetune` alone.", (False, True): " Of `pretrain` alone."}
        if own or others:
            text += f"\n## {part}\n\n{inspect.getdoc(owner)}{of.get((bool(own), bool(others)), '')}\n\n"
        for name in dict.fromkeys([*own, *others]):
            field, annotation = all_options()[name][1:]
            needs = of_arguments(f"--{field.metadata['needs']}") if field.metadata["needs"] else ""
            what = of_arguments(field_docs(owner)[name])
            what = what.replace("`the command's ", "the command's `")
            what = f"With `{needs}`: {what[0].lower()}{what[1:]}" if needs else what
            what += of.get((name in own, name in others), "") if own and others else ""
            default = "`[]`" if field.default == () else f"`{field.default!r}`"
            known = "model" if name == "model_name_or_path" else name
            text += f"- **`{known}`** ({kind(annotation)}, default {default}): {what}\n"
    return text


def test_the_page_is_made_of_the_options():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.python.test_arguments"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
