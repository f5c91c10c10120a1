"""Files and streams -> their lines of text: decompressed, in UTF-8 or UTF-16, and refused where they hold no text."""

from __future__ import annotations

import codecs
import functools
import gzip
import io
import itertools
import pathlib
import re
import shlex
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from tfbert.data.endings import SAVE_SHEET
from tfbert.errors import UsageError

_GZIP_MAGIC = b"\x1f\x8b"
_FASTTEXT = b"__label__"
_OTHER_FORMATS = {
    _GZIP_MAGIC: ("gzip data", "End its name in .gz, or decompress it"),
    b"PAR1": ("Parquet", "End its name in .parquet, or pass --input_format=parquet"),
    b"PK\x03\x04": ("a zip archive, as .xlsx files are", f"Unpack it, or {SAVE_SHEET}"),
    b"\xd0\xcf\x11\xe0": ("a file of Excel or Word", f"Open it, and {SAVE_SHEET}"),
    b"ARROW1": ("an Arrow file", "Convert it, with pandas: read_feather(PATH).to_parquet('data.parquet')"),
    b"BZh": ("bzip2 data", "Decompress it"),
    b"\xfd7zXZ": ("xz data", "Decompress it"),
    b"\x28\xb5\x2f\xfd": ("zstd data", "Decompress it"),
    b"%PDF-": ("PDF", "Extract its text"),
}
"""What files begin with that are not text: what they hold, and what to do."""
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # Before UTF-16's, which it begins with.
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # surrogateescape turns bytes that are not UTF-8 into these.
_PIECE_BYTES = 1 << 16
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
    return UsageError(
        f"Data files must be UTF-8. Received: byte {byte} in {where}. Convert it, for example with "
        "iconv -f WINDOWS-1252 -t UTF-8."
    )


def lines_of(source: pathlib.Path | BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Each line's number from 1, and the line with its end; a byte order mark is not part of the first line.

    Only a line feed ends a line: text may hold other Unicode separators. Bytes that are not UTF-8 are lone surrogates.
    A file that begins with a byte order mark of UTF-16 or UTF-32 is read in that encoding.

    Args:
        source: A path, decompressed where it ends in .gz; or an open binary stream.
        name: What messages call it.

    Raises:
        UsageError: during iteration, for a file that is not readable, not whole or no text.
    """
    for number, line in _raw_lines(source, name):
        text = line.decode("utf-8", "surrogateescape")
        yield number, text.removeprefix("\ufeff") if number == 1 else text


def pieces_of(source: pathlib.Path | BinaryIO, name: str) -> Iterator[str]:
    """The text of `lines_of` in pieces: its lines, those that are very long cut into several.

    Args:
        source: As for `lines_of`.
        name: As for `lines_of`.

    Raises:
        UsageError: as `lines_of`.
    """
    pieces = (piece for _, piece in _raw_lines(source, name, _PIECE_BYTES))
    return codecs.iterdecode(pieces, "utf-8-sig", "surrogateescape")


def without_end(line: str) -> str:
    """A line without its line feed, and without the carriage return before it."""
    return line.removesuffix("\n").removesuffix("\r")


def check_gzip(path: pathlib.Path) -> None:
    """Refuses a file that is not gzip data, and says what it is; an empty file is left to the caller.

    Raises:
        UsageError: for a file that does not begin with gzip data.
        OSError: for a file that cannot be opened.
    """
    with path.open("rb") as file:
        head = file.read(512)
    if not head or head.startswith(_GZIP_MAGIC):
        return
    is_text = all(byte >= 0x20 or byte in b"\t\r\n" for byte in head)
    what = f"plain text. Rename it to {path.stem!r}" if is_text else f"something else ({head[:4]!r}). Copy it again"
    raise UsageError(f"A .gz file must hold gzip data. Received: {str(path)!r}, which holds {what}, or compress it.")


def _raw_lines(source: pathlib.Path | BinaryIO, name: str, most_bytes: int = -1) -> Iterator[tuple[int, bytes]]:
    """Each line's number from 1, and its bytes in UTF-8; a line of more than `most_bytes` (-1: any) comes in pieces."""
    number = 0
    try:
        is_path = isinstance(source, pathlib.Path)
        is_gzip = is_path and source.suffix.lower() == ".gz"
        if is_gzip:
            check_gzip(source)
        opener = gzip.open if is_gzip else pathlib.Path.open
        with opener(source, "rb") if is_path else source as file:
            lines = iter(file) if most_bytes < 0 else iter(functools.partial(file.readline, most_bytes), b"")
            if isinstance(file, io.IOBase):  # Not a block of a corpus, which has checks of its own.
                lines = _as_utf8(file, lines, name)
            for line in lines:
                yield number + 1, line
                number += line.endswith(b"\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(
            f"A .gz file must be whole. Received: {name}, broken after line {number} ({error}). Copy it again."
        ) from None
    except OSError as error:
        raise UsageError(
            f"A data file must be readable. Received: {name!r} ({error.strerror}). Check the path."
        ) from None


def _as_utf8(file: BinaryIO, lines: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The lines of a file in UTF-8, if it holds text."""
    first = next(lines, b"")
    encoding = next((own for mark, own in _BYTE_ORDER_MARKS.items() if first.startswith(mark)), "")
    if not encoding:
        _check_text(first, name)
        return itertools.chain([first] if first else [], lines)
    return _recoded(itertools.chain([first], iter(functools.partial(file.read, _PIECE_BYTES), b"")), encoding, name)


def _recoded(pieces: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    """The lines of a file in another encoding, in UTF-8. Half a surrogate pair at its end, or alone, is not text."""
    rest, number = "", 1
    try:
        for text in codecs.iterdecode(pieces, encoding):
            *whole, rest = (rest + text).split("\n")
            for line in whole:
                yield f"{line}\n".encode()
                number += 1
    except UnicodeError as error:
        raise UsageError(
            f"A file with the byte order mark of {encoding.upper()} must be in it. "
            f"Received: {name}, broken at line {number} ({getattr(error, 'reason', error)}). Save it as UTF-8."
        ) from None
    if rest:
        yield rest.encode()


def check_no_fasttext(head: bytes, name: str) -> None:
    """Refuses a file that begins as fastText's do, whose labels are in the texts.

    Raises:
        UsageError: saying how to convert it.
    """
    if head.lstrip(b"\xef\xbb\xbf ").startswith(_FASTTEXT):
        raise UsageError(
            "Labels have a column of their own. "
            f"Received: {name}, lines of fastText, which begin with {_FASTTEXT.decode()}. Convert it: "
            f"(printf 'label\\ttext\\n'; sed -E 's/^__label__([^ ]+) */\\1\\t/' {shlex.quote(name)}) > data.tsv; "
            "where lines have several labels, separate these by | for --task=multi_label_classification."
        )


def _check_text(first: bytes, name: str) -> None:
    """Refuses a file whose first line shows that it holds no text, or that its lines end in other ways.

    Raises:
        UsageError: saying what it holds.
    """
    check_no_fasttext(first, name)
    head = first[:_HEAD_BYTES]
    is_binary = any(byte < 0x20 and byte not in b"\t\r\n\f" for byte in head) or not _is_utf8(head)
    for magic, (what, todo) in _OTHER_FORMATS.items() if is_binary else ():
        if head.startswith(magic):
            raise UsageError(f"A data file that is read as text must hold text. Received: {name}, {what}. {todo}.")
    if head.count(0) > 1 and 4 * head.count(0) > len(head):
        raise UsageError(
            "Data files must be UTF-8, or begin with the byte order mark of UTF-16. Received: "
            f"{name}, which has no mark and zero bytes, as UTF-16 has. Convert it, for example with iconv -f UTF-16LE."
        )
    if not first.endswith(b"\n") and b"\r" in first.rstrip(b"\r"):
        raise UsageError(
            "Lines must end in line feeds. "
            f"Received: {name}, whose lines end in carriage returns, as on old Macs. Convert it: tr '\\r' '\\n'."
        )


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
