"""What a record for pre-training holds, what its features are called, and its bytes: ours and other projects'.

The schema is that of google-research/bert, `create_pretraining_data.py`, which NVIDIA's scripts share; Model Garden
has other names for two of the features (`v2`). All are of fixed length. A record is a serialised `tf.train.Example`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tfbert.config.pretraining import RecordNames
from tfbert.corpus.masking import Masked
from tfbert.errors import UsageError

POSITIONS, LABELS, WEIGHTS = "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"
MASK = "input_mask"
NEXT_SENTENCE = "next_sentence_labels"
IDS: dict[RecordNames, str] = {"v1": "input_ids", "v2": "input_word_ids"}
SEGMENTS: dict[RecordNames, str] = {"v1": "segment_ids", "v2": "input_type_ids"}
_MOST = 1 << 21  # Three bytes of seven bits.
_LENGTH_DELIMITED = 2
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3  # The fields of tf.train.Feature.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """The form of a file's records.

    Attributes:
        names: `v1`, as Google's and NVIDIA's scripts name the features, or `v2`, as Model Garden does.
        max_seq_length: Ids of each record.
        max_predictions_per_seq: Most places of each record that are predicted.
        has_next_sentence: Whether records say if their second stretch of text follows the first (0) or not (1).
    """

    names: RecordNames
    max_seq_length: int
    max_predictions_per_seq: int
    has_next_sentence: bool = True

    @property
    def lengths(self) -> dict[str, int]:
        """The number of values of each feature of a record."""
        width, most = self.max_seq_length, self.max_predictions_per_seq
        out = {IDS[self.names]: width, MASK: width, SEGMENTS[self.names]: width}
        out |= {POSITIONS: most, LABELS: most, WEIGHTS: most}
        return out | ({NEXT_SENTENCE: 1} if self.has_next_sentence else {})

    def feature_spec(self) -> dict[str, tf.io.FixedLenFeature]:
        """The features for `tf.io.parse_example` to read such records."""
        return {
            name: tf.io.FixedLenFeature([length], tf.float32 if name == WEIGHTS else tf.int64)
            for name, length in self.lengths.items()
        }

    def difference(self, other: Schema) -> str:
        """How another schema differs, such as `max_seq_length=128 and 512`; empty if it does not."""
        fields = [field.name for field in dataclasses.fields(self)]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in fields]
        return ", ".join(f"{name}={first} and {second}" for name, first, second in pairs if first != second)


def detect_schema(record: bytes, where: str) -> Schema:
    """Finds the schema of a file from one of its records.

    Args:
        record: A serialised `tf.train.Example`.
        where: The file's name, for errors.

    Raises:
        UsageError: for a record of another kind; says what is missing or does not fit.
    """
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise _error(where, "a record that is not a tf.train.Example") from None
    found = {
        name: len(getattr(value, value.WhichOneof("kind") or "int64_list").value) for name, value in features.items()
    }
    names: RecordNames = "v2" if IDS["v2"] in found else "v1"
    schema = Schema(
        names=names,
        max_seq_length=found.get(IDS[names], 0),
        max_predictions_per_seq=found.get(POSITIONS, 0),
        has_next_sentence=NEXT_SENTENCE in found,
    )
    missing = [name for name in schema.lengths if not found.get(name)]
    if missing:
        raise _error(where, f"a record without {', '.join(missing)}; it has {', '.join(sorted(found)) or 'nothing'}")
    wrong = [f"{found[name]} values of {name}" for name, length in schema.lengths.items() if found[name] != length]
    if wrong:
        width, most = schema.max_seq_length, schema.max_predictions_per_seq
        raise _error(where, f"{', '.join(wrong)} beside {width} of {IDS[names]} and {most} of {POSITIONS}")
    for name, spec in schema.feature_spec().items():
        kind = "float_list" if spec.dtype == tf.float32 else "int64_list"
        if features[name].WhichOneof("kind") != kind:
            raise _error(where, f"{name} as {features[name].WhichOneof('kind')}, not {kind}")
    return schema


class Parsed(NamedTuple):
    """Records as tensors or arrays: int64 `[n, ...]`, except the weights, which are float32.

    Attributes:
        ids: `[n, max_seq_length]`, masked.
        mask: `[n, max_seq_length]`: 1 for a token.
        segments: `[n, max_seq_length]`: 1 for a token of segment B.
        positions: `[n, max_predictions_per_seq]`: the masked places.
        labels: `[n, max_predictions_per_seq]`: the ids that were there.
        weights: `[n, max_predictions_per_seq]`: 0 where there is no masked place.
        next_sentence: `[n, 1]`; None if records do not say.
    """

    ids: Any
    mask: Any
    segments: Any
    positions: Any
    labels: Any
    weights: Any
    next_sentence: Any


def parse(records: tf.Tensor, schema: Schema) -> Parsed:
    """Parses records, in a graph or eagerly.

    Args:
        records: string `[n]`.
        schema: Their form.
    """
    found = tf.io.parse_example(records, schema.feature_spec())
    keys = (IDS[schema.names], MASK, SEGMENTS[schema.names], POSITIONS, LABELS, WEIGHTS, NEXT_SENTENCE)
    return Parsed(*(found.get(key) for key in keys))


def restore(ids: np.ndarray, positions: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The ids of records before they were masked.

    Args:
        ids: int [rows, width].
        positions: int [rows, max_predictions_per_seq]: masked places.
        labels: int, same shape: the ids that were there.
        weights: float, same shape: 0 where there is no masked place.

    Returns:
        int32 [rows, width], a new array.
    """
    out = np.array(ids, np.int32)
    row, rank = np.nonzero(weights > 0)
    out[row, positions[row, rank]] = labels[row, rank]
    return out


def serialize(
    masked: Masked, lengths: np.ndarray, second_start: np.ndarray, next_sentence: np.ndarray, names: RecordNames
) -> list[bytes]:
    """Serialises records, many at once.

    All values are small and not negative, and every feature is a packed list, so NumPy can assemble the bytes: the same
    as those of protobuf's deterministic serialisation, in a third of the time.

    Args:
        masked: The masked records, at any width.
        lengths: int [rows]: tokens of each.
        second_start: int [rows]: where the second segment begins; the length for records of one segment.
        next_sentence: int [rows]: 1 if the second stretch of text does not follow the first.
        names: What the features are called.
    """
    places = np.arange(masked.ids.shape[1])
    is_token = places < lengths[:, None]
    values = {
        IDS[names]: masked.ids,
        MASK: is_token,
        SEGMENTS[names]: is_token & (places >= second_start[:, None]),
        POSITIONS: masked.positions,
        LABELS: masked.labels,
        WEIGHTS: masked.weights,
        NEXT_SENTENCE: next_sentence[:, None],
    }
    columns = []
    for name in sorted(values):
        is_float = name == WEIGHTS
        payloads = _floats(values[name]) if is_float else _varints(values[name])
        field = _FLOAT_LIST if is_float else _INT64_LIST
        columns.append([_entry_start(name, field, len(payload)) + payload for payload in payloads])
    features = map(b"".join, zip(*columns, strict=True))
    return [_start(1, len(body)) + body for body in features]


def _error(where: str, what: str) -> UsageError:
    return UsageError(
        f"Records to pre-train on must have the features of Google's script or of Model Garden's. "
        f"Received: {where}: {what}. Pass files of --mode=prepare, or of such a script."
    )


def _varints(values: np.ndarray) -> list[bytes]:
    """Each row's values as base 128 varints."""
    values = values.astype(np.uint32)
    assert not values.size or values.max() < _MOST
    two, three = values >= 1 << 7, values >= 1 << 14
    parts = np.empty((*values.shape, 3), np.uint8)
    parts[..., 0] = values & 127 | two.astype(np.uint32) << 7
    parts[..., 1] = values >> 7 & 127 | three.astype(np.uint32) << 7
    parts[..., 2] = values >> 14
    kept = np.stack([np.ones_like(two), two, three], axis=-1)
    return _cut(parts[kept].tobytes(), kept.sum(axis=(1, 2)))


def _floats(values: np.ndarray) -> list[bytes]:
    rows, width = values.shape
    return _cut(values.astype("<f4").tobytes(), np.full(rows, 4 * width))


def _cut(buffer: bytes, sizes: np.ndarray) -> list[bytes]:
    ends = np.cumsum(sizes).tolist()
    return [buffer[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@functools.lru_cache(maxsize=1 << 16)
def _entry_start(name: str, field: int, size: int) -> bytes:
    """The bytes before a packed list of `size` bytes: headers of the list, its feature and its entry in the map."""
    listed = _start(1, size)
    feature = _start(field, len(listed) + size) + listed
    key = name.encode()
    inner = _start(1, len(key)) + key + _start(2, len(feature) + size) + feature
    return _start(1, len(inner) + size) + inner


@functools.lru_cache(maxsize=1 << 16)
def _start(field: int, size: int) -> bytes:
    """The tag and length of a length-delimited field."""
    out = [field << 3 | _LENGTH_DELIMITED]
    while size >= 128:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size])
