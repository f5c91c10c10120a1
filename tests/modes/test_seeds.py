"""`--seeds`: the table is NumPy's, each seed is trained once whatever happens, and a signal reaches the run."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.support.flag_values import SCRATCH, defined
from tests.support.processes import is_running, wait_until
from tests.support.reports import make_run
from tfbert.commandline.options import config_from_flags
from tfbert.config.data import DataConfig
from tfbert.config.modes import OutputConfig, RuntimeConfig
from tfbert.config.run import STARTED_AS, Config, option_words
from tfbert.config.training import TrainingConfig
from tfbert.devices.runtime import inform_on_chief_alone
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.modes import many
from tfbert.modes.many import train_many
from tfbert.report.compare import SweptPoint, compare, over_seeds, seeds_lines, seeds_table, tables, write_seeds
from tfbert.report.pages import Table
from tfbert.report.run_files import read_run

ROOT = pathlib.Path(__file__).parents[2]
ACCURACIES = {1: 0.8125, 2: 0.9375, 3: 0.875}


@pytest.fixture(autouse=True)
def everything_is_told():
    yield
    inform_on_chief_alone(True)


def config_for(directory, *seeds, **output):
    runtime = RuntimeConfig(seeds=seeds or (1, 2, 3))
    return Config(runtime=runtime, output=OutputConfig(output_dir=str(directory), **output))


def made_run(directory, seed, decisive="eval_accuracy", **results):
    """The files of the finished run of a seed."""
    make_run(directory, accuracy=ACCURACIES.get(seed, 0.5), eval_loss=1 / (seed + 1), test_f1=seed / 7, **results)
    config = Config(runtime=RuntimeConfig(seed=seed), output=OutputConfig(output_dir=str(directory))).resolved()
    (directory / "run_config.json").write_text(config.to_json())
    facts = json.loads((directory / "report.json").read_text()) | {"decisive_metric": decisive}
    (directory / "report.json").write_text(json.dumps(facts))
    return directory


class Fake:
    """Instead of processes: notes what is started, leaves a finished run, and answers with the status given."""

    def __init__(self, statuses=None, at_seed=None):
        self.started, self.variables, self._statuses, self._at_seed = [], [], statuses or {}, at_seed or {}

    def __call__(self, command, variables, signals):
        values = defined()
        assert command[:4] == [sys.executable, "-m", "tfbert", "finetune"]
        values(["x", *command[4:]])
        config = config_from_flags(values)
        seed = config.runtime.seed
        self.started.append(config)
        self.variables.append(variables)
        if seed in self._at_seed:
            self._at_seed[seed](signals)
        status = self._statuses.get(seed, 0)
        if status == 0:
            made_run(pathlib.Path(config.output.output_dir), seed)
        return status

    @property
    def seeds(self):
        return [config.runtime.seed for config in self.started]


def test_the_table_is_numpys(tmp_path, caplog):
    caplog.set_level("INFO", "tfbert")
    fake = Fake()
    found = train_many(config_for(tmp_path), fake)
    assert fake.seeds == [1, 2, 3]
    written = json.loads((tmp_path / "seeds.json").read_text())
    values = {
        "eval_accuracy": list(ACCURACIES.values()),
        "eval_loss": [1 / 2, 1 / 3, 1 / 4],
        "test_f1": [1 / 7, 2 / 7, 3 / 7],
    }
    for name, numbers in values.items():
        assert written["mean"][name] == pytest.approx(np.mean(numbers), abs=1e-12)
        assert written["standard_deviation"][name] == pytest.approx(np.std(numbers, ddof=1), abs=1e-12)
        assert [run[name] for run in written["values"]] == pytest.approx(numbers)
    assert set(written["mean"]) == set(values)
    assert written["best"] == {"seed": 2, "directory": str(tmp_path / "seed-2")}
    assert (written["seeds"], written["failed"], written["decisive"]) == ([1, 2, 3], {}, "eval_accuracy")
    assert (found.seeds, found.best) == ([1, 2, 3], 1)

    table = (tmp_path / "comparison.md").read_text()
    assert "| seed 2 | 0.9375 | 0.3333 | 0.2857 |" in table and "| mean | 0.8750 |" in table
    best = f"Best by eval_accuracy: {tmp_path / 'seed-2'}"
    assert "| standard deviation | 0.0625 |" in table and f"- {best}" in table
    lines = caplog.text.splitlines()
    assert any(line.endswith(f"Best by eval_accuracy: {tmp_path / 'seed-2'}") for line in lines)
    assert any("standard deviation" in line and "0.0625" in line for line in lines)
    page = (tmp_path / "comparison.html").read_text()
    assert "Over the seeds" in page and "0.0625" in page and f"<p>{best}</p>" in page


@pytest.mark.parametrize("decisive, best", [("eval_loss", 3), ("eval_accuracy", 2), ("test_f1", 3)])
def test_the_best_is_by_the_decisive_metric(tmp_path, decisive, best):
    runs = [read_run(made_run(tmp_path / f"seed-{seed}", seed, decisive)) for seed in (1, 2, 3)]
    assert over_seeds(runs).seeds[over_seeds(runs).best] == best


def test_a_single_run_has_no_standard_deviation_and_nan_is_never_best(tmp_path):
    one = read_run(made_run(tmp_path / "one", 1))
    assert (over_seeds([one]).standard_deviation, over_seeds([one]).best) == ({}, 0)
    broken = read_run(made_run(tmp_path / "two", 2))
    broken.results["eval_accuracy"] = float("nan")
    assert over_seeds([broken, one]).best == 1
    assert over_seeds([broken]).best is None
    less = read_run(made_run(tmp_path / "three", 3))
    del less.results["test_f1"]
    assert set(over_seeds([one, less]).mean) == {"eval_accuracy", "eval_loss"}, "of metrics that all runs have"


@pytest.mark.parametrize(
    "scores, losses, words, best",
    [
        ((0.0, 0.0, 0.0), (0.5, 0.5, 0.5), "Best by eval_f1: none, all runs are equal, also in eval_loss", None),
        ((0.0, 0.0, 0.0), (0.5, 0.2, 0.3), "Best by eval_loss (several are equal in eval_f1): seed 2", 1),
        ((1.0, 0.5, 1.0), (0.2, 0.1, 0.3), "Best by eval_loss (several are equal in eval_f1): seed 1", 0),
        (
            (1.0, 0.5, 1.0),
            (0.2, 0.1, 0.2),
            "Best by eval_f1: none, seed 1 and seed 3 are equal, also in eval_loss",
            None,
        ),
        ((0.5, 0.5, 0.7), (0.2, 0.1, 0.9), "Best by eval_f1: seed 3", 2),
        ((float("nan"), 0.0, 0.0), (0.1, 0.3, 0.2), "Best by eval_loss (several are equal in eval_f1): seed 3", 2),
    ],
)
def test_equally_good_seeds_are_told_apart_by_their_loss_or_not_at_all(tmp_path, scores, losses, words, best):
    runs = [read_run(made_run(tmp_path / f"seed-{seed}", seed, "eval_f1")) for seed in (1, 2, 3)]
    for run, score, loss in zip(runs, scores, losses, strict=True):
        run.results.update(eval_f1=score, eval_loss=loss)
    point = SweptPoint(values={}, label="", runs=runs, failed={})
    found = write_seeds(point, tmp_path)
    assert found.best == best
    written = json.loads((tmp_path / "seeds.json").read_text())
    assert written["best"] == (None if best is None else {"seed": best + 1, "directory": runs[best].name})
    assert bool(written["equal"]) == (best is None)
    assert found.ranking.in_words([f"seed {seed}" for seed in found.seeds], found.mean).rstrip(".") == words
    assert seeds_lines(point)[0].startswith(words[:15]) and seeds_table(found).kept == best


def test_the_table_on_the_screen_is_narrow():
    assert Table(names=["run", "a"], body=[["seed 1", "0.5"], ["mean", "10.25"]]).plain() == [
        "run         a",
        "seed 1    0.5",
        "mean    10.25",
    ]
    wide = Table(names=["run", "a", "bb"], body=[["mean", "1", "2"]])
    assert wide.plain() == ["run  mean", "a       1", "bb      2"]


def test_runs_that_differ_otherwise_have_no_mean(tmp_path):
    runs = [read_run(made_run(tmp_path / f"seed-{seed}", seed)) for seed in (1, 2)]
    assert [table.title for table in tables(compare(runs))][1] == "Over the seeds"
    assert "Over the seeds" not in [table.title for table in tables(compare([runs[1], runs[1]]))]
    runs[0].config["training"]["weight_decay"] = 0.5
    assert "Over the seeds" not in [table.title for table in tables(compare(runs))]


def test_each_run_is_the_command_with_its_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tfbert finetune", "--x"])
    config = config_for(tmp_path, 7, 42)
    config = dataclasses.replace(
        config,
        training=TrainingConfig(learning_rate=3e-5, max_steps=9),
        data=DataConfig(max_seq_length=64, label_column='a, "b"'),
    )
    fake = Fake()
    train_many(config, fake)
    for seed, run in zip((7, 42), fake.started, strict=True):
        runtime = dataclasses.replace(config.runtime, seed=seed, seeds=())
        output = dataclasses.replace(config.output, output_dir=str(tmp_path / f"seed-{seed}"))
        assert run == dataclasses.replace(config, runtime=runtime, output=output)
    assert fake.variables == [{STARTED_AS: "tfbert finetune"}] * 2


def test_words_make_the_same_configuration():
    config = Config(
        model=SCRATCH,
        data=DataConfig(dataset="imdb", text_column=("a,b", 'say "x"')),
        training=TrainingConfig(class_weights=(1.0, 2.5), gradient_accumulation_steps="auto"),
        runtime=RuntimeConfig(keep_freed_memory=False, xla=True, seeds=(1, 2)),
    )
    values = defined()
    values(["x", *option_words(config)])
    assert config_from_flags(values) == config
    assert option_words(config, ("seeds", "xla", "class_weights", "dataset", "text_column", "model_name_or_path")) == [
        "--gradient_accumulation_steps=auto",
        "--nokeep_freed_memory",
    ]


def test_a_seed_that_fails_does_not_stop_the_others(tmp_path):
    fake = Fake({1: 1, 2: -signal.SIGKILL})
    with pytest.raises(
        RunError, match=r"2 of 3 runs that failed, seed 1 \(exit status 1\), seed 2 \(killed by SIGKILL\)\..*"
    ):
        train_many(config_for(tmp_path), fake)
    assert fake.seeds == [1, 2, 3]
    written = json.loads((tmp_path / "seeds.json").read_text())
    assert written["seeds"] == [3] and written["failed"] == {"1": "exit status 1", "2": "killed by SIGKILL"}
    assert "Seed 1 is missing: exit status 1." in (tmp_path / "comparison.md").read_text()
    again = Fake()
    assert train_many(config_for(tmp_path), again).seeds == [1, 2, 3]
    assert again.seeds == [1, 2], "the third is done"
    with pytest.raises(RunError, match="3 of 3 runs that failed"):
        train_many(config_for(tmp_path / "all"), Fake(dict.fromkeys((1, 2, 3), 1)))
    assert not (tmp_path / "all" / "seeds.json").exists()


def test_more_seeds_may_follow(tmp_path):
    train_many(config_for(tmp_path, 1, 2), Fake())
    fake = Fake()
    assert train_many(config_for(tmp_path, 2, 3, 1), fake).seeds == [2, 3, 1]
    assert fake.seeds == [3]
    assert json.loads((tmp_path / "seeds.json").read_text())["best"]["seed"] == 2


def test_what_cannot_be_used_ends_all(tmp_path):
    fake = Fake({1: 2})
    with pytest.raises(UsageError, match="Received: seed 1, which was refused"):
        train_many(config_for(tmp_path), fake)
    assert fake.seeds == [1]


def test_seeds_of_other_examples_are_not_compared(tmp_path):
    """A file that was changed after the first seed was done."""

    class OfData(Fake):
        def __call__(self, command, variables, signals):
            status = super().__call__(command, variables, signals)
            report = pathlib.Path(self.started[-1].output.output_dir) / "report.json"
            data = {"train_crc32": 1 + (self.started[-1].runtime.seed > 2)}
            report.write_text(json.dumps(json.loads(report.read_text()) | {"data": data}))
            return status

    train_many(config_for(tmp_path, 1, 2), OfData())
    (tmp_path / "seeds.json").unlink()
    with pytest.raises(RunError, match="the same examples. Received: '.*seed-1' and '.*seed-3', of different ones"):
        train_many(config_for(tmp_path, 1, 2, 3), OfData())
    assert not (tmp_path / "seeds.json").exists()


def test_overwriting_and_never_resuming_leave_it_to_the_runs(tmp_path, monkeypatch):
    train_many(config_for(tmp_path, 1), Fake())
    for output in ({"overwrite_output_dir": True}, {"resume": "never"}):
        fake = Fake({1: 1})  # What a run does is its own affair; this one leaves the directory as it is.
        with pytest.raises(RunError):
            train_many(config_for(tmp_path, 1, **output), fake)
        assert fake.seeds == [1]
    # But a restart of the same launch takes what its first start made.
    monkeypatch.setattr(many, "is_restart", lambda directory: True)
    fake = Fake()
    train_many(config_for(tmp_path, 1, 2, overwrite_output_dir=True), fake)
    assert fake.seeds == [2]


@pytest.mark.parametrize("name", ["config.json", "notes.txt", "seed-x"])
def test_a_directory_of_something_else_is_refused(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=f"must be new, or hold only runs of seeds or of a sweep. Received: .*{name}"):
        train_many(config_for(tmp_path), Fake())


@pytest.mark.parametrize("status", [75, -signal.SIGTERM, 1, 0])
def test_a_signal_ends_the_seeds_after_the_run_at_hand(tmp_path, status):
    fake = Fake({1: status}, {1: lambda signals: os.kill(os.getpid(), signal.SIGTERM)})
    with pytest.raises(Preempted, match=rf"runs that are done are kept, and the same command resumes in {tmp_path}"):
        train_many(config_for(tmp_path), fake)
    assert fake.seeds == [1]
    with pytest.raises(Preempted):  # It reached the run alone.
        train_many(config_for(tmp_path / "alone"), Fake({2: 75}))


def test_a_signal_during_the_last_run_does_not_hide_the_table(tmp_path):
    train_many(config_for(tmp_path, 3), Fake())
    train_many(config_for(tmp_path), Fake(at_seed={2: lambda signals: os.kill(os.getpid(), signal.SIGTERM)}))
    assert json.loads((tmp_path / "seeds.json").read_text())["seeds"] == [1, 2, 3], "the third was done before"


def test_a_second_interrupt_stops_at_once(tmp_path):
    def twice(signals):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A process behind `&` ignores it.
    try:
        with pytest.raises(KeyboardInterrupt):
            train_many(config_for(tmp_path), Fake({1: 130}, {1: twice}))
    finally:
        signal.signal(signal.SIGINT, before)


RUNS_A_CHILD = """
import sys
from tfbert.launch.launcher import Signals, run_to_its_end
with Signals() as signals:
    status = run_to_its_end([sys.executable, "child.py"], {"A": "b"}, signals)
print(status, [int(number) for number in signals.received])
"""
CHILD = """
import os, pathlib, signal, sys, time
def stop(number, frame):
    print(number, os.environ["A"], flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
pathlib.Path("ready").write_text(str(os.getpid()))
time.sleep(100)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
@pytest.mark.parametrize("number, got", [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGINT"), ("SIGHUP", "SIGTERM")])
def test_a_signal_reaches_the_run(tmp_path, number, got):
    (tmp_path / "child.py").write_text(CHILD)
    process = start_parent(tmp_path)
    try:
        number = getattr(signal, number)
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        assert out.splitlines() == [f"{int(getattr(signal, got))} b", f"75 [{int(number)}]"]
    finally:
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_no_run_outlives_the_command(tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    process = start_parent(tmp_path)
    process.kill()
    process.communicate(timeout=30)
    assert wait_until(lambda: not is_running(int((tmp_path / "ready").read_text())))


def start_parent(directory):
    """A process that waits for its child, which is ready; signals as a terminal leaves them, not nohup or `&`."""
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)" + RUNS_A_CHILD
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert wait_until(lambda: (directory / "ready").exists() and (directory / "ready").read_text(), 30)
    return process


@pytest.mark.slow
def test_real_runs_stop_resume_and_come_to_what_each_seed_alone_comes_to(corpus):
    common = [f"--vocab_file={corpus / 'vocab.txt'}", f"--train_file={corpus / 'train.tsv'}", "--model=scratch/tiny"]
    common += [f"--validation_file={corpus / 'dev.tsv'}", "--max_seq_length=16", "--max_steps=60", "--device=cpu"]
    common += ["--logging_steps=1", "--eval_steps=20"]
    out = corpus / "seeds"
    command = [sys.executable, str(ROOT / "run_finetune.py"), *common, f"--output_dir={out}", "--seeds=5,6"]
    process = subprocess.Popen(command, cwd=corpus, stderr=subprocess.PIPE, text=True)
    try:
        log = out / "seed-6" / "log.jsonl"
        assert wait_until(lambda: log.exists() and log.read_text().count("\n") > 2, 200)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 75, errors
    assert errors.splitlines()[-1].startswith("run_finetune.py: stopped; runs that are done are kept, and")
    assert "SIGTERM received" in errors and not (out / "seed-6" / "all_results.json").exists()
    first = (out / "seed-5" / "all_results.json").stat().st_mtime_ns

    done = subprocess.run(command, cwd=corpus, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "resuming at step" in done.stderr and (out / "seed-5" / "all_results.json").stat().st_mtime_ns == first
    written = json.loads((out / "seeds.json").read_text())
    results = [json.loads((out / f"seed-{seed}" / "all_results.json").read_text()) for seed in (5, 6)]
    for name in ("eval_accuracy", "eval_loss"):
        values = [result[name] for result in results]
        assert written["mean"][name] == pytest.approx(np.mean(values), abs=1e-12)
        assert written["standard_deviation"][name] == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    assert results[0]["eval_loss"] != results[1]["eval_loss"]
    assert f"Best by eval_accuracy: {written['best']['directory']}" in done.stderr
    written = {"seeds.json", "comparison.html", "comparison.md"}
    assert {path.name for path in out.iterdir()} == {"seed-5", "seed-6", *written}

    alone = [sys.executable, str(ROOT / "run_finetune.py"), *common, f"--output_dir={corpus / 'alone'}", "--seed=6"]
    subprocess.run(alone, cwd=corpus, check=True, timeout=300)
    found = json.loads((corpus / "alone" / "all_results.json").read_text())
    assert {n: v for n, v in found.items() if n.startswith("eval_")} == {
        n: v for n, v in results[1].items() if n.startswith("eval_")
    }

    done = subprocess.run([*command, "--weight_decay=0.5"], cwd=corpus, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "weight_decay=0.01 before and 0.5 now" in done.stderr
