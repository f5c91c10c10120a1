"""`--sweep`: the grid that a text means, and what cannot be one, before anything runs."""

import pytest

from tests.support.flag_values import configured
from tests.support.refusals import refused
from tfbert.config.run import Point, points_of, shown, sweep_text


def test_a_grid_has_each_combination_once():
    config = configured(sweep="learning_rate=1e-5,3e-5;global_batch_size=16,32", output_dir="out")
    points = points_of(config)
    assert [point.label for point in points] == [
        "global_batch_size=16, learning_rate=1e-05",
        "global_batch_size=16, learning_rate=3e-05",
        "global_batch_size=32, learning_rate=1e-05",
        "global_batch_size=32, learning_rate=3e-05",
    ]
    for point in points:
        assert point.config == configured(output_dir="out", **point.values)


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
