"""The inputs of a loaded model in Python, by kind of task: checked entry by entry, encoded, and answered with the keys
of transformers' pipelines."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from tfbert.batches.pipeline import EncodedExamples
from tfbert.data.files import check_text
from tfbert.data.question_rows import blank_error
from tfbert.errors import UsageError
from tfbert.model.bert_config import check_token_types
from tfbert.modes.prediction_questions import CHUNK_QUESTIONS, room_check, unanswered
from tfbert.modes.prediction_sentences import encode_tagged_texts
from tfbert.modes.prediction_texts import CHUNK_ROWS
from tfbert.modes.trained_model import TrainedModel
from tfbert.tasks.answer_lists import Asked, answered
from tfbert.tasks.answers import Candidates
from tfbert.tasks.masked_texts import MASK, encode_masked_texts, filled
from tfbert.tasks.masked_words import MaskedRows
from tfbert.tasks.question_answering import EncodedQuestions, QuestionExamples
from tfbert.tasks.tag_files import TaggedItem, tagged
from tfbert.tasks.texts import TextExamples, takes
from tfbert.tasks.token_classification import EncodedSentences, SentenceExamples

BEST = "best"
NAME = "inputs"
"""What messages call the inputs of a call."""

_CHUNK_MASKED = 256
"""Texts with masked words that are predicted together: some hundred candidates are kept for each word."""
_PAIR = '{"text": ..., "text_pair": ...} or a tuple of two texts'

Entry = TypeVar("Entry")


class Given(abc.ABC, Generic[Entry]):
    """The entries of one call.

    Args:
        model: The model that was called.

    Attributes:
        most: The most entries that are predicted together.
    """

    most: int = CHUNK_ROWS

    def __init__(self, model: TrainedModel):
        self._model = model

    @abc.abstractmethod
    def is_one(self, inputs: Any) -> bool:
        """Whether `inputs` is one entry, rather than many."""

    @abc.abstractmethod
    def entry(self, value: Any, where: str) -> Entry:
        """Checks an entry.

        Args:
            value: The entry as it was given.
            where: What messages call it.

        Raises:
            UsageError: for an entry that the model does not take.
        """

    @abc.abstractmethod
    def size(self, entry: Entry) -> int:
        """The number of its characters, about."""

    @abc.abstractmethod
    def encode(self, entries: Sequence[Entry]) -> EncodedExamples:
        """Some entries as token ids."""

    def predictions(self, outputs: Any, encoded: Any) -> Any:
        """What the model's outputs say about the encoded entries."""
        return self._model.task.predictions(outputs, encoded)

    def scores(self, predictions: Any) -> np.ndarray:
        """The numbers behind the predictions, `[n, ...]`."""
        return self._model.task.scores(predictions)

    @abc.abstractmethod
    def answers(self, entries: Sequence[Entry], predictions: Any) -> Iterator[Any]:
        """The answer to each entry.

        Args:
            entries: Entries that have been encoded.
            predictions: What `predictions` makes of the model's outputs for them.
        """


class GivenTexts(Given[tuple[str, ...]]):
    """Texts or pairs of texts to classify or score; all entries of a call are of one kind.

    Args:
        model: The model that was called.
        top_k: How many classes each answer lists; None for all; `BEST` for the best one, not in a list.
    """

    def __init__(self, model: TrainedModel, top_k: int | None | Literal["best"]):
        super().__init__(model)
        self._top_k = top_k
        self._num_texts = model.num_texts

    def is_one(self, inputs: Any) -> bool:
        is_pair = isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(text, str) for text in inputs)
        return isinstance(inputs, str | Mapping) or (is_pair and self._num_texts == 2)

    def entry(self, value: Any, where: str) -> tuple[str, ...]:
        if isinstance(value, Mapping):
            texts = _named(value, ("text", "text_pair"), where)
        elif isinstance(value, tuple | list | np.ndarray):
            if len(value) != 2:
                raise UsageError(
                    f"A pair of texts is {_PAIR}. Received: {len(value)} values in {where}. Repair or drop it."
                )
            texts = dict(zip(("text", "text_pair"), value, strict=True))
        else:
            texts = {"text": value}
        found = tuple(check_text(text, name, where, strict=False) for name, text in texts.items())
        if self._num_texts is None:
            check_token_types(self._model.classifier.config, len(found))
            self._num_texts = len(found)
        if len(found) != self._num_texts:
            todo = f"Pass {_PAIR}" if self._num_texts == 2 else "Pass a text"
            raise UsageError(
                f"The model takes {takes(self._num_texts)}, one kind per call. "
                f"Received: {'a single text' if len(found) == 1 else 'a pair'} in {where}. {todo}."
            )
        return found

    def size(self, entry: tuple[str, ...]) -> int:
        return sum(map(len, entry))

    def encode(self, entries: Sequence[tuple[str, ...]]) -> EncodedExamples:
        text, *second = map(list, zip(*entries, strict=True))
        examples = TextExamples(name=NAME, text=text, text_pair=second[0] if second else None, labels=None)
        return self._model.encode(examples)

    def answers(self, entries: Sequence[tuple[str, ...]], predictions: np.ndarray) -> Iterator[Any]:
        if self._top_k == BEST:
            return (best for (best,) in self._model.task.entries(predictions, 1))
        return self._model.task.entries(predictions, self._top_k)


class GivenSentences(Given[TaggedItem]):
    """Texts whose words are found and tagged, or lists of words; all entries of a call are of one kind."""

    def __init__(self, model: TrainedModel):
        super().__init__(model)
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
        self._are_texts = is_text
        if is_text:
            return TaggedItem(name=where, words=[], text=check_text(value, "text", where, strict=False))
        return TaggedItem(name=where, words=[check_text(word, "words", where, strict=False) for word in value])

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


class GivenQuestions(Given[Asked]):
    """Questions about contexts."""

    most = CHUNK_QUESTIONS

    def __init__(self, model: TrainedModel):
        super().__init__(model)
        self._check_room = room_check(model)

    def is_one(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping)

    def entry(self, value: Any, where: str) -> Asked:
        names = ("question", "context")
        if not isinstance(value, Mapping) or not value.keys() >= {*names}:
            received = f"the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else f"{value!r:.60}"
            raise UsageError(
                'A question comes with its context, as {"question": ..., "context": ...}. '
                f"Received: {received} in {where}. Pass both."
            )
        texts = {name: check_text(value[name], name, where, strict=False) for name in names}
        for name, text in texts.items():
            if not text.strip():
                raise blank_error(name, where)
        self._check_room(texts["question"], where)
        return Asked(name=where, **texts)

    def size(self, entry: Asked) -> int:
        return len(entry.question) + len(entry.context)

    def encode(self, entries: Sequence[Asked]) -> EncodedQuestions:
        return self._model.encode(QuestionExamples(table=unanswered(NAME, entries)))

    def answers(self, entries: Sequence[Asked], predictions: Candidates) -> Iterator[dict[str, Any]]:
        for answer in answered(self._model.task, entries, predictions):
            yield {name: answer[name] for name in ("score", "start", "end", "answer")}


class GivenMasked(Given[str]):
    """Texts with words to fill in.

    Args:
        model: The model that was called.
        top_k: How many words to give for each masked place.
    """

    most = _CHUNK_MASKED

    def __init__(self, model: TrainedModel, top_k: int):
        super().__init__(model)
        self._top_k = top_k
        self._encoded = 0

    def is_one(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping)

    def entry(self, value: Any, where: str) -> str:
        text = check_text(value, "text", where, strict=False)
        if MASK not in text:
            raise UsageError(
                f"A text to fill in must have a {MASK}. Received: {text!r:.60} in {where}. "
                f"Write {MASK} for the word to find."
            )
        return text

    def size(self, entry: str) -> int:
        return len(entry)

    def encode(self, entries: Sequence[str]) -> MaskedRows:
        names = [f"{NAME}[{self._encoded + i}]" for i in range(len(entries))]
        self._encoded += len(entries)
        self._texts = encode_masked_texts(self._model.tokenizer, entries, names, self._model.max_seq_length)
        return self._texts

    def predictions(self, outputs: dict[str, np.ndarray], encoded: MaskedRows) -> dict[str, np.ndarray]:
        return outputs

    def scores(self, predictions: dict[str, np.ndarray]) -> np.ndarray:
        return predictions["score"]

    def answers(self, entries: Sequence[str], predictions: dict[str, np.ndarray]) -> Iterator[list[Any]]:
        return filled(self._texts, predictions, self._model.tokenizer, self._top_k)


def _as_pipeline(what: str, entity: dict[str, Any]) -> dict[str, Any]:
    """An entity or a tagged word as transformers has it."""
    keys = {what: "type", "score": "score", "word": "text", "start": "start", "end": "end"}
    return {key: entity[name] for key, name in keys.items()}


def _named(value: Mapping[str, Any], names: tuple[str, ...], where: str) -> dict[str, Any]:
    """The texts of a mapping, which must have the first name, and no others than these."""
    if names[0] not in value or not value.keys() <= {*names}:
        raise UsageError(
            "A text has the key 'text', and a pair also 'text_pair'. "
            f"Received: the keys {', '.join(map(repr, value))} in {where}. Rename or drop any other key."
        )
    return {name: value[name] for name in names if name in value}
