"""A data set of TensorFlow Datasets as a corpus: `wikipedia/20230601.en`, or any other with texts."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator

import tensorflow_datasets as tfds

from tfbert.corpus.digests import digest, file_digests
from tfbert.corpus.documents import ALL, Document
from tfbert.corpus.sentences import split_sentences, splitter
from tfbert.data.columns import find_columns
from tfbert.data.tfds_builder import decoded, open_builder, rows_of, table_of
from tfbert.errors import UsageError

_SPLIT = "train"
_VERSION = 1  # Of how documents are read: raise it with every change by which the same files give other documents.


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
        return open_builder(self.dataset, self.data_dir)

    def __getstate__(self) -> dict:
        """The state without the opened data set, which cannot be passed to another process."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def parts(self) -> list[str]:
        """`train-00000` and so on, one per shard."""
        return [f"{_SPLIT}-{i:05d}" for i in range(self._builder.info.splits[_SPLIT].num_shards)]

    def read(self, part: str, kept: Iterable[bool] = ALL) -> Iterator[Document]:
        """The documents of a shard; see `Source`."""
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
