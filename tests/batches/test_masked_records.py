"""Batches of records against what was written, a row at a time; the same masks however batches are split."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.support.batches import config_of, packed_plan
from tests.support.records import CLS, MASK, PAD, SEP, VOCAB_SIZE, some_records, write_records
from tfbert.batches.pipeline import EVALUATION_SEED, MaskedRecords, make_dataset
from tfbert.batches.plan import FILL, plan_pools
from tfbert.batches.schedule import plan_run, planned_steps, training_batches
from tfbert.corpus.masking import Masking
from tfbert.corpus.records import open_records
from tfbert.errors import RunError, UsageError

COUNT, WIDTH = 45, 64


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of records, and what was written there."""
    directory = tmp_path_factory.mktemp("records")
    written = some_records(COUNT, seq_length=WIDTH)
    for number, part in enumerate((written[:20], written[20:])):
        write_records(directory / str(number), part, seq_length=WIDTH, num_masked=10)
    return directory, written


def masking_of(**changed):
    special, drawn = np.isin(np.arange(VOCAB_SIZE), (PAD, CLS, SEP)), np.arange(VOCAB_SIZE)
    values = {"mask_id": MASK, "is_special": special, "drawn_ids": drawn, "word_marks": None}
    return Masking(**values | {"masked_lm_prob": 0.15, "max_predictions_per_seq": 9} | changed)


def examples_of(directory, *, is_static=False, seed=7, has_next_sentence=True, **changed):
    masking = None if is_static else masking_of(**changed)
    records = open_records([str(directory)])
    return MaskedRecords(records=records, masking=masking, seed=seed, has_next_sentence=has_next_sentence)


def plans_of(examples, epochs=1, batch=4, grouped=True, first_batch=0):
    options = {"global_batch_size": batch, "seed": 3, "group_by_length": grouped, "first_batch": first_batch}
    for epoch in range(epochs):
        yield from plan_pools(examples.lengths, **options, epoch=epoch, allowed_widths=np.arange(1, WIDTH + 1))


def read(examples, plans, replicas=range(1), num_replicas=1, shape=None):
    return list(make_dataset(examples, lambda: iter(plans), replicas, num_replicas, shape=shape).as_numpy_iterator())


def check_row(written, inputs, labels, weights, masked):
    """One record of a batch: `inputs` are its tokens alone, `masked` how many are to be predicted."""
    ids = np.array(written.ids)
    real = weights["masked_lm"] > 0
    positions = inputs["masked_lm_positions"][real]
    np.testing.assert_array_equal(labels["masked_lm"][real], ids[positions])
    assert real.sum() == masked and (np.diff(positions) > 0).all() and not np.isin(ids[positions], (CLS, SEP)).any()
    untouched = np.setdiff1d(np.arange(len(ids)), positions)
    np.testing.assert_array_equal(inputs["input_ids"][untouched], ids[untouched])
    np.testing.assert_array_equal(inputs["token_type_ids"], np.arange(len(ids)) >= written.second_start)
    assert labels["next_sentence"] == written.next_sentence and weights["next_sentence"] == 1
    for values in (labels["masked_lm"], inputs["masked_lm_positions"]):
        assert not values[~real].any()


@pytest.mark.parametrize("is_static", [False, True])
def test_batches_hold_what_was_written_and_masked(files, is_static):
    directory, written = files
    examples = examples_of(directory, is_static=is_static)
    plans = list(plans_of(examples))
    rows = np.concatenate([plan.rows for plan in plans])
    widths = np.concatenate([plan.widths for plan in plans])
    batches = read(examples, plans)
    assert len(batches) == len(rows) == 12
    masks = 0
    for (inputs, labels, weights), batch, width in zip(batches, rows, widths, strict=True):
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            assert inputs[name].dtype == np.int32 and inputs[name].shape == (4, width)
        room = 16 if is_static or round(0.15 * width) > 8 else 8
        assert inputs["masked_lm_positions"].shape == weights["masked_lm"].shape == (4, room)
        assert labels["masked_lm"].dtype == labels["next_sentence"].dtype == np.int32
        assert weights["masked_lm"].dtype == weights["next_sentence"].dtype == np.float32
        for at, row in enumerate(batch):
            own = [{name: part[at] for name, part in values.items()} for values in (inputs, labels, weights)]
            if row == FILL:
                assert own[0]["attention_mask"].tolist() == [1] + [0] * (width - 1)
                assert not own[2]["masked_lm"].any() and not own[2]["next_sentence"]
                assert not own[0]["input_ids"].any() and not own[0]["masked_lm_positions"].any()
                continue
            length = len(written[row].ids)
            assert own[0]["attention_mask"].sum() == own[0]["attention_mask"][:length].sum() == length
            assert not own[0]["input_ids"][length:].any() and not own[0]["token_type_ids"][length:].any()
            own[0] |= {name: own[0][name][:length] for name in ("input_ids", "token_type_ids")}
            check_row(written[row], *own, 2 if is_static else min(9, max(1, round(0.15 * length))))
            masks += int((own[0]["input_ids"] == MASK).sum())
    assert masks > COUNT


def by_record(examples, plans):
    """What each record is made into, by number: its ids, and the labels at their positions."""
    found = {}
    rows_of = np.concatenate([plan.rows for plan in plans])
    for (inputs, labels, weights), rows in zip(read(examples, plans), rows_of, strict=True):
        for at, row in enumerate(rows):
            length, real = inputs["attention_mask"][at].sum(), weights["masked_lm"][at] > 0
            parts = inputs["input_ids"][at][:length], inputs["masked_lm_positions"][at][real]
            found[int(row)] = *(part.tolist() for part in parts), labels["masked_lm"][at][real].tolist()
    found.pop(FILL, None)
    return found


def test_masks_are_a_function_of_seed_epoch_and_record(files):
    examples = examples_of(files[0])
    epochs = [list(plan) for plan in ([p for p in plans_of(examples, 2) if p.epoch == e] for e in range(2))]
    first, second = (by_record(examples, plans) for plans in epochs)
    assert first.keys() == second.keys() == set(range(COUNT))
    # Neither on the batch nor on its width.
    assert first == by_record(examples, list(plans_of(examples, batch=9, grouped=False)))
    assert sum(first[row] == second[row] for row in first) < COUNT / 5, "short records of one masked word may agree"
    other = by_record(examples_of(files[0], seed=8), epochs[0])
    assert sum(first[row] == other[row] for row in first) < COUNT / 5
    part = dataclasses.replace(examples, records=examples.records.take(range(30, 45)))
    found = by_record(part, list(plans_of(part)))
    assert {row + 30: value for row, value in found.items()} == {row: first[row] for row in range(30, 45)}


def test_packed_rows_hold_the_same_records(files):
    directory, written = files
    examples = examples_of(directory)
    lengths = np.asarray(examples.lengths)
    plan = packed_plan(lengths, 8, 2, seed=3, epoch=1, max_width=WIDTH)
    shape = plan.shape
    alone = by_record(examples, [p for p in plans_of(examples, 2) if p.epoch == 1])
    seen = []
    batches = read(examples, [plan], shape=shape)
    for (inputs, labels, weights), rows, starts in zip(batches, plan.rows, plan.starts, strict=True):
        assert inputs["input_ids"].shape == inputs["example_ids"].shape == (2 * shape.num_rows, shape.width)
        assert inputs["masked_lm_positions"].shape == labels["masked_lm"].shape == (8, 16)
        np.testing.assert_array_equal(inputs["cls_positions"], starts)
        assert (inputs["example_ids"] > 0).sum() == lengths[rows[rows != FILL]].sum()
        for at, row in enumerate(rows):
            part, real = at // 4, weights["masked_lm"][at] > 0
            if row == FILL:
                assert not real.any() and not weights["next_sentence"][at]
                assert not inputs["masked_lm_positions"][at].any()
                continue
            in_part = slice(part * shape.num_rows, (part + 1) * shape.num_rows)
            flat = {name: inputs[name][in_part].reshape(-1) for name in ("input_ids", "example_ids", "position_ids")}
            own = slice(starts[at], starts[at] + lengths[row])
            np.testing.assert_array_equal(flat["example_ids"][own], at % 4 + 1)
            np.testing.assert_array_equal(flat["position_ids"][own], np.arange(lengths[row]))
            segments = inputs["token_type_ids"][in_part].reshape(-1)[own]
            np.testing.assert_array_equal(segments, np.arange(lengths[row]) >= written[row].second_start)
            positions = inputs["masked_lm_positions"][at]
            assert not positions[~real].any()
            assert labels["next_sentence"][at] == written[row].next_sentence
            ids, places, words = alone[int(row)]
            assert flat["input_ids"][own].tolist() == ids
            assert (positions[real] - starts[at]).tolist() == places
            assert labels["masked_lm"][at][real].tolist() == words
            seen.append(int(row))
    assert sorted(seen) == list(range(COUNT))


def test_without_next_sentence_batches_say_nothing_of_it(files):
    examples = examples_of(files[0], has_next_sentence=False)
    for _, labels, weights in read(examples, list(plans_of(examples))):
        assert set(labels) == set(weights) == {"masked_lm"}
    assert next(examples.chunks()).next_sentence is None


def test_evaluation_masks_the_same_way_always_in_chunks(files):
    directory, written = files
    whole, found = examples_of(directory, seed=EVALUATION_SEED), []
    part = dataclasses.replace(whole, records=whole.records.take(range(45)))
    for size, examples in ((45, whole), (8, whole), (8, part)):
        chunks = list(examples.chunks(size))
        assert [len(chunk.tokens) for chunk in chunks] == [size] * (45 // size) + [45 % size] * bool(45 % size)
        flat = np.concatenate([chunk.tokens.flat for chunk in chunks])
        names = ("positions", "labels", "weights", "next_sentence")
        found.append([flat, *(np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in names)])
    for other in found[1:]:
        tf.nest.map_structure(np.testing.assert_array_equal, other, found[0])
    flat, positions, labels, weights, next_sentence = found[0]
    assert next_sentence.tolist() == [record.next_sentence for record in written]
    start = 0
    for at, record in enumerate(written):
        ids, real = flat[start : start + len(record.ids)].copy(), weights[at] > 0
        assert (ids != record.ids).sum() <= real.sum()
        ids[positions[at, real]] = labels[at, real]
        assert ids.tolist() == record.ids
        start += len(ids)


@pytest.mark.parametrize("batching, xla", [("length_grouped", False), ("length_grouped", True), ("padded", False)])
def test_a_run_plans_records_pool_by_pool(files, batching, xla):
    examples = examples_of(files[0])
    config = config_of(batching, xla=xla, shapes=2 if xla else 6, batch=1, max_seq_length=WIDTH)
    schedule = plan_run(config, len(examples))
    batches = training_batches(config, examples.lengths, schedule, num_replicas=1)
    plans = list(batches.plans())
    assert sum(map(len, plans)) == schedule.total_steps == 2 * COUNT
    assert {plan.epoch for plan in plans} == {0, 1}
    widths = np.concatenate([plan.widths for plan in plans])
    assert len(set(widths.tolist())) <= (2 if xla else 60)
    longest = int(np.asarray(examples.lengths).max())
    expected = WIDTH if batching == "padded" else longest
    assert widths.max() == batches.largest.widths[0] == expected and len(batches.largest) == 1
    steps = list(planned_steps(iter(plans), examples.lengths))
    assert sum(work.tokens for work, _ in steps) == 2 * examples.lengths.sum()
    assert "real tokens" in batches.description


def test_packing_is_refused_where_there_is_too_much_to_plan(files, monkeypatch):
    examples, config = examples_of(files[0]), config_of("packed", batch=4, accumulation=2, max_seq_length=WIDTH)
    schedule = plan_run(config, len(examples))
    batches = training_batches(config, examples.lengths, schedule, num_replicas=1)
    assert sum(map(len, batches.plans())) == schedule.total_steps and batches.shape.num_parts == 2
    assert {plan.epoch for plan in batches.plans()} == {0, 1}
    monkeypatch.setattr("tfbert.batches.schedule._MOST_PACKED", 89)
    with pytest.raises(UsageError, match="batching='packed' with 45 records and 2 epochs"):
        training_batches(config, examples.lengths, schedule, num_replicas=1)


def test_a_pipeline_that_cannot_read_says_why(tmp_path):
    path = write_records(tmp_path / "x", some_records(9, seq_length=WIDTH), seq_length=WIDTH)
    examples = examples_of(path)
    path.write_bytes(path.read_bytes()[:300])
    examples.check_read()
    with pytest.raises(tf.errors.OpError):
        read(examples, list(plans_of(examples)))
    with pytest.raises(RunError, match=r"x', the record at byte [\d,]+ \(it is not there any more\)"):
        examples.check_read()
