"""Services: the parts of one broker, as `broker.Broker` puts them together, for its handlers.

Invariants: all parts are there from the start; what
changes later is the session, which `membership` and `broker` change, the state, by `enter` alone,
and what is read of the cluster (its id, its features). Kafka: the constructor arguments of
`KafkaApis` and `ZkSupport`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ottla.broker.authorization.acl_cache import AclCache
from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.batch_checks import BatchChecks
from ottla.broker.configs.delegation_tokens import DelegationTokens
from ottla.broker.configs.dynamic_configs import DynamicConfigs
from ottla.broker.configs.scram_users import ScramUsers
from ottla.broker.configs.topic_configs import TopicConfigs
from ottla.broker.connections import ControlConnection, ProducerConnections
from ottla.broker.controller_channel import ControllerChannel
from ottla.broker.coordination import Coordination
from ottla.broker.current_session import CurrentSession
from ottla.broker.metadata.metadata_blobs import MetadataBlobs
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuotas
from ottla.broker.tasks import Tasks
from ottla.broker.topic_creation import TopicCreation
from ottla.controller.loop import Controller
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.coordinators.transaction_verifier import TransactionVerifier
from ottla.model.config import BrokerConfig
from ottla.model.ports import World
from ottla.model.protocol import is_stale_broker_epoch
from ottla.model.transitions import TransitionTable, check_transition
from ottla.replication.replica_manager import ReplicaManager
from ottla.zookeeper.store import Store

logger = logging.getLogger(__name__)


class BrokerState(IntEnum):
    """What a server does, from before its start to after its end. Kafka: `BrokerState`.

    The numbers are those its metric shows. `RECOVERY` is what the documents call
    RecoveringFromUncleanShutdown and `RUNNING` their RunningAsBroker: as in Kafka since 2.8,
    folders are loaded in RECOVERY whether they need recovery or not, and being the controller is
    not a state of its own.
    """

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7
    UNKNOWN = 127


# Target state -> the states it may be entered from.
BROKER_TRANSITIONS: TransitionTable[BrokerState] = {
    BrokerState.STARTING: frozenset({BrokerState.NOT_RUNNING}),
    BrokerState.RECOVERY: frozenset({BrokerState.STARTING}),
    BrokerState.RUNNING: frozenset({BrokerState.RECOVERY}),
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: frozenset({BrokerState.RUNNING}),
    BrokerState.SHUTTING_DOWN: frozenset(
        {
            BrokerState.STARTING,
            BrokerState.RECOVERY,
            BrokerState.RUNNING,
            BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        }
    ),
    BrokerState.NOT_RUNNING: frozenset({BrokerState.SHUTTING_DOWN}),
}


def check_broker_transition(before: BrokerState, after: BrokerState) -> None:
    """Raise IllegalTransitionError unless the table has the transition."""
    check_transition(BROKER_TRANSITIONS, "broker", before, after)


@dataclass(slots=True)
class BrokerServices:
    """One server's insides. `served` lists (api key, lowest, highest version) of the router."""

    world: World
    config: BrokerConfig
    broker_id: int
    session: CurrentSession
    metadata: MetadataCache
    blobs: MetadataBlobs
    dynamic_configs: DynamicConfigs
    topic_configs: TopicConfigs
    scram_users: ScramUsers
    delegation_tokens: DelegationTokens
    quotas: ClientQuotas
    mutation_quotas: ControllerMutationQuotas
    tasks: Tasks
    replicas: ReplicaManager
    controller: Controller
    controller_channel: ControllerChannel
    producer_ids: ProducerIds
    topic_creation: TopicCreation
    coordination: Coordination
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    batch_checks: BatchChecks
    authorizer: RequestAuthorizer | None = None
    acl_cache: AclCache | None = None
    """What keeps the authorizer's ACLs those of ZooKeeper."""
    cluster_id: str = ""
    state: BrokerState = BrokerState.NOT_RUNNING
    features_epoch: int = -1
    zookeeper_went_back: str = ""
    """How ZooKeeper was found to be older than what this broker knew of it: then what is not there
    may be newer than it, and nothing is deleted or given up for its sake (adr/0025)."""
    control_connection: ControlConnection = field(default_factory=ControlConnection)
    producer_connections: ProducerConnections = field(default_factory=ProducerConnections)
    served: Sequence[tuple[int, int, int]] = field(default=())

    def enter(self, state: BrokerState) -> None:
        """Change to another state; IllegalTransitionError if the table does not have it."""
        check_broker_transition(self.state, state)
        logger.info("broker state changed state=%s before=%s", state.name, self.state.name)
        self.state = state

    @property
    def is_registered(self) -> bool:
        """Whether this broker is part of the cluster: started, and in a session with ZooKeeper."""
        return self.state is BrokerState.RUNNING and self.session.current is not None

    async def load(self, store: Store) -> None:
        """Read what this broker has to know of ZooKeeper before it serves, through a new session.

        The ACLs first: no client is to be served by older ones.
        """
        if self.acl_cache is not None:
            await self.acl_cache.load(store.acls)
        await self.topic_configs.load(store)

    def forget_session(self) -> None:
        """Stop watching: the session is over. What was read stays until the next `load`."""
        if self.acl_cache is not None:
            self.acl_cache.stop()
        self.topic_configs.stop()

    def accept_controller_epoch(self, epoch: int) -> bool:
        """Take note of a controller's epoch; tell whether it is not older than any seen (R10)."""
        return self.replicas.accept_controller_epoch(epoch)

    def is_stale(self, request_epoch: int) -> bool:
        """Return whether a control request was meant for an earlier incarnation (R8, KIP-380)."""
        return is_stale_broker_epoch(request_epoch, self.session.broker_epoch)
