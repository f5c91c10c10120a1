"""Records of pre-training as other people's scripts write them: protobuf messages, one at a time."""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

VOCAB_SIZE = 50
PAD, CLS, SEP, MASK = 0, 2, 3, 4


@dataclasses.dataclass
class Written:
    """What was written of a record, without padding."""

    ids: list[int]
    second_start: int
    masked: dict[int, int]
    """Position -> what was there."""
    next_sentence: int


def some_records(count: int, *, seed: int = 0, seq_length: int = 16, pairs: bool = True) -> list[Written]:
    """Records of many lengths; record i has token 5 + i % 40 after `[CLS]`."""
    rng = np.random.default_rng(seed)
    out = []
    for number in range(count):
        length = int(rng.integers(5, seq_length + 1))
        ids = [CLS, 5 + number % 40, *rng.integers(5, VOCAB_SIZE, length - 3).tolist(), SEP]
        second = int(rng.integers(2, length - 1)) if pairs else length
        places = sorted(rng.choice(np.arange(1, length - 1), 2, replace=False).tolist())
        masked = {place: ids[place] for place in places}
        out.append(Written(ids, second, masked, int(rng.integers(2)) if pairs else 0))
    return out


def serialized(
    record: Written, *, seq_length: int = 16, num_masked: int = 4, names: str = "v1", **changed: list
) -> bytes:
    """One record; `changed` features are as given, and None leaves one out."""

    def padded(values, size):
        return [*values, *[0] * (size - len(values))]

    ids = [MASK if place in record.masked else token for place, token in enumerate(record.ids)]
    length = len(ids)
    segments = [int(place >= record.second_start) for place in range(length)]
    first, third = ("input_ids", "segment_ids") if names == "v1" else ("input_word_ids", "input_type_ids")
    values = {
        first: padded(ids, seq_length),
        "input_mask": padded([1] * length, seq_length),
        third: padded(segments, seq_length),
        "masked_lm_positions": padded(list(record.masked), num_masked),
        "masked_lm_ids": padded(list(record.masked.values()), num_masked),
        "masked_lm_weights": padded([1.0] * len(record.masked), num_masked),
        "next_sentence_labels": [record.next_sentence],
    } | changed

    return as_protobuf(**{name: given for name, given in values.items() if given is not None})


def as_protobuf(**features):
    """A tf.train.Example of them: numbers with a point are floats."""
    example = tf.train.Example()
    for name, values in features.items():
        values = np.asarray(values)
        kind = "float_list" if values.dtype.kind == "f" else "int64_list"
        getattr(example.features.feature[name], kind).value.extend(values.tolist())
    return example.SerializeToString(deterministic=True)


def write_records(path: pathlib.Path, records: list[Written | bytes], *, gzip: bool = False, **options) -> pathlib.Path:
    """Writes a file of them; those that are bytes as they are."""
    with tf.io.TFRecordWriter(str(path), "GZIP" if gzip else None) as writer:
        for record in records:
            writer.write(record if isinstance(record, bytes) else serialized(record, **options))
    return path
