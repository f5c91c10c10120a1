"""Which corpus the options mean."""

import pytest

from tfbert.config.data import DataConfig
from tfbert.config.pretraining import CorpusConfig
from tfbert.corpus.sources import BuiltInCorpus, FileCorpus, open_source
from tfbert.errors import UsageError


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ((), {"dataset": "wikipedia/20230601.en"}, "A corpus is files, or the built-in one. .*as JSON lines"),
        (("a.txt",), {"dataset": "demo"}, "A corpus is files, or the built-in one. Received: dataset='demo'. Drop"),
        ((), {"text_column": ("body",)}, "The built-in corpus has no columns to choose"),
        (("a.txt",), {"text_column": ("text",)}, "Only JSON lines and Parquet have columns"),
    ],
)
def test_refused(tmp_path, monkeypatch, files, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("One.\n\nTwo.\n")
    with pytest.raises(UsageError, match=message):
        open_source(CorpusConfig(input_files=files), DataConfig(**options))


def test_files_or_the_built_in_corpus(tmp_path):
    assert open_source(CorpusConfig(), DataConfig()) == BuiltInCorpus()
    path = tmp_path / "a.txt"
    path.write_text("One.\n\nTwo.\n")
    corpus = CorpusConfig(input_files=(str(path),), language="de")
    found = open_source(corpus, DataConfig(skip_bad_rows=True))
    assert (type(found), found.language, found.skip_bad_rows) == (FileCorpus, "de", True)
