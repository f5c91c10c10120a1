"""Durations as updates, and the shapes of a run's batches: how many, how wide, what is compiled."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.batches import config_of, lengths_like_sst2
from tests.support.processes import command
from tests.support.runs import TOKENS, WORDS
from tfbert.batches.plan import FILL, plan_epoch
from tfbert.batches.schedule import plan_run, training_batches


def batches_of(config, lengths, *, first_step=0, replicas=1):
    schedule = dataclasses.replace(plan_run(config, len(lengths)), first_step=first_step)
    return schedule, training_batches(config, lengths, schedule, num_replicas=replicas)


@pytest.mark.parametrize(
    "examples, epochs, max_steps, expected",
    [
        (100, 2.0, 0, (7, 14, 7)),
        (96, 0.5, 0, (6, 3, 6)),
        (100, 2.0, 5, (7, 5, 7)),
        (100, None, 50, (7, 50, 7)),
        (100, None, 0, (7, 21, 7)),
        (1, 1.0, 0, (1, 1, 1)),
    ],
)
def test_durations_are_converted_into_updates(examples, epochs, max_steps, expected):
    schedule = plan_run(config_of(epochs=epochs, max_steps=max_steps), examples)
    assert (schedule.steps_per_epoch, schedule.total_steps, schedule.eval_steps) == expected


@pytest.mark.parametrize("batching", ["length_grouped", "padded", "packed"])
def test_plans_take_up_where_a_run_stopped(batching):
    lengths, config = lengths_like_sst2(100), config_of(batching, epochs=3.0)
    _, whole = batches_of(config, lengths)
    _, rest = batches_of(config, lengths, first_step=9)
    rows = np.concatenate([plan.rows for plan in whole.plans()])
    assert len(rows) == 21
    np.testing.assert_array_equal(np.concatenate([plan.rows for plan in rest.plans()]), rows[9:])
    assert rest.shape == whole.shape and rest.description == whole.description


@pytest.mark.parametrize("shapes", [1, 2, 6, 100])
def test_xla_gets_few_widths_that_are_the_best_for_the_first_epoch(shapes):
    lengths = lengths_like_sst2(16 * 40 + 5)
    _, batches = batches_of(config_of(xla=True, shapes=shapes), lengths)
    first, second = batches.plans()
    used = set(first.widths.tolist()) | set(second.widths.tolist())
    assert len(used) <= shapes
    options = {"global_batch_size": 16, "seed": 42, "epoch": 0, "group_by_length": True}
    exact = plan_epoch(lengths, **options, allowed_widths=np.arange(1, max(lengths) + 1)).widths
    assert (first.widths >= exact).all()
    if shapes <= 2:
        options = itertools.combinations(sorted(set(exact.tolist())), shapes)
        options = [option for option in options if option[-1] == lengths.max()]
        sums = [sum(min(w for w in option if w >= width) for width in exact.tolist()) for option in options]
        assert first.widths.sum() == min(sums)


def test_the_description_says_which_widths_and_what_they_cost():
    lengths = lengths_like_sst2()
    _, batches = batches_of(config_of(xla=True, shapes=3), lengths)
    widths = sorted({int(w) for plan in batches.plans() for w in plan.widths})
    first = next(batches.plans())
    share = lengths.sum() / (first.widths.sum() * 16)
    assert f"XLA compiles 3 widths, {', '.join(map(str, widths))}: {share:.1%} real tokens (" in batches.description
    _, exact = batches_of(config_of(), lengths)
    share = exact.description.removeprefix("length grouped: ").split()[0]
    assert batches.description.endswith(f"({share} without that limit)")
    _, padded = batches_of(config_of("padded"), lengths)
    assert padded.description == f"padded to 128: {lengths.mean() / 128:.1%} real tokens"


@pytest.mark.parametrize("batching", ["length_grouped", "padded", "packed"])
@pytest.mark.parametrize("replicas, accumulation, rows", [(1, 1, 121), (2, 1, 122), (2, 4, 128), (1, 1000, 1000)])
def test_rows_that_only_fill_are_bounded_by_the_split(batching, replicas, accumulation, rows):
    """A batch of 100,000 over 121 examples took memory for 100,000."""
    lengths = lengths_like_sst2(121)
    config = config_of(batching, batch=100_000, accumulation=accumulation)
    schedule, batches = batches_of(config, lengths, replicas=replicas)
    assert (schedule.total_steps, batches.rows) == (2, rows)
    for plan in batches.plans():
        assert plan.rows.shape == (1, rows)
        assert sorted(plan.rows[plan.rows != FILL]) == list(range(121))
        if batching == "packed":
            assert plan.shape.num_examples * plan.shape.num_parts == rows


@pytest.mark.parametrize("batching, xla", [("length_grouped", False), ("length_grouped", True), ("padded", False)])
def test_the_largest_batch_is_the_widest(batching, xla):
    lengths = lengths_like_sst2(300)
    _, batches = batches_of(config_of(batching, xla=xla), lengths)
    assert len(batches.largest) == 1
    assert batches.largest.widths[0] == max(plan.widths.max() for plan in batches.plans())


@pytest.mark.parametrize("parts", [1, 4])
def test_packed_batches_of_all_epochs_have_one_shape(parts):
    lengths = lengths_like_sst2(300)
    replicas = max(1, parts // 2)
    config = config_of("packed", epochs=5.0, accumulation=parts // replicas)
    _, batches = batches_of(config, lengths, replicas=replicas)
    shape = batches.shape
    plans = list(batches.plans())
    assert len(plans) == 5 and all(plan.shape == shape for plan in plans)
    share = lengths.sum() / (len(plans[0]) * parts * shape.num_rows * shape.width)
    assert f"in {shape.num_rows} row" in batches.description and f"{share:.1%} real tokens" in batches.description
    assert len(batches.largest) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags, expected",
    [
        (("--max_compiled_shapes=2",), 2),
        ((), 6),
        (("--batching=packed", "--gradient_accumulation_steps=2"), 1),
        (("--batching=padded",), 1),
    ],
)
def test_a_whole_run_compiles_no_more_shapes_than_allowed(tmp_path, monkeypatch, flags, expected):
    """XLA writes down each program it compiles: two epochs, with evaluation after each and a short last batch."""
    rng = np.random.default_rng(0)
    for name, rows in (("train.tsv", 8 * 12 + 3), ("dev.tsv", 40)):
        lines = [f"{i % 2}\t{' '.join(rng.choice(WORDS, rng.integers(2, 30)))}" for i in range(rows)]
        (tmp_path / name).write_text("\n".join(["label\tsentence", *lines]) + "\n")
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path / 'dump'} --xla_dump_hlo_as_text")
    files = ["--vocab_file=vocab.txt", "--train_file=train.tsv", "--validation_file=dev.tsv", "--output_dir=out"]
    sizes = ["--global_batch_size=8", "--num_train_epochs=2"]
    done = command(tmp_path, "--model=scratch/tiny", "--xla", *files, *sizes, *flags)
    assert done.returncode == 0, done.stderr
    dumped = tmp_path.glob("dump/module_*before_optimizations.txt")
    programs = collections.Counter(path.name.split(".")[1] for path in dumped)
    passes = {name: count for name, count in programs.items() if "accumulate" in name}
    assert sum(passes.values()) == expected, programs
    # Besides them the update, once for each shape of variable, decayed or not; evaluation compiles nothing.
    saved = load_file(tmp_path / "out" / "model.safetensors")
    saved["classifier.weight"] = saved["classifier.weight"].T  # As TensorFlow has it.
    kinds = {(value.shape, name.endswith("bias") or "LayerNorm" in name) for name, value in saved.items()}
    assert sum(programs.values()) - sum(passes.values()) == len(kinds), programs
