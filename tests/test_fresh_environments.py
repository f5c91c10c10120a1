"""tfbert in fresh environments, as setup.cfg installs it, beside the oldest and the newest transformers that were
tried: needs a package index, and minutes."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

OF_TESTS = ["pytest", "pytest-xdist", "pandas"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked, version",
    [(".[tf-keras] transformers==4.54.*", "4.54."), (". transformers>=5 datasets huggingface_hub>=1", "5.")],
    ids=["transformers-4.54", "transformers-5"],
)
def test_a_fresh_environment_trains_and_passes_the_tests_of_models_and_tokens(asked, version, tmp_path):
    source = tmp_path / "clone"
    left_out = shutil.ignore_patterns(".git", "runs", "*.egg-info", "__pycache__", ".*_cache", ".venv")
    shutil.copytree(ROOT, source, ignore=left_out)
    ours = ("PYTHON", "PYTEST", "TF_USE_LEGACY_KERAS")  # The last as tests of transformers 4 leave it behind.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}

    def run(*command):
        program = pathlib.Path(sys.executable) if command[0] == "venv" else tmp_path / "env" / "bin" / "python"
        command = [str(program), "-m", *command] if command[0] != "run_finetune.py" else [str(program), *command]
        found = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
        text = found.stdout + found.stderr
        if "Failed to establish a new connection" in text:
            pytest.skip("needs a package index")
        assert not found.returncode, f"{' '.join(command)}\n{text[-4000:]}"
        return text

    run("venv", str(tmp_path / "env"))
    run("pip", "install", "--quiet", "--no-compile", "-e", *asked.split(), *OF_TESTS)
    installed = {each["name"]: each["version"] for each in json.loads(run("pip", "list", "--format=json"))}
    assert installed["transformers"].startswith(version), installed["transformers"]
    print({name: installed[name] for name in ("transformers", "tokenizers", "huggingface_hub", "keras", "keras-hub")})
    assert "No broken requirements found" in run("pip", "check")

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"pip install -e \. && python (run_finetune\.py.*)", readme)[1].split()
    run(*first, "--output_dir=first")
    results = json.loads((source / "first" / "all_results.json").read_text(encoding="utf-8"))
    assert results["eval_accuracy"] > 0.95
    print({name: value for name, value in results.items() if name.startswith("eval_acc")})

    print(run("pytest", "-n", "0", "tests/bert", "tests/model", "tests/tokens")[-300:])
