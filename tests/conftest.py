"""Two logical CPUs before TensorFlow starts, switches for tests that need a GPU, and fixtures of several files."""

import fcntl
import functools
import gc
import gzip
import json
import os
import pathlib
import shutil
import signal
import sys
import typing

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["HF_HUB_OFFLINE"] = "1"
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # Each of the programs that tests start would compile all anew.
    sys.dont_write_bytecode = False

import pytest

gc.set_threshold(50_000, 20, 20)  # Imports and tracing call the collector all the time.


def pytest_addoption(parser):
    parser.addoption("--require-gpu", action="store_true", help="use GPUs, else hidden; fail where there is none")
    parser.addoption("--measure", action="store_true", help="keep how long each file took, for the order of later runs")


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # As in the background of a shell; programs would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--require-gpu"):  # Nor do programs that tests start, and workers, see any.
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    is_controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if is_controller and not config.getoption("--require-gpu"):
        return  # It runs no test, and its workers start only after this.
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)  # TensorFlow asks again for each value.
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if config.getoption("--require-gpu") and not gpus:
        raise pytest.UsageError("--require-gpu needs a GPU. Received: none visible.")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(autouse=True, scope="session")
def speaks_of_flags():
    """Errors are those that the command shows; `as_python` has the others."""
    from tfbert.errors import in_command

    with in_command():
        yield


@pytest.fixture
def as_python(monkeypatch):
    """Errors are those of a process that is no command."""
    monkeypatch.setattr("tfbert.errors._is_command", False)


SERVED = ("test_export.py", "test_serving_tagger.py", "test_serving_questions.py", "test_tokenizer.py")
"""Files that `ask` a process, which takes seconds to start: one worker runs them all."""

SECONDS = pathlib.Path(__file__).parent / "support" / "seconds.json"
"""How long each file took, as `pytest --measure` wrote it. The longest begin first: no worker is left alone with one at
the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "served" if file.endswith(SERVED) else file

    return Scheduling(config, log) if config.option.dist == "loadfile" else None


def pytest_collection_modifyitems(items):
    seconds = json.loads(SECONDS.read_text())
    served = sum(seconds.get(name, 0) for name in SERVED)  # They go to one worker, as one file would.

    def order(item):
        name = item.path.name
        return -served if name in SERVED else -seconds.get(name, 0), item.path.as_posix()

    items.sort(key=order)


def pytest_runtest_logreport(report):
    name = report.nodeid.partition("::")[0].rpartition("/")[2]
    _took[name] = _took.get(name, 0) + report.duration


_took = {}


def pytest_sessionfinish(session):
    if session.config.getoption("--measure") and not hasattr(session.config, "workerinput"):
        found = {name: round(seconds, 1) for name, seconds in sorted(_took.items()) if seconds >= 1}
        SECONDS.write_text(json.dumps(found, indent=2) + "\n")


def pytest_collection_finish(session):
    _keep_what_is()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    found = yield
    if nextitem is None or nextitem.path != item.path:
        _keep_what_is()
    return found


def _keep_what_is():
    """What is there between two files stays, modules and caches: the collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def graphs_as_they_are_written(request):
    """Quick tests run their graphs without TensorFlow's graph optimiser, which takes longer than it saves there, and
    without the lines of Python that made each operation: a sixth of the time of tracing, for messages no test reads.
    AutoGraph leaves our own code, which needs none of it, as it is: a fifth. Variables share kernels whatever their
    names: a fifteenth.

    Slow tests run with all of it, as do all processes that tests start; `optimised_graphs` with the first.
    """
    if "not slow" in request.config.getoption("markexpr"):
        import tensorflow as tf
        from tensorflow.python.autograph.core import config
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import gen_resource_variable_ops

        config.CONVERSION_RULES = (config.DoNotConvert("tfbert"), *config.CONVERSION_RULES)
        ops._create_c_op.__wrapped__.__defaults__ = None, False  # op_def, extract_traceback
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        make_handle = gen_resource_variable_ops.var_handle_op

        def without_name(*args, debug_name, **kwargs):
            return make_handle(*args, debug_name="" if tf.executing_eagerly() else debug_name, **kwargs)

        gen_resource_variable_ops.var_handle_op = without_name


@pytest.fixture
def optimised_graphs():
    """Graphs run as they do for users."""
    import tensorflow as tf

    before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


@pytest.fixture(autouse=True)
def nothing_of_the_test_before():
    """No test leaves a precision policy to the next. TensorFlow numbers the all-reduces of all MirroredStrategies of a
    process alike, and one mix-up fails the rest: those of each test have numbers of their own."""
    import keras

    from tfbert.private import number_collectives_apart

    number_collectives_apart()
    yield
    keras.config.set_dtype_policy("float32")
    if "tf_keras" in sys.modules:
        sys.modules["tf_keras"].mixed_precision.set_global_policy("float32")


@pytest.fixture(scope="session")
def runs(tmp_path_factory, worker_id):
    """Directory with files of examples and models trained on them for a few steps: `single`, `pairs`, `scores`."""
    from tests.support.saved_models import make_runs

    if worker_id == "master":
        return make_runs(tmp_path_factory.mktemp("runs"))
    # Made by the first worker that needs it, and copied by the others: tests write beside the models.
    shared = tmp_path_factory.getbasetemp().parent / "runs"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            shared.mkdir()
            make_runs(shared)
    return shutil.copytree(shared, tmp_path_factory.mktemp("runs"), dirs_exist_ok=True)


@pytest.fixture(scope="session")
def ask(tmp_path_factory):
    """A function: exported models' answers, from a process that knows TensorFlow and tensorflow_text alone."""
    from tests.support.served import clean_process

    with clean_process(tmp_path_factory.mktemp("clean")) as ask:
        yield ask


@pytest.fixture
def corpus(tmp_path):
    """A directory with `write_corpus`'s files."""
    from tests.support.runs import write_corpus

    write_corpus(tmp_path)
    return tmp_path


@pytest.fixture
def write(tmp_path):
    """Writes a file, named for its format, and returns its path; a list are rows, which become lines of JSON."""

    def write(name: str, content: str | bytes | list) -> str:
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


@pytest.fixture
def logged(caplog):
    """A function: the lines that the command would have shown since its last call."""
    caplog.set_level("INFO", logger="tfbert")

    def lines():
        found = [record.getMessage() for record in caplog.records if record.name == "tfbert"]
        caplog.clear()
        return found

    return lines


@pytest.fixture(autouse=True, scope="session")
def drawing():
    """Pages have an empty picture where matplotlib would take a second for one; gives the function that draws."""
    from tfbert.report import pages

    draw = pages.line_plot
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "line_plot", lambda series, **options: "<svg></svg>")
        yield draw


@pytest.fixture
def drawn(drawing, monkeypatch):
    """Pictures of the test are drawn."""
    monkeypatch.setattr("tfbert.report.pages.line_plot", drawing)


@pytest.fixture
def undrawn():
    """Runs of the test draw no report."""
    from tests.support import runs

    with runs.undrawn():
        yield


@pytest.fixture
def sketched():
    """Runs of the test leave an empty page for a report."""
    from tests.support import runs

    with runs.sketched():
        yield


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory):
    """The vocabulary of `tests.support.texts`, as a file."""
    from tests.support.texts import VOCAB, write_vocab  # imports transformers, which most tests need not

    return write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.txt", VOCAB)


@pytest.fixture(scope="session")
def tokenizer(vocab_file):
    """A tokenizer over it."""
    from tfbert.tokens.tokenizer import BertTokenizer

    return BertTokenizer.from_vocab_file(vocab_file)
