"""The authorizer: may this client do that? Kafka's rules over ACLs that are kept in an index. Pure.

Invariants:
- a super user may do everything; no ACL is looked at
- one ACL that denies wins over all that allow; without one that allows, the response is no
- `allow.everyone.if.no.acl.found` counts where no ACL at all is about a resource
- decisions are remembered, a bounded number of them, and forgotten with every change of the ACLs

Kafka: `AclAuthorizer.authorizeAction` and `authorizeByResourceType`.
"""

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.security.acls import (
    ALL,
    ALLOW,
    DENY,
    EVERY_USER,
    IMPLIED_BY,
    LITERAL,
    PREFIXED,
    WILDCARD,
    Acl,
    AclFilter,
    Entry,
    Pattern,
)
from ottla.security.principals import Principal

MOST_DECISIONS = 50_000
MOST_CHARACTERS = 2_000_000
"""Decisions that are remembered, and how long their names are together: about 20 MB, whatever the
names are. When that is full, all are forgotten."""

LONGEST_REMEMBERED = 249
"""No topic has a longer name: of others nothing is remembered."""

SUPER_USER = "a super user"
NO_ACL_FOUND = "no ACL is about the resource, and allow.everyone.if.no.acl.found is"
DENIED = "an ACL denies it"
ALLOWED = "an ACL allows it"
NOTHING_ALLOWS = "no ACL allows it"

_EVERY_USER = str(EVERY_USER)
_Rules = dict[str, tuple[Entry, ...]]
"""The entries of a pattern by their principals."""


class Decision(NamedTuple):
    """Whether something is allowed, why, and by which ACL if there is one."""

    allowed: bool
    reason: str
    acl: Acl | None = None


class AclAuthorizer:
    """All ACLs of the cluster, and what follows from them."""

    def __init__(
        self, super_users: Collection[Principal] = (), *, allow_if_no_acl: bool = False
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_if_no_acl = allow_if_no_acl
        self.generation = 0
        """goes up by one with each change of the ACLs"""
        self._entries: dict[Pattern, frozenset[Entry]] = {}
        self._rules: dict[Pattern, _Rules] = {}
        self._prefix_lengths: dict[int, list[int]] = {}
        self._with_length: dict[tuple[int, int], int] = {}
        self._decisions: dict[tuple[Principal, str, int, int, str], bool] = {}
        self._characters = 0
        self._of_any: dict[tuple[Principal, str, int, int], bool] = {}

    # --- the ACLs -------------------------------------------------------------------------------

    def set(self, pattern: Pattern, entries: Iterable[Entry]) -> bool:
        """Replace what is said of a pattern; nothing removes it. False if nothing changed."""
        new = frozenset(entries)
        known = self._entries.get(pattern, frozenset())
        if new == known:
            return False
        if new:
            self._entries[pattern] = new
            self._rules[pattern] = _by_principal(new)
        else:
            del self._entries[pattern], self._rules[pattern]
        if pattern.pattern_type == PREFIXED and bool(new) != bool(known):
            self._count_length(pattern, 1 if new else -1)
        self._forget()
        self._of_any.clear()
        self.generation += 1
        return True

    def replace(self, acls: Mapping[Pattern, Iterable[Entry]]) -> None:
        """Replace all ACLs by others."""
        for gone in [p for p in self._entries if p not in acls]:
            self.set(gone, ())
        for pattern, entries in acls.items():
            self.set(pattern, entries)

    def entries(self, pattern: Pattern) -> frozenset[Entry]:
        return self._entries.get(pattern, frozenset())

    def patterns(self) -> list[Pattern]:
        return list(self._entries)

    def acls(self, wanted: AclFilter | None = None) -> Iterator[Acl]:
        """Yield the ACLs that a filter selects; without one, all."""
        for pattern, entries in self._entries.items():
            if wanted is None or wanted.selects(pattern):
                for entry in entries:
                    acl = Acl(pattern, entry)
                    if wanted is None or wanted.matches(acl):
                        yield acl

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def _count_length(self, pattern: Pattern, by: int) -> None:
        """Note how long prefixes are: those of a name are looked up one by one."""
        key = (pattern.resource_type, len(pattern.name))
        count = self._with_length.get(key, 0) + by
        lengths = self._prefix_lengths.setdefault(pattern.resource_type, [])
        if count == 0:
            del self._with_length[key]
            lengths.remove(key[1])
            return
        if count == 1 and by == 1:
            insort(lengths, key[1])
        self._with_length[key] = count

    # --- decisions ------------------------------------------------------------------------------

    def allows(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Return whether a client may do something with a resource. `host`: its address."""
        key = (principal, host, operation, resource_type, name)
        known = self._decisions.get(key)
        if known is None:
            known = self.decide(*key).allowed
            length = len(name) + len(principal.name)
            if length > LONGEST_REMEMBERED:
                return known
            self._characters += length
            if len(self._decisions) >= MOST_DECISIONS or self._characters > MOST_CHARACTERS:
                self._forget()
            self._decisions[key] = known
        return known

    def _forget(self) -> None:
        self._decisions.clear()
        self._characters = 0

    def decide(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        """Return the decision with its reason: the same as `allows`, and never remembered."""
        if principal in self.super_users:
            return Decision(True, SUPER_USER)
        found = self._about(resource_type, name)
        if not found:
            allowed = self.allow_if_no_acl
            return Decision(allowed, f"{NO_ACL_FOUND} {str(allowed).lower()}")
        denied = _first(found, principal, host, DENY, (operation,))
        if denied is not None:
            return Decision(False, DENIED, denied)
        implied_by = IMPLIED_BY.get(operation, (operation,))
        allowing = _first(found, principal, host, ALLOW, implied_by)
        if allowing is not None:
            return Decision(True, ALLOWED, allowing)
        return Decision(False, NOTHING_ALLOWS)

    def allows_any(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Return whether a client may do something with any resource of a type (KIP-679).

        What `allows` implies (Describe by Read) does not count here, as in Kafka.
        """
        key = (principal, host, operation, resource_type)
        known = self._of_any.get(key)
        if known is None:
            if len(principal.name) > LONGEST_REMEMBERED:
                return self._decide_any(*key)
            if len(self._of_any) >= MOST_DECISIONS:
                self._of_any.clear()
            known = self._of_any[key] = self._decide_any(*key)
        return known

    def _decide_any(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        if principal in self.super_users:
            return True
        denied: dict[int, set[str]] = {LITERAL: set(), PREFIXED: set()}
        allowed: dict[int, set[str]] = {LITERAL: set(), PREFIXED: set()}
        who = (str(principal), _EVERY_USER)
        for pattern, rules in self._rules.items():
            if pattern.resource_type != resource_type:
                continue
            for entry in (e for p in dict.fromkeys(who) for e in rules.get(p, ())):
                if entry.host in (host, WILDCARD) and entry.operation in (operation, ALL):
                    names = denied if entry.permission == DENY else allowed
                    names[pattern.pattern_type].add(pattern.name)
        if WILDCARD in denied[LITERAL]:
            return False
        if self.allow_if_no_acl:
            return True
        prefixes = denied[PREFIXED]
        return any(not _begins(name, prefixes) for name in allowed[PREFIXED]) or any(
            name == WILDCARD or (name not in denied[LITERAL] and not _begins(name, prefixes))
            for name in allowed[LITERAL]
        )

    def _about(self, resource_type: int, name: str) -> list[tuple[Pattern, _Rules]]:
        """Return what is said of a resource, by the patterns that cover it."""
        patterns = [Pattern(resource_type, WILDCARD)]
        if name != WILDCARD:
            patterns.append(Pattern(resource_type, name))
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            patterns.append(Pattern(resource_type, name[:length], PREFIXED))
        rules = self._rules
        return [(p, rules[p]) for p in patterns if p in rules]


def _by_principal(entries: Iterable[Entry]) -> _Rules:
    found: dict[str, list[Entry]] = {}
    for entry in sorted(entries):
        found.setdefault(entry.principal, []).append(entry)
    return {principal: tuple(rules) for principal, rules in found.items()}


def _first(
    about: list[tuple[Pattern, _Rules]],
    principal: Principal,
    host: str,
    permission: int,
    operations: tuple[int, ...],
) -> Acl | None:
    """Return the first ACL of a kind that is about a client's operation."""
    name = str(principal)
    for pattern, rules in about:
        for who in (name, _EVERY_USER):
            for entry in rules.get(who, ()):
                if entry.permission == permission and entry.concerns(name, host, operations):
                    return Acl(pattern, entry)
    return None


def _begins(name: str, prefixes: Collection[str]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)
