"""Texts and pairs of texts to classify or score: in Python, in files, and in an exported model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfbert.batches.inputs import TokenTensors, padded_inputs_in_graph
from tfbert.batches.pipeline import EncodedExamples
from tfbert.config.run import Config
from tfbert.data.endings import PREDICTED_TEXTS
from tfbert.data.files import check_text
from tfbert.errors import UsageError
from tfbert.model.bert_config import check_token_types
from tfbert.tasks.base import Task
from tfbert.tasks.items import BEST, NAME, Item, Items, TrainedModel
from tfbert.tasks.prediction_files import Job, chosen_format, open_text_file, table_job
from tfbert.tasks.served_model import ServedModel
from tfbert.tasks.text_task import TextExamples, about_empty, takes

_NAMES = ("text", "text_pair")
_PAIR = '{"text": ..., "text_pair": ...} or a tuple of two texts'


class TextItems(Items[Item]):
    """Texts or pairs of texts to classify or score; all items of a call are of one kind.

    Args:
        model: The model that was called.
        top_k: How many classes each answer lists; None for all; `BEST` for the best one, not in a list.
    """

    takes_top_k = True

    def __init__(self, model: TrainedModel, top_k: int | None | Literal["best"] = BEST):
        super().__init__(model, top_k)
        self._num_texts = model.num_texts
        self._empty: list[str] = []

    def is_one(self, inputs: Any) -> bool:
        is_pair = isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(text, str) for text in inputs)
        return super().is_one(inputs) or (is_pair and self._num_texts == 2)

    def item(self, value: Any, where: str) -> Item:
        if isinstance(value, Mapping):
            # A row of a table has more than texts.
            row = [] if value.keys() <= {*_NAMES} else self.as_trained(value, "text_column")
            texts = dict(zip(_NAMES, row, strict=False)) or _named(value, where)
        elif isinstance(value, tuple | list | np.ndarray):
            if len(value) != 2:
                raise UsageError(
                    f"A pair of texts is {_PAIR}. Received: {len(value)} values in {where}. Repair or drop it."
                )
            texts = dict(zip(_NAMES, value, strict=True))
        else:
            texts = {"text": value}
        found = self.row(texts, where)
        count = len(found.texts)
        if self._num_texts is None:
            check_token_types(self._model.classifier.config, count)
            self._num_texts = count
        if count != self._num_texts:
            todo = f"Pass {_PAIR}" if self._num_texts == 2 else "Pass a text"
            raise UsageError(
                f"The model takes {takes(self._num_texts)}, one kind per call. "
                f"Received: {'a single text' if count == 1 else 'a pair'} in {where}. {todo}."
            )
        return found

    def check_columns(self, texts: Sequence[str], source: str) -> None:
        self._model.check_texts(texts, source)

    def row(self, texts: Mapping[str, Any], where: str) -> Item:
        # Invalid Unicode reaches the tokenizer, which drops it, as in an exported model.
        item = Item(texts=[check_text(text, name, where, strict=False) for name, text in texts.items()])
        self._empty += [text for text in item.texts if not text.strip()]
        return item

    def notes(self, name: str) -> list[str]:
        return [f"{line}, answered like any other" for line in about_empty(name, self._empty)]

    def encode(self, items: Sequence[Item]) -> EncodedExamples:
        text, *second = map(list, zip(*(item.texts for item in items), strict=True))
        examples = TextExamples(name=NAME, text=text, text_pair=second[0] if second else None, labels=None)
        return self._model.encode(examples)

    def answers(self, items: Sequence[Item], predictions: np.ndarray) -> Iterator[Any]:
        if self._top_k == BEST:
            return self.task.best(predictions)
        return self.task.entries(predictions, self._top_k)

    def records(self, items: Sequence[Item], predictions: np.ndarray) -> Iterator[dict[str, Any]]:
        return self.task.records(predictions)

    def columns(self) -> Sequence[str]:
        return self.task.columns()

    def cells(self, item: Item, record: dict[str, Any]) -> Iterable[Sequence[Any]]:
        return [self.task.cells(record)]


def _named(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The texts of a mapping, which must have the first of their names, and no others."""
    if _NAMES[0] not in value or not value.keys() <= {*_NAMES}:
        raise UsageError(
            "A text has the key 'text', and a pair also 'text_pair'. "
            f"Received: the keys {', '.join(map(repr, value))} in {where}. Rename or drop any other key."
        )
    return {name: value[name] for name in _NAMES if name in value}


def open_texts(config: Config) -> list[Job]:
    """The texts to predict, and where the predictions go.

    Raises:
        UsageError: for input that cannot be opened, columns that do not exist, output without a known ending, or
            standard input or output that is closed.
    """
    file, format = open_text_file(config), chosen_format(config.predict, PREDICTED_TEXTS, default="tsv")
    return [table_job(config, file, format=format)]


class TextClassifier(ServedModel):
    """Takes `text` and, for pairs, `text_pair`.

    Returns `logits`, float32 `[n, num_labels]`; for classification also `probabilities` of the same shape and `label`,
    string `[n]`; for several labels a text `probabilities`, `is_given`, bool, and `labels`, string, of that shape too;
    for regression `score`, float32 `[n]`; and `error`, see `ServedModel`. Rows of token ids get the same. A row with an
    error has NaN for each number, and empty labels.
    """

    @staticmethod
    def settings(task: Task) -> dict[str, Any]:
        return task.notes()

    @property
    def text_inputs(self) -> tuple[str, ...]:
        return _NAMES[: self._model.num_texts]

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        count, tokenizer = tf.shape(texts["text"])[0], self._model.tokenizer
        # BERT cannot compute a batch without rows: one row stands in, and is taken out again.
        stand_in = [[0, tf.maximum(1 - count, 0)]]
        columns = [tf.pad(texts[name], stand_in, constant_values="") for name in self.text_inputs]
        texts = map(tokenizer.tokenize, columns)
        ids, second_start, windows = tokenizer.rows(*texts, max_seq_length=self._model.max_seq_length)
        tokens = TokenTensors.of_rows(ids, second_start, tokenizer.pad_id)
        if tokenizer.long_texts == "windows":
            logits = tf.math.segment_mean(self.row_logits(tokens), tf.repeat(tf.range(tf.size(windows)), windows))
        else:
            rows = padded_inputs_in_graph(tokens, tf.range(ids.nrows()), tf.reduce_max(tokens.lengths))
            logits = self._model.logits(rows.inputs)
        return self.answer_rows(logits[:count], tf.fill([count], ""))

    def answer_rows(self, logits: tf.Tensor, error: tf.Tensor) -> dict[str, tf.Tensor]:
        found = super().answer_rows(logits, error)
        if "label" in found:
            found["label"] = tf.where(found["error"] == "", found["label"], "")
        return found

    def answer_ids(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._model.task.answers(logits)
