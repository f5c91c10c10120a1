"""Gradients in bfloat16 against float32, variable by variable: tfbert's forward pass, and the model's own.

    python benchmarks/bfloat16_gradients.py --rows=32 --width=128 [--xla]

A tagger of two layers with random weights and no dropout, random texts and tags, one step. The model's own pass is
transformers' TensorFlow code with Keras's dense layers, whose biases TensorFlow sums in bfloat16 on a CPU. Prints, for
each kind of variable, the largest relative error (of norms) over the layers; without the biases of attention's keys,
which softmax does not feel: their gradients are rounding alone.
"""

import argparse
import collections
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from tfbert.devices.process import choose_kernels  # noqa: E402

choose_kernels()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf_keras as keras  # noqa: E402
from transformers import BertConfig, TFBertForTokenClassification  # noqa: E402

from tfbert.model.forward import forward_tokens  # noqa: E402

VOCAB, TAGS = 1000, 3


def main() -> None:
    """Prints the errors of both passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--xla", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    inputs = {"input_ids": rng.integers(0, VOCAB, (args.rows, args.width)).astype(np.int32)}
    inputs |= {
        "attention_mask": np.ones_like(inputs["input_ids"]),
        "token_type_ids": np.zeros_like(inputs["input_ids"]),
    }
    tags = rng.integers(0, TAGS, (args.rows, args.width))
    exact = gradients(forward_tokens, "float32", inputs, tags)
    passes = {
        "tfbert": forward_tokens,
        "transformers": lambda model, inputs, training: model(inputs, training=training)[0],
    }
    errors = collections.defaultdict(dict)
    for name, run in passes.items():
        for variable, value in gradients(run, "mixed_bfloat16", inputs, tags, xla=args.xla).items():
            if "key/bias" in variable:
                continue
            error = float(np.linalg.norm(value - exact[variable]) / np.linalg.norm(exact[variable]))
            kind = re.sub(r"^bert/|encoder/layer_\._\d+/|:0$", "", variable)
            errors[kind][name] = max(errors[kind].get(name, 0), error)
    print(f"{args.rows * args.width:,} tokens{', XLA' if args.xla else ''}")
    for kind, found in sorted(errors.items(), key=lambda item: -item[1]["transformers"]):
        print(f"{kind:45} " + "  ".join(f"{name} {error:7.4f}" for name, error in found.items()))


def gradients(run, policy: str, inputs: dict, tags: np.ndarray, *, xla: bool = False) -> dict[str, np.ndarray]:
    """The gradient of each variable."""
    keras.mixed_precision.set_global_policy(policy)
    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    no_dropout = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    model = TFBertForTokenClassification(BertConfig(vocab_size=VOCAB, num_labels=TAGS, **sizes, **no_dropout))
    model.build_in_name_scope()

    @tf.function(jit_compile=xla)
    def compute(inputs):
        with tf.GradientTape() as tape:
            logits = tf.cast(run(model, inputs, True), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tags, logits))
        return [tf.convert_to_tensor(one) for one in tape.gradient(loss, model.trainable_variables)]

    values = zip(model.trainable_variables, compute(inputs), strict=True)
    return {variable.name.partition("/")[2]: value.numpy() for variable, value in values}


if __name__ == "__main__":
    main()
