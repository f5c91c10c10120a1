"""What layers of tf_keras keep from one call to the next."""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras

from tfbert.step.state import LayerState
from tfbert.step.tf_keras.private import layers_of, metrics_within

_NORMALIZATION = keras.layers.BatchNormalization.__base__  # The older classes', too.


class KerasLayerState(LayerState):
    """See `LayerState`."""

    def layers(self) -> list[keras.layers.Layer]:
        """As `LayerState.layers`."""
        return list(layers_of(self._model))

    def normalizations(self) -> list[keras.layers.Layer]:
        """As `LayerState.normalizations`."""
        return [each for each in self.layers() if isinstance(each, _NORMALIZATION)]

    def metrics(self) -> list[keras.metrics.Metric]:
        """As `LayerState.metrics`."""
        return metrics_within(self._model)

    def variables(self) -> list[tf.Variable]:
        """As `LayerState.variables`."""
        return self._model.variables

    def averages(self) -> list[tf.Variable]:
        """As `LayerState.averages`."""
        return [v for each in self.normalizations() for v in (each.moving_mean, each.moving_variance) if v is not None]

    def carried(self) -> list[str]:
        """As `LayerState.carried`."""
        return [each.name for each in self.layers() if isinstance(each, keras.layers.RNN) and each.stateful]

    def each_replicas_own(self) -> list[tf.Variable]:
        """What layers change in the forward pass, each replica its own, such as BatchNormalization's moving mean."""
        # Not every weight is a variable: those of lookup tables are not.
        own = tf.VariableSynchronization.ON_READ
        return [v for v in self._model.non_trainable_variables if getattr(v, "synchronization", None) == own]
