"""What `tfbert/output/trackers.py` calls of MLflow, with its own strictness, in place of the package: stores in memory,
by their URIs. It is both `mlflow` and `mlflow.entities`."""

import collections
import types

STORES = collections.defaultdict(dict)
"""Of each URI, its runs by their ids; an experiment is its name, which is its id too."""

Metric = collections.namedtuple("Metric", "key value timestamp step")
Param = collections.namedtuple("Param", "key value")


class MlflowClient:
    def __init__(self, tracking_uri=None):
        self._runs = STORES[tracking_uri]
        self._experiments = STORES[tracking_uri, "experiments"]

    def get_experiment_by_name(self, name):
        return self._experiments.get(name)

    def create_experiment(self, name):
        assert name not in self._experiments
        self._experiments[name] = types.SimpleNamespace(experiment_id=f"id of {name}")
        return f"id of {name}"

    def search_experiments(self, filter_string):
        return [self._experiments[filter_string.split("'")[1]]]

    def search_runs(self, experiment_ids, filter_string=""):
        _, tag, _, value, *_ = filter_string.replace("'", " ").replace(".", " ").split() or 4 * [""]
        found = [run for run in self._runs.values() if run.info.experiment_id in experiment_ids]
        return [run for run in found if run.data.tags.get(tag, "") == value]

    def create_run(self, experiment_id, run_name=None, tags=None):
        info = types.SimpleNamespace(run_id=f"run {len(self._runs)}", experiment_id=experiment_id, run_name=run_name)
        info.status, info.end_time = "RUNNING", None
        data = types.SimpleNamespace(tags=dict(tags), params={}, metrics={}, history=collections.defaultdict(list))
        self._runs[info.run_id] = types.SimpleNamespace(info=info, data=data)
        return self._runs[info.run_id]

    def update_run(self, run_id, status, end_time=None):
        info = self._runs[run_id].info
        info.status, info.end_time = status, end_time

    def set_terminated(self, run_id, status):
        self.update_run(run_id, status, end_time=1)

    def log_batch(self, run_id, metrics=(), params=()):
        assert len(params) <= 100
        data = self._runs[run_id].data
        for param in params:
            assert data.params.setdefault(param.key, param.value) == param.value  # One is never changed.
        for metric in metrics:
            data.history[metric.key].append(metric)
            data.metrics[metric.key] = metric.value

    def get_metric_history(self, run_id, key):
        return list(self._runs[run_id].data.history[key])
