"""What requests of transactions may touch of the broker."""

from typing import Protocol

from ottla.broker.authorization.request_authorizer import RequestAuthorizer
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.requests.transactions.producer_connections import ProducerConnections
from ottla.broker.requests.transactions.producer_ids import ProducerIds
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.coordinators.transaction_verifier import TransactionVerifier
from ottla.model.config import BrokerConfig
from ottla.model.ports import World
from ottla.replication.replica_manager import ReplicaManager


class TransactionsServer(Protocol):
    """What coordinators and operators may touch for transactions."""

    authorizer: RequestAuthorizer | None
    world: World
    config: BrokerConfig
    replicas: ReplicaManager
    metadata: MetadataCache
    groups: GroupCoordinator
    transactions: TransactionCoordinator


class ProducerTransactionsServer(Protocol):
    """What producers may touch for their transactions."""

    authorizer: RequestAuthorizer | None
    world: World
    replicas: ReplicaManager
    metadata: MetadataCache
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    producer_connections: ProducerConnections


class ProducersServer(Protocol):
    """What InitProducerId may touch."""

    transactions: TransactionCoordinator
    producer_ids: ProducerIds
