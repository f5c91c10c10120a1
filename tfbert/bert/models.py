"""BERT with each of its heads, and the same of other encoders, by rule; models of files, or of a size; and transformers
4's `TFAutoModel...`: the class by the task, and by the `model_type` of the files."""

from __future__ import annotations

import copy
import logging
import pathlib
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import tensorflow as tf

from tfbert.bert.pretrained import PreTrainedModel
from tfbert.config.modes import SCRATCH_LAYOUTS, SCRATCH_PREFIX, ModelConfig
from tfbert.config.tables import ENCODERS, check_kind, class_name, kinds_of
from tfbert.devices.workers import check_same, checksum
from tfbert.errors import UsageError
from tfbert.model import weights
from tfbert.model.files import HUB_OPTIONS, BertConfig, load_config
from tfbert.model.forward import Seen, forward, forward_pretraining, forward_spans
from tfbert.model.head import Head, Read, fill, read_weights
from tfbert.model.keras_hub import plain
from tfbert.step.keras3.private import store_as_float16
from tfbert.tokens.vocabulary import read_vocab_file

if TYPE_CHECKING:
    from tfbert.tokens.tokenizer import Tokenizer

log = logging.getLogger("tfbert")


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

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        return {"logits": Head(kind=self.KIND).forward(self, inputs, training, seen=seen)}


@keras.saving.register_keras_serializable("tfbert")
class TFBertForSequenceClassification(_LabelHead):
    """A row of logits for each text: one label of several, several of many, or a number (`num_labels=1`)."""

    KIND = "SequenceClassification"

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


@keras.saving.register_keras_serializable("tfbert")
class TFBertForMultipleChoice(_LabelHead):
    """A logit for each choice of each example; inputs are `[examples, choices, width]`."""

    KIND, INPUT_RANK, NUM_OUTPUTS = "MultipleChoice", 3, 1

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
    KIND, LOSS_WEIGHT, NUM_OUTPUTS = "QuestionAnswering", 0.5, 2

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        # As transformers, whose spans may begin in the padding; the command masks it.
        logits = forward_spans(self, inputs, training, seen=seen, masks_padding=False)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


@keras.saving.register_keras_serializable("tfbert")
class TFBertForMaskedLM(PreTrainedModel):
    """Logits of the words at each position; labels of -100 do not count."""

    LABELS: ClassVar[dict[str, str]] = {"labels": "logits"}
    KIND, IGNORES = "MaskedLM", True

    def _fields(self, inputs: Fields, training: bool | None, seen: Seen | None) -> Fields:
        outputs = forward_pretraining(self, inputs, training, seen=seen)
        return dict(zip(self.LABELS.values(), outputs.values(), strict=True))


@keras.saving.register_keras_serializable("tfbert")
class TFBertForPreTraining(TFBertForMaskedLM):
    """Logits of the words at each position, and of whether segment B is of another document."""

    LABELS: ClassVar[dict[str, str]] = {"labels": "prediction_logits", "next_sentence_label": "seq_relationship_logits"}
    KIND = "PreTraining"


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


_MIN_POSITIONS = 512
_OF_ITS_FILE = {"_name_or_path", "_commit_hash", "transformers_version", "architectures", "torch_dtype", "dtype"}
"""What `config.json` says of how it was written."""


def build_model(
    config: ModelConfig,
    directory: pathlib.Path | None,
    *,
    tokenizer: Tokenizer,
    head: Head,
    max_seq_length: int,
    seed: int,
    dropout: float | None = None,
    require_head: bool = False,
) -> PreTrainedModel:
    """Builds the model with all its weights; call it in the strategy's scope.

    Logs at most three lines: new weights, unused weights, how the head's labels were matched.

    New weights, which no file gives, are drawn from N(0, `initializer_range`); biases are 0 and LayerNorm weights 1.
    Each is a pure function of (seed, the weight's name): the same on every replica and worker, and in every precision.

    Args:
        config: Names the model.
        directory: What `resolve_model` returned; with None all weights are new.
        tokenizer: The model's tokenizer.
        head: What the task needs above the encoder.
        max_seq_length: Longest input in tokens.
        seed: Decides the new weights.
        dropout: Takes the place of all of the model's own rates; None keeps them.
        require_head: Whether to refuse to draw new weights, as evaluation and prediction must.

    Returns:
        The built model, its variables float32. A head from the file keeps its meaning: its rows are put in the order of
        the task's labels.

    Raises:
        UsageError: for files that do not fit each other, the tokenizer or `max_seq_length`; and on all workers alike
            where theirs differ.
    """
    tokens = tokenizer.vocab_size
    if directory is None:
        layers, hidden, heads, _ = SCRATCH_LAYOUTS[config.name.removeprefix(SCRATCH_PREFIX)]
        bert_config = BertConfig(
            vocab_size=tokens,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            max_position_embeddings=max(_MIN_POSITIONS, max_seq_length),
            pad_token_id=tokenizer.pad_id,
        )
        read = Read({}, "", [])
    else:
        bert_config = load_config(directory)
        class_of(bert_config.model_type, head.kind)
        own, rows = plain(directory) / "vocab.txt", bert_config.vocab_size
        # Some models pad their embeddings with rows that no token of their own vocabulary uses.
        sizes = {rows, len(read_vocab_file(own)) if own.is_file() else rows}
        if tokens > rows or (config.vocab_file and tokens not in sizes):
            instead = ", or no --vocab_file" if config.vocab_file else ""
            rule = f"The vocabulary must be that of the model, which has {rows} embeddings"
            received = f"{config.vocab_file or directory} with {tokens} tokens"
            raise UsageError(f"{rule}. Received: {received}. Pass the vocabulary the model was trained with{instead}.")
        if max_seq_length > bert_config.num_positions:
            raise UsageError(
                f"max_seq_length must be within the model's {bert_config.num_positions} positions "
                f"(max_position_embeddings). Received: max_seq_length={max_seq_length}. Pass a smaller one."
            )
        read = read_weights(directory, bert_config, head)
    if dropout is not None:
        bert_config.classifier_dropout = None  # As the hidden one, unless it is among the rates.
        vars(bert_config).update(dict.fromkeys(bert_config.encoder.RATES, dropout))
    head.describe_in(bert_config)
    values, tensors = bert_config.to_dict(), read.tensors
    check_same(  # Before variables are made, whose values workers share.
        lambda: {
            "config.json": {name: value for name, value in values.items() if name not in _OF_ITS_FILE},
            "vocabulary": f"{tokens} tokens, {checksum(tokenizer.vocab)}",
            "tokenizer": tokenizer.casing,
            "weights": f"{len(tensors)} of the file, {checksum(*(tensors[name] for name in sorted(tensors)))}",
        },
        rule="All workers must have the same model",
        way_out="Give each a copy of the same directory",
    )
    # Its variables are all 0 at first.
    model = class_of(bert_config.model_type, head.kind)(bert_config, initializer="zeros")
    model.name_or_path = config.name
    lines = fill(model, read, head, seed=seed, scale=bert_config.initializer_range)
    if require_head and model.new_weights:
        raise UsageError(
            "Evaluation and prediction need a fine-tuned model. Received: "
            f"model_name_or_path={config.model_name_or_path!r} without a trained "
            f"{weights.list_names(model.new_weights)}{read.because}. Train it first, or pass a run's output directory."
        )
    for line in lines if directory is not None else ():
        log.info("%s", line)
    return model


def with_float16_matrices(model: PreTrainedModel) -> PreTrainedModel:
    """Another model with the same weights that keeps its matrices in float16, and computes in float32, casting where
    they are read. Vectors (biases, LayerNorm) stay float32: they are few. Call it in the strategy's scope."""
    other = type(model)(copy.deepcopy(model.config), initializer="zeros")
    weights.set_weights_dict(other, weights.get_weights_dict(model))
    for variable in other.weights:
        if len(variable.shape) > 1:
            store_as_float16(variable)
    return other


class _Auto:
    """Makes models of one kind by `from_pretrained` and `from_config`."""

    KIND: ClassVar[str]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        todo = f"Write {cls.__name__}.from_pretrained(name), or {class_name('bert', cls.KIND)}(config)."
        raise UsageError(f"{cls.__name__} chooses a class for files. Received: a call of it. {todo}")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **options: Any) -> Any:
        """As that of the class."""
        of_hub = {option: options[option] for option in HUB_OPTIONS if option in options}
        config = BertConfig.from_pretrained(pretrained_model_name_or_path, **of_hub)
        return class_of(config.model_type, cls.KIND).from_pretrained(pretrained_model_name_or_path, **options)

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> Any:
        """A model with new weights."""
        config = BertConfig.of(config)
        return class_of(config.model_type, cls.KIND)(config, **options)


class TFAutoModel(_Auto):
    """`TFBertModel`, or the like of another encoder."""

    KIND = "Model"


class TFAutoModelForSequenceClassification(_Auto):
    """`TFBertForSequenceClassification`, or the like of another encoder."""

    KIND = "SequenceClassification"


class TFAutoModelForTokenClassification(_Auto):
    """`TFBertForTokenClassification`, or the like of another encoder."""

    KIND = "TokenClassification"


class TFAutoModelForQuestionAnswering(_Auto):
    """`TFBertForQuestionAnswering`, or the like of another encoder."""

    KIND = "QuestionAnswering"


class TFAutoModelForMultipleChoice(_Auto):
    """`TFBertForMultipleChoice`, or the like of another encoder."""

    KIND = "MultipleChoice"


class TFAutoModelForMaskedLM(_Auto):
    """`TFBertForMaskedLM`, or the like of another encoder."""

    KIND = "MaskedLM"


class TFAutoModelForPreTraining(_Auto):
    """`TFBertForPreTraining`, or the like of another encoder."""

    KIND = "PreTraining"
