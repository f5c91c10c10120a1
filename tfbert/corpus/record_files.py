"""Finds the files of records that a run names, indexes them, and checks that they fit each other and the model."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import glob
import logging
import os
import pathlib
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfbert.config.counted import counted
from tfbert.config.rules import path_of
from tfbert.corpus.manifest import MANIFEST, PREPARING, VOCAB, is_shard, read_manifest
from tfbert.corpus.record_index import RecordFile, find_index, index_file
from tfbert.corpus.records import Records
from tfbert.corpus.schema import Schema
from tfbert.errors import UsageError
from tfbert.output.logs import clock_text

if TYPE_CHECKING:
    from tfbert.config.run import Config

log = logging.getLogger("tfbert")

_BESIDE_RECORDS = (".json", ".txt", ".md", ".index")
"""Files in a directory of records that hold no records."""
_SECONDS_BETWEEN_LINES = 10.0


def as_records_are(config: Config) -> Config:
    """The same run with the options that its records decide, unless others are asked for: their length and masks, and
    for a model with random weights the vocabulary that they were made with.

    Raises:
        UsageError: for a directory of records that does not describe them.
    """
    first = find_files(config.pretraining.train_records, "train_records")[0].parent
    made_with = read_manifest(first)["options"] if (first / MANIFEST).is_file() else {}
    if config.data.max_seq_length is None and made_with:
        data = dataclasses.replace(config.data, max_seq_length=made_with["max_seq_length"])
        config = dataclasses.replace(config, data=data)
    config = dataclasses.replace(config, pretraining=config.pretraining.with_masking(made_with))
    vocab = first / VOCAB
    if config.model.is_scratch and not config.model.vocab_file and vocab.is_file():
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_file=str(vocab)))
    return config


def open_records(
    paths: Sequence[str],
    option: str = "train_records",
    *,
    max_seq_length: int | None = None,
    skip_bad_records: bool = False,
    notes: list[str] | None = None,
) -> Records:
    """Opens records; builds the indexes that are missing.

    Args:
        paths: Directories (all files in them), files or patterns. Several files are ordered by their paths.
        option: The option that names them, for messages.
        max_seq_length: The records' length as the user gives it; None: any.
        skip_bad_records: Leave out a damaged record and all that follow it in its file, rather than refuse the file.
        notes: Receives a line for what was left out.

    Raises:
        UsageError: for records that do not exist, cannot be read, differ from each other or do not fit the model;
            the message names what differs.
        RunError: if the disk has no room for an index.
    """
    found = find_files(paths, option)
    manifests = _manifests(found)
    indexed = _indexed(found)
    promised = _promised(manifests)
    _check_manifests(indexed, promised)
    files = [file for file in indexed if _is_usable(file, promised, skip_bad_records, notes)]
    files = [file for file in files if len(file)]
    if not files:
        raise UsageError(
            f"{option} must hold records. Received: {option}={','.join(paths)!r}, {counted(len(found), 'file')} "
            "without records. Pass others."
        )
    schema = _common_schema(files)
    if max_seq_length is not None and schema.max_seq_length != max_seq_length:
        raise UsageError(
            f"max_seq_length must be that of the records. Received: max_seq_length={max_seq_length} with {option} of "
            f"{schema.max_seq_length} tokens ({files[0].name!r}). Drop --max_seq_length, or pass other records."
        )
    name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    has_pairs = schema.has_next_sentence and any(file.has_pairs for file in files)
    vocabularies = {str(directory): manifest["options"]["vocab_sha256"] for directory, manifest in manifests.items()}
    casings = {str(directory): manifest["options"]["casing"] for directory, manifest in manifests.items()}
    return Records(
        name=name,
        files=tuple(files),
        schema=schema,
        has_pairs=has_pairs,
        option=option,
        vocabularies=vocabularies,
        casings=casings,
    )


def find_files(paths: Sequence[str], option: str) -> list[pathlib.Path]:
    """The files that `paths` name, sorted, none of them twice.

    Raises:
        UsageError: for a path or pattern that matches no file, or a directory whose records are not complete yet.
    """
    found: dict[pathlib.Path, pathlib.Path] = {}
    for given in paths:
        path = path_of(given, option)
        if path.is_dir():
            files = _in_directory(path, option)
        elif path.is_file():
            files = [path]
        else:
            # Path.glob would find hidden files too, such as indexes.
            files = [p for p in map(pathlib.Path, glob.glob(str(path), recursive=True)) if p.is_file()]  # noqa: PTH207
        if not files:
            raise UsageError(
                f"{option} must name files of records. Received: {option}={given!r}, which matches no file. "
                "Pass a directory that --mode=prepare wrote, or files or patterns."
            )
        found |= {file.resolve(): file for file in files if file.resolve() not in found}
    return sorted(found.values())


def _in_directory(directory: pathlib.Path, option: str) -> list[pathlib.Path]:
    """The files of a directory: those of its manifest; without one, all that are not hidden and could hold records."""
    if not any((directory / name).exists() for name in (MANIFEST, PREPARING)):
        visible = (path for path in directory.iterdir() if not path.name.startswith("."))
        return [path for path in visible if path.is_file() and path.suffix not in _BESIDE_RECORDS]
    files = [directory / entry["file"] for entry in read_manifest(directory)["shards"]]
    for file in files:
        if not file.is_file():
            raise UsageError(
                "A directory of records must hold all files of its manifest. "
                f"Received: {option}={str(directory)!r} without {file.name}. Copy the directory as a whole."
            )
    return files


def _manifests(paths: Sequence[pathlib.Path]) -> dict[pathlib.Path, dict[str, Any]]:
    """The manifests of the files' directories, for those that have one."""
    directories = {path.parent for path in paths}
    return {directory: read_manifest(directory) for directory in directories if (directory / MANIFEST).exists()}


def _promised(manifests: dict[pathlib.Path, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The entry of each file that a manifest names."""
    return {
        str(directory / entry["file"]): entry for directory, found in manifests.items() for entry in found["shards"]
    }


def _check_manifests(files: Sequence[RecordFile], promised: dict[str, dict[str, Any]]) -> None:
    """Refuses files that are not those of their directory's manifest, without reading them. Damaged files are refused
    elsewhere, and a change since a file was indexed is noticed when its records are read.

    Raises:
        UsageError: naming such a file.
    """
    described = {pathlib.Path(name).parent for name in promised}
    for file in files:
        entry = promised.get(file.name)
        if entry is None:
            path = pathlib.Path(file.name)
            differs = "which is not in it" if path.parent in described and is_shard(path.name) else ""
        elif file.damage:
            differs = ""
        elif len(file) != entry["records"]:
            differs = f"with {len(file):,} records, and {entry['records']:,} in {MANIFEST}"
        elif (file.file_bytes, file.file_crc32) != (entry["bytes"], entry["file_crc32"]):
            differs = (
                f"another file of {len(file):,} records: {file.file_bytes:,} bytes with CRC-32 {file.file_crc32:08x}, "
                f"and {entry['bytes']:,} with {entry['file_crc32']:08x} in {MANIFEST}"
            )
        else:
            differs = ""
        if differs:
            raise UsageError(
                f"Records must match their manifest. Received: {file.name!r} {differs}. "
                "Make them again, or copy the directory as a whole."
            )


def _indexed(paths: Sequence[pathlib.Path]) -> list[RecordFile]:
    """The files with their indexes; logs the progress if indexing takes long."""
    with concurrent.futures.ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        known = list(pool.map(find_index, paths))
        missing = [path for path, file in zip(paths, known, strict=True) if file is None]
        progress = _Indexing(missing)
        built = [pool.submit(progress.index, path) for path in missing]
        try:
            found = dict(zip(missing, (future.result() for future in built), strict=True))
        finally:
            for future in built:
                future.cancel()
    return [found[path] if file is None else file for path, file in zip(paths, known, strict=True)]


class _Indexing:
    """Indexes files, and logs the progress now and then."""

    def __init__(self, paths: Sequence[pathlib.Path]):
        self._total = sum(path.stat().st_size for path in paths)
        self._done: dict[pathlib.Path, int] = {}
        self._began = self._said = time.monotonic()
        self._lock = threading.Lock()

    def index(self, path: pathlib.Path) -> RecordFile:
        size = path.stat().st_size
        found = index_file(path, lambda done: self._report(path, min(done, size)))
        self._report(path, size)
        return found

    def _report(self, path: pathlib.Path, done: int) -> None:
        with self._lock:
            self._done[path] = done
            now = time.monotonic()
            if now - self._said < _SECONDS_BETWEEN_LINES:
                return
            self._said = now
            whole = max(sum(self._done.values()), 1)
            rate = whole / (now - self._began)
        left = clock_text(max(self._total - whole, 0) / rate)
        log.info(
            "indexing records  %.1f of %.1f GB  %.0f MB/s  %s left", whole / 1e9, self._total / 1e9, rate / 1e6, left
        )


def _is_usable(file: RecordFile, promised: dict[str, dict[str, Any]], skips: bool, notes: list[str] | None) -> bool:
    """Whether at least one record of a file can be used; adds to `notes` what is left out.

    Raises:
        UsageError: for a damaged file, unless `skips`.
    """
    if not file.damage:
        return True
    sound = int(file.offsets[-1])
    if not skips:
        advice = "Make or copy the file anew, or add --skip_bad_records to leave out what follows."
        if not sound:
            advice = (
                "If it is text, make records of it with --mode=prepare; else make or copy it anew, or leave it out."
            )
        raise UsageError(
            f"Records must be whole. Received: {file.name!r}, whose record at byte {sound:,} {file.damage}. {advice}"
        )
    if notes is not None:
        known = promised.get(file.name)
        lost = f"{counted(known['records'] - len(file), 'record')} left out, " if known else ""
        notes.append(
            f"warning: {file.name}: left out from byte {sound:,} on, {file.size - sound:,} of {file.size:,} bytes; "
            f"{lost}{counted(len(file), 'record')} kept: the record at that byte {file.damage}"
        )
    return bool(len(file))


def _common_schema(files: Sequence[RecordFile]) -> Schema:
    first = files[0]
    for other in files[1:]:
        if difference := first.schema.difference(other.schema):
            raise UsageError(
                "Records that are trained on together must be made in the same way. "
                f"Received: {first.name!r} and {other.name!r} with {difference}. Pass records of one kind."
            )
    return first.schema
