"""What flags of other trainers are answered with, and that `docs/coming_from.md` says the same.

Its tables are made of `config/elsewhere.toml`: `python -m tests.commandline.test_answers` writes them anew.
"""

import collections
import pathlib
import re

import pytest

from tfbert.commandline import flags_of, parse, what_is_meant
from tfbert.config.run import FINETUNE, PRETRAIN
from tfbert.config.types import elsewhere, of_text

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "coming_from.md"
PROGRAMS = {"torchrun", "mpirun"}
OWN = {*flags_of(FINETUNE), *flags_of(PRETRAIN)}


def with_tables(page):
    """The page with the first table below the heading of each trainer made of the answers."""
    for trainer, table in elsewhere()["flags"].items():
        if trainer == "abbreviations":
            continue
        rows = ""
        for answer, names in table.items():
            flags = ", ".join(f"`{name}`" for name in names.split())
            here = re.sub(r"--[\w=./]+", r"`\g<0>`", answer)
            rows += f"| {flags} | {here} |\n"
        before, heading, after = page.partition(f"\n## {trainer}\n")
        above, rule, table = after.partition("| --- | --- |\n")
        page = before + heading + above + rule + rows + "\n" + table.partition("\n\n")[2]
    return page


def flags_in(text):
    return set(re.findall(r"--(\w+)", text))


def on_the_page():
    """By another trainer's name in a left column: our flags in the right columns beside it."""
    found = collections.defaultdict(set)
    for left, right in re.findall(r"^\| (.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        for name in [name for span in re.findall(r"`([^`]+)`", left) for name in names_in(span)]:
            found[name] |= flags_in(right)
    return found


def answer_to(command, name):
    """What is said of another trainer's flag; empty where it is only like one of ours."""
    answer = what_is_meant(command, name)
    return "" if answer.startswith("Did you mean") else answer


def names_in(span):
    """The flags that a piece of code in a table's left column names."""
    if "--" in span or "(" in span:
        return re.findall(r"(?:--|\()(\w+)", span)
    name = span.partition("=")[0]
    return [name] * bool(re.fullmatch(r"[a-z][a-z0-9_.]*", name) and not name.endswith(".py") and name not in PROGRAMS)


def test_a_flag_on_the_page_exists_or_gets_the_answer_of_the_page():
    found = on_the_page()
    assert {"fp16", "seed", "nproc_per_node", "train_sampling_strategy", "early_stopping_patience"} <= {*found}
    assert {"use_xla", "amp", "horovod", "task.train_data.global_batch_size", "tfds_name", "warmup_steps"} <= {*found}
    assert not {*found} & {"run_glue", "mpirun", "here"}
    for name in {*found} - OWN:
        answers = [answer_to(command, name) for command in (FINETUNE, PRETRAIN)]
        assert all(answers), name
        if found[name] and any(map(flags_in, answers)):
            assert any(flags_in(answer) & found[name] for answer in answers), name


def test_the_tables_are_made_of_the_answers():
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run python -m tests.commandline.test_answers"


def test_an_answer_names_flags_that_exist():
    names = [name for table in elsewhere()["flags"].values() for names in table.values() for name in names.split()]
    assert len(names) == len({*names} - OWN), "one answer, where it needs one"
    for name in names:
        for command, other in ((FINETUNE, PRETRAIN), (PRETRAIN, FINETUNE)):
            answer = answer_to(command, name)
            values = flags_of(other if answer.startswith(f"In {other.typed} ") else command)
            assert answer and flags_in(answer) <= {*values}, name
            for flag, value in re.findall(r"--(\w+)=([\w/]+)", answer):
                of_text(values[flag].kind, value)


def test_what_is_a_flag_stays_one():
    config = parse(PRETRAIN, ["x", "-seed", "-0", "--noxla", "-xla=True", "--output_dir", "-", "--"])
    assert (config.runtime.seed, config.runtime.xla, config.output.output_dir) == (0, True, "-")


TRACKERS = {"none": (), "": (), "all": ("tensorboard", "wandb", "mlflow"), "mlflow,wandb": ("mlflow", "wandb")}


@pytest.mark.parametrize("given, trackers", TRACKERS.items())
def test_none_and_all_trackers(given, trackers):
    assert parse(FINETUNE, ["x", f"--report_to={given}"]).output.report_to == trackers


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
