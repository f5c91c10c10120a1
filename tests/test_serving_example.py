"""examples/serving: the request and the warm-up file, as TensorFlow's own loader answers them."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tests.support.processes import ROOT
from tests.support.served import export_of, random_model, save
from tfbert.tasks.classification.classification import Classification

EXAMPLE = ROOT / "examples" / "serving"
REQUEST = json.loads((EXAMPLE / "request.json").read_text())


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    directory = tmp_path_factory.mktemp("served")
    save(random_model(Classification(("bad", "good")), num_texts=1, max_seq_length=24), directory / "own")
    export_of(directory, "own", directory / "1")
    return directory / "1"


def test_the_request_is_answered(served):
    signature = tf.saved_model.load(str(served)).signatures[REQUEST["signature_name"]]
    found = signature(**{name: tf.constant(values) for name, values in REQUEST["inputs"].items()})
    assert set(found["label"].numpy()) <= {b"bad", b"good"} and found["error"].numpy().tolist() == [b"", b""]


def test_the_operations_that_a_server_needs_beside_tensorflows_own(served):
    """As docs/serving.md names them."""
    (graph,) = SavedModel.FromString((served / "saved_model.pb").read_bytes()).meta_graphs
    functions = graph.graph_def.library.function
    nodes = [*graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    others = {node.op for node in nodes if not hasattr(tf.raw_ops, node.op)} - {f.signature.name for f in functions}
    assert others == {"FastWordpieceTokenizeWithOffsets", "NormalizeUTF8"}


def test_the_warm_up_file_holds_the_request(served):
    log = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    command = [sys.executable, EXAMPLE / "warm_up.py", served, EXAMPLE / "request.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (record,) = tf.data.TFRecordDataset(str(served / "assets.extra" / "tf_serving_warmup_requests"))
    request = log.PredictionLog.FromString(record.numpy()).predict_log.request
    inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
    assert [text.decode() for text in inputs["text"].numpy()] == REQUEST["inputs"]["text"]
    found = tf.saved_model.load(str(served)).signatures[request.model_spec.signature_name](**inputs)
    assert np.isfinite(found["logits"]).all() and request.model_spec.signature_name == REQUEST["signature_name"]
