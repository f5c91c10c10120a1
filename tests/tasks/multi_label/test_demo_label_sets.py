"""The built-in corpus of several labels a text: always the same, no text twice, out of reach for counted words."""

import hashlib

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from tfbert.config.data import DataConfig
from tfbert.tasks.examples import load_data
from tfbert.tasks.multi_label.demo import LABEL_NAMES, demo_label_sets


def test_the_same_everywhere_and_no_repeats():
    train, validation = demo_label_sets()
    assert (len(train), len(validation)) == (10000, 1000) and len({*train.text, *validation.text}) == 11000
    text = "\n".join(f"{text} {labels}" for part in (train, validation) for text, labels in part_rows(part))
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "1499dc7a390b000552e0a0afd758fe1e1a78804f0e3ad11a33c40a63f9d074eb"
    )


def part_rows(part):
    return zip(part.text, part.labels, strict=True)


def test_counting_words_is_not_enough():
    data = load_data(DataConfig(task="multi_label_classification"))
    assert data.task.label_names == LABEL_NAMES and list(data.validation) == ["validation"]
    train, dev = data.train, data.validation["validation"]
    counts = train.labels.sum(axis=1)
    assert np.bincount(counts).min() > 300, "none, one, two and three labels"
    model = OneVsRestClassifier(LogisticRegression(solver="liblinear"))
    model = make_pipeline(CountVectorizer(), model).fit(train.text, train.labels)
    assert f1_score(dev.labels, model.predict(dev.text), average="micro") < 0.75
