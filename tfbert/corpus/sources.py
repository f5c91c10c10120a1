"""The corpus that the options name: files, a data set of TensorFlow Datasets, or the built-in one."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from tfbert.config.data import DataConfig
from tfbert.config.pretraining import CorpusConfig
from tfbert.corpus.documents import ALL, Document, Source, digest, file_digests, split_sentences, splitter
from tfbert.corpus.text_files import FileCorpus, find_inputs
from tfbert.data.columns import find_columns
from tfbert.data.rows import demo_table
from tfbert.errors import UsageError

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_PARTS = 4
_SPLIT = "train"
_VERSION = 1  # Of how documents are read: raise it with every change by which the same files give other documents.


@functools.cache
def demo_corpus(split: str) -> list[Document]:
    """The documents of a split of the built-in corpus, each a list of sentences."""
    return [sentences for _, (sentences,) in demo_table("pretraining", split).read(["sentences"])]


@dataclasses.dataclass(frozen=True)
class BuiltInCorpus:
    """Tales of people at work, written by a grammar, in parts of equal size.

    Attributes:
        split: Which split of it.
    """

    split: Literal["train", "validation"] = "train"

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"the built-in corpus ({self.split})"

    def parts(self) -> list[str]:
        """`train-0` and so on."""
        return [f"{self.split}-{i}" for i in range(_PARTS)]

    def read(self, part: str, kept: Iterable[bool] = ALL) -> Iterator[Document]:
        """Every fourth document, from the part's number on."""
        return itertools.compress(demo_corpus(self.split)[self.parts().index(part) :: _PARTS], kept)

    def sizes(self) -> dict[str, int]:
        """Characters of each part, with one line end per sentence."""
        return {part: sum(len(text) + 1 for document in self.read(part) for text in document) for part in self.parts()}

    def fingerprints(self) -> dict[str, str]:
        """Digests of the text itself: another version of this project may write other tales."""
        return {part: digest(*self.read(part)) for part in self.parts()}


@dataclasses.dataclass(frozen=True)
class TfdsCorpus:
    """The train split of a data set as a `Source`, one document per row, read shard by shard.

    Reading starts TensorFlow's devices: set them up first, in each process.

    Attributes:
        dataset: `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        data_dir: Directory of prepared data. Empty: TensorFlow Datasets' default.
        columns: The features whose texts make a document, one after the other.
        language: Of the text, as `split_sentences` takes it.
    """

    dataset: str
    data_dir: str
    columns: tuple[str, ...]
    language: str = "en"

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"dataset={self.dataset!r}"

    @functools.cached_property
    def _builder(self) -> tfds.core.DatasetBuilder:
        from tfbert.data.tfds_builder import open_builder  # imports TensorFlow Datasets

        return open_builder(self.dataset, self.data_dir)

    def __getstate__(self) -> dict:
        """The state without the opened data set, which cannot be passed to another process."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def parts(self) -> list[str]:
        """`train-00000` and so on, one per shard."""
        return [f"{_SPLIT}-{i:05d}" for i in range(self._builder.info.splits[_SPLIT].num_shards)]

    def read(self, part: str, kept: Iterable[bool] = ALL) -> Iterator[Document]:
        """The documents of a shard; see `Source`."""
        from tfbert.data.tfds_builder import decoded, rows_of

        shard = self.parts().index(part)
        rows = rows_of(self._builder, f"{_SPLIT}[{shard}shard:{shard + 1}shard]", self.columns)
        for number, row in itertools.compress(enumerate(rows, start=1), kept):
            where = f"{self.name}, example {number} of {part}"
            texts = [decoded(value, where) for value in row]
            if document := [sentence for text in texts for sentence in split_sentences(text, self.language)]:
                yield document

    def sizes(self) -> dict[str, int]:
        """An equal share of the split's bytes."""
        parts = self.parts()
        return dict.fromkeys(parts, self._builder.info.splits[_SPLIT].num_bytes // len(parts))

    def fingerprints(self) -> dict[str, str]:
        """A digest of all bytes of each part's file; see `Source`."""
        paths = [str(path) for path in self._builder.info.splits[_SPLIT].filepaths]
        digests = file_digests(paths)
        how = (_VERSION, self._builder.info.full_name, *self.columns, self.language, splitter())
        return {part: digest(digests[path], *how) for part, path in zip(self.parts(), paths, strict=True)}


def open_tfds(dataset: str, data_dir: str = "", text_column: tuple[str, ...] = (), language: str = "en") -> TfdsCorpus:
    """Opens a data set's train split as a corpus; downloads and prepares it first if it is not on disk.

    Args:
        dataset: As `TfdsCorpus` takes it.
        data_dir: As `TfdsCorpus` takes it.
        text_column: Features with text. Empty: found by name, or the only one.
        language: Of the text.

    Raises:
        UsageError: for an unknown name, data that is not available, no train split, or no feature with text.
    """
    from tfbert.data.tfds_builder import open_builder, table_of

    builder = open_builder(dataset, data_dir)
    splits = list(builder.info.splits)
    if _SPLIT not in splits:
        raise UsageError(
            "A data set needs a train split. "
            f"Received: dataset={dataset!r} with splits {', '.join(splits) or 'none'}. Pass another --dataset."
        )
    table = table_of(builder, dataset, _SPLIT)
    columns, _ = find_columns(
        f"dataset={dataset!r}", table.of_kinds("text"), text_column=text_column or table.only("text"), find_label=False
    )
    return TfdsCorpus(dataset, data_dir, columns, language)


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
        return open_tfds(data.dataset, data.data_dir, data.text_column, corpus.language)
    if data.text_column:
        raise UsageError(
            "The built-in corpus has no columns to choose. "
            f"Received: text_column={','.join(data.text_column)!r}. Drop it."
        )
    return BuiltInCorpus()
