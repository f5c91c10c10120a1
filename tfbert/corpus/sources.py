"""A corpus: parts, documents and sentences, how text is cut into these, and whether it is still the same; of files, and
the built-in one.

A corpus has parts, a part has documents, and a document is a list of sentences. It can be read part by part, in any
process: the object is small and can be pickled. A part is a file, or a block of a large file. Its content and its name
depend only on the corpus: not on the machine, the working directory or the number of processes.

Large files have blocks, so that many processes can read one file, by Hadoop's rule: a block starts at the first border
that begins within it and ends at the first one that begins within a later block. A border is the start of a line, or a
blank line between documents. So each line belongs to exactly one block, and no process needs to know what another one
found.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import glob
import hashlib
import importlib.metadata
import itertools
import logging
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

from tfbert.config.data import DataConfig
from tfbert.config.tasks import CorpusConfig
from tfbert.config.types import path_of
from tfbert.corpus.manifest import is_own
from tfbert.data import reading
from tfbert.data.files import check_text, find_columns
from tfbert.data.reading import BadRows
from tfbert.data.rows import demo_table, open_json_lines, open_parquet
from tfbert.errors import UsageError
from tfbert.output.logs import PassProgress

log = logging.getLogger("tfbert")

Document = list[str]
"""A document's sentences in order. None is empty, has white space at its ends or a line feed in it."""
ALL: Iterable[bool] = itertools.repeat(True)
"""Every row of a part."""


MAX_CHARACTERS = 10_000
"""No sentence is longer: a table, or text without full stops, is cut between words. Uncut, only its first tokens would
fit into a record, and the rest would be lost."""


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a text, found by sentencex (https://github.com/wikimedia/sentencex).

    A line feed also ends a sentence: lines of a file are paragraphs, headings or list items far more often than halves
    of a sentence, and half a sentence does no harm.

    Args:
        text: Valid Unicode.
        language: The text's language, as a code such as `de`: its abbreviations do not end a sentence. A language that
            sentencex does not know is treated as English.

    Returns:
        The sentences, without white space at their ends; none is empty or longer than `MAX_CHARACTERS`.
    """
    from sentencex import segment

    out: list[str] = []
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n"):
        for sentence in segment(language, line):
            sentence = sentence.strip()
            if sentence:
                out += cut(sentence)
    return out


def cut(sentence: str) -> list[str]:
    """A sentence, cut into pieces if it is longer than `MAX_CHARACTERS`; between words if it has spaces.

    Args:
        sentence: Without white space at its ends, not empty.
    """
    if len(sentence) <= MAX_CHARACTERS:
        return [sentence]
    pieces = []
    start = 0
    while start < len(sentence):
        end = start + MAX_CHARACTERS
        space = sentence.rfind(" ", start + 1, end) if end < len(sentence) else -1
        end = end if space < 0 else space
        pieces.append(sentence[start:end].strip())
        start = end
    return [piece for piece in pieces if piece]


_PIECE = 64 << 20
_READ = 1 << 20


def digest(*values: object) -> str:
    """A digest of the `repr` of values."""
    return hashlib.blake2b(repr(values).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def file_digests(paths: Sequence[str]) -> dict[str, str]:
    """A digest of the content of each file.

    Pieces are hashed by as many threads as there are cores, so that one large file takes no longer than many small
    ones. A sample of the bytes would be quicker and would miss a file that was changed in its middle.

    Raises:
        UsageError: for a file that no longer exists or cannot be read.
    """
    try:
        sizes = {path: pathlib.Path(path).stat().st_size for path in paths}
        pieces = [(path, start) for path, size in sizes.items() for start in range(0, size, _PIECE)]
        found: dict[str, list[str]] = {path: [] for path in paths}
        with (
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
            PassProgress("hashing the corpus", sum(sizes.values()), "MB") as progress,
        ):
            for (path, _), (value, size) in zip(pieces, pool.map(_piece_digest, pieces), strict=True):
                found[path].append(value)
                progress.advance(size, size / 1e6)
    except OSError as error:
        rule = "The files of a corpus must stay readable"
        raise UsageError(f"{rule}. Received: {error.filename!r} ({error.strerror}). Check the path.") from None
    return {path: digest(size, *found[path]) for path, size in sizes.items()}


def _piece_digest(piece: tuple[str, int]) -> tuple[str, int]:
    """The digest of a piece, and its bytes."""
    path, start = piece
    # OpenSSL's implementation, fast on processors with instructions for it; hashlib's other algorithms have none.
    state = hashlib.sha256()
    left = _PIECE
    with pathlib.Path(path).open("rb") as file:
        file.seek(start)
        while left and (data := file.read(min(_READ, left))):
            state.update(data)
            left -= len(data)
    return state.hexdigest(), _PIECE - left


Block = tuple[int, int]
"""Where a block starts and where the next one starts, in bytes. An end of -1: the rest of the file."""
BLOCK_BYTES = 64 << 20
MAX_LINE_BYTES = 256 << 20
"""A longer line is not a document but a sign of another file format; a line has to fit into memory."""
WHOLE: Block = (0, -1)


def blocks_of(size: int, block_bytes: int = BLOCK_BYTES) -> tuple[Block, ...]:
    """The blocks of a plain file of `size` bytes, at least one."""
    starts = range(0, max(size, 1), block_bytes)
    return tuple((start, start + block_bytes if start + block_bytes < size else -1) for start in starts)


def block_lines(path: pathlib.Path, block: Block = WHOLE, *, between_blank_lines: bool = False) -> Iterator[bytes]:
    """The lines of a block with their ends, for `reading.lines_of`.

    Args:
        path: The file, decompressed where it ends in .gz: then the block must be `WHOLE`.
        block: The block to read.
        between_blank_lines: Whether borders are blank lines rather than the starts of lines.

    Raises:
        UsageError: for a line that is too long.
    """

    def next_line() -> bytes:
        line = file.readline(MAX_LINE_BYTES)
        if len(line) == MAX_LINE_BYTES:
            rule = f"A line of a corpus must be shorter than {MAX_LINE_BYTES >> 20} MiB"
            raise UsageError(f"{rule}. Received: a longer one in {str(path)!r}. Cut it, or check the file's format.")
        return line

    position, end = block
    is_own = not (position and between_blank_lines)
    with reading.opened(path) as file:
        if position:
            file.seek(position - 1)  # If a line ends just before the block, the next one begins within it.
            position += len(next_line()) - 1
        while line := next_line():
            is_border = not between_blank_lines or not line.strip()
            is_own = is_own or is_border
            if 0 <= end <= position and (is_border or not is_own):  # The latter: no border in the whole block.
                return
            if is_own:
                yield line
            position += len(line)


_BY_ENDING = {ending: format for format, endings in reading.CORPUS.items() for ending in endings}
_JSON = re.compile(r'\{\s*"|(\[\s*\{|\[$|\{$)')  # An object; or, as a group, a list, or what is on several lines.
_SEARCHED_BYTES = 16 << 20  # Searched for a blank line; War and Peace has 3 MB.


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A file of a corpus.

    Attributes:
        path: Where it is.
        name: Its name wherever the corpus lies: its path below the directory that all files have in common.
        format: `sentences`, `lines`, `document`, `jsonl` or `parquet`.
        size: Bytes on the disk.
        columns: For jsonl and Parquet: the columns whose texts make a document, one after the other.
        blocks: The parts that can be read independently: ranges of bytes, or of row groups in Parquet.
    """

    path: str
    name: str
    format: str
    size: int
    columns: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = (WHOLE,)


def find_inputs(
    corpus: CorpusConfig, text_column: Sequence[str] = (), output_dir: pathlib.Path | None = None
) -> list[InputFile]:
    """Finds the files of a corpus.

    From a directory and its subdirectories, all files with a known ending or without one are read, except hidden ones
    and those whose name begins with `_`. With a `corpus_format`, files with other endings are read too. Links are
    followed, and no file is read twice. Empty files are left out, and so are the files of directories of records, so
    that these can be below the corpus.

    Args:
        corpus: Its `input_files` and `corpus_format`.
        text_column: For jsonl and Parquet. Empty: found by name in each file.
        output_dir: Where the records go.

    Returns:
        The files, sorted by name.

    Raises:
        UsageError: if nothing is found, or for a file that is not text, lacks the column, or could have two formats.
    """
    paths = _paths(corpus, output_dir)
    above = pathlib.Path(os.path.commonpath([path.parent for path in paths]))
    found, uncut, empty = [], [], []
    for path in paths:
        size = path.stat().st_size
        format = _format(path, corpus.corpus_format) if size else ""
        if not format:
            (uncut if size else empty).append(path)
            continue
        name = os.fsencode(path.relative_to(above).as_posix()).decode("utf-8", "backslashreplace")
        found.append(_input_file(path, name, format, size, tuple(text_column)))
    if len(empty) == len(paths):
        received = f"input_files={','.join(corpus.input_files)!r}, {len(paths):,} empty files"
        raise UsageError(f"A corpus needs text. Received: {received}. Check them.")
    if empty:
        log.info("empty files left out of the corpus: %d; the first: %s", len(empty), empty[0])
    if uncut:
        raise UsageError(
            "Text with one sentence per line needs blank lines between documents. "
            f"Received: {len(uncut):,} of {len(paths):,} files without blank lines, the first {str(uncut[0])!r}. "
            "Pass --corpus_format=lines if each line is a document, --corpus_format=document if each file is one, or "
            "--corpus_format=sentences."
        )
    guessed = sum(file.format == "sentences" for file in found) if corpus.corpus_format == "auto" else 0
    if guessed:
        log.info(
            "text files taken as one sentence per line, with blank lines between documents: %d; if a line holds "
            "several sentences, or a sentence goes on in the next line, pass --corpus_format=paragraphs: what is "
            "longer than a record would be cut off; if each file is a document, --corpus_format=document",
            guessed,
        )
    return sorted(found, key=lambda file: file.name)


def _paths(corpus: CorpusConfig, output_dir: pathlib.Path | None) -> list[pathlib.Path]:
    """All files that `input_files` names, none twice, without those of records."""
    paths: list[pathlib.Path] = []
    of_records: set[pathlib.Path] = set()
    for entry in corpus.input_files:
        given = path_of(entry, "input_files")
        if given.exists():
            matches = [given]
        else:
            # Path.glob takes no absolute pattern.
            matches = [pathlib.Path(match) for match in glob.glob(str(given), recursive=True)]  # noqa: PTH207
        files = []
        for match in matches:
            everything = corpus.corpus_format != "auto"
            files += _in_directory(match, everything=everything) if match.is_dir() else [match]
        own = {file for file in files if is_own(file, output_dir)}
        of_records |= own
        files = [file for file in files if file not in own]
        if not files:
            what = "a directory without text files" if matches else "nothing there"
            rule = "The files of a corpus must exist"
            raise UsageError(f"{rule}. Received: input_files={entry!r}, {what}. Check the path, and quote patterns.")
        paths += files
    if of_records:
        log.info("files of records left out of the corpus: %d; the first: %s", len(of_records), min(of_records))
    for path in paths:
        if not path.is_file():
            rule = "A corpus must consist of regular files, because they are read more than once"
            received = f"{str(path)!r}, which is something else, such as a pipe or a broken link"
            raise UsageError(f"{rule}. Received: {received}. Leave it out.")
    by_place = {}
    # Path.resolve would follow links: a file would get another name, and perhaps another format.
    absolute = {pathlib.Path(os.path.abspath(path)) for path in paths}  # noqa: PTH100
    # If links lead to a file twice, the shorter path is kept.
    for path in sorted(absolute, key=lambda path: (len(path.parts), path)):
        by_place.setdefault(os.path.realpath(path), path)
    return list(by_place.values())


def _in_directory(directory: pathlib.Path, *, everything: bool) -> Iterator[pathlib.Path]:
    seen: set[str] = set()  # Links may form a cycle.
    left_out = []
    for parent, directories, files in os.walk(directory, followlinks=True):
        seen.add(os.path.realpath(parent))
        directories[:] = [
            name
            for name in directories
            if not name.startswith((".", "_")) and os.path.realpath(pathlib.Path(parent, name)) not in seen
        ]
        for name in files:
            if name.startswith((".", "_")):  # `.DS_Store`, `_SUCCESS`
                continue
            if everything or _ending(name) in _BY_ENDING:
                yield pathlib.Path(parent, name)
            else:
                left_out.append(name)
    if left_out:
        log.info(
            "files of %s left out of the corpus, because their endings are not those of text: %d; the first: %s",
            directory,
            len(left_out),
            min(left_out),
        )


def _ending(name: str) -> str:
    return pathlib.PurePath(name.lower().removesuffix(".gz")).suffix


def _format(path: pathlib.Path, asked_for: str) -> str:
    """A file's format; empty if it is not clear."""
    ending = _ending(path.name)
    format = asked_for if asked_for != "auto" else _BY_ENDING.get(ending, "")
    if format == "parquet":
        return format
    if ending in (".csv", ".tsv") and not format:
        todo = "Convert it to JSON lines, or pass --corpus_format."
        raise UsageError(f"A corpus is text, JSON lines or Parquet. Received: {str(path)!r}, a table. {todo}")
    first, size, is_after_blank = "", 0, False
    for _, line in reading.lines_of(block_lines(path), str(path)):
        if "\0" in line:
            rule = "A corpus must be text in UTF-8"
            raise UsageError(f"{rule}. Received: {str(path)!r}, which has zero bytes. Convert it, or leave it out.")
        text = line.strip()
        size += len(line)
        if format:
            return format
        if text and not first and (found := _JSON.match(text)):  # WikiExtractor's files have no ending.
            if found[1]:
                rule = "A corpus of JSON has an object a line"
                todo = "Convert it, or pass --corpus_format."
                raise UsageError(f"{rule}. Received: {str(path)!r}, which begins with {text!r:.40}. {todo}")
            return "jsonl"
        if text and is_after_blank:
            return "sentences"
        if size > _SEARCHED_BYTES:
            return ""
        first = first or text
        is_after_blank = bool(first) and not text
    return format or ("" if first else "sentences")


def _input_file(path: pathlib.Path, name: str, format: str, size: int, text_column: tuple[str, ...]) -> InputFile:
    table, columns, blocks = None, (), (WHOLE,)
    if format == "parquet":
        from pyarrow import parquet

        table, metadata = open_parquet(path), parquet.read_metadata(path)
        starts, held = [0], 0
        for group in range(metadata.num_row_groups):
            if held >= BLOCK_BYTES:
                starts.append(group)
                held = 0
            held += metadata.row_group(group).total_byte_size
        blocks = tuple(zip(starts, (*starts[1:], metadata.num_row_groups), strict=True))
    elif format == "jsonl":
        table = open_json_lines(str(path), reading.lines_of(block_lines(path), str(path)))
    if format in ("sentences", "paragraphs", "lines", "jsonl") and path.suffix.lower() != ".gz":
        blocks = blocks_of(size)
    if table is not None:
        columns, _ = find_columns(table, text_column, find_label=False)
    return InputFile(str(path), name, format, size, columns, blocks)


MAX_DOCUMENT_CHARACTERS = 16 << 20
"""The rest of a longer document counts as another document, so that memory is bounded. The Bible has 4 million."""
_VERSION = 1  # Of how documents are read: raise it with every change by which the same file gives other documents.


@dataclasses.dataclass(frozen=True)
class FileCorpus:
    """Files as a corpus.

    Attributes:
        files: As `find_inputs` finds them.
        language: Of the text, as `split_sentences` takes it.
        skip_bad_rows: Leave out lines and rows that cannot be used, and log their number, rather than stop.
    """

    files: tuple[InputFile, ...]
    language: str = "en"
    skip_bad_rows: bool = False

    @property
    def name(self) -> str:
        """The file, or the directory that all files have in common."""
        return os.path.commonpath([file.path for file in self.files])

    @functools.cached_property
    def _places(self) -> dict[str, tuple[InputFile, Block]]:
        places = {}
        for file in self.files:
            for i, block in enumerate(file.blocks):
                places[f"{file.name}#{i:05d}" if len(file.blocks) > 1 else file.name] = (file, block)
        return dict(sorted(places.items()))

    def parts(self) -> list[str]:
        """The parts' names, sorted: files by name; a file of several blocks has one part per block, `NAME#00000`."""
        return list(self._places)

    def read(self, part: str, kept: Iterable[bool] = ALL) -> Iterator[Document]:
        """The documents of a part in order, each with at least one sentence, in bounded memory.

        Args:
            part: Its name.
            kept: Whether each row of it is wanted, in order. A row is what can be passed over before its text is cut
                into sentences: mostly a document. Those of a part are the same however often it is read.

        Raises:
            UsageError: during iteration, for data that cannot be read as text.
        """
        file, block = self._places[part]
        path, bad = pathlib.Path(file.path), BadRows(self.skip_bad_rows)
        start, unit = block[0], "row group" if file.format == "parquet" else "byte"
        where = f"{file.path}, from {unit} {start:,}" if start else file.path  # Its lines or rows count from 1.
        rows = None
        if file.format == "parquet":
            rows = open_parquet(path, None if block[1] < 0 else range(*block))
        else:
            lines = block_lines(path, block, between_blank_lines=file.format in ("sentences", "paragraphs"))
            lines = reading.lines_of(lines, file.path, is_start=not start)
            if file.format in ("sentences", "document"):
                language = self.language if file.format == "document" else None
                yield from itertools.compress(_pieces(_sentences(lines, where, bad, language)), kept)
            elif file.format in ("lines", "paragraphs"):
                texts = ((number, line) for number, line in lines if line.strip())
                texts = _paragraphs(lines) if file.format == "paragraphs" else texts
                for found in _sentences(itertools.compress(texts, kept), where, bad, self.language):
                    yield from _pieces([found])
            elif first := next(((number, line) for number, line in lines if line.strip()), None):
                rows = open_json_lines(where, itertools.chain([first], lines))
        if rows is not None:

            def checked(number: int, row: list) -> list[str]:
                place = f"{where}, {rows.unit} {number}"
                return [check_text(value, column, place) for value, column in zip(row, file.columns, strict=True)]

            for texts in bad.usable(itertools.compress(rows.read(file.columns), kept), checked):
                yield from _pieces(split_sentences(text, self.language) for text in texts)
        if bad.count:
            log.warning("%s: bad lines or rows skipped: %d; the first: %s", file.path, bad.count, bad.first)

    def sizes(self) -> dict[str, int]:
        """Bytes of each part on the disk, for progress and the number of shards; each block of a Parquet file counts as
        an equal share of the file."""
        sizes = {}
        for part, (file, (start, end)) in self._places.items():
            if file.format == "parquet" or len(file.blocks) == 1:
                sizes[part] = file.size // len(file.blocks)
            else:
                sizes[part] = (file.size if end < 0 else end) - start
        return sizes

    def fingerprints(self) -> dict[str, str]:
        """For each part, a digest of all that its documents depend on: the bytes of its file, format, columns, sentence
        splitter.

        Raises:
            UsageError: for a file that no longer exists or cannot be read.
        """
        digests = file_digests([file.path for file in self.files])
        # Another version of the splitter may find other sentences.
        splitter, out = f"sentencex {importlib.metadata.version('sentencex')}", {}
        for part, (file, block) in self._places.items():
            how = () if file.format == "sentences" else (self.language, splitter)
            out[part] = digest(_VERSION, digests[file.path], file.format, *file.columns, *block, *how)
        return out


def _paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines between blank ones as one, with the number of the first; no more than a document may have."""
    parts: list[str] = []
    start = size = 0
    for number, line in lines:
        text = line.strip()
        if parts and (not text or size > MAX_DOCUMENT_CHARACTERS):
            yield start, " ".join(parts)
            parts, size = [], 0
        if text:
            start = start if parts else number
            parts.append(text)
            size += len(text)
    if parts:
        yield start, " ".join(parts)


def _sentences(
    lines: Iterable[tuple[int, str]], where: str, bad: BadRows, language: str | None
) -> Iterator[Document | None]:
    """The sentences of each line: the line itself, or those that the splitter finds; None between documents."""
    for number, line in lines:
        if not line.isascii() and (byte := reading.not_utf8(line)):
            bad.add(reading.not_utf8_error(byte, f"{where}, line {number}"))
            continue
        text = line.strip()
        if language is not None:
            yield split_sentences(text, language)
        else:
            yield cut(text) if text else None


def _pieces(sentences: Iterable[Document | None]) -> Iterator[Document]:
    """Documents of at most `MAX_DOCUMENT_CHARACTERS` plus one line. In the input, None separates documents."""
    document: Document = []
    size = 0
    for more in sentences:
        if more:
            document += more
            size += sum(map(len, more))
        if document and (more is None or size > MAX_DOCUMENT_CHARACTERS):
            yield document
            document, size = [], 0
    if document:
        yield document


@dataclasses.dataclass(frozen=True)
class ListedCorpus:
    """A corpus in memory, as `FileCorpus` has one of files.

    Attributes:
        documents: Those of each part.
        name: What messages call it.
    """

    documents: dict[str, list[Document]]
    name: str

    def parts(self) -> list[str]:
        """The parts' names, sorted."""
        return sorted(self.documents)

    def read(self, part: str, kept: Iterable[bool] = ALL) -> Iterator[Document]:
        """The documents of a part that are wanted."""
        return itertools.compress(self.documents[part], kept)

    def sizes(self) -> dict[str, int]:
        """Characters of each part, with one line end per sentence."""
        return {part: sum(len(text) + 1 for document in own for text in document) for part, own in self._all()}

    def fingerprints(self) -> dict[str, str]:
        """Digests of the text itself."""
        return {part: digest(*own) for part, own in self._all()}

    def _all(self) -> list[tuple[str, list[Document]]]:
        return sorted(self.documents.items())


@functools.cache
def demo_corpus(split: str) -> list[Document]:
    """The documents of a split of the built-in corpus, each a list of sentences."""
    return [sentences for _, (sentences,) in demo_table("pretraining", split).read(["sentences"])]


def built_in_corpus(split: str = "train") -> ListedCorpus:
    """Tales of people at work, written by a grammar, in four parts of equal size."""
    documents = {f"{split}-{i}": demo_corpus(split)[i::4] for i in range(4)}
    return ListedCorpus(documents, f"the built-in corpus ({split})")


Source = FileCorpus | ListedCorpus


def open_source(corpus: CorpusConfig, data: DataConfig, output_dir: pathlib.Path | None = None) -> Source:
    """The corpus that `--mode=prepare` reads: `input_files`, or the built-in one.

    Args:
        corpus: Its `input_files`, `corpus_format` and `language`.
        data: Its `dataset`, `text_column` and `skip_bad_rows`.
        output_dir: Where the records go; they are no part of the corpus.

    Raises:
        UsageError: for options that do not go together, and what `find_inputs` raises.
    """
    if data.dataset not in ("", "demo") or (data.dataset and corpus.input_files):
        files = f" and input_files={','.join(corpus.input_files)!r}" if corpus.input_files else ""
        todo = f"Drop it; texts are passed as lines of JSON, as --input_files; {reading.OTHER_FORMATS}."
        raise UsageError(f"A corpus is files or the built-in one. Received: dataset={data.dataset!r}{files}. {todo}")
    files = find_inputs(corpus, data.text_column, output_dir) if corpus.input_files else []
    if data.text_column and not any(file.columns for file in files):
        rule, given = "Only JSON lines and Parquet have columns", ",".join(data.text_column)
        raise UsageError(f"{rule}. Received: text_column={given!r}. Drop it, or pass --corpus_format.")
    if files:
        return FileCorpus(tuple(files), corpus.language, data.skip_bad_rows)
    return built_in_corpus()
