"""The output directory: where it is, who may write there, and how: no file is ever half written, and JSON that carries
its own checksum is refused when it was changed later. And the upload of a model that lies there to the Hugging Face
hub, for those who ask for it."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import gzip
import json
import os
import pathlib
import re
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tfbert.config.modes import HubConfig
from tfbert.config.run import Config
from tfbert.errors import RunError, UsageError, first_line, replaced

if TYPE_CHECKING:
    from huggingface_hub import HfApi

LOCK = ".lock"
"""Empty; it stays where something was written. Who has it locked has the directory."""


@contextlib.contextmanager
def locked(directory: pathlib.Path, *, shared: bool = False) -> Iterator[None]:
    """Keeps other processes out of a directory, which is made if needed, until the end of the block or of this process.

    Where nothing was written, what was made for it is removed at the end: the lock's file, and directories.

    Args:
        directory: The directory.
        shared: Let other processes in that ask for a shared lock too, as the tasks of an array job do; the file stays.

    Raises:
        UsageError: for a directory that cannot be made or written to.
        RunError: for one that another process has locked.
    """
    directory = directory.absolute()
    made = [path for path in (directory, *directory.parents) if not path.exists()]  # The deepest first.
    path, before, descriptor, is_ours = directory / LOCK, contents(directory), None, False
    was_there = path.exists()
    try:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # Follows no link and overwrites nothing: the path may be a file of the user's.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EEXIST, "no file")
        except OSError as error:
            rule = f"output_dir must be writable, and {LOCK} in it a file"
            received = f"output_dir={str(directory)!r} ({error.strerror})"
            raise UsageError(f"{rule}. Received: {received}. Pass another, or remove what is in the way.") from None
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            is_ours = os.fstat(descriptor).st_nlink > 0  # One whose file was removed meanwhile is nobody's.
        except OSError as error:  # On a file system without locks it is always free.
            is_ours = error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
        if not is_ours:
            # No waiting: once the other run ends, what the user wanted of the directory is out of date.
            received = f"output_dir={str(directory)!r}, to which another process is writing"
            todo = "Pass another, or wait for it; several workers need --strategy=multi_worker."
            raise RunError(f"A run needs an output directory of its own. Received: {received}. {todo}")
        yield
    finally:
        # The file server may be gone; the error that ended the block is what counts.
        with contextlib.suppress(OSError):
            if is_ours and not shared and not was_there and contents(directory) == before:
                path.unlink(missing_ok=True)
            for made_here in made:  # Fails where something was written.
                made_here.rmdir()
        with contextlib.suppress(OSError):
            if descriptor is not None:
                os.close(descriptor)


SEAL = "crc32"
"""The name of an object's checksum within it."""


def seal(values: dict[str, Any]) -> str:
    """The JSON text of an object, with a checksum over all of it.

    Args:
        values: Anything that JSON can hold; no NaN or infinity.
    """
    return json.dumps(with_seal(values), indent=2, allow_nan=False) + "\n"


def unseal(text: str) -> dict[str, Any]:
    """Reads the JSON object that was sealed.

    Raises:
        ValueError: for any other text.
    """
    return checked(_json_object(text))


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """An object without its checksum.

    Raises:
        ValueError: for one that has none, or was changed after it was sealed.
    """
    values = dict(values)
    expected = values.pop(SEAL, None)
    if type(expected) is not int or expected != checksum(values):
        raise ValueError("not what was written, with its checksum")
    return values


def with_seal(values: dict[str, Any]) -> dict[str, Any]:
    """The object with its checksum, as JSON gives it back; NaN may be in it."""
    values = json.loads(json.dumps(values))
    return values | {SEAL: checksum(values)}


def checksum(values: dict[str, Any]) -> int:
    """CRC-32 of the values, however the text around them is laid out."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


RUN_CONFIG, RESULTS, LOG = "run_config.json", "all_results.json", "log.jsonl"
EVAL_RESULTS, CARD, LAUNCH = "eval_results.json", "README.md", ".launched_at"
FACTS, REPORT, TRACKER_ID, ADAPTER = "report.json", "report.html", ".tracker_id", "adapter"
# In the order in which they are removed: a run that has lost checkpoints must not look as if it could resume.
# run_config.json, by which a run is recognised, is not among them: it is replaced.
_OWN = ("checkpoints", "profile", "tensorboard", "wandb", FACTS, REPORT, "callbacks.json")
_OWN += (LOG, CARD, "config.json", RESULTS, LAUNCH, TRACKER_ID)


_started_at = ""


def one_start_time() -> contextlib.AbstractContextManager[None]:
    """In the block, `start_time` has one value: all within agree on the directory of a run that was given none."""
    return replaced(globals(), _started_at=start_time())


def start_time() -> str:
    """When a run started, as in names of directories. Call it once and keep the value, or within `one_start_time`.

    `tfbert.launch` gives all workers and restarts the time of its own start, in TFBERT_LAUNCHED_AT.
    """
    return _started_at or os.environ.get("TFBERT_LAUNCHED_AT") or f"{datetime.datetime.now():%Y%m%d-%H%M%S}"


def run_directory(config: Config) -> pathlib.Path:
    """The run's output directory; where none was asked for, one under `runs/` whose name ends in `start_time()`."""
    if config.output.output_dir:
        return pathlib.Path(config.output.output_dir)
    words = (pathlib.Path(config.source).name.split(".")[0], pathlib.Path(config.model.name).name)
    name = "-".join(re.sub(r"[^\w.]+", "_", word) for word in words)
    name = name if config.mode == "train" else f"{config.mode}-{name}"
    return pathlib.Path("runs") / f"{name}-{start_time()}"


def contents(directory: pathlib.Path) -> list[str]:
    """The sorted names of what a directory holds; empty where there is no directory."""
    return sorted(path.name for path in directory.iterdir() if path.name != LOCK) if directory.is_dir() else []


def clear(directory: pathlib.Path, *, but: str = "") -> None:
    """Removes an earlier run's own files from a directory, except the one by which it is recognised, and `but`."""
    for name in _OWN:
        if name != but:
            remove(directory / name)


def remove(path: pathlib.Path) -> None:
    """Removes a file, a link, or a directory with all that is in it; nothing where there is none."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def clear_results(directory: pathlib.Path) -> None:
    """Removes what reports a finished run from its directory, an evaluation of its model there, and its adapter; its
    model stays until the next one takes its place."""
    for name in (RESULTS, EVAL_RESULTS, FACTS, REPORT, CARD, ADAPTER):
        remove(directory / name)


def read_run_config(directory: pathlib.Path) -> dict[str, Any]:
    """The `run_config.json` of the run in a directory, whatever its mode and version; empty without a whole one."""
    try:
        return read_json(directory / RUN_CONFIG)
    except (OSError, ValueError):
        return {}


def check_writable(directory: pathlib.Path) -> None:
    """Refuses a directory that could not be made or written to; changes nothing.

    Raises:
        UsageError: for such a directory.
    """
    try:
        str(directory.absolute()).encode()
    except UnicodeEncodeError:  # TensorFlow takes no other names.
        rule = "output_dir, with the directories above it, must be UTF-8"
        raise UsageError(f"{rule}. Received: {os.fsencode(directory.absolute())!r}. Pass another.") from None
    if directory.exists() and not directory.is_dir():
        rule = "output_dir must be a directory"
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r}, a file. Pass another.")
    parent = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        rule = "output_dir must be writable"
        todo = "Pass another, or change its permissions."
        raise UsageError(f"{rule}. Received: output_dir={str(directory)!r}; {str(parent)!r} is not. {todo}")


def check_new_file(path: pathlib.Path, way_out: str) -> None:
    """Refuses a file that exists, or that cannot be written; changes nothing.

    Args:
        path: The file to write later.
        way_out: What the user can do if it exists.

    Raises:
        UsageError: for such a file.
    """
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        rule = "An output file needs a directory that can be written"
        todo = "Pass another, or change its permissions."
        raise UsageError(f"{rule}. Received: {str(path)!r}; {str(parent)!r} is not one. {todo}")
    if path.exists():
        raise UsageError(f"An output file must not exist yet. Received: {str(path)!r}. {way_out}.")


def _not_written(path: pathlib.Path, error: OSError) -> RunError:
    received = f"{str(path)!r} ({error.strerror})"
    todo = "Check free space and permissions there, or pass another."
    return RunError(f"Output must be writable. Received: {received}. {todo}")


def make(directory: pathlib.Path) -> None:
    """Makes a directory.

    Raises:
        RunError: where it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(directory, error) from None


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        OSError, ValueError: where there is none.
    """
    return _json_object(path.read_text(encoding="utf-8"))


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON so that a reader sees either the old file or the new one, whole."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: pathlib.Path, text: str | Iterable[str]) -> None:
    """Writes a text file so that a reader sees either the old file or the new one, whole; compressed, if its name ends
    in .gz.

    What UTF-8 cannot hold, as of a file's name in Latin-1, is written as Python would escape it.

    Args:
        path: The file.
        text: Its content, or the parts of it.

    Raises:
        RunError: if it cannot be written.
    """
    opener, partial = gzip.open if path.suffix.lower() == ".gz" else open, path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # Left by a kill, or a link, which must not be written through.
        file: Any = opener(partial, "xt", encoding="utf-8", errors="backslashreplace", newline="\n")
        try:
            file.writelines([text] if isinstance(text, str) else text)
            file.close()  # Writes the rest: the disk may turn out to be full only now.
            with partial.open("rb") as written:
                os.fsync(written.fileno())
            partial.replace(path)
        except BaseException:
            for undo in (file.close, partial.unlink):  # Else a new directory is neither empty nor that of a run.
                with contextlib.suppress(OSError):
                    undo()
            raise
    except OSError as error:
        raise _not_written(path, error) from None


UPLOADED = ("README.md", "config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json")
UPLOADED += ("special_tokens_map.json", "all_results.json", "run_config.json")
UPLOADED += ("adapter/adapter_config.json", "adapter/adapter_model.safetensors")
"""Files of an output directory that make up the model; checkpoints and logs are not uploaded."""


def check_login(api: HfApi | None = None) -> None:
    """Checks that the hub knows the user, before hours are spent on a model that could not be uploaded.

    Args:
        api: For a hub other than huggingface.co.

    Raises:
        UsageError: without a token, with one that is not valid, or where the hub cannot be reached.
    """
    import huggingface_hub

    try:
        (api or huggingface_hub.HfApi()).whoami()
    except Exception as error:  # huggingface_hub raises whatever its present HTTP client does.
        rule = "push_to_hub needs a login on the Hugging Face hub"
        todo = "Run hf auth login, set HF_TOKEN, or drop --push_to_hub."
        raise UsageError(f"{rule}. Received: {first_line(error)}. {todo}") from None


def upload(directory: pathlib.Path, config: HubConfig, api: HfApi | None = None) -> str:
    """Uploads a run's model in one commit; creates the repository if it does not exist.

    Args:
        directory: The run's output directory.
        config: Names the repository.
        api: For a hub other than huggingface.co.

    Returns:
        The address of the commit.

    Raises:
        RunError: where it fails; the directory stays as it is.
    """
    import huggingface_hub

    api = api or huggingface_hub.HfApi()
    name = config.hub_model_id or directory.absolute().name
    try:
        repo = api.create_repo(name, private=config.hub_private_repo or None, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo.repo_id,
            folder_path=directory,
            allow_patterns=list(UPLOADED),
            commit_message="Model trained with tfbert",
        )
    except Exception as error:
        raise RunError(
            f"The model could not be uploaded to {name!r}: {first_line(error)}. It is whole in {directory}: "
            f"try again with hf upload {name} {directory}."
        ) from error
    return commit.commit_url
