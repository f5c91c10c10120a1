"""What users call of a `FineTuner`, and what is saved of it, whichever Keras its model is of; and what workers must
share that call `fit`, `evaluate` or `predict`."""

from __future__ import annotations

import inspect
import json
import os
import pathlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.devices.workers import check_same, checksum, versions_of
from tfbert.private import check_not_forked, let_go_of_traced_gradients, mask_of, with_mask
from tfbert.step import refusals
from tfbert.step.core import Step
from tfbert.step.terms import Terms, check_probabilities, numbered, one_line

_MOST_IN_A_ROW = 20
"""Updates that loss scaling may skip before the user hears of it: it needs some to find its scale."""


_MAY_DIFFER = {"callbacks", "verbose", "workers", "use_multiprocessing", "max_queue_size", "return_dict"}
"""Arguments of these methods that change nothing that is computed with other workers."""
_OF_THE_PROCESS = {"seed", "code", "function", "_name_or_path", "transformers_version"}
"""What configurations hold that differs though a layer is the same: FineTuner's seed decides the noise, the first
weights are the chief's, and compiled code has the name of its file."""
_WAY_OUT = "Give all workers the same program, options and data; only callbacks and verbose may differ"
_MOST_BYTES = 2**28
_SHORT = 50


class Tuner(Step):
    """A `FineTuner`, but for what is of one Keras alone; it comes before that Keras's `Model` among the bases of that
    Keras's class. See `tfbert.FineTuner`."""

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, with the wrapped model's own configuration."""
        forward = {}
        if self._forward is not None:
            self._parts.check_saved(self._forward)
            forward = {"forward": self._parts.keras.saving.serialize_keras_object(self._forward)}
        return forward | {"model": self._parts.serialized(self.model), **self._arguments(), "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """The inverse of `get_config`."""
        objects = {name: config[name] for name in ("model", "forward") if name in config}
        made = {name: cls._parts.deserialized(each, custom_objects) for name, each in objects.items()}
        return cls(**config | made)

    def get_build_config(self) -> None:
        """Nothing: the wrapped model says how it is built, and not every model can be built from a shape."""

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was, and creates the optimizer's variables; Keras then reads their values."""
        self.compile(**self._parts.keras.saving.deserialize_keras_object(config))
        if self.model.built:
            self.optimizer.build(self.model.trainable_variables)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """As `compile` of Keras's models.

        Raises:
            ValueError: for an object of another Keras, no loss, a loss that is no mean, losses that do not match the
                model's outputs, an optimizer that accumulates gradients itself, or `jit_compile` (an argument of the
                constructor).
        """
        given = {"optimizer": "rmsprop", "loss": None} | self._arguments_of("compile", args, kwargs)
        refusals.check_methods(self.model, self._parts)  # Again: a method may have been assigned since.
        refusals.check_compile(given, self.model, self._parts, self.distribute_strategy)
        # Names of a functional model's outputs, by its dictionary or its layers.
        outputs = self._parts.outputs_of(self.model)
        of_keras = sorted(outputs) if isinstance(outputs, Mapping) else getattr(self.model, "output_names", None)
        names = numbered(of_keras) if of_keras and self._forward is None else None
        if names and names != of_keras:  # Several outputs have one name.
            for each in ("loss", "loss_weights"):
                if isinstance(by_name := given.get(each), Mapping) and set(by_name) <= set(of_keras):
                    given[each] = [by_name.get(name) for name in of_keras]
        if names and len(names) > 1:
            self._untracked("output_names", names)  # Keras names metrics by them.
        with self.distribute_strategy.scope():
            # Keras must not track its means, like compiled metrics: they are not weights to save and load.
            if refusals.has_own_loss(self.model, self._parts):
                terms = Terms(self._parts, None, own=self.model)
            else:
                terms = Terms(self._parts, given["loss"], given.get("loss_weights"), names)
            # What computes the outputs otherwise may make them probabilities: then the step looks at their values.
            is_own = self._forward is not None or refusals.is_own(self.model, "call", self._parts.libraries)
            if outputs is not None and not is_own:
                check_probabilities(terms, outputs, self._parts)
            self._terms = terms  # Not before: `fit` after a refusal has the loss that was compiled.
            super().compile(**given | {"jit_compile": False})
        measured = tf.nest.flatten([given.get("metrics"), given.get("weighted_metrics")])
        self._has_metrics = any(metric is not None for metric in measured)
        self._untracked("_compiled_with", given | {"optimizer": self.optimizer})
        self._dropout = None  # The optimizer is new, and which variables are trainable may have changed.

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The wrapped model's outputs: float32 where they are floating."""

        def as_float32(output: tf.Tensor) -> tf.Tensor:
            if not tf.as_dtype(output.dtype).is_floating:
                return output
            return with_mask(tf.cast(output, tf.float32), mask_of(output))

        outputs = self._forwarded(inputs, training)
        let_go_of_traced_gradients()
        return tf.nest.map_structure(as_float32, outputs)

    def create_variables(self) -> None:
        """Settles what is trained and creates the optimizer's variables. The model must be built. Call it in scope."""
        # First, so that a second `fit` is refused, too.
        refusals.check_layers(self.model, self.gradient_accumulation_steps, self._parts.keras.layers.RNN)
        num_replicas = self.distribute_strategy.num_replicas_in_sync
        self._dropout = self._parts.keyed(self.model, self.gradient_accumulation_steps * num_replicas)
        self._untracked("_trained", list(self.model.trainable_variables))
        self._untracked("_averages", self._parts.settled(self.model, self._running_averages()))
        self._trace_anew()
        if not self._trained:
            raise ValueError("FineTuner trains the model's variables. Received: a model with none that are trainable.")
        with tf.init_scope():
            if not getattr(self.optimizer, "built", False):
                self.optimizer.build(self._trained)

    def make_train_function(self, force: bool = False) -> Any:
        """As Keras does, but creates all variables before the step is traced: else TensorFlow traces it twice."""
        if self._dropout is None and self.model.built and self.model.variables:
            with self.distribute_strategy.scope():
                self.create_variables()
        return super().make_train_function(force)

    def predict_step(self, data: Any) -> Any:
        """The outputs for a batch; what the model's own `predict_step` makes of it, where it has one."""
        if refusals.is_own(self.model, "predict_step", self._parts.of_steps):  # Or a KerasHub task's, that decodes.
            return self.model.predict_step(data)
        return super().predict_step(data)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """As `fit` of Keras's models; warns of updates that were skipped, as by NaN."""
        before = self._num_skipped()
        history = self._call_keras("fit", args, kwargs)
        in_a_row = int(self.counters.skipped_in_a_row.numpy())
        skipped, made = (now - then for now, then in zip(self._num_skipped(), before, strict=True))
        is_scaled = self._parts.scale_of(self.optimizer) is not None
        if in_a_row >= min(_MOST_IN_A_ROW, made) > 0 or (skipped and not is_scaled):
            warnings.warn(
                "An update whose gradients are not finite is skipped: it changes nothing. "
                f"Received: {skipped} such of {made}, the last {in_a_row} in a row. Look for NaN and infinity in "
                "inputs, labels and weights, or take a lower rate; `counters` of the model counts them.",
                stacklevel=2,
            )
        return history

    def _num_skipped(self) -> tuple[int, int]:
        """Updates that were skipped, and all."""
        skipped, finite = (int(each.numpy()) for each in (self.counters.skipped_steps, self.counters.finite_steps))
        return skipped, skipped + finite

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As `evaluate` of Keras's models."""
        return self._call_keras("evaluate", args, kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As `predict` of Keras's models."""
        return self._call_keras("predict", args, kwargs)

    def save_pretrained(self, *args: Any, **options: Any) -> Any:
        """The wrapped model's."""
        return self.model.save_pretrained(*args, **options)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `train_on_batch` of Keras's models; in Keras 3 the rows of a batch are divided among the replicas."""
        return self._call_keras("train_on_batch", args, kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `test_on_batch` of Keras's models."""
        return self._call_keras("test_on_batch", args, kwargs)

    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """As `predict_on_batch` of Keras's models."""
        return self._call_keras("predict_on_batch", args, kwargs)

    def _call_keras(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        check_not_forked()  # TensorFlow would hang.
        given = self._arguments_of(name, args, kwargs)
        refusals.check_called(self.model, name, given.get("callbacks"), self._parts)
        refusals.check_executions(vars(self).get("steps_per_execution"))  # In Keras 3 it may be set after `compile`.
        if given.get("_use_cached_eval_dataset"):  # `fit` evaluates on what it has checked, compared and preprocessed.
            return getattr(super(), name)(**given)
        given = self._checked(given)
        if name in ("fit", "train_on_batch") and self._dropout is not None:
            refusals.check_settled(self.model, self._trained, self._arguments(), self._traced)
        with one_line():
            if not name.endswith("_on_batch"):
                self._check_same_call(name, given)
            return getattr(super(), name)(**self._read(name, given))

    def _arguments_of(self, name: str, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call of one of Keras's methods, by name; raises TypeError as the call would."""
        method = getattr(self._parts.keras.Model, name)
        arguments = inspect.signature(method).bind(self, *args, **kwargs).arguments
        extra = arguments.pop("kwargs", {})
        return {key: value for key, value in arguments.items() if key != "self"} | extra

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        """A method's arguments as Keras takes them; ValueError for rows that cannot be what they are given as."""
        return given

    def _check_same_call(self, name: str, given: Mapping[str, Any]) -> None:
        """Refuses workers that call a method of Keras's models with another model, other options or other data.

        Raises:
            UsageError: on all workers alike.
        """
        given = {**self._compiled_with, **given, **self._arguments()}
        trained = self.model.trainable_variables if self.model.built else []
        check_same(
            lambda: {
                "method": name,
                **versions_of(self._parts.keras.__name__),
                "precision": described(self.dtype_policy),
                "model": described(self.model),
                "variables": [f"{tf.as_dtype(each.dtype).name}{list(each.shape)}" for each in trained],
                **{argument: described(value) for argument, value in given.items() if argument not in _MAY_DIFFER},
            },
            self.distribute_strategy,
            way_out=_WAY_OUT,
        )

    def check_same_start(self) -> None:
        """Refuses workers that have restored different states, or only some of them one.

        Raises:
            UsageError: on all workers alike.
        """

        def facts() -> dict[str, str]:
            values = self._values_of(self.model.trainable_variables)
            arrays = [tf.convert_to_tensor(value).numpy() for value in values]
            # Rounded: once trained, the last bits are those of each worker's processor.
            total = sum(float(np.abs(array).sum(dtype=np.float64)) for array in arrays)
            steps = tf.convert_to_tensor(self._num_updates()).numpy()
            return {"steps": str(steps), "sum of the weights": f"{total:.8g}"}

        check_same(
            facts,
            self.distribute_strategy,
            rule="Workers must begin with the same weights after the same number of steps",
            way_out="Restore from a directory that all of them can read, or from none",
        )


def described(value: Any) -> Any:
    """What tells an object of Keras, an array or a data set from another, as JSON holds it; alike on all machines."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):  # Names are numbered in each process by itself.
        is_path = os.sep in value and pathlib.Path(value).exists()
        return "a path" if is_path else re.sub(r"_\d+\b| at 0x[0-9a-f]+", "", value)
    if isinstance(value, Mapping):
        return {str(key): described(each) for key, each in value.items() if key not in _OF_THE_PROCESS}
    if isinstance(value, (list, tuple)):
        is_long = len(value) > _SHORT and isinstance(value[0], (str, bool, int, float))
        return f"{len(value)}, {checksum(json.dumps(value, default=str))}" if is_long else [*map(described, value)]
    if isinstance(value, (np.ndarray, tf.Tensor)) or hasattr(value, "to_numpy"):
        array = np.asarray(value)
        return f"{array.dtype}{list(array.shape)}, {checksum(array[:: 1 + array.nbytes // _MOST_BYTES])}"
    if isinstance(value, tf.data.Dataset):
        if value.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF:
            return "a data set of each worker's own"
        return {"rows": str(value.element_spec), "batches": int(value.cardinality())}
    if hasattr(value, "get_config") and not isinstance(value, type):
        try:
            config = described(value.get_config())
        except Exception:  # A user's own class may have none, which only saving would need.
            config = None
        return {"class": type(value).__name__, "config": config}
    return getattr(value, "__qualname__", type(value).__qualname__)
