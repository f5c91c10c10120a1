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

from tests.support.flag_values import SCRATCH
from tests.support.processes import is_running, wait_until
from tests.support.reports import make_run
from tfbert.config.benchmark import BenchmarkConfig
from tfbert.config.data import DataConfig
from tfbert.config.parts import ModelConfig, OutputConfig, RuntimeConfig
from tfbert.config.run import Config
from tfbert.config.training import TrainingConfig
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.modes.benchmark import measured as numbers_of
from tfbert.modes.benchmark import pages, runner
from tfbert.modes.benchmark import row as row_process
from tfbert.modes.benchmark.grid import build_rows, replicas_of, resolve_inference
from tfbert.modes.benchmark.runner import _prepare, run_benchmark

ROOT = pathlib.Path(__file__).parents[2]


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
    assert [row.rows_at_a_time for row in rows if row.measured == "inference"] == [8, 16] * 2
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
        ({"benchmark": {"benchmark_batch_sizes": (8, 8)}}, "List each once"),
        ({"benchmark": {"benchmark_workers": (2,), "benchmark_replicas": (2,)}}, "workers or replicas"),
        ({"benchmark": {"benchmark_passes": ("inference",), "price_per_hour": 1.0}}, "in training rows only"),
        ({"training": {"max_steps": 5}}, "benchmark_accuracy or price_per_hour only"),
        ({"runtime": {"strategy": "multi_worker"}}, "starts its own workers"),
        (
            {"benchmark": {"benchmark_passes": ("inference",)}, "data": {"train_file": __file__}},
            "inference needs examples",
        ),
        ({"benchmark": {"benchmark_accuracy": True}, "data": {"train_file": __file__}}, "accuracy needs examples"),
        ({"benchmark": {"benchmark_accuracy": True, "benchmark_steps": 20}}, "Received: benchmark_steps=20 beside it"),
        ({"benchmark": {"benchmark_passes": ("inference",), "benchmark_steps": 20}}, "in training rows only"),
        ({"benchmark": {"benchmark_steps": 20, "benchmark_warmup_steps": 21}}, "must be at most benchmark_steps"),
    ],
)
def test_options_that_do_not_fit(parts, match):
    classes = {"benchmark": BenchmarkConfig, "training": TrainingConfig, "runtime": RuntimeConfig, "data": DataConfig}
    with pytest.raises(UsageError, match=match):
        Config(mode="benchmark", **{name: classes[name](**values) for name, values in parts.items()})


@pytest.mark.parametrize(
    "parts",
    [
        {"benchmark": BenchmarkConfig(benchmark_steps=20, benchmark_warmup_steps=20)},
        {"benchmark": BenchmarkConfig(benchmark_accuracy=True, benchmark_warmup_steps=60)},
        {"data": DataConfig(train_file=__file__), "model": SCRATCH},
    ],
)
def test_options_that_fit(parts):
    Config(mode="benchmark", **parts)


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


def test_a_row_is_called_by_what_differs_and_its_speed_up_is_within_its_precision():
    mixed = {"precision": "float16", "xla": True}
    rows = [done(1, 50.0), done(2, 90.0, 2), done(3, 200.0) | mixed, done(4, 300.0, 2) | mixed | {"seconds": 7.25}]
    out = numbers_of.compared(rows)
    assert [row["speed_up"] for row in out] == [1.0, 90 / 50, 1.0, 300 / 200]
    names = ["1: 1 replica, float32, no XLA", "2: 2 replicas, float32, no XLA", "3: 1 replica, float16, XLA"]
    assert pages.row_names(out) == [*names, "4: 2 replicas, float16, XLA"]
    columns, body = pages.cells(out)
    assert columns == ["row", "time, s", "examples/s", "speed-up", "efficiency"]
    assert body[3] == ["4: 2 replicas, float16, XLA", "7.2", "300.0", "1.50", "75.0%"]
    assert pages.inside_cells(out) == (["row", "step p50, ms"], [[name, "1.0"] for name in pages.row_names(out)])
    assert "| --- | ---: |" in pages.markdown(Config(mode="benchmark"), out)
    assert pages.row_names([done(1, 5.0)]) == ["1: training"]


def test_efficiency_compares_only_what_differs_in_devices_and_batch():
    mixed = {"precision": "mixed_bfloat16"}
    rows = [
        done(1, 50.0) | {"batch_size": 8},
        done(2, 70.0) | {"batch_size": 32},
        done(3, 90.0, replicas=2) | {"batch_size": 16},
        done(4, 120.0, replicas=2) | {"batch_size": 64},
        done(5, 200.0) | mixed,
        done(6, 300.0, replicas=2) | mixed,
        done(7, 60.0) | {"xla": True},
        {"row": 8, "pass": "training", "status": "failed", "workers": 1, "replicas": 1},
    ]
    found = [row.get("efficiency") for row in numbers_of.compared(rows)]
    assert found[:7] == pytest.approx([1, 1, 90 / 2 / 50, 120 / 2 / 70, 1, 300 / 2 / 200, 1])
    assert found[7] is None


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


def test_the_number_of_replicas_is_settled_where_gpus_are_counted(tmp_path):
    runtime = RuntimeConfig(strategy="mirrored", per_device_eval_batch_size=16)
    benchmark = BenchmarkConfig(benchmark_passes=("inference",))
    (row,) = build_rows(Config(mode="benchmark", runtime=runtime, benchmark=benchmark), tmp_path)
    assert pages.setting_text(row.settings).startswith("inference, all devices, float32, batch 16 a replica,")
    for num_gpus, replicas in ((4, 4), (0, 1)):
        assert replicas_of(row.config.runtime, num_gpus) == replicas
        run = resolve_inference(row.config, row.rows_at_a_time, replicas)
        assert (run.runtime.per_device_eval_batch_size, run.training.global_batch_size) == (16, replicas)
    run = resolve_inference(row.config, 64, 4)
    assert (run.runtime.per_device_eval_batch_size, run.training.global_batch_size) == (16, 4)
    with pytest.raises(UsageError, match="benchmark_batch_sizes=30 with 4 replicas"):
        resolve_inference(row.config, 30, 4)
    # What is known beforehand is shown beforehand.
    for known in ({"device": "cpu"}, {"num_replicas": 2}):
        config = Config(mode="benchmark", runtime=dataclasses.replace(runtime, **known), benchmark=benchmark)
        replicas = known.get("num_replicas", 1)
        settings = build_rows(config, tmp_path)[0].settings
        assert (settings["replicas"], settings["batch_size"]) == (replicas, 16 * replicas)
    assert replicas_of(RuntimeConfig(), num_gpus=4) == 1
    rows = build_rows(grid(benchmark_workers=(2,), benchmark_passes=("inference",)), tmp_path)
    assert "all devices of 2 workers" in pages.setting_text(rows[0].settings)


@pytest.mark.parametrize("tf_config", [False, True])
def test_a_row_counts_its_gpus(tmp_path, monkeypatch, tf_config):
    found = []

    def finetune(config, at_end):
        found.append(config)
        if at_end:
            at_end(None, {"gradient_bytes": 8})

    monkeypatch.setattr("tfbert.train.run.finetune", finetune)
    monkeypatch.setattr(row_process, "measure_all_reduce", lambda strategy, num_bytes: num_bytes / 16)
    monkeypatch.setattr(row_process, "_num_gpus", lambda config: 2)
    monkeypatch.setattr(row_process, "measure_peak", lambda config: 1e12)
    axis = {"benchmark_workers": (2,)} if tf_config else {}
    runtime = RuntimeConfig() if tf_config else RuntimeConfig(strategy="mirrored")
    benchmark = BenchmarkConfig(benchmark_passes=("training", "inference"), benchmark_batch_sizes=(64,), **axis)
    training, inference = build_rows(Config(mode="benchmark", runtime=runtime, benchmark=benchmark), tmp_path)
    if tf_config:
        cluster = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    replicas = 4 if tf_config else 2
    for row, expected in ((training, (32, 64)), (inference, (64 // replicas, replicas))):
        (tmp_path / "run.json").write_text(row.config.to_json())
        extra = [] if row.rows_at_a_time is None else [str(row.rows_at_a_time)]
        assert row_process.main([str(tmp_path / "run.json"), str(tmp_path / "row.json"), *extra]) == 0
        run = found.pop()
        assert (run.runtime.per_device_eval_batch_size, run.training.global_batch_size) == expected
        seconds = json.loads((tmp_path / "row.json").read_text())["all_reduce_seconds"]
        assert seconds == (0.5 if row is training else None)


def finished(directory, row, replicas=1, **training):
    """The files that the process of a row leaves, without the run."""
    numbers = {"train_examples_per_second_with_warmup": 40.0, "train_tokens_per_second_steady": 900.0}
    numbers |= {"step_seconds_p50": 0.1, "step_seconds_p95": 0.2, "compile_seconds": 3.0, "data_wait_share": 0.25}
    numbers |= {"peak_memory_bytes": 2**30, "train_model_gflops_per_second": 100.0}
    numbers |= {"train_user_seconds": 30.0, "train_kernel_seconds": 4.5, "gradient_bytes": 1000}
    run = make_run(directory / row.directory, replicas=replicas, precision="mixed_bfloat16", **numbers)
    config = json.loads(row.config.to_json())
    config["training"] |= training
    if row.measured == "inference":
        config["runtime"]["per_device_eval_batch_size"] = 8
        speeds = {"eval_samples_per_second": 50.0, "eval_tokens_per_second": 400.0, "eval_batch_seconds_p50": 0.01}
        speeds |= {"eval_batch_seconds_p95": 0.02, "eval_model_gflops_per_second": 7.0, "eval_data_wait_share": 0.125}
        speeds |= {"eval_user_seconds": 6.0, "eval_kernel_seconds": 0.5}
        records = [{"step": step, "kind": "eval", "eval_runtime": 9.0 / step} | speeds for step in (1, 2)]
        (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (run / "run_config.json").write_text(json.dumps(config))
    facts = json.loads((run / "report.json").read_text()) | {"devices": "OneDeviceStrategy, 1 replica on GPU (H100)"}
    (run / "report.json").write_text(json.dumps(facts))
    all_reduce = None if replicas == 1 else 0.02
    (run / "row.json").write_text(
        json.dumps({"peak_flops": 1e12, "num_workers": row.num_workers, "all_reduce_seconds": all_reduce})
    )
    return run


def test_numbers_are_those_of_what_the_run_settled(tmp_path):
    config = Config(
        mode="benchmark",
        training=TrainingConfig(gradient_accumulation_steps="auto"),
        runtime=RuntimeConfig(mixed_precision=True, strategy="mirrored"),
        benchmark=BenchmarkConfig(benchmark_passes=("training", "inference")),
    )
    training, inference = build_rows(config, tmp_path)
    assert "batch 32 in auto micro-batches, 128 tokens" in pages.setting_text(training.settings)
    run = finished(tmp_path, training, gradient_accumulation_steps=4)
    row = numbers_of.measured(training, config, run)
    assert (row["micro_batches"], row["precision"], row["replicas"]) == (4, "bfloat16", 1)
    assert "1 replica, bfloat16, batch 32 in 4 micro-batches, 128 tokens" in pages.setting_text(row)
    assert "all_reduce_ms" not in row and row["gradient_bytes"] == 1000
    assert row["examples_per_second_with_warmup"] == 40.0, "evaluation and saving left out"
    assert (row["user_seconds"], row["kernel_seconds"]) == (30.0, 4.5)

    other = numbers_of.measured(inference, config, finished(tmp_path, inference, replicas=4))
    assert (other["batch_size"], other["replicas"], other["micro_batches"]) == (32, 4, 1)
    assert other["data_wait_share"] == 0.125
    assert (other["user_seconds"], other["kernel_seconds"]) == (6.0, 0.5)
    mirrored = numbers_of.measured(training, config, finished(tmp_path / "4", training, replicas=4))
    assert mirrored["all_reduce_ms"] == 20.0
    rows = numbers_of.compared([row, other])
    assert "Devices: OneDeviceStrategy, 1 replica on GPU (H100)." in pages.page(config, rows, {})
    assert "1 replica on GPU" in pages.markdown(config, rows)
    assert "devices" not in pages.cells(rows)[0]


def test_a_file_of_questions_is_measured_as_it_is_trained_on(tmp_path, monkeypatch):
    rows = []

    def measure(row, config, directory):
        rows.append(row)
        (directory / row.directory).mkdir(parents=True)
        return numbers_of.failed(row, "not run")

    monkeypatch.setattr(runner, "_measure", measure)
    answers = [{"text": "bad", "answer_start": 0}]
    paragraph = {"context": "bad film", "qas": [{"id": "1", "question": "what?", "answers": answers}]}
    (tmp_path / "train.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    output = OutputConfig(output_dir=str(tmp_path / "grid"))
    data = DataConfig(train_file=str(tmp_path / "train.json"))
    config = dataclasses.replace(grid(), model=SCRATCH, data=data, output=output)
    with pytest.raises(RunError, match="1 row that failed"):
        run_benchmark(config)
    (row,) = rows
    assert row.config.data.task == "question_answering"
    assert (row.settings["seq_length"], row.config.data.max_seq_length) == (384, 384)


def test_a_grid_without_a_row_that_is_done_fails(tmp_path, monkeypatch):
    def fails(command, log):
        log.write_text("error: The rule. Received: x.\n")
        return 2

    monkeypatch.setattr("tfbert.modes.benchmark.runner._run", fails)
    config = dataclasses.replace(grid(benchmark_xla=("off", "on")), output=OutputConfig(output_dir=str(tmp_path)))
    with pytest.raises(RunError, match="Received: 2 rows that failed, the first one: exit status 2: error: The rule."):
        run_benchmark(config)
    rows = json.loads((tmp_path / "benchmark.json").read_text())["rows"]
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert "The rule" in (tmp_path / "benchmark.md").read_text() and (tmp_path / "benchmark.html").exists()


def test_two_grids_do_not_share_a_directory(tmp_path, monkeypatch):
    config = dataclasses.replace(grid(), output=OutputConfig(output_dir=str(tmp_path)))

    def starts_another(command, log):
        with pytest.raises(RunError, match="another process|locked|in use"):
            run_benchmark(config)
        raise Preempted("stopped")

    monkeypatch.setattr("tfbert.modes.benchmark.runner._run", starts_another)
    with pytest.raises(Preempted, match=f"repeat the command with --output_dir={tmp_path} and without --overwrite"):
        run_benchmark(config)


# What runs a grid, but for the grid: a row that says who it is and never ends. What started the tests may have been
# nohup, whose ignored SIGHUP is inherited.
GRID = """
import pathlib, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from tfbert.modes.benchmark.runner import _run
row = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
_run([sys.executable, "-c", row], pathlib.Path("row.log"))
"""
WORKERS_GRID = GRID.replace(
    '[sys.executable, "-c"',
    """[
    sys.executable, "-m", "tfbert.launch", "--num_workers=2", "--", sys.executable, "-c"
""",
)


def test_a_rows_log_is_written_through_no_link(tmp_path):
    (tmp_path / "mine").write_text("keep")
    (tmp_path / "row.log").symlink_to(tmp_path / "mine")
    assert runner._run([sys.executable, "-c", "print(1)"], tmp_path / "row.log") == 0
    assert ((tmp_path / "mine").read_text(), (tmp_path / "row.log").read_text()) == ("keep", "1\n")


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
@pytest.mark.parametrize("script, count", [(GRID, 1), (WORKERS_GRID, 2)], ids=["row", "workers"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_no_row_outlives_its_grid(tmp_path, script, count, number):
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    log = tmp_path / "row.log"
    try:
        assert wait_until(lambda: log.exists() and log.read_text().count("\n") == count, 30)
        pids = [int(line.split()[-1]) for line in log.read_text().splitlines()]
        assert all(map(is_running, pids))
        process.send_signal(number)
        assert process.wait(30) != 0
        assert wait_until(lambda: not any(map(is_running, pids)))
    finally:
        process.kill()
        process.wait()


def test_what_nohup_ignores_stays_ignored(tmp_path):
    row = "import os, signal, time; os.kill(os.getppid(), signal.SIGHUP); time.sleep(0.5)"
    script = f"""
import pathlib, signal, sys
from tfbert.modes.benchmark.runner import _run
signal.signal(signal.SIGHUP, signal.SIG_IGN)
sys.exit(_run([sys.executable, "-c", {row!r}], pathlib.Path("row.log")))
"""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environ, timeout=60).returncode == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_second_signal_does_not_disturb_the_end(tmp_path, second):
    row = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("told").touch(), time.sleep(1.5), exit()))
pathlib.Path("ready").touch()
time.sleep(60)
"""
    script = f"""
import pathlib, sys
from tfbert.modes.benchmark.runner import _run
from tfbert.errors import Preempted
try:
    _run([sys.executable, "-c", {row!r}], pathlib.Path("row.log"))
except Preempted:
    sys.exit(75)
"""
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        assert wait_until((tmp_path / "ready").exists, 30)
        process.send_signal(signal.SIGTERM)
        assert wait_until((tmp_path / "told").exists, 30)
        process.send_signal(second)
        assert process.wait(30) == 75
    finally:
        process.kill()
        process.wait()


def test_a_short_row_has_a_short_warm_up(tmp_path):
    (row,) = build_rows(grid(benchmark_steps=5), tmp_path)
    assert (row.config.training.max_steps, row.config.output.logging_steps) == (10, 5)


def test_only_a_benchmark_is_overwritten(tmp_path):
    (tmp_path / "plots").mkdir()
    config = dataclasses.replace(grid(), output=OutputConfig(output_dir=str(tmp_path), overwrite_output_dir=True))
    with pytest.raises(UsageError, match="an earlier benchmark, and nothing else"):
        _prepare(tmp_path, config)
    assert [path.name for path in tmp_path.iterdir()] == ["plots"]
    (tmp_path / "run_config.json").write_text(grid(benchmark_batch_sizes=(8,)).to_json())
    _prepare(tmp_path, config)
    assert [path.name for path in tmp_path.iterdir()] == ["run_config.json"]


def tiny_grid(corpus, **benchmark):
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
def test_a_row_that_fails_does_not_stop_the_grid(corpus, monkeypatch):
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
    assert row["user_seconds"] > row["kernel_seconds"] > 0

    table = list(csv.DictReader((out / "benchmark.csv").open()))
    assert [float(r["examples_per_second"] or 0) for r in table] == [0.0, row["examples_per_second"]]
    assert json.loads((out / "benchmark.json").read_text())["rows"] == rows
    assert (out / "benchmark.md").read_text().count("\n| ") == 7  # Two tables, one with the device's own row only.
    assert (out / "benchmark.html").read_text().count("<svg") == len(list((out / "plots").glob("*.svg"))) == 4
    assert not list(out.rglob("*.safetensors"))

    started = []
    monkeypatch.setattr(
        "tfbert.modes.benchmark.runner._run", lambda command, log: started.append(log) or log.touch() or 2
    )
    again = run_benchmark(config)
    assert [path.name for path in started] == ["001.log"], "what is done is not measured again"
    assert again[1] == row


@pytest.mark.slow
def test_a_stopped_grid_ends_its_row(corpus):
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
    assert "to continue after them, repeat the command with --output_dir=" in text.splitlines()[-1]
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.slow
@pytest.mark.multi_worker
def test_workers_and_replicas_are_measured_beside_what_one_predicts(corpus):
    for name, devices in (("benchmark_workers", "workers"), ("benchmark_replicas", "replicas")):
        config = tiny_grid(corpus, price_per_hour=1.0, **{name: (1, 2)})
        config = dataclasses.replace(config, output=OutputConfig(output_dir=str(corpus / name)))
        one, two = run_benchmark(config)
        assert (one["status"], two["status"], two[devices]) == ("done", "done", 2), two.get("reason")
        assert "all_reduce_ms" not in one and two["all_reduce_ms"] > 0
        seconds = two["batch_size"] / one["examples_per_second"] + two["all_reduce_ms"] / 1000
        assert two["predicted_examples_per_second"] == pytest.approx(two["batch_size"] / seconds, abs=0.01)
        model = json.loads((corpus / name / "rows" / "001" / "report.json").read_text())
        assert one["gradient_bytes"] == 4 * model["parameters"]
        assert "predicted examples/s" in (corpus / name / "benchmark.md").read_text()
