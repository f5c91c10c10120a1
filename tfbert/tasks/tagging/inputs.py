"""Texts and lists of words as inputs of a loaded tagger in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tfbert.data.files import check_text
from tfbert.errors import UsageError
from tfbert.tasks.inputs import BEST, NAME, Inputs
from tfbert.tasks.tagging.prediction import encode_tagged_texts
from tfbert.tasks.tagging.tag_files import TaggedItem, tagged
from tfbert.tasks.tagging.token_classification import EncodedSentences, SentenceExamples
from tfbert.tasks.trained import TrainedModel


class SentenceInputs(Inputs[TaggedItem]):
    """Texts whose words are found and tagged, or lists of words; all entries of a call are of one kind."""

    def __init__(self, model: TrainedModel, top_k: Literal["best"] = BEST):
        super().__init__(model, top_k)
        self._are_texts: bool | None = None

    def is_one(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping)

    def entry(self, value: Any, where: str) -> TaggedItem:
        is_text = not isinstance(value, tuple | list | np.ndarray)
        if self._are_texts not in (None, is_text):
            raise UsageError(
                "A tagger takes texts, or lists of words, one kind per call. "
                f"Received: {'a text' if is_text else 'words'} in {where}. Call it once for each kind."
            )
        text = check_text(value, "text", where, strict=False) if is_text else None
        words = [] if is_text else [check_text(word, "words", where, strict=False) for word in value]
        self._are_texts = is_text  # Not before: one that cannot be read says nothing about the others.
        return TaggedItem(name=where, words=words, text=text)

    def size(self, entry: TaggedItem) -> int:
        return len(entry.text or "") + sum(map(len, entry.words)) + len(entry.words)

    def encode(self, entries: Sequence[TaggedItem]) -> EncodedSentences:
        if self._are_texts:
            return encode_tagged_texts(self._model, entries)
        words = [item.words for item in entries]
        return self._model.encode(SentenceExamples(name=NAME, words=words, labels=None))

    def answers(self, entries: Sequence[TaggedItem], predictions: np.ndarray) -> Iterator[list[dict[str, Any]]]:
        task = self._model.task
        scores = iter(task.tag_scores(predictions).tolist())
        for item, tags, entities in tagged(task, entries, predictions):
            if task.has_entities:
                yield [_as_pipeline("entity_group", entity) for entity in entities]
            else:
                words = [item.entity(tag, i, i + 1, next(scores)) for i, tag in enumerate(tags)]
                yield [_as_pipeline("entity", word) for word in words]


def _as_pipeline(what: str, entity: dict[str, Any]) -> dict[str, Any]:
    """An entity or a tagged word as transformers has it."""
    keys = {what: "type", "score": "score", "word": "text", "start": "start", "end": "end"}
    return {key: entity[name] for key, name in keys.items()}
