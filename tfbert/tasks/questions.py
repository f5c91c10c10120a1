"""Where questions with their answers come from: files by name, a data set, or the built-in corpus."""

from __future__ import annotations

from tfbert.config.data import STANDARD_STREAM, DataConfig
from tfbert.data.demo_questions import demo_questions
from tfbert.data.questions import QuestionTable
from tfbert.data.sources import validation_names
from tfbert.data.squad import read_questions
from tfbert.data.streams import standard_input
from tfbert.errors import UsageError
from tfbert.tasks.base import eval_prefix


def read_training_questions(
    config: DataConfig, *, version_2_with_negative: bool
) -> tuple[dict[str, QuestionTable], tuple[str, ...]]:
    """Reads what a run trains and is evaluated on.

    Returns:
        By name, `train` first, then `validation...`, then `test`; and what the user should know, a line each.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no answers.
    """
    if not config.uses_files:
        return _by_name(config, version_2_with_negative, with_train=True), ()
    tables = {"train": _read(config, config.train_file, version_2_with_negative)}
    tables |= _validation(config, version_2_with_negative)
    notes = () if len(tables) > 1 else ("no validation_file: nothing is evaluated during training",)
    if config.test_file:
        tables["test"] = _read(config, config.test_file, version_2_with_negative)
    return tables, notes


def read_labelled_questions(config: DataConfig, *, version_2_with_negative: bool) -> dict[str, QuestionTable]:
    """Reads what a saved model is evaluated on.

    Returns:
        Tables by what their metrics are called: `eval`, `test`, ...

    Raises:
        UsageError: as above.
    """
    if config.uses_files:
        tables = _validation(config, version_2_with_negative)
    else:
        tables = _by_name(config, version_2_with_negative, with_train=False)
    found = {eval_prefix(name): table for name, table in tables.items()}
    if config.uses_files and config.test_file:
        found["test"] = _read(config, config.test_file, version_2_with_negative)
    return found


def _validation(config: DataConfig, version_2_with_negative: bool) -> dict[str, QuestionTable]:
    paths = config.validation_files
    names = validation_names(paths)
    return {name: _read(config, path, version_2_with_negative) for name, path in zip(names, paths, strict=True)}


def _read(config: DataConfig, path: str, version_2_with_negative: bool) -> QuestionTable:
    if not config.header or config.delimiter:
        raise UsageError(
            "Questions with answers come as JSON or .parquet, which have no delimiter and no header. "
            f"Received: header={config.header}, delimiter={config.delimiter!r}. Drop --noheader and --delimiter."
        )
    return read_questions(
        standard_input("test_file") if path == STANDARD_STREAM else path,
        format="jsonl" if config.input_format == "squad" else config.input_format,
        text_column=config.text_column,
        label_column=config.label_column,
        version_2_with_negative=version_2_with_negative,
        skip_bad_rows=config.skip_bad_rows,
    )


def _by_name(config: DataConfig, version_2_with_negative: bool, *, with_train: bool) -> dict[str, QuestionTable]:
    if config.dataset not in ("", "demo"):
        from tfbert.data.tfds_questions import read_tfds_questions  # imports TensorFlow Datasets

        return read_tfds_questions(
            config.dataset, config.data_dir, version_2_with_negative=version_2_with_negative, with_train=with_train
        )
    if config.text_column or config.label_column:
        raise UsageError(
            "The demo corpus has no columns to choose. Received: "
            f"text_column={','.join(config.text_column)!r}, label_column={config.label_column!r}. Drop them."
        )
    train, validation = demo_questions()
    return ({"train": train} if with_train else {}) | {"validation": validation}
