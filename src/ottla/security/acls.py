"""ACLs: what they are about, what they say, and the filters that select them. Pure.

Plain values and numbers: the numbers are those of the wire, the names those of Kafka's znodes and
of `kafka-acls`. Kafka: `ResourcePattern`, `AccessControlEntry`, `AclBinding`, their filters, and
`AclEntry.supportedOperations`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.security.principals import USER_TYPE, Principal

# Resource types.
UNKNOWN, ANY = 0, 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
# Pattern types.
MATCH, LITERAL, PREFIXED = 2, 3, 4
# Operations.
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS = range(10, 15)
# Permissions.
DENY, ALLOW = 2, 3

RESOURCE_TYPES = {
    TOPIC: "Topic",
    GROUP: "Group",
    CLUSTER: "Cluster",
    TRANSACTIONAL_ID: "TransactionalId",
    DELEGATION_TOKEN: "DelegationToken",
    USER: "User",
}
"""The names that znodes have; the word of `change_name` is in the notifications."""
PATTERN_TYPES = {LITERAL: "LITERAL", PREFIXED: "PREFIXED"}
OPERATIONS = {
    ALL: "All",
    READ: "Read",
    WRITE: "Write",
    CREATE: "Create",
    DELETE: "Delete",
    ALTER: "Alter",
    DESCRIBE: "Describe",
    CLUSTER_ACTION: "ClusterAction",
    DESCRIBE_CONFIGS: "DescribeConfigs",
    ALTER_CONFIGS: "AlterConfigs",
    IDEMPOTENT_WRITE: "IdempotentWrite",
    CREATE_TOKENS: "CreateTokens",
    DESCRIBE_TOKENS: "DescribeTokens",
}
PERMISSIONS = {DENY: "Deny", ALLOW: "Allow"}

WILDCARD = "*"
"""As a resource's name, a host, or the name of a user: every one."""
CLUSTER_NAME = "kafka-cluster"
"""The one name that a resource of type Cluster can have."""
EVERY_USER = Principal(USER_TYPE, WILDCARD)

SUPPORTED = {
    TOPIC: (READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DESCRIBE, DELETE),
    CLUSTER: (
        CREATE,
        CLUSTER_ACTION,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        IDEMPOTENT_WRITE,
        ALTER,
        DESCRIBE,
    ),
    TRANSACTIONAL_ID: (DESCRIBE, WRITE),
    DELEGATION_TOKEN: (DESCRIBE,),
    USER: (CREATE_TOKENS, DESCRIBE_TOKENS),
}
"""The operations that each type of resource knows."""

IMPLIED_BY = {
    DESCRIBE: (DESCRIBE, READ, WRITE, DELETE, ALTER),
    DESCRIBE_CONFIGS: (DESCRIBE_CONFIGS, ALTER_CONFIGS),
}
"""Who may do one of these may do the key as well. It goes for permissions, not for denials."""


class Pattern(NamedTuple):
    """The resources that an ACL is about: of one type, by name or by the beginning of the name."""

    resource_type: int
    name: str
    pattern_type: int = LITERAL

    def covers(self, resource_type: int, name: str) -> bool:
        """Return whether a resource is one of them."""
        if resource_type != self.resource_type:
            return False
        if self.pattern_type == PREFIXED:
            return name.startswith(self.name)
        return self.name in (WILDCARD, name)

    def __str__(self) -> str:
        kind = RESOURCE_TYPES.get(self.resource_type, "Unknown")
        return f"{kind}:{PATTERN_TYPES.get(self.pattern_type, 'UNKNOWN')}:{self.name}"


class Entry(NamedTuple):
    """Who may (or may not) do what, from which host. `principal` is `User:alice`."""

    principal: str
    host: str
    operation: int
    permission: int

    def concerns(self, principal: str, host: str, operations: tuple[int, ...]) -> bool:
        """Return whether the rule is about one of these operations of this client."""
        return (
            self.principal in (principal, str(EVERY_USER))
            and self.host in (host, WILDCARD)
            and (self.operation == ALL or self.operation in operations)
        )

    def __str__(self) -> str:
        permission = PERMISSIONS.get(self.permission, "Unknown")
        operation = OPERATIONS.get(self.operation, "Unknown")
        return f"{permission} {self.principal} {operation} from host {self.host}"


class Acl(NamedTuple):
    """One rule. Kafka: `AclBinding`."""

    pattern: Pattern
    entry: Entry

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"


class AclFilter(NamedTuple):
    """What selects ACLs; None, or ANY for a number, is no condition. Kafka: `AclBindingFilter`."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def selects(self, pattern: Pattern) -> bool:
        """Return whether it selects ACLs of a pattern. MATCH: those that cover the name."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type == MATCH:
            return pattern.covers(pattern.resource_type, self.name)
        return self.name == pattern.name

    def matches(self, acl: Acl) -> bool:
        entry = acl.entry
        return (
            self.selects(acl.pattern)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """Return the patterns it selects by themselves; none where it takes a look at all ACLs."""
        if self.resource_type not in RESOURCE_TYPES or self.name is None:
            return ()
        return tuple(
            Pattern(self.resource_type, self.name, kind)
            for kind in PATTERN_TYPES
            if self.pattern_type in (ANY, kind)
        )


def change_name(resource_type: int) -> str:
    """Return a type's name in notifications of changes, as of `TRANSACTIONAL_ID`."""
    name = RESOURCE_TYPES[resource_type]
    return "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(name)).upper()


def named(names: dict[int, str], name: str) -> int:
    """Return the number of a name as znodes and tools have it; UNKNOWN for any other.

    Upper and lower case, `-` and `_` make no difference: `cluster-action` is `ClusterAction`.
    """
    wanted = _plain(name)
    return next((number for number, known in names.items() if _plain(known) == wanted), UNKNOWN)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def parse_principal(text: str) -> Principal | None:
    """Return the principal that `type:name` names, None if it is no such text."""
    kind, colon, name = text.partition(":")
    return Principal(kind, name) if colon else None


APART = {"operation": 1, "resource": 2, "host": 3, "principal": 4}
"""How far an ACL is that differs in one of these: one of another principal is the farthest."""


class Nearest(NamedTuple):
    """An ACL that allows nearly the same, and in what it differs."""

    acl: Acl
    differs: tuple[str, ...]


def nearest(
    acls: Iterable[Acl],
    principal: Principal,
    host: str,
    operation: int,
    resource_type: int,
    name: str,
) -> Nearest | None:
    """Return the ACL that allows and differs in the least from what is asked; None if none does.

    One about another type of resource is never near.
    """
    best: tuple[int, int, Nearest] | None = None
    operations = IMPLIED_BY.get(operation, (operation,))
    for acl in acls:
        pattern, entry = acl
        if entry.permission != ALLOW or pattern.resource_type != resource_type:
            continue
        differs = []
        distance = 0
        if not pattern.covers(resource_type, name):
            differs.append("resource")
            distance += len(name) - _shared(pattern.name, name)
        if not entry._replace(host=WILDCARD).concerns(str(principal), host, (entry.operation,)):
            differs.append("principal")
        if entry.host not in (host, WILDCARD):
            differs.append("host")
        if not entry._replace(host=WILDCARD, principal=str(principal)).concerns(
            str(principal), host, operations
        ):
            differs.append("operation")
        apart = sum(APART[part] for part in differs)
        found = (apart, distance, Nearest(acl, tuple(differs)))
        if differs and (best is None or found < best):
            best = found
    return None if best is None else best[2]


def allowing(principal: Principal, host: str, operation: int, resource_type: int, name: str) -> Acl:
    """Return the narrowest ACL that allows something."""
    return Acl(Pattern(resource_type, name), Entry(str(principal), host, operation, ALLOW))


def _shared(one: str, other: str) -> int:
    """Return how many characters two names begin with alike."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
