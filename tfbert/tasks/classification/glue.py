"""The tasks of GLUE (Wang et al. 2018): the metric each is judged by, and the files its server takes.

A submission file is tab-separated, with the columns `index` and `prediction` (0 or 1, a word, or a score). Each task's
file has its own name.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Sequence

from tfbert.config.run import Config
from tfbert.data.reading import OpenFile
from tfbert.errors import UsageError
from tfbert.tasks import text_task
from tfbert.tasks.prediction import Answered, Items, Job, Lines, open_text_file, table_job


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One test set.

    Attributes:
        file: Name of its submission file.
        labels: What the file holds for each class, in the order of TensorFlow Datasets' classes; empty for a score.
        names: TensorFlow Datasets' name of each class.
    """

    file: str
    labels: tuple[str, ...] = ("0", "1")
    names: tuple[str, ...] = ()

    def predictions(self, label_names: Sequence[str]) -> list[str]:
        """What to write for each of a model's classes.

        Args:
            label_names: The model's labels: as in TensorFlow Datasets, as in GLUE's files, or, where these have 0 and
                1, LABEL_0 and LABEL_1.

        Raises:
            UsageError: for any other labels.
        """
        unnamed = tuple(f"LABEL_{i}" for i in range(len(self.labels)))
        is_unnamed = sorted(label_names) == sorted(unnamed)
        numbered = unnamed if self.names else ()  # Models number words in different orders.
        for known in filter(None, (self.names, self.labels, numbered)):
            written = dict(zip(known, self.labels, strict=True))
            if sorted(written) == sorted(label_names):
                return [written[name] for name in label_names]
        rule = f"The model's labels must be those of the task: {', '.join(self.labels) or 'a score'}"
        todo = f"{'Name them under id2label in its config.json' if is_unnamed else 'Pass a model of this task'}."
        raise UsageError(f"{rule}. Received: {', '.join(label_names) or 'a model for regression'}. {todo}")


_THREE = ("entailment", "neutral", "contradiction")
_TWO = ("entailment", "not_entailment")

TASKS = {
    "cola": GlueTask(file="CoLA.tsv", names=("unacceptable", "acceptable")),
    "sst2": GlueTask(file="SST-2.tsv", names=("negative", "positive")),
    "mrpc": GlueTask(file="MRPC.tsv", names=("not_equivalent", "equivalent")),
    "stsb": GlueTask(file="STS-B.tsv", labels=()),
    "qqp": GlueTask(file="QQP.tsv", names=("not_duplicate", "duplicate")),
    "mnli-m": GlueTask(file="MNLI-m.tsv", labels=_THREE),
    "mnli-mm": GlueTask(file="MNLI-mm.tsv", labels=_THREE),
    "qnli": GlueTask(file="QNLI.tsv", labels=_TWO),
    "rte": GlueTask(file="RTE.tsv", labels=_TWO),
    "wnli": GlueTask(file="WNLI.tsv", names=("not_entailment", "entailment")),
    "ax": GlueTask(file="AX.tsv", labels=_THREE),
}
"""By the name of the flag `glue_task`."""

_SPLITS = {"test_matched": "-m", "test_mismatched": "-mm"}
_DECISIVE = {"cola": "matthews_correlation", "mrpc": "f1", "qqp": "f1"}


def task_of_split(dataset: str, split: str) -> str:
    """The task of a data set's test split: `glue/mnli`, `test_matched` -> `mnli-m`.

    Raises:
        UsageError: for a data set that is not in GLUE.
    """
    name = f"{dataset.partition(':')[0].removeprefix('glue/')}{_SPLITS.get(split, '')}"
    if name not in TASKS:
        rule = f"GLUE's tasks are {', '.join(TASKS)}"
        raise UsageError(f"{rule}. Received: dataset={dataset!r}, {split!r}. Pass one of them.")
    return name


def decisive_metric(dataset: str) -> str | None:
    """The metric that decides which weights of a GLUE task are kept; None: the default metric of the task's kind."""
    return _DECISIVE.get(dataset.partition(":")[0].removeprefix("glue/")) if dataset.startswith("glue/") else None


def score_text(score: float) -> str:
    """STS-B's score as its file holds it: within 0 to 5, three decimals."""
    return f"{min(max(score, 0.0), 5.0):.3f}"


def open_texts(config: Config) -> list[Job]:
    """The texts of a file or of GLUE's test sets to predict, and where the predictions go.

    Raises:
        UsageError: as `text_task.open_texts`.
    """
    asked = config.predict
    if config.data.dataset:
        from tfbert.data.tfds_builder import open_tests  # imports TensorFlow Datasets

        files = open_tests(config.data.dataset, config.data.data_dir, config.data.text_column)
        return [_job(config, file, task_of_split(config.data.dataset, split)) for split, file in files.items()]
    if not asked.glue_task:
        return text_task.open_texts(config)
    return [_job(config, open_text_file(config), asked.glue_task)]


def _job(config: Config, file: OpenFile, name: str) -> Job:
    path, lines = pathlib.Path(config.output.output_dir) / TASKS[name].file, functools.partial(submission, TASKS[name])
    return table_job(config, file, path=path, format="glue", lines=lines)


def submission(task: GlueTask, items: Items) -> Lines:
    """A submission to GLUE's server: `index` and `prediction`, in the order of the indexes.

    Args:
        task: The task of the test set.
        items: The model's.

    Raises:
        UsageError: for a model with other labels than the task's.
    """
    names = items.task.label_names
    written = dict(zip(names, task.predictions(names), strict=True)) if task.labels or names else {}

    def lines(answers: Answered) -> Iterator[str]:
        yield "index\tprediction"
        rows: list[tuple[int, str]] = []  # The largest test set has 390,965.
        for item, record in answers:
            try:
                index = int(item.name)
            except ValueError:
                rule = "GLUE's ids must be numbers"
                raise UsageError(f"{rule}. Received: id {item.name!r}. Pass their column with --id_column.") from None
            rows.append((index, written[record["label"]] if written else score_text(float(record["score"]))))
        yield from (f"{index}\t{text}" for index, text in sorted(rows))

    return lines
