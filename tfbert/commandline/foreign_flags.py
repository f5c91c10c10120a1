"""What flags of other trainers are called here; the tables of `docs/coming_from.md` are made of this."""

from __future__ import annotations

import re
from collections.abc import Mapping

from absl import flags

from tfbert.commandline.options import define_flags
from tfbert.config.commands import FINETUNE, PRETRAIN, Command
from tfbert.config.run import Config
from tfbert.config.sweep import way_to_vary

_BATCH = "--global_batch_size, the batch of one device times devices and micro-batches"
_DATASET = "--dataset, by TensorFlow Datasets' names such as --dataset=glue/sst2"
_DEVICES = "--strategy=mirrored, all GPUs of the machine, with --num_replicas for fewer"
_EVAL_BATCH = "--per_device_eval_batch_size"
_GROUPED = "--batching=length_grouped, the default"
_CLASSES = "It is not needed: the classes are those of the training data; --label_names names them"
_LAMB = "--optimizer; NVIDIA's LAMB is --optimizer=lamb --lr_schedule=polynomial --lr_power=0.5"
_MODEL = "--model, a directory or a name"
_NOT_FROZEN = "It is not an option: all weights are trained; --gradient_checkpointing and --mixed_precision save memory"
_OF_TOKENIZER = "It is not needed: the tokenizer is that of --model, small letters included"
_PRECISION = "--mixed_precision, or --mixed_precision --mixed_precision_dtype=bfloat16"
_RESUMED = "It is not needed: a run that resumes takes the examples that were left"
_STRATEGY = "--strategy=mirrored on one machine, --strategy=multi_worker on several"
_TOKEN = "It is not an option: set HF_TOKEN, or log in with huggingface-cli; --push_to_hub uses it"
_UPDATES = "--max_steps, in optimizer updates"

BY_TRAINER: Mapping[str, Mapping[str, str]] = {
    "Hugging Face's Trainer": {
        "adafactor": "It is not an option: --optimizer=adamw or --optimizer=lamb",
        "adam_beta1": "It is not an option: the optimizer has 0.9",
        "adam_beta2": "It is not an option: the optimizer has 0.999",
        "adam_epsilon": "It is not an option: AdamW has 1e-8, LAMB 1e-6",
        "auto_find_batch_size": "--gradient_accumulation_steps=auto",
        "bf16": "--mixed_precision --mixed_precision_dtype=bfloat16",
        "bf16_full_eval": _PRECISION,
        "cache_dir": "It is not an option: set HF_HOME, or --data_dir for TensorFlow Datasets",
        "config_name": _MODEL,
        "data_seed": "It is not an option: --seed decides the order of the examples too",
        "dataloader_drop_last": "It is not an option: every example counts, in a short last batch too",
        "dataloader_num_workers": "It is not needed: threads of the training process prepare the batches",
        "dataset_config_name": _DATASET,
        "dataset_name": _DATASET,
        "ddp_backend": _STRATEGY,
        "deepspeed": _STRATEGY,
        "disable_tqdm": "It is not an option: there are bars on a terminal alone",
        "do_eval": "--mode=evaluate; training evaluates anyway, where it has data for that",
        "do_lower_case": _OF_TOKENIZER,
        "do_predict": "--mode=predict",
        "do_train": "--mode=train, the default",
        "eval_strategy": "--eval_steps; 0, the default, evaluates after each epoch",
        "evaluation_strategy": "--eval_steps; 0, the default, evaluates after each epoch",
        "fp16": "--mixed_precision",
        "fp16_full_eval": _PRECISION,
        "freeze_base_model": _NOT_FROZEN,
        "freeze_embeddings": _NOT_FROZEN,
        "freeze_encoder": _NOT_FROZEN,
        "freeze_layers": _NOT_FROZEN,
        "fsdp": _STRATEGY,
        "full_determinism": "--deterministic",
        "greater_is_better": "It is not needed: it follows from --metric_for_best_model",
        "group_by_length": _GROUPED,
        "half_precision_backend": _PRECISION,
        "hub_token": _TOKEN,
        "ignore_data_skip": _RESUMED,
        "label_column_name": "--label_column",
        "label_smoothing_factor": "--label_smoothing",
        "load_best_model_at_end": "It is not needed: a run keeps its best weights, by --metric_for_best_model",
        "local_rank": _STRATEGY,
        "logging_dir": "It is not an option: logs, and TensorBoard's, go to --output_dir",
        "logging_strategy": "--logging_steps",
        "lora_alpha": _NOT_FROZEN,
        "lora_r": _NOT_FROZEN,
        "lr_scheduler_type": "--lr_schedule",
        "max_eval_samples": "--max_eval_examples",
        "max_train_samples": "--max_train_examples",
        "mlm_probability": "--masked_lm_prob",
        "model_type": "It is not needed: every model is BERT; --model says which",
        "no_cuda": "--device=cpu",
        "nproc_per_node": _STRATEGY,
        "num_labels": _CLASSES,
        "optim": "--optimizer",
        "pad_to_max_length": "--batching=padded",
        "peft": _NOT_FROZEN,
        "per_device_train_batch_size": _BATCH,
        "per_gpu_eval_batch_size": _EVAL_BATCH,
        "per_gpu_train_batch_size": _BATCH,
        "preprocessing_num_workers": "It is not needed: all cores are used",
        "push_to_hub_token": _TOKEN,
        "remove_unused_columns": "It is not needed: --text_column and --label_column alone are read",
        "resume_from_checkpoint": "--resume=auto, the default: start the same command again",
        "run_name": "It is not an option: trackers show a run under the name of --output_dir, or WANDB_NAME",
        "save_only_model": "It is not needed: a finished run keeps the model alone, unless --keep_optimizer",
        "save_safetensors": "It is not needed: models are saved so",
        "save_strategy": "--save_steps",
        "task_name": _DATASET,
        "text_column_name": "--text_column",
        "text_column_names": "--text_column",
        "token": _TOKEN,
        "tokenizer_name": _OF_TOKENIZER,
        "torch_compile": "--xla",
        "train_sampling_strategy": _GROUPED,
        "trust_remote_code": "It is not an option: no code of a model is run",
        "use_auth_token": _TOKEN,
        "use_cpu": "--device=cpu",
        "use_fast_tokenizer": _OF_TOKENIZER,
        "use_peft": _NOT_FROZEN,
    },
    "NVIDIA's BERT scripts": {
        "amp": "--mixed_precision",
        "bert_config_file": "--model, a directory that holds it",
        "enable_xla": "--xla",
        "eval_batch_size": _EVAL_BATCH,
        "eval_files_dir": "--validation_records",
        "horovod": _STRATEGY,
        "init_checkpoint": "--model, a directory that holds it",
        "input_files_dir": "--train_records",
        "num_accumulation_steps": "--gradient_accumulation_steps",
        "num_steps_per_epoch": _UPDATES,
        "num_train_steps": _UPDATES,
        "num_warmup_steps": "--warmup_steps",
        "optimizer_type": _LAMB,
        "predict_batch_size": _EVAL_BATCH,
        "predict_file": "--validation_file, or --input_file with --mode=predict",
        "save_checkpoint_steps": "--save_steps",
        "save_checkpoints_steps": "--save_steps",
        "squad_data_file": "--train_file, SQuAD's own file",
        "train_batch_size": _BATCH,
        "train_data_path": "--train_file, SQuAD's own file",
        "use_fp16": "--mixed_precision",
        "use_horovod": _STRATEGY,
        "use_xla": "--xla",
        "warmup_proportion": "--warmup_ratio",
    },
    # The last part of a key such as `task.train_data.seq_length`.
    "TensorFlow Model Garden": {
        "best_checkpoint_eval_metric": "--metric_for_best_model",
        "checkpoint_interval": "--save_steps",
        "distribution_strategy": "--strategy",
        "hub_module_url": _MODEL,
        "input_path": "--train_file, or --dataset",
        "max_to_keep": "--save_total_limit",
        "seq_length": "--max_seq_length",
        "tfds_name": "--dataset",
        "train_steps": _UPDATES,
        "validation_interval": "--eval_steps",
    },
    "abbreviations": {
        "devices": _DEVICES,
        "gpus": _DEVICES,
        "n_gpu": _DEVICES,
        "n_gpus": _DEVICES,
        "ngpus": _DEVICES,
        "num_devices": _DEVICES,
        "num_gpu": _DEVICES,
        "num_gpus": _DEVICES,
        "precision": _PRECISION,
        "accumulation_steps": "--gradient_accumulation_steps",
        "bs": "--global_batch_size",
        "dev_split": "--validation_split",
        "eval_split": "--validation_split",
        "grad_accum": "--gradient_accumulation_steps",
        "grad_accum_steps": "--gradient_accumulation_steps",
        "lr": "--learning_rate",
        "max_len": "--max_seq_length",
        "max_length": "--max_seq_length",
        "num_epochs": "--num_train_epochs",
        "tensorboard": "--report_to=tensorboard",
        "val_split": "--validation_split",
        "wd": "--weight_decay",
        "adam_eps": "It is not an option: AdamW has 1e-8, LAMB 1e-6",
        "classes": _CLASSES,
        "clip_norm": "--max_grad_norm",
        "dev_file": "--validation_file",
        "epsilon": "It is not an option: AdamW has 1e-8, LAMB 1e-6",
        "eval_file": "--validation_file",
        "fp32": "It is not needed: float32 is the default; --mixed_precision for less",
        "freeze": _NOT_FROZEN,
        "grad_clip": "--max_grad_norm",
        "gpu": "--device=gpu",
        "gradient_clipping": "--max_grad_norm",
        "hidden_dropout_prob": "--dropout",
        "id2label": "--label_names",
        "labels": "--label_names",
        "label_list": "--label_names",
        "lora": _NOT_FROZEN,
        "multi_gpu": _DEVICES,
        "num_classes": _CLASSES,
        "num_workers": "It is not needed: threads of the training process prepare the batches",
        "save_dir": "--output_dir",
        "shuffle": "It is not an option: each epoch has an order of its own, by --seed",
        "train_data": "--train_file",
        "train_path": "--train_file",
        "use_amp": _PRECISION,
        "val_file": "--validation_file",
    },
}
"""By trainer, a heading of `docs/coming_from.md`, and its flag: the flag here, with a value where it has one; or a
sentence."""
FOREIGN_FLAGS = {name: answer for flags_of in BY_TRAINER.values() for name, answer in flags_of.items()}


_ONCE_DONE = "It is not needed: a finished run keeps the model alone; --save_steps=0 writes no checkpoint before"
_EACH_EPOCH = "It is not an option: --save_steps counts updates"
_OF_VALUES = {
    ("eval_strategy", "no"): "Leave out --validation_file: without it nothing is evaluated",
    ("evaluation_strategy", "no"): "Leave out --validation_file: without it nothing is evaluated",
    ("eval_strategy", "epoch"): "It is not needed: --eval_steps=0, the default, evaluates after each epoch",
    ("evaluation_strategy", "epoch"): "It is not needed: --eval_steps=0, the default, evaluates after each epoch",
    ("load_best_model_at_end", "false"): "It is not an option: a run keeps its best weights where it evaluates",
    ("save_strategy", "no"): _ONCE_DONE,
    ("save_strategy", "epoch"): _EACH_EPOCH,
    ("save_strategy", "best"): "It is not needed: a run keeps its best weights, by --metric_for_best_model",
}
"""By flag and value: the answers that a value decides."""
_PRECISIONS = {
    "bfloat16": ("bf16", "bfloat16", "mixed_bfloat16"),
    "float16": ("fp16", "float16", "mixed_float16", "half", "16"),
    "": ("none", "no", "off", "fp32", "float32", "32"),
}
"""By `mixed_precision_dtype`, what others call it; empty: no mixed precision."""
_CORPUS = "--dataset of --mode=prepare"
_IN_PRETRAINING = {
    "dataset_config_name": _CORPUS,
    "dataset_name": _CORPUS,
    "input_path": "--train_records",
    **dict.fromkeys(("classes", "num_classes", "num_labels"), "It is not an option of pre-training"),
    "label_smoothing_factor": "It is not an option of pre-training",
    "remove_unused_columns": "It is not needed: of a corpus the text alone is read",
    "task_name": "It is not needed: pre-training is one task",
    "tfds_name": _CORPUS,
    "train_file": "--input_files of --mode=prepare, which makes records for --train_records",
    "validation_file": "--input_files of --mode=prepare, which makes records for --validation_records",
}
"""Answers of `run_pretraining.py` where the other command has another one."""


def foreign_flag(command: Command, name: str, value: str = "") -> str:
    """What to do about a flag that other trainers have, in one sentence; empty where there is nothing to say.

    Args:
        command: The command that was started. An answer may be a flag of the other one, which is named then.
        name: The flag as it was typed, without dashes in front: `fp16`, `learning-rate`, `task.init_checkpoint`.
        value: Its value, where that decides.
    """
    own_name = name.rpartition(".")[2].replace("-", "_")
    in_pretraining = _IN_PRETRAINING.get(own_name) if command is PRETRAIN else None
    answer = in_pretraining or _OF_VALUES.get((own_name, value.lower())) or FOREIGN_FLAGS.get(own_name)
    if own_name.startswith("benchmark_"):
        return "Grids are measured by benchmarks/devices.py, in a clone of the repository: see docs/benchmark.md."
    if not answer and own_name != name:
        answer = f"--{own_name}"
    for one in (command, *(other for other in (FINETUNE, PRETRAIN) if other is not command)):
        if answer and _takes(one, answer):
            if not answer.startswith("--"):
                return f"{answer}."
            return f"Here it is {answer}." if one is command else f"In {one.typed} it is {answer}."
    return ""


def wrong_value(name: str, value: str) -> str:
    """A line on what to do about a flag's value that others take; empty where there is nothing to say."""
    return _several_values(name, value) or _precision_as_value(name, value)


def _several_values(name: str, values: str) -> str:
    """What to do about `--learning_rate=1e-5,3e-5`."""
    if not re.fullmatch(r"[^,]+(?:,[^,]+)+", values):
        return ""
    way = way_to_vary(name, values, Config.classes())
    if not way and not re.fullmatch(r"[\d.e+-]+(?:, *[\d.e+-]+)+", values):
        return ""
    todo = f"To train once with each, pass {way}." if way else "Pass one of them."
    return f"{name} is one value in a run. Received: {name}={values!r}. {todo}"


def _precision_as_value(name: str, value: str) -> str:
    """What to do about `--mixed_precision=bf16`, which Accelerate takes: the way to say it here."""
    if name != "mixed_precision":
        return ""
    word = value.strip().lower()
    dtype = next((dtype for dtype, words in _PRECISIONS.items() if word in words), None)
    todo = {
        "": "Drop it: float32 is the default.",
        None: "Pass --mixed_precision, or --nomixed_precision.",
    }.get(dtype, f"Pass --mixed_precision --mixed_precision_dtype={dtype}.")
    return f"mixed_precision is on or off. Received: mixed_precision={value!r}. {todo}"


def _takes(command: Command, answer: str) -> bool:
    """Whether a command has all flags that an answer names, and these have the values."""
    values = flags.FlagValues()
    define_flags(values, command)
    for name, value in re.findall(r"--(\w+)(?:=([\w./]+))?", answer):
        if name not in values:
            return False
        choices = getattr(values[name].parser, "enum_values", None)
        if value and choices and value not in choices:
            return False
    return True
