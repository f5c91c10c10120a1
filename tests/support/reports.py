"""The files that a report is drawn from."""

import json

import numpy as np

from tests.support.labelled import labelled
from tfbert.config.run import Config
from tfbert.output.output_dir import SEAL
from tfbert.report.run_files import evaluation_facts, write_facts
from tfbert.tasks.classification.classification import Classification


def make_run(
    directory, *, speed=100.0, replicas=1, accuracy=0.9, precision="float32", nasty="plain", logged=5, **extra
):
    """The files of a finished run, without the run."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(len(directory.name))
    records = []
    for step in range(10, 10 * logged + 1, 10):
        numbers = {"loss": rng.random(), "learning_rate": 1e-4 / step, "grad_norm": 1.0, "examples_per_second": speed}
        records.append({"step": step, "kind": "train", "time": "now"} | numbers | {"data_wait_share": 0.01})
        scores = {"eval_accuracy": rng.random(), "eval_loss": rng.random()}
        records.append({"step": step, "kind": "eval", "epoch": step / 20} | scores)
    (directory / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    results = {"train_runtime": 12.0, "train_samples_per_second": speed / 2, "num_replicas": replicas, "best_step": 20}
    results |= {"train_examples_per_second_steady": speed, "eval_accuracy": accuracy} | extra
    (directory / "all_results.json").write_text(json.dumps(results))
    (directory / "run_config.json").write_text(Config().resolved().to_json())
    examples = labelled(np.array([0, 1, 0]), [nasty] * 3, [nasty] * 3)
    logits = np.array([[0.0, 2.0], [0.0, 1.0], [3.0, 1.0]])
    evaluation = evaluation_facts(Classification((nasty, "good")), nasty, examples, logits)
    facts = {"machine": "one", "versions": {}, "data": {}, "dropout": 0.1, "devices": nasty, "command": nasty}
    note(directory, decisive_metric="eval_accuracy", precision=precision, evaluation=evaluation, **facts)
    return directory


def note(directory, **facts):
    """Facts for the report of a finished run, beside its other files as they are now."""
    path = directory / "report.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known.pop(SEAL, None)
    write_facts(directory, known | facts, json.loads((directory / "all_results.json").read_text()))
