"""What layers of Keras 3 keep from one call to the next."""

from __future__ import annotations

import re

import keras
import tensorflow as tf

from tfbert.step.keras3.private import layers_of, metrics_within
from tfbert.step.state import LayerState

_RANDOM = re.compile(
    "(Stateless|Stateful)?((Random|Standard)(Standard)?(Uniform|UniformInt|Normal|Gamma|Poisson|Binomial|Shuffle)"
    "|(Parameterized)?TruncatedNormal|Multinomial|Shuffle|SampleDistortedBoundingBox)(V[0-9])?"
    "|Stateful(Uniform|UniformInt|UniformFullInt)|RngReadAndSkip|RngSkip|NonDeterministicInts|.*CandidateSampler"
)
_AVERAGES = ("moving_mean", "moving_variance", "moving_stddev", "renorm_mean", "renorm_stddev")


class KerasLayerState(LayerState):
    """See `LayerState`."""

    def metrics(self) -> list[keras.metrics.Metric]:
        """As `LayerState.metrics`."""
        return metrics_within(self._model)

    def variables(self) -> list[tf.Variable]:
        """As `LayerState.variables`."""
        return [variable.value for variable in self._model.variables]

    def averages(self) -> list[tf.Variable]:
        """As `LayerState.averages`."""
        layers = [each for each in layers_of(self._model) if isinstance(each, keras.layers.BatchNormalization)]
        found = [getattr(each, name, None) for each in layers for name in _AVERAGES]
        return [variable.value for variable in found if variable is not None]

    def is_random(self, operation_type: str) -> bool:
        """As `LayerState.is_random`: all of `tf.random`. What `keras.random` draws is made of whole random words."""
        return bool(_RANDOM.fullmatch(operation_type))

    def carried(self) -> list[str]:
        """As `LayerState.carried`."""
        return [each.name for each in layers_of(self._model) if isinstance(each, keras.layers.RNN) and each.stateful]
