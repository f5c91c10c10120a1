"""Offline files of wandb, read: by its own reader up to 0.29, which later versions do not have; else its records, whose
frames are those of LevelDB's log, by its own protocol buffers."""

import importlib.util
import json
import struct
import zlib

BLOCK, HEADER = 32768, 7


def records(path):
    """The records of a file, as wandb's protocol buffers; an unfinished one at the end of a killed run is left out."""
    from wandb.proto import wandb_internal_pb2

    for data in _by_wandb(path) if importlib.util.find_spec("wandb.sdk.internal.datastore") else _frames(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


def history(path):
    """(name, step, value) of each value that was logged, and the id of the run."""
    found, runs = [], set()
    for record in records(path):
        if record.HasField("run"):
            runs.add(record.run.run_id)
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        found += [(name, items["_step"], value) for name, value in items.items() if not name.startswith("_")]
    (run,) = runs
    return found, run


def _by_wandb(path):
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(path))
    while (data := store.scan_data()) is not None:
        yield data


def _frames(path):
    content, at, whole = path.read_bytes(), HEADER, b""
    assert content[:4] == b":W&B"
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:  # The rest of a block is too short for a frame.
            at += BLOCK - at % BLOCK
            continue
        checksum, length, kind = struct.unpack_from("<IHB", content, at)
        data = content[at + HEADER : at + HEADER + length]
        if len(data) < length:
            return
        assert checksum == zlib.crc32(data, zlib.crc32(bytes([kind])))
        at += HEADER + length
        whole += data
        if kind in (1, 4):  # Full, or the last of several.
            yield whole
            whole = b""
