"""Opens the corpus that the options name."""

from __future__ import annotations

import pathlib

from tfbert.config.data import DataConfig
from tfbert.config.pretraining import CorpusConfig
from tfbert.corpus.built_in import BuiltInCorpus
from tfbert.corpus.documents import Source
from tfbert.corpus.found_files import find_inputs
from tfbert.corpus.text_files import FileCorpus
from tfbert.errors import UsageError


def open_source(corpus: CorpusConfig, data: DataConfig, output_dir: pathlib.Path | None = None) -> Source:
    """The corpus that `--mode=prepare` reads: `input_files`, a `dataset`, or the built-in one.

    Args:
        corpus: Its `input_files`, `corpus_format` and `language`.
        data: Its `dataset`, `data_dir`, `text_column` and `skip_bad_rows`.
        output_dir: Where the records go; they are no part of the corpus.

    Raises:
        UsageError: for options that do not go together, and what `find_inputs` and `open_tfds` raise.
    """
    if corpus.input_files:
        if data.dataset:
            raise UsageError(
                "A corpus is files or a data set. "
                f"Received: input_files={','.join(corpus.input_files)!r} and dataset={data.dataset!r}. Drop one."
            )
        files = find_inputs(corpus, data.text_column, output_dir)
        if data.text_column and not any(file.columns for file in files):
            raise UsageError(
                "Only JSON lines, Parquet and data sets have columns. "
                f"Received: text_column={','.join(data.text_column)!r}. Drop it, or pass --corpus_format."
            )
        return FileCorpus(tuple(files), corpus.language, data.skip_bad_rows)
    if data.dataset not in ("", "demo"):
        from tfbert.corpus.tfds_corpus import open_tfds  # imports TensorFlow Datasets

        return open_tfds(data.dataset, data.data_dir, data.text_column, corpus.language)
    if data.text_column:
        raise UsageError(
            "The built-in corpus has no columns to choose. "
            f"Received: text_column={','.join(data.text_column)!r}. Drop it."
        )
    return BuiltInCorpus()
