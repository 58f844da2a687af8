"""The store: Kafka's cluster state in ZooKeeper, typed and fenced, through one session.

Each part of it is an attribute, and a caller that needs one part is given that part alone.
Invariants: one store per session generation; when the session is dead every method raises
SessionExpiredError and a new store is made on a new session; the retry rules are those of `access`.
Kafka: `KafkaZkClient`.
"""

from collections.abc import Callable

from ottla.model.ports import World
from ottla.zookeeper import znodes
from ottla.zookeeper.access import ANY_VERSION, UNKNOWN_VERSION, Access
from ottla.zookeeper.acls import Acls
from ottla.zookeeper.addresses import ConnectString
from ottla.zookeeper.cluster import AdminRequests, Cluster
from ottla.zookeeper.configs import Configs
from ottla.zookeeper.consumer_offsets import ConsumerOffsets
from ottla.zookeeper.election import Election
from ottla.zookeeper.eligible import EligibleReplicas
from ottla.zookeeper.errors import MalformedZnodeError
from ottla.zookeeper.notifications import Notifications
from ottla.zookeeper.registration import Brokers
from ottla.zookeeper.removals import Removals
from ottla.zookeeper.security import OPEN, ZooKeeperSecurity
from ottla.zookeeper.session import Session
from ottla.zookeeper.states import PartitionStates
from ottla.zookeeper.tokens import DelegationTokens
from ottla.zookeeper.topics import TopicIds, Topics

__all__ = ["ANY_VERSION", "UNKNOWN_VERSION", "Store", "ensure_chroot"]


class Store:
    """What one session reads and writes.

    `previous_session_id`: the session this broker had before, if any. `fence`: the version that
    /controller_epoch must have at each write (R10); ControllerMovedError if it has another one.
    """

    def __init__(
        self,
        session: Session,
        *,
        previous_session_id: int = 0,
        on_malformed: Callable[[MalformedZnodeError], None] | None = None,
        fence: int = ANY_VERSION,
    ) -> None:
        zk = self.zk = Access(session, on_malformed=on_malformed, fence=fence)
        self.session = session
        self.cluster = Cluster(zk)
        self.brokers = Brokers(zk, previous_session_id)
        self.removals = Removals(zk)
        self.election = Election(zk)
        self.topics = Topics(zk)
        self.topic_ids = TopicIds(zk)
        self.states = PartitionStates(zk)
        self.eligible = EligibleReplicas(zk)
        self.admin_requests = AdminRequests(zk)
        self.isr_changes = Notifications(
            zk,
            znodes.ISR_CHANGES,
            znodes.ISR_CHANGE_PREFIX,
            znodes.encode_isr_change,
            znodes.decode_isr_change,
        )
        self.log_dir_events = Notifications(
            zk,
            znodes.LOG_DIR_EVENTS,
            znodes.LOG_DIR_EVENT_PREFIX,
            znodes.encode_log_dir_event,
            znodes.decode_log_dir_event,
        )
        self.configs = Configs(zk)
        self.acls = Acls(zk)
        self.tokens = DelegationTokens(zk)
        self.consumer_offsets = ConsumerOffsets(zk)

    def fenced(self, epoch_zk_version: int) -> "Store":
        """Return a controller's store: it writes while /controller_epoch has this version."""
        zk = self.zk
        return Store(zk.session, on_malformed=zk.on_malformed, fence=epoch_zk_version)


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
