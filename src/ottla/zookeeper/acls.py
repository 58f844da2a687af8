"""ACLs in ZooKeeper: read, changed by compare-and-set, and the notifications of changes.

Invariants: znodes are as the JVM writes them; the ACLs of one pattern are one znode, written only
at the version that was read; a change is notified after it was written; what cannot be read raises:
an ACL that is passed over might be one that denies. Kafka: the ACL part of `KafkaZkClient`,
`AclEntry`, `ZkAclStore` and `ZkAclChangeStore`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

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
from ottla.zookeeper.access import UNKNOWN_VERSION, Access, Part
from ottla.zookeeper.errors import BadVersionError, MalformedZnodeError, NoNodeError
from ottla.zookeeper.notifications import Notifications
from ottla.zookeeper.operations import Delete
from ottla.zookeeper.znodes import Int32, decode_json

ACL = "/kafka-acl"
ACL_EXTENDED = "/kafka-acl-extended"
ACL_CHANGES = "/kafka-acl-changes"
ACL_EXTENDED_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX = "acl_changes_"
ACL_TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
_ROOTS = {LITERAL: ACL, PREFIXED: f"{ACL_EXTENDED}/prefixed"}


def acl_path(resource_type: str, name: str, *, prefixed: bool = False) -> str:
    root = f"{ACL_EXTENDED}/prefixed" if prefixed else ACL
    return f"{root}/{resource_type}/{name}"


class AclEntry(NamedTuple):
    """One rule, in the words of the znode: `User:a`, `Allow`, `Read`, `*`."""

    principal: str
    permission_type: str
    operation: str
    host: str


class _Acl(msgspec.Struct, rename="camel"):
    principal: str
    permission_type: str
    operation: str
    host: str


class _Acls(msgspec.Struct):
    version: Int32
    acls: list[_Acl]


class _AclChange(msgspec.Struct, rename="camel"):
    version: Int32
    resource_type: str
    name: str
    pattern_type: str


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    listed = [
        {
            "principal": e.principal,
            "permissionType": e.permission_type,
            "host": e.host,
            "operation": e.operation,
        }
        for e in entries
    ]
    return msgspec.json.encode({"acls": listed, "version": 1})


def decode_acls(path: str, data: bytes) -> list[AclEntry]:
    if not data:
        return []
    found = decode_json(_Acls, path, data)
    if found.version != 1:
        raise MalformedZnodeError(path, f"version {found.version} is not known")
    return [AclEntry(a.principal, a.permission_type, a.operation, a.host) for a in found.acls]


def encode_acl_change(resource_type: str, name: str) -> bytes:
    """Return a literal resource's change: `TOPIC:name`, the type in upper case."""
    return f"{resource_type}:{name}".encode()


def decode_acl_change(node: str, data: bytes) -> tuple[str, str]:
    kind, colon, name = data.decode("utf-8", "replace").partition(":")
    if not colon:
        raise MalformedZnodeError(f"{ACL_CHANGES}/{node}", "no resource type")
    return kind, name


def encode_extended_acl_change(resource_type: str, name: str, pattern_type: str) -> bytes:
    return msgspec.json.encode(
        {"version": 1, "resourceType": resource_type, "name": name, "patternType": pattern_type}
    )


def decode_extended_acl_change(node: str, data: bytes) -> tuple[str, str, str]:
    found = decode_json(_AclChange, f"{ACL_EXTENDED_CHANGES}/{node}", data)
    return found.resource_type, found.name, found.pattern_type


# --- the store's part -------------------------------------------------------------------------


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
        data = encode_acls(words)
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
        for e in decode_acls(path, data)
    )


def _words(entry: Entry) -> AclEntry:
    permission = PERMISSIONS.get(entry.permission, "Unknown")
    operation = OPERATIONS.get(entry.operation, "Unknown")
    return AclEntry(entry.principal, permission, operation, entry.host)


def _encode_literal(pattern: Pattern) -> bytes:
    return encode_acl_change(change_name(pattern.resource_type), pattern.name)


def _decode_literal(name: str, data: bytes) -> Pattern:
    kind, resource = decode_acl_change(name, data)
    return _known(f"{ACL_CHANGES}/{name}", kind, resource, LITERAL)


def _encode(pattern: Pattern) -> bytes:
    return encode_extended_acl_change(
        change_name(pattern.resource_type), pattern.name, PATTERN_TYPES[pattern.pattern_type]
    )


def _decode(name: str, data: bytes) -> Pattern:
    kind, resource, word = decode_extended_acl_change(name, data)
    return _known(f"{ACL_EXTENDED_CHANGES}/{name}", kind, resource, named(PATTERN_TYPES, word))


def _known(path: str, kind: str, resource: str, pattern_type: int) -> Pattern:
    """Return the pattern that a notification names; MalformedZnodeError."""
    resource_type = named(RESOURCE_TYPES, kind)
    if UNKNOWN in (resource_type, pattern_type):
        raise MalformedZnodeError(path, "no such resource or pattern type")
    return Pattern(resource_type, resource, pattern_type)
