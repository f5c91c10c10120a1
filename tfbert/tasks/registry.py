"""The tasks, a row each: what a run, a saved model and each mode ask a task for. Nothing of a task is imported before
that, and no other module compares tasks by name.

Detects the task where the data can be for no other, such as questions in SQuAD's form.
"""

from __future__ import annotations

import dataclasses
import pathlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfbert.config.data import DataConfig
from tfbert.config.types import is_pipe
from tfbert.data.files import named_by_user
from tfbert.data.rows import Source, input_source
from tfbert.errors import UsageError

if TYPE_CHECKING:
    from tfbert.config.run import Config
    from tfbert.config.tasks import TaskOptions
    from tfbert.model.files import BertConfig
    from tfbert.tasks.base import Task


class Named(str):
    """`MODULE:NAME` in `tfbert.tasks`, which is imported when it is used; empty where a task has none."""

    @property
    def value(self) -> Any:
        """What it names."""
        return pkgutil.resolve_name(f"tfbert.tasks.{self}")

    def __call__(self, *args: Any) -> Any:
        return self.value(*args)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A task.

    Attributes:
        name: What `--task` calls it.
        architectures: How the class of its saved models ends in `config.json`.
        matches: Whether a saved model of these architectures is of this task.
        task: Its `Task`, whose `of_model` makes the task of a saved model.
        load: Reads what a run trains and evaluates on: takes `DataConfig` and `TaskOptions`, returns `TaskData`.
        open_jobs: Opens what `--mode=predict` reads: takes a `Config`, returns a list of `Job`.
        predicts_sets: Whether it predicts the test sets of data sets.
        typed: What `--text` and, where there are two, `--text_pair` hold; empty where the task takes neither.
        items: The `Items` that a model of it is used on, in Python and in files.
        served: The `ServedModel` that `--mode=export` saves.
        test: Whether a file, a table in memory or a data set can be for no other task; takes it and a `DataConfig`.
        accuracies: How the names of accuracies end that its report plots together.
    """

    name: str
    architectures: tuple[str, ...]
    matches: Callable[[BertConfig], bool] = lambda saved: True
    task: Named
    load: Named
    open_jobs: Named = Named()
    predicts_sets: bool = False
    typed: tuple[str, ...] = ()
    items: Named
    served: Named = Named()
    test: Named = Named()
    accuracies: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Its folder. There, `report.html` is the template of its report, `run.html` with the blocks `breakdown` and
        `worst`; `usage.md` is Python for its card, which uses a model through transformers and PyTorch."""
        return re.split("[.:]", self.task)[0]

    def holds(self, source: Source, config: DataConfig) -> bool:
        """Whether a file, a table in memory or a data set can be for no other task."""
        return bool(self.test) and self.test(source, config)


_OF_WHOLE_TEXTS: Any = {
    "architectures": ("",),
    "typed": ("text", "second text"),
    "items": Named("text_task:TextItems"),
    "served": Named("text_task:TextClassifier"),
}
ENTRIES = (
    Entry(
        name="multi_label_classification",
        matches=lambda saved: saved.problem_type == "multi_label_classification",
        task=Named("multi_label.multi_label_classification:MultiLabelClassification"),
        load=Named("multi_label.multi_label_classification:load_label_sets"),
        open_jobs=Named("text_task:open_texts"),
        **_OF_WHOLE_TEXTS,
        test=Named("multi_label.table:holds_label_sets"),
    ),
    Entry(
        name="regression",
        matches=lambda saved: saved.problem_type == "regression" or saved.num_labels == 1,
        task=Named("classification.classification:Regression"),
        load=Named("classification.classification:load_texts"),
        open_jobs=Named("classification.glue:open_texts"),
        predicts_sets=True,
        **_OF_WHOLE_TEXTS,
    ),
    Entry(
        name="classification",
        task=Named("classification.classification:Classification"),
        load=Named("classification.classification:load_texts"),
        open_jobs=Named("classification.glue:open_texts"),
        predicts_sets=True,
        **_OF_WHOLE_TEXTS,
        test=Named("classification.classification:holds_texts"),
    ),
    Entry(
        name="question_answering",
        architectures=("ForQuestionAnswering",),
        task=Named("question_answering.question_answering:QuestionAnswering"),
        load=Named("question_answering.question_answering:load_questions"),
        open_jobs=Named("question_answering.question_answering:open_question_files"),
        typed=("question", "context"),
        items=Named("question_answering.question_answering:QuestionItems"),
        served=Named("question_answering.question_answering:QuestionAnswerer"),
        test=Named("question_answering.squad:holds_questions"),
    ),
    Entry(
        name="token_classification",
        architectures=("ForTokenClassification",),
        task=Named("token_classification.token_classification:TokenClassification"),
        load=Named("token_classification.token_classification:load_sentences"),
        open_jobs=Named("token_classification.token_classification:open_sentence_files"),
        typed=("text",),
        items=Named("token_classification.token_classification:SentenceItems"),
        served=Named("token_classification.token_classification:Tagger"),
        test=Named("token_classification.tagged:holds_words"),
    ),
    Entry(
        name="multiple_choice",
        architectures=("ForMultipleChoice",),
        task=Named("multiple_choice:MultipleChoice"),
        load=Named("multiple_choice:load_choices"),
        open_jobs=Named("multiple_choice:open_choice_files"),
        items=Named("multiple_choice:ChoiceItems"),
        served=Named("multiple_choice:ChoiceRows"),
        test=Named("multiple_choice:holds_choices"),
    ),
    Entry(
        name="pretraining",
        architectures=("ForPreTraining", "ForMaskedLM"),
        task=Named("pretraining:Pretraining"),
        load=Named("pretraining:load_records"),
        items=Named("pretraining:MaskedItems"),
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
    own = (saved.architectures or [""])[0]
    found = next(entry for entry in by_architecture if own.endswith(entry.architectures) and entry.matches(saved))
    return found.task.value.of_model(saved, directory, options)


def detect_task(config: Config) -> Config:
    """The same configuration, with the task set if it is the only one that the training data can be for. Not where they
    fit texts with a label, or no task, nor for a data set of an unknown name: reading it says why."""
    data = config.data
    if data.task != "auto" or (not data.train_file and data.dataset in ("", "demo")):
        return config
    if data.train_file:
        source = input_source(data.train_file, "train_file")
    else:
        from tfbert.data.tfds_builder import find_builder, table_of  # imports TensorFlow Datasets

        try:
            source = table_of(find_builder(data.dataset, data.data_dir), data.dataset, "train")
        except UsageError:
            return config
    task = next((entry.name for entry in ENTRIES if entry.holds(source, data)), _OF_TEXTS)
    return config if task == _OF_TEXTS else dataclasses.replace(config, data=dataclasses.replace(data, task=task))


def check_files(task: Task, data: DataConfig, paths: Iterable[str]) -> None:
    """Refuses files that are certainly not for a saved model's task.

    Raises:
        UsageError: naming the first such file.
    """
    # If the user chooses columns, the file may well fit another task. Any task may be for the texts of a table, whose
    # labels prediction does not read.
    others = [entry for entry in ENTRIES if entry.items != entry_of("auto").items]
    data = dataclasses.replace(data, text_column=named_by_user(*data.text_column))
    data = dataclasses.replace(data, label_column="".join(named_by_user(data.label_column)))
    for path in paths if not data.text_column else ():
        for entry in others:
            if entry.name != task.name and not is_pipe(path) and entry.holds(input_source(path), data):
                received = f"{path!r}, which is for {entry.name.replace('_', ' ')}, and a model for {task.kind}"
                todo = "Pass a model for that task, or another file, or the columns to read with --text_column."
                raise UsageError(f"A file must fit the model's task. Received: {received}. {todo}")
