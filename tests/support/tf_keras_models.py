"""transformers' TensorFlow models, which are of tf_keras, and the reference update of models of tf_keras."""

import tf_keras as keras
import transformers

from tests.support import models
from tests.support.transformers_4 import transformers_4
from tfbert.step.tf_keras.finetuner import KeyedDropout


def tiny_bert(num_labels=3, dropout=0.0, seed=1, kind="TFBertForSequenceClassification", **options):
    """A 2-layer, hidden-32 BERT with random weights; `options` are those of `BertConfig`."""
    keras.utils.set_random_seed(seed)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = transformers_4(kind)(transformers.BertConfig(**models.SIZES | rates | {"num_labels": num_labels} | options))
    model.build_in_name_scope()
    return model


def reference_steps(model, *args, **options):
    """See `models.reference_steps`."""
    return models.reference_steps(model, *args, dropout=KeyedDropout(model), **options)
