"""Whether and from where a run goes on: what a directory holds, what is refused by name, what is left when it is."""

import dataclasses
import json
import os
import pathlib
import types

import pytest

from tests.support.clocks import schedule
from tests.support.refusals import refused
from tests.support.runs import checkpoints_in, flipped
from tfbert.batches.schedule import warmup_steps
from tfbert.config.run import Config
from tfbert.config.types import OnResume
from tfbert.errors import RunError, UsageError
from tfbert.output import output_dir
from tfbert.train import resume

FACTS = {"task": "classification", "train_crc32": 1, resume.EVALUATION: 2}


@pytest.fixture(autouse=True)
def no_launch(monkeypatch):
    """Whatever started the tests."""
    for name in ("TFBERT_LAUNCHED_AT", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def launched(monkeypatch):
    """This process is one of a launch, as are runs that begin after it."""
    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-093000")


def config_for(directory="", **options):
    return Config().resolved().changed({"output_dir": str(directory)} | options)


def checked(start, facts=FACTS, total_steps=12):
    """The state, the schedule and the lines of a run that resumes."""
    planned = schedule(total_steps, warmup_steps=warmup_steps(start.asked.training, total_steps))
    return resume.check_same_run(start, facts, planned) if start.resumed else (None, planned, [])


def identity_of(config, total_steps=12, start=None):
    start = start or resume.Start(directory=pathlib.Path(), asked=config, config=config)
    return resume.identify(start, start.config, FACTS, checked(start, FACTS, total_steps)[1], 1)


def write_run(directory, config=None, *, step=0, finished=False):
    """What a run leaves in a directory that has come so far."""
    directory.mkdir(parents=True, exist_ok=True)
    config = config or config_for(directory)
    resume.write_start(directory, config, identity_of(config), is_resumed=False)
    if step:
        _, save = checkpoints_in(directory)
        save(step, identity=dataclasses.asdict(identity_of(config)))
    if finished:
        (directory / output_dir.RESULTS).write_text('{"global_step": 12}')
    return config


@pytest.fixture
def run(tmp_path):
    """The directory of a run that has come to update 9 of 12, with the options of `config_for`."""
    write_run(tmp_path / "run", step=9)
    return tmp_path / "run"


def start_in(directory, config=None, **options):
    before = sorted(directory.parent.rglob("*"))
    try:
        return resume.decide(directory, (config or config_for(directory)).changed(options))
    finally:
        assert sorted(directory.parent.rglob("*")) == before


def refuses(message, directory, config=None, **options):
    """A start is refused, in one line; which is returned."""
    with refused(message) as error:
        start_in(directory, config, **options)
    return str(error.value)


def test_every_option_says_what_it_is_to_a_run_that_goes_on():
    fields = [(type(part), field) for part in Config().parts() for field in dataclasses.fields(part)]
    trained = [(part, field) for part, field in fields if "train" in field.metadata["modes"]]
    kinds = {field.name: field.metadata["resume"] for _, field in trained}
    assert set(kinds.values()) == set(OnResume.__args__), [n for n, kind in kinds.items() if kind is None]
    others = {part.__name__ for part, _ in fields} - {part.__name__ for part, _ in trained}
    assert others == {"CorpusConfig", "PredictConfig", "ExportConfig"}
    assert not any(field.metadata["resume"] for _, field in fields if "train" not in field.metadata["modes"])


def test_a_new_or_empty_directory_is_a_start(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        start = start_in(tmp_path / name)
        assert (start.resumed, start.finished, start.notes) == (None, None, ())


@pytest.mark.parametrize("options", [{}, {"resume": "never"}])
def test_files_of_something_else_are_refused(tmp_path, options):
    for name in ("notes.txt", ".hidden"):
        directory = tmp_path / name.strip(".")
        directory.mkdir()
        (directory / name).write_text("mine")
        refuses(f"must be new or empty.*{name}.*Pass another", directory, **options)


def test_a_finished_run_is_refused_and_says_how_to_train_on(tmp_path):
    write_run(tmp_path / "run", step=9, finished=True)
    refuses(rf"a finished run.*--overwrite_output_dir.*--model={tmp_path}/run", tmp_path / "run")
    assert start_in(tmp_path / "run", overwrite_output_dir=True).resumed is None


def test_an_unfinished_run_goes_on_from_its_checkpoint_or_begins_anew(run, tmp_path):
    start = start_in(run)
    assert start.resumed.step == 9 and start.checkpoint == run / "checkpoints" / "step-00000009"
    refuses("an unfinished run", run, resume="never")
    (run / "run_config.json").unlink()
    assert start_in(run).resumed.step == 9, "the checkpoint says all that is believed"

    write_run(tmp_path / "young")
    start = start_in(tmp_path / "young")
    assert start.resumed is None and "starts at the beginning" in start.notes[0]
    message = "another configuration, with learning_rate=0.0005 before and 0.001 now"
    refuses(message, tmp_path / "young", learning_rate=1e-3)


@pytest.mark.parametrize("mode", ["evaluate", "benchmark", "", None])
def test_only_a_run_is_overwritten(mode, tmp_path):
    directory = tmp_path / "run"
    for name in ("checkpoints", "profile", "tensorboard"):
        (directory / name).mkdir(parents=True)
        (directory / name / "mine").write_text("mine")
    for name in ("README.md", "config.json", output_dir.RESULTS, output_dir.EVAL_RESULTS):
        (directory / name).write_text("{}")
    if mode is not None:
        (directory / output_dir.RUN_CONFIG).write_text(json.dumps({"mode": mode}) if mode else "not JSON")
    line = "must be new or empty.*which holds 'README.md' and no training run to overwrite. Pass another.$"
    refuses(line, directory, overwrite_output_dir=True)
    # Whatever is missing, of whatever version: a run that ended early may have left its configuration alone.
    (directory / output_dir.RUN_CONFIG).write_text('{"mode": "train", "gone": 1}')
    assert start_in(directory, overwrite_output_dir=True).resumed is None


def test_overwriting_keeps_the_mark_of_a_run_until_it_is_replaced(tmp_path, monkeypatch):
    directory, config = tmp_path / "run", config_for(tmp_path / "run", overwrite_output_dir=True)
    write_run(directory, config, step=9, finished=True)

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(output_dir.shutil, "rmtree", killed)
        resume.write_start(directory, config, identity_of(config), is_resumed=False)
    refuses("a finished run", directory)
    start_in(directory, overwrite_output_dir=True)
    resume.write_start(directory, config, identity_of(config), is_resumed=False)
    assert output_dir.contents(directory) == [output_dir.RUN_CONFIG]
    assert Config.from_json((directory / output_dir.RUN_CONFIG).read_text()) == config


@pytest.mark.parametrize("model", ["run", "link", "run/checkpoints/step-1"])
def test_the_model_is_not_overwritten_by_its_own_run(model, tmp_path):
    directory = tmp_path / "run"
    write_run(directory)
    (directory / "checkpoints" / "step-1").mkdir(parents=True)
    (tmp_path / "link").symlink_to(directory)
    for overwrite in (True, False):
        config = config_for(directory, overwrite_output_dir=overwrite, model_name_or_path=str(tmp_path / model))
        refuses("output_dir must not hold the model.*Pass another --output_dir", directory, config)
    (tmp_path / "new").mkdir()
    start_in(tmp_path / "new", config)


# What a run that began with defaults may resume with, and what it may not: options before and now.
CHANGED = {"learning_rate": (0.0005, 0.001), "optimizer": ("adamw", "lamb"), "global_batch_size": (32, 16)}
CHANGED |= {"dropout": (None, 0.2), "max_grad_norm": (1.0, 0.0), "all_reduce_dtype": ("float32", "bfloat16")}
CHANGED |= {"label_smoothing": (0.0, 0.1), "early_stopping_patience": (0, 2), "eval_steps": (0, 5), "seed": (42, 7)}
CHANGED |= {"mixed_precision": (False, True), "max_seq_length": (128, 64), "batching": ("length_grouped", "packed")}
REFUSED = [({name: now}, f"{name}={before!r} before and {now!r} now") for name, (before, now) in CHANGED.items()]
REFUSED += [
    ({"lr_schedule": "cosine", "warmup_ratio": 0.2}, "lr_schedule='linear' before and 'cosine' now, w"),
    ({"lr_schedule": "polynomial", "lr_power": 0.5}, "lr_power=1.0 before and 0.5 now"),
    ({"class_weights": (1.0, 2.0)}, r"class_weights='' before and \[1.0, 2.0\] now"),
    ({"metric_for_best_model": "f1"}, "metric_for_best_model"),
    ({"model_name_or_path": "scratch/mini"}, "model_name_or_path='scratch/tiny' before and 'scratch/mini'"),
]


@pytest.mark.parametrize("options, message", REFUSED, ids=lambda value: "" if isinstance(value, str) else [*value][-1])
def test_settings_that_change_the_result_are_refused_by_name(run, options, message):
    line = refuses(message, run, **options)
    assert "the settings that it began with" in line
    assert f"another --output_dir: with --model={run}/checkpoints/step-00000009" in line


def test_settings_that_split_the_work_or_report_it_may_be_others(run):
    splits = {"gradient_accumulation_steps": 2, "gradient_checkpointing": True, "strategy": "mirrored"}
    config = config_for(run, **splits, num_replicas=2, logging_steps=1, save_steps=3, report_to=("tensorboard",))
    start = start_in(run, config)
    _, _, (line, split) = checked(start)
    assert line == f"resuming at step 9 of 12 from {run}/checkpoints/step-00000009"
    assert "the same updates but for rounding" in split and "num_replicas=2 in place of 0" in split
    assert "logging_steps" not in split
    _, _, (_, split) = checked(start_in(run, config, strategy="one_device", num_replicas=0, xla=True))
    assert "other dropout noise" in split and "xla=True in place of False" in split
    # The whole run's truth: what was otherwise before, for readers of run_config.json; the old form still loads.
    what = identity_of(config, start=start)
    resume.write_start(run, config, what, is_resumed=True)
    text = (run / output_dir.RUN_CONFIG).read_text()
    earlier = json.loads(text)["until_step"]["9"]
    assert earlier["num_replicas"] == 0 and earlier["gradient_accumulation_steps"] == 1 and "seed" not in earlier
    assert Config.from_json(text) == config


def test_a_longer_run_is_said_and_a_shorter_one_refused(run):
    start = start_in(run, num_train_epochs=6.0)
    _, planned, lines = checked(start, total_steps=24)
    assert "a longer run than before, 24 updates in place of 12: the learning rate falls to 0 at the new end" in lines
    training = config_for(run).training
    assert warmup_steps(training, 12) == 2 and warmup_steps(training, 24) == 3
    assert (planned.warmup_steps, planned.first_step) == (2, 9)

    # The next start of the longer run, by the same command, or as earlier versions wrote its run_config.json.
    what = identity_of(start.config, 24, start=start)
    assert what.until_step == {"9": {"num_train_epochs": 3.0}} and what.choices["warmup_steps"] == 2
    checkpoints_in(run)[1](15, identity=dataclasses.asdict(what))
    for options in ({}, {"warmup_steps": 2}):
        _, planned, lines = checked(start_in(run, start.asked, **options), total_steps=24)
        assert len(lines) == 1 and planned.warmup_steps == 2
    # What is repeated from it is what was asked for, such as by --seeds over a seed that was continued.
    resume.write_start(run, start.config, what, is_resumed=True)
    assert not resume.different_in(output_dir.read_run_config(run), start.asked)

    with refused("15 of 24 planned updates done and 16 asked for now, .*Pass the earlier length"):
        checked(start_in(run, max_steps=16), total_steps=16)


def test_what_is_read_from_elsewhere_than_before_is_recorded(run):
    start = start_in(run, text_column=("text",))
    what = identity_of(start.config, 12, start=start)
    assert what.until_step == {"9": {"text_column": []}}
    assert what.settings["text_column"] == ["text"]


def test_other_data_or_another_model_is_refused_and_other_evaluation_examples_forget_the_best(run):
    start = start_in(run)
    with refused("order of batches and precision.*train_crc32=1 before and 5 now"):
        checked(start, FACTS | {"train_crc32": 5})
    state = dataclasses.replace(start.resumed, best={"eval_loss": 1.0}, best_step=4)
    start = dataclasses.replace(start, resumed=state)
    assert checked(start)[0] == state
    state, _, lines = checked(start, FACTS | {resume.EVALUATION: 3})
    assert (state.best, state.best_step) == ({}, 0) and "forgotten" in lines[-1]


def test_a_run_in_the_batch_order_of_an_earlier_version_is_refused(run):
    """It would see some examples twice in its epoch, and others not at all."""
    start = start_in(run)
    earlier = dataclasses.replace(start.earlier, facts=FACTS | {"batch_order": 1})
    with refused("batch_order=1 before and 2 now. Finish it with the version of tfbert that"):
        checked(dataclasses.replace(start, earlier=earlier), FACTS | {"batch_order": 2})


def test_a_longer_packed_run_says_that_its_rows_are_packed_anew(tmp_path):
    for batching, said in (("packed", ["rows are packed anew"]), ("padded", [])):
        config = config_for(tmp_path / batching, batching=batching)
        write_run(tmp_path / batching, config, step=9)
        _, _, lines = checked(start_in(tmp_path / batching, config), total_steps=24)
        assert [line[:20] for line in lines if line.startswith("rows are packed")] == said


def test_micro_batches_that_were_found_are_kept_on_as_many_replicas(tmp_path):
    config = config_for(tmp_path / "run", gradient_accumulation_steps="auto")
    start = resume.Start(directory=tmp_path, asked=config, config=config.accumulating(4))
    (tmp_path / "run").mkdir()
    _, save = checkpoints_in(tmp_path / "run")
    save(9, identity=dataclasses.asdict(identity_of(config, start=start)))
    assert start_in(tmp_path / "run", config).config.training.gradient_accumulation_steps == 4
    assert resume.decide(tmp_path / "run", config, num_replicas=2).config.training.is_auto
    # Who repeats run_config.json asks for the number: no other run, and nothing to say.
    repeated = start_in(tmp_path / "run", config.accumulating(4))
    assert len(checked(repeated)[2]) == 1
    assert identity_of(config, start=repeated).settings["gradient_accumulation_steps"] == "auto"


def test_what_this_launch_wrote_is_gone_on_with_whatever_was_asked(launched, run, monkeypatch):
    for options in ({"resume": "never"}, {"overwrite_output_dir": True}):
        assert start_in(run, **options).resumed.step == 9
    (run / output_dir.RESULTS).write_text('{"global_step": 12}')
    assert start_in(run, overwrite_output_dir=True).finished == {"global_step": 12}
    line = "a launch needs.*has finished a run with learning_rate=0.0005 before and 0.001 now. Pass"
    refuses(line, run, learning_rate=1e-3)  # Such as a script under one launch that trains several times.
    (run / output_dir.RESULTS).write_text('{"global')
    refuses("results must be whole", run)

    monkeypatch.setenv("TFBERT_LAUNCHED_AT", "20261121-100000")
    assert start_in(run, overwrite_output_dir=True).resumed is None
    refuses("a finished run", run, resume="never")


def test_a_requeued_slurm_job_is_the_same_launch(tmp_path, monkeypatch):
    """Its command may say --overwrite_output_dir: it must not delete what it wrote before."""
    run = tmp_path / "run"

    def steps():
        found = start_in(run, overwrite_output_dir=True).resumed
        return found.step if found else 0

    monkeypatch.setenv("SLURM_JOB_ID", "71")
    config = write_run(run, step=9)
    assert not steps(), "a second command of the same start is another run"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert steps() == 9
    resume.write_start(run, config, identity_of(config), is_resumed=True)
    assert not steps()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert steps() == 9
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert not steps()
    for damaged in ("slurm-7 1", "", "slurm-7 x", "[" * 100_000, '{"launch": "slurm-7", "start": 1}', "\x00"):
        (run / output_dir.LAUNCH).write_text(damaged)
        refuses("launched_at.*damaged", run, overwrite_output_dir=True)


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_a_changed_byte_of_what_a_start_reads_is_noticed_or_harmless(launched, tmp_path, every):
    """`state.json` and the files beside it: tests/train/test_checkpoint.py."""
    for name, step in (("run", 9), ("young", 0)):
        config = write_run(tmp_path / name, step=step)
        overwriting = config.changed({"overwrite_output_dir": True})
        right = start_in(tmp_path / name, overwriting)
        noticed = 0
        for _ in flipped(tmp_path / name / output_dir.LAUNCH):
            try:
                assert resume.decide(tmp_path / name, overwriting) == right
            except UsageError:
                noticed += 1
        assert noticed > 60
        right = start_in(tmp_path / name, config)
        for _ in flipped(tmp_path / name / output_dir.RUN_CONFIG, every=every):
            with_another_name = False
            try:
                assert resume.decide(tmp_path / name, config) == right
            except UsageError:
                with_another_name = True
            assert not (step and with_another_name), "a checkpoint says all that is believed"


class Worker:
    """One of two workers' consensus: the other one's opinions are given."""

    def __init__(self, *others):
        self.others, self.asked = list(others), []

    def any(self, opinion):
        self.asked.append(opinion)
        return opinion or (self.others.pop(0) if self.others else False)


STRATEGY = types.SimpleNamespace(num_replicas_in_sync=1, cluster_resolver=None)


def opened(directory, config, worker=None):
    return resume.open_directory(directory, config, STRATEGY, worker or Worker())


def test_the_lock_comes_before_anything_is_read(run, monkeypatch):
    """Else a start that meets a checkpoint half written reports that, and not the run that is writing it."""
    second = Worker()
    with opened(run, config_for(run)) as start:
        assert start.resumed.step == 9
        monkeypatch.setattr(resume, "decide", lambda *arguments, **options: pytest.fail("read"))
        with refused("another process is writing", RunError), opened(run, config_for(run), second):
            pass
    assert second.asked == [False, True], "the other workers are told"


def test_another_run_of_a_launched_process_is_no_restart_of_the_first(launched, tmp_path):
    run = tmp_path / "run"
    config = config_for(run, overwrite_output_dir=True)
    with opened(run, config):
        write_run(run, config, step=9, finished=True)
    with opened(run, config.changed({"learning_rate": 0.5})) as start:
        assert (start.resumed, start.finished) == (None, None)
    refuses("a finished run", run)


def test_a_refusal_of_one_worker_is_one_of_all(tmp_path):
    for others, kind in (([True], UsageError), ([False, True], RunError), ([False, False, True], UsageError)):
        worker = Worker(*others)
        with refused("See its output", kind), opened(tmp_path / "run", config_for(tmp_path / "run"), worker):
            pass
        assert len(worker.asked) % 2 == 0, "every question is answered"
        assert not list(tmp_path.iterdir())


def test_who_stops_a_run_reads_how_it_goes_on(tmp_path):
    run = tmp_path / "run"
    assert resume.how_to_resume(config_for(run), run) == f"the same command resumes in {run}"
    for config in (config_for(), config_for(run, overwrite_output_dir=True), config_for(run, resume="never")):
        assert resume.how_to_resume(config, run).startswith(f"--output_dir={run} resumes the run, with --resume=auto")


def test_a_start_that_cannot_write_its_first_file_leaves_nothing(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    config = config_for(tmp_path / "run")
    monkeypatch.setattr(os, "fsync", fail)
    with refused("No space", RunError), opened(tmp_path / "run", config) as start:
        resume.write_start(start.directory, config, identity_of(config), is_resumed=False)
    assert not list(tmp_path.iterdir())
