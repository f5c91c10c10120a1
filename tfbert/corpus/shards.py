"""One shard: its part of a corpus -> records in a file. A pure function, whether a local process or a Beam worker calls
it.

A corpus is cut into stretches, whole parts one after the other, each about as large as a shard but at least
`STRETCH_BYTES`. One shard reads each stretch, or where there are more shards several do, and a hash decides which of
them has which row. So a shard can be made without the others, and a corpus below two stretches is mixed by the hash.

The file is written under another name and renamed, then its entry is written: an entry exists only if its file is
whole.

The wanted shards are made by processes of this machine, or by an Apache Beam pipeline on Flink, Spark or Dataflow. Both
call `build_shard` for each shard, so the bytes are the same. All workers of a pipeline must see the corpus and the
directory of records under the same paths.

Documents of tokens become stretches of text, and these records. With next sentence, the algorithm is that of
google-research/bert, `create_instances_from_document`: sentences add up to a target length, and the first part of them
is A; B is the rest, or a stretch of another document. Without, it is RoBERTa's "full sentences": a record is filled
with sentences, across the ends of documents, with a `[SEP]` there.

Stretches are places in one array of tokens; `assemble` makes rows of ids of them, many at once.
"""

from __future__ import annotations

import array
import bisect
import concurrent.futures
import contextlib
import dataclasses
import functools
import logging
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import random
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.corpus import vocabulary
from tfbert.corpus.manifest import Recipe, crc32_of, write_entry
from tfbert.corpus.masking import mask, record_keys
from tfbert.corpus.records import FRAME_BYTES, serialize
from tfbert.corpus.sources import Source
from tfbert.devices.process import start_quietly
from tfbert.errors import EXPECTED, RunError, UsageError, first_line
from tfbert.output.logs import PassProgress
from tfbert.tokens.tokenizer import Tokenizer

log = logging.getLogger("tfbert")


def done_by_processes(function: Callable[[Any], Any], tasks: Sequence[Any], num_processes: int) -> Iterator[Any]:
    """Calls a function for each task, and yields the results as they complete.

    Args:
        function: Can be pickled.
        tasks: Its argument for each call. Long tasks should be first.
        num_processes: With 1, or for a single task, all is done in this process.

    Raises:
        RunError: if a process ends early, as when memory is short; and whatever the function raises.
    """
    if num_processes == 1 or len(tasks) == 1:
        yield from map(function, tasks)
        return
    others = set(multiprocessing.active_children())
    # Not forked: a forked process would lack TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    # Bytes: what the function imports and holds, such as a tokenizer, comes after the set-up.
    executor = concurrent.futures.ProcessPoolExecutor(num_processes, context, _set_up, (pickle.dumps(function),))
    try:
        futures = [executor.submit(_call, task) for task in tasks]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()
    except BaseException as error:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in {*multiprocessing.active_children()} - others:  # Their files appear only when whole.
            process.terminate()
        if not isinstance(error, BrokenProcessPool):
            raise
        raise RunError(
            "A process that makes records was ended, probably by the kernel because memory is short. Received: "
            f"{num_processes} processes. Pass a lower --num_processes: shards that are whole are not made "
            "again. Or make all again, with a higher --num_shards and --overwrite_output_dir."
        ) from None
    finally:
        executor.shutdown()


def _set_up(function: bytes) -> None:
    """Sets up a process that does tasks."""
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent stops the others.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start_quietly(threads=1)
    _function = pickle.loads(function)


def _call(task: Any) -> Any:
    return _function(task)


def _end_with_parent() -> None:
    """Ends this process when its parent has ended for any reason: else it would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedDocuments:
    """The tokens of documents, flat.

    Attributes:
        tokens: int32 [tokens]: of all sentences, one after the other.
        sentence_ends: int64 [sentences]: sentence k is `tokens[sentence_ends[k - 1]:sentence_ends[k]]`; none is empty.
        document_ends: int64 [documents]: document d is the sentences `document_ends[d - 1]:document_ends[d]`; none is
            empty.
    """

    tokens: np.ndarray
    sentence_ends: np.ndarray
    document_ends: np.ndarray

    def __len__(self) -> int:
        return len(self.document_ends)


def pairs(
    documents: TokenizedDocuments, *, max_seq_length: int, short_seq_prob: float, rng: random.Random
) -> np.ndarray:
    """Pairs of stretches of text; in half of them, the second is from another document.

    A document of one sentence always gives a random pair, as in Google's script.

    Args:
        documents: At least two.
        max_seq_length: Tokens of the longest record, three special ones counted; at least 5.
        short_seq_prob: Share of documents whose target length is drawn at random.
        rng: Random numbers.

    Returns:
        int64 [rows, 5]: where in the tokens the first stretch starts and ends, where the second does, and whether that
        does not follow the first.
    """
    room = max_seq_length - 3
    ends, bounds = (_as_array(np.append(0, own)) for own in (documents.sentence_ends, documents.document_ends))
    num_others = len(documents) - 1
    assert num_others > 0
    rows = array.array("q")
    draw = rng.random
    for document in range(len(documents)):
        sentence, last = bounds[document], bounds[document + 1]
        target = room if draw() >= short_seq_prob else 2 + int(draw() * (room - 1))
        while sentence < last:
            # The fewest sentences that reach the target, or the rest of the document.
            stop = min(last, bisect.bisect_left(ends, ends[sentence] + target, sentence + 1, last))
            split = sentence + 1
            if stop - sentence > 1:
                split += int(draw() * (stop - sentence - 1))
            is_random = stop - sentence == 1 or draw() < 0.5
            if is_random:
                other = int(draw() * num_others)
                other += other >= document
                first_b, last_b = bounds[other], bounds[other + 1]
                first_b += int(draw() * (last_b - first_b))
                wanted = target - (ends[split] - ends[sentence])
                end_b = min(last_b, bisect.bisect_left(ends, ends[first_b] + wanted, first_b + 1, last_b))
                next_sentence = split  # What A does not use is used again.
            else:
                first_b, end_b, next_sentence = split, stop, stop
            bounds_of_both = ends[sentence], ends[split], ends[first_b], ends[end_b]
            rows.extend((*_cut_pair(*bounds_of_both, room, rng), is_random))
            sentence = next_sentence
    return np.frombuffer(rows, np.int64).reshape(-1, 5)


def full_sentences(
    documents: TokenizedDocuments, *, max_seq_length: int, short_seq_prob: float, sep_id: int, rng: random.Random
) -> tuple[np.ndarray, np.ndarray]:
    """Stretches of as many whole sentences as fit, from documents in random order, with `[SEP]` between two documents.

    A sentence that is too long for a record is cut into several pieces.

    Args:
        documents: At least one.
        max_seq_length: Tokens of the longest record, two special ones counted; at least 4.
        short_seq_prob: Share of records whose target length is drawn at random.
        sep_id: The id of `[SEP]`.
        rng: Random numbers.

    Returns:
        int32 [tokens]: those of the documents, with `[SEP]` after each; and as `pairs`, where the second stretch is
        empty.
    """
    room = max_seq_length - 2
    lengths = np.diff(documents.sentence_ends, prepend=0)
    num_pieces = -(-lengths // room)
    piece_ends = np.cumsum(num_pieces)
    pieces = np.full(piece_ends[-1], room)
    pieces[piece_ends - 1] = lengths - (num_pieces - 1) * room
    last_sentences = documents.document_ends[:-1] - 1
    texts = np.split(documents.tokens, documents.sentence_ends[last_sentences])
    pieces = np.split(pieces, piece_ends[last_sentences])

    order = sorted(range(len(documents)), key=lambda _: rng.random())
    tokens = np.concatenate([part for d in order for part in (texts[d], np.array([sep_id], np.int32))])
    lengths = np.concatenate([pieces[d] for d in order])
    seps_before = np.repeat(np.arange(len(order)), [len(pieces[d]) for d in order])
    ends = np.cumsum(lengths) + seps_before
    starts, ends = _as_array(ends - lengths), _as_array(ends)
    rows = array.array("q")
    sentence = 0
    while sentence < len(ends):
        target = room if rng.random() >= short_seq_prob else 2 + int(rng.random() * (room - 1))
        stop = max(sentence + 1, bisect.bisect_right(ends, starts[sentence] + target, sentence))
        rows.extend((starts[sentence], ends[stop - 1], 0, 0, False))
        sentence = stop
    return tokens, np.frombuffer(rows, np.int64).reshape(-1, 5)


def assemble(
    tokens: np.ndarray, spans: np.ndarray, *, max_seq_length: int, tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of ids: `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]`, padded.

    Args:
        tokens: int32 [tokens].
        spans: int64 [n, 5]: the rows' places in them, as `pairs` gives them.
        max_seq_length: Width of a row.
        tokenizer: Has the ids of `[CLS]`, `[SEP]` and `[PAD]`.

    Returns:
        int32 [n, max_seq_length] ids, int32 [n] lengths, and int32 [n] positions where segment B starts (the length if
        there is none).
    """
    start_a, end_a, start_b, end_b, _ = spans.T[..., None]
    places = np.arange(max_seq_length)
    first_sep = end_a - start_a + 1
    last = np.where(end_b > start_b, first_sep + end_b - start_b + 1, first_sep)
    source = np.where(places < first_sep, start_a - 1 + places, start_b - first_sep - 1 + places)
    ids = tokens[source.clip(0, len(tokens) - 1)]
    ids[:, 0] = tokenizer.cls_id
    ids[(places == first_sep) | (places == last)] = tokenizer.sep_id
    ids[places > last] = tokenizer.pad_id
    return ids, (last[:, 0] + 1).astype(np.int32), (first_sep[:, 0] + 1).astype(np.int32)


def _cut_pair(start_a: int, end_a: int, start_b: int, end_b: int, room: int, rng: random.Random) -> tuple[int, ...]:
    """Removes tokens from the longer stretch, each from a random end, until both fit."""
    length_a, length_b = end_a - start_a, end_b - start_b
    if length_a + length_b > room:
        # If both are equally long, B loses a token first.
        kept_a = min(length_a, max(room - length_b, -(-room // 2)))
        start_a, end_a = _cut(start_a, end_a, length_a - kept_a, rng)
        start_b, end_b = _cut(start_b, end_b, length_b - (room - kept_a), rng)
    return start_a, end_a, start_b, end_b


def _cut(start: int, end: int, excess: int, rng: random.Random) -> tuple[int, int]:
    """Removes `excess` tokens from a stretch, each from its front or its back."""
    at_front = rng.getrandbits(excess).bit_count() if excess else 0
    return start + at_front, end - (excess - at_front)


def _as_array(values: np.ndarray) -> array.array:
    """Integers as an `array`: reading single ones is faster than from NumPy, in less memory than a list."""
    return array.array("q", values.astype(np.int64).tobytes())


STRETCH_BYTES = 64 << 20
"""The least of a corpus, in bytes on the disk, that is a stretch of its own."""
MAX_SHARD_BYTES = 1 << 30
"""The most text of a shard: building the shard takes about three times as much memory."""
_MOST_READERS = 16
"""The most shards that read the same part, if it is large, without a word about the time that takes."""
_CHUNK_SIZE = 1 << 20  # Characters that are tokenised at once.
_BLOCK = 512  # Records that are made at once: few enough for the processor's caches.


@dataclasses.dataclass(frozen=True)
class Share:
    """What a shard has of a corpus.

    Attributes:
        parts: The numbers of the parts that it reads.
        place: Which of the shards that read these parts it is, from 0.
        count: How many do.
        size: Bytes of its share on the disk, at least 1.
    """

    parts: tuple[int, ...]
    place: int
    count: int
    size: int


def shares_of(source: Source, num_shards: int) -> list[Share]:
    """The share of each shard. They depend on the sizes of the corpus's parts and on the number of shards alone."""
    sizes = source.sizes()
    least = max(STRETCH_BYTES, -(-sum(sizes.values()) // num_shards))
    stretches, totals = [[]], [0]
    for number, part in enumerate(source.parts()):
        if totals[-1] >= least:
            stretches.append([])
            totals.append(0)
        stretches[-1].append(number)
        totals[-1] += sizes[part]
    if totals[-1] < least and len(stretches) > 1:
        stretches[-2:], totals[-2:] = [stretches[-2] + stretches[-1]], [totals[-2] + totals[-1]]
    counts = [1] * len(totals)
    for _ in range(num_shards - len(stretches)):  # Another shard for the stretch of which each has most to make.
        counts[max(range(len(counts)), key=lambda number: totals[number] / counts[number])] += 1
    for stretch, total, count in zip(stretches, totals, counts, strict=True):
        if count > _MOST_READERS and total > MAX_SHARD_BYTES:
            log.warning(
                "%s is in one part, and %d shards each read it: unpacked, or in several files, it is quicker.",
                source.parts()[stretch[0]],
                count,
            )
    return [
        Share(tuple(stretch), place, count, max(1, total // count))
        for stretch, total, count in zip(stretches, totals, counts, strict=True)
        for place in range(count)
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What all shards of a run have in common. It can be pickled.

    Attributes:
        source: The corpus.
        shares: What each shard has of it.
        recipe: How records are made.
        digest: The digest of the recipe and the inputs, which identifies an entry.
        directory: The records' directory.
        work: Directory for files that are not whole yet; on the same file system.
    """

    source: Source
    shares: list[Share]
    recipe: Recipe
    digest: str
    directory: pathlib.Path
    work: pathlib.Path


def build_shard(job: Job, shard: int) -> dict[str, Any]:
    """Makes a shard's file and its entry.

    Args:
        job: How it is made.
        shard: Its number.

    Returns:
        The entry, as `manifest` describes it.

    Raises:
        UsageError: for a corpus that cannot be read, too few documents, or too much text.
        RunError: if the file cannot be written.
    """
    recipe, share, names = job.recipe, job.shares[shard], job.source.parts()
    texts, size = [], 0
    for part in share.parts:
        for document in job.source.read(names[part], recipe.dealt(part, share.place, share.count)):
            # A lone surrogate has no form in UTF-8; the tokenizer drops bytes that are not UTF-8.
            texts.append("\n".join(document).encode("utf-8", "ignore"))
            size += len(texts[-1])
            if size > MAX_SHARD_BYTES:
                rule = f"The text of a shard must be at most {MAX_SHARD_BYTES >> 20:,} MiB: a shard is made in memory"
                todo = "Pass a higher --num_shards; a single document that is larger must be cut."
                raise UsageError(f"{rule}. Received: more in shard {shard} of {recipe.num_shards}. {todo}")
    given = len(texts)
    tokenized = tokenize(recipe, texts)
    needed = 2 if recipe.random_next_sentence else 1  # Second texts come from another document.
    if len(tokenized) < needed:
        lost = f", and {given - len(tokenized):,} whose text has no token, but marks that are dropped"
        fewer = "a lower --num_shards, or " if recipe.num_shards > 1 else ""
        raise UsageError(
            f"Every shard needs at least {needed} documents; a hash decides the shard of each. Received: "
            f"{len(tokenized)} in shard {shard} of {recipe.num_shards}{lost if given > len(tokenized) else ''}. Pass "
            f"{fewer}more documents, or say by --corpus_format what separates them: blank lines (sentences, "
            "paragraphs), each line (lines), or each file (document)."
        )
    ending = "tfrecord.gz" if recipe.compress_records else "tfrecord"
    file = job.directory / f"records-{shard:05}-of-{recipe.num_shards:05}.{ending}"
    job.work.mkdir(parents=True, exist_ok=True)  # Not there yet on another machine.
    partial = job.work / f"{file.name}.{socket.gethostname()}-{os.getpid()}"
    entry = {
        "shard": shard,
        "num_shards": recipe.num_shards,
        "of": job.digest,
        "file": file.name,
        "documents": len(tokenized),
        "longer_documents": int((np.diff(tokenized.document_ends, prepend=0) > 1).sum()),
        "sentences": len(tokenized.sentence_ends),
        "tokens": len(tokenized.tokens),
        **vocabulary.word_counts(recipe, tokenized.tokens),
    }
    try:
        entry |= _write(recipe, shard, tokenized, partial)
        entry |= {"bytes": partial.stat().st_size, "file_crc32": crc32_of(partial)}
        partial.replace(file)
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        rule = "Records must be writable"
        raise RunError(f"{rule}. Received: {str(file)!r} ({reason}). Check free space and permissions there.") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    write_entry(job.directory, entry)
    return entry


def tokenize(recipe: Recipe, texts: list[bytes]) -> TokenizedDocuments:
    """Tokenises documents, each as if its sentences were one text, with a blank between two.

    Args:
        recipe: Holds the tokenizer.
        texts: The sentences of each document, joined by line feeds. The list is emptied to free memory.
    """
    found: list[tuple[np.ndarray, np.ndarray]] = []
    counts = np.array([text.count(b"\n") + 1 for text in texts], np.int64)
    texts.reverse()
    chunk, size = [], 0
    while texts:
        for sentence in texts.pop().decode().replace("\n", "\n ").split("\n"):
            chunk.append(sentence)
            size += len(sentence)
            if size >= _CHUNK_SIZE:
                found.append(recipe.tokenizer.ids_of(chunk))
                chunk, size = [], 0
    found.append(recipe.tokenizer.ids_of(chunk))
    tokens, lengths = map(np.concatenate, zip(*found, strict=True))
    kept, ends = np.append(0, np.cumsum(lengths > 0)), np.cumsum(counts)
    counts = kept[ends] - kept[ends - counts]  # Of sentences that have a token.
    sentence_ends, document_ends = (np.cumsum(own[own > 0], dtype=np.int64) for own in (lengths, counts))
    return TokenizedDocuments(tokens=tokens, sentence_ends=sentence_ends, document_ends=document_ends)


def _write(recipe: Recipe, shard: int, tokenized: TokenizedDocuments, path: pathlib.Path) -> dict[str, Any]:
    """Writes the records of all passes to a file; returns the counts for its entry."""
    tokenizer, width = recipe.tokenizer, recipe.max_seq_length
    counts = np.zeros(width + 1, np.int64)
    num_random = num_predictions = num_bytes = 0
    used = np.full(len(tokenized.tokens), not recipe.random_next_sentence)  # Full sentences leave out none.
    with tf.io.TFRecordWriter(str(path), "GZIP" if recipe.compress_records else "") as writer:
        for number in range(recipe.dupe_factor):
            # The key alone decides what one pass over a shard draws.
            key = int(record_keys(recipe.seed, shard, np.array([number]))[0])
            options = {"max_seq_length": width, "short_seq_prob": recipe.short_seq_prob, "rng": random.Random(key)}
            if recipe.random_next_sentence:
                tokens, spans = tokenized.tokens, pairs(tokenized, **options)
                for first, last in spans[:, :4].reshape(-1, 2).tolist():
                    used[first:last] = True
            else:
                tokens, spans = full_sentences(tokenized, **options, sep_id=tokenizer.sep_id)
            every = np.arange(len(spans))
            keys = record_keys(key, 0, every)
            order = np.argsort(record_keys(key, 1, every), kind="stable")
            for start in range(0, len(order), _BLOCK):
                rows = order[start : start + _BLOCK]
                own = spans[rows]
                ids, lengths, second_start = assemble(tokens, own, max_seq_length=width, tokenizer=tokenizer)
                masked, is_random = mask(ids, lengths, recipe.masking, keys[rows]), own[:, 4]
                for record in serialize(masked, lengths, second_start, is_random, recipe.record_names):
                    writer.write(record)
                    num_bytes += len(record) + FRAME_BYTES
                counts += np.bincount(lengths, minlength=len(counts))
                num_random += int(is_random.sum())
                num_predictions += int((masked.weights > 0).sum())
    if not recipe.compress_records and path.stat().st_size != num_bytes:
        raise OSError(0, "not all of it was written")
    return {
        "records": int(counts.sum()),
        "lengths": {str(length): int(counts[length]) for length in np.flatnonzero(counts)},
        "random_next_sentences": num_random,
        "predictions": num_predictions,
        "unused_tokens": int((~used).sum()),
    }


_OURS = re.compile(r"\b(UsageError|RunError): (.+?)(?= \[while running |\\n|$)", re.MULTILINE)


def make_shards(job: Job, shards: Sequence[int], num_processes: int) -> None:
    """Makes shards by processes of this machine; by this one alone if there is one.

    Args:
        job: How they are made.
        shards: Their numbers.
        num_processes: The number of processes.

    Raises:
        UsageError: as `build_shard` does, perhaps after other shards have been made.
        RunError: if something cannot be written, or a process ends early.
    """
    sizes = {shard: job.shares[shard].size for shard in shards}
    largest_first = sorted(shards, key=lambda shard: -sizes[shard])
    with PassProgress("making records", sum(sizes.values())) as progress:
        for entry in done_by_processes(functools.partial(build_shard, job), largest_first, num_processes):
            progress.advance(sizes[entry["shard"]], entry["sentences"])


def make_shards_with_beam(job: Job, shards: Sequence[int], beam_args: Sequence[str]) -> None:
    """Makes shards by a pipeline.

    Args:
        job: How they are made.
        shards: Their numbers.
        beam_args: Options of the pipeline, as on Beam's command lines.

    Raises:
        UsageError: if Beam is not installed, and as `build_shard` does, perhaps after other shards have been made.
        RunError: for a pipeline that failed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        todo = "Run in the clone: pip install -e '.[beam]'."
        raise UsageError(f"engine=beam needs Apache Beam. Received: a Python without it. {todo}") from None
    pipeline = beam.Pipeline(options=PipelineOptions(list(beam_args)))
    _ = (
        pipeline
        | "Shards" >> beam.Create(list(shards))
        | "Spread" >> beam.Reshuffle()
        | "Records" >> beam.Map(functools.partial(build_shard, job))
    )
    try:
        pipeline.run().wait_until_finish()
    except EXPECTED:
        raise
    except Exception as error:  # Its class depends on the runner; our own error is somewhere in its text.
        if ours := _OURS.search(str(error)):
            raise {"UsageError": UsageError, "RunError": RunError}[ours[1]](ours[2]) from error
        raise RunError(f"The Beam pipeline failed: {first_line(error)}") from error
