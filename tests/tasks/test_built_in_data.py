"""The built-in data: always the same, as scores on it are compared; and what nobody can choose of it."""

import gzip
import json

import pytest

from tfbert.config.data import DataConfig
from tfbert.corpus.sources import built_in_corpus
from tfbert.data.rows import DEMOS
from tfbert.tasks.tables import load_data

NAMES = {
    "auto": ("negative", "positive"),
    "multi_label_classification": ("battery", "delivery", "price", "screen", "sound", "support"),
    "token_classification": ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"),
}


DATA = [
    ("auto", (10000, 1000), (2720882544, 3430329931)),
    ("multi_label_classification", (10000, 1000), (2470903891, 118227027)),
    ("token_classification", (2000, 200), (1691004464, 3371514099)),
    ("question_answering", (2000, 200), (2544251336, 2465157730)),
    ("multiple_choice", (2000, 300), (1141345184, 3505208420)),
]


@pytest.mark.parametrize("task, sizes, checksums", DATA)
def test_the_built_in_data_are_always_the_same(task, sizes, checksums):
    data = load_data(DataConfig(task=task))
    sets = (data.train, data.validation["validation"])
    assert list(data.sets) == ["validation"] and tuple(map(len, sets)) == sizes
    assert data.task.label_names == NAMES.get(task, ())
    assert tuple(part.checksum("", 0) for part in sets) == checksums
    assert [part.where(3) for part in sets] == ["example 4"] * 2 and data.columns == {}
    assert len({*data.train.contents(), *sets[1].contents()}) == sum(sizes), "an example twice"


def test_the_built_in_corpus_is_always_the_same():
    prints = built_in_corpus().fingerprints() | built_in_corpus("validation").fingerprints()
    train = ["c8f1a694", "6074b0aa", "723655ba", "23d8e214"]
    assert [digest[:8] for digest in prints.values()] == [*train, "81a8bcce", "2b726da4", "6d77ec8a", "3078da73"]


def test_the_files_say_nothing_of_when_they_were_made():
    paths = sorted(DEMOS.rglob("*.jsonl.gz"))
    assert len(paths) == 12
    for path in paths:
        assert path.read_bytes()[4:8] == bytes(4)
        with gzip.open(path, "rt", encoding="utf-8") as file:
            assert all(isinstance(json.loads(line), dict) for line in file)
