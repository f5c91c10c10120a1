"""`tfbert.FineTuner`: one name, whichever Keras the model is from.

Models saved with `FineTuner.save("x.keras")` by tf_keras name the class as `tfbert.finetuner.FineTuner`, too; those of
Keras 3 are found once this module is imported, after Keras.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from tfbert.config.types import unknown_option
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras
    import tf_keras

    from tfbert.step.keras3.finetuner import FineTuner as Keras3FineTuner
    from tfbert.step.tf_keras.finetuner import FineTuner as TFKerasFineTuner

    class _Options(TypedDict, total=False):
        gradient_accumulation_steps: int
        max_grad_norm: float
        all_reduce_dtype: str
        jit_compile: bool
        seed: int
        forward: Callable[[Any, Any, bool | None], Any] | None
        name: str


__all__ = ["FineTuner"]

_MODULES = {"keras": "tfbert.step.keras3.finetuner", "tf_keras": "tfbert.step.tf_keras.finetuner"}
"""Where the class for models of each Keras is; imported when there is such a model, and that Keras with it."""


def _class_of(root: str) -> type:
    try:
        return importlib.import_module(_MODULES[root]).FineTuner
    except ModuleNotFoundError as error:
        if error.name != "tf_keras":
            raise
        raise UsageError(
            "Models of tf_keras need an extra. Received: one, and no tf_keras. Run pip install "
            "'tfbert-trainer[tf-keras]'; for transformers' TFBert... write `from tfbert import TFBert...`, of Keras 3."
        ) from None


def _default_root() -> str:
    return "tf_keras" if "tf_keras" in sys.modules else "keras"


def _root_of(model: Any) -> str:
    """The Keras that a model is of, by what its class derives from."""
    roots = {each.__module__.split(".")[0] for each in type(model).__mro__} & set(_MODULES)
    return roots.pop() if len(roots) == 1 else _default_root()


class _OfEitherKeras(type):
    """Makes classes derived from `FineTuner` classes of the Keras in use: of tf_keras, where both are."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if not any(isinstance(base, _OfEitherKeras) for base in bases):
            return super().__new__(mcs, name, bases, namespace)
        own = _class_of(_default_root())
        bases = tuple(own if isinstance(base, _OfEitherKeras) else base for base in bases)
        return types.new_class(name, bases, exec_body=lambda body: body.update(namespace))

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _imported())

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, _imported())


def _imported() -> tuple[type, ...]:
    return tuple(sys.modules[module].FineTuner for module in _MODULES.values() if module in sys.modules)


class FineTuner(metaclass=_OfEitherKeras):
    """Wraps a Keras model; train it with the usual `compile`, `fit`, `evaluate` and `predict`.

    The model may be one of Keras 3 (`import keras`, KerasHub, ours) with TensorFlow as its backend, or with the extra
    `tf-keras` one of tf_keras (transformers 4); what is made is a model of the same Keras.

    A step is one optimizer update. `train_step` gets a replica's whole share of a global batch, splits it into
    micro-batches, sums their gradients in float32, sums those over all replicas, clips by global norm and applies. The
    loss is a sum of terms, one for each output that has a loss; each is divided by the number of its weights not 0 in
    the global batch: rows, or positions where `sample_weight` is `[rows, positions]`. The update is the same for any
    number of replicas, workers and micro-batches, also when shares are uneven or empty: rows of weight 0 fill them up,
    which only BatchNormalization notices, or a layer that adds a loss of its activations, as `activity_regularizer`
    does. What else looks across rows is refused where a batch is in several parts: at the first steps rows are computed
    once more beside others. A step whose gradients are not finite changes nothing but the step count, on all
    replicas, BatchNormalization's averages included. A model's own `compute_loss` with a value per row takes the place
    of the terms; other methods that plain Keras would call and this step does not are refused by name.

    `save("x.keras")` keeps all that is needed to continue training, `save_weights` the weights.

    Args:
        model: A Keras model. Create it in the strategy's scope. Of a Hugging Face TF model, the `logits` are taken.
        gradient_accumulation_steps: Micro-batches per replica and step.
        max_grad_norm: Largest global norm of the gradient of the global batch; 0 for no clipping.
        all_reduce_dtype: `bfloat16` rounds each replica's gradients to 16 bits before they are summed over all: half as
            much to send between machines. Nothing is rounded on one replica.
        jit_compile: Compile the forward and backward pass with XLA, under any strategy. Each new shape of a batch
            is compiled anew: pad to few lengths.
        seed: Decides the dropout noise, together with step, row of the global batch and layer.
        forward: `(model, inputs, training) -> output`, for inputs that the model does not take as they are; None calls
            the model. It and the loss are traced without AutoGraph. Labels are those of its output.
        name: Of the model that is made.

    Attributes:
        model: The wrapped model.
        counters: What the run counts, see `tfbert.step.core.StepCounters`.

    Raises:
        ValueError: for a model with a step of its own or of another strategy's scope, a model of Keras 3 with another
            backend, or options that exclude each other.

    Example:
        >>> with strategy.scope():
        ...     model = FineTuner(classifier, gradient_accumulation_steps=4, max_grad_norm=1.0)
        ...     loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        ...     model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
        >>> model.fit(train_ds, epochs=3)
    """

    if TYPE_CHECKING:

        def __init__(  # Never called: it is what the documentation shows.
            self,
            model: tf_keras.Model | keras.Model,
            *,
            gradient_accumulation_steps: int = 1,
            max_grad_norm: float = 0.0,
            all_reduce_dtype: str = "float32",
            jit_compile: bool = False,
            seed: int = 0,
            forward: Callable[[Any, Any, bool | None], Any] | None = None,
            name: str = "fine_tuner",
        ) -> None: ...

        @overload
        def __new__(cls, model: tf_keras.Model, **options: Unpack[_Options]) -> TFKerasFineTuner: ...

        @overload
        def __new__(cls, model: keras.Model, **options: Unpack[_Options]) -> Keras3FineTuner: ...

    def __new__(cls, model: Any, **options: Any) -> Any:
        own = _class_of(_root_of(model))
        names = [name for name in inspect.signature(own).parameters if name != "model"]
        if problems := [unknown_option("FineTuner", n, options[n], names) for n in options if n not in names]:
            raise UsageError("\n".join(problems))
        return own(model, **options)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> TFKerasFineTuner:
        """What tf_keras calls for a model that it saved."""
        return _class_of("tf_keras").from_config(config, custom_objects=custom_objects)


# Registers the class of Keras 3, where that is imported: `keras.models.load_model` imports none by its name.
if "keras" in sys.modules and sys.modules["keras"].config.backend() == "tensorflow":
    _class_of("keras")
