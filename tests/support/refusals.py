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


def assert_refused(message, function, *args, kind=UsageError, **options):
    """Calls what must be refused so, in a line that is not too long and has what was received; returns all of it."""
    with refused(message, kind) as caught:
        function(*args, **options)
    said = str(caught.value)
    assert len(said) < 800 and "Received: " in said, said
    return said


def message_of(function, *arguments, **options):
    """All that is said where a call is a usage error."""
    with pytest.raises(UsageError) as caught:
        function(*arguments, **options)
    return str(caught.value)
