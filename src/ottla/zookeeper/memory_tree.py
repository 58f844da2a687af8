"""The tree of our ZooKeeper server: znodes, versions and zxids, changed by transactions.

Invariants: plain values, no clock, no wire; a transaction that fails leaves nothing but its zxid
(as in ZooKeeper, where the failure is a transaction too); a number given to a sequence znode is the
count of its parent's creations; a znode comes after its parent in `nodes`. ZooKeeper: `DataTree`
and `PrepRequestProcessor`.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

from ottla.model.errors import WireError
from ottla.zookeeper import jute, znode_acls
from ottla.zookeeper.addresses import check_path
from ottla.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    MarshallingError,
    MultiError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ThrottledError,
    ZooKeeperError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Check, Create, Delete, Op, Set
from ottla.zookeeper.watches import WatchEvent, WatchType
from ottla.zookeeper.znode_acls import Identities

SYSTEM_ZNODES = ("/zookeeper", "/zookeeper/quota", "/zookeeper/config")
MAX_EPHEMERALS = 3000
"""Of one session: they are all deleted at once."""
_DIGESTED = struct.Struct(">qqqqqiiiq")
_TOTAL = (1 << 64) - 1


class Znode:
    """One znode. `creations` counts children ever created."""

    __slots__ = (
        "acl", "aversion", "children", "creations", "ctime", "czxid", "data", "digest", "mtime",
        "mzxid", "owner", "pzxid", "version",
    )  # fmt: skip

    def __init__(self, data: bytes | None, owner: int, zxid: int, now_ms: int, acl: bytes) -> None:
        self.data = data
        self.owner = owner
        self.acl = acl
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now_ms
        self.version = self.aversion = self.creations = self.digest = 0
        self.children: dict[str, None] = {}

    def stat(self) -> Stat:
        count = len(self.children)
        # ZooKeeper stores creations and shows changes: creations plus deletions.
        cversion = self.creations * 2 - count
        return Stat(
            self.czxid, self.mzxid, self.ctime, self.mtime, self.version, cversion, self.aversion,
            self.owner if jute.is_session(self.owner) else 0, len(self.data or b""), count,
            self.pzxid,
        )  # fmt: skip

    def digest_at(self, path: str) -> int:
        """Return what ZooKeeper adds to the digest of its tree for this znode."""
        if path.startswith("/zookeeper/"):
            return 0
        facts = _DIGESTED.pack(
            self.czxid, self.mzxid, self.pzxid, self.ctime, self.mtime, self.version,
            self.creations, self.aversion, self.owner,
        )  # fmt: skip
        return crc32(facts, crc32(self.data or b"", crc32(b"" if path == "/" else path.encode())))


class SetAcl(NamedTuple):
    """Not a part of a multi. `acl`: encoded, as it is kept."""

    path: str
    acl: bytes
    version: int = -1


class CreateSession(NamedTuple):
    """A session begins: a transaction that changes no znode."""

    timeout_ms: int


class CloseSession(NamedTuple):
    """A session ends, and with it its ephemeral znodes."""

    paths: list[str]


Change = Op | SetAcl | CreateSession | CloseSession


class Done(NamedTuple):
    """What one operation did: its result, and the path it touched (with a sequence number)."""

    op: Op | SetAcl
    path: str
    stat: Stat | None
    creations: int = 0
    """of the parent, after a creation"""


class Outcome(NamedTuple):
    """A transaction's results and the watch events it raises, in order.

    `acls`: of each event, what the znode's ACL was.
    """

    done: list[Done]
    events: list[WatchEvent]
    acls: list[bytes]


class Tree:
    """All znodes by path, and which are whose ephemerals."""

    def __init__(self, *, kept: bool = False) -> None:
        """`kept`: in files; then it has ZooKeeper's own znodes and a digest."""
        self.zxid = 0
        self.nodes: dict[str, Znode] = {"/": Znode(None, 0, 0, 0, jute.OPEN_ACL)}
        self.data_bytes = 1
        """The sum of all paths' and data's lengths."""
        self.ephemerals: dict[int, set[str]] = {}
        self.containers: dict[str, None] = {}
        self.digest = 0
        """The sum of all znodes' digests, 64 bits; only if the tree is kept."""
        self.before_change: Callable[[str, Znode], None] | None = None
        """Called with a znode that is about to change: a snapshot in the making keeps it."""
        self._kept = kept
        self._undo: list[tuple[str, Znode | None, tuple[object, ...]]] = []
        self._copied: set[int] = set()
        """Znodes whose children this transaction remembers."""
        self._reverts = False
        if kept:
            self.as_kept()

    def _add_system_znodes(self) -> None:
        """Add the znodes that every ZooKeeper has, where they are missing."""
        root = self.nodes["/"]
        root.data = root.data or b""
        for path in SYSTEM_ZNODES:
            if path not in self.nodes:
                config = path == SYSTEM_ZNODES[2]
                node = Znode(b"", 0, 0, 0, jute.READ_ACL if config else jute.OPEN_ACL)
                node.aversion = -1 if config else 0
                self._add(path, node)
                parent, _, name = path.rpartition("/")
                self.nodes[parent or "/"].children[name] = None

    def restore(self, path: str, node: Znode) -> None:
        """Add a znode as it was kept; its parent knows it already."""
        self._add(path, node)

    def as_kept(self) -> None:
        """Make this a tree that is kept in files."""
        self._kept = True
        self._add_system_znodes()
        self._digest_all()

    def _digest_all(self) -> None:
        for path, node in self.nodes.items():
            node.digest = node.digest_at(path)
        self.digest = sum(node.digest for node in self.nodes.values()) & _TOTAL

    def node(self, path: str) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(path=path)
        return node

    def transact(
        self,
        ops: Sequence[Op | SetAcl],
        session_id: int,
        now_ms: int,
        identities: Identities = frozenset(),
    ) -> Outcome:
        """Do all operations under the next zxid, or none and raise MultiError."""
        outcome = self._begin()
        self._reverts = len(ops) > 1
        for index, op in enumerate(ops):
            try:
                self._do(op, session_id, now_ms, outcome, identities)
            except (ZooKeeperError, WireError, struct.error) as error:
                self._roll_back()
                if not isinstance(error, ZooKeeperError):  # an ACL that is none
                    error = MarshallingError()
                raise MultiError(index, error) from None
        self._settle()
        return outcome

    def _begin(self) -> Outcome:
        self.zxid += 1
        self._undo.clear()
        self._copied.clear()
        self._reverts = False
        return Outcome([], [], [])

    def close_session(self, session_id: int) -> Outcome:
        """Delete a session's ephemerals under one zxid."""
        outcome = self._begin()
        for path in sorted(self.ephemerals.pop(session_id, ())):
            self._delete(Delete(path), outcome)
        self._settle()
        return outcome

    def delete_container(self, path: str) -> Outcome:
        """Delete a container that has no children any more, whatever its ACL."""
        outcome = self._begin()
        self._delete(Delete(path), outcome)
        self._settle()
        return outcome

    def _do(
        self, op: Op | SetAcl, session_id: int, now_ms: int, outcome: Outcome, who: Identities
    ) -> None:
        if isinstance(op, Create):
            self._create(op, session_id, now_ms, outcome, who)
        elif isinstance(op, Delete):
            self._delete(op, outcome, who)
        elif isinstance(op, Set):
            self._set(op, now_ms, outcome, who)
        elif isinstance(op, SetAcl):
            self._set_acl(op, outcome, who)
        else:
            node = self.node(op.path)
            znode_acls.check(node.acl, znode_acls.READ, who, op.path)
            _check_version(node, op)
            outcome.done.append(Done(op, op.path, None))

    def _create(
        self, op: Create, session_id: int, now_ms: int, outcome: Outcome, who: Identities
    ) -> None:
        _check_parts(op.path)
        parent_path = op.path.rpartition("/")[0] or "/"
        acl = op.acl
        if acl is not jute.OPEN_ACL:
            acl = znode_acls.fixed_up(acl, who, op.path)
            op = op._replace(acl=acl)  # the log keeps whom `auth` stands for
        parent = self.node(parent_path)
        if parent.acl is not jute.OPEN_ACL:
            znode_acls.check(parent.acl, znode_acls.CREATE, who, op.path)
        path = op.path + (f"{parent.creations:010d}" if op.sequence else "")
        check_path(path)
        if path in self.nodes:
            raise NodeExistsError(path=path)
        if op.ephemeral and len(self.ephemerals.get(session_id, ())) >= MAX_EPHEMERALS:
            raise ThrottledError(path=path)
        if jute.is_session(parent.owner):
            raise NoChildrenForEphemeralsError(path=path)
        owner = session_id if op.ephemeral else jute.CONTAINER_OWNER if op.container else 0
        self.apply_create(path, op.data, acl, owner, parent.creations + 1, now_ms)
        outcome.done.append(Done(op, path, self.nodes[path].stat(), parent.creations))
        outcome.events.append(WatchEvent(WatchType.CREATED, path))
        outcome.events.append(WatchEvent(WatchType.CHILDREN_CHANGED, parent_path))
        outcome.acls.extend((acl, parent.acl))

    def _add(self, path: str, node: Znode) -> None:
        before = self.nodes.get(path)
        if before is not None:
            self.data_bytes -= _size(path, before)
        self.nodes[path] = node
        self.data_bytes += _size(path, node)
        if jute.is_session(node.owner):
            self.ephemerals.setdefault(node.owner, set()).add(path)
        elif node.owner == jute.CONTAINER_OWNER:
            self.containers[path] = None

    def _delete(self, op: Delete, outcome: Outcome, who: Identities | None = None) -> None:
        _check_parts(op.path)
        if op.path == "/" or (self._kept and op.path in SYSTEM_ZNODES):
            raise BadArgumentsError(path=op.path)
        parent_path = op.path.rpartition("/")[0] or "/"
        if who is not None:
            parent = self.nodes.get(parent_path)
            if parent is not None:
                znode_acls.check(parent.acl, znode_acls.DELETE, who, op.path)
        node = self.node(op.path)
        _check_version(node, op)
        if node.children:
            raise NotEmptyError(path=op.path)
        self.apply_delete(op.path)
        outcome.done.append(Done(op, op.path, None))
        outcome.events.append(WatchEvent(WatchType.DELETED, op.path))
        outcome.events.append(WatchEvent(WatchType.CHILDREN_CHANGED, parent_path))
        outcome.acls.extend((node.acl, self.nodes[parent_path].acl))

    def _drop(self, path: str, node: Znode) -> None:
        del self.nodes[path]
        self.data_bytes -= _size(path, node)
        if jute.is_session(node.owner):
            owned = self.ephemerals.get(node.owner)
            if owned is not None:
                owned.discard(path)
                if not owned:
                    del self.ephemerals[node.owner]
        else:
            self.containers.pop(path, None)

    def _set(self, op: Set, now_ms: int, outcome: Outcome, who: Identities) -> None:
        check_path(op.path)
        node = self.node(op.path)
        znode_acls.check(node.acl, znode_acls.WRITE, who, op.path)
        _check_version(node, op)
        self.apply_set(op.path, op.data, node.version + 1, now_ms)
        outcome.done.append(Done(op, op.path, node.stat()))
        outcome.events.append(WatchEvent(WatchType.DATA_CHANGED, op.path))
        outcome.acls.append(node.acl)

    def _set_acl(self, op: SetAcl, outcome: Outcome, who: Identities) -> None:
        acl = znode_acls.fixed_up(op.acl, who, op.path)
        node = self.node(op.path)
        znode_acls.check(node.acl, znode_acls.ADMIN, who, op.path)
        if op.version not in (-1, node.aversion):
            raise BadVersionError(path=op.path)
        self.apply_acl(op.path, acl, node.aversion + 1)
        outcome.done.append(Done(op._replace(acl=acl), op.path, node.stat()))

    # --- changes, of a transaction that was checked or of the past -----------------------------

    def replay_begin(self, zxid: int) -> None:
        self._undo.clear()
        self._reverts = False
        self.zxid = zxid

    def apply_create(
        self, path: str, data: bytes | None, acl: bytes, owner: int, creations: int, now_ms: int
    ) -> None:
        """Create a znode. One of the past may be there, from a later snapshot.

        `creations`: the parent's afterwards, -1 where the transaction does not have it.
        """
        parent_path, _, name = path.rpartition("/")
        parent = self.node(parent_path or "/")
        self._remember(parent_path or "/")
        if creations == -1:
            creations = parent.creations + 1
        if creations > parent.creations:
            parent.creations = creations
            parent.pzxid = self.zxid
        there = self.nodes.get(path)
        self._remember(path)
        if there is not None:
            there.acl = acl
        else:
            parent.children[name] = None
            self._add(path, Znode(data, owner, self.zxid, now_ms, acl))

    def apply_delete(self, path: str) -> None:
        parent_path, _, name = path.rpartition("/")
        parent = self.nodes.get(parent_path or "/")
        if parent is not None:
            self._remember(parent_path or "/", children=True)
            parent.children.pop(name, None)
            parent.pzxid = max(parent.pzxid, self.zxid)
        node = self.nodes.get(path)
        if node is not None:
            self._remember(path)
            self._drop(path, node)

    def apply_set(self, path: str, data: bytes | None, version: int, now_ms: int) -> None:
        node = self.nodes.get(path)
        if node is not None:
            self._remember(path)
            self.data_bytes += len(data or b"") - len(node.data or b"")
            node.data, node.version = data, version
            node.mzxid, node.mtime = self.zxid, now_ms

    def apply_acl(self, path: str, acl: bytes, version: int) -> None:
        node = self.nodes.get(path)
        if node is not None:
            self._remember(path)
            node.acl, node.aversion = acl, version

    def replay_end(self) -> None:
        self._settle()

    # --- rolling back -----------------------------------------------------------------------

    def _remember(self, path: str, *, children: bool = False) -> None:
        """Note a znode before it changes; `children`: one is deleted, and their order matters."""
        node = self.nodes.get(path)
        state: tuple[object, ...] = ()
        if node is not None:
            if self.before_change is not None:
                self.before_change(path, node)
            if self._reverts:
                children = children and id(node) not in self._copied
                if children:
                    self._copied.add(id(node))
                state = (
                    node.data, node.version, node.mzxid, node.mtime, node.pzxid, node.creations,
                    dict(node.children) if children else None,
                )  # fmt: skip
        self._undo.append((path, node, state))

    def _settle(self) -> None:
        """Bring the digest up to date with the znodes that changed."""
        if not self._kept:
            return
        gone: dict[str, int] = {}
        for path, node, _ in self._undo:
            gone.setdefault(path, 0 if node is None else node.digest)
        total = self.digest
        for path, old in gone.items():
            node = self.nodes.get(path)
            if node is not None:
                node.digest = node.digest_at(path)
                total += node.digest
            total -= old
        self.digest = total & _TOTAL

    def _roll_back(self) -> None:
        for path, node, state in reversed(self._undo):
            now = self.nodes.get(path)
            if now is not None and now is not node:
                self._drop(path, now)
                parent_path, _, name = path.rpartition("/")
                self.nodes[parent_path or "/"].children.pop(name, None)
            if node is None or not state:
                continue
            was = len(node.data or b"")
            (
                node.data, node.version, node.mzxid, node.mtime, node.pzxid, node.creations,
                children,
            ) = state  # type: ignore[assignment] # fmt: skip
            if isinstance(children, dict):
                node.children = children
            if now is not node:
                self._add(path, node)
            else:
                self.data_bytes += len(node.data or b"") - was
        self._undo.clear()


def _size(path: str, node: Znode) -> int:
    return len(path) + len(node.data or b"")


def _check_parts(path: str) -> None:
    """Raise BadArgumentsError where no parent can be named; ZooKeeper looks for that first."""
    if not path.startswith("/") or "\0" in path:
        raise BadArgumentsError(path=path)


def _check_version(node: Znode, op: Set | Delete | Check) -> None:
    if op.version not in (-1, node.version):
        raise BadVersionError(path=op.path)
