"""A server's requests: decoded, and those that only read carried out.

Invariants: a request is decoded whole before it changes anything; a read leaves its watch only
where ZooKeeper would. ZooKeeper: `PrepRequestProcessor`, `FinalRequestProcessor`.
"""

import struct
from collections import deque
from collections.abc import Generator, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.model.errors import WireError
from ottla.zookeeper import jute, znode_acls
from ottla.zookeeper.errors import (
    BadArgumentsError,
    InvalidAclError,
    NoNodeError,
    NoWatcherError,
    ThrottledError,
    UnimplementedError,
    ZooKeeperError,
)
from ottla.zookeeper.memory_tree import Done, SetAcl, Tree, Znode
from ottla.zookeeper.operations import Check, Create, Delete, Op, Set
from ottla.zookeeper.server_connection import notification
from ottla.zookeeper.server_watches import MODES, PERSISTENT, RECURSIVE, ServerWatches
from ottla.zookeeper.watches import WatchEvent, WatchType
from ottla.zookeeper.znode_acls import Identities


class Watcher(Protocol):
    def send(self, frame: bytes) -> None: ...


C = TypeVar("C", bound=Watcher)

MAX_MULTI_OPERATIONS = 2000
MAX_REPLY_BYTES = 4 << 20
MAX_CHILDREN = 150_000
"""Of one list."""
STEP = 100
"""Parts of a long request between two looks at the clock."""

CREATES = (jute.CREATE, jute.CREATE2, jute.CREATE_CONTAINER)
WRITES = frozenset((*CREATES, jute.DELETE, jute.SET_DATA, jute.CHECK, jute.SET_ACL, jute.MULTI))
PATHLESS = (jute.PING, jute.CLOSE, jute.SET_WATCHES, jute.SET_WATCHES2, jute.AUTH)
_KINDS_OF_WATCHES = ("data", "absent", "children", "persistent", "recursive")
"""As setWatches lists them."""
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
        acl, pos = znode_acls.read(frame, pos)
        (version,) = jute.INT.unpack_from(frame, pos)
        return WriteRequest([SetAcl(path, acl, version)], [op], multi=False)
    one, _ = _decode_op(op, frame, 8)
    return WriteRequest([one], [op], multi=False)


def _decode_multi(frame: bytes) -> tuple[list[Op], list[int]]:
    ops: list[Op] = []
    kinds: list[int] = []
    acls: set[bytes] = set()
    pos = 8
    while True:
        kind, done, _ = jute.MULTI_HEADER.unpack_from(frame, pos)
        pos += jute.MULTI_HEADER.size
        if done:
            return ops, kinds
        if len(ops) >= MAX_MULTI_OPERATIONS:
            raise ThrottledError
        op, pos = _decode_op(kind, frame, pos)
        if isinstance(op, Create) and op.acl is not jute.OPEN_ACL and op.acl not in acls:
            acls.add(op.acl)
            if sum(map(len, acls)) > znode_acls.MAX_ACL_BYTES:
                raise InvalidAclError(path=op.path)
        ops.append(op)
        kinds.append(kind)


def _decode_op(kind: int, frame: bytes, pos: int) -> tuple[Op, int]:
    path, pos = jute.read_string(frame, pos)
    if kind in CREATES:
        data, pos = jute.read_buffer(frame, pos)
        acl, pos = znode_acls.read(frame, pos)
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

    def read(
        self, connection: C, who: Identities, op: int, frame: bytes
    ) -> bytes | Generator[None, None, bytes]:
        """Carry a request out; return the body of its reply, or the steps to it."""
        if op == jute.MULTI_READ:
            return self._multi_read(connection, who, frame)
        path, pos = jute.read_string(frame, 8)
        if op in (jute.GET_DATA, jute.EXISTS, jute.GET_CHILDREN, jute.GET_CHILDREN2):
            return self._read_one(connection, who, op, path, watch=frame[pos : pos + 1] == b"\x01")
        if op == jute.GET_ACL:
            return self._get_acl(who, path)
        if op == jute.GET_ALL_CHILDREN_NUMBER:
            self._readable(path, who)
            return self._count_below(path)
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

    def _count_below(self, path: str) -> Generator[None, None, bytes]:
        """Count the znodes below one; those that come or go meanwhile may count or not."""
        nodes = self.tree.nodes
        if path == "/":
            return jute.INT.pack(len(nodes) - 1)
        count, left = 0, [path]
        while left:
            parent = left.pop()
            node = nodes.get(parent)
            for name in list(node.children) if node is not None else ():
                count += 1
                child = f"{parent}/{name}"
                below = nodes.get(child)
                if below is not None and below.children:
                    left.append(child)
                if count % STEP == 0:
                    yield
        return jute.INT.pack(count)

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
        names = _strings(list(node.children))
        return names if op == jute.GET_CHILDREN else names + stat

    def _multi_read(
        self, connection: C, who: Identities, frame: bytes
    ) -> Generator[None, None, bytes]:
        parts: list[bytes] = []
        pos, size, count, watches = 8, 0, 0, 0
        while True:
            kind, done, _ = jute.MULTI_HEADER.unpack_from(frame, pos)
            if done:
                return b"".join(parts) + jute.MULTI_END
            path, pos = jute.read_string(frame, pos + jute.MULTI_HEADER.size)
            watch = frame[pos : pos + 1] == b"\x01"
            pos += 1
            count, watches = count + 1, watches + watch
            if watches and count > MAX_MULTI_OPERATIONS:
                raise ThrottledError
            if count % STEP == 0 and not watches:
                yield  # not where the client would hear of a watch before it knows of it
            if kind not in (jute.GET_DATA, jute.GET_CHILDREN):
                raise UnimplementedError
            try:
                body = self._read_one(connection, who, kind, path, watch=watch)
            except ZooKeeperError as error:
                kind, body = jute.ERROR, jute.INT.pack(error.zk_code)
            code = jute.INT.unpack(body)[0] if kind == jute.ERROR else 0
            parts += [jute.MULTI_HEADER.pack(kind, False, code), body]
            size += jute.MULTI_HEADER.size + len(body)
            if size > MAX_REPLY_BYTES:
                raise ThrottledError

    def _get_acl(self, who: Identities, path: str) -> bytes:
        node = self.tree.node(path)
        znode_acls.check(node.acl, znode_acls.READ | znode_acls.ADMIN, who, path)
        administers = znode_acls.allows(node.acl, znode_acls.ADMIN, who)
        acl = node.acl if administers else znode_acls.masked(node.acl)
        return acl + jute.write_stat(node.stat())

    def ephemerals(self, session_id: int, frame: bytes) -> bytes:
        prefix = jute.read_string(frame, 8)[0].strip()
        owned = sorted(self.tree.ephemerals.get(session_id, ()))
        return _strings([p for p in owned if p.startswith("" if prefix == "/" else prefix)])

    def set_watches(
        self, connection: C, who: Identities, op: int, frame: bytes
    ) -> Generator[None, None, bytes]:
        """Register the watches of a session again; tell it of the events that it missed.

        Of a znode that it may not read it hears nothing, as by any other watch.
        """
        (seen,) = jute.LONG.unpack_from(frame, 8)
        pos = 16
        for kind in _KINDS_OF_WATCHES if op == jute.SET_WATCHES2 else _KINDS_OF_WATCHES[:3]:
            (count,) = jute.INT.unpack_from(frame, pos)
            pos += 4
            for number in range(count):
                path, pos = jute.read_string(frame, pos)
                missed = self._set_watch(connection, who, kind, path, seen)
                if missed is not None:
                    connection.send(notification(WatchEvent(missed, path)))
                if number % STEP == STEP - 1:
                    yield
        return b""

    def _set_watch(
        self, connection: C, who: Identities, kind: str, path: str, seen: int
    ) -> WatchType | None:
        """Register one; return what happened since a zxid where a standard watch missed it."""
        watches, node = self.watches, self.tree.nodes.get(path)
        if kind in ("persistent", "recursive"):
            mode = PERSISTENT if kind == "persistent" else RECURSIVE
            watches.add_persistent(path, connection, mode)
            return None
        if node is None and kind != "absent":
            return WatchType.DELETED
        if node is not None and znode_acls.allows(node.acl, znode_acls.READ, who):
            if kind == "absent":
                return WatchType.CREATED
            if kind == "data" and node.mzxid > seen:
                return WatchType.DATA_CHANGED
            if kind == "children" and node.pzxid > seen:
                return WatchType.CHILDREN_CHANGED
        table = watches.children if kind == "children" else watches.data
        watches.add(table, path, connection)
        return None


def _strings(names: list[str]) -> bytes:
    """Return names encoded; ThrottledError where a reply would be too large."""
    if len(names) > MAX_CHILDREN or sum(map(len, names)) + 4 * len(names) > MAX_REPLY_BYTES:
        raise ThrottledError
    return jute.strings(names)
