"""Small models of each encoder, and batches for them: texts and pairs, padded, some as long as the model takes."""

import shutil

import keras
import numpy as np
import tensorflow as tf

from tests.support.host_tokenizers import OF_ENCODERS
from tests.support.runs import write_corpus
from tfbert.bert.models import CLASSES, class_of
from tfbert.model.files import CONFIGS
from tfbert.model.head import save_pretrained
from tfbert.tokens.host import read_tokenizer

VOCAB, WIDTH, POSITIONS = 60, 24, 26
SIZES = {
    "small": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 2},
    "other": {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 80, "num_hidden_layers": 4},
}
OWN = {
    "electra": {"embedding_size": 16},
    "modernbert": {"local_attention": 8, "pad_token_id": 0, "classifier_pooling": "mean"},
}
"""Values of a configuration by `model_type`, where the encoder has some of its own."""
ALL = [*CLASSES]
"""`model_type` and kind of all classes."""
LENGTHS = np.array([WIDTH, 3, 17, 9, 2, 21])
MASK = (np.arange(WIDTH) < LENGTHS[:, None]).astype(np.int32)
_rng = np.random.default_rng(0)
_WORDS = _rng.integers(2, VOCAB, MASK.shape).astype(np.int32)


def config_of(model_type, kind="SequenceClassification", size="small", dropout=0.0, **values):
    """The configuration of a small model."""
    sizes = SIZES[size] | {"vocab_size": VOCAB, "max_position_embeddings": POSITIONS}
    sizes["num_labels"] = 2 if kind == "QuestionAnswering" else 3
    made = CONFIGS[model_type](**sizes | OWN.get(model_type, {}) | values)
    for name in (*made.encoder.RATES, "classifier_dropout"):
        setattr(made, name, dropout)
    return made


def make(model_type, kind="SequenceClassification", *options, seed=3, **values):
    """A model with weights of a seed, biases and norms among them."""
    made = config_of(model_type, kind, *options, **values)
    model, rng = class_of(model_type, kind)(made, initializer="zeros"), np.random.default_rng(seed)
    for variable in model.weights:
        is_scale = variable.path.endswith("gamma")
        variable.assign(rng.normal(is_scale, 0.2, variable.shape).astype(np.float32))
    return model


def write_run(model_type, directory):
    """As `write_corpus`, of a small model of this type, with a tokenizer of its kind; which is returned."""
    write_corpus(directory)
    model = directory / "model"
    if model_type in OF_ENCODERS:
        shutil.rmtree(model)
        OF_ENCODERS[model_type](model)
    tokenizer = read_tokenizer(model)
    sizes = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 66, "pad_token_id": tokenizer.pad_id}
    save_pretrained(make(model_type, "Model", dropout=0.1, **sizes), tokenizer, model)
    return tokenizer


def batch_of(model):
    """Ids, mask and, where the model reads them, token types."""
    ids = np.where(MASK > 0, _WORDS, model.config.pad_token_id).astype(np.int32)
    types = (np.arange(WIDTH) > 4).astype(np.int32) * MASK
    inputs = {"input_ids": ids, "attention_mask": MASK, "token_type_ids": types}
    inputs = {name: inputs[name] for name in model.config.encoder.inputs}
    if model.INPUT_RANK == 3:
        return {name: np.stack([value, value[::-1]], 1) for name, value in inputs.items()}
    return inputs


def real(model, values):
    """Outputs where there is a token; those of texts all."""
    arrays = map(np.asarray, keras.tree.flatten(values))
    return [each[MASK > 0] if each.shape[:2] == MASK.shape else each for each in arrays]


def gradients(model, inputs):
    """The outputs, and of their mean squares where there is a token the gradient by each weight's name in PyTorch."""
    from tfbert.model.weights import pytorch_name

    with tf.GradientTape() as tape:
        outputs = [each for each in model(inputs).to_tuple()]
        kept = [tf.boolean_mask(each, MASK > 0) if tuple(each.shape[:2]) == MASK.shape else each for each in outputs]
        loss = tf.add_n([tf.reduce_mean(each**2) for each in kept])
    grads = tape.gradient(loss, [v.value for v in model.trainable_variables])
    found = {}
    for variable, grad in zip(model.trainable_variables, grads, strict=True):
        name, transposed = pytorch_name(variable.path.removeprefix(f"{model.path}/"))
        if grad is not None:
            found[name] = tf.transpose(grad).numpy() if transposed else tf.convert_to_tensor(grad).numpy()
    return outputs, found
