"""Pre-training as a command: finds or makes records and a vocabulary; the rest is a run like any other.
`--mode=prepare`: a corpus -> records to pre-train on, by processes of this machine, an array job or Apache Beam."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import logging
import multiprocessing
import os
import pathlib
import shutil
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import tensorflow as tf

from tfbert.config.run import Config
from tfbert.config.tables import check_kind
from tfbert.config.tasks import PRETRAINING, CorpusConfig
from tfbert.config.types import counted
from tfbert.corpus import manifest, vocabulary
from tfbert.corpus.manifest import Recipe
from tfbert.corpus.records import as_records_are
from tfbert.corpus.shards import STRETCH_BYTES, Job, make_shards, make_shards_with_beam, shares_of
from tfbert.corpus.sources import Source, built_in_corpus, open_source
from tfbert.corpus.vocabulary import learn_vocab
from tfbert.devices.process import is_unwatched, start_quietly, without_main_module
from tfbert.errors import RunError, UsageError
from tfbert.model.files import load_config, load_tokenizer, resolve_model
from tfbert.modes.many import train
from tfbert.output import output_dir
from tfbert.output.logs import Callback, PassProgress, clock_text
from tfbert.output.output_dir import locked
from tfbert.report.compare import Swept
from tfbert.tokens.tokenizer import BertTokenizer, Tokenizer

log = logging.getLogger("tfbert")

_TOKENS_OF_BUILT_IN = 1000


def pretrain(config: Config, callbacks: Sequence[Callback] = ()) -> dict[str, float] | Swept:
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
    directory = output_dir.run_directory(config)
    if not directory.name.strip("."):  # `.` and `..` are no names to add to.
        directory = directory.resolve()
    output_dir.check_writable(directory)
    records = directory.with_name(f"{directory.name}-records")
    log.info("no train_records: pre-training on the built-in corpus, its records in %s", records)
    # In a process of its own: this one has yet to set up its devices.
    context = multiprocessing.get_context("spawn")
    start = functools.partial(start_quietly, silent=is_unwatched())
    # Locked: no run in the directory reads the records that are replaced.
    with locked(directory), concurrent.futures.ProcessPoolExecutor(1, context, start) as process:
        with without_main_module():
            made = process.submit(_prepare_built_in, config, records)
        try:
            train, validation = made.result()
        except BrokenProcessPool:
            rule = "The process that makes records was ended, probably by the kernel because memory is short"
            raise RunError(f"{rule}. Received: the built-in corpus. Start again.") from None
    records = {"train_records": (train,), "validation_records": (validation,)}
    return config.changed({"model_name_or_path": config.model.name, **records, "output_dir": str(directory)})


def _prepare_built_in(config: Config, directory: pathlib.Path) -> tuple[str, str]:
    """Makes the records of both splits with one vocabulary; returns their directories."""
    model = resolve_model(config.model)
    model_type = model_type_of_words(model)
    if config.model.is_scratch and not config.model.vocab_file:
        tokenizer = BertTokenizer(learn_vocab(built_in_corpus("train"), _TOKENS_OF_BUILT_IN, config.runtime.seed))
    else:
        tokenizer = load_tokenizer(config.model, model, training_texts=())
    names = ("masked_lm_prob", "max_predictions_per_seq", "whole_word_masking", "seed", "overwrite_output_dir")
    values = {name: config.values()[name] for name in names} | {"max_seq_length": config.max_seq_length}
    values |= {"task": PRETRAINING, "num_processes": 1, "learn_vocab": _TOKENS_OF_BUILT_IN}
    paths = [directory / split for split in ("train", "validation")]
    for path in paths:
        options = Config().changed(values | {"output_dir": str(path)}, "prepare")
        prepare_records(built_in_corpus(path.name), tokenizer, options, path, model_type=model_type)
    return str(paths[0]), str(paths[1])


_LEAST_SHARDS = 4
_DOCUMENTS_A_SHARD = 100  # Enough that a hash gives every shard some.


def prepare(config: Config) -> dict[str, Any]:
    """Makes records as the configuration says.

    Args:
        config: With `mode="prepare"`.

    Returns:
        The manifest's `totals`: `records`, `bytes`, `documents`, `sentences`, `tokens`, `words`, `unknown_words`,
        `random_next_sentences`, `predictions`, `unused_tokens`, which are in no record; empty while shards that other
        tasks of an array job make are missing.

    Raises:
        UsageError: for anything given that cannot be used; no record has been written then.
        RunError: if a record cannot be written, or a process ends.
    """
    directory = pathlib.Path(config.output.output_dir).absolute()
    source = open_source(config.corpus, config.data, directory)
    output_dir.check_writable(directory)
    with contextlib.suppress(RuntimeError):  # The calling program uses them already.
        tf.config.set_visible_devices([], "GPU")
    model = resolve_model(config.model, needs_weights=False)
    model_type = model_type_of_words(model)
    if config.corpus.learn_vocab:
        vocab = None if config.output.overwrite_output_dir else manifest.learned_vocab(directory, _how_learned(config))
        tokenizer = BertTokenizer(vocab or learn_vocab(source, config.corpus.learn_vocab, config.runtime.seed))
    else:
        tokenizer = load_tokenizer(config.model, model, training_texts=())
    made = prepare_records(source, tokenizer, config, directory, model_type=model_type)
    if made is None:
        return {}
    totals = made["totals"]
    unused = totals.get("unused_tokens")
    corpus = " of ".join(counted(totals[f"{noun}s"], noun) for noun in ("sentence", "document"))
    about = f"{totals['records']:,} of up to {config.max_seq_length} tokens, from {corpus}"
    about += f"; {counted(totals['predictions'], 'token')} to predict"
    about += f"; {100 * vocabulary.share_of(totals):.2f}% of the words unknown"
    about += f"; {unused / totals['tokens']:.1%} of the tokens cut off by max_seq_length" if unused else ""
    log.info("Records in %s: %s", directory, about)
    return totals


def prepare_records(
    source: Source, tokenizer: Tokenizer, config: Config, directory: pathlib.Path, *, model_type: str = "bert"
) -> dict[str, Any] | None:
    """Makes the records of a corpus that do not exist yet.

    Args:
        source: The corpus.
        tokenizer: Its vocabulary becomes that of the records.
        config: With `mode="prepare"`.
        directory: Where the records go; locked meanwhile.
        model_type: Of the model that the records are for.

    Returns:
        The manifest, whose `totals` sum up the records; None while shards that other tasks of an array job make are
        missing.

    Raises:
        UsageError: for anything given that cannot be used; no record has been written then.
        RunError: if a record cannot be written, or a process ends.
    """
    corpus, overwrite = config.corpus, config.output.overwrite_output_dir
    num_shards = corpus.num_shards or default_num_shards(source)
    recipe = Recipe.of_config(config, tokenizer, num_shards=num_shards, model_type=model_type)
    shards = shards_asked_for(corpus, num_shards)
    is_part = len(shards) < num_shards
    if is_part and overwrite:
        rule = "Tasks of an array job share a directory, and none may empty it"
        todo = "Empty the directory before the job."
        raise UsageError(f"{rule}. Received: overwrite_output_dir with shards={corpus.shards!r}. {todo}")
    # Earlier records are replaced when the new ones are whole: a corpus that cannot be used costs nothing.
    made_in = directory / f"{manifest.WORK}-new" if overwrite else directory
    work = made_in / f"{manifest.WORK}-{shards[0]}-{shards[-1]}"
    with locked(directory, shared=is_part):
        shares = shares_of(source, num_shards)
        identity = {
            # Version 1 dealt all documents of any corpus to all shards.
            "version": 1 if sum(not share.place for share in shares) == 1 else 2,
            "options": recipe.options(),
            "inputs": source.fingerprints(),
            manifest.LEARNED: _how_learned(config),
        }
        digest = manifest.digest_of(identity)
        job = Job(source=source, shares=shares, recipe=recipe, digest=digest, directory=made_in, work=work)
        made_in.mkdir(exist_ok=True)
        with manifest.begun(made_in, identity, tokenizer.file, overwrite=overwrite, shared=is_part):
            for path in () if is_part else made_in.glob(f"{manifest.WORK}*"):
                if path != work:  # Left by a killed task of an array job.
                    shutil.rmtree(path, ignore_errors=True)
            try:
                with locked(work):
                    made = _make_missing(job, shards, corpus, identity)
            except UsageError:
                shutil.rmtree(work, ignore_errors=True)
                raise
        shutil.rmtree(work, ignore_errors=True)
        if made is None:
            log.info("Shards %s to %s of %s are done; others are missing.", shards[0], shards[-1], num_shards)
            return None
        if overwrite:
            manifest.replace(directory, made_in)
        manifest.finish(directory, made)
    return made


def model_type_of_words(model: pathlib.Path | None) -> str:
    """The encoder of a model's directory, BERT's where there is none.

    Raises:
        UsageError: for one without a head for masked words.
    """
    model_type = load_config(model).model_type if model else "bert"
    check_kind(model_type, "MaskedLM")
    return model_type


def default_num_shards(source: Source) -> int:
    """One for `STRETCH_BYTES`, but at least `_LEAST_SHARDS` for the cores, unless the documents are too few."""
    by_size = -(-sum(source.sizes().values()) // STRETCH_BYTES)
    if by_size >= _LEAST_SHARDS:
        return by_size
    documents = itertools.chain.from_iterable(map(source.read, source.parts()))
    enough = _LEAST_SHARDS * _DOCUMENTS_A_SHARD
    return _LEAST_SHARDS if sum(1 for _ in itertools.islice(documents, enough)) == enough else 1


def shards_asked_for(corpus: CorpusConfig, num_shards: int) -> range:
    """The numbers of the shards that this process makes.

    Raises:
        UsageError: for shards that do not exist, or without `num_shards`, which each task could then choose otherwise.
    """
    if not corpus.shards:
        return range(num_shards)
    first, _, last = corpus.shards.partition("-")
    shards = range(int(first), int(last or first) + 1)
    if not corpus.num_shards or not shards or shards[-1] >= num_shards:
        rule = "shards must be among the num_shards shards, counted from 0"
        todo = "Pass for example --num_shards=100 --shards=0-9."
        raise UsageError(f"{rule}. Received: shards={corpus.shards!r} with num_shards={corpus.num_shards}. {todo}")
    return shards


def _make_missing(job: Job, shards: range, corpus: CorpusConfig, identity: dict[str, Any]) -> dict[str, Any] | None:
    """Makes the shards that are not whole; the manifest, yet to be written, once all are, also those of other tasks.

    If what was given cannot be used, the shards that were made here are removed.
    """
    directory, missing = job.directory, {*shards}
    entries = [manifest.read_entry(directory, job.digest, shard) for shard in shards]
    entries = [entry for entry in entries if entry]
    with PassProgress("checking the shards that exist", sum(entry["bytes"] for entry in entries), "MB") as progress:
        for entry in entries:
            with contextlib.suppress(OSError):
                if manifest.crc32_of(directory / entry["file"]) == entry["file_crc32"]:
                    missing.remove(entry["shard"])
            progress.advance(entry["bytes"], entry["bytes"] / 1e6)
    if len(missing) < len(shards):
        log.info("%d of %d shards are whole already.", len(shards) - len(missing), len(shards))
    try:
        if missing:
            vocabulary.check_beginnings(job.source, job.recipe)
            start = time.perf_counter()
            if corpus.engine == "beam":
                make_shards_with_beam(job, sorted(missing), corpus.beam_args)
            else:
                cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
                make_shards(job, sorted(missing), corpus.num_processes or cores or 1)
            entries = {shard: manifest.read_entry(directory, job.digest, shard) for shard in sorted(missing)}
            if lost := [shard for shard, entry in entries.items() if entry is None]:
                rule = "The files of shards must stay where they are written, which all workers of a pipeline must see"
                received = f"none for shard {lost[0]} of {job.recipe.num_shards} in {directory}"
                raise RunError(f"{rule}. Received: {received}. Run it again, or pass another --output_dir.")
            records, sentences = (sum(entry[name] for entry in entries.values()) for name in ("records", "sentences"))
            seconds = time.perf_counter() - start
            written = f"{counted(records, 'record')} of {counted(sentences, 'sentence')} in {clock_text(seconds)}"
            log.info("%s: %s sentences/s.", written, f"{sentences / seconds:,.0f}")
        made = manifest.of_entries(directory, identity)
        if made is not None:
            vocabulary.check_totals(job.source, job.recipe, made["totals"])
    except UsageError:
        for entry in (manifest.read_entry(directory, job.digest, shard) for shard in missing):
            if entry:
                manifest.entry_path(directory, entry["shard"]).unlink(missing_ok=True)
                (directory / entry["file"]).unlink(missing_ok=True)
        raise
    return made


def _how_learned(config: Config) -> dict[str, int]:
    """How the vocabulary is learned; empty if it is not."""
    size = config.corpus.learn_vocab
    return {"learn_vocab": size, "seed": config.runtime.seed} if size else {}
