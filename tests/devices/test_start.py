"""Who of the workers speaks: information is the chief's, warnings are everybody's."""

import json
import logging

import pytest

from tests.support.models import strategy_of
from tfbert import Config, RuntimeConfig, UsageError
from tfbert.devices import runtime

LOG = logging.getLogger("tfbert")
OTHER = (
    "this is worker 1 of 2: it computes with the others, but worker 0 alone shows progress and writes files, such as "
    "log.jsonl in the output directory; warnings and errors are shown here too"
)


@pytest.fixture
def start_as(monkeypatch):
    """Starts this process's devices as the chief's, or as another worker's."""

    def start_as(chief):
        workers = {"cluster": {"worker": ["127.0.0.1:1234", "127.0.0.1:1235"]}, "task": {"type": "worker", "index": 1}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(workers))
        monkeypatch.setattr(runtime, "build_strategy", lambda *args, **kwargs: strategy_of(1))
        monkeypatch.setattr(runtime, "is_chief", lambda strategy: chief)
        assert runtime.start_devices(Config(runtime=RuntimeConfig(device="cpu")))[1] is chief

    yield start_as
    runtime.inform_on_chief_alone(True)


def tell():
    LOG.debug("details")
    LOG.info("evaluating")
    LOG.warning("damaged")


def test_only_the_chief_informs_and_every_worker_warns(start_as, logged):
    for chief, expected in [
        (True, ["evaluating", "damaged"]),
        (False, [OTHER, "damaged"]),
        (False, ["damaged"]),  # It has said so.
        (True, ["evaluating", "damaged"]),  # A process may be the chief of its next run.
    ]:
        start_as(chief)
        tell()
        assert logged() == expected


def test_other_workers_inform_where_debugging_is_asked_for(start_as, logged, caplog):
    caplog.set_level(logging.DEBUG, logger="tfbert")
    start_as(False)
    tell()
    assert logged() == [OTHER, "details", "evaluating", "damaged"]


def test_another_backend_of_keras_is_refused_with_the_way_out(monkeypatch):
    runtime.check_backend()
    monkeypatch.setattr(runtime.keras.config, "backend", lambda: "jax")
    with pytest.raises(UsageError, match="by TensorFlow. Received: Keras with the backend 'jax'"):
        runtime.start_devices(Config(runtime=RuntimeConfig(device="cpu")))
