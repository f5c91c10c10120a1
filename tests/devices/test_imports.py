"""Imports of large libraries run without the garbage collector, which runs again afterwards."""

import gc
import sys

import pytest

from tests.support.processes import output_of
from tfbert.devices.process import without_collections, without_modules

COLLECTIONS_OF_IMPORTS = """
import gc, sys

counts = []
gc.callbacks.append(lambda phase, info: counts.append(phase))
import tfbert
counts.clear()
tfbert.build_strategy
assert "tensorflow" in sys.modules and gc.isenabled()
assert len(counts) < 40, len(counts)  # TensorFlow and tf_keras alone: more than 2,000.
"""


def test_the_collector_is_as_it_was():
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), without_collections():
        import tfbert.no_such_module  # noqa: F401
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.slow
def test_tensorflow_is_imported_without_it():
    output_of(COLLECTIONS_OF_IMPORTS)


def test_modules_are_not_found_in_the_block_and_are_afterwards():
    sys.modules.pop("wave", None)
    with without_modules("gc", "wave"):
        import gc as found  # Imported already: it stays.

        with pytest.raises(ImportError):
            import wave
    import wave

    assert found is gc and wave.__name__ == "wave"
