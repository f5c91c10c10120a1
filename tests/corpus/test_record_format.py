"""Records as bytes: protobuf reads them and would have written the same, and schemas are told apart."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.records import as_protobuf
from tfbert.corpus.masking import Masking, mask, record_keys
from tfbert.corpus.records import Schema, detect_schema, serialize
from tfbert.errors import UsageError

WIDTH, MOST, VOCAB = 32, 6, 300_000
V1 = Schema(names="v1", max_seq_length=WIDTH, max_predictions_per_seq=MOST)
V2 = Schema(names="v2", max_seq_length=WIDTH, max_predictions_per_seq=MOST)


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
