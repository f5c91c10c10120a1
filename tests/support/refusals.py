"""What is refused with an error for users."""

import contextlib

import pytest

from tfbert.errors import UsageError


@contextlib.contextmanager
def refused(message, kind=UsageError):
    """What happens here is a usage error, or another, that says so, in one line."""
    with pytest.raises(kind, match=message) as caught:
        yield caught
    assert "\n" not in str(caught.value)
