"""How records are made, and what a directory of them says about itself.

The `Recipe` is everything that a shard depends on besides its documents. The directory:

    manifest.json                      written when all shards are whole; sealed
    vocab.txt                          the vocabulary, or `tokenizer.json`, see `Tokenizer.file`
    tokenizer_config.json              beside `vocab.txt`, the casing of text, as Hugging Face's tokenizers state it
    records-00003-of-00100.tfrecord    the records
    entries/00003.json                 one per shard: proves that the shard is whole; sealed
    .preparing.json                    how the records are being made, until there is a manifest; sealed

An entry holds `file`, `records`, `bytes`, `file_crc32`, `lengths` (records by their number of tokens),
`documents`, `sentences` and `tokens` of the corpus, its `words` and `unknown_words`, `longer_documents` of two
sentences and more, and of all records `random_next_sentences` and `predictions`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import socket
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfbert.config.run import Config
from tfbert.config.tables import kinds_of
from tfbert.config.tasks import RecordNames
from tfbert.corpus.masking import Masking, most_predictions, record_keys
from tfbert.errors import UsageError
from tfbert.output.output_dir import seal, unseal, write_text
from tfbert.tokens.tokenizer import TOKENIZER_JSON, Tokenizer

MANIFEST, PREPARING, ENTRIES, VOCAB = "manifest.json", ".preparing.json", "entries", "vocab.txt"
WORK = ".work"
"""Prefix of the directories for data between the corpus and its shards; each has its own lock."""
CASING = "tokenizer_config.json"
LEARNED = "learned_vocab"
SHARD = re.compile(r"records-\d{5,}-of-\d{5,}\.tfrecord(\.gz)?")
_BEGINNINGS = re.compile(r"\.lock|\.work|\.+(preparing|vocab|tokenizer)\.")
_READ_BYTES = 1 << 22
_RULE = "A directory of records must have the manifest that --mode=prepare wrote"
_LEAST_LENGTH = 5
"""Three special tokens, and one token of each stretch of text."""
_TOTALS = (
    "records bytes documents longer_documents sentences tokens random_next_sentences predictions words unknown_words "
    "unused_tokens"
)
_ROWS = 1 << 12
"""Rows of a part that are dealt at a time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The options of `--mode=prepare` that decide what is in the records, and the tokenizer. It can be pickled.

    Attributes:
        max_seq_length: Width of a record, in tokens.
        max_predictions_per_seq: Most tokens of a record that are predicted.
        masked_lm_prob: Share of a record's tokens that are predicted.
        whole_word_masking: Mask all pieces of a word together.
        dupe_factor: Number of passes over the corpus.
        short_seq_prob: Share of shorter target lengths.
        random_next_sentence: Pairs rather than full sentences.
        record_names: Names of the features.
        compress_records: Write GZIP.
        seed: The seed of everything that is drawn.
        num_shards: The number of record files.
        tokenizer: Splits text.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    masked_lm_prob: float
    whole_word_masking: bool
    dupe_factor: int
    short_seq_prob: float
    random_next_sentence: bool
    record_names: RecordNames
    compress_records: bool
    seed: int
    num_shards: int
    tokenizer: Tokenizer

    @classmethod
    def of_config(cls, config: Config, tokenizer: Tokenizer, *, num_shards: int, model_type: str = "bert") -> Recipe:
        """The recipe that a run's options describe.

        Args:
            config: Options of the corpus and of masking, length and seed.
            tokenizer: Splits text.
            num_shards: The number of record files.
            model_type: Of the model that the records are for; BERT alone tells whether a text follows another.

        Raises:
            UsageError: for options that do not fit each other, the tokenizer or the model.
        """
        told_apart = tokenizer.has_token_types and tokenizer.separators == 1
        makes_pairs = told_apart and "PreTraining" in kinds_of(model_type)
        if config.corpus.random_next_sentence and not makes_pairs:
            why = f"a {model_type} model" if told_apart else "a tokenizer without types for two texts"
            rule = "Next sentences are predicted by BERT alone, with a tokenizer as BERT's"
            raise UsageError(f"{rule}. Received: random_next_sentence=True for {why}. Drop --random_next_sentence.")
        length = config.max_seq_length
        if length < _LEAST_LENGTH:
            rule = f"Records must have room for {_LEAST_LENGTH} tokens"
            raise UsageError(f"{rule}. Received: max_seq_length={length}. Pass a larger one.")
        masks = config.pretraining.with_masking()
        prob = masks.masked_lm_prob
        most = most_predictions(masks.max_predictions_per_seq, masked_lm_prob=prob, max_seq_length=length)
        options = vars(masks) | vars(config.corpus) | {"max_predictions_per_seq": most, "max_seq_length": length}
        options |= {"seed": config.runtime.seed, "num_shards": num_shards, "tokenizer": tokenizer}
        if config.corpus.random_next_sentence is None:
            options["random_next_sentence"] = makes_pairs
        return cls(**{field.name: options[field.name] for field in dataclasses.fields(cls)})

    def options(self) -> dict[str, Any]:
        """All options, as JSON can hold them; for the tokenizer, its casing, and the vocabulary's size and hash."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        tokenizer: Tokenizer = fields.pop("tokenizer")
        return fields | {
            "casing": tokenizer.casing,
            "vocab_size": tokenizer.vocab_size,
            "vocab_sha256": vocab_sha256(tokenizer.vocab),
        }

    @functools.cached_property
    def masking(self) -> Masking:
        """How the records are masked."""
        return Masking.of_tokenizer(self.tokenizer, self, self.max_seq_length)

    def dealt(self, part: int, place: int, count: int) -> Iterator[bool]:
        """Which rows of a part are dealt to one of the shards that read it, without end.

        Args:
            part: The number of the part among all of them.
            place: Which of the shards that read it, from 0.
            count: How many do.
        """
        for start in itertools.count(0, _ROWS):
            # Another seed than that of a shard's own draws, so that both are independent.
            keys = record_keys(~self.seed, part, np.arange(start, start + _ROWS))
            yield from (keys % np.uint64(count) == place).tolist()


def vocab_sha256(vocab: Sequence[str]) -> str:
    """The SHA-256 of a vocabulary, as `vocab.txt` has it."""
    return hashlib.sha256("".join(token + "\n" for token in vocab).encode("utf-8", "surrogatepass")).hexdigest()


def digest_of(identity: dict[str, Any]) -> str:
    """A hash of all that decides what is in the records: a manifest but for what it counts. How the vocabulary was
    learned is only recorded, so that it need not be learned again."""
    identity = {key: value for key, value in identity.items() if key != LEARNED}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def begun(
    directory: pathlib.Path,
    identity: dict[str, Any],
    file: tuple[str, str],
    *,
    overwrite: bool = False,
    shared: bool = False,
) -> Iterator[None]:
    """Marks a directory as the place of such records, to be made in the block. It must be locked.

    What a start that made no shard left is removed if other records are asked for, and all that one left which was to
    overwrite records. What cannot be used, a `UsageError` in the block, leaves nothing where no shard has been made.

    Args:
        directory: The records' directory.
        identity: What `digest_of` takes.
        file: The vocabulary, as `Tokenizer.file` gives it.
        overwrite: Whether other records that were begun here may be removed.
        shared: Whether other tasks of the same job may be using the directory: then nothing is removed.

    Raises:
        UsageError: for a directory that holds something else, or records made differently; says what differs.
        RunError: if it cannot be written.
    """
    vocab, own = directory / file[0], [directory / PREPARING, directory / file[0]]
    way_out = "Pass another, or empty it before the job." if shared else "Pass another, or --overwrite_output_dir."
    if _stated_in(directory) is None:
        # Except what tasks of the same job write first, and the same vocabulary.
        others = [path.name for path in directory.iterdir() if not _BEGINNINGS.match(path.name)]
        if vocab.exists():
            own.remove(vocab)
            if vocab.name in others and vocab.read_bytes() == file[1].encode():
                others.remove(vocab.name)
        if others and _stated_in(directory) is None:  # Another task may have begun just now.
            rule = "Records are written to a directory of their own"
            raise UsageError(f"{rule}. Received: output_dir={str(directory)!r}, which holds {min(others)}. {way_out}")
        _write_whole(directory / PREPARING, seal(identity))
    if differs := _differences(_read_sealed(_stated_in(directory)), identity):
        if shared or (_has_shards(directory) and not overwrite):
            rule = "Preparing records must continue with the options and the corpus that it began with"
            made = f"output_dir={str(directory)!r}, made with {'; '.join(differs)}"
            raise UsageError(f"{rule}. Received: {made}. {way_out}")
        clear(directory)
        _write_whole(directory / PREPARING, seal(identity))
    _write_whole(vocab, file[1])
    try:
        yield
    except UsageError:
        if overwrite:
            shutil.rmtree(directory, ignore_errors=True)
        elif not shared and not _has_shards(directory):  # The rest belongs to the other tasks as well.
            for path in own:
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # It may never have been made.
                (directory / ENTRIES).rmdir()
        raise


def learned_vocab(directory: pathlib.Path, learned: dict[str, int]) -> list[str] | None:
    """The vocabulary that an earlier start learned for the shards that it made, in the same way; None if there is none.

    `begun` checks later that the corpus is the same. Without shards it may be another one.
    """
    if not _has_shards(directory):
        return None
    try:
        values = _read_sealed(_stated_in(directory) or directory / PREPARING)
        vocab = (directory / VOCAB).read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, UsageError, UnicodeDecodeError):
        return None
    is_same = values.get(LEARNED) == learned and values["options"]["vocab_sha256"] == vocab_sha256(vocab)
    return vocab if is_same else None


def replace(directory: pathlib.Path, made_in: pathlib.Path) -> None:
    """Puts records that were made elsewhere on the same disk, and their vocabulary, in the place of earlier ones."""
    clear(directory, but=made_in.name)
    (directory / ENTRIES).mkdir(exist_ok=True)
    for path in [*(made_in / ENTRIES).iterdir(), *made_in.glob("[!.]*.*")]:
        path.replace(directory / path.relative_to(made_in))
    shutil.rmtree(made_in)


def clear(directory: pathlib.Path, *, but: str = "") -> None:
    """Removes earlier records from a directory, and what was needed to make them; nothing else.

    Args:
        directory: The records' directory.
        but: The name of what stays.
    """
    for path in [directory / MANIFEST, directory / PREPARING, *directory.glob(f"{ENTRIES}/*.json")]:
        path.unlink(missing_ok=True)
    for path in directory.iterdir():
        if SHARD.fullmatch(path.name):
            path.unlink()
    for path in directory.glob(f"{WORK}*"):
        if path.name != but:
            shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):  # It does not exist, or is not empty.
        (directory / ENTRIES).rmdir()


def write_entry(directory: pathlib.Path, entry: dict[str, Any]) -> None:
    """Writes the entry of a shard whose file exists.

    Raises:
        RunError: if it cannot be written.
    """
    (directory / ENTRIES).mkdir(exist_ok=True)
    _write_whole(entry_path(directory, entry["shard"]), seal(entry))


def read_entry(directory: pathlib.Path, digest: str, shard: int) -> dict[str, Any] | None:
    """The entry of a shard that is there; None without one, or where its file is of another size.

    Args:
        directory: The records' directory.
        digest: The digest of the recipe and inputs that it must have been made with.
        shard: Its number.
    """
    try:
        entry = unseal(entry_path(directory, shard).read_text(encoding="utf-8"))
        is_whole = (directory / entry["file"]).stat().st_size == entry["bytes"]
        return entry if is_whole and (entry["of"], entry["shard"]) == (digest, shard) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def of_entries(directory: pathlib.Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of the shards that have been made; None while any is missing."""
    digest, num_shards = digest_of(identity), identity["options"]["num_shards"]
    if sum(1 for _ in directory.glob(f"{ENTRIES}/*")) < num_shards:
        return None  # Decided without reading any entry: there may be many tasks, and each calls this.
    entries = [read_entry(directory, digest, shard) for shard in range(num_shards)]
    if None in entries:
        return None
    entries = [{key: value for key, value in entry.items() if key not in ("of", "num_shards")} for entry in entries]
    # Entries of 2.0.0 have no unused tokens.
    names = [name for name in _TOTALS.split() if all(name in entry for entry in entries)]
    totals = {name: sum(entry[name] for entry in entries) for name in names}
    return identity | {"totals": totals, "shards": entries}


def finish(directory: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Writes what `of_entries` returned, and how text is cased; a model's own file of that name stays.

    Raises:
        RunError: if it cannot be written.
    """
    casing = manifest["options"]["casing"]
    try:
        stated = json.loads((directory / CASING).read_text(encoding="utf-8"))
    except FileNotFoundError:
        stated = {}
    except ValueError:
        stated = None
    if TOKENIZER_JSON not in casing and isinstance(stated, dict) and stated.keys() <= casing.keys():
        _write_whole(directory / CASING, json.dumps(casing, indent=2) + "\n")
    _write_whole(directory / MANIFEST, seal(manifest))
    (directory / PREPARING).unlink(missing_ok=True)


def read_manifest(directory: pathlib.Path) -> dict[str, Any]:
    """The manifest of a directory of records: `options`, `inputs`, `totals` and `shards`, one entry each.

    Raises:
        UsageError: if there is none (records may still be being made), or if it was changed.
    """
    try:
        return _read_sealed(directory / MANIFEST)
    except FileNotFoundError:
        unfinished = " yet: shards are missing" if (directory / PREPARING).exists() else ""
        todo = "Wait for it, or run it again" if unfinished else "Pass its output_dir, or files by name or pattern"
        raise UsageError(f"{_RULE}. Received: {directory} without one{unfinished}. {todo}.") from None


def is_own(path: pathlib.Path, output_dir: pathlib.Path | None = None) -> bool:
    """Whether a file belongs to a directory of records, by its name and place: then it is no text of a corpus.

    Args:
        path: The file.
        output_dir: A directory of records even if it does not say so yet.
    """
    in_entries = path.parent.name == ENTRIES and path.suffix == ".json"
    if not in_entries and path.name not in (MANIFEST, VOCAB, TOKENIZER_JSON, CASING) and not SHARD.fullmatch(path.name):
        return False
    directory = path.parent.parent if in_entries else path.parent
    if output_dir is not None and directory.resolve() == output_dir.resolve():
        return True
    return (directory / PREPARING).exists() or ((directory / MANIFEST).exists() and (directory / ENTRIES).is_dir())


def crc32_of(path: pathlib.Path) -> int:
    """The CRC-32 of a file's content."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            value = zlib.crc32(block, value)
    return value


def entry_path(directory: pathlib.Path, shard: int) -> pathlib.Path:
    """Where the entry of a shard is."""
    return directory / ENTRIES / f"{shard:05}.json"


def _read_sealed(path: pathlib.Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        return unseal(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{_RULE}. Received: {path}: {error}. Make the records again.") from None


def _has_shards(directory: pathlib.Path) -> bool:
    """Whether any shard in a directory has been made."""
    return (directory / MANIFEST).exists() or any((directory / ENTRIES).glob("*.json"))


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """In what the records that were found differ from those that are wanted."""
    old, new = found.get("options", {}), wanted["options"]
    differs = [f"{name}={old.get(name)!r}, asked for {own!r}" for name, own in new.items() if old.get(name) != own]
    inputs, files = found.get("inputs", {}), wanted["inputs"]
    if inputs != files:
        changed = sorted(name for name in {*inputs, *files} if inputs.get(name) != files.get(name))
        differs.append(f"{len(changed)} other parts of the corpus, such as {changed[0]}")
    if found.get("version") != wanted["version"]:
        differs.append(f"version={found.get('version')}")
    return differs


def _stated_in(directory: pathlib.Path) -> pathlib.Path | None:
    """The file that says how the records are made. The order matters: the second exists before the first is removed."""
    return next((path for path in (directory / PREPARING, directory / MANIFEST) if path.exists()), None)


def _write_whole(path: pathlib.Path, text: str) -> None:
    """Writes a file atomically, because other tasks may be writing the same text."""
    partial = path.with_name(f".{path.name.lstrip('.')}.{socket.gethostname()}-{os.getpid()}")
    write_text(partial, text)
    partial.replace(path)
