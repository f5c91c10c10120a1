"""Loads a fine-tuned model as its directory describes it: task, labels, single texts or pairs, and longest input.

Training writes what transformers has no name for into `config.json` under `tfbert`, so it stays with the model.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from typing import TYPE_CHECKING, Any, get_args

from tfbert.bert.build import build_model
from tfbert.config.data import LongTexts
from tfbert.config.given import Recorded
from tfbert.config.run import Config
from tfbert.data.foreign_files import read_json_object
from tfbert.devices.runtime import tell
from tfbert.devices.waiting import log_if_slow
from tfbert.errors import UsageError
from tfbert.model.bert_config import OWN_FIELD, record_inputs
from tfbert.model.configuration import load_config
from tfbert.model.files import load_tokenizer, resolve_model
from tfbert.output.output_dir import RUN_CONFIG
from tfbert.tasks.base import Task
from tfbert.tasks.registry import task_of_model
from tfbert.tasks.trained import TrainedModel

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig

log = logging.getLogger("tfbert")


def check_can(task: Task, what: str, mode: str) -> None:
    """Refuses a mode that does not exist for the model's task.

    Args:
        task: The model's task.
        what: What the registry has for the mode; empty if the task does not have it.
        mode: The mode.

    Raises:
        UsageError: for a model that was only pre-trained.
    """
    if not what:
        rule = f"--mode={mode} is for models that were fine-tuned"
        todo = "Fine-tune it first, or fill in words with tfbert.load(DIRECTORY)."
        raise UsageError(f"{rule}. Received: a model for {task.kind}. {todo}")


def saved_task(config: Config) -> Task:
    """The task of the model that a configuration names, without its weights.

    Raises:
        UsageError: for a directory that holds no fine-tuned model.
    """
    directory = resolve_model(config.model)
    assert directory is not None  # Config refuses scratch models in these modes.
    return task_of_model(load_config(directory), directory, config.task_options)


def as_saved(config: Config) -> Config:
    """The same configuration; where its user names no columns, those that its model was trained on, see `Recorded`."""
    data, has_input = config.data, config.data.uses_files or config.predict.input_file
    if not data.header or not (has_input or data.dataset not in ("", "demo")):
        return config
    directory = resolve_model(config.model)
    assert directory is not None  # Config refuses scratch models in these modes.
    noted = _trained_on(load_config(directory), directory).get("columns", {})
    columns = {option: tuple(map(Recorded, names)) for option, names in noted.items()}
    label = columns.get("label_column", ()) if config.mode != "predict" else ()
    data = dataclasses.replace(
        data,
        text_column=data.text_column or columns.get("text_column", ()),
        label_column=data.label_column or (label[0] if len(label) == 1 else ""),
    )
    choices = config.choosing.choice_columns or columns.get("choice_columns", ())
    return dataclasses.replace(config, data=data, choosing=dataclasses.replace(config.choosing, choice_columns=choices))


def load_trained_model(config: Config, directory: pathlib.Path | None = None) -> TrainedModel:
    """Loads the model that a configuration names; call it in the strategy's scope.

    The longest input is the one asked for, else the one the model was trained with, else the task's default.

    Args:
        config: In a mode that uses a saved model.
        directory: What `resolve_model` returned for it; None to call it.

    Raises:
        UsageError: for a directory that holds no fine-tuned model.
    """
    directory = directory or resolve_model(config.model)
    assert directory is not None  # Config refuses scratch models in these modes.
    saved = load_config(directory)
    task = task_of_model(saved, directory, config.task_options)
    task.check_options(config)
    trained = _trained_on(saved, directory)
    length, notes = _max_seq_length(config, trained, saved, task), []
    task = task.at_length(length, config.task_options, notes)
    tell(notes)
    tokenizer = load_tokenizer(config.model, directory, training_texts=())
    tokenizer = tokenizer.cutting(_long_texts(config, trained, directory))
    with log_if_slow("loading the weights"):
        classifier = build_model(
            config.model,
            directory,
            tokenizer=tokenizer,
            head=task.head(),
            max_seq_length=length,
            seed=config.runtime.seed,
            require_head=True,
        )
    num_texts, columns = trained.get("num_texts"), trained.get("columns", {})
    notes = task.notes() | tokenizer.notes()
    record_inputs(classifier.config, num_texts=num_texts, max_seq_length=length, columns=columns, **notes)
    return TrainedModel(
        name=config.model.model_name_or_path,
        classifier=classifier,
        tokenizer=tokenizer,
        task=task,
        num_texts=num_texts,
        max_seq_length=length,
        columns=columns,
    )


def _trained_on(saved: BertConfig, directory: pathlib.Path) -> dict[str, Any]:
    """`num_texts`, `max_seq_length`, `columns` and `long_texts`, if the directory gives them."""
    noted = getattr(saved, OWN_FIELD, None) or {}
    names = ("num_texts", "max_seq_length", "columns", "long_texts")
    found = {name: noted[name] for name in names if noted.get(name) is not None}
    try:
        data = read_json_object(directory / RUN_CONFIG, "").get("data")
    except UsageError:  # It does not exist, or is another program's.
        return found
    if isinstance(data, dict):
        length, columns, label = (data.get(name) for name in ("max_seq_length", "text_column", "label_column"))
        if type(length) is int and length > 1:
            found.setdefault("max_seq_length", length)
        if isinstance(columns, list) and len(columns) in (1, 2):
            found.setdefault("num_texts", len(columns))
        one = isinstance(label, str) and label and "," not in label  # Several are the names of labels.
        told = {"text_column": columns if isinstance(columns, list) else [], "label_column": [label] if one else []}
        found.setdefault("columns", {option: [*map(str, names)] for option, names in told.items() if names})
    return found


def _long_texts(config: Config, trained: dict[str, Any], directory: pathlib.Path) -> str:
    asked, own = config.data.long_texts, trained.get("long_texts", "cut")
    known = get_args(LongTexts)
    if asked is None and own not in known:
        raise UsageError(
            f"A model's long_texts is one of {', '.join(known)}. Received: {own!r:.80} in {directory / 'config.json'}. "
            "Repair it, or pass --long_texts."
        )
    if asked not in (None, own):
        log.info("Of long texts is kept what long_texts=%s says, as asked; the model was trained with %s.", asked, own)
    return asked or own


def _max_seq_length(config: Config, trained: dict[str, Any], saved: BertConfig, task: Task) -> int:
    asked, own = config.data.max_seq_length, trained.get("max_seq_length")
    if asked is not None:
        beside = f", as asked; the model was trained with {own}" if own not in (None, asked) else ""
        log.info("Inputs are at most %d tokens long%s.", asked, beside)
        return asked
    if own is not None:
        log.info("Inputs are at most %d tokens long, as in training.", own)
        return own
    length = min(task.default_max_seq_length, saved.num_positions)
    log.info("Inputs are at most %d tokens long; the model does not say what it was trained with.", length)
    return length
