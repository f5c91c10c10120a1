"""`--sweep` and `--seeds`: each run is trained once whatever happens, and the tables are NumPy's means."""

import dataclasses
import json
import math
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support import data_sets
from tests.support.flag_values import configured, parsed
from tests.support.processes import ROOT, is_running, wait_until
from tests.support.reports import make_run, note
from tests.support.sweeps import FakeRuns as Fake
from tests.support.sweeps import files_in
from tfbert.config.run import STARTED_AS, option_words
from tfbert.devices.runtime import inform_on_chief_alone
from tfbert.errors import Preempted, RunError, UsageError
from tfbert.modes import many
from tfbert.modes.many import train_many
from tfbert.report.compare import SweptPoint, rank, tables
from tfbert.report.pages import Table
from tfbert.report.run_files import read_run
from tfbert.train.resume import contents_of


@pytest.fixture(autouse=True)
def everything_is_told():
    yield
    inform_on_chief_alone(True)


def config_for(directory, sweep="learning_rate=1e-5,3e-5,1e-4", **options):
    return configured(output_dir=directory, sweep=sweep, **options)


def of_seeds(directory, *seeds, **options):
    return config_for(directory, "", seeds=seeds or (1, 2, 3), **options)


def started(config):
    """The runs that training the configuration starts, by their names."""
    fake = Fake()
    train_many(config, fake)
    return fake.started


def refuses(config, message, kind=UsageError, after=(), **options):
    """Training the configuration is refused with this message, after these runs were started."""
    fake = Fake(**options)
    with pytest.raises(kind, match=message):
        train_many(config, fake)
    assert fake.started == [*after]


def written(directory):
    return json.loads((directory / "sweep.json").read_text())


def test_the_table_ranks_the_means(tmp_path, caplog, drawn):
    caplog.set_level("INFO", "tfbert")
    fake = Fake()
    sweep = "global_batch_size=16,32;learning_rate=1e-5,3e-5"
    found = train_many(config_for(tmp_path, sweep, seeds=(1, 2, 3)), fake)
    assert len(fake.started) == 12 and fake.started[0] == "global_batch_size=16,learning_rate=1e-05,seed=1"
    best, *others = written(tmp_path)["points"]
    assert best["values"] == {"global_batch_size": 32, "learning_rate": 3e-5} and len(others) == 3
    means = [point["mean"]["eval_accuracy"] for point in written(tmp_path)["points"]]
    assert means == sorted(means, reverse=True)
    assert [run["seed"] for run in best["runs"]] == [1, 2, 3]
    assert written(tmp_path)["best"] == best and best["directory"].endswith("seed=3")

    table = (tmp_path / "sweep.md").read_text().splitlines()
    assert table[0] == "| global_batch_size | learning_rate | runs | eval_accuracy | eval_loss | time |"
    assert table[2] == "| 32 | 3e-05 | 3 of 3 | 0.7817 ± 0.0002 | 0.2183 ± 0.0002 | 12.0 s |"
    assert "Best by eval_accuracy: global_batch_size=32, learning_rate=3e-05, in" in caplog.text
    page = (tmp_path / "sweep.html").read_text()
    assert 'href="global_batch_size%3D32%2Clearning_rate%3D3e-05%2Cseed%3D3/report.html"' in page
    assert "0.7817 ± 0.0002" in page
    rows = found.rows()
    assert rows[0]["eval_accuracy"] == best["mean"]["eval_accuracy"] and rows[0]["learning_rate"] == 3e-5
    assert rows[0]["eval_accuracy_std"] > 0 and rows[0]["directory"] == best["directory"]


def test_the_same_command_goes_on_and_may_grow(tmp_path):
    train_many(config_for(tmp_path, "learning_rate=1e-5,3e-5"), Fake())
    first = written(tmp_path)
    assert started(config_for(tmp_path, "learning_rate=0.00003,1e-5")) == []
    assert written(tmp_path)["points"] == first["points"]
    assert started(config_for(tmp_path)) == ["learning_rate=0.0001"] and len(written(tmp_path)["points"]) == 3
    assert started(config_for(tmp_path, "learning_rate=1e-5", seeds=(1,))) == ["learning_rate=1e-05,seed=1"]
    assert len(written(tmp_path)["points"]) == 1


def test_other_settings_are_refused(tmp_path):
    train_many(config_for(tmp_path, "learning_rate=1e-5"), Fake())
    config = config_for(tmp_path, weight_decay=0.5)
    refuses(config, r"everything else equal\. Received: .*weight_decay=0\.01 before and 0\.5 now")


@pytest.fixture
def on_files(tmp_path):
    """What makes a sweep's configuration with a file for every option that can name one."""
    (tmp_path / "model").mkdir()
    files = {option: tmp_path / name for option, name in FILES.items()}
    for path in (*files.values(), *(tmp_path / name for name in ("a.tsv", "model/config.json", "model/README.md"))):
        path.write_text("text\tlabel\n")
    given = files | {"validation_file": [tmp_path / "a.tsv", tmp_path / "b.tsv"]}
    given |= {"model_name_or_path": tmp_path / "model"}

    def config(sweep="learning_rate=1e-5,3e-5", **options):
        return config_for(tmp_path / "out", sweep, task="classification", **given | options)

    return config, files


FILES = {"train_file": "train.tsv", "validation_file": "b.tsv", "test_file": "test.tsv", "label_names": "names.txt"}
FILES |= {"vocab_file": "vocab.txt", "model_name_or_path": "model/model.safetensors"}


@pytest.mark.parametrize("option", FILES)
def test_a_file_that_changed_under_its_name_is_refused_before_anything_is_written(on_files, tmp_path, option):
    config, files = on_files
    train_many(config(), Fake())
    (tmp_path / "model" / "README.md").write_text("a report, which decides nothing")
    os.utime(files[option])
    before = files_in(tmp_path / "out")
    assert started(config()) == []  # The same content, read at another time.
    before |= {path: what for path, what in files_in(tmp_path / "out").items() if path.parent == tmp_path / "out"}
    files[option].write_text("text\tLabel\n")
    refuses(config(), rf"Received: '{tmp_path}/out/.*', a finished run with other contents of {option}\.")
    assert files_in(tmp_path / "out") == before

    # A run that was only begun is evaluated by the files of today, but goes on with those that it was trained on.
    for results in (tmp_path / "out").glob("*/all_results.json"):
        results.unlink()
        (results.parent / "checkpoints" / "step-00000004").mkdir(parents=True)
    if option == "train_file":
        refuses(config(), "an unfinished run with other contents of train_file")
        for checkpoint in (tmp_path / "out").glob("*/checkpoints/step-*"):
            checkpoint.rmdir()  # Without one it starts at the beginning.
    assert len(started(config())) == 2
    train_many(config(overwrite_output_dir=True), Fake())


def test_a_file_that_is_named_later_or_no_longer(on_files):
    config, _ = on_files
    train_many(config(test_file=""), Fake())
    refuses(config(), "a finished run with other contents of test_file")
    train_many(config(overwrite_output_dir=True), Fake())
    assert started(config(test_file="")) == [], "the runs have more than is asked for"


def test_a_file_that_changes_during_a_sweep_ends_it(on_files):
    config, files = on_files
    first, second = "learning_rate=1e-05", "learning_rate=3e-05"
    message = "a file changed after the first run had begun: other contents of train_file"
    at = {second: lambda _: files["train_file"].write_text("other")}
    refuses(config("learning_rate=1e-5,3e-5,1e-4"), message, RunError, [first, second], at=at)


def test_records_count_by_their_manifest(tmp_path):
    for name, text in (("0.tfrecord", "a"), ("1.tfrecord", "b")):
        (tmp_path / name).write_text(text)
    config = configured(model="scratch/tiny", task="pretraining", train_records=tmp_path)
    first = contents_of(config)
    (tmp_path / "1.tfrecord").write_text("c")
    assert first["train_file"] == 0 and contents_of(config)["train_records"] != first["train_records"] != 0
    missing = config.changed({"train_records": tmp_path / "none"})
    assert "train_records" not in contents_of(missing)  # The run itself says so.


def test_directories_and_data_sets_by_name_count_with_all_their_files(tmp_path):
    """A folder for each class, TensorFlow Datasets' own files, a vocabulary of KerasHub."""
    vocabulary = tmp_path / "model/assets/tokenizer/vocabulary.txt"
    for name in ("tree/pos/a.txt", "tree/neg/b.txt", "other/pos/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    vocabulary.parent.mkdir(parents=True)
    vocabulary.write_text("[PAD]")
    features = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
    for row in ("good", "bad"):  # `bad` comes to lie under the name of `good`.
        rows = {"train": [(row, 0)], "validation": [("x", 1)]}
        data_sets.prepare(tmp_path / f"tfds_{row}", "small_set", features, rows)
    (tmp_path / "tfds").symlink_to(tmp_path / "tfds_good")

    def other_set():
        (tmp_path / "tfds").unlink()
        (tmp_path / "tfds").symlink_to(tmp_path / "tfds_bad")

    tree, other = tmp_path / "tree", tmp_path / "other"
    named = {"train_file": tree}
    both = named | {"validation_file": other}
    cases = [
        (named, "train_file", lambda: (tree / "pos/a.txt").write_text("another")),
        (named, "train_file", lambda: (tree / "pos/c.txt").write_text("one more")),
        (named, "train_file", lambda: (tree / "pos").rename(tree / "positive")),
        (both, "validation_file", lambda: (other / "pos/a.txt").write_text("another")),
        ({"dataset": "small_set", "data_dir": tmp_path / "tfds"}, "dataset", other_set),
        (named, "model_name_or_path", lambda: vocabulary.write_text("[PAD]\n[UNK]")),
    ]
    for place, (data, option, change) in enumerate(cases):
        options = {"task": "classification", "model": tmp_path / "model"} | data
        config = config_for(tmp_path / f"out-{place}", "xla=true,false", **options)
        assert (len(started(config)), len(started(config))) == (2, 0)
        change()
        refuses(config, rf"a finished run with other contents of {option}\.")


def test_a_run_that_fails_or_is_refused_does_not_stop_the_others(tmp_path):
    fake = Fake({"learning_rate=1e-05": 2, "learning_rate=3e-05": -signal.SIGKILL})
    with pytest.raises(RunError, match=r"2 of 3 runs that failed, learning_rate=1e-05 \(refused, see its message\)"):
        train_many(config_for(tmp_path), fake)
    table = (tmp_path / "sweep.md").read_text()
    assert "| 1e-05 | – | – | – |" in table and "is missing: killed by SIGKILL" in table.replace("\\", "")
    failed = {name: why for point in written(tmp_path)["points"] for name, why in point["failed"].items()}
    assert failed == {"learning_rate=1e-05": "refused, see its message", "learning_rate=3e-05": "killed by SIGKILL"}
    assert started(config_for(tmp_path)) == ["learning_rate=1e-05", "learning_rate=3e-05"]
    with pytest.raises(UsageError, match="Received: learning_rate=1e-05, which was refused"):
        train_many(config_for(tmp_path / "all"), Fake(dict.fromkeys(fake.started, 2)))
    with pytest.raises(RunError, match=r"1 of 1 runs that failed, seed 1 \(exit status 1\)\."):
        train_many(of_seeds(tmp_path / "seeds", 1), Fake({"seed-1": 1}))
    assert not (tmp_path / "seeds" / "sweep.json").exists()


def test_equal_runs_have_no_best(tmp_path):
    found = train_many(config_for(tmp_path, "warmup_ratio=0.1,0.2"), Fake())
    assert (found.best, found.ranking.equal, written(tmp_path)["best"]) == (None, 2, None)
    assert "Best by eval_accuracy: none, all runs are equal, also in eval_loss." in (tmp_path / "sweep.md").read_text()


def test_a_run_whose_score_is_no_number_is_not_the_best(tmp_path):
    found = train_many(config_for(tmp_path, "learning_rate=1e-5,3e-5"), Fake())
    broken = dataclasses.replace(found.points[0].runs[0], results={"eval_accuracy": math.nan})
    points = [dataclasses.replace(found.points[0], runs=[broken]), found.points[1]]
    assert rank(points).best == points[1] and rank(points[:1]).best is None
    assert rank(points[:1]).lines() == ["Best by eval_accuracy: none, it is a number in none of them."]


def test_fewer_examples_than_asked_for_are_told(tmp_path):
    train_many(config_for(tmp_path, "max_train_examples=10,100,3000", seeds=(1, 2)), Fake())
    assert "There are 500 training examples, fewer than the 3,000 asked for." in (tmp_path / "sweep.html").read_text()


ACCURACIES = {1: 0.8125, 2: 0.9375, 3: 0.875}


def scores_of(seed):
    return {"accuracy": ACCURACIES.get(seed, 0.5), "eval_loss": 1 / (seed + 1), "test_f1": seed / 7}


def made_run(directory, seed, decisive="eval_accuracy"):
    """The finished run of a seed, as a report reads it."""
    make_run(directory, **scores_of(seed))
    (directory / "run_config.json").write_text(configured(seed=seed, output_dir=directory).resolved().to_json())
    note(directory, decisive_metric=decisive)
    return read_run(directory)


def test_the_table_of_seeds_is_numpys(tmp_path, caplog):
    caplog.set_level("INFO", "tfbert")
    fake = Fake(scores=lambda config: scores_of(config.runtime.seed))
    found = train_many(of_seeds(tmp_path), fake)
    assert fake.started == ["seed-1", "seed-2", "seed-3"]
    values = {"eval_accuracy": [*ACCURACIES.values()]}
    values |= {"eval_loss": [1 / 2, 1 / 3, 1 / 4], "test_f1": [1 / 7, 2 / 7, 3 / 7]}
    seeds, (point,) = written(tmp_path), written(tmp_path)["points"]
    for name, numbers in values.items():
        assert point["mean"][name] == pytest.approx(np.mean(numbers), abs=1e-12)
        assert point["standard_deviation"][name] == pytest.approx(np.std(numbers, ddof=1), abs=1e-12)
        assert [run["results"][name] for run in point["runs"]] == pytest.approx(numbers)
    assert set(point["mean"]) == set(values) and seeds["best"] == point
    assert point["directory"] == found.best.directory == str(tmp_path / "seed-2")
    assert ([run["seed"] for run in point["runs"]], point["failed"]) == ([1, 2, 3], {})
    assert seeds["decisive"] == seeds["decided_by"] == "eval_accuracy"

    table = (tmp_path / "sweep.md").read_text()
    assert "| 3 of 3 | 0.8750 ± 0.0625 | 0.3611 ± 0.1273 |" in table
    assert "| seed 2 | 0.9375 | 0.3333 | 0.2857 |" in table and "| mean | 0.8750 |" in table
    best = f"Best by eval_accuracy: {tmp_path / 'seed-2'}"
    assert "| standard deviation | 0.0625 |" in table and f"- {best}" in table
    lines = caplog.text.splitlines()
    assert any(line.endswith(best) for line in lines)
    assert any("standard deviation" in line and "0.0625" in line for line in lines)
    page = (tmp_path / "sweep.html").read_text()
    assert "Over the seeds" in page and "0.0625" in page and f"<p>{best}</p>" in page


def test_a_single_run_has_no_standard_deviation_and_nan_is_never_best(tmp_path):
    one, broken, less = (made_run(tmp_path / str(seed), seed) for seed in (1, 2, 3))
    assert (SweptPoint(runs=[one]).standard_deviation, SweptPoint(runs=[one]).ranking.best) == ({}, 0)
    broken.results["eval_accuracy"] = float("nan")
    assert SweptPoint(runs=[broken, one]).ranking.best == 1
    assert SweptPoint(runs=[broken]).ranking.best is None
    del less.results["test_f1"]
    assert set(SweptPoint(runs=[one, less]).mean) == {"eval_accuracy", "eval_loss"}, "of metrics that all runs have"


EQUAL = [
    ((0.0, 0.0, 0.0), (0.5, 0.5, 0.5), "Best by eval_f1: none, all runs are equal, also in eval_loss", None),
    ((0.0, 0.0, 0.0), (0.5, 0.2, 0.3), "Best by eval_loss (several are equal in eval_f1): seed 2", 1),
    ((1.0, 0.5, 1.0), (0.2, 0.1, 0.3), "Best by eval_loss (several are equal in eval_f1): seed 1", 0),
    ((1, 0.5, 1), (0.2, 0.1, 0.2), "Best by eval_f1: none, seed 1 and seed 3 are equal, also in eval_loss", None),
    ((0.5, 0.5, 0.7), (0.2, 0.1, 0.9), "Best by eval_f1: seed 3", 2),
    ((float("nan"), 0.0, 0.0), (0.1, 0.3, 0.2), "Best by eval_loss (several are equal in eval_f1): seed 3", 2),
]


@pytest.mark.parametrize("scores, losses, words, best", EQUAL)
def test_equally_good_seeds_are_told_apart_by_their_loss_or_not_at_all(tmp_path, scores, losses, words, best):
    runs = [made_run(tmp_path / f"seed-{seed}", seed, "eval_f1") for seed in (1, 2, 3)]
    for run, score, loss in zip(runs, scores, losses, strict=True):
        run.results.update(eval_f1=score, eval_loss=loss)
    point = SweptPoint(runs=runs)
    found = rank([point])
    assert found.best == (None if best is None else point) and point.directory == runs[best or 0].name
    assert found.lines()[0].replace(f"{tmp_path}/seed-", "seed ").rstrip(".") == words
    assert found.tables(tmp_path)[1].kept == best


def test_the_table_on_the_screen_is_narrow():
    table = Table(names=["run", "a"], body=[["seed 1", "0.5"], ["mean", "10.25"]])
    assert table.plain() == ["run         a", "seed 1    0.5", "mean    10.25"]
    wide = Table(names=["run", "a", "bb"], body=[["mean", "1", "2"]])
    assert wide.plain() == ["run  mean", "a       1", "bb      2"]


def test_runs_that_differ_otherwise_have_no_mean(tmp_path):
    runs = [made_run(tmp_path / f"seed-{seed}", seed) for seed in (1, 2)]
    assert [table.title for table in tables(runs)][1] == "Over the seeds"
    assert "Over the seeds" not in [table.title for table in tables([runs[1], runs[1]])]
    runs[0].config["training"]["weight_decay"] = 0.5
    assert "Over the seeds" not in [table.title for table in tables(runs)]


def test_a_table_of_an_earlier_version_does_not_stay_beside_the_new_one(tmp_path):
    for name in ("seeds.json", "seeds.md", "comparison.html"):
        (tmp_path / name).write_text("of two seeds")
    train_many(of_seeds(tmp_path), Fake())
    assert len(written(tmp_path)["points"][0]["runs"]) == 3
    assert not [*tmp_path.glob("seeds.*")] and (tmp_path / "comparison.html").read_text() == "of two seeds"


def test_each_run_is_the_command_with_its_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tfbert finetune", "--x"])
    options = {"learning_rate": 3e-5, "max_steps": 9, "max_seq_length": 64, "label_column": 'a, "b"'}
    config, fake = of_seeds(tmp_path, 7, 42, **options), Fake()
    train_many(config, fake)
    for seed, run in zip((7, 42), fake.configs, strict=True):
        assert run == configured(seed=seed, output_dir=tmp_path / f"seed-{seed}", **options)
    assert fake.variables == [{STARTED_AS: "tfbert finetune"}] * 2


def test_words_make_the_same_configuration():
    but = {"dataset": "imdb", "text_column": ("a,b", 'say "x"'), "class_weights": (1.0, 2.5), "xla": True}
    but |= {"model_name_or_path": "scratch/tiny", "seeds": (1, 2)}
    config = configured(gradient_accumulation_steps="auto", keep_freed_memory=False, **but)
    assert parsed(*option_words(config)) == config
    assert option_words(config, but) == ["--gradient_accumulation_steps=auto", "--nokeep_freed_memory"]


def test_what_cannot_be_used_ends_all(tmp_path):
    refuses(of_seeds(tmp_path), "Received: seed 1, which was refused", after=["seed-1"], statuses={"seed-1": 2})


def test_seeds_of_other_examples_are_not_compared(tmp_path):
    """A file that was changed after the first seed was done."""

    class OfData(Fake):
        def __call__(self, command, variables, signals):
            status = super().__call__(command, variables, signals)
            note(tmp_path / self.started[-1], data={"train_crc32": 1 + (self.started[-1] == "seed-3")})
            return status

    train_many(of_seeds(tmp_path, 1, 2), OfData())
    (tmp_path / "sweep.json").unlink()
    with pytest.raises(RunError, match="the same examples. Received: '.*seed-1' and '.*seed-3', of different ones"):
        train_many(of_seeds(tmp_path, 1, 2, 3), OfData())
    assert not (tmp_path / "sweep.json").exists()


def test_overwriting_and_never_resuming_leave_it_to_the_runs(tmp_path, monkeypatch):
    train_many(of_seeds(tmp_path, 1), Fake())
    for output in ({"overwrite_output_dir": True}, {"resume": "never"}):
        # What a run does is its own affair; this one leaves the directory as it is.
        refuses(of_seeds(tmp_path, 1, **output), None, RunError, ["seed-1"], statuses={"seed-1": 1})
    # But a restart of the same launch takes what its first start made.
    monkeypatch.setattr(many, "is_restart", lambda directory: True)
    assert started(of_seeds(tmp_path, 1, 2, overwrite_output_dir=True)) == ["seed-2"]


@pytest.mark.parametrize("name", ["config.json", "seed-x"])
def test_a_directory_of_something_else_is_refused(tmp_path, name):
    (tmp_path / name).touch()
    refuses(of_seeds(tmp_path), f"must be new, or hold only runs of seeds or of a sweep. Received: .*{name}")


def signalling(*numbers):
    return lambda signals: [os.kill(os.getpid(), number) for number in numbers]


@pytest.mark.parametrize("status", [75, -signal.SIGTERM, 1, 0])
def test_a_signal_ends_the_seeds_after_the_run_at_hand(tmp_path, status):
    message, at = "runs that are done are kept, and the same command resumes in", {"seed-1": signalling(signal.SIGTERM)}
    refuses(of_seeds(tmp_path), f"{message} {tmp_path}", Preempted, ["seed-1"], statuses={"seed-1": status}, at=at)
    alone = tmp_path / "alone"  # It reached the run alone.
    refuses(of_seeds(alone), f"{message} {alone}", Preempted, ["seed-1", "seed-2"], statuses={"seed-2": 75})


def test_a_signal_during_the_last_run_does_not_hide_the_table(tmp_path):
    train_many(of_seeds(tmp_path, 3), Fake())
    train_many(of_seeds(tmp_path), Fake(at={"seed-2": signalling(signal.SIGTERM)}))
    assert [run["seed"] for run in written(tmp_path)["points"][0]["runs"]] == [1, 2, 3], "the third was done before"


def test_a_second_interrupt_stops_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_many(of_seeds(tmp_path), Fake({"seed-1": 130}, {"seed-1": signalling(signal.SIGINT, signal.SIGINT)}))


RUNS_A_CHILD = """
import sys
from tfbert.launch import Signals, run_to_its_end
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
@pytest.mark.parametrize(
    "sent, got", [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGINT"), ("SIGHUP", "SIGTERM"), ("SIGKILL", None)]
)
def test_a_signal_reaches_the_run_and_none_outlives_the_command(tmp_path, sent, got):
    (tmp_path / "child.py").write_text(CHILD)
    ready, number = tmp_path / "ready", int(getattr(signal, sent))
    # Signals as a terminal leaves them, not nohup or `&`.
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)" + RUNS_A_CHILD
    options = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(ROOT)}, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **options) as process:
        try:
            assert wait_until(lambda: ready.exists() and ready.read_text(), 30)
            process.send_signal(number)
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert out.splitlines() == ([f"{int(getattr(signal, got))} b", f"75 [{number}]"] if got else [])
    assert wait_until(lambda: not is_running(int(ready.read_text())))


@pytest.mark.slow
def test_a_sweep_that_was_stopped_and_killed_goes_on_and_gives_the_same_table(corpus):
    """The sweep itself ends by SIGTERM, then by SIGKILL, which nobody can handle, and then a run of it does."""
    common = [f"--train_file={corpus / 'train.tsv'}", f"--validation_file={corpus / 'dev.tsv'}", "--max_seq_length=16"]
    common += ["--max_steps=60", "--device=cpu", "--logging_steps=1", "--save_steps=5", "--eval_steps=20"]
    common += ["--model=scratch/tiny"]

    def command(name, *options):
        return [sys.executable, str(ROOT / "run_finetune.py"), *common, f"--output_dir={corpus / name}", *options]

    def sweep(name):
        return command(name, "--sweep=learning_rate=1e-3,5e-3", "--seeds=5,6")

    def done(command):
        done = subprocess.run(command, cwd=corpus, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stderr

    done(sweep("straight"))
    out = corpus / "killed"
    for seed, how in ((5, signal.SIGTERM), (5, signal.SIGKILL), (6, None)):
        run = out / f"learning_rate=0.001,seed={seed}"
        before = {*run.glob("checkpoints/step-*")}
        process = subprocess.Popen(sweep("killed"), cwd=corpus, stderr=subprocess.PIPE, text=True)
        try:
            # A second checkpoint is begun when the first is whole.
            assert wait_until(lambda run=run, before=before: len({*run.glob("checkpoints/step-*")} - before) > 1, 200)
            child = next(int(pid) for pid in children_of(process.pid))
            os.kill(child if how is None else process.pid, how or signal.SIGKILL)
            _, errors = process.communicate(timeout=600)
        finally:
            process.kill()
        if how == signal.SIGTERM:
            assert process.returncode == 75, errors
            assert errors.splitlines()[-1].startswith("run_finetune.py: stopped; runs that are done are kept, and")
    assert process.returncode == 1 and "learning_rate=0.001, seed 6 (killed by SIGKILL)" in errors
    assert "resuming at step" in done(sweep("killed"))

    def scores(directory):
        return [(p["values"], p["mean"], p["standard_deviation"]) for p in written(directory)["points"]]

    assert scores(out) == scores(corpus / "straight") and len(scores(out)) == 2
    done(command("alone", "--learning_rate=5e-3", "--seed=6"))
    alone, swept = (corpus / "alone", out / "learning_rate=0.005,seed=6")
    found = [json.loads((run / "all_results.json").read_text()) for run in (alone, swept)]
    same = ("eval_loss", "eval_accuracy", "train_loss")
    assert [found[0][name] for name in same] == [found[1][name] for name in same]


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


SCRIPT = """
import os, sys
from tokenizers import Tokenizer, models, pre_tokenizers
from tfbert.launch import start_child
tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.encode_batch(["a a"] * 64)
child = start_child([sys.executable, "-c", "import os; print(os.environ.get('TOKENIZERS_PARALLELISM'))"])
assert child.wait() == 0 and "TOKENIZERS_PARALLELISM" not in os.environ
os.waitpid(os.fork() or os._exit(0), 0)
"""


def test_a_process_that_has_tokenised_starts_one_without_a_warning():
    """The warning is that of the last line alone, a fork of the user's own."""
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "None\n" and done.stderr.count("just got forked") == 1
