"""docs/other_formats.md: each piece of code writes a file that is read, of one that is not."""

import pathlib
import re

import pytest

from tfbert.config.data import DataConfig
from tfbert.errors import UsageError
from tfbert.tasks.token_classification.tagged import in_usual_form, read_sentences

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "other_formats.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def tagged(path):
    table = in_usual_form(read_sentences(path, DataConfig()), [])
    pairs = (zip(words, tags, strict=True) for words, tags in zip(table.words, table.tags, strict=True))
    return [" ".join(map("/".join, own)) for own in pairs]


TWO = ["Ann/B-PER Lee/I-PER left/O", "Oslo/B-LOC"]
FORMS = {  # What the old file holds, what reads the new one, and what it then is.
    "Entity tags that are written otherwise": {
        "old.conll": "Ann X B_PER\nLee X I_PER\nleft X O\n\nOslo X LOC-b\n",
        "data.conll": (tagged, TWO),
    },
    "Words that start with a hash": {
        "old.conll": "#Oslo HT\nnow RB\n\nleft VB\n",
        "data.jsonl": (tagged, ["#Oslo/HT now/RB", "left/VB"]),
    },
    "Words without blank lines between sentences": {
        "old.conll": "1\tAnn\tB-PER\n1\tLee\tI-PER\n1\tleft\tO\n2\tOslo\tB-LOC\n",
        "data.csv": (tagged, TWO),
    },
}


@pytest.mark.parametrize("heading", SECTIONS)
def test_code_of_the_page_writes_what_is_read(heading, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (old, content), (new, (read, expected)) = FORMS[heading].items()
    pathlib.Path(old).write_text(content)
    with pytest.raises(UsageError):
        read(pathlib.Path(old))
    exec(SECTIONS[heading], {})
    assert read(pathlib.Path(new)) == expected


def test_each_heading_has_code():
    assert list(SECTIONS) == re.findall("^## (.*)", PAGE, re.MULTILINE) == list(FORMS)
