"""A search with Optuna (`pip install optuna`) that stops weak runs early: `python examples/optuna_search.py 12`.

The number is how many trials the study has in the end; the same command again adds what is missing. It trains a small
model on built-in data: put your own model and files into `OPTIONS`.
"""

import pathlib
import shutil
import sys

import optuna

import tfbert

DIRECTORY = pathlib.Path("runs/search")
METRIC = "eval_loss"
OPTIONS = {"model": "scratch/tiny", "max_seq_length": 32, "max_steps": 120, "eval_steps": 20}
OPTIONS |= {"metric_for_best_model": "loss"}  # The run keeps its weights by what the study compares.


class Pruning(tfbert.callbacks.Callback):
    """Reports each evaluation to a trial, and stops the run where the study's pruner wants that."""

    def __init__(self, trial: optuna.Trial):
        self.trial, self.is_pruned = trial, False

    def on_evaluate(self, step, values):
        self.trial.report(values[METRIC], step)
        if self.trial.should_prune() and step < self.run.total_steps:
            self.is_pruned = True
            self.stop()


def objective(trial: optuna.Trial) -> float:
    """Trains with the values that a trial suggests, and returns the metric of the weights that were kept."""
    pruning, directory = Pruning(trial), DIRECTORY / f"trial-{trial.number}"
    try:
        run = tfbert.finetune(
            learning_rate=trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
            global_batch_size=trial.suggest_categorical("global_batch_size", [16, 32]),
            output_dir=directory,
            callbacks=[pruning],
            quiet=True,
            **OPTIONS,
        )
    except tfbert.Preempted:
        if not pruning.is_pruned:
            raise  # Ctrl-C ends the study.
        shutil.rmtree(directory)  # Its checkpoint would let it go on.
        raise optuna.TrialPruned from None
    return run[METRIC]


def main() -> None:
    """Adds trials until the study has as many as the command line asks for."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="search",
        storage=f"sqlite:///{DIRECTORY}/study.db",
        load_if_exists=True,
        direction="minimize",
        sampler=optuna.samplers.TPESampler(seed=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2),
    )
    ended = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    missing = int(sys.argv[1]) - len(study.get_trials(states=ended)) if len(sys.argv) > 1 else 12
    study.optimize(objective, n_trials=max(missing, 0))
    for trial in study.get_trials():
        print(f"trial {trial.number}  {trial.state.name:8}  {trial.value}  {trial.params}")
    print(f"best: trial {study.best_trial.number}, {METRIC} {study.best_value:.4f}, {study.best_params}")


if __name__ == "__main__":
    main()
