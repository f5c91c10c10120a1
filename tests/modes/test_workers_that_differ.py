"""The command on two workers that are not of the same run: both say what differs, and nothing is written."""

import json
import shutil

import pytest

from tests.support.processes import processes_of
from tests.support.saved_models import save_random
from tfbert.launch import worker_environments

pytestmark = [pytest.mark.slow, pytest.mark.multi_worker]

COMMAND = """\
import json, os, runpy, sys
sys.path.insert(0, ".")
own = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
sys.argv = ["run_finetune.py", "--strategy=multi_worker", *json.loads(sys.argv[1])[own]]
runpy.run_path("run_finetune.py", run_name="__main__")
"""
TRAIN = ["--model={model}", "--train_file={train}", "--max_seq_length=16", "--global_batch_size=8", "--max_steps=2"]
CASES = {
    "options": (TRAIN, [*TRAIN, "--seed=7", "--logging_steps=1"], ["seed=42 on worker 0 and 7 on worker 1."]),
    "precision": (TRAIN, [*TRAIN, "--mixed_precision"], ["mixed_precision=False on worker 0 and True on worker 1"]),
    "data": (TRAIN, [*TRAIN, "--train_file={other}"], ["train='8 examples, ", "and '9 examples, "]),
    "configuration": (
        ["--mode=evaluate", "--model={model}", "--test_file={train}"],
        ["--mode=evaluate", "--model={relu}", "--test_file={train}"],
        ["config.json.hidden_act='gelu' on worker 0 and 'relu' on worker 1."],
    ),
    "rows": (
        ["--mode=predict", "--model={model}", "--input_file={train}"],
        ["--mode=predict", "--model={copy}", "--input_file={other}"],
        ["rows='8, ", "and '9, "],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_say_what_differs_and_nothing_is_written(case, tmp_path):
    save_random(tmp_path / "model", ["0", "1"], num_texts=1)
    for name in ("copy", "relu"):
        shutil.copytree(tmp_path / "model", tmp_path / name)
    path = tmp_path / "relu" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_act": "relu"}))
    for name, rows in (("train", 8), ("other", 9)):
        lines = [f"{row % 2}\tgood film" for row in range(rows)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["label\tsentence", *lines]) + "\n")
    names = {each.stem: str(each) for each in tmp_path.iterdir()}
    out = "--output_file={out}.tsv" if case == "rows" else "--output_dir={out}"
    *flags, expected = CASES[case]
    given = [[flag.format(out=tmp_path / "out", **names) for flag in [*each, out]] for each in flags]
    with processes_of([COMMAND, json.dumps(given)], worker_environments(2)) as processes:
        errors = [process.communicate(timeout=170)[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2], errors
    first, second = ([line for line in error.splitlines() if "error: All workers must" in line] for error in errors)
    assert first == second and len(first) == 1, errors
    assert all(part in first[0] for part in expected), first
    assert not list(tmp_path.glob("out*"))
