"""Whether a run starts or resumes, and from where: decided once, under the lock, before anything is read or built.

The flag `--overwrite_output_dir` replaces a run, finished or not, unless an earlier start of the same launch wrote it:
a restart of that launch resumes, whatever the flags say of earlier runs. A launch is one call of `tfbert.launch`, or
one SLURM job, which starts again when it is requeued. All that a resumed run takes over from the earlier start is in
the checkpoint, under its checksum.

What makes two starts the same run: the settings asked for, what was found out at the beginning, and the data.

What another value of an option means to a resumed run is said at its field in `config`, see `types.OnResume`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfbert.batches.pipeline import EncodedExamples, MaskedRecords
from tfbert.batches.plan import ORDER_VERSION
from tfbert.batches.schedule import Schedule
from tfbert.config.run import CONTENTS, UNTIL_STEP, Config
from tfbert.config.types import Given, OnResume, counted, names_given_data
from tfbert.corpus.manifest import MANIFEST, crc32_of
from tfbert.corpus.records import find_files
from tfbert.devices.workers import Consensus, check_same, is_chief
from tfbert.errors import RunError, UsageError, is_command
from tfbert.model.files import MODEL_FILES, BertConfig
from tfbert.output import output_dir
from tfbert.output.output_dir import LAUNCH, locked, seal, unseal, write_text
from tfbert.report.run_files import changed_file
from tfbert.step.updates import share_at_end
from tfbert.tasks.base import TaskData
from tfbert.tokens.tokenizer import Tokenizer
from tfbert.train.checkpoint import MODEL, STATE, RunState, newest_intact, step_directory, weights_in

Encoded = EncodedExamples | MaskedRecords
"""Training examples as token ids, or the records that these are read from."""

EVALUATION = "evaluation_crc32"
"""The fact that tells evaluation sets apart: their names, texts and labels."""
BATCH_ORDER = "batch_order"
"""The version of the order of batches grouped by length."""
EXAMPLES = ("train_examples", "train_crc32", EVALUATION)
"""The facts that tell the examples of a run, those to evaluate on included, from others."""
_ARCHITECTURE = ("hidden_size", "vocab_size", "intermediate_size", "max_position_embeddings", "type_vocab_size")
_ARCHITECTURE += ("hidden_act", "layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob")
_ARCHITECTURE += ("classifier_dropout",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """What a run is; JSON can hold it, and every checkpoint does.

    Attributes:
        settings: The options it was started with, except those that change nothing.
        choices: What was resolved at its beginning: micro-batches, replicas, updates of warm-up, updates in all.
        facts: Of model, data and precision: architecture, labels, checksums of vocabulary and examples.
        until_step: Settings that had another value up to an update: that value, by update.
        contents: As `contents_of`, when the files were last read.
    """

    settings: dict[str, Any]
    choices: dict[str, int]
    facts: dict[str, Any]
    until_step: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    contents: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, state: RunState) -> Identity:
        """The identity of a checkpoint's run, complete where it is of an earlier version."""
        saved = cls(**state.identity)
        return dataclasses.replace(saved, settings=_completed(saved.settings))

    def changed(self, asked: Config, *kinds: OnResume) -> dict[str, Any]:
        """The settings of these kinds that differ now: their earlier values, by name."""
        return _changed(self.settings, settings(asked, *kinds), self.choices)


def settings(config: Config, *kinds: OnResume) -> dict[str, Any]:
    """The options of these kinds, with values as JSON gives them."""
    values = [(getattr(part, field.name), field) for part in config.parts() for field in dataclasses.fields(part)]
    found = {field.name: value for value, field in values if field.metadata.get("resume") in kinds}
    return json.loads(json.dumps(found))


def different_in(
    run_config: dict[str, Any], config: Config, kinds: tuple[OnResume, ...] = ("same", "longer", "content")
) -> list[str]:
    """How an earlier run differs from a configuration in what decides its result, a phrase each. Of files the names are
    compared, not what they hold; data in memory has no name.

    Args:
        run_config: What its `run_config.json` holds; options that its version did not have are at their default. Empty
            for a file that is damaged: nothing is compared.
        config: The run now, its defaults resolved.
        kinds: What is compared.
    """
    parts = [run_config.get(field.name) for field in dataclasses.fields(Config)]
    given = {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}
    before = _completed(given) if run_config else {}
    now = settings(config, *kinds)
    return differences({n: v for n, v in before.items() if not names_given_data(v, now.get(n))}, now)


def contents_of(config: Config, known: dict[pathlib.Path, int] | None = None) -> dict[str, int]:
    """CRC-32 of what the files hold that options name, by option, 0 for none: a file may change under its name.

    Of directories, and of a data set by name, all files count that it has on disk. Records count by the manifest of
    their directory, where there is one, which has the checksum of each file.

    Args:
        config: The run. Data in memory has no file.
        known: Checksums of files, for runs that share some; more are added.
    """
    data, known = config.data, {} if known is None else known

    def named(*files: str) -> list[Any]:
        return [given.source if isinstance(given, Given) else pathlib.Path(given) for given in files if given]

    paths = {"train_file": named(data.train_file), "validation_file": named(*data.validation_files)}
    paths |= {"test_file": named(data.test_file), "label_names": named(data.label_names_file)}
    paths |= {"vocab_file": named(config.model.vocab_file)}
    model = pathlib.Path(config.model.model_name_or_path).expanduser()
    if not config.model.is_scratch:
        files = [path for path in (model, *model.glob("*"), *model.glob("assets/**/*")) if path.is_file()]
        paths["model_name_or_path"] = sorted(path for path in files if MODEL_FILES.fullmatch(path.name))
    if not (data.uses_files or data.is_built_in):
        from tfbert.data.tfds_builder import find_builder  # imports TensorFlow Datasets

        with contextlib.suppress(UsageError):  # No such name: the run itself says so.
            paths["dataset"] = [pathlib.Path(find_builder(data.dataset, data.data_dir).data_dir)]
    for name in ("train_records", "validation_records"):
        with contextlib.suppress(UsageError):  # The run itself says what is wrong with them.
            files = find_files(getattr(config.pretraining, name), name)
            described = [file.parent / MANIFEST for file in files]
            paths[name] = [*dict.fromkeys(a if a.is_file() else b for a, b in zip(described, files, strict=True))]
    found = {}
    for name, given in paths.items():
        within = [(path, file) for path in given if isinstance(path, pathlib.Path) for file in _files_of(path)]
        with contextlib.suppress(OSError):  # Likewise.
            known |= {file: crc32_of(file) for _, file in within if file not in known}
        read = [(file.relative_to(path).as_posix(), known.get(file)) for path, file in within]
        found[name] = zlib.crc32(repr(read).encode()) if read else 0
    return found


def _files_of(path: pathlib.Path) -> list[pathlib.Path]:
    """A file, or those of a directory."""
    found = sorted(path.rglob("[!.]*")) if path.is_dir() else [path]
    return [file for file in found if file.is_file()]


def other_contents(run_config: dict[str, Any], contents: dict[str, int], *options: str) -> list[str]:
    """A phrase for each option whose files are not what an earlier run read.

    Args:
        run_config: What its `run_config.json` holds; versions that did not note the contents are not compared.
        contents: As `contents_of` finds them now. What names no file now is not compared.
        options: Those that are compared; none: all.
    """
    before = run_config.get(CONTENTS) or {}
    names = [name for name in options or contents if name in before and contents.get(name)]
    return [f"other contents of {name}" for name in names if before[name] != contents[name]]


def differences(before: dict[str, Any], now: dict[str, Any], resolved: dict[str, int] | None = None) -> list[str]:
    """What differs from before, a phrase each; the arguments are those of `_changed`."""
    changed = _changed(before, now, resolved or {})
    return [f"{name}={value!r} before and {now[name]!r} now" for name, value in changed.items()]


def _changed(before: dict[str, Any], now: dict[str, Any], resolved: dict[str, int]) -> dict[str, Any]:
    """The earlier values of what differs, by name.

    Args:
        before: Earlier values by name. A name that is missing here is not compared.
        now: Present values by name.
        resolved: What options like `auto` came to before; such a value now is no difference.
    """
    both = [name for name in now if name in before]
    return {name: before[name] for name in both if now[name] not in (before[name], resolved.get(name, before[name]))}


def facts_of(
    config: Config, data: TaskData, train: Encoded, tokenizer: Tokenizer, bert_config: BertConfig
) -> dict[str, Any]:
    """The facts by which a resumed run checks that model, data and precision are the same."""
    evaluation = 0
    for name, part in data.validation.items():
        evaluation = part.checksum(name, evaluation)
    is_planned_whole = config.data.batching == "length_grouped" and not isinstance(train, MaskedRecords)
    return {
        "task": data.task.name,
        "label_names": list(data.task.label_names),
        "layers": bert_config.num_hidden_layers,
        "attention_heads": bert_config.num_attention_heads,
        **{name: getattr(bert_config, name) for name in _ARCHITECTURE},
        **bert_config.encoder.own_facts(bert_config),
        "vocabulary_crc32": tokenizer.crc32,
        "do_lower_case": tokenizer.casing.get("do_lower_case"),
        "precision": keras.config.dtype_policy().name,
        "train_examples": len(train),
        "train_crc32": train.crc32,
        EVALUATION: evaluation,
        **({BATCH_ORDER: ORDER_VERSION} if is_planned_whole else {}),
    }


def _completed(saved: dict[str, Any]) -> dict[str, Any]:
    """A run's settings, with those that its version did not have, at their default."""
    return settings(Config(), "same", "longer", "content", "split") | saved


_done: set[pathlib.Path] = set()
"""Directories of runs that this process has finished: another run in one of them is no restart."""


def is_restart(directory: pathlib.Path) -> bool:
    """Whether an earlier start of this launch wrote the directory.

    Raises:
        UsageError: where this process belongs to a launch, and the directory's mark is damaged.
    """
    launch, start = _launch()
    if not launch or directory.absolute() in _done:
        return False
    path = directory / LAUNCH
    try:
        mark = unseal(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        rule = "A restart resumes where its launch stopped, so the file that names the launch must be whole"
        todo = "Remove it, and start with --resume=auto."
        raise UsageError(f"{rule}. Received: {str(path)!r}, which is damaged ({error}). {todo}") from None
    # Two commands of one start of a SLURM job are two runs.
    return mark["launch"] == launch and (not launch.startswith(_SLURM) or mark["start"] < start)


def _mark(directory: pathlib.Path) -> None:
    """Records in a directory which launch, if any, writes to it."""
    launch, start = _launch()
    if launch:
        write_text(directory / LAUNCH, seal({"launch": launch, "start": start}))


_SLURM = "slurm-"


def _launch() -> tuple[str, int]:
    """The name of the launch in the mark, empty where there is none; and how often a SLURM job was requeued."""
    if launched_at := os.environ.get("TFBERT_LAUNCHED_AT"):
        return launched_at, 0
    job = os.environ.get("SLURM_JOB_ID")
    return f"{_SLURM}{job}" if job else "", int(os.environ.get("SLURM_RESTART_COUNT") or 0)


CHECKPOINTS = "checkpoints"


_SAME_SETTINGS = "Pass the same settings"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """How a run starts.

    Attributes:
        directory: Its output directory.
        asked: The run as its configuration asks for it.
        config: The same with what the earlier start found for `auto`.
        resumed: The state of the checkpoint that it resumes from; None for a run that starts at its beginning.
        earlier: The run's identity in that checkpoint; None without one.
        finished: The run's results, if an earlier start of the same launch finished it; else None.
        notes: Lines to log.
    """

    directory: pathlib.Path
    asked: Config
    config: Config
    resumed: RunState | None = None
    earlier: Identity | None = None
    finished: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def checkpoints(self) -> pathlib.Path:
        """Where the run's checkpoints are."""
        return self.directory / CHECKPOINTS

    @property
    def checkpoint(self) -> pathlib.Path | None:
        """The directory of the checkpoint that the run resumes from."""
        return step_directory(self.checkpoints, self.resumed.step) if self.resumed else None


@contextlib.contextmanager
def open_directory(
    directory: pathlib.Path, config: Config, strategy: tf.distribute.Strategy, consensus: Consensus
) -> Iterator[Start]:
    """Locks the run's output directory for as long as the block lasts, and finds out how the run starts.

    Only the chief locks, and the other workers wait for it. A directory that was made for a run which then wrote
    nothing is removed again.

    Args:
        directory: The run's output directory.
        config: The run, its defaults resolved.
        strategy: Each of its workers must call this function.
        consensus: Between these workers.

    Raises:
        UsageError: for a directory that the run cannot use, on all workers alike.
        RunError: for one that another process is writing to, or in which workers see different files.
    """
    with contextlib.ExitStack() as stack:
        with _together(consensus):
            if is_chief(strategy):
                output_dir.check_writable(directory)
                stack.enter_context(locked(directory))
        with _together(consensus):
            start = decide(directory, config, num_replicas=strategy.num_replicas_in_sync)
        check_same(
            lambda: {
                "checkpoint": f"step {start.resumed.step}" if start.resumed else "none",
                "gradient_accumulation_steps": start.config.training.gradient_accumulation_steps,
                "is_finished": start.finished is not None,
            },
            strategy,
            rule="All workers must see the same checkpoints",
            way_out="Put --output_dir on a file system that all workers share",
            error=RunError,
        )
        yield start
        _done.add(directory.absolute())


def decide(directory: pathlib.Path, config: Config, *, num_replicas: int = 1) -> Start:
    """How a run starts in a directory; changes nothing.

    Args:
        directory: The output directory, locked.
        config: The run, its defaults resolved.
        num_replicas: Replicas of all workers together.

    Raises:
        UsageError: for a directory that the run cannot use, or settings other than those that it began with.
    """
    start, names = Start(directory=directory, asked=config, config=config), output_dir.contents(directory)
    launched_here, run_config = is_restart(directory), output_dir.read_run_config(directory)
    is_finished, holds_run = (directory / output_dir.RESULTS).exists(), run_config.get("mode") == "train"
    never = config.output.resume == "never" and not launched_here

    def refusal(what: str, way_out: str = "") -> UsageError:
        replace = ", or --overwrite_output_dir to replace an earlier run" if holds_run else ""
        received = f"output_dir={str(directory)!r}, which holds {what}"
        return UsageError(f"output_dir must be new or empty. Received: {received}. Pass another{replace}{way_out}.")

    if not names:
        return start
    if is_finished and launched_here:
        if different := different_in(run_config, config):
            rule, what = "Each run of a launch needs an output_dir of its own", ", ".join(different)
            received = f"output_dir={str(directory)!r}, in which this launch has finished a run with {what}"
            raise UsageError(f"{rule}. Received: {received}. Pass another.")
        return dataclasses.replace(start, finished=_results_of(directory))
    name = config.model.model_name_or_path
    model = pathlib.Path(name).expanduser()
    is_read = not config.model.is_scratch and model.exists()
    if is_read and directory.resolve() in (model.resolve(), *model.resolve().parents):
        rule = "output_dir must not hold the model that is fine-tuned"  # The run would replace files that it reads.
        received = f"output_dir={str(directory)!r} with model_name_or_path={name!r}"
        raise UsageError(f"{rule}. Received: {received}. Pass another --output_dir.")
    if config.output.overwrite_output_dir and not launched_here:
        if not holds_run:
            raise refusal(f"{names[0]!r} and no training run to overwrite")
        return start
    if never and not is_finished:
        raise refusal("an unfinished run" if holds_run else repr(names[0]))

    # Of a finished run, checkpoints may be mere models.
    is_any = not is_finished or any(start.checkpoints.glob(f"step-*/{STATE}"))
    checkpoint = newest_intact(start.checkpoints) if is_any else None
    earlier = Identity.of(checkpoint) if checkpoint else None
    if is_finished:  # It may go further, where more is asked for than it did.
        way_out = f", or --model={directory} to start a new run from its weights"
        longer = earlier.changed(config, "longer") if earlier else different_in(run_config, config, ("longer",))
        if never or not longer:
            raise refusal("a finished run", way_out)
        if earlier is None:
            what = "a finished run without the state of its training, which --keep_optimizer keeps"
            raise refusal(what, way_out)
        patience = earlier.settings["early_stopping_patience"]  # May have come to its end at the run's last update.
        if checkpoint.step < earlier.choices.get("total_steps", 0) or 0 < patience <= checkpoint.without_better:
            raise refusal(f"a run that stopped early, at update {checkpoint.step}, and would stop there again", way_out)
    if earlier:
        start = dataclasses.replace(start, resumed=checkpoint, earlier=earlier)
        if different := differences(earlier.settings, settings(config, "same"), earlier.choices):
            raise _other_run(start, different, "A run resumes with the settings that it began with")
        found = earlier.choices.get("gradient_accumulation_steps")
        # With the same number of replicas, a resumed run keeps the micro-batches that it began with.
        if config.training.is_auto and found and earlier.choices.get("num_replicas", num_replicas) == num_replicas:
            start = dataclasses.replace(start, config=config.accumulating(found))
        return start
    if not holds_run:
        raise refusal(f"{names[0]!r} and no run")
    if not launched_here and (different := different_in(run_config, config)):
        raise refusal(f"an unfinished run of another configuration, with {', '.join(different)}")
    note = f"{directory} holds an unfinished run without a checkpoint to resume from: it starts at the beginning"
    return dataclasses.replace(start, notes=(note,))


def _results_of(directory: pathlib.Path) -> dict[str, Any]:
    """The results of a finished run.

    Raises:
        UsageError: if they are not whole.
    """
    path, facts = directory / output_dir.RESULTS, {}
    with contextlib.suppress(OSError, ValueError):  # Without its report a run is as finished.
        facts = output_dir.read_json(directory / output_dir.FACTS)
    try:
        results = output_dir.read_json(path)
        if changed_file(directory, facts, results) == output_dir.RESULTS:
            raise ValueError("changed after the run had written it")
        return results
    except (OSError, ValueError) as error:
        rule = "A finished run's results must be whole"
        raise UsageError(f"{rule}. Received: {str(path)!r} ({error}). Remove the file.") from None


def check_same_run(start: Start, facts: dict[str, Any], schedule: Schedule) -> tuple[RunState, Schedule, list[str]]:
    """Checks what is known only once data and model are built, and that the run has not become shorter.

    Args:
        start: Of a resumed run.
        facts: Those of model, data and precision now; see `facts_of`.
        schedule: Of the whole run now.

    Returns:
        The state to resume from, without the best evaluation if that was made on other examples; the schedule from
        there on, with the warm-up that the run began with (`warmup_ratio` of a longer run would be more); and lines to
        log.

    Raises:
        UsageError: naming what differs.
    """
    state, earlier, training = start.resumed, start.earlier, start.config.training
    comparable = {name: value for name, value in facts.items() if name != EVALUATION}
    if different := differences(earlier.facts, comparable):
        is_older = len(different) == 1 and different[0].startswith(BATCH_ORDER)
        way_out = "Finish it with the version of tfbert that began it" if is_older else _SAME_SETTINGS
        rule = "A run resumes only with the same model, data, order of batches and precision"
        raise _other_run(start, different, rule, way_out)
    total_steps = schedule.total_steps
    planned = earlier.choices.get("total_steps", total_steps)
    begun = earlier.choices.get("warmup_steps", schedule.warmup_steps)
    if total_steps < planned or total_steps <= state.step:
        lengths = settings(start.asked, "longer")
        done = f"{state.step} of {planned} planned updates done and {total_steps} asked for now"
        rule = "A resumed run must have an update to make, and be at least as long as planned"
        way_out = "Pass the earlier length, or a longer one"
        raise _other_run(start, [done, *differences(earlier.settings, lengths)], rule, way_out)
    lines = [f"resuming at step {state.step} of {total_steps} from {start.checkpoint}"]
    if total_steps > planned:
        end = share_at_end(training.lr_schedule, training.lr_power)
        rate = f": the learning rate falls to {end * training.learning_rate:g} at the new end" if end < 1 else ""
        lines.append(f"a longer run than before, {total_steps} updates in place of {planned}{rate}")
        if start.config.data.batching == "packed":  # Rows are packed for all updates of a run, so here for more.
            lines.append("rows are packed anew for the whole length: dropout may draw other noise from here on")
        if begun != schedule.warmup_steps:
            lines.append(f"the warm-up stays as it was, {counted(begun, 'update')}")
    if split := earlier.changed(start.asked, "split"):
        now = settings(start.asked, "split")
        what = ", ".join(f"{name}={now[name]!r} in place of {value!r}" for name, value in split.items())
        # Dropout noise depends on a token's place in its padded row, or in its packed row.
        other_noise = start.config.data.batching == "packed" or split.keys() & {"xla", "max_compiled_shapes"}
        updates = "with other dropout noise" if other_noise else "with the same updates but for rounding"
        lines.append(f"computed differently from before, {updates}: {what}")
    if state.best and earlier.facts.get(EVALUATION, facts[EVALUATION]) != facts[EVALUATION]:
        # Earlier metrics cannot be compared with those to come.
        lines.append("the examples to evaluate on are not those of before: the best evaluation so far is forgotten")
        state = state.without_best()
    return state, dataclasses.replace(schedule, warmup_steps=begun, first_step=state.step), lines


def identify(start: Start, config: Config, facts: dict[str, Any], schedule: Schedule, num_replicas: int) -> Identity:
    """The run's identity, for its checkpoints.

    Args:
        start: How it starts.
        config: Complete: nothing is left to be decided.
        facts: Those of model, data and precision.
        schedule: The whole run's.
        num_replicas: Replicas of all workers together.
    """
    asked, until_step, earlier = settings(start.asked, "same", "longer", "content", "split"), {}, start.earlier
    if earlier:
        changed = earlier.changed(start.asked, "longer", "content", "split")
        until_step = earlier.until_step | ({str(start.resumed.step): changed} if changed else {})
        # Whoever repeats run_config.json asks for the number that `auto` came to: both ways must resume.
        asked |= {name: value for name, value in earlier.settings.items() if name in asked and name not in changed}
    return Identity(
        settings=asked,
        choices={
            "gradient_accumulation_steps": config.training.gradient_accumulation_steps,
            "num_replicas": num_replicas,
            "warmup_steps": schedule.warmup_steps,
            "total_steps": schedule.total_steps,
        },
        facts=facts,
        until_step=until_step,
    )


def write_start(directory: pathlib.Path, config: Config, identity: Identity, *, is_resumed: bool) -> None:
    """Removes an earlier run's files from the directory unless this run resumes it, and writes `run_config.json`.

    Args:
        directory: The output directory.
        config: The run.
        identity: Its identity.
        is_resumed: Whether it resumes what is there.

    Raises:
        UsageError: for a directory that cannot be written.
        RunError: for a full disk.
    """
    try:
        if not is_resumed:
            is_new = config.output.overwrite_output_dir and not is_restart(directory)
            output_dir.clear(directory, but="" if is_new else output_dir.TRACKER_ID)  # An unfinished run begins again.
        noted = {UNTIL_STEP: identity.until_step, CONTENTS: identity.contents}
        values = json.loads(config.to_json()) | {name: value for name, value in noted.items() if value}
        output_dir.write_json(directory / output_dir.RUN_CONFIG, values)
        output_dir.clear_results(directory)  # Of a run that goes further.
        _mark(directory)
    except OSError as error:
        rule = "output_dir must be writable"
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r} ({error.strerror}). Pass another.") from None


def how_to_resume(config: Config, directory: pathlib.Path) -> str:
    """How to resume a run that was stopped."""
    if config.output.output_dir and config.output.resume == "auto" and not config.output.overwrite_output_dir:
        return f"the same {'command' if is_command() else 'call'} resumes in {directory}"
    return f"--output_dir={directory} resumes the run, with --resume=auto and without --overwrite_output_dir"


@contextlib.contextmanager
def _together(consensus: Consensus) -> Iterator[None]:
    """Ends all workers if one of them cannot continue; every worker must enter this block.

    Raises:
        UsageError, RunError: the worker's own error, or one that says where to find the cause.
    """
    own = None
    try:
        yield
    except (UsageError, RunError) as error:
        own = error
    kinds = (UsageError, RunError)
    seen = [consensus.any(isinstance(own, kind)) for kind in kinds]  # A list: every worker answers every question.
    if own is not None:
        raise own
    if any(seen):
        kind = kinds[seen.index(True)]
        raise kind("All workers must be able to start. Received: one that is not. See its output for the cause.")


def _other_run(start: Start, different: list[str], rule: str, way_out: str = _SAME_SETTINGS) -> UsageError:
    """The refusal of a run that is not the one whose checkpoint is there."""
    from_these = f": with --model={start.checkpoint} a new run starts from these weights"
    if weights_in(start.checkpoint).name != MODEL:
        from_these = ""
    todo = f"{way_out}, or pass another --output_dir{from_these}; --overwrite_output_dir starts over."
    return UsageError(f"{rule}. Received: output_dir={str(start.directory)!r} with {', '.join(different)}. {todo}")
