"""Two logical CPUs before TensorFlow starts, and switches for tests that need a GPU."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import tensorflow as tf


def pytest_addoption(parser):
    parser.addoption("--require-gpu", action="store_true", help="fail where no GPU is visible")


def pytest_configure(config):
    gpus = tf.config.list_physical_devices("GPU")
    if config.getoption("--require-gpu") and not gpus:
        raise pytest.UsageError("--require-gpu needs a GPU. Received: none visible.")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(autouse=True)
def float32_policy():
    """No test leaves a precision policy to the next."""
    import tf_keras as keras

    keras.mixed_precision.set_global_policy("float32")
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Directory with files of examples and models trained on them for a few steps: `single`, `pairs`, `scores`."""
    from tests.saved_models import make_runs

    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def collectives_of_its_own():
    """TensorFlow numbers the all-reduces of all MirroredStrategies of a process alike; one mix-up fails the rest."""
    tf.distribute.MirroredStrategy._collective_key_base += 100_000
