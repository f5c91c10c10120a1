"""The built-in corpus: always the same, balanced, without repeats, and out of reach for a bag of words."""

import hashlib
import pathlib
import subprocess
import sys

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tfbert.config import DataConfig
from tfbert.data.demo import LABEL_NAMES, demo_data
from tfbert.data.sources import load_data


def test_sizes_balance_and_no_repeats():
    train, validation = demo_data()
    assert (len(train), len(validation)) == (8000, 1000)
    assert len({*train.text, *validation.text}) == 9000
    for table in (train, validation):
        assert table.labels.count("positive") == table.labels.count("negative") == len(table) / 2
    lengths = {len(text.split()) for text in train.text}
    assert min(lengths) <= 4
    assert max(lengths) >= 25


def digest() -> str:
    return hashlib.sha256("\n".join(text for table in demo_data() for text in table.text).encode()).hexdigest()


def test_the_same_in_every_process():
    code = "from tests.test_demo import digest; print(digest())"
    root = pathlib.Path(__file__).parents[1]
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == digest()


def test_sentences_read_right():
    train, validation = demo_data()
    label_of = dict(zip(train.text + validation.text, train.labels + validation.labels, strict=True))
    expected = {
        "Everyone but me loved it.": "negative",
        "Everyone but me hated it.": "positive",
        "The plot could not be better.": "positive",
        "The plot could not be worse.": "negative",
        "Most films are worse than this one.": "positive",
        "Most films are better than this one.": "negative",
    }
    found = {text: label_of[text] for text in expected if text in label_of}
    assert len(found) >= 4
    assert found == {text: expected[text] for text in found}


def test_counting_words_is_not_enough():
    train, validation = demo_data()
    model = make_pipeline(CountVectorizer(), LogisticRegression(max_iter=1000)).fit(train.text, train.labels)
    assert model.score(validation.text, validation.labels) <= 0.85


def test_load_data_gives_it_by_default():
    data = load_data(DataConfig())
    assert (data.task, data.label_names, list(data.validation), data.test, data.notes) == (
        "classification",
        LABEL_NAMES,
        ["validation"],
        None,
        (),
    )
    assert data.train.text == demo_data()[0].text
