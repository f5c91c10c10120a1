"""The rules about which options each mode takes. Imports nothing but the standard library."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from tfbert.config.benchmark import AXES
from tfbert.config.data import STANDARD_STREAM, is_pipe
from tfbert.config.parts import Parts, PredictConfig
from tfbert.config.task_table import facts_of

_OF_FILES = ("input_format", "delimiter", "skip_bad_rows")
_OF_PATHS = ("input_format", "delimiter", "header")


def mode_problems(config: Parts) -> list[str]:
    """Options that do not fit the mode, a line each: options without an effect in it, and options that it lacks."""
    out = [problem for part in config.parts() for problem in _without_effect(part, config.mode)]
    rules = {"train": _train, "evaluate": _evaluate, "predict": _predict, "export": _export, "benchmark": _benchmark}
    rules["prepare"] = _prepare
    return out + _files(config) + rules[config.mode](config)


_TODO = {
    ("input_files", "train"): "Make records of them with --mode=prepare, and train with --train_records=DIRECTORY.",
}
"""What to do about an option that a mode ignores, where it is not to drop it."""


def _without_effect(part: Any, mode: str) -> list[str]:
    """A line for each option that was changed from its default and that the mode would ignore."""
    ignored = [field for field in dataclasses.fields(part) if mode not in field.metadata["modes"]]
    return [
        f"{field.name} has no effect with mode={mode}. Received: {field.name}={getattr(part, field.name)!r}. "
        + _TODO.get((field.name, mode), f"Drop --{field.name}{_other_mode(field, mode)}.")
        for field in ignored
        # The command sets the task of records, not its user.
        if getattr(part, field.name) != field.default and not (field.name == "task" and facts_of(part.task).of_records)
    ]


def _other_mode(field: dataclasses.Field, mode: str) -> str:
    """The only mode that takes an option, as a way out where the default may have been forgotten."""
    modes = field.metadata["modes"]
    return f", or add --mode={modes[0]}" if mode == "train" and len(modes) == 1 else ""


def _files(config: Parts) -> list[str]:
    """What concerns the reading of files, in any mode."""
    data, out = config.data, []
    if not data.uses_files and not config.predict.input_file and not config.corpus.input_files:
        defaults = {field.name: field.default for field in dataclasses.fields(data)}
        out += [
            f"{name} takes effect with files only. Received: {name}={getattr(data, name)!r} without any. Drop --{name}."
            for name in _OF_FILES
            if getattr(data, name) != defaults[name]
        ]
    elif data.uses_files and not data.reads_files:
        defaults = {field.name: field.default for field in dataclasses.fields(data)}
        out += [
            f"{name} takes effect with files only. Received: {name}={getattr(data, name)!r} with data in memory. "
            f"Drop --{name}."
            for name in _OF_PATHS
            if getattr(data, name) != defaults[name]
        ]
    elif data.input_format == "text" and config.mode != "predict":
        out.append("Plain text has no labels. Received: input_format='text'. Pass another format, or --mode=predict.")
    for name, file in (("input_file", config.predict.input_file), ("test_file", data.test_file)):
        if file and is_pipe(file) and config.runtime.strategy == "multi_worker":
            out.append(
                "Every worker reads the input, but only one has standard input or a pipe. "
                f"Received: {name}={file!r} with strategy='multi_worker'. Pass a file that all workers see."
            )
    return out


def _train(config: Parts) -> list[str]:
    out = _unnamed_model(config) + _seeds(config)
    if facts_of(config.data.task).of_records:
        return out + _pretrain(config)
    if config.data.test_file == STANDARD_STREAM:
        out.append(
            "Standard input is for mode=evaluate and mode=predict. "
            f"Received: test_file='-' with mode={config.mode}. Pass a file, or --mode=evaluate later."
        )
    if config.data.uses_files and not config.data.train_file:
        out.append("Training from files needs a training file. Received: train_file=''. Pass --train_file.")
    if config.data.uses_files and not config.data.has_validation_data:
        out += [
            f"{name} needs examples to evaluate on during training. "
            f"Received: {name}={value!r} with validation_file=''. Pass --validation_file or --validation_split."
            for name, value in evaluation_options(config).items()
        ]
    return out + _indexes(config, ("text_column", "label_column"))


def _unnamed_model(config: Parts) -> list[str]:
    """A line for data of the user's own without a model: random weights would learn little, and nobody would know."""
    records = config.pretraining.train_records
    if config.model.model_name_or_path or (config.data.is_built_in and not records):
        return []
    data = ",".join(records) or config.data.source
    return [
        f"Data of your own needs a model to start from. Received: model_name_or_path='' with {data}. "
        "Pass --model=bert-base-uncased or another pretrained one; --model=scratch/tiny has random weights."
    ]


def _seeds(config: Parts) -> list[str]:
    out = []
    if config.runtime.seeds and config.hub.push_to_hub:
        out.append(
            "An upload is one model, but several seeds make several. "
            "Received: push_to_hub with seeds. Drop --push_to_hub, and upload the best model by hand."
        )
    if config.runtime.seeds and config.runtime.strategy == "multi_worker" and not config.output.output_dir:
        out.append(
            "With several seeds, all workers need the same output directory. "
            "Received: output_dir='' with seeds and strategy='multi_worker'. Pass --output_dir."
        )
    return out


def evaluation_options(config: Parts) -> dict[str, int | str]:
    """Of the options that concern evaluation during training, those that were given, by name."""
    training = config.training
    given = {name: getattr(training, name) for name in ("early_stopping_patience", "metric_for_best_model")}
    given |= {"eval_steps": config.output.eval_steps}
    return {name: value for name, value in given.items() if value}


def _evaluate(config: Parts) -> list[str]:
    if facts_of(config.data.task).of_records:
        return _evaluate_records(config)
    out = []
    if not config.data.dataset and not config.data.uses_files:
        out.append(
            "Evaluation needs labelled examples. Received: dataset='', validation_file=''. "
            "Pass --dataset=NAME, --validation_file or --test_file."
        )
    if config.data.test_file == STANDARD_STREAM and config.data.input_format == "auto":
        out.append(
            "Standard input has no name that tells its format. "
            "Received: test_file='-' with input_format='auto'. Pass --input_format=tsv, csv or jsonl."
        )
    return out + _saved_model(config) + _indexes(config, ("text_column", "label_column"))


def _predict(config: Parts) -> list[str]:
    out, predict = [], config.predict
    sources = {"text": predict.text, "input_file": predict.input_file, "dataset": config.data.dataset}
    if sum(map(bool, sources.values())) != 1:
        given = ", ".join(f"{name}={value!r}" for name, value in sources.items() if value) or "input_file=''"
        out.append(
            f"Prediction needs one source of texts. Received: {given}. "
            "Pass --input_file, --text='a text', or a GLUE task with --dataset."
        )
    name = predict.input_file
    if name not in ("", STANDARD_STREAM) and is_pipe(name) and config.data.input_format == "auto":
        if not pathlib.Path(name).suffix:
            out.append(
                "A pipe has no ending that tells its format. "
                f"Received: input_file={name!r} with input_format='auto'. Pass --input_format, such as text or tsv."
            )
    if config.data.dataset and not config.data.dataset.startswith("glue/"):
        out.append(
            "Of the data sets, only GLUE's test sets can be predicted. "
            f"Received: dataset={config.data.dataset!r}. Pass --dataset=glue/NAME, or a file with --input_file."
        )
    given = {"glue_task": predict.glue_task, "id_column": predict.id_column}
    if predict.text:
        given |= {"text_column": ",".join(config.data.text_column), "noheader": "" if config.data.header else True}
        out += _second_texts(predict)
    if config.data.dataset or predict.text:
        source = "dataset" if config.data.dataset else "text"
        out += [
            f"{name} takes effect with input_file only. Received: {name}={value!r} with "
            f"{source}={sources[source]!r}. Drop --{name}."
            for name, value in given.items()
            if value
        ]
    is_glue = bool(predict.glue_task or config.data.dataset)
    if is_glue and (predict.output_file != STANDARD_STREAM or predict.output_format != "auto"):
        out.append(
            "GLUE's submission files have names and a format of their own. "
            f"Received: output_file={predict.output_file!r}, output_format={predict.output_format!r}. "
            "Pass --output_dir instead."
        )
    if config.output.output_dir and not is_glue:
        out.append(
            "Predictions go to output_file; output_dir is for GLUE's submission files. "
            f"Received: output_dir={config.output.output_dir!r}. Pass --output_file."
        )
    return out + _saved_model(config) + _indexes(config, () if predict.text else ("text_column",))


def _second_texts(predict: PredictConfig) -> list[str]:
    if len(predict.text_pair) in (0, len(predict.text)):
        return []
    return [
        "Each text of a pair has its second text. "
        f"Received: text {len(predict.text)} times, text_pair {len(predict.text_pair)} times. Pass as many of both."
    ]


def _export(config: Parts) -> list[str]:
    out = []
    if not config.output.output_dir:
        out.append("An export needs a directory. Received: output_dir=''. Pass --output_dir.")
    has_data = bool(config.data.dataset or config.data.uses_files)
    export_format = config.export.export_format
    if export_format in ("onnx", "tflite") and (has_data or config.data.text_column):
        what = "evaluation data" if has_data else f"text_column={','.join(config.data.text_column)}"
        out.append(
            f"export_format={export_format} writes a model of token ids, which takes no texts. Received: {what}. "
            f"Drop {'the data' if has_data else '--text_column'}."
        )
    elif has_data and not config.export.export_float16:
        out.append(
            "An export uses evaluation data only to measure what export_float16 loses. "
            "Received: evaluation data with export_float16=False. Drop the data, or add --export_float16."
        )
    if not has_data:
        # Not text_column: where a model does not say that it takes pairs, two columns do.
        idle = ("label_column", "label_names", "header", "max_eval_examples", "per_device_eval_batch_size")
        fields = [(part, f) for part in (config.data, config.runtime) for f in dataclasses.fields(part)]
        out += [
            f"{f.name} takes effect with evaluation data only. "
            f"Received: {f.name}={getattr(part, f.name)!r} without any. "
            f"Drop --{'noheader' if f.name == 'header' else f.name}."
            for part, f in fields
            if f.name in idle and getattr(part, f.name) != f.default
        ]
    return out + _saved_model(config) + _indexes(config, ("text_column", "label_column") if has_data else ())


def _benchmark(config: Parts) -> list[str]:
    options = {field.name: (part, field) for part in config.parts() for field in dataclasses.fields(part)}
    out = []
    for axis, replaced in AXES.items():
        for name in replaced if getattr(config.benchmark, axis) else ():
            part, field = options[name]
            if (value := getattr(part, name)) != field.default:
                out.append(f"{axis} takes the place of {name}. Received: {name}={value!r} beside it. Drop --{name}.")
    if config.benchmark.benchmark_workers and config.benchmark.benchmark_replicas:
        out.append(
            "A grid varies workers or replicas, not both. Received: benchmark_workers and benchmark_replicas. Drop one."
        )
    if config.runtime.strategy == "multi_worker":
        out.append(
            "A benchmark starts its own workers. "
            "Received: strategy='multi_worker'. Pass --benchmark_workers, or another strategy."
        )
    benchmark = config.benchmark
    changed = {f.name for f in dataclasses.fields(benchmark) if getattr(benchmark, f.name) != f.default}
    if "training" not in benchmark.benchmark_passes:
        out += [
            f"{name} takes effect in training rows only. Received: {name} without benchmark_passes=training. "
            f"Drop --{name}."
            for name in ("benchmark_accuracy", "price_per_hour", "benchmark_steps", "benchmark_warmup_steps")
            if name in changed
        ]
    if benchmark.benchmark_accuracy and "benchmark_steps" in changed:
        out.append(
            "With benchmark_accuracy, each row trains for the whole run. Received: benchmark_steps="
            f"{benchmark.benchmark_steps} beside it. Drop --benchmark_steps, or pass --max_steps instead."
        )
    is_measured_in_steps = "training" in benchmark.benchmark_passes and not benchmark.benchmark_accuracy
    # At most half of a run's updates count as warm-up: others than those asked for would be measured.
    is_too_long = "benchmark_warmup_steps" in changed and benchmark.benchmark_warmup_steps > benchmark.benchmark_steps
    if is_measured_in_steps and is_too_long:
        out.append(
            "benchmark_warmup_steps must be at most benchmark_steps. Received: benchmark_warmup_steps="
            f"{benchmark.benchmark_warmup_steps} with benchmark_steps={benchmark.benchmark_steps}. "
            "Lower --benchmark_warmup_steps, or raise --benchmark_steps."
        )
    records = config.pretraining
    option = "validation_records" if records.train_records else "validation_file"
    lacks_files = config.data.uses_files and not config.data.has_validation_data
    if lacks_files or (records.train_records and not records.validation_records):
        out += [
            f"{what} needs examples to evaluate on. Received: {received} with {option}=''. Pass --{option}."
            for is_asked, what, received in (
                ("inference" in benchmark.benchmark_passes, "Measuring inference", "benchmark_passes=inference"),
                (benchmark.benchmark_accuracy, "Measuring accuracy", "benchmark_accuracy=True"),
            )
            if is_asked
        ]
    trains_whole_run = benchmark.benchmark_accuracy or benchmark.price_per_hour
    for name in ("max_steps", "num_train_epochs") if not trains_whole_run else ():
        if getattr(config.training, name):
            out.append(
                f"{name} takes effect with benchmark_accuracy or price_per_hour only. "
                f"Received: {name}={getattr(config.training, name)}. Pass --benchmark_steps, or drop --{name}."
            )
    return out + _train(config)


def _prepare(config: Parts) -> list[str]:
    out = []
    if not config.output.output_dir:
        out.append("Records need a directory. Received: output_dir=''. Pass --output_dir.")
    if config.corpus.input_files and config.data.dataset:
        out.append(
            "A corpus comes from files or from a data set, not both. "
            f"Received: input_files={','.join(config.corpus.input_files)!r}, dataset={config.data.dataset!r}. Drop one."
        )
    if bool(config.corpus.learn_vocab) == bool(config.model.vocab_file):
        out.append(
            "Preparing a corpus takes a vocabulary from a file, or learns one from the corpus. Received: vocab_file="
            f"{config.model.vocab_file!r}, learn_vocab={config.corpus.learn_vocab}. Pass one of them."
        )
    if len(config.data.text_column) > 1:
        out.append(
            "A document is the text of one column. "
            f"Received: text_column={','.join(config.data.text_column)!r}. Name one."
        )
    return out


def _evaluate_records(config: Parts) -> list[str]:
    out = _read_by_prepare(config)
    if not config.pretraining.validation_records:
        out.append("Evaluation needs records. Received: validation_records=''. Pass --validation_records.")
    return out + _saved_model(config)


def _read_by_prepare(config: Parts) -> list[str]:
    """Options of a corpus that were given where records are read."""
    given = {name: getattr(config.data, name) for name in ("dataset", "data_dir", "text_column")}
    return [
        f"Pre-training reads prepared records. Received: {name}={value!r}. "
        "Make records of it with --mode=prepare, and pass --train_records."
        for name, value in given.items()
        if value and (name, value) != ("dataset", "demo")
    ]


def _pretrain(config: Parts) -> list[str]:
    out, options = _read_by_prepare(config), config.pretraining
    if options.validation_records and not options.train_records:
        out.append(
            "With validation_records, training needs train_records too. "
            "Received: train_records=''. Pass --train_records."
        )
    if options.train_records and not options.validation_records:
        out += [
            f"{name} needs records to evaluate on during training. "
            f"Received: {name}={value!r} with validation_records=''. Pass --validation_records."
            for name, value in evaluation_options(config).items()
        ]
    return out


def _saved_model(config: Parts) -> list[str]:
    if not config.model.is_scratch:
        return []
    return [
        f"mode={config.mode} needs a trained model. "
        f"Received: model_name_or_path={config.model.model_name_or_path!r}. Pass a run's output directory."
    ]


def _indexes(config: Parts, names: tuple[str, ...]) -> list[str]:
    """Columns given by name where there is no header, and so no names."""
    out = []
    for name in () if config.data.header else names:
        values = getattr(config.data, name)
        values = values.split(",") if isinstance(values, str) else values
        if not values or not all(value.isdigit() for value in values):
            out.append(
                f"Without a header, {name} must be given as indexes from 0. "
                f"Received: {name}={','.join(values)!r}. Pass for example --{name}=0."
            )
    return out
