"""A grid: its rows, a row that fails, the numbers of the table, and going on after an interruption."""

import csv
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.test_checkpoint import corpus  # noqa: F401 (a fixture)
from tfbert.benchmark import measured as numbers_of
from tfbert.benchmark import pages
from tfbert.benchmark.grid import build_rows
from tfbert.benchmark.runner import _prepare, run_benchmark
from tfbert.benchmark_config import BenchmarkConfig
from tfbert.config import Config, DataConfig, ModelConfig, OutputConfig, RuntimeConfig, TrainingConfig
from tfbert.errors import UsageError

ROOT = pathlib.Path(__file__).parent.parent


def grid(**benchmark):
    return Config(mode="benchmark", benchmark=BenchmarkConfig(**benchmark))


def test_rows_are_every_combination_the_last_axis_fastest(tmp_path):
    config = grid(
        benchmark_passes=("training", "inference"),
        benchmark_precisions=("float32", "bfloat16"),
        benchmark_xla=("off", "on"),
        benchmark_batch_sizes=(8, 16),
    )
    rows = build_rows(config, tmp_path)
    training = [row for row in rows if row.measured == "training"]
    points = [(r.settings["precision"], r.settings["xla"], r.settings["batch_size"]) for r in training]
    expected = [(p, x, b) for p in ("float32", "bfloat16") for x in (False, True) for b in (8, 16)]
    assert points == expected
    # XLA tells no inference rows apart.
    assert len(rows) - len(training) == 4
    for row in training:
        run = row.config
        assert run.mode == "train" and run.benchmark == BenchmarkConfig()
        assert run.training.global_batch_size == row.settings["batch_size"]
        assert run.runtime.mixed_precision == (row.settings["precision"] != "float32")
        assert run.training.max_steps == 60 and run.output.logging_steps == 10
    assert [row.config.runtime.per_device_eval_batch_size for row in rows if row.measured == "inference"] == [8, 16] * 2
    assert [row.number for row in rows] == list(range(1, 13))


def test_rows_without_xla_leave_out_what_is_for_xla(tmp_path):
    benchmark = BenchmarkConfig(benchmark_passes=("training", "inference"), benchmark_batching=("packed",))
    config = Config(mode="benchmark", benchmark=benchmark, runtime=RuntimeConfig(xla=True, max_compiled_shapes=3))
    rows = build_rows(config, tmp_path)
    assert [(row.reason, row.config.runtime.max_compiled_shapes) for row in rows] == [("", 3), ("", 6)]
    assert rows[0].config.data.batching == "packed"


def test_replicas_and_workers_choose_the_strategy(tmp_path):
    rows = build_rows(grid(benchmark_replicas=(1, 2)), tmp_path)
    assert [(r.config.runtime.strategy, r.config.runtime.num_replicas) for r in rows] == [
        ("one_device", 0),
        ("mirrored", 2),
    ]
    rows = build_rows(grid(benchmark_workers=(1, 2)), tmp_path)
    assert [(r.config.runtime.strategy, r.num_workers) for r in rows] == [("one_device", 1), ("multi_worker", 2)]


@pytest.mark.parametrize(
    "parts, match",
    [
        ({"benchmark": {"benchmark_batch_sizes": (8,)}, "training": {"global_batch_size": 4}}, "takes the place of"),
        ({"benchmark": {"benchmark_xla": ("off",)}, "runtime": {"xla": True}}, "takes the place of xla"),
        ({"benchmark": {"benchmark_precisions": ("float8",)}}, "float32, float16, bfloat16"),
        ({"benchmark": {"benchmark_batch_sizes": (0,)}}, "benchmark_batch_sizes must be 1"),
        ({"benchmark": {"benchmark_batch_sizes": (8, 8)}}, "Name each once"),
        ({"benchmark": {"benchmark_workers": (2,), "benchmark_replicas": (2,)}}, "workers or over replicas"),
        ({"benchmark": {"benchmark_passes": ("inference",), "price_per_hour": 1.0}}, "concerns training rows"),
        ({"training": {"max_steps": 5}}, "accuracy and cost only"),
        ({"runtime": {"strategy": "multi_worker"}}, "starts its own workers"),
    ],
)
def test_options_that_do_not_fit(parts, match):
    classes = {"benchmark": BenchmarkConfig, "training": TrainingConfig, "runtime": RuntimeConfig}
    with pytest.raises(UsageError, match=match):
        Config(mode="benchmark", **{name: classes[name](**values) for name, values in parts.items()})


def test_benchmark_options_are_refused_in_training():
    with pytest.raises(UsageError, match="price_per_hour has no effect with mode=train"):
        Config(benchmark=BenchmarkConfig(price_per_hour=2.0))


def done(number, speed, replicas=1, measured="training"):
    row = {
        "row": number,
        "pass": measured,
        "status": "done",
        "workers": 1,
        "replicas": replicas,
        "precision": "float32",
    }
    return row | {"examples_per_second": speed, "step_ms_p50": 1.0, "xla": False, "batch_size": 8, "micro_batches": 1}


def test_comparisons_are_numpys_and_skip_failed_rows():
    speeds, replicas = np.array([50.0, 80.0, 190.0]), np.array([1, 2, 4])
    rows = [done(i + 2, s, int(r)) for i, (s, r) in enumerate(zip(speeds, replicas, strict=True))]
    failed = {"row": 1, "pass": "training", "status": "failed", "reason": "out of memory", "workers": 1, "replicas": 1}
    out = numbers_of.compared([failed, *rows, done(5, 300.0, measured="inference")])
    assert "speed_up" not in out[0]
    np.testing.assert_allclose([row["speed_up"] for row in out[1:4]], speeds / 50)
    np.testing.assert_allclose([row["efficiency"] for row in out[1:4]], speeds / 50 / replicas)
    assert out[4]["speed_up"] == 1.0
    names, body = pages.cells(out)
    assert body[0][names.index("reason")] == "out of memory"
    assert body[0][names.index("examples/s")] == "–"


@pytest.mark.parametrize(
    "status, stderr, reason",
    [
        (1, "Traceback\ntensorflow...ResourceExhaustedError: OOM when allocating\n", "out of memory"),
        (-9, "step 1\n", "killed by the system, most likely for lack of memory"),
        (2, "hello\nerror: The rule. Received: x.\nbye\n", "exit status 2: error: The rule. Received: x."),
        (3, "", "exit status 3: no message"),
    ],
)
def test_reasons_of_failures(status, stderr, reason):
    assert numbers_of.failure_reason(status, stderr) == reason


def test_a_directory_with_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    config = dataclasses.replace(grid(), output=OutputConfig(output_dir=str(tmp_path)))
    with pytest.raises(UsageError, match="must be new, or hold the same benchmark"):
        _prepare(tmp_path, config)


def tiny_grid(corpus, **benchmark):  # noqa: F811
    return Config(
        mode="benchmark",
        model=ModelConfig(model_name_or_path="scratch/tiny", vocab_file=str(corpus / "vocab.txt")),
        data=DataConfig(
            train_file=str(corpus / "train.tsv"), validation_file=str(corpus / "dev.tsv"), max_seq_length=16
        ),
        training=TrainingConfig(num_train_epochs=2),
        runtime=RuntimeConfig(device="cpu"),
        output=OutputConfig(output_dir=str(corpus / "grid")),
        benchmark=BenchmarkConfig(benchmark_steps=4, benchmark_warmup_steps=2, **benchmark),
    )


@pytest.mark.slow
def test_a_row_that_fails_does_not_stop_the_grid(corpus, monkeypatch):  # noqa: F811
    config = tiny_grid(corpus, benchmark_accumulation=(3, 2), price_per_hour=36.0)  # 32 does not split in 3.
    rows = run_benchmark(config)
    assert [row["status"] for row in rows] == ["failed", "done"]
    assert "global_batch_size must be a multiple of" in rows[0]["reason"]
    out = corpus / "grid"
    results = json.loads((out / "rows" / "002" / "all_results.json").read_text())
    row = rows[1]
    assert row["examples_per_second"] == results["train_examples_per_second_steady"]
    assert row["step_ms_p50"] == pytest.approx(1000 * results["step_seconds_p50"])
    share = results["train_model_gflops_per_second"] * 1e9 / row["peak_flops"]
    assert row["peak_share"] == pytest.approx(share, abs=1e-4) and 0 < share < 1
    assert row["speed_up"] == row["efficiency"] == 1.0
    # 36 an hour is 1 for 100 seconds.
    seconds = 2 * 44 / row["examples_per_second"] + row["compile_seconds"]
    assert row["cost"] == pytest.approx(seconds / 100, abs=1e-3)
    assert row["peak_memory_bytes"] > 2**20

    table = list(csv.DictReader((out / "benchmark.csv").open()))
    assert [float(r["examples_per_second"] or 0) for r in table] == [0.0, row["examples_per_second"]]
    assert json.loads((out / "benchmark.json").read_text())["rows"] == rows
    assert (out / "benchmark.md").read_text().count("\n| ") == 4
    assert (out / "benchmark.html").read_text().count("<svg") == len(list((out / "plots").glob("*.svg"))) == 4
    assert not list(out.rglob("*.safetensors"))

    started = []
    monkeypatch.setattr("tfbert.benchmark.runner._run", lambda command, log: started.append(log) or log.touch() or 2)
    again = run_benchmark(config)
    assert [path.name for path in started] == ["001.log"], "what is done is not measured again"
    assert again[1] == row


def test_a_stopped_grid_ends_its_row(corpus):  # noqa: F811
    config_file = corpus / "grid.json"
    config_file.write_text(tiny_grid(corpus, price_per_hour=1.0).to_json())
    command = [sys.executable, str(ROOT / "run_finetune.py"), f"--run_config={config_file}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=corpus)
    deadline = time.monotonic() + 120
    while not (corpus / "grid" / "rows" / "001.log").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text().split() and time.monotonic() < deadline:
        time.sleep(0.05)
    (child,) = map(int, children.read_text().split())
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=120)
    assert process.returncode == 75, text
    assert "the same command goes on" in text.splitlines()[-1]
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
