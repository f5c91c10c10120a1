"""The configuration: defaults, every rule, all problems in one error, and the JSON form."""

import dataclasses
import json
import pathlib

import pytest

from tfbert.config.data import DataConfig
from tfbert.config.modes import ExportConfig, HubConfig, ModelConfig, OutputConfig, PredictConfig, RuntimeConfig
from tfbert.config.run import Config
from tfbert.config.tasks import CorpusConfig, PretrainingConfig
from tfbert.config.training import TrainingConfig
from tfbert.config.types import EVERY
from tfbert.errors import UsageError

PARTS = [ModelConfig, DataConfig, TrainingConfig, RuntimeConfig, OutputConfig, PredictConfig, ExportConfig, HubConfig]
PARTS += [CorpusConfig, PretrainingConfig]
PART_NAMES = {"model", "data", "tagging", "answering", "training", "runtime", "output", "predict", "export", "hub"}
PART_NAMES |= {"choosing", "corpus", "multi_label", "pretraining"}
SAVED, SCRATCH = ModelConfig(model_name_or_path="saved"), ModelConfig(model_name_or_path="scratch/tiny")


@pytest.mark.parametrize("what", ["train_file", "dataset", "train_records"])
def test_only_the_built_in_data_has_a_model_of_its_own(what, tmp_path):
    """Untrained weights of two layers learn next to nothing of a user's data: who wants them says so."""
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\n")
    records = {"data": DataConfig(task="pretraining"), "pretraining": PretrainingConfig(train_records=("r",))}
    parts = {
        "train_file": {"data": DataConfig(train_file=str(path))},
        "dataset": {"data": DataConfig(dataset="glue/sst2")},
        "train_records": records,
    }[what]
    Config(model=SCRATCH, **parts)
    for runtime in (RuntimeConfig(), RuntimeConfig(sweep="learning_rate=1e-5,3e-5")):
        with pytest.raises(UsageError, match="^Data of your own needs a model .*random weights.$"):
            Config(runtime=runtime, **parts)
    Config(runtime=RuntimeConfig(sweep="model=scratch/tiny,scratch/mini"), **parts)
    for built_in in (DataConfig(), DataConfig(dataset="demo"), DataConfig(task="pretraining")):
        assert Config(data=built_in).model == ModelConfig()
        assert Config(data=built_in).resolved().model == SCRATCH


@pytest.mark.parametrize(
    "model, learning_rate, resolved",
    [("scratch/tiny", None, 5e-4), ("some/model", None, 5e-5), ("some/model", 2e-5, 2e-5), ("scratch/tiny", 0.1, 0.1)],
)
@pytest.mark.parametrize("optimizer, factor", [("adamw", 1), ("lamb", 10)])
def test_resolved_writes_out_the_defaults_that_depend_on_others(model, learning_rate, resolved, optimizer, factor):
    training = TrainingConfig(learning_rate=learning_rate, optimizer=optimizer)
    config = Config(model=ModelConfig(model_name_or_path=model), training=training).resolved()
    resolved = resolved * factor if learning_rate is None else resolved
    assert config.training.learning_rate == pytest.approx(resolved)
    assert (config.training.num_train_epochs, config.data.dataset) == (3.0, "demo")
    assert config.resolved() == config


@pytest.mark.parametrize("name", ["accuracy", "f1", "loss", "pearson"])
def test_a_metric_may_be_named_as_the_log_names_it(name):
    """And as Hugging Face's Trainer does."""
    config = Config(training=TrainingConfig(metric_for_best_model=f"eval_{name}"))
    assert config.resolved().training.metric_for_best_model == name
    assert config.resolved() == Config(training=TrainingConfig(metric_for_best_model=name)).resolved()


def test_resolved_names_no_data_set_beside_files(tmp_path):
    (tmp_path / "rows.tsv").write_text("text\tlabel\n")
    config = Config(model=SCRATCH, data=DataConfig(train_file=str(tmp_path / "rows.tsv"))).resolved()
    assert config.data.dataset == "" and config.data.source == str(tmp_path / "rows.tsv")


def test_json_has_every_part_and_lacks_what_is_at_its_default():
    assert Config.from_json(Config().to_json()) == Config.from_json("{}") == Config()
    assert set(json.loads(Config().to_json())) == {"mode", *PART_NAMES}


@pytest.mark.parametrize(
    "text, match",
    [
        ("{", "must be JSON"),
        ("[1, 2]", "must be an object"),
        ('{"training": {"global_batch_sise": 3}}', "global_batch_sise"),
        ('{"trainings": {}}', "trainings"),
        ('{"training": 3}', "must be an object"),
        ('{"training": {"cls": 1}}', "cls=1"),
        ('{"training": {"global_batch_size": "32"}}', "global_batch_size"),
        ('{"output": {"output_dir": null}}', "output_dir"),
        ('{"training": {"global_batch_size": 0}}', "global_batch_size"),
        pytest.param("[" * 100_000, "must be JSON", id="nested"),
        pytest.param('{"training": {"max_steps": ' + "9" * 5000 + "}}", "must be JSON", id="digits"),
    ],
)
def test_bad_json_is_a_usage_error(text, match):
    with pytest.raises(UsageError, match=match):
        Config.from_json(text)


def test_the_number_of_micro_batches_may_be_left_open():
    config = Config(training=TrainingConfig(gradient_accumulation_steps="auto"))
    assert config.training.is_auto and Config.from_json(config.to_json()) == config
    found = config.accumulating(4)
    assert found.training.gradient_accumulation_steps == 4 and not found.training.is_auto
    assert found.accumulating("auto") == config


def test_what_version_1_did_says_where_it_is_and_its_files_are_read():
    with pytest.raises(UsageError, match="Received: mode='benchmark'. Run python benchmarks/devices.py in a clone"):
        Config(mode="benchmark")
    values = json.loads(Config().to_json()) | {"benchmark": {"benchmark_steps": 50}}
    assert Config.from_json(json.dumps(values)) == Config()


def test_the_mode_is_kept_in_json_and_training_is_the_default():
    config = Config(mode="evaluate", model=SAVED, data=DataConfig(dataset="glue/rte"))
    assert Config.from_json(config.to_json()) == config
    assert json.loads(Config().to_json())["mode"] == "train"
    for text in ('{"mode": "sing"}', '{"mode": 3}', '{"mode": ["train"]}'):
        with pytest.raises(UsageError, match="mode must be one of train, "):
            Config.from_json(text)


def test_every_option_says_which_modes_and_tasks_it_has_an_effect_in():
    fields = {field.name: field.metadata for part in PARTS for field in dataclasses.fields(part)}
    assert all(field["modes"] and set(field["modes"]) <= set(EVERY) for field in fields.values())
    of_pretraining = {field.name for part in (CorpusConfig, PretrainingConfig) for field in dataclasses.fields(part)}
    of_labels = {"label_smoothing", "label_names", "class_weights", "head_bias", "keep_adapter", "long_texts"}
    of_some_tasks = {name for name, field in fields.items() if field["tasks"]}
    assert of_some_tasks == of_labels | {"validation_split", "split_seed"} | of_pretraining
    only_of_corpora = {name for name, field in fields.items() if field["modes"] == ("prepare",)}
    assert only_of_corpora == {field.name for field in dataclasses.fields(CorpusConfig)}
    only = {name for name, field in fields.items() if field["modes"] == ("predict",)}
    assert only == {"text", "text_pair", "input_file", "output_file", "output_format", "id_column", "glue_task"}
    not_in_training = {name for name, field in fields.items() if "train" not in field["modes"]}
    assert not_in_training == only | only_of_corpora | {"export_format", "export_float16"}


def in_mode(mode, **parts):
    """A configuration that breaks no rule of its mode, changed."""
    base = {
        "evaluate": {"data": DataConfig(dataset="glue/rte")},
        "predict": {"predict": PredictConfig(input_file="-")},
        "export": {"output": OutputConfig(output_dir="somewhere")},
    }
    return Config(mode=mode, **({"model": SAVED} | base[mode] | parts))


@pytest.mark.parametrize("name, value", [("input_format", "csv"), ("delimiter", ";"), ("skip_bad_rows", True)])
@pytest.mark.parametrize("mode", ["train", "evaluate", "predict"])
def test_options_of_files_in_every_mode_that_reads_some(mode, name, value, tmp_path):
    path = tmp_path / "a.tsv"
    path.touch()
    predict = PredictConfig(input_file=str(path)) if mode == "predict" else PredictConfig()
    files = {"train": {"train_file": str(path)}, "evaluate": {"validation_file": str(path)}}.get(mode, {})
    data = DataConfig(**files, **{name: value})
    assert getattr(Config(mode=mode, model=SAVED, data=data, predict=predict).data, name) == value
    with pytest.raises(UsageError, match=f"^{name} takes effect with files only. Received: .*Drop --{name}.$"):
        Config(mode=mode, model=SAVED, data=DataConfig(dataset="glue/rte", **{name: value}))
    with pytest.raises(UsageError, match=f"^{name} has no effect with mode=export. Received: .*Drop --{name}.$"):
        in_mode("export", data=DataConfig(**{name: value}))


@pytest.mark.parametrize(
    "given, character", [("", ""), (";", ";"), ("tab", "\t"), ("\\t", "\t"), ("\t", "\t"), ("\u00a6", "\u00a6")]
)
def test_delimiters(given, character):
    assert DataConfig(delimiter=given).separator == character and not DataConfig(delimiter=given).problems()


def test_standard_input_can_be_evaluated():
    data = DataConfig(test_file="-", input_format="tsv")
    assert in_mode("evaluate", data=data).data.source == "standard_input"
    assert DataConfig(test_file="a-b.tsv").source == "a-b.tsv"


LOOP, LOCKED = "loop", "locked"
UNUSABLE = {"~nobody-of-that-name/x": "home directory", "a\0b": "embedded null byte", LOCKED: "Permission denied"}
UNUSABLE |= dict.fromkeys(("x" * 300, "folder/" * 700), "File name too long")
UNUSABLE |= dict.fromkeys((LOOP, f"{LOOP}/x"), "Too many levels of symbolic links")
OF_PATHS = dict.fromkeys(("model_name_or_path", "vocab_file"), ModelConfig)
OF_PATHS |= dict.fromkeys(("data_dir", "train_file", "validation_file", "test_file", "label_names"), DataConfig)
OF_PATHS |= {"train_records": PretrainingConfig, "input_files": CorpusConfig, "output_dir": OutputConfig}
OF_PATHS |= dict.fromkeys(("input_file", "output_file"), PredictConfig)


@pytest.mark.parametrize("path", UNUSABLE, ids=lambda path: repr(path[:20]))
@pytest.mark.parametrize("name", OF_PATHS)
def test_a_path_that_can_be_nobodys_is_one_line(name, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / LOOP).symlink_to(LOOP)
    (tmp_path / LOCKED).mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: pathlib.Path(path).name != LOCKED)  # Root may do everything.
    kind, options = OF_PATHS[name], {"dataset": "glue/sst2"} if name == "data_dir" else {}
    value = (path,) if kind.__dataclass_fields__[name].type.startswith("tuple") else path
    (part,) = (own for own, each in Config.classes().items() if each is kind)
    with pytest.raises(UsageError) as refused:
        Config(**{part: kind(**options, **{name: value})})
    (line,) = [each for each in str(refused.value).splitlines() if each.startswith(f"{name} must be a path")]
    assert UNUSABLE[path] in line and len(line) < 300


def test_paths_that_are_not_there_yet_and_several_with_commas_are_fine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"{letter * 40}.tsv" for letter in "abcdefghij"]  # Together longer than a name may be.
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "of\nlines").mkdir()
    data = DataConfig(train_file=names[0], validation_file=",".join(names), label_names=("x" * 300, "b"))
    config = Config(data=data, model=SCRATCH, output=OutputConfig(output_dir="new/of\nlines/~user"))
    assert config.data.validation_files == tuple(names)
