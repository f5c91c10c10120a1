"""Pre-training as a command: finds or makes records and a vocabulary; the rest is a run like any other."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import logging
import multiprocessing
import pathlib
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool

from tfbert.config.data import DataConfig
from tfbert.config.parts import OutputConfig, RuntimeConfig
from tfbert.config.pretraining import PRETRAINING, CorpusConfig, PretrainingConfig
from tfbert.config.run import Config
from tfbert.corpus.records import as_records_are
from tfbert.corpus.sources import BuiltInCorpus
from tfbert.corpus.vocabulary import learn_vocab
from tfbert.devices.quiet import is_unwatched, start_quietly, without_main_module
from tfbert.errors import RunError, UsageError
from tfbert.model.files import load_tokenizer, resolve_model
from tfbert.modes.many import train
from tfbert.modes.prepare import model_type_of_words, prepare_records
from tfbert.output import output_dir
from tfbert.output.callback import Callback
from tfbert.report.compare import OverSeeds, Swept
from tfbert.tokens.tokenizer import BertTokenizer

log = logging.getLogger("tfbert")

_TOKENS_OF_BUILT_IN = 1000


def pretrain(config: Config, callbacks: Sequence[Callback] = ()) -> dict[str, float] | OverSeeds | Swept:
    """Pre-trains as the configuration says; without records, on the built-in corpus, prepared beside `output_dir`.

    Args:
        config: The run, with task `pretraining`.
        callbacks: As `finetune` takes them.

    Returns:
        As `finetune`, `train_many`.

    Raises:
        UsageError: as these do, and for several workers without records.
    """
    with output_dir.one_start_time():
        if not config.runtime.sweep:
            return train(with_records(config), callbacks)
        # What records say about lengths and masks is for each run to find out: the sweep may be over these.
        return train(with_named_records(config))


def with_records(config: Config) -> Config:
    """The same run with records, as these are.

    Raises:
        UsageError: for a directory of records that does not describe them.
    """
    return as_records_are(with_named_records(config))


def with_named_records(config: Config) -> Config:
    """The same run, on the built-in corpus where it names no records; these are made.

    Raises:
        UsageError: for several workers without records.
        RunError: where they cannot be made.
    """
    if config.pretraining.train_records:
        return config
    if config.model.model_name_or_path and not config.model.is_scratch:
        rule = "A model that has learned from other text goes on with records of your own"
        todo = "Make them with --mode=prepare --input_files=..., and pass --train_records."
        raise UsageError(f"{rule}. Received: model={config.model.name!r} without train_records. {todo}")
    if config.runtime.strategy == "multi_worker":
        rule = "Several workers need records that exist"
        todo = "Make them with --mode=prepare first, in a directory that all workers see, and pass --train_records."
        raise UsageError(f"{rule}. Received: train_records='' with strategy='multi_worker'. {todo}")
    directory = output_dir.run_directory(config, output_dir.start_time())
    if not directory.name.strip("."):  # `.` and `..` are no names to add to.
        directory = directory.resolve()
    output_dir.check_writable(directory)
    records = directory.with_name(f"{directory.name}-records")
    log.info("no train_records: pre-training on the built-in corpus, its records in %s", records)
    # In a process of its own: this one has yet to set up its devices.
    context = multiprocessing.get_context("spawn")
    start = functools.partial(start_quietly, silent=is_unwatched())
    with concurrent.futures.ProcessPoolExecutor(1, context, start) as process:
        with without_main_module():
            made = process.submit(_prepare_built_in, config, records)
        try:
            train, validation = made.result()
        except BrokenProcessPool:
            rule = "The process that makes records was ended, probably by the kernel because memory is short"
            raise RunError(f"{rule}. Received: the built-in corpus. Start again.") from None
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, model_name_or_path=config.model.name),
        pretraining=dataclasses.replace(config.pretraining, train_records=(train,), validation_records=(validation,)),
        output=dataclasses.replace(config.output, output_dir=str(directory)),
    )


def _prepare_built_in(config: Config, directory: pathlib.Path) -> tuple[str, str]:
    """Makes the records of both splits with one vocabulary; returns their directories."""
    model = resolve_model(config.model)
    model_type = model_type_of_words(model)
    if config.model.is_scratch and not config.model.vocab_file:
        tokenizer = BertTokenizer(learn_vocab(BuiltInCorpus("train"), _TOKENS_OF_BUILT_IN, config.runtime.seed))
    else:
        tokenizer = load_tokenizer(config.model, model, training_texts=())
    masks, found = config.pretraining, []
    for split in ("train", "validation"):
        path = directory / split
        options = Config(
            mode="prepare",
            data=DataConfig(max_seq_length=config.max_seq_length, task=PRETRAINING),
            corpus=CorpusConfig(num_processes=1, learn_vocab=_TOKENS_OF_BUILT_IN),
            pretraining=PretrainingConfig(
                masked_lm_prob=masks.masked_lm_prob,
                max_predictions_per_seq=masks.max_predictions_per_seq,
                whole_word_masking=masks.whole_word_masking,
            ),
            runtime=RuntimeConfig(seed=config.runtime.seed),
            output=OutputConfig(output_dir=str(path)),
        )
        prepare_records(BuiltInCorpus(split), tokenizer, options, path, model_type=model_type)
        found.append(str(path))
    return found[0], found[1]
