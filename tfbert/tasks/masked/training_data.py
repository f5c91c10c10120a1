"""What a run of pre-training trains and evaluates on: records of a corpus."""

from __future__ import annotations

import dataclasses

from tfbert.config.data import DataConfig
from tfbert.config.tasks import TaskOptions
from tfbert.corpus.records import open_records
from tfbert.tasks.base import TaskData
from tfbert.tasks.masked.pretraining import Pretraining
from tfbert.tasks.sets import subset

_SAMPLED_RECORDS = 2048
"""The most training records that are evaluated, beside the validation records; never more than of those."""


def load_records(config: DataConfig, options: TaskOptions) -> TaskData:
    """Opens records of a corpus. With validation records, a sample of the training records is evaluated as well."""
    own, notes, sets = options.pretraining, [], {}
    skips = {"skip_bad_records": own.skip_bad_records, "notes": notes}
    train = subset(open_records(own.train_records, "train_records", **skips), config.max_train_examples, notes)
    if own.validation_records:
        sets["validation"] = open_records(own.validation_records, "validation_records", **skips)
        sample = subset(train, min(len(sets["validation"]), _SAMPLED_RECORDS), [])
        sets["validation_training"] = dataclasses.replace(sample, name=f"a sample of {train.name}")
    if own.next_sentence and not train.has_pairs:
        notes.append(f"{train.name}: no pairs, so no next-sentence prediction: only masked words are predicted")
    task = Pretraining(next_sentence=own.next_sentence and train.has_pairs, options=own, seed=options.seed)
    return TaskData(task=task, train=train, validation=sets, test=None, notes=tuple(notes))
