"""The command line: one flag a field, from the dataclasses; files of flags; a run's own configuration."""

import ast
import dataclasses
import inspect
from typing import Literal, get_args, get_origin

import pytest

from tests.support.flag_values import defined
from tests.support.flag_values import parsed as parse
from tfbert.config.modes import PredictConfig
from tfbert.config.run import FINETUNE, Config
from tfbert.config.types import field_types
from tfbert.errors import UsageError

PARTS = {part: Config.classes()[part] for part in FINETUNE.options()}
FIELDS = [(name, field) for name, part in PARTS.items() for field in dataclasses.fields(part)]
IDS = [field.name for _, field in FIELDS]

# A value other than the default for every option, as written on the command line and as it arrives: by its type, or
# one that rules allow.
OF_KIND = {int: ("7", 7), float: ("0.25", 0.25), str: ("x", "x")}
OF_KIND |= {tuple[str, ...]: ("a,b", ("a", "b")), tuple[int, ...]: ("1,2", (1, 2))}
GIVEN = {
    **dict.fromkeys(("vocab_file", "train_file", "validation_file", "test_file", "input_file"), ("{file}", "{file}")),
    "data_dir": ("{directory}", "{directory}"),
    "max_seq_length": ("64", 64),
    "null_score_diff_threshold": ("-1.5", -1.5),
    "learning_rate": ("3e-5", 3e-5),
    "dropout": ("0", 0.0),
    "class_weights": ("1,2.5", (1.0, 2.5)),
    "num_replicas": ("1", 1),
    "report_to": ("tensorboard,mlflow", ("tensorboard", "mlflow")),
    "text": ("one, text", ("one, text",)),
    "text_pair": ("another, text", ("another, text",)),
}
WORDS = {"task": "regression", "metric_for_best_model": "macro_f1", "lora_targets": "query,key"}
WORDS |= {"long_texts": "first_last", "sweep": "xla=true,false", "gradient_accumulation_steps": "auto"}
GIVEN |= {name: (word, word) for name, word in WORDS.items()}


def given(part, field):
    if field.name in GIVEN:
        return GIVEN[field.name]
    kind = field_types(PARTS[part])[field.name]
    if kind is bool:
        return str(not field.default).lower(), not field.default
    if get_origin(kind) is Literal:
        return (get_args(kind)[-1],) * 2
    return OF_KIND[kind] if kind in OF_KIND else OF_KIND[get_args(kind)[0]]


PREDICT = ["--mode=predict", "--model=saved", "--input_file={file}"]
FILE = ["--train_file={file}", "--model=saved"]
# Options that a rule ties to another one.
BESIDE = {
    **{field.name: PREDICT for field in dataclasses.fields(PredictConfig)},
    **dict.fromkeys(("top_k", "column_per_label"), PREDICT),
    "text": ["--mode=predict", "--model=saved"],
    "text_pair": ["--mode=predict", "--model=saved", "--text=one"],
    **dict.fromkeys(("export_format", "export_float16"), ["--mode=export", "--model=saved", "--output_dir=exported"]),
    **dict.fromkeys(("hub_model_id", "hub_private_repo"), ["--push_to_hub"]),
    **dict.fromkeys(("dataset", "train_file"), ["--model=saved"]),
    "data_dir": ["--dataset=glue/sst2", "--model=saved"],
    **dict.fromkeys(("label_names", "validation_file", "validation_split"), FILE),
    **dict.fromkeys(("test_file", "input_format", "delimiter", "skip_bad_rows"), FILE),
    "split_seed": [*FILE, "--validation_split=0.1"],
    "header": ["--text_column=0", "--label_column=1"],
    "mixed_precision_dtype": ["--mixed_precision"],
    "max_compiled_shapes": ["--xla"],
    "lr_power": ["--lr_schedule=polynomial"],
    **dict.fromkeys(("lora_alpha", "lora_targets"), ["--lora_rank=2"]),
    "keep_adapter": ["--lora_rank=2", "--model=saved"],
}


@pytest.fixture
def fill(tmp_path):
    """Puts a file and a directory that exist into an argument or a value."""
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\n")

    def put(value):
        is_text = isinstance(value, str)
        return value.replace("{file}", str(path)).replace("{directory}", str(tmp_path)) if is_text else value

    return put


@pytest.mark.parametrize("part, field", FIELDS, ids=IDS)
def test_every_field_has_a_flag_with_its_default_and_its_help(part, field):
    flag = defined()[field.name]
    default = list(field.default) if isinstance(flag.value, list) else field.default
    assert flag.value == flag.default == default
    body = ast.parse(inspect.getsource(PARTS[part])).body[0].body
    fields = [(node, after) for node, after in zip(body, body[1:], strict=False) if isinstance(node, ast.AnnAssign)]
    (doc,) = [after.value.value for node, after in fields if node.target.id == field.name]
    assert flag.help.endswith(" ".join(doc.split())[1:])  # An enum's values come first, or what it needs.
    assert len(flag.help) > 20


@pytest.mark.parametrize("part, field", FIELDS, ids=IDS)
def test_every_flag_reaches_its_field_and_the_json(part, field, fill, tmp_path):
    text, value = (fill(item) for item in given(part, field))
    assert value != field.default
    config = parse(*map(fill, BESIDE.get(field.name, [])), f"--{field.name}={text}")
    assert getattr(getattr(config, part), field.name) == value
    path = tmp_path / "run_config.json"
    path.write_text(config.to_json())
    assert parse(f"--run_config={path}") == config


def test_flags_beside_a_run_config_replace_its_values(tmp_path):
    path = tmp_path / "run_config.json"
    first = parse("--seed=7", "--max_steps=5", "--text_column=a,b", "--class_weights=1,2", "--xla", "--dataset=demo")
    path.write_text(first.to_json())
    second = parse(f"--run_config={path}", "--seed=8", "--noxla", "--class_weights=balanced")
    assert second.runtime == dataclasses.replace(first.runtime, seed=8, xla=False)
    assert second.training == dataclasses.replace(first.training, class_weights="balanced")
    assert (second.data, second.model, second.output) == (first.data, first.model, first.output)


def test_a_flag_back_at_its_default_also_replaces(tmp_path):
    path = tmp_path / "run_config.json"
    path.write_text(parse("--seed=7", "--global_batch_size=8", "--train_file=", "--dataset=demo").to_json())
    config = parse(f"--run_config={path}", "--seed=42", "--global_batch_size=32", "--dataset=")
    assert config == Config()


def test_the_alias_sets_the_same_option_beside_a_run_config_too(tmp_path):
    path = tmp_path / "run_config.json"
    path.write_text(Config().to_json())
    expected = parse("--model_name_or_path=scratch/mini")
    assert expected.model.model_name_or_path == "scratch/mini"
    assert parse("--model=scratch/mini") == parse(f"--run_config={path}", "--model=scratch/mini") == expected


@pytest.mark.parametrize(
    "given, expected", [("balanced", "balanced"), ("", ""), ("1,2.5,3", (1.0, 2.5, 3.0)), ("2", (2.0,))]
)
def test_class_weights_are_a_word_or_numbers(given, expected):
    assert parse(f"--class_weights={given}").training.class_weights == expected


def test_a_home_directory_is_found_as_by_the_shell(monkeypatch, tmp_path):
    """Shells leave `--output_dir=~/x` alone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "t.tsv").touch()
    config = parse("--output_dir=~/runs/a", "--model=~/bert", "--train_file=~/t.tsv", "--text_column=~/no_path")
    assert config.output.output_dir == f"{tmp_path}/runs/a"
    assert config.model.model_name_or_path == f"{tmp_path}/bert"
    assert (config.data.train_file, config.data.text_column) == (f"{tmp_path}/t.tsv", ("~/no_path",))
    (tmp_path / "run_config.json").write_text(config.to_json())
    assert parse("--run_config=~/run_config.json") == config


@pytest.mark.parametrize(
    "text, match", [(None, "No such file"), ("{", "must be JSON"), ('{"training": {"speed": 1}}', "speed")]
)
def test_a_run_config_that_cannot_be_used(text, match, tmp_path):
    path = tmp_path / "run_config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=match):
        parse(f"--run_config={path}")
