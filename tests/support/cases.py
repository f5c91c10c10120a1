"""Cases of tests: those that run with the slow ones alone."""

import pytest

SLOW = pytest.mark.slow


def slow(*values, **options):
    """A case of what quick ones guard as well."""
    return pytest.param(*values, marks=SLOW, **options)


def quick(names, *chosen):
    """All of them, names or tuples of values, of which the others are slow."""
    return [name if name in chosen else slow(*name) if isinstance(name, tuple) else slow(name) for name in names]
