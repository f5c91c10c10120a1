"""Multiple choice: which of several choices answers a question, or ends a text. As token ids, a sequence for each
choice; a batch's row is an example with all its choices.

Prediction of choices: questions in Python, or of files in any form in which they are read -> a choice for each. As a
SavedModel: token ids -> logits.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from tfbert.batches.pipeline import EncodedExamples, TokenTensors
from tfbert.config.data import DataConfig
from tfbert.config.run import Config
from tfbert.config.tasks import TaskOptions
from tfbert.data.reading import PREDICTED_TEXTS
from tfbert.data.rows import Source, input_source
from tfbert.errors import UsageError
from tfbert.model.head import Head
from tfbert.tasks import prediction
from tfbert.tasks.base import ErrorAnalysis, Task, TaskData, rounded
from tfbert.tasks.losses import SmoothedCrossEntropy
from tfbert.tasks.multiple_choice.questions import Asked, ChoiceExamples, Columns, asked_of, open_choices, read_choices
from tfbert.tasks.tables import data_of, equal, hold_out, read_labelled_tables, read_training_tables
from tfbert.tokens.tokenizer import Tokenizer, beginnings, splits_of

if TYPE_CHECKING:
    from tfbert.config.tasks import ChoosingConfig
    from tfbert.config.training import TrainingConfig
    from tfbert.model.files import BertConfig


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EncodedChoices(EncodedExamples):
    """Examples of several choices: `tokens` has a sequence for each choice of each example, in their order. Labels and
    weights belong to examples.

    Attributes:
        num_cut: How many examples have a context that is cut.
    """

    num_cut: int
    may_be_cut: ClassVar[bool] = False  # What is cut is counted, rather than concluded from lengths.

    @property
    def counts(self) -> np.ndarray:
        """int64 `[n]`: how many choices each example has."""
        return np.diff(self.splits)

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[n, choices]`: the tokens of each choice; 0 where there is none."""
        counts = self.counts
        is_there = np.arange(counts.max(initial=0)) < counts[:, None]
        found = np.zeros(is_there.shape, np.int32)
        found[is_there] = self.tokens.lengths
        return found


def encode_choices(
    asked: Sequence[Asked],
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    labels: np.ndarray | None = None,
    where: Callable[[int], str] = str,
) -> EncodedChoices:
    """Makes a sequence `[CLS] context [SEP] question choice [SEP]` for each choice; without a context, or without a
    question, `[CLS] question [SEP] choice [SEP]` or `[CLS] context [SEP] choice [SEP]`. A blank is between question and
    choice.

    Where it is too long, the end of the context is left out; never any of the question or the choice. Each distinct
    text is tokenized once, on all cores.

    Args:
        asked: The questions.
        tokenizer: The tokenizer.
        max_seq_length: Longest sequence, special tokens counted.
        labels: int32 `[n]`: the right choices; None where nobody asks for them.
        where: What messages call a question.

    Raises:
        UsageError: for a question and a choice that leave no room for the context, or that do not fit by themselves.
    """
    index: dict[str, int] = {}

    def known(text: str) -> int:
        return index.setdefault(text, len(index))

    counts = np.array([len(one.choices) for one in asked], np.int64)
    splits, example = splits_of(counts), np.repeat(np.arange(len(asked)), counts)
    first_of, second_of = np.zeros(len(asked), np.int64), np.zeros(len(example), np.int64)
    for row, one in enumerate(asked):
        first, second = (one.context, one.question) if one.context.strip() else (one.question, "")
        first_of[row] = known(first)
        seconds = [f"{second} {choice}" if second.strip() else choice for choice in one.choices]
        second_of[splits[row] : splits[row + 1]] = [known(text) for text in seconds]
    read = tokenizer.encode_with_offsets(list(index))
    sizes = np.diff(read.row_splits)

    first, second = sizes[first_of][example], sizes[second_of]
    has_context = np.array([bool(one.context.strip()) for one in asked], bool)[example]
    num_special = tokenizer.num_special(2)
    room = max_seq_length - num_special - second
    # Without a context, what comes first is the question, which must not be cut.
    needed = np.where(has_context, np.minimum(first, 1), first)
    for i in np.flatnonzero(room < needed)[:1]:
        one, choice = asked[example[i]], i - splits[example[i]]
        raise UsageError(
            f"A row must hold a question, a choice, {num_special} special tokens and some of the context: only the "
            f"context is cut. Received: max_seq_length={max_seq_length}, too little for question "
            f"{reprlib.repr(one.question)} and choice {reprlib.repr(one.choices[choice])} in {where(int(example[i]))}. "
            "Pass a larger max_seq_length, or shorten them."
        )
    kept = np.minimum(first, room)
    is_cut = np.zeros(len(asked), bool)
    is_cut[example[kept < first]] = True

    with tf.device("CPU:0"):
        texts = tf.RaggedTensor.from_row_splits(read.ids, read.row_splits, validate=False)
        before = beginnings(tf.gather(texts, first_of[example]), kept)
        ids, second_start = tokenizer.joined(before, tf.gather(texts, second_of))
        tokens = TokenTensors.of_rows(ids, second_start, tokenizer.pad_id).in_memory()
    return EncodedChoices(
        tokens=dataclasses.replace(tokens, splits=splits),
        labels=np.zeros(len(asked), np.int32) if labels is None else np.asarray(labels, np.int32),
        weights=np.ones(len(asked), np.float32),
        num_cut=int(is_cut.sum()),
    )


MISSING = -np.inf
"""The logit of a choice that an example does not have."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """The model's scores for the choices of each example.

    Attributes:
        logits: float32 `[n, choices]`; `MISSING` for a choice that an example does not have.
        counts: int64 `[n]`: how many choices each has.
    """

    logits: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, splits: np.ndarray) -> Choices:
        """From scores of all choices, float32 `[sequences]`, and where each example's begin, int64 `[n + 1]`."""
        counts = np.diff(splits)
        found = cls(logits=np.full([len(counts), counts.max(initial=0)], MISSING, np.float32), counts=counts)
        found.logits[found.is_there] = scores
        return found

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def is_there(self) -> np.ndarray:
        """bool `[n, choices]`: which choices there are."""
        return np.arange(self.logits.shape[1]) < self.counts[:, None]

    @property
    def index(self) -> np.ndarray:
        """int64 `[n]`: the best choice of each; the first of equals."""
        return self.logits.argmax(axis=1)

    @property
    def probabilities(self) -> np.ndarray:
        """float64 `[n, choices]`: a softmax over the choices of each example; 0 for missing ones."""
        return softmax(self.logits.astype(np.float64), axis=1)

    def losses(self, labels: np.ndarray) -> np.ndarray:
        """float64 `[n]`: the cross-entropy of each right choice, in nats."""
        logits = self.logits.astype(np.float64)
        most = logits.max(axis=1)
        total = most + np.log(np.exp(logits - most[:, None]).sum(axis=1))
        return total - logits[np.arange(len(labels)), labels]

    def ranks(self, labels: np.ndarray) -> np.ndarray:
        """int64 `[n]`: the place of each right choice among all, best first, from 1; of equals, the first comes first,
        so that rank 1 is an accurate prediction."""
        rows = np.arange(len(labels))
        own = self.logits[rows, labels][:, None]
        is_before = np.arange(self.logits.shape[1]) < labels[:, None]
        return 1 + ((self.logits > own) | ((self.logits == own) & is_before)).sum(axis=1)


def choice_metrics(choices: Choices, labels: np.ndarray) -> dict[str, float]:
    """The metrics of predictions, given the right choices, int `[n]`."""
    ranks = choices.ranks(labels)
    return {
        "accuracy": float((ranks == 1).mean()),
        "mean_reciprocal_rank": float((1 / ranks).mean()),
        "loss": float(choices.losses(labels).mean()),
    }


log = logging.getLogger("tfbert")

_SHOWN_CONTEXT = 800
"""Characters of a context that a report shows."""
_FEW = 20
"""So many examples that have no first choice among their answers are no accident."""


@dataclasses.dataclass(frozen=True)
class MultipleChoice(Task[ChoiceExamples, Choices]):
    """See `Task`. Outputs are a logit for each choice, float32 `[sequences, 1]`; predictions are the `Choices` of each
    example.

    Metrics: `accuracy`; `mean_reciprocal_rank`, the mean of 1 / place of the right choice; `loss`, the mean
    cross-entropy of a softmax over an example's choices, in nats. Of equal choices, the first counts as better.

    Args:
        options: Where the choices are in tables.
    """

    options: ChoosingConfig

    name = "multiple_choice"
    pipeline_tag = "multiple-choice"
    default_metric = "accuracy"
    length_rule = "Contexts are cut to fit"

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> MultipleChoice:
        """The task of a saved model."""
        return cls(options.choosing)

    @property
    def kind(self) -> str:
        return "multiple choice"

    def read(self, source: Source, config: DataConfig) -> ChoiceExamples:
        """The questions that an option names."""
        return read_choices(source, config, self.options.choice_columns)

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: Callable[[Sequence[str], str], None]
    ) -> dict[str, ChoiceExamples]:
        columns = self.options.choice_columns
        return read_labelled_tables(config, self.name, lambda source: self.read(source, config), notes, columns)

    def doubts(self, examples: ChoiceExamples) -> list[str]:
        """Labels that are all alike, or never the first choice; choices that are the same."""
        out, labels = [], examples.labels
        if len(labels) >= _FEW and len(np.unique(labels)) == 1:
            out.append(f"the right choice is number {labels[0]} (from 0) in every example of {examples.name}")
        elif len(labels) >= _FEW and labels.min() > 0:
            out.append(
                f"the first choice is right in no example of {examples.name}: numbers as labels count from 0, not 1"
            )
        twice = [row for row, one in enumerate(examples.asked) if len(set(one.choices)) < len(one.choices)]
        if twice:
            out.append(
                f"{examples.name}: {len(twice):,} of {len(examples):,} questions have equal choices, the first in "
                f"{examples.where(twice[0])}"
            )
        return out

    def head(self) -> Head:
        return Head(kind="MultipleChoice", labels=("LABEL_0",))

    def encode(
        self,
        examples: ChoiceExamples,
        tokenizer: Tokenizer,
        max_seq_length: int,
        training: TrainingConfig | None = None,
    ) -> EncodedChoices:
        encoded = encode_choices(
            examples.asked,
            tokenizer,
            max_seq_length,
            labels=examples.labels,
            where=lambda row: f"{examples.name}, {examples.where(row)}",
        )
        if encoded.num_cut:
            log.info(
                "%s: contexts of %s of %s questions are cut to fit %d tokens",
                *(examples.name, f"{encoded.num_cut:,}", f"{len(examples):,}", max_seq_length),
            )
        return encoded

    def loss(self, training: TrainingConfig) -> SmoothedCrossEntropy:
        return SmoothedCrossEntropy()

    def predictions(self, outputs: np.ndarray, encoded: EncodedChoices) -> Choices:
        return Choices.of(outputs[:, 0], encoded.splits)

    def scores(self, predictions: Choices) -> np.ndarray:
        return np.where(predictions.is_there, predictions.logits, 0.0)

    def _metrics(self, predictions: Choices, examples: ChoiceExamples) -> dict[str, float]:
        return choice_metrics(predictions, examples.labels)

    def error_analysis(self, predictions: Choices, examples: ChoiceExamples) -> ErrorAnalysis:
        """The error is the loss of a wrong choice."""
        labels, chosen, shares = examples.labels, predictions.index, predictions.probabilities

        def mark(number: int, row: int) -> str:
            return "answer" if number == labels[row] else "wrong" if number == chosen[row] else ""

        def shown(row: int) -> dict[str, Any]:
            one = examples.asked[row]
            choices = [
                {"text": text, "probability": float(shares[row, number]), "mark": mark(number, row)}
                for number, text in enumerate(one.choices)
            ]
            context = one.context
            if len(context) > _SHOWN_CONTEXT:
                context = f"{context[:_SHOWN_CONTEXT]} …"
            return {"context": context, "question": one.question, "choices": choices}

        errors = np.where(chosen != labels, predictions.losses(labels), 0.0)
        return ErrorAnalysis(errors=errors, measure="loss", shown=shown, facts={})

    def card(self, num_texts: int) -> str:
        return "chooses which of several choices answers a question, or ends a text"

    def example(self, num_texts: int) -> str:
        return '{"context": "...", "question": "...", "choices": ["...", "..."]}'


def load_choices(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads questions with their choices."""
    own_notes: list[str] = []
    task = MultipleChoice(options.choosing)
    sets, notes = read_training_tables(config, task.name, lambda source: task.read(source, config))
    own_notes += [line for part in sets.values() for line in part.notes]

    def groups(train: ChoiceExamples) -> np.ndarray:  # Of one context; without contexts, of equal questions.
        return equal(one.context.strip() or f"\0{one.question.strip()}" for one in train.asked)

    sets = hold_out(sets, config, own_notes, groups)
    notes = (*notes, *own_notes)
    return data_of(task, sets, notes, config, sets["train"].columns)


class ChoiceRows(prediction.ServedModel):
    """Takes rows of token ids, one for each choice. Returns `logits`, float32 `[n, 1]`, and `error`."""

    num_texts: ClassVar[int | None] = 2


class ChoiceItems(prediction.Items[Asked]):
    """Questions with their choices."""

    most = 2048
    takes_top_k = True
    _num_read = _num_cut = 0

    def item(self, value: Any, where: str) -> Asked:
        columns = Columns(context="context", question="question", choices=("choices",), label="")
        if isinstance(value, Mapping) and self.as_trained(value, "text_column"):
            if self.as_trained(value, "choice_columns"):
                *context, question = self._model.columns["text_column"]
                choices = tuple(self._model.columns["choice_columns"])
                columns = Columns(context="".join(context), question=question, choices=choices, label="")
        if not isinstance(value, Mapping) or columns.choices[0] not in value:
            received = f"the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else f"{value!r:.60}"
            raise UsageError(
                'Choices come with their question or context, as {"context": ..., "question": ..., "choices": [...]}. '
                f"Received: {received} in {where}. Pass choices as a list, and a question, a context or both."
            )
        return self.checked(asked_of(value, columns, where, labelled=False), where)

    def checked(self, asked: Asked, where: str) -> Asked:
        """The same question, unless it is too long.

        Only those are tokenised that may be.

        Raises:
            UsageError: for one that leaves no room for the context.
        """
        longest, tokenizer = max(map(len, asked.choices)), self._model.tokenizer
        room = self._model.max_seq_length - tokenizer.num_special(2) - 1
        if tokenizer.most_per_character * (len(asked.question) + longest) > room:
            encode_choices([asked], tokenizer, self._model.max_seq_length, where=lambda row: where)
        return asked

    def size(self, item: Asked) -> int:
        return len(item.context) * len(item.choices) + sum(map(len, item.choices))

    def encode(self, items: Sequence[Asked]) -> EncodedChoices:
        encoded = encode_choices(items, self._model.tokenizer, self._model.max_seq_length)
        self._num_read += len(items)
        self._num_cut += encoded.num_cut
        return encoded

    def notes(self, name: str) -> list[str]:
        if not self._num_cut:
            return []
        cut, total = f"{self._num_cut:,}", f"{self._num_read:,}"
        return [f"{name}: contexts of {cut} of {total} questions are cut to fit {self._model.max_seq_length} tokens"]

    def answers(self, items: Sequence[Asked], predictions: Choices) -> Iterator[Any]:
        for one, shares in zip(items, predictions.probabilities, strict=True):
            own = shares[: len(one.choices)]
            most = 1 if self._top_k == prediction.BEST else self._top_k
            order = np.argsort(-own, kind="stable")[:most].tolist()
            found = [{"index": i, "choice": one.choices[i], "score": rounded(own[i])} for i in order]
            yield found[0] if self._top_k == prediction.BEST else found

    def records(self, items: Sequence[Asked], predictions: Choices) -> Iterator[dict[str, Any]]:
        """Also the `probabilities` of all choices."""
        answers = self.answers(items, predictions)
        for one, answer, shares in zip(items, answers, predictions.probabilities, strict=True):
            yield answer | {"probabilities": [*map(rounded, shares[: len(one.choices)])]}

    def columns(self) -> Sequence[str]:
        return ("index", "choice", "score", "probabilities")  # The last is a list in JSON.


def open_choice_files(config: Config) -> list[prediction.Job]:
    """The questions to answer, and where the answers go.

    Raises:
        UsageError: for input that cannot be opened, or output without a known ending.
    """
    data = config.data
    file, columns = open_choices(
        input_source(config.predict.input_file), data, config.choosing.choice_columns, labelled=False
    )

    def row(items: ChoiceItems, values: dict[str, Any], where: str) -> Asked:
        return items.checked(asked_of(values, columns, where, labelled=False), where)

    format = prediction.chosen_format(config.predict, PREDICTED_TEXTS, default="jsonl")
    return [prediction.table_job(config, file, columns.all, row=row, columns=columns.by_option, format=format)]
