"""A server's requests: decoded, and those that only read carried out.

Who may call: `memory`. Invariants: a request is decoded whole before it changes anything; a read
leaves its watch only where ZooKeeper would. ZooKeeper: `PrepRequestProcessor`,
`FinalRequestProcessor`.
"""

import struct
from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.model.errors import WireError
from ottla.zookeeper import jute, znode_acls
from ottla.zookeeper.errors import (
    BadArgumentsError,
    NoNodeError,
    NoWatcherError,
    UnimplementedError,
    ZooKeeperError,
)
from ottla.zookeeper.memory_tree import Done, SetAcl, Tree, Znode
from ottla.zookeeper.operations import Check, Create, Delete, Op, Set
from ottla.zookeeper.server_watches import MODES, PERSISTENT, RECURSIVE, ServerWatches
from ottla.zookeeper.watches import WatchEvent, WatchType
from ottla.zookeeper.znode_acls import Identities

C = TypeVar("C")

CREATES = (jute.CREATE, jute.CREATE2, jute.CREATE_CONTAINER)
WRITES = frozenset((*CREATES, jute.DELETE, jute.SET_DATA, jute.CHECK, jute.SET_ACL, jute.MULTI))
PATHLESS = (jute.PING, jute.CLOSE, jute.SET_WATCHES, jute.SET_WATCHES2, jute.AUTH)
_ADD_WATCH = struct.Struct(">i")


class WriteRequest(NamedTuple):
    """What a request wants to change; `kinds`: the operation codes that the client used."""

    ops: list[Op | SetAcl]
    kinds: list[int]
    multi: bool


def decode_write(op: int, frame: bytes) -> WriteRequest:
    """Decode a request that changes something; WireError or struct.error for what is none."""
    if op == jute.MULTI:
        found, kinds = _decode_multi(frame)
        return WriteRequest([*found], kinds, multi=True)
    if op == jute.SET_ACL:
        path, pos = jute.read_string(frame, 8)
        acl, pos = jute.read_acl(frame, pos)
        (version,) = jute.INT.unpack_from(frame, pos)
        return WriteRequest([SetAcl(path, acl, version)], [op], multi=False)
    one, _ = _decode_op(op, frame, 8)
    return WriteRequest([one], [op], multi=False)


def _decode_multi(frame: bytes) -> tuple[list[Op], list[int]]:
    ops: list[Op] = []
    kinds: list[int] = []
    pos = 8
    while True:
        kind, done, _ = jute.MULTI_HEADER.unpack_from(frame, pos)
        pos += jute.MULTI_HEADER.size
        if done:
            return ops, kinds
        op, pos = _decode_op(kind, frame, pos)
        ops.append(op)
        kinds.append(kind)


def _decode_op(kind: int, frame: bytes, pos: int) -> tuple[Op, int]:
    path, pos = jute.read_string(frame, pos)
    if kind in CREATES:
        data, pos = jute.read_buffer(frame, pos)
        acl, pos = jute.read_acl(frame, pos)
        (flags,) = jute.INT.unpack_from(frame, pos)
        container = kind == jute.CREATE_CONTAINER
        known = jute.CONTAINER if container else jute.EPHEMERAL | jute.SEQUENCE
        if flags & ~known:
            raise UnimplementedError  # znodes with a time to live, as ZooKeeper by default
        ephemeral, sequence = bool(flags & jute.EPHEMERAL), bool(flags & jute.SEQUENCE)
        return Create(path, data, ephemeral, sequence, acl, container), pos + 4
    if kind == jute.SET_DATA:
        data, pos = jute.read_buffer(frame, pos)
        (version,) = jute.INT.unpack_from(frame, pos)
        return Set(path, data, version), pos + 4
    (version,) = jute.INT.unpack_from(frame, pos)
    if kind == jute.DELETE:
        return Delete(path, version), pos + 4
    if kind == jute.CHECK:
        return Check(path, version), pos + 4
    raise UnimplementedError


def result(kind: int, done: Done) -> bytes:
    """Return the body of the reply to one operation."""
    if kind == jute.CREATE:
        return jute.string(done.path)
    if kind in CREATES:
        assert done.stat is not None, "a created znode has a stat"
        return jute.string(done.path) + jute.write_stat(done.stat)
    if kind in (jute.SET_DATA, jute.SET_ACL):
        assert done.stat is not None, "a set znode has a stat"
        return jute.write_stat(done.stat)
    return b""


def path_of(op: int, frame: bytes) -> str:
    """Return the path a request is about: of a multi or multiRead the last; or ""."""
    try:
        if op == jute.MULTI:
            ops, _ = _decode_multi(frame)
            return ops[-1].path if ops else ""
        if op == jute.MULTI_READ:
            return next(iter(deque(_read_paths(frame), maxlen=1)), "")
        return "" if op in PATHLESS else jute.read_string(frame, 8)[0]
    except (WireError, ZooKeeperError, struct.error):
        return ""


def _read_paths(frame: bytes) -> Iterator[str]:
    """Yield the paths that a multiRead names."""
    pos = 8
    while True:
        _, done, _ = jute.MULTI_HEADER.unpack_from(frame, pos)
        if done:
            return
        path, pos = jute.read_string(frame, pos + jute.MULTI_HEADER.size)
        pos += 1  # whether it is watched
        yield path


class Served(Protocol[C]):
    """What reads need of a server."""

    tree: Tree
    watches: ServerWatches[C]


class Reads(Generic[C]):
    """Requests that change no znode, over a server's tree and its watches."""

    def __init__(self, server: Served[C]) -> None:
        self._server = server

    @property
    def tree(self) -> Tree:
        return self._server.tree

    @property
    def watches(self) -> ServerWatches[C]:
        return self._server.watches

    def read(self, connection: C, who: Identities, op: int, frame: bytes) -> bytes:
        """Carry a request out; return the body of its reply."""
        if op == jute.MULTI_READ:
            return self._multi_read(connection, who, frame)
        path, pos = jute.read_string(frame, 8)
        if op in (jute.GET_DATA, jute.EXISTS, jute.GET_CHILDREN, jute.GET_CHILDREN2):
            return self._read_one(connection, who, op, path, watch=frame[pos : pos + 1] == b"\x01")
        if op == jute.GET_ACL:
            return self._get_acl(who, path)
        if op == jute.GET_ALL_CHILDREN_NUMBER:
            self._readable(path, who)
            below = path.rstrip("/") + "/"
            return jute.INT.pack(sum(p.startswith(below) and p != path for p in self.tree.nodes))
        if op == jute.ADD_WATCH:
            (mode,) = _ADD_WATCH.unpack_from(frame, pos)
            if mode not in MODES:
                raise BadArgumentsError(path=path)
            self.watches.add_persistent(path, connection, MODES[mode])
            return jute.INT.pack(0)
        if op in (jute.CHECK_WATCHES, jute.REMOVE_WATCHES):
            (kind,) = _ADD_WATCH.unpack_from(frame, pos)
            act = self.watches.has if op == jute.CHECK_WATCHES else self.watches.remove
            if not act(path, connection, kind):
                raise NoWatcherError(path=path)
            return b""
        raise UnimplementedError

    def _readable(self, path: str, who: Identities) -> Znode:
        node = self.tree.node(path)
        znode_acls.check(node.acl, znode_acls.READ, who, path)
        return node

    def _read_one(
        self, connection: C, who: Identities, op: int, path: str, *, watch: bool
    ) -> bytes:
        node = self.tree.nodes.get(path)
        if node is not None:
            znode_acls.check(node.acl, znode_acls.READ, who, path)
        if watch and (node is not None or op == jute.EXISTS):
            of_children = op in (jute.GET_CHILDREN, jute.GET_CHILDREN2)
            table = self.watches.children if of_children else self.watches.data
            self.watches.add(table, path, connection)
        if node is None:
            raise NoNodeError(path=path)
        stat = jute.write_stat(node.stat())
        if op == jute.EXISTS:
            return stat
        if op == jute.GET_DATA:
            return jute.buffer(node.data) + stat
        names = jute.strings(list(node.children))
        return names if op == jute.GET_CHILDREN else names + stat

    def _multi_read(self, connection: C, who: Identities, frame: bytes) -> bytes:
        parts: list[bytes] = []
        pos = 8
        while True:
            kind, done, _ = jute.MULTI_HEADER.unpack_from(frame, pos)
            if done:
                return b"".join(parts) + jute.MULTI_END
            path, pos = jute.read_string(frame, pos + jute.MULTI_HEADER.size)
            watch = frame[pos : pos + 1] == b"\x01"
            pos += 1
            if kind not in (jute.GET_DATA, jute.GET_CHILDREN):
                raise UnimplementedError
            try:
                body = self._read_one(connection, who, kind, path, watch=watch)
            except ZooKeeperError as error:
                kind, body = jute.ERROR, jute.INT.pack(error.zk_code)
            code = jute.INT.unpack(body)[0] if kind == jute.ERROR else 0
            parts += [jute.MULTI_HEADER.pack(kind, False, code), body]

    def _get_acl(self, who: Identities, path: str) -> bytes:
        node = self.tree.node(path)
        znode_acls.check(node.acl, znode_acls.READ | znode_acls.ADMIN, who, path)
        administers = znode_acls.allows(node.acl, znode_acls.ADMIN, who)
        acl = node.acl if administers else znode_acls.masked(node.acl)
        return acl + jute.write_stat(node.stat())

    def ephemerals(self, session_id: int, frame: bytes) -> bytes:
        prefix = jute.read_string(frame, 8)[0].strip()
        owned = sorted(self.tree.ephemerals.get(session_id, ()))
        return jute.strings([p for p in owned if p.startswith("" if prefix == "/" else prefix)])

    def set_watches(self, connection: C, op: int, frame: bytes) -> list[WatchEvent]:
        """Register the watches of a session again; return the events that it missed."""
        (seen,) = jute.LONG.unpack_from(frame, 8)
        data, pos = jute.read_strings(frame, 16)
        absent, pos = jute.read_strings(frame, pos)
        children, pos = jute.read_strings(frame, pos)
        persistent: list[str] = []
        recursive: list[str] = []
        if op == jute.SET_WATCHES2:
            persistent, pos = jute.read_strings(frame, pos)
            recursive, pos = jute.read_strings(frame, pos)
        missed = []
        nodes, watches = self.tree.nodes, self.watches
        for path in data:
            node = nodes.get(path)
            if node is None:
                missed.append(WatchEvent(WatchType.DELETED, path))
            elif node.mzxid > seen:
                missed.append(WatchEvent(WatchType.DATA_CHANGED, path))
            else:
                watches.add(watches.data, path, connection)
        for path in absent:
            if path in nodes:
                missed.append(WatchEvent(WatchType.CREATED, path))
            else:
                watches.add(watches.data, path, connection)
        for path in children:
            node = nodes.get(path)
            if node is None:
                missed.append(WatchEvent(WatchType.DELETED, path))
            elif node.pzxid > seen:
                missed.append(WatchEvent(WatchType.CHILDREN_CHANGED, path))
            else:
                watches.add(watches.children, path, connection)
        for path in persistent:
            watches.add_persistent(path, connection, PERSISTENT)
        for path in recursive:
            watches.add_persistent(path, connection, RECURSIVE)
        return missed
