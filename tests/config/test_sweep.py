"""`--sweep`: the grid that a text means, and what cannot be one, before anything runs."""

import dataclasses

import pytest

from tfbert.config.parts import HubConfig, OutputConfig, RuntimeConfig
from tfbert.config.run import Config
from tfbert.config.sweep import Point, points_of, shown, sweep_text
from tfbert.config.training import TrainingConfig
from tfbert.errors import UsageError, in_command


def config_with(text, **parts):
    runtime = dataclasses.replace(parts.pop("runtime", RuntimeConfig()), sweep=text)
    return Config(runtime=runtime, **parts)


def test_a_grid_has_each_combination_once():
    config = config_with("learning_rate=1e-5,3e-5;global_batch_size=16,32", output=OutputConfig(output_dir="out"))
    points = points_of(config)
    assert [point.label for point in points] == [
        "global_batch_size=16, learning_rate=1e-05",
        "global_batch_size=16, learning_rate=3e-05",
        "global_batch_size=32, learning_rate=1e-05",
        "global_batch_size=32, learning_rate=3e-05",
    ]
    for point in points:
        training = dataclasses.replace(config.training, **point.values)
        runtime = dataclasses.replace(config.runtime, sweep="")
        assert point.config == dataclasses.replace(config, training=training, runtime=runtime)


def test_another_spelling_is_the_same_sweep():
    one = points_of(config_with("learning_rate=1e-5;global_batch_size=16; xla=on,off;"))
    other = points_of(config_with(" xla = true , false ;--global_batch_size=16;learning_rate=0.00001"))
    assert [point.directory for point in one] == [point.directory for point in other]
    assert one[0].directory == "global_batch_size=16,learning_rate=1e-05,xla=true"


def test_names_of_directories_tell_all_values_apart():
    values = ["bert-base-cased", "google/bert", "google_bert", "a,b", "a b", "ü", "x" * 300, "x" * 301, "..", "a=b"]
    names = [Point({"model_name_or_path": value}, None).directory for value in values]
    assert len({*names}) == len(names) and all(len(name) < 255 and "/" not in name for name in names)
    assert names[:2] == ["model_name_or_path=bert-base-cased", "model_name_or_path=google%2Fbert"]


@pytest.mark.parametrize("value", [1e-5, 0.1, 1 / 3, 5, True, False, "auto", "a b", 1e22, 3.0])
def test_a_value_comes_back_as_it_was(value):
    name = {float: "learning_rate", int: "global_batch_size", bool: "xla", str: "model_name_or_path"}[type(value)]
    with_it = points_of(config_with(sweep_text({name: [value]}))) if value != "auto" else []
    assert all(point.values == {name: value} for point in with_it)
    assert shown(True) == "true" and shown(1e-5) == "1e-05" and float(shown(1 / 3)) == 1 / 3


def test_values_may_hold_what_separates_them():
    names = ["a,b.tsv", 'say "x";.tsv', " plain.tsv"]
    points = points_of(config_with(sweep_text({"model_name_or_path": names})))
    assert [point.values["model_name_or_path"] for point in points] == names


def test_what_the_runs_need_is_asked_of_the_runs():
    """The configuration itself lacks what is varied."""
    training = TrainingConfig(lr_power=0.5)
    with pytest.raises(UsageError, match="lr_power takes effect with"):
        Config(training=training)
    (point,) = points_of(config_with("lr_schedule=polynomial", training=training))
    assert point.config.training.lr_schedule == "polynomial"
    with pytest.raises(UsageError, match="lr_power takes effect with lr_schedule=polynomial only"):
        config_with("lr_schedule=polynomial,linear", training=training)


@pytest.mark.parametrize(
    "text, answer",
    [
        ("lerning_rate=1", "by their names. Received: sweep='lerning_rate=1'. Did you mean learning_rate?"),
        ("lr=1,2", "Did you mean learning_rate?"),
        ("batch_size=1", "Did you mean global_batch_size"),
        ("mode=train,evaluate", "by their names"),
        ("output_dir=a,b", "cannot vary output_dir.*a directory of its own"),
        ("seed=1,2", "cannot vary seed.*--seeds=1,2,3"),
        ("seeds=1", "cannot vary seeds"),
        ("sweep=1", "cannot vary sweep"),
        ("resume=never", "cannot vary resume"),
        ("strategy=mirrored", "cannot vary strategy"),
        ("metric_for_best_model=f1", "cannot vary metric_for_best_model"),
        ("input_file=a", "cannot vary input_file"),
        ("text_column=a", "cannot vary text_column, which takes a list"),
        ("learning_rate", "NAME=VALUE,VALUE"),
        ("learning_rate=", "has values. Received: .* an empty one"),
        ("learning_rate=1e-5,,3e-5", "an empty one"),
        (";", "varies at least one option"),
        ("learning_rate=1e-5,0.00001", "has one run. Received: learning_rate=1e-05 twice"),
        ("xla=true,yes", "xla=true twice"),
        ("learning_rate=1e-5;learning_rate=2e-5", "names each option once"),
        ("model=a;model_name_or_path=b", "names each option once"),
        ("learning_rate=fast", "learning_rate must be a number. Received: 'fast'"),
        ("global_batch_size=1.5", "global_batch_size must be an integer. Received: '1.5'"),
        ("xla=maybe", "xla must be true or false"),
        ("lr_schedule=linear,square", "lr_schedule must be one of .*linear.* Received: 'square'"),
        ("gradient_accumulation_steps=auto,many", "an integer or auto"),
        ("global_batch_size=16,0", "global_batch_size must be 1 or more. Received: global_batch_size=0"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_a_line(text, answer):
    with in_command(), pytest.raises(UsageError, match=answer) as caught:
        config_with(text)
    with in_command():
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "parts, message",
    [
        ({"training": TrainingConfig(learning_rate=1e-3)}, "takes the place of learning_rate"),
        ({"hub": HubConfig(push_to_hub=True)}, "An upload is one model, but a sweep"),
        ({"runtime": RuntimeConfig(strategy="multi_worker")}, "the same output directory"),
        ({"runtime": RuntimeConfig(seeds=(1, 1))}, "Each seed trains once"),
        ({"mode": "evaluate"}, "sweep has no effect with mode=evaluate"),
    ],
)
def test_what_does_not_go_with_a_sweep(parts, message):
    with pytest.raises(UsageError, match=message):
        config_with("learning_rate=1e-5,3e-5", **parts)
