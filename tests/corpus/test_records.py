"""Records of pre-training by number: what is read is what was written, and what is damaged or does not fit is named."""

import contextlib
import os
import threading
import types
import zlib
from unittest import mock

import numpy as np
import pytest

from tests.support.records import VOCAB_SIZE, serialized, some_records, write_records
from tests.support.refusals import refused
from tfbert.corpus import records
from tfbert.corpus.records import find_index, index_file, open_records
from tfbert.errors import RunError

FRAME = 16


def refuse(message, *paths, **options):
    """These files are refused so."""
    with refused(message):
        open_records([*map(str, paths)], **options)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def three_files(tmp_path, count=20, **options):
    """A directory with three files, one of them empty, and their records in the order of the files."""
    directory = tmp_path / "records"
    directory.mkdir()
    written = some_records(count)
    write_records(directory / "b.tfrecord", written[7:], **options)
    write_records(directory / "a.tfrecord", written[:7], **options)
    write_records(directory / "c.tfrecord", [], **options)
    (directory / "notes.txt").write_text("no records")
    return directory, written


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Such files that nobody changes, with their indexes after the first reading."""
    return three_files(tmp_path_factory.mktemp("three"))


def check_read(records, written, indices):
    """Compares what is read with what was written, a record at a time."""
    found = records.read(np.array(indices, np.int64))
    assert found.ids.dtype == found.lengths.dtype == found.second_start.dtype == found.next_sentence.dtype == np.int32
    for at, index in enumerate(indices):
        expected = written[index]
        length = len(expected.ids)
        assert found.lengths[at] == length and found.next_sentence[at] == expected.next_sentence
        assert found.ids[at, :length].tolist() == expected.ids and not found.ids[at, length:].any()
        assert found.second_start[at] == expected.second_start
        is_masked = found.masked.weights[at] > 0
        positions, labels = found.masked.positions[at, is_masked], found.masked.labels[at, is_masked]
        assert dict(zip(positions.tolist(), labels.tolist(), strict=True)) == expected.masked
        assert (found.masked.ids[at, positions] == 4).all()


@pytest.mark.parametrize("options", [{}, {"names": "v2"}, {"gzip": True}], ids=str)
def test_records_are_read_by_number(tmp_path, options):
    directory, written = three_files(tmp_path, **options)
    for again in range(2):  # The second time from the indexes.
        records = open_records([str(directory)])
        assert len(records) == 20 and records.has_pairs and records.num_texts == 2, again
        check_read(records, written, [19, 0, 7, 6, 7, 13])
        assert records.lengths[np.arange(20)].tolist() == [len(record.ids) for record in written]
    check_read(records, written, [])


def test_lengths_of_all_are_counted_without_reading_them(three):
    directory, written = three
    lengths = open_records([str(directory)]).lengths
    known = np.array([len(record.ids) for record in written])
    np.testing.assert_array_equal(lengths.counts, np.bincount(known))
    np.testing.assert_array_equal(np.asarray(lengths), known)
    assert (lengths.sum(), lengths.max(), len(lengths)) == (known.sum(), known.max(), 20)
    assert lengths[np.array([[3, 9], [12, 3]])].tolist() == known[[[3, 9], [12, 3]]].tolist()


def test_a_part_of_records_keeps_their_numbers(three):
    directory, written = three
    records = open_records([str(directory)])
    part = records.take([15, 2, 8]).take([2, 0])
    assert len(part) == 2 and part.numbers(np.array([0, 1])).tolist() == [8, 15]
    check_read(part, [written[8], written[15]], [1, 0])
    sizes = np.cumsum([len(file) for file in records.files])
    for row, number in enumerate((8, 15)):
        file = int(np.searchsorted(sizes, number, side="right"))
        name = records.files[file].name.rpartition("/")[2]
        assert part.where(row) == f"{name}, record {1 + number - [0, *sizes][file]}"
    assert part.lengths.counts.sum() == 2
    np.testing.assert_array_equal(np.asarray(part.lengths), [len(written[8].ids), len(written[15].ids)])
    assert len({records.crc32, part.crc32, records.take([8, 14]).crc32}) == 3


def test_files_are_found_by_pattern_and_none_twice(three):
    directory, written = three
    (directory / "link").symlink_to(directory / "a.tfrecord")
    records = open_records([str(directory / "b.tfrecord"), str(directory / "?.tfrecord"), str(directory)])
    check_read(records, written, [0, 19])
    assert len(records) == 20
    refuse("matches no file", directory / "*.gz")
    refuse("must hold records", directory / "c.tfrecord")
    for name in ("~nobody-of-this-name/x", "a" * 5000):
        refuse("train_records must be a path that can be used. Received", name)


def test_an_index_is_built_once_and_anew_where_the_file_changed(tmp_path, monkeypatch):
    scans = []
    scan = records.scan
    monkeypatch.setattr(records, "scan", lambda path, *rest: scans.append(path.name) or scan(path, *rest))
    path = write_records(tmp_path / "x", some_records(9))
    assert find_index(path) is None
    threads = [threading.Thread(target=index_file, args=(path,)) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert scans == ["x"], "who comes while it is built waits for it"
    assert len(index_file(path)) == 9 and len(scans) == 1

    write_records(path, some_records(8))
    assert len(index_file(path)) == 8 and len(scans) == 2
    os.utime(path, ns=(1, 1))
    assert len(index_file(path)) == 8 and len(scans) == 3

    index = tmp_path / ".x.index"
    for damaged in (index.read_bytes()[:-5], b"", bytes([*index.read_bytes()[:-1], 9])):
        index.write_bytes(damaged)
        assert find_index(path) is None
        assert len(index_file(path)) == 8
    assert sorted(p.name for p in tmp_path.iterdir()) == [".x.index", "x"], "nothing is left of what was written aside"


def test_an_index_goes_where_it_can_be_written(tmp_path, monkeypatch):
    path = write_records(tmp_path / "x", some_records(9), gzip=True)
    whole = records._whole

    def read_only(target):
        if target.parent == tmp_path:
            raise PermissionError(13, "no")
        return whole(target)

    monkeypatch.setattr(records, "_whole", read_only)
    assert index_file(path).plain.parent == tmp_path / "cache" / "tfbert" / "records"
    assert len(find_index(path)) == 9

    os.utime(path, ns=(1, 1))
    monkeypatch.setattr(records, "_whole", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left on device"):
        index_file(path)


@pytest.mark.parametrize("kind", ["bits", "cut", "schema", "values"])
def test_damage_is_named_with_its_place(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(records, "_AT_A_TIME", 16)
    written = some_records(40)
    raw = [serialized(record) for record in written]
    start = sum(len(record) + FRAME for record in raw[:30])
    if kind == "schema":
        raw[30] = serialized(some_records(1, seq_length=12)[0], seq_length=12)
    elif kind == "values":
        raw[30] = serialized(written[30], masked_lm_positions=[15, 1, 0, 0], input_mask=[1] * 5 + [0] * 11)
    path = write_records(tmp_path / "x", raw)
    content = path.read_bytes()
    if kind == "bits":
        path.write_bytes(flipped(content, start + 40))
    elif kind == "cut":
        path.write_bytes(content[: start + 30])
    said = rf"x', whose record at byte {start:,} (is|holds) .*Make its shard anew with --mode=prepare, or copy"
    refuse(said, path)
    assert find_index(path) is None


def test_damage_at_the_start_and_in_a_gzip_file(tmp_path):
    path = write_records(tmp_path / "x", some_records(3))
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    refuse("record at byte 0 is damaged", path)
    path = write_records(tmp_path / "x.gz", some_records(500), gzip=True)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refuse(r"x.gz', which is compressed and damaged, or cut off. Make its shard anew", path)


def test_what_does_not_fit_is_named(tmp_path):
    written = some_records(5)
    path = write_records(tmp_path / "x", written)
    records = open_records([str(path)], "validation_records")
    records.check_tokenizer(types.SimpleNamespace(vocab=["x"] * VOCAB_SIZE, casing={}))
    with refused(r"validation_records with token 4\d in .* a vocabulary of 30 tokens"):
        records.check_tokenizer(types.SimpleNamespace(vocab=["x"] * 30, casing={}))
    other = write_records(tmp_path / "y", written, num_masked=6)
    refuse(r"x' with .*max_predictions_per_seq=4.* and .*y' with .*max_predictions_per_seq=6", path, other)
    refuse("names='v1'.* and .*names='v2'", path, write_records(tmp_path / "z", written, names="v2"))
    text = tmp_path / "text"
    text.write_text("Not a TFRecord at all, and longer than the frame of one.\n")
    refuse("byte 0 is damaged.* If it is text, make records of it with --mode=prepare", text)


def test_records_of_one_stretch_of_text_say_nothing_of_the_next_sentence(tmp_path):
    written = some_records(5, pairs=False)
    records = open_records([str(write_records(tmp_path / "x", written))])
    assert not records.has_pairs and records.num_texts == 1
    check_read(records, written, range(5))
    raw = [serialized(record, next_sentence_labels=None) for record in some_records(5)]
    records = open_records([str(write_records(tmp_path / "y", raw))])
    assert not records.has_pairs and not records.read(np.arange(5)).next_sentence.any()


def kept_stamp(path, content):
    """Changes a file's bytes, but neither its size nor its time: bit rot, or `cp -p`."""
    status = path.stat()
    assert len(content) == status.st_size
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def flipped(content, at, bit=0):
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)


BYTES = {"length": 0, "length, high": 6, "its crc": 9, "first byte": 12, "a token": 60, "last byte": -5, "crc": -2}


@pytest.mark.parametrize("options", [{}, {"gzip": True}], ids=str)
def test_a_bit_that_flips_after_the_index_was_made_is_noticed(tmp_path, options):
    written = some_records(9)
    path = write_records(tmp_path / "x", written, **options)
    file = index_file(path)
    start, end = file.rows["offset"][4:6].tolist()
    sound = file.plain.read_bytes()
    for number, at in enumerate(BYTES.values()):
        kept_stamp(file.plain, flipped(sound, (start if at >= 0 else end) + at, bit=number % 8))
        records = open_records([str(path)])
        check_read(records, written, [0, 3, 5, 8])
        with pytest.raises(RunError, match=rf"x'.* the record at byte {start:,} \(its bytes are .*, number 5 of 9\."):
            records.read(np.array([8, 4]))
        kept_stamp(file.plain, sound)
    check_read(open_records([str(path)]), written, range(9))


def test_sound_records_in_the_place_of_others_are_noticed(tmp_path):
    path = write_records(tmp_path / "x", some_records(9))
    records = open_records([str(path)])
    other = write_records(tmp_path / "y", [serialized(record, next_sentence_labels=[0]) for record in some_records(9)])
    kept_stamp(path, other.read_bytes())
    changed = [number for number, record in enumerate(some_records(9)) if record.next_sentence]
    for again in (records, open_records([str(path)])):
        for number in range(9):
            is_noticed = pytest.raises(RunError, match=f"number {number + 1} of 9")
            with is_noticed if number in changed else contextlib.nullcontext():
                again.read(np.array([number]))
    os.utime(path, ns=(1, 1))  # On purpose.
    assert not open_records([str(path)]).read(np.arange(9)).next_sentence.any()


def test_no_bit_of_an_index_is_trusted(tmp_path):
    path = write_records(tmp_path / "x", some_records(4))
    rows = index_file(path).rows.copy()
    index = tmp_path / ".x.index"
    content = index.read_bytes()
    for at in range(0, len(content), 3):
        index.write_bytes(flipped(content, at, bit=at % 8))
        assert find_index(path) is None
    index.write_bytes(b"tfbert records 2" + content)
    assert find_index(path) is None, "of an earlier version"
    np.testing.assert_array_equal(index_file(path).rows, rows)


def test_checks_are_of_the_bytes_in_the_file(tmp_path):
    path = write_records(tmp_path / "x", some_records(7))
    content, file = path.read_bytes(), index_file(path)
    starts = file.rows["offset"].tolist()
    checks = file.rows["check"][:-1].tolist()
    assert checks == [zlib.crc32(content[a:b]) for a, b in zip(starts, starts[1:], strict=False)]
    assert (file.file_crc32, file.file_bytes) == (zlib.crc32(content), len(content))
    packed = write_records(tmp_path / "y.gz", some_records(7), gzip=True)
    file = index_file(packed)
    assert (file.file_crc32, file.file_bytes) == (zlib.crc32(packed.read_bytes()), packed.stat().st_size)
