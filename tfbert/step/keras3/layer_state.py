"""What layers of Keras 3 keep from one call to the next."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfbert.step.keras3.private import layers_of, metrics_within
from tfbert.step.state import LayerState

_AVERAGES = ("moving_mean", "moving_variance", "moving_stddev", "renorm_mean", "renorm_stddev")


class KerasLayerState(LayerState):
    """See `LayerState`."""

    refuses_draws = True

    def layers(self) -> list[keras.layers.Layer]:
        """As `LayerState.layers`."""
        return layers_of(self._model)

    def normalizations(self) -> list[keras.layers.Layer]:
        """As `LayerState.normalizations`."""
        return [each for each in self.layers() if isinstance(each, keras.layers.BatchNormalization)]

    def metrics(self) -> list[keras.metrics.Metric]:
        """As `LayerState.metrics`."""
        return metrics_within(self._model)

    def variables(self) -> list[tf.Variable]:
        """As `LayerState.variables`."""
        return [variable.value for variable in self._model.variables]

    def averages(self) -> list[tf.Variable]:
        """As `LayerState.averages`."""
        found = [getattr(each, name, None) for each in self.normalizations() for name in _AVERAGES]
        return [variable.value for variable in found if variable is not None]

    def carried(self) -> list[str]:
        """As `LayerState.carried`."""
        return [each.name for each in self.layers() if isinstance(each, keras.layers.RNN) and each.stateful]
