"""Directories as tables: a folder of texts for each class, such as aclImdb's `train`, and what `save_to_disk` of
Hugging Face's `datasets` writes."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfbert.config.counted import counted
from tfbert.data.foreign_files import file_beside, read_json_object
from tfbert.data.lines import not_utf8, not_utf8_error
from tfbert.data.open_file import OpenFile, Row
from tfbert.errors import UsageError

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("tfbert")

_STATE, _SETS = "state.json", "dataset_dict.json"
_UNLABELLED = "unsup"  # In aclImdb's train, texts of which nobody says whether they are positive.
_TEXTS = (".txt", ".text", "")
_RULE = "A directory of examples has a folder of .txt files for each class, or is what datasets' save_to_disk writes"


def saved_files(path: pathlib.Path) -> list[pathlib.Path]:
    """The Arrow files of a data set that `save_to_disk` wrote, in their order; none for any other path.

    Raises:
        UsageError: for several sets in one directory, and for one that is not whole.
    """
    if (path / _SETS).is_file():
        sets = read_json_object(path / _SETS, f"{_SETS} must list the sets of examples").get("splits")
        names = [str(name) for name in sets] if isinstance(sets, list) and sets else ["train"]
        raise UsageError(
            f"A directory of examples holds one set. Received: {str(path)!r} with the sets {', '.join(names)}. "
            f"Pass one of them, such as {str(path / names[0])!r}."
        )
    if not (path / _STATE).is_file():
        return []
    state = read_json_object(path / _STATE, f"{_STATE} must list the files of a data set")
    entries = state.get("_data_files")
    names = [entry.get("filename") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if not names or not all(isinstance(name, str) for name in names) or state.get("_indices_data_files"):
        raise UsageError(
            "A saved data set lists its files, and takes all of their rows. "
            f"Received: _data_files={entries!r:.60} in {path / _STATE}. Save it again with a newer version of datasets."
        )
    return [file_beside(path / _STATE, name) for name in names]


def arrow_schema(path: pathlib.Path) -> pyarrow.Schema:
    """The columns of a Parquet file, or of a data set that `save_to_disk` wrote.

    Raises:
        UsageError: as `saved_files`.
        OSError: for a file that cannot be read, as for one that is damaged, unless that is an ArrowException.
    """
    import pyarrow
    from pyarrow import parquet

    files = saved_files(path)
    if not files:
        return parquet.read_schema(path)
    with pyarrow.memory_map(str(files[0])) as source, pyarrow.ipc.open_stream(source) as reader:
        return reader.schema


def is_tree(path: pathlib.Path) -> bool:
    """Whether a path is a directory of another kind, which can only be a tree of texts."""
    return path.is_dir() and not saved_files(path)


def open_tree(path: pathlib.Path) -> OpenFile:
    """Opens a directory with a folder of texts for each class, or with texts alone, as `rows.open_rows` opens a file.

    The columns are `id`, a file's path in it, `text`, and in folders `label`, the name of a file's folder.

    Raises:
        UsageError: for a directory that holds anything else.
    """
    folders = [entry for entry in _visible(path) if entry.is_dir()]
    left_out = [_texts_in(folder) for folder in folders if folder.name == _UNLABELLED]
    folders = [folder for folder in folders if folder.name != _UNLABELLED]
    files = [file for folder in folders or [path] for file in _texts_in(folder)]

    def read(wanted: Sequence[str]) -> Iterator[Row]:
        for number, file in enumerate(files, start=1):
            try:
                text = file.read_bytes().decode("utf-8-sig", "surrogateescape")
            except OSError as error:
                raise UsageError(
                    f"A text must be readable. Received: {str(file)!r} ({error.strerror}). Check the directory."
                ) from None
            row = {"id": file.relative_to(path).as_posix(), "text": text, "label": file.parent.name}
            byte = not_utf8(text)
            yield number, not_utf8_error(byte, str(file)) if byte else [row[column] for column in wanted]
        for texts in left_out:
            log.info("%s: %s in 'unsup' left out: aclImdb has no labels for them", path, counted(len(texts), "text"))

    return OpenFile(name=str(path), columns=["id", "text", *(["label"] if folders else [])], read=read, unit="row")


def _visible(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "__MACOSX")))  # Of macOS's zips.


def _texts_in(folder: pathlib.Path) -> list[pathlib.Path]:
    found = _visible(folder)
    others = [entry for entry in found if not entry.is_file() or entry.suffix.lower() not in _TEXTS]
    if others or not found:
        what = f"with {others[0].name!r}" if others else "which is empty"
        inside = any(entry.is_dir() for entry in others)
        todo = f"Pass {str(folder)!r} if its folders are the classes" if inside else "Pass the files themselves"
        raise UsageError(f"{_RULE}. Received: {str(folder)!r}, {what}. {todo}.")
    return found
