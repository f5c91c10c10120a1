"""What `rows` opens: a file that was just opened, or a table in memory; and rows that cannot be used. Files and streams
-> their lines of text: decompressed, and refused where they hold no text in UTF-8.

The first ending of each format is the usual one; all but .parquet may also be followed by .gz. Small files that other
programs wrote, such as a model's JSON, are read whole, with limits on size and depth.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import dataclasses
import decimal
import gzip
import json
import logging
import math
import pathlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

import numpy as np

from tfbert.config.types import counted
from tfbert.errors import UsageError

Formats = Mapping[str, tuple[str, ...]]
"""Formats by name, each with its endings."""

ROWS: Formats = {"tsv": (".tsv",), "csv": (".csv",), "jsonl": (".jsonl", ".json"), "parquet": (".parquet",)}
TEXTS: Formats = {"text": (".txt",), **ROWS}
"""Where labels are not needed, also plain text: one text per line, which cannot have a label."""
IOB_ENDINGS = (".iob", ".iob2", ".bio")
CONLL_ENDINGS = (".conll", ".conllu", *IOB_ENDINGS)
WORDS: Formats = {"conll": (*CONLL_ENDINGS, ".txt", ".tsv"), "jsonl": ROWS["jsonl"], "parquet": ROWS["parquet"]}
CORPUS: Formats = {"jsonl": (*ROWS["jsonl"], ".ndjson"), "parquet": ROWS["parquet"], "": (".txt", ".text", "")}
"""What is read from a directory. Text may be cut in several ways; `wiki_00` has no ending."""

TABLES: Formats = {name: ROWS[name] for name in ("tsv", "csv")}
PREDICTED_TEXTS: Formats = {**TABLES, "jsonl": ROWS["jsonl"]}
PREDICTED_TAGS: Formats = {"conll": (".conll", ".iob", ".bio", ".txt"), "jsonl": ROWS["jsonl"], **TABLES}
PREDICTED_ANSWERS: Formats = {"jsonl": (".jsonl",), **TABLES, "squad": (".json",)}


OTHER_FORMATS = "docs/other_formats.md of tfbert's repository has a few lines for that"
"""What a refusal of a form that is not read ends in."""


def ending_of(path: str | pathlib.PurePath) -> str:
    """A name's ending in lower case, without .gz but for .parquet.gz, which nothing is read from; empty without one."""
    name = pathlib.PurePath(path).name.lower()
    ending = pathlib.PurePath(name.removesuffix(".gz")).suffix
    return ".parquet.gz" if ending == ".parquet" and name.endswith(".gz") else ending


def format_of(path: str | pathlib.PurePath, formats: Formats) -> str:
    """The format that a name's ending stands for; empty if none."""
    ending = ending_of(path)
    return next((name for name, endings in formats.items() if ending in endings), "")


_GZIP_MAGIC = b"\x1f\x8b"
_FASTTEXT = b"__label__"
NO_TEXTS = (_GZIP_MAGIC, b"PAR1", b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"ARROW1", b"BZh", b"%PDF-")
NO_TEXTS += (b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""What archives, sheets of Excel, Parquet and others begin with that hold no text."""
# The mark of UTF-32-LE begins as the first does.
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # surrogateescape turns bytes that are not UTF-8 into these.
STANDARD_INPUT = "standard input"
"""What messages call it."""
_HEAD_BYTES = 1 << 12


def source_name(source: str | pathlib.Path | BinaryIO) -> str:
    """What messages call a file or a stream."""
    name = source if isinstance(source, str | pathlib.Path) else getattr(source, "name", "")
    return str(name) if isinstance(name, pathlib.Path | str) and name not in ("", "<stdin>") else STANDARD_INPUT


def not_utf8(text: str) -> str | None:
    """The first byte of a text that was not UTF-8, such as `0xff`; None if all of it was UTF-8."""
    found = None if text.isascii() else _NOT_UTF8.search(text)
    return None if found is None else f"{ord(found[0]) - 0xDC00:#04x}"


def not_utf8_error(byte: str, where: str) -> UsageError:
    """The error for a byte that is not UTF-8, as `not_utf8` returns it."""
    todo = "Convert it, for example with iconv -f WINDOWS-1252 -t UTF-8."
    return UsageError(f"Data files must be UTF-8. Received: byte {byte} in {where}. {todo}")


def check_unicode(text: str, where: str) -> str:
    """A text or a label, which must be valid Unicode: JSON can bring half a surrogate pair.

    Raises:
        UsageError: for any other, naming its place.
    """
    if byte := not_utf8(text):
        raise not_utf8_error(byte, where)
    if not text.isascii() and _HALF_A_PAIR.search(text):
        rule = "Text must be valid Unicode"
        raise UsageError(f"{rule}. Received: half a surrogate pair in {where}. Repair or drop the row.")
    return text


def lines_of(
    source: pathlib.Path | BinaryIO | Iterator[bytes], name: str, *, is_start: bool = True
) -> Iterator[tuple[int, str]]:
    """Each line's number from 1, and the line with its end; a byte order mark is not part of the first line.

    Only a line feed ends a line: text may hold other Unicode separators. Bytes that are not UTF-8 are lone surrogates.

    Args:
        source: A path, decompressed where it ends in .gz; an open binary stream; or the lines of a block of a corpus.
        name: What messages call it.
        is_start: Whether the first line is that of a file.

    Raises:
        UsageError: during iteration, for a file that is not readable, not whole or no text.
    """
    number, is_wide = 0, False
    try:
        with opened(source) if isinstance(source, pathlib.Path) else contextlib.closing(source) as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and is_start:
                    _check_text(line, name)
                # How lines break in UTF-16, whatever the script; one alone may be a text.
                before, is_wide = is_wide, line.startswith(b"\0") or line.endswith(b"\0\n")
                if before and is_wide:
                    raise utf16_error(name, number)
                text = line.decode("utf-8", "surrogateescape")
                yield number, text.removeprefix("\ufeff") if number == 1 else text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        rule = "A .gz file holds gzip data, all of it"
        todo = "Copy it again, or drop .gz from its name if it holds plain text."
        raise UsageError(f"{rule}. Received: {name}, broken after line {number} ({error}). {todo}") from None
    except OSError as error:
        rule = "A data file must be readable"
        raise UsageError(f"{rule}. Received: {name!r} ({error.strerror}). Check the path.") from None


def without_end(line: str) -> str:
    """A line without its line feed, and without the carriage return before it."""
    return line.removesuffix("\n").removesuffix("\r")


def opened(path: pathlib.Path) -> BinaryIO:
    """Opens a file, decompressed where it ends in .gz.

    Raises:
        OSError: for a file that cannot be opened, or, when it is read, for one that is not whole.
    """
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def _check_text(first: bytes, name: str) -> None:
    """Refuses a file whose first line shows that it holds no text, or that its lines end in other ways.

    Raises:
        UsageError: saying what it holds.
    """
    head = first[:_HEAD_BYTES]
    is_binary = any(byte < 0x20 and byte not in b"\t\r\n\f" for byte in head) or not _is_utf8(head)
    what = "such as of an archive, Excel or Parquet" if is_binary and head.startswith(NO_TEXTS) else ""
    if head.lstrip(b"\xef\xbb\xbf ").startswith(_FASTTEXT):
        what = "of fastText, whose labels are in the texts"
    if what:
        rule = "A file that is read as text holds texts, and labels in a column of their own"
        todo = f"Give it the ending of what it is, unpack it, save a sheet as CSV, or convert it; {OTHER_FORMATS}."
        raise UsageError(f"{rule}. Received: {name}, whose beginning is {what}. {todo}")
    if head.startswith(_UTF16) or (head.count(0) > 1 and 4 * head.count(0) > len(head)):
        raise utf16_error(name, 1)
    if not first.endswith(b"\n") and b"\r" in first.rstrip(b"\r"):
        received = f"{name}, whose lines end in carriage returns, as on old Macs"
        raise UsageError(f"Lines must end in line feeds. Received: {received}. Convert it: tr '\\r' '\\n'.")


def utf16_error(name: str, line: int) -> UsageError:
    """The error for a line with zero bytes, as that encoding has them."""
    return UsageError(
        f"Data files must be UTF-8. Received: {name}, whose line {line} is as in UTF-16 or UTF-32. Convert it with "
        "iconv -f UTF-16 -t UTF-8 (-f UTF-16LE if it has no byte order mark), or save a sheet as CSV (UTF-8)."
    )


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


Row = tuple[int, "list[Any] | UsageError"]
"""A row's line number (or row number, for .parquet) from 1, and its values or the error that says why it has none."""


_ANSWER, _REJECTED = "answer", ("reject", "ignore")
"""Where Prodigy writes what an annotator said of its suggestion, and the words for what is not right."""


VALUES = ("text", "class", "whole", "float", "truth")
LISTS = ("texts", "classes", "wholes", "floats", "truths")
"""What columns of data sets hold that may be read: values, and lists of these."""


class Unlabelled(UsageError):
    """For a row without a label: a fault in a file, but as it should be in a data set, where labels are held back.

    Args:
        message: What is wrong, for a file.
        what: What such a row is called, for a data set.
    """

    def __init__(self, message: str, what: str = "unlabelled"):
        super().__init__(message)
        self.what = what


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenFile:
    """A file whose columns are known and whose rows have yet to be read, once.

    Attributes:
        name: What messages call it.
        columns: The columns' names; without a header, indexes from 0.
        read: Takes the wanted columns and iterates over the rows. Bytes that are not UTF-8 appear as lone surrogates.
        unit: What the rows' numbers count: `line` or `row`.
        hint: What to try if no column is the right one, for the end of a message: empty, or ", or ...".
        label_names: The names of a column's ids, or of those in its lists, in their order, where the data itself has
            them.
        kinds: What each column of a data set holds: one of `VALUES` or `LISTS`; the keys of objects, or of lists of
            these, separated by commas; or `other`. Empty where the data does not say.
    """

    name: str
    columns: list[str]
    read: Callable[[Sequence[str]], Iterator[Row]]
    unit: str = "line"
    hint: str = ""
    label_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def of_kinds(self, *kinds: str) -> list[str]:
        """The columns that hold one of these; all where the data does not say what they hold."""
        return [column for column in self.columns if not self.kinds or self.kinds[column] in kinds]

    def only(self, kind: str) -> tuple[str, ...]:
        """The only column that certainly holds this; empty for none or several."""
        found = tuple(column for column, own in self.kinds.items() if own == kind)
        return found if len(found) == 1 else ()

    def without_rejected(self) -> OpenFile:
        """The same file for whoever reads its labels: an annotation that Prodigy says was rejected or ignored, in a
        column `answer` that is read as nothing else, becomes an error."""
        if self.columns.count(_ANSWER) != 1:
            return self

        def read(wanted: Sequence[str]) -> Iterator[Row]:
            for line, row in self.read([*wanted, _ANSWER]):
                if not isinstance(row, UsageError):
                    *row, answer = row
                    if answer in _REJECTED and _ANSWER not in wanted:
                        row = UsageError(
                            "Rows that an annotator of Prodigy rejected or ignored are not to be learned from. "
                            f"Received: {_ANSWER}={answer!r} in {self.name}, {self.unit} {line}. Drop such rows, or "
                            f"rename the column if it means something else; {OTHER_FORMATS}."
                        )
                yield line, row

        return dataclasses.replace(self, read=read)


FORMAT = "parquet"
"""The format of a table in memory, where a file's is asked for: its columns have types, as in Parquet."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GivenTable(OpenFile):
    """A table in memory, to be read as often as one likes. Its name is such as `train=DataFrame of 60 rows`."""

    unit: str = "row"


def plain(value: Any) -> Any:
    """A value with the types of Python alone, as a file of typed columns gives it.

    Missing values (None, NaN, pandas.NA) become None. Bytes are UTF-8, as TensorFlow's strings are; others stay bytes,
    which no text or label may be. A decimal number is an integer or a float, as other numbers are. What Python has no
    type for stays as it is.
    """
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, decimal.Decimal):
        value = int(value) if value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, str):
        return str.__str__(value)  # An Enum's text, rather than its name.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, bytes):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, np.generic | np.ndarray):
        is_time = value.dtype.kind in "mM"  # Python's form of some of these is an integer.
        return value if is_time else plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    for name in ("as_py", "numpy", "to_pylist", "to_list", "tolist"):  # Of Arrow, tensors and columns.
        if callable(method := getattr(value, name, None)):
            return plain(method())
    return value


log = logging.getLogger("tfbert")

_MAX_REPORTED_ROWS = 100
Place = TypeVar("Place")
Found = TypeVar("Found")


class BadRows:
    """Counts the rows that cannot be read.

    Args:
        skip: Whether to skip such a row and continue; None where a user could not: errors do not say how to.
        is_data_set: Whether rows without a label are left out, and counted.
        is_logged: Whether to log where they are, up to a limit.

    Attributes:
        count: How many there were.
        first: What is wrong with the first; empty without one.
    """

    def __init__(self, skip: bool | None, *, is_data_set: bool = False, is_logged: bool = False):
        self._skip, self._is_data_set, self._is_logged = skip, is_data_set, is_logged
        self.count, self.first = 0, ""
        self._with_bytes, self._first_with_bytes = 0, ""
        self._unlabelled = collections.Counter[str]()

    def add(self, error: UsageError) -> None:
        """Counts a row that cannot be read.

        Raises:
            UsageError: that very error, if rows may not be skipped.
        """
        if self._is_data_set and isinstance(error, Unlabelled):
            self._unlabelled[error.what] += 1
            return
        if not self._skip:
            way_out = "" if self._skip is None else " Or pass --skip_bad_rows."
            raise UsageError(f"{error}{way_out}") from None
        self.count += 1
        self.first = self.first or str(error)
        if self._is_logged and self.count <= _MAX_REPORTED_ROWS:
            log.info("skipped: %s", error)
        if self._is_logged and self.count == _MAX_REPORTED_ROWS:
            log.info("further skipped rows are only counted")

    def usable(self, rows: Iterable[tuple[Place, Any]], read: Callable[[Place, Any], Found]) -> Iterator[Found]:
        """What `read` makes of each row's place and values. Adds the rows that it refuses, and those that are errors.

        Raises:
            UsageError: as `add` does.
        """
        for place, row in rows:
            try:
                if isinstance(row, UsageError):
                    raise row
                found = read(place, row)
            except UsageError as error:
                self.add(error)
            else:
                yield found

    def skipped(self, name: str, num_left: int, what: str, rows: str) -> tuple[str, ...]:
        """A note for the user of what was skipped, if anything was.

        Args:
            name: What messages call the data.
            num_left: How many rows can be used.
            what: What one of them is called.
            rows: What several are called.

        Raises:
            UsageError: if none can be used; an `Unlabelled` if that is for want of labels.
        """
        if not num_left and self._unlabelled and not self.count:
            raise Unlabelled(f"Examples need labels. Received: {name!r} without any. Pass other data.")
        if not num_left:
            received = f"none that can be used; the first: {self.first}" if self.first else "none. Check the path."
            raise UsageError(f"A data file needs at least one {what}. Received: {name!r} with {received}")
        note = f"{name}: {self.count:,} of {num_left + self.count:,} {rows} skipped; the first: {self.first}"
        notes = (note,) if self.count else ()
        own = (f"{name}: {counted(count, f'{kind} {what}')} left out" for kind, count in self._unlabelled.items())
        return (*notes, *own)

    def note_bytes(self, texts: Iterable[str], where: str) -> None:
        """Counts a row that is answered without some of its bytes."""
        byte = next(filter(None, map(not_utf8, texts)), None)
        if byte:
            self._first_with_bytes = self._first_with_bytes or f"{byte} in {where}"
            self._with_bytes += 1

    def notes(self) -> list[str]:
        """What the user should know at the end."""
        if not self._with_bytes:
            return []
        return [
            f"bytes that are not UTF-8 were left out of {counted(self._with_bytes, 'text')}, the first "
            f"{self._first_with_bytes}"
        ]


MAX_BYTES = 32 << 20
"""Largest such file; LaBSE's vocabulary of 501,153 tokens has 14 MB as JSON."""
_MAX_DEPTH = 50


def read_text(path: pathlib.Path, rule: str) -> str:
    """Reads a text file.

    Args:
        path: The file.
        rule: What the file must be: the first sentence of the error.

    Raises:
        UsageError: for a path that does not exist or is not a file; for a file that is not UTF-8 or above `MAX_BYTES`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _error(rule, path, f"larger than {MAX_BYTES >> 20} MiB")
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _error(rule, path, f"not UTF-8, {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise _error(rule, path, error.strerror or str(error)) from None


def read_json_object(path: pathlib.Path, rule: str) -> dict[str, Any]:
    """Reads a file that holds a JSON object.

    Args:
        path: The file.
        rule: As for `read_text`.

    Raises:
        UsageError: as `read_text`, and for anything but a JSON object, or an object that is nested too deeply.
    """
    text = read_text(path, rule)
    try:
        value = json.loads(text)
    except RecursionError:
        raise _error(rule, path, "nested too deeply") from None
    except ValueError as error:
        raise _error(rule, path, str(error)[:200]) from None
    if not isinstance(value, dict):
        raise _error(rule, path, "not a JSON object")
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return value
    raise _error(rule, path, "nested too deeply")


def file_beside(index: pathlib.Path, name: str) -> pathlib.Path:
    """A file that an index names.

    Whoever wrote the index, the file must be beside it. It may be a link, but only to a file below the directory or in
    the hub's cache, which links `snapshots/REVISION/FILE` to `blobs/HASH`.
    """
    directory = index.parent
    is_plain = 0 < len(name) < 256 and name not in (".", "..") and not re.search(r"[/\\\0]", name)
    if not is_plain or not (directory / name).is_file():
        rule = f"All files that {index.name} lists must exist beside it"
        raise UsageError(f"{rule}. Received: {directory} without {name[:100]!r}. Copy or download the model again.")
    own, target = directory.resolve(), (directory / name).resolve()
    blobs = own.parent.parent / "blobs"
    if not target.is_relative_to(own) and not (own.parent.name == "snapshots" and target.parent == blobs):
        rule = f"All files that {index.name} lists must be in its directory"
        raise UsageError(f"{rule}. Received: {directory / name}, a link to {target}. Put the file itself there.")
    return directory / name


def _error(rule: str, path: pathlib.Path, what: str) -> UsageError:
    return UsageError(f"{rule}. Received: {path}: {what}. Repair it, or copy or download it again.")
