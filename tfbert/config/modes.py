"""The rules about which options each mode takes. Imports nothing but the standard library."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tfbert.config.data import STANDARD_STREAM, is_pipe
from tfbert.config.parts import Parts
from tfbert.config.task_table import facts_of


def mode_problems(config: Parts) -> list[str]:
    """Options that do not fit the mode, a line each: options without an effect in it, and options that it lacks."""
    rules = {"train": _train, "evaluate": _evaluate, "predict": _predict, "export": _export, "prepare": _prepare}
    return _without_effect(config) + _files(config) + rules[config.mode](config)


def _without_effect(config: Parts) -> list[str]:
    """A line for each option that was changed from its default and that the mode would ignore."""
    out, given = [], config.given()
    if facts_of(config.data.task).of_records:
        given.pop("task", None)  # The command sets it, not its user.
    for field in [field for part in config.parts() for field in dataclasses.fields(part)]:
        name, modes = field.name, field.metadata["modes"]
        if name in given and config.mode not in modes:
            other = f", or add --mode={modes[0]}" if config.mode == "train" and len(modes) == 1 else ""
            todo = f"Drop --{f'no{name}' if given[name] is False else name}{other}."
            if (name, config.mode) == ("input_files", "train"):
                todo = "Make records of them with --mode=prepare, and train with --train_records=DIRECTORY."
            rule = f"{name} has no effect with mode={config.mode}"
            out.append(f"{rule}. Received: {name}={given[name]!r}. {todo}")
    return out


def _files(config: Parts) -> list[str]:
    """What concerns the reading of files, in any mode."""
    data, out = config.data, []
    if config.mode == "export":
        return []  # It reads none.
    if not data.uses_files and not config.predict.input_file and not config.corpus.input_files:
        out += idle(config.given("input_format", "delimiter", "skip_bad_rows"), "files", "without any")
    elif data.uses_files and not data.reads_files:
        out += idle(config.given("input_format", "delimiter", "header"), "files", "with data in memory")
    elif data.input_format == "text" and config.mode != "predict":
        out.append("Plain text has no labels. Received: input_format='text'. Pass another format, or --mode=predict.")
    for name, file in config.given("input_file", "test_file").items():
        if is_pipe(file) and config.runtime.strategy == "multi_worker":
            rule = "Every worker reads the input, but only one has standard input or a pipe"
            todo = "Pass a file that all workers see."
            out.append(f"{rule}. Received: {name}={file!r} with strategy='multi_worker'. {todo}")
    return out


def idle(given: Mapping[str, Any], needs: str, received: str) -> list[str]:
    """A line for each option that was given but has no effect for want of something."""
    return [
        f"{name} takes effect with {needs} only. Received: {name}={value!r} {received}. "
        f"Drop --{f'no{name}' if value is False else name}."
        for name, value in given.items()
    ]


def replaced(given: Mapping[str, Any], by: str) -> list[str]:
    """A line for each option that was given beside another one that takes its place."""
    return [
        f"{by} takes the place of {name}. Received: {name}={value!r} beside it. Drop --{name}."
        for name, value in given.items()
    ]


def one_output(config: Parts, what: str, makes: str) -> list[str]:
    """What does not go with several runs: an upload, and several workers."""
    out = []
    if config.hub.push_to_hub:
        rule = f"An upload is one model, but {makes}"
        out.append(f"{rule}. Received: push_to_hub with {what}. Drop --push_to_hub, and upload the best model by hand.")
    if config.runtime.strategy == "multi_worker":
        todo = "Start the workers once for each run, and compare the runs: tfbert report RUN_DIR RUN_DIR."
        out.append(f"With {what}, each run is a single process. Received: strategy='multi_worker'. {todo}")
    return out


def _train(config: Parts) -> list[str]:
    out, records = [], config.pretraining.train_records
    if not config.model.model_name_or_path and (records or not config.data.is_built_in):
        # Random weights would learn little, and nobody would know.
        rule, data = "Data of your own needs a model to start from", ",".join(records) or config.data.source
        todo = "Pass --model=bert-base-uncased or another pretrained one; --model=scratch/tiny has random weights."
        out.append(f"{rule}. Received: model_name_or_path='' with {data}. {todo}")
    if config.runtime.seeds:
        out += one_output(config, "seeds", "several seeds make several")
    if config.output.keep_adapter and not config.training.lora_rank:
        out += idle(config.given("keep_adapter"), "lora_rank", "with lora_rank=0")
    elif config.output.keep_adapter and config.model.is_scratch:
        rule = "An adapter is read beside the model that it began with, and random weights are not kept"
        received = f"keep_adapter=True with model_name_or_path={config.model.name!r}"
        out.append(f"{rule}. Received: {received}. Drop --keep_adapter: the trained model is whole.")
    if facts_of(config.data.task).of_records:
        return out + _pretrain(config)
    if config.data.test_file == STANDARD_STREAM:
        rule = "Standard input is for mode=evaluate and mode=predict"
        out.append(f"{rule}. Received: test_file='-' with mode={config.mode}. Pass a file, or --mode=evaluate later.")
    if config.data.uses_files and not config.data.train_file:
        out.append("Training from files needs a training file. Received: train_file=''. Pass --train_file.")
    if config.data.uses_files and not config.data.has_validation_data:
        out += _unevaluated(config, "examples", "validation_file", "--validation_file or --validation_split")
    return out + _indexes(config, ("text_column", "label_column"))


def evaluation_options(config: Parts) -> dict[str, int | str]:
    """Of the options that concern evaluation during training, those that were given, by name."""
    return config.given("early_stopping_patience", "metric_for_best_model", "eval_steps")


def _unevaluated(config: Parts, what: str, option: str, todo: str) -> list[str]:
    return [
        f"{name} needs {what} to evaluate on during training. Received: {name}={value!r} with {option}=''. Pass {todo}."
        for name, value in evaluation_options(config).items()
    ]


def _evaluate(config: Parts) -> list[str]:
    out = []
    if facts_of(config.data.task).of_records:
        if not config.pretraining.validation_records:
            out.append("Evaluation needs records. Received: validation_records=''. Pass --validation_records.")
        return _read_by_prepare(config) + out + _saved_model(config)
    if not config.data.dataset and not config.data.uses_files:
        rule = "Evaluation needs labelled examples"
        todo = "Pass --dataset=NAME, --validation_file or --test_file."
        out.append(f"{rule}. Received: dataset='', validation_file=''. {todo}")
    if config.data.test_file == STANDARD_STREAM and config.data.input_format == "auto":
        rule = "Standard input has no name that tells its format"
        out.append(f"{rule}. Received: test_file='-' with input_format='auto'. Pass --input_format=tsv, csv or jsonl.")
    return out + _saved_model(config) + _indexes(config, ("text_column", "label_column"))


def _predict(config: Parts) -> list[str]:
    out, predict = [], config.predict
    sources = {"text": predict.text, "input_file": predict.input_file, "dataset": config.data.dataset}
    if sum(map(bool, sources.values())) != 1:
        given = ", ".join(f"{name}={value!r}" for name, value in sources.items() if value) or "input_file=''"
        rule = "Prediction needs one source of texts"
        out.append(f"{rule}. Received: {given}. Pass --input_file, --text='a text', or a GLUE task with --dataset.")
    name = predict.input_file
    if name not in ("", STANDARD_STREAM) and is_pipe(name) and config.data.input_format == "auto":
        if not pathlib.Path(name).suffix:
            rule = "A pipe has no ending that tells its format"
            todo = "Pass --input_format, such as text or tsv."
            out.append(f"{rule}. Received: input_file={name!r} with input_format='auto'. {todo}")
    if config.data.dataset and not config.data.dataset.startswith("glue/"):
        rule = "Of the data sets, only GLUE's test sets can be predicted"
        todo = "Pass --dataset=glue/NAME, or a file with --input_file."
        out.append(f"{rule}. Received: dataset={config.data.dataset!r}. {todo}")
    if predict.text:
        out += idle(config.given("glue_task", "id_column", "text_column", "header"), "input_file", "with text")
        if len(predict.text_pair) not in (0, len(predict.text)):
            received = f"text {len(predict.text)} times, text_pair {len(predict.text_pair)} times"
            out.append(f"Each text of a pair has its second text. Received: {received}. Pass as many of both.")
    elif config.data.dataset:
        out += idle(config.given("glue_task", "id_column"), "input_file", f"with dataset={config.data.dataset!r}")
    is_glue = bool(predict.glue_task or config.data.dataset)
    if is_glue and (predict.output_file != STANDARD_STREAM or predict.output_format != "auto"):
        rule = "GLUE's submission files have names and a format of their own"
        received = f"output_file={predict.output_file!r}, output_format={predict.output_format!r}"
        out.append(f"{rule}. Received: {received}. Pass --output_dir instead.")
    if config.output.output_dir and not is_glue:
        rule = "Predictions go to output_file; output_dir is for GLUE's submission files"
        out.append(f"{rule}. Received: output_dir={config.output.output_dir!r}. Pass --output_file.")
    return out + _saved_model(config) + _indexes(config, () if predict.text else ("text_column",))


def _export(config: Parts) -> list[str]:
    out = []
    if not config.output.output_dir:
        out.append("An export needs a directory. Received: output_dir=''. Pass --output_dir.")
    export_format, columns = config.export.export_format, config.data.text_column
    if export_format in ("onnx", "tflite") and columns:
        rule = f"export_format={export_format} writes a model of token ids, which takes no texts"
        out.append(f"{rule}. Received: text_column={','.join(columns)}. Drop --text_column.")
    return out + _saved_model(config)


def _prepare(config: Parts) -> list[str]:
    out = []
    if not config.output.output_dir:
        out.append("Records need a directory. Received: output_dir=''. Pass --output_dir.")
    if config.corpus.input_files and config.data.dataset:
        received = f"input_files={','.join(config.corpus.input_files)!r}, dataset={config.data.dataset!r}"
        out.append(f"A corpus comes from files or from a data set, not both. Received: {received}. Drop one.")
    model, vocab, learned = config.model.model_name_or_path, config.model.vocab_file, config.corpus.learn_vocab
    if model and config.model.is_scratch:
        rule = "A scratch model has no vocabulary yet"
        out.append(f"{rule}. Received: model_name_or_path={model!r}. Pass --learn_vocab, or --vocab_file.")
    elif [bool(model), bool(vocab), bool(learned)].count(True) != 1:
        rule = "Preparing a corpus takes a model's tokenizer, a vocabulary from a file, or learns one from the corpus"
        received = f"model_name_or_path={model!r}, vocab_file={vocab!r}, learn_vocab={learned}"
        out.append(f"{rule}. Received: {received}. Pass one of them.")
    if len(config.data.text_column) > 1:
        rule = "A document is the text of one column"
        out.append(f"{rule}. Received: text_column={','.join(config.data.text_column)!r}. Name one.")
    return out


def _read_by_prepare(config: Parts) -> list[str]:
    """Options of a corpus that were given where records are read."""
    return [
        f"Pre-training reads prepared records. Received: {name}={value!r}. "
        "Make records of it with --mode=prepare, and pass --train_records."
        for name, value in config.given("dataset", "data_dir", "text_column").items()
        if value != "demo"
    ]


def _pretrain(config: Parts) -> list[str]:
    out, options = _read_by_prepare(config), config.pretraining
    if options.validation_records and not options.train_records:
        rule = "With validation_records, training needs train_records too"
        out.append(f"{rule}. Received: train_records=''. Pass --train_records.")
    if options.train_records and not options.validation_records:
        out += _unevaluated(config, "records", "validation_records", "--validation_records")
    return out


def _saved_model(config: Parts) -> list[str]:
    if not config.model.is_scratch:
        return []
    rule = f"mode={config.mode} needs a trained model"
    return [f"{rule}. Received: model_name_or_path={config.model.model_name_or_path!r}. Pass a run's output directory."]


def _indexes(config: Parts, names: tuple[str, ...]) -> list[str]:
    """Columns given by name where there is no header, and so no names."""
    out = []
    for name in () if config.data.header else names:
        values = getattr(config.data, name)
        values = values.split(",") if isinstance(values, str) else values
        if not values or not all(value.isdigit() for value in values):
            rule = f"Without a header, {name} must be given as indexes from 0"
            out.append(f"{rule}. Received: {name}={','.join(values)!r}. Pass for example --{name}=0.")
    return out
