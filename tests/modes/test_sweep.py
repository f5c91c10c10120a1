"""`--sweep`: each run of the grid is trained once whatever happens, and the table ranks NumPy's means."""

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
from tests.support.flag_values import SCRATCH
from tests.support.processes import wait_until
from tests.support.sweeps import FakeRuns as Fake
from tests.support.sweeps import files_in
from tfbert.config.data import DataConfig
from tfbert.config.modes import ModelConfig, OutputConfig, RuntimeConfig
from tfbert.config.run import Config
from tfbert.config.tasks import PretrainingConfig
from tfbert.config.training import TrainingConfig
from tfbert.devices.runtime import inform_on_chief_alone
from tfbert.errors import RunError, UsageError
from tfbert.modes.many import train_many
from tfbert.report.compare import rank
from tfbert.train.resume import contents_of

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def everything_is_told():
    yield
    inform_on_chief_alone(True)


def config_for(directory, sweep="learning_rate=1e-5,3e-5,1e-4", seeds=(), **output):
    runtime = RuntimeConfig(sweep=sweep, seeds=seeds)
    return Config(runtime=runtime, output=OutputConfig(output_dir=str(directory), **output))


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
    numbers = [0.75 + 32 / 1024 + seed / 4096 for seed in (1, 2, 3)]
    assert best["mean"]["eval_accuracy"] == pytest.approx(np.mean(numbers), abs=1e-12)
    assert best["standard_deviation"]["eval_accuracy"] == pytest.approx(np.std(numbers, ddof=1), abs=1e-12)
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
    fake = Fake()
    train_many(config_for(tmp_path, "learning_rate=0.00003,1e-5"), fake)
    assert fake.started == [] and written(tmp_path)["points"] == first["points"]
    train_many(config_for(tmp_path), fake)
    assert fake.started == ["learning_rate=0.0001"] and len(written(tmp_path)["points"]) == 3
    train_many(config_for(tmp_path, "learning_rate=1e-5", seeds=(1,)), fake)
    assert fake.started[1:] == ["learning_rate=1e-05,seed=1"] and len(written(tmp_path)["points"]) == 1


def test_other_settings_are_refused(tmp_path):
    train_many(config_for(tmp_path, "learning_rate=1e-5"), Fake())
    config = dataclasses.replace(config_for(tmp_path), training=TrainingConfig(weight_decay=0.5))
    fake = Fake()
    with pytest.raises(UsageError, match=r"everything else equal\. Received: .*weight_decay=0\.01 before and 0\.5 now"):
        train_many(config, fake)
    assert fake.started == []


@pytest.fixture
def on_files(tmp_path):
    """What makes a sweep's configuration, or that of seeds, with a file for every option that can name one."""
    model, records = tmp_path / "model", tmp_path / "records"
    files = {"train_file": "train.tsv", "validation_file": "b.tsv", "test_file": "test.tsv", "label_names": "names.txt"}
    files |= {"vocab_file": "vocab.txt", "model_name_or_path": "model/model.safetensors"}
    for folder in (model, records):
        folder.mkdir()
    for name in (*files.values(), "a.tsv", "model/config.json", "model/README.md"):
        (tmp_path / name).write_text("text\tlabel\n")
    data = DataConfig(
        train_file=str(tmp_path / "train.tsv"),
        validation_file=f"{tmp_path / 'a.tsv'},{tmp_path / 'b.tsv'}",
        test_file=str(tmp_path / "test.tsv"),
        label_names=(str(tmp_path / "names.txt"),),
        task="classification",
    )

    def config(**runtime):
        return Config(
            data=data,
            model=ModelConfig(model_name_or_path=str(model), vocab_file=str(tmp_path / "vocab.txt")),
            runtime=RuntimeConfig(**runtime),
            output=OutputConfig(output_dir=str(tmp_path / "out")),
        )

    return config, {name: tmp_path / file for name, file in files.items()}


OPTIONS = ("train_file", "validation_file", "test_file", "label_names", "vocab_file", "model_name_or_path")


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(
    "runtime", [{"sweep": "learning_rate=1e-5,3e-5"}, pytest.param({"seeds": (1, 2)}, marks=pytest.mark.slow)]
)
def test_a_file_that_changed_under_its_name_is_refused_before_anything_is_written(on_files, tmp_path, option, runtime):
    config, files = on_files
    train_many(config(**runtime), Fake())
    (tmp_path / "model" / "README.md").write_text("a report, which decides nothing")
    os.utime(files[option])
    fake, before = Fake(), files_in(tmp_path / "out")
    train_many(config(**runtime), fake)  # The same content, read at another time.
    before |= {path: what for path, what in files_in(tmp_path / "out").items() if path.parent == tmp_path / "out"}
    files[option].write_text("text\tLabel\n")
    with pytest.raises(
        UsageError, match=rf"Received: '{tmp_path}/out/.*', a finished run with other contents of {option}\."
    ):
        train_many(config(**runtime), fake)
    assert files_in(tmp_path / "out") == before and fake.started == []

    # A run that was only begun is evaluated by the files of today, but goes on with those that it was trained on.
    for results in (tmp_path / "out").glob("*/all_results.json"):
        results.unlink()
        (results.parent / "checkpoints" / "step-00000004").mkdir(parents=True)
    if option == "train_file":
        with pytest.raises(UsageError, match="an unfinished run with other contents of train_file"):
            train_many(config(**runtime), fake)
        assert fake.started == []
        for checkpoint in (tmp_path / "out").glob("*/checkpoints/step-*"):
            checkpoint.rmdir()  # Without one it starts at the beginning.
    train_many(config(**runtime), fake)
    assert len(fake.started) == 2
    replaced = dataclasses.replace(config(**runtime).output, overwrite_output_dir=True)
    train_many(dataclasses.replace(config(**runtime), output=replaced), fake)


def test_a_file_that_is_named_later_or_no_longer(on_files):
    config, files = on_files
    first = config(sweep="learning_rate=1e-5")
    without = dataclasses.replace(first, data=dataclasses.replace(first.data, test_file=""))
    train_many(without, Fake())
    with pytest.raises(UsageError, match="a finished run with other contents of test_file"):
        train_many(first, Fake())
    train_many(dataclasses.replace(first, output=dataclasses.replace(first.output, overwrite_output_dir=True)), Fake())
    fake = Fake()
    train_many(without, fake)  # The runs have more than is asked for.
    assert fake.started == []


def test_a_file_that_changes_during_a_sweep_ends_it(on_files):
    config, files = on_files
    fake = Fake(at={"learning_rate=3e-05": lambda _: files["train_file"].write_text("other")})
    with pytest.raises(RunError, match="a file changed after the first run had begun: other contents of train_file"):
        train_many(config(sweep="learning_rate=1e-5,3e-5,1e-4"), fake)
    assert fake.started == ["learning_rate=1e-05", "learning_rate=3e-05"]


def test_records_count_by_their_manifest(tmp_path):
    for name, text in (("0.tfrecord", "a"), ("1.tfrecord", "b")):
        (tmp_path / name).write_text(text)
    records = PretrainingConfig(train_records=(str(tmp_path),))
    config = Config(model=SCRATCH, data=DataConfig(task="pretraining"), pretraining=records)
    first = contents_of(config)
    (tmp_path / "1.tfrecord").write_text("c")
    assert first["train_file"] == 0 and contents_of(config)["train_records"] != first["train_records"] != 0
    missing = dataclasses.replace(config, pretraining=PretrainingConfig(train_records=(str(tmp_path / "none"),)))
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
    named = {"train_file": str(tree)}
    cases = [
        (named, "train_file", lambda: (tree / "pos/a.txt").write_text("another")),
        (named, "train_file", lambda: (tree / "pos/c.txt").write_text("one more")),
        (named, "train_file", lambda: (tree / "pos").rename(tree / "positive")),
        (
            named | {"validation_file": str(other)},
            "validation_file",
            lambda: (other / "pos/a.txt").write_text("another"),
        ),
        ({"dataset": "small_set", "data_dir": str(tmp_path / "tfds")}, "dataset", other_set),
        (named, "model_name_or_path", lambda: vocabulary.write_text("[PAD]\n[UNK]")),
    ]
    for place, (data, option, change) in enumerate(cases):
        config = Config(
            data=DataConfig(task="classification", **data),
            model=ModelConfig(model_name_or_path=str(tmp_path / "model")),
            runtime=RuntimeConfig(sweep="xla=true,false"),
            output=OutputConfig(output_dir=str(tmp_path / f"out-{place}")),
        )
        fake = Fake()
        train_many(config, fake)
        train_many(config, fake)
        assert len(fake.started) == 2
        change()
        with pytest.raises(UsageError, match=rf"a finished run with other contents of {option}\."):
            train_many(config, fake)
        assert len(fake.started) == 2


def test_a_run_that_fails_or_is_refused_does_not_stop_the_others(tmp_path):
    fake = Fake({"learning_rate=1e-05": 2, "learning_rate=3e-05": -signal.SIGKILL})
    with pytest.raises(RunError, match=r"2 of 3 runs that failed, learning_rate=1e-05 \(refused, see its message\)"):
        train_many(config_for(tmp_path), fake)
    table = (tmp_path / "sweep.md").read_text()
    assert "| 1e-05 | – | – | – |" in table and "is missing: killed by SIGKILL" in table.replace("\\", "")
    again = Fake()
    train_many(config_for(tmp_path), again)
    assert again.started == ["learning_rate=1e-05", "learning_rate=3e-05"]
    with pytest.raises(UsageError, match="Received: learning_rate=1e-05, which was refused"):
        train_many(config_for(tmp_path / "all"), Fake(dict.fromkeys(fake.started, 2)))


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


@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on_and_gives_the_same_table(corpus):
    """The sweep itself and then a run of it are killed by SIGKILL, which nobody can handle."""
    common = [f"--train_file={corpus / 'train.tsv'}", f"--validation_file={corpus / 'dev.tsv'}", "--max_seq_length=16"]
    common += ["--max_steps=60", "--device=cpu", "--logging_steps=1", "--save_steps=5", "--eval_steps=20"]
    common += ["--sweep=learning_rate=1e-3,5e-3", "--seeds=5,6", "--model=scratch/tiny"]

    def command(name):
        return [sys.executable, str(ROOT / "run_finetune.py"), *common, f"--output_dir={corpus / name}"]

    straight = subprocess.run(command("straight"), cwd=corpus, capture_output=True, text=True, timeout=600)
    assert straight.returncode == 0, straight.stderr[-2000:]

    out = corpus / "killed"
    for seed, of_sweep in ((5, True), (6, False)):
        run = out / f"learning_rate=0.001,seed={seed}"
        process = subprocess.Popen(command("killed"), cwd=corpus, stderr=subprocess.PIPE, text=True)
        try:
            # A second checkpoint is begun when the first is whole.
            assert wait_until(lambda run=run: len([*run.glob("checkpoints/step-*")]) > 1, 200)
            if of_sweep:
                process.kill()
                process.communicate(timeout=60)
                continue
            child = next(int(pid) for pid in children_of(process.pid))
            os.kill(child, signal.SIGKILL)
            _, errors = process.communicate(timeout=600)
        finally:
            process.kill()
        assert process.returncode == 1 and "learning_rate=0.001, seed 6 (killed by SIGKILL)" in errors
    done = subprocess.run(command("killed"), cwd=corpus, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "resuming at step" in done.stderr, done.stderr[-2000:]

    def scores(directory):
        return [(p["values"], p["mean"], p["standard_deviation"]) for p in written(directory)["points"]]

    assert scores(out) == scores(corpus / "straight")
    assert len(scores(out)) == 2


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
