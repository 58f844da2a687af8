"""ACLs in ZooKeeper: read, changed by compare-and-set, and the notifications of changes.

Invariants: the ACLs of one pattern are one znode, written only at the version that was read; a
change is notified after it was written; what cannot be read raises: an ACL that is passed over
might be one that denies. Kafka: the ACL part of `KafkaZkClient`, `ZkAclStore` and
`ZkAclChangeStore`.
"""

from collections.abc import Iterable, Sequence
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
from ottla.zookeeper.access import UNKNOWN_VERSION
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
from ottla.zookeeper.operations import Delete
from ottla.zookeeper.topics import Topics
from ottla.zookeeper.watches import WatchCallback

CHANGES = (ACL_CHANGES, ACL_EXTENDED_CHANGES)
"""Where changes are notified: of literal patterns, of prefixed ones."""
_ROOTS = {LITERAL: ACL, PREFIXED: f"{ACL_EXTENDED}/prefixed"}


class VersionedAcls(NamedTuple):
    """The ACLs of one pattern and the version of their znode, UNKNOWN_VERSION for none."""

    entries: frozenset[Entry]
    version: int


class AclChange(NamedTuple):
    """A notification: its name, the pattern that changed, when it was made (ms)."""

    name: str
    pattern: Pattern | None
    ctime_ms: int


class AclStore(Topics):
    """See the module."""

    async def create_acl_paths(self) -> None:
        """Create what every authorizer expects to be there."""
        for root in _ROOTS.values():
            for kind in ACL_TYPES:
                await self.create_recursive(f"{root}/{kind}", None, fail_if_exists=False)
        for path in CHANGES:
            await self.create_recursive(path, None, fail_if_exists=False)

    async def get_all_acls(self) -> dict[Pattern, frozenset[Entry]]:
        """Return all ACLs; MalformedZnodeError for a znode that cannot be read."""
        patterns = []
        for pattern_type, root in _ROOTS.items():
            for kind in await self.get_children(root):
                resource_type = named(RESOURCE_TYPES, kind)
                if resource_type == UNKNOWN:
                    self.ignore(MalformedZnodeError(f"{root}/{kind}", "no such resource type"))
                    continue
                names = await self.get_children(f"{root}/{kind}")
                patterns += [Pattern(resource_type, name, pattern_type) for name in names]
        paths = [_path(pattern) for pattern in patterns]
        found = {}
        for pattern, path, reply in zip(patterns, paths, await self.get_many(paths), strict=True):
            if reply is not None:
                found[pattern] = _entries(path, reply[0])
        return found

    async def get_acls(self, pattern: Pattern) -> VersionedAcls:
        """Return the ACLs of a pattern; MalformedZnodeError."""
        path = _path(pattern)
        data, version = await self.get_data_and_version(path)
        return VersionedAcls(frozenset() if data is None else _entries(path, data), version)

    async def set_acls(
        self, pattern: Pattern, entries: Iterable[Entry], expected_version: int
    ) -> bool:
        """Replace the ACLs of a pattern if their znode has this version; False if it has not.

        None left: the znode is deleted. UNKNOWN_VERSION: there must be none yet.
        """
        path = _path(pattern)
        words = [_words(entry) for entry in sorted(entries)]
        if not words:
            return await self._delete(path, expected_version)
        data = acl_znodes.encode_acls(words)
        if expected_version == UNKNOWN_VERSION:
            return await self.create_recursive(path, data, fail_if_exists=False)
        done, _ = await self.conditional_update(path, data, expected_version)
        return done

    async def _delete(self, path: str, expected_version: int) -> bool:
        if expected_version == UNKNOWN_VERSION:
            return True
        try:
            await self.write(Delete(path, expected_version))
        except BadVersionError:
            return False
        except NoNodeError:
            return True
        return True

    async def create_acl_change_notification(self, pattern: Pattern) -> None:
        """Tell every broker that the ACLs of a pattern changed."""
        kind = change_name(pattern.resource_type)
        if pattern.pattern_type == LITERAL:
            parent, data = ACL_CHANGES, acl_znodes.encode_acl_change(kind, pattern.name)
        else:
            parent = ACL_EXTENDED_CHANGES
            pattern_type = PATTERN_TYPES[pattern.pattern_type]
            data = acl_znodes.encode_extended_acl_change(kind, pattern.name, pattern_type)
        await self.create_sequential(f"{parent}/{ACL_CHANGE_PREFIX}", data)

    async def get_acl_change_names(self, parent: str, watch: WatchCallback) -> list[str]:
        """Return the notifications of one of `CHANGES` in order, and watch for further ones."""
        return await self.get_children(parent, watch)

    async def get_acl_changes(self, parent: str, names: Sequence[str]) -> list[AclChange]:
        """Return those of these notifications that still exist."""
        replies = await self.get_many([f"{parent}/{name}" for name in names])
        found = []
        for name, reply in zip(names, replies, strict=True):
            if reply is not None:
                try:
                    pattern = _changed(parent, name, reply[0])
                except MalformedZnodeError as error:
                    self.ignore(error)
                    pattern = None
                found.append(AclChange(name, pattern, reply[1].ctime))
        return found

    async def delete_acl_changes(self, parent: str, names: Sequence[str]) -> None:
        await self.delete_paths([f"{parent}/{name}" for name in names])


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


def _changed(parent: str, name: str, data: bytes) -> Pattern:
    """Return the pattern that a notification names; MalformedZnodeError."""
    pattern_type = LITERAL
    if parent == ACL_CHANGES:
        kind, resource = acl_znodes.decode_acl_change(name, data)
    else:
        kind, resource, word = acl_znodes.decode_extended_acl_change(name, data)
        pattern_type = named(PATTERN_TYPES, word)
    resource_type = named(RESOURCE_TYPES, kind)
    if UNKNOWN in (resource_type, pattern_type):
        raise MalformedZnodeError(f"{parent}/{name}", "no such resource or pattern type")
    return Pattern(resource_type, resource, pattern_type)
