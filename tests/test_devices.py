"""benchmarks/devices.py: its rows, what it compares, a row that fails, and going on after an interruption."""

import itertools
import json

import devices
import numpy as np
import pytest

from tests.support.reports import make_run, note


def rows_of(*words):
    """For each row, its settings and the flags that make them."""
    args, given = devices.arguments(["--output_dir=x", *words])
    axes = devices.axes_of(args)
    return [
        ([value for value, _ in point], [*given, *(flag for _, flags in point for flag in flags)])
        for point in itertools.product(*axes.values())
    ]


def test_rows_are_every_combination_the_last_axis_fastest():
    rows = rows_of("--devices=1,2", "--precisions=float32,bfloat16", "--vary=xla=false,true", "--model=m")
    assert [settings for settings, _ in rows] == [
        [d, p, x] for d in (1, 2) for p in ("float32", "bfloat16") for x in ("false", "true")
    ]
    assert rows[0][1] == ["--model=m", "--strategy=one_device", "--xla=false"]
    precision = ["--mixed_precision", "--mixed_precision_dtype=bfloat16"]
    assert rows[7][1] == ["--model=m", "--strategy=mirrored", "--num_replicas=2", *precision, "--xla=true"]
    assert [flags for _, flags in rows_of("--workers=1,2", "--examples_per_device=8")] == [
        ["--strategy=one_device", "--global_batch_size=8"],
        ["--strategy=multi_worker", "--global_batch_size=16"],
    ]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--devices=1,2", "--workers=1,2"], "devices or in workers. Received: both"),
        (["--steps=5"], "at most the measured ones. Received: warmup_steps=10 with steps=5"),
        (["--strategy=mirrored"], "The rows' strategy are set by this script. Received: --strategy=mirrored"),
        (["--nomixed_precision"], "Received: --nomixed_precision. Drop it"),
        (["--vary=xla=false,true", "--xla"], "The rows' xla are set"),
        (["--max_steps=5"], "Received: --max_steps=5"),
    ],
)
def test_what_the_rows_decide_is_not_taken_beside_them(words, message, capsys):
    with pytest.raises(SystemExit):
        devices.arguments(["--output_dir=x", *words])
    assert message in " ".join(capsys.readouterr().err.split())


def done(number, speed, count=1, **more):
    row = {"row": number, "status": "done", "devices": count, "precision": "float32", "examples_per_second": speed}
    row |= {"batch": 32, "gradient_bytes": 1000, "devices_used": "CPU", "peak_memory_bytes": 2**30, "peak_share": 0.5}
    return row | more


def test_comparisons_are_numpys_and_within_what_is_alike():
    speeds, counts = np.array([50.0, 80.0, 190.0]), np.array([1, 2, 4])
    failed = {"row": 9, "status": "failed", "devices": 1, "precision": "float32", "reason": "out of memory"}
    rows = [failed, *(done(i, s, int(n)) for i, (s, n) in enumerate(zip(speeds, counts, strict=True)))]
    rows.append(done(4, 300.0, 2, precision="float16"))
    out = devices.compared(rows, ("devices", "precision"))
    assert out[0] == failed
    np.testing.assert_allclose([row["speed_up"] for row in out[1:4]], speeds / 50)
    np.testing.assert_allclose([row["efficiency"] for row in out[1:4]], speeds / 50 / counts)
    assert (out[4]["speed_up"], out[4]["efficiency"]) == (1, 1), "there is no row of one device in float16"


def test_one_device_and_the_all_reduce_predict_several(tmp_path):
    for used, seconds in (("2 replicas on GPU", 0.16 + 0.04), ("CPU", 0.32 + 0.04)):
        one = done(1, 100.0, devices_used=used)
        rows = devices.compared([one, done(2, 60.0, 2, devices_used=used, all_reduce_ms=40.0)], ("devices",))
        assert rows[1]["predicted_examples_per_second"] == pytest.approx(32 / seconds)
        assert "predicted_examples_per_second" not in rows[0]
        assert len(devices.on_paper(rows)) == ("GPU" in used)
    devices.write(tmp_path, ("devices",), rows)
    page, text = (tmp_path / "benchmark.html").read_text(), (tmp_path / "benchmark.md").read_text()
    assert "predicted examples/s" in page and "predicted examples/s" in text and page.count("<svg") == 4
    assert "2: 2 devices" in page and "| 2: 2 devices | " in text
    assert json.loads((tmp_path / "benchmark.json").read_text())["rows"] == rows


def test_the_numbers_are_those_of_the_run(tmp_path):
    numbers = {"train_examples_per_second_with_warmup": 40.0, "train_tokens_per_second_steady": 900.0}
    numbers |= {"step_seconds_p50": 0.1, "step_seconds_p95": 0.2, "compile_seconds": 3.0, "data_wait_share": 0.25}
    numbers |= {"peak_memory_bytes": 2**30, "train_model_gflops_per_second": 100.0, "gradient_bytes": 1000}
    numbers |= {"train_user_seconds": 30.0, "train_kernel_seconds": 4.5}
    run = make_run(tmp_path / "run", speed=80.0, accuracy=0.75, precision="mixed_bfloat16", **numbers)
    args, _ = devices.arguments(["--output_dir=x", "--whole_run", "--price_per_hour=36"])
    found = devices.numbers_of(run, args, 1)
    assert found["examples_per_second"] == 80.0 and found["dtype"] == "bfloat16" and found["score"] == 0.75
    assert found["step_ms_p95"] == 200.0 and found["flops"] == 1e11 and found["cost"] == 1e6 / 80 / 100
    speeds = {"eval_samples_per_second": 50.0, "eval_tokens_per_second": 400.0, "eval_batch_seconds_p50": 0.01}
    speeds |= {"eval_batch_seconds_p95": 0.02, "eval_model_gflops_per_second": 7.0, "eval_data_wait_share": 0.125}
    speeds |= {"eval_user_seconds": 6.0, "eval_kernel_seconds": 0.5}
    records = [{"step": step, "kind": "eval", "eval_runtime": 9.0 / step} | speeds for step in (1, 2)]
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    note(run)
    found = devices.numbers_of(run, devices.arguments(["--output_dir=x", "--inference"])[0], 2)
    assert (found["seconds"], found["compile_seconds"], found["batch"]) == (4.5, 4.5, 64)
    assert found["examples_per_second"] == 50.0 and found["step_ms_p50"] == 10.0


@pytest.mark.parametrize(
    "program, reason",
    [
        ("print('ResourceExhaustedError: OOM when allocating'); exit(1)", "out of memory"),
        ("import os; os.kill(os.getpid(), 9)", "killed by the system, most likely for lack of memory"),
        ("print('hello\\nerror: The rule.\\nbye'); exit(2)", "exit status 2: error: The rule."),
        ("exit(3)", "exit status 3: no message"),
        ("", ""),
    ],
)
def test_reasons_of_failures(program, reason, tmp_path):
    (tmp_path / "row.py").write_text(program)
    assert devices.run(1, [str(tmp_path / "row.py")], tmp_path / "row.log") == reason


def test_a_row_that_fails_does_not_stop_the_others_and_what_is_done_is_kept(tmp_path, monkeypatch):
    started = []

    def run(workers, command, log):
        started.append(command)
        return "exit status 2: error: no" if "--some=b" in command else ""

    numbers = {name: value for name, value in done(1, 50.0).items() if name not in ("row", "status", "devices")}
    monkeypatch.setattr(devices, "run", run)
    monkeypatch.setattr(devices, "numbers_of", lambda *_: numbers)
    monkeypatch.setattr(devices, "peaks_of", lambda *_: {})
    for expected in (2, 3):
        rows = devices.main([f"--output_dir={tmp_path / 'grid'}", "--vary=some=a,b"])
        assert [row["status"] for row in rows] == ["done", "failed"] and len(started) == expected
    assert "exit status 2" in (tmp_path / "grid" / "benchmark.md").read_text()


@pytest.mark.slow
def test_the_table_of_devices_is_one_command(corpus):
    """Two tiny runs; nothing less shows that the command still takes what the script gives it."""
    rows = devices.main(
        [
            *(f"--output_dir={corpus / 'grid'}", "--devices=1,2", "--steps=4", "--warmup_steps=2", "--device=cpu"),
            *("--model=scratch/tiny", f"--vocab_file={corpus / 'vocab.txt'}", f"--train_file={corpus / 'train.tsv'}"),
            *(f"--validation_file={corpus / 'dev.tsv'}", "--max_seq_length=16", "--global_batch_size=8"),
        ]
    )
    assert [row["status"] for row in rows] == ["done", "done"], rows
    assert rows[0]["speed_up"] == 1 and rows[1]["efficiency"] == rows[1]["speed_up"] / 2
    assert rows[1]["predicted_examples_per_second"] > 0 and 0 < rows[0]["peak_share"] < 1
    assert not list((corpus / "grid").rglob("*.safetensors"))
