"""A plain model of ACLs: a loop over all of them, written from Kafka's documentation alone.

And random ACLs and questions, over so few names that they meet.
"""

from typing import Any, NamedTuple

from ottla.security.acls import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    PREFIXED,
    READ,
    WRITE,
    Acl,
    Entry,
    Pattern,
)
from ottla.security.principals import Principal

PRINCIPALS = ("User:a", "User:b", "User:*", "Group:a", "Group:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
OPERATIONS = tuple(range(2, 15))
TYPES = tuple(range(2, 8))
NAMES = ("*", "a", "ab", "abc", "b", "ba", "aab", "")


class Question(NamedTuple):
    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


def random_acl(chance: Any) -> Acl:
    pattern = Pattern(
        chance.choice(TYPES[:3]), chance.choice(NAMES[:-1]), chance.choice((LITERAL, PREFIXED))
    )
    permission = DENY if chance.random() < 0.2 else ALLOW
    return Acl(
        pattern,
        Entry(
            chance.choice(PRINCIPALS), chance.choice(HOSTS), chance.choice(OPERATIONS), permission
        ),
    )


def random_question(chance: Any) -> Question:
    return Question(
        chance.choice(("User:a", "User:b", "User:c", "Group:a")),
        chance.choice(HOSTS[:2]),
        chance.choice(OPERATIONS[1:]),
        chance.choice(TYPES[:3]),
        chance.choice(NAMES[1:-1]),
    )


def model_allows(acls: list[Acl], supers: set[str], q: Question, *, if_no_acl: bool) -> bool:
    """Return the answer of the documentation."""
    if q.principal in supers:
        return True
    about = []
    for pattern, entry in acls:
        if pattern.resource_type != q.resource_type:
            continue
        if pattern.pattern_type == PREFIXED:
            if q.name.startswith(pattern.name):
                about.append(entry)
        elif pattern.name in ("*", q.name):
            about.append(entry)
    if not about:
        return if_no_acl
    mine = [e for e in about if e.principal in (q.principal, "User:*") and e.host in (q.host, "*")]
    for entry in mine:
        if entry.permission == DENY and entry.operation in (q.operation, ALL):
            return False
    enough = {q.operation, ALL}
    if q.operation == DESCRIBE:
        enough |= {READ, WRITE, DELETE, ALTER}
    if q.operation == DESCRIBE_CONFIGS:
        enough.add(ALTER_CONFIGS)
    return any(e.permission == ALLOW and e.operation in enough for e in mine)


def principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)
