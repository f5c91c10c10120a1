"""The tasks, a row each: what a run, a saved model and each mode ask a task for. Nothing of a task is imported before
that, and no other module compares tasks by name.

Detects the task where the data can be for no other, such as questions in SQuAD's form.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfbert.config.data import DataConfig
from tfbert.config.types import is_pipe
from tfbert.data.files import named_by_user
from tfbert.data.rows import labelled_source
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.config.run import Config
    from tfbert.config.tasks import TaskOptions
    from tfbert.data.rows import Source
    from tfbert.model.files import BertConfig
    from tfbert.tasks.base import Task, TaskData
    from tfbert.tasks.prediction import Items, Job, ServedModel

_FOLDER = "tfbert.tasks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A task. What is a string below is `MODULE:NAME` in `tfbert.tasks`; empty where the task has none.

    Attributes:
        name: What `--task` calls it.
        architectures: How the class of its saved models ends in `config.json`.
        matches: Whether a saved model of these architectures is of this task.
        task_class: Its `Task`, whose `of_model` makes the task of a saved model.
        loader: Reads what a run trains and evaluates on.
        job_opener: Opens what `--mode=predict` reads.
        predicts_sets: Whether it predicts the test sets of data sets.
        typed: What `--text` and, where there are two, `--text_pair` hold; empty where the task takes neither.
        items_class: What a model of it is used on, in Python and in files.
        served_class: What `--mode=export` saves.
        test: Whether a file, a table in memory or a data set can be for no other task.
        accuracies: How the names of accuracies end that its report plots together.
    """

    name: str
    architectures: tuple[str, ...]
    matches: Callable[[BertConfig], bool] = lambda saved: True
    task_class: str
    loader: str
    job_opener: str = ""
    predicts_sets: bool = False
    typed: tuple[str, ...] = ()
    items_class: str
    served_class: str = ""
    test: str = ""
    accuracies: tuple[str, ...] = ()

    def is_of(self, saved: BertConfig) -> bool:
        """Whether a saved model is of this task."""
        return (saved.architectures or [""])[0].endswith(self.architectures) and self.matches(saved)

    def of_model(self, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Task:
        """The task of a saved model, with its labels; see `task_of_model`."""
        return _named(self.task_class).of_model(saved, directory, options)

    def load(self, config: DataConfig, options: TaskOptions) -> TaskData:
        """Reads what a run trains and evaluates on."""
        return _named(self.loader)(config, options)

    def open_jobs(self, config: Config) -> list[Job]:
        """Opens the input of predictions."""
        return _named(self.job_opener)(config)

    @property
    def folder(self) -> str:
        """Its folder. There, `report.html` is the template of its report, `run.html` with the blocks `breakdown` and
        `worst`; `usage.md` is Python for its card, which uses a model through transformers and PyTorch."""
        return self.task_class.partition(".")[0]

    @property
    def items(self) -> type[Items]:
        """What a model is used on."""
        return _named(self.items_class)

    @property
    def served(self) -> type[ServedModel]:
        """The module that is saved for a model."""
        return _named(self.served_class)

    def holds(self, source: Source, config: DataConfig) -> bool:
        """Whether a file, a table in memory or a data set can be for no other task."""
        return bool(self.test) and _named(self.test)(source, config)


_OF_WHOLE_TEXTS: Any = {
    "architectures": ("",),
    "typed": ("text", "second text"),
    "items_class": "text_task:TextItems",
    "served_class": "text_task:TextClassifier",
}
ENTRIES = (
    Entry(
        name="multi_label_classification",
        matches=lambda saved: saved.problem_type == "multi_label_classification",
        task_class="multi_label.multi_label_classification:MultiLabelClassification",
        loader="multi_label.multi_label_classification:load_label_sets",
        job_opener="text_task:open_texts",
        **_OF_WHOLE_TEXTS,
        test="multi_label.table:holds_label_sets",
    ),
    Entry(
        name="regression",
        matches=lambda saved: saved.problem_type == "regression" or saved.num_labels == 1,
        task_class="classification.classification:Regression",
        loader="classification.classification:load_texts",
        job_opener="classification.glue:open_texts",
        predicts_sets=True,
        **_OF_WHOLE_TEXTS,
    ),
    Entry(
        name="classification",
        task_class="classification.classification:Classification",
        loader="classification.classification:load_texts",
        job_opener="classification.glue:open_texts",
        predicts_sets=True,
        **_OF_WHOLE_TEXTS,
        test="classification.classification:holds_texts",
    ),
    Entry(
        name="question_answering",
        architectures=("ForQuestionAnswering",),
        task_class="question_answering.question_answering:QuestionAnswering",
        loader="question_answering.question_answering:load_questions",
        job_opener="question_answering.question_answering:open_question_files",
        typed=("question", "context"),
        items_class="question_answering.question_answering:QuestionItems",
        served_class="question_answering.question_answering:QuestionAnswerer",
        test="question_answering.squad:holds_questions",
    ),
    Entry(
        name="token_classification",
        architectures=("ForTokenClassification",),
        task_class="token_classification.token_classification:TokenClassification",
        loader="token_classification.token_classification:load_sentences",
        job_opener="token_classification.token_classification:open_sentence_files",
        typed=("text",),
        items_class="token_classification.token_classification:SentenceItems",
        served_class="token_classification.token_classification:Tagger",
        test="token_classification.tagged:holds_words",
    ),
    Entry(
        name="multiple_choice",
        architectures=("ForMultipleChoice",),
        task_class="multiple_choice.multiple_choice:MultipleChoice",
        loader="multiple_choice.multiple_choice:load_choices",
        job_opener="multiple_choice.multiple_choice:open_choice_files",
        items_class="multiple_choice.multiple_choice:ChoiceItems",
        served_class="multiple_choice.multiple_choice:ChoiceRows",
        test="multiple_choice.questions:holds_choices",
    ),
    Entry(
        name="pretraining",
        architectures=("ForPreTraining", "ForMaskedLM"),
        task_class="pretraining.pretraining:Pretraining",
        loader="pretraining.pretraining:load_records",
        items_class="pretraining.pretraining:MaskedItems",
        accuracies=("masked_accuracy", "next_sentence_accuracy"),
    ),
)
"""In the order in which data are asked whose they are; a saved model is asked for the longest architecture first."""

_OF_TEXTS = "classification"
"""The task of texts with labels: what data are for if no other task claims them. Its labels may make it regression."""


def entry_of(task: str) -> Entry:
    """A task's row, by its name; for `auto`, that of texts with labels.

    Raises:
        UsageError: for another name, as a file of another version may have it.
    """
    by_name = {entry.name: entry for entry in ENTRIES}
    by_name["auto"] = by_name[_OF_TEXTS]
    if task not in by_name:
        raise UsageError(f"A task is one of {', '.join(by_name)}. Received: {task!r}. Pass one of these.")
    return by_name[task]


def task_of_model(saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> Task:
    """The task of a saved model: the one of its architecture, or else what transformers concludes from `problem_type`
    and the number of labels.

    Args:
        saved: Its configuration.
        directory: Where it is, for messages.
        options: They decide how its predictions are scored.

    Raises:
        UsageError: for a model of another task, or labels that cannot be told apart.
    """
    by_architecture = sorted(ENTRIES, key=lambda entry: -len(entry.architectures[0]))
    return next(entry for entry in by_architecture if entry.is_of(saved)).of_model(saved, directory, options)


def _named(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"{_FOLDER}.{module}"), name)


def detect_task(config: Config) -> Config:
    """The same configuration, with the task set if the training data are certainly questions or tagged words."""
    task = task_of_data(config.data) if config.data.task == "auto" else None
    return dataclasses.replace(config, data=dataclasses.replace(config.data, task=task)) if task else config


def task_of_data(data: DataConfig) -> str | None:
    """The only task that the training data can be for.

    Returns:
        None where they fit texts with a label, or no task, and for a data set of an unknown name: reading it says why.
    """
    if data.train_file:
        source = labelled_source(data.train_file)
    elif data.dataset in ("", "demo"):
        return None
    else:
        from tfbert.data.tfds_builder import find_builder, table_of  # imports TensorFlow Datasets

        try:
            source = table_of(find_builder(data.dataset, data.data_dir), data.dataset, "train")
        except UsageError:
            return None
    found = next((entry.name for entry in ENTRIES if entry.holds(source, data)), _OF_TEXTS)
    return None if found == _OF_TEXTS else found


def check_files(task: Task, data: DataConfig, paths: Iterable[str]) -> None:
    """Refuses files that are certainly not for a saved model's task.

    Raises:
        UsageError: naming the first such file.
    """
    # If the user chooses columns, the file may well fit another task. Any task may be for the texts of a table, whose
    # labels prediction does not read.
    others = [entry for entry in ENTRIES if entry.items_class != entry_of("auto").items_class]
    data = dataclasses.replace(data, text_column=named_by_user(*data.text_column))
    data = dataclasses.replace(data, label_column="".join(named_by_user(data.label_column)))
    for path in paths if not data.text_column else ():
        for entry in others:
            if entry.name != task.name and not is_pipe(path) and entry.holds(labelled_source(path), data):
                raise UsageError(
                    f"A file must fit the model's task. Received: {path!r}, which is for "
                    f"{entry.name.replace('_', ' ')}, and a model for {task.kind}. "
                    "Pass a model for that task, or another file, or the columns to read with --text_column."
                )
