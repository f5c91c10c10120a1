"""Gives an exported model requests that TensorFlow Serving answers before it takes others.

    python examples/serving/warm_up.py served/1 examples/serving/request.json

The first request of a kind is slow, as TensorFlow then sets up its kernels. The requests are those that clients send
over REST, one JSON file each. Needs `pip install tensorflow-serving-api==2.21.0`.
"""

import json
import pathlib
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  (the model's operations)
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

MOST = 1000
"""Serving refuses a model with more."""


def main(model: pathlib.Path, requests: list[pathlib.Path]) -> None:
    """Writes `assets.extra/tf_serving_warmup_requests`, of requests that the model has answered here."""
    if not 0 < len(requests) <= MOST:
        sys.exit(f"A model has 1 to {MOST} requests. Received: {len(requests)}. Pass the files after the model.")
    signatures = tf.saved_model.load(str(model)).signatures
    target = model / "assets.extra" / "tf_serving_warmup_requests"
    target.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(target)) as writer:
        for path in requests:
            request = json.loads(path.read_text(encoding="utf-8"))
            name = request.get("signature_name", "serving_default")
            kinds = signatures[name].structured_input_signature[1]
            inputs = {key: tf.constant(value, kinds[key].dtype) for key, value in request["inputs"].items()}
            signatures[name](**inputs)
            as_protos = {key: tf.make_tensor_proto(value) for key, value in inputs.items()}
            spec = model_pb2.ModelSpec(signature_name=name)
            predict = predict_pb2.PredictRequest(model_spec=spec, inputs=as_protos)
            log = prediction_log_pb2.PredictLog(request=predict)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())
    print(f"{len(requests)} in {target}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), [pathlib.Path(path) for path in sys.argv[2:]])
