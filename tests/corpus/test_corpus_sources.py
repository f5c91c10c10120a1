"""Which corpus the options mean."""

import pytest

from tests.support.refusals import refused
from tfbert.config.data import DataConfig
from tfbert.config.tasks import CorpusConfig
from tfbert.corpus.sources import BuiltInCorpus, FileCorpus, open_source


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One.\n\nTwo.\n")
    return CorpusConfig(input_files=(str(path),), language="de")


def test_files_or_the_built_in_one(corpus):
    assert open_source(CorpusConfig(), DataConfig()) == BuiltInCorpus()
    found = open_source(corpus, DataConfig(skip_bad_rows=True))
    assert (type(found), found.language, found.skip_bad_rows) == (FileCorpus, "de", True)


@pytest.mark.parametrize(
    "has_files, options, message",
    [
        (
            False,
            {"dataset": "articles"},
            "dataset='articles'. Pass its texts, as lines of JSON, as --input_files; docs/",
        ),
        (False, {"text_column": ("body",)}, "The built-in corpus has no columns to choose"),
        (
            True,
            {"dataset": "demo"},
            "A corpus is files or the built-in one. Received: input_files=.* and dataset='demo'",
        ),
        (True, {"text_column": ("text",)}, "Only JSON lines and Parquet have columns"),
    ],
)
def test_refused(corpus, has_files, options, message):
    with refused(message):
        open_source(corpus if has_files else CorpusConfig(), DataConfig(**options))
