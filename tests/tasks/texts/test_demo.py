"""The built-in corpus: always the same, balanced, without repeats, and out of reach for a bag of words."""

import hashlib

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tfbert.config.data import DataConfig
from tfbert.tasks.examples import load_data
from tfbert.tasks.texts.demo import LABEL_NAMES, demo_data


def test_sizes_balance_and_no_repeats():
    train, validation = demo_data()
    assert (len(train), len(validation)) == (10000, 1000)
    assert len({*train.text, *validation.text}) == 11000
    for table in (train, validation):
        assert table.labels.count("positive") == table.labels.count("negative") == len(table) / 2
    lengths = {len(text.split()) for text in train.text}
    assert min(lengths) <= 4
    assert max(lengths) >= 25


def test_the_same_everywhere():
    """In every process, whatever the hash seed, and on Python 3.10 to 3.13: scores on it can be compared."""
    text = "\n".join(text for table in demo_data() for text in table.text)
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "63051185315b332cb3a436ebe2799497ad2b7b9e24327a20abb9232898b5aef2"
    )


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
    model = make_pipeline(CountVectorizer(), LogisticRegression(solver="liblinear")).fit(train.text, train.labels)
    assert model.score(validation.text, validation.labels) <= 0.85


def test_load_data_gives_it_by_default():
    data = load_data(DataConfig())
    assert (data.task.name, data.task.label_names, list(data.validation), data.test, data.notes) == (
        "classification",
        LABEL_NAMES,
        ["validation"],
        None,
        (),
    )
    assert data.train.text == demo_data()[0].text
