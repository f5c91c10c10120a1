"""`README.md` of a trained model: what it was trained on and how, how good it is, and how to use it."""

from __future__ import annotations

import pathlib
import re
import shlex

import tensorflow as tf
from huggingface_hub import ModelCardData

from tfbert.config.run import Config, command_of, option_words
from tfbert.config.types import counted, rate_text
from tfbert.model.keras_hub import may_be_built_in
from tfbert.report.pages import CONTROL, Table, render, visible
from tfbert.report.run_files import environment
from tfbert.tasks.base import TaskData
from tfbert.tasks.registry import entry_of

_WHERE_IT_GOES = ("output_dir", "overwrite_output_dir")
_NOT_EVALUATED = "The model was not evaluated.\n"


def model_card(
    config: Config,
    data: TaskData,
    results: dict[str, float],
    *,
    version: str,
    model_type: str,
    directory: pathlib.Path,
    head_start: str = "",
) -> str:
    """The card as Markdown, with the metadata that the Hugging Face hub reads.

    Args:
        config: The run, its defaults resolved.
        data: What it was trained on.
        results: As in `all_results.json`.
        version: Of tfbert.
        model_type: Of the model, as in its `config.json`.
        directory: Where the model is.
        head_start: A sentence on where a new head started; may be empty.
    """
    metrics = {name: f"{value:.4f}" for name, value in results.items() if name.startswith(("eval_", "test_"))}
    metadata = {"library_name": "transformers", "pipeline_tag": data.task.pipeline_tag, "tags": [model_type, "tfbert"]}
    if not config.model.is_scratch and _is_hub_name(config.model.model_name_or_path):
        metadata["base_model"] = config.model.model_name_or_path
    if metrics:
        names = dict.fromkeys(name.split("_", 1)[1] for name in metrics if name.startswith("eval_"))
        # Counts and thresholds that come with some metrics are not metrics.
        known = tuple(name for name in data.task.metric_names if name != "loss")
        metadata["metrics"] = [name for name in names if name.endswith(known)]
    sets = [(name, part.name, f"{len(part):,}") for name, part in {"training": data.train, **data.sets}.items()]
    # TensorFlow is also installed under other names.
    versions = {"tfbert": version, "tensorflow": tf.__version__} | environment()["versions"]
    return render(
        "model_card.md",
        metadata=ModelCardData(**metadata).to_yaml(),
        name=config.model.model_name_or_path,
        source=config.source,
        task=data.task,
        model_type=model_type,
        num_texts=data.train.num_texts,
        classes=", ".join(map(_code, data.task.label_names)),
        sets=Table(names=("set", "from", "examples"), body=sets).markdown(),
        max_seq_length=config.data.max_seq_length,
        has_windows=config.data.long_texts == "windows",
        metrics=Table(names=("metric", "value"), body=[*metrics.items()]).markdown() if metrics else _NOT_EVALUATED,
        command=command_line(config),
        updates=counted(round(results["global_step"]), "update"),
        results=results,
        training=config.training,
        has_adapter=config.output.keep_adapter,
        batch=counted(config.training.global_batch_size, "example"),
        rate=rate_text(results["train_samples_per_second"]),
        head_start=head_start,
        versions=Table(names=("package", "version"), body=[*versions.items()]).markdown(),
        usage=f"{entry_of(data.task.name).folder}/usage.md",
        place=_string(str(directory)),
    )


def command_line(config: Config) -> str:
    """The command that repeats a run: each option that is not at its default."""
    command = command_of(config)
    return " ".join([command.started, *map(_shell_word, option_words(config, _WHERE_IT_GOES))])


def _is_hub_name(name: str) -> bool:
    """Whether a name can be the hub's, OWNER/NAME or NAME; not if it is a directory or a file, which would have been
    read, or a name of KerasHub's."""
    is_local = name.startswith((".", "/", "~")) or pathlib.Path(name).exists()
    return name.count("/") <= 1 and not is_local and not may_be_built_in(name)


def _code(text: str) -> str:
    """A text as a code span, in a fence of more backticks than it has in a row."""
    text = visible(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if not text.strip(" ") or text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def _string(text: str) -> str:
    """A text as Python writes it, in double quotes where it can be."""
    return f'"{text}"' if text.isprintable() and not {*text} & {*'"\\'} else repr(text)


def _shell_word(word: str) -> str:
    """As `shlex.quote`, on one line: a line end would end the card's block of code."""
    if not CONTROL.search(word):
        return shlex.quote(word)
    escaped = re.sub(r"[\\']", r"\\\g<0>", word)
    return "$'" + CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped) + "'"
