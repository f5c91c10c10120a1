"""KerasHub's BERT with random weights, texts for it, and one big batch written out."""

import keras
import numpy as np
import tensorflow as tf

from tests.support import models
from tests.support.either_keras import CLASSES, weights

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "was", "good", "bad", "a", "fox"]
VOCAB = 50


def bert(dropout=0.2, layers=1, **options):
    """KerasHub's, with random weights."""
    import keras_hub

    keras.utils.set_random_seed(1)
    sizes = {"vocabulary_size": VOCAB, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    backbone = keras_hub.models.BertBackbone(num_layers=layers, max_sequence_length=16, dropout=dropout, **sizes)
    options = {"preprocessor": None, "num_classes": CLASSES, "dropout": dropout} | options
    return keras_hub.models.BertTextClassifier(backbone=backbone, **options)


def with_preprocessor(lora=False):
    """A task that takes texts, of the words in its vocabulary."""
    import keras_hub

    tokenizer = keras_hub.models.BertTokenizer(vocabulary=_WORDS)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8)
    model = bert(dropout=0.0, preprocessor=preprocessor)
    if lora:
        model.backbone.enable_lora(2)
    return model


def texts(rows, width=7, seed=1):
    """Inputs of `bert`, in which most tokens occur several times, and labels."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, width + 1, [rows, 1])
    mask = (np.arange(width) < lengths).astype(np.int32)
    ids = rng.integers(1, VOCAB // 4, (rows, width)).astype(np.int32) * mask
    inputs = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": mask}
    return inputs, rng.integers(0, CLASSES, rows).astype(np.int32)


def reference_steps(model, x, y, optimizer, *, batch_size, epochs=1, clip=0.0):
    """One big batch a step, float32, gradients made dense. Dropout draws by row, as FineTuner's does.

    Args:
        model: Its weights are updated.
        x: Inputs of all rows.
        y: Their labels.
        optimizer: As `tests.support.models.NumpyAdamW`.
        batch_size: Rows of a step.
        epochs: Passes over the rows.
        clip: Largest global norm; 0 for none.
    """

    def losses(model, inputs, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(inputs, training=True))

    weighted = (x, y, np.ones(len(y), np.float32))
    starts = [*range(0, len(y), batch_size)] * epochs
    batches = [tf.nest.map_structure(lambda each, at=start: each[at : at + batch_size], weighted) for start in starts]
    models.reference_steps(model, batches, optimizer, clip, values=losses)
    return weights(model)
