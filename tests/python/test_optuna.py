"""The search of `examples/`: a real study, in which runs that do not do well are stopped."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

optuna = pytest.importorskip("optuna")


@pytest.mark.slow
def test_a_study_prunes_and_goes_on(tmp_path):
    def search(trials):
        command = [sys.executable, ROOT / "examples" / "optuna_search.py", str(trials)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    search(4)
    last = search(6)
    assert search(6).splitlines()[-1] == last.splitlines()[-1]
    found = tmp_path / "runs" / "search"
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{found}/study.db")
    states = [trial.state.name for trial in study.get_trials()]
    assert len(states) == 6 and set(states) == {"COMPLETE", "PRUNED"}
    for trial in study.get_trials():
        directory = found / f"trial-{trial.number}"
        assert directory.exists() == (trial.state.name == "COMPLETE")
        if trial.state.name == "PRUNED":
            assert max(trial.intermediate_values) < 120
            continue
        results = json.loads((directory / "all_results.json").read_text())
        assert trial.value == results["eval_loss"] == min(trial.intermediate_values.values())
        lines = map(json.loads, (directory / "log.jsonl").read_text().splitlines())
        logged = {line["step"]: line["eval_loss"] for line in lines if line["kind"] == "eval"}
        assert trial.intermediate_values == logged
    completed = [trial.value for trial in study.get_trials() if trial.state.name == "COMPLETE"]
    assert study.best_value == min(completed) and f"eval_loss {study.best_value:.4f}" in last
