"""Where tagged sentences come from: files by name, a data set, or the built-in corpus; and their tags in one scheme."""

from __future__ import annotations

import pathlib

from tfbert.config.data import STANDARD_STREAM, DataConfig
from tfbert.data.demo_tagged import demo_tagged_data
from tfbert.data.sources import validation_names
from tfbert.data.streams import standard_input
from tfbert.data.tagged import TaggedTable, read_sentences
from tfbert.errors import UsageError
from tfbert.tasks.base import eval_prefix
from tfbert.tasks.tags import invalid_transitions, scheme_of, to_iob2


def read_training_sentences(config: DataConfig) -> tuple[dict[str, TaggedTable], tuple[str, ...]]:
    """Reads what a run trains and is evaluated on.

    Returns:
        By name, `train` first, then `validation...`, then `test`; and what the user should know, a line each.

    Raises:
        UsageError: for data that is not there, cannot be read, or has no tags.
    """
    if not config.uses_files:
        return _by_name(config, with_train=True), ()
    tables = {"train": _read(config, config.train_file)} | _validation(config)
    notes = () if len(tables) > 1 else ("no validation_file: nothing is evaluated during training",)
    if config.test_file:
        tables["test"] = _read(config, config.test_file)
    return tables, notes


def read_labelled_sentences(config: DataConfig) -> dict[str, TaggedTable]:
    """Reads what a saved model is evaluated on.

    Returns:
        Tables by what their metrics are called: `eval`, `test`, ...

    Raises:
        UsageError: as above.
    """
    tables = _validation(config) if config.uses_files else _by_name(config, with_train=False)
    found = {eval_prefix(name): table for name, table in tables.items()}
    if config.uses_files and config.test_file:
        found["test"] = _read(config, config.test_file)
    return found


def in_iob2(table: TaggedTable, notes: list[str], *, strict: bool = False) -> list[list[str]]:
    """A table's tags in IOB2, where they have prefixes; a line in `notes` says what they were.

    Raises:
        UsageError: where `strict`, for a tag that cannot stand where it does in its scheme.
    """
    scheme = scheme_of(table.tags)
    if scheme.name not in ("IOB2", "none") or scheme.doubt:
        converted = ", converted to IOB2" * (scheme.name not in ("IOB2", "none"))
        notes.append(f"{table.name}: tags are {scheme.name}{scheme.doubt}{converted}")
    bad = invalid_transitions(table.tags, scheme)
    if bad is not None:
        after = f"{bad.tag!r} after {bad.previous!r}" if bad.previous else f"{bad.tag!r} at the start"
        after = after if bad.tag else f"{bad.previous!r} at the end"
        what = f"{bad.count:,} tags cannot stand where they do in {scheme.name}, the first {after}"
        if strict:
            raise UsageError(
                "With strict_entities, every tag must be able to follow the one before. "
                f"Received: {what} in the sentence of {table.where(bad.sentence)}. "
                "Correct them, or drop --strict_entities."
            )
        notes.append(
            f"warning: {table.name}: {what} in the sentence of {table.unit} {table.lines[bad.sentence]}: each starts "
            "an entity, as for conlleval"
        )
    return to_iob2(table.tags, scheme)


def _validation(config: DataConfig) -> dict[str, TaggedTable]:
    paths = config.validation_files
    return {name: _read(config, path) for name, path in zip(validation_names(paths), paths, strict=True)}


def _read(config: DataConfig, path: str) -> TaggedTable:
    if not config.header or config.delimiter:
        raise UsageError(
            "Files of tagged words have no header, and tabs or spaces between their columns. "
            f"Received: header={config.header}, delimiter={config.delimiter!r}. Drop --noheader and --delimiter."
        )
    return read_sentences(
        standard_input("test_file") if path == STANDARD_STREAM else pathlib.Path(path),
        format=config.input_format,
        text_column=config.text_column,
        label_column=config.label_column,
        skip_bad_rows=config.skip_bad_rows,
    )


def _by_name(config: DataConfig, *, with_train: bool) -> dict[str, TaggedTable]:
    if config.dataset not in ("", "demo"):
        from tfbert.data.tfds_tagged import read_tfds_tagged  # imports TensorFlow Datasets

        columns = (config.text_column, config.label_column)
        return read_tfds_tagged(config.dataset, config.data_dir, *columns, with_train=with_train)
    if config.text_column or config.label_column:
        raise UsageError(
            "The demo corpus has no columns to choose. Received: "
            f"text_column={','.join(config.text_column)!r}, label_column={config.label_column!r}. Drop them."
        )
    train, validation = demo_tagged_data()
    return ({"train": train} if with_train else {}) | {"validation": validation}
