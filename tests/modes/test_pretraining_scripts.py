"""The scripts of docs/pretraining: commands that parse, every shard made once, what was stopped queued again."""

import os
import re
import shlex
import subprocess

import pytest

from tests.support.flag_values import parsed
from tests.support.processes import ROOT
from tfbert.config.run import PRETRAIN

DOCS = ROOT / "docs"
SCRIPTS = DOCS / "pretraining"
ARRAY = "pretraining/prepare_array.sbatch"


def shards_of(config):
    """The shards that a task makes."""
    first, last = map(int, config.corpus.shards.split("-"))
    return range(first, last + 1)


def start(script, directory, code, arguments=(), **variables):
    """Runs a script where `srun` notes its arguments and ends with a status: the status, calls of srun, of scontrol."""
    programs = {"srun": f'printf "%s\\n" "$@" END >> "{directory}/srun.args"; {code}'}
    programs |= {"scontrol": f'echo "$@" >> "{directory}/scontrol.args"'}
    for name, text in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    env = {"PATH": f"{directory}:{os.environ['PATH']}", "TFBERT": str(ROOT), "SLURM_CPUS_PER_TASK": "8"}
    env |= {name: str(value) for name, value in variables.items()}
    done = subprocess.run(["bash", DOCS / script, *arguments], env=env, cwd=directory, timeout=20)
    files = [directory / f"{name}.args" for name in programs]
    calls, requeued = (file.read_text() if file.exists() else "" for file in files)
    files[0].unlink(missing_ok=True)
    return done.returncode, [call.splitlines() for call in calls.split("END\n")[:-1]], requeued


@pytest.mark.parametrize("script", sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.sbatch")))
@pytest.mark.parametrize("missing", ["TFBERT", "VENV"])
def test_nothing_starts_where_a_directory_is_missing(tmp_path, script, missing):
    """It would be another program's, with another Python."""
    given = dict.fromkeys(("MODEL", "DATA", "OUTPUT", "CORPUS", "VOCAB", "RECORDS_128", "RECORDS_512"), "a")
    given |= {"SLURM_JOB_ID": 7, "SLURM_ARRAY_TASK_ID": 0, "SLURM_ARRAY_TASK_MIN": 0, "SLURM_ARRAY_TASK_COUNT": 2}
    status, calls, requeued = start(script, tmp_path, "exit 0", **given)
    assert status == 0 and calls, "else the test below shows nothing"
    status, calls, requeued = start(script, tmp_path, "exit 0", **given, **{missing: tmp_path / "none"})
    assert status == 1 and not calls and not requeued


@pytest.mark.parametrize("script, strategy", [("one_node.sbatch", "mirrored"), ("multi_node.sbatch", "multi_worker")])
@pytest.mark.parametrize("status", [0, 1, 75])
def test_the_second_phase_follows_the_first(tmp_path, monkeypatch, script, strategy, status):
    monkeypatch.chdir(ROOT)  # Where the presets are.
    out = tmp_path / "runs"
    given = {"SLURM_JOB_ID": 7, "RECORDS_128": "a", "RECORDS_512": "b", "OUTPUT": out, "SIZE": "base"}
    found, calls, requeued = start(f"pretraining/{script}", tmp_path, f"exit {status}", ["--seed=3"], **given)
    assert found == status
    assert requeued == ("requeue 7\n" if status == 75 else "")
    assert len(calls) == (1 if status else 2)
    for call, phase, records, model in zip(calls, (1, 2), "ab", ("scratch/base", str(out / "phase1")), strict=False):
        assert call[:3] == ["--kill-on-bad-exit=0", "python", PRETRAIN.script]
        config = parsed(*call[3:], command=PRETRAIN)
        assert (config.runtime.strategy, config.runtime.seed) == (strategy, 3)
        assert (config.pretraining.train_records, config.model.model_name_or_path) == ((records,), model)
        assert config.output.output_dir == str(out / f"phase{phase}")
        assert config.data.max_seq_length == (128, 512)[phase - 1]


def test_a_phase_that_is_done_is_not_started_again(tmp_path):
    for phase in ("phase1", "phase2"):
        (tmp_path / "runs" / phase).mkdir(parents=True)
        given = {"SLURM_JOB_ID": 7, "RECORDS_128": "a", "RECORDS_512": "b", "OUTPUT": tmp_path / "runs"}
        (tmp_path / "runs" / phase / "all_results.json").touch()
        status, calls, _ = start("pretraining/one_node.sbatch", tmp_path, "exit 0", **given)
        assert (status, len(calls)) == (0, 1 if phase == "phase1" else 0)


def test_the_tasks_of_an_array_make_every_shard_once(tmp_path):
    (tmp_path / "vocab.txt").touch()
    given = {"CORPUS": "corpus/*.jsonl.gz", "VOCAB": tmp_path / "vocab.txt", "OUTPUT": "records", "NUM_SHARDS": 11}
    given |= {"SLURM_ARRAY_TASK_COUNT": 4, "SLURM_ARRAY_TASK_MIN": 5}
    made = []
    for task in range(5, 9):
        status, (call,), _ = start(ARRAY, tmp_path, "exit 0", SLURM_ARRAY_TASK_ID=task, **given)
        assert status == 0
        config = parsed(*call[2:], command=PRETRAIN)
        assert (config.mode, config.corpus.num_shards, config.corpus.num_processes) == ("prepare", 11, 8)
        assert config.corpus.input_files == ("corpus/*.jsonl.gz",)
        made += shards_of(config)
    assert made == list(range(11))


def test_more_tasks_than_shards_are_no_error(tmp_path):
    given = {"CORPUS": "c", "VOCAB": "v", "OUTPUT": "r", "NUM_SHARDS": 1, "SLURM_ARRAY_TASK_COUNT": 2}
    assert start(ARRAY, tmp_path, "", SLURM_ARRAY_TASK_ID=0, SLURM_ARRAY_TASK_MIN=0, **given)[:2] == (0, [])


def test_the_pods_of_an_indexed_job_make_every_shard_once(tmp_path):
    text = (SCRIPTS / "prepare_job.yaml").read_text()
    pods = int(re.search(r"completions: (\d+)", text)[1])
    script = re.search(r"- \|\n(.*?)          resources", text, re.DOTALL)[1]
    (tmp_path / "tfbert").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')  # the image's only command
    (tmp_path / "tfbert").chmod(0o755)
    made = []
    for index in range(pods):
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": str(index)}
        done = subprocess.run(["bash", "-euc", script], env=env, capture_output=True, text=True, check=True, timeout=20)
        word, *arguments = done.stdout.replace("/data/vocab.txt", str(tmp_path / "tfbert")).splitlines()
        assert word == "pretrain"
        config = parsed(*arguments, command=PRETRAIN)
        made += shards_of(config)
    assert made == list(range(config.corpus.num_shards)), shlex.join(arguments)
