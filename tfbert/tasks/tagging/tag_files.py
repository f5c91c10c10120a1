"""Writes predicted tags: CoNLL with one more column, JSON lines, or a table of entities."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tfbert.data.endings import TABLES
from tfbert.tasks.base import rounded
from tfbert.tasks.prediction_files import Line, PredictionFile, line_of
from tfbert.tasks.tagging.conll import ConllSentence
from tfbert.tasks.tagging.token_classification import TokenClassification


@dataclasses.dataclass(kw_only=True)
class TaggedItem:
    """A sentence that is split into words, or a text whose words were found.

    Attributes:
        name: What names it in the output.
        words: Its words.
        text: The text as it was given; None for a sentence.
        spans: Each word's first character in the text, and one past its last.
        written: The lines of the CoNLL file that it came from.
    """

    name: Any
    words: list[str]
    text: str | None = None
    spans: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    written: ConllSentence | None = None

    def __repr__(self) -> str:
        return repr(self.name)

    def entity(self, kind: str, first: int, last: int, score: float) -> dict[str, Any]:
        """The entity of the words `first:last`, as JSON can hold it: `start` and `end` count characters in a text and
        words in a sentence."""
        if self.text is None:
            text, start, end = " ".join(self.words[first:last]), first, last
        else:
            start, end = self.spans[first][0], self.spans[last - 1][1]
            text = self.text[start:end]
        return {"type": kind, "text": text, "start": start, "end": end, "score": rounded(score)}


def tagged(
    task: TokenClassification, items: Sequence[TaggedItem], predictions: np.ndarray
) -> Iterator[tuple[TaggedItem, list[str], list[dict[str, Any]]]]:
    """Each item with the tags of its words, and its entities as `TaggedItem.entity` returns them.

    Args:
        task: The task that made the predictions.
        items: With their words.
        predictions: For all their words.
    """
    found, scores = task.found_entities(predictions, [len(item.words) for item in items])
    names = [task.meanings.type_names[kind] for kind in found.type]
    entities = list(zip(names, found.start.tolist(), found.end.tolist(), scores.tolist(), strict=True))
    tags, ends = task.tags(predictions), list(itertools.accumulate(len(item.words) for item in items))
    places = np.searchsorted(found.start, [0, *ends]).tolist()
    for item, end, (first, last) in zip(items, ends, itertools.pairwise(places), strict=True):
        start = end - len(item.words)
        own = [item.entity(kind, a - start, b - start, score) for kind, a, b, score in entities[first:last]]
        yield item, tags[start:end], own


def open_tags(path: pathlib.Path | None, format: str, task: TokenClassification, *, is_writer: bool) -> TagFile:
    """Opens a file of predicted tags.

    Args:
        path: The file to write; None: standard output.
        format: `conll`, for items that have lines of CoNLL; `jsonl`, `tsv` or `csv`.
        task: The task that makes the predictions.
        is_writer: Whether to write at all.
    """
    if format in TABLES:
        return _TableFile(path, task, is_writer=is_writer, line=line_of(format))
    return {"conll": _ConllFile, "jsonl": _JsonFile}[format](path, task, is_writer=is_writer)


class TagFile(PredictionFile):
    """Writes the predictions for items, in their order."""

    def __init__(self, path: pathlib.Path | None, task: TokenClassification, *, is_writer: bool):
        super().__init__(path, is_writer=is_writer)
        self._task = task

    def _lines(self, ids: Sequence[TaggedItem], outputs: np.ndarray) -> Iterable[str]:
        for item, tags, entities in tagged(self._task, ids, outputs):
            yield from self._of_item(item, tags, entities)

    def _of_item(self, item: TaggedItem, tags: list[str], entities: list[dict[str, Any]]) -> Iterator[str]:
        raise NotImplementedError


class _ConllFile(TagFile):
    """The lines of the input, each with its predicted tag."""

    def _of_item(self, item: TaggedItem, tags: list[str], entities: list[dict[str, Any]]) -> Iterator[str]:
        yield item.written.with_column(tags).removesuffix("\n")


class _JsonFile(TagFile):
    """One object per line: `id`, `entities`, and `tags` for a sentence. For a text whose tags are not entities, `words`
    with their characters."""

    def _of_item(self, item: TaggedItem, tags: list[str], entities: list[dict[str, Any]]) -> Iterator[str]:
        found: dict[str, Any] = {"id": item.name}
        if item.text is None:
            found["tags"] = tags
        elif not self._task.has_entities:
            words = zip(item.words, item.spans, tags, strict=True)
            found["words"] = [{"word": w, "start": a, "end": b, "tag": tag} for w, (a, b), tag in words]
        if self._task.has_entities:
            found["entities"] = entities
        yield json.dumps(found, ensure_ascii=False)


class _TableFile(TagFile):
    """One row per entity, or one per word if tags are not entities."""

    def __init__(self, path: pathlib.Path | None, task: TokenClassification, *, is_writer: bool, line: Line):
        super().__init__(path, task, is_writer=is_writer)
        self._line = line

    def _header(self) -> Iterable[str]:
        columns = ("id", "type", "text", "start", "end", "score") if self._task.has_entities else ("id", "word", "tag")
        return [self._line(columns)]

    def _of_item(self, item: TaggedItem, tags: list[str], entities: list[dict[str, Any]]) -> Iterator[str]:
        if self._task.has_entities:
            rows = (entity.values() for entity in entities)
        else:
            rows = zip(item.words, tags, strict=True)
        for row in rows:
            yield self._line((item.name, *row))
