"""What tasks share that give labels or numbers to whole texts, or pairs of texts: a row of logits for each; and what
their models are used on: in Python, in files, and in an exported model."""

from __future__ import annotations

import abc
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import EncodedExamples, TokenTensors, padded_inputs_in_graph
from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.config.training import TrainingConfig
from tfbert.data.files import RawTable, check_text
from tfbert.data.labels import given_names
from tfbert.data.reading import PREDICTED_TEXTS
from tfbert.errors import UsageError
from tfbert.model.files import check_token_types
from tfbert.tasks import prediction
from tfbert.tasks.base import CheckTexts, InMemory, Task, TaskData, Training, rounded
from tfbert.tasks.classes import as_in_model
from tfbert.tasks.tables import Read, data_of, hold_out, read_training_tables, that_share_texts
from tfbert.tokens.tokenizer import Tokenizer

log = logging.getLogger("tfbert")

MOST_WINDOWS = 32
"""The most windows of a text that training reads: memory grows with those of a batch's longest text."""


def about_empty(name: str, *columns: Iterable[str] | None) -> list[str]:
    """A line about the empty texts of a table, if there are any."""
    empty = sum(not text.strip() for texts in columns if texts is not None for text in texts)
    return [f"{name}: {empty:,} empty text{'s' if empty > 1 else ''}"] if empty else []


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextExamples(InMemory):
    """Texts with their labels, see `Examples`.

    Attributes:
        text: The texts, or the first of each pair.
        text_pair: The second of each pair; None for single texts.
        labels: `[n]`, as the task makes them; None when unlabelled.
    """

    per_row = ("text", "text_pair", "labels")
    text: list[str]
    text_pair: list[str] | None
    labels: np.ndarray | None

    @property
    def num_texts(self) -> int:
        return 1 if self.text_pair is None else 2

    def __len__(self) -> int:
        return len(self.text)

    def texts(self) -> list[str]:
        return self.text + (self.text_pair or [])

    def contents(self) -> Iterator[tuple[str, ...]]:
        columns = [self.text] if self.text_pair is None else [self.text, self.text_pair]
        return zip(*(map(str.strip, column) for column in columns), strict=True)


class TextTask(Task[TextExamples, np.ndarray]):
    """A task whose outputs are float32 `[n, num_labels]`; its predictions are its outputs."""

    # Examples.

    @abc.abstractmethod
    def labels(self, table: RawTable) -> np.ndarray:
        """The labels of a labelled table, `[n, ...]`.

        Raises:
            UsageError: for a label that is not one of this task's.
        """

    def examples(self, table: RawTable) -> TextExamples:
        """Turns a table into examples; raises as `labels` does."""
        kept = {name: getattr(table, name) for name in ("name", "text", "text_pair", "unit", "columns")}
        return TextExamples(**kept, labels=self.labels(table), lines=np.asarray(table.lines, np.int64))

    @abc.abstractmethod
    def tables(self, config: DataConfig, notes: list[str]) -> dict[str, RawTable]:
        """As `read_labelled_tables` returns them: what a saved model of this task is evaluated on, as written."""

    def with_model_labels(self, table: RawTable, notes: list[str], *, are_given: bool) -> RawTable:
        """A table to evaluate a saved model of this task on, with its labels rewritten as the model's.

        Args:
            table: As it was written.
            notes: Receives a line if labels were not matched by name.
            are_given: Whether the user gave the table's classes, with `label_names`.

        Raises:
            UsageError: for labels that are not the model's.
        """
        return as_in_model(table, self.label_names, notes, are_given=are_given)

    def labelled_sets(self, config: DataConfig, notes: list[str], check_texts: CheckTexts) -> dict[str, TextExamples]:
        sets, are_given = {}, bool(given_names(config))
        for prefix, table in self.tables(config, notes).items():
            check_texts(table.text_columns, table.name)
            sets[prefix] = self.examples(self.with_model_labels(table, notes, are_given=are_given))
            notes += self.about_labels(sets[prefix])
        return sets

    def about_labels(self, examples: TextExamples) -> list[str]:
        """What the user should know of the labels of a set to evaluate on, one line each."""
        return []

    def strata(self, examples: TextExamples) -> np.ndarray | None:
        """As for `hold_out`."""
        return None

    # Training.

    def encode(
        self, examples: TextExamples, tokenizer: Tokenizer, max_seq_length: int, training: Training = None
    ) -> EncodedExamples:
        count = len(examples)
        weights = np.ones(count, np.float32) if training is None else self.example_weights(examples.labels, training)
        tokens = tokenizer.encode(examples.text, examples.text_pair, max_seq_length=max_seq_length)
        if training is not None and tokens.splits is not None:
            longer = int((np.diff(tokens.splits) > MOST_WINDOWS).sum())
            tokens = tokens.thinned(MOST_WINDOWS) if longer else tokens
            if longer:
                log.warning(
                    "%s: texts of more than %d windows of %d tokens: %s of %s; training reads %d windows of each, "
                    "spread evenly over it, evaluation and prediction read all; a larger --max_seq_length makes fewer",
                    *(examples.name, MOST_WINDOWS, max_seq_length, f"{longer:,}", f"{count:,}", MOST_WINDOWS),
                )
        return EncodedExamples(tokens=tokens, labels=examples.labels, weights=weights)

    def example_weights(self, labels: np.ndarray, training: TrainingConfig) -> np.ndarray:
        """Each training example's weight in the loss: float32 `[n]`.

        Raises:
            UsageError: for weights that do not fit the labels.
        """
        return np.ones(len(labels), np.float32)

    # Predictions.

    def predictions(self, outputs: np.ndarray, encoded: EncodedExamples) -> np.ndarray:
        """The outputs; of texts in windows the mean of these."""
        if encoded.splits is None:
            return outputs
        totals = np.add.reduceat(outputs, encoded.splits[:-1], axis=0)
        return totals / np.diff(encoded.splits)[:, None].astype(np.float32)

    @abc.abstractmethod
    def columns(self) -> list[str]:
        """The names of the columns of a table of predictions, without the ids' column."""

    def cells(self, record: dict[str, Any]) -> list[Any]:
        """One of `records` as a row of that table."""
        return [record[column] for column in self.columns()]

    @abc.abstractmethod
    def records(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        """Each prediction as a JSON object, without its id; float32 is not rounded yet."""

    def shares(self, outputs: np.ndarray) -> np.ndarray:
        """The probability of each class: float32 `[n, num_labels]`."""
        raise NotImplementedError

    def entries(self, outputs: np.ndarray, most: int | None) -> Iterator[list[dict[str, Any]]]:
        """Each prediction as transformers' pipelines return it: `label` and `score` of its classes, best first.

        Args:
            outputs: The model's.
            most: The most classes; None: all.
        """
        order = np.argsort(-outputs, axis=1, kind="stable")[:, :most]
        scores = np.take_along_axis(self.shares(outputs), order, axis=1)
        for places, own in zip(order.tolist(), scores.tolist(), strict=True):
            names = (self.label_names[place] for place in places)
            yield [{"label": name, "score": rounded(score)} for name, score in zip(names, own, strict=True)]

    def best(self, outputs: np.ndarray) -> Iterator[Any]:
        """Each prediction as a loaded model gives it where no number of classes is asked for: the best class, as
        `entries` has it."""
        return (best for (best,) in self.entries(outputs, 1))

    @abc.abstractmethod
    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of an exported model by name, computed in the graph."""

    def example(self, num_texts: int) -> str:
        return '{"text": "...", "text_pair": "..."}' if num_texts == 2 else '"..."'


def load_texts(
    config: DataConfig, name: str, read: Read[RawTable], choose: Callable[[RawTable, list[str]], TextTask]
) -> TaskData:
    """Reads what a run trains and evaluates on.

    Args:
        config: Names a data set, or files.
        name: The task whose built-in data these may be.
        read: Reads one set.
        choose: Takes the training table and notes, to which it adds; returns its task.

    Raises:
        UsageError: for data that cannot be read, or does not fit together.
    """
    notes: list[str] = []
    tables = read_training_tables(config, name, read, notes)
    train = tables["train"]
    for other in tables.values():
        if len(other.text_columns) != len(train.text_columns):
            raise UsageError(
                "All data must be single texts, or all must be pairs. "
                f"Received: {train.name} with {' and '.join(train.text_columns)}, "
                f"{other.name} with {' and '.join(other.text_columns)}. Pass --text_column."
            )
    task = choose(train, notes)
    for table in tables.values():
        notes += about_empty(table.name, table.text, table.text_pair)
    sets = hold_out(
        {name: task.examples(table) for name, table in tables.items()},
        config,
        notes,
        lambda train: that_share_texts(list(train.contents()), config.validation_split, notes),
        task.strata,
    )
    notes += [line for name, part in sets.items() if name != "train" for line in task.about_labels(part)]
    return data_of(task, sets, notes, config)


def shown_text(examples: TextExamples, labels: Sequence[str], predictions: Sequence[str], row: int) -> dict[str, Any]:
    """A text with its label and prediction in readable form, for a report."""
    pair = None if examples.text_pair is None else examples.text_pair[row]
    return {"text": examples.text[row], "text_pair": pair, "label": labels[row], "prediction": predictions[row]}


def takes(num_texts: int) -> str:
    """What a model takes, in words."""
    return "pairs of texts" if num_texts == 2 else "single texts"


_NAMES = ("text", "text_pair")
_PAIR = '{"text": ..., "text_pair": ...} or a tuple of two texts'


class TextItems(prediction.Items[prediction.Item]):
    """Texts or pairs of texts to classify or score; all items of a call are of one kind.

    Args:
        model: The model that was called.
        top_k: How many classes each answer lists; None for all; `BEST` for the best one, not in a list.
    """

    takes_top_k = True

    def __init__(self, model: prediction.TrainedModel, top_k: int | None | Literal["best"] = prediction.BEST):
        super().__init__(model, top_k)
        self._num_texts = model.num_texts
        self._empty: list[str] = []

    def is_one(self, inputs: Any) -> bool:
        is_pair = isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(text, str) for text in inputs)
        return super().is_one(inputs) or (is_pair and self._num_texts == 2)

    def item(self, value: Any, where: str) -> prediction.Item:
        named = value._asdict() if hasattr(value, "_asdict") else {}  # As of DataFrame.itertuples.
        value = named if self.as_trained(named, "text_column") else value
        if isinstance(value, Mapping):
            # A row of a table has more than texts.
            is_named = value.keys() <= {*_NAMES}
            row = [] if is_named else self.as_trained(value, "text_column")
            if not row and not (is_named and _NAMES[0] in value):
                rule = "A text has the key 'text', and a pair also 'text_pair'"
                received = f"the keys {', '.join(map(repr, value))} in {where}"
                raise UsageError(f"{rule}. Received: {received}. Rename or drop any other key.")
            texts = dict(zip(_NAMES, row or [value[name] for name in _NAMES if name in value], strict=False))
        elif isinstance(value, tuple | list | np.ndarray):
            if len(value) != 2:
                rule = f"A pair of texts is {_PAIR}"
                raise UsageError(f"{rule}. Received: {len(value)} values in {where}. Repair or drop it.")
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
            rule = f"The model takes {takes(self._num_texts)}, one kind per call"
            raise UsageError(f"{rule}. Received: {'a single text' if count == 1 else 'a pair'} in {where}. {todo}.")
        return found

    def check_columns(self, texts: Sequence[str], source: str) -> None:
        self._model.check_texts(texts, source)

    def row(self, texts: Mapping[str, Any], where: str) -> prediction.Item:
        # Invalid Unicode reaches the tokenizer, which drops it, as in an exported model.
        item = prediction.Item(texts=[check_text(text, name, where, strict=False) for name, text in texts.items()])
        self._empty += [text for text in item.texts if not text.strip()]
        return item

    def notes(self, name: str) -> list[str]:
        return [f"{line}, answered like any other" for line in about_empty(name, self._empty)]

    def encode(self, items: Sequence[prediction.Item]) -> EncodedExamples:
        text, *second = map(list, zip(*(item.texts for item in items), strict=True))
        examples = TextExamples(name=prediction.NAME, text=text, text_pair=second[0] if second else None, labels=None)
        return self._model.encode(examples)

    def answers(self, items: Sequence[prediction.Item], predictions: np.ndarray) -> Iterator[Any]:
        if self._top_k == prediction.BEST:
            return self.task.best(predictions)
        return self.task.entries(predictions, self._top_k)

    def records(self, items: Sequence[prediction.Item], predictions: np.ndarray) -> Iterator[dict[str, Any]]:
        return self.task.records(predictions)

    def columns(self) -> Sequence[str]:
        return self.task.columns()

    def cells(self, item: prediction.Item, record: dict[str, Any]) -> Iterable[Sequence[Any]]:
        return [self.task.cells(record)]


def open_texts(config: Config) -> list[prediction.Job]:
    """The texts to predict, and where the predictions go.

    Raises:
        UsageError: for input that cannot be opened, columns that do not exist, output without a known ending, or
            standard input or output that is closed.
    """
    file = prediction.open_text_file(config)
    format = prediction.chosen_format(config.predict, PREDICTED_TEXTS, default="tsv")
    return [prediction.table_job(config, file, format=format)]


class TextClassifier(prediction.ServedModel):
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
            logits = tf.math.segment_mean(self.logits_of(tokens), tf.repeat(tf.range(tf.size(windows)), windows))
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
