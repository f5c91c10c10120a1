"""Where a loaded model came from, so that another process can load the same one: what `pickle` keeps of it."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from tfbert.errors import UsageError

_NAMES = {"config.json", "bert_config.json", "run_config.json", "vocab.txt", "checkpoint"}
_NAMES |= {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
_NAMES |= {"vocab.json", "merges.txt"}  # RoBERTa's.
_NAMES |= {"task.json", "vocabulary.txt", "model.weights.json"}  # KerasHub's.
_PARTS = (".safetensors", ".bin", ".h5", ".ckpt", ".keras")

Files = tuple[tuple[str, int, int], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """A model's directory when it was loaded.

    Attributes:
        directory: Its absolute path.
        options: The keywords of `load`.
        files: Name, size and time of each file that a model is read from.
    """

    directory: str
    options: dict[str, Any]
    files: Files

    def check(self) -> None:
        """Refuses a directory that holds another model now.

        Raises:
            UsageError: naming a file that is not as it was.
        """
        changed = dict.fromkeys(name for name, *_ in set(self.files) ^ set(files_of(pathlib.Path(self.directory))))
        if changed:
            raise UsageError(
                "A loaded model is pickled as its directory, which must stay as it was when it was loaded. "
                f"Received: {self.directory!r}, in which {min(changed)} has changed or is missing. Load it again."
            )


def files_of(directory: pathlib.Path) -> Files:
    """Name, size and time of the files that a model is read from, sorted; empty where there is no directory."""
    found = []
    paths = [*directory.iterdir(), *directory.glob("assets/*/*")] if directory.is_dir() else [directory]
    for path in sorted(paths):
        if path.is_file() and (path.name in _NAMES or any(part in path.name for part in _PARTS)):
            about = path.stat()
            found.append((path.name, about.st_size, about.st_mtime_ns))
    return tuple(found)
