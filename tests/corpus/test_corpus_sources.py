"""Which corpus the options mean."""

import pytest

from tests.support.refusals import refused
from tfbert import CorpusConfig, DataConfig
from tfbert.corpus.sources import FileCorpus, built_in_corpus, open_source


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One.\n\nTwo.\n")
    return CorpusConfig(input_files=(str(path),), language="de")


def test_files_or_the_built_in_one(corpus):
    assert open_source(CorpusConfig(), DataConfig()) == built_in_corpus()
    found = open_source(corpus, DataConfig(skip_bad_rows=True))
    assert (type(found), found.language, found.skip_bad_rows) == (FileCorpus, "de", True)


BUILT_IN = "A corpus is files or the built-in one. Received: dataset="


@pytest.mark.parametrize("has_files", [False, True])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"dataset": "articles"}, f"{BUILT_IN}'articles'.* as lines of JSON, as --input_files; docs/"),
        ({"dataset": "demo"}, f"{BUILT_IN}'demo' and input_files="),
        ({"text_column": ("body",)}, "Only JSON lines and Parquet have columns"),
    ],
)
def test_refused(corpus, has_files, options, message):
    if has_files or "demo" not in message:
        with refused(message):
            open_source(corpus if has_files else CorpusConfig(), DataConfig(**options))
