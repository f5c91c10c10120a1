"""Tests of the step run with Keras 3 and, when the slow ones run, with tf_keras too, which is an extra."""

import pytest

from tests.support.cases import slow
from tests.support.either_keras import Either


@pytest.fixture(params=["keras", slow("tf_keras")])
def either(request):
    return Either(request.param)


@pytest.fixture
def three():
    """Keras 3."""
    return Either("keras")
