"""What a record for pre-training holds and what its features are called, in our files and in other projects'.

The schema is that of google-research/bert, `create_pretraining_data.py`, which NVIDIA's scripts share; Model Garden
has other names for two of the features (`v2`). All are of fixed length.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tfbert.config.pretraining import RecordNames
from tfbert.errors import UsageError

POSITIONS, LABELS, WEIGHTS = "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"
MASK = "input_mask"
NEXT_SENTENCE = "next_sentence_labels"
IDS: dict[RecordNames, str] = {"v1": "input_ids", "v2": "input_word_ids"}
SEGMENTS: dict[RecordNames, str] = {"v1": "segment_ids", "v2": "input_type_ids"}


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


def _error(where: str, what: str) -> UsageError:
    return UsageError(
        f"Records to pre-train on must have the features of Google's script or of Model Garden's. "
        f"Received: {where}: {what}. Pass files of --mode=prepare, or of such a script."
    )
