"""Multiple choice: which of several choices answers a question, or ends a text."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.data.rows import Source
from tfbert.model.head import Head, choice_head
from tfbert.tasks.base import ErrorAnalysis, Task, TaskData
from tfbert.tasks.choosing.encoded import EncodedChoices, encode_choices
from tfbert.tasks.choosing.metrics import Choices, breakdown, choice_metrics
from tfbert.tasks.choosing.questions import ChoiceExamples, open_questions, read_questions
from tfbert.tasks.held_out import equal, hold_out
from tfbert.tasks.losses import SmoothedCrossEntropy
from tfbert.tasks.tables import data_of, read_labelled_tables, read_training_tables

if TYPE_CHECKING:
    from tfbert.config.data import DataConfig
    from tfbert.config.tasks import ChoosingConfig, TaskOptions
    from tfbert.config.training import TrainingConfig
    from tfbert.model.configuration import BertConfig
    from tfbert.tokens.tokenizer import Tokenizer

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
        opened = open_questions(source, config, choice_columns=self.options.choice_columns)
        return read_questions(opened, skip_bad_rows=config.skip_bad_rows)

    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: Callable[[Sequence[str], str], None]
    ) -> dict[str, ChoiceExamples]:
        columns = self.options.choice_columns
        tables = read_labelled_tables(config, self.name, lambda source: self.read(source, config), columns)
        for table in tables.values():
            notes += table.notes
        return tables

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
        return choice_head()

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

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("accuracy", "mean_reciprocal_rank", "loss")

    def _metrics(self, predictions: Choices, examples: ChoiceExamples) -> dict[str, float]:
        return choice_metrics(predictions, examples.labels)

    def details(self, predictions: Choices, examples: ChoiceExamples) -> tuple[dict[str, Any], list[str]]:
        return {"breakdown": self._breakdown(predictions, examples)}, []

    def _breakdown(self, predictions: Choices, examples: ChoiceExamples) -> dict[str, list[dict[str, Any]]]:
        words = [sum(len(text.split()) for text in (a.context, a.question, *a.choices)) for a in examples.asked]
        return breakdown(predictions, examples.labels, words)

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

        return ErrorAnalysis(
            errors=np.where(chosen != labels, predictions.losses(labels), 0.0),
            measure="loss",
            shown=shown,
            facts={"groups": self._breakdown(predictions, examples)},
        )

    def changes(self, predictions: Choices, others: Choices) -> dict[str, int]:
        return {"changed_choices": int((predictions.index != others.index).sum())}

    def card(self, num_texts: int) -> list[str]:
        return ["A BERT model that chooses which of several choices answers a question, or ends a text."]

    def example(self, num_texts: int) -> str:
        return '{"context": "...", "question": "...", "choices": ["...", "..."]}'

    def usage(self, num_texts: int) -> list[str]:
        return [
            "import torch",
            "from transformers import AutoModelForMultipleChoice, AutoTokenizer",
            "",
            'tokenizer = AutoTokenizer.from_pretrained("THIS_DIRECTORY")',
            'model = AutoModelForMultipleChoice.from_pretrained("THIS_DIRECTORY")',
            'context, question, choices = "...", "...", ["...", "..."]',
            'seconds = [f"{question} {choice}" for choice in choices]',
            'options = {"truncation": "only_first", "padding": True, "return_tensors": "pt"}',
            "inputs = tokenizer([context] * len(choices), seconds, **options)",
            "with torch.no_grad():",
            "    logits = model(**{name: part[None] for name, part in inputs.items()}).logits[0]",
            "choices[logits.argmax()], logits.softmax(-1)",
        ]


def load_choices(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads questions with their choices."""
    own_notes: list[str] = []
    task = MultipleChoice(options.choosing)
    sets, notes = read_training_tables(config, task.name, lambda source: task.read(source, config))
    if config.validation_split is not None:
        # Questions about one context stay together; without contexts, equal questions.
        train = sets["train"]
        groups = equal(one.context.strip() or f"\0{one.question.strip()}" for one in train.asked)
        sets = hold_out(sets, config, own_notes, groups=groups)
        sets["validation"] = dataclasses.replace(sets["validation"], notes=())
    counts = [sets["train"].counts.min(), sets["train"].counts.max()]
    own_notes += [line for part in sets.values() for line in part.notes]
    if counts[0] != counts[1]:
        total, slots = int(sets["train"].counts.sum()), int(counts[1]) * len(sets["train"])
        packed = "" if config.batching == "packed" else "; --batching=packed computes no missing ones"
        own_notes.append(
            f"questions have {counts[0]} to {counts[1]} choices: {1 - total / slots:.0%} of all places for them are "
            f"empty{packed}"
        )
    notes = (*notes, *own_notes)
    return data_of(task, sets, notes, config, sets["train"].columns)
