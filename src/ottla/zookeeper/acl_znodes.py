"""The authorizer's znodes: paths, rules and change notifications, as the JVM writes them.

Invariants: those of `znodes`. Kafka: `AclEntry` and the `ZkAclStore` and `ZkAclChangeStore` of
Kafka's `ZkData`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Struct

from ottla.zookeeper.errors import MalformedZnodeError
from ottla.zookeeper.znodes import Int32, decode_json

ACL = "/kafka-acl"
ACL_EXTENDED = "/kafka-acl-extended"
ACL_CHANGES = "/kafka-acl-changes"
ACL_EXTENDED_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX = "acl_changes_"
ACL_TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")


def acl_path(resource_type: str, name: str, *, prefixed: bool = False) -> str:
    root = f"{ACL_EXTENDED}/prefixed" if prefixed else ACL
    return f"{root}/{resource_type}/{name}"


class AclEntry(NamedTuple):
    """One rule, in the words of the znode: `User:a`, `Allow`, `Read`, `*`."""

    principal: str
    permission_type: str
    operation: str
    host: str


class _Acl(Struct):
    principal: str
    permissionType: str  # noqa: N815 - Kafka's key
    operation: str
    host: str


class _Acls(Struct):
    version: Int32
    acls: list[_Acl]


class _AclChange(Struct):
    version: Int32
    resourceType: str  # noqa: N815
    name: str
    patternType: str  # noqa: N815


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
    return [AclEntry(a.principal, a.permissionType, a.operation, a.host) for a in found.acls]


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
    return found.resourceType, found.name, found.patternType
