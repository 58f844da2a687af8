"""ACLs in words: as they are typed, as the output has them, and as the command that adds one."""

from collections.abc import Sequence
from shlex import quote

from msgspec import Struct

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


class AclFacts(Struct, frozen=True):
    """An ACL by its parts, in words."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


class AclChanges(Struct):
    """The ACLs of a change, and whether it was made."""

    executed: bool
    acls: list[AclFacts]


class AclAnswer(Struct):
    """Whether something is allowed; the ACL that says so, or the one that nearly allows it."""

    question: str
    allowed: bool
    reason: str
    acl: AclFacts | None
    nearest: AclFacts | None
    differs: list[str]
    command: str | None


def described(acl: Acl) -> AclFacts:
    """Return an ACL by its parts."""
    pattern, entry = acl
    return AclFacts(
        RESOURCE_TYPES.get(pattern.resource_type, "Unknown"),
        pattern.name,
        {LITERAL: "literal", PREFIXED: "prefixed"}.get(pattern.pattern_type, "unknown"),
        entry.principal,
        entry.host,
        OPERATIONS.get(entry.operation, "Unknown"),
        PERMISSIONS.get(entry.permission, "Unknown"),
    )


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
