"""Tests of the step run with Keras 3 and, when the slow ones run, with tf_keras too, which is an extra."""

import pytest

from tests.support.either_keras import SLOW, Either


@pytest.fixture(params=["keras", pytest.param("tf_keras", marks=SLOW)])
def either(request):
    return Either(request.param)


@pytest.fixture
def three():
    """Keras 3."""
    return Either("keras")
