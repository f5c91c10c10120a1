"""A fixture of several files."""

import pytest

from tests.support.runs import write_corpus


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A corpus in which the tests of a file make their runs, each of a name of its own."""
    directory = tmp_path_factory.mktemp("shared")
    write_corpus(directory)
    return directory
