"""ZooKeeper's snapshots, `version-2/snapshot.<zxid>`: sessions, ACLs and all znodes at one zxid.

Invariants: a snapshot of ours is exactly the tree at its zxid, though it is written in slices while
the tree goes on changing: a znode's state is kept before its first change. It appears under its
name only once it is durable. A snapshot of ZooKeeper may hold later changes, too; its log repeats
them. ZooKeeper: `FileSnap`, `SerializeUtils`, `DataTree.serialize`.
"""

import struct
from collections.abc import Iterator
from zlib import adler32

from ottla.model.errors import WireError
from ottla.zookeeper import jute, transactions
from ottla.zookeeper.memory_tree import Tree, Znode
from ottla.zookeeper.txn_log import FILE_HEADER, FORMAT, SNAPSHOT_MAGIC, DamagedFileError

PREFIX = "snapshot"
SLICE_ZNODES = 250
_SESSION = struct.Struct(">qi")
_PERSISTED = struct.Struct(">qqqqqiiiqq")
_DIGEST = struct.Struct(">qiq")
_SEAL = jute.string("/")


def name_of(zxid: int) -> str:
    return f"{PREFIX}.{zxid:x}"


def _encoded(path: str, node: Znode, acl_id: int) -> bytes:
    return (
        jute.string("" if path == "/" else path)
        + jute.buffer(node.data)
        + _PERSISTED.pack(
            acl_id, node.czxid, node.mzxid, node.ctime, node.mtime, node.version,
            node.creations, node.aversion, node.owner, node.pzxid,
        )
    )  # fmt: skip


class Snapshot:
    """A tree as it is at this moment, as bytes, slice by slice; `slices` is to be used up."""

    def __init__(self, tree: Tree, sessions: dict[int, int]) -> None:
        self.zxid = tree.zxid
        self._tree = tree
        self._sessions = dict(sessions)
        self._digest = tree.digest
        self._left = dict.fromkeys(tree.nodes)
        acls = dict.fromkeys(node.acl for node in tree.nodes.values())
        self._acls = {acl: number for number, acl in enumerate(acls, 1)}
        self._before: dict[str, bytes] = {}
        tree.before_change = self._keep

    def _keep(self, path: str, node: Znode) -> None:
        if path in self._left and path not in self._before:
            self._before[path] = _encoded(path, node, self._acls[node.acl])

    def slices(self) -> Iterator[bytes]:
        """Yield the file's bytes; the tree may change between two of them."""
        checksum = 1
        for part in self._parts():
            checksum = adler32(part, checksum)
            yield part
        self._tree.before_change = None
        digest = self._digest - (1 << 64) if self._digest >> 63 else self._digest
        tail = b""
        # The znodes, the digest and the zxid are sealed one after the other.
        for more in (
            b"",
            _DIGEST.pack(self.zxid, transactions.DIGEST_VERSION, digest),
            jute.LONG.pack(self.zxid),
        ):
            checksum = adler32(more, checksum)
            seal = jute.LONG.pack(checksum) + _SEAL
            checksum = adler32(seal, checksum)
            tail += more + seal
        yield tail

    def _parts(self) -> Iterator[bytes]:
        head = [FILE_HEADER.pack(SNAPSHOT_MAGIC, FORMAT, -1), jute.INT.pack(len(self._sessions))]
        head += [_SESSION.pack(*session) for session in self._sessions.items()]
        head.append(jute.INT.pack(len(self._acls)))
        head += [jute.LONG.pack(number) + acl for acl, number in self._acls.items()]
        yield b"".join(head)
        paths = list(self._left)
        for first in range(0, len(paths), SLICE_ZNODES):
            parts = []
            for path in paths[first : first + SLICE_ZNODES]:
                del self._left[path]
                kept = self._before.pop(path, None)
                if kept is None:
                    node = self._tree.nodes[path]
                    kept = _encoded(path, node, self._acls[node.acl])
                parts.append(kept)
            yield b"".join(parts)
        yield _SEAL


def read(data: bytes, zxid: int, path: str) -> tuple[Tree, dict[int, int], int]:
    """Return the tree, the sessions' timeouts, and until which zxid changes may be in it.

    DamagedFileError for what is not whole.
    """
    try:
        return _read(memoryview(data), zxid)
    except (WireError, struct.error, KeyError) as error:
        raise DamagedFileError(f"{path}: not a whole snapshot ({error})") from None


def _read(data: memoryview, zxid: int) -> tuple[Tree, dict[int, int], int]:
    magic, _, _ = FILE_HEADER.unpack_from(data, 0)
    if magic != SNAPSHOT_MAGIC:
        raise WireError(f"it begins with {magic!r}")
    sessions: dict[int, int] = {}
    (count,) = jute.INT.unpack_from(data, FILE_HEADER.size)
    pos = FILE_HEADER.size + 4
    for _ in range(count):
        session, timeout_ms = _SESSION.unpack_from(data, pos)
        sessions[session] = timeout_ms
        pos += _SESSION.size
    (count,) = jute.INT.unpack_from(data, pos)
    pos += 4
    acls = {-1: jute.OPEN_ACL}
    for _ in range(count):
        (number,) = jute.LONG.unpack_from(data, pos)
        acls[number], pos = jute.read_acl(data, pos + 8)
    tree = Tree()
    tree.nodes.clear()
    pos = _read_znodes(data, pos, tree, acls)
    pos = _check_seal(data, pos)
    tree.zxid = zxid
    tree.as_kept()
    if len(data) < pos + _DIGEST.size:
        return tree, sessions, zxid  # of ZooKeeper before 3.6
    digest_zxid, version, digest = _DIGEST.unpack_from(data, pos)
    if version == transactions.DIGEST_VERSION:
        _check_seal(data, pos + _DIGEST.size)
        if digest_zxid == zxid > 0 and digest & ((1 << 64) - 1) != tree.digest:
            raise WireError("its digest is not that of its znodes")
    return tree, sessions, max(zxid, digest_zxid)


def _read_znodes(data: memoryview, pos: int, tree: Tree, acls: dict[int, bytes]) -> int:
    while True:
        path, pos = jute.read_string(data, pos)
        if path == "/":
            return pos
        content, pos = jute.read_buffer(data, pos)
        acl, czxid, mzxid, ctime, mtime, version, creations, aversion, owner, pzxid = (
            _PERSISTED.unpack_from(data, pos)
        )
        pos += _PERSISTED.size
        node = Znode(content, owner, czxid, ctime, acls[acl])
        node.mzxid, node.pzxid, node.mtime = mzxid, pzxid, mtime
        node.version, node.creations, node.aversion = version, creations, aversion
        if path:
            parent, _, name = path.rpartition("/")
            tree.nodes[parent or "/"].children[name] = None
        tree.restore(path or "/", node)


def _check_seal(data: memoryview, pos: int) -> int:
    """Check the checksum over all before `pos`; return the position after the seal."""
    (expected,) = jute.LONG.unpack_from(data, pos)
    if adler32(data[:pos]) != expected:
        raise WireError(f"the checksum at {pos} does not match")
    return pos + jute.LONG.size + len(_SEAL)
