"""The tree of the in-memory ZooKeeper: znodes, versions and zxids, changed by transactions.

Who may call: `memory`. Invariants: plain values, no clock, no wire; a transaction that fails
leaves nothing but its zxid (as in ZooKeeper, where the failure is a transaction too); a number
given to a sequence znode is the count of its parent's creations. ZooKeeper: `DataTree` and
`PrepRequestProcessor`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.zookeeper import jute
from ottla.zookeeper.addresses import check_path
from ottla.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    MultiError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZooKeeperError,
)
from ottla.zookeeper.jute import Stat
from ottla.zookeeper.operations import Check, Create, Delete, Op, Set
from ottla.zookeeper.watches import WatchEvent, WatchType


class Znode:
    """One znode. `creations` counts children ever created."""

    __slots__ = (
        "acl", "aversion", "children", "creations", "ctime", "czxid", "data", "mtime", "mzxid",
        "owner", "pzxid", "version",
    )  # fmt: skip

    def __init__(self, data: bytes | None, owner: int, zxid: int, now_ms: int, acl: bytes) -> None:
        self.data = data
        self.owner = owner
        self.acl = acl
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now_ms
        self.version = self.aversion = self.creations = 0
        self.children: dict[str, None] = {}

    def stat(self) -> Stat:
        count = len(self.children)
        # ZooKeeper stores creations and shows changes: creations plus deletions.
        cversion = self.creations * 2 - count
        return Stat(
            self.czxid, self.mzxid, self.ctime, self.mtime, self.version, cversion, self.aversion,
            self.owner, len(self.data or b""), count, self.pzxid,
        )  # fmt: skip


class Done(NamedTuple):
    """What one operation did: its result, and the path it touched (with a sequence number)."""

    op: Op
    path: str
    stat: Stat | None


class Outcome(NamedTuple):
    """A transaction's results and the watch events it raises, in order."""

    done: list[Done]
    events: list[WatchEvent]


class Tree:
    """All znodes by path, and which are whose ephemerals."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {"/": Znode(None, 0, 0, 0, jute.OPEN_ACL)}
        self.ephemerals: dict[int, set[str]] = {}
        self._undo: list[tuple[str, Znode | None, tuple[object, ...]]] = []

    def node(self, path: str) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(path=path)
        return node

    def transact(self, ops: Sequence[Op], session_id: int, now_ms: int) -> Outcome:
        """Do all operations under the next zxid, or none and raise MultiError."""
        self.zxid += 1
        self._undo.clear()
        outcome = Outcome([], [])
        for index, op in enumerate(ops):
            try:
                self._do(op, session_id, now_ms, outcome)
            except ZooKeeperError as error:
                self._roll_back()
                raise MultiError(index, error) from None
        return outcome

    def close_session(self, session_id: int) -> list[WatchEvent]:
        """Delete a session's ephemerals under one zxid; return the watch events."""
        self.zxid += 1
        self._undo.clear()
        outcome = Outcome([], [])
        for path in sorted(self.ephemerals.pop(session_id, ())):
            self._delete(Delete(path), outcome)
        return outcome.events

    def _do(self, op: Op, session_id: int, now_ms: int, outcome: Outcome) -> None:
        if isinstance(op, Create):
            self._create(op, session_id, now_ms, outcome)
        elif isinstance(op, Delete):
            self._delete(op, outcome)
        elif isinstance(op, Set):
            self._set(op, now_ms, outcome)
        else:
            node = self.node(op.path)
            _check_version(node, op)
            outcome.done.append(Done(op, op.path, None))

    def _create(self, op: Create, session_id: int, now_ms: int, outcome: Outcome) -> None:
        check_path(op.path + "0" if op.sequence else op.path)
        parent_path, _, name = op.path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self.node(parent_path)
        path = op.path
        if op.sequence:
            path += f"{parent.creations:010d}"
            name += f"{parent.creations:010d}"
        if path in self.nodes:
            raise NodeExistsError(path=path)
        if parent.owner:
            raise NoChildrenForEphemeralsError(path=path)
        self._remember(parent_path)
        self._remember(path)
        node = Znode(op.data, session_id if op.ephemeral else 0, self.zxid, now_ms, jute.OPEN_ACL)
        self.nodes[path] = node
        parent.children[name] = None
        parent.creations += 1
        parent.pzxid = self.zxid
        if op.ephemeral:
            self.ephemerals.setdefault(session_id, set()).add(path)
        outcome.done.append(Done(op, path, node.stat()))
        outcome.events.append(WatchEvent(WatchType.CREATED, path))
        outcome.events.append(WatchEvent(WatchType.CHILDREN_CHANGED, parent_path))

    def _delete(self, op: Delete, outcome: Outcome) -> None:
        check_path(op.path)
        if op.path == "/":
            raise BadArgumentsError(path=op.path)
        node = self.node(op.path)
        _check_version(node, op)
        if node.children:
            raise NotEmptyError(path=op.path)
        parent_path, _, name = op.path.rpartition("/")
        parent_path = parent_path or "/"
        self._remember(parent_path)
        self._remember(op.path)
        parent = self.nodes[parent_path]
        del self.nodes[op.path]
        del parent.children[name]
        parent.pzxid = self.zxid
        if node.owner:
            self.ephemerals.get(node.owner, set()).discard(op.path)
        outcome.done.append(Done(op, op.path, None))
        outcome.events.append(WatchEvent(WatchType.DELETED, op.path))
        outcome.events.append(WatchEvent(WatchType.CHILDREN_CHANGED, parent_path))

    def _set(self, op: Set, now_ms: int, outcome: Outcome) -> None:
        check_path(op.path)
        node = self.node(op.path)
        _check_version(node, op)
        self._remember(op.path)
        node.data = op.data
        node.version += 1
        node.mzxid = self.zxid
        node.mtime = now_ms
        outcome.done.append(Done(op, op.path, node.stat()))
        outcome.events.append(WatchEvent(WatchType.DATA_CHANGED, op.path))

    def set_acl(self, path: str, acl: bytes, version: int) -> Stat:
        self.zxid += 1
        node = self.node(path)
        if version not in (-1, node.aversion):
            raise BadVersionError(path=path)
        node.acl = acl
        node.aversion += 1
        return node.stat()

    # --- rolling back -----------------------------------------------------------------------

    def _remember(self, path: str) -> None:
        node = self.nodes.get(path)
        state: tuple[object, ...] = ()
        if node is not None:
            state = (
                node.data, node.version, node.mzxid, node.mtime, node.pzxid, node.creations,
                dict(node.children),
            )  # fmt: skip
        self._undo.append((path, node, state))

    def _roll_back(self) -> None:
        for path, node, state in reversed(self._undo):
            now = self.nodes.get(path)
            if now is not None and now.owner:
                self.ephemerals.get(now.owner, set()).discard(path)
            if node is None:
                self.nodes.pop(path, None)
                continue
            (
                node.data, node.version, node.mzxid, node.mtime, node.pzxid, node.creations,
                node.children,
            ) = state  # type: ignore[assignment] # fmt: skip
            self.nodes[path] = node
            if node.owner:
                self.ephemerals.setdefault(node.owner, set()).add(path)
        self._undo.clear()


def _check_version(node: Znode, op: Set | Delete | Check) -> None:
    if op.version not in (-1, node.version):
        raise BadVersionError(path=op.path)
