"""The example does what its docstring says."""

import pytest
import tensorflow as tf

from examples import fit_from_python


@pytest.mark.slow
def test_a_model_of_ones_own_learns_through_plain_fit():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    assert fit_from_python.train(fit_from_python.own_model, "binary_crossentropy", 5e-2, 4, strategy) > 0.9


@pytest.mark.slow
def test_both_models_learn_through_plain_fit():
    accuracies = fit_from_python.main()
    assert accuracies["own model"] > 0.9
    assert accuracies["BERT"] > 0.9
