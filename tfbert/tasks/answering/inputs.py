"""Questions with their contexts as inputs of a loaded model in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from tfbert.data.files import check_text
from tfbert.errors import UsageError
from tfbert.tasks.answering.answer_lists import Asked, answered
from tfbert.tasks.answering.answers import Candidates
from tfbert.tasks.answering.prediction import CHUNK_QUESTIONS, room_check, unanswered
from tfbert.tasks.answering.question_answering import EncodedQuestions, QuestionExamples
from tfbert.tasks.answering.squad import blank_error
from tfbert.tasks.inputs import BEST, NAME, Inputs
from tfbert.tasks.trained import TrainedModel


class QuestionInputs(Inputs[Asked]):
    """Questions about contexts."""

    most = CHUNK_QUESTIONS

    def __init__(self, model: TrainedModel, top_k: Literal["best"] = BEST):
        super().__init__(model, top_k)
        self._check_room = room_check(model)

    def is_one(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping)

    def entry(self, value: Any, where: str) -> Asked:
        names = ("question", "context")
        if isinstance(value, Mapping):
            value = dict(zip(names, self.as_trained(value, "text_column"), strict=False)) or value
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
