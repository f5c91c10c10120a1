"""The runs of a sweep, without the runs."""

import json
import pathlib
import sys

from tests.support.flag_values import defined
from tests.support.reports import make_run
from tfbert.commandline.options import config_from_flags

RATES = (1e-5, 3e-5, 1e-4)


def accuracy(config):
    """Best at 3e-5, a little better with larger batches, and of another value with each seed."""
    place = RATES.index(config.training.learning_rate) if config.training.learning_rate in RATES else 0
    return [0.5, 0.75, 0.25][place] + config.training.global_batch_size / 1024 + config.runtime.seed / 4096


class FakeRuns:
    """Instead of processes: notes what is started, leaves a finished run, and answers with the status given."""

    def __init__(self, statuses=None, at=None):
        self.started, self._statuses, self._at = [], statuses or {}, at or {}

    def __call__(self, command, variables, signals):
        values = defined()
        assert command[:4] == [sys.executable, "-m", "tfbert", "finetune"]
        values(["x", *command[4:]])
        config = config_from_flags(values)
        name = pathlib.Path(config.output.output_dir).name
        self.started.append(name)
        if name in self._at:
            self._at[name](signals)
        status = self._statuses.get(name, 0)
        if status == 0:
            directory = pathlib.Path(config.output.output_dir)
            make_run(directory, accuracy=accuracy(config), eval_loss=1 - accuracy(config))
            (directory / "run_config.json").write_text(config.resolved().to_json())
            facts = json.loads((directory / "report.json").read_text()) | {"decisive_metric": "eval_accuracy"}
            facts["train_examples"] = min(config.data.max_train_examples or 500, 500)
            (directory / "report.json").write_text(json.dumps(facts))
        return status
