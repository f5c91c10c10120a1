"""What tests of Keras 3 leave as they found it."""

import pytest


@pytest.fixture(autouse=True)
def keras3_float32():
    """No test leaves a precision policy to the next."""
    import keras

    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")
