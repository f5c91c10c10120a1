"""Foreign messages within ours: one line, cut where a reader would."""

import pytest

from tfbert.errors import first_line


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Short.", "Short"),
        ("Two.\nLines.", "Two"),
        ("", "str"),
        (ValueError(), "ValueError"),
        ("One sentence. Another one that is too long.", "One sentence"),
        ("Only one sentence that is too long.", "Only one sentence that ..."),
        ("x" * 40, f"{'x' * 25} ..."),
    ],
)
def test_a_line_is_cut_after_a_sentence_or_a_word(text, expected):
    assert first_line(text, 25) == expected
