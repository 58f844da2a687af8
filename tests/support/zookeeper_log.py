"""What was written to a ZooKeeper server, in its order: read from its transaction log.

Every write of every session is in there, also what a later one covers up. The format is that of
ZooKeeper's `FileTxnLog`: a header of 16 bytes; then for each transaction an Adler-32 (8 bytes), a
length, that many bytes and a `B`. Zeros are room that was taken in advance.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.zookeeper.jute import read_buffer, read_string

CREATES = {1: "create", 15: "create", 19: "create", 21: "create"}
DELETES = {2: "delete", 20: "delete"}
SET, MULTI = 5, 14
_HEAD = struct.Struct(">qiqqi")


class Write(NamedTuple):
    """One write: `create`, `set` or `delete`, where, and the data (none of a delete)."""

    what: str
    path: str
    data: bytes | None


def writes(folder: Path) -> Iterator[Write]:
    """Yield every write in the logs below a server's data folder, oldest first."""
    for file in sorted(folder.rglob("log.*"), key=lambda f: int(f.suffix[1:], 16)):
        whole = file.read_bytes()
        assert whole[:4] == b"ZKLG", file
        position = 16
        while position + 12 <= len(whole):
            (length,) = struct.unpack_from(">i", whole, position + 8)
            end = position + 12 + length
            if length <= 0 or whole[end : end + 1] != b"B":
                break  # room not used yet
            kind = _HEAD.unpack_from(whole, position + 12)[4]
            yield from _writes(kind, whole[position + 12 + _HEAD.size : end])
            position = end + 1


def _writes(kind: int, body: bytes) -> Iterator[Write]:
    if kind == MULTI:
        (count,) = struct.unpack_from(">i", body)
        parts = []
        position = 4
        for _ in range(count):
            (inner,) = struct.unpack_from(">i", body, position)
            data, position = read_buffer(body, position + 4)
            parts.append((inner, data or b""))
        if all(inner != -1 for inner, _ in parts):  # a multi that failed is there, as errors
            for inner, data in parts:
                yield from _writes(inner, data)
    elif kind in CREATES or kind == SET:
        path, position = read_string(body, 0)
        data, _ = read_buffer(body, position)
        yield Write(CREATES.get(kind, "set"), path, data)
    elif kind in DELETES:
        yield Write("delete", read_string(body, 0)[0], None)
