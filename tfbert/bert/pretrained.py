"""What all models share: calls, files and parts; `compile`, `fit`, `evaluate` and `predict` of plain Keras 3, of a
model that knows its labels."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import tempfile
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tfbert.bert import lora
from tfbert.bert.calls import INPUTS, Called
from tfbert.bert.layers import Maker, TFBertMainLayer, WithParts
from tfbert.config.modes import HubConfig, ModelConfig
from tfbert.config.tables import ENCODERS
from tfbert.config.types import did_you_mean
from tfbert.devices.workers import num_workers_of
from tfbert.errors import UsageError
from tfbert.model import head as heads
from tfbert.model import weights
from tfbert.model.encoders import encoder_of
from tfbert.model.encoders.bert import WORDS
from tfbert.model.files import CONFIGS, HUB_OPTIONS, BertConfig, load_config, resolve_model
from tfbert.model.head import Head
from tfbert.output.output_dir import check_login, upload
from tfbert.private import layers_of
from tfbert.step.keras3.data import Labelled, as_taken, check_rows, plain
from tfbert.step.keras3.parts import PARTS
from tfbert.step.keras3.private import accept_layers, resize_variable, take_as_they_are
from tfbert.step.refusals import check_keras
from tfbert.step.terms import one_line

log = logging.getLogger("tfbert")


_SAME_EITHER_WAY = ("from_pt", "from_tf", "use_safetensors", "trust_remote_code")
"""Options of transformers' `from_pretrained` that change nothing: which file there is, is found."""


class PreTrainedModel(Called, Labelled, WithParts, keras.Model):
    """A model of Keras 3 that is called, loaded and saved as transformers 4 did its TensorFlow models.

    Args:
        config: A `BertConfig` or another encoder's, transformers' own, or its values as a dictionary.
        initializer: Of kernels and tables; None for BERT's own, which is random.
        name: The model's.
        dtype: The policy, such as "mixed_bfloat16"; None for Keras's present one. LayerNorm is float32 in any.
        trainable: Whether its variables are.
        frozen: Numbers of inner layers whose variables are not, as a saved model has them.
        lora: The arguments of its `enable_lora`, likewise.
    """

    MODEL_TYPE: ClassVar[str] = "bert"
    """What `config.json` calls the encoder."""
    KIND: ClassVar[str] = "Model"
    """What the class is for: see `Bert`."""
    INPUT_RANK: ClassVar[int] = 2
    """Dimensions of a batch's ids."""
    NUM_OUTPUTS: ClassVar[int] = 0
    """How many logits the head gives; 0: as many as there are labels."""

    def __init__(
        self,
        config: Any,
        *,
        initializer: str | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        frozen: Any = (),
        lora: dict[str, Any] | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        take_as_they_are(self)
        self.config = self._checked(BertConfig.of(config))
        make, encoder = Maker(self.config, self.dtype_policy, initializer), self.config.encoder
        self.bert = TFBertMainLayer(make, has_pooler=self.KIND in encoder.POOLED)
        outputs = self.NUM_OUTPUTS or self.config.num_labels
        make.table = self.get_input_embeddings()
        self.add_parts(make, encoder.head(self.config, self.KIND, outputs))
        self._sizes = {"bert": None, **self._sizes}
        if len(self.LABELS) > 1:
            self.output_names = list(self.LABELS.values())  # Keras names losses and metrics by them.
        self.build()
        accept_layers(self)
        self.lora, self.name_or_path, self.new_weights = None, "", ()
        if lora:
            self.enable_lora(**lora)
        self.trainable = trainable
        for number, layer in enumerate(layers_of(self)):
            if frozen:  # From the outside inwards: each sets what is within it.
                layer.trainable = number not in frozen

    def __getattr__(self, name: str) -> Any:
        """The encoder under transformers' name for it."""
        if name != "bert" and name == encoder_of(self.MODEL_TYPE).PREFIX:
            return self.bert
        raise AttributeError(f"{type(self).__name__} has no {name!r}.")

    @classmethod
    def _checked(cls, config: BertConfig) -> BertConfig:
        """The configuration, if it is of this class's encoder."""
        if config.model_type != cls.MODEL_TYPE:
            other = ENCODERS[config.model_type].classes
            rule = f"{cls.__name__} is of model_type {cls.MODEL_TYPE}"
            todo = f"Take TF{other}Model or TF{other}For..., or TFAutoModel...from_pretrained for any."
            raise UsageError(f"{rule}. Received: model_type={config.model_type!r}. {todo}")
        return config

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | pathlib.Path,
        *,
        config: Any = None,
        seed: int | None = None,
        **options: Any,
    ):
        """The model with the weights of files: safetensors, `tf_model.h5`, `pytorch_model.bin`, a checkpoint of
        TensorFlow 1, KerasHub's preset. Logs a line of weights that are new, and one of those that are not used.

        Args:
            pretrained_model_name_or_path: A directory, or a name on the Hugging Face hub or KerasHub's.
            config: In the place of the file's.
            seed: Decides new weights; None draws one, which `keras.utils.set_random_seed` decides.
            **options: Values of the configuration (`num_labels`, `id2label`, `problem_type`, rates); `dtype`, `name`,
                `trainable`; those of the hub (`revision`, `token`, `cache_dir`, `local_files_only`);
                `ignore_mismatched_sizes=True` for a new head where the file's has another number of labels.

        Raises:
            UsageError: for files that do not fit, or an option of another name.
        """
        of_hub = {option: options.pop(option) for option in HUB_OPTIONS if option in options}
        of_keras = {option: options.pop(option) for option in ("dtype", "name", "trainable") if option in options}
        takes_new_head = options.pop("ignore_mismatched_sizes", False)
        usual = CONFIGS[cls.MODEL_TYPE]()
        fields = {*usual.to_dict(), *vars(usual), "num_labels"}
        options = {option: value for option, value in options.items() if option in fields or value not in (None, False)}
        if unknown := [option for option in options if option not in fields and option not in _SAME_EITHER_WAY]:
            todo = did_you_mean(unknown[0], sorted(fields)) or "Leave them out."
            rule = "from_pretrained takes values of the configuration, and options of the hub"
            raise UsageError(f"{rule}. Received: {', '.join(unknown)}. {todo}")
        changed = {option: value for option, value in options.items() if option in fields}
        name = str(pretrained_model_name_or_path)
        directory = resolve_model(ModelConfig(model_name_or_path=name), **of_hub)
        if directory is None:
            raise UsageError(f"A model must have files. Received: {name}. Pass a directory, or {cls.__name__}(config).")
        saved = cls._checked(load_config(directory))
        config = BertConfig.of(saved if config is None else config)
        config = BertConfig.from_dict(config.to_dict(), **changed)
        labels, are_reordered = ("LABEL_0", "LABEL_1")[: cls.NUM_OUTPUTS or 2], False
        if cls.KIND not in WORDS and not cls.NUM_OUTPUTS:
            # Where a file has the same labels in another order, rows follow their names.
            ours, theirs = ([name.casefold() for name in each.id2label.values()] for each in (config, saved))
            labels, are_reordered = tuple(config.id2label.values()), ours != theirs and sorted(ours) == sorted(theirs)
        head = None if cls.KIND == "Model" else Head(kind=cls.KIND, labels=labels, has_names=are_reordered)
        read = heads.read_weights(directory, saved, head)
        if "labels, this task" in read.reason and not takes_new_head:
            received = f"num_labels={len(labels)} for {directory}, where {read.reason.rpartition(',')[0]}"
            todo = "Leave out num_labels, or pass ignore_mismatched_sizes=True for a new head."
            raise UsageError(f"A head has a row for each label. Received: {received}. {todo}")
        if cls.__init__ is PreTrainedModel.__init__:  # A class that derives from ours may have other arguments.
            of_keras["initializer"] = "zeros"
        model = cls(config, **of_keras)
        model.name_or_path = name
        seed = _drawn_seed() if seed is None else seed
        for line in heads.fill(model, read, head, seed=seed, scale=config.initializer_range):
            log.warning("%s", line)
        return model

    def save_pretrained(self, directory: str | pathlib.Path, *, push_to_hub: bool = False, **options: Any) -> None:
        """Writes `config.json` and `model.safetensors`, which transformers loads in PyTorch and in TensorFlow.

        Args:
            directory: Made if needed.
            push_to_hub: Whether to upload it, too.
            **options: Those of `push_to_hub`.
        """
        options = {name: value for name, value in options.items() if (name, value) != ("safe_serialization", True)}
        if options and not push_to_hub:
            rule = "save_pretrained writes PyTorch's layout as safetensors"
            todo = "Leave it out; for a SavedModel call model.export(directory)."
            raise UsageError(f"{rule}. Received: {', '.join(options)}. {todo}")
        for layer in layers_of(self):
            if getattr(layer, "quantization_mode", None):
                rule = "PyTorch's layout has whole weights"
                raise UsageError(f"{rule}. Received: {layer.name!r}, quantized. Save it by model.save('x.keras').")
        heads.save_pretrained(self, None, pathlib.Path(directory))
        if push_to_hub:
            self.push_to_hub(**{"repo_id": pathlib.Path(directory).absolute().name} | options)

    def load_weights(self, filepath: Any, **options: Any) -> None:
        """As `keras.Model.load_weights`; those that transformers' models saved by `save_weights("x.h5")`, by name."""
        path = pathlib.Path(filepath)
        if path.suffix not in (".h5", ".hdf5") or path.name.endswith(".weights.h5") or options:
            super().load_weights(filepath, **options)
        else:
            weights.set_weights_dict(self, weights.read_weights(path))

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Uploads the model to the Hugging Face hub; returns the address of the commit."""
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        check_login(api)
        with tempfile.TemporaryDirectory() as directory:
            heads.save_pretrained(self, None, pathlib.Path(directory))
            return upload(pathlib.Path(directory), HubConfig(hub_model_id=repo_id, hub_private_repo=bool(private)), api)

    def enable_lora(
        self, rank: int, *, alpha: float | None = None, targets: Any = ("query", "value"), seed: int | None = None
    ) -> None:
        """Low-rank updates of kernels (Hu et al. 2021), in place of training them. The encoder is frozen but for these;
        the head is trained, with a pooler that no file gave. Call it before FineTuner and `compile`. Saved models are
        merged.

        Args:
            rank: Of each update.
            alpha: Updates are multiplied by `alpha / rank`; None for the rank.
            targets: Which: among "query", "key", "value", "attention.output.dense", "intermediate.dense",
                "output.dense" (the ends of names, as for PEFT), whatever another encoder calls these layers, or its own
                names; "all" for all of them.
            seed: Decides the factor that begins at random; None draws one.
        """
        chosen = lora.Lora.of(rank, alpha, targets, self.config.encoder)
        lora.enable(self, chosen, _drawn_seed() if seed is None else seed)

    def save_adapter(self, directory: str | pathlib.Path) -> None:
        """Writes LoRA's updates and the head as PEFT does, `adapter_config.json` and `adapter_model.safetensors`."""
        if self.lora is None or self.KIND in WORDS:
            what = "a head of words, which PEFT ties otherwise" if self.lora else "no enable_lora"
            raise UsageError(f"An adapter is LoRA's, and a head's. Received: {what}. Call save_pretrained(directory).")
        lora.write_adapter(self, pathlib.Path(directory))

    def load_adapter(self, directory: str | pathlib.Path) -> None:
        """Takes over an adapter of PEFT's or of `save_adapter`; enables LoRA as it says.

        Raises:
            UsageError: for one of another kind, or of another model.
        """
        lora.load_adapter(self, directory)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "lora": dataclasses.asdict(self.lora) if self.lora else None,
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "trainable": self.trainable,
            "frozen": [number for number, layer in enumerate(layers_of(self)) if not layer.trainable],
        }

    @classmethod
    def from_config(cls, config: Any, custom_objects: dict[str, Any] | None = None) -> PreTrainedModel:
        """The inverse of `get_config`; of a `BertConfig`, a model with new weights."""
        if not isinstance(config, dict) or "config" not in config:
            return cls(config)
        policy = keras.saving.deserialize_keras_object(config["dtype"])
        return cls(**config | {"config": BertConfig.from_dict(config["config"]), "dtype": policy})

    def get_build_config(self) -> None:
        """Nothing: the constructor builds."""

    def export(
        self, filepath: Any, format: str = "tf_saved_model", input_signature: Any = None, **options: Any
    ) -> None:
        """Writes a SavedModel that takes a dictionary of ids, mask and token types and gives one of outputs.

        Args:
            filepath: A directory.
            format: Another one is Keras's own business.
            input_signature: In the place of int32 of any number of rows and any width.
            **options: Keras's.
        """
        if format != "tf_saved_model":
            super().export(filepath, format=format, input_signature=input_signature, **options)
            return
        names, shape = self.config.encoder.inputs, [None] * self.INPUT_RANK
        archive = keras.export.ExportArchive()
        archive.track(self)
        archive.add_endpoint(
            "serve",
            lambda inputs: dict(self(inputs, training=False).items()),
            input_signature=input_signature or [{name: tf.TensorSpec(shape, tf.int32, name=name) for name in names}],
        )
        archive.write_out(filepath, **{"verbose": False} | options)

    # Training, besides Keras's.

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> tf.Tensor:
        """Keras's; with two arguments transformers', `compute_loss(labels, logits)`."""
        if y_pred is None:
            return self.hf_compute_loss(x, y)
        _, y = self.separated(x, y)
        if y is None:
            rule = "A loss needs labels"
            todo = "Pass y, pairs of inputs and labels, or labels among the inputs."
            raise UsageError(f"{rule}. Received: inputs without {' and '.join(self.LABELS) or 'labels'}. {todo}")
        sample_weight = self.row_weights(y, sample_weight)
        y, outputs = self.counted(y, self.for_loss(y_pred))
        return super().compute_loss(x, y, outputs, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None) -> dict[str, Any]:
        """Keras's, of the logits."""
        _, y = self.separated(x, y)
        sample_weight = self.row_weights(y, sample_weight)
        y, outputs = self.counted(y, self.for_loss(y_pred))
        return super().compute_metrics(x, y, outputs, sample_weight)

    def get_metrics_result(self) -> dict[str, Any]:
        """Keras's, without a loss that nothing measured: it would be shown as 0 in place of an own `train_step`'s."""
        results = super().get_metrics_result()
        if tf.executing_eagerly():
            for metric in self.metrics:
                if metric.name == "loss" and not keras.ops.convert_to_numpy(metric.count):  # A sum over replicas.
                    del results["loss"]
        return results

    def compile(self, optimizer="rmsprop", loss=None, loss_weights=None, metrics=None, **options: Any) -> None:
        """As `keras.Model.compile`; without a loss, the model's own. XLA only where asked for: lengths differ.

        Raises:
            ValueError: for objects of tf_keras, those of transformers among them.
        """
        for argument, value in {"optimizer": optimizer, "loss": loss, "metrics": metrics}.items():
            for each in keras.tree.flatten(value):
                check_keras(argument, each, PARTS)
        self.check_loss(loss)
        if self.is_own_loss(loss):
            loss, loss_weights = self.compiled_losses(loss_weights)
        options["weighted_metrics"] = self.named_metrics(options.get("weighted_metrics"))
        options["jit_compile"] = options.get("jit_compile") is True
        # Keras takes lists in the order of the outputs' names, not of the outputs.
        loss, loss_weights = self.named(loss), self.named_weights(loss_weights)
        super().compile(optimizer, loss, loss_weights, self.named_metrics(metrics), **options)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was, and creates the optimizer's variables; Keras then reads their values."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def fit(self, x=None, y=None, *args: Any, **options: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`, of a tokenizer's `BatchEncoding` too."""
        return self._call_keras("fit", args, {"x": x, "y": y} | options)

    def evaluate(self, x=None, y=None, *args: Any, **options: Any) -> Any:
        """As `keras.Model.evaluate`, of a tokenizer's `BatchEncoding` too."""
        return self._call_keras("evaluate", args, {"x": x, "y": y} | options)

    def predict(self, x, *args: Any, **options: Any) -> Any:
        """As `keras.Model.predict`, of a tokenizer's `BatchEncoding` too; outputs with names."""
        return self._call_keras("predict", args, {"x": x} | options)

    def train_on_batch(self, x, y=None, *args: Any, **options: Any) -> Any:
        """As `keras.Model.train_on_batch`, of a tokenizer's `BatchEncoding` too."""
        return self._call_keras("train_on_batch", args, {"x": x, "y": y} | options)

    def test_on_batch(self, x, y=None, *args: Any, **options: Any) -> Any:
        """As `keras.Model.test_on_batch`, of a tokenizer's `BatchEncoding` too."""
        return self._call_keras("test_on_batch", args, {"x": x, "y": y} | options)

    def predict_on_batch(self, x) -> Any:
        """As `keras.Model.predict_on_batch`, of a tokenizer's `BatchEncoding` too."""
        return self._call_keras("predict_on_batch", (), {"x": x})

    def _call_keras(self, name: str, args: tuple, given: dict[str, Any]) -> Any:
        """Calls one of Keras's methods; ValueError for rows that cannot be what they are given as."""
        given = as_taken(given, self)
        check_rows(given, self, self.loss)
        with one_line():
            return getattr(super(), name)(*(given.pop(each) for each in ("x", "y") if each in given), *args, **given)

    # Parts.

    @property
    def base_model(self) -> TFBertMainLayer:
        """The encoder without the head."""
        return self.bert

    def get_input_embeddings(self) -> Any:
        """The layer that holds the table of words."""
        return self.bert.get_input_embeddings()

    @property
    def num_labels(self) -> int:
        """As the configuration says."""
        return self.config.num_labels

    def num_parameters(self, only_trainable: bool = False) -> int:
        """How many numbers the model consists of."""
        return sum(int(tf.size(v)) for v in (self.trainable_weights if only_trainable else self.weights))

    def resize_token_embeddings(self, new_num_tokens: int | None = None) -> Any:
        """Gives the model another number of words; new rows are drawn. Compile anew after it.

        Returns:
            The layer that holds the table.
        """
        table = self.get_input_embeddings()
        if new_num_tokens is None or new_num_tokens == self.config.vocab_size:
            return table
        values = weights.get_weights_dict(self)
        with self.distribute_strategy.scope():
            resize_variable(table, "_embeddings", [new_num_tokens, table.output_dim])
            words = self.config.encoder.words(self)[-1] if self.KIND in WORDS else None
            if words is not None and words.bias is not None:
                resize_variable(words, "bias", [new_num_tokens])
        self.config.vocab_size = table.input_dim = new_num_tokens
        self.train_function = self.test_function = self.predict_function = None  # Traced with the table before.
        heads.set_resized(self, values, seed=_drawn_seed(), scale=self.config.initializer_range)
        return table

    def prepare_tf_dataset(
        self, dataset: Any, batch_size: int = 8, shuffle: bool = True, tokenizer: Any = None, **options: Any
    ) -> tf.data.Dataset:
        """Batches of a data set of `datasets`: the columns that the model reads, padded by its tokenizer.

        Args:
            dataset: A `datasets.Dataset`.
            batch_size: Rows of a batch.
            shuffle: Whether rows come in random order; a short last batch is dropped then.
            tokenizer: Pads; without one, rows have one length.
            **options: Those of the data set's `to_tf_dataset`, such as `collate_fn`.
        """
        if not hasattr(dataset, "to_tf_dataset"):
            todo = "Make batches with tf.data.Dataset.from_tensor_slices((dict(inputs), labels)).batch(16)."
            raise UsageError(f"prepare_tf_dataset takes a datasets.Dataset. Received: {type(dataset).__name__}. {todo}")

        def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
            rows = [{"labels" if name == "label" else name: value for name, value in row.items()} for row in rows]
            if tokenizer is not None:
                return dict(tokenizer.pad(rows, return_tensors="np"))
            return {name: plain([row[name] for row in rows]) for name in rows[0]}

        known = {*INPUTS, *self.LABELS, "label"}
        columns = [name for name in dataset.column_names if name in known]
        labels = ["labels" if name == "label" else name for name in columns if name in self.LABELS or name == "label"]
        return dataset.select_columns(columns).to_tf_dataset(
            columns=[name for name in columns if name not in (*self.LABELS, "label")],
            label_cols=labels[0] if len(labels) == 1 else labels or None,
            **{"batch_size": batch_size, "shuffle": shuffle, "drop_remainder": shuffle, "collate_fn": collate}
            | options,
        )


def _drawn_seed() -> int:
    """A seed that TensorFlow's random seed decides; 0 for several workers, which must begin alike."""
    if num_workers_of(tf.distribute.get_strategy()) > 1:
        return 0
    return int(tf.random.uniform([], maxval=1 << 31, dtype=tf.int64))
