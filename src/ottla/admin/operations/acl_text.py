"""ACLs in words: as they are typed, as the output has them, and as the command that adds one."""

from collections.abc import Sequence
from shlex import quote

from ottla.security.acls import (
    CLUSTER,
    CLUSTER_NAME,
    LITERAL,
    OPERATIONS,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    SUPPORTED,
    Acl,
    named,
)


def operation_of(text: str) -> int:
    """Return an operation's number; ValueError that names those there are."""
    number = named(OPERATIONS, text)
    if not number:
        raise ValueError(f"{text}: there is no such operation: {', '.join(OPERATIONS.values())}")
    return number


def unknown_to(resource_type: int, operations: Sequence[int]) -> list[str]:
    """Return the operations that resources of a type do not know, by name."""
    known = SUPPORTED[resource_type]
    return [OPERATIONS[o] for o in operations if o in OPERATIONS and o not in (*known, 2)]


def described(acl: Acl) -> dict[str, str]:
    """Return an ACL by its parts, as the output has them."""
    pattern, entry = acl
    return {
        "resource": RESOURCE_TYPES.get(pattern.resource_type, "Unknown"),
        "name": pattern.name,
        "pattern": {LITERAL: "literal", PREFIXED: "prefixed"}.get(pattern.pattern_type, "unknown"),
        "principal": entry.principal,
        "host": entry.host,
        "operation": OPERATIONS.get(entry.operation, "Unknown"),
        "permission": PERMISSIONS.get(entry.permission, "Unknown"),
    }


def as_command(acl: Acl) -> str:
    """Return the command that adds an ACL."""
    pattern, entry = acl
    kind = RESOURCE_TYPES[pattern.resource_type]
    option = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind).lstrip("-")
    resource = (
        "--cluster" if pattern.resource_type == CLUSTER else f"--{option} {quote(pattern.name)}"
    )
    prefixed = " --prefixed" if pattern.pattern_type == PREFIXED else ""
    host = "" if entry.host == "*" else f" --host {quote(entry.host)}"
    return (
        f"ottla acls add {quote(entry.principal)} --operation {OPERATIONS[entry.operation]} "
        f"{resource}{prefixed}{host}"
    )


def resource_of(resources: Sequence[tuple[int, str | None]], *, cluster: bool) -> tuple[int, str]:
    """Return (type, name) of the one resource that was named; ValueError for none or several."""
    found = [(kind, name) for kind, name in resources if name is not None]
    if cluster:
        found.append((CLUSTER, CLUSTER_NAME))
    if len(found) != 1 or not found[0][1]:
        raise ValueError(
            "name one resource: --topic, --group, --transactional-id, --delegation-token, --user "
            "or --cluster"
        )
    return found[0]
