"""Which examples a run is about: the options of data sets and files. Imports nothing but the standard library.

`config` puts the dataclass into `Config`; `commandline` makes flags of it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Literal

from tfbert.config.tables import OF_CLASSES, OF_ROWS, TaskName
from tfbert.config.types import COMPUTE, EVALUATE, EVERY, SEED, STANDARD_STREAM, TRAIN, Given, Options, option, problem

Batching = Literal["length_grouped", "padded", "packed"]
LongTexts = Literal["cut", "first_last", "windows"]
TEXT_TASKS = ("classification", "regression", "multi_label_classification")
"""The tasks of whole texts."""
InputFormat = Literal["auto", "text", "tsv", "csv", "jsonl", "parquet", "conll", "squad"]

_READING = (*COMPUTE, "prepare")
"""The modes that read data; an export reads none."""
TYPED_TEXTS = "--text"
"""What messages call texts that stand on the command line itself."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Options):
    """Which examples to train and evaluate on, and how they become batches."""

    dataset: str = option("", resume="content", modes=_READING)
    """`demo`, or a TensorFlow Datasets name such as `glue/sst2`. Empty: `demo`, unless files are given."""
    data_dir: str = option("", resume="content", modes=_READING)
    """Where TensorFlow Datasets finds prepared data. Empty: its own default (`~/tensorflow_datasets`)."""
    train_file: str = option("", resume="content", modes=TRAIN)
    """Training examples: .tsv, .csv, .jsonl, .json, .parquet, CoNLL files, SQuAD's .json; all but .parquet
    may be .gz. Or a directory: a folder of .txt files for each class."""
    validation_file: str = option("", resume="content", modes=EVALUATE, joined=True)
    """Examples evaluated during training, and by the mode evaluate: a file, or several separated by commas
    (MNLI has two; the first decides which weights are best). Empty: no evaluation during training."""
    validation_split: float | None = option(None, resume="same", modes=TRAIN, tasks=OF_ROWS, above=0, below=1)
    """Hold out this share of the training examples, such as 0.1, and evaluate on it during training: each class, or
    tag, keeps its share, and examples with the same text, or questions with the same context, stay together. Default:
    nothing is held out."""
    split_seed: int = option(SEED, resume="same", modes=TRAIN, tasks=OF_ROWS, needs="validation_split", least=0)
    """Which examples `validation_split` holds out; the same ones whatever `seed` is, so that seeds are compared on the
    same examples."""
    test_file: str = option("", resume="free", modes=("train", "evaluate"))
    """Labelled examples evaluated once, after training, with the model that is saved. `-` in `mode=evaluate`: standard
    input, with `input_format`."""
    input_format: InputFormat = option("auto", resume="content", modes=COMPUTE)
    """Format of all files that are read, whatever their names. `auto`: by each file's ending; `text`: one text a line,
    for standard input in `mode=predict`."""
    delimiter: str = option("", resume="content", modes=COMPUTE)
    """What separates the columns of .tsv and .csv files: a character, or `tab`. Empty: tab in .tsv, comma in .csv."""
    skip_bad_rows: bool = option(False, resume="content", modes=_READING)
    """Leave out rows of files that cannot be used, such as those with a column too many or without a label, and count
    them, rather than stop at the first one."""
    text_column: tuple[str, ...] = option((), resume="content", modes=EVERY)
    """One column, or two for pairs: names, or indexes from 0 where there is no header. Empty: found by name."""
    label_column: str = option("", resume="content", modes=EVALUATE, joined=True)
    """The label's column: a name or an index. For multi_label_classification also several columns of 0 and 1, separated
    by commas: one for each label. Empty: found by name."""
    label_names: tuple[str, ...] = option((), resume="content", modes=EVALUATE, tasks=OF_CLASSES)
    """What the labels 0, 1, 2, ... of the data mean: names in that order, separated by commas, or a file with one name
    a line. In training they are the model's classes, in this order; data may hold the names instead. Empty: labels are
    taken as they are, and numbers never for names."""
    header: bool = option(True, resume="content", modes=COMPUTE)
    """Whether .tsv and .csv files start with a line of column names."""
    task: TaskName = option("auto", resume="content", modes=TRAIN)
    """`auto` takes CoNLL files and lists of tags as token_classification, SQuAD's files as question_answering,
    questions with their choices as multiple_choice, texts with lists of labels or several label columns as
    multi_label_classification, labels with a fraction (0.5, 3.2) as regression and everything else as classification.
    In files, `classification` also accepts NA, N/A, None and null as class names; `auto` refuses them as missing."""
    max_seq_length: int | None = option(None, resume="same", modes=EVERY, least=8)
    """Longest input in tokens, `[CLS]` and `[SEP]` included. Longer texts are cut, or read in windows (`long_texts`);
    sentences to tag and contexts of questions are split instead. Default: in training 128 (384 for question_answering,
    256 for multiple_choice; in pre-training the length of the records, 128 in new ones), later the value that the model
    was trained with."""
    long_texts: LongTexts | None = option(None, resume="same", modes=EVERY, tasks=TEXT_TASKS)
    """Of a text longer than `max_seq_length`, `cut` keeps the beginning; `first_last` keeps a quarter of the tokens at
    its beginning and three quarters at its end (Sun et al. 2019), of each text of a pair; `windows` reads all of it, in
    as few windows of that length as hold it, and takes the mean of their logits. Default: in training `cut`, later what
    the model was trained with."""
    max_train_examples: int = option(0, resume="content", modes=TRAIN, least=0)
    """Train on this many examples, drawn at random but always the same ones. 0: all."""
    max_eval_examples: int = option(0, resume="content", modes=EVALUATE, least=0)
    """Evaluate on this many examples of each evaluation set, drawn the same way. 0: all."""
    batching: Batching = option("length_grouped", resume="same", modes=TRAIN)
    """`length_grouped` puts texts of similar length in one batch, padded to its longest; `padded` shuffles freely and
    pads every batch to `max_seq_length`, or to the longest text in windows; `packed` puts several texts, which do not
    attend to each other, in one row: every update has the same shape, almost without padding."""

    @property
    def uses_files(self) -> bool:
        """Whether the examples come from the user's own files."""
        return bool(self.train_file or self.validation_file or self.test_file)

    @property
    def is_built_in(self) -> bool:
        """Whether they are the built-in ones."""
        return not self.uses_files and self.dataset in ("", "demo")

    @property
    def validation_files(self) -> tuple[str, ...]:
        """`validation_file` as paths, or as data in memory."""
        if isinstance(self.validation_file, Given):
            return self.validation_file.parts or (self.validation_file,)
        whole = os.path.exists(self.validation_file)  # noqa: PTH110 (pathlib's raises where several are a long name)
        return (self.validation_file,) if whole else tuple(filter(None, self.validation_file.split(",")))

    @property
    def source(self) -> str:
        """What the data is called in logs: the training file's path, another file's, or the data set's name."""
        test = "standard_input" if self.test_file == STANDARD_STREAM else self.test_file
        files = (self.train_file, *self.validation_files, test)
        found = next(filter(None, files), self.dataset or "demo")
        return found.what if isinstance(found, Given) else found

    @property
    def separator(self) -> str:
        """`delimiter` as a character; empty where the format decides."""
        return "\t" if self.delimiter in ("tab", "\\t") else self.delimiter

    @property
    def label_names_file(self) -> str:
        """The file that `label_names` names; empty where it holds the names themselves."""
        return self.label_names[0] if len(self.label_names) == 1 else ""

    @property
    def has_validation_data(self) -> bool:
        """Whether training from files evaluates anything before its end."""
        return bool(self.validation_file) or self.validation_split is not None

    def rules(self) -> Iterator[str]:
        """A line for each rule that it breaks."""
        share, validation_file = self.validation_split, self.validation_file
        if self.dataset and self.uses_files:
            rule = "Data comes from a data set or from files, not both"
            yield problem(rule, "Drop one.", dataset=self.dataset, file=self.source)
        if share is not None and validation_file:
            rule = "Examples to evaluate on come from a file or from the training examples, not both"
            yield problem(rule, "Drop one.", validation_split=share, validation_file=validation_file)
        elif share is not None and self.is_built_in:
            rule = "validation_split is for your own data; the built-in data has both parts"
            yield problem(rule, "Drop it.", validation_split=share)
        if self.data_dir and (self.uses_files or self.dataset in ("", "demo")):
            rule = "data_dir is where TensorFlow Datasets keeps prepared data"
            yield problem(rule, "Pass --dataset=NAME or drop it.", data_dir=self.data_dir, dataset=self.dataset)
        if len(self.text_column) > 2:
            rule = "text_column takes one column, or two for pairs"
            yield problem(rule, "Name at most two.", text_column=self.text_column)
        if self.label_names and self.is_built_in:
            rule = "label_names says what numbers in your own data mean, not in the built-in data"
            yield problem(rule, "Drop it.", label_names=self.label_names)
        if len(self.separator) > 1 or self.separator in ('"', "\r", "\n"):
            todo = "Pass for example --delimiter=';' or --delimiter=tab."
            yield problem("delimiter must be one character, or tab", todo, delimiter=self.delimiter)
