"""The runs of a sweep, without the runs."""

import json
import pathlib
import shutil
import sys

from tests.support.flag_values import parsed
from tests.support.reports import make_run, note
from tfbert.config.run import CONTENTS, FINETUNE, PRETRAIN
from tfbert.modes.pretrain import with_records
from tfbert.train.resume import contents_of

RATES = (1e-5, 3e-5, 1e-4)


def accuracy(config):
    """Best at 3e-5, a little better with larger batches, and of another value with each seed."""
    place = RATES.index(config.training.learning_rate) if config.training.learning_rate in RATES else 0
    return [0.5, 0.75, 0.25][place] + config.training.global_batch_size / 1024 + config.runtime.seed / 4096


class FakeRuns:
    """Instead of processes: notes what is started, leaves a finished run, and answers with the status given.

    Args:
        statuses: By the name of the run's directory.
        at: Likewise, what happens while it runs, which is given the signals.
        scores: What `make_run` takes of a configuration's run.
    """

    def __init__(self, statuses=None, at=None, scores=None):
        self.started, self.configs, self.variables = [], [], []
        self._statuses, self._at = statuses or {}, at or {}
        self._scores = scores or (lambda config: {"accuracy": accuracy(config), "eval_loss": 1 - accuracy(config)})

    def __call__(self, command, variables, signals):
        assert command[:3] == [sys.executable, "-m", "tfbert"]
        (own,) = (each for each in (FINETUNE, PRETRAIN) if each.word == command[3])
        config = parsed(*command[4:], command=own)
        if own is PRETRAIN:
            config = with_records(config)
        directory = pathlib.Path(config.output.output_dir)
        name = directory.name
        self.started.append(name)
        self.configs.append(config)
        self.variables.append(variables)
        if name in self._at:
            self._at[name](signals)
        status = self._statuses.get(name, 0)
        if status == 0:
            shutil.rmtree(directory, ignore_errors=True)
            make_run(directory, **self._scores(config))
            noted = json.loads(config.resolved().to_json()) | {CONTENTS: contents_of(config)}
            (directory / "run_config.json").write_text(json.dumps(noted))
            note(directory, train_examples=min(config.data.max_train_examples or 500, 500))
        return status


def files_in(directory):
    """What a directory holds, to see whether anything in it was touched."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}
