"""The first users of a secured cluster and what the application may do, written into ZooKeeper.

Brokers authenticate as one of these users among each other, so there must be users first.
Invariant: what an administrator changed stays: this is done once for a cluster.
"""

from collections.abc import Mapping

from ottla.local.first_users import put_in_zookeeper, remove_from_zookeeper
from ottla.local.passwords import APPLICATION
from ottla.local.zookeeper_session import ZooKeeper, asked
from ottla.security.acls import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DENY,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WILDCARD,
    WRITE,
    Entry,
    Pattern,
)
from ottla.security.principals import USER_TYPE, Principal
from ottla.security.sasl.scram import BY_NAME
from ottla.zookeeper.access import UNKNOWN_VERSION
from ottla.zookeeper.session import Session
from ottla.zookeeper.store import Store

MECHANISM = BY_NAME["SCRAM-SHA-512"]
ITERATIONS = 8192
INTERNAL = "__"
"""Topics of Kafka's own begin so."""

RULES = (
    (Pattern(TOPIC, WILDCARD, LITERAL), ALLOW, (READ, WRITE, CREATE, DESCRIBE_CONFIGS)),
    (Pattern(TOPIC, INTERNAL, PREFIXED), DENY, (ALL,)),
    (Pattern(GROUP, WILDCARD, LITERAL), ALLOW, (READ,)),
    (Pattern(TRANSACTIONAL_ID, WILDCARD, LITERAL), ALLOW, (WRITE,)),
    (Pattern(CLUSTER, CLUSTER_NAME, LITERAL), ALLOW, (IDEMPOTENT_WRITE,)),
)
"""What the application may do (docs/SECURITY.md); Read and Write imply Describe."""


def put_passwords(zookeeper: ZooKeeper, passwords: Mapping[str, str]) -> None:
    """Give users these passwords, in ZooKeeper; brokers that run take them over."""

    async def write(session: Session) -> None:
        for name, password in passwords.items():
            await put_in_zookeeper(session, name, password, [MECHANISM], ITERATIONS)

    asked(zookeeper, write)


def remove_password(zookeeper: ZooKeeper, name: str) -> None:
    """Take a user's password away."""
    asked(zookeeper, lambda session: remove_from_zookeeper(session, name, MECHANISM))


def create(zookeeper: ZooKeeper, passwords: Mapping[str, str]) -> None:
    """Create users and the application's ACLs; patterns that have ACLs already keep theirs."""

    async def write(session: Session) -> None:
        store = Store(session)
        await store.acls.create_paths()
        principal = str(Principal(USER_TYPE, APPLICATION))
        for pattern, permission, operations in RULES:
            entries = [Entry(principal, WILDCARD, o, permission) for o in operations]
            if await store.acls.set(pattern, entries, UNKNOWN_VERSION):
                await store.acls.notify(pattern)

    asked(zookeeper, write)
    put_passwords(zookeeper, passwords)
