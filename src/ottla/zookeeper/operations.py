"""The operations of a multi, and how their results come back; many reads as one request.

Invariants: a multi is all or nothing; the first failing operation is named, the others only say
"not done". Of a multiRead each read has a result of its own. ZooKeeper: `Op` and `OpResult`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.model.errors import WireError
from ottla.zookeeper import jute
from ottla.zookeeper.errors import MultiError, RuntimeInconsistencyError, ZooKeeperError, by_code


class Create(NamedTuple):
    """Result: the path created. `acl`: a vector of entries, encoded."""

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequence: bool = False
    acl: bytes = jute.OPEN_ACL
    container: bool = False


class Set(NamedTuple):
    """Result: the new Stat."""

    path: str
    data: bytes | None
    version: int = -1


class Delete(NamedTuple):
    path: str
    version: int = -1


class Check(NamedTuple):
    """Fails with BadVersionError unless the znode has this version."""

    path: str
    version: int


Op = Create | Set | Delete | Check


def encode_multi(
    ops: Sequence[Op],
    full: Callable[..., str],
    acl_of: Callable[[str], bytes] = lambda _: jute.OPEN_ACL,
) -> bytes:
    """Return the body of a multi request; `full` puts the chroot before a path.

    `acl_of`: what a path is created with.
    """
    parts = []
    for op in ops:
        if isinstance(op, Create):
            flags = (jute.EPHEMERAL if op.ephemeral else 0) | (jute.SEQUENCE if op.sequence else 0)
            kind = jute.CREATE
            path = full(op.path, sequence=op.sequence)
            body = jute.create_body(path, op.data, flags, acl_of(op.path))
        elif isinstance(op, Set):
            kind, body = jute.SET_DATA, jute.set_data_body(full(op.path), op.data, op.version)
        elif isinstance(op, Delete):
            kind, body = jute.DELETE, jute.delete_body(full(op.path), op.version)
        else:
            kind, body = jute.CHECK, jute.delete_body(full(op.path), op.version)
        parts.append(jute.MULTI_HEADER.pack(kind, False, -1))
        parts.append(body)
    parts.append(jute.MULTI_END)
    return b"".join(parts)


def encode_multi_read(paths: Sequence[str], full: Callable[[str], str]) -> bytes:
    """Return the body of a multiRead (ZooKeeper 3.6) that gets the data of znodes."""
    head = jute.MULTI_HEADER.pack(jute.GET_DATA, False, -1)
    parts = [head + jute.path_watch_body(full(path), watch=False) for path in paths]
    return b"".join(parts) + jute.MULTI_END


def read_multi_read(
    paths: Sequence[str], buf: bytes, pos: int
) -> list[tuple[bytes, jute.Stat] | ZooKeeperError]:
    """Return data (b"" where it is null) and stat of each path, or its error."""
    results: list[tuple[bytes, jute.Stat] | ZooKeeperError] = []
    header, size_at = jute.MULTI_HEADER, jute.INT
    for path in paths:
        kind, done, _err = header.unpack_from(buf, pos)
        pos += header.size
        (number,) = size_at.unpack_from(buf, pos)
        pos += size_at.size
        if done:
            raise WireError("a multiRead has fewer results than reads")
        if kind == jute.GET_DATA:
            stop = pos + number if number > 0 else pos
            results.append((buf[pos:stop], jute.read_stat(buf, stop)))
            pos = stop + jute.STAT.size
        elif kind == jute.ERROR:
            results.append(by_code(number, path))
        else:
            raise WireError(f"a multiRead has a result of kind {kind}")
    if not header.unpack_from(buf, pos)[1]:
        raise WireError("a multiRead has more results than reads")
    return results


def read_multi(ops: Sequence[Op], buf: bytes, chroot_length: int) -> list[Any]:
    """Return each operation's result; raise MultiError if one failed."""
    results: list[Any] = []
    failed: tuple[int, ZooKeeperError] | None = None
    pos = 0
    while True:
        kind, done, _err = jute.MULTI_HEADER.unpack_from(buf, pos)
        pos += jute.MULTI_HEADER.size
        if done:
            break
        if len(results) >= len(ops):
            raise WireError("a multi has more results than operations")
        result: Any = None
        if kind == jute.CREATE:
            path, pos = jute.read_string(buf, pos)
            result = path[chroot_length:]
        elif kind == jute.SET_DATA:
            result, pos = jute.read_stat(buf, pos), pos + jute.STAT.size
        elif kind == jute.ERROR:
            (code,) = jute.INT.unpack_from(buf, pos)
            pos += 4
            if code and failed is None and code != RuntimeInconsistencyError.zk_code:
                index = len(results)
                failed = index, by_code(code, ops[index].path)
        results.append(result)
    if failed is not None:
        raise MultiError(*failed)
    if len(results) != len(ops):
        raise WireError(f"a multi of {len(ops)} operations has {len(results)} results")
    return results
