"""The configuration: defaults, every rule, all problems in one error, and the JSON form. `--sweep`: the grid that a
text means, and what cannot be one, before anything runs."""

import itertools
import json
import pathlib

import pytest

from tests.support.flag_values import SCRATCH, configured
from tests.support.refusals import refused
from tfbert.config.data import DataConfig
from tfbert.config.modes import ModelConfig, OutputConfig, all_options
from tfbert.config.run import Config, Point, points_of, shown, sweep_text
from tfbert.config.tables import TASKS
from tfbert.config.training import TrainingConfig
from tfbert.config.types import EVERY, PATHS
from tfbert.errors import UsageError

PARTS = {"model", "data", "tagging", "answering", "training", "runtime", "output", "predict", "export", "hub"}
PARTS |= {"choosing", "corpus", "multi_label", "pretraining"}
OF_ONES_OWN = {"train_file": {"train_file": __file__}, "dataset": {"dataset": "glue/sst2"}}
OF_ONES_OWN |= {"train_records": {"task": "pretraining", "train_records": ("r",)}}


@pytest.mark.parametrize("what", OF_ONES_OWN)
def test_only_the_built_in_data_has_a_model_of_its_own(what):
    """Untrained weights of two layers learn next to nothing of a user's data: who wants them says so."""
    data = OF_ONES_OWN[what]
    configured(model="scratch/tiny", **data)
    configured(sweep="model=scratch/tiny,scratch/mini", **data)
    for sweep in ("", "learning_rate=1e-5,3e-5"):
        with refused("^Data of your own needs a model .*random weights.$"):
            configured(sweep=sweep, **data)
    for built_in in ({}, {"dataset": "demo"}, {"task": "pretraining"}):
        config = configured(**built_in)
        assert (config.model, config.resolved().model) == (ModelConfig(), SCRATCH)


@pytest.mark.parametrize(
    "model, learning_rate, resolved",
    [("scratch/tiny", None, 5e-4), ("some/model", None, 5e-5), ("some/model", 2e-5, 2e-5), ("scratch/tiny", 0.1, 0.1)],
)
@pytest.mark.parametrize("optimizer, factor", [("adamw", 1), ("lamb", 10)])
def test_resolved_writes_out_the_defaults_that_depend_on_others(model, learning_rate, resolved, optimizer, factor):
    config = configured(model=model, learning_rate=learning_rate, optimizer=optimizer).resolved()
    resolved = resolved * factor if learning_rate is None else resolved
    assert config.training.learning_rate == pytest.approx(resolved)
    assert (config.training.num_train_epochs, config.data.dataset) == (3.0, "demo")
    assert config.resolved() == config


def test_resolved_names_no_data_set_beside_files_and_a_metric_as_the_log_does():
    """And as Hugging Face's Trainer does."""
    files = {"train_file": __file__, "validation_file": __file__}
    config = configured(model="scratch/tiny", metric_for_best_model="eval_f1", **files).resolved()
    assert (config.data.dataset, config.source) == ("", __file__)
    assert config.training.metric_for_best_model == "f1"


def test_json_has_every_part_and_lacks_what_is_at_its_default():
    assert Config.from_json(Config().to_json()) == Config.from_json("{}") == Config()
    assert set(json.loads(Config().to_json())) == {"mode", *PARTS}


BAD_JSON = [
    ("{", "must be JSON"),
    ("[1, 2]", "must be JSON"),
    ('{"training": {"global_batch_sise": 3}}', "global_batch_sise"),
    ('{"trainings": {}}', "trainings"),
    ('{"training": 3}', "must be JSON"),
    ('{"training": {"cls": 1}}', "cls=1"),
    ('{"training": {"global_batch_size": "32"}}', "global_batch_size"),
    ('{"output": {"output_dir": null}}', "output_dir"),
    ('{"training": {"global_batch_size": 0}}', "global_batch_size"),
    pytest.param("[" * 100_000, "must be JSON", id="nested"),
    pytest.param('{"training": {"max_steps": ' + "9" * 5000 + "}}", "must be JSON", id="digits"),
]


@pytest.mark.parametrize("text, match", BAD_JSON)
def test_bad_json_is_a_usage_error(text, match):
    with pytest.raises(UsageError, match=match):
        Config.from_json(text)


def test_the_number_of_micro_batches_may_be_left_open():
    config = configured(gradient_accumulation_steps="auto")
    assert config.training.is_auto and Config.from_json(config.to_json()) == config
    found = config.accumulating(4)
    assert found.training.gradient_accumulation_steps == 4 and not found.training.is_auto
    assert found.accumulating("auto") == config


def test_what_version_1_did_says_where_it_is_and_its_files_are_read():
    with pytest.raises(UsageError, match="Received: mode='benchmark'. Run python benchmarks/devices.py in a clone"):
        Config(mode="benchmark")
    values = json.loads(Config().to_json()) | {"benchmark": {"benchmark_steps": 50}}
    assert Config.from_json(json.dumps(values)) == Config()


def test_a_configuration_of_version_2_0_is_read_unless_it_asks_for_what_went():
    values = json.loads(Config().to_json())
    values["answering"]["keep_misaligned_answers"] = values["pretraining"]["skip_bad_records"] = False
    assert Config.from_json(json.dumps(values)) == Config()
    values["answering"]["keep_misaligned_answers"] = True
    with pytest.raises(UsageError, match="keep_misaligned_answers=True"):
        Config.from_json(json.dumps(values))


def test_the_mode_is_kept_in_json_and_training_is_the_default():
    config = configured("evaluate", model="saved", dataset="glue/rte")
    assert Config.from_json(config.to_json()) == config
    assert json.loads(Config().to_json())["mode"] == "train"
    for text in ('{"mode": "sing"}', '{"mode": 3}', '{"mode": ["train"]}'):
        with pytest.raises(UsageError, match="mode must be one of train, "):
            Config.from_json(text)


def test_every_option_says_which_modes_and_tasks_it_has_an_effect_in():
    apart = {"corpus": {"prepare"}, "predict": {"predict"}, "export": {"export"}}
    for name, (part, field, _) in all_options().items():
        modes = {*field.metadata["modes"]}
        assert modes and modes <= {*EVERY} and {*field.metadata["tasks"]} <= {*TASKS}, name
        assert modes == apart[part] if part in apart else "train" in modes or name in ("top_k", "column_per_label")


FILES = {"train": "train_file", "evaluate": "validation_file", "predict": "input_file"}


@pytest.mark.parametrize("mode", FILES)
def test_options_of_files_in_every_mode_that_reads_some(mode):
    options = {"input_format": "csv", "delimiter": ";", "skip_bad_rows": True}
    configured(mode, model="saved", **{FILES[mode]: __file__}, **options)
    for name, value in options.items():
        with refused(f"^{name} takes effect with files only. Received: .*Drop --{name}.$"):
            configured(mode, model="saved", dataset="glue/rte", **{name: value})


@pytest.mark.parametrize(
    "given, character", [("", ""), (";", ";"), ("tab", "\t"), ("\\t", "\t"), ("\t", "\t"), ("\u00a6", "\u00a6")]
)
def test_delimiters(given, character):
    assert DataConfig(delimiter=given).separator == character and not DataConfig(delimiter=given).problems()


def test_standard_input_can_be_evaluated():
    config = configured("evaluate", model="saved", test_file="-", input_format="tsv")
    assert config.source == "standard_input" and DataConfig(test_file="a-b.tsv").source == "a-b.tsv"


LOOP, LOCKED = "loop", "locked"
UNUSABLE = {"~nobody-of-that-name/x": "home directory", "a\0b": "embedded null byte", LOCKED: "Permission denied"}
UNUSABLE |= dict.fromkeys(("x" * 300, "folder/" * 700), "File name too long")
UNUSABLE |= dict.fromkeys((LOOP, f"{LOOP}/x"), "Too many levels of symbolic links")


@pytest.mark.parametrize("name", [*PATHS, "label_names"])
def test_a_path_that_can_be_nobodys_is_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / LOOP).symlink_to(LOOP)
    (tmp_path / LOCKED).mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: pathlib.Path(path).name != LOCKED)  # Root may do everything.
    option = all_options()[name]
    for path in UNUSABLE:
        part = Config.classes()[option.part](**{name: path if option.kind is str else (path,)})
        (line,) = [each for each in part.problems() if each.startswith(f"{name} must be a path")]
        assert UNUSABLE[path] in line and len(line) < 300


def test_paths_that_are_not_there_yet_and_several_with_commas_are_fine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"{letter * 40}.tsv" for letter in "abcdefghij"]  # Together longer than a name may be.
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "of\nlines").mkdir()
    data = {"train_file": names[0], "validation_file": ",".join(names), "label_names": ("x" * 300, "b")}
    config = configured(model="scratch/tiny", output_dir="new/of\nlines/~user", **data)
    assert config.data.validation_files == tuple(names)


def test_a_grid_has_each_combination_once():
    points = points_of(configured(sweep="learning_rate=1e-5,3e-5;global_batch_size=16,32", output_dir="out"))
    combinations = itertools.product((16, 32), ("1e-05", "3e-05"))
    labels = [f"global_batch_size={size}, learning_rate={rate}" for size, rate in combinations]
    assert [point.label for point in points] == labels
    for point in points:
        assert point.config == Config(training=TrainingConfig(**point.values), output=OutputConfig(output_dir="out"))


def test_another_spelling_is_the_same_sweep():
    one = points_of(configured(sweep="learning_rate=1e-5;global_batch_size=16; xla=on,off;"))
    other = points_of(configured(sweep=" xla = true , false ;--global_batch_size=16;learning_rate=0.00001"))
    assert [point.directory for point in one] == [point.directory for point in other]
    assert one[0].directory == "global_batch_size=16,learning_rate=1e-05,xla=true"


def test_names_of_directories_tell_all_values_apart():
    values = ["bert-base-cased", "google/bert", "google_bert", "a,b", "a b", "ü", "x" * 300, "x" * 301, "..", "a=b"]
    names = [Point({"model_name_or_path": value}, None).directory for value in values]
    assert len({*names}) == len(names) and all(len(name) < 255 and "/" not in name for name in names)
    assert names[:2] == ["model_name_or_path=bert-base-cased", "model_name_or_path=google%2Fbert"]


@pytest.mark.parametrize("value", [1e-5, 0.1, 1 / 3, 5, True, False, "auto", "a b", 1e22, 3.0])
def test_a_value_comes_back_as_it_was(value):
    name = {float: "num_train_epochs", int: "global_batch_size", bool: "xla", str: "model_name_or_path"}[type(value)]
    with_it = points_of(configured(sweep=sweep_text({name: [value]}))) if value != "auto" else []
    assert all(point.values == {name: value} for point in with_it)
    assert shown(True) == "true" and shown(1e-5) == "1e-05" and float(shown(1 / 3)) == 1 / 3


def test_values_may_hold_what_separates_them():
    names = ["a,b.tsv", 'say "x";.tsv', "plain.tsv"]
    points = points_of(configured(sweep=sweep_text({"model_name_or_path": names})))
    assert [point.values["model_name_or_path"] for point in points] == names


def test_what_the_runs_need_is_asked_of_the_runs():
    """The configuration itself lacks what is varied."""
    for sweep in ("", "lr_schedule=polynomial,linear"):
        with refused("lr_power takes effect with lr_schedule=polynomial only"):
            configured(lr_power=0.5, sweep=sweep)
    (point,) = points_of(configured(lr_power=0.5, sweep="lr_schedule=polynomial"))
    assert point.config.training.lr_schedule == "polynomial"
