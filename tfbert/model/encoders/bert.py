"""BERT (Devlin et al. 2018), and with it what an encoder is: others derive from it, and say what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfbert.config.training import LORA_TARGETS
from tfbert.model.layout import Dense, Dropout, Norm, Shapes, Table, Tree, Words, shapes_of

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfbert.model.ops import Arithmetic, Pass

Config = Any
"""A `BertConfig`, or another encoder's, which is made of what stands here."""
WORDS = ("MaskedLM", "PreTraining")
"""The kinds of models with a head of words."""
NOISE_OF_LAYER = 17
"""Numbers of noise that a layer takes; its own are 12, 16 and 22 more than the layer's first, as in tfbert 1.0."""


class Bert:
    """What differs between encoders.

    A model is of a kind: "Model" without a head, or what its class is for, "SequenceClassification". `run` has the
    arithmetic that encoders share, over tokens of all rows, `[rows x width, hidden]`.

    Attributes:
        PREFIX: What PyTorch's models with a head call the encoder.
        PARTS: How the names of its weights begin without it.
        POOLED: The kinds of models that have a pooler.
        OUTPUTS: The layer that gives each label's logit, by kind.
        VOCABULARY: What holds the bias of each word in a head of words, by its name in PyTorch.
        FIELDS: Names of fields of `config.json`, by ours.
        DEFAULTS: The values of fields where they are not BERT's.
        SIZES: Further fields that are sizes, each with the least that it may be.
        RATES: Fields that are rates of dropout, but for `classifier_dropout`.
        CHOICES: Fields with few values: these.
        TOKEN_TYPES: Whether it is told which tokens are of a second text.
        COUNTS_FROM_PAD: Whether the first position is that after the padding token's number.
        LORA: The dense layers of an encoder layer, by the ends of their names, in the order of BERT's.
        LAYERS: Where an encoder's layers are, in Python.
        WIDE: How many matrices the wide part of a layer has.
        INNER: The function within a head of texts that has two layers.
    """

    PREFIX = "bert"
    PARTS: ClassVar[tuple[str, ...]] = ("embeddings.", "encoder.", "pooler.")
    POOLED: ClassVar[tuple[str, ...]] = ("Model", "SequenceClassification", "MultipleChoice", "PreTraining")
    OUTPUTS: ClassVar[dict[str, str]] = {
        "SequenceClassification": "classifier",
        "TokenClassification": "classifier",
        "QuestionAnswering": "qa_outputs",
        "MultipleChoice": "classifier",
    }
    VOCABULARY = "cls.predictions"
    FIELDS: ClassVar[dict[str, str]] = {}
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    SIZES: ClassVar[dict[str, int]] = {}
    RATES: ClassVar[tuple[str, ...]] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    CHOICES: ClassVar[dict[str, tuple]] = {}
    TOKEN_TYPES = True
    COUNTS_FROM_PAD = False
    LORA: ClassVar[tuple[str, ...]] = LORA_TARGETS
    LAYERS = "encoder.layer"
    WIDE = 2
    INNER = "tanh"

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a model reads of a batch."""
        return ("input_ids", "attention_mask", "token_type_ids")[: 3 if self.TOKEN_TYPES else 2]

    def in_our_names(self, values: dict[str, Any]) -> dict[str, Any]:
        """A configuration's values by our names."""
        given = {name: values[theirs] for name, theirs in self.FIELDS.items() if theirs in values}
        return {name: value for name, value in values.items() if name not in self.FIELDS.values()} | given

    def own_facts(self, config: Config) -> dict[str, Any]:
        """What tells two models of an encoder apart beside BERT's sizes and rates; of a BERT, nothing."""
        names = dict.fromkeys([*self.DEFAULTS, *self.SIZES, *self.RATES, *self.CHOICES])
        own = {name: getattr(config, name) for name in names if name in vars(config) and name not in Bert.RATES}
        return own and own | {"model_type": config.model_type}

    def problem(self, config: dict[str, Any]) -> str:
        """What of a configuration is not here, in words; empty for nothing."""
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        return f"hidden_size={hidden} for num_attention_heads={heads}, which do not divide it" if hidden % heads else ""

    # What a model is made of.

    def parts(self, config: Config, *, has_pooler: bool = True) -> Tree:
        """The encoder's parts: `embeddings`, what holds the layers, and whatever else there is."""
        size = self.embedding_size(config)
        embeddings = {
            "word_embeddings": Table(config.vocab_size, size),
            "position_embeddings": Table(config.max_position_embeddings, size),
            "token_type_embeddings": Table(config.type_vocab_size, size),
            "LayerNorm": self.norm(config, size),
            "dropout": Dropout(4, config.hidden_dropout_prob),
        }
        layers = [self.layer_parts(config, NOISE_OF_LAYER * i) for i in range(config.num_hidden_layers)]
        more = {"pooler": {"dense": Dense(config.hidden_size, config.hidden_size)}} if has_pooler else {}
        more |= {"embeddings_project": Dense(size, config.hidden_size)} if size != config.hidden_size else {}
        return {"embeddings": embeddings, "encoder": {"layer": layers}} | more

    def norm(self, config: Config, size: int = 0) -> Norm:
        """A LayerNorm, of hidden states unless another size is given."""
        return Norm(size or config.hidden_size, config.layer_norm_eps)

    def embedding_size(self, config: Config) -> int:
        """How long the vectors of words are."""
        return config.hidden_size

    def layer_parts(self, config: Config, noise: int) -> Tree:
        """A layer's parts; `noise` is its first number of noise."""
        hidden, wide = config.hidden_size, config.intermediate_size

        def output(size: int, number: int) -> Tree:
            dropout = Dropout(number, config.hidden_dropout_prob)
            return {"dense": Dense(size, hidden), "dropout": dropout, "LayerNorm": self.norm(config)}

        own = {name: Dense(hidden, hidden) for name in ("query", "key", "value")}
        own["dropout"] = Dropout(noise + 12, config.attention_probs_dropout_prob)
        return {
            "attention": {"self_attention=self": own, "dense_output=output": output(hidden, noise + 16)},
            "intermediate": {"dense": Dense(hidden, wide)},
            "bert_output=output": output(wide, noise + 22),
        }

    def head(self, config: Config, kind: str, outputs: int) -> Tree:
        """The parts of a head with so many outputs."""
        hidden = config.hidden_size
        if kind == "QuestionAnswering":
            return {"qa_outputs": Dense(hidden, outputs)}
        if self.OUTPUTS.get(kind) == "classifier.out_proj":  # Of RoBERTa and ELECTRA.
            own = {"dense": Dense(hidden, hidden), "dropout": self.head_dropout(config, kind)}
            return {"classifier": own | {"out_proj": Dense(hidden, outputs)}}
        if kind in self.OUTPUTS:
            return {"dropout": self.head_dropout(config, kind), "classifier": Dense(hidden, outputs)}
        transform = {"dense": Dense(hidden, hidden), "LayerNorm": self.norm(config)}
        words = {"mlm=mlm___cls": {"predictions": Words(config.vocab_size, {"transform": transform})}}
        pairs = {"nsp=nsp___cls": {"seq_relationship": Dense(hidden, 2)}}
        return {"PreTraining": pairs | words, "MaskedLM": words}.get(kind, {})

    def head_dropout(self, config: Config, kind: str) -> Dropout:
        """Dropout before the labels."""
        rate = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        return Dropout(6 + NOISE_OF_LAYER * config.num_hidden_layers + 2 * (kind in self.POOLED), rate)

    def shapes(self, config: Config, kind: str = "Model") -> Shapes:
        """The shape of each weight without the head, by PyTorch name."""
        return shapes_of(self.parts(config, has_pooler=kind in self.POOLED), self.PREFIX)

    # What is computed.

    def windows(self, config: Config) -> list[int | None]:
        """How far away a token may be that another attends to, in each layer; None for anywhere."""
        return [None] * config.num_hidden_layers

    def shared(self, config: Config, run: Pass) -> Any:
        """What all layers have in common; `run.shared` for them."""
        return None

    def start(self, base: keras.layers.Layer, tokens: tf.Tensor, run: Pass) -> tf.Tensor:
        """Embeddings -> what the first layer gets."""
        return run.dense(tokens, base.embeddings_project) if hasattr(base, "embeddings_project") else tokens

    def layer(self, part: keras.layers.Layer, tokens: tf.Tensor, run: Pass, number: int) -> tf.Tensor:
        """One layer, of this number."""
        own, output = part.attention.self_attention, part.attention.dense_output
        read, *projected = run.project(tokens, own.query, own.key, own.value)
        attended = self._add(output, run.attend(*projected, own.dropout), read, run)
        return self._add(part.bert_output, run.act(run.dense(attended, part.intermediate.dense)), attended, run)

    def _add(self, part: keras.layers.Layer, tokens: tf.Tensor, to: tf.Tensor, run: Pass) -> tf.Tensor:
        tokens = run.drop(run.dense(tokens, part.dense), part.dropout)
        return run.norm(tokens + to, part.LayerNorm)

    def end(self, base: keras.layers.Layer, tokens: tf.Tensor, run: Pass) -> tf.Tensor:
        """What the last layer gave -> what heads read."""
        return tokens

    def means(self, config: Config) -> bool:
        """Whether heads of texts read the mean of a text's tokens in place of the first."""
        return False

    def of_text(self, model: keras.Model, first: tf.Tensor, run: Arithmetic) -> tf.Tensor:
        """What a head of texts reads -> what its labels are computed of."""
        if not hasattr(model.classifier, "out_proj"):
            return run.drop(run.act(run.dense(first, model.bert.pooler.dense), "tanh"), model.dropout)
        head = model.classifier  # Of RoBERTa and ELECTRA.
        return run.drop(run.act(run.dense(run.drop(first, head.dropout), head.dense), self.INNER), head.dropout)

    def of_tokens(self, model: keras.Model, tokens: tf.Tensor, run: Arithmetic) -> tf.Tensor:
        """The same of a head of tokens; of a head of answers, where it has dropout."""
        return run.drop(tokens, model.dropout) if hasattr(model, "dropout") else tokens

    def words(self, model: keras.Model) -> tuple[Any, str, Any, Any]:
        """Of a head of words: the dense layer, the function and the norm after it, and what holds bias and table."""
        head = model.mlm.predictions
        return head.transform.dense, model.config.hidden_act, head.transform.LayerNorm, head


ENCODER = Bert()
