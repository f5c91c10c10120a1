"""The example does what its docstring says."""

import pytest

from examples import fit_from_python


@pytest.mark.slow
def test_both_models_learn_through_plain_fit():
    accuracies = fit_from_python.main()
    assert accuracies["own model"] > 0.9
    assert accuracies["BERT"] > 0.9
