"""A list in a JSON text, read item by item, against Python's `json`: the same items, the same errors."""

import json
import re
import tracemalloc

import pytest

from tfbert.data.rows import JsonText, NotJson

ITEMS = [{"a": [1, -2.5e3], "é": 'x\ud83d\ude00\\"]'}, "wörd", 12, None, -float("inf"), [[], {}]]
TEXTS = [
    json.dumps({"version": 1.25, "data": ITEMS, "more": {"data": 3}}),
    json.dumps({"data": ITEMS}, indent=1, ensure_ascii=False) + "\n\n",
    " " + json.dumps(ITEMS, indent=2),
    '{"meta": {"data": [1]}, "data": []}',
    "[\n]",
]


def read(text, size):
    """The items, or the words of the error; None without a list, which must leave the lines as they were."""
    opened = JsonText(text[i : i + size] for i in range(0, len(text), size))
    if not opened.enter_list("data"):
        lines = list(opened.lines())
        assert "".join(line for _, line in lines) == text
        assert [number for number, _ in lines] == list(range(1, len(lines) + 1))
        assert all(line.find("\n") in (-1, len(line) - 1) for _, line in lines)
        return None
    try:
        return list(opened.items())
    except NotJson as error:
        return str(error)


def expected(text):
    try:
        value = json.loads(text)
    except ValueError as error:
        return str(error)
    value = value.get("data") if isinstance(value, dict) else value
    return value if isinstance(value, list) else None


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("text", TEXTS)
def test_items_and_errors_are_those_of_json(text, size):
    """Of the text, of each of its beginnings, and with each of its characters changed."""
    assert read(text, size) == expected(text) is not None
    wrong = 0
    for place in range(len(text)):
        rest = text[place + 1 :]
        for other in (text[:place], text[:place] + rest, *(text[:place] + new + rest for new in '"]}{,: 7\n\\')):
            if re.search(r",\s*[\]}]", other):
                continue  # Newer versions of Python have other words for it.
            found, right = read(other, size), expected(other)
            wrong += isinstance(found, str)
            # Where the list is not reached, whoever reads the lines finds the error.
            assert found == right or (found is None and isinstance(right, str)), other
    assert wrong > 3 * len(text) or text in TEXTS[3:]


def test_texts_without_such_a_list():
    for text in ("", " ", "3", '{"a": 1}', '{"data": "x"}', '{"data": {}}', "{}", '{"id": 1}\n{"id": 2}\n'):
        assert read(text, 1) is None and read(text, 100) is None


def test_what_python_cannot_hold():
    assert read("[" * 100_000, 1000) == "nested too deeply"
    assert read('{"data": [], "more": ' + "[" * 100_000, 1000) == "nested too deeply"
    assert read("[" + "1" * 5000 + "]", 1000).startswith("Exceeds the limit")


def test_it_reads_no_further_than_it_must():
    taken = []

    def source():
        for piece in ('{"data": [', "1,", " 2", ",", "x" * 100, "never"):
            taken.append(piece)
            yield piece

    text = JsonText(source())
    assert text.enter_list("data") and taken == ['{"data": [']
    items = text.items()
    assert [next(items), next(items)] == [1, 2] and taken[-1] == ","
    with pytest.raises(NotJson, match=r"Expecting value: line 1 column 16 \(char 15\)"):
        next(items)
    assert taken[-1] != "never"


def test_memory_is_that_of_the_longest_item():
    def source():
        yield '{"data": ['
        for i in range(3000):
            yield ", " * (i > 0) + json.dumps(["x" * 10_000])
        yield "]}"

    text = JsonText(source())
    assert text.enter_list("data")
    tracemalloc.start()
    count = sum(1 for _ in text.items())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3000 and peak < 1e6, "of 30 MB"
