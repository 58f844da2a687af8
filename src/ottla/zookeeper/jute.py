"""ZooKeeper's wire format (jute): records to bytes and back, for both ends of a connection.

Invariants: all integers are big endian; a buffer of length -1 is null; every read is checked
against the end of its frame. ZooKeeper: zookeeper.jute of ZooKeeper 3.8.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.errors import WireError

# Operation codes (ZooDefs.OpCode).
NOTIFICATION = 0
CREATE = 1
DELETE = 2
EXISTS = 3
GET_DATA = 4
SET_DATA = 5
GET_ACL = 6
SET_ACL = 7
GET_CHILDREN = 8
SYNC = 9
PING = 11
GET_CHILDREN2 = 12
CHECK = 13
MULTI = 14
CREATE2 = 15
CHECK_WATCHES = 17
REMOVE_WATCHES = 18
CREATE_CONTAINER = 19
DELETE_CONTAINER = 20
CREATE_TTL = 21
MULTI_READ = 22
AUTH = 100
SET_WATCHES = 101
SASL = 102
GET_EPHEMERALS = 103
GET_ALL_CHILDREN_NUMBER = 104
SET_WATCHES2 = 105
ADD_WATCH = 106
WHO_AM_I = 107
CREATE_SESSION = -10
CLOSE = -11
ERROR = -1

# Reserved request ids.
XID_NOTIFICATION = -1
XID_PING = -2
XID_AUTH = -4
XID_SET_WATCHES = -8

# Flags of a create.
EPHEMERAL = 1
SEQUENCE = 2
CONTAINER = 4

CONTAINER_OWNER = -(1 << 63)
"""The ephemeral owner of a container, which belongs to no session (`EphemeralType`)."""

# Watch event types and the session state every event carries.
NODE_CREATED = 1
NODE_DELETED = 2
NODE_DATA_CHANGED = 3
NODE_CHILDREN_CHANGED = 4
SYNC_CONNECTED = 3

INT = struct.Struct(">i")
LONG = struct.Struct(">q")
XID_OP = struct.Struct(">ii")
LEN_XID_OP = struct.Struct(">iii")
REPLY_HEADER = struct.Struct(">iqi")
LEN_REPLY_HEADER = struct.Struct(">iiqi")
STAT = struct.Struct(">qqqqiiiqiiq")
MULTI_HEADER = struct.Struct(">i?i")
_CONNECT_HEAD = struct.Struct(">iqiq")
_CONNECTED_HEAD = struct.Struct(">iiq")

OPEN_ACL = INT.pack(1) + INT.pack(31) + INT.pack(5) + b"world" + INT.pack(6) + b"anyone"
"""One entry, world:anyone with all five permissions, as every znode of ours has it."""

MULTI_END = MULTI_HEADER.pack(-1, True, -1)
READ_ACL = INT.pack(1) + INT.pack(1) + OPEN_ACL[8:]
"""One entry: anyone may read."""
CREATOR_ACL = INT.pack(1) + INT.pack(31) + INT.pack(4) + b"auth" + INT.pack(0)
"""One entry, all five permissions for who creates the znode, by all that it authenticated as."""
CREATOR_AND_READ_ACL = INT.pack(2) + CREATOR_ACL[4:] + READ_ACL[4:]
"""Both."""


def is_session(owner: int) -> bool:
    """Return whether a znode's owner is a session: no container, no TTL (first byte 0xff)."""
    return owner > 0 or -(1 << 56) > owner > CONTAINER_OWNER


class Stat(NamedTuple):
    """What ZooKeeper knows about a znode beside its data. Times in milliseconds since 1970."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


def read_stat(buf: bytes | memoryview, pos: int) -> Stat:
    return Stat._make(STAT.unpack_from(buf, pos))


def write_stat(stat: Stat) -> bytes:
    return STAT.pack(*stat)


def string(text: str) -> bytes:
    raw = text.encode()
    return INT.pack(len(raw)) + raw


def buffer(data: bytes | None) -> bytes:
    return INT.pack(-1) if data is None else INT.pack(len(data)) + data


def strings(texts: Sequence[str]) -> bytes:
    return INT.pack(len(texts)) + b"".join([string(t) for t in texts])


def read_buffer(buf: bytes | memoryview, pos: int) -> tuple[bytes | None, int]:
    """Return the bytes at `pos` (None for null) and the position after them."""
    try:
        (size,) = INT.unpack_from(buf, pos)
    except struct.error:
        raise WireError("a ZooKeeper frame ends inside a length") from None
    pos += 4
    if size < 0:
        return None, pos
    end = pos + size
    if end > len(buf):
        raise WireError(f"a ZooKeeper frame ends inside a buffer of {size} bytes")
    return bytes(buf[pos:end]), end


def read_string(buf: bytes | memoryview, pos: int) -> tuple[str, int]:
    try:
        (size,) = INT.unpack_from(buf, pos)
        pos += 4
        end = pos + size
        if size >= 0 and end <= len(buf):
            return str(buf[pos:end], "utf-8"), end
    except struct.error:
        raise WireError("a ZooKeeper frame ends inside a length") from None
    except UnicodeDecodeError:
        raise WireError("a ZooKeeper string is not UTF-8") from None
    if size < 0:
        return "", pos
    raise WireError(f"a ZooKeeper frame ends inside a string of {size} bytes")


def read_acl(buf: bytes | memoryview, pos: int) -> tuple[bytes, int]:
    """Return a vector of ACL entries as it is, and the position after it."""
    end = pos + len(OPEN_ACL)
    if buf[pos:end] == OPEN_ACL:
        return OPEN_ACL, end  # one object for nearly all znodes
    start = pos
    try:
        (count,) = INT.unpack_from(buf, pos)
    except struct.error:
        raise WireError("a ZooKeeper frame ends inside an ACL") from None
    pos += 4
    for _ in range(count):
        _, pos = read_buffer(buf, pos + 4)
        _, pos = read_buffer(buf, pos)
    return bytes(buf[start:pos]), pos


def read_strings(buf: bytes | memoryview, pos: int) -> tuple[list[str], int]:
    try:
        (count,) = INT.unpack_from(buf, pos)
    except struct.error:
        raise WireError("a ZooKeeper frame ends inside a count") from None
    pos += 4
    if count > (len(buf) - pos) // 4:
        raise WireError(f"a ZooKeeper frame promises {count} strings and is too short for them")
    found = []
    for _ in range(count):
        text, pos = read_string(buf, pos)
        found.append(text)
    return found, pos


class ConnectRequest(NamedTuple):
    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool = False

    def encode(self) -> bytes:
        """Return the whole frame."""
        body = _CONNECT_HEAD.pack(0, self.last_zxid, self.timeout_ms, self.session_id)
        body += buffer(self.password) + (b"\x01" if self.read_only else b"\x00")
        return INT.pack(len(body)) + body

    @classmethod
    def decode(cls, buf: bytes | memoryview) -> "ConnectRequest":
        if len(buf) < _CONNECT_HEAD.size:
            raise WireError("a ZooKeeper connect request is too short")
        _, last_zxid, timeout_ms, session_id = _CONNECT_HEAD.unpack_from(buf, 0)
        password, pos = read_buffer(buf, _CONNECT_HEAD.size)
        return cls(last_zxid, timeout_ms, session_id, password or b"", bytes(buf[pos:]) == b"\x01")


class ConnectResponse(NamedTuple):
    """`timeout_ms` 0 says that the session is expired."""

    timeout_ms: int
    session_id: int
    password: bytes
    has_read_only: bool = True

    def encode(self) -> bytes:
        """Return the whole frame."""
        body = _CONNECTED_HEAD.pack(0, self.timeout_ms, self.session_id) + buffer(self.password)
        body += b"\x00" if self.has_read_only else b""
        return INT.pack(len(body)) + body

    @classmethod
    def decode(cls, buf: bytes | memoryview) -> "ConnectResponse":
        if len(buf) < _CONNECTED_HEAD.size:
            raise WireError("a ZooKeeper connect response is too short")
        _, timeout_ms, session_id = _CONNECTED_HEAD.unpack_from(buf, 0)
        password, pos = read_buffer(buf, _CONNECTED_HEAD.size)
        return cls(timeout_ms, session_id, password or b"", pos < len(buf))


def request(xid: int, op: int, body: bytes) -> bytes:
    """Return the whole frame of a request."""
    return LEN_XID_OP.pack(8 + len(body), xid, op) + body


def reply(xid: int, zxid: int, err: int, body: bytes = b"") -> bytes:
    """Return the whole frame of a reply."""
    return LEN_REPLY_HEADER.pack(16 + len(body), xid, zxid, err) + body


def create_body(path: str, data: bytes | None, flags: int, acl: bytes = OPEN_ACL) -> bytes:
    return string(path) + buffer(data) + acl + INT.pack(flags)


def path_watch_body(path: str, watch: bool) -> bytes:
    return string(path) + (b"\x01" if watch else b"\x00")


def delete_body(path: str, version: int) -> bytes:
    return string(path) + INT.pack(version)


def set_data_body(path: str, data: bytes | None, version: int) -> bytes:
    return string(path) + buffer(data) + INT.pack(version)


class Frames:
    """Cuts a byte stream into frames. Bounded by `limit`; one copy only where a frame is split."""

    __slots__ = ("_need", "_parts", "_size", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._need = 4

    @property
    def pending(self) -> int:
        """Bytes of a frame that came in part."""
        return self._size if self._parts else 0

    def feed(self, data: bytes) -> tuple[bytes, list[tuple[int, int]]]:
        """Return a buffer and the (start, end) of each whole frame in it.

        WireError once a length is negative or above the limit.
        """
        if self._parts:
            self._parts.append(data)
            self._size += len(data)
            if self._size < self._need:
                return b"", []
            data = b"".join(self._parts)
            self._parts.clear()
        spans = []
        pos = 0
        total = len(data)
        need = 4
        while total - pos >= 4:
            (size,) = INT.unpack_from(data, pos)
            if not 0 <= size <= self.limit:
                raise WireError(f"a ZooKeeper frame of {size} bytes (at most {self.limit})")
            end = pos + 4 + size
            if end > total:
                need = 4 + size
                break
            spans.append((pos + 4, end))
            pos = end
        if pos < total:
            self._parts.append(data[pos:] if pos else data)
            self._size = total - pos
            self._need = need
        return data, spans
