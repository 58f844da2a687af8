"""The nearest ACL: what to change so that something refused is allowed. Pure.

Kafka has nothing like it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.security.acls import (
    ALLOW,
    IMPLIED_BY,
    WILDCARD,
    Acl,
    Entry,
    Pattern,
)
from ottla.security.principals import Principal

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
