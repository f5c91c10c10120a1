"""Private parts of TensorFlow, Keras and transformers: they are there, do what is relied on, and all in one room."""

import ast
import collections
import inspect
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.eager import context

from tests.support.like_keras import classifier, data, logits_loss, sgd
from tests.support.models import strategy_of
from tfbert import private
from tfbert.step.finetuner import FineTuner
from tfbert.step.fused import FusedAdamW

ROOT = pathlib.Path(__file__).parent.parent / "tfbert"
MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
OWN = {"self", "cls"}


def foreign_private_parts(path):
    """What a module uses of others' private parts, as source code."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    defined |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_own(node)}
    defined |= {name for name in OF_BOTH.get(path.as_posix(), ())}
    for node in ast.walk(tree):
        is_own_module = isinstance(node, ast.ImportFrom) and node.module.startswith("tfbert")
        if isinstance(node, ast.ImportFrom) and not is_own_module and {"python", "src"} & set(node.module.split(".")):
            yield ast.unparse(node)
        if isinstance(node, ast.Attribute) and (node.attr.startswith("_") and not node.attr.endswith("__")):
            if not is_own(node) and node.attr not in defined:
                yield ast.unparse(node)
        if isinstance(node, ast.Attribute) and node.attr == "__internal__":
            yield ast.unparse(node)


OF_BOTH = {
    "output/reports.py": ("_asks_to_stop", "_memory", "_missing", "_needs_note", "_receive"),
}
"""What `output/callback.py` keeps from users, who derive from its class, for the one module that calls it."""


def is_own(node):
    base = node.value
    is_super = isinstance(base, ast.Call) and ast.unparse(base.func) == "super"
    return is_super or (isinstance(base, ast.Name) and base.id in OWN)


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "private.py"], ids=str)
def test_no_other_module_uses_private_parts(path):
    assert not [found for found in foreign_private_parts(path) if found != "os._exit"]


def test_determinism_is_asked_for_and_ended():
    assert not private.is_op_determinism_enabled()
    tf.config.experimental.enable_op_determinism()
    try:
        assert private.is_op_determinism_enabled()
    finally:
        private.disable_op_determinism()
    assert not private.is_op_determinism_enabled()


def test_what_autograph_generates_leaves_no_file(tmp_path):
    """Not even in a process that a signal kills; and errors name the lines as before."""
    body = """
import os, signal, sys, tempfile
import tensorflow as tf
from tfbert import private

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
    (tmp_path / "script.py").write_text(body)
    (tmp_path / "temporary").mkdir()
    names = [name for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"]
    env = {name: os.environ[name] for name in names} | {"TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, env=env | {"PYTHONPATH": str(ROOT.parent)}, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "6", "0"], done.stderr
    assert done.returncode == -9 and not list((tmp_path / "temporary").iterdir())


def test_devices_are_initialized_by_their_first_use():
    tf.constant(0)
    assert private.devices_are_initialized()


def test_what_coordination_is_configured_with():
    taken = inspect.signature(context.context().configure_coordination_service).parameters
    assert {
        "service_type",
        "service_leader",
        "cluster_register_timeout_in_ms",
        "heartbeat_timeout_in_ms",
        "coordinated_jobs",
    } <= set(taken)
    assert hasattr(type(context.context()), "coordination_service")
    taken = inspect.signature(context.context().get_config_key_value).parameters
    assert list(taken) == ["key", "timeout_in_ms"]
    taken = inspect.signature(context.context().report_error_to_cluster).parameters
    assert list(taken) == ["error_code", "error_message"]


def test_device_datasets_are_changed_once(monkeypatch):
    made = []
    monkeypatch.setattr(multi_device_iterator_ops, "_create_device_dataset", lambda *args: made.append(args) or 1)
    private.change_device_datasets(lambda dataset: dataset + 1)
    private.change_device_datasets(lambda dataset: dataset + 10)
    assert multi_device_iterator_ops._create_device_dataset("prototype", "device") == 2
    assert made == [("prototype", "device")]


def test_the_real_one_is_called_by_the_iterators_of_several_devices():
    source = inspect.getsource(multi_device_iterator_ops.OwnedMultiDeviceIterator)
    assert "_create_device_dataset(" in source


def test_layers_come_depth_first_with_the_model_itself():
    inner = keras.Sequential([keras.layers.Dense(1, name="a"), keras.layers.Dropout(0.5, name="b")], name="inner")
    model = keras.Sequential([inner, keras.layers.Dense(1, name="c")], name="outer")
    assert [layer.name for layer in private.layers_of(model)] == ["outer", "inner", "a", "b", "c"]


def test_random_layers_take_another_generator_that_is_not_saved():
    class Ones(private.RandomGenerator):
        def dropout(self, inputs, rate, noise_shape=None):
            return tf.ones_like(inputs)

    layer = keras.layers.Dropout(0.5)
    assert isinstance(private.generator_of(layer), private.RandomGenerator)
    assert private.generator_of(keras.layers.Dense(1)) is None
    tracked = set(layer._trackable_children())
    private.set_generator(layer, Ones(1))
    np.testing.assert_array_equal(layer(tf.zeros([2, 3]), training=True), np.ones([2, 3]))
    assert set(layer._trackable_children()) == tracked


def test_masks_are_those_that_keras_sets_and_reads():
    embedded = keras.layers.Embedding(4, 2, mask_zero=True)(tf.constant([[1, 0]]))
    np.testing.assert_array_equal(private.mask_of(embedded), [[True, False]])
    assert private.mask_of(tf.constant(1.0)) is None
    marked = private.with_mask(tf.ones([1, 2, 2]), private.mask_of(embedded))
    pooled = keras.layers.GlobalAveragePooling1D()(marked * 1, mask=private.mask_of(marked))
    np.testing.assert_array_equal(pooled, [[1.0, 1.0]])
    metric = keras.metrics.Mean()
    compiled = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    compiled.compile(weighted_metrics=[keras.metrics.MeanAbsoluteError(name="error")])
    predictions = private.with_mask(tf.constant([[[1.0], [9.0]]]), private.mask_of(embedded))
    compiled.compiled_metrics.update_state(tf.zeros([1, 2, 1]), predictions)
    assert metric.result() == 0 and float(compiled.compiled_metrics.metrics[0].result()) == 1.0


def test_a_policy_stores_float16_and_computes_in_float32():
    layer = keras.layers.Dense(1, dtype=private.policy_storing_float16())
    output = layer(tf.ones([1, 2]))
    assert (layer.kernel.dtype, output.dtype) == (tf.float16, tf.float32)


def test_what_adamw_overrides_is_what_keras_calls():
    """In `apply_gradients`, decay first, then the update of all variables, by these names."""
    calls = []

    class Noting(FusedAdamW):
        def _apply_weight_decay(self, variables):
            calls.append("decay")

        def _distributed_apply_gradients_fn(self, distribution, grads_and_vars, **kwargs):
            calls.append("update")
            return super()._distributed_apply_gradients_fn(distribution, grads_and_vars, **kwargs)

    variable = tf.Variable([1.0])
    Noting(learning_rate=0.1, weight_decay=0.5).apply_gradients([(tf.constant([1.0]), variable)])
    assert calls == ["decay", "update"] and float(variable[0]) < 1


def test_collectives_of_the_next_strategy_have_other_numbers():
    before = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).extended._collective_key_base
    private.number_collectives_apart()
    assert tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).extended._collective_key_base == before + 100_000


def test_the_rate_is_what_the_optimizer_was_given():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    assert private.rate_of(keras.optimizers.Adam(schedule)) is schedule
    assert float(private.rate_of(keras.optimizers.Adam(0.25))) == 0.25


def test_the_loss_scales_variables_are_those_that_it_reads():
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)
    variables = private.loss_scale_variables(optimizer)
    variables["value"].assign(4.0)
    variables["good_steps"].assign(3)
    assert (float(optimizer.loss_scale), int(optimizer.dynamic_counter)) == (4.0, 3)


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_with_metrics_given_by_name_are_traced_once(replicas, monkeypatch):
    traced = collections.Counter()

    def counted(name, original):
        def step(self, data):
            traced[name] += 1
            return original(self, data)

        monkeypatch.setattr(FineTuner, name, step)

    counted("train_step", FineTuner.train_step)
    counted("test_step", FineTuner.test_step)
    strategy = strategy_of(replicas)
    with strategy.scope():
        trained = FineTuner(classifier())
        trained.compile(sgd(), logits_loss(), metrics=["accuracy"], weighted_metrics=["accuracy"])
    x, y = data()
    trained.fit(x, y, epochs=2, verbose=0)
    found = trained.evaluate(x, y, verbose=0, return_dict=True)
    assert traced == {"train_step": replicas, "test_step": replicas}
    accuracy = np.mean(np.argmax(trained.predict(x, verbose=0), axis=1) == y)
    assert found["accuracy"] == found["weighted_accuracy"] == pytest.approx(accuracy)
    variables = [v for metric in trained.compiled_metrics.metrics for v in metric.variables]
    assert all(len(strategy.experimental_local_results(v)) == replicas for v in variables)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_metrics_of_transformers_import_what_they_call_when_they_call_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "transformers.data.metrics", raising=False)
    assert private.import_modeling_tf_bert().TFBertModel
    metrics = sys.modules["transformers.data.metrics"]
    assert not hasattr(metrics.f1_score, "__wrapped__"), "scikit-learn's own"
    one, other = np.array([1, 0, 1, 1]), np.array([1, 1, 1, 0])
    assert metrics.glue_compute_metrics("mrpc", one, other)["f1"] == pytest.approx(2 / 3)
    assert metrics.glue_compute_metrics("cola", one, one)["mcc"] == 1.0
    assert metrics.glue_compute_metrics("sts-b", one, 2 * one)["corr"] == pytest.approx(1.0)


@pytest.mark.slow
def test_a_model_is_built_without_scikit_learn():
    program = "from tfbert.private import import_modeling_tf_bert as bert; import sys; bert(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert "transformers.models.bert.modeling_tf_bert" in done.stdout.split()
    assert not {"sklearn", "scipy.stats"} & set(done.stdout.split())
