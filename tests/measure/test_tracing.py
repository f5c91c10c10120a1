"""Updates on a CPU in 16 bits leave out TensorFlow's graph optimizer, and nothing else does."""

import pytest
import tensorflow as tf

from tfbert.measure import as_traced


def is_off():
    return tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)


@pytest.mark.parametrize("dtype, without", [("bfloat16", True), ("float16", True), ("float32", False)])
def test_only_updates_in_16_bits_leave_it_out(optimised_graphs, dtype, without):
    seen = []
    as_traced(lambda: seen.append(is_off()), dtype)()
    assert seen == [without] and not is_off()


def test_it_is_back_after_an_error(optimised_graphs):
    with pytest.raises(ZeroDivisionError):
        as_traced(lambda: 1 / 0, "bfloat16")()
    assert not is_off()
