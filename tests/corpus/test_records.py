"""Records of pre-training: as bytes they are protobuf's, and by number what is read is what was written; what is
damaged or does not fit is named."""

import concurrent.futures
import contextlib
import gzip
import itertools
import os
import types
import zlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.support.records import VOCAB_SIZE, as_protobuf, serialized, some_records, write_records
from tests.support.refusals import refused
from tfbert.corpus import records
from tfbert.corpus.masking import Masking, mask, record_keys
from tfbert.corpus.records import Schema, detect_schema, find_index, index_file, open_records, serialize
from tfbert.errors import RunError, UsageError

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
    for name, part in (("b", written[7:]), ("a", written[:7]), ("c", [])):
        write_records(directory / f"{name}.tfrecord", part, **options)
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
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(index_file, [path] * 3))
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
    for name, is_packed in (("x", False), ("y.gz", True)):
        path = write_records(tmp_path / name, some_records(7), gzip=is_packed)
        content, file = path.read_bytes(), index_file(path)
        assert (file.file_crc32, file.file_bytes) == (zlib.crc32(content), len(content))
        starts, plain = file.rows["offset"].tolist(), gzip.decompress(content) if is_packed else content
        checks = [zlib.crc32(plain[start:end]) for start, end in itertools.pairwise(starts)]
        assert file.rows["check"][:-1].tolist() == checks


WIDTH, MOST, VOCAB = 32, 6, 300_000
V1, V2 = (Schema(names=names, max_seq_length=WIDTH, max_predictions_per_seq=MOST) for names in ("v1", "v2"))


def some(rows=40, seed=0):
    """Ids of all sizes, their lengths, second segments, labels, and the masked records."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(6, WIDTH + 1, rows)
    lengths[0] = WIDTH
    ids = (VOCAB ** rng.random((rows, WIDTH))).astype(np.int32)
    ids[np.arange(WIDTH) >= lengths[:, None]] = 0
    second = lengths // 2
    second[1] = lengths[1]
    tokens = {"mask_id": 4, "is_special": np.arange(VOCAB) == 0, "drawn_ids": np.arange(VOCAB), "word_marks": None}
    masking = Masking(**tokens, masked_lm_prob=0.2, max_predictions_per_seq=MOST)
    masked = mask(ids, lengths, masking, record_keys(0, 0, np.arange(rows)))
    return ids, lengths, second, rng.integers(0, 2, rows), masked


def record(**changes):
    """Google's features, small; None takes one away."""
    features = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), [1] * WIDTH)
    features |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), [1] * MOST)
    features |= {"masked_lm_weights": [1.0] * MOST, "next_sentence_labels": [1]} | changes
    return as_protobuf(**{name: values for name, values in features.items() if values is not None})


@pytest.mark.parametrize(
    "schema, ids_name, segments", [(V1, "input_ids", "segment_ids"), (V2, "input_word_ids", "input_type_ids")]
)
def test_bytes_are_those_of_protobuf(schema, ids_name, segments):
    ids, lengths, second, following, masked = some()
    serialized = serialize(masked, lengths, second, following, schema.names)
    for row, found in enumerate(serialized):
        is_token = np.arange(WIDTH) < lengths[row]
        is_second = is_token & (np.arange(WIDTH) >= second[row])
        features = {ids_name: masked.ids[row], "input_mask": is_token.astype(int), segments: is_second.astype(int)}
        features |= {"masked_lm_positions": masked.positions[row], "masked_lm_ids": masked.labels[row]}
        features |= {"masked_lm_weights": masked.weights[row], "next_sentence_labels": following[row : row + 1]}
        assert found == as_protobuf(**features)
    assert detect_schema(serialized[0], "here") == schema
    parsed = tf.io.parse_example(serialized, schema.feature_spec())
    np.testing.assert_array_equal(parsed[ids_name], masked.ids)
    np.testing.assert_array_equal(parsed["masked_lm_weights"], masked.weights)


@pytest.mark.parametrize(
    "content, message",
    [
        (
            record(masked_lm_ids=None),
            "x.tfrecord: a record with 0 values of masked_lm_ids as nothing, not 6 as int64.*; it has input_ids",
        ),
        (record(segment_ids=[0] * 5), "5 values of segment_ids as int64_list, not 32"),
        (record(masked_lm_weights=[1] * MOST), "6 values of masked_lm_weights as int64_list, not 6 as float_list"),
        (b"\x0f no protobuf", "x.tfrecord: a record that is not a tf.train.Example"),
    ],
    ids=["lacking", "short", "type", "no example"],
)
def test_other_records_are_refused(content, message):
    with pytest.raises(UsageError, match=message):
        detect_schema(content, "x.tfrecord")
