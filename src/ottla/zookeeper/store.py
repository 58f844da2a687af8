"""The store: Kafka's cluster state in ZooKeeper, typed and fenced, through one session.

Invariants: one store per session generation; when the session is dead every method raises
SessionExpiredError and a new store is made on a new session; the retry rules are those of `access`.
Kafka: `KafkaZkClient`.
"""

from ottla.model.ports import World
from ottla.zookeeper.access import ANY_VERSION, UNKNOWN_VERSION, Access
from ottla.zookeeper.acls import AclStore
from ottla.zookeeper.addresses import ConnectString
from ottla.zookeeper.eligible import EligibleReplicas
from ottla.zookeeper.registration import Registration
from ottla.zookeeper.removals import Removals
from ottla.zookeeper.security import OPEN, ZooKeeperSecurity
from ottla.zookeeper.session import Session
from ottla.zookeeper.settings import Settings
from ottla.zookeeper.tokens import DelegationTokens
from ottla.zookeeper.topic_ids import TopicIds

__all__ = ["ANY_VERSION", "UNKNOWN_VERSION", "Store", "ensure_chroot"]


class Store(
    Registration, Settings, EligibleReplicas, TopicIds, Removals, AclStore, DelegationTokens
):
    """`Store(session, previous_session_id=..., on_malformed=...)`; see the parts for methods."""


async def ensure_chroot(
    world: World,
    connect_string: str,
    session_timeout_ms: int,
    connect_timeout_ms: int,
    security: ZooKeeperSecurity = OPEN,
) -> None:
    """Create the connect string's chroot if it lacks; a session in it cannot do that."""
    target = ConnectString.parse(connect_string)
    if not target.chroot:
        return
    above = connect_string.partition("/")[0]
    session = await Session.connect(
        world, above, session_timeout_ms, connect_timeout_ms, security=security
    )
    try:
        await Access(session).create_recursive(target.chroot, None, fail_if_exists=False)
    finally:
        await session.close()
