"""Transactions as ZooKeeper logs them: made from what the tree did, and done again from a log.

Invariants: plain values; doing a transaction again is tolerant, as in ZooKeeper, because its
snapshots may hold later changes already; what is unknown is refused, never skipped. ZooKeeper:
`SerializeUtils`, `DataTree.processTxn`, the module `org.apache.zookeeper.txn` of zookeeper.jute.
"""

import struct
from typing import NamedTuple

from ottla.model.errors import WireError
from ottla.zookeeper import jute
from ottla.zookeeper.errors import MultiError, RuntimeInconsistencyError
from ottla.zookeeper.memory_tree import Done, SetAcl, Tree
from ottla.zookeeper.operations import Create, Delete, Set

HEADER = struct.Struct(">qiqqi")
DIGEST = struct.Struct(">iq")
DIGEST_VERSION = 2
_TYPED = struct.Struct(">ii")
_CREATES = (jute.CREATE, jute.CREATE2, jute.CREATE_CONTAINER, jute.CREATE_TTL)
_TTL_OWNER = -(1 << 56)


class Transaction(NamedTuple):
    """One entry of a log. `digest`: of the tree afterwards, signed; None where there is none."""

    session: int
    cxid: int
    zxid: int
    time_ms: int
    type: int
    body: bytes
    digest: int | None = None


Body = tuple[int, bytes]
"""Type and record of a transaction."""


def of_operation(done: Done, kind: int) -> Body:
    """Return what is logged for one operation of the kind that the client asked for."""
    op = done.op
    if isinstance(op, Create):
        made = jute.string(done.path) + jute.buffer(op.data) + op.acl
        if op.container:
            return jute.CREATE_CONTAINER, made + jute.INT.pack(done.creations)
        return kind, made + (b"\x01" if op.ephemeral else b"\x00") + jute.INT.pack(done.creations)
    if isinstance(op, Set):
        assert done.stat is not None, "a set znode has a stat"
        return jute.SET_DATA, jute.set_data_body(op.path, op.data, done.stat.version)
    if isinstance(op, Delete):
        return kind, jute.string(op.path)
    if isinstance(op, SetAcl):
        assert done.stat is not None, "a znode with a new ACL has a stat"
        return jute.SET_ACL, jute.string(op.path) + op.acl + jute.INT.pack(done.stat.aversion)
    return jute.CHECK, jute.delete_body(op.path, op.version)


def of_operations(done: list[Done], kinds: list[int], *, multi: bool) -> Body:
    """Return one transaction for all operations of a request."""
    bodies = [of_operation(d, kind) for d, kind in zip(done, kinds, strict=True)]
    if multi:
        return _multi(bodies)
    # ZooKeeper cannot read a lone check again.
    return of_error(0) if bodies[0][0] == jute.CHECK else bodies[0]


def _multi(bodies: list[Body]) -> Body:
    parts = [jute.INT.pack(len(bodies))]
    for kind, body in bodies:
        parts += [_TYPED.pack(kind, len(body)), body]
    return jute.MULTI, b"".join(parts)


def of_failure(error: MultiError, count: int, *, multi: bool) -> Body:
    """Return what is logged for a request that failed: it used a zxid."""
    if not multi:
        return of_error(error.error.zk_code)
    return _multi([of_error(code) for code in failure_codes(error, count)])


def failure_codes(error: MultiError, count: int) -> list[int]:
    """Return the code of each operation of a multi that failed."""
    later = RuntimeInconsistencyError.zk_code
    return [
        error.error.zk_code if i == error.index else later if i > error.index else 0
        for i in range(count)
    ]


def of_error(code: int) -> Body:
    return jute.ERROR, jute.INT.pack(code)


def encode(transaction: Transaction) -> bytes:
    """Return header, record and digest, as they are checksummed."""
    t = transaction
    head = HEADER.pack(t.session, t.cxid, t.zxid, t.time_ms, t.type)
    digest = b"" if t.digest is None else DIGEST.pack(DIGEST_VERSION, t.digest)
    return head + t.body + digest


def decode(data: bytes | memoryview) -> tuple[Transaction, int]:
    """Return a transaction and where it ends in `data`; WireError for what is not one.

    What comes after its end is not ZooKeeper's.
    """
    try:
        head = HEADER.unpack_from(data, 0)
        end = _end(head[4], data, HEADER.size)
        digest = None
        if len(data) >= end + DIGEST.size:
            version, value = DIGEST.unpack_from(data, end)
            digest = value if version == DIGEST_VERSION else None
        session, cxid, zxid, time_ms, kind = head
        body = bytes(data[HEADER.size : end])
        return Transaction(session, cxid, zxid, time_ms, kind, body, digest), end + DIGEST.size
    except struct.error:
        raise WireError("a transaction ends too early") from None


def _end(kind: int, data: bytes | memoryview, pos: int) -> int:
    """Return where the record of a transaction ends."""
    if kind in (jute.ERROR, jute.CREATE_SESSION):
        return pos + 4
    if kind == jute.CLOSE:
        return jute.read_strings(data, pos)[1] if len(data) > pos else pos
    if kind == jute.MULTI:
        (count,) = jute.INT.unpack_from(data, pos)
        pos += 4
        for _ in range(count):
            _, pos = jute.read_buffer(data, pos + 4)
        return pos
    _, pos = jute.read_string(data, pos)
    if kind in (jute.DELETE, jute.DELETE_CONTAINER):
        return pos
    if kind == jute.CHECK:
        return pos + 4
    if kind == jute.SET_ACL:
        return jute.read_acl(data, pos)[1] + 4
    if kind in _CREATES or kind == jute.SET_DATA:
        _, pos = jute.read_buffer(data, pos)
        if kind == jute.SET_DATA:
            return pos + 4
        _, pos = jute.read_acl(data, pos)
        return pos + {jute.CREATE_CONTAINER: 4, jute.CREATE_TTL: 12}.get(kind, 5)
    raise WireError(f"a transaction of the unknown type {kind}")


def replay(tree: Tree, sessions: dict[int, int], t: Transaction) -> None:
    """Do a transaction of the past again; `sessions` has their timeouts in milliseconds.

    NoNodeError where a znode's parent is missing: the log and the tree are not of one piece.
    """
    tree.replay_begin(t.zxid)
    if t.type == jute.CREATE_SESSION:
        (sessions[t.session],) = jute.INT.unpack(t.body)
    elif t.type == jute.CLOSE:
        sessions.pop(t.session, None)
        listed = jute.read_strings(t.body, 0)[0] if t.body else []
        for path in dict.fromkeys([*listed, *sorted(tree.ephemerals.get(t.session, ()))]):
            tree.apply_delete(path)
    elif t.type == jute.MULTI:
        _replay_multi(tree, t)
    elif t.type != jute.ERROR:
        _replay_one(tree, t, t.type, t.body)
    tree.replay_end()


def _replay_multi(tree: Tree, t: Transaction) -> None:
    (count,) = jute.INT.unpack_from(t.body, 0)
    pos, parts = 4, []
    for _ in range(count):
        (kind,) = jute.INT.unpack_from(t.body, pos)
        body, pos = jute.read_buffer(t.body, pos + 4)
        parts.append((kind, body or b""))
    if all(kind != jute.ERROR for kind, _ in parts):
        for kind, body in parts:
            _replay_one(tree, t, kind, body)


def _replay_one(tree: Tree, t: Transaction, kind: int, body: bytes) -> None:
    path, pos = jute.read_string(body, 0)
    if kind in _CREATES:
        data, pos = jute.read_buffer(body, pos)
        acl, pos = jute.read_acl(body, pos)
        rest = body[pos:]
        if kind == jute.CREATE_CONTAINER:
            owner, (creations,) = jute.CONTAINER_OWNER, jute.INT.unpack(rest)
        elif kind == jute.CREATE_TTL:
            creations, ttl_ms = struct.unpack(">iq", rest)
            owner = _TTL_OWNER | ttl_ms
        else:
            ephemeral, creations = struct.unpack(">?i", rest)
            owner = t.session if ephemeral else 0
        tree.apply_create(path, data, acl, owner, creations, t.time_ms)
    elif kind == jute.SET_DATA:
        data, pos = jute.read_buffer(body, pos)
        tree.apply_set(path, data, jute.INT.unpack_from(body, pos)[0], t.time_ms)
    elif kind == jute.SET_ACL:
        tree.apply_acl(path, body[pos:-4], jute.INT.unpack(body[-4:])[0])
    elif kind in (jute.DELETE, jute.DELETE_CONTAINER):
        tree.apply_delete(path)
    elif kind != jute.CHECK:
        raise WireError(f"a transaction of the unknown type {kind}")
