"""What a run is: frozen dataclasses, their validation, and their JSON form. Imports nothing but the standard library.

Every option of the command lives here once; `commandline` reads names, defaults and help from here.
"""

from __future__ import annotations

import dataclasses
import json
import reprlib
from typing import Any, Literal

from tfbert.config.modes import mode_problems
from tfbert.config.parts import Parts
from tfbert.config.rules import field_problems, path_of
from tfbert.config.sweep import sweep_problems
from tfbert.config.task_table import facts_of
from tfbert.config.tasks import TaskOptions, window_sizes
from tfbert.config.training import OPTIMIZERS, lora_targets
from tfbert.errors import UsageError

_EPOCHS = 3.0
UNTIL_STEP = "until_step"
"""The key of `run_config.json` beside the configuration: the values that options had up to an update of the run."""
CONTENTS = "contents_crc32"
"""Likewise: what the files that options name held when the run read them."""
EARLIER = "benchmark"
"""A part that configurations of version 1 have, without effect on a run."""


PATHS = (
    *("model_name_or_path", "vocab_file", "data_dir", "train_file", "validation_file", "test_file", "input_file"),
    *("input_files", "train_records", "validation_records", "output_dir", "output_file"),
)
"""The options that hold paths, or lists of them."""
MAY_DIFFER = frozenset(
    {
        *PATHS,  # What the files hold is compared.
        # What the chief alone writes or tells, and how.
        *("output_format", "save_steps", "save_total_limit", "keep_optimizer"),
        *("logging_steps", "report_to", "push_to_hub", "hub_model_id", "hub_private_repo"),
        # Each process's own.
        *("cluster_timeout_seconds", "keep_freed_memory"),
    }
)
"""The options that may differ between the workers of a run: no other worker's computation depends on them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Parts):
    """A whole run. Construction checks every rule that needs neither data nor devices.

    Raises:
        UsageError: naming all problems at once.
    """

    def __post_init__(self):
        super().__post_init__()
        if self.mode == "train" and self.runtime.sweep:
            if problems := sweep_problems(self):
                raise UsageError("\n".join(problems))
            return
        problems = field_problems(self) or mode_problems(self)
        for part in self.parts():
            problems += [*field_problems(part), *(_path_problems(part) or part.problems())]
        if problems:
            raise UsageError("\n".join(problems))

    @property
    def max_seq_length(self) -> int:
        """The longest input of a training run in tokens: as asked for, else the default of its task."""
        return self.data.max_seq_length or facts_of(self.data.task).max_seq_length

    @property
    def source(self) -> str:
        """What the data is called in logs: records, else as `DataConfig` has it."""
        records = self.pretraining.train_records or self.pretraining.validation_records
        return ",".join(records) or self.data.source

    @property
    def task_options(self) -> TaskOptions:
        """The options of single tasks."""
        parts = ("multi_label", "tagging", "answering", "choosing", "pretraining")
        return TaskOptions(**{part: getattr(self, part) for part in parts}, seed=self.runtime.seed)

    def resolved(self) -> Config:
        """The same training run with every default that depends on another option written out, and one name for each
        metric.

        Raises:
            UsageError: for sizes of windows that do not go with the length of rows.
        """
        facts, training, data, answering = facts_of(self.data.task), self.training, self.data, self.answering
        optimizer, epochs = OPTIMIZERS[training.optimizer], facts.demo_epochs if data.is_built_in else _EPOCHS
        rate = optimizer.scratch_rate if self.model.is_scratch or training.lora_rank else optimizer.rate
        training = dataclasses.replace(
            training,
            metric_for_best_model=training.metric_for_best_model.removeprefix("eval_"),
            num_train_epochs=training.num_train_epochs or (None if training.max_steps else epochs),
            learning_rate=training.learning_rate or rate,
            lora_alpha=training.lora_alpha or training.lora_rank or None,
            lora_targets=",".join(lora_targets(training.lora_targets)),
        )
        name = data.dataset if data.uses_files or facts.of_records else data.dataset or "demo"
        data = dataclasses.replace(data, dataset=name, max_seq_length=self.max_seq_length)
        if facts.has_windows:
            answering.check_length(self.max_seq_length)
            sizes = window_sizes(self.max_seq_length, answering.doc_stride, answering.max_query_length)
            answering = dataclasses.replace(answering, doc_stride=sizes[0], max_query_length=sizes[1])
        pretraining = self.pretraining.with_masking() if facts.of_records else self.pretraining
        model = dataclasses.replace(self.model, model_name_or_path=self.model.name)
        changed = {"model": model, "training": training, "data": data, "answering": answering}
        return dataclasses.replace(self, **changed, pretraining=pretraining)

    def shared(self) -> dict[str, Any]:
        """The options that all workers of a run must share, by name, as JSON holds them."""
        values = {name: value for part in self.parts() for name, value in vars(part).items() if name not in MAY_DIFFER}
        return {"mode": self.mode} | values

    def accumulating(self, steps: int | Literal["auto"]) -> Config:
        """The same run with that many micro-batches."""
        return dataclasses.replace(self, training=dataclasses.replace(self.training, gradient_accumulation_steps=steps))

    def to_json(self) -> str:
        """The configuration as JSON text, one object a part."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Reads what `to_json` wrote, and the `run_config.json` of a run that was resumed with other settings.

        Raises:
            UsageError: for text that is not such an object, an unknown name, or a value of the wrong type.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"A run configuration must be JSON. Received: {error}. Repair the file.") from None
        parts = cls.classes()
        if not isinstance(values, dict) or not all(isinstance(values[n], dict) for n in values.keys() & parts.keys()):
            rule = "A run configuration must be an object with an object for each part"
            raise UsageError(f"{rule}. Received: {reprlib.repr(values)}. Repair the file.")
        known = {name: value for name, value in values.items() if name not in (UNTIL_STEP, CONTENTS, EARLIER)}
        return cls(**{name: parts[name](**value) if name in parts else value for name, value in known.items()})


def _path_problems(part: Any) -> list[str]:
    """What is wrong with a part's paths, whatever is there: it could not even ask whether something is."""
    given = {name: value for name, value in vars(part).items() if name in PATHS}
    if "validation_file" in given:
        given |= {"validation_file": part.validation_files, "label_names": part.label_names_file}
    problems = []
    for name, value in given.items():
        for path in value if isinstance(value, tuple) else (value,):
            try:
                if isinstance(path, str):
                    path_of(path, name)
            except UsageError as error:
                problems.append(str(error))
    return problems
