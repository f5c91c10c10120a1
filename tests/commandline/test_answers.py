"""What flags of other trainers are answered with, and that `docs/coming_from.md` says the same.

Its tables are made of `config/elsewhere.toml`: `python -m tests.commandline.test_answers` writes them anew.
"""

import collections
import pathlib
import re

import pytest

from tfbert.commandline.answers import foreign_flag
from tfbert.commandline.command import parse
from tfbert.commandline.options import flag_names, flags_of
from tfbert.config.commands import FINETUNE, PRETRAIN
from tfbert.config.types import elsewhere
from tfbert.errors import UsageError

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "coming_from.md"
PROGRAMS = {"torchrun", "mpirun"}
OWN = {*flag_names(FINETUNE), *flag_names(PRETRAIN)}


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


def names_in(span):
    """The flags that a piece of code in a table's left column names."""
    if "--" in span or "(" in span:
        return re.findall(r"(?:--|\()(\w+)", span)
    name = span.partition("=")[0]
    return [name] * bool(re.fullmatch(r"[a-z][a-z0-9_.]*", name) and not name.endswith(".py") and name not in PROGRAMS)


@pytest.mark.parametrize("name, ours", on_the_page().items(), ids=on_the_page())
def test_a_flag_on_the_page_exists_or_gets_the_answer_of_the_page(name, ours):
    answers = [foreign_flag(command, name) for command in (FINETUNE, PRETRAIN)]
    assert name in OWN or all(answers)
    if name not in OWN and ours and any(map(flags_in, answers)):
        assert any(flags_in(answer) & ours for answer in answers)


def test_the_tables_are_made_of_the_answers():
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run python -m tests.commandline.test_answers"


def test_the_page_is_read():
    found = set(on_the_page())
    assert {"fp16", "seed", "nproc_per_node", "train_sampling_strategy", "early_stopping_patience"} <= found
    assert {"use_xla", "amp", "horovod", "task.train_data.global_batch_size", "tfds_name", "warmup_steps"} <= found
    assert not found & {"run_glue", "mpirun", "here"}


NAMES = [name for table in elsewhere()["flags"].values() for names in table.values() for name in names.split()]


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_names_flags_that_exist(name):
    assert name not in OWN and NAMES.count(name) == 1, "one answer, where it needs one"
    answers = [foreign_flag(command, name) for command in (FINETUNE, PRETRAIN)]
    assert all(answers)
    for command, other, answer in zip((FINETUNE, PRETRAIN), (PRETRAIN, FINETUNE), answers, strict=True):
        owner = other if answer.startswith(f"In {other.typed} ") else command
        values = flags_of(owner)
        for flag, value in re.findall(r"--(\w+)(?:=([\w/]+))?", answer):
            assert flag in values, answer
            if value:
                values[flag].parser.parse(value)


@pytest.mark.parametrize(
    "command, name, answer",
    [
        (FINETUNE, "fp16", "Here it is --mixed_precision."),
        (FINETUNE, "lr", "Here it is --learning_rate."),
        (FINETUNE, "do_predict", "Here it is --mode=predict."),
        (PRETRAIN, "do_predict", "In run_finetune.py it is --mode=predict."),
        (FINETUNE, "eval_files_dir", "In run_pretraining.py it is --validation_records."),
        (PRETRAIN, "task.train_data.input_path", "Here it is --train_records."),
        (PRETRAIN, "dataset_name", "Here it is --dataset of --mode=prepare."),
        (PRETRAIN, "label_smoothing_factor", "It is not an option of pre-training."),
        (PRETRAIN, "tagging_scheme", ""),
        (FINETUNE, "task.train_data.seq_length", "Here it is --max_seq_length."),
        (FINETUNE, "learning-rate", "Here it is --learning_rate."),
        (FINETUNE, "lora_up", ""),
    ],
)
def test_the_answer_is_for_the_command(command, name, answer):
    with pytest.raises(UsageError) as caught:
        parse(command, ["x", f"--{name}", "1"])
    assert str(caught.value) == " ".join(filter(None, [f"Unknown command line flag '{name}'.", answer, "See --help."]))


@pytest.mark.parametrize(
    "given, answers",
    [
        (["--peft", "lora", "--xla"], ["peft.*all weights are trained"]),
        (["--freeze_encoder"], ["freeze_encoder.*all weights are trained"]),
        (["--num_labels=3", "--run_name=a"], ["num_labels.*--label_names names them", "run_name.*--output_dir"]),
        (["--save_strategy=no"], ["save_strategy'. It is not needed: .*--save_steps=0"]),
        (["--save_strategy", "epoch"], ["save_strategy'. It is not an option: --save_steps counts"]),
        (["--eval_strategy=No"], ["eval_strategy'. Leave out --validation_file"]),
        (["--task=ner"], ["^task must be one of auto, .*'ner'. Pass --task=token_classification.$"]),
        (["--task=Fill-Mask"], ["'Fill-Mask'. Pass --task=pretraining.$"]),
        (["--strategy=MirroredStrategy"], ["Pass --strategy=mirrored.$"]),
        # All that is wrong with a line at once, and what is right not at all.
        (["--zzq", "--seed=x", "--seed", "4", "--zzr=1", "--zzq"], ["'zzq'", "^seed must be an integer.*'x'", "'zzr'"]),
        (["a", "--xla=8 ", "--", "b"], ["^xla must be true or false. Received: xla='8 '", "^Every argument .*: a b."]),
        (["--noxla=true"], ["^--noxla takes no value. Received: --noxla=true. Write --noxla for off, or --xla for on"]),
        (["--nomixed_precision="], ["^--nomixed_precision takes no value"]),
        (["--output_dir", "--xla"], ["^output_dir takes a value. Received: --output_dir before --xla"]),
        (["--seed"], ["^seed takes a value. Received: --seed at the end. Write --seed=VALUE."]),
        (['--class_weights="1,2'], ["^class_weights must be a list of numbers or balanced. Received"]),
        # Flags of absl itself, which would do nothing.
        (["--pdb", "--only_check_args", "--v=1"], ["'pdb'", "'only_check_args'", "'v'"]),
        (["--undefok=zzq", "--zzq=1"], ["'undefok'", "'zzq'"]),
    ],
)
def test_a_line_is_answered_at_once(given, answers):
    with pytest.raises(UsageError) as caught:
        parse(FINETUNE, ["x", *given])
    lines = str(caught.value).splitlines()
    assert len(lines) == len(answers)
    for line, answer in zip(lines, answers, strict=True):
        assert re.search(answer, line), line


def test_what_is_a_flag_stays_one():
    config = parse(PRETRAIN, ["x", "-seed", "-0", "--noxla", "-xla=True", "--output_dir", "-", "--"])
    assert (config.runtime.seed, config.runtime.xla, config.output.output_dir) == (0, True, "-")


@pytest.mark.parametrize(
    "given, trackers",
    [("none", ()), ("", ()), ("all", ("tensorboard", "wandb", "mlflow")), ("mlflow,wandb", ("mlflow", "wandb"))],
)
def test_none_and_all_trackers(given, trackers):
    assert parse(FINETUNE, ["x", f"--report_to={given}"]).output.report_to == trackers
    with pytest.raises(UsageError, match="report_to must be one of .*'all'"):
        parse(FINETUNE, ["x", "--report_to=all,wandb"])


@pytest.mark.parametrize(
    "given, answer",
    [
        ("--eval_split=0.1", "Here it is --validation_split. See"),
        ("--learning_rate=1e-5,3e-5", "'1e-5,3e-5'. To train once with each, pass --sweep='learning_rate=1e-5,3e-5'.$"),
        ("--global_batch_size=8,16", "pass --sweep='global_batch_size=8,16'.$"),
        ("--lr_schedule=linear,cosine", "To train once with each, pass --sweep='lr_schedule=linear,cosine'.$"),
        ("--seed=1, 2", "'1, 2'. To train once with each, pass --seeds=1,2.$"),
        (
            "--logging_steps=5,10",
            "logging_steps must be an integer. Received: logging_steps='5,10'. --help=logging_st",
        ),
        ("--strategy=mirrored,multi_worker", "strategy must be one of one_device, .* Pass one of them.$"),
        ("--learning_rate=high", "must be a number. Received: learning_rate='high'. --help=learning_rate says what it"),
        ("--mixed_precision=bf16", "Received: .*='bf16'. Pass --mixed_precision --mixed_precision_dtype=bfloat16.$"),
        ("--mixed_precision=FP16", "Pass --mixed_precision --mixed_precision_dtype=float16.$"),
        ("--mixed_precision=none", "mixed_precision must be true or false. .* Drop it: float32 is the default.$"),
        ("--mixed_precision=int8", "Pass --mixed_precision, or --nomixed_precision.$"),
        ("--resume=True", "resume must be one of auto, never. Received: resume='True'. Pass one of them.$"),
        ("--mode=benchmark", "Received: mode='benchmark'. Run python benchmarks/devices.py in a clone"),
        ("--benchmark_replicas=1,2", "'benchmark_replicas'. Grids are measured by benchmarks/devices.py, in a clone"),
    ],
)
def test_what_people_type_first_gets_one_line(given, answer):
    with pytest.raises(UsageError, match=answer) as caught:
        parse(FINETUNE, ["x", given])
    assert "\n" not in str(caught.value)


def test_a_corpus_without_prepare_is_told_to_be_prepared(tmp_path):
    (tmp_path / "own.txt").write_text("A text.")
    with pytest.raises(UsageError, match="with --mode=prepare, and train with --train_records=DIRECTORY.$"):
        parse(PRETRAIN, ["x", f"--input_files={tmp_path / 'own.txt'}"])


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
