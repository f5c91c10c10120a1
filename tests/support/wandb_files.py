"""Offline files of wandb, whose frames are those of LevelDB's log, read by its own protocol buffers."""

import json
import struct
import zlib

BLOCK, HEADER = 32768, 7


def history(path):
    """(name, step, value) of each value that was logged, and the id of the run; an unfinished record at the end of a
    killed run is left out."""
    from wandb.proto.wandb_internal_pb2 import Record

    found, runs = [], set()
    for record in map(Record.FromString, _frames(path)):
        if record.HasField("run"):
            runs.add(record.run.run_id)
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        found += [(name, items["_step"], value) for name, value in items.items() if not name.startswith("_")]
    (run,) = runs
    return found, run


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
