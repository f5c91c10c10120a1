"""Classes of transformers 4, the peer of ours."""

import pytest
import transformers


def transformers_4(name):
    """A class of transformers 4; of those of TensorFlow, 5 has none: the test is skipped."""
    if not hasattr(transformers, "TFBertMainLayer"):
        pytest.skip("transformers 5 has no TensorFlow")
    return getattr(transformers, name)
