"""What a task is to the rest of the house: no other room knows labels, classes, metrics or what predictions look like.

Examples -> token ids -> head -> loss -> predictions -> metrics and words: a task says each of them, in the order in
which a run asks.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from tfbert.batches.inputs import INPUTS
from tfbert.batches.pipeline import EncodedExamples
from tfbert.config.tasks import MAX_SEQ_LENGTH
from tfbert.errors import RunError, UsageError
from tfbert.model.head import Head

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras as keras

    from tfbert.config.run import Config, DataConfig, TrainingConfig
    from tfbert.model.predictor import Predictor
    from tfbert.tokens.tokenizer import BertTokenizer

SAVED_MODEL_WAY_OUT = "Pass another model, or compute in float32"
"""What to do about a saved model whose predictions are not finite."""
TRAINING_WAY_OUT = "Lower --learning_rate or raise --warmup_ratio"
"""What to do about those of a model in training."""


class Examples(Protocol):
    """What a task trains and is evaluated on; each task has a class of its own.

    Attributes:
        name: Where they came from, for messages.
        labels: As the task has them; None where there are none.
        num_texts: 1 for single texts, 2 for pairs.
    """

    name: str
    labels: np.ndarray | None

    @property
    def num_texts(self) -> int: ...

    def __len__(self) -> int: ...

    def take(self, indices: Iterable[int]) -> Examples:
        """The examples at `indices`, in that order."""

    def texts(self) -> list[str]:
        """All that is written in them but labels, for a vocabulary to be learned from."""

    def contents(self) -> Iterator[tuple[str, ...]]:
        """What makes each example the same as another one: its text, or two, without the blanks around."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """How predictions for one set compare with its labels, for who reads a report.

    Attributes:
        wrongness: float64 `[n]`, how far off each prediction is; 0 for a right one.
        measure: What that is, in a word or two.
        shown: What JSON can hold of an example, its label and its prediction, by its number.
        facts: What JSON can hold of the set as a whole.
    """

    wrongness: np.ndarray
    measure: str
    shown: Callable[[int], dict[str, Any]]
    facts: dict[str, Any]


class Task(abc.ABC):
    """One task with its classes and options; equal ones are interchangeable.

    `predictions` below are what `predictions` makes of the model's outputs for `examples`.

    Attributes:
        name: What `--task` calls it.
        pipeline_tag: What the Hugging Face hub calls it.
        default_metric: Decides which weights are kept where the user names none.
        default_max_seq_length: Longest input in tokens where the user names none.
        reads_tokens: Whether the model's outputs are of tokens, an entry each, rather than of rows.
        masked_share: Share of tokens whose word is looked for in the vocabulary.
        input_names: What a model is given of examples without labels.
        made: What training does to a model, in a word.
        label_names: Name of each class; empty where there are none.
    """

    name: ClassVar[str]
    pipeline_tag: ClassVar[str]
    default_metric: ClassVar[str]
    default_max_seq_length: ClassVar[int] = MAX_SEQ_LENGTH
    reads_tokens: ClassVar[bool] = False
    masked_share: float = 0.0
    input_names: ClassVar[tuple[str, ...]] = INPUTS
    made: ClassVar[str] = "fine-tuned"
    label_names: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The task in a few words, such as `classification into 3 classes`."""

    def notes(self) -> dict[str, Any]:
        """What a saved model must say of the task besides its labels, as JSON can hold it."""
        return {}

    # The model and its training.

    @abc.abstractmethod
    def head(self) -> Head:
        """What the model needs above its encoder."""

    @abc.abstractmethod
    def encode(
        self,
        examples: Examples,
        tokenizer: BertTokenizer,
        max_seq_length: int,
        training: TrainingConfig | None = None,
    ) -> EncodedExamples:
        """Tokenises examples once, for all epochs.

        Args:
            examples: Of this task.
            tokenizer: The model's.
            max_seq_length: Longest row in tokens.
            training: To train on them: says what each weighs. None: to predict them, where each weighs 1.

        Raises:
            UsageError: for weights that do not fit the labels.
        """

    @abc.abstractmethod
    def loss(self, training: TrainingConfig) -> keras.losses.Loss | dict[str, keras.losses.Loss]:
        """Values per example, float32 `[rows]`, or per token `[rows, width]`; of several outputs one each by name."""

    @abc.abstractmethod
    def labelled_sets(
        self, config: DataConfig, notes: list[str], check_texts: Callable[[Sequence[str], str], None]
    ) -> dict[str, Examples]:
        """Reads what a saved model of this task is evaluated on, its labels those of the model.

        Args:
            config: Names a data set, or files.
            notes: Receives what the user should know, a line each.
            check_texts: Called with the names of a set's columns of text and that of the set; raises where the model
                takes another number of texts.

        Returns:
            Examples by what their metrics are called: `eval`, `eval_matched`, `test`, ...

        Raises:
            UsageError: for data that cannot be read, or is not of the kind the model was trained on.
        """

    def doubts(self, examples: Examples) -> list[str]:
        """What looks like an accident in the training examples, a line each."""
        return []

    def check_options(self, config: Config) -> None:
        """Refuses options that have no effect on this task.

        Raises:
            UsageError: naming one.
        """
        for part in vars(config).values():
            for field in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
                value, tasks = getattr(part, field.name), field.metadata["tasks"]
                if tasks and self.name not in tasks and value != field.default:
                    raise UsageError(
                        f"{field.name} is for {' and '.join(tasks)}, and this is {self.kind}. "
                        f"Received: {field.name}={value!r}. Drop --{field.name}."
                    )

    # Predictions.

    def kept(self, outputs: Any, inputs: dict[str, tf.Tensor]) -> Any:
        """What of the model's outputs leaves its device, in the graph.

        Args:
            outputs: Float32, of a batch.
            inputs: The batch's.
        """
        return outputs

    def predict(self, predictor: Predictor, encoded: EncodedExamples) -> Any:
        """Predictions for examples.

        Args:
            predictor: Of what `kept` leaves of the model's outputs.
            encoded: As `encode` made them.
        """
        return self.predictions(predictor.outputs(encoded), encoded)

    def predictions(self, outputs: np.ndarray, encoded: EncodedExamples) -> Any:
        """What the model's outputs say of each example.

        Args:
            outputs: float32 `[rows, ...]`, or `[tokens, ...]` where it reads tokens.
            encoded: What they are for, as `encode` made it.
        """
        return outputs

    @property
    @abc.abstractmethod
    def metric_names(self) -> tuple[str, ...]:
        """What `metrics` returns, in its order, without what only some sets have."""

    def metrics(
        self, predictions: Any, examples: Examples, *, prefix: str = "", way_out: str = SAVED_MODEL_WAY_OUT
    ) -> dict[str, float]:
        """Compares all predictions of an evaluation with the labels, on the host.

        Args:
            predictions: For all the examples.
            examples: Labelled.
            prefix: Put before each name, with an underscore; empty for none.
            way_out: What to do about predictions that are not finite, for the message.

        Returns:
            Plain floats by metric name.

        Raises:
            RunError: for predictions that are NaN or infinite: the model has diverged.
            UsageError: for no examples.
        """
        if not len(examples):
            raise UsageError("Metrics need an example. Received: no labelled examples. Check the evaluation data.")
        scores = self.scores(predictions)
        bad = len(scores) - int(np.isfinite(scores.reshape(len(scores), -1)).all(axis=1).sum())
        if bad:
            raise RunError(
                f"Predictions must be finite. Received: {bad} of {len(scores)} that are not: training has diverged. "
                f"{way_out}."
            )
        found = self._metrics(predictions, examples)
        return {f"{prefix}_{name}" if prefix else name: float(value) for name, value in found.items()}

    def scores(self, predictions: Any) -> np.ndarray:
        """The numbers behind predictions, `[n, ...]`: they are finite unless the model has diverged."""
        return predictions

    @abc.abstractmethod
    def _metrics(self, predictions: Any, examples: Examples) -> dict[str, float]:
        """The same, of predictions that are finite, and at least one."""

    def check_metric(self, name: str) -> None:
        """Checks that a metric exists for this task.

        Raises:
            UsageError: where it does not, such as `matthews_correlation` with three classes.
        """
        if name not in self.metric_names:
            raise UsageError(
                f"metric_for_best_model must be a metric of {self.kind}: {', '.join(self.metric_names)}. "
                f"Received: metric_for_best_model={name!r}. Pass one of them."
            )

    def details(self, predictions: Any, examples: Examples) -> tuple[dict[str, Any], list[str]]:
        """What an evaluation says beyond its metrics: what JSON can hold, by name, and lines for the screen."""
        return {}, []

    def write_evaluation(self, directory: pathlib.Path, predictions: Any, examples: Examples, prefix: str) -> None:
        """Writes what is usual beside the results of an evaluation, in files whose names begin with the prefix.

        Raises:
            RunError: where it cannot be written.
        """
        return

    @abc.abstractmethod
    def judged(self, predictions: Any, examples: Examples) -> Judged:
        """Each prediction beside its label, for a report."""

    def changes(self, predictions: Any, others: Any) -> dict[str, int]:
        """How many predictions two models make otherwise, by name; nothing where every small difference is one."""
        return {}

    # Words.

    @abc.abstractmethod
    def card(self, num_texts: int) -> list[str]:
        """What a model of this task does, lines of Markdown for its card.

        Args:
            num_texts: 1 for single texts, 2 for pairs.
        """

    @abc.abstractmethod
    def usage(self, num_texts: int) -> list[str]:
        """Lines of Python that use a model of this task through transformers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """What a run trains and evaluates on.

    Attributes:
        task: What the labels are, and what is made of them.
        train: To train on.
        validation: Name -> to evaluate on during training; usually one, `validation`; may be empty.
        test: Labelled, to evaluate on once, at the end; None without one.
        notes: What the user should know, one line each.
    """

    task: Task
    train: Examples
    validation: dict[str, Examples]
    test: Examples | None
    notes: tuple[str, ...]

    @property
    def sets(self) -> dict[str, Examples]:
        """Those that are evaluated, by name."""
        return self.validation | ({"test": self.test} if self.test is not None else {})


def eval_prefix(name: str) -> str:
    """What the metrics of a set to evaluate on during training are called: `validation` -> `eval`,
    `validation_matched` -> `eval_matched`, `test` -> `eval`.

    A data set without a validation split is evaluated on `test` in its place.
    """
    return "eval" + ("" if name == "test" else name.removeprefix("validation"))


def rounded(value: float) -> float:
    """A float32 as the shortest number that gives it back."""
    return float(f"{value:.9g}")
