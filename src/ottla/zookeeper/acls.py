"""ACLs in ZooKeeper: read, changed by compare-and-set, and the notifications of changes.

Invariants: the ACLs of one pattern are one znode, written only at the version that was read; a
change is notified after it was written; what cannot be read raises: an ACL that is passed over
might be one that denies. Kafka: the ACL part of `KafkaZkClient`, `ZkAclStore` and
`ZkAclChangeStore`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.security.acls import (
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    UNKNOWN,
    Entry,
    Pattern,
    change_name,
    named,
)
from ottla.zookeeper import acl_znodes
from ottla.zookeeper.access import UNKNOWN_VERSION, Access, Part
from ottla.zookeeper.acl_znodes import (
    ACL,
    ACL_CHANGE_PREFIX,
    ACL_CHANGES,
    ACL_EXTENDED,
    ACL_EXTENDED_CHANGES,
    ACL_TYPES,
    AclEntry,
    acl_path,
)
from ottla.zookeeper.errors import BadVersionError, MalformedZnodeError, NoNodeError
from ottla.zookeeper.notifications import Notifications
from ottla.zookeeper.operations import Delete

_ROOTS = {LITERAL: ACL, PREFIXED: f"{ACL_EXTENDED}/prefixed"}


class VersionedAcls(NamedTuple):
    """The ACLs of one pattern and the version of their znode, UNKNOWN_VERSION for none."""

    entries: frozenset[Entry]
    version: int


class Acls(Part):
    """The ACLs of this cluster, by pattern."""

    def __init__(self, zk: Access) -> None:
        super().__init__(zk)
        self.changes = (
            Notifications(zk, ACL_CHANGES, ACL_CHANGE_PREFIX, _encode_literal, _decode_literal),
            Notifications(zk, ACL_EXTENDED_CHANGES, ACL_CHANGE_PREFIX, _encode, _decode),
        )
        """Of literal patterns, and of prefixed ones; each names a pattern whose ACLs changed."""

    async def create_paths(self) -> None:
        """Create what every authorizer expects to be there."""
        for root in _ROOTS.values():
            for kind in ACL_TYPES:
                await self._zk.create_recursive(f"{root}/{kind}", None, fail_if_exists=False)
        for changes in self.changes:
            await self._zk.create_recursive(changes.parent, None, fail_if_exists=False)

    async def get_all(self) -> dict[Pattern, frozenset[Entry]]:
        """Return all ACLs; MalformedZnodeError for a znode that cannot be read."""
        patterns = []
        for pattern_type, root in _ROOTS.items():
            for kind in await self._zk.get_children(root):
                resource_type = named(RESOURCE_TYPES, kind)
                if resource_type == UNKNOWN:
                    self._zk.ignore(MalformedZnodeError(f"{root}/{kind}", "no such resource type"))
                    continue
                names = await self._zk.get_children(f"{root}/{kind}")
                patterns += [Pattern(resource_type, name, pattern_type) for name in names]
        paths = [_path(pattern) for pattern in patterns]
        found = {}
        replies = await self._zk.get_many(paths)
        for pattern, path, reply in zip(patterns, paths, replies, strict=True):
            if reply is not None:
                found[pattern] = _entries(path, reply[0])
        return found

    async def get(self, pattern: Pattern) -> VersionedAcls:
        """Return the ACLs of a pattern; MalformedZnodeError."""
        path = _path(pattern)
        data, version = await self._zk.get_data_and_version(path)
        return VersionedAcls(frozenset() if data is None else _entries(path, data), version)

    async def set(self, pattern: Pattern, entries: Iterable[Entry], expected_version: int) -> bool:
        """Replace the ACLs of a pattern if their znode has this version; False if it has not.

        None left: the znode is deleted. UNKNOWN_VERSION: there must be none yet.
        """
        path = _path(pattern)
        words = [_words(entry) for entry in sorted(entries)]
        if not words:
            return await self._delete(path, expected_version)
        data = acl_znodes.encode_acls(words)
        if expected_version == UNKNOWN_VERSION:
            return await self._zk.create_recursive(path, data, fail_if_exists=False)
        done, _ = await self._zk.conditional_update(path, data, expected_version)
        return done

    async def _delete(self, path: str, expected_version: int) -> bool:
        if expected_version == UNKNOWN_VERSION:
            return True
        try:
            await self._zk.write(Delete(path, expected_version))
        except BadVersionError:
            return False
        except NoNodeError:
            return True
        return True

    async def notify(self, pattern: Pattern) -> None:
        """Tell every broker that the ACLs of a pattern changed."""
        of_literals, of_prefixed = self.changes
        await (of_literals if pattern.pattern_type == LITERAL else of_prefixed).notify(pattern)


def _path(pattern: Pattern) -> str:
    kind = RESOURCE_TYPES[pattern.resource_type]
    return acl_path(kind, pattern.name, prefixed=pattern.pattern_type == PREFIXED)


def _entries(path: str, data: bytes) -> frozenset[Entry]:
    return frozenset(
        Entry(
            e.principal,
            e.host,
            named(OPERATIONS, e.operation),
            named(PERMISSIONS, e.permission_type),
        )
        for e in acl_znodes.decode_acls(path, data)
    )


def _words(entry: Entry) -> AclEntry:
    permission = PERMISSIONS.get(entry.permission, "Unknown")
    operation = OPERATIONS.get(entry.operation, "Unknown")
    return AclEntry(entry.principal, permission, operation, entry.host)


def _encode_literal(pattern: Pattern) -> bytes:
    return acl_znodes.encode_acl_change(change_name(pattern.resource_type), pattern.name)


def _decode_literal(name: str, data: bytes) -> Pattern:
    kind, resource = acl_znodes.decode_acl_change(name, data)
    return _known(f"{ACL_CHANGES}/{name}", kind, resource, LITERAL)


def _encode(pattern: Pattern) -> bytes:
    return acl_znodes.encode_extended_acl_change(
        change_name(pattern.resource_type), pattern.name, PATTERN_TYPES[pattern.pattern_type]
    )


def _decode(name: str, data: bytes) -> Pattern:
    kind, resource, word = acl_znodes.decode_extended_acl_change(name, data)
    return _known(f"{ACL_EXTENDED_CHANGES}/{name}", kind, resource, named(PATTERN_TYPES, word))


def _known(path: str, kind: str, resource: str, pattern_type: int) -> Pattern:
    """Return the pattern that a notification names; MalformedZnodeError."""
    resource_type = named(RESOURCE_TYPES, kind)
    if UNKNOWN in (resource_type, pattern_type):
        raise MalformedZnodeError(path, "no such resource or pattern type")
    return Pattern(resource_type, resource, pattern_type)
