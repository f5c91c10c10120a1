"""BERT with each of its heads; and the same of other encoders, by rule."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tfbert.bert.pretrained import PreTrainedModel
from tfbert.config.encoders import ENCODERS, check_kind, class_name, kinds_of
from tfbert.model.configuration import BertConfig
from tfbert.model.forward import (
    Seen,
    forward,
    forward_pretraining,
    forward_spans,
    forward_tokens,
)
from tfbert.model.head import Head, choice_head, sequence_head, span_head, token_head
from tfbert.model.pretraining_head import pretraining_head

Fields = dict[str, tf.Tensor]


@keras.saving.register_keras_serializable("tfbert")
class TFBertModel(PreTrainedModel):
    """BERT without a head: `last_hidden_state` of each token, and `pooler_output` of each row."""

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        return self.bert._fields(inputs, training, seen)


class _LabelHead(PreTrainedModel):
    """A head of one row of weights for each label."""

    LABELS: ClassVar[dict[str, str]] = {"labels": "logits"}

    @property
    def num_classes(self) -> int | None:
        """How many classes labels are the numbers of; None for choices, of which each example has its own number."""
        return self.config.num_labels if self.INPUT_RANK == 2 else None


@keras.saving.register_keras_serializable("tfbert")
class TFBertForSequenceClassification(_LabelHead):
    """A row of logits for each text: one label of several, several of many, or a number (`num_labels=1`)."""

    KIND = "SequenceClassification"

    @classmethod
    def _head_of(cls, config: BertConfig, saved: BertConfig | None = None) -> Head:
        labels = tuple(config.id2label.values())
        return sequence_head(labels, has_names=_are_reordered(config, saved), problem_type=config.problem_type)

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        return {"logits": forward(self, inputs, training, seen=seen)}

    def own_losses(self) -> dict[str, keras.losses.Loss]:
        """By `problem_type`; without one, a number where there is one label, else one label of several."""
        kind = self.config.problem_type or ("regression" if self.config.num_labels == 1 else "")
        others = {
            "regression": keras.losses.MeanSquaredError(),
            "multi_label_classification": keras.losses.BinaryCrossentropy(from_logits=True),
        }
        return {"logits": others[kind]} if kind in others else super().own_losses()


@keras.saving.register_keras_serializable("tfbert")
class TFBertForTokenClassification(_LabelHead):
    """A row of logits for each token; labels of -100 do not count."""

    KIND, IGNORES = "TokenClassification", True

    @classmethod
    def _head_of(cls, config: BertConfig, saved: BertConfig | None = None) -> Head:
        labels = tuple(config.id2label.values())
        return dataclasses.replace(token_head(labels), has_names=_are_reordered(config, saved))

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        return {"logits": forward_tokens(self, inputs, training, seen=seen)}


@keras.saving.register_keras_serializable("tfbert")
class TFBertForMultipleChoice(_LabelHead):
    """A logit for each choice of each example; inputs are `[examples, choices, width]`."""

    KIND, INPUT_RANK = "MultipleChoice", 3

    def _num_outputs(self) -> int:
        return 1

    @classmethod
    def _head_of(cls, config: BertConfig, saved: BertConfig | None = None) -> Head:
        return choice_head()

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        of_examples = next(inputs[name] for name in ("input_ids", "inputs_embeds") if name in inputs)
        flat = {name: tf.reshape(each, [-1, *tf.unstack(tf.shape(each)[2:])]) for name, each in inputs.items()}
        if "inputs_embeds" in flat:
            flat["inputs_embeds"] = tf.ensure_shape(flat["inputs_embeds"], [None, None, self.config.hidden_size])
        logits = tf.reshape(forward(self, flat, training, seen=seen), tf.shape(of_examples)[:2])
        return {"logits": tf.ensure_shape(logits, of_examples.shape[:2])}


@keras.saving.register_keras_serializable("tfbert")
class TFBertForQuestionAnswering(PreTrainedModel):
    """For each token, whether the answer begins there, and whether it ends there."""

    LABELS: ClassVar[dict[str, str]] = {"start_positions": "start_logits", "end_positions": "end_logits"}
    KIND, LOSS_WEIGHT = "QuestionAnswering", 0.5

    def _num_outputs(self) -> int:
        return 2

    @classmethod
    def _head_of(cls, config: BertConfig, saved: BertConfig | None = None) -> Head:
        return span_head()

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        # As transformers, whose spans may begin in the padding; the command masks it.
        logits = forward_spans(self, inputs, training, seen=seen, masks_padding=False)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


@keras.saving.register_keras_serializable("tfbert")
class TFBertForMaskedLM(PreTrainedModel):
    """Logits of the words at each position; labels of -100 do not count."""

    LABELS: ClassVar[dict[str, str]] = {"labels": "logits"}
    KIND, IGNORES = "MaskedLM", True

    @classmethod
    def _head_of(cls, config: BertConfig, saved: BertConfig | None = None) -> Head:
        return pretraining_head(next_sentence="next_sentence_label" in cls.LABELS)

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        outputs = forward_pretraining(self, inputs, training, seen=seen)
        return dict(zip(self.LABELS.values(), outputs.values(), strict=True))

    def get_output_embeddings(self) -> Any:
        """The layer that holds the table of words, which is that of the inputs."""
        return self.get_input_embeddings()


@keras.saving.register_keras_serializable("tfbert")
class TFBertForPreTraining(TFBertForMaskedLM):
    """Logits of the words at each position, and of whether segment B is of another document."""

    LABELS: ClassVar[dict[str, str]] = {"labels": "prediction_logits", "next_sentence_label": "seq_relationship_logits"}
    KIND = "PreTraining"


def _are_reordered(config: BertConfig, saved: BertConfig | None) -> bool:
    """Whether two configurations have the same labels in another order: rows then follow their names."""
    ours, theirs = ([name.casefold() for name in each.id2label.values()] for each in (config, saved or config))
    return ours != theirs and sorted(ours) == sorted(theirs)


_OF_BERT = {each.KIND: each for each in list(globals().values()) if getattr(each, "__name__", "").startswith("TFBert")}
CLASSES: dict[tuple[str, str], type[PreTrainedModel]] = {("bert", kind): each for kind, each in _OF_BERT.items()}
"""All classes, by `model_type` and kind."""
for _type in ENCODERS:
    for _kind in kinds_of(_type) if _type != "bert" else ():
        _name = class_name(_type, _kind)
        _values = {"MODEL_TYPE": _type, "__module__": __name__, "__doc__": _OF_BERT[_kind].__doc__}
        CLASSES[_type, _kind] = type(_name, (_OF_BERT[_kind],), _values)
        globals()[_name] = keras.saving.register_keras_serializable("tfbert")(CLASSES[_type, _kind])


def class_of(model_type: str, kind: str) -> type[PreTrainedModel]:
    """The class of an encoder's models of a kind.

    Raises:
        UsageError: for one that the encoder has not.
    """
    check_kind(model_type, kind)
    return CLASSES[model_type, kind]
