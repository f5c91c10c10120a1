"""Private parts of TensorFlow and Keras: they are there, do what is relied on, and all in one room."""

import ast
import gc
import inspect
import os
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.eager import context

from tests.support.processes import QUICK_START, ROOT
from tfbert import private

LIBRARY = ROOT / "tfbert"
MODULES = sorted(path.relative_to(LIBRARY) for path in LIBRARY.rglob("*.py"))
OWN = {"self", "cls"}


def foreign_private_parts(path):
    """What a module uses of others' private parts, as source code."""
    nodes = [*ast.walk(ast.parse((LIBRARY / path).read_text(encoding="utf-8")))]
    defined = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    defined |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and is_own(node)}
    defined |= {*OF_BOTH.get(path.as_posix(), ()), *PUBLIC}
    for node in nodes:
        is_own_module = isinstance(node, ast.ImportFrom) and node.module.startswith("tfbert")
        if isinstance(node, ast.ImportFrom) and not is_own_module and {"python", "src"} & set(node.module.split(".")):
            yield ast.unparse(node)
        if isinstance(node, ast.Attribute) and (node.attr.startswith("_") and not node.attr.endswith("__")):
            if not is_own(node) and node.attr not in defined:
                yield ast.unparse(node)
        if isinstance(node, ast.Attribute) and node.attr == "__internal__":
            yield ast.unparse(node)


OF_BOTH = {"output/logs.py": ("_hears_all",)}
"""What `output/logs.py` keeps from users, who derive from its class."""
PUBLIC = ("_asdict", "_replace")
"""Methods of any named tuple, which Python documents: its fields could have names without the underscore."""


def is_own(node):
    base = node.value
    is_super = isinstance(base, ast.Call) and ast.unparse(base.func) == "super"
    return is_super or (isinstance(base, ast.Name) and base.id in OWN)


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "private.py"], ids=str)
def test_no_other_module_uses_private_parts(path):
    assert not [found for found in foreign_private_parts(path) if found != "os._exit"]


def test_the_layer_of_an_output_is_found():
    one, split = keras.layers.Dense(2), keras.layers.Lambda(lambda x: [x, 2 * x])
    x = keras.Input([3])
    assert private.made_by(one(x)) == (one, 0)
    assert private.made_by(split(x)[1]) == (split, 1)


def test_a_process_may_fork_before_it_uses_tensorflow_and_leaves_no_file_of_autographs(tmp_path):
    """Not even where a signal kills it; and errors name the lines as before."""
    body = """
import os, signal, tempfile
import tensorflow as tf
import tfbert, tfbert.modes.load, tfbert.train.run  # TensorFlow is imported, and not used.
child = os.fork()
if not child:
    tokenizer = tfbert.BertTokenizer("[PAD] [UNK] [CLS] [SEP] [MASK]".split())
    print(tokenizer.encode(["good film"], max_seq_length=8).flat.size, flush=True)
    os._exit(0)
assert not os.waitpid(child, 0)[1]
def branch(x):
    if x > 0:
        x = tf.zeros([2]) + tf.zeros([3])
    return x
try:
    tf.function(branch)(tf.constant(1.0))
except ValueError as error:
    print(str(error).count("x = tf.zeros([2]) + tf.zeros([3])"))
@tf.function
def loop(n):
    total = 0
    for i in tf.range(n):
        if i % 2 == 0:
            total += i
    return total
print(loop(tf.constant(5)).numpy(), len(os.listdir(tempfile.gettempdir())), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    (tmp_path / "script.py").write_text(QUICK_START + body)
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["4", "1", "6", "0"], done.stderr
    assert done.returncode == -9 and not list((tmp_path / "temporary").iterdir())


def test_what_coordination_is_configured_with():
    taken = inspect.signature(context.context().configure_coordination_service).parameters
    waits = {"cluster_register_timeout_in_ms", "heartbeat_timeout_in_ms"}
    assert waits | {"service_type", "service_leader", "coordinated_jobs"} <= set(taken)
    assert hasattr(type(context.context()), "coordination_service")
    taken = inspect.signature(context.context().get_config_key_value).parameters
    assert list(taken) == ["key", "timeout_in_ms"]
    taken = inspect.signature(context.context().report_error_to_cluster).parameters
    assert list(taken) == ["error_code", "error_message"]


def test_device_datasets_are_changed_once(monkeypatch):
    made = []
    monkeypatch.setattr(multi_device_iterator_ops, "_create_device_dataset", lambda *args: made.append(args) or 1)
    monkeypatch.setattr(private, "without_autotune", lambda dataset: dataset + 1)
    private.device_iterators_without_autotune()
    private.device_iterators_without_autotune()
    assert multi_device_iterator_ops._create_device_dataset("prototype", "device") == 2
    assert made == [("prototype", "device")]


def test_collectives_of_the_next_strategy_have_other_numbers():
    before = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).extended._collective_key_base
    private.number_collectives_apart()
    assert tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).extended._collective_key_base == before + 100_000


def test_gradients_that_are_freed_meanwhile_do_not_end_the_walk(monkeypatch):
    """A collection of garbage in mid-walk takes entries out of the registry."""
    registered = {f"{i}": {"type": None} for i in range(5_000)}

    class Freed:
        def __init__(self):
            self.itself = self

        def __del__(self):
            registered.pop("7", None)

    monkeypatch.setattr(private.ops.gradient_registry, "_registry", registered)
    was = gc.get_threshold()
    gc.collect()
    gc.set_threshold(200, 1, 1)
    try:
        Freed()
        private.let_go_of_traced_gradients()
    finally:
        gc.set_threshold(*was)
    gc.collect()
    assert "7" not in registered
