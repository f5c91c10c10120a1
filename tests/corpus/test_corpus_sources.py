"""Which corpus the options mean, and data sets of TensorFlow Datasets as one."""

import pickle

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.support.data_sets import prepare
from tfbert.config.data import DataConfig
from tfbert.config.tasks import CorpusConfig
from tfbert.corpus.sources import BuiltInCorpus, FileCorpus, open_source
from tfbert.errors import UsageError

ARTICLES = {"title": tfds.features.Text(), "text": tfds.features.Text()}
ROWS = [(f"Title {i}", f"Dr. {i} is here. So are we.\n\nThe end of {i}." if i % 5 else " ") for i in range(30)]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("tfds")
    prepare(path, "articles", ARTICLES, {"train": ROWS, "test": ROWS[:2]})
    prepare(path, "numbers", {"n": np.int64}, {"train": [(1,), (2,)]})
    prepare(path, "tests_only", ARTICLES, {"test": ROWS})
    return str(path)


def test_a_data_set(data_dir):
    source = open_source(CorpusConfig(), DataConfig(dataset="articles", data_dir=data_dir))
    assert source.columns == ("text",)
    source = pickle.loads(pickle.dumps(source))
    read = [document for part in source.parts() for document in source.read(part)]
    expected = [[f"Dr. {i} is here.", "So are we.", f"The end of {i}."] for i in range(30) if i % 5]
    assert sorted(read) == sorted(expected)
    assert read == [document for part in source.parts() for document in source.read(part)]
    assert list(source.sizes()) == list(source.fingerprints()) == source.parts() == ["train-00000"]
    both = open_source(CorpusConfig(), DataConfig(dataset="articles", data_dir=data_dir, text_column=("title", "text")))
    assert ["Title 0"] in list(both.read("train-00000"))
    assert both.fingerprints() != source.fingerprints()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "artikles"}, "A data set is demo or a TensorFlow Datasets name. .*articles"),
        ({"dataset": "tests_only"}, "A data set needs a train split. Received: dataset='tests_only' with splits test"),
        ({"dataset": "numbers"}, "No column looks like the text"),
        ({"dataset": "articles", "text_column": ("body",)}, "text_column='body' is not in the data"),
        ({"text_column": ("body",)}, "The built-in corpus has no columns to choose"),
    ],
)
def test_refused(data_dir, options, message):
    with pytest.raises(UsageError, match=message):
        open_source(CorpusConfig(), DataConfig(data_dir=data_dir, **options))


def test_files_or_a_data_set(tmp_path):
    assert open_source(CorpusConfig(), DataConfig()) == BuiltInCorpus()
    path = tmp_path / "a.txt"
    path.write_text("One.\n\nTwo.\n")
    corpus = CorpusConfig(input_files=(str(path),), language="de")
    found = open_source(corpus, DataConfig(skip_bad_rows=True))
    assert (type(found), found.language, found.skip_bad_rows) == (FileCorpus, "de", True)
    with pytest.raises(UsageError, match="A corpus is files or a data set"):
        open_source(corpus, DataConfig(dataset="articles"))
    with pytest.raises(UsageError, match="Only JSON lines, Parquet and data sets have columns"):
        open_source(corpus, DataConfig(text_column=("text",)))
