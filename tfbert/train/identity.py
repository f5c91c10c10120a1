"""What makes two starts the same run: the settings asked for, what was found out at the beginning, and the data.

What another value of an option means to a resumed run is said at its field in `config`, see `rules.OnResume`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
import zlib
from typing import TYPE_CHECKING, Any

import keras

from tfbert.batches.masked_records import MaskedRecords
from tfbert.batches.pipeline import EncodedExamples
from tfbert.batches.plan import ORDER_VERSION
from tfbert.config.given import Given, names_given_data
from tfbert.config.rules import OnResume
from tfbert.config.run import CONTENTS, Config
from tfbert.corpus.manifest import MANIFEST, crc32_of
from tfbert.corpus.records import find_files
from tfbert.errors import UsageError
from tfbert.tasks.base import TaskData
from tfbert.train.saved_state import RunState

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig
    from tfbert.tokens.tokenizer import Tokenizer

EVALUATION = "evaluation_crc32"
"""The fact that tells evaluation sets apart."""
BATCH_ORDER = "batch_order"
"""The version of the order of batches grouped by length; versions of tfbert that did not note it had the first."""
EXAMPLES = ("train_examples", "train_crc32", EVALUATION)
"""The facts that tell the examples of a run, those to evaluate on included, from others."""
_ARCHITECTURE = {
    "layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "vocab_size": "vocab_size",
    "attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "hidden_act": "hidden_act",
    "layer_norm_eps": "layer_norm_eps",
    "hidden_dropout_prob": "hidden_dropout_prob",
    "attention_probs_dropout_prob": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
}

_MODEL_FILES = re.compile(
    r"(bert_)?config\.json|task\.json|(vocab(ulary)?|merges)\.txt|(vocab|tokenizer.*|special_tokens_map|added_tokens)\.json"
    r"|.+\.(safetensors|h5|bin|keras)|.+\.ckpt.*"
)
"""Those of a model's directory that decide what is trained; others are reports, and what a run writes beside them."""


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
        facts = {BATCH_ORDER: 1} | saved.facts
        return dataclasses.replace(saved, settings=_completed(saved.settings), facts=facts)

    def changed(self, asked: Config, *kinds: OnResume) -> dict[str, Any]:
        """The settings of these kinds that differ now: their earlier values, by name."""
        now = settings(asked, *kinds)
        return {name: self.settings[name] for name in now if not _is_same(name, now, self.settings, self.choices)}


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
    named = {
        "train_file": [data.train_file],
        "validation_file": data.validation_files,
        "test_file": [data.test_file],
        "label_names": [data.label_names_file],
        "vocab_file": [config.model.vocab_file],
    }
    paths = {
        name: [given.source if isinstance(given, Given) else pathlib.Path(given) for given in files if given]
        for name, files in named.items()
    }
    model = pathlib.Path(config.model.model_name_or_path).expanduser()
    if not config.model.is_scratch:
        files = [path for path in (model, *model.glob("*"), *model.glob("assets/**/*")) if path.is_file()]
        paths["model_name_or_path"] = sorted(path for path in files if _MODEL_FILES.fullmatch(path.name))
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
    """What differs from before, a phrase each.

    Args:
        before: Earlier values by name. A name that is missing here is not compared.
        now: Present values by name.
        resolved: What options like `auto` came to before; such a value now is no difference.
    """
    different = [name for name in now if not _is_same(name, now, before, resolved or {})]
    return [f"{name}={before[name]!r} before and {now[name]!r} now" for name in different]


def facts_of(
    config: Config,
    data: TaskData,
    train: EncodedExamples | MaskedRecords,
    tokenizer: Tokenizer,
    bert_config: BertConfig,
) -> dict[str, Any]:
    """The facts by which a resumed run checks that model, data and precision are the same."""
    is_planned_whole = config.data.batching == "length_grouped" and not isinstance(train, MaskedRecords)
    return {
        "task": data.task.name,
        "label_names": list(data.task.label_names),
        **{name: getattr(bert_config, attribute) for name, attribute in _ARCHITECTURE.items()},
        **bert_config.encoder.own_facts(bert_config),
        "vocabulary_crc32": tokenizer.crc32,
        "do_lower_case": tokenizer.casing.get("do_lower_case"),
        "precision": keras.config.dtype_policy().name,
        "train_examples": len(train),
        "train_crc32": train.crc32,
        EVALUATION: _evaluation_crc(data),
        **({BATCH_ORDER: ORDER_VERSION} if is_planned_whole else {}),
    }


def data_facts(identity: Identity) -> dict[str, int]:
    """What tells the examples of a run, those to evaluate on included, from others."""
    return {name: identity.facts[name] for name in EXAMPLES}


def _completed(saved: dict[str, Any]) -> dict[str, Any]:
    """A run's settings, with those that its version did not have: at their default, but what examples were held out was
    decided by its `seed` before there was a `split_seed`."""
    split = {"split_seed": saved["seed"]} if saved.get("validation_split") and "seed" in saved else {}
    bias = {} if "head_bias" in saved else {"head_bias": "zero"}  # As all were before there was the option.
    return settings(Config(), "same", "longer", "content", "split") | split | bias | saved


def _is_same(name: str, now: dict[str, Any], before: dict[str, Any], resolved: dict[str, int]) -> bool:
    return name not in before or now[name] in (before[name], resolved.get(name, before[name]))


def _evaluation_crc(data: TaskData) -> int:
    """Tells evaluation sets apart: their names, texts and labels."""
    value = 0
    for name, part in data.validation.items():
        value = part.checksum(name, value)
    return value
