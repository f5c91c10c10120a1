"""Numbers of things, and how many in a second, in words."""

import pytest

from tfbert.config.types import counted, rate_text


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1 row"), (0, "0 rows"), (2_000, "2,000 rows"), (-1, "-1 rows")], ids=str
)
def test_a_number_of_things(number, text):
    assert counted(number, "row") == text


RATES = {(2468, 2): "1,234", (120, 10): "12", (1, 12): "0.083", (3.27, 1): "3.3", (9.96, 1): "10", (4, 1): "4"}
RATES |= {(0, 5): "0", (1, 0): "1,000,000,000", (1, 200_000): "5e-06"}


@pytest.mark.parametrize("number, seconds, text", [(*of, text) for of, text in RATES.items()])
def test_how_many_in_a_second(number, seconds, text):
    """A model that takes 12 seconds for an example does not predict 0 a second."""
    assert rate_text(number, seconds) == text
