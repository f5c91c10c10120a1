"""The interface of a task. No other package knows labels, classes, metrics or what predictions look like.

Examples -> token ids -> head -> loss -> predictions -> metrics and words: a task defines each of them. They are listed
here in the order in which a run needs them.

Sets of examples: their interface, their names, and random parts of them.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import INPUTS, EncodedExamples, MaskedRecords
from tfbert.config.tables import facts_of, listed
from tfbert.data.files import Table
from tfbert.devices.workers import check_same
from tfbert.errors import RunError, UsageError
from tfbert.model.head import Head
from tfbert.output.logs import evaluating
from tfbert.tasks.losses import HeadStart

if TYPE_CHECKING:
    import keras

    from tfbert.config.data import DataConfig
    from tfbert.config.run import Config
    from tfbert.config.tasks import TaskOptions
    from tfbert.config.training import TrainingConfig
    from tfbert.corpus.records import Records
    from tfbert.model.files import BertConfig
    from tfbert.model.predictor import Predictor
    from tfbert.tokens.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class InMemory(Table, abc.ABC):
    """Examples whose texts and labels are in memory; each task has its own class of them.

    Attributes:
        labels: In the form that the task defines; None where there are none.
        num_texts: 1 for single texts, 2 for pairs.
        lines: int64 `[n]`: where each is, counted from 1 in `unit`; None for examples of no file.
    """

    labels: ClassVar[Any]  # A field of most classes.
    num_texts: ClassVar[Any]
    lines: Any = None

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def texts(self) -> list[str]:
        """All their texts, without labels, for learning a vocabulary."""

    @abc.abstractmethod
    def contents(self) -> Iterator[tuple[str, ...]]:
        """The text or texts of each example, without blanks around them; duplicates have equal contents."""

    def where(self, row: int) -> str:
        """The place of an example in the file or data set that it comes from, such as `line 17`."""
        return f"{self.unit} {self.lines[row]}" if self.lines is not None else f"row {row + 1}"

    def sample(self, count: int) -> Self:
        """`count` of them, drawn at random but always the same, in their order."""
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(self))
        return self.take(np.sort(order[:count]))

    def checksum(self, name: str, start: int) -> int:
        """CRC-32 of a name and what they hold, texts and labels; continues the checksum `start`."""
        labels = zlib.crc32(np.ascontiguousarray(self.labels).data.cast("B"))
        labels = zlib.crc32(np.array([start]).data.cast("B"), labels)
        return zlib.crc32("\0".join([name, *self.texts()]).encode("utf-8", "surrogatepass"), labels)


Examples: TypeAlias = "InMemory | Records"
"""The examples that a task trains and is evaluated on: `Records` of pre-training are read from their files."""
ExamplesT = TypeVar("ExamplesT", bound="InMemory | Records")
CheckTexts: TypeAlias = Callable[[Sequence[str], str], None]
"""Takes the names of a set's text columns and the set's name; raises if the model takes another number of texts."""
Training: TypeAlias = "TrainingConfig | None"
"""For training, its options, which decide the weight of each example; None for prediction, where each weighs 1."""


def eval_prefix(name: str) -> str:
    """The prefix of the metrics of a set that is evaluated during training: `validation` -> `eval`,
    `validation_matched` -> `eval_matched`, `test` -> `eval`.

    For a data set without a validation split, `test` takes its place.
    """
    return "eval" + ("" if name == "test" else name.removeprefix("validation"))


def check_same_examples(sets: Mapping[str, Examples], strategy: tf.distribute.Strategy) -> None:
    """Refuses workers that hold different examples, or the same in another order.

    Args:
        sets: This worker's, by name.
        strategy: Each of its workers must call this function.

    Raises:
        UsageError: on all workers alike.
    """
    check_same(
        lambda: {name: f"{len(part)} examples, {part.checksum('', 0):08x}" for name, part in sets.items()},
        strategy,
        rule="All workers must have the same examples, in the same order",
        way_out="Give each the same files or tables; a data set that shuffles needs a seed",
    )


def subset(examples: Examples, limit: int, notes: list[str]) -> Any:
    """At most `limit` examples (0: all), drawn at random but always the same; adds a line to `notes` if some are left
    out."""
    if not 0 < limit < len(examples):
        return examples
    notes.append(f"{examples.name}: {limit:,} of {len(examples):,} examples, a random subset that is always the same")
    return examples.sample(limit)


SAVED_MODEL_WAY_OUT = "Pass another model, or compute in float32"
"""What to do about a saved model whose predictions are not finite."""
TRAINING_WAY_OUT = "Lower --learning_rate or raise --warmup_ratio"
"""What to do if the predictions of a model in training are not finite."""

PredictionsT = TypeVar("PredictionsT")


def check_finite(scores: np.ndarray, ids: Sequence[Any], name: str, way_out: str = SAVED_MODEL_WAY_OUT) -> None:
    """Refuses predictions that are not finite: their labels would look like any others.

    Args:
        scores: The numbers behind predictions, `[n, ...]`.
        ids: What names each example, by its `repr`.
        name: What messages call all examples together.
        way_out: What to do.

    Raises:
        RunError: for the first that is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=tuple(range(1, scores.ndim))))
    if len(bad):
        which = f"id {ids[bad[0]]!r}" if len(scores) == len(ids) else "a row"
        received = f"{str(scores[bad[0]]):.60} for {which} of {name}, {len(bad):,} of {len(scores):,} are not"
        raise RunError(f"Predictions must be finite. Received: {received}. {way_out}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ErrorAnalysis:
    """How the predictions for one set compare with its labels, for the readers of a report.

    Attributes:
        errors: float64 `[n]`, the error of each prediction; 0 for a right one.
        measure: What errors measure, in a word or two.
        shown: Takes an example's number; returns the example, its label and its prediction, as JSON can hold them.
        facts: Facts about the set as a whole, as JSON can hold them.
    """

    errors: np.ndarray
    measure: str
    shown: Callable[[int], dict[str, Any]]
    facts: dict[str, Any]


class Task(abc.ABC, Generic[ExamplesT, PredictionsT]):
    """One task with its classes and options; equal tasks are interchangeable.

    Generic in the class of its examples, and in what its method `predictions` returns for them: an argument
    `predictions` is that.

    Attributes:
        name: What `--task` calls it.
        pipeline_tag: What the Hugging Face hub calls it.
        reads_tokens: Whether the model has one output per token rather than one per row.
        masked_share: Share of tokens for which the model scores the whole vocabulary.
        input_names: The model's inputs for examples without labels.
        made: What training does to a model, in a word.
        length_rule: What the longest input means, before its number of tokens.
        label_word: What its classes are called.
        label_names: Name of each class; empty where there are none.
    """

    name: ClassVar[str]
    pipeline_tag: ClassVar[str]
    reads_tokens: ClassVar[bool] = False
    masked_share: float = 0.0
    input_names: ClassVar[tuple[str, ...]] = INPUTS
    made: ClassVar[str] = "fine-tuned"
    length_rule: ClassVar[str] = "Texts are cut to"
    label_word: ClassVar[str] = "classes"
    label_names: tuple[str, ...] = ()

    @classmethod
    @abc.abstractmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Task:
        """The task of a saved model, with its labels.

        Args:
            saved: Its configuration.
            directory: Where it is, for messages.
            options: They decide how its predictions are scored.

        Raises:
            UsageError: for labels that cannot be told apart, or options that do not fit the model.
        """

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The task in a few words, such as `classification into 3 classes`."""

    @property
    def default_max_seq_length(self) -> int:
        """Longest input in tokens, unless the user names one."""
        return facts_of(self.name).max_seq_length

    def notes(self) -> dict[str, Any]:
        """What a saved model must record about the task besides its labels, as JSON can hold it."""
        return {}

    def tuned(self, predictions: PredictionsT, examples: ExamplesT, metric: str) -> Self:
        """The task with what is tuned on the first validation set after training, such as a threshold.

        Args:
            predictions: For all the examples; maybe not finite.
            examples: Labelled.
            metric: The name of the metric that decides which weights are kept.
        """
        return self

    # The model and its training.

    @abc.abstractmethod
    def head(self) -> Head:
        """What the model needs above its encoder."""

    @abc.abstractmethod
    def encode(
        self, examples: ExamplesT, tokenizer: Tokenizer, max_seq_length: int, training: Training = None
    ) -> EncodedExamples | MaskedRecords:
        """Tokenises examples once, for all epochs.

        Args:
            examples: Of this task.
            tokenizer: The model's.
            max_seq_length: Longest row in tokens.
            training: For training: decides the weight of each example. None: for prediction, where each weighs 1.

        Raises:
            UsageError: for weights that do not fit the labels.
        """

    def head_start(self, encoded: EncodedExamples | MaskedRecords, training: TrainingConfig) -> HeadStart | None:
        """Where a new head starts, a pure function of what the loss counts; None: at 0.

        Args:
            encoded: The training examples, as `encode` made them.
            training: Decides the loss.
        """
        return None

    @abc.abstractmethod
    def loss(self, training: TrainingConfig) -> keras.losses.Loss | dict[str, keras.losses.Loss]:
        """The loss per example, float32 `[rows]`, or per token, `[rows, width]`; for several outputs, one by name."""

    @abc.abstractmethod
    def labelled_sets(self, config: DataConfig, notes: list[str], check_texts: CheckTexts) -> dict[str, ExamplesT]:
        """Reads the sets that a saved model of this task is evaluated on, with the model's own labels.

        Args:
            config: Names a data set, or files.
            notes: Receives what the user should know, one line each.
            check_texts: Called with the names of a set's text columns and the set's name; raises if the model takes
                another number of texts.

        Returns:
            Examples by the prefix of their metrics: `eval`, `eval_matched`, `test`, ...

        Raises:
            UsageError: for data that cannot be read, or is not of the kind the model was trained on.
        """

    def doubts(self, examples: ExamplesT) -> list[str]:
        """What looks like a mistake in the training examples, one line each."""
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
                    rule = f"{field.name} is for {listed(tasks)}, and this is {self.kind}"
                    raise UsageError(f"{rule}. Received: {field.name}={value!r}. Drop --{field.name}.")

    def at_length(self, max_seq_length: int, options: TaskOptions, notes: list[str]) -> Task:
        """The same task for rows of some length.

        Args:
            max_seq_length: Longest row in tokens.
            options: As they were asked for.
            notes: Receives what the user should know, one line each.

        Raises:
            UsageError: for options that do not go with that length.
        """
        return self

    # Predictions.

    def select_outputs(self, outputs: Any, inputs: dict[str, tf.Tensor]) -> Any:
        """The part of the model's outputs that leaves the device, computed in the graph.

        Args:
            outputs: The model's, float32, for a batch.
            inputs: The batch's.
        """
        return outputs

    def predict(self, predictor: Predictor, encoded: Any, name: str) -> PredictionsT:
        """Predictions for examples.

        Args:
            predictor: Returns what `select_outputs` selects of the model's outputs.
            encoded: As `encode` made them.
            name: What progress calls them.
        """
        with evaluating(len(encoded.tokens), name) as on_rows:
            outputs = predictor.outputs(encoded, on_rows=on_rows)
        return self.predictions(outputs, encoded)

    def predictions(self, outputs: Any, encoded: Any) -> PredictionsT:
        """The prediction for each example, from the model's outputs.

        Args:
            outputs: float32 `[rows, ...]`, or `[tokens, ...]` if the task reads tokens.
            encoded: The examples they are for, as `encode` made them.
        """
        return outputs

    def metrics_line(self, found: Mapping[str, float], decisive: str = "") -> str:
        """Metrics as a line for the screen: where the task has many, the telling ones.

        Args:
            found: By name, maybe with a prefix.
            decisive: The name of the one that decides, which is always shown.
        """
        shown = facts_of(self.name).shown_metrics
        lines = (
            f"{name} {value:.4f}"
            for name, value in found.items()
            if not shown or name == decisive or name.endswith(shown)
        )
        return "  ".join(lines)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of what `metrics` returns, without those that only some sets have."""
        return tuple(name for name in facts_of(self.name).metrics if name not in self.undefined_metrics)

    @property
    def default_metric(self) -> str:
        """The metric that decides which weights are kept, unless the user names one: the first."""
        return self.metric_names[0]

    @property
    def undefined_metrics(self) -> tuple[str, ...]:
        """Those of the task's metrics that are not defined for these classes or options."""
        return ()

    def metrics(
        self, predictions: PredictionsT, examples: ExamplesT, *, prefix: str = "", way_out: str = SAVED_MODEL_WAY_OUT
    ) -> dict[str, float]:
        """Compares all predictions of an evaluation with the labels, on the host.

        Args:
            predictions: For all the examples.
            examples: Labelled.
            prefix: Put before each name, with an underscore; empty for none.
            way_out: What to do about predictions that are not finite, for the error.

        Returns:
            Plain floats by metric name.

        Raises:
            RunError: for predictions that are NaN or infinite: the model has diverged.
            UsageError: for no examples.
        """
        if not len(examples):
            raise UsageError("Metrics need at least one labelled example. Received: none. Check the evaluation data.")
        check_finite(self.scores(predictions), range(len(examples)), examples.name, way_out)
        found = self._metrics(predictions, examples)
        return {f"{prefix}_{name}" if prefix else name: float(value) for name, value in found.items()}

    def scores(self, predictions: PredictionsT) -> np.ndarray:
        """The numbers behind predictions, `[n, ...]`: they are finite unless the model has diverged."""
        return np.asarray(predictions)

    @abc.abstractmethod
    def _metrics(self, predictions: PredictionsT, examples: ExamplesT) -> dict[str, float]:
        """The metrics of at least one prediction, all of them finite."""

    def check_metric(self, name: str) -> None:
        """Checks that a metric exists for this task.

        Raises:
            UsageError: for a metric that does not exist, such as `matthews_correlation` with three classes.
        """
        if name not in self.metric_names:
            rule = f"metric_for_best_model must be a metric of {self.kind}: {', '.join(self.metric_names)}"
            raise UsageError(f"{rule}. Received: metric_for_best_model={name!r}. Pass one of them.")

    def remarks(self, predictions: PredictionsT, examples: ExamplesT) -> list[str]:
        """What is wrong with predictions of which all are alike, and what to do, one line each."""
        return []

    def details(self, predictions: PredictionsT, examples: ExamplesT) -> tuple[dict[str, Any], list[str]]:
        """Results of an evaluation beyond its metrics: by name, as JSON can hold them, and as lines for the screen."""
        return {}, []

    def write_evaluation(
        self, directory: pathlib.Path, predictions: PredictionsT, examples: ExamplesT, prefix: str
    ) -> None:
        """Writes the task's usual files beside the results of an evaluation; their names begin with the prefix.

        Raises:
            RunError: if they cannot be written.
        """
        return

    @abc.abstractmethod
    def error_analysis(self, predictions: PredictionsT, examples: ExamplesT) -> ErrorAnalysis:
        """Each prediction beside its label, for a report."""

    # Words.

    @abc.abstractmethod
    def card(self, num_texts: int) -> str:
        """What a model of this task does, for its model card: what follows "a model that".

        Args:
            num_texts: 1 for single texts, 2 for pairs.
        """

    def example(self, num_texts: int) -> str:
        """An input that a loaded model of this task takes, as Python writes it."""
        return '"..."'


def rounded(value: float) -> float:
    """A float32 as the shortest decimal number that gives the same float32."""
    return float(f"{value:.9g}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """What a run trains and evaluates on.

    Attributes:
        task: The task, with its labels.
        train: Examples to train on.
        validation: Name -> examples to evaluate on during training; usually one set, `validation`; may be empty.
        test: Labelled examples to evaluate on once, at the end; None if there are none.
        notes: What the user should know, one line each.
        columns: Those of the training data that were read, by the options that name them.
    """

    task: Task
    train: Examples
    validation: dict[str, Examples]
    test: Examples | None
    notes: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def sets(self) -> dict[str, Examples]:
        """The sets to evaluate on, by name."""
        return self.validation | ({"test": self.test} if self.test is not None else {})
