"""The peers in TensorFlow of benchmarks/tensorflow_peers.py: their batches, their speeds, and the page."""

import argparse
import sys

import numpy as np
import pytest
import tensorflow_peers_page
import tensorflow_updates

from tests.support.processes import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

import keras_jobs  # noqa: E402


def settings(**others):
    values = {"global_batch_size": 4, "seed": 1, "jit_compile": False, "max_seq_length": 40}
    return argparse.Namespace(**values | others)


@pytest.fixture(scope="module")
def rows():
    return [[7] * length for length in np.random.default_rng(0).integers(2, 41, 203)]


def test_pools_have_full_batches_of_like_length(rows):
    batches = keras_jobs.pools(settings(), rows)
    first, second = batches(), batches()
    assert [len(batch) for batch in first] == [4] * 50
    assert len(set(np.concatenate(first).tolist())) == 200
    assert not np.array_equal(first, second)
    assert np.array_equal(first, keras_jobs.pools(settings(), rows)())
    lengths = np.array([len(row) for row in rows])
    spread = np.mean([np.ptp(lengths[batch]) for batch in first])
    assert spread < np.mean([np.ptp(lengths[batch]) for batch in np.arange(200).reshape(-1, 4)]) / 3


@pytest.mark.parametrize("jit_compile", [False, True])
def test_batches_are_padded_to_their_longest_row(rows, jit_compile):
    args, names = settings(jit_compile=jit_compile), ("ids", "mask", "segments")
    batches = keras_jobs.by_length(args, rows)
    assert np.concatenate(batches).shape == (203,) and len(batches[-1]) == 3
    for batch, inputs in zip(batches, keras_jobs.dataset(args, names, rows, lambda: batches), strict=True):
        longest = max(len(rows[row]) for row in batch)
        assert inputs["ids"].shape == (len(batch), min(-(-longest // 16) * 16, 40) if jit_compile else longest)
        assert np.sum(inputs["mask"], axis=1).tolist() == [len(rows[row]) for row in batch]
        assert np.array_equal(inputs["ids"], 7 * inputs["mask"]) and not np.any(inputs["segments"])


def test_the_steady_speed_leaves_the_first_updates_out(monkeypatch):
    monkeypatch.setattr(keras_jobs.time, "perf_counter", lambda: 40.0)
    ends = [10.0 + step for step in range(10)] + [19 + 0.5 * step for step in range(1, 21)]
    found = keras_jobs.speeds(settings(), 5.0, ends)
    assert found == {"global_step": 30, "seconds": 35.0, "rows_per_second": 3.43, "rows_per_second_steady": 8.0}


def side(steady, rows=3200, accuracy=0.8):
    used = {"user_seconds": 9.0, "kernel_seconds": 1.0, "process_seconds": 30.0, "peak_mb": 1500}
    return {
        "rows": rows,
        "predicted": 100,
        "train": {"rows_per_second": steady / 2, "rows_per_second_steady": steady} | used,
        "scores": {"eval_accuracy": accuracy} if accuracy else None,
        "predict": {"examples_per_second": 2 * steady} | used,
    }


def test_the_page_compares_steady_rates_and_names_the_best_peer():
    runs = {
        "tfbert": {"42": side(120.0), "43": side(100.0)},
        "transformers-pools": {"42": side(60.0), "43": side(40.0)},
        "transformers-padded": {"42": side(10.0, rows=640, accuracy=None)},
    }
    text = "\n".join(tensorflow_peers_page.paragraphs(runs))
    assert "| transformers-pools | 42 | 3,200 | 30.0 | 60.0 | 2.00 | 0.800 | 9, 1 | 30 | 1,500 |" in text
    assert "| transformers-padded | 42 | 640 | 5.0 | 10.0 | 12.00 | - | 9, 1 | 30 | 1,500 |" in text
    assert "**transformers-pools**: tfbert is **2.25** times as fast" in text
    alone = tensorflow_peers_page.paragraphs({"transformers-pools": runs["transformers-pools"]})
    assert "**" not in "\n".join(alone[1:])


def test_a_raised_message_has_no_stack_and_no_path():
    error = (
        "InvalidArgumentError: Graph execution error:\n\nDetected at node X defined at (most recent call last):\n"
        '  File "/home/me/x.py", line 1, in main\n\nTrying to access resource bert_3/a/12 (defined @ /home/me/y.py:1) '
        "located in device CPU:1\n Cf. https://x\n\t [[{{node X}}]]"
    )
    found = "InvalidArgumentError: Graph execution error: Trying to access resource ... located in device CPU:1"
    raised: list[str] = []
    said = [tensorflow_updates.said(each, raised) for each in (error, 2e-7, error, None)]
    assert said == ["raises (1)", "2e-07", "raises (1)", ""] and raised == [found]
